// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import "syscall"

// brokenPipes are what this system says when the peer went away.
var brokenPipes = []error{syscall.ERROR_BROKEN_PIPE, syscall.Errno(232)}
