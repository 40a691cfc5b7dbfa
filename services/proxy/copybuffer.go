// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"sync"
)

// A stream of tokens needs little memory, and there may be thousands; a long
// answer that is there at once goes quicker in large pieces.
const (
	smallCopy = 4 << 10
	largeCopy = 32 << 10
)

// copyBuffers lends the memory of running answers.
type copyBuffers struct{ small, large sync.Pool }

// copyBuffer is the memory of one answer.
type copyBuffer struct {
	from  *copyBuffers
	bytes []byte
	lent  *[]byte
}

// take lends a buffer for an answer of that length, negative for unknown.
func (b *copyBuffers) take(length int64) *copyBuffer {
	c := &copyBuffer{from: b}
	c.lend(length > smallCopy)
	return c
}

func (c *copyBuffer) lend(large bool) {
	pool, size := &c.from.small, smallCopy
	if large {
		pool, size = &c.from.large, largeCopy
	}
	c.lent, _ = pool.Get().(*[]byte)
	if c.lent == nil {
		fresh := make([]byte, size)
		c.lent = &fresh
	}
	c.bytes = *c.lent
}

// filled changes to a larger buffer after a read that filled this one. The bytes
// must have been used.
func (c *copyBuffer) filled() {
	if len(c.bytes) < largeCopy {
		c.giveBack()
		c.lend(true)
	}
}

func (c *copyBuffer) giveBack() {
	if len(c.bytes) < largeCopy {
		c.from.small.Put(c.lent)
	} else {
		c.from.large.Put(c.lent)
	}
}
