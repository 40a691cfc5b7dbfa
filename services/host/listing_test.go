// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
	"nvpair/shared/serviceerror"
)

func TestAListThatReadsTheSameIsNotPrintedAgain(t *testing.T) {
	at := func(millis int64, address string) nodeList {
		return nodeList{Nodes: []discovery.AvailableNode{{HostUUID: "u", Name: "desk", IPAddress: address, Engines: []string{"ollama"}, Trusted: true, AnswerAgeMillis: &millis}}}
	}
	var out bytes.Buffer
	printed := lists{out: &out}
	for _, l := range []nodeList{at(1000, "a"), at(2000, "a"), at(3000, "b"), at(1000, "b"), at(0, "a")} {
		printed.next(l.reads(false), l.print)
	}
	const head = "NAME  ADDRESS  SEEN  HARDWARE  MODELS    NOTE\n"
	require.Equal(t, head+"desk  a        1s    -         ollama ?  \n\n"+
		head+"desk  b        3s    -         ollama ?  \n\n"+
		head+"desk  a        0s    -         ollama ?  \n", out.String())

	out.Reset()
	printed = lists{out: &out, asJSON: true}
	for _, l := range []nodeList{at(1000, "a"), at(1000, "a"), at(2000, "a")} {
		printed.next(l.reads(true), l.print)
	}
	require.Equal(t, 2, bytes.Count(out.Bytes(), []byte("\n")), out.String())
	require.NotContains(t, out.String(), "\n\n")
}

func TestErrorsThatOnlyAgeAreNotPrintedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fixed time: 946684800
		now := int64(946684800000)
		at := func(severity string, millis int64) errorList {
			return errorList{self: "me", list: []serviceerror.ServiceError{{ID: "e", Message: "bad", NodeID: "me", Severity: severity, TimestampMillis: millis}}}
		}
		var out bytes.Buffer
		printed := lists{out: &out}
		for _, l := range []errorList{{}, {}, at("error", now), at("error", now-2000), at("warning", now-3000), {}} {
			printed.next(l.reads(false), l.print)
		}
		require.Equal(t, "no errors\n\nerror  0s ago  e\n    bad\n\nwarning  3s ago  e\n    bad\n\nno errors\n", out.String())
	})
}

// TestAJobIsToldApartFromOneThatReadsLikeIt: two may fail in one moment.
func TestAJobIsToldApartFromOneThatReadsLikeIt(t *testing.T) {
	job := func(id, state string) json.RawMessage {
		return json.RawMessage(`{"id":"` + id + `","state":"` + state + `","createdAt":1000,"completedAt":2000}`)
	}
	for _, asJSON := range []bool{false, true} {
		p := jobPrinter{json: asJSON}
		require.Equal(t, p.reads(job("a", "failed")), p.reads(job("a", "failed")))
		require.NotEqual(t, p.reads(job("a", "failed")), p.reads(job("b", "failed")))
		require.NotEqual(t, p.reads(job("a", "running")), p.reads(job("a", "failed")))
	}
}
