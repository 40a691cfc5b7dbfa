// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// startWithin bounds the time from the start of a process until it is inside its host.
const startWithin = 10 * time.Second

// dumpWithin bounds the wait for the goroutine dump of a process that did not exit in time.
const dumpWithin = 2 * time.Second

// Proc is a process on a host, the leader of a process group of its own.
type Proc struct {
	Name   string   // base name of the program
	PID    int      // of the program itself
	Stdin  *os.File // writes to its input; closing it ends the input. Nil if the command came with its own
	Stdout *os.File // reads its output; ends when all that hold the other end are gone. Nil as above

	h      *Host
	cmd    *exec.Cmd
	stderr string        // path of the file that collects it; "" if the command came with its own
	exited chan struct{} // closed once the process is reaped, after which cmd.ProcessState is set
}

// Start starts a command that Command made, in a process group of its own, and returns once the program runs inside
// the host. Of standard input, output and error it takes over those that the command leaves nil. Nothing reads Stdout
// but the test.
func (h *Host) Start(cmd *exec.Cmd) *Proc {
	h.t.Helper()
	p, err := h.start(cmd)
	if err != nil {
		h.t.Fatalf("start %s on host %s: %v", programName(cmd), h.Name, err)
	}
	if !poll(startWithin, p.entered) {
		h.t.Fatalf("start %s on host %s: not inside after %v", p.Name, h.Name, startWithin)
	}
	return p
}

// start is Start without the wait.
func (h *Host) start(cmd *exec.Cmd) (*Proc, error) {
	p := &Proc{Name: programName(cmd), h: h, cmd: cmd, exited: make(chan struct{})}
	theirs, err := p.attach()
	if err == nil {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Setpgid = true
		err = cmd.Start()
	}
	for _, file := range theirs {
		_ = file.Close() // the process has its own by now
	}
	if err != nil {
		return nil, errors.Join(err, closeFile(p.Stdin), closeFile(p.Stdout))
	}
	p.PID = cmd.Process.Pid
	go func() { // ends with the process, for which Host.close waits
		defer close(p.exited)
		_ = cmd.Wait() // read from ProcessState
	}()
	h.mu.Lock()
	h.procs = append(h.procs, p)
	h.mu.Unlock()
	return p, nil
}

// attach gives the command those of standard input, output and error that it lacks, and returns the files that are the
// process's. The pipes are not those of exec.Cmd, because Wait would close them while the test still reads. Standard
// error is a file, because whoever inherits one delays nobody.
func (p *Proc) attach() (theirs []*os.File, err error) {
	if p.cmd.Stdin == nil {
		read, write, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		p.cmd.Stdin, p.Stdin, theirs = read, write, append(theirs, read)
	}
	if p.cmd.Stdout == nil {
		read, write, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		p.cmd.Stdout, p.Stdout, theirs = write, read, append(theirs, write)
	}
	if p.cmd.Stderr == nil {
		file, err := os.CreateTemp(filepath.Join(p.h.Dir, "stderr"), p.Name+"-")
		if err != nil {
			return theirs, err
		}
		p.cmd.Stderr, p.stderr, theirs = file, file.Name(), append(theirs, file)
	}
	return theirs, nil
}

// programName returns the base name of the program that a command of Command runs.
func programName(cmd *exec.Cmd) string {
	if len(cmd.Args) > 3 && cmd.Args[1] == enterMode {
		return filepath.Base(cmd.Args[3])
	}
	return filepath.Base(cmd.Path)
}

// entered reports whether the program has taken the place of the helper, or is gone already.
func (p *Proc) entered() bool {
	args := strings.SplitN(commandLine(p.PID), "\x00", 3)
	return len(args) < 2 || args[1] != enterMode
}

// Exited reports whether the process has exited and is reaped.
func (p *Proc) Exited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process alone. A process that has exited is no error.
func (p *Proc) Signal(signal os.Signal) {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.h.t.Errorf("send %v to %s[%d]: %v", signal, p.Name, p.PID, err)
	}
}

// Kill kills the process alone, as a crash would, and returns once it is gone.
func (p *Proc) Kill() {
	p.h.t.Helper()
	p.Signal(syscall.SIGKILL)
	if !p.exitsWithin(dieWithin) {
		p.h.t.Fatalf("%s[%d] not dead %v after SIGKILL", p.Name, p.PID, dieWithin)
	}
}

// AwaitExit waits for the process and returns its exit status, 128 + n if signal n ended it. If it runs for longer
// than d, AwaitExit sends it SIGQUIT, for the goroutine dump in its standard error, and fails the test.
func (p *Proc) AwaitExit(d time.Duration) int {
	p.h.t.Helper()
	if !p.exitsWithin(d) {
		p.Signal(syscall.SIGQUIT)
		p.exitsWithin(dumpWithin)
		p.h.t.Fatalf("%s[%d] has not exited within %v", p.Name, p.PID, d)
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// exitsWithin reports whether the process exits within d.
func (p *Proc) exitsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return p.Exited()
	}
}

// Stderr returns what the process, and all that inherited its standard error, have written so far.
func (p *Proc) Stderr() string {
	if p.stderr == "" {
		return ""
	}
	text, err := os.ReadFile(p.stderr)
	if err != nil {
		return fmt.Sprintf("[%v]", err)
	}
	return string(text)
}

// AwaitStderr waits until standard error matches a regular expression and returns the match and its groups. It fails
// the test after d, or as soon as the process has exited without a match.
func (p *Proc) AwaitStderr(pattern string, d time.Duration) []string {
	p.h.t.Helper()
	expression := regexp.MustCompile(pattern)
	var match []string
	var exited bool
	poll(d, func() bool {
		exited = p.Exited() // before the look, which is then the last
		match = expression.FindStringSubmatch(p.Stderr())
		return match != nil || exited
	})
	if match == nil {
		p.h.t.Fatalf("%s[%d] has not written %q to standard error within %v (exited: %t)", p.Name, p.PID, pattern, d,
			exited)
	}
	return match
}

// close waits for the process, which is dead or dying, closes the test's ends of its pipes, and shows its standard
// error if the test has failed.
func (p *Proc) close() {
	p.h.t.Helper()
	state := "not reaped"
	if p.exitsWithin(dieWithin) {
		state = p.cmd.ProcessState.String()
	} else {
		p.h.t.Errorf("%s[%d] cannot be reaped", p.Name, p.PID)
	}
	_ = closeFile(p.Stdin) // the test may have closed them
	_ = closeFile(p.Stdout)
	if p.h.t.Failed() {
		p.h.t.Logf("standard error of %s[%d] on host %s (%s):\n%s", p.Name, p.PID, p.h.Name, state, p.Stderr())
	}
}

// closeFile closes a file that may be nil.
func closeFile(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}
