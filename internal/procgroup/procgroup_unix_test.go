// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package procgroup

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a shell script that runs as a group.
type script struct {
	*Group
	out *bufio.Reader // what it prints
	in  *os.File      // its file descriptor 3
}

// start runs a script. Whatever the test left of its group is killed at the end.
func start(t *testing.T, text string) script {
	t.Helper()
	outR, outW, err := os.Pipe()
	require.NoError(t, err)
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command("/bin/sh", "-c", text)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = outW, outW, []*os.File{inR}
	g, err := Start(cmd)
	require.NoError(t, err)
	require.NoError(t, outW.Close())
	require.NoError(t, inR.Close())
	require.NoError(t, outR.SetReadDeadline(time.Now().Add(patience)))
	t.Cleanup(func() {
		if cmd.ProcessState == nil { // not reaped, so the id is still the group's
			g.Kill()
			g.Reap()
		}
		_ = inW.Close()
		_ = outR.Close()
	})
	return script{Group: g, out: bufio.NewReader(outR), in: inW}
}

// line returns the next line that the script prints.
func (s script) line(t *testing.T) string {
	t.Helper()
	line, err := s.out.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// awaitEnd waits until every process that holds the script's output has ended.
func (s script) awaitEnd(t *testing.T) {
	t.Helper()
	rest, err := io.ReadAll(s.out)
	require.NoError(t, err)
	require.Empty(t, string(rest))
}

func TestAwaitExitLeavesTheLeaderToBeReaped(t *testing.T) {
	s := start(t, "exit 7")
	s.AwaitExit()
	s.AwaitExit() // of one that has ended already
	require.NoError(t, syscall.Kill(s.Pid(), 0), "its id is no longer reserved")
	require.Equal(t, 7, s.Reap().ExitCode())
	require.ErrorIs(t, syscall.Kill(s.Pid(), 0), syscall.ESRCH)
	s.AwaitExit() // of one that is gone
}

func TestReapWaitsForTheLeader(t *testing.T) {
	s := start(t, "read x <&3; exit 4")
	reaped := make(chan int)
	go func() { reaped <- s.Reap().ExitCode() }()
	require.NoError(t, s.in.Close())
	require.Equal(t, 4, <-reaped)
}

func TestProgramLeadsAGroupOfItsOwn(t *testing.T) {
	s := start(t, "echo up; read x <&3")
	s.line(t)
	group, err := syscall.Getpgid(s.Pid())
	require.NoError(t, err)
	require.Equal(t, s.Pid(), group)
	require.NotEqual(t, s.Pid(), syscall.Getpgrp())
}

func TestAttributesOfTheCallerAreKept(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "exit 0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Noctty: false}
	attr := cmd.SysProcAttr
	g, err := Start(cmd)
	require.NoError(t, err)
	g.Reap()
	require.Same(t, attr, cmd.SysProcAttr)
	require.True(t, attr.Setpgid)
}

func TestMissingProgramIsAnError(t *testing.T) {
	g, err := Start(exec.Command("/nonexistent/program"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Nil(t, g)
}

func TestKillReachesGrandchildren(t *testing.T) {
	s := start(t, "(sleep 600 & echo up; wait) & wait")
	s.line(t)
	s.Kill()
	s.AwaitExit()
	require.Equal(t, syscall.SIGKILL, s.Reap().Sys().(syscall.WaitStatus).Signal())
	s.awaitEnd(t)
}

func TestKillReachesWhatADeadLeaderLeftBehind(t *testing.T) {
	s := start(t, "sleep 600 & echo $!")
	pid, err := strconv.Atoi(s.line(t))
	require.NoError(t, err)
	s.AwaitExit()
	require.NoError(t, syscall.Kill(pid, 0), "the helper did not survive its leader")
	s.Kill()
	require.Equal(t, 0, s.Reap().ExitCode())
	s.awaitEnd(t)
}

func TestKillOfAnEndedGroupDoesNothing(t *testing.T) {
	s := start(t, "exit 5")
	s.AwaitExit()
	s.Kill()
	s.Terminate()
	require.Equal(t, 5, s.Reap().ExitCode())
}

func TestTerminateReachesOnlyTheLeader(t *testing.T) {
	s := start(t, `trap 'exit 3' TERM; cat <&3 & echo up; wait`)
	s.line(t)
	s.Terminate()
	s.AwaitExit()
	// A signal to cat would be pending since Terminate returned, and would kill
	// it before it copies a line.
	_, err := io.WriteString(s.in, "alive\n")
	require.NoError(t, err)
	require.Equal(t, "alive", s.line(t))
	s.Kill()
	require.Equal(t, 3, s.Reap().ExitCode())
	s.awaitEnd(t)
}

func TestTerminateOfAReapedLeaderIsHarmless(t *testing.T) {
	s := start(t, "exit 0")
	s.Reap()
	s.Terminate() // os.Process knows that it is gone
}

func TestStoppedGroupCanBeKilled(t *testing.T) {
	s := start(t, "echo up; read x <&3")
	s.line(t)
	require.NoError(t, unix.Kill(-s.Pid(), unix.SIGSTOP))
	s.Kill()
	s.AwaitExit()
	require.Equal(t, syscall.SIGKILL, s.Reap().Sys().(syscall.WaitStatus).Signal())
}
