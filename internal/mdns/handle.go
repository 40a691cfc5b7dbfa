// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
)

const (
	maxAnswered = 128 // questions of one packet that are looked at
	maxLegacy   = 8   // the same of a plain resolver, to which they are repeated
)

// handle takes one packet.
func (r *run) handle(b []byte, from Origin, now time.Time) {
	p, err := parseHeader(b)
	if err != nil || !from.Source.IsValid() {
		return
	}
	l := r.linkOf(from)
	if l == nil {
		return
	}
	if p.response {
		r.handleResponse(&p, l, from)
		return
	}
	r.handleQuery(&p, l, from, now)
}

// linkOf returns the link on which a packet arrived, or nil for one that must be
// ignored: it came from elsewhere (RFC 6762 section 11). What is known to have been
// sent to the group is on the link, whatever its source address.
func (r *run) linkOf(from Origin) *link {
	for _, l := range r.links {
		if from.Interface != 0 && from.Interface != l.Index {
			continue
		}
		if from.Interface != 0 && from.Multicast || l.holds(from.Source.Addr()) {
			return l
		}
	}
	return nil
}

// own reports whether an address is one of this host's.
func (r *run) own(addr netip.Addr) bool {
	return slices.ContainsFunc(r.links, func(l *link) bool { return slices.Contains(l.addrs(), addr) })
}

// handleResponse reports sightings and compares with what we say ourselves.
func (r *run) handleResponse(p *parser, l *link, from Origin) {
	if from.Source.Port() != Port { // RFC 6762 section 6
		return
	}
	if len(r.browsers) == 0 && len(r.entries) == 0 || p.questions(func(question) {}) != nil {
		return
	}
	s, err := p.records()
	if err != nil {
		return
	}
	if !r.own(from.Source.Addr()) {
		r.compare(s, l, from)
	}
	for _, b := range r.browsers {
		for _, sighting := range resolve(s, b.serviceType) {
			sighting.Interface, sighting.Source = l.Index, from.Source.Addr()
			b.report(sighting)
		}
	}
}

// compare looks for another host that uses one of our names (DI-40), and for an
// answer that makes ours superfluous (RFC 6762 section 7.4). That can only be the
// name of a type: a record of an instance may be that of a namesake.
func (r *run) compare(s sections, l *link, from Origin) {
	for _, e := range r.entries {
		for _, list := range [][]dns.RR{s.answers, s.additionals} {
			for _, rr := range list {
				if rr.Header().Ttl >= recordTTL && e.records.is(kindType, rr) {
					l.satisfied(e, kindType)
				}
				if !e.conflict && e.records.conflicts(rr) {
					e.conflict = true
					r.cfg.Log.Info("instance name is used by another host too", "instance", unescape(e.records.instance),
						"addr", from.Source.Addr())
				}
			}
		}
	}
}

// handleQuery answers, or schedules answers to, what is asked about us.
func (r *run) handleQuery(p *parser, l *link, from Origin, now time.Time) {
	var asked []question
	more := 0
	// Whether others heard it too and all answers will be multicast.
	forAll := p.count[1] == 0 && !p.truncated && from.Source.Port() == Port && !from.direct() && !r.own(from.Source.Addr())
	if p.questions(func(q question) {
		if more++; more > maxAnswered {
			return
		}
		if forAll {
			l.hear(q, r.browsers, now)
		}
		if slices.ContainsFunc(r.entries, func(e *entry) bool { return e.records.asked(q) != 0 }) &&
			!slices.Contains(asked, q) {
			asked = append(asked, q)
		}
	}) != nil {
		return
	}
	if len(asked) == 0 && (p.count[0] > 0 || len(l.pending) == 0) {
		return
	}
	s, err := p.records()
	if err != nil {
		return
	}
	switch source := from.Source.Addr(); {
	case len(asked) == 0: // more known answers to an earlier query (RFC 6762 section 7.2)
		r.suppress(s.answers, l, source)
	case from.Source.Port() != Port:
		r.answerLegacy(p.id, asked, s, l, from, now)
	case len(s.authorities) > 0 && r.own(source):
		// Our own probe, or that of another program here: none of them gives way.
	default:
		r.answer(p, asked, s, l, from, now)
	}
}

// hear notes that another host asks for all of a browsed type and will get all answers.
func (l *link) hear(q question, browsers []*Browser, now time.Time) {
	if q.kind != dns.TypePTR || q.unicast {
		return
	}
	for _, b := range browsers {
		if sameName(q.name, b.serviceType) {
			name := canonical(q.name)
			l.heard[name] = heard{at: now, used: l.heard[name].used}
		}
	}
}

// suppress drops pending answers that their only asker turns out to know.
func (r *run) suppress(answers []dns.RR, l *link, asker netip.Addr) {
	for _, e := range r.entries {
		p := l.pending[e]
		if p == nil || p.asker != asker {
			continue
		}
		l.satisfied(e, e.records.known(p.kinds, answers))
	}
}

// known returns which of our records somebody listed as known and will not need
// again soon (RFC 6762 section 7.1). Addresses are always sent.
func (r *records) known(k kinds, answers []dns.RR) kinds {
	var found kinds
	k.each(func(kind kinds) {
		if slices.ContainsFunc(answers, func(rr dns.RR) bool {
			return rr.Header().Ttl >= recordTTL/2 && r.is(kind, rr)
		}) {
			found |= kind
		}
	})
	return found
}

// answer schedules the multicast answers to a query and sends the unicast ones. What
// must not be sent by unicast, or not now, is multicast, which has limits of its own.
func (r *run) answer(p *parser, asked []question, s sections, l *link, from Origin, now time.Time) {
	source := from.Source.Addr()
	probed := len(s.authorities) > 0
	direct := l.holds(source) // unicast stays on the link
	var unicast []answer
	var entries []*entry // theirs
	ask := func(e *entry, k kinds) { l.ask(e, k, now, r.delay(k, p.truncated), spacing(probed), source) }
	for _, e := range r.entries {
		var one, all kinds
		for _, q := range asked {
			if k := e.records.asked(q); q.unicast && direct {
				one |= k
			} else {
				all |= k
			}
		}
		one &^= e.records.known(one, s.answers)
		all &^= e.records.known(all, s.answers)
		switch one &^= all; {
		case one == 0:
		case l.multicastRecently(e, one, now):
			unicast, entries = append(unicast, answer{e.records, one}), append(entries, e)
		default:
			all |= one
		}
		if all != 0 {
			ask(e, all)
		}
	}
	if len(unicast) == 0 {
		return
	}
	groups := split(unicast, l.addrs())
	if !l.unicasts.take(source, len(groups), now) {
		for i, e := range entries {
			ask(e, unicast[i].kinds)
		}
		return
	}
	for _, group := range groups {
		_ = r.sendTo(l, from.Source, reply(group, l.addrs(), recordTTL)) // logged there
	}
}

// delay returns how long an answer waits. Only the instance itself has no company
// to wait for, and the sooner a probe hears of it the better.
func (r *run) delay(k kinds, truncated bool) time.Duration {
	switch {
	case truncated:
		return between(r.cfg.Rand, minDelayKnown, maxDelayKnown)
	case k&(kindPTR|kindType) != 0:
		return between(r.cfg.Rand, minDelay, maxDelay)
	}
	return 0
}

func spacing(probed bool) time.Duration {
	if probed {
		return probeSpacing
	}
	return oneSecond
}

// answerLegacy answers a resolver that knows no multicast DNS, at once and in one
// packet (RFC 6762 section 6.7). It must be on the link's subnet, or a false source
// address could send answers anywhere.
func (r *run) answerLegacy(id uint16, asked []question, s sections, l *link, from Origin, now time.Time) {
	if !l.holds(from.Source.Addr()) {
		return
	}
	asked = asked[:min(len(asked), maxLegacy)]
	var answers []answer
	for _, e := range r.entries {
		var k kinds
		for _, q := range asked {
			k |= e.records.asked(q)
		}
		if k &^= e.records.known(k, s.answers); k != 0 {
			answers = append(answers, answer{e.records, k})
		}
	}
	if len(answers) == 0 || !l.unicasts.take(from.Source.Addr(), 1, now) {
		return
	}
	group := split(answers, l.addrs())[0] // who has more services asks again or by multicast
	var questions []dns.Question
	for _, q := range asked {
		questions = append(questions, dns.Question{Name: q.name, Qtype: q.kind, Qclass: dns.ClassINET})
	}
	_ = r.sendTo(l, from.Source, legacy(reply(group, l.addrs(), legacyTTL), id, questions)) // logged there
}
