// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net/http"

	"nvpair/internal/upstream"
	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
)

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }

// control passes a request on verbatim. One that may change a node goes to this
// node's own engine only; a read goes to an owner of the model it names, or to
// the first node that answers, this one first (DEC-9, DEC-40).
func (x *exchange) control(class dialect.Class) {
	own := x.f.index.Load().All().PreferOwn()
	haveOwn := own.Len() > 0 && own.At(0).Own
	if class == dialect.Control && (dialect.Changes(x.r.Method) || x.r.Header.Get("Upgrade") != "") {
		if !haveOwn {
			x.refuse(http.StatusBadGateway,
				"this node has no "+x.f.engine.DisplayName+" engine running; requests that change an engine go to this node's own", "")
			return
		}
		x.toOwn(own.At(0))
		return
	}
	if class == dialect.Read && x.r.Method == http.MethodPost {
		x.readNamed()
		return
	}
	if own.Len() == 0 {
		x.refuse(http.StatusBadGateway, "no active node selected or available", "")
		x.failure = "no active node"
		return
	}
	x.firstAnswer(own, nil)
}

// toOwn streams a request of any size to the own engine.
func (x *exchange) toOwn(node *route.Node) {
	req := x.request()
	req.Upgrade = x.r.Header.Get("Upgrade")
	if x.r.ContentLength != 0 && req.Upgrade == "" {
		streamBody(req, x.r, nil)
	}
	x.once(node, req)
}

// readNamed serves a read that names its model in its body.
func (x *exchange) readNamed() {
	held, err := x.f.p.bodies.read(x.r)
	if err != nil {
		held.free()
		x.refuseBody(err)
		return
	}
	defer held.free()
	index := x.f.index.Load()
	c := index.All()
	if model := dialect.Model(x.f.engine.ID, held.bytes); model != "" {
		var buf [256]byte
		if owners := index.Owners(dialect.AppendKey(buf[:0], x.f.engine.ID, model)); owners.Len() > 0 {
			c = owners
		}
	}
	if c.Len() == 0 {
		x.refuse(http.StatusBadGateway, "no active node selected or available", "")
		return
	}
	x.firstAnswer(c.PreferOwn(), held.bytes)
}

// firstAnswer tries each node once; the last one's answer stands (PX-63).
func (x *exchange) firstAnswer(c route.Candidates, body []byte) {
	for i := range c.Len() {
		req := x.request()
		req.Body = body
		a := x.dispatch(x.r.Context(), c.At(i), req)
		last := i == c.Len()-1
		if a.err == nil && (last || !passOver(a.resp.StatusCode)) {
			x.pass(a)
			return
		}
		if a.resp != nil {
			_ = a.resp.Close()
		}
		if last {
			x.fail(a.err)
		}
	}
}

func passOver(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
}

// once sends a request to one node, without another try.
func (x *exchange) once(node *route.Node, req *upstream.Request) {
	a := x.dispatch(x.r.Context(), node, req)
	if a.err != nil {
		x.fail(a.err)
		return
	}
	x.pass(a)
}

func (x *exchange) fail(err error) {
	if x.r.Context().Err() == nil {
		x.refuse(http.StatusBadGateway, "upstream error: "+errText(err).Error(), "")
	}
}

// pass commits at the head and gives the answer to the client as it comes
// (PX-73).
func (x *exchange) pass(a *attempt) {
	defer func() { _ = a.resp.Close() }()
	if a.resp.StatusCode == http.StatusSwitchingProtocols {
		x.tunnel(a)
		return
	}
	x.started()
	buf := x.f.p.buffers.take()
	defer x.f.p.buffers.pool.Put(buf)
	out := a.serve(*buf, 0, x.r.Method == http.MethodHead)
	if out.err != nil && !errorsIsTerminator(out.err) {
		x.failure = out.err.Error()
	}
	if out.abort {
		panic(http.ErrAbortHandler)
	}
}

// errorsIsTerminator: a control answer owes nobody a terminator.
func errorsIsTerminator(err error) bool { return err == errNoTerminator }

// tunnel joins the two connections of a protocol switch until either ends.
func (x *exchange) tunnel(a *attempt) {
	x.status = a.resp.StatusCode
	x.started()
	head := a.resp.Header
	conn, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.fail(err)
		return
	}
	defer func() { _ = conn.Close() }()
	engine, ahead := a.resp.Hijack()
	defer func() { _ = engine.Close() }()
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = head.Write(buffered)
	_, _ = buffered.WriteString("\r\n")
	if buffered.Flush() != nil {
		return
	}
	ended := make(chan struct{}, 2) // one for each direction
	go func() { _, _ = io.Copy(engine, buffered); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(conn, ahead); ended <- struct{}{} }()
	select {
	case <-ended:
	case <-x.f.p.ctx.Done():
	}
	_ = conn.Close()
	_ = engine.Close()
	<-ended
}
