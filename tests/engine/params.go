// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// params is what the engines read from a request's JSON body. Of a key that is
// there twice the last one counts.
type params struct {
	bad   error // the body is no JSON object
	none  bool  // there is no body
	model string
	named bool // a model was named

	stream    gjson.Result
	usage     bool // stream_options.include_usage
	limit     int  // token limit; 0 is none
	numCtx    int
	truncate  bool
	keepAlive gjson.Result
	messages  gjson.Result
	prompt    gjson.Result // or input
	tools     gjson.Result
	noTools   bool // tool_choice "none"
	all       gjson.Result
}

// parseParams reads a body. With fold, letter case in keys does not matter.
func parseParams(body []byte, fold bool) params {
	p := params{truncate: true}
	if len(body) == 0 {
		p.none = true
		return p
	}
	if !gjson.ValidBytes(body) {
		var v any
		p.bad = json.Unmarshal(body, &v) // for Go's words, which are Ollama's
		return p
	}
	p.all = gjson.ParseBytes(body)
	if !p.all.IsObject() {
		var v struct{}
		p.bad = json.Unmarshal(body, &v)
		return p
	}
	p.all.ForEach(func(key, value gjson.Result) bool {
		name := key.Str
		if fold {
			name = strings.ToLower(name)
		}
		p.take(name, value)
		return true
	})
	return p
}

func (p *params) take(name string, v gjson.Result) {
	switch name {
	case "model":
		p.model, p.named = v.String(), true
	case "name":
		if p.model == "" {
			p.model, p.named = v.String(), true
		}
	case "stream":
		p.stream = v
	case "stream_options":
		p.usage = v.Get("include_usage").Bool()
	case "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict":
		p.limit = int(v.Int())
	case "options":
		if n := v.Get("num_predict"); n.Exists() {
			p.limit = int(n.Int())
		}
		p.numCtx = int(v.Get("num_ctx").Int())
	case "truncate":
		p.truncate = v.Type != gjson.False
	case "keep_alive":
		p.keepAlive = v
	case "messages":
		p.messages = v
	case "prompt", "input":
		p.prompt = v
	case "tools":
		p.tools = v
	case "tool_choice":
		p.noTools = v.Str == "none"
	}
}

// streams reports whether a stream is asked for; otherwise holds when the
// request does not say.
func (p *params) streams(otherwise bool) bool {
	if !p.stream.Exists() {
		return otherwise
	}
	return p.stream.Bool()
}

// keep returns how long Ollama keeps the model after this request: forever is
// negative, 0 unloads it, ok is false when the request does not say.
func (p *params) keep() (d time.Duration, ok bool) {
	switch p.keepAlive.Type {
	case gjson.Number:
		return time.Duration(p.keepAlive.Num * float64(time.Second)), true
	case gjson.String:
		d, err := time.ParseDuration(p.keepAlive.Str)
		return d, err == nil
	}
	return 0, false
}

// promptTokens counts words, the stand-in for tokens, and two for the template.
func (p *params) promptTokens() int {
	n := 2 + words(p.prompt)
	p.messages.ForEach(func(_, m gjson.Result) bool {
		n += words(m.Get("content"))
		return true
	})
	return n
}

// words counts the words of a text, or of the texts in parts of any depth.
func words(v gjson.Result) int {
	if v.Type == gjson.String {
		n, inside := 0, false
		for i := range len(v.Str) {
			word := v.Str[i] > ' '
			if word && !inside {
				n++
			}
			inside = word
		}
		return n
	}
	if !v.IsArray() {
		return 0
	}
	n := 0
	v.ForEach(func(_, part gjson.Result) bool {
		switch {
		case part.Type == gjson.String:
			n += words(part)
		case part.Get("text").Exists():
			n += words(part.Get("text"))
		default:
			n += words(part.Get("content"))
		}
		return true
	})
	return n
}

// wantsTool returns the name of the tool to call and the arguments to call it
// with: the first one offered, unless the conversation ends with a tool's result.
func (p *params) wantsTool() (name, arguments string) {
	if p.noTools || !p.tools.IsArray() {
		return "", ""
	}
	tool := p.tools.Get("0")
	if f := tool.Get("function"); f.Exists() {
		tool = f
	}
	last := p.messages.Get("@reverse.0")
	if last.Get("role").Str == "tool" || last.Get("content.#(type==tool_result)").Exists() ||
		p.prompt.Get("#(type==function_call_output)").Exists() {
		return "", ""
	}
	schema := tool.Get("parameters")
	if !schema.Exists() {
		schema = tool.Get("input_schema")
	}
	args := []byte{'{'}
	for _, key := range schema.Get("required").Array() {
		if len(args) > 1 {
			args = append(args, ',')
		}
		args = appendString(args, key.Str)
		args = append(args, ':')
		switch schema.Get("properties." + gjson.Escape(key.Str) + ".type").Str {
		case "number", "integer":
			args = append(args, '1')
		case "boolean":
			args = append(args, "true"...)
		case "array":
			args = append(args, "[]"...)
		case "object":
			args = append(args, "{}"...)
		default:
			args = append(args, `"demo"`...)
		}
	}
	return tool.Get("name").Str, string(append(args, '}'))
}
