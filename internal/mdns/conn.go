// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Config says how a Conn works. The zero value is usable.
type Config struct {
	// Interfaces limits the Conn to those with one of these names; empty is all.
	Interfaces []string
	// Network is what packets go through; nil is System().
	Network Network
	// Log gets little: changes of links and outages. Nil discards it.
	Log *slog.Logger
	// Rand spreads answers in time. Nil is a source with a seed of its own.
	Rand *rand.Rand

	AnnounceEvery time.Duration // interval of repeated announcements; 0 is 60 s
	PollEvery     time.Duration // interval at which interfaces are looked up; 0 is 10 s, below 0 only when told of a change
	Debounce      time.Duration // how old a change of the interfaces is when it counts; 0 is 1.5 s, below 0 at once
}

// errPublished means that the Conn has that instance already.
var errPublished = errors.New("instance is published already")

// Conn is one host's part in multicast DNS. Its methods may be called by any
// number of goroutines; except Run, none of them waits.
type Conn struct {
	cfg  Config
	wake chan struct{} // capacity 1: one mark stands for all that changed below

	mu             sync.Mutex     // guards the rest, what callers want; never held over a send or a callback
	publications   []*Publication // in the order of their making
	browsers       []*Browser     // likewise
	networkChanged bool           // NetworkChanged was called and Run has not seen it
	links          []Link         // what Links returns
}

// New returns a Conn that does nothing until Run.
func New(cfg Config) *Conn {
	if cfg.Network == nil {
		cfg.Network = System()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if cfg.AnnounceEvery == 0 {
		cfg.AnnounceEvery = 60 * time.Second
	}
	if cfg.PollEvery == 0 {
		cfg.PollEvery = 10 * time.Second
	}
	if cfg.Debounce == 0 {
		cfg.Debounce = 1500 * time.Millisecond
	}
	cfg.Interfaces = slices.Clone(cfg.Interfaces)
	return &Conn{cfg: cfg, wake: make(chan struct{}, 1)}
}

// Run publishes and browses until ctx ends, says goodbye for all that is published,
// and returns after everything it started has ended. At most one Run at a time.
func (c *Conn) Run(ctx context.Context) {
	newRun(c).loop(ctx)
}

// Publication is a service that is published. Its methods may be called by any
// number of goroutines, and none of them waits.
type Publication struct {
	conn *Conn
	name string // canonical instance name

	current *records // guarded by conn.mu
}

// Publish makes a service known from now, or from the start of Run, until Withdraw
// or the end of Run. The error says what is wrong with the service.
func (c *Conn) Publish(s Service) (*Publication, error) {
	r, err := newRecords(s)
	if err != nil {
		return nil, err
	}
	p := &Publication{conn: c, name: r.keys[0], current: r}
	c.mu.Lock()
	taken := slices.ContainsFunc(c.publications, func(o *Publication) bool { return o.name == p.name })
	if !taken {
		c.publications = append(c.publications, p)
	}
	c.mu.Unlock()
	if taken {
		return nil, errPublished
	}
	c.mark()
	return p, nil
}

// SetTXT replaces the attributes and announces them at once, if they differ (DI-38). Where this happens more than
// once in a second, the last ones are announced when that second is over.
func (p *Publication) SetTXT(txt []string) error {
	list, err := recordTXT(txt)
	if err != nil {
		return err
	}
	p.conn.mu.Lock()
	next := *p.current
	next.txt = list
	changed := !slices.Equal(p.current.txt, list)
	if changed {
		p.current = &next
	}
	p.conn.mu.Unlock()
	if changed {
		p.conn.mark()
	}
	return nil
}

// Withdraw ends the publication; a goodbye follows. Further calls do nothing.
func (p *Publication) Withdraw() {
	c := p.conn
	c.mu.Lock()
	c.publications = slices.DeleteFunc(c.publications, func(o *Publication) bool { return o == p })
	c.mu.Unlock()
	c.mark()
}

// Browser watches one service type. Its methods may be called by any number of
// goroutines, and none of them waits.
type Browser struct {
	conn        *Conn
	serviceType string // in presentation format
	report      func(Sighting)

	asked bool // guarded by conn.mu: Query was called and Run has not seen it
}

// Browse calls report for every sighting of a service type, such as "_http._tcp",
// this host's own services included, until Close; see the package comment for what
// report may do. It asks nothing: see Query.
func (c *Conn) Browse(serviceType string, report func(Sighting)) (*Browser, error) {
	name, err := fqdn(serviceType, domain)
	if err != nil {
		return nil, err
	}
	b := &Browser{conn: c, serviceType: name, report: report}
	c.mu.Lock()
	c.browsers = append(c.browsers, b)
	c.mu.Unlock()
	c.mark()
	return b, nil
}

// Query asks on every link for everything of the type, once Run runs; calls before
// that count as one. On a link where another host asked the same within the last
// two seconds nothing is asked, because the answers to that are for all, but not twice
// in succession: not every host may hear the other one.
func (b *Browser) Query() {
	b.conn.mu.Lock()
	b.asked = true
	b.conn.mu.Unlock()
	b.conn.mark()
}

// Close ends the sightings; one that is being reported may still be. Further calls do nothing.
func (b *Browser) Close() {
	c := b.conn
	c.mu.Lock()
	c.browsers = slices.DeleteFunc(c.browsers, func(o *Browser) bool { return o == b })
	c.mu.Unlock()
	c.mark()
}

// NetworkChanged makes Run look the interfaces up once the change has settled.
// Calls until then count as one.
func (c *Conn) NetworkChanged() {
	c.mu.Lock()
	c.networkChanged = true
	c.mu.Unlock()
	c.mark()
}

// Link is the state of an interface that is spoken on.
type Link struct {
	Interface

	// FailedQueries counts the queries since the last that could be sent. Those
	// left out for another host's do not count.
	FailedQueries int
	// Err is why the last packet of any kind could not be sent; nil if it was.
	Err error
}

// Links returns the present links, ordered by index; none before Run.
func (c *Conn) Links() []Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.links)
}

func (c *Conn) mark() {
	select {
	case c.wake <- struct{}{}:
	default: // a mark is there already
	}
}

// wanted is what callers want at one time.
type wanted struct {
	publications   map[*Publication]*records
	order          []*Publication
	browsers       []*Browser
	queries        []string // types that somebody asked for, each once
	networkChanged bool
}

// take returns what callers want and takes over what they asked for once.
func (c *Conn) take() wanted {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := wanted{
		publications:   make(map[*Publication]*records, len(c.publications)),
		order:          slices.Clone(c.publications),
		browsers:       slices.Clone(c.browsers),
		networkChanged: c.networkChanged,
	}
	c.networkChanged = false
	for _, p := range c.publications {
		w.publications[p] = p.current
	}
	for _, b := range c.browsers {
		if b.asked && !slices.ContainsFunc(w.queries, func(q string) bool { return sameName(q, b.serviceType) }) {
			w.queries = append(w.queries, b.serviceType)
		}
		b.asked = false
	}
	return w
}

// show makes the state of the links visible to Links.
func (c *Conn) show(links []*link) {
	list := make([]Link, len(links))
	for i, l := range links {
		list[i] = Link{Interface: l.Interface, FailedQueries: l.failedQueries, Err: l.err}
		list[i].Prefixes = slices.Clone(l.Prefixes)
	}
	c.mu.Lock()
	c.links = list
	c.mu.Unlock()
}
