// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"

	"golang.org/x/sys/windows"
)

// noSuchAddress reports whether a bind failed because the machine has no such
// address, or not that family of them.
func noSuchAddress(err error) bool {
	return errors.Is(err, windows.WSAEADDRNOTAVAIL) || errors.Is(err, windows.WSAEAFNOSUPPORT)
}

// isTaken reports whether a bind failed because of another listener, one that
// wants its port for itself alone included.
func isTaken(err error) bool {
	return errors.Is(err, windows.WSAEADDRINUSE) || errors.Is(err, windows.WSAEACCES)
}
