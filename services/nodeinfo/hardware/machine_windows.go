// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"log/slog"

	"golang.org/x/sys/windows/registry"
)

const directXKey = `SOFTWARE\Microsoft\DirectX`

// Machine reads this machine: processors and memory from the system, graphics
// adapters from the list that DirectX keeps in the registry, their figures from
// the system's performance counters.
type Machine struct {
	general
	log      *slog.Logger
	fixed    Host
	counters *gpuCounters // nil where there are none
}

// New looks at what does not change.
func New(cfg Config) *Machine {
	m := &Machine{log: cfg.Log}
	m.fixed = m.host()
	m.use()
	counters, err := openGPUCounters()
	if err != nil {
		m.log.Warn("graphics counters not available", "err", err)
	}
	m.counters = counters
	return m
}

// Host returns what does not change.
func (m *Machine) Host() Host { return m.fixed }

// Adapters lists the graphics adapters.
func (m *Machine) Adapters(context.Context) []Adapter {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, directXKey, registry.READ)
	if err != nil {
		return nil
	}
	defer key.Close()
	lastSeen, _, _ := key.GetIntegerValue("LastSeen") // 0 is unknown
	names, _ := key.ReadSubKeyNames(-1)
	var entries []directXEntry
	for _, name := range names {
		if e, ok := readDirectXEntry(key, name); ok {
			entries = append(entries, e)
		}
	}
	return directXAdapters(entries, lastSeen)
}

func readDirectXEntry(parent registry.Key, name string) (e directXEntry, ok bool) {
	key, err := registry.OpenKey(parent, name, registry.READ)
	if err != nil {
		return e, false
	}
	defer key.Close()
	if e.luid, _, err = key.GetIntegerValue("AdapterLuid"); err != nil {
		return e, false
	}
	e.description, _, _ = key.GetStringValue("Description") // each that is missing stays unknown
	e.memory, _, _ = key.GetIntegerValue("DedicatedVideoMemory")
	e.lastSeen, _, _ = key.GetIntegerValue("LastSeen")
	return e, true
}

// Load takes a sample.
func (m *Machine) Load(context.Context) Load {
	l := Load{CPUPct: m.use(), MemoryUsed: m.memoryUsed()}
	if m.counters != nil {
		l.GPUs = m.counters.readings()
	}
	return l
}

// Close ends the query of the counters.
func (m *Machine) Close() {
	if m.counters != nil {
		m.counters.close()
	}
}
