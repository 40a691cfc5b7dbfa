// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/shared/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	self  = "self-uuid"
	peer  = "peer-uuid"
	third = "third-uuid"
)

// clock is a wall clock that a test steps. Its base is the time of the bubble.
type clock struct{ step time.Duration }

func (c *clock) now() time.Time { return time.Now().Add(c.step) }

// job returns an object of this node; with changes it is another one.
func job(changes ...func(*workload.Info)) json.RawMessage {
	i := workload.Info{
		ID: "1", Model: "m", Engine: "ollama", RunID: "r", State: workload.StateQueued, OriginatedFrom: self,
		CreatedMillis: 1000,
	}
	for _, change := range changes {
		change(&i)
	}
	return encode(i)
}

func id(id string) func(*workload.Info)       { return func(i *workload.Info) { i.ID = id } }
func run(run string) func(*workload.Info)     { return func(i *workload.Info) { i.RunID = run } }
func engine(e string) func(*workload.Info)    { return func(i *workload.Info) { i.Engine = e } }
func state(state string) func(*workload.Info) { return func(i *workload.Info) { i.State = state } }
func origin(node string) func(*workload.Info) {
	return func(i *workload.Info) { i.OriginatedFrom = node }
}
func on(node string) func(*workload.Info) { return func(i *workload.Info) { i.ScheduledOn = node } }
func created(millis int64) func(*workload.Info) {
	return func(i *workload.Info) { i.CreatedMillis = millis }
}
func seq(n int64) func(*workload.Info)         { return func(i *workload.Info) { i.Seq = n } }
func failure(text string) func(*workload.Info) { return func(i *workload.Info) { i.Error = &text } }
func completed(at time.Time) func(*workload.Info) {
	return func(i *workload.Info) {
		millis := at.UnixMilli()
		i.CompletedMillis = &millis
	}
}

func newEvent(t testing.TB, raw json.RawMessage, source Source) Event {
	t.Helper()
	e, err := NewEvent(raw, source)
	require.NoError(t, err)
	return e
}

// put merges an object and requires that verdict.
func put(t testing.TB, x *Index, want Verdict, source Source, raw json.RawMessage) {
	t.Helper()
	require.Equal(t, want, x.Put(newEvent(t, raw, source)), "%.200s", raw)
}

// info decodes what others are told.
func info(t testing.TB, raw json.RawMessage) workload.Info {
	t.Helper()
	i, err := workload.Parse(raw)
	require.NoError(t, err)
	return i
}

// shown lists all records as origin/engine/run/id=state.
func shown(t testing.TB, x *Index) []string {
	t.Helper()
	list := []string{}
	for _, raw := range x.All(1 << 30) {
		i := info(t, raw)
		list = append(list, i.OriginatedFrom+"/"+i.Engine+"/"+i.RunID+"/"+i.ID+"="+i.State)
	}
	return list
}
