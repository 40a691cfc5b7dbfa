// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/workload"
)

// keeper is a history in a directory of its own.
type keeper struct {
	*History
	index *Index
	wall  clock
	log   *bytes.Buffer // to be read after stop
}

func newKeeper(t *testing.T, dir string) *keeper {
	t.Helper()
	k := &keeper{log: new(bytes.Buffer)}
	k.index = New(Config{NodeID: self, Wall: k.wall.now})
	k.History = NewHistory(k.index, filepath.Join(dir, "h.json"), slog.New(slog.NewTextHandler(k.log, nil)))
	return k
}

// privateDir does not depend on the umask, as t.TempDir does.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

// run runs the flusher until stop.
func (k *keeper) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// finish accepts the end of a job.
func (k *keeper) finish(t *testing.T, name string) {
	t.Helper()
	put(t, k.index, Accepted, FromProxy(1), job(id(name), state("completed"), completed(k.wall.now())))
}

// kept returns the ids in a file, in its order; "-" without a file.
func kept(t *testing.T, path string) string {
	t.Helper()
	list, err := readHistory(path)
	if os.IsNotExist(err) {
		return "-"
	}
	require.NoError(t, err)
	var ids []string
	for _, raw := range list {
		ids = append(ids, info(t, raw).ID)
	}
	return strings.Join(ids, " ")
}

// files returns kept of the file and its rotations.
func (k *keeper) files(t *testing.T) []string {
	t.Helper()
	var list []string
	for n := range rotations + 1 {
		list = append(list, kept(t, k.rotation(n)))
	}
	return list
}

func TestFinishedJobsAreWrittenAfterFiveSecondsAndReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := privateDir(t)
		k := newKeeper(t, dir)
		k.Load()
		stop := k.run(t)
		defer stop()
		await(time.Minute)
		k.finish(t, "b")
		put(t, k.index, Accepted, FromProxy(1), job(id("open")))
		put(t, k.index, Accepted, FromManager, job(id("lost"), origin(peer)))
		_, ok := k.index.Infer(k.index.Lost(peer)[0], "x")
		require.True(t, ok)
		await(time.Second)
		k.finish(t, "a")
		await(4*time.Second - 1)
		synctest.Wait()
		require.Equal(t, "-", kept(t, k.path))
		await(1)
		synctest.Wait()
		require.Equal(t, "b a", kept(t, k.path)) // oldest completion first; neither open nor guessed
		next := newKeeper(t, dir)
		next.Load()
		require.Equal(t, []string{"self-uuid/ollama/r/a=completed", "self-uuid/ollama/r/b=completed"}, shown(t, next.index))
		put(t, next.index, Rejected, FromProxy(1), job(id("a"), state("failed"))) // authoritative
		require.False(t, next.index.takeChanged())                                // nothing to write
	})
}

func TestRemovalOfAFinishedJobIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, privateDir(t))
		stop := k.run(t)
		k.finish(t, "a")
		k.finish(t, "b")
		await(10 * time.Second)
		k.index.Remove(workload.Pair{OriginatedFrom: self, ID: "a"})
		await(10 * time.Second)
		synctest.Wait()
		require.Equal(t, "b", kept(t, k.path))
		stop()
	})
}

func TestWhatAFlushTrimsIsNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, privateDir(t))
		stop := k.run(t)
		defer stop()
		k.finish(t, "a")
		put(t, k.index, Accepted, FromProxy(1), job(id("old"), state("failed"), completed(time.Now().Add(-8*24*time.Hour))))
		await(flushEvery)
		synctest.Wait()
		require.Equal(t, "a", kept(t, k.path))
		require.NoError(t, os.Remove(k.path))
		await(flushEvery)
		synctest.Wait()
		require.Equal(t, "-", kept(t, k.path))
	})
}

func TestTheLastWriteDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, privateDir(t))
		stop := k.run(t)
		k.finish(t, "a")
		stop()
		require.Equal(t, "a", kept(t, k.path))

		stop = k.run(t)
		require.NoError(t, os.Remove(k.path))
		stop()
		require.Equal(t, "-", kept(t, k.path)) // nothing had changed
	})
}

func TestCheckpointsRotateThreeFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, privateDir(t))
		stop := k.run(t)
		defer stop()
		for n := range 5 {
			k.finish(t, strconv.Itoa(n))
			await(6 * time.Minute) // behind the checkpoint of each
		}
		synctest.Wait()
		require.Equal(t, []string{"0 1 2 3 4", "0 1 2 3 4", "0 1 2 3", "0 1 2"}, k.files(t))
		await(10 * time.Hour) // nothing changes: the rotations keep what they have
		synctest.Wait()
		require.Equal(t, []string{"0 1 2 3 4", "0 1 2 3 4", "0 1 2 3", "0 1 2"}, k.files(t))
	})
}

func TestNewestReadableFileIsLoaded(t *testing.T) {
	good := func(name string) string { return "[" + string(job(id(name), state("completed"))) + "]" }
	for _, tt := range []struct {
		name  string
		files []string // "" = missing
		want  string
		warns int
	}{
		{"none", []string{"", "", "", ""}, "", 0},
		{"the file", []string{good("0"), good("1"), "", ""}, "0", 0},
		{"an empty one is readable", []string{"[]", good("1"), "", ""}, "", 0},
		{"crashed between rotation and rewrite", []string{"", good("1"), good("2"), ""}, "1", 0},
		{"torn", []string{good("0")[:20], good("1"), "", ""}, "1", 1},
		{"no array", []string{`{"a":1}`, good("1"), "", ""}, "1", 1},
		{"null is an empty array", []string{`null`, good("1"), "", ""}, "", 0},
		{"too many elements", []string{"[" + strings.Repeat("{},", maxFileElements) + "{}]", good("1"), "", ""}, "1", 1},
		{"trailing data", []string{good("0") + "x", "", good("2"), ""}, "2", 1},
		{"empty file", []string{" ", "rubbish", "\x00", good("3")}, "3", 3},
		{"all corrupt", []string{"{", "{", "{", "{"}, "", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKeeper(t, privateDir(t))
			k.wall.step = -time.Since(time.UnixMilli(1000)) // the records are of 1970
			for n, content := range tt.files {
				if content != "" {
					require.NoError(t, os.WriteFile(k.rotation(n), []byte(content), 0o600))
				}
			}
			k.Load()
			got := ""
			for _, raw := range k.index.All(1 << 20) {
				got += info(t, raw).ID
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.warns, strings.Count(k.log.String(), "level=WARN"), k.log)
		})
	}
}

func TestElementsThatAreNoFinishedJobAreSkipped(t *testing.T) {
	k := newKeeper(t, privateDir(t))
	content := `[null, 7, {}, "x", {"id":"1"}, {"id":1,"originatedFrom":"n"}, ` + string(job(id("open"))) + `, ` +
		string(job(id("paused"), state("paused"))) + `, ` +
		string(job(id("ok"), state("cancelled"), seq(7))) + `]`
	require.NoError(t, os.WriteFile(k.path, []byte(content), 0o600))
	k.Load()
	list := k.index.All(1 << 20)
	require.Len(t, list, 1)
	require.EqualValues(t, 7, info(t, list[0]).Seq)
	require.Contains(t, k.log.String(), "records=1 skipped=8")
}

func TestBoundsHoldOnLoad(t *testing.T) {
	k := newKeeper(t, privateDir(t))
	now := time.Now()
	old := newKeeper(t, filepath.Dir(k.path))
	list := [][]byte{job(id("week"), state("failed"), completed(now.Add(-8*24*time.Hour)))}
	for n := range 10_001 {
		list = append(list, job(id(strconv.Itoa(n)), state("failed"), completed(now.Add(time.Duration(n)*time.Millisecond))))
	}
	content := append(append([]byte{'['}, bytes.Join(list, []byte{','})...), ']')
	require.NoError(t, os.WriteFile(old.path, content, 0o600))
	k.Load()
	require.Len(t, k.index.records, 10_000)
	require.Equal(t, "1", info(t, k.index.History()[0]).ID)
}

func TestRestoredRotationIsWrittenAsTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, privateDir(t))
		content := "[" + string(job(id("1"), state("completed"), completed(time.Now()))) + "]"
		require.NoError(t, os.WriteFile(k.rotation(1), []byte(content), 0o600))
		k.Load()
		stop := k.run(t)
		await(flushEvery)
		synctest.Wait()
		require.Equal(t, []string{"1", "1", "-", "-"}, k.files(t))
		stop()
	})
}

func TestFailedWriteStaysDueAndIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := privateDir(t)
		k := newKeeper(t, dir)
		obstacle := filepath.Join(k.path, "in the way")
		require.NoError(t, os.MkdirAll(obstacle, 0o700)) // a rename over it must fail
		stop := k.run(t)
		k.finish(t, "a")
		await(20 * time.Second)
		synctest.Wait()
		require.NoError(t, os.RemoveAll(k.path))
		await(flushEvery)
		synctest.Wait()
		require.Equal(t, "a", kept(t, k.path))
		await(time.Hour)
		stop()
		require.Equal(t, 1, strings.Count(k.log.String(), "level=WARN"), k.log)
		require.Equal(t, 1, strings.Count(k.log.String(), "written again"), k.log)
	})
}

func TestFailingWritesDoNotPushTheRotationsOut(t *testing.T) {
	k := newKeeper(t, privateDir(t))
	content := "[" + string(job(id("1"), state("completed"), completed(time.Now()))) + "]"
	require.NoError(t, os.WriteFile(k.rotation(1), []byte(content), 0o600))
	for range 5 {
		k.rotate() // without a file, as after a write that failed
	}
	require.Equal(t, []string{"-", "1", "-", "-"}, k.files(t))
}

func TestMissingDirectoryIsMadeAndAnUnwritableOneMeansMemoryOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := privateDir(t)
		k := newKeeper(t, filepath.Join(dir, "new", "deep"))
		k.Load()
		stop := k.run(t)
		k.finish(t, "a")
		stop()
		require.Equal(t, "a", kept(t, k.path))

		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		k = newKeeper(t, filepath.Join(dir, "file", "below"))
		k.Load()
		stop = k.run(t)
		k.finish(t, "a")
		await(time.Minute)
		stop()
		require.Len(t, shown(t, k.index), 1)
	})
}

func TestHistoryIsOneRecordALine(t *testing.T) {
	x := New(Config{NodeID: self})
	require.Equal(t, "[\n]\n", string(encodeHistory(x.History())))
	at := time.Now()
	a, b := job(id("a"), state("failed"), completed(at)), job(id("b"), state("failed"), completed(at))
	put(t, x, Accepted, FromManager, b)
	put(t, x, Accepted, FromManager, a)
	require.Equal(t, "[\n"+string(a)+",\n"+string(b)+"\n]\n", string(encodeHistory(x.History())))
}

func TestAForwardStepOfTheWallClockKeepsTheOrderOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, privateDir(t))
		k.finish(t, "a")
		k.wall.step = time.Hour
		k.finish(t, "b")
		k.wall.step = 0
		await(time.Second)
		k.finish(t, "c")
		k.write()
		require.Equal(t, "a c b", kept(t, k.path)) // by completedAt, whoever's clock it was
	})
}
