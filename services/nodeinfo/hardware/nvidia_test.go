// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestInventoryOfTheCommandLineProgram: see NI-33.
func TestInventoryOfTheCommandLineProgram(t *testing.T) {
	got := parseSMIAdapters("GPU-1, NVIDIA GeForce RTX 4090, 24564\n" +
		"GPU-2,NVIDIA GB10,[N/A]\r\n" +
		"GPU-3, NVIDIA X, Not Supported\n" +
		"GPU-4, NVIDIA Y, N/A\n" +
		"GPU-5, NVIDIA Z, [Not Supported]\n" +
		"GPU-6, NVIDIA Broken, ???\n" +
		"GPU-7, NVIDIA Short\n" +
		", NVIDIA Nobody, 1\nGPU-8, , 1\n\nNo devices were found\n" +
		"GPU-9, NVIDIA Last, 1")
	require.Equal(t, []Adapter{
		{Key: "GPU-1", Name: "NVIDIA GeForce RTX 4090", Total: 24564 << 20},
		{Key: "GPU-2", Name: "NVIDIA GB10", Unified: true},
		{Key: "GPU-3", Name: "NVIDIA X", Unified: true},
		{Key: "GPU-4", Name: "NVIDIA Y", Unified: true},
		{Key: "GPU-5", Name: "NVIDIA Z", Unified: true},
		{Key: "GPU-6", Name: "NVIDIA Broken"},
		{Key: "GPU-7", Name: "NVIDIA Short"},
		{Key: "GPU-9", Name: "NVIDIA Last", Total: 1 << 20},
	}, got)
	require.Empty(t, parseSMIAdapters(""))
}

func TestReadingsOfTheCommandLineProgram(t *testing.T) {
	got := parseSMIReadings("GPU-1, 37, 1024\nGPU-2, 0, [N/A]\nGPU-3, [N/A], 5\nGPU-4, 101, x\nGPU-5, -1, -1\nGPU-6\n, 5, 5\n")
	require.Equal(t, map[string]Reading{
		"GPU-1": {Used: 1 << 30, UsePct: 37, UseKnown: true},
		"GPU-2": {UseKnown: true},
		"GPU-3": {Used: 5 << 20},
		"GPU-4": {UsePct: 100, UseKnown: true},
		"GPU-5": {},
		"GPU-6": {},
	}, got)
}

func TestTheCommandLineProgramIsAskedOrAbsent(t *testing.T) {
	var asked []string
	answer, failure := "GPU-1, N, 1\n", error(nil)
	s := smi{run: func(_ context.Context, program string, args ...string) ([]byte, error) {
		asked = append(asked, program+" "+strings.Join(args, " "))
		return []byte(answer), failure
	}}
	list, err := s.adapters(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = s.readings(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{
		"nvidia-smi --query-gpu=uuid,name,memory.total --format=csv,noheader,nounits",
		"nvidia-smi --query-gpu=uuid,utilization.gpu,memory.used --format=csv,noheader,nounits",
	}, asked)
	failure = &exec.Error{Name: "nvidia-smi", Err: exec.ErrNotFound}
	_, err = s.adapters(t.Context())
	require.ErrorIs(t, err, errAbsent)
	failure = errors.New("exit status 9")
	_, err = s.readings(t.Context())
	require.NotErrorIs(t, err, errAbsent)
}

// fakeDriver is a driver as a test describes it.
type fakeDriver struct {
	list  []Adapter
	read  map[string]Reading
	err   error
	calls int
}

func (d *fakeDriver) adapters(context.Context) ([]Adapter, error) { d.calls++; return d.list, d.err }
func (d *fakeDriver) readings(context.Context) (map[string]Reading, error) {
	return d.read, d.err
}

func newDrivers(t *testing.T, drivers ...driver) (*nvidia, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	return newNVIDIA(slog.New(slog.NewTextHandler(log, nil)), drivers...), log
}

func TestTheFirstWayThatWorksIsTaken(t *testing.T) {
	library := &fakeDriver{err: errAbsent}
	program := &fakeDriver{list: []Adapter{{Key: "GPU-1"}}, read: map[string]Reading{"GPU-1": {UsePct: 5}}}
	n, log := newDrivers(t, library, program)
	require.Equal(t, program.list, n.adapters(t.Context()))
	readings, changed := n.readings(t.Context())
	require.Equal(t, program.read, readings)
	require.False(t, changed)
	n.adapters(t.Context())
	require.Equal(t, 1, library.calls, "what works stays")
	require.Empty(t, log.String())
}

// TestADriverThatIsAwayIsTriedEverLessOften: see NI-34.
func TestADriverThatIsAwayIsTriedEverLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDriver{err: errAbsent}
		n, log := newDrivers(t, d)
		begin := time.Now()
		require.Empty(t, n.adapters(t.Context()))
		var tries []int
		for calls := d.calls; len(tries) < 9; <-time.After(100 * time.Millisecond) {
			readings, changed := n.readings(t.Context())
			require.Empty(t, readings)
			require.False(t, changed)
			n.adapters(t.Context()) // adds no try of its own
			if d.calls > calls {
				calls = d.calls
				tries = append(tries, int(time.Since(begin).Seconds()))
			}
		}
		require.Equal(t, []int{1, 3, 7, 15, 31, 63, 123, 183, 243}, tries)
		require.Empty(t, log.String(), "a machine without the driver is an ordinary machine")

		d.err, d.list, d.read = nil, []Adapter{{Key: "GPU-1"}}, map[string]Reading{"GPU-1": {}}
		<-time.After(lastRetry)
		readings, changed := n.readings(t.Context())
		require.True(t, changed, "it came: the adapters are to be listed")
		require.Equal(t, d.read, readings)
		require.Equal(t, d.list, n.adapters(t.Context()))
	})
}

func TestAnOutageIsOneWarningAndKeepsTheAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDriver{list: []Adapter{{Key: "GPU-1"}}}
		n, log := newDrivers(t, d)
		n.adapters(t.Context())
		for range 2 {
			log.Reset()
			d.err = errors.New("driver was reset")
			_, changed := n.readings(t.Context())
			require.True(t, changed)
			for range 50 {
				<-time.After(time.Second)
				require.Equal(t, []Adapter{{Key: "GPU-1"}}, n.adapters(t.Context()))
				n.readings(t.Context())
			}
			require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log)
			require.Contains(t, log.String(), "driver was reset")
			d.err = nil
			<-time.After(lastRetry)
			_, changed = n.readings(t.Context())
			require.True(t, changed)
			require.Equal(t, 1, strings.Count(log.String(), "level=INFO"), log)
		}
	})
}

func TestHelpersAreBounded(t *testing.T) {
	_, err := runHelper(t.Context(), "no-such-program-anywhere")
	require.ErrorIs(t, err, exec.ErrNotFound)
	for _, program := range []string{"sh", "head"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no " + program)
		}
	}
	out, err := runHelper(t.Context(), "sh", "-c", "echo out; echo err >&2")
	require.NoError(t, err)
	require.Equal(t, "out\n", string(out))
	_, err = runHelper(t.Context(), "sh", "-c", "echo why; exit 9")
	require.ErrorContains(t, err, "exit status 9: why")
	_, err = runHelper(t.Context(), "head", "-c", "3000000", "/dev/zero")
	require.Error(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = runHelper(ctx, "sh", "-c", "exec tail -f /dev/null")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
