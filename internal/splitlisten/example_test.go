// SPDX-License-Identifier: Apache-2.0

package splitlisten_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"nvpair/internal/splitlisten"
)

func Example() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	split := splitlisten.New(ln)
	var running sync.WaitGroup
	running.Go(func() { _ = split.Serve() })
	running.Go(func() { // a TLS server would take these
		for {
			conn, err := split.TLS().Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "in the clear")
	})}
	running.Go(func() { _ = server.Serve(split.Plain()) })

	resp, err := http.Get("http://" + ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	fmt.Println(string(body), err)

	http.DefaultClient.CloseIdleConnections()
	_ = server.Close() // closes both sides
	running.Wait()
	// Output: in the clear <nil>
}
