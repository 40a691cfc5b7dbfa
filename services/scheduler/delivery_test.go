// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/schedule"
)

// fullDisk is a transport whose writes fail while they are told to.
type fullDisk struct {
	io.ReadWriteCloser
	failing atomic.Bool
	fail    func(b []byte) (int, error)
	failed  atomic.Int64
}

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.failing.Load() {
		d.failed.Add(1)
		return d.fail(b)
	}
	return d.ReadWriteCloser.Write(b)
}

// failures are the ways in which a write does not deliver (JS-41).
var failures = map[string]func(b []byte) (int, error){
	"error": func([]byte) (int, error) {
		return 0, &fs.PathError{Op: "write", Path: "out", Err: syscall.ENOSPC}
	},
	"nothing written": func([]byte) (int, error) { return 0, nil },
	"cut short":       func(b []byte) (int, error) { return len(b) / 2, io.ErrShortWrite },
}

func overFullDisk(t *testing.T, fail func(b []byte) (int, error), story func(c *client, d *fullDisk)) {
	t.Helper()
	d := &fullDisk{fail: fail}
	around := func(link io.ReadWriteCloser) io.ReadWriteCloser {
		d.ReadWriteCloser = link
		return d
	}
	bubbleOver(t, 0, around, func(c *client) {
		c.SkipEmpty = true
		story(c, d)
	})
}

func (c *client) emitted(engine string) schedule.EngineStatus {
	c.t.Helper()
	synctest.Wait() // a write has ended when its reader has the last byte, but is not noted yet
	var answer struct{ Result schedule.Status }
	require.NoError(c.t, json.Unmarshal([]byte(c.Call("scheduler:get-status", "null")), &answer))
	return answer.Result.Engines[engine]
}

func TestRankingThatWasNotWrittenIsSentAgain(t *testing.T) {
	for name, fail := range failures {
		overFullDisk(t, fail, func(c *client, d *fullDisk) {
			d.failing.Store(true)
			begin := time.Now()
			c.list("a", "b")
			synctest.Wait()
			require.NotZero(t, d.failed.Load(), name)
			d.failing.Store(false)
			for _, engine := range []string{"ollama", "lmstudio"} {
				require.Equal(t, schedule.EngineStatus{Engine: engine, Emitted: []schedule.NodeRank{}}, c.emitted(engine), name)
			}
			require.Equal(t, "a 0/1, b 0/1", ranking(t, "ollama", c.Next()), name)
			require.Equal(t, time.Second, time.Since(begin), "without any input")
			require.Equal(t, "a 0/1, b 0/1", ranking(t, "lmstudio", c.Next()), name)
			require.Equal(t, time.Now().UnixMilli(), c.emitted("ollama").LastEmittedMillis)
			c.pass(time.Minute)
			c.Quiet()
			c.mu.Lock()
			defer c.mu.Unlock()
			require.False(t, c.roundOpen, "nothing is left to wait for")
		})
	}
}

func TestFailedWritesAreRepeatedOncePerInterval(t *testing.T) {
	overFullDisk(t, failures["error"], func(c *client, d *fullDisk) {
		d.failing.Store(true)
		c.list("a", "b")
		c.pass(10*time.Second + outputWindow)
		require.LessOrEqual(t, d.failed.Load(), int64(2*11), "a write for each engine at the most")
		require.GreaterOrEqual(t, d.failed.Load(), int64(11))
		d.failing.Store(false)
		c.place("1", "a") // the next change brings it, too
		require.Equal(t, "b 0/1, a 1/1", c.out())
		c.pass(time.Minute)
		c.Quiet()
	})
}

func TestFailedForcedOutputIsNotRepeated(t *testing.T) {
	overFullDisk(t, failures["error"], func(c *client, d *fullDisk) {
		c.list("a")
		c.out()
		delivered := c.emitted("lmstudio")
		require.Equal(t, time.Now().UnixMilli(), delivered.LastEmittedMillis)
		require.Equal(t, `{"result":{"ticked":true}}`, c.Call("scheduler:tick", "null"))
		synctest.Wait()
		d.failing.Store(true)
		c.pass(outputWindow) // the forced output waits for its end
		require.NotZero(t, d.failed.Load())
		d.failing.Store(false)
		c.pass(time.Minute)
		c.Quiet()
		require.Equal(t, delivered, c.emitted("lmstudio"))
	})
}
