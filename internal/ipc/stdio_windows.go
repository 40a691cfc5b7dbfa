// SPDX-License-Identifier: Apache-2.0

package ipc

import "io"

func interruptible(in io.Reader) (io.Reader, func() error) { return pumped(in) }

func writable(out io.Writer) (io.Writer, func() error) {
	if c, ok := out.(io.Closer); ok {
		return out, c.Close
	}
	return out, func() error { return nil }
}
