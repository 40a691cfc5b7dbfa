// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"nvpair/tests/harness"
)

// maxGrowth is by how many bytes the peak of a process may grow for a client that does not read: queues of 8 MiB, what
// was left behind while they grew, and the race detector's shadow, three times as much. Without bounds it would be
// gigabytes.
const maxGrowth = 256 << 20

// startUnread starts a broker whose output nobody reads beyond its first frame.
func startUnread(t *testing.T, h *harness.Host) *harness.Proc {
	t.Helper()
	cmd := h.Command("nvpair-ui-broker")
	cmd.Dir = harness.Bin(t)
	p := h.Start(cmd)
	first := make([]byte, 0, 200)
	for one := make([]byte, 1); len(first) == 0 || first[len(first)-1] != '\n'; { // not a byte more
		_, err := p.Stdout.Read(one)
		require.NoError(t, err)
		first = append(first, one...)
	}
	require.Contains(t, string(first), `"app:ready"`)
	return p
}

// startWatched is startUnread once all workers run; it returns the peaks of memory as well.
func startWatched(t *testing.T, h *harness.Host) (*harness.Proc, map[int]int) {
	t.Helper()
	p := startUnread(t, h)
	harness.Eventually(t, answerWithin, "all workers run", func() bool {
		return len(h.Processes()) == len(harness.Binaries)-1 // nvpair is not among them
	})
	return p, allPeaks(t, h)
}

// requireGrownLittle requires that the processes are still those of before, and hardly larger.
func requireGrownLittle(t *testing.T, h *harness.Host, before map[int]int) {
	t.Helper()
	for pid, peak := range allPeaks(t, h) {
		require.Contains(t, before, pid, "a process was replaced")
		require.Less(t, peak-before[pid], maxGrowth, "process %d", pid)
	}
}

// peakMemory returns the most resident memory that a process ever had.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	match := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(t, match, "%s", text)
	kilobytes, err := strconv.Atoi(string(match[1]))
	require.NoError(t, err)
	return kilobytes << 10
}

// allPeaks returns the peak memory of each process on the host by its id.
func allPeaks(t *testing.T, h *harness.Host) map[int]int {
	t.Helper()
	peaks := map[int]int{}
	for _, p := range h.Processes() {
		peaks[p.PID] = peakMemory(t, p.PID)
	}
	return peaks
}

// untaken returns how many bytes of a process's input it has not read yet.
func untaken(t *testing.T, p *harness.Proc) (n int) {
	t.Helper()
	conn, err := p.Stdin.SyscallConn()
	require.NoError(t, err)
	var failed error
	require.NoError(t, conn.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }))
	require.NoError(t, failed)
	return n
}

// awaitTaken waits until a process has read all that was written to its input.
func awaitTaken(t *testing.T, p *harness.Proc) {
	t.Helper()
	harness.Eventually(t, answerWithin, "the input is read", func() bool { return untaken(t, p) == 0 })
}

func TestAClientThatDoesNotReadCostsLittleAndMissesNothingThatStillHolds(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, before := startWatched(t, h)

	const reports = 10_000
	filler := strings.Repeat("f", 100) // a list is far longer than a pipe all the same
	var lines strings.Builder
	lines.WriteString(harness.RequestLine("1", "discovery:subscribe", "") + "\n")
	for i := range reports {
		fmt.Fprintf(&lines, `{"jsonrpc":"2.0","method":"errors:report","params":{"id":"flood:%d","message":"%s"}}`+"\n", i, filler)
	}
	lines.WriteString(harness.RequestLine("", "errors:report", `{"id":"last","message":"m","severity":"error"}`) + "\n")
	_, err := p.Stdin.WriteString(lines.String())
	require.NoError(t, err)
	awaitTaken(t, p)
	requireGrownLittle(t, h, before)

	w := p.Wire(t)
	w.Await("the newest list", answerWithin, func(f harness.Frame) bool {
		return f.Method == "errors:update" && strings.Contains(string(f.Params), `"last"`)
	})
	require.Less(t, count(w, "errors:update"), 1000, "lists collapse")
	list := decoded[[]map[string]any](t, w.Call("2", "errors:get-initial", "").Result)
	require.Len(t, list, 1000) // the bound of the store
	require.Equal(t, "last", list[len(list)-1]["id"])
	require.Contains(t, string(w.Call("3", "broker:status", "").Result), `"droppedNotifications":0`)
	require.Equal(t, `{"value":true}`, string(w.Call("4", "settings/get-force-ports", "").Result))
	uiBroker().endsWithItsInput(t, h, p)
}

func TestEventsBeyondTheQueueAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, before := startWatched(t, h)
	const pushes = 110 // of 90 kB each: more than the queue
	filler := strings.Repeat("v", 90_000)
	for i := range pushes {
		value := `"` + strconv.Itoa(i) + filler + `"`
		_, err := p.Stdin.WriteString(harness.RequestLine(strconv.Itoa(i), "settings/set-cluster-id", `{"value":`+value+`}`) + "\n")
		require.NoError(t, err)
		if i%10 != 0 && i < pushes-1 {
			continue
		}
		harness.Eventually(t, answerWithin, "the value is stored", func() bool {
			text, _ := os.ReadFile(filepath.Join(h.DataDir, "settings.json")) // there is none before the first
			return strings.Contains(string(text[:min(len(text), 200)]), value[:8])
		})
	}
	w := p.Wire(t)
	for i := range pushes {
		require.Equal(t, `{"ok":true}`, string(w.Answer(strconv.Itoa(i)).Result), "answers are never dropped")
	}
	harness.Eventually(t, answerWithin, "each push has arrived or is counted", func() bool {
		status := decoded[map[string]any](t, w.Call(`"status"`, "broker:status", "").Result)
		dropped := int(status["droppedNotifications"].(float64))
		return dropped > 0 && dropped+count(w, "connection/cluster-identity") == pushes
	})
	requireGrownLittle(t, h, before)
	uiBroker().endsWithItsInput(t, h, p)
}

func TestAClientThatAsksWithoutReadingWaitsForItself(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p := startUnread(t, h)
	before := peakMemory(t, p.PID)
	const requests = 200 // with answers of 50 kB each: more than the broker holds for it
	method := strings.Repeat("no-such-", 6250)
	sent := make(chan error, 1)
	go func() { // ends when all is read, or with the process
		for i := range requests {
			if _, err := p.Stdin.WriteString(harness.RequestLine(strconv.Itoa(i), method, "") + "\n"); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	full := 0
	harness.Eventually(t, answerWithin, "the broker reads no more", func() bool {
		if full++; untaken(t, p) < 32<<10 {
			full = 0
		}
		return full > 50 // half a second without a read
	})
	require.Empty(t, sent)
	require.Less(t, peakMemory(t, p.PID)-before, maxGrowth)

	w := p.Wire(t)
	answered := make([]int, requests)
	for range requests {
		f := w.Next()
		i, err := strconv.Atoi(string(f.ID))
		require.NoError(t, err, f.Line)
		require.NotNil(t, f.Error, f.Line)
		answered[i]++
	}
	require.NoError(t, <-sent)
	for i, n := range answered {
		require.Equal(t, 1, n, "request %d", i)
	}
	uiBroker().endsWithItsInput(t, h, p)
}

func TestATreeEndsThoughItsClientDoesNotRead(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, p *harness.Proc){
		"end of input": func(t *testing.T, p *harness.Proc) { require.NoError(t, p.Stdin.Close()) },
		"signal":       func(_ *testing.T, p *harness.Proc) { p.Signal(syscall.SIGTERM) },
		"shutdown": func(t *testing.T, p *harness.Proc) {
			_, err := p.Stdin.WriteString(harness.RequestLine("1", "shutdown", "") + "\n")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness.NewHost(t, "alpha")
			p := startUnread(t, h)
			value := strings.Repeat("v", 800_000)
			for range 3 { // enough to fill the pipe
				_, err := p.Stdin.WriteString(harness.RequestLine("0", "settings/set-cluster-id", `{"value":"`+value+`"}`) + "\n")
				require.NoError(t, err)
			}
			awaitTaken(t, p)
			end(t, p)
			uiBroker().ended(t, h, p)
		})
	}
}
