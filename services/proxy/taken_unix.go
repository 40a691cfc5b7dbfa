// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package proxy

import (
	"errors"
	"syscall"
)

// noSuchAddress reports whether a bind failed because the machine has no such
// address, or not that family of them.
func noSuchAddress(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// isTaken reports whether a bind failed because of another listener.
func isTaken(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
