// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// statColumns are those of a cpu line that count. The two behind them, guest
// time, are already part of user time.
const statColumns = 8

// pseudoFile is a file of the kernel that is read again and again from its
// beginning, without opening it anew.
type pseudoFile struct {
	path string
	file *os.File // nil until the first read, and after a failed one
}

// read fills buf as far as the file goes and returns that part.
func (p *pseudoFile) read(buf []byte) ([]byte, error) {
	if p.file == nil {
		f, err := os.Open(p.path)
		if err != nil {
			return nil, err
		}
		p.file = f
	}
	n, err := p.file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		p.close()
		return nil, err
	}
	return buf[:n], nil
}

func (p *pseudoFile) close() {
	if p.file != nil {
		_ = p.file.Close()
		p.file = nil
	}
}

// procfs reads the load of processors and memory from /proc.
type procfs struct {
	stat, meminfo pseudoFile
	buf           []byte
	last          cpuTimes
}

func newProcfs(root string) *procfs {
	dir := filepath.Join(root, "proc")
	return &procfs{
		stat:    pseudoFile{path: filepath.Join(dir, "stat")},
		meminfo: pseudoFile{path: filepath.Join(dir, "meminfo")},
		buf:     make([]byte, 4096), // the aggregate line is the first, and meminfo is half of that
	}
}

// cpu returns the use since the call before, 0 the first time.
func (p *procfs) cpu() uint32 {
	text, err := p.stat.read(p.buf)
	if err != nil {
		p.last = cpuTimes{}
		return 0
	}
	before := p.last
	p.last = parseStat(text)
	return p.last.use(before)
}

// memory returns total and used bytes; 0 is unknown.
func (p *procfs) memory() (total, used uint64) {
	text, err := p.meminfo.read(p.buf)
	if err != nil {
		return 0, 0
	}
	return parseMeminfo(text)
}

func (p *procfs) close() {
	p.stat.close()
	p.meminfo.close()
}

// parseStat returns the ticks of the aggregate line of /proc/stat, zero if there
// is no valid one.
func parseStat(text []byte) cpuTimes {
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("cpu ")) {
			continue
		}
		var t cpuTimes
		fields := strings.Fields(string(line))[1:]
		if len(fields) < 5 { // without iowait there is no telling
			return cpuTimes{}
		}
		for i, field := range fields[:min(len(fields), statColumns)] {
			ticks, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return cpuTimes{}
			}
			t.total += float64(ticks)
			if i == 3 || i == 4 { // idle, iowait
				t.idle += float64(ticks)
			}
		}
		return t
	}
	return cpuTimes{}
}

// parseMeminfo returns total and used bytes of /proc/meminfo (NI-32). used is 0
// if it cannot be told.
func parseMeminfo(text []byte) (total, used uint64) {
	total = meminfoBytes(text, "MemTotal:")
	for _, key := range []string{"MemAvailable:", "MemFree:"} {
		if free := meminfoBytes(text, key); free > 0 && free <= total {
			return total, total - free
		}
	}
	return total, 0
}

// meminfoBytes returns a value of /proc/meminfo, 0 if it is not there.
func meminfoBytes(text []byte, key string) uint64 {
	for line := range bytes.Lines(text) {
		rest, found := bytes.CutPrefix(line, []byte(key))
		if !found {
			continue
		}
		fields := strings.Fields(string(rest))
		if len(fields) == 0 {
			return 0
		}
		kb, err := strconv.ParseUint(fields[0], 10, 54)
		if err != nil {
			return 0
		}
		return kb * 1024
	}
	return 0
}
