// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/applog/applogtest"
)

// gate is a reader of diagnostics that takes nothing until it is opened.
type gate struct {
	opened chan struct{}
	applogtest.Buffer
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) open() { close(g.opened) }

func (g *gate) Write(p []byte) (int, error) {
	<-g.opened
	return g.Buffer.Write(p)
}

// openGate is one that always takes everything.
func openGate() *gate {
	g := newGate()
	g.open()
	return g
}

// fill writes n numbered lines.
func fill(s *Sink, n int) (want string) {
	var b strings.Builder
	for i := range n {
		line := fmt.Sprintf("line %d\n", i)
		_, _ = io.WriteString(s, line)
		b.WriteString(line)
	}
	return b.String()
}

func unsent(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "logs", "nvpair-broker-unsent.log"))
	require.NoError(t, err)
	return string(b)
}

func TestLinesArePassedOnInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, out := t.TempDir(), openGate()
		s := NewSink(out, dir)
		want := fill(s, 3000)
		synctest.Wait()
		require.Equal(t, want, out.String(), "without waiting for Close")
		want += fill(s, 3000)
		require.NoError(t, s.Close())
		require.Equal(t, want, out.String())
		require.NoDirExists(t, filepath.Join(dir, "logs"), "nothing did not fit")
	})
}

func TestTheCallersBufferIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newGate()
		s := NewSink(out, t.TempDir())
		b := []byte("one\n")
		_, _ = s.Write(b)
		copy(b, "two\n")
		_, _ = s.Write(b)
		out.open()
		require.NoError(t, s.Close())
		require.Equal(t, "one\ntwo\n", out.String())
	})
}

// TestAStuckReaderMakesNobodyWait: see BR-78.
func TestAStuckReaderMakesNobodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, out := t.TempDir(), newGate()
		s := NewSink(out, dir)
		begin := time.Now()
		all := fill(s, sinkLines+100)
		require.Zero(t, time.Since(begin))
		lines := strings.SplitAfter(strings.TrimSuffix(all, "\n"), "\n")
		require.Equal(t, strings.Join(lines[sinkLines:], "")+"\n", unsent(t, dir), "what did not fit")

		out.open()
		synctest.Wait()
		got, notice, found := strings.Cut(out.String(), "00:00:00.000 [nvpair-ui-broker] WARN ")
		require.True(t, found)
		require.Equal(t, strings.Join(lines[:sinkLines], ""), got)
		require.Equal(t, fmt.Sprintf("log reader was too slow, lines diverted lines=100 where=%q\n",
			"kept in "+filepath.Join(dir, "logs", "nvpair-broker-unsent.log")), notice)

		_, _ = io.WriteString(s, "afterwards\n")
		require.NoError(t, s.Close())
		require.True(t, strings.HasSuffix(out.String(), notice+"afterwards\n"), "one notice")
	})
}

func TestTheQueueIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, out := t.TempDir(), newGate()
		s := NewSink(out, dir)
		line := append(bytes.Repeat([]byte{'x'}, mib-1), '\n')
		for i := range 5 {
			_, _ = s.Write(line)
			if i == 0 {
				synctest.Wait() // what is being written counts too
			}
		}
		require.Len(t, unsent(t, dir), mib)
		_, _ = io.WriteString(s, "small\n")
		require.Len(t, unsent(t, dir), mib+len("small\n"))
		out.open()
		require.NoError(t, s.Close())
		require.Contains(t, out.String(), "lines=2 ")
	})
}

func TestCloseGivesAStuckReaderTwoSecondsAndKeepsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, out := t.TempDir(), newGate()
		s := NewSink(out, dir)
		_, _ = io.WriteString(s, "on its way\n")
		synctest.Wait()
		want := fill(s, 10)
		begin := time.Now()
		require.NoError(t, s.Close())
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.Equal(t, "on its way\n"+want, unsent(t, dir), "nobody knows what the reader has of the first")
		out.open() // lets go of the forwarder
		synctest.Wait()
		require.Equal(t, "on its way\n", out.String())
	})
}

func TestAReaderThatGoesOnBeforeCloseEndsMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, out := t.TempDir(), newGate()
		s := NewSink(out, dir)
		fill(s, sinkLines+1)
		time.AfterFunc(time.Second, out.open)
		begin := time.Now()
		require.NoError(t, s.Close())
		require.Equal(t, time.Second, time.Since(begin))
		require.Contains(t, out.String(), "lines=1 ")
		require.Equal(t, fmt.Sprintf("line %d\n", sinkLines), unsent(t, dir))
	})
}

func TestLinesWithoutAFileAreCountedAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, out := t.TempDir(), newGate()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "logs"), nil, 0o600)) // where the directory should be
		s := NewSink(out, dir)
		fill(s, sinkLines+3)
		out.open()
		require.NoError(t, s.Close())
		require.Contains(t, out.String(), `lines=3 where="3 of them lost, `)
	})
}

func TestTheFileIsOfThisRunOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for i := range 2 {
			out := newGate()
			s := NewSink(out, dir)
			_, _ = fmt.Fprintf(s, "run %d\n", i)
			require.NoError(t, s.Close())
			out.open()
		}
		require.Equal(t, "run 1\n", unsent(t, dir))

		s := NewSink(openGate(), dir) // nothing to keep: the last run's file stays
		require.NoError(t, s.Close())
		require.Equal(t, "run 1\n", unsent(t, dir))
	})
}

func TestWritingAfterCloseIsHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, dir := openGate(), t.TempDir()
		s := NewSink(out, dir)
		require.NoError(t, s.Close())
		n, err := io.WriteString(s, "late\n")
		require.NoError(t, err)
		require.Equal(t, 5, n)
		require.Empty(t, out.String())
		require.Equal(t, "late\n", unsent(t, dir))
		require.NoError(t, s.Close())
	})
}

// writes keeps every Write apart.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

func TestALineIsOneWrite(t *testing.T) {
	long := strings.Repeat("x", maxLogLine)
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines", "a\nbc\n\n", []string{"a\n", "bc\n", "\n"}},
		{"last line without an end", "a\nb", []string{"a\n", "b\n"}},
		{"carriage returns", "a\r\nb\r", []string{"a\r\n", "b\r\n"}},
		{"longer than a block", strings.Repeat("y", 10_000) + "\nz\n", []string{strings.Repeat("y", 10_000) + "\n", "z\n"}},
		{"at the limit", long[1:] + "\nz\n", []string{long[1:] + "\n", "z\n"}},
		{"over the limit", long + long + "yyy\nz\n", []string{long + "\n", "z\n"}},
		{"over the limit without an end", long + "y", []string{long + "\n"}},
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r },
			"error": iotest.DataErrReader,
			"half":  iotest.HalfReader,
		} {
			var got writes
			copyLines(&got, reader(strings.NewReader(tt.in)))
			if !equalShown(got, tt.want) {
				t.Errorf("%s, %s: got %d writes, want %d", tt.name, how, len(got), len(tt.want))
			}
		}
	}
}

// equalShown compares without printing a mebibyte when it fails.
func equalShown(got, want []string) bool {
	return len(got) == len(want) && strings.Join(got, "|") == strings.Join(want, "|")
}

func FuzzCopyLines(f *testing.F) {
	for _, seed := range []string{"", "\n", "a\nb", "\r\n\r", "\x00\xff\n\n", strings.Repeat("long ", 2000)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > maxLogLine {
			return // then lines may be cut
		}
		var got writes
		copyLines(&got, iotest.OneByteReader(bytes.NewReader(in)))
		for _, w := range got {
			if strings.IndexByte(w, '\n') != len(w)-1 {
				t.Fatalf("%q: %q is not one line", in, w)
			}
		}
		want := string(in)
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		if all := strings.Join(got, ""); all != want {
			t.Fatalf("%q: got %q", in, all)
		}
	})
}
