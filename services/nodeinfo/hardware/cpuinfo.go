// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// maxCPUInfoBytes takes /proc/cpuinfo of a machine with a thousand processors.
const maxCPUInfoBytes = 8 << 20

// linuxCPU returns name and physical cores, "" and 0 where unknown.
func linuxCPU(root string) (name string, cores uint32) {
	name, cores = parseCPUInfo(readText(filepath.Join(root, "proc", "cpuinfo"), maxCPUInfoBytes))
	if cores == 0 {
		cores = topologyCores(root)
	}
	return name, cores
}

// parseCPUInfo reads /proc/cpuinfo, one paragraph a processor. The name is the
// model, else the vendor; ARM has a number for that.
func parseCPUInfo(text string) (name string, cores uint32) {
	type core struct{ socket, id string }
	seen := map[core]bool{}
	var vendor string
	var at core
	for line := range strings.Lines(text + "\n") { // the last processor, too, ends with an empty line
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name":
			name = cmp.Or(name, value)
		case "vendor_id":
			vendor = cmp.Or(vendor, value)
		case "CPU implementer":
			vendor = cmp.Or(vendor, armVendor(value))
		case "physical id":
			at.socket = value
		case "core id":
			at.id = value
		case "":
			if at.id != "" {
				seen[at] = true
			}
			at = core{}
		}
	}
	return cmp.Or(name, vendor), uint32(len(seen))
}

func armVendor(implementer string) string {
	switch implementer {
	case "0x41":
		return "ARM"
	case "0x42":
		return "Broadcom"
	case "0x48":
		return "HiSilicon"
	case "0x4e":
		return "NVIDIA"
	case "0x51":
		return "Qualcomm"
	case "0x61":
		return "Apple"
	case "0xc0":
		return "Ampere"
	}
	return ""
}

// topologyCores counts the distinct (socket, core) pairs of sysfs.
func topologyCores(root string) uint32 {
	seen := map[[2]string]bool{}
	dirs, _ := filepath.Glob(filepath.Join(root, "sys", "devices", "system", "cpu", "cpu[0-9]*", "topology"))
	for _, dir := range dirs {
		socket, core := readLine(dir, "physical_package_id"), readLine(dir, "core_id")
		if core != "" {
			seen[[2]string{socket, core}] = true
		}
	}
	return uint32(len(seen))
}

// readText returns a small file, "" if it cannot be read, cut at limit.
func readText(path string, limit int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var text strings.Builder
	buf := make([]byte, 4096)
	for text.Len() < limit {
		n, err := f.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			break
		}
	}
	return text.String()
}

// readLine returns the content of a file of sysfs without blanks around it, ""
// if it cannot be read.
func readLine(dir, name string) string {
	return strings.TrimSpace(readText(filepath.Join(dir, name), 4096))
}
