// SPDX-License-Identifier: Apache-2.0

// Package applogtest keeps what a program under test logs, for the test to read while the program runs.
package applogtest

import (
	"bytes"
	"log/slog"
	"sync"

	"nvpair/internal/applog"
)

// Buffer holds what was written to it. It may be read while others write. Its zero value is empty.
type Buffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write appends p; it never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all that was written since the last Reset.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Reset forgets what was written.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}

// New returns the log of a process with that name, at level debug, and what it writes.
func New(process string) (*slog.Logger, *slog.LevelVar, *Buffer) {
	b, level := new(Buffer), new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	return slog.New(applog.NewHandler(b, process, level)), level, b
}
