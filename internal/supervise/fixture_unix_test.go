// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package supervise

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog/applogtest"
)

const (
	// roleVar names the part that the test binary plays as a child.
	roleVar = "NVPAIR_SUPERVISE_TEST_ROLE"
	// patience is how long a test waits for what must happen.
	patience = 20 * time.Second
	// never is a time that no passing test reaches.
	never = time.Minute
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		play(role)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// play is a child's main. Whatever it does, it does not outlive never.
func play(role string) {
	role, arg, _ := strings.Cut(role, " ")
	switch role {
	case "exit":
		status, _ := strconv.Atoi(arg)
		os.Exit(status)
	case "obey": // ends with its input
		fmt.Println("up")
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Println("bye")
	case "deaf": // ends on the signal only
		term := make(chan os.Signal, 1) // the one signal
		signal.Notify(term, syscall.SIGTERM)
		fmt.Println("up")
		<-term
		fmt.Println("terminated")
	case "stubborn": // ends by force only
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("up")
		<-time.After(never)
	case "ponger":
		fmt.Println("hello")
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println(strings.Replace(in.Text(), "ping", "pong", 1))
		}
	case "chatterbox": // has much to say before it ends
		out, errs := bufio.NewWriter(os.Stdout), bufio.NewWriter(os.Stderr)
		for i := range lastWords {
			fmt.Fprintln(out, i)
			fmt.Fprintln(errs, i)
		}
		_, _ = out.Flush(), errs.Flush()
		os.Exit(3)
	case "frames": // likewise, in frames that a pipe and a reader's buffer hold
		fmt.Print(strings.Repeat(`{"jsonrpc":"2.0","method":"last/words"}`+"\n", lastFrames))
		os.Exit(3)
	case "hangup": // closes one of its streams and lives on
		fmt.Println("up")
		_ = map[string]*os.File{"stdin": os.Stdin, "stdout": os.Stdout}[arg].Close()
		<-time.After(never)
	case "helper":
		playWithHelper(arg)
	case "modes":
		for fd := range uintptr(3) {
			flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
			fmt.Printf("%d non-blocking: %v\n", fd, flags&syscall.O_NONBLOCK != 0)
		}
	default:
		panic("no such role: " + role)
	}
}

// playWithHelper starts a helper that holds the output open, inside or outside
// of the group, then ends at once or with its input.
func playWithHelper(how string) {
	helper := exec.Command("/bin/sleep", "600")
	helper.Stdout, helper.Stderr = os.Stdout, os.Stderr
	helper.SysProcAttr = &syscall.SysProcAttr{Setsid: strings.HasPrefix(how, "outside")}
	if err := helper.Start(); err != nil {
		panic(err)
	}
	fmt.Println("helper", helper.Process.Pid)
	if strings.HasSuffix(how, "obeys") {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(1)
}

const (
	lastWords  = 5000 // lines that a chatterbox writes to each stream
	lastFrames = 1000 // 39 KB
)

// watched is a Child and everything that it reported.
type watched struct {
	*Child
	t         *testing.T
	processes chan *Process // capacity: more than a test starts
	log       applogtest.Buffer

	mu      sync.Mutex // guards the rest
	events  []string
	changed chan struct{} // closed and replaced with each event
}

// policy returns one under which nothing happens but restarts, two at most.
// Tests shorten what they are about; the rest would keep them waiting for ever.
func policy() Policy {
	return Policy{
		FirstDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond, Budget: 2, HealthyAfter: never,
		PingEvery: never, PingMisses: 3, HelloTicks: 3,
		StopGrace: never, TermGrace: never, KillGrace: never, MinGrace: time.Millisecond, Drain: never,
	}
}

// watch returns a Child that is not started yet. Its first incarnations play the
// given roles in turn, all later ones the last role; the role "missing" is a
// program that cannot be started.
func watch(t *testing.T, p Policy, roles ...string) *watched {
	w := &watched{t: t, processes: make(chan *Process, 100), changed: make(chan struct{})}
	w.Child = New(Config{
		Name:   "demo",
		Policy: p,
		Log:    slog.New(slog.NewTextHandler(&w.log, nil)),
		Command: func() *exec.Cmd {
			role := roles[0]
			roles = roles[min(1, len(roles)-1):]
			return command(role)
		},
		Attach: func(p *Process) Link {
			w.event("attached %d", p.Generation)
			w.processes <- p
			return &lines{w: w, p: p, rwc: p.Transport()}
		},
		Stderr: func(r io.Reader) {
			for in := bufio.NewScanner(r); in.Scan(); {
				w.event("err %s", in.Text())
			}
		},
		Ours: func(string) bool { return true },
		Ended: func(p *Process, cause string) {
			if p == nil {
				w.event("ended nothing, %s", cause)
			} else {
				w.event("ended %d, %s", p.Generation, cause)
			}
		},
		Healthy:   func() { w.event("healthy") },
		Exhausted: func() { w.event("exhausted") },
	})
	t.Cleanup(func() {
		w.Stop(time.Now().Add(time.Millisecond))
		if t.Failed() {
			t.Logf("events: %q\nlog:\n%s", w.all(), w.log.String())
		}
	})
	return w
}

// start is watch, then Start.
func start(t *testing.T, p Policy, roles ...string) *watched {
	t.Helper()
	w := watch(t, p, roles...)
	require.NoError(t, w.Start())
	return w
}

// command returns the command of a child with that role.
func command(role string) *exec.Cmd {
	if role == "missing" {
		return exec.Command("/nonexistent/program")
	}
	cmd := exec.Command(os.Args[0])
	// The race detector's pause at exit would only take time.
	cmd.Env = append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func (w *watched) event(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf(format, args...))
	close(w.changed)
	w.changed = make(chan struct{})
}

// all returns the events so far.
func (w *watched) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.events...)
}

// next returns the process of the next incarnation.
func (w *watched) next() *Process {
	w.t.Helper()
	select {
	case p := <-w.processes:
		return p
	case <-time.After(patience):
		w.t.Fatal("no process was started")
		return nil
	}
}

// await waits for the first event that starts with prefix and returns its rest.
func (w *watched) await(prefix string) string {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		w.mu.Lock()
		changed := w.changed
		for _, e := range w.events {
			if rest, ok := strings.CutPrefix(e, prefix); ok {
				w.mu.Unlock()
				return rest
			}
		}
		w.mu.Unlock()
		select {
		case <-changed:
		case <-timeout:
			w.t.Fatalf("no event %q", prefix)
		}
	}
}

// stop stops the child within the test's patience; grace is the time until the
// deadline.
func (w *watched) stop(grace time.Duration) {
	w.t.Helper()
	stopped := make(chan struct{})
	go func() { defer close(stopped); w.Stop(time.Now().Add(grace)) }()
	select {
	case <-stopped:
	case <-time.After(patience):
		w.t.Fatal("Stop does not return")
	}
}

// lines is a Link of plain lines.
type lines struct {
	w   *watched
	p   *Process
	rwc io.ReadWriteCloser
}

func (l *lines) Serve(context.Context) {
	for in := bufio.NewScanner(l.rwc); in.Scan(); {
		l.p.Heard()
		if in.Text() == "hello" {
			l.p.Announced()
		}
		if seq, ok := strings.CutPrefix(in.Text(), "pong "); ok {
			n, _ := strconv.ParseInt(seq, 10, 64)
			l.p.Answered(n)
		}
		l.w.event("out %s", in.Text())
	}
}

func (l *lines) CloseWrite()    { _ = l.rwc.(interface{ CloseWrite() error }).CloseWrite() }
func (l *lines) Ping(seq int64) { fmt.Fprintf(l.rwc, "ping %d\n", seq) }

// awaitGone waits until no process with that id runs. One that nobody reaps
// after it has ended does not run.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return !runs(pid) }, patience, time.Millisecond, "process %d", pid)
}

func runs(pid int) bool {
	if runtime.GOOS != "linux" {
		return syscall.Kill(pid, 0) == nil // the init process reaps at once
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}
