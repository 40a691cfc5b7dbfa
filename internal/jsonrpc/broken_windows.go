// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"errors"
	"syscall"
)

func isBrokenPipe(err error) bool {
	const noData = syscall.Errno(232) // ERROR_NO_DATA: the pipe is being closed
	return errors.Is(err, syscall.ERROR_BROKEN_PIPE) || errors.Is(err, noData)
}
