// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

func TestEveryBinaryTellsItsVersionAndRefusesUnknownFlags(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	require.NotEmpty(t, harness.Binaries)
	for _, binary := range harness.Binaries {
		for _, flag := range []string{"--version", "-version"} {
			var out, diagnostics bytes.Buffer
			cmd := h.Command(binary, flag)
			cmd.Stdout, cmd.Stderr = &out, &diagnostics
			require.NoError(t, cmd.Run(), binary)
			require.Equal(t, versionOf(t, binary)+"\n", out.String(), binary)
			require.Empty(t, diagnostics.String(), binary)
		}
		commands := [][]string{{"--no-such-flag"}, {"unexpected"}}
		if binary == "nvpair" {
			commands = [][]string{{"--no-such-flag"}, {"unexpected"}, {"serve", "--no-such-flag"}, {"status", "x"}, {}}
		}
		for _, args := range commands {
			var out, diagnostics bytes.Buffer
			cmd := h.Command(binary, args...)
			cmd.Stdout, cmd.Stderr = &out, &diagnostics
			require.Error(t, cmd.Run(), "%s %v", binary, args)
			require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s %v: %s", binary, args, diagnostics.String())
			require.Empty(t, out.String(), "%s %v", binary, args)
			require.NotEmpty(t, diagnostics.String(), "%s %v", binary, args)
			if len(args) > 0 {
				require.Contains(t, diagnostics.String(), strings.TrimLeft(args[len(args)-1], "-"), "%s %v", binary, args)
			}
		}
	}
	entries, err := os.ReadDir(h.DataDir)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing was to run")
}

func TestEveryProgramTakesItsFirstLogLevelFromFlagThenEnvironment(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		for _, tt := range []struct {
			flag, environment string
			debug, warned     bool
		}{
			{"", "", false, false},
			{"", "debug", true, false},
			{"", "loud", false, false},
			{"debug", "error", true, false},
			{"info", "debug", false, false},
			{"loud", "debug", true, true},
		} {
			cmd := h.Command(b.binary, b.args...)
			cmd.Dir = harness.Bin(t)
			if tt.flag != "" {
				cmd.Args = append(cmd.Args, "--log-level="+tt.flag)
			}
			if tt.environment != "" {
				cmd.Env = append(cmd.Env, "NVPAIR_LOG_LEVEL="+tt.environment)
			}
			p := h.Start(cmd)
			w := b.wire(t, p)
			b.opened(t, w)
			w.Send(harness.RequestLine("", "nobody/knows", ""))
			b.works(t, w, "1")
			b.endsWithItsInput(t, h, p)
			require.Equal(t, tt.debug, strings.Contains(p.Stderr(), "["+b.binary+"] DEBUG "), "%+v", tt)
			require.Equal(t, tt.warned, strings.Contains(p.Stderr(), "WARN invalid --log-level ignored level=loud"), "%+v", tt)
		}
	})
}

func TestSignalsEndEveryProgramThoughItsInputIsOpen(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
			p, w := b.start(t, h)
			b.works(t, w, "1") // the next read blocks
			p.Signal(signal)
			b.ended(t, h, p)
			w.AwaitEnd(answerWithin)
			require.Len(t, w.Frames(), len(b.opening)+1, "%v", signal)
		}
	})
}

func TestShutdownIsAnsweredBeforeEveryProgramEnds(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		p, w := b.start(t, h)
		w.Send(harness.RequestLine("", "shutdown", "")) // nobody to answer: dropped
		b.works(t, w, "1")
		w.Send(harness.RequestLine("2", "shutdown", ""))
		require.Equal(t, `{"jsonrpc":"2.0","id":2,"result":null}`, w.Next().Line)
		b.ended(t, h, p)
		w.AwaitEnd(answerWithin)
		require.Len(t, w.Frames(), len(b.opening)+2)
	})
}

func TestWhatArrivedBeforeTheEndOfInputIsAnswered(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		p, w := b.start(t, h)
		const requests = 500
		var lines strings.Builder
		for i := range requests {
			lines.WriteString(harness.RequestLine(fmt.Sprint(i), b.ask, b.params) + "\n")
		}
		w.Write(lines.String() + harness.RequestLine(`"last"`, b.ask, b.params)) // without an end
		require.NoError(t, p.Stdin.Close())
		for i := range requests {
			f := w.Next()
			require.Equal(t, fmt.Sprint(i), string(f.ID), f.Line)
			require.NotNil(t, f.Result, f.Line)
		}
		require.Equal(t, `"last"`, string(w.Next().ID))
		b.ended(t, h, p)
	})
}

func TestEveryProgramDialsTheSocketItIsGiven(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		path := filepath.Join(h.Dir, "parent.sock")
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		defer ln.Close()
		require.NoError(t, ln.SetDeadline(time.Now().Add(answerWithin)))
		cmd := h.Command(b.binary, append([]string{"--ipc", path}, b.args...)...)
		cmd.Dir = harness.Bin(t)
		p := h.Start(cmd)
		conn, err := ln.AcceptUnix()
		require.NoError(t, err)
		w := harness.NewWire(t, conn, conn)
		b.opened(t, w)
		require.NoError(t, p.Stdin.Close(), "its standard input means nothing now")
		b.works(t, w, "1")
		require.NoError(t, conn.CloseWrite())
		b.ended(t, h, p)
		out, err := io.ReadAll(p.Stdout)
		require.NoError(t, err)
		require.Empty(t, string(out))
	})
}

func TestASocketThatNobodyListensOnIsFatal(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		dead := filepath.Join(h.Dir, "dead.sock")
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
		require.NoError(t, err)
		ln.SetUnlinkOnClose(false)
		require.NoError(t, ln.Close())
		for _, path := range []string{filepath.Join(h.Dir, "missing.sock"), dead, h.DataDir} {
			cmd := h.Command(b.binary, append([]string{"--ipc", path}, b.args...)...)
			cmd.Dir = harness.Bin(t)
			p := h.Start(cmd)
			require.Equal(t, 1, p.AwaitExit(endWithin), path)
			require.Contains(t, p.Stderr(), path)
			require.Contains(t, p.Stderr(), "["+b.binary+"] ERROR ")
			out, err := io.ReadAll(p.Stdout)
			require.NoError(t, err)
			require.Empty(t, string(out))
			h.AwaitNone(goneWithin) // the broker had started nothing
		}
	})
}

func TestALogThatNobodyReadsHarmsNoProgram(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		cmd := h.Command(b.binary, append([]string{"--log-level", "debug"}, b.args...)...)
		cmd.Dir, cmd.Stderr = harness.Bin(t), write
		p := h.Start(cmd)
		require.NoError(t, errors.Join(write.Close(), read.Close()))
		w := b.wire(t, p)
		b.opened(t, w)
		for i := range 50 {
			w.Send("garbage", harness.RequestLine("", "nobody/knows", ""))
			b.works(t, w, fmt.Sprint(i))
		}
		require.NoError(t, p.Stdin.Close())
		require.Equal(t, 0, p.AwaitExit(endWithin))
		h.AwaitNone(goneWithin)
	})
}

func TestAParentThatReadsNoFramesAnyMoreIsTheEnd(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		cmd := h.Command(b.binary, b.args...)
		cmd.Dir = harness.Bin(t)
		p := h.Start(cmd)
		require.NoError(t, p.Stdout.Close())
		_, err := io.WriteString(p.Stdin, harness.RequestLine("1", b.ask, b.params)+"\n")
		if err != nil {
			require.ErrorIs(t, err, syscall.EPIPE) // it was faster
		}
		b.ended(t, h, p) // although its input is open: EPIPE (DEC-47)
	})
}

func TestAFullDiskBehindTheOutputEndsNoProgram(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		defer full.Close()
		cmd := h.Command(b.binary, b.args...)
		cmd.Dir, cmd.Stdout = harness.Bin(t), full
		p := h.Start(cmd)
		p.AwaitStderr("WARN link write failed .*no space left", answerWithin)
		for range 3 {
			_, err := io.WriteString(p.Stdin, harness.RequestLine("1", b.ask, b.params)+"\n")
			require.NoError(t, err)
		}
		require.False(t, p.Exited())
		b.endsWithItsInput(t, h, p)
	})
}

func TestAProgramWithoutStandardStreamsEnds(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		for _, streams := range []string{"<&- >&- 2>&-", "</dev/null >/dev/null 2>/dev/null"} {
			cmd := h.Command("sh", append([]string{"-c", `exec "$@" ` + streams, "sh", filepath.Join(harness.Bin(t), b.binary)},
				b.args...)...)
			cmd.Dir = harness.Bin(t)
			p := h.Start(cmd)
			require.Equal(t, 0, p.AwaitExit(endWithin), streams)
			h.AwaitNone(goneWithin)
		}
	})
}
