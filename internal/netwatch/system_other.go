// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin && !dragonfly && !freebsd && !netbsd && !openbsd && !windows

package netwatch

import "errors"

// system has no source of hints here: the addresses are polled.
type system struct{}

func newSystem() system { return system{} }

func (system) open() (Source, error) { return nil, errors.ErrUnsupported }
