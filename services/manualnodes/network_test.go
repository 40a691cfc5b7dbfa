// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// network is what the worker can reach, in memory: a request goes to the answer
// of its host:port and path, and is refused where there is none.
type network struct {
	t *testing.T

	mu      sync.Mutex        // guards the rest
	answers map[string]string // body by host:port/path; "silent" never answers, a number is a status
	asked   []string          // host:port/path of all requests, "dial host:port" of refused ones
	names   map[string]string // what a name resolves to, with commas; one that is not here has an address of its own
	own     map[string]string // name by such an address
	open    map[string]int    // connections by host
	most    int               // hosts with open connections at once
}

func newNetwork(t *testing.T, answers map[string]string) *network {
	return &network{t: t, answers: answers, names: map[string]string{}, own: map[string]string{}, open: map[string]int{}}
}

// silentFor is how long the network takes to give up.
const silentFor = 2500 * time.Millisecond

func (n *network) set(where, answer string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[where] = answer
}

// resolve makes a name lead somewhere.
func (n *network) resolve(name, addresses string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name] = addresses
}

func (n *network) lookup(_ context.Context, name string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	addresses, known := n.names[name]
	if !known {
		addresses = fmt.Sprintf("203.0.113.%d", len(n.own)+1)
		for own, of := range n.own {
			if of == name {
				addresses = own
			}
		}
		n.own[addresses] = name
	}
	var list []netip.Addr
	for text := range strings.SplitSeq(addresses, ",") {
		list = append(list, netip.MustParseAddr(text))
	}
	return list, nil
}

func (n *network) drop(where string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.answers, where)
}

// requests returns what was asked since the last call.
func (n *network) requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	return asked
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	require.NoError(n.t, err)
	n.mu.Lock()
	if name := n.own[host]; name != "" {
		host, addr = name, net.JoinHostPort(name, port)
	}
	n.open[host]++
	n.most = max(n.most, len(n.open))
	serves := false
	for where, answer := range n.answers {
		if strings.HasPrefix(where, addr+"/") {
			serves = serves || answer != "silent"
		}
	}
	_, silent := n.answers[addr+"/"]
	silent = silent && n.answers[addr+"/"] == "silent"
	if !serves && !silent {
		n.asked = append(n.asked, "dial "+addr)
	}
	n.mu.Unlock()
	left := func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.open[host]--; n.open[host] == 0 {
			delete(n.open, host)
		}
	}
	switch {
	case silent:
		defer left()
		select {
		case <-time.After(silentFor): // before the transport gives up, which leaves the attempt alone for a moment
			return nil, os.ErrDeadlineExceeded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case !serves:
		left()
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	go func() { // ends with the connection
		defer left()
		n.serve(addr, theirs)
	}()
	return ours, nil
}

// serve answers one request.
func (n *network) serve(addr string, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	n.mu.Lock()
	n.asked = append(n.asked, addr+req.URL.Path)
	body, known := n.answers[addr+req.URL.Path]
	n.mu.Unlock()
	status := http.StatusOK
	if !known {
		status = http.StatusNotFound
	}
	if _, err := fmt.Sscanf(body, "status %d", &status); err == nil {
		body = ""
	}
	resp := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)), Close: true}
	if body != "" {
		resp.Body = readCloser{strings.NewReader(body)}
	}
	_ = resp.Write(conn) // the worker may have left
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
