// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

const (
	smiProgram = "nvidia-smi"
	mebibyte   = 1 << 20
)

// smi asks NVIDIA's driver by its command-line program.
type smi struct{ run run }

func (s smi) adapters(ctx context.Context) ([]Adapter, error) {
	out, err := s.query(ctx, "uuid,name,memory.total")
	if err != nil {
		return nil, err
	}
	return parseSMIAdapters(string(out)), nil
}

func (s smi) readings(ctx context.Context) (map[string]Reading, error) {
	out, err := s.query(ctx, "uuid,utilization.gpu,memory.used")
	if err != nil {
		return nil, err
	}
	return parseSMIReadings(string(out)), nil
}

func (s smi) query(ctx context.Context, fields string) ([]byte, error) {
	out, err := s.run(ctx, smiProgram, "--query-gpu="+fields, "--format=csv,noheader,nounits")
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil, errAbsent
	}
	return out, err
}

// parseSMIAdapters reads rows of uuid, name and MiB. A row without one of the
// first two is none; memory that is not supported is the system's (NI-33).
func parseSMIAdapters(text string) []Adapter {
	var list []Adapter
	for line := range strings.Lines(text) {
		row := splitRow(line, 3)
		if row[0] == "" || row[1] == "" {
			continue
		}
		list = append(list, Adapter{Key: row[0], Name: row[1], Total: mebibytes(row[2]), Unified: notAvailable(row[2])})
	}
	return list
}

// parseSMIReadings reads rows of uuid, percent and MiB. What is no number is 0;
// such a percentage is no reading.
func parseSMIReadings(text string) map[string]Reading {
	readings := map[string]Reading{}
	for line := range strings.Lines(text) {
		row := splitRow(line, 3)
		if row[0] == "" {
			continue
		}
		r := Reading{Used: mebibytes(row[2])}
		if use, err := strconv.ParseUint(row[1], 10, 32); err == nil {
			r.UsePct, r.UseKnown = uint32(min(use, 100)), true
		}
		readings[row[0]] = r
	}
	return readings
}

// splitRow returns exactly n trimmed fields, missing ones empty.
func splitRow(line string, n int) []string {
	row := make([]string, n)
	for i, field := range strings.SplitN(line, ",", n) {
		row[i] = strings.TrimSpace(field)
	}
	return row
}

func mebibytes(s string) uint64 {
	mib, err := strconv.ParseUint(s, 10, 44)
	if err != nil {
		return 0
	}
	return mib * mebibyte
}

func notAvailable(s string) bool {
	return slices.Contains([]string{"[N/A]", "N/A", "[Not Supported]", "Not Supported"}, s)
}
