// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package ipc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"nvpair/internal/ipc"
)

func Example() {
	dir, err := os.MkdirTemp("", "ipc")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "run", "node.sock")
	ln, err := ipc.Listen(path) // makes run/ for this user alone
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = ln.Close() }()
	client, err := ipc.Dial(context.Background(), path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()
	server, err := ln.Accept()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()
	fmt.Fprintln(client, "hello from the same user")
	line, _ := bufio.NewReader(server).ReadString('\n')
	fmt.Print(line)
	// Output: hello from the same user
}
