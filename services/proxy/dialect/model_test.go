// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheModelIsWhatTheEngineWouldTake(t *testing.T) {
	for _, tt := range []struct{ body, ollama, lmstudio string }{
		{`{"model":"m"}`, "m", "m"},
		{` { "stream" : true , "model" : " M:Tag " } `, " M:Tag ", " M:Tag "},
		{`{"model":"a","model":"b"}`, "b", "b"}, // DEC-136
		{`{"Model":"m"}`, "m", ""},
		{`{"model":"a","MODEL":"b"}`, "b", "a"},
		{`{"MODEL":"b","model":"a"}`, "a", "a"},
		{`{"model":"a","model":5}`, "", ""},
		{`{"options":{"model":"inner"}}`, "", ""},
		{`{"options":{"model":"inner"},"model":"m","tools":[{"model":"x"}]}`, "m", "m"},
		{`{"prompt":"\"model\":\"fake\"","model":"m"}`, "m", "m"},
		{`{"prompt":"{\"model\":\"fake\"}"}`, "", ""},
		{`{"prompt":"ends in \\","model":"m"}`, "m", "m"},
		{`{"\u006dodel":"m"}`, "m", "m"},
		{`{"model":"\u00e9\ud83d\ude00\n"}`, "é😀\n", "é😀\n"},
		{`{"model":"a\/b"}`, "a/b", "a/b"},
		{`{"model":""}`, "", ""},
		{`{"model":null}`, "", ""},
		{`{"model":5}`, "", ""},
		{`{"model":true}`, "", ""},
		{`{"model":["m"]}`, "", ""},
		{`{"model":{"model":"m"}}`, "", ""},
		{`{"models":"m"," model":"m"}`, "", ""},
		{`[{"model":"m"}]`, "", ""},
		{`["model","m"]`, "", ""},
		{`"model"`, "", ""},
		{`null`, "", ""},
		{``, "", ""},
		{`   `, "", ""},
		{`model=m`, "", ""},
		{"\x28\xb5\x2f\xfd\x04\x00", "", ""}, // zstd
	} {
		if got := Model(Ollama, []byte(tt.body)); got != tt.ollama {
			t.Errorf("Model(ollama, %s) = %q; want %q", tt.body, got, tt.ollama)
		}
		if got := Model(LMStudio, []byte(tt.body)); got != tt.lmstudio {
			t.Errorf("Model(lmstudio, %s) = %q; want %q", tt.body, got, tt.lmstudio)
		}
	}
}

func TestTheModelDoesNotShareTheBodysMemory(t *testing.T) {
	body := []byte(`{"model":"m"}`)
	model := Model(Ollama, body)
	copy(body, bytes.Repeat([]byte("x"), len(body)))
	require.Equal(t, "m", model)
}

func TestTheModelIsFoundBehind32MiB(t *testing.T) {
	body := `{"prompt":"` + strings.Repeat("p", 32<<20) + `","model":"m"}`
	require.Equal(t, "m", Model(Ollama, []byte(body)))
	require.Equal(t, "m", Model(Ollama, []byte(`{"model":"m","images":["`+strings.Repeat("A", 32<<20))), "and before a cut")
}

func TestNamesOfOneModelHaveOneKey(t *testing.T) {
	for want, names := range map[string][]string{
		"tiny:latest": {
			"tiny", "TINY", "tiny:Latest", " tiny", "tiny\t\n", "library/tiny", "Library/Tiny:LATEST",
			"registry.ollama.ai/library/tiny:latest", "REGISTRY.ollama.ai/library/tiny",
		},
		"hf.co/o/m:latest":         {"hf.co/o/m", "HF.co/O/M"}, // PX-47
		"reg:5000/m:latest":        {"reg:5000/m"},
		"m@sha256:0123":            {"m@sha256:0123", "M@SHA256:0123"},
		"m:":                       {"m:"},
		"o/m:latest":               {"o/m", "registry.ollama.ai/o/m"},
		"reg/library/m:latest":     {"reg/library/m"}, // another registry's library is another's
		"library/library/m:latest": {"library/library/m"},
		"library:latest":           {"library"},
		"é:latest":                 {"é"},
		"":                         {"", " ", "\t\n", "library/"},
	} {
		for _, name := range names {
			if got := Key(Ollama, name); got != want {
				t.Errorf("Key(ollama, %q) = %q; want %q", name, got, want)
			}
		}
	}
	for name, want := range map[string]string{
		"Qwen/Qwen3": "Qwen/Qwen3", " a ": "a", "a:b": "a:b", "library/a": "library/a", " ": "",
	} {
		if got := Key(LMStudio, name); got != want {
			t.Errorf("Key(lmstudio, %q) = %q; want %q", name, got, want)
		}
	}
}

func TestAKeyIsAppendedWithoutTheHeap(t *testing.T) {
	name := "registry.ollama.ai/library/A-Name-Longer-Than-What-The-Compiler-Keeps-On-The-Stack:Q4"
	var buf [maxKey]byte
	require.Zero(t, testing.AllocsPerRun(100, func() { AppendKey(buf[:0], Ollama, name) }))
	require.Equal(t, "before tiny:latest", string(AppendKey([]byte("before "), Ollama, "library/tiny")))
}

// FuzzModel holds Model against encoding/json: of a valid object with one
// model at most, both find the same.
func FuzzModel(f *testing.F) {
	for _, s := range []string{
		`{"model":"m"}`, `{"Model":"m","model":7}`, `{"a":[1,{"model":"x"}],"model":"\ud83d\ude00"}`, `{"model":"`, `{`, `[[`,
		`{"model":"m"`, `{"\`, `{"model":"\u12`, `{"":{"":`, `"`, `{"model":tru`, `{"a" "model":"m"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := Model(LMStudio, body)
		_ = Model(Ollama, body)
		var object map[string]any
		if json.Unmarshal(body, &object) != nil {
			return
		}
		want, _ := object["model"].(string)
		if got != want {
			t.Errorf("Model(%q) = %q; want %q", body, got, want)
		}
	})
}

func FuzzKey(f *testing.F) {
	for _, s := range []string{"tiny", "library/library/m", "registry.ollama.ai/registry.ollama.ai/m", "library/ m", "a/", "/", "@", " :"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, engine := range []string{Ollama, LMStudio} {
			key := Key(engine, name)
			if again := Key(engine, key); again != key {
				t.Errorf("Key(%s, %q) = %q, whose key is %q", engine, name, key, again)
			}
			if blanks := Key(engine, " "+name+"\t"); blanks != key {
				t.Errorf("Key(%s, %q) = %q with blanks around; want %q", engine, name, blanks, key)
			}
		}
		if folded := Key(Ollama, asciiUpper(name)); folded != Key(Ollama, name) {
			t.Errorf("Key(%q) = %q in capitals; want %q", name, folded, Key(Ollama, name))
		}
	})
}

func asciiUpper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

func BenchmarkModel(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 32 << 20} {
		body := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("p", size) + `"}],"model":"m"}`)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				Model(Ollama, body)
			}
		})
	}
}
