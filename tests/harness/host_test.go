// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// patience is how long these tests wait for what should take milliseconds.
const patience = 20 * time.Second

func TestAProcessSeesOnlyItsHost(t *testing.T) {
	h := NewHost(t, "alpha")
	cmd := h.Command("sh", "-c", "cat /proc/sys/kernel/hostname; cat /proc/net/dev; env; echo $$")
	out, err := cmd.Output()
	require.NoError(t, err)

	require.Regexp(t, `^alpha\n`, string(out))
	var interfaces []string
	for _, match := range regexp.MustCompile(`(?m)^ *(\w+):`).FindAllStringSubmatch(string(out), -1) {
		interfaces = append(interfaces, match[1])
	}
	require.Equal(t, []string{"lo"}, interfaces)
	require.Contains(t, string(out), "\nNVPAIR_DATA_DIR="+h.DataDir+"\n")
	require.NotContains(t, string(out), "HOME="+os.Getenv("HOME")+"\n")
	require.Contains(t, string(out), fmt.Sprintf("\n%d\n", cmd.Process.Pid), "the program is not the process itself")
	require.DirExists(t, h.DataDir)
	require.Less(t, len(filepath.Join(h.DataDir, "nvpair-ui-broker.sock")), 60)

	outside, err := os.Hostname()
	require.NoError(t, err)
	require.NotEqual(t, "alpha", outside)
}

func TestAProcessIsDrivenThroughItsPipes(t *testing.T) {
	h := NewHost(t, "alpha")
	p := h.Start(h.Command("sh", "-c", `echo "started $0" >&2; read line; echo "got $line"; echo "last word" >&2; exit 7`,
		"here"))
	require.Equal(t, "sh", p.Name)
	require.Equal(t, []string{"started here", "here"}, p.AwaitStderr(`started (\w+)`, patience))
	require.False(t, p.Exited())
	inside := h.Processes()
	require.Len(t, inside, 1)
	require.Equal(t, ProcInfo{PID: p.PID, PPID: os.Getpid(), PGID: p.PID, Name: "sh", State: inside[0].State}, inside[0])

	_, err := io.WriteString(p.Stdin, "this\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(p.Stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "got this\n", line)
	require.Equal(t, 7, p.AwaitExit(patience))
	require.Equal(t, "started here\nlast word\n", p.Stderr())
	h.AwaitNone(patience)
}

func TestASignalReachesTheProgram(t *testing.T) {
	h := NewHost(t, "alpha")
	p := h.Start(h.Command("sh", "-c", "trap 'exit 3' TERM; echo ready >&2; while :; do read line || exit 4; done"))
	p.AwaitStderr("ready", patience)
	p.Signal(syscall.SIGTERM)
	require.Equal(t, 3, p.AwaitExit(patience))
	p.Signal(syscall.SIGTERM) // gone, which is no error

	p = h.Start(h.Command("cat"))
	p.Kill()
	require.True(t, p.Exited())
	require.Equal(t, 128+9, p.AwaitExit(0))
}

func TestAProcessLeftBehindFailsTheTestAndIsKilled(t *testing.T) {
	fake := &fakeTB{TB: t}
	h := NewHost(fake, "alpha")
	p := h.Start(h.Command("sh", "-c", "echo trouble >&2; sleep 600 & echo $!; exit 0"))
	line, err := bufio.NewReader(p.Stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, 0, p.AwaitExit(patience)) // although what it left holds its standard error
	var left int
	_, err = fmt.Sscan(line, &left)
	require.NoError(t, err)
	Eventually(t, patience, "the shell's child has become sleep", func() bool {
		inside := h.Processes()
		return len(inside) == 1 && inside[0].Name == "sleep" && inside[0].PID == left && inside[0].PGID == p.PID
	})

	fake.run(func() { h.AwaitNone(0) })
	require.Len(t, fake.reports, 1)
	fake.reports = nil
	fake.end()
	require.Len(t, fake.reports, 1)
	require.Contains(t, fake.reports[0], fmt.Sprintf("sleep (pid %d, ", left))
	require.Len(t, fake.logs, 1)
	require.Contains(t, fake.logs[0], "trouble")
	require.NotContains(t, commandLine(left), "sleep")
	require.NotContains(t, commandLine(h.HolderPID()), holderMode)
	require.NoDirExists(t, h.Dir)
}

func TestAProcessStillRunningAtTheEndFailsTheTest(t *testing.T) {
	fake := &fakeTB{TB: t}
	h := NewHost(fake, "alpha")
	p := h.Start(h.Command("cat"))
	fake.end()
	require.Len(t, fake.reports, 1)
	require.Contains(t, fake.reports[0], fmt.Sprintf("cat (pid %d, ", p.PID))
	require.True(t, p.Exited())
}

func TestATestThatLeavesNothingPasses(t *testing.T) {
	fake := &fakeTB{TB: t}
	h := NewHost(fake, "alpha")
	p := h.Start(h.Command("sh", "-c", "echo fine >&2"))
	require.Equal(t, 0, p.AwaitExit(patience))
	fake.end()
	require.Empty(t, fake.reports)
	require.Empty(t, fake.logs, "standard error is shown of failed tests only")
}

func TestWaitsForAProcessEndInTime(t *testing.T) {
	h := NewHost(t, "alpha")
	fake := &fakeTB{TB: t}
	h.t = fake
	defer func() { h.t = t }()

	p := h.Start(h.Command("cat"))
	fake.run(func() { p.AwaitExit(time.Millisecond) })
	require.Len(t, fake.reports, 1)
	require.Contains(t, fake.reports[0], "has not exited within 1ms")
	require.True(t, p.Exited(), "SIGQUIT ends it")

	fake.run(func() { p.AwaitStderr("never", patience) })
	require.Len(t, fake.reports, 2)
	require.Contains(t, fake.reports[1], "exited: true")
}

// racyProgram has a data race in a grandchild whose fate nobody looks at.
const racyProgram = `package main

import (
	"os"
	"os/exec"
)

func main() {
	if len(os.Args) == 1 {
		_ = exec.Command(os.Args[0], "race").Run()
		return
	}
	n, done := 0, make(chan bool)
	go func() { n++; done <- true }()
	n++
	<-done
}
`

func TestADataRaceAnywhereOnTheHostFailsTheTest(t *testing.T) {
	if !raceEnabled {
		t.Skip("needs the race detector")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "racy")
	require.NoError(t, os.WriteFile(program+".go", []byte(racyProgram), 0o600))
	out, err := exec.Command("go", "build", "-race", "-o", program, program+".go").CombinedOutput()
	require.NoError(t, err, "%s", out)

	fake := &fakeTB{TB: t}
	h := NewHost(fake, "alpha")
	p := h.Start(h.Command(program))
	require.Equal(t, 0, p.AwaitExit(patience))
	fake.end()
	require.Len(t, fake.reports, 1)
	require.Contains(t, fake.reports[0], "WARNING: DATA RACE")
}

func TestTheHostDiesWithTheTestProcess(t *testing.T) {
	Require(t)
	holder, stdin, err := startHolder("alpha") // as NewHost does, but nobody cleans up
	require.NoError(t, err)
	namespace, err := netNamespace(holder.Process.Pid)
	require.NoError(t, err)
	h := &Host{Name: "alpha", Dir: t.TempDir(), t: t, holder: holder, namespace: namespace}
	cmd := h.Command("sleep", "600")
	require.NoError(t, cmd.Start())
	Eventually(t, patience, "sleep is inside", func() bool { return len(h.Processes()) == 1 })

	require.NoError(t, stdin.Close()) // what the kernel does when the test process dies
	require.NoError(t, holder.Wait())
	require.ErrorContains(t, cmd.Wait(), "killed")
}

func TestAListenerIsReachedFromItsHostOnly(t *testing.T) {
	h, other := NewHost(t, "alpha"), NewHost(t, "beta")
	var ln net.Listener
	require.NoError(t, h.Do(func() (err error) {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	defer ln.Close()
	addr := ln.Addr().String()

	conn, err := h.Dial("tcp", addr)
	require.NoError(t, err)
	accepted, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, accepted.Close())
	require.NoError(t, conn.Close())

	_, err = other.Dial("tcp", addr)
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	_, err = net.DialTimeout("tcp", addr, patience)
	require.ErrorIs(t, err, unix.ECONNREFUSED)
}

func TestTheTestProcessItselfStaysOutside(t *testing.T) {
	h := NewHost(t, "alpha")
	before, err := netNamespace(os.Getpid())
	require.NoError(t, err)
	for range 50 {
		require.NoError(t, h.Do(func() error {
			if unix.Gettid() == os.Getpid() {
				return fmt.Errorf("runs on the first thread")
			}
			if in, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || in != h.namespace {
				return fmt.Errorf("runs in %s, %w", in, err)
			}
			return nil
		}))
	}
	after, err := netNamespace(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, before, after)
	// A thread that was used inside ends a little later than its work.
	Eventually(t, 10*time.Second, "no thread to be left inside", func() bool {
		entries, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		return !slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
			in, err := os.Readlink("/proc/self/task/" + entry.Name() + "/ns/net")
			return err == nil && in == h.namespace
		})
	})
	require.ErrorIs(t, h.Do(func() error { return unix.EIO }), unix.EIO)
}

func TestACommandThatCannotStartSaysSo(t *testing.T) {
	h := NewHost(t, "alpha")
	script := filepath.Join(h.Dir, "not-a-program")
	require.NoError(t, os.WriteFile(script, []byte("#!/nowhere/interpreter\n"), 0o700))
	p := h.Start(h.Command(script))
	require.Equal(t, exitNotEntered, p.AwaitExit(patience))
	require.Contains(t, p.Stderr(), script)
}
