// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Vendors as the PCI bus numbers them.
const (
	vendorAMD    = "1002"
	vendorIntel  = "8086"
	vendorNVIDIA = "10de"
)

// pciBus finds graphics adapters on the PCI bus and reads those whose driver
// tells its figures in sysfs, which is AMD's.
type pciBus struct {
	root  string
	names map[string]string // by vendor and device, as found in pci.ids; kept, for that file is long
	cards []pciCard         // of the last look
}

type pciCard struct {
	dir    string // of the device in sysfs
	addr   string // on the bus, such as 0000:03:00.0
	vendor string // four hex digits
	device string
}

func newPCIBus(root string) *pciBus { return &pciBus{root: root, names: map[string]string{}} }

// adapters looks at the bus. withNVIDIA includes cards of NVIDIA, by name; it is
// for machines where their driver does not list them.
func (b *pciBus) adapters(withNVIDIA bool) []Adapter {
	b.cards = nil
	dir := filepath.Join(b.root, "sys", "bus", "pci", "devices")
	entries, _ := os.ReadDir(dir) // sorted; no bus, no cards
	for _, entry := range entries {
		c := pciCard{dir: filepath.Join(dir, entry.Name()), addr: entry.Name()}
		if !c.isGraphics() {
			continue
		}
		c.vendor, c.device = hexDigits(readLine(c.dir, "vendor")), hexDigits(readLine(c.dir, "device"))
		if isDisplayOnly(c.vendor, c.device) || (c.vendor == vendorNVIDIA && !withNVIDIA) {
			continue
		}
		b.cards = append(b.cards, c)
	}
	b.lookUpNames()
	var list []Adapter
	for _, c := range b.cards {
		list = append(list, Adapter{Key: c.key(), Name: b.name(c), Total: c.memory()})
	}
	return list
}

// readings reads the cards of the last look.
func (b *pciBus) readings() map[string]Reading {
	readings := map[string]Reading{}
	for _, c := range b.cards {
		if c.vendor == vendorAMD {
			readings[c.key()] = c.reading()
		}
	}
	return readings
}

func (c pciCard) key() string { return "pci:" + c.addr }

// isGraphics reports whether this is a display controller, or an accelerator
// that has memory of AMD's kind.
func (c pciCard) isGraphics() bool {
	class := hexDigits(readLine(c.dir, "class"))
	return strings.HasPrefix(class, "03") ||
		strings.HasPrefix(class, "12") && readLine(c.dir, "mem_info_vram_total") != ""
}

// reading wakes no card: one that sleeps is idle, and its files would power it up.
func (c pciCard) reading() Reading {
	if readLine(filepath.Join(c.dir, "power"), "runtime_status") == "suspended" {
		return Reading{UseKnown: true}
	}
	r := Reading{Used: number(readLine(c.dir, "mem_info_vram_used"))}
	if use, err := strconv.ParseUint(readLine(c.dir, "gpu_busy_percent"), 10, 32); err == nil {
		r.UsePct, r.UseKnown = uint32(min(use, 100)), true
	}
	return r
}

// memory returns the size of the card's own memory: amdgpu has it beside the
// device, i915 beside the DRM card, xe for each tile.
func (c pciCard) memory() uint64 {
	if total := number(readLine(c.dir, "mem_info_vram_total")); total > 0 {
		return total
	}
	var total uint64
	for _, pattern := range []string{"drm/card*/lmem_total_bytes", "tile*/physical_vram_size_bytes"} {
		paths, _ := filepath.Glob(filepath.Join(c.dir, pattern))
		for _, path := range paths {
			total += number(readLine(filepath.Dir(path), filepath.Base(path)))
		}
		if total > 0 {
			break
		}
	}
	return total
}

// isDisplayOnly reports whether a chip only shows a picture: those of board
// management and of virtual machines.
func isDisplayOnly(vendor, device string) bool {
	switch vendor + ":" + device {
	case "19e5:1711", "1af4:1050": // HiSilicon's board management, virtio-gpu
		return true
	}
	return slices.Contains([]string{
		"1a03", "102b", // ASPEED, Matrox
		"1013", "1234", "1b36", "1414", "15ad", "80ee", // Cirrus, Bochs, QXL, Hyper-V, VMware, VirtualBox
	}, vendor)
}

// name returns what the card is called, at least its vendor and numbers.
func (b *pciBus) name(c pciCard) string {
	if product := readLine(c.dir, "product_name"); product != "" { // amdgpu, of some cards
		return product
	}
	if name := b.names[c.vendor+":"+c.device]; name != "" {
		return name
	}
	if vendor := vendorName(c.vendor); vendor != "" {
		return fmt.Sprintf("%s graphics %s:%s", vendor, c.vendor, c.device)
	}
	return ""
}

func vendorName(vendor string) string {
	switch vendor {
	case vendorAMD:
		return "AMD"
	case vendorIntel:
		return "Intel"
	case vendorNVIDIA:
		return "NVIDIA"
	}
	return ""
}

// lookUpNames finds the names of cards it has not looked up before.
func (b *pciBus) lookUpNames() {
	wanted := map[string]bool{}
	for _, c := range b.cards {
		if _, known := b.names[c.vendor+":"+c.device]; !known {
			wanted[c.vendor+":"+c.device] = true
		}
	}
	if len(wanted) == 0 {
		return
	}
	for _, path := range []string{"usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"} {
		f, err := os.Open(filepath.Join(b.root, path))
		if err != nil {
			continue
		}
		for id, name := range findPCINames(f, wanted) {
			b.names[id] = name
			delete(wanted, id)
		}
		_ = f.Close()
	}
	for id := range wanted {
		b.names[id] = "" // not to be looked up again
	}
}

// hexDigits strips the prefix that sysfs writes.
func hexDigits(s string) string { return strings.TrimPrefix(strings.ToLower(s), "0x") }

// number returns a decimal or 0x-prefixed number, 0 if it is none.
func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 0
	}
	return n
}
