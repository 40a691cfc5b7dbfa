// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// smallLayer is the size of the second layer of every model.
const smallLayer = 155

// layer is one file of a model.
type layer struct {
	digest string // hex
	size   int64
}

func layers(m Model) []layer {
	sum := sha256.Sum256([]byte("config of " + m.Name))
	return []layer{{m.Digest, max(m.Size-smallLayer, 1)}, {hex.EncodeToString(sum[:]), smallLayer}}
}

// pull fetches a model that is known to the registry: layer after layer, a line
// of progress a tick. A broken-off pull is taken up where it was left.
func (o *ollama) pull(x *exchange) {
	if !o.request(x) {
		return
	}
	if x.p.model == "" {
		x.fail(failure{status: 400, message: "model is required"})
		return
	}
	name := canonical(x.p.model)
	m, present := o.e.models.find(name)
	m.Name = name
	m = m.complete()
	problem := ""
	if f := x.plan.find(KindPull); f != nil && f.Form == "error" {
		problem = orText(f.Message, unreachable(x.p.model))
	} else if r := o.e.cfg.Registry; r != nil && !present && !slices.Contains(r, x.p.model) && !slices.Contains(r, name) {
		problem = "pull model manifest: file does not exist"
	}
	if !x.p.streams(true) {
		o.pullWhole(x, m, problem)
		return
	}
	x.stream.expected = 2 * o.e.cfg.PullSteps
	x.startStream(typeNDJSON, false)
	x.status("pulling manifest")
	if problem != "" {
		x.add(`{"error":`, quoted(problem), "}\n")
		x.endStream()
		return
	}
	o.pullLayers(x, m, present)
	if x.err != nil {
		return
	}
	x.status("verifying sha256 digest")
	x.status("writing manifest")
	o.e.models.put(m)
	x.status("success")
	x.endStream()
}

func (o *ollama) pullWhole(x *exchange, m Model, problem string) {
	if problem != "" {
		x.fail(failure{status: 500, kind: typeJSON, message: problem})
		return
	}
	o.e.models.put(m)
	x.respond(200, typeJSONUTF8, []byte(`{"status":"success"}`))
}

// pullLayers sends the progress of all layers that are not there yet.
func (o *ollama) pullLayers(x *exchange, m Model, present bool) {
	steps := o.e.cfg.PullSteps
	done := o.e.models.progress(m.Name, 0)
	for i, l := range layers(m) {
		from := max(0, done-i*(steps+1))
		if present {
			from = steps
		}
		for step := from; step <= steps; step++ {
			if !present {
				x.sleep(o.e.cfg.PullTick)
			}
			if f := x.plan.find(KindPull); f != nil && f.Form == "stall" && step > 0 {
				x.flush()
				x.await(f.cleared, f.duration())
			}
			if x.err != nil {
				return
			}
			x.layer(l, l.size*int64(step)/int64(steps))
			o.e.models.progress(m.Name, i*(steps+1)+step)
		}
	}
	o.e.models.progress(m.Name, -1)
}

// layer sends a line of progress; completed is left out while it is 0, as in
// Ollama, and total with it where a fault says so.
func (x *exchange) layer(l layer, completed int64) {
	x.add(`{"status":"pulling `, l.digest[:12], `","digest":"sha256:`, l.digest, `"`)
	if completed > 0 || x.plan.form(KindPull) != "no-total" {
		x.add(`,"total":`, strconv.FormatInt(l.size, 10))
	}
	if completed > 0 {
		x.add(`,"completed":`, strconv.FormatInt(completed, 10))
	}
	x.add("}\n")
	x.emit()
}

// progress returns how many lines the pull of a model had sent, and notes more;
// a negative number forgets them.
func (m *models) progress(name string, lines int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if lines < 0 {
		delete(m.pulled, name)
	} else if lines > m.pulled[name] {
		m.pulled[name] = lines
	}
	return m.pulled[name]
}

func (o *ollama) push(x *exchange) {
	if !o.request(x) {
		return
	}
	if _, ok := o.model(x, x.p.model, "model '%s' not found"); !ok {
		return
	}
	x.startStream(typeNDJSON, false)
	x.status("retrieving manifest")
	x.add(`{"error":"the demo engine pushes nothing"}`, "\n")
	x.endStream()
}

// hasBlob reports whether a file was uploaded, or belongs to a model.
func (m *models) hasBlob(digest string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blobs[digest] || slices.ContainsFunc(m.list, func(have Model) bool { return have.Digest == digest })
}

func (m *models) addBlob(digest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[digest] = true
}

func blobDigest(x *exchange) string { return strings.TrimPrefix(x.path, "/api/blobs/sha256:") }

func (o *ollama) blobHead(x *exchange) {
	if digest := blobDigest(x); !o.e.models.hasBlob(digest) {
		x.fail(failure{status: 404, message: fmt.Sprintf("blob %q not found", "sha256:"+digest)})
		return
	}
	x.whole(200, "", nil, noLength)
}

// blobPost takes an upload. What is there already is not read: the answer is
// early and ends the connection.
func (o *ollama) blobPost(x *exchange) {
	digest := blobDigest(x)
	if o.e.models.hasBlob(digest) {
		x.close = true
		x.empty(200)
		return
	}
	if _, err := io.Copy(io.Discard, x.bodyReader()); err != nil && !errors.Is(err, io.EOF) {
		x.left(err)
		return
	}
	sum := x.reader.hash.Sum()
	if got := hex.EncodeToString(sum[:]); got != digest {
		x.fail(failure{status: 400,
			message: fmt.Sprintf("digest mismatch, expected %q, got %q", "sha256:"+digest, "sha256:"+got)})
		return
	}
	o.e.models.addBlob(digest)
	x.empty(201)
}
