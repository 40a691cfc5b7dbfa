// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// directXEntry is an adapter as Windows lists it in the registry, below
// HKLM\SOFTWARE\Microsoft\DirectX.
type directXEntry struct {
	description string
	luid        uint64
	memory      uint64 // dedicated bytes
	lastSeen    uint64 // by the system; that of the key above is the present one's
	vendor      uint64
}

// directXAdapters returns the adapters among the entries: without those that show
// no picture of their own, and without those of earlier starts of the machine,
// unless that would leave nothing (NI-37).
func directXAdapters(entries []directXEntry, lastSeen uint64) []Adapter {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e directXEntry) bool {
		return e.description == "" || isSoftwareAdapter(e.description)
	})
	present := slices.DeleteFunc(slices.Clone(entries), func(e directXEntry) bool {
		return lastSeen != 0 && e.lastSeen != lastSeen
	})
	if len(present) == 0 {
		present = entries
	}
	var list []Adapter
	for _, e := range present {
		list = append(list, Adapter{Key: luidKey(e.luid), Name: e.description, Total: e.memory})
	}
	return list
}

func isSoftwareAdapter(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{
		"remote display", "microsoft basic display", "microsoft basic render", "virtual display adapter",
	}, func(part string) bool { return strings.Contains(name, part) })
}

// luidKey is an adapter's key: how the system's counters name it.
func luidKey(luid uint64) string {
	return fmt.Sprintf("luid_0x%08x_0x%08x_phys_0", uint32(luid>>32), uint32(luid))
}

// engine is a part of an adapter that is busy or not: 3D, Copy, VideoDecode ...
type engine struct{ adapter, kind string }

// parseEngineInstance reads the name of an instance of the counter GPU Engine,
// such as pid_4711_luid_0x00000000_0x0000C853_phys_0_eng_0_engtype_3D (NI-38).
func parseEngineInstance(name string) (engine, bool) {
	name = strings.ToLower(name)
	at := strings.Index(name, "luid_")
	if at < 0 {
		return engine{}, false
	}
	// luid, high, low, phys, n, eng, n, engtype, kind; the kind may hold more of them.
	parts := strings.SplitN(name[at:], "_", 9)
	if len(parts) != 9 || parts[3] != "phys" || parts[5] != "eng" || parts[7] != "engtype" || parts[8] == "" {
		return engine{}, false
	}
	for _, hex := range parts[1:3] {
		if _, err := strconv.ParseUint(hex, 0, 32); err != nil || !strings.HasPrefix(hex, "0x") {
			return engine{}, false
		}
	}
	return engine{strings.Join(parts[:5], "_"), parts[8]}, true
}

// sample is one instance of a counter with its value.
type sample struct {
	instance string
	value    float64
}

// engineUse returns the use of each adapter: for each kind of engine the sum over
// all processes, of these the most. What is negative or has another name is
// dropped.
func engineUse(samples []sample) map[string]uint32 {
	sums := map[engine]float64{}
	for _, s := range samples {
		if e, ok := parseEngineInstance(s.instance); ok && s.value >= 0 {
			sums[e] += s.value
		}
	}
	use := map[string]uint32{}
	for e, sum := range sums {
		use[e.adapter] = max(use[e.adapter], percent(sum))
	}
	return use
}
