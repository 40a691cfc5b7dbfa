// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package jsonrpc

import "syscall"

// brokenPipes are what this system says when the peer went away.
var brokenPipes = []error{syscall.EPIPE, syscall.ECONNRESET, syscall.EBADF}
