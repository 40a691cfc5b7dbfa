// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"log/slog"
	"time"
)

const ioregProgram = "/usr/sbin/ioreg"

// ioregEvery is how often ioreg is asked: it takes some tens of milliseconds.
const ioregEvery = time.Second

// Machine reads this machine: processors and memory from the kernel, graphics
// adapters from ioreg.
type Machine struct {
	general
	log    *slog.Logger
	fixed  Host
	warned bool // ioreg has failed

	askedAt  time.Time
	list     []Adapter // of the newest pass that found any
	readings map[string]Reading
}

// New looks at what does not change.
func New(cfg Config) *Machine {
	m := &Machine{log: cfg.Log}
	m.fixed = m.host()
	m.use()
	return m
}

// Host returns what does not change.
func (m *Machine) Host() Host { return m.fixed }

// Adapters lists the graphics adapters.
func (m *Machine) Adapters(ctx context.Context) []Adapter {
	m.ask(ctx)
	return m.list
}

// Load takes a sample.
func (m *Machine) Load(ctx context.Context) Load {
	m.ask(ctx)
	return Load{CPUPct: m.use(), MemoryUsed: m.memoryUsed(), GPUs: m.readings, Found: m.list}
}

// Close has nothing to release.
func (m *Machine) Close() {}

// ask runs ioreg unless it just did. A pass without adapters is discarded.
func (m *Machine) ask(ctx context.Context) {
	if time.Since(m.askedAt) < ioregEvery/2 {
		return
	}
	m.askedAt, m.readings = time.Now(), nil
	text, err := runHelper(ctx, ioregProgram, "-a", "-r", "-d", "1", "-c", "IOAccelerator")
	var list []Adapter
	var readings map[string]Reading
	if err == nil {
		list, readings, err = parseIORegistry(text, m.fixed.MemoryTotal)
	}
	if err != nil && !m.warned && ctx.Err() == nil {
		m.log.Warn("graphics adapters not read", "err", err)
		m.warned = true
	}
	if len(list) > 0 {
		m.list, m.readings = list, readings
	}
}
