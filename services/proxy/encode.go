// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strconv"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/facade"
	"nvpair/shared/workload"
)

// What every request sends to the broker is encoded here by hand: it is what
// encoding/json makes of the same types, at a tenth of the cost.

// appendEvent adds a workload.Event.
func appendEvent(b []byte, i *workload.Info) []byte {
	b = appendMember(b, `{"workloadInfo":{"id":`, i.ID)
	b = appendMember(b, `,"model":`, i.Model)
	b = appendMember(b, `,"engine":`, i.Engine)
	if i.RunID != "" {
		b = appendMember(b, `,"runId":`, i.RunID)
	}
	b = appendMember(b, `,"state":`, i.State)
	b = appendMember(b, `,"originatedFrom":`, i.OriginatedFrom)
	if i.ScheduledOn != "" {
		b = appendMember(b, `,"scheduledOn":`, i.ScheduledOn)
	}
	b = strconv.AppendInt(append(b, `,"createdAt":`...), i.CreatedMillis, 10)
	b = appendMillis(append(b, `,"startedAt":`...), i.StartedMillis)
	b = appendMillis(append(b, `,"completedAt":`...), i.CompletedMillis)
	b = appendText(append(b, `,"error":`...), i.Error)
	b = appendText(append(b, `,"requesterId":`...), i.RequesterID)
	if i.Seq != 0 {
		b = strconv.AppendInt(append(b, `,"seq":`...), i.Seq, 10)
	}
	return append(b, `}}`...)
}

// appendStarted adds a facade.RequestStarted.
func appendStarted(b []byte, r *facade.RequestStarted) []byte {
	return append(appendRequest(b, r), '}')
}

func appendRequest(b []byte, r *facade.RequestStarted) []byte {
	b = appendMember(b, `{"id":`, r.ID)
	if r.NodeID != "" {
		b = appendMember(b, `,"node_id":`, r.NodeID)
	}
	b = appendMember(b, `,"method":`, r.Method)
	b = appendMember(b, `,"path":`, r.Path)
	return appendMember(b, `,"target":`, r.Target)
}

// appendEnded adds a facade.RequestEnded.
func appendEnded(b []byte, r *facade.RequestEnded) []byte {
	b = appendRequest(b, &r.RequestStarted)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(r.Status), 10)
	b = strconv.AppendInt(append(b, `,"duration_ms":`...), r.DurationMillis, 10)
	if r.TTFBMillis != nil {
		b = strconv.AppendInt(append(b, `,"ttfb_ms":`...), *r.TTFBMillis, 10)
	}
	if r.Error != "" {
		b = appendMember(b, `,"error":`, r.Error)
	}
	return append(b, '}')
}

func appendMember(b []byte, name, value string) []byte {
	return jsonrpc.AppendString(append(b, name...), value)
}

func appendMillis(b []byte, v *int64) []byte {
	if v == nil {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, *v, 10)
}

func appendText(b []byte, v *string) []byte {
	if v == nil {
		return append(b, "null"...)
	}
	return jsonrpc.AppendString(b, *v)
}
