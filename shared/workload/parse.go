// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"errors"
	"fmt"
)

var errNoObject = errors.New("workloadInfo is missing or null")

// Parse reads a workloadInfo object. A member of the wrong type is an error
// (WL-10); unknown members are skipped, and so are those whose names differ from
// a known one only in case, for every other reader of the same bytes skips them
// too. Null counts as absent.
func Parse(raw json.RawMessage) (Info, error) {
	if i, ok := scan(raw); ok {
		return i, nil
	}
	return parse(raw)
}

// parse is Parse for any object.
func parse(raw json.RawMessage) (Info, error) {
	var members map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &members); err != nil {
			return Info{}, fmt.Errorf("workloadInfo: %w", err)
		}
	}
	if members == nil {
		return Info{}, errNoObject
	}
	var i Info
	for name, value := range members {
		if into := i.member(name); into != nil {
			if err := json.Unmarshal(value, into); err != nil {
				return Info{}, fmt.Errorf("workloadInfo.%s: %w", name, err)
			}
		}
	}
	return i, nil
}

// member returns where the member of that name is kept, or nil.
func (i *Info) member(name string) any {
	switch name {
	case "id":
		return &i.ID
	case "model":
		return &i.Model
	case "engine":
		return &i.Engine
	case "runId":
		return &i.RunID
	case "state":
		return &i.State
	case "originatedFrom":
		return &i.OriginatedFrom
	case "scheduledOn":
		return &i.ScheduledOn
	case "createdAt":
		return &i.CreatedMillis
	case "startedAt":
		return &i.StartedMillis
	case "completedAt":
		return &i.CompletedMillis
	case "error":
		return &i.Error
	case "requesterId":
		return &i.RequesterID
	case "seq":
		return &i.Seq
	}
	return nil
}
