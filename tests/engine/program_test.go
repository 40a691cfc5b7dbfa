// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childVariable makes the test binary play the program.
const childVariable = "NVPAIR_DEMO_ENGINE_CHILD"

// program is the demo engine as a process.
type program struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

func startProgram(t *testing.T, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel() // kills it if a test failed
		_ = cmd.Wait()
	})
	return &program{cmd: cmd, stdin: stdin, lines: bufio.NewReader(stdout)}
}

// line reads a line of its output.
func (p *program) line(t *testing.T) string {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSuffix(line, "\n")
}

func TestTheProgramPrintsItsAddressAndEndsWithItsInput(t *testing.T) {
	p := startProgram(t, "--control", "127.0.0.1:0", "--models", "a+loaded,b+embedding", "--chunks", "3",
		"--faults", `{"kind":"status","status":503,"times":1}`)
	addr, control := p.line(t), p.line(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var got []int
	for range 2 {
		res, err := client.Get("http://" + addr + "/api/tags")
		require.NoError(t, err)
		got = append(got, res.StatusCode)
		_ = res.Body.Close()
	}
	require.Equal(t, []int{503, 200}, got)
	res, err := client.Get("http://" + control + "/witness")
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	_ = res.Body.Close()
	require.NoError(t, p.stdin.Close())
	require.NoError(t, p.cmd.Wait())
}

func TestSIGTERMEndsTheProgramAsItIsTold(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM here")
	}
	p := startProgram(t)
	p.line(t)
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait())

	p = startProgram(t, "--stop", "when-idle", "--delay", "1h")
	nc, err := net.Dial("tcp", p.line(t))
	require.NoError(t, err)
	const body = `{"model":"demo","prompt":"hi"}`
	_, err = fmt.Fprintf(nc, "POST /api/generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	status := make([]byte, len("HTTP/1.1 200"))
	_, err = io.ReadFull(nc, status) // the stream runs
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 200", string(status))
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	exited := make(chan error, 1)
	go func() { exited <- p.cmd.Wait() }()
	select {
	case <-exited:
		t.Fatal("it ended under its client")
	case <-time.After(brief):
	}
	require.NoError(t, nc.Close())
	require.NoError(t, <-exited) // ended, or killed, within the minute of startProgram
}

func TestTheProgramFailsAsAnEngineDoes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	for _, tt := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"--listen", ln.Addr().String()}, 1, "listen"},
		{[]string{"--control", ln.Addr().String()}, 1, "listen for control"},
		{[]string{"--fail-after", "1ms"}, 1, "--fail-after"},
		{[]string{"--faults", `{"kind":"other"}`}, 1, "unknown kind"},
		{[]string{"--dialect", "other"}, 2, "unknown dialect"},
		{[]string{"--stop", "later"}, 2, "--stop"},
		{[]string{"--models", "a+odd"}, 2, "unknown mark"},
		{[]string{"extra"}, 2, "unexpected argument"},
		{[]string{"--help"}, 0, "stand-in"},
	} {
		var stdout, stderr bytes.Buffer
		r, w := io.Pipe()
		code := Main(tt.args, r, &stdout, &stderr)
		require.NoError(t, w.Close())
		require.Equal(t, tt.want, code, "%q: %s", tt.args, stderr.String())
		require.Contains(t, stderr.String(), tt.says)
	}
}

func TestTheProgramCanComeUpSlowly(t *testing.T) {
	for flag, state := range map[string]string{"--refuse": "refused", "--loading": "503"} {
		p := startProgram(t, flag, "1500ms", "--dialect", "llamacpp")
		addr := p.line(t)
		seen := map[string]bool{}
		for deadline := time.Now().Add(patience); !seen["200"] && time.Now().Before(deadline); {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			res, err := client.Get("http://" + addr + "/health")
			if err != nil {
				seen["refused"] = true
				continue
			}
			seen[res.Status[:3]] = true
			_ = res.Body.Close()
		}
		require.True(t, seen["200"], flag)
		require.True(t, seen[state], "%s: %v", flag, seen)
	}
}
