// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"cmp"
	"context"
	"maps"
)

// Machine reads this machine: processors and memory from /proc, graphics
// adapters from NVIDIA's driver and from sysfs. Adapters that are not on the PCI
// bus, and the use of Intel's, are not read.
type Machine struct {
	host   Host
	proc   *procfs
	nvidia *nvidia
	pci    *pciBus
}

// New looks at what does not change and takes the first reading of the CPU's
// ticks.
func New(cfg Config) *Machine {
	root := cmp.Or(cfg.Root, "/")
	return newMachine(cfg, root, append(nvmlDrivers(), smi{runHelper}))
}

func newMachine(cfg Config, root string, drivers []driver) *Machine {
	m := &Machine{proc: newProcfs(root), nvidia: newNVIDIA(cfg.Log, drivers...), pci: newPCIBus(root)}
	m.host.CPU, m.host.Cores = linuxCPU(root)
	m.host.MemoryTotal, _ = m.proc.memory()
	m.proc.cpu()
	return m
}

// Host returns what does not change.
func (m *Machine) Host() Host { return m.host }

// Adapters lists the graphics adapters. The order of those that stay is stable.
func (m *Machine) Adapters(ctx context.Context) []Adapter {
	list := m.nvidia.adapters(ctx)
	others := m.pci.adapters(len(list) == 0)
	return append(list[:len(list):len(list)], others...)
}

// Load takes a sample.
func (m *Machine) Load(ctx context.Context) Load {
	l := Load{CPUPct: m.proc.cpu(), GPUs: m.pci.readings()}
	_, l.MemoryUsed = m.proc.memory()
	readings, changed := m.nvidia.readings(ctx)
	maps.Copy(l.GPUs, readings)
	l.Changed = changed
	return l
}

// Close releases the files it keeps open.
func (m *Machine) Close() { m.proc.close() }
