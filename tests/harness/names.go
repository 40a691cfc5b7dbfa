// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// SetNames gives the host an /etc/hosts of its own, with these addresses by name. Programs started before the first
// call go on with the machine's; later calls reach those that run, too.
func (h *Host) SetNames(addresses map[string]string) {
	h.t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "127.0.0.1 localhost\n127.0.1.1 %s\n", h.Name)
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		fmt.Fprintf(&text, "%s %s\n", addresses[name], name)
	}
	file := filepath.Join(h.Dir, "hosts")
	// Written in place: a running program has this very file, not this name, mounted.
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		h.t.Fatalf("write names of host %s: %v", h.Name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts = file
}

// mountHosts puts a file in the place of /etc/hosts, for this process alone. The calling thread must be locked.
func mountHosts(file string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := unix.Mount(file, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", file, err)
	}
	return nil
}
