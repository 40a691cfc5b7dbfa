// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// garbage is input that no program may stumble over.
type garbage struct {
	name, text string // the text goes out with a newline behind it
	// refused is the id to which the broker answers -32600; nobody else does (DEC-123).
	refused string
}

// garbages returns it for a link with that limit.
func garbages(limit int) []garbage {
	deep := strings.Repeat("[", 100_000)
	random := make([]byte, 1_000_000)
	chance := rand.NewChaCha8([32]byte{1})
	_, _ = chance.Read(random) // never fails
	return []garbage{
		{"empty line", "", ""},
		{"carriage return", "\r", ""},
		{"blanks", " \t ", ""},
		{"text", "Segmentation fault (core dumped)", ""},
		{"array", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, ""},
		{"string", `"ping"`, ""},
		{"number", "5", ""},
		{"null", "null", ""},
		{"empty object", "{}", ""},
		{"half an object", `{"jsonrpc":"2.0","id":1,"method":"pi`, ""},
		{"object and more", `{"jsonrpc":"2.0","id":1,"method":"ping"} x`, ""},
		{"two objects", `{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, ""},
		{"byte order mark", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, ""},
		{"UTF-16", "{\x00\"\x00j\x00", ""},
		{"NUL", "\x00", ""},
		{"invalid UTF-8 in the method", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", ""},
		{"invalid UTF-8 in the params", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[\"\xc3\x28\"]}", ""},
		{"no version", `{"id":1.50,"method":"ping"}`, "1.50"},
		{"wrong version", `{"jsonrpc":"1.0","id":"a","method":"ping"}`, `"a"`},
		{"version is a number", `{"jsonrpc":2.0,"id":3,"method":"ping"}`, "3"},
		{"wrong version, nobody to answer", `{"jsonrpc":"1.0","method":"ping"}`, ""},
		{"wrong version, null id", `{"jsonrpc":"1.0","id":null,"method":"ping"}`, ""},
		{"wrong version of an answer", `{"jsonrpc":"1.0","id":1,"result":5}`, ""},
		{"method is a number", `{"jsonrpc":"2.0","id":[4],"method":5}`, "[4]"},
		{"method is null", `{"jsonrpc":"2.0","id":6,"method":null}`, "6"},
		{"method is empty", `{"jsonrpc":"2.0","id":7,"method":""}`, "7"},
		{"error is text", `{"jsonrpc":"2.0","id":1,"method":"ping","error":"x"}`, ""},
		{"neither request nor answer", `{"jsonrpc":"2.0","id":1}`, ""},
		{"result and error", `{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"m"}}`, ""},
		{"answer to nothing", `{"jsonrpc":"2.0","id":1,"result":null}`, ""},
		{"answer with a huge id", `{"jsonrpc":"2.0","id":99999999999999999999999,"result":null}`, ""},
		{"deep nesting", deep, ""},
		{"deep nesting in the params", `{"jsonrpc":"2.0","id":1,"method":"ping","params":` + deep +
			strings.Repeat("]", 100_000) + "}", ""},
		{"deep objects", strings.Repeat(`{"a":`, 100_000), ""},
		{"over-long request", paddedRequest("8", "ping", limit+1), ""},
		{"over-long text", strings.Repeat("x", 2*limit), ""},
		{"over-long with a carriage return", paddedRequest("9", "ping", limit+1) + "\r", ""},
		{"random bytes", string(random), ""},
		{"many empty lines", strings.Repeat("\n", 10_000), ""},
	}
}

// paddedRequest returns a request of exactly that many bytes.
func paddedRequest(id, method string, length int) string {
	line := harness.RequestLine(id, method, `{"pad":""}`)
	return strings.Replace(line, `:""`, `:"`+strings.Repeat("p", length-len(line))+`"`, 1)
}

func TestGarbageEndsNoProgramAndSpoilsNoLaterFrame(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		p, w := b.start(t, h)
		for i, g := range garbages(b.limit) {
			w.Send(g.text)
			if g.refused != "" && b.broker {
				f := w.Next()
				require.Equal(t, g.refused, string(f.ID), "%s: %s", g.name, f.Line)
				require.NotNil(t, f.Error, "%s: %s", g.name, f.Line)
				require.Equal(t, -32600, f.Error.Code, g.name)
			}
			w.Send(harness.RequestLine(fmt.Sprint(1000+i), b.ask, b.params))
			f := w.Next()
			require.Equal(t, fmt.Sprint(1000+i), string(f.ID), "after %s: %.200s", g.name, f.Line)
			require.NotNil(t, f.Result, "after %s: %s", g.name, f.Line)
		}
		b.endsWithItsInput(t, h, p)
	})
}

func TestAFrameOfExactlyTheLimitIsTaken(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		p, w := b.start(t, h)
		for _, end := range []string{"\n", "\r\n"} {
			w.Write(paddedRequest(`"full"`, b.ask, b.limit) + end)
			f := w.Next()
			require.Equal(t, `"full"`, string(f.ID), f.Line)
			require.NotNil(t, f.Result, f.Line)
		}
		b.endsWithItsInput(t, h, p)
	})
}

func TestFramesMayArriveInAnyPieces(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		p, w := b.start(t, h)
		for _, piece := range harness.RequestLine(`"dripping"`, b.ask, `{"text":"ä\u0000ß"}`) + "\n" {
			w.Write(string(piece))
		}
		require.NotNil(t, w.Answer(`"dripping"`).Result)
		b.endsWithItsInput(t, h, p)
	})
}
