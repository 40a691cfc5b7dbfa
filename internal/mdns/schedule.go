// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// Times of RFC 6762.
const (
	oneSecond     = time.Second            // between two multicasts of a record on a link (section 6)
	probeSpacing  = 250 * time.Millisecond // the same where the second answers a probe
	minDelay      = 20 * time.Millisecond  // of an answer that others may give as well
	maxDelay      = 120 * time.Millisecond
	minDelayKnown = 400 * time.Millisecond // the same if more known answers are to come (section 7.2)
	maxDelayKnown = 500 * time.Millisecond
	askedFor      = 2 * time.Second // how long another host's question stands for one of ours (section 7.3)
)

// between returns a random duration.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// recordKey stands for a record in the limits of a link. Two services on one host share its addresses' key.
type recordKey struct {
	kind kinds // one
	name string
}

func keyOf(r *records, kind kinds) recordKey {
	switch kind {
	case kindA:
		return recordKey{kind, r.keys[2]}
	case kindType:
		return recordKey{kind, r.keys[1]}
	}
	return recordKey{kind, r.keys[0]}
}

// pending are the records of one service that were asked for on one link.
type pending struct {
	kinds   kinds
	dueAt   time.Time
	spacing time.Duration
	asker   netip.Addr // the only one; zero once there are several
}

// ask adds records to what will be multicast, in delay at the earliest.
func (l *link) ask(e *entry, k kinds, now time.Time, delay, spacing time.Duration, asker netip.Addr) {
	due := now.Add(delay)
	p := l.pending[e]
	if p == nil {
		l.pending[e] = &pending{kinds: k, dueAt: due, spacing: spacing, asker: asker}
		return
	}
	p.kinds |= k
	p.spacing = max(p.spacing, spacing) // a probe shortens nothing but its own answer
	if due.Before(p.dueAt) {
		p.dueAt = due
	}
	if p.asker != asker {
		p.asker = netip.Addr{}
	}
}

// readyAt returns when a pending answer may be sent. It waits for the limits of all
// its records, the additional ones too: a reader resolves each packet by itself.
func (l *link) readyAt(e *entry, p *pending) time.Time {
	if allowed := l.allowedAt(e, p); allowed.After(p.dueAt) {
		return allowed
	}
	return p.dueAt
}

// allowedAt returns when the limits of a pending answer's records permit it.
func (l *link) allowedAt(e *entry, p *pending) time.Time {
	var latest time.Time
	(p.kinds | extra(p.kinds)).each(func(kind kinds) {
		if last, ok := l.lastSent[keyOf(e.records, kind)]; ok && last.Add(p.spacing).After(latest) {
			latest = last.Add(p.spacing)
		}
	})
	return latest
}

// sent notes that records were multicast.
func (l *link) sent(e *entry, k kinds, now time.Time) {
	k.each(func(kind kinds) { l.lastSent[keyOf(e.records, kind)] = now })
}

// satisfied drops records from what is pending, because everybody has them now.
func (l *link) satisfied(e *entry, k kinds) {
	if p := l.pending[e]; p != nil {
		if p.kinds &^= k; p.kinds == 0 {
			delete(l.pending, e)
		}
	}
}

// forget drops all that the link knows of an entry.
func (l *link) forget(e *entry) {
	delete(l.pending, e)
	(kindAll | kindType).each(func(kind kinds) { delete(l.lastSent, keyOf(e.records, kind)) })
}

// forgetQuestions drops what was heard for types that nobody browses any more.
func (l *link) forgetQuestions(browsers []*Browser) {
	for name := range l.heard {
		keep := false
		for _, b := range browsers {
			keep = keep || canonical(b.serviceType) == name
		}
		if !keep {
			delete(l.heard, name)
		}
	}
}

// answerDue multicasts what is ready on a link, and with it what is only waiting for company.
func (r *run) answerDue(l *link, now time.Time) {
	ready := false
	for e, p := range l.pending {
		ready = ready || !l.readyAt(e, p).After(now)
	}
	if !ready {
		return
	}
	var answers []answer
	var entries []*entry
	for _, e := range r.entries { // in their order, for packets that are the same each time
		p := l.pending[e]
		if p == nil || l.allowedAt(e, p).After(now) || p.dueAt.Sub(now) > maxDelay {
			continue
		}
		answers = append(answers, answer{e.records, p.kinds})
		entries = append(entries, e)
	}
	for i, e := range entries { // only now: they may share a record
		delete(l.pending, e)
		l.sent(e, answers[i].kinds|extra(answers[i].kinds), now)
	}
	failed := r.newOutcome()
	addrs := l.addrs()
	for _, group := range split(answers, addrs) {
		failed.add(r.send(l, reply(group, addrs, recordTTL)))
	}
	failed.log()
	r.show(r.links)
}
