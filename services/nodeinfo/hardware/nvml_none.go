// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !cgo

package hardware

// nvmlDrivers returns nothing: the library needs cgo, and its Go package Linux.
func nvmlDrivers() []driver { return nil }
