// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

func (w *response) SetReadDeadline(t time.Time) error {
	if w.c == nil {
		return http.ErrNotSupported
	}
	return w.c.in.setDeadline(t)
}

// SetWriteDeadline holds until the handler returns.
func (w *response) SetWriteDeadline(t time.Time) error {
	if w.c == nil {
		return http.ErrNotSupported
	}
	return w.c.setWriteDeadline(t)
}

// EnableFullDuplex leaves the rest of the body alone when the answer begins.
func (w *response) EnableFullDuplex() error {
	w.fullDuplex = true
	return nil
}

// Hijack hands the connection over, with what was read ahead in the reader.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.over() {
		return nil, nil, http.ErrHijacked
	}
	w.disableContinue()
	if w.wrote {
		_ = w.FlushError()
	}
	c := w.c
	c.in.unwatch()
	w.hijacked, c.hijacked = true, true
	_ = c.nc.SetDeadline(time.Time{})
	c.in.mu.Lock()
	c.in.stale = false
	ahead := c.in.hasAhead
	c.in.mu.Unlock()
	br := c.br
	if ahead {
		_, _ = br.Peek(br.Buffered() + 1)
	}
	c.buffers = nil
	c.s.forget(c)
	return c.nc, bufio.NewReadWriter(br, bufio.NewWriterSize(c.nc, 4<<10)), nil
}

const continueLine = "HTTP/1.1 100 Continue\r\n\r\n"

// sendContinue asks the client for its body, unless the head came first.
func (w *response) sendContinue() {
	w.continueMu.Lock()
	defer w.continueMu.Unlock()
	if w.awaited.Load() {
		_ = w.c.send([]byte(continueLine))
		w.awaited.Store(false)
	}
}

// disableContinue waits for sendContinue, which then does nothing any more.
func (w *response) disableContinue() {
	if w.awaited.Load() {
		w.continueMu.Lock()
		w.awaited.Store(false)
		w.continueMu.Unlock()
	}
}
