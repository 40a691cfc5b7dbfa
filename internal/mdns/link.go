// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// link is an interface in use and what was and will be sent on it.
type link struct {
	Interface
	failedQueries int
	err           error // of the last send
	refused       bool  // the system joins no more groups, and that was logged

	lastSent map[recordKey]time.Time // when a record was last multicast
	pending  map[*entry]*pending     // answers that wait for their time
	heard    map[string]heard        // of browsed types, by canonical name
	unicasts unicasts
}

// heard is when another host last asked for a type.
type heard struct {
	at   time.Time
	used bool // a question of ours was left out for one of its kind, and none was sent since
}

func newLink(i Interface) *link {
	return &link{Interface: i, lastSent: map[recordKey]time.Time{}, pending: map[*entry]*pending{},
		heard: map[string]heard{}}
}

// lookUp lists the interfaces that the configuration admits.
func (r *run) lookUp() ([]Interface, error) {
	list, err := r.cfg.Network.Interfaces()
	if len(r.cfg.Interfaces) > 0 {
		list = slices.DeleteFunc(list, func(i Interface) bool { return !slices.Contains(r.cfg.Interfaces, i.Name) })
	}
	return list, err
}

// differs reports whether the links are not these. Nothing found is no difference (DI-39).
func (r *run) differs(list []Interface) bool {
	return len(list) > 0 && !slices.EqualFunc(list, r.links, func(i Interface, l *link) bool { return i.equal(l.Interface) })
}

// poll notices changes that nobody told of. They have to settle.
func (r *run) poll(now time.Time) {
	r.planPoll(now)
	if !r.refreshAt.IsZero() {
		return
	}
	if list, err := r.lookUp(); err == nil && r.differs(list) {
		r.refreshAt = now.Add(max(0, r.cfg.Debounce))
	}
}

func (r *run) planPoll(now time.Time) {
	if r.cfg.PollEvery > 0 {
		r.pollAt = now.Add(r.cfg.PollEvery)
	}
}

// refresh makes the links what the interfaces are. After a change everything is
// announced, twice as at the start, and everything browsed is asked for.
func (r *run) refresh(now time.Time) {
	r.refreshAt = time.Time{}
	r.planPoll(now)
	list, err := r.lookUp()
	if err != nil {
		r.note("interfaces not listed", err)
		return
	}
	if !r.differs(list) {
		return
	}
	old := r.links
	r.links = nil
	for _, i := range list {
		at := slices.IndexFunc(old, func(l *link) bool { return l.Index == i.Index && l.Name == i.Name })
		if at < 0 {
			r.links = append(r.links, newLink(i))
			continue
		}
		old[at].Interface = i // its limits stay
		r.links = append(r.links, old[at])
	}
	r.cfg.Log.Debug("links changed", "links", len(r.links))
	r.join()
	r.show(r.links)
	for _, e := range r.entries {
		if !e.probing() {
			e.repeatAt = now.Add(repeatAfter)
			r.announce(e, now)
		}
	}
	var asked []string
	for _, b := range r.browsers {
		if name := canonical(b.serviceType); !slices.Contains(asked, name) {
			asked = append(asked, name)
			r.query(b.serviceType, now)
		}
	}
}

// query asks on every link for a service type, except where that was just done by another host.
func (r *run) query(serviceType string, now time.Time) {
	failed := r.newOutcome()
	for _, l := range r.links {
		if l.askedByAnother(canonical(serviceType), now) {
			continue
		}
		err := r.send(l, query(serviceType, dns.TypePTR))
		if err != nil {
			l.failedQueries++
		} else {
			l.failedQueries = 0
		}
		failed.add(err)
	}
	failed.log()
	r.show(r.links)
}

// askedByAnother reports whether a question can be left out because another host
// has just asked it (RFC 6762 section 7.3), and notes that it is.
func (l *link) askedByAnother(name string, now time.Time) bool {
	h, ok := l.heard[name]
	if !ok {
		return false
	}
	h.used = !h.used && now.Sub(h.at) < askedFor
	l.heard[name] = h
	return h.used
}

// sendAll multicasts one packet on every link.
func (r *run) sendAll(m *dns.Msg) {
	failed := r.newOutcome()
	for _, l := range r.links {
		failed.add(r.send(l, m))
	}
	failed.log()
}

// send multicasts a packet on one link.
func (r *run) send(l *link, m *dns.Msg) error {
	l.err = r.sendTo(l, Group(), m)
	return l.err
}

func (r *run) sendTo(l *link, to netip.AddrPort, m *dns.Msg) error {
	packet, err := pack(m)
	if err == nil {
		err = r.cfg.Network.Send(l.Interface, to, packet)
	}
	if err != nil {
		r.cfg.Log.Debug("packet not sent", "interface", l.Name, "addr", to, "err", err)
		return fmt.Errorf("send on %s: %w", l.Name, err)
	}
	return nil
}

// outcome collects what became of one packet on several links.
type outcome struct {
	r     *run
	tried int
	errs  []error
}

func (r *run) newOutcome() *outcome { return &outcome{r: r} }

func (o *outcome) add(err error) {
	o.tried++
	if err != nil {
		o.errs = append(o.errs, err)
	}
}

// log warns when a packet left on no link, once until one does (DI-43).
func (o *outcome) log() {
	if o.tried == 0 {
		return
	}
	mute := len(o.errs) == o.tried
	if mute && !o.r.mute {
		o.r.cfg.Log.Warn("multicast cannot be sent on any interface", "err", errors.Join(o.errs...))
	}
	o.r.mute = mute
}
