// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

const usage = "usage: loadtool engine ADDRESS | loadtool client"

// Main runs one end until its input ends and returns the exit status: 0, 1 after a failure, 2 for a bad command line.
//
// The engine prints its address when it listens. The client reads cells, one JSON object a line, and answers each with
// a line that holds its Result; a cell of slow streams has a line before it, once all of them are open.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) == 2 && args[0] == "engine":
		err = runEngine(args[1], stdin, stdout)
	case len(args) == 1 && args[0] == "client":
		err = runClient(stdin, stdout)
	default:
		_, _ = fmt.Fprintln(stderr, usage)
		return 2
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func runEngine(addr string, stdin io.Reader, stdout io.Writer) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { // ends with the input, or with the process when Serve has failed
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	})
	if err := Serve(ctx, ln); err != nil {
		return err
	}
	parts.Wait()
	return nil
}

func runClient(stdin io.Reader, stdout io.Writer) error {
	out := json.NewEncoder(stdout)
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		var c Cell
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("read a cell: %w", err)
		}
		result := c.Run(func(open int) { _ = out.Encode(Result{Open: open}) }) // where this fails, the next does
		if err := out.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}
