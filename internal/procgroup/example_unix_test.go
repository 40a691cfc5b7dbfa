// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package procgroup_test

import (
	"fmt"
	"os/exec"

	"nvpair/internal/procgroup"
)

func Example() {
	// The leader ends at once and leaves a helper behind.
	g, err := procgroup.Start(exec.Command("/bin/sh", "-c", "sleep 600 & exit 3"))
	if err != nil {
		fmt.Println(err)
		return
	}
	g.AwaitExit()
	g.Kill() // the leader is not reaped yet, so the group's id is still ours
	fmt.Println(g.Reap())
	// Output: exit status 3
}
