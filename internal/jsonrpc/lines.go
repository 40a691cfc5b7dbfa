// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// readBlock is how much is asked of the transport at once.
const readBlock = 16 << 10

// errTooLong means that a line exceeded the limit and was discarded whole.
var errTooLong = errors.New("frame over the limit")

// lineReader cuts a byte stream into lines of bounded length.
type lineReader struct {
	r   *bufio.Reader
	max int // bytes of a line, newline excluded
}

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, readBlock), max: max}
}

// next returns the next line in memory of its own, without its newline. A last
// line without one is a line (WR-23). After errTooLong reading goes on with the
// line behind the long one; any other error is final.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = bytes.TrimSuffix(part, []byte{'\n'})
		}
		switch {
		case long:
		case len(line)+len(part) > l.max+1: // the 1 may be a carriage return
			long, line = true, nil
		default:
			line = l.add(line, part)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && len(line) == 0 && !long:
			return nil, err
		case long:
			return nil, errTooLong
		default:
			line = bytes.TrimSuffix(line, []byte{'\r'}) // not part of the frame (WR-1, WR-19)
			if len(line) > l.max {
				return nil, errTooLong
			}
			return line, nil
		}
	}
}

// add appends part to line. Memory doubles, but never beyond the limit and one
// block, which append alone does not promise.
func (l *lineReader) add(line, part []byte) []byte {
	if need := len(line) + len(part); line != nil && need > cap(line) {
		line = append(make([]byte, 0, min(2*need, l.max+readBlock)), line...)
	}
	return append(line, part...)
}
