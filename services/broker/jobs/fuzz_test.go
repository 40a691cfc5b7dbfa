// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"encoding/json"
	"maps"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"nvpair/shared/workload"
)

// FuzzEvent holds what peers and producers send against the standard decoder:
// stamping changes the origin and nothing else, and a failure stated about a
// record changes what it says it changes.
func FuzzEvent(f *testing.F) {
	for _, seed := range []string{
		`{"workloadInfo":{"id":"1","originatedFrom":"","later":[1,{}]},"resync":true}`,
		`{"workloadInfo":{"id":"1","origin\u0061tedFrom":"p","id":"2","ID":"3"},"workloadInfo":{"id":"4"}}`,
		`{"workloadInfo":{"id":"\ud800","state":"running","":1,"\\":2,"seq":1e0}}`,
		`{"a" : {"workloadInfo":{"id":"x"}} , "workloadInfo" :{ "id" : "y" , "seq":-1} }`,
		`[]`, `null`, `{"workloadInfo":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		if !utf8.Valid(params) || !gjson.ValidBytes(params) || len(params) > 10_000 {
			return // no frame: package jsonrpc has skipped it
		}
		stamped, raw, err := StampEvent(params, self)
		if err != nil {
			return
		}
		e, err := NewEvent(raw, FromProxy(1))
		if err != nil {
			return
		}
		if e.key.OriginatedFrom == "" {
			t.Fatalf("%s has no origin", raw)
		}
		same(t, params, stamped, "workloadInfo")
		same(t, InfoOf(params), InfoOf(stamped), "originatedFrom")

		x := New(Config{NodeID: "another"})
		if x.Put(e) != Accepted || e.terminal() {
			return
		}
		c, ok := x.End(x.Of(FromProxy(1))[0], ProxyExitedText)
		if !ok {
			t.Fatalf("%s was not ended", raw)
		}
		same(t, raw, c.Info, "state", "completedAt", "error", "seq")
		if i, err := workload.Parse(c.Info); err != nil || i.State != workload.StateFailed || *i.Error != ProxyExitedText || i.Seq != e.seq+1 {
			t.Fatalf("%s ended as %s: %v", raw, c.Info, err)
		}
	})
}

// same requires two objects to have equal members but for those named.
func same(t *testing.T, before, after json.RawMessage, but ...string) {
	t.Helper()
	var a, b map[string]json.RawMessage
	if err := json.Unmarshal(before, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &b); err != nil {
		t.Fatalf("%s: %v", after, err)
	}
	for _, name := range but {
		delete(a, name)
		delete(b, name)
	}
	if !maps.EqualFunc(a, b, func(v, w json.RawMessage) bool { return string(v) == string(w) }) {
		t.Fatalf("%s became %s", before, after)
	}
}
