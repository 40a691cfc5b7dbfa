// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"nvpair/shared/nodeinfo"
)

// serveInfo answers for each member at its address until ctx ends. Each has a graphics card with a new reading each
// second, so that every sample of it is news.
func serveInfo(ctx context.Context, members []member) error {
	byAddr := make(map[netip.Addr]int, len(members))
	for i, m := range members {
		byAddr[m.addr] = i
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp4", fmt.Sprintf(":%d", infoPort))
	if err != nil {
		return err
	}
	began := time.Now()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		i, known := byAddr[local.AddrPort().Addr().Unmap()]
		if !known || r.URL.Path != nodeinfo.Path {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(infoOf(i, members[i].uuid, time.Since(began))) // who went away cannot be told
	})}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(ln); ctx.Err() == nil {
		return err
	}
	return nil
}

// infoOf is what member i tells after that time.
func infoOf(i int, uuid string, up time.Duration) nodeinfo.NodeInfo {
	cluster := ""
	seconds := int(up / time.Second)
	return nodeinfo.NodeInfo{
		GPUs: []nodeinfo.GPU{{Name: "NVIDIA GeForce RTX 4090", VRAM: 24 << 30, VRAMInUse: uint64(i) << 20,
			UsePct: uint32((i + seconds) % 100)}},
		CPU:            &nodeinfo.CPU{Name: "AMD Ryzen 9 7950X 16-Core Processor", Cores: 16, UsePct: uint32((i + seconds) % 100)},
		Memory:         &nodeinfo.Memory{Total: 64 << 30, InUse: uint64(8+i%32) << 30},
		TelemetryValid: true,
		AgeMillis:      (up % time.Second).Milliseconds(),
		HostUUID:       uuid,
		ClusterUUID:    &cluster,
		Services:       map[string]int{"ni": infoPort, "ol": 11434, "er": 14319, "wl": 14320},
	}
}
