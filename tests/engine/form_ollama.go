// SPDX-License-Identifier: Apache-2.0

package engine

// ollamaNative is the form of /api/chat and, with generate, of /api/generate:
// a line of JSON a token, the last one with the counts.
type ollamaNative struct{ generate bool }

func (ollamaNative) contentType() string { return typeNDJSON }

// head appends what every line begins with.
func (f ollamaNative) head(b []byte, x *exchange) []byte {
	b = append(b, `{"model":`...)
	b = appendString(b, x.g.model)
	b = append(b, `,"created_at":"`...)
	b = appendTime(b, x.e.now())
	if f.generate {
		return append(b, `","response":"`...)
	}
	return append(b, `","message":{"role":"assistant","content":"`...)
}

func (f ollamaNative) open(x *exchange) {
	x.g.pre = f.head(x.g.pre, x)
	if f.generate {
		x.g.suf = append(x.g.suf, "\",\"done\":false}\n"...)
		return
	}
	x.g.suf = append(x.g.suf, "\"},\"done\":false}\n"...)
}

func (f ollamaNative) delta(x *exchange, token int) {
	x.buf = append(x.buf, x.g.pre...)
	if x.g.tool != "" && !f.generate {
		f.call(x)
		x.add("},\"done\":false}\n")
		return
	}
	x.buf = x.g.appendToken(x.buf, token)
	x.buf = append(x.buf, x.g.suf...)
}

// call ends the content of a message and adds the call of the tool to it.
func (f ollamaNative) call(x *exchange) {
	x.add(`","tool_calls":[{"function":{"index":0,"name":`, quoted(x.g.tool), `,"arguments":`, x.g.args, `}}]`)
}

func (f ollamaNative) finish(*exchange) {} // the terminator is in the line with the counts

func (f ollamaNative) terminate(x *exchange) {
	x.buf = append(x.buf, x.g.pre...)
	if f.generate {
		x.add(`",`)
	} else {
		x.add(`"},`)
	}
	f.counts(x)
	x.add("}\n")
}

func (f ollamaNative) whole(x *exchange) {
	x.buf = f.head(x.buf, x)
	switch {
	case x.g.tool != "" && !f.generate:
		f.call(x)
		x.add("},")
	case f.generate:
		x.buf = x.g.appendText(x.buf)
		x.add(`",`)
	default:
		x.buf = x.g.appendText(x.buf)
		x.add(`"},`)
	}
	f.counts(x)
	x.add("}")
	x.respond(200, typeJSONUTF8, x.buf)
}

// counts appends the members of the last line. All times are made up.
func (f ollamaNative) counts(x *exchange) {
	reason := "stop"
	if x.g.cut {
		reason = "length"
	}
	x.add(`"done":true,"done_reason":"`, reason, `"`)
	if f.generate {
		x.add(`,"context":[`)
		for i := range x.g.prompt + x.g.n {
			if i > 0 {
				x.add(",")
			}
			x.num(256 + i%64)
		}
		x.add("]")
	}
	x.add(`,"total_duration":11794384,"load_duration":975185,"prompt_eval_count":`)
	x.num(x.g.prompt)
	x.add(`,"prompt_eval_duration":2900000,"eval_count":`)
	x.num(x.g.n)
	x.add(`,"eval_duration":301000`)
}

func (f ollamaNative) failed(x *exchange) {
	x.add(`{"error":"an error was encountered while running the model: unexpected EOF"}`, "\n")
}
