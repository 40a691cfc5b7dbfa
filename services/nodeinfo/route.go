// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"nvpair/internal/clustertrust"
	"nvpair/services/nodeinfo/hardware"
	wire "nvpair/shared/nodeinfo"
)

// view is what a request is answered from. It does not change once published.
type view struct {
	gpus   []wire.GPU
	cpu    *wire.CPU
	memory *wire.Memory
	gpusAt time.Time // of the readings of the GPUs; zero if there was no usable pass
}

// view makes one of the newest state.
func (i *inventory) view() *view {
	v := &view{gpus: make([]wire.GPU, 0, len(i.adapters)), gpusAt: i.gpusAt}
	for _, a := range i.adapters {
		v.gpus = append(v.gpus, i.gpu(a))
	}
	if h := i.host; h.CPU != "" || h.Cores > 0 {
		v.cpu = &wire.CPU{Name: h.CPU, Cores: h.Cores, UsePct: i.load.CPUPct}
	}
	if i.host.MemoryTotal > 0 {
		v.memory = &wire.Memory{Total: i.host.MemoryTotal, InUse: i.load.MemoryUsed}
	}
	return v
}

// gpu joins an adapter with its reading. An adapter with unified memory has the
// machine's, whatever a reading says (NI-15).
func (i *inventory) gpu(a hardware.Adapter) wire.GPU {
	var r hardware.Reading
	if a.Key != "" {
		r = i.gpus[a.Key]
	}
	g := wire.GPU{Name: a.Name, VRAM: a.Total, VRAMInUse: r.Used, UsePct: r.UsePct}
	if a.Unified {
		g.VRAM, g.VRAMInUse = i.host.MemoryTotal, i.load.MemoryUsed
	}
	if g.Name == "" {
		g.Name = "Unknown"
	}
	return g
}

// age is how old the readings of the GPUs are. It is the longer one of what the
// clock of the day and that of the process say: the first sees that the machine
// slept, the second that the first was set back.
func (v *view) age(now time.Time) time.Duration {
	return max(now.Sub(v.gpusAt), now.Round(0).Sub(v.gpusAt.Round(0)), 0)
}

// route answers GET /v1/node-info.
type route struct {
	hostUUID  string
	collector *collector
	trust     *clustertrust.View             // where membership is read, if not nil; else the link tells it (NI-17)
	cluster   atomic.Pointer[string]         // nil is unknown; written by the link's loop
	services  atomic.Pointer[map[string]int] // nil is unknown; written by the link's loop
}

func newRoute(hostUUID string, c *collector) *route { return &route{hostUUID: hostUUID, collector: c} }

// ServeHTTP answers any method; the route never fails (NI-6).
func (r *route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != wire.Path {
		http.NotFound(w, req)
		return
	}
	r.collector.asked()
	body, err := json.Marshal(r.info(time.Now()))
	if err != nil {
		panic("encode node info: " + err.Error()) // our own type always encodes
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // who went away cannot be told
}

func (r *route) info(now time.Time) wire.NodeInfo {
	v := r.collector.newest()
	info := wire.NodeInfo{
		GPUs: v.gpus, CPU: v.cpu, Memory: v.memory,
		HostUUID: r.hostUUID, ClusterUUID: r.cluster.Load(),
	}
	if r.trust != nil {
		self := r.trust.State().Self()
		info.ClusterUUID = &self
	}
	if info.GPUs == nil {
		info.GPUs = []wire.GPU{}
	}
	if !v.gpusAt.IsZero() {
		info.TelemetryValid, info.AgeMillis = true, v.age(now).Milliseconds()
	}
	if services := r.services.Load(); services != nil {
		info.Services = *services
	}
	return info
}
