// SPDX-License-Identifier: Apache-2.0

package jsonrpc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
)

// Two ends of a link in one process: the near one asks, the far one answers and
// sends its state when it has changed.
func Example() {
	near, far := net.Pipe()
	states := make(chan string, 1) // the one that is sent

	client := jsonrpc.New(near, jsonrpc.Config{Handle: func(r *jsonrpc.Request) {
		states <- fmt.Sprintf("%s is %s", r.Method, r.Params)
	}})

	var state *jsonrpc.Stream
	server := jsonrpc.New(far, jsonrpc.Config{Handle: func(r *jsonrpc.Request) {
		switch r.Method {
		case "add":
			var numbers []int
			if err := json.Unmarshal(r.Params, &numbers); err != nil {
				r.Fail(jsonrpc.InvalidParams("%v", err))
				return
			}
			sum := 0
			for _, n := range numbers {
				sum += n
			}
			r.Reply(sum)
		case "subscribe":
			r.Reply(nil)
			state.Mark() // written behind the answer
		default:
			r.Fail(jsonrpc.MethodNotFound(r.Method))
		}
	}})
	state = server.NewStream("state", func() (json.RawMessage, bool) { return json.RawMessage(`"ready"`), true })

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var ends sync.WaitGroup
	for _, conn := range []*jsonrpc.Conn{client, server} {
		ends.Go(func() {
			if err := conn.Run(ctx); err != nil {
				fmt.Println("run:", err)
			}
		})
	}

	result, err := client.Call(ctx, "add", []int{1, 2, 3})
	fmt.Printf("add: %s, %v\n", result, err)
	_, err = client.Call(ctx, "multiply", nil)
	fmt.Println("multiply:", err)
	result, err = client.Call(ctx, "subscribe", nil)
	fmt.Printf("subscribe: %s, %v\n", result, err)
	fmt.Println("notified:", <-states)

	cancel() // ends both
	ends.Wait()
	_, err = client.Call(context.Background(), "add", nil)
	fmt.Println("afterwards:", err)

	// Output:
	// add: 6, <nil>
	// multiply: error -32601: method not found: multiply
	// subscribe: null, <nil>
	// notified: state is "ready"
	// afterwards: jsonrpc peer closed
}
