// SPDX-License-Identifier: Apache-2.0

// Package procgroup starts a program as the leader of a process group of its
// own and ends that group whole.
//
// A group is signalled only while its id is certainly ours: as long as the
// leader is not reaped the kernel cannot give its pid to anyone else. So the
// order at the end of a program is [Group.AwaitExit], [Group.Kill] for whatever
// the leader left behind, then [Group.Reap].
package procgroup

import (
	"os"
	"os/exec"
)

// Group is a started program and all its descendants that did not leave its
// process group (on Windows: its job).
type Group struct {
	cmd *exec.Cmd
	job job
}

// Start starts cmd as a group leader without a console. cmd's streams must be
// files or nil, so that no copying goroutine outlives the program.
func Start(cmd *exec.Cmd) (*Group, error) {
	setGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &Group{cmd: cmd}
	g.job.adopt(cmd.Process)
	return g, nil
}

// Pid is the leader's process id, and on Unix the group's.
func (g *Group) Pid() int { return g.cmd.Process.Pid }

// AwaitExit blocks until the leader has exited. It does not reap it.
func (g *Group) AwaitExit() { awaitExit(g.cmd.Process) }

// Reap collects the leader's exit status, waiting for it if need be. No signal
// may be sent afterwards. The leader's way to end is in the state.
func (g *Group) Reap() *os.ProcessState {
	_ = g.cmd.Wait() // the state says more than the error
	g.job.release()
	return g.cmd.ProcessState
}

// Terminate asks the leader to end. On Windows nothing can ask a program
// without a console, so it does nothing there.
func (g *Group) Terminate() { terminate(g.cmd.Process) }

// Kill ends every process of the group at once.
func (g *Group) Kill() { g.kill() }
