// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strconv"
	"strings"
)

// listed returns the models LM Studio lists for OpenAI's clients: all, or with
// loading on demand switched off the loaded ones.
func (l *lmstudio) listed(x *exchange) []Model {
	list := x.models()
	if l.e.cfg.JITOff {
		list = slices.DeleteFunc(list, func(m Model) bool {
			has, _ := l.e.models.isLoaded(m.Name)
			return !has
		})
	}
	return list
}

func (l *lmstudio) v1Models(x *exchange) {
	list := l.listed(x)
	x.add("{")
	x.rows("data", len(list), func(i int) {
		x.add(`{"id":`, quoted(list[i].Name), `,"object":"model","owned_by":"organization_owner"}`)
	})
	x.add(`,"object":"list"}`)
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

// publisher returns what stands before the slash of a key.
func publisher(name string) string {
	if before, _, ok := strings.Cut(name, "/"); ok {
		return before
	}
	return "nvpair-demo"
}

func (l *lmstudio) v0Row(x *exchange, m Model) {
	kind := m.Type
	if kind == "embedding" {
		kind = "embeddings"
	}
	state := "not-loaded"
	if has, ready := l.e.models.isLoaded(m.Name); ready {
		state = "loaded"
	} else if has {
		state = "loading"
	}
	x.add(`{"id":`, quoted(m.Name), `,"object":"model","type":"`, kind, `","publisher":`, quoted(publisher(m.Name)),
		`,"arch":"demo","compatibility_type":"gguf","quantization":"Q4_K_M","state":"`, state, `","max_context_length":`)
	x.num(m.Context)
	for _, r := range l.e.models.running() {
		if r.model.Name == m.Name && state == "loaded" {
			x.add(`,"loaded_context_length":`)
			x.num(r.context)
			break
		}
	}
	if m.Type != "embedding" {
		x.add(`,"capabilities":["tool_use"]`)
	}
	x.add("}")
}

func (l *lmstudio) v0Models(x *exchange) {
	list := x.models()
	x.add("{")
	x.rows("data", len(list), func(i int) { l.v0Row(x, list[i]) })
	x.add(`,"object":"list"}`)
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

func (l *lmstudio) v0Model(x *exchange) {
	m, ok := l.e.models.find(strings.TrimPrefix(x.path, "/api/v0/models/"))
	if !ok {
		x.fail(failure{status: 404, param: "model", code: "model_not_found", message: "Model not found."})
		return
	}
	l.v0Row(x, m)
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

func (l *lmstudio) v1NativeModels(x *exchange) {
	list, loaded := x.models(), l.e.models.running()
	x.add("{")
	x.rows("models", len(list), func(i int) { l.nativeRow(x, list[i], loaded) })
	x.add("}")
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

func (l *lmstudio) nativeRow(x *exchange, m Model, loaded []running) {
	embedding := m.Type == "embedding"
	kind, params := "llm", `"0"`
	if embedding {
		kind, params = "embedding", "null"
	}
	x.add(`{"type":"`, kind, `","publisher":`, quoted(publisher(m.Name)), `,"key":`, quoted(m.Name),
		`,"display_name":`, quoted("Demo, no model: "+m.Name))
	if !embedding {
		x.add(`,"architecture":"demo"`)
	}
	x.add(`,"quantization":{"name":"Q4_K_M","bits_per_weight":4},"size_bytes":`, strconv.FormatInt(m.Size, 10),
		`,"params_string":`, params, `,"loaded_instances":[`)
	first := true
	for _, r := range loaded {
		if r.model.Name != m.Name || r.loading {
			continue
		}
		if !first {
			x.add(",")
		}
		first = false
		x.add(`{"id":`, quoted(r.id), `,"config":{"context_length":`)
		x.num(r.context)
		x.add(`,"eval_batch_size":512,"parallel":4,"flash_attention":true,"offload_kv_cache_to_gpu":true}}`)
	}
	x.add(`],"max_context_length":`)
	x.num(m.Context)
	x.add(`,"format":"gguf"`)
	if !embedding {
		x.add(`,"capabilities":{"vision":`, strconv.FormatBool(m.Type == "vlm"), `,"trained_for_tool_use":true},"description":null`)
	}
	x.add("}")
}

// load answers once the model is loaded. A model that is loaded gets a second
// instance.
func (l *lmstudio) load(x *exchange) {
	if !l.request(x) {
		return
	}
	m, ok := l.e.models.find(x.p.model)
	if !ok {
		x.fail(failure{status: 404, param: "model", message: "Model not found: " + x.p.model})
		return
	}
	x.prepare(m.Name)
	in, err := l.e.models.use(x, demand{model: m, context: int(x.p.all.Get("context_length").Int()), fresh: true})
	if err != nil {
		x.refuse(err)
		return
	}
	l.e.models.done(in, true)
	kind := "llm"
	if m.Type == "embedding" {
		kind = "embedding"
	}
	x.add(`{"type":"`, kind, `","instance_id":`, quoted(in.id), `,"load_time_seconds":1.25,"status":"loaded"}`)
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

func (l *lmstudio) unload(x *exchange) {
	if !l.request(x) {
		return
	}
	id := x.p.all.Get("instance_id").String()
	if !l.e.models.unload(id, true) {
		x.fail(failure{status: 404, param: "instance_id", message: "Model instance not found: " + id})
		return
	}
	x.add(`{"instance_id":`, quoted(id), "}")
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

// job is one download. Each look at it moves it on, so that no clock is needed.
type job struct {
	model string
	looks int
}

func (l *lmstudio) download(x *exchange) {
	if !l.request(x) {
		return
	}
	m := Model{Name: x.p.model}.complete()
	if have, ok := l.e.models.find(m.Name); ok {
		m = have
		x.add(`{"status":"already_downloaded","total_size_bytes":`, strconv.FormatInt(m.Size, 10), "}")
		x.respond(200, typeJSONUTF8, indent(x.buf))
		return
	}
	id := "job_" + m.Digest[:10]
	l.e.models.addJob(id, m.Name)
	x.add(`{"job_id":"`, id, `","status":"downloading","total_size_bytes":`, strconv.FormatInt(m.Size, 10),
		`,"started_at":"2026-11-01T12:00:00.000Z"}`)
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

func (l *lmstudio) downloadStatus(x *exchange) {
	id := strings.TrimPrefix(x.path, "/api/v1/models/download/status/")
	stall := x.plan.form(KindPull) == "stall"
	name, looks, ok := l.e.models.lookAtJob(id, stall)
	if !ok {
		x.fail(failure{status: 404, param: "job_id", kind: "job_not_found", message: "Job not found: " + id})
		return
	}
	m, steps := Model{Name: name}.complete(), l.e.cfg.PullSteps
	status := "downloading"
	if x.plan.form(KindPull) == "error" {
		status = "failed"
	} else if looks >= steps {
		looks, status = steps, "completed"
		l.e.models.put(m)
	}
	x.add(`{"job_id":"`, id, `","status":"`, status, `",`)
	if status == "downloading" {
		x.add(`"bytes_per_second":20000000,"estimated_completion":"2026-11-01T12:01:00.000Z",`)
	}
	x.add(`"total_size_bytes":`, strconv.FormatInt(m.Size, 10), `,"downloaded_bytes":`,
		strconv.FormatInt(m.Size*int64(looks)/int64(steps), 10), `,"started_at":"2026-11-01T12:00:00.000Z"}`)
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

func (m *models) addJob(id, model string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.jobs[id] == nil {
		m.jobs[id] = &job{model: model}
	}
}

// lookAtJob counts a look at a job and returns how many there were.
func (m *models) lookAtJob(id string, stall bool) (model string, looks int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[id]
	if j == nil {
		return "", 0, false
	}
	if !stall {
		j.looks++
	}
	return j.model, j.looks, true
}
