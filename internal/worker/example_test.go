// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker"
)

func Example() {
	// The broker's part: one request, then the end of input.
	input := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"greet"}` + "\n")

	run := func(ctx context.Context, cfg worker.Config) error {
		link := worker.NewLink(cfg)
		link.Serve(ctx, func(req *jsonrpc.Request) {
			if req.Method == "greet" {
				req.Reply("hello")
				return
			}
			link.Unknown(req)
		})
		return nil
	}
	program := worker.Program{Name: "nvpair-greeter", Version: "1.0.0", Run: run}
	var output bytes.Buffer
	status := worker.Main(program, nil, worker.Streams{In: input, Out: &output, Err: os.Stderr})
	fmt.Print(&output)
	fmt.Println("exit status", status)
	// Output:
	// {"jsonrpc":"2.0","method":"ready","params":{"version":"1.0.0"}}
	// {"jsonrpc":"2.0","method":"worker/hello","params":{"liveness":1,"version":"1.0.0"}}
	// {"jsonrpc":"2.0","id":1,"result":"hello"}
	// exit status 0
}
