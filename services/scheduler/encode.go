// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"strconv"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/schedule"
)

// encodePriority returns a schedule.Priority with that ranking. It is what
// encoding/json makes of it, at a fraction of the cost: a large ranking is sent 25
// times a second while jobs come and go.
func encodePriority(engine string, ranks []schedule.NodeRank) json.RawMessage {
	const perNode = len(`"",{"id":"","pending":0000,"gpuPressure":0,"rank":000},`)
	size := 64
	for _, r := range ranks {
		size += perNode + 2*len(r.ID)
	}
	b := make([]byte, 0, size)
	b = append(b, `{"engine":`...)
	b = jsonrpc.AppendString(b, engine)
	b = append(b, `,"nodes":[`...)
	for i, r := range ranks {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonrpc.AppendString(b, r.ID)
	}
	b = append(b, ']')
	for i, r := range ranks {
		if i == 0 {
			b = append(b, `,"ranks":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, `{"id":`...)
		b = jsonrpc.AppendString(b, r.ID)
		b = append(b, `,"pending":`...)
		b = strconv.AppendInt(b, int64(r.Pending), 10)
		b = append(b, `,"gpuPressure":`...)
		b = strconv.AppendInt(b, int64(r.GPUPressure), 10)
		b = append(b, `,"rank":`...)
		b = strconv.AppendInt(b, int64(r.Rank), 10)
		b = append(b, '}')
	}
	if len(ranks) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}
