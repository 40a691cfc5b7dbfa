// SPDX-License-Identifier: Apache-2.0

package mdns

import "time"

const (
	probes       = 3
	probeEvery   = 250 * time.Millisecond // RFC 6762 section 8.1
	repeatAfter  = time.Second            // from the first announcement to the second (section 8.3)
	betweenTexts = time.Second            // between announcements of changed texts
)

// entry is what a run knows of a publication.
type entry struct {
	publication *Publication
	records     *records

	probesLeft int
	probeAt    time.Time // of the next probe, or of the end of probing

	announceAt time.Time // of the next announcement out of turn; zero if there is none
	repeatAt   time.Time // of the second one; zero if it was sent
	periodicAt time.Time // of the next periodic one; zero while probing
	changedAt  time.Time // of the last announcement of a changed text

	conflict bool // another host was seen with the name, and that was logged
}

func newEntry(p *Publication, r *records, now time.Time) *entry {
	return &entry{publication: p, records: r, probesLeft: probes, probeAt: now}
}

// probing reports whether the first announcement is still to come.
func (e *entry) probing() bool { return e.periodicAt.IsZero() }

// changed schedules the announcement of a text that has just been replaced. While
// probing there is nothing to replace.
func (e *entry) changed(now time.Time) {
	if e.probing() {
		return
	}
	e.announceAt = now
	if earliest := e.changedAt.Add(betweenTexts); earliest.After(now) {
		e.announceAt = earliest
	}
}

// times calls f with each time at which something is due.
func (e *entry) times(f func(time.Time)) {
	if e.probing() {
		f(e.probeAt)
		return
	}
	f(e.announceAt)
	f(e.repeatAt)
	f(e.periodicAt)
}

// announceDue probes or announces an entry if it is time. On every link, one
// packet does for all that is due (DI-37).
func (r *run) announceDue(e *entry, now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	if e.probing() {
		switch {
		case !due(e.probeAt):
		case e.probesLeft > 0:
			e.probesLeft--
			e.probeAt = now.Add(probeEvery)
			r.sendAll(probe(e.records))
		default:
			e.repeatAt, e.periodicAt = now.Add(repeatAfter), now.Add(r.cfg.AnnounceEvery)
			r.announce(e, now)
		}
		return
	}
	if !due(e.announceAt) && !due(e.repeatAt) && !due(e.periodicAt) {
		return
	}
	if due(e.announceAt) {
		e.announceAt, e.changedAt = time.Time{}, now
	}
	if due(e.repeatAt) {
		e.repeatAt = time.Time{}
	}
	if due(e.periodicAt) {
		e.periodicAt = now.Add(r.cfg.AnnounceEvery)
	}
	r.announce(e, now)
}

// announce sends the records on every link, each with its own addresses.
func (r *run) announce(e *entry, now time.Time) {
	failed := r.newOutcome()
	for _, l := range r.links {
		err := r.send(l, announcement(e.records, l.addrs()))
		if err == nil {
			l.sent(e, kindAll, now)
			l.satisfied(e, kindAll)
		}
		failed.add(err)
	}
	failed.log()
	r.show(r.links)
}
