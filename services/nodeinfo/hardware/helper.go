// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	helperTime  = 3 * time.Second // of one helper program (NI-28)
	helperBytes = 1 << 20         // of what it says; more is an error
)

var errTooLong = errors.New("its output is too long")

// run is how helper programs are run; tests have their own.
type run func(ctx context.Context, program string, args ...string) ([]byte, error)

// runHelper runs a program and returns what it wrote to its standard output.
func runHelper(ctx context.Context, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, helperTime)
	defer cancel()
	var out, diagnostics capped
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	cmd.WaitDelay = time.Second // a grandchild may hold the pipes
	hideWindow(cmd)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%s: %w: %s", program, err, firstLine(out.b.String()+diagnostics.b.String()))
	}
	return out.b.Bytes(), nil
}

// capped is a buffer that takes up to helperBytes. The buffer is no embedded one:
// its ReadFrom would go around the bound.
type capped struct{ b bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	if c.b.Len()+len(p) > helperBytes {
		return 0, errTooLong
	}
	return c.b.Write(p)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line[:min(len(line), 200)]
}
