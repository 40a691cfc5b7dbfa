// SPDX-License-Identifier: Apache-2.0

package applog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/stretchr/testify/require"
)

// noon is a fixed local time for whole lines.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 7e6, time.Local)

// handle returns what one record with args becomes.
func handle(t testing.TB, h func(*bytes.Buffer) slog.Handler, msg string, args ...any) string {
	t.Helper()
	var buf bytes.Buffer
	r := slog.NewRecord(noon, slog.LevelInfo, msg, 0)
	r.Add(args...)
	require.NoError(t, h(&buf).Handle(context.Background(), r))
	return buf.String()
}

func plain(buf *bytes.Buffer) slog.Handler { return NewHandler(buf, "p", nil) }

var head = regexp.MustCompile(`^(?:(\d\d:\d\d:\d\d\.\d{3}) )?\[([^\]]*)\] (DEBUG|INFO|WARN|ERROR) (\S*)`)

// parse reads a line with a message of one word back into a map; dotted keys
// become nested maps.
func parse(line string) (map[string]any, error) {
	m := head.FindStringSubmatch(line)
	if m == nil || !strings.HasSuffix(line, "\n") {
		return nil, fmt.Errorf("no log line: %q", line)
	}
	res := map[string]any{slog.LevelKey: m[3], slog.MessageKey: m[4]}
	if m[1] != "" {
		res[slog.TimeKey] = m[1]
	}
	rest := strings.TrimSuffix(line[len(m[0]):], "\n")
	for rest != "" {
		if rest[0] != ' ' {
			return nil, fmt.Errorf("no blank before %q", rest)
		}
		key, after, err := token(rest[1:], '=')
		if err != nil || after == "" {
			return nil, fmt.Errorf("no key at %q: %v", rest, err)
		}
		value, next, err := token(after[1:], ' ')
		if err != nil {
			return nil, err
		}
		rest = next
		at, path := res, strings.Split(key, ".")
		for _, g := range path[:len(path)-1] {
			if at[g] == nil {
				at[g] = map[string]any{}
			}
			at = at[g].(map[string]any)
		}
		at[path[len(path)-1]] = value
	}
	return res, nil
}

// token cuts a quoted string, or a bare one that ends before end.
func token(s string, end byte) (value, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", err
		}
		value, err = strconv.Unquote(q)
		return value, s[len(q):], err
	}
	if i := strings.IndexByte(s, end); i >= 0 {
		return s[:i], s[i:], nil
	}
	return s, "", nil
}

func TestHandlerKeepsTheRulesOfSlog(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		buf.Reset()
		return NewHandler(&buf, "p", slog.LevelInfo)
	}, func(t *testing.T) map[string]any {
		m, err := parse(buf.String())
		require.NoError(t, err)
		return m
	})
}

type secret struct{}

func (secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

func TestFieldsAreBareOrQuoted(t *testing.T) {
	var nilErr *strconv.NumError
	for _, tt := range []struct {
		value any
		want  string
	}{
		{"bare", "bare"},
		{`C:\dir`, `C:\dir`},
		{"größe", "größe"},
		{"", `""`},
		{"a b", `"a b"`},
		{"a=b", `"a=b"`},
		{`say "x"`, `"say \"x\""`},
		{"two\nlines\x1b", `"two\nlines\x1b"`},
		{-5, "-5"},
		{uint64(1<<64 - 1), "18446744073709551615"},
		{0.1, "0.1"},
		{2.0, "2"},
		{true, "true"},
		{1500 * time.Millisecond, "1.5s"},
		{time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), "2026-01-02T03:04:05.000000006Z"},
		{errors.New("no route"), `"no route"`},
		{nilErr, "<nil>"},
		{nil, "<nil>"},
		{[]int{1, 2}, `"[1 2]"`},
		{secret{}, "[secret]"},
		{slog.GroupValue(slog.Int("x", 1), slog.Group("g", "y", 2)), ""},
	} {
		want := "12:00:00.007 [p] INFO m k=" + tt.want + "\n"
		if tt.want == "" {
			want = "12:00:00.007 [p] INFO m k.x=1 k.g.y=2\n"
		}
		if got := handle(t, plain, "m", "k", tt.value); got != want {
			t.Errorf("value %#v: got %q, want %q", tt.value, got, want)
		}
	}
}

func TestMessageIsNeitherQuotedNorAbleToBreakTheLine(t *testing.T) {
	for _, tt := range []struct{ msg, want string }{
		{"proxy started", "proxy started"},
		{`a "b" c=d \ é`, `a "b" c=d \ é`},
		{"a\nb\r\tc", `a\nb\r\tc`},
		{"\x1b[2J\x00\x7f", `\x1b[2J\x00\x7f`},
		{"\u2028\u009b\xff", `\u2028\u009b\xff`},
	} {
		require.Equal(t, "12:00:00.007 [p] INFO "+tt.want+"\n", handle(t, plain, tt.msg))
	}
}

func TestBoundFieldsComeFirst(t *testing.T) {
	got := handle(t, func(buf *bytes.Buffer) slog.Handler {
		base := plain(buf).WithAttrs([]slog.Attr{slog.Int("a", 1)})
		base.WithAttrs([]slog.Attr{slog.Int("sibling", 9)}) // must not leak into the next
		return base.WithGroup("g").WithAttrs([]slog.Attr{slog.Int("b", 2)})
	}, "m", "c", 3)
	require.Equal(t, "12:00:00.007 [p] INFO m a=1 g.b=2 g.c=3\n", got)
}

func TestLevelCanChangeAtRunTime(t *testing.T) {
	var level slog.LevelVar
	h := NewHandler(&bytes.Buffer{}, "p", &level)
	require.False(t, h.Enabled(t.Context(), slog.LevelDebug))
	level.Set(slog.LevelDebug)
	require.True(t, h.Enabled(t.Context(), slog.LevelDebug))
}

// countingWriter is not safe for concurrent use, on purpose.
type countingWriter struct{ lines, calls int }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.calls++
	w.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

func TestConcurrentRecordsAreOneWriteEach(t *testing.T) {
	w := &countingWriter{}
	log := slog.New(NewHandler(w, "p", nil))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				log.With("bound", i).Info("a\nb", "k", "c\nd")
			}
		})
	}
	wg.Wait()
	require.Equal(t, countingWriter{lines: 800, calls: 800}, *w)
}

func FuzzRecordIsOneLineAndReadsBack(f *testing.F) {
	for _, s := range []string{"", " ", "a=b", "\n", `"`, `\`, "\x00\xff", "\u2028", `"a" b=c`} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, msg, key, value string) {
		line := handle(t, plain, msg, "k", value)
		if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\r\x1b\x00") {
			t.Fatalf("message %q, value %q: not one clean line: %q", msg, value, line)
		}
		key = strings.ReplaceAll(key, ".", "_") // parse would nest it
		if key == slog.LevelKey || key == slog.MessageKey || key == slog.TimeKey {
			key += "_"
		}
		got, err := parse(handle(t, plain, "m", slog.String(key, value)))
		if err != nil || got[key] != value || len(got) != 4 {
			t.Fatalf("%q=%q came back as %q, %v", key, value, got, err)
		}
	})
}
