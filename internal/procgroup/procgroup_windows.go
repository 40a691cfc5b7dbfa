// SPDX-License-Identifier: Apache-2.0

package procgroup

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// job is a job object that ends all its processes when it is terminated or when
// we, the last holder of its handle, are gone. The zero value holds nothing.
type job struct{ handle windows.Handle }

func setGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW // WR-52
}

// adopt puts the process into a new job. Where that is refused only the leader
// can be ended; its children then end with their input.
func (j *job) adopt(p *os.Process) {
	h, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(h, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err == nil {
		err = assign(h, p.Pid)
	}
	if err != nil {
		_ = windows.CloseHandle(h)
		return
	}
	j.handle = h
}

func assign(h windows.Handle, pid int) error {
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE
	proc, err := windows.OpenProcess(access, false, uint32(pid))
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(proc) }()
	return windows.AssignProcessToJobObject(h, proc)
}

func (j *job) release() {
	if j.handle != 0 {
		_ = windows.CloseHandle(j.handle)
		j.handle = 0
	}
}

// awaitExit waits on a handle of its own, so that the process stays reapable.
func awaitExit(p *os.Process) {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(p.Pid))
	if err != nil {
		return
	}
	defer func() { _ = windows.CloseHandle(h) }()
	_, _ = windows.WaitForSingleObject(h, windows.INFINITE)
}

func terminate(*os.Process) {}

func (g *Group) kill() {
	if g.job.handle != 0 {
		_ = windows.TerminateJobObject(g.job.handle, 1)
		return
	}
	_ = g.cmd.Process.Kill()
}
