// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package procgroup

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// job is Windows' way to hold a group together; process groups need nothing.
type job struct{}

func (job) adopt(*os.Process) {}
func (job) release()          {}

func setGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

func awaitExit(p *os.Process) {
	for {
		err := waitid(p.Pid)
		if !errors.Is(err, syscall.EINTR) {
			return // exited, or not our child (any more): either way nothing to wait for
		}
	}
}

func terminate(p *os.Process) { _ = p.Signal(syscall.SIGTERM) }

func (g *Group) kill() { _ = unix.Kill(-g.Pid(), unix.SIGKILL) }
