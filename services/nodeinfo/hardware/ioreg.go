// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxPlistDepth bounds the nesting of a property list.
const maxPlistDepth = 64

var errPlist = errors.New("not a property list")

// parsePlist reads an XML property list into map[string]any, []any, string,
// []byte, uint64 (negative numbers wrap), float64 and bool.
func parsePlist(text []byte) (any, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: %v", errPlist, err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local != "plist" {
			return plistValue(d, start, 0)
		}
	}
}

// plistValue reads the value that start begins, to its end.
func plistValue(d *xml.Decoder, start xml.StartElement, depth int) (any, error) {
	if depth > maxPlistDepth {
		return nil, errPlist
	}
	switch start.Name.Local {
	case "dict":
		return plistDict(d, depth)
	case "array":
		var list []any
		for {
			child, err := nextElement(d)
			if child == nil || err != nil {
				return list, err
			}
			value, err := plistValue(d, *child, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
	}
	var text string
	if err := d.DecodeElement(&text, &start); err != nil {
		return nil, err
	}
	return plistScalar(start.Name.Local, strings.TrimSpace(text)), nil
}

func plistDict(d *xml.Decoder, depth int) (any, error) {
	dict := map[string]any{}
	for {
		child, err := nextElement(d)
		if child == nil || err != nil {
			return dict, err
		}
		var key string
		if child.Name.Local != "key" {
			return nil, errPlist
		}
		if err := d.DecodeElement(&key, child); err != nil {
			return nil, err
		}
		child, err = nextElement(d)
		if err != nil {
			return nil, err
		}
		if child == nil {
			return nil, errPlist
		}
		if dict[key], err = plistValue(d, *child, depth+1); err != nil {
			return nil, err
		}
	}
}

// nextElement returns the next element inside the present one, nil at its end.
func nextElement(d *xml.Decoder) (*xml.StartElement, error) {
	for {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			return &token, nil
		case xml.EndElement:
			return nil, nil
		}
	}
}

func plistScalar(kind, text string) any {
	switch kind {
	case "integer":
		if n, err := strconv.ParseUint(text, 0, 64); err == nil {
			return n
		}
		n, _ := strconv.ParseInt(text, 0, 64) // no number is 0
		return uint64(n)
	case "real":
		f, _ := strconv.ParseFloat(text, 64)
		return f
	case "true", "false":
		return kind == "true"
	case "data":
		b, _ := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		return b
	}
	return text
}

// parseIORegistry reads what ioreg says of the accelerators and returns adapters
// and readings (NI-36). memory is the machine's, which those of Apple's own chips
// share.
func parseIORegistry(text []byte, memory uint64) ([]Adapter, map[string]Reading, error) {
	root, err := parsePlist(text)
	if err != nil {
		return nil, nil, err
	}
	var list []Adapter
	readings := map[string]Reading{}
	walkIORegistry(root, func(entry map[string]any) {
		a, r := ioAccelerator(entry, memory)
		if a.Key == "" || a.Name == "" {
			return
		}
		list = append(list, a)
		readings[a.Key] = r
	})
	return list, readings, nil
}

// walkIORegistry calls visit for each accelerator, in the order of the registry.
func walkIORegistry(node any, visit func(map[string]any)) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			walkIORegistry(child, visit)
		}
	case map[string]any:
		if _, ok := node["PerformanceStatistics"]; ok || strings.Contains(plistText(node["IOObjectClass"]), "Accelerator") {
			visit(node)
		}
		walkIORegistry(node["IORegistryEntryChildren"], visit)
	}
}

func ioAccelerator(entry map[string]any, memory uint64) (Adapter, Reading) {
	var a Adapter
	class := plistText(entry["IOObjectClass"])
	for _, name := range []string{plistText(entry["model"]), plistText(entry["IORegistryEntryName"]), class} {
		if a.Name == "" {
			a.Name = name
		}
	}
	if id, ok := entry["IORegistryEntryID"].(uint64); ok {
		a.Key = fmt.Sprintf("ioreg:%x", id)
	}
	stats, _ := entry["PerformanceStatistics"].(map[string]any)
	var r Reading
	for _, key := range []string{"Device Utilization %", "GPU Activity(%)"} {
		if use, ok := plistNumber(stats[key]); ok && !r.UseKnown {
			r.UsePct, r.UseKnown = percent(use), true
		}
	}
	if strings.HasPrefix(class, "AGXAccelerator") || strings.HasPrefix(a.Name, "Apple ") {
		a.Total = memory
		r.Used, _ = stats["Alloc system memory"].(uint64)
		return a, r
	}
	used, usedOK := stats["vramUsedBytes"].(uint64)
	free, freeOK := stats["vramFreeBytes"].(uint64)
	r.Used = used
	switch megabytes, ok := entry["VRAM,totalMB"].(uint64); {
	case ok && megabytes < 1<<44:
		a.Total = megabytes * mebibyte
	case usedOK && freeOK && free <= math.MaxUint64-used:
		a.Total = used + free
	}
	return a, r
}

// plistText returns a string, which the registry also keeps as data with a zero
// byte behind it.
func plistText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return strings.TrimRight(string(v), "\x00")
	}
	return ""
}

func plistNumber(v any) (float64, bool) {
	switch v := v.(type) {
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
