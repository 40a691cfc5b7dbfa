// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"nvpair/tests/harness"
)

// stderrPipe returns a pipe for a broker's standard error of which the test reads
// what and when it likes. The broker must take the writing end before release is
// called.
func stderrPipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = read.Close(); _ = write.Close() })
	return read, write
}

// unsent returns what is in the file for lines that nobody read.
func unsent(t *testing.T, h *harness.Host) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.DataDir, "logs", "nvpair-broker-unsent.log"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(text)
}

// chatter makes the broker write that many lines, while the tree is used. Nothing
// would be answered if a line that nobody reads held anybody up.
func (tr *tree) chatter(lines int) {
	tr.t.Helper()
	for i := range lines {
		_, err := tr.out.WriteString(harness.RequestLine("", fmt.Sprintf("chatter/%d", i), "") + "\n")
		require.NoError(tr.t, err)
		if i%500 == 0 {
			tr.must("settings/get-cluster-id", "", nil)
		}
	}
	tr.must("ping", "", nil)
}

// chattered returns the numbers of the lines of chatter in a text, and fails the
// test if one of them is not whole.
func chattered(t *testing.T, text string) (numbers []int) {
	t.Helper()
	whole := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} \[nvpair-ui-broker\] DEBUG .* method=chatter/(\d+)$`)
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "chatter") {
			continue
		}
		match := whole.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		require.NotNil(t, match, "no whole line: %q", line)
		var n int
		_, err := fmt.Sscan(match[1], &n)
		require.NoError(t, err)
		numbers = append(numbers, n)
	}
	return numbers
}

// requireEach proves that each of so many numbers is there, once.
func requireEach(t *testing.T, count int, numbers []int) {
	t.Helper()
	slices.Sort(numbers)
	require.Equal(t, count, len(numbers), "lines")
	for i, n := range numbers {
		require.Equal(t, i, n)
	}
}

func TestAReaderOfTheDiagnosticsThatPausesDelaysNobody(t *testing.T) {
	t.Parallel()
	const lines = 12_000
	read, write := stderrPipe(t)
	tr := startReal(t, write, "--log-level=debug")
	require.NoError(t, write.Close()) // the broker has its own
	tr.awaitAnnounced()
	tr.chatter(lines)
	harness.Eventually(t, patience, "lines are diverted to the file", func() bool {
		return strings.Contains(unsent(t, tr.h), "chatter/")
	})

	text := make(chan string, 1) // the whole of it
	told := make(chan string, 1) // the first line that tells of diverted ones
	go func() {
		var all strings.Builder
		for in := bufio.NewReader(read); ; {
			line, err := in.ReadString('\n')
			all.WriteString(line)
			if strings.Contains(line, "lines diverted") && len(told) == 0 {
				told <- line
			}
			if err != nil {
				text <- all.String()
				return
			}
		}
	}()
	var notice string
	select {
	case notice = <-told:
	case <-time.After(patience):
		require.FailNow(t, "nothing tells of the diverted lines")
	}
	file := unsent(t, tr.h)
	require.Regexp(t, `^\S+ \[nvpair-ui-broker\] WARN .*lines diverted lines=`+
		fmt.Sprint(strings.Count(file, "\n"))+` where=.*nvpair-broker-unsent\.log"?\n$`, notice)
	tr.shutDown()
	passed := <-text // ends with the last process of the tree
	require.Contains(t, passed, "INFO shutdown complete")
	require.True(t, slices.IsSorted(chattered(t, passed)), "lines out of order")
	requireEach(t, lines, append(chattered(t, passed), chattered(t, unsent(t, tr.h))...))
}

func TestAReaderOfTheDiagnosticsThatNeverReadsDelaysTheEndALittle(t *testing.T) {
	t.Parallel()
	const lines = 6_000
	read, write := stderrPipe(t)
	tr := startReal(t, write, "--log-level=debug")
	require.NoError(t, write.Close())
	tr.awaitAnnounced()
	tr.chatter(lines)
	tr.shutDown()
	passed, err := io.ReadAll(read) // what the pipe holds
	require.NoError(t, err)
	cut := strings.LastIndexByte(string(passed), '\n') + 1
	file := unsent(t, tr.h)
	require.Contains(t, file, "INFO shutdown complete")
	kept := chattered(t, file)
	slices.Sort(kept)
	require.Len(t, slices.Compact(slices.Clone(kept)), len(kept), "lines are twice in the file")
	numbers := append(chattered(t, string(passed[:cut])), kept...)
	slices.Sort(numbers) // the reader took a part of what was on its way, and the file has all of that
	requireEach(t, lines, slices.Compact(numbers))
}

// fill makes a pipe's buffer full, so that the next writer has to wait.
func fill(t *testing.T, write *os.File) {
	t.Helper()
	size, err := unix.FcntlInt(write.Fd(), unix.F_GETPIPE_SZ, 0)
	require.NoError(t, err)
	_, err = write.WriteString(strings.Repeat("x", size-1) + "\n")
	require.NoError(t, err)
}

func TestAFatalStartErrorIsToldBeforeTheExit(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	cmd := h.Command("nvpair-ui-broker", "--settings-path=/nowhere/settings")
	cmd.Dir = harness.Bin(t)
	p := h.Start(cmd)
	require.Equal(t, 1, p.AwaitExit(patience))
	require.Regexp(t, `(?m)^\S+ \[nvpair-ui-broker\] ERROR .*/nowhere/settings.*\n\z`, p.Stderr())
	h.AwaitNone(0)

	read, write := stderrPipe(t) // and nobody reads
	fill(t, write)
	cmd = h.Command("nvpair-ui-broker", "--settings-path=/nowhere/settings")
	cmd.Dir, cmd.Stderr = harness.Bin(t), write
	p = h.Start(cmd)
	require.NoError(t, write.Close())
	require.Equal(t, 1, p.AwaitExit(teardownWithin))
	rest, err := io.ReadAll(read)
	require.NoError(t, err)
	require.NotContains(t, string(rest), "/nowhere/settings")
	require.Contains(t, unsent(t, h), "/nowhere/settings")
}
