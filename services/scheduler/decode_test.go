// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/schedule"
	"nvpair/shared/workload"
)

// unusable are params that must change nothing.
var unusable = []struct{ method, params, why string }{
	{"discovery:nodes-changed", `null`, "not a list of objects"},
	{"discovery:nodes-changed", `{"nodes":[]}`, "not a list of objects"},
	{"discovery:nodes-changed", `"a"`, "not a list of objects"},
	{"discovery:nodes-changed", `["a"]`, "not a list of objects"},
	{"discovery:nodes-changed", `[{"hostUuid":"c"},null]`, "not a list of objects"},
	{"discovery:nodes-changed", `[{"hostUuid":"c"},{"hostUuid":7}]`, "hostUuid: not a string"},
	{"workloads:upsert", `null`, "workloadInfo: not an object"},
	{"workloads:upsert", `{}`, "workloadInfo: not an object"},
	{"workloads:upsert", `{"workloadInfo":[]}`, "workloadInfo: not an object"},
	{"workloads:upsert", upsert(`"id":"","engine":"e","state":"queued","originatedFrom":"a"`), "id: missing"},
	{"workloads:upsert", upsert(`"id":"1","state":"queued","originatedFrom":"a"`), "engine: missing"},
	{"workloads:upsert", upsert(`"id":"1","engine":"e","state":null,"originatedFrom":"a"`), "state: missing"},
	{"workloads:upsert", upsert(`"id":"1","engine":"e","state":"queued"`), "originatedFrom: missing"},
	{"workloads:upsert", upsert(`"id":1,"engine":"e","state":"queued","originatedFrom":"a"`), "workloadInfo: id: not a string"},
	{"workloads:upsert", upsert(`"id":"1","engine":"e","state":"queued","originatedFrom":"a","scheduledOn":{}`),
		"workloadInfo: scheduledOn: not a string"},
	{"workloads:upsert", upsert(`"id":"1","engine":"e","state":"queued","originatedFrom":"a","runId":"` + long + `"`),
		"workloadInfo: runId: longer than 128 bytes"},
	{"workloads:remove", `{}`, "workloadId: missing"},
	{"workloads:remove", `[]`, "not an object"},
	{"workloads:remove", `{"workloadId":1,"originatedFrom":"a"}`, "workloadId: not a string"},
	{"scheduler:telemetry", `[]`, "not an object"},
	{"scheduler:telemetry", `{"gpuUtilizationPercent":0,"telemetryValid":true}`, "hostUuid: missing"},
	{"scheduler:telemetry", `{"hostUuid":"a","gpuUtilizationPercent":"0","telemetryValid":true}`,
		"gpuUtilizationPercent: not a number"},
	{"scheduler:telemetry", `{"hostUuid":"a","gpuUtilizationPercent":0,"telemetryValid":1}`, "telemetryValid: not a boolean"},
	{"scheduler:telemetry", `{"hostUuid":"a","gpuUtilizationPercent":0,"telemetryValid":true,"msSince":[]}`,
		"msSince: not a number"},
}

const long = "0123456789012345678901234567890123456789012345678901234567890123456789" +
	"0123456789012345678901234567890123456789012345678901234567x"

func upsert(members string) string {
	return `{"workloadInfo":{` + members + `}}`
}

// decodeAny decodes params as the handler does.
func decodeAny(method, params string) (decoded any, err error) {
	switch raw := json.RawMessage(params); method {
	case workload.MethodUpsert:
		return decodeJob(raw)
	case workload.MethodRemove:
		return decodeRemoval(raw)
	case schedule.NotifyTelemetry:
		return decodeSample(raw)
	default:
		return decodeNodes(raw)
	}
}

func TestUnusableParamsSayWhy(t *testing.T) {
	for _, bad := range unusable {
		_, err := decodeAny(bad.method, bad.params)
		require.EqualError(t, err, bad.why, bad.params)
	}
	for _, method := range []string{workload.MethodUpsert, workload.MethodRemove, schedule.NotifyTelemetry, "nodes"} {
		_, err := decodeAny(method, "")
		require.Error(t, err, method)
	}
}

func TestUsableParams(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		want           any
	}{
		{workload.MethodUpsert, `{"more":1,"workloadInfo":{"id":"1","engine":"e","originatedFrom":"o","state":"queued","seq":"odd"}}`,
			job{id: "1", engine: "e", origin: "o", state: "queued"}},
		{workload.MethodUpsert, `{"workloadInfo":{"id":"0","id":"\u00fc\"","engine":"e","originatedFrom":"o","state":"x","runId":"r","scheduledOn":"n"}}`,
			job{id: `ü"`, engine: "e", origin: "o", state: "x", runID: "r", node: "n"}},
		{workload.MethodUpsert, `{"workloadInfo":{"id":"1","engine":"e","originatedFrom":"o","state":"x","scheduledOn":null}}`,
			job{id: "1", engine: "e", origin: "o", state: "x"}},
		{workload.MethodUpsert, `{"workloadInfo":{"id":"` + long[1:] + `","engine":"e","originatedFrom":"o","state":"x"}}`,
			job{id: long[1:], engine: "e", origin: "o", state: "x"}},
		{workload.MethodRemove, `{"workloadId":"1","originatedFrom":"o","more":{}}`, jobRef{"o", "1"}},
		{schedule.NotifyTelemetry, `{"hostUuid":"a","gpuUtilizationPercent":50,"telemetryValid":true,"msSince":3000}`,
			sample{"a", 50, true, 3 * time.Second}},
		{schedule.NotifyTelemetry, `{"hostUuid":"a","gpuUtilizationPercent":12.5,"telemetryValid":true,"msSince":-1}`,
			sample{"a", 12.5, true, 0}},
		{schedule.NotifyTelemetry, `{"hostUuid":"a","telemetryValid":false}`, sample{node: "a"}},
		{schedule.NotifyTelemetry, `{"hostUuid":"a"}`, sample{node: "a"}},
		{schedule.NotifyTelemetry, `{"hostUuid":"a","telemetryValid":true}`, sample{node: "a"}}, // no number: not idle
		{schedule.NotifyTelemetry, `{"hostUuid":"a","gpuUtilizationPercent":null,"telemetryValid":true}`, sample{node: "a"}},
		{schedule.NotifyTelemetry, `{"hostUuid":"a","gpuUtilizationPercent":1,"telemetryValid":true,"msSince":1e999}`,
			sample{"a", 1, true, 2 * maxSampleAge}},
		{"nodes", `[]`, []string(nil)},
		{"nodes", `[{"id":"x","name":"y"},{"hostUuid":""},{"hostUuid":null},{"hostUuid":"b","id":1},{"hostUuid":"a"}]`,
			[]string{"b", "a"}}, // JS-13
	} {
		got, err := decodeAny(tt.method, tt.params)
		require.NoError(t, err, tt.params)
		require.Equal(t, tt.want, got, tt.params)
	}
}

func TestNodeWithTooLongAnIDTakesOnlyItselfAlong(t *testing.T) {
	ids, err := decodeNodes(json.RawMessage(`[{"hostUuid":"` + long + `"},{"hostUuid":"a"}]`))
	require.ErrorIs(t, err, errSkippedNode)
	require.Equal(t, []string{"a"}, ids)

	bubble(t, time.Hour, func(c *client) {
		c.list("b", long, "a")
		require.Equal(t, "a 0/1, b 0/1", c.out())
		c.Quiet()
		require.NoError(t, c.Stop())
		require.Contains(t, c.Log.String(), "WARN bound reached")
	})
}

// FuzzInputs applies whatever decodes: the view stays consistent and within its
// bounds, and no name of more than maxIDBytes gets in.
func FuzzInputs(f *testing.F) {
	for _, bad := range unusable {
		f.Add(bad.method, bad.params)
	}
	f.Add(workload.MethodUpsert, `{"workloadInfo":{"id":"1","engine":"e","originatedFrom":"o","state":"queued","scheduledOn":"n"}}`)
	f.Add(schedule.NotifyTelemetry, `{"hostUuid":"n","gpuUtilizationPercent":5e3,"telemetryValid":true,"msSince":1}`)
	f.Add("nodes", `[{"hostUuid":"n"},{"hostUuid":"\ud800"}]`)
	v := newView()
	f.Fuzz(func(t *testing.T, method, params string) {
		if !json.Valid([]byte(params)) || strings.Contains(params, "\n") {
			return // a link lets only valid lines through
		}
		decoded, err := decodeAny(method, params)
		now := time.Now()
		switch d := decoded.(type) {
		case job:
			if err == nil {
				_, _ = v.upsert(d)
			}
		case jobRef:
			if err == nil {
				v.remove(d)
			}
		case sample:
			if err == nil {
				_, _ = v.take(d, now)
			}
		case []string:
			_, _ = v.setNodes(d, now)
		}
		for _, r := range v.rank(now) {
			if r.ID == "" || len(r.ID) > maxIDBytes || r.GPUPressure < 0 || r.GPUPressure > 3 || r.Pending < 0 {
				t.Fatalf("ranked %+v", r)
			}
		}
		requireConsistent(t, &v)
	})
}
