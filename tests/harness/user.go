// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Nobody is a user that may do nothing: the checks of owners and modes count for it, as they do not for root.
const Nobody = 65534

// CommandAs is Command for another user than root. What the user is to read or write must be given to it.
func (h *Host) CommandAs(uid int, bin string, args ...string) *exec.Cmd {
	h.t.Helper()
	cmd := h.Command(bin, args...)
	cmd.Args[2] += ":" + strconv.Itoa(uid)
	for _, dir := range []string{h.Dir, Bin(h.t)} {
		if err := os.Chmod(dir, 0o755); err != nil { // private until now
			h.t.Fatalf("open %s to user %d: %v", dir, uid, err)
		}
	}
	return cmd
}

// GiveTo makes a user the owner of the host's directories and of all that is in them.
func (h *Host) GiveTo(uid int) {
	h.t.Helper()
	for _, dir := range []string{"data", "home", "run", "tmp", "race"} {
		err := filepath.WalkDir(filepath.Join(h.Dir, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, uid, uid)
		})
		if err != nil {
			h.t.Fatalf("give %s to user %d: %v", dir, uid, err)
		}
	}
}

// become gives up root for another user and all groups.
func become(user string) error {
	uid, err := strconv.Atoi(user)
	if err != nil {
		return err
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leave all groups: %w", err)
	}
	if err := syscall.Setgid(uid); err != nil {
		return fmt.Errorf("become group %d: %w", uid, err)
	}
	if err := syscall.Setuid(uid); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	return nil
}
