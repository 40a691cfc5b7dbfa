// SPDX-License-Identifier: Apache-2.0

package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/Microsoft/go-winio"
)

// ErrNobody means that nothing listens at the endpoint.
var ErrNobody = errors.New("nobody listens there")

// Dial connects to a named pipe.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := winio.DialPipeContext(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, ErrNobody)
	}
	return conn, err
}

// DialAny connects to an endpoint that a parent named, whoever owns it.
func DialAny(ctx context.Context, path string) (net.Conn, error) { return Dial(ctx, path) }

// Listen listens on a named pipe that only this user may open. It fails if
// another process listens there.
func Listen(path string) (net.Listener, error) {
	// D:P(A;;GA;;;OW): full access for the owner, none for anybody else.
	return winio.ListenPipe(path, &winio.PipeConfig{SecurityDescriptor: "D:P(A;;GA;;;OW)"})
}
