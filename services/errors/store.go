// SPDX-License-Identifier: Apache-2.0

package errors

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/serviceerror"
)

// Bounds of the list besides serviceerror.MaxEntries (DEC-116).
const (
	// maxListBytes bounds the encoded list so that errors:update fits a frame
	// of 4 MiB, the least that a client must take; the rest is its envelope.
	maxListBytes = 4<<20 - 1<<10
	// maxEntryBytes keeps one entry from taking the place of many.
	maxEntryBytes = 64 << 10
)

var (
	errNoParams = errors.New("none given")
	errTooLarge = fmt.Errorf("the entry is larger than %d bytes", maxEntryBytes)
)

// key is what makes an entry the same (ER-20).
type key struct{ id, nodeID string }

func (k key) compare(o key) int {
	return cmp.Or(strings.Compare(k.id, o.id), strings.Compare(k.nodeID, o.nodeID)) // ER-30
}

// entry is a stored error: its place in the list and its encoding, which is made
// once, for the list is sent after every change.
type entry struct {
	key
	timestamp int64 // Unix milliseconds
	rank      int   // of the severity
	encoded   json.RawMessage
}

// compareWorth orders entries by which is given up first: the lower severity,
// then the older.
func (e entry) compareWorth(o entry) int {
	return cmp.Or(cmp.Compare(e.rank, o.rank), cmp.Compare(e.timestamp, o.timestamp))
}

// severityRank orders severities only to choose what a full list gives up. The
// set is open (ER-10); what is not known ranks above mere information.
func severityRank(severity string) int {
	switch severity {
	case serviceerror.SeverityInfo:
		return 0
	case serviceerror.SeverityWarning:
		return 2
	case serviceerror.SeverityError:
		return 3
	}
	return 1
}

// decode reads params. Unknown members are dropped; a wrong type is an error.
func decode(params json.RawMessage, into any) error {
	if len(params) == 0 {
		return errNoParams
	}
	return json.Unmarshal(params, into)
}

// parseEntry makes an entry of the params of a report. The error says what is
// wrong with them.
func parseEntry(params json.RawMessage) (entry, error) {
	var reported serviceerror.ServiceError
	if err := decode(params, &reported); err != nil {
		return entry{}, err
	}
	if err := reported.Validate(); err != nil {
		return entry{}, err
	}
	encoded, err := jsonrpc.Marshal(reported)
	if err != nil {
		return entry{}, err
	}
	if len(encoded) > maxEntryBytes {
		return entry{}, errTooLarge
	}
	return entry{
		key:       key{reported.ID, reported.NodeID},
		timestamp: reported.TimestampMillis,
		rank:      severityRank(reported.Severity),
		encoded:   encoded,
	}, nil
}

// store is the list of errors.
type store struct {
	mu      sync.Mutex // guards the rest; only memory is touched under it
	entries []entry    // sorted by key, each key once
	bytes   int        // of the encodings, with a separator each
}

func newStore() *store { return &store{} }

// put stores an entry unless the stored one is newer, then gives up the least
// worthy ones, which may be the new one, until the bounds hold. changed reports
// whether the list is another one than before.
func (s *store) put(e entry) (changed bool, evicted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.findLocked(e.key)
	switch {
	case found && s.entries[i].timestamp > e.timestamp:
		return false, 0
	case found: // also for an equal time: a report again refreshes the text (ER-21)
		s.bytes += len(e.encoded) - len(s.entries[i].encoded)
		s.entries[i] = e
	default:
		s.bytes += len(e.encoded) + 1
		s.entries = slices.Insert(s.entries, i, e)
	}
	kept := true
	for len(s.entries) > serviceerror.MaxEntries || s.bytes+1 > maxListBytes {
		victim := s.leastLocked()
		kept = kept && s.entries[victim].key != e.key
		s.deleteLocked(victim)
		evicted++
	}
	onlyTheNewOne := !kept && !found && evicted == 1
	return !onlyTheNewOne, evicted
}

// remove deletes an entry and reports whether it was there.
func (s *store) remove(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.findLocked(k)
	if found {
		s.deleteLocked(i)
	}
	return found
}

// list returns the whole list as a JSON array in memory of its own.
func (s *store) list() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := make([]byte, 0, s.bytes+2)
	b = append(b, '[')
	for i, e := range s.entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e.encoded...)
	}
	return append(b, ']')
}

func (s *store) findLocked(k key) (i int, found bool) {
	return slices.BinarySearchFunc(s.entries, k, func(e entry, k key) int { return e.compare(k) })
}

// leastLocked returns the entry to give up; of equally worthy ones the first.
func (s *store) leastLocked() int {
	least := 0
	for i, e := range s.entries {
		if e.compareWorth(s.entries[least]) < 0 {
			least = i
		}
	}
	return least
}

func (s *store) deleteLocked(i int) {
	s.bytes -= len(s.entries[i].encoded) + 1
	s.entries = slices.Delete(s.entries, i, i+1)
}
