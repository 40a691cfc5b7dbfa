// SPDX-License-Identifier: Apache-2.0

package httpserve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"nvpair/internal/httpserve"
)

func Example() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := &httpserve.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}
	ended := make(chan error)
	go func() { ended <- server.Serve(ln) }()

	resp, err := http.Get("http://" + ln.Addr().String() + "/")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.Status)
	http.DefaultClient.CloseIdleConnections()
	fmt.Println(server.Shutdown(context.Background()), errors.Is(<-ended, http.ErrServerClosed))
	// Output:
	// 200 OK
	// <nil> true
}
