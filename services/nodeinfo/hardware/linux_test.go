// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plant writes files below a new root, by path, and returns the root.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		write(t, root, path, text)
	}
	return root
}

func write(t *testing.T, root, path, text string) {
	t.Helper()
	full := filepath.Join(root, filepath.FromSlash(path))
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
	require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
}

func TestTheAggregateLineOfTheCPUIsRead(t *testing.T) {
	for _, tt := range []struct {
		name, text  string
		idle, total float64
	}{
		{"of today", "cpu  100 20 30 400 50 6 7 8 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n", 450, 621},
		{"behind the others", "cpu0 9 9 9 9 9\ncpu1 9 9 9 9 9\ncpu  1 2 3 4 5\n", 9, 15},
		{"without an end", "cpu  1 2 3 4 5", 9, 15},
		{"too few fields", "cpu  1 2 3 4\n", 0, 0},
		{"all zero", "cpu  0 0 0 0 0 0 0 0 0 0\n", 0, 0},
		{"no number", "cpu  1 2 x 4 5\n", 0, 0},
		{"negative", "cpu  1 2 -3 4 5\n", 0, 0},
		{"no aggregate line", "cpu0 1 2 3 4 5\nintr 5\n", 0, 0},
		{"nothing", "", 0, 0},
	} {
		if got := parseStat([]byte(tt.text)); got != (cpuTimes{tt.idle, tt.total}) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// TestTheUseOfTheCPUIsTheShareOfBusyTicks: see NI-31.
func TestTheUseOfTheCPUIsTheShareOfBusyTicks(t *testing.T) {
	for _, tt := range []struct {
		before, now cpuTimes
		want        uint32
	}{
		{cpuTimes{100, 200}, cpuTimes{150, 300}, 50},
		{cpuTimes{100, 1000}, cpuTimes{1095, 2000}, 1}, // half a percent is rounded up
		{cpuTimes{100, 1000}, cpuTimes{1096, 2000}, 0},
		{cpuTimes{100, 200}, cpuTimes{100, 300}, 100},
		{cpuTimes{100, 200}, cpuTimes{200, 300}, 0},
		{cpuTimes{100, 200}, cpuTimes{100, 200}, 0},   // did not advance
		{cpuTimes{100, 200}, cpuTimes{50, 150}, 0},    // went back
		{cpuTimes{100, 200}, cpuTimes{90, 300}, 0},    // a part of it did
		{cpuTimes{}, cpuTimes{100, 200}, 0},           // no reading before
		{cpuTimes{100, 200}, cpuTimes{}, 0},           // none now
		{cpuTimes{100, 200}, cpuTimes{300, 300}, 0},   // more idle than time
		{cpuTimes{0, 200}, cpuTimes{0, 1 << 60}, 100}, // never idle
	} {
		if got := tt.now.use(tt.before); got != tt.want {
			t.Errorf("%+v.use(%+v) = %d, want %d", tt.now, tt.before, got, tt.want)
		}
	}
}

// TestMemoryIsRead: see NI-32.
func TestMemoryIsRead(t *testing.T) {
	for _, tt := range []struct {
		name, text  string
		total, used uint64
	}{
		{"of today", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n", 1024000, 600 * 1024},
		{"without MemAvailable", "MemTotal: 1000 kB\nMemFree: 100 kB\n", 1024000, 900 * 1024},
		{"more available than there is", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 1001 kB\n", 1024000, 900 * 1024},
		{"more free than there is", "MemTotal: 1000 kB\nMemFree: 1001 kB\n", 1024000, 0},
		{"total alone", "MemTotal: 1000 kB\n", 1024000, 0},
		{"no total", "MemFree: 100 kB\nMemAvailable: 400 kB\n", 0, 0},
		{"no number", "MemTotal: x kB\nMemFree: 1 kB\n", 0, 0},
		{"no value", "MemTotal:\n", 0, 0},
		{"too large", "MemTotal: 99999999999999999999 kB\n", 0, 0},
		{"another key", "MemTotalX: 5 kB\n", 0, 0},
		{"nothing", "", 0, 0},
	} {
		total, used := parseMeminfo([]byte(tt.text))
		if total != tt.total || used != tt.used {
			t.Errorf("%s: %d, %d", tt.name, total, used)
		}
	}
}

func TestPseudoFilesAreReadAgainAndOpenedAgain(t *testing.T) {
	root := t.TempDir()
	p := newProcfs(root)
	defer p.close()
	require.Zero(t, p.cpu())
	total, _ := p.memory()
	require.Zero(t, total, "no /proc is no failure")
	write(t, root, "proc/stat", "cpu  0 0 0 100 0\n")
	write(t, root, "proc/meminfo", "MemTotal: 2 kB\nMemAvailable: 1 kB\n")
	require.Zero(t, p.cpu())
	write(t, root, "proc/stat", "cpu  50 0 0 150 0\n")
	require.Equal(t, uint32(50), p.cpu())
	total, used := p.memory()
	require.Equal(t, [2]uint64{2048, 1024}, [2]uint64{total, used})
}

const (
	ryzen = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen 9 7950X\nphysical id\t: 0\ncore id\t\t: 0\n\n" +
		"processor\t: 1\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen 9 7950X\nphysical id\t: 0\ncore id\t\t: 1\n\n" +
		"processor\t: 2\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen 9 7950X\nphysical id\t: 0\ncore id\t\t: 0\n\n" +
		"processor\t: 3\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen 9 7950X\nphysical id\t: 1\ncore id\t\t: 0\n"
	arm = "processor\t: 0\nBogoMIPS\t: 108.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\nprocessor\t: 1\nCPU implementer\t: 0x41\n"
)

func TestProcessorsAreNamedAndCounted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		cpu   string
		cores uint32
	}{
		{"two threads and two sockets", map[string]string{"proc/cpuinfo": ryzen}, "AMD Ryzen 9 7950X", 3},
		{"ARM, cores of sysfs", map[string]string{
			"proc/cpuinfo": arm,
			"sys/devices/system/cpu/cpu0/topology/physical_package_id": "-1\n", "sys/devices/system/cpu/cpu0/topology/core_id": "0\n",
			"sys/devices/system/cpu/cpu1/topology/physical_package_id": "-1\n", "sys/devices/system/cpu/cpu1/topology/core_id": "1\n",
			"sys/devices/system/cpu/cpufreq/topology/core_id": "9\n",
		}, "ARM", 2},
		{"vendor alone", map[string]string{"proc/cpuinfo": "vendor_id : Quiet\n"}, "Quiet", 0},
		{"unknown", map[string]string{"proc/cpuinfo": "CPU implementer : 0xff\n"}, "", 0},
		{"nothing", nil, "", 0},
	} {
		cpu, cores := linuxCPU(plant(t, tt.files))
		if cpu != tt.cpu || cores != tt.cores {
			t.Errorf("%s: %q, %d", tt.name, cpu, cores)
		}
	}
}

// card describes a device of the PCI bus.
func card(addr, class, vendor, device string, more map[string]string) map[string]string {
	dir := "sys/bus/pci/devices/" + addr + "/"
	files := map[string]string{dir + "class": "0x" + class + "\n", dir + "vendor": "0x" + vendor + "\n", dir + "device": "0x" + device + "\n"}
	for name, text := range more {
		files[dir+name] = text
	}
	return files
}

func join(sets ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, set := range sets {
		for k, v := range set {
			all[k] = v
		}
	}
	return all
}

const someIDs = "# comment\n" +
	"1002  Advanced Micro Devices, Inc. [AMD/ATI]\n" +
	"\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX]\n\t\t1002 0e3b  Some board\n" +
	"8086  Intel Corporation\n\t56a0  DG2 [Arc A770]\n\t9a49  TigerLake-LP GT2 [Iris Xe Graphics]\n" +
	"10de  NVIDIA Corporation\n\t2684  AD102 [GeForce RTX 4090]\n" +
	"1a03  ASPEED Technology, Inc.\n\t2000  ASPEED Graphics Family\n" +
	"abcd  Rare Graphics\n\t0001  Rare Chip\n"

var graphics = join(
	map[string]string{"usr/share/misc/pci.ids": someIDs},
	card("0000:00:02.0", "030000", "8086", "9a49", nil),
	card("0000:00:1f.0", "060100", "8086", "a082", nil), // no display
	card("0000:01:00.0", "030200", "10de", "2684", nil),
	card("0000:03:00.0", "030000", "1002", "744c", map[string]string{
		"mem_info_vram_total": "25753026560\n", "mem_info_vram_used": "1073741824\n", "gpu_busy_percent": "7\n",
		"power/runtime_status": "active\n"}),
	card("0000:04:00.0", "038000", "8086", "56a0", map[string]string{"drm/card2/lmem_total_bytes": "0x3f4000000\n"}),
	card("0000:05:00.0", "120000", "1002", "74a1", map[string]string{"product_name": "AMD Instinct MI300X\n", "mem_info_vram_total": "5\n"}),
	card("0000:06:00.0", "120000", "1002", "1502", nil), // an accelerator without memory of its own
	card("0000:07:00.0", "030000", "1a03", "2000", nil), // board management
	card("0000:08:00.0", "030000", "1234", "1111", nil), // a virtual machine's
	card("0000:09:00.0", "030000", "abcd", "0001", nil),
	card("0000:0a:00.0", "030000", "1002", "ffff", nil),
	card("0000:0b:00.0", "030000", "beef", "0001", nil),
)

func TestGraphicsAdaptersAreFoundOnTheBus(t *testing.T) {
	b := newPCIBus(plant(t, graphics))
	want := []Adapter{
		{Key: "pci:0000:00:02.0", Name: "Intel Iris Xe Graphics"},
		{Key: "pci:0000:01:00.0", Name: "NVIDIA GeForce RTX 4090"},
		{Key: "pci:0000:03:00.0", Name: "AMD Radeon RX 7900 XT/7900 XTX", Total: 25753026560},
		{Key: "pci:0000:04:00.0", Name: "Intel Arc A770", Total: 0x3f4000000},
		{Key: "pci:0000:05:00.0", Name: "AMD Instinct MI300X", Total: 5},
		{Key: "pci:0000:09:00.0", Name: "Rare Graphics Rare Chip"},
		{Key: "pci:0000:0a:00.0", Name: "AMD graphics 1002:ffff"},
		{Key: "pci:0000:0b:00.0"},
	}
	require.Equal(t, want, b.adapters(true))
	require.Equal(t, append(want[:1:1], want[2:]...), b.adapters(false), "NVIDIA's own driver lists them better")
	require.NoError(t, os.Remove(filepath.Join(b.root, "usr", "share", "misc", "pci.ids")))
	require.Equal(t, "Intel Iris Xe Graphics", b.adapters(true)[0].Name, "names are looked up once")
	require.Empty(t, newPCIBus(t.TempDir()).adapters(true))
}

func TestOnlyWhatIsWrittenIsAReading(t *testing.T) {
	root := plant(t, graphics)
	b := newPCIBus(root)
	b.adapters(true)
	const addr = "sys/bus/pci/devices/0000:03:00.0/"
	read := func() Reading { return b.readings()["pci:0000:03:00.0"] }
	require.Equal(t, Reading{Used: 1073741824, UsePct: 7, UseKnown: true}, read())
	require.NotContains(t, b.readings(), "pci:0000:00:02.0")
	for _, tt := range []struct {
		busy string
		want Reading
	}{
		{"0\n", Reading{Used: 1073741824, UseKnown: true}},
		{"255\n", Reading{Used: 1073741824, UsePct: 100, UseKnown: true}},
		{"", Reading{Used: 1073741824}},
		{"-1\n", Reading{Used: 1073741824}},
	} {
		write(t, root, addr+"gpu_busy_percent", tt.busy)
		require.Equal(t, tt.want, read(), tt.busy)
	}
	write(t, root, addr+"power/runtime_status", "suspended\n")
	require.Equal(t, Reading{UseKnown: true}, read(), "a card that sleeps is idle, and is left alone")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "sys")))
	require.Equal(t, Reading{}, read())
}

func TestAnOverlongFileOfIDsIsNoTrouble(t *testing.T) {
	text := "1002  AMD\n" + strings.Repeat("\tx", 1<<20) + "\n\t744c  Never reached\n"
	require.Empty(t, findPCINames(strings.NewReader(text), map[string]bool{"1002:744c": true}))
}
