// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// Buffers of these sizes are kept for reuse: most requests are small, and a long
// prompt is a few hundred kilobytes.
const (
	smallBody = 64 << 10
	largeBody = 512 << 10
)

var (
	errMemory = errors.New("too many large requests at once")
	errLarge  = errors.New("body is larger than what can be replayed")
)

// bodies hands out the memory of request bodies within a common bound.
type bodies struct {
	replay int64 // the largest body that is held; of a larger one so much and one byte
	most   int64 // bound of held
	held   atomic.Int64
	small  sync.Pool // of *[]byte with up to smallBody bytes and one
	large  sync.Pool // of *[]byte with up to largeBody bytes and one
}

// pool returns where buffers of that size are kept, nil for nowhere.
func (b *bodies) pool(size int64) *sync.Pool {
	switch {
	case size <= smallBody+1:
		return &b.small
	case size <= largeBody+1:
		return &b.large
	}
	return nil
}

// body is a request's body, held whole.
type body struct {
	owner *bodies
	bytes []byte
	cost  int64
}

// read takes a request's body into memory. errLarge comes with what was read of
// a body that is longer than replay; errMemory with nothing.
func (b *bodies) read(r *http.Request) (*body, error) {
	held := &body{owner: b}
	if r.Body == nil || r.Body == http.NoBody {
		return held, nil
	}
	size := r.ContentLength
	if size < 0 {
		size = smallBody
	}
	size = min(size, b.replay)
	if err := held.grow(size + 1); err != nil { // one more than the body, to see its end
		return nil, err
	}
	for {
		n, err := r.Body.Read(held.bytes[len(held.bytes):cap(held.bytes)])
		held.bytes = held.bytes[:len(held.bytes)+n]
		switch {
		case errors.Is(err, io.EOF):
			return held, nil
		case err != nil:
			held.free()
			return nil, err
		case int64(len(held.bytes)) > b.replay:
			return held, errLarge
		case len(held.bytes) == cap(held.bytes):
			if err := held.grow(min(2*int64(cap(held.bytes)), b.replay+1)); err != nil {
				held.free()
				return nil, err
			}
		}
	}
}

// grow makes room for that many bytes in all.
func (h *body) grow(size int64) error {
	more := size - h.cost
	if h.owner.held.Add(more) > h.owner.most {
		h.owner.held.Add(-more)
		return errMemory
	}
	h.cost = size
	grown := h.owner.buffer(size)[:len(h.bytes)]
	copy(grown, h.bytes)
	h.owner.keep(h.bytes)
	h.bytes = grown
	return nil
}

// buffer returns an empty buffer with room for size bytes.
func (b *bodies) buffer(size int64) []byte {
	if pool := b.pool(size); pool != nil {
		if kept, ok := pool.Get().(*[]byte); ok && int64(cap(*kept)) >= size {
			return (*kept)[:0]
		}
	}
	return make([]byte, 0, max(size, 4<<10))
}

// keep takes a buffer back that nobody uses any more.
func (b *bodies) keep(buf []byte) {
	if pool := b.pool(int64(cap(buf))); pool != nil && cap(buf) > 0 {
		kept := buf[:0]
		pool.Put(&kept)
	}
}

// free gives the memory back. It may be called more than once, but nobody may
// read the bytes afterwards.
func (h *body) free() {
	if h == nil || h.cost == 0 {
		return
	}
	h.owner.held.Add(-h.cost)
	h.cost = 0
	h.owner.keep(h.bytes)
	h.bytes = nil
}
