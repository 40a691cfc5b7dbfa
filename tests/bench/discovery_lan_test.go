// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"nvpair/shared/discovery"
	"nvpair/tests/harness"
)

// appearWithin bounds the wait for a node to be seen, or to be gone.
const appearWithin = time.Minute

const nodesChanged = "discovery:nodes-changed"

// machine is a host on the LAN with a tree.
type machine struct {
	*harness.Host
	tree *program
	news *news
}

// startMachine starts a tree and subscribes to everything.
func startMachine(t *testing.T, h *harness.Host) *machine {
	t.Helper()
	p, _ := startBroker(t, h)
	awaitWorkers(t, p)
	p.subscribe(t)
	return &machine{h, p, follow(t, p)}
}

// newLAN makes hosts on one bridge: 10.77.0.1, 10.77.0.2 and so on.
func newLAN(t *testing.T, names ...string) (*harness.Bridge, []*harness.Host) {
	t.Helper()
	bridge := harness.NewBridge(t)
	var hosts []*harness.Host
	for i, name := range names {
		h := harness.NewHost(t, name)
		bridge.Attach(h, fmt.Sprintf("10.77.0.%d/16", i+1))
		hosts = append(hosts, h)
	}
	return bridge, hosts
}

// news are the notifications of a tree to its client. From follow on nothing else may read from the tree.
type news struct {
	mu      sync.Mutex // guards the rest
	list    []notice
	nodes   []byte        // params of the newest nodesChanged
	changed chan struct{} // closed and replaced with each notification
}

// notice is one notification.
type notice struct {
	at    time.Time
	what  string // its method
	plain string // a nodesChanged without what changes by itself; others whole
}

// follow reads until the tree ends.
func follow(t *testing.T, p *program) *news {
	n := &news{changed: make(chan struct{})}
	_ = p.wire.stop.SetReadDeadline(time.Time{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			line, err := p.next()
			if err != nil {
				return
			}
			n.take(line)
		}
	}()
	t.Cleanup(func() {
		_ = p.wire.stop.SetReadDeadline(time.Now()) // the tree runs still if the test has failed
		<-done
	})
	return n
}

var (
	methodPattern   = regexp.MustCompile(`"method":"([^"]*)"`)
	lastSeenPattern = regexp.MustCompile(`"lastSeen":\d+`)
)

func (n *news) take(line []byte) {
	match := methodPattern.FindSubmatch(line[:min(len(line), 200)])
	if match == nil {
		return // an answer
	}
	one := notice{at: time.Now(), what: string(match[1]), plain: string(lastSeenPattern.ReplaceAll(line, nil))}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, one)
	if one.what == nodesChanged {
		n.nodes = slices.Clone(line)
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// awaitNodes waits until the newest list satisfies ok.
func (n *news) awaitNodes(t *testing.T, what string, ok func(list []byte) bool) time.Time {
	t.Helper()
	timer := time.NewTimer(appearWithin)
	defer timer.Stop()
	for {
		n.mu.Lock()
		nodes, changed := n.nodes, n.changed
		n.mu.Unlock()
		if ok(nodes) {
			return time.Now()
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("not within %v: %s; nodes %.2000s", appearWithin, what, nodes)
		}
	}
}

// since returns what has arrived after a time.
func (n *news) since(begin time.Time) []notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, _ := slices.BinarySearchFunc(n.list, begin, func(one notice, t time.Time) int { return one.at.Compare(t) })
	return slices.Clone(n.list[at:])
}

// knows satisfies awaitNodes for a node of that name, or for none.
func knows(name string, there bool) func([]byte) bool {
	return func(list []byte) bool { return bytes.Contains(list, []byte(`"name":"`+name+`"`)) == there }
}

// complete satisfies awaitNodes for a node of which the port of its node-info is known.
func complete(name string) func([]byte) bool {
	pattern := regexp.MustCompile(`"name":"` + name + `"[^}]*"port":` + strconv.Itoa(discovery.PortNodeInfo))
	return pattern.Match
}

// measureAppearing starts and stops a tree beside two others, again and again.
func measureAppearing(t *testing.T) figure {
	t.Helper()
	_, hosts := newLAN(t, "alpha", "beta", "gamma")
	others := []*machine{startMachine(t, hosts[0]), startMachine(t, hosts[1])}
	var took, first samples
	for range *lanStarts {
		p, _ := startBroker(t, hosts[2])
		var seen []time.Duration
		for _, o := range others {
			seen = append(seen, o.news.awaitNodes(t, o.Name+" to see gamma", knows("gamma", true)).Sub(p.began))
		}
		took, first = append(took, slices.Max(seen)), append(first, slices.Min(seen))
		for _, o := range others { // else its goodbye would come before anybody could ask whether it is gone
			o.news.awaitNodes(t, o.Name+" to know gamma's port", complete("gamma"))
		}
		p.stop(t, hosts[2])
		for _, o := range others {
			o.news.awaitNodes(t, o.Name+" to miss gamma", knows("gamma", false))
		}
	}
	for _, o := range others {
		o.tree.stop(t, o.Host)
	}
	return figure{"start: exec to seen by two others, p95", ms(took.quantile(0.95)), "ms",
		fmt.Sprintf("of %d, p50 %.0f, %s; by the first of them p50 %.0f ms", len(took), ms(took.median()), took.span(),
			ms(first.median())), atMost(3000), "README.md: what a start is made of; the first word is three probes of 250 ms after it"}
}

// measureLANRest watches three idle nodes that know each other.
func measureLANRest(t *testing.T) ([]figure, []resting) {
	t.Helper()
	names := []string{"alpha", "beta", "gamma"}
	_, hosts := newLAN(t, names...)
	var machines []*machine
	for _, h := range hosts {
		machines = append(machines, startMachine(t, h))
	}
	for _, m := range machines {
		for _, name := range names {
			m.news.awaitNodes(t, m.Name+" to see "+name, knows(name, true))
		}
	}
	machines[0].tree.rest(t, restBefore)
	processes := make([][]resting, len(machines))
	files := make([]map[string]string, len(machines))
	begin := time.Now()
	for i, m := range machines {
		processes[i], files[i] = look(t, m.Host)
	}
	machines[0].tree.rest(t, *lanRestFor)
	var all []resting
	var written []string
	var shares []float64
	excused, other := 0, []string{}
	for i, m := range machines {
		lookAgain(t, m.Host, processes[i])
		all = append(all, processes[i]...)
		after, err := filesOf(m.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, changes(files[i], after)...)
		shares = append(shares, discoveryShare(processes[i], *lanRestFor))
		e, o := m.news.judge(begin)
		excused, other = excused+e, append(other, o...)
	}
	for _, m := range machines {
		m.tree.stop(t, m.Host)
	}
	return []figure{
		{"three idle nodes: files written", float64(len(written)), "", fmt.Sprintf("in %v", *lanRestFor), atMost(0), fmt.Sprint(written)},
		{"three idle nodes: notifications", float64(len(other)), "", fmt.Sprintf("in %v, and %d of lastSeen alone", *lanRestFor, excused),
			atMost(0), fmt.Sprintf("%.500s", fmt.Sprint(other))},
		{"three idle nodes: scanner and node-info, CPU", slices.Max(shares), "%",
			fmt.Sprintf("of a core, the most of three, least %.3f %%", slices.Min(shares)), atMost(0.3), cpuHint},
	}, slices.DeleteFunc(all, func(p resting) bool { return !isDiscovery(p) })
}

func isDiscovery(p resting) bool {
	return p.Name == "nvpair-node-scanner" || p.Name == "nvpair-node-info"
}

// discoveryShare is the part of one core that a node's scanner and node-info used together, in percent.
func discoveryShare(processes []resting, d time.Duration) float64 {
	sum := 0.0
	for _, p := range processes {
		if isDiscovery(p) {
			sum += p.share(d)
		}
	}
	return sum
}

// judge counts the lists of nodes since begin in which only times have changed, and returns everything else.
func (n *news) judge(begin time.Time) (excused int, other []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := ""
	for _, one := range n.list {
		switch {
		case one.at.Before(begin):
		case one.what == nodesChanged && one.plain == before:
			excused++
		default:
			other = append(other, one.plain)
		}
		if one.what == nodesChanged {
			before = one.plain
		}
	}
	return excused, other
}
