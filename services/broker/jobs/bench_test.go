// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"nvpair/shared/workload"
)

// full returns an index with n open and m finished records.
func full(b *testing.B, open, finished int) *Index {
	b.Helper()
	x := New(Config{NodeID: self})
	for n := range open {
		put(b, x, Accepted, FromProxy(1), job(id("o"+strconv.Itoa(n)), state("running"), on(self)))
	}
	for n := range finished {
		put(b, x, Accepted, FromProxy(1), job(id("f"+strconv.Itoa(n)), state("completed"), completed(time.Now())))
	}
	return x
}

// BenchmarkTransition is one event of a job's life, from the params on the link to
// the accepted change, among 10,000 open and 10,000 finished records. 1,000 a second
// is 1 ms each.
func BenchmarkTransition(b *testing.B) {
	x := full(b, maxOpen-4, maxFinished)
	states := []string{"queued", "queued", "running", "completed"}
	var params []json.RawMessage
	for n := range 64 {
		for k, s := range states {
			raw := job(id(strconv.Itoa(n)), state(s), on(strconv.Itoa(k)), seq(int64(k+1)), origin(""))
			params = append(params, append(append([]byte(`{"workloadInfo":`), raw...), '}'))
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%len(params) == 0 {
			for k := range 64 {
				x.Remove(workload.Pair{OriginatedFrom: self, ID: strconv.Itoa(k)})
			}
		}
		_, raw, err := StampEvent(params[n%len(params)], self)
		if err != nil {
			b.Fatal(err)
		}
		e, err := NewEvent(raw, FromProxy(1))
		if err != nil {
			b.Fatal(err)
		}
		if v := x.Put(e); v != Accepted {
			b.Fatal(v)
		}
	}
}

// BenchmarkEndings is the same for ends of new jobs, which the caps push out
// again.
func BenchmarkEndings(b *testing.B) {
	x := full(b, maxOpen, maxFinished)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		e, err := NewEvent(job(id(strconv.Itoa(n)), state("completed"), completed(time.Now())), FromProxy(1))
		if err != nil {
			b.Fatal(err)
		}
		x.Put(e)
	}
}

// BenchmarkReplay is what a new scheduler costs while nobody else can apply.
func BenchmarkReplay(b *testing.B) {
	x := full(b, maxOpen, maxFinished)
	for b.Loop() {
		x.Open()
	}
}

// BenchmarkList is one workloads:get-initial without its encoding.
func BenchmarkList(b *testing.B) {
	x := full(b, maxOpen, maxFinished)
	for b.Loop() {
		x.All(4 << 20)
	}
}

// BenchmarkFlush is one write of the whole history, synced.
func BenchmarkFlush(b *testing.B) {
	h := NewHistory(full(b, maxOpen, maxFinished), filepath.Join(b.TempDir(), "d", "h.json"), slog.New(slog.DiscardHandler))
	for b.Loop() {
		if !h.write() {
			b.Fatal("not written")
		}
	}
}

// BenchmarkSweep is one look for silent records.
func BenchmarkSweep(b *testing.B) {
	x := full(b, maxOpen, maxFinished)
	for b.Loop() {
		x.Silent()
	}
}
