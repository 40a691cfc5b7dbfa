// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMachineIsReadAsAWhole(t *testing.T) {
	root := plant(t, join(graphics, map[string]string{
		"proc/cpuinfo": ryzen, "proc/stat": "cpu  0 0 0 100 0\n",
		"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\n",
	}))
	d := &fakeDriver{err: errAbsent}
	m := newMachine(Config{Log: slog.New(slog.DiscardHandler)}, root, []driver{d})
	defer m.Close()
	require.Equal(t, Host{CPU: "AMD Ryzen 9 7950X", Cores: 3, MemoryTotal: 1024000}, m.Host())
	require.Len(t, m.Adapters(t.Context()), 8)
	write(t, root, "proc/stat", "cpu  25 0 0 175 0\n")
	load := m.Load(t.Context())
	require.Equal(t, uint32(25), load.CPUPct)
	require.Equal(t, uint64(600*1024), load.MemoryUsed)
	require.Equal(t, uint32(7), load.GPUs["pci:0000:03:00.0"].UsePct)
	require.Len(t, load.GPUs, 3)

	d.err, d.list = nil, []Adapter{{Key: "GPU-1", Name: "NVIDIA GeForce RTX 4090"}}
	d.read = map[string]Reading{"GPU-1": {UsePct: 50, UseKnown: true}}
	m.nvidia.retryAt = m.nvidia.retryAt.Add(-lastRetry)
	load = m.Load(t.Context())
	require.True(t, load.Changed)
	require.Equal(t, uint32(50), load.GPUs["GPU-1"].UsePct)
	list := m.Adapters(t.Context())
	require.Len(t, list, 8, "the card by its driver instead of by the bus")
	require.Equal(t, d.list[0], list[0])
}

// TestThisMachineCanBeRead also proves that a machine without NVIDIA's library
// lives through the search for it.
func TestThisMachineCanBeRead(t *testing.T) {
	m := New(Config{Log: slog.New(slog.DiscardHandler)})
	defer m.Close()
	require.NotZero(t, m.Host().MemoryTotal)
	for range 3 {
		m.nvidia.retryAt = m.nvidia.retryAt.Add(-lastRetry)
		m.Adapters(t.Context())
		require.NotZero(t, m.Load(t.Context()).MemoryUsed)
	}
}

// BenchmarkLoad is what the collector pays for each sample.
func BenchmarkLoad(b *testing.B) {
	m := New(Config{Log: slog.New(slog.DiscardHandler)})
	defer m.Close()
	m.Adapters(b.Context())
	for b.Loop() {
		m.Load(b.Context())
	}
}
