// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"bufio"
	"cmp"
	"io"
	"strings"
)

// findPCINames reads a file in the form of pci.ids and returns the names of the
// wanted devices, which are given as vendor:device. It is a line "vvvv  Vendor"
// and below it, after a tab, "dddd  Device".
func findPCINames(r io.Reader, wanted map[string]bool) map[string]string {
	names := map[string]string{}
	var vendor, full string
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(names) < len(wanted) {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#' || strings.HasPrefix(line, "\t\t"):
		case line[0] != '\t':
			vendor, full, _ = strings.Cut(line, "  ")
		case vendor != "":
			device, name, _ := strings.Cut(line[1:], "  ")
			if id := vendor + ":" + device; wanted[id] {
				names[id] = shortName(vendor, full, name)
			}
		}
	}
	return names
}

// shortName prefers the name in brackets, which is the one on the box, and puts
// the vendor before it.
func shortName(vendorID, vendor, device string) string {
	vendor = cmp.Or(vendorName(vendorID), vendor)
	if _, after, found := strings.Cut(device, "["); found {
		if name, _, closed := strings.Cut(after, "]"); closed {
			device = name
		}
	}
	if strings.HasPrefix(device, vendor) {
		return device
	}
	return vendor + " " + device
}
