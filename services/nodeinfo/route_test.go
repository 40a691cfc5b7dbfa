// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/services/nodeinfo/hardware"
	wire "nvpair/shared/nodeinfo"
)

type (
	adapter  = hardware.Adapter
	readings = map[string]hardware.Reading
)

// answerOf is what the route answers of a state.
func answerOf(t *testing.T, i *inventory) string {
	t.Helper()
	c := newCollector(desk())
	c.view.Store(i.view())
	return encode(t, newRoute("", c).info(time.Now()))
}

// TestSamplesAreMergedIntoTheInventory: see NI-8, NI-12 and NI-15.
func TestSamplesAreMergedIntoTheInventory(t *testing.T) {
	host := hardware.Host{CPU: "C", Cores: 4, MemoryTotal: 16}
	const machine = `,"cpu":{"name":"C","cores":4},"memory":{"total_bytes":16},"telemetryValid":`
	for _, tt := range []struct {
		name     string
		host     hardware.Host
		adapters []adapter
		load     hardware.Load
		want     string
	}{
		{"nothing", hardware.Host{}, nil, hardware.Load{CPUPct: 5, MemoryUsed: 5},
			`{"GPUs":[],"telemetryValid":false,"msSince":0}`},
		{"processor alone", hardware.Host{CPU: "C"}, nil, hardware.Load{CPUPct: 5, MemoryUsed: 5},
			`{"GPUs":[],"cpu":{"name":"C","utilization_percent":5},"telemetryValid":false,"msSince":0}`},
		{"cores alone", hardware.Host{Cores: 2}, nil, hardware.Load{},
			`{"GPUs":[],"cpu":{"cores":2},"telemetryValid":false,"msSince":0}`},
		{"memory alone", hardware.Host{MemoryTotal: 16}, nil, hardware.Load{CPUPct: 5, MemoryUsed: 5},
			`{"GPUs":[],"memory":{"total_bytes":16,"used_bytes":5},"telemetryValid":false,"msSince":0}`},
		{"both", host, nil, hardware.Load{}, `{"GPUs":[]` + machine + `false,"msSince":0}`},
		{"adapter without a sample", host, []adapter{{Key: "a", Name: "A", Total: 9}}, hardware.Load{},
			`{"GPUs":[{"name":"A","vram_bytes":9}]` + machine + `false,"msSince":0}`},
		{"adapter without a name", host, []adapter{{}}, hardware.Load{},
			`{"GPUs":[{"name":"Unknown"}]` + machine + `false,"msSince":0}`},
		{"adapters and samples by key", host, []adapter{{Key: "a", Name: "A"}, {Key: "b", Name: "B"}, {Name: "C"}},
			hardware.Load{GPUs: readings{"b": {Used: 3, UsePct: 7, UseKnown: true}, "": {UsePct: 1}, "x": {UsePct: 2}}},
			`{"GPUs":[{"name":"A"},{"name":"B","vram_used_bytes":3,"utilization_percent":7},{"name":"C"}]` + machine + `true,"msSince":0}`},
		{"idle is a reading", host, []adapter{{Key: "a", Name: "A"}}, hardware.Load{GPUs: readings{"a": {UseKnown: true}}},
			`{"GPUs":[{"name":"A"}]` + machine + `true,"msSince":0}`},
		{"partial figures", host, []adapter{{Key: "a", Name: "A"}}, hardware.Load{GPUs: readings{"a": {Used: 3}}},
			`{"GPUs":[{"name":"A","vram_used_bytes":3}]` + machine + `false,"msSince":0}`},
		{"unified memory, no sample", hardware.Host{MemoryTotal: 16}, []adapter{{Key: "a", Name: "A", Unified: true}},
			hardware.Load{MemoryUsed: 5},
			`{"GPUs":[{"name":"A","vram_bytes":16,"vram_used_bytes":5}],"memory":{"total_bytes":16,"used_bytes":5},"telemetryValid":false,"msSince":0}`},
		{"unified memory, a sample gives the use alone", hardware.Host{MemoryTotal: 16}, []adapter{{Key: "a", Name: "A", Unified: true, Total: 2}},
			hardware.Load{MemoryUsed: 5, GPUs: readings{"a": {Used: 9, UsePct: 50, UseKnown: true}}},
			`{"GPUs":[{"name":"A","vram_bytes":16,"vram_used_bytes":5,"utilization_percent":50}],"memory":{"total_bytes":16,"used_bytes":5},"telemetryValid":true,"msSince":0}`},
		{"found later", hardware.Host{}, []adapter{{Key: "a"}, {Key: "b", Name: "B", Total: 1}},
			hardware.Load{Found: []adapter{{Key: "a", Name: "A", Total: 2}, {Key: "b", Name: "x", Total: 9}, {Name: "no key"}, {Key: "c", Name: "C"}}},
			`{"GPUs":[{"name":"A","vram_bytes":2},{"name":"B","vram_bytes":1},{"name":"C"}],"telemetryValid":false,"msSince":0}`},
	} {
		i := &inventory{host: tt.host}
		i.detected(tt.adapters)
		i.sampled(tt.load, time.Now().Add(time.Minute)) // in the future: 0 (NI-14)
		if got := answerOf(t, i); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// TestAnUnusablePassKeepsFiguresAndTime: see NI-13.
func TestAnUnusablePassKeepsFiguresAndTime(t *testing.T) {
	i := &inventory{}
	i.detected([]adapter{{Key: "a", Name: "A"}})
	began := time.Now()
	for _, tt := range []struct {
		after time.Duration
		gpus  readings
		pct   uint32
		at    time.Duration
	}{
		{time.Second, readings{"a": {UsePct: 9, UseKnown: true}}, 9, time.Second},
		{2 * time.Second, readings{"a": {Used: 5}}, 9, time.Second},
		{3 * time.Second, nil, 9, time.Second},
		{4 * time.Second, readings{"a": {UseKnown: true}}, 0, 4 * time.Second},
		{5 * time.Second, readings{}, 0, 4 * time.Second},
	} {
		i.sampled(hardware.Load{GPUs: tt.gpus}, began.Add(tt.after))
		v := i.view()
		require.Equal(t, tt.pct, v.gpus[0].UsePct, tt.after)
		require.Zero(t, v.gpus[0].VRAMInUse)
		require.Equal(t, tt.at, v.gpusAt.Sub(began), tt.after)
	}
}

func TestTheAgeOfASampleIsNeverUnderstated(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name string
		at   time.Time
		want time.Duration
	}{
		{"a second ago", now.Add(-time.Second), time.Second},
		{"in the future", now.Add(time.Second), 0},
		{"the machine slept: only the clock of the day went on", now.Add(-time.Hour).Round(0), time.Hour},
	} {
		require.Equal(t, tt.want, (&view{gpusAt: tt.at}).age(now), tt.name)
	}
}

// TestTheOrderOfAdaptersIsStable: see NI-9.
func TestTheOrderOfAdaptersIsStable(t *testing.T) {
	i := &inventory{}
	keys := func() (keys []string) {
		for _, a := range i.adapters {
			keys = append(keys, a.Key+a.Name)
		}
		return keys
	}
	i.detected([]adapter{{Key: "a"}, {Key: "b"}, {Name: "n"}, {Key: "c"}})
	i.detected([]adapter{{Name: "n"}, {Key: "new"}, {Key: "c"}, {Key: "a"}, {Name: "n"}})
	require.Equal(t, []string{"a", "n", "c", "new", "n"}, keys())
	i.detected(nil)
	require.Empty(t, keys())
}

func TestOnlyTheRouteIsServed(t *testing.T) {
	c := newCollector(desk())
	c.prepare(t.Context())
	r := newRoute(nodeID, c)
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1/node-info", 200},
		{"GET", "/v1/node-info?x=1", 200},
		{"HEAD", "/v1/node-info", 200},
		{"POST", "/v1/node-info", 200},
		{"OPTIONS", "/v1/node-info", 200},
		{"BREW", "/v1/node-info", 200},
		{"GET", "/v1/node-info/", 404},
		{"GET", "//v1/node-info", 404},
		{"GET", "/v1/x/../node-info", 404},
		{"GET", "/V1/node-info", 404},
		{"GET", "/", 404},
		{"OPTIONS", "*", 404},
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		require.Equal(t, tt.status, w.Code, tt)
		if tt.status == 200 {
			require.Equal(t, http.Header{"Content-Type": {"application/json"}, "Content-Length": w.Header()["Content-Length"]}, w.Header())
		}
	}
}

// TestTheAnswerHoldsNothingThatNamesAnAdapter: see NI-10.
func TestTheAnswerHoldsNothingThatNamesAnAdapter(t *testing.T) {
	c := newCollector(desk())
	c.prepare(t.Context())
	text := encode(t, newRoute(nodeID, c).info(time.Now()))
	require.NotContains(t, text, "GPU-1")
	var info wire.NodeInfo
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&info))
	require.Equal(t, nodeID, info.HostUUID)
	require.Nil(t, info.ClusterUUID)
	require.Nil(t, info.Services)
}

// BenchmarkRoute shows what one request costs, without the network.
func BenchmarkRoute(b *testing.B) {
	c := newCollector(desk())
	c.prepare(b.Context())
	r := newRoute(nodeID, c)
	req := httptest.NewRequest("GET", wire.Path, nil)
	b.ReportAllocs()
	for b.Loop() {
		r.ServeHTTP(httptest.NewRecorder(), req)
	}
}
