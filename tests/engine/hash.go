// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"hash"
)

// hasher is a SHA-256 that is made once and used for many bodies.
type hasher struct {
	h   hash.Hash
	sum [sha256.Size]byte
}

func (h *hasher) Reset() {
	if h.h == nil {
		h.h = sha256.New()
		return
	}
	h.h.Reset()
}

func (h *hasher) Write(p []byte) { _, _ = h.h.Write(p) } // a hash does not fail

// Sum returns the hash of what was written since the last Reset.
func (h *hasher) Sum() [sha256.Size]byte {
	h.h.Sum(h.sum[:0])
	return h.sum
}
