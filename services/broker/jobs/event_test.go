// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/workload"
)

func TestOnlyAnObjectWithIdentityIsAnEvent(t *testing.T) {
	for _, in := range []string{
		``, `null`, `[]`, `{}`, `{"id":"1"}`, `{"originatedFrom":"n"}`, `{"id":"","originatedFrom":"n"}`,
		`{"id":1,"originatedFrom":"n"}`, `{"id":"1","originatedFrom":"n","seq":"2"}`,
	} {
		_, err := NewEvent(json.RawMessage(in), FromManager)
		require.Error(t, err, in)
	}
	e := newEvent(t, json.RawMessage(`{"id":"1","originatedFrom":"n"}`), FromManager)
	require.Equal(t, workload.Key{OriginatedFrom: "n", ID: "1"}, e.Change().Key)
	require.False(t, e.Change().Terminal)
}

func TestRecordKeepsWhatNobodyHereKnows(t *testing.T) {
	raw := `{"id":"1", "originatedFrom":"n","later":{"a":[1, 2]},"state":"completed"}`
	frame := json.RawMessage(raw)
	e := newEvent(t, frame, FromManager)
	clear(frame) // the frame's memory is not the record's
	require.Equal(t, raw, string(e.Change().Info))
	require.True(t, e.Change().Terminal)
}

func TestOversizedRecordIsReducedSoThatItsEndIsNotLost(t *testing.T) {
	whole := newEvent(t, job(failure(strings.Repeat("e", maxRecordBytes-400))), FromManager)
	require.Greater(t, len(whole.raw), maxRecordBytes-400)

	long := strings.Repeat("é", maxRecordBytes)
	raw := amend(job(state("failed"), failure(long), seq(3)), replacement{"later", encode(long)}, replacement{"model", encode(long)},
		replacement{"requesterId", encode(long)})
	e := newEvent(t, raw, FromManager)
	require.Less(t, len(e.raw), 8<<10)
	i := info(t, e.raw)
	require.Equal(t, "failed", i.State)
	require.EqualValues(t, 3, i.Seq)
	require.Equal(t, strings.Repeat("é", maxErrorBytes/2)+"…", *i.Error)
	require.Equal(t, strings.Repeat("é", maxTextBytes/2)+"…", i.Model)
	require.NotContains(t, string(e.raw), "later")

	_, err := NewEvent(job(id(long)), FromManager) // an identity cannot be cut
	require.ErrorIs(t, err, errTooLarge)
}

func TestTextIsCutBetweenCharacters(t *testing.T) {
	require.Equal(t, "aé", cut("aé", 3))
	require.Equal(t, "a…", cut("aéb", 2))
	require.Equal(t, "aé…", cut("aéb", 3))
}

func TestStampNamesAnOriginOnlyWhereThereIsNone(t *testing.T) {
	for _, tt := range []struct{ in, stamped string }{
		{`{"workloadInfo":{"id":"1","originatedFrom":"","x":1}}`, `{"workloadInfo":{"id":"1","x":1,"originatedFrom":"self-uuid"}}`},
		{`{"workloadInfo":{"id":"1"},"more":[2]}`, `{"more":[2],"workloadInfo":{"id":"1","originatedFrom":"self-uuid"}}`},
		{`{"workloadInfo":{"id":"1","originatedFrom":null}}`, `{"workloadInfo":{"id":"1","originatedFrom":"self-uuid"}}`},
		{`{"workloadInfo":{"originatedFrom":"p","originatedFrom":"","id":"1"}}`, `{"workloadInfo":{"id":"1","originatedFrom":"self-uuid"}}`},
		{`{"workloadInfo":{"id":"1", "originatedFrom":"p"} }`, `{"workloadInfo":{"id":"1", "originatedFrom":"p"} }`},
		{`{"workloadInfo":{"id":"1","origin\u0061tedFrom":"p"}}`, `{"workloadInfo":{"id":"1","origin\u0061tedFrom":"p"}}`},
	} {
		stamped, info, err := StampEvent(json.RawMessage(tt.in), self)
		require.NoError(t, err, tt.in)
		require.Equal(t, tt.stamped, string(stamped))
		require.Equal(t, string(InfoOf(stamped)), string(info))
	}
	for _, in := range []string{``, `null`, `[]`, `{}`, `{"WorkloadInfo":{"id":"1"}}`, `{"workloadInfo":null}`, `{"workloadInfo":{"id":1}}`} {
		_, _, err := StampEvent(json.RawMessage(in), self)
		require.Error(t, err, in)
	}
}

func TestRemovalNeedsAnIDAlone(t *testing.T) {
	for _, tt := range []struct{ in, node, stamped, origin string }{
		{`{"workloadId":"1"}`, self, `{"workloadId":"1","originatedFrom":"self-uuid"}`, self},
		{`{"workloadId":"1","originatedFrom":"","x":0}`, self, `{"workloadId":"1","x":0,"originatedFrom":"self-uuid"}`, self},
		{`{"workloadId":"1","originatedFrom":"p"}`, self, `{"workloadId":"1","originatedFrom":"p"}`, "p"},
		{`{"workloadId":"1"}`, "", `{"workloadId":"1"}`, ""}, // of the workload manager: not stamped
	} {
		stamped, r, err := ReadRemoval(json.RawMessage(tt.in), tt.node)
		require.NoError(t, err, tt.in)
		require.Equal(t, tt.stamped, string(stamped))
		require.Equal(t, workload.Removal{ID: "1", OriginatedFrom: tt.origin}, r)
	}
	for _, in := range []string{``, `null`, `[]`, `{}`, `{"workloadId":""}`, `{"workloadId":1}`, `{"workloadId":"1","originatedFrom":{}}`} {
		_, _, err := ReadRemoval(json.RawMessage(in), self)
		require.Error(t, err, in)
	}
}
