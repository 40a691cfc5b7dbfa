// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package supervise_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"time"

	"nvpair/internal/supervise"
)

// greetings is the link to a program that writes lines and ends with its input.
type greetings struct {
	io.ReadWriteCloser
	heard chan struct{} // a value for each line
}

func (g greetings) Serve(context.Context) {
	for in := bufio.NewScanner(g); in.Scan(); {
		fmt.Println(in.Text())
		g.heard <- struct{}{}
	}
}

func (g greetings) CloseWrite() { _ = g.ReadWriteCloser.(interface{ CloseWrite() error }).CloseWrite() }

func (g greetings) Ping(int64) {} // the program never announced that it answers

func Example() {
	policy := supervise.DefaultPolicy()
	policy.FirstDelay = time.Millisecond
	heard := make(chan struct{})
	scripts := []string{"echo hello; exit 1", "echo hello again; exec cat"}
	child := supervise.New(supervise.Config{
		Name:   "greeter",
		Policy: policy,
		Log:    slog.New(slog.DiscardHandler),
		Command: func() *exec.Cmd {
			script := scripts[0]
			scripts = scripts[1:]
			return exec.Command("/bin/sh", "-c", script)
		},
		Attach:    func(p *supervise.Process) supervise.Link { return greetings{p.Transport(), heard} },
		Stderr:    func(r io.Reader) { _, _ = io.Copy(io.Discard, r) },
		Ours:      func(string) bool { return false },
		Ended:     func(_ *supervise.Process, cause string) { fmt.Println("ended:", cause) },
		Healthy:   func() {},
		Exhausted: func() { fmt.Println("stays down") },
	})
	if err := child.Start(); err != nil {
		fmt.Println(err)
		return
	}
	<-heard
	<-heard
	child.Stop(time.Now().Add(10 * time.Second))
	fmt.Println(child.Status().State)
	// Output:
	// hello
	// ended: exit status 1
	// hello again
	// stopped
}
