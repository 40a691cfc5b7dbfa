// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clustertrust

import "syscall"

// nonBlocking keeps the opening of a named pipe from waiting for a writer.
const nonBlocking = syscall.O_NONBLOCK
