// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package jsonrpc

import (
	"errors"
	"syscall"
)

func isBrokenPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EBADF)
}
