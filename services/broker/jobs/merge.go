// SPDX-License-Identifier: Apache-2.0

package jobs

// replaces reports whether an event takes the place of the record with its key.
// It is the merge of broker section 9, rules 3 to 7, of which the first that
// matches decides.
func replaces(cur *record, in *Event) bool {
	bothCount := cur.seq > 0 && in.seq > 0
	switch {
	case in.createdAt != cur.createdAt: // another generation (CT-11)
		return in.createdAt > cur.createdAt
	case cur.inferred && !in.inferred: // a guess keeps the seq of what it was made from (CT-12)
		return !bothCount || in.seq >= cur.seq
	case in.inferred && !cur.inferred:
		return !cur.terminal()
	case bothCount && !in.inferred: // both authoritative (CT-13)
		return !cur.terminal() && in.seq > cur.seq
	case in.rank != cur.rank: // CT-14
		return in.rank > cur.rank
	}
	return in.scheduledOn != cur.scheduledOn
}
