// SPDX-License-Identifier: Apache-2.0

package errors

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/serviceerror"
)

// newEntry returns an entry of node n-1; pad makes it longer.
func newEntry(t *testing.T, id, pad, severity string, timestamp int64) entry {
	t.Helper()
	params, err := json.Marshal(serviceerror.ServiceError{
		ID: id, NodeID: "n-1", Message: "m" + pad, Severity: severity, TimestampMillis: timestamp,
	})
	require.NoError(t, err)
	e, err := parseEntry(params)
	require.NoError(t, err)
	return e
}

func ids(s *store) []string {
	var all []string
	for _, e := range s.entries {
		all = append(all, e.id)
	}
	return all
}

// fill makes the store full of entries e000, e001, ... of that severity, each
// newer than the last.
func fill(t *testing.T, s *store, severity string) {
	t.Helper()
	for i := range serviceerror.MaxEntries {
		changed, evicted := s.put(newEntry(t, fmt.Sprintf("e%03d", i), "", severity, int64(1000+i)))
		require.True(t, changed)
		require.Zero(t, evicted)
	}
}

func TestFullListGivesUpTheLeastWorthy(t *testing.T) {
	for _, tt := range []struct {
		name               string
		full, severity     string
		timestamp          int64
		gone               string
		changed, isNewGone bool
	}{
		{"error pushes out the oldest info", "info", "error", 1, "e000", true, false},
		{"unknown pushes out info", "info", "odd", 1, "e000", true, false},
		{"empty pushes out info", "info", "", 1, "e000", true, false},
		{"warning pushes out unknown", "odd", "warning", 1, "e000", true, false},
		{"warning pushes out empty", "", "warning", 1, "e000", true, false},
		{"error pushes out warning", "warning", "error", 1, "e000", true, false},
		{"newer error pushes out the oldest", "error", "error", 9999, "e000", true, false},
		{"older error is not taken", "error", "error", 1, "new", false, true},
		{"warning is not taken among errors", "error", "warning", 9999, "new", false, true},
		{"info is not taken among unknown", "odd", "info", 9999, "new", false, true},
	} {
		s := newStore()
		fill(t, s, tt.full)
		changed, evicted := s.put(newEntry(t, "new", "", tt.severity, tt.timestamp))
		require.Equal(t, tt.changed, changed, tt.name)
		require.Equal(t, 1, evicted, tt.name)
		require.Len(t, s.entries, serviceerror.MaxEntries, tt.name)
		require.NotContains(t, ids(s), tt.gone, tt.name)
		require.Equal(t, tt.isNewGone, !slices.Contains(ids(s), "new"), tt.name)
	}
}

func TestReplacedEntryTakesNoMoreRoom(t *testing.T) {
	s := newStore()
	fill(t, s, "info")
	changed, evicted := s.put(newEntry(t, "e500", "longer", "info", 5000))
	require.True(t, changed)
	require.Zero(t, evicted)
}

func TestEntryThatGrowsUntilItDoesNotFitIsAChange(t *testing.T) {
	s := newStore()
	pad := strings.Repeat("x", maxEntryBytes-300)
	for i := 0; s.bytes+1+maxEntryBytes < maxListBytes; i++ {
		s.put(newEntry(t, fmt.Sprintf("e%03d", i), pad, "error", 10))
	}
	s.put(newEntry(t, "small", "", "info", 10))
	changed, evicted := s.put(newEntry(t, "small", strings.Repeat("x", maxListBytes-s.bytes-100), "info", 11))
	require.True(t, changed)
	require.Zero(t, evicted)
	changed, evicted = s.put(newEntry(t, "small", strings.Repeat("x", maxEntryBytes-300), "info", 12))
	require.True(t, changed, "its older state was in the list")
	require.Equal(t, 1, evicted)
	require.NotContains(t, ids(s), "small")
}

// TestListKeepsItsBoundsAndOrder applies random changes, enough to reach both
// bounds.
func TestListKeepsItsBoundsAndOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := newStore()
	longest, most := 0, 0
	for i := range 3000 {
		pad := 100
		if i > 1500 {
			pad = 16_000
		}
		id := fmt.Sprint(r.IntN(1500))
		if r.IntN(10) == 0 {
			s.remove(key{id, "n-1"})
			continue
		}
		severity := []string{"info", "", "warning", "error"}[r.IntN(4)]
		before := slices.Clone(s.entries)
		changed, _ := s.put(newEntry(t, id, strings.Repeat("x", r.IntN(pad)), severity, r.Int64N(50)))
		same := slices.EqualFunc(before, s.entries, func(a, b entry) bool { return &a.encoded[0] == &b.encoded[0] })
		require.NotEqual(t, same, changed)
		longest, most = max(longest, s.bytes+1), max(most, len(s.entries))
	}
	require.LessOrEqual(t, longest, maxListBytes)
	require.Greater(t, longest, maxListBytes-16_000)
	require.Equal(t, serviceerror.MaxEntries, most)

	list := s.list()
	require.Equal(t, s.bytes+1, len(list))
	var decoded []serviceerror.ServiceError
	require.NoError(t, json.Unmarshal(list, &decoded))
	require.Len(t, decoded, len(s.entries))
	require.True(t, slices.IsSortedFunc(decoded, func(a, b serviceerror.ServiceError) int {
		return strings.Compare(a.ID, b.ID)
	}))
}

func TestRemovedEntriesLeaveNothingBehind(t *testing.T) {
	s := newStore()
	require.Equal(t, "[]", string(s.list()))
	s.put(newEntry(t, "a", "", "", 1))
	require.True(t, s.remove(key{"a", "n-1"}))
	require.False(t, s.remove(key{"a", "n-1"}))
	require.Zero(t, s.bytes)
	require.Equal(t, "[]", string(s.list()))
}
