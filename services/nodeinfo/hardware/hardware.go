// SPDX-License-Identifier: Apache-2.0

// Package hardware reads what this machine has and how busy it is.
//
// Whatever cannot be read is left out; nothing here fails (NI-28), and a machine
// without a graphics adapter is an ordinary machine. Nothing needs privileges.
// Helper programs are short-lived and bounded by three seconds; a driver that
// hangs can hold a call longer.
//
// A [Machine] is used by one goroutine at a time. Each system has its own; what
// it lacks is said at its file.
package hardware

import (
	"context"
	"log/slog"
	"math"
)

// Host is what does not change while the machine runs.
type Host struct {
	CPU         string // model, else vendor; "" is unknown
	Cores       uint32 // physical ones over all sockets; 0 is unknown
	MemoryTotal uint64 // bytes; 0 is unknown
}

// Adapter is a graphics adapter.
type Adapter struct {
	Key     string // joins it with its readings, and stays here (NI-9); "" has none
	Name    string // "" is unknown
	Total   uint64 // bytes of its memory; 0 is unknown
	Unified bool   // it has no memory or counter of its own: the system's stand for it (NI-15)
}

// Reading is what one look at an adapter gave.
type Reading struct {
	Used     uint64 // bytes; 0 is none or unknown
	UsePct   uint32 // 0..100
	UseKnown bool   // UsePct was read; a 0 that was read is one (NI-13)
}

// Load is one sample.
type Load struct {
	CPUPct     uint32 // since the sample before; 0 is none or unknown
	MemoryUsed uint64 // bytes; 0 is unknown
	GPUs       map[string]Reading
	Found      []Adapter // enumerated by the way; nil where Adapters is the only way
	Changed    bool      // a driver came or went: Adapters may have news
}

// Config is what a Machine needs from outside.
type Config struct {
	Log *slog.Logger
	// Root is the directory that holds proc and sys on Linux; empty is /.
	Root string
}

// cpuTimes are ticks since the start of the machine. The zero value is no reading.
type cpuTimes struct{ idle, total float64 }

// use returns the share of busy ticks between two readings in percent, rounded
// half up; 0 if that cannot be told (NI-31).
func (t cpuTimes) use(before cpuTimes) uint32 {
	total, idle := t.total-before.total, t.idle-before.idle
	if before.total <= 0 || total <= 0 || idle < 0 {
		return 0
	}
	return percent(100 * (total - idle) / total)
}

// percent rounds half up and clamps to 0..100.
func percent(v float64) uint32 {
	if math.IsNaN(v) {
		return 0
	}
	return uint32(math.Floor(min(max(v, 0), 100) + 0.5))
}

// driver is one way to ask the vendor's driver for its adapters.
type driver interface {
	// adapters lists them. errAbsent says that there is no such driver here.
	adapters(context.Context) ([]Adapter, error)
	// readings has those that adapters listed, by key.
	readings(context.Context) (map[string]Reading, error)
}
