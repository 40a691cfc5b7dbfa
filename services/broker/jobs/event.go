// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/workload"
)

// Bounds of one record, and of its texts when it is over the first.
const (
	maxRecordBytes = 64 << 10
	maxErrorBytes  = 4 << 10
	maxTextBytes   = 1 << 10
)

var (
	errNoIdentity = errors.New("workloadInfo has no id or no originatedFrom")
	errTooLarge   = fmt.Errorf("workloadInfo is larger than %d bytes even without what is not known", maxRecordBytes)
)

// Source says who reported an event: FromManager, FromHistory, or a process of
// the proxy.
type Source int

const (
	FromManager Source = 0  // the workload manager: a peer or this node's ingress
	FromHistory Source = -1 // read from disk
)

// FromProxy is the source of what the proxy process of that generation, counted
// from 1, reports.
func FromProxy(generation int) Source { return Source(generation) }

// Event is one report about a job, ready to be merged.
type Event struct {
	fields
	source   Source
	inferred bool // a guess of this node; everything else is authoritative
}

// fields is what merging and replay look at, and the object itself. It does not
// change once made.
type fields struct {
	key         workload.Key
	state       string
	rank        int
	scheduledOn string
	createdAt   int64 // Unix milliseconds
	completedAt int64 // Unix milliseconds; 0 = not told
	seq         int64 // 0 = not told
	raw         json.RawMessage
}

func (f *fields) terminal() bool { return f.rank == workload.RankTerminal }

// Change is what others are told about a job.
type Change struct {
	Key      workload.Key
	Info     json.RawMessage // the whole workloadInfo; not to be written to
	Terminal bool
}

func (f *fields) change() Change {
	return Change{Key: f.key, Info: f.raw, Terminal: f.terminal()}
}

// Change returns what others are told if the event is accepted.
func (e Event) Change() Change { return e.change() }

// NewEvent reads a workloadInfo object, of which it makes a copy. The error says
// why no record can be made of it.
func NewEvent(raw json.RawMessage, source Source) (Event, error) {
	info, err := workload.Parse(raw)
	if err != nil {
		return Event{}, err
	}
	if info.ID == "" || info.OriginatedFrom == "" {
		return Event{}, errNoIdentity
	}
	raw = bytes.Clone(raw) // the rest of its frame need not be kept
	if len(raw) > maxRecordBytes {
		if info, raw, err = reduce(info); err != nil {
			return Event{}, err
		}
	}
	e := Event{source: source, fields: fields{
		key: workload.KeyOf(info), state: info.State, rank: workload.Rank(info.State), scheduledOn: info.ScheduledOn,
		createdAt: info.CreatedMillis, seq: info.Seq, raw: raw,
	}}
	if info.CompletedMillis != nil {
		e.completedAt = max(*info.CompletedMillis, 0)
	}
	return e, nil
}

// reduce makes an oversized record fit: the end of a job must not get lost for
// the length of its error.
func reduce(info workload.Info) (workload.Info, json.RawMessage, error) {
	info.Model = cut(info.Model, maxTextBytes)
	if info.Error != nil {
		*info.Error = cut(*info.Error, maxErrorBytes)
	}
	if info.RequesterID != nil {
		*info.RequesterID = cut(*info.RequesterID, maxTextBytes)
	}
	raw := encode(info)
	if len(raw) > maxRecordBytes {
		return info, nil, errTooLarge
	}
	return info, raw, nil
}

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// StampEvent reads the params of a proxy's workload:* and names node as the
// origin of a job that has none (BR-48). stamped is what goes to peers, info the
// object in it; params that need no stamp are returned as they are.
func StampEvent(params json.RawMessage, node string) (stamped, info json.RawMessage, err error) {
	info, _ = member(params, "workloadInfo")
	i, err := workload.Parse(info)
	if err != nil || i.OriginatedFrom != "" {
		return params, info, err
	}
	info = amend(info, replacement{"originatedFrom", encode(node)})
	return amend(params, replacement{"workloadInfo", info}), info, nil
}

// InfoOf returns the workloadInfo of an upsert's params, nil if there is none.
func InfoOf(params json.RawMessage) json.RawMessage {
	info, _ := member(params, "workloadInfo")
	return info
}

// ReadRemoval reads the params of a removal. With a node, that is named as the
// origin where there is none, and stamped is what goes to peers.
func ReadRemoval(params json.RawMessage, node string) (stamped json.RawMessage, r workload.Removal, err error) {
	for name, into := range map[string]*string{"workloadId": &r.ID, "originatedFrom": &r.OriginatedFrom} {
		if value, ok := member(params, name); ok {
			if err := json.Unmarshal(value, into); err != nil {
				return nil, r, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if r.ID == "" {
		return nil, r, errors.New("no workloadId")
	}
	if r.OriginatedFrom == "" && node != "" {
		r.OriginatedFrom = node
		return amend(params, replacement{"originatedFrom", encode(node)}), r, nil
	}
	return params, r, nil
}

// member returns the value of a member of a valid object; of a repeated one the
// last, as other readers do.
func member(object json.RawMessage, name string) (value json.RawMessage, ok bool) {
	gjson.ParseBytes(object).ForEach(func(k, v gjson.Result) bool {
		if k.Type == gjson.String && k.Str == name {
			value, ok = json.RawMessage(v.Raw), true
		}
		return true
	})
	return value, ok
}

// replacement is a new value of one member.
type replacement struct {
	name  string
	value json.RawMessage
}

// amend returns a copy of a valid object with members replaced, or added where
// it has none. All others stay as they were written.
func amend(object json.RawMessage, by ...replacement) json.RawMessage {
	out := append(make([]byte, 0, len(object)+64*len(by)), '{')
	add := func(name, value string) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	gjson.ParseBytes(object).ForEach(func(k, v gjson.Result) bool {
		if !slices.ContainsFunc(by, func(r replacement) bool { return r.name == k.Str }) {
			add(k.Raw, v.Raw)
		}
		return true
	})
	for _, r := range by {
		add(string(encode(r.name)), string(r.value))
	}
	return append(out, '}')
}

// encode is jsonrpc.Marshal for what always encodes.
func encode(v any) json.RawMessage {
	b, err := jsonrpc.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}
