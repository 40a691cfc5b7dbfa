// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net/http"

	"nvpair/internal/upstream"
)

// tryOnce passes on a body that is too large to be held, as it comes: to one node,
// and to the next one only if that cannot be connected to (DEC-10, DEC-41).
func (x *exchange) tryOnce(t *task) {
	c := t.candidates()
	defer func() { t.reserved.Release() }()
	if c.Len() == 0 {
		x.refuse(http.StatusBadGateway, "no available node advertises the requested model", "")
		return
	}
	nodes := x.f.living(c)
	for i, node := range nodes {
		if i == len(nodes)-1 {
			t.dispatches = maxDispatches - 1 // the next is final
		}
		if t.dispatch(node) {
			return
		}
	}
}

// streamBody makes a request's body one that is read from the client as it is
// sent, after what was read already. One of unknown length that turns out longer
// than most fails, 0 is no bound: a cut body must not look whole.
func streamBody(req *upstream.Request, r *http.Request, read []byte, most int64) {
	req.Stream, req.Length = r.Body, r.ContentLength
	if len(read) > 0 {
		req.Stream = io.MultiReader(bytes.NewReader(read), r.Body)
	}
	if r.ContentLength < 0 && most > 0 {
		req.Stream = &bounded{req.Stream, most}
	}
}

// bounded fails with errLarge behind so many bytes.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errLarge
	}
	return n, err
}
