// SPDX-License-Identifier: Apache-2.0

//go:build !windows && !linux

package worker

func parentWaiter(parent int) (wait func(quit <-chan struct{}) bool, abort func()) {
	return func(quit <-chan struct{}) bool { return pollParent(parent, quit) }, func() {}
}
