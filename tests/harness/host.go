// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// endingGrace is what processes that are already ending get at the end of a test that has passed so far.
const endingGrace = time.Second

// dieWithin bounds the wait for processes that were killed.
const dieWithin = 10 * time.Second

// Host is a machine of its own for one test.
type Host struct {
	Name    string // its host name
	Dir     string // private directory, under a short path: a Unix socket's path is limited to 108 bytes
	DataDir string // NVPAIR_DATA_DIR of what runs on it, in Dir; empty at first

	t         testing.TB
	holder    *exec.Cmd
	stdin     io.Closer // of the holder, which ends with it
	namespace string    // name of the network namespace

	mu    sync.Mutex // guards the rest
	procs []*Proc    // all that Start started, in that order
	hosts string     // path of what SetNames wrote; "" if it did not
}

// NewHost makes a host. At the end of the test it proves that no process is left on it, and removes it.
func NewHost(t testing.TB, name string) *Host {
	t.Helper()
	Require(t)
	h := &Host{Name: name, t: t}
	t.Cleanup(h.close)
	dir, err := os.MkdirTemp("/tmp", "nvp")
	if err != nil {
		t.Fatalf("make directory of host %s: %v", name, err)
	}
	h.Dir, h.DataDir = dir, filepath.Join(dir, "data")
	for _, private := range []string{"data", "home", "run", "tmp", "stderr", "race"} {
		if err := os.Mkdir(filepath.Join(dir, private), 0o700); err != nil {
			t.Fatalf("make directory of host %s: %v", name, err)
		}
	}
	h.holder, h.stdin, err = startHolder(name)
	if err != nil {
		t.Fatalf("make host %s: %v", name, err)
	}
	h.namespace, err = netNamespace(h.holder.Process.Pid)
	if err != nil {
		t.Fatalf("make host %s: %v", name, err)
	}
	return h
}

// NetNSPath returns the path that stands for the host's network namespace while the host exists, for `ip link set ...
// netns` and the like, which take HolderPID too.
func (h *Host) NetNSPath() string {
	return "/proc/" + strconv.Itoa(h.HolderPID()) + "/ns/net"
}

// HolderPID returns the id of the process that keeps the host's namespaces.
func (h *Host) HolderPID() int {
	return h.holder.Process.Pid
}

// Command returns a command that runs inside the host, with an environment that holds nothing of the developer's. bin
// is one of Binaries, a path, or a name that is looked up in PATH. The caller may change the command and run it with
// its own methods or with Start.
func (h *Host) Command(bin string, args ...string) *exec.Cmd {
	h.t.Helper()
	path := bin
	if slices.Contains(Binaries, bin) {
		path = filepath.Join(Bin(h.t), bin)
	}
	path, err := exec.LookPath(path)
	if err != nil {
		h.t.Fatalf("command for host %s: %v", h.Name, err)
	}
	self, err := os.Executable()
	if err != nil {
		h.t.Fatalf("command for host %s: %v", h.Name, err)
	}
	holder := strconv.Itoa(h.HolderPID())
	h.mu.Lock()
	if h.hosts != "" {
		holder += "@" + h.hosts
	}
	h.mu.Unlock()
	cmd := exec.Command(self, append([]string{enterMode, holder, path}, args...)...)
	cmd.Dir = h.Dir
	cmd.Env = []string{
		"NVPAIR_DATA_DIR=" + h.DataDir,
		"HOME=" + filepath.Join(h.Dir, "home"),
		"XDG_RUNTIME_DIR=" + filepath.Join(h.Dir, "run"),
		"TMPDIR=" + filepath.Join(h.Dir, "tmp"),
		"PATH=" + os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0 log_path=" + h.racePath(), // read by executables with the race detector only
	}
	return cmd
}

// Do calls f on a thread inside the host and returns its error. The sockets that f makes itself are the host's for as
// long as they live, and so are the processes that it starts, which see the host's name too; goroutines that f starts are
// not on the host.
func (h *Host) Do(f func() error) error {
	err := errors.New("ended by runtime.Goexit")
	onOwnThread(func() {
		err = errors.Join(joinNamespace(h.NetNSPath()), joinNamespace("/proc/"+strconv.Itoa(h.HolderPID())+"/ns/uts"))
		if err == nil {
			err = f()
		}
	})
	return err
}

// Dial connects from the host to an address; a connection attempt is given up after 10 s. The address is literal, or a
// path for "unix": names are resolved outside.
func (h *Host) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return h.DialContext(ctx, network, addr)
}

// DialContext is Dial with a context for the attempt, as http.Transport wants it.
func (h *Host) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	var conn net.Conn
	err := h.Do(func() (err error) {
		dialer := net.Dialer{FallbackDelay: -1} // a second attempt would run in a goroutine outside the host
		conn, err = dialer.DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// Processes lists all processes on the host, whoever started them, in the order of their ids. A zombie is listed while
// its parent is on the host.
func (h *Host) Processes() []ProcInfo {
	return slices.DeleteFunc(processesIn(h.namespace), func(p ProcInfo) bool { return p.PID == h.HolderPID() })
}

// AwaitNone waits until no process is left on the host. If that takes longer than d it fails the test with their list.
func (h *Host) AwaitNone(d time.Duration) {
	h.t.Helper()
	if left := h.leftAfter(d); len(left) > 0 {
		h.t.Fatalf("left on host %s after %v:\n%s", h.Name, d, list(left))
	}
}

// leftAfter waits up to d for the host to be empty and returns the processes that are left. It takes an empty list for
// the truth only when the next is empty too: a process that forks and ends can hide its child from one.
func (h *Host) leftAfter(d time.Duration) []ProcInfo {
	var left []ProcInfo
	poll(d, func() bool {
		if left = h.Processes(); len(left) == 0 {
			left = h.Processes()
		}
		return len(left) == 0
	})
	return left
}

// close is the end of the test. It works on hosts that NewHost did not finish, too.
func (h *Host) close() {
	h.t.Helper()
	if h.namespace != "" {
		h.endProcesses()
	}
	if h.holder != nil {
		if err := errors.Join(h.stdin.Close(), h.holder.Wait()); err != nil {
			h.t.Errorf("end host %s: %v", h.Name, err)
		}
	}
	if err := os.RemoveAll(h.Dir); err != nil {
		h.t.Errorf("remove directory of host %s: %v", h.Name, err)
	}
}

// endProcesses proves that the test left no process, kills those that it did leave, and shows what all of them wrote
// to standard error if the test has failed.
func (h *Host) endProcesses() {
	h.t.Helper()
	grace := endingGrace
	if h.t.Failed() {
		grace = 0
	}
	if left := h.leftAfter(grace); len(left) > 0 {
		h.t.Errorf("left on host %s at the end of the test, and killed:\n%s", h.Name, list(left))
	}
	if !poll(dieWithin, func() bool { return len(killAll(h.namespace, h.HolderPID())) == 0 }) {
		h.t.Errorf("not dead after SIGKILL on host %s:\n%s", h.Name, list(h.Processes()))
	}
	h.mu.Lock()
	procs := h.procs
	h.mu.Unlock()
	h.reportRaces()
	for _, p := range procs {
		p.close()
	}
}

// racePath returns the path to which the race detector of a process on the host adds a dot and the process id.
func (h *Host) racePath() string {
	return filepath.Join(h.Dir, "race", "report")
}

// reportRaces fails the test for each data race that a process on the host has found, whoever started it: the exit
// status of a worker's worker would tell nobody.
func (h *Host) reportRaces() {
	h.t.Helper()
	reports, err := filepath.Glob(h.racePath() + ".*")
	if err != nil {
		h.t.Errorf("look for race reports of host %s: %v", h.Name, err)
	}
	for _, report := range reports {
		text, err := os.ReadFile(report)
		if err != nil {
			h.t.Errorf("read race report: %v", err)
			continue
		}
		h.t.Errorf("data race on host %s, process %s:\n%s", h.Name, filepath.Ext(report)[1:], text)
	}
}

// list returns the processes, one a line.
func list(processes []ProcInfo) string {
	var lines []string
	for _, p := range processes {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}
