// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/ipc"
	"nvpair/internal/jsonrpc"
)

const (
	// roleVar names the part that the test binary plays as another process.
	roleVar = "NVPAIR_WORKER_TEST_ROLE"
	// patience is how long a test waits for what must happen.
	patience = 20 * time.Second
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		goleak.VerifyTestMain(m)
	case "worker":
		os.Exit(Main(Program{Name: "demo", Version: "1.2.3", Run: runWorker}, os.Args[1:], Stdio()))
	case "parent":
		playParent()
	}
}

// runWorker is a worker that echoes; "log" makes it write to its log and "hang"
// makes it deaf to everything.
func runWorker(ctx context.Context, cfg Config) error {
	l := NewLink(cfg)
	l.Serve(ctx, func(r *jsonrpc.Request) {
		switch r.Method {
		case "log":
			cfg.Log.Warn("as you wish")
		case "hang":
			r.Reply("good night")
			<-time.After(time.Minute) // longer than any test waits
		}
		r.Reply(r.Method)
	})
	return nil
}

// playParent starts a worker whose streams are this process's descriptors 3, 4
// and 5, prints its process id and stays.
func playParent() {
	cmd := workerCommand()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.NewFile(3, "in"), os.NewFile(4, "out"), os.NewFile(5, "err")
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	<-time.After(time.Minute)
}

func command(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	// The race detector's pause at exit would only take time.
	cmd.Env = append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func workerCommand(args ...string) *exec.Cmd { return command("worker", args...) }

// process is a worker in a process of its own, seen from its parent.
type process struct {
	cmd  *exec.Cmd
	in   *os.File // written to the worker
	out  *os.File // read from the worker
	errs *os.File // likewise
	read *bufio.Reader
}

// pipe returns a pipe whose ends are closed with the test and at which nobody
// waits too long.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// startWorker starts a worker and waits for its first frames.
func startWorker(t *testing.T) *process {
	t.Helper()
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	p := &process{cmd: workerCommand(), in: inW, out: outR, errs: errR, read: bufio.NewReader(outR)}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	for _, f := range []*os.File{inR, outW, errW} {
		require.NoError(t, f.Close())
	}
	require.Equal(t, ready, p.line(t))
	require.Equal(t, hello, p.line(t))
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.read.ReadString('\n')
	require.NoError(t, err)
	return line[:len(line)-1]
}

// call has the worker echo a method.
func (p *process) call(t *testing.T, method string) {
	t.Helper()
	_, err := fmt.Fprintf(p.in, `{"jsonrpc":"2.0","id":1,"method":%q}`+"\n", method)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":%q}`, method), p.line(t))
}

// status waits for the worker's end.
func (p *process) status(t *testing.T) string {
	t.Helper()
	ended := make(chan string, 1) // the one status
	go func() {
		_ = p.cmd.Wait()
		ended <- p.cmd.ProcessState.String()
	}()
	select {
	case s := <-ended:
		return s
	case <-time.After(patience):
		t.Fatal("the worker does not end")
		return ""
	}
}

func TestSignalIsHonouredWhileTheWorkerWaitsForInput(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			p := startWorker(t)
			require.NoError(t, p.cmd.Process.Signal(sig))
			require.Equal(t, "exit status 0", p.status(t))
			_, err := p.read.ReadByte()
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

func TestEndOfInputEndsTheProcess(t *testing.T) {
	p := startWorker(t)
	p.call(t, "anything")
	require.NoError(t, p.in.Close())
	require.Equal(t, "exit status 0", p.status(t))
	text, err := io.ReadAll(p.errs)
	require.NoError(t, err)
	require.Empty(t, string(text))
}

func TestLogThatNobodyReadsDoesNotKill(t *testing.T) {
	p := startWorker(t)
	require.NoError(t, p.errs.Close())
	p.call(t, "log")
	p.call(t, "log")
	require.NoError(t, p.in.Close())
	require.Equal(t, "exit status 0", p.status(t))
}

func TestBrokenOutputEndsTheWorkerInOrder(t *testing.T) {
	p := startWorker(t)
	require.NoError(t, p.out.Close())
	_, err := io.WriteString(p.in, `{"jsonrpc":"2.0","id":1,"method":"x"}`+"\n")
	require.NoError(t, err)
	require.Equal(t, "exit status 0", p.status(t)) // and not "signal: broken pipe"
}

func TestLinkOverAnEndpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := ipc.Listen(path)
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	p := &process{cmd: workerCommand("--ipc", path)}
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	conn, err := ln.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	p.read = bufio.NewReader(conn)
	require.Equal(t, ready, p.line(t))
	require.Equal(t, hello, p.line(t))
	require.NoError(t, conn.Close())
	require.Equal(t, "exit status 0", p.status(t))
}
