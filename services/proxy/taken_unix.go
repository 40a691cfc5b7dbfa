// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package proxy

import (
	"errors"
	"syscall"
)

// isTaken reports whether a bind failed because of another listener.
func isTaken(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
