// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"nvpair/shared/manualnodes"
)

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// nodeAdd adds a node by its address and waits for what its first probe finds.
func (c *cli) nodeAdd(args []string) int {
	a := manualnodes.Add{}
	var ports manualnodes.Ports
	rest, code, ok := c.parse("node add", args, 1, func(fs *flag.FlagSet) {
		fs.StringVar(&a.Name, "name", "", "what to call it (default manual:ADDRESS)")
		fs.IntVar(&ports.Ollama, "ollama-port", 0, "where its Ollama listens (default 11434)")
		fs.IntVar(&ports.LMStudio, "lmstudio-port", 0, "where its LM Studio listens (default 1234)")
	})
	if !ok {
		return code
	}
	if len(rest) == 0 {
		return c.misuse("node add", "an address is needed, for example: %s node add 192.168.1.20", name)
	}
	a.Address = rest[0]
	if host, port, err := net.SplitHostPort(a.Address); err == nil && isNumber(port) {
		return c.misuse("node add", "the address alone, please; an engine at another port: %s node add %s --ollama-port %s", name, host, port)
	}
	if ports != (manualnodes.Ports{}) {
		a.Ports = &ports
	}
	return c.withNode(func(ctx context.Context, n *node) error {
		before, err := n.manualNodes(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		raw, err := n.callManual(ctx, manualnodes.MethodAdd, a)
		var st manualnodes.Status
		if err == nil {
			err = json.Unmarshal(raw, &st)
		}
		if err == nil {
			st, err = n.awaitProbe(ctx, st, begin)
		}
		if err != nil {
			return err
		}
		if st.Local && !st.OllamaUp && !st.LMStudioUp && st.Error != "" && (a.Ports == nil || st.NodeInfoUp) {
			had := slices.ContainsFunc(before, func(m manualnodes.Status) bool { return m.ID == st.ID })
			return n.refuseOwn(ctx, st, had)
		}
		c.say("%s", added(st))
		return nil
	})
}

// refuseOwn says that an address is this machine's own and need not be added, and
// takes it off the list again unless it had been there before.
func (n *node) refuseOwn(ctx context.Context, st manualnodes.Status, had bool) error {
	text := st.Address + " is this machine itself, whose engines are found without being added, as " + name + " status shows"
	if st.Ports != nil {
		text = st.Address + " is this machine itself: a file in the folder engines of the data directory makes its engine at another port known"
	}
	if had {
		return fmt.Errorf("%s; take it off the list with: %s node remove %s", text, name, st.ID)
	}
	if _, err := n.callManual(ctx, manualnodes.MethodRemove, manualnodes.Remove{ID: st.ID}); err != nil {
		return fmt.Errorf("%s; take it off the list: %w", text, err)
	}
	return errors.New(text + "; nothing was added")
}

// awaitProbe waits until a probe has ended that was not over then.
func (n *node) awaitProbe(ctx context.Context, st manualnodes.Status, begin time.Time) (manualnodes.Status, error) {
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		nodes, err := n.manualNodes(ctx)
		if err != nil {
			return st, err
		}
		i := slices.IndexFunc(nodes, func(m manualnodes.Status) bool { return m.ID == st.ID })
		if i < 0 {
			return st, errors.New("it was removed again meanwhile")
		}
		if age := nodes[i].ProbeAgeMillis; age != nil && *age < time.Since(begin).Milliseconds() {
			return nodes[i], nil
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nodes[i], nil // it is on the list, and will be probed
		}
	}
}

// called is the name of an entry and its address.
func called(st manualnodes.Status) string {
	who := cmp.Or(st.Name, st.ID)
	if who != st.Address {
		who += " (" + st.Address + ")"
	}
	return who
}

// added says what became of a node.
func added(st manualnodes.Status) string {
	who := called(st)
	var engines []string
	for _, e := range []struct {
		name   string
		up     bool
		port   int
		models int
	}{
		{"Ollama", st.OllamaUp, st.OllamaPort, len(st.OllamaModels)},
		{"LM Studio", st.LMStudioUp, st.LMStudioPort, len(st.LMStudioModels)},
	} {
		if e.up {
			engines = append(engines, fmt.Sprintf("%s at port %d, models: %d", e.name, e.port, e.models))
		}
	}
	switch {
	case len(engines) > 0:
		if st.Error != "" {
			engines = append(engines, st.Error)
		}
		return "added " + who + ": " + strings.Join(engines, "; ")
	case st.Error == "":
		return "added " + who + "; it has not answered yet"
	}
	return "added " + who + ", but it serves nothing now: " + st.Error + "; it is tried again every 10 s"
}

// nodeRemove removes a node that was added by address.
func (c *cli) nodeRemove(args []string) int {
	rest, code, ok := c.parse("node remove", args, 1, func(*flag.FlagSet) {})
	if !ok {
		return code
	}
	if len(rest) == 0 {
		return c.misuse("node remove", "a name or an address is needed, as %s nodes lists them", name)
	}
	return c.withNode(func(ctx context.Context, n *node) error {
		nodes, err := n.nodeList(ctx)
		if err != nil {
			return err
		}
		if nodes.ManualError != "" {
			return errors.New(nodes.ManualError)
		}
		entry, err := pick(nodes.rows(), rest[0])
		if err != nil {
			return err
		}
		if _, err := n.callManual(ctx, manualnodes.MethodRemove, manualnodes.Remove{ID: entry.ID}); err != nil {
			return err
		}
		c.say("removed %s", called(entry))
		return nil
	})
}

// pick returns the one entry that is meant: by its id, else by the name or address
// it was added with, else by what the list shows of its node. An id that is also a
// name or an address of another entry means none.
func pick(rows []nodeRow, wanted string) (manualnodes.Status, error) {
	var byID, added, shown, named []manualnodes.Status // named: shown by a name
	known := false
	bare := strings.Trim(wanted, "[]") // of an IPv6 address
	for _, r := range rows {
		isNamed := r.name == wanted || cell(r.name) == wanted
		isShown := isNamed || r.id == wanted || bare != noAddress && strings.EqualFold(r.address, bare)
		known = known || isShown
		for _, m := range r.entries {
			switch {
			case m.ID == wanted:
				byID = append(byID, m)
			case m.Name == wanted || strings.EqualFold(m.Address, bare):
				added = append(added, m)
			case isShown:
				shown = append(shown, m)
				if isNamed {
					named = append(named, m)
				}
			}
		}
	}
	if len(byID) > 0 {
		if others := slices.Concat(added, named); len(others) > 0 {
			return manualnodes.Status{}, fmt.Errorf("%q is the id of one entry and a name of another: name one of %s by its address",
				wanted, listed(append(byID, others...)))
		}
		return byID[0], nil
	}
	if len(added) > 0 {
		shown = added
	}
	switch {
	case len(shown) == 1:
		return shown[0], nil
	case len(shown) > 1:
		return manualnodes.Status{}, fmt.Errorf("%d entries are meant by %q: name one of %s", len(shown), wanted, listed(shown))
	case known:
		return manualnodes.Status{}, fmt.Errorf("%q was not added by address: such a node leaves the list when it is gone", wanted)
	}
	return manualnodes.Status{}, fmt.Errorf("no node %q was added by address; %s nodes lists them", wanted, name)
}

// listed names entries by what tells them apart.
func listed(entries []manualnodes.Status) string {
	var ids []string
	for _, m := range entries {
		ids = append(ids, fmt.Sprintf("%s (%s)", cell(m.ID), cell(m.Address)))
	}
	return strings.Join(ids, ", ")
}

// withNode lets do talk to a node that is ready. An answer's error is told in its
// own words.
func (c *cli) withNode(do func(context.Context, *node) error) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*nodesTimeout)
	defer cancel()
	n, err := dial(ctx)
	if err != nil {
		return c.fail(err)
	}
	defer n.close()
	if err = n.awaitReady(ctx); err == nil {
		err = do(ctx, n)
	}
	var answer *jsonrpc2.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &answer):
		return c.fail(errors.New(strings.TrimPrefix(answer.Message, "invalid params: ")))
	}
	return c.fail(err)
}
