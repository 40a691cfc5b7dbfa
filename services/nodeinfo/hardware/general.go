// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hardware

import (
	"cmp"
	"strings"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"
)

// general reads processors and memory where there is no /proc.
type general struct{ last cpuTimes }

func (g *general) host() Host {
	var h Host
	if info, err := cpu.Info(); err == nil && len(info) > 0 {
		h.CPU = cmp.Or(strings.TrimSpace(info[0].ModelName), info[0].VendorID)
	}
	if cores, err := cpu.Counts(false); err == nil && cores > 0 {
		h.Cores = uint32(cores)
	}
	if m, err := mem.VirtualMemory(); err == nil {
		h.MemoryTotal = m.Total
	}
	return h
}

// use returns the use of the CPU since the call before, 0 the first time.
func (g *general) use() uint32 {
	before := g.last
	g.last = cpuTimes{}
	if times, err := cpu.Times(false); err == nil && len(times) > 0 {
		t := times[0]
		g.last = cpuTimes{
			idle:  t.Idle + t.Iowait,
			total: t.User + t.System + t.Idle + t.Nice + t.Iowait + t.Irq + t.Softirq + t.Steal,
		}
	}
	return g.last.use(before)
}

func (g *general) memoryUsed() uint64 {
	m, err := mem.VirtualMemory()
	if err != nil || m.Available > m.Total {
		return 0
	}
	return m.Total - m.Available
}
