// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package hardware

import "os/exec"

func hideWindow(*exec.Cmd) {}
