// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"time"

	"nvpair/internal/atomicfile"
)

// Times of the history (BR-60) and the largest file that is read: twice what is
// ever written.
const (
	flushEvery      = 5 * time.Second
	checkpointEvery = 5 * time.Minute
	rotations       = 3
	maxFileBytes    = 2 * finishedBytes
)

// History keeps the finished jobs of an index in a file with three rotations.
type History struct {
	index *Index
	path  string
	log   *slog.Logger

	// The rest belongs to Load, then to Run.
	restored bool // from a rotation: the file itself is due for writing
	failing  bool // the latest write failed, and the log says so
}

// NewHistory returns the history of index at path. It touches nothing.
func NewHistory(index *Index, path string, log *slog.Logger) *History {
	return &History{index: index, path: path, log: log}
}

// Load restores the newest readable file into the index (BR-62). No file is a
// clean start, and no failure is worth more than a warning.
func (h *History) Load() {
	atomicfile.RemoveLeftovers(h.path)
	for n := range rotations + 1 {
		path := h.rotation(n)
		list, err := readHistory(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			h.log.Warn("job history not readable", "path", path, "err", err)
			continue
		}
		skipped := h.index.Restore(list)
		h.restored = n > 0
		h.log.Info("job history loaded", "path", path, "records", len(list)-skipped, "skipped", skipped)
		return
	}
}

// rotation returns the path of the nth older file, 0 for the file itself.
func (h *History) rotation(n int) string {
	if n == 0 {
		return h.path
	}
	return h.path + "." + strconv.Itoa(n)
}

func readHistory(path string) ([]json.RawMessage, error) {
	data, err := atomicfile.Read(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil, nil
	}
	// Element by element: a file of tiny elements must not cost many times its
	// size before it is found to be no history of ours.
	var list []json.RawMessage
	elements := json.NewDecoder(bytes.NewReader(data))
	if start, err := elements.Token(); err != nil || start != json.Delim('[') {
		return nil, errors.New("decode: no list")
	}
	for elements.More() {
		var element json.RawMessage
		if err := elements.Decode(&element); err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		if list = append(list, element); len(list) > maxFileElements {
			return nil, fmt.Errorf("decode: more than %d elements", maxFileElements)
		}
	}
	if _, err := elements.Token(); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if _, err := elements.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode: something stands behind the list")
	}
	return list, nil
}

// maxFileElements is four times what is ever written (BR-61).
const maxFileElements = 40_000

// Run writes the history until ctx ends, then once more if that is due: 5 s after
// a change, and, when something has changed since the last time, as a fresh
// file every 5 min. A write that failed stays due. It sleeps while nothing
// changes.
func (h *History) Run(ctx context.Context) {
	var flush, checkpoint <-chan time.Time // nil = not due
	if h.restored {
		flush = time.After(flushEvery)
	}
	rotated := time.Now()
	for {
		select {
		case <-h.index.changed:
			if flush == nil {
				flush = time.After(flushEvery)
			}
			if checkpoint == nil {
				checkpoint = time.After(max(flushEvery, time.Until(rotated.Add(checkpointEvery))))
			}
			continue
		case <-checkpoint:
			h.rotate()
			rotated, checkpoint = time.Now(), nil
		case <-flush:
		case <-ctx.Done():
			if flush != nil || h.index.takeChanged() {
				h.write()
			}
			return
		}
		if flush = nil; !h.write() {
			flush = time.After(flushEvery)
		}
	}
}

// write replaces the file and reports whether that succeeded. The log has the
// first of a series of failures.
func (h *History) write() bool {
	err := atomicfile.Write(h.path, encodeHistory(h.index.History()))
	if err != nil && !h.failing {
		h.log.Warn("job history not written, tried again every few seconds", "err", err)
	}
	if err == nil && h.failing {
		h.log.Info("job history is written again", "path", h.path)
	}
	h.failing = err != nil
	return err == nil
}

// encodeHistory returns the array with a record a line.
func encodeHistory(list []json.RawMessage) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, raw := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(raw)
	}
	b.WriteString("\n]\n")
	return b.Bytes()
}

// rotate moves the file and its rotations on by one. Without a file nothing
// moves: failing writes must not push the good ones out.
func (h *History) rotate() {
	if _, err := os.Lstat(h.path); err != nil {
		return
	}
	for n := rotations; n > 0; n-- {
		err := os.Rename(h.rotation(n-1), h.rotation(n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.log.Warn("job history not rotated", "path", h.rotation(n-1), "err", err)
			return
		}
	}
}
