// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"nvpair/shared/brokerapi"
)

// maxParamsBytes keeps a call within the node's frame limit, so that an
// over-long one is refused here instead of being skipped there.
const maxParamsBytes = 1<<20 - 1024

// call calls one method. The result goes to the output as one line of JSON.
func (c *cli) call(args []string) int {
	var timeout time.Duration
	rest, code, ok := c.parse("call", args, 2, func(fs *flag.FlagSet) {
		fs.DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the answer, 0 = for ever")
	})
	if !ok {
		return code
	}
	if len(rest) == 0 {
		return c.misuse("call", "a method is needed, for example: %s call ping", name)
	}
	params, err := c.params(rest[1:])
	if err != nil {
		return c.misuse("call", "%v", err)
	}
	result, err := callOnce(rest[0], params, timeout)
	var answer *jsonrpc2.Error
	switch {
	case errors.As(err, &answer):
		fmt.Fprintf(c.std.Err, "error %d: %s\n", answer.Code, sentence(answer.Message))
		if answer.Data != nil {
			fmt.Fprint(c.std.Err, "data: ")
			writeJSON(c.std.Err, *answer.Data)
		}
		return exitFailed
	case errors.Is(err, context.DeadlineExceeded):
		return c.fail(fmt.Errorf("no answer to %s within %v", rest[0], timeout)) // or not even ready
	case err != nil:
		return c.fail(err)
	}
	writeJSON(c.std.Out, result)
	return exitOK
}

// params returns the JSON argument, nil for none; "-" reads it from the input.
func (c *cli) params(args []string) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, nil
	}
	text := []byte(args[0])
	if args[0] == "-" {
		var err error
		if text, err = io.ReadAll(io.LimitReader(c.std.In, maxParamsBytes+1)); err != nil {
			return nil, fmt.Errorf("read params: %w", err)
		}
	}
	switch {
	case len(text) > maxParamsBytes:
		return nil, fmt.Errorf("params are longer than %d bytes", maxParamsBytes)
	case !json.Valid(text):
		return nil, errors.New(`params are not JSON; quote them, for example: '{"value":true}'`)
	}
	return text, nil
}

func callOnce(method string, params json.RawMessage, timeout time.Duration) (json.RawMessage, error) {
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	n, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	defer n.close()
	if !strings.HasPrefix(method, brokerapi.HubNamespace) {
		if err := n.awaitReady(ctx); err != nil {
			return nil, err
		}
	}
	if params == nil {
		return n.call(ctx, method, nil)
	}
	return n.call(ctx, method, params)
}
