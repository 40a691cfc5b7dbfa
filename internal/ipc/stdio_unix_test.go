// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package ipc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// roleVar names the part that the test binary plays as another process.
const roleVar = "NVPAIR_IPC_TEST_ROLE"

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		playWorker()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// pipe returns a pipe whose ends are closed with the test. Waiting at them is bounded.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// readResult is how a Read ended.
type readResult struct {
	n   int
	err error
}

func readInBackground(r io.Reader) <-chan readResult {
	read := make(chan readResult, 1) // the one result
	go func() {
		n, err := r.Read(make([]byte, 16))
		read <- readResult{n, err}
	}()
	return read
}

func requireEnds(t *testing.T, read <-chan readResult) {
	t.Helper()
	select {
	case got := <-read:
		require.Zero(t, got.n)
		require.Error(t, got.err)
	case <-time.After(patience):
		t.Fatal("the read did not end")
	}
}

func TestStreamsAreJoined(t *testing.T) {
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	s := Stdio(inR, outW)
	_, err := io.WriteString(inW, "in")
	require.NoError(t, err)
	b := make([]byte, 16)
	n, err := s.Read(b)
	require.NoError(t, err)
	require.Equal(t, "in", string(b[:n]))

	_, err = io.WriteString(s, "out")
	require.NoError(t, err)
	n, err = outR.Read(b)
	require.NoError(t, err)
	require.Equal(t, "out", string(b[:n]))
	require.NoError(t, inW.Close())
	_, err = s.Read(b)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, s.Close())
}

func TestCloseEndsABlockedRead(t *testing.T) {
	inR, _ := pipe(t)
	_, outW := pipe(t)
	s := Stdio(inR, outW)
	read := readInBackground(s)
	require.NoError(t, s.Close())
	requireEnds(t, read)
	require.NoError(t, s.Close(), "a second Close")
}

func TestPipesAreServedByThePoller(t *testing.T) {
	// Only then does Close end a Read or Write that blocks already, which the
	// tests above and below cannot tell from one that comes too late.
	inR, _ := pipe(t)
	_, outW := pipe(t)
	s := Stdio(inR, outW)
	defer func() { _ = s.Close() }()
	require.NoError(t, s.(*stdio).Reader.(*os.File).SetReadDeadline(time.Time{}))
	require.NoError(t, s.(*stdio).Writer.(*os.File).SetWriteDeadline(time.Time{}))
}

func TestCloseEndsABlockedWrite(t *testing.T) {
	inR, _ := pipe(t)
	_, outW := pipe(t)
	s := Stdio(inR, outW)
	written := make(chan error, 1) // the one result
	go func() {
		_, err := s.Write(make([]byte, 1<<20)) // more than a pipe holds
		written <- err
	}()
	require.NoError(t, s.Close())
	select {
	case err := <-written:
		require.ErrorIs(t, err, os.ErrClosed)
	case <-time.After(patience):
		t.Fatal("the write did not end")
	}
}

func TestPeerSeesBothEndsClose(t *testing.T) {
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	require.NoError(t, Stdio(inR, outW).Close())
	_, err := outR.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = inW.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPIPE)
}

func TestSocketsAreStreamsToo(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	peer := os.NewFile(uintptr(fds[1]), "peer")
	defer func() { _ = peer.Close() }()
	_, outW := pipe(t)
	s := Stdio(os.NewFile(uintptr(fds[0]), "in"), outW)
	read := readInBackground(s)
	require.NoError(t, s.Close())
	requireEnds(t, read)
}

func TestRegularFilesAreReadToTheirEndAndWritten(t *testing.T) {
	inPath, outPath := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(inPath, []byte("all of it"), 0o600))
	in, err := os.Open(inPath)
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	out, err := os.Create(outPath)
	require.NoError(t, err)
	s := Stdio(in, out)
	got, err := io.ReadAll(s)
	require.NoError(t, err)
	require.Equal(t, "all of it", string(got))
	_, err = io.WriteString(s, "answer")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	got, err = os.ReadFile(outPath)
	require.NoError(t, err)
	require.Equal(t, "answer", string(got))
}

// stuckReader stands for a terminal at which nobody types.
type stuckReader chan struct{}

func (r stuckReader) Read([]byte) (int, error) { <-r; return 0, io.EOF }

func TestCloseEndsAReadThatCannotBeInterrupted(t *testing.T) {
	in := make(stuckReader)
	s := Stdio(in, io.Discard)
	read := readInBackground(s)
	require.NoError(t, s.Close())
	requireEnds(t, read)
	close(in) // lets go of the goroutine that is left behind
}

func TestReadErrorIsPassedOn(t *testing.T) {
	broken := errors.New("broken")
	s := Stdio(io.MultiReader(strings.NewReader("x"), brokenReader{broken}), io.Discard)
	got, err := io.ReadAll(s)
	require.ErrorIs(t, err, broken)
	require.Equal(t, "x", string(got))
	require.NoError(t, s.Close())
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

// playWorker takes over the standard streams of a real process and tells over
// the link what became of their numbers.
func playWorker() {
	s := Stdio(os.Stdin, os.Stdout)
	fmt.Println("a careless library prints to the standard output")
	next, err := os.Open(os.DevNull)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(s, "next number is a standard one: %v\n", next.Fd() <= 2)
	_, _ = io.Copy(s, s)
	fmt.Fprintln(s, "end of input")
	_ = s.Close()
}

func TestNumbersOfTheStandardStreamsAreNotGivenAway(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	// The race detector's pause at exit would only take time.
	cmd.Env = append(os.Environ(), roleVar+"=worker", "GORACE=atexit_sleep_ms=0")
	cmd.Stdin = strings.NewReader("hello\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s", &errs)
	require.Equal(t, "next number is a standard one: false\nhello\nend of input\n", out.String())
}
