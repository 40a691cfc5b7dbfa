// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strconv"
	"time"
)

// tags lists what is installed.
func (o *ollama) tags(x *exchange) {
	list := x.models()
	x.add("{")
	x.rows("models", len(list), func(i int) {
		m := list[i]
		x.add(`{"name":`, quoted(m.Name), `,"model":`, quoted(m.Name), `,"modified_at":"`)
		x.buf = appendTime(x.buf, o.e.now())
		x.add(`","size":`, strconv.FormatInt(m.Size, 10), `,"digest":"`, m.Digest, `","details":`)
		x.details(m, true)
		x.add(`,"capabilities":["`, capability(m), `"]}`)
	})
	x.add("}")
	x.respond(200, typeJSONUTF8, x.buf)
}

func capability(m Model) string {
	if m.Type == "embedding" {
		return "embedding"
	}
	return "completion"
}

func (x *exchange) details(m Model, long bool) {
	x.add(`{"parent_model":"","format":"gguf","family":"demo","families":["demo"],"parameter_size":"0",`,
		`"quantization_level":"unknown"`)
	if long {
		x.add(`,"context_length":`)
		x.num(m.Context)
		x.add(`,"embedding_length":32`)
	}
	x.add("}")
}

// ps lists what is loaded; a model that is still loading is missing.
func (o *ollama) ps(x *exchange) {
	var list []running
	for _, r := range o.e.models.running() {
		if !r.loading {
			list = append(list, r)
		}
	}
	x.add("{")
	x.rows("models", len(list), func(i int) {
		r := list[i]
		x.add(`{"name":`, quoted(r.model.Name), `,"model":`, quoted(r.model.Name), `,"size":`,
			strconv.FormatInt(r.model.Size, 10), `,"digest":"`, r.model.Digest, `","details":`)
		x.details(r.model, false)
		x.add(`,"expires_at":"`)
		until := o.e.now().Add(r.keep)
		if r.forever {
			until = time.Date(2319, 3, 11, 12, 0, 0, 0, time.UTC)
		}
		x.buf = appendTime(x.buf, until)
		x.add(`","size_vram":0,"context_length":`)
		x.num(r.context)
		x.add("}")
	})
	x.add("}")
	x.respond(200, typeJSONUTF8, x.buf)
}

func (o *ollama) show(x *exchange) {
	if !o.request(x) {
		return
	}
	m, ok := o.e.models.find(canonical(x.p.model))
	if !ok {
		x.fail(failure{status: 404, message: fmt.Sprintf("model '%s' not found", canonical(x.p.model))})
		return
	}
	x.add(`{"modelfile":"# nvpair demo engine: there is no model behind this name","template":"{{ .Prompt }}","details":`)
	x.details(m, false)
	x.add(`,"model_info":{"general.architecture":"demo","general.parameter_count":0,"demo.context_length":`)
	x.num(m.Context)
	x.add(`},"capabilities":["`, capability(m), `"],"modified_at":"`)
	x.buf = appendTime(x.buf, o.e.now())
	x.add(`"}`)
	x.respond(200, typeJSONUTF8, x.buf)
}

func (o *ollama) copy(x *exchange) {
	if !o.request(x) {
		return
	}
	source, destination := x.p.all.Get("source").String(), x.p.all.Get("destination").String()
	m, ok := o.e.models.find(canonical(source))
	if !ok {
		x.fail(failure{status: 404, message: fmt.Sprintf("model %q not found", source)})
		return
	}
	m.Name = canonical(destination)
	o.e.models.put(m)
	x.empty(200)
}

func (o *ollama) delete(x *exchange) {
	if !o.request(x) {
		return
	}
	if !o.e.models.drop(canonical(x.p.model)) {
		x.fail(failure{status: 404, message: fmt.Sprintf("model '%s' not found", x.p.model)})
		return
	}
	x.empty(200)
}

// create makes a model from an uploaded file or, with "from", from another one.
func (o *ollama) create(x *exchange) {
	if !o.request(x) {
		return
	}
	from := x.p.all.Get("from").String()
	x.startStream(typeNDJSON, false)
	if from != "" {
		if _, ok := o.e.models.find(canonical(from)); !ok {
			x.status("pulling manifest")
			x.add(`{"error":`, quoted(unreachable(from)), "}\n")
			x.endStream()
			return
		}
	}
	m := Model{Name: canonical(x.p.model)}.complete()
	x.status("parsing GGUF")
	x.status("verifying conversion")
	x.status("creating new layer sha256:" + m.Digest)
	x.status("writing manifest")
	o.e.models.put(m)
	x.status("success")
	x.endStream()
}

// status sends a line of progress.
func (x *exchange) status(text string) {
	x.add(`{"status":`, quoted(text), "}\n")
	x.emit()
}

// unreachable is the error for a model that the registry would have to know,
// without a network; the address is from a range for documentation.
func unreachable(name string) string {
	return fmt.Sprintf("pull model manifest: Get \"https://registry.ollama.ai/v2/library/%s/manifests/latest\": "+
		"dial tcp: lookup registry.ollama.ai on 192.0.2.53:53: no such host", name)
}
