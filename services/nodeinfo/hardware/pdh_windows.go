// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Of pdh.h and pdhmsg.h.
const (
	pdhFormatDouble = 0x200
	pdhFormatNoCap  = 0x8000 // more than 100 % is told as it is
	pdhMoreData     = 0x800007D2
	pdhNewData      = 1 // status of a value: valid, as is 0

	maxCounterBytes = 4 << 20 // of one list of instances
)

// pdhItem is PDH_FMT_COUNTERVALUE_ITEM_W with a double, on 64-bit systems. The
// name points into the buffer that the item is in.
type pdhItem struct {
	name   uintptr
	status uint32
	_      uint32
	value  float64
}

// gpuCounters is a query that stays open, for the counters are differences.
type gpuCounters struct {
	collect, format, closeQuery *windows.LazyProc
	query                       uintptr
	engines, memory             uintptr
	buf                         []uint64 // holds items and names; aligned, and nothing in it is a Go pointer
}

func openGPUCounters() (*gpuCounters, error) {
	if unsafe.Sizeof(pdhItem{}) != 24 {
		return nil, errors.New("only on 64-bit systems")
	}
	dll := windows.NewLazySystemDLL("pdh.dll")
	open, add := dll.NewProc("PdhOpenQueryW"), dll.NewProc("PdhAddEnglishCounterW")
	c := &gpuCounters{
		collect: dll.NewProc("PdhCollectQueryData"), format: dll.NewProc("PdhGetFormattedCounterArrayW"),
		closeQuery: dll.NewProc("PdhCloseQuery"), buf: make([]uint64, 8<<10),
	}
	for _, proc := range []*windows.LazyProc{open, add, c.collect, c.format, c.closeQuery} {
		if err := proc.Find(); err != nil {
			return nil, err
		}
	}
	if status, _, _ := open.Call(0, 0, uintptr(unsafe.Pointer(&c.query))); status != 0 {
		return nil, fmt.Errorf("open the query: status %#x", status)
	}
	for path, counter := range map[string]*uintptr{
		`\GPU Engine(*)\Utilization Percentage`:  &c.engines,
		`\GPU Adapter Memory(*)\Dedicated Usage`: &c.memory,
	} {
		name, err := windows.UTF16PtrFromString(path)
		if err != nil {
			return nil, err
		}
		status, _, _ := add.Call(c.query, uintptr(unsafe.Pointer(name)), 0, uintptr(unsafe.Pointer(counter)))
		if status != 0 {
			c.close()
			return nil, fmt.Errorf("add %s: status %#x", path, status)
		}
	}
	_, _, _ = c.collect.Call(c.query) // the first gives no difference yet
	return c, nil
}

// readings returns the figures of all adapters.
func (c *gpuCounters) readings() map[string]Reading {
	if status, _, _ := c.collect.Call(c.query); status != 0 {
		return nil
	}
	readings := map[string]Reading{}
	for _, s := range c.samples(c.memory) {
		if s.value > 0 {
			readings[strings.ToLower(s.instance)] = Reading{Used: uint64(s.value)}
		}
	}
	for adapter, use := range engineUse(c.samples(c.engines)) {
		r := readings[adapter]
		r.UsePct, r.UseKnown = use, true
		readings[adapter] = r
	}
	return readings
}

// samples returns the instances of a counter with their values.
func (c *gpuCounters) samples(counter uintptr) []sample {
	for {
		size, count := uint32(8*len(c.buf)), uint32(0)
		status, _, _ := c.format.Call(counter, pdhFormatDouble|pdhFormatNoCap,
			uintptr(unsafe.Pointer(&size)), uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&c.buf[0])))
		switch {
		case status == 0:
			return c.decode(int(count))
		case status != pdhMoreData || size > maxCounterBytes:
			return nil
		}
		c.buf = make([]uint64, max(int(size)/8+1, 2*len(c.buf)))
	}
}

func (c *gpuCounters) decode(count int) []sample {
	base, size := uintptr(unsafe.Pointer(&c.buf[0])), uintptr(8*len(c.buf))
	if uintptr(count)*unsafe.Sizeof(pdhItem{}) > size {
		return nil
	}
	items := unsafe.Slice((*pdhItem)(unsafe.Pointer(&c.buf[0])), count)
	units := unsafe.Slice((*uint16)(unsafe.Pointer(&c.buf[0])), size/2)
	list := make([]sample, 0, count)
	for _, item := range items {
		if item.status > pdhNewData || item.name < base || item.name-base >= size {
			continue
		}
		list = append(list, sample{windows.UTF16ToString(units[(item.name-base)/2:]), item.value})
	}
	return list
}

func (c *gpuCounters) close() { _, _, _ = c.closeQuery.Call(c.query) }
