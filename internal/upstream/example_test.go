// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"nvpair/internal/upstream"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	addr := server.Listener.Addr().String()

	pool := upstream.NewPool(upstream.Config{})
	defer pool.Close()
	resp, err := pool.Do(context.Background(), &upstream.Request{
		Addr: addr, Host: addr, Method: http.MethodPost, Target: "/echo", Body: []byte("hello"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	// Output: 200 hello <nil>
}
