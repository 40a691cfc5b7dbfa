// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// ownGroup keeps a terminal's Ctrl+C from a child that is ended in order.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
