// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"nvpair/internal/upstream"
	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
)

// control passes a request on verbatim. One that may change a node goes to this
// node's own engine only; a read goes to an owner of the model it names, or to
// the first node that answers, this one first (DEC-9, DEC-40).
func (x *exchange) control(class dialect.Class) {
	switch {
	case isPreflight(x.r):
		x.preflight()
	case class == dialect.Control && (dialect.Changes(x.r.Method) || x.r.Header.Get("Upgrade") != ""):
		x.ownOnly()
	case class == dialect.Read && x.r.Method == http.MethodPost:
		x.readNamed()
	case class == dialect.Read:
		x.toOwner(strings.TrimPrefix(x.r.URL.Path, "/v1/models/"), nil)
	default:
		x.toOwner("", nil)
	}
}

// ownOnly passes a request of any size on to this node's own engine, as it comes.
func (x *exchange) ownOnly() {
	c := x.f.index.Load().All().PreferOwn()
	if c.Len() == 0 || !c.At(0).Own {
		x.refuse(http.StatusBadGateway, "this node has no "+x.f.engine.DisplayName+
			" engine running; requests that change an engine or whose body is encoded go to this node's own", "")
		return
	}
	req := x.request()
	req.Upgrade = x.r.Header.Get("Upgrade")
	if x.r.ContentLength != 0 && req.Upgrade == "" {
		streamBody(req, x.r, nil, 0)
	}
	a := x.dispatch(c.At(0), req)
	defer a.close()
	if a.err != nil {
		x.fail(a.err)
		return
	}
	x.pass(a)
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
	x.toOwner(dialect.Model(x.f.engine.ID, held.bytes), held.bytes)
}

// toOwner tries the owners of a model, this node first; every node for a model
// that nobody is known to own, or for none.
func (x *exchange) toOwner(model string, body []byte) {
	index := x.f.index.Load()
	c := index.All()
	if model != "" {
		var buf [256]byte
		if owners := index.Owners(dialect.AppendKey(buf[:0], x.f.engine.ID, model)); owners.Len() > 0 {
			c = owners
		}
	}
	if c.Len() == 0 {
		x.refuse(http.StatusBadGateway, "no active node selected or available", "")
		x.failure = "no active node"
		return
	}
	x.firstAnswer(c.PreferOwn(), body)
}

// firstAnswer tries each node once; the last one's answer stands (PX-63).
func (x *exchange) firstAnswer(c route.Candidates, body []byte) {
	nodes := x.f.living(c)
	for i, node := range nodes {
		if x.tryRead(node, body, i == len(nodes)-1) {
			return
		}
	}
}

// tryRead passes a read on to one node. It reports whether it was answered.
func (x *exchange) tryRead(node *route.Node, body []byte, last bool) bool {
	req := x.request()
	req.Body = body
	a := x.dispatch(node, req)
	defer a.close()
	switch {
	case a.err == nil && (last || !passOver(a.resp.StatusCode)):
		x.pass(a)
	case last:
		x.fail(a.err)
	default:
		return x.r.Context().Err() != nil
	}
	return true
}

func passOver(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
}

// fail answers when the last try failed before any byte. Nothing is written to a
// client that has left (PX-97).
func (x *exchange) fail(err error) {
	switch {
	case x.r.Context().Err() != nil:
	case errors.Is(err, upstream.ErrBody):
		x.refuseBody(err)
	default:
		x.refuse(http.StatusBadGateway, "upstream error: "+errText(err).Error(), "")
	}
}

// pass commits at the head and gives the answer to the client as it comes
// (PX-73).
func (x *exchange) pass(a *attempt) {
	if a.resp.StatusCode == http.StatusSwitchingProtocols {
		x.tunnel(a)
		return
	}
	x.started()
	buf := x.f.p.buffers.take(a.resp.ContentLength)
	defer buf.giveBack()
	out := a.serve(buf, 0, x.r.Method == http.MethodHead)
	if out.err != nil && !errors.Is(out.err, errNoTerminator) { // a control answer owes nobody one
		x.failure = out.err.Error()
	}
	if out.abort {
		panic(http.ErrAbortHandler)
	}
}

// tunnel joins the two connections of a protocol switch until either ends.
func (x *exchange) tunnel(a *attempt) {
	x.status = a.resp.StatusCode
	x.started()
	head := a.resp.Header
	defer x.f.p.serving.Join()() // the server forgets a connection that was taken over
	conn, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.fail(err)
		return
	}
	engine, ahead := a.resp.Hijack()
	cut := func() { _, _ = conn.Close(), engine.Close() }
	defer cut()
	defer context.AfterFunc(x.f.p.ctx, cut)()
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = head.Write(buffered)
	_, _ = buffered.WriteString("\r\n")
	if buffered.Flush() != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(engine, buffered); cut() })
	both.Go(func() { _, _ = io.Copy(conn, ahead); cut() })
	both.Wait()
}
