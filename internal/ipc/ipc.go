// SPDX-License-Identifier: Apache-2.0

// Package ipc opens the byte streams that links run over: this process's standard
// streams, and local endpoints (a Unix domain socket, on Windows a named pipe).
// Both ends of an endpoint are checked to belong to the same user; on Windows only
// the listening end checks.
package ipc

import "io"

// Stdio returns the standard streams as one stream. Close ends both and makes a
// blocked Read return.
func Stdio(in io.Reader, out io.Writer) io.ReadWriteCloser {
	r, rClose := interruptible(in)
	w, wClose := writable(out)
	return &stdio{Reader: r, Writer: w, closers: []func() error{wClose, rClose}}
}

type stdio struct {
	io.Reader
	io.Writer
	closers []func() error
}

func (s *stdio) Close() error {
	for _, c := range s.closers {
		_ = c() // closing standard streams has no result anyone could act on
	}
	return nil
}

// pumped makes a reader that cannot be interrupted closable: a goroutine reads
// for it, and is left behind in its last Read when the stream is closed. It is
// for terminals and files only, which end with the process.
func pumped(in io.Reader) (io.Reader, func() error) {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err)
	}()
	return r, r.Close
}
