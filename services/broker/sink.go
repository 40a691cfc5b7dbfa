// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Bounds of the sink (BR-78) and of one line (DEC-124).
const (
	sinkLines   = 4096
	sinkBytes   = 4 * mib
	sinkChunk   = 64 << 10 // written at a time
	sinkGrace   = 2 * time.Second
	maxLogLine  = 1 * mib
	unsentFile  = "nvpair-broker-unsent.log"
	logsDirName = "logs"
)

// Sink passes the diagnostics of the whole tree on, in order and in whole lines,
// without ever making a writer wait. What a reader that has stopped reading does
// not take goes to a file.
type Sink struct {
	out      io.Writer
	overflow string        // path of the file for what does not fit
	wake     chan struct{} // capacity 1: one mark stands for any number of lines
	done     chan struct{} // closed when the forwarder has returned

	mu       sync.Mutex // guards the rest; the file is written under it, on overflow only
	lines    [][]byte   // queued, or on their way to out
	bytes    int        // of lines
	file     *os.File
	diverted int // lines in the file that no notice has told of yet
	lost     int // of these, not even in the file
	closed   bool
}

// NewSink returns a sink before out. Close ends it. dataDir is where lines that
// do not fit are kept.
func NewSink(out io.Writer, dataDir string) *Sink {
	s := &Sink{
		out:      out,
		overflow: filepath.Join(dataDir, logsDirName, unsentFile),
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	go s.forward()
	return s
}

// Write takes one or more whole lines. It never blocks and never fails.
func (s *Sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.lines) >= sinkLines || s.bytes+len(p) > sinkBytes {
		s.divertLocked(p)
		return len(p), nil
	}
	s.lines = append(s.lines, bytes.Clone(p))
	s.bytes += len(p)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// divertLocked puts a line into the file, which the first one of a run creates.
func (s *Sink) divertLocked(p []byte) {
	s.diverted++
	if s.file == nil {
		err := os.MkdirAll(filepath.Dir(s.overflow), 0o755)
		if err == nil {
			s.file, err = os.OpenFile(s.overflow, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		}
		if err != nil {
			s.lost++
			return
		}
	}
	if _, err := s.file.Write(p); err != nil {
		s.lost++
	}
}

// forward is the only writer to out.
func (s *Sink) forward() {
	defer close(s.done)
	for range s.wake {
		for {
			chunk, lines := s.next()
			if len(chunk) == 0 {
				break
			}
			_, _ = s.out.Write(chunk) // where diagnostics cannot go, nobody can be told
			s.sent(lines)
		}
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return
		}
	}
}

// next returns the oldest lines as one chunk, or else the notice that is due.
// Lines stay queued until they are sent, so that they count as long as they are
// held and Close can keep what a stuck reader does not take.
func (s *Sink) next() (chunk []byte, lines int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if lines > 0 && len(chunk)+len(l) > sinkChunk {
			break
		}
		chunk = append(chunk, l...)
		lines++
	}
	if lines == 0 && s.diverted > 0 {
		chunk = s.noticeLocked()
	}
	return chunk, lines
}

// sent drops lines that were written, if Close has not taken them meanwhile.
func (s *Sink) sent(lines int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines = min(lines, len(s.lines))
	for _, l := range s.lines[:lines] {
		s.bytes -= len(l)
	}
	s.lines = slices.Delete(s.lines, 0, lines)
	if len(s.lines) == 0 && cap(s.lines) > 64 {
		s.lines = nil // an idle tree keeps no memory of a burst
	}
}

// noticeLocked tells, once forwarding goes on, what did not go this way.
func (s *Sink) noticeLocked() []byte {
	where := "kept in " + s.overflow
	if s.lost > 0 {
		where = fmt.Sprintf("%d of them lost, %s cannot be written", s.lost, s.overflow)
	}
	n := s.diverted
	s.diverted, s.lost = 0, 0
	return fmt.Appendf(nil, "%s [nvpair-ui-broker] WARN log reader was too slow, lines diverted lines=%d where=%q\n",
		time.Now().Format("15:04:05.000"), n, where)
}

// Close forwards what is queued, for two seconds at most; what is left then goes
// to the file, with the lines of which a stuck reader has taken a part.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	timer := time.NewTimer(sinkGrace)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		s.divertLocked(l)
	}
	s.lines, s.bytes = nil, 0
	s.diverted, s.lost = 0, 0 // nobody is left to tell
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// copyLines writes r to w, one line a Write. A line over the limit is cut, and a
// last line without an end gets one (DEC-62).
func copyLines(w io.Writer, r io.Reader) {
	in := bufio.NewReaderSize(r, 4096)
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part[:min(len(part), max(0, maxLogLine-len(line)))]...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(line) > 0 {
			if line[len(line)-1] != '\n' {
				line = append(line, '\n')
			}
			_, _ = w.Write(line) // the sink never fails
		}
		if err != nil {
			return
		}
		if line = line[:0]; cap(line) > keepLine {
			line = nil
		}
	}
}

// keepLine is the largest line buffer kept for the next line.
const keepLine = 16 << 10
