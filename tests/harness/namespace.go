// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// First arguments that make the test executable a helper process.
const (
	holderMode = "harness-holder" // host name: keeps the namespaces of a host alive
	// holder's pid and maybe "@" and a file for /etc/hosts and maybe ":user", program, arguments: runs a program inside a
	// host
	enterMode = "harness-enter"
)

// exitNotEntered is the exit status of a program that could not be started inside its host.
const exitNotEntered = 125

// Require skips the test if this machine cannot make hosts, or fails it if CI=true is set.
func Require(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Lacking(t, "root, to make network namespaces")
	}
}

// actAsHelper becomes the helper process that the arguments ask for. It returns only if they ask for none.
func actAsHelper(args []string) {
	if len(args) < 2 {
		return
	}
	var err error
	switch args[1] {
	case holderMode:
		if err = hold(args[2]); err == nil {
			os.Exit(0)
		}
	case enterMode:
		err = enter(args[2], args[3:])
	default:
		return
	}
	fmt.Fprintf(os.Stderr, "harness: %s: %v\n", args[1], err)
	os.Exit(exitNotEntered)
}

// hold is a host's holder: it was started in fresh namespaces, readies them, says so, and lives until its input ends.
// Then it kills what is still in its network namespace, which is nothing unless the test process died.
func hold(hostname string) error {
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("set loopback interface up: %w", err)
	}
	namespace, err := netNamespace(os.Getpid())
	if err != nil {
		return err
	}
	fmt.Println("ok")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if !poll(5*time.Second, func() bool { return len(killAll(namespace)) == 0 }) {
		return errors.New("processes do not die")
	}
	return nil
}

// loopbackUp does what `ip link set lo up` does.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// enter replaces this process by a program inside the namespaces of a holder; it returns only an error. The kernel
// moves a thread, and exec makes the calling thread the process.
func enter(holder string, program []string) error {
	runtime.LockOSThread()
	holder, user, other := strings.Cut(holder, ":")
	holder, hosts, named := strings.Cut(holder, "@")
	for _, kind := range []string{"net", "uts"} {
		if err := joinNamespace("/proc/" + holder + "/ns/" + kind); err != nil {
			return err
		}
	}
	if named {
		if err := mountHosts(hosts); err != nil {
			return err
		}
	}
	if other {
		if err := become(user); err != nil {
			return err
		}
	}
	return fmt.Errorf("exec %s: %w", program[0], syscall.Exec(program[0], program, os.Environ()))
}

// joinNamespace moves the calling thread into the namespace that a file under /proc stands for.
func joinNamespace(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, 0); err != nil {
		return fmt.Errorf("join %s: %w", path, err)
	}
	return nil
}

// onOwnThread calls f on a thread that does nothing else and ends with it, and returns when f has, even by
// runtime.Goexit. The process's first thread is never used: it cannot end, and the process counts as being where that
// thread is.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the runtime then ends the thread with the goroutine
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		onOwnThread(f) // cannot be given the first thread too, which this goroutine occupies
	}()
	<-done // no context: callers bound what f does
}

// startHolder starts a holder in namespaces of its own and waits until they are ready. The holder ends when stdin is
// closed. Its process group keeps Ctrl+C in a terminal from ending it before the test.
func startHolder(hostname string) (holder *exec.Cmd, stdin io.Closer, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	holder = exec.Command(self, holderMode, hostname)
	holder.Env = []string{"GORACE=atexit_sleep_ms=0"} // a second for each host otherwise
	holder.Stderr = os.Stderr
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS, Setpgid: true}
	stdin, err = holder.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := holder.Start(); err != nil {
		return nil, nil, err
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ok\n" {
		return nil, nil, errors.Join(fmt.Errorf("holder said %q: %v", line, err), stdin.Close(), holder.Wait())
	}
	return holder, stdin, nil
}

// netNamespace returns the name of a process's network namespace, such as "net:[4026531840]". It fails for processes
// that are gone and for zombies, which are in none.
func netNamespace(pid int) (string, error) {
	return os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
}

// ProcInfo is what /proc tells about one process.
type ProcInfo struct {
	PID, PPID, PGID int
	Name            string // base name of its first argument; the kernel's short name for a zombie
	State           string // one letter, as in ps: "R", "S", "Z" ...
}

// String returns the process as one line for a test's output.
func (p ProcInfo) String() string {
	return fmt.Sprintf("%s (pid %d, parent %d, group %d, state %s)", p.Name, p.PID, p.PPID, p.PGID, p.State)
}

// processesIn lists the processes of a network namespace in the order of their ids, zombies by their parent's
// namespace, without the calling process. One that is forked or ends meanwhile may be listed or not.
func processesIn(namespace string) []ProcInfo {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // only if /proc is missing, and then no host exists
	}
	inside := map[int]bool{}
	var zombies, found []ProcInfo
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := processInfo(pid)
		if err != nil {
			continue // gone
		}
		if in, err := netNamespace(pid); err == nil && in == namespace {
			inside[pid] = true
			found = append(found, p)
		} else if p.State == "Z" {
			zombies = append(zombies, p)
		}
	}
	for _, p := range zombies {
		if inside[p.PPID] {
			found = append(found, p)
		}
	}
	return found
}

// processInfo reads /proc/<pid>.
func processInfo(pid int) (ProcInfo, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return ProcInfo{}, err
	}
	// pid (short name) state ppid pgrp ...; the name may hold anything, parentheses too.
	before, after := strings.Index(string(stat), "("), strings.LastIndex(string(stat), ")")
	if before < 0 || after < before {
		return ProcInfo{}, fmt.Errorf("unexpected %s/stat: %q", dir, stat)
	}
	p := ProcInfo{PID: pid, Name: string(stat[before+1 : after])}
	if _, err := fmt.Sscan(string(stat[after+1:]), &p.State, &p.PPID, &p.PGID); err != nil {
		return ProcInfo{}, fmt.Errorf("unexpected %s/stat: %q: %w", dir, stat, err)
	}
	if argv0, _, _ := strings.Cut(commandLine(pid), "\x00"); argv0 != "" {
		p.Name = argv0[strings.LastIndex(argv0, "/")+1:]
	}
	return p, nil
}

// commandLine returns the arguments of a process, each with a zero byte behind it; "" for one that is gone.
func commandLine(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	return string(text)
}

// killAll kills the processes of a network namespace, except the calling one and those listed, and returns them. The
// next call finds those that they started meanwhile.
func killAll(namespace string, except ...int) []ProcInfo {
	var killed []ProcInfo
	for _, p := range processesIn(namespace) {
		if slices.Contains(except, p.PID) {
			continue
		}
		killed = append(killed, p)
		_ = unix.Kill(p.PID, unix.SIGKILL) // it may have ended by itself
	}
	return killed
}
