// SPDX-License-Identifier: Apache-2.0

package netwatch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// system is the machine's source of hints. The runtime never frees a callback and has
// few, so there is one for all sources that a Run opens.
type system struct {
	hints    chan struct{} // capacity 1: one mark stands for any number of hints
	callback uintptr
}

func newSystem() *system {
	s := &system{hints: make(chan struct{}, 1)}
	s.callback = windows.NewCallback(func(_, _, _ uintptr) uintptr { // on a thread of the system, which must not wait
		select {
		case s.hints <- struct{}{}:
		default: // a mark is there already
		}
		return 0
	})
	return s
}

func (s *system) open() (Source, error) {
	n := &notifications{hints: s.hints, closed: make(chan struct{})}
	if err := windows.NotifyUnicastIpAddressChange(windows.AF_UNSPEC, s.callback, nil, false, &n.addresses); err != nil {
		return nil, fmt.Errorf("notify of addresses: %w", err)
	}
	if err := windows.NotifyIpInterfaceChange(windows.AF_UNSPEC, s.callback, nil, false, &n.interfaces); err != nil {
		return nil, errors.Join(fmt.Errorf("notify of interfaces: %w", err), windows.CancelMibChangeNotify2(n.addresses))
	}
	return n, nil
}

// notifications is a Source that the system calls.
type notifications struct {
	addresses, interfaces windows.Handle
	hints                 <-chan struct{}
	closed                chan struct{}
}

func (n *notifications) Wait() error {
	select {
	case <-n.hints:
		return nil
	case <-n.closed:
		return os.ErrClosed
	}
}

// Close returns when no callback runs any more.
func (n *notifications) Close() error {
	close(n.closed)
	return errors.Join(windows.CancelMibChangeNotify2(n.addresses), windows.CancelMibChangeNotify2(n.interfaces))
}
