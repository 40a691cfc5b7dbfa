// SPDX-License-Identifier: Apache-2.0

package nodesettings

import (
	"encoding/json"
	"log/slog"

	"nvpair/internal/jsonrpc"
	wire "nvpair/shared/nodesettings"
)

// settings is the content of the file. The two strings are stored byte for byte
// and never logged.
type settings struct {
	ForcePorts          bool   `json:"force_ports"`
	ClusterAutoSync     bool   `json:"cluster_auto_sync"`
	ClusterID           string `json:"cluster_id"` // empty: not in a cluster
	ClusterFriendlyName string `json:"cluster_friendly_name"`
}

func defaults() settings { return settings{ForcePorts: true} }

// member returns a pointer to the member that a getter or setter is about, nil
// for any other method, and whether the method sets it.
func (s *settings) member(method string) (member any, sets bool) {
	switch method {
	case wire.GetForcePorts, wire.SetForcePorts:
		return &s.ForcePorts, method == wire.SetForcePorts
	case wire.GetClusterAutoSync, wire.SetClusterAutoSync:
		return &s.ClusterAutoSync, method == wire.SetClusterAutoSync
	case wire.GetClusterID, wire.SetClusterID:
		return &s.ClusterID, method == wire.SetClusterID
	case wire.GetClusterFriendlyName, wire.SetClusterFriendlyName:
		return &s.ClusterFriendlyName, method == wire.SetClusterFriendlyName
	}
	return nil, false
}

// attrs is what a log may show of the settings: of the strings only whether
// they are there.
func (s settings) attrs() []slog.Attr {
	return []slog.Attr{
		slog.Bool("force_ports", s.ForcePorts),
		slog.Bool("cluster_auto_sync", s.ClusterAutoSync),
		slog.Bool("has_cluster_id", s.ClusterID != ""),
		slog.Bool("has_cluster_friendly_name", s.ClusterFriendlyName != ""),
	}
}

// LogValue keeps the strings out of a log that is given the whole struct.
func (s settings) LogValue() slog.Value { return slog.GroupValue(s.attrs()...) }

// value is the result of a getter and the payload of the auto-sync push.
type value struct {
	Value any `json:"value"` // a bool or a string
}

// ok is the result of a setter.
type ok struct {
	OK bool `json:"ok"`
}

// identity is the payload of the cluster-identity push. Consumers derive
// membership from a non-empty id (ST-13).
type identity struct {
	ID string `json:"id"`
}

// decodeValue reads a setter's params into the member. Its errors are the same
// whichever setter the params reach (ST-9), and show none of the value.
func decodeValue(params json.RawMessage, member any) error {
	var p map[string]json.RawMessage // unlike a struct, exact about the key's case
	if err := json.Unmarshal(params, &p); err != nil {
		return jsonrpc.InvalidParams("not an object")
	}
	v := p["value"]
	if v == nil || string(v) == "null" {
		return jsonrpc.InvalidParams(`"value" is required`)
	}
	if err := json.Unmarshal(v, member); err != nil {
		return jsonrpc.InvalidParams(`"value" has the wrong type`)
	}
	return nil
}
