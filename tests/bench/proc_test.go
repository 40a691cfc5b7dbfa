// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"nvpair/tests/harness"
)

// memory is what a process holds. Pages that n processes share count as one n-th in all but rss.
type memory struct {
	pss, anon, file, rss float64 // bytes; pss is about anon and file together
}

// readMemory reads /proc/<pid>/smaps_rollup.
func readMemory(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	fields := numbers(string(text))
	m := memory{1024 * fields["Pss"], 1024 * fields["Pss_Anon"], 1024 * fields["Pss_File"], 1024 * fields["Rss"]}
	if m.pss == 0 {
		return m, fmt.Errorf("no Pss in smaps_rollup of process %d: %q", pid, text)
	}
	return m, nil
}

// numbers reads lines of a name, a colon and a number; others are left out.
func numbers(text string) map[string]float64 {
	fields := map[string]float64{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if len(words) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(words[0], 64); err == nil {
			fields[name] = v
		}
	}
	return fields
}

// activity is what a process has done since it was started.
type activity struct {
	cpu     time.Duration // user and system, of ended threads too
	wakeups float64       // how often one of its present threads began to wait
}

// readActivity reads the process's CPU clock, which counts in nanoseconds where /proc/<pid>/stat counts in ticks of
// 10 ms, and /proc/<pid>/schedstat leaves out all threads but the first.
func readActivity(pid int) (activity, error) {
	const schedClock = 2 // CPUCLOCK_SCHED: what the scheduler counted, for clock ids of other processes
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return activity{}, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	a := activity{cpu: time.Duration(ts.Nano())}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return activity{}, err
	}
	for _, thread := range threads {
		if text, err := os.ReadFile(thread); err == nil { // an error: it has ended meanwhile
			a.wakeups += numbers(string(text))["voluntary_ctxt_switches"]
		}
	}
	return a, nil
}

// resting is one process of an idle tree.
type resting struct {
	harness.ProcInfo
	memory
	first, last activity // around the measured time
}

func (r resting) cpu() time.Duration { return r.last.cpu - r.first.cpu }

// share returns the part of one core that the process used over d, in percent.
func (r resting) share(d time.Duration) float64 { return 100 * float64(r.cpu()) / float64(d) }

// printResting writes a row a process.
func printResting(out io.Writer, processes []resting, d time.Duration) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "IDLE PROCESS\tPSS\tANON\tFILE\tRSS\tCPU OF A CORE\tWAITS IN %v\n", d)
	for _, p := range processes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.4f %%\t%.0f\n", p.Name, megabytes(p.pss), megabytes(p.anon),
			megabytes(p.file), megabytes(p.rss), p.share(d), p.last.wakeups-p.first.wakeups)
	}
	_ = w.Flush() // out is the test's log, which does not fail
}

func megabytes(bytes float64) string { return fmt.Sprintf("%.2f MB", bytes/1e6) }

// filesOf returns size and time of last change of everything below dir.
func filesOf(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		files[path] = fmt.Sprintf("%d bytes, %v, %v", info.Size(), info.Mode(), info.ModTime())
		return nil
	})
	return files, err
}

// changes returns the paths that are not the same in both, sorted.
func changes(before, after map[string]string) []string {
	var changed []string
	for path := range after {
		if before[path] != after[path] {
			changed = append(changed, path)
		}
	}
	for path := range before {
		if _, there := after[path]; !there {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	return changed
}
