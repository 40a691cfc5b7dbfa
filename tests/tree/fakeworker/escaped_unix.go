// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import "syscall"

// escaped puts a program outside of this one's process group.
func escaped() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
