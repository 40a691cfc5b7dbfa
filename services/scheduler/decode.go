// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"
)

// maxIDBytes bounds every name that is kept: node, job, engine and run. With it
// a ranking of MaxNodes fits a frame of 1 MiB whatever the names are made of.
const maxIDBytes = 128

var (
	errNotList     = errors.New("not a list of objects")
	errNotObject   = errors.New("not an object")
	errLongID      = fmt.Errorf("longer than %d bytes", maxIDBytes)
	errNotString   = errors.New("not a string")
	errNotBool     = errors.New("not a boolean")
	errNotNumber   = errors.New("not a number")
	errMissing     = errors.New("missing")
	errSkippedNode = fmt.Errorf("a hostUuid is %w, its node is skipped", errLongID)
)

// memberError says which member is wrong.
func memberError(name string, err error) error { return fmt.Errorf("%s: %w", name, err) }

// text reads a string; null is the empty one.
func text(v gjson.Result) (string, error) {
	switch {
	case v.Type == gjson.Null:
		return "", nil
	case v.Type != gjson.String:
		return "", errNotString
	case len(v.Str) > maxIDBytes:
		return "", errLongID
	}
	return v.Str, nil
}

// members calls set for every member of an object until one is wrong. Of
// repeated ones the last counts, as each is set again.
func members(object gjson.Result, set func(name string, v gjson.Result) error) error {
	if !object.IsObject() {
		return errNotObject
	}
	var err error
	object.ForEach(func(key, value gjson.Result) bool {
		if wrong := set(key.Str, value); wrong != nil {
			err = memberError(key.Str, wrong)
		}
		return err == nil
	})
	return err
}

// decodeJob reads the few members of a workloadInfo that matter here. Their
// strings are parts of the frame.
func decodeJob(params json.RawMessage) (job, error) {
	var j job
	err := members(gjson.GetBytes(params, "workloadInfo"), func(name string, v gjson.Result) (err error) {
		switch name {
		case "id":
			j.id, err = text(v)
		case "engine":
			j.engine, err = text(v)
		case "runId":
			j.runID, err = text(v)
		case "originatedFrom":
			j.origin, err = text(v)
		case "state":
			j.state, err = text(v)
		case "scheduledOn":
			j.node, err = text(v)
		}
		return err
	})
	if err != nil {
		return job{}, memberError("workloadInfo", err)
	}
	return j, j.incomplete()
}

// incomplete says which required member a job lacks.
func (j job) incomplete() error {
	switch "" {
	case j.id:
		return memberError("id", errMissing)
	case j.engine:
		return memberError("engine", errMissing)
	case j.origin:
		return memberError("originatedFrom", errMissing)
	case j.state:
		return memberError("state", errMissing)
	}
	return nil
}

// decodeRemoval reads the params of workloads:remove.
func decodeRemoval(params json.RawMessage) (jobRef, error) {
	var ref jobRef
	err := members(gjson.ParseBytes(params), func(name string, v gjson.Result) (err error) {
		switch name {
		case "workloadId":
			ref.id, err = text(v)
		case "originatedFrom":
			ref.origin, err = text(v)
		}
		return err
	})
	if err == nil && ref.id == "" {
		err = memberError("workloadId", errMissing)
	}
	return ref, err
}

// decodeSample reads the params of scheduler:telemetry. A sample without a
// number is as good as none: it must not look like an idle GPU.
func decodeSample(params json.RawMessage) (sample, error) {
	var s sample
	measured := false
	err := members(gjson.ParseBytes(params), func(name string, v gjson.Result) (err error) {
		switch name {
		case "hostUuid":
			s.node, err = text(v)
		case "gpuUtilizationPercent":
			measured = v.Type == gjson.Number
			s.percent, err = number(v)
		case "telemetryValid":
			s.valid = v.Type == gjson.True
			if !v.IsBool() && v.Type != gjson.Null {
				err = errNotBool
			}
		case "msSince":
			var ms float64
			ms, err = number(v)
			s.age = ageOf(ms)
		}
		return err
	})
	if err == nil && s.node == "" {
		err = memberError("hostUuid", errMissing)
	}
	s.valid = s.valid && measured
	return s, err
}

// number reads a number; null is 0.
func number(v gjson.Result) (float64, error) {
	if v.Type != gjson.Number && v.Type != gjson.Null {
		return 0, errNotNumber
	}
	return v.Num, nil
}

// ageOf bounds an age on the wire. Beyond maxSampleAge all are the same.
func ageOf(ms float64) time.Duration {
	const most = float64(2 * maxSampleAge / time.Millisecond)
	return time.Duration(min(max(ms, 0), most) * float64(time.Millisecond))
}

// decodeNodes reads the host uuids of a node list. Nodes without one are left
// out (JS-13), and one that is too long takes only its own node along: ids are
// valid with errSkippedNode.
func decodeNodes(params json.RawMessage) (ids []string, err error) {
	list := gjson.ParseBytes(params)
	if !list.IsArray() {
		return nil, errNotList
	}
	var skipped error
	list.ForEach(func(_, item gjson.Result) bool {
		if !item.IsObject() {
			err = errNotList
			return false
		}
		id, wrong := text(item.Get("hostUuid"))
		switch {
		case errors.Is(wrong, errLongID):
			skipped = errSkippedNode
		case wrong != nil:
			err = memberError("hostUuid", wrong)
		case id != "":
			ids = append(ids, id)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	return ids, skipped
}
