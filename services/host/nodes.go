// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/manualnodes"
)

const (
	// nodesTimeout bounds the questions of nvpair nodes and nvpair node.
	nodesTimeout = 10 * time.Second
	// manualTimeout bounds that for the nodes that were added by address, which
	// must not hold up a list of the others.
	manualTimeout = 3 * time.Second
)

// nodeList is what nvpair nodes --json prints.
type nodeList struct {
	Nodes  []discovery.AvailableNode `json:"nodes"`
	Manual []manualnodes.Status      `json:"manual"` // what was added by address; never null
	Notes  map[string]string         `json:"notes"`  // for people: why it is not used, by host uuid, or else by id in Manual
	// ManualError is for people: why it is not known now what was added by address;
	// "" if Manual is all of it.
	ManualError string `json:"manualError,omitempty"`

	self string // this node's host uuid
}

// nodes lists all nodes that a client sees; with --watch again at every change
// until it is interrupted.
func (c *cli) nodes(args []string) int {
	return c.list(listing{
		name:      "nodes",
		jsonHelp:  "one object, with --watch one a line",
		watchHelp: "print the list again at every change",
		show: func(ctx context.Context, n *node, asJSON, watch bool) error {
			changes := n.on(discovery.NotifyNodesChanged)
			printed := lists{out: c.std.Out, asJSON: asJSON}
			if watch {
				if err := n.watchNodes(ctx); err != nil {
					return err
				}
			}
			for again := true; again; {
				list, err := n.nodeList(ctx)
				if err != nil {
					return err
				}
				printed.next(list.reads(asJSON), list.print)
				if again, err = n.awaitChange(ctx, watch, changes); err != nil {
					return err
				}
			}
			return nil
		},
	}, args)
}

// watchNodes subscribes to changes.
func (n *node) watchNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	err := n.awaitReady(ctx)
	if err == nil {
		_, err = n.call(ctx, discovery.MethodSubscribe, nil)
	}
	return err
}

// awaitChange waits for the next change and takes all that came with it. It
// reports whether there was one.
func (n *node) awaitChange(ctx context.Context, watch bool, changes <-chan json.RawMessage) (bool, error) {
	if !watch {
		return false, nil
	}
	select {
	case <-changes:
	case <-n.rpc.DisconnectNotify():
		return false, errDisconnected
	case <-ctx.Done():
		return false, nil
	}
	for len(changes) > 0 {
		<-changes
	}
	return true, nil
}

// nodeList asks for all nodes. What was added by address may be unknown.
func (n *node) nodeList(ctx context.Context) (nodeList, error) {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	var nodes discovery.AvailableNodes
	var status brokerapi.Status
	list := nodeList{Manual: []manualnodes.Status{}}
	err := n.awaitReady(ctx)
	if err == nil {
		err = n.callInto(ctx, brokerapi.MethodStatus, &status)
	}
	if err == nil {
		err = n.callInto(ctx, discovery.MethodGetNodes, &nodes)
	}
	if err != nil {
		return list, err
	}
	list.Nodes, list.self = nodes.Nodes, status.NodeID
	manual, err := n.manualNodes(ctx)
	var answer *jsonrpc2.Error
	switch {
	case errors.Is(err, errManualDown), errors.Is(err, errManualSilent):
		list.ManualError = err.Error()
	case errors.As(err, &answer):
		list.ManualError = answer.Message
	case err != nil:
		return list, err
	}
	list.Manual = append(list.Manual, manual...)
	return list, nil
}

// Why it is not known what was added by address, with what to do.
var (
	errManualDown   = errors.New("nvpair-manual-nodes is not running just now, try again in a few seconds (nvpair status)")
	errManualSilent = errors.New("nvpair-manual-nodes does not answer just now, try again in a few seconds (nvpair status)")
)

// callManual calls nvpair-manual-nodes and says so in plain words if it is not there.
func (n *node) callManual(ctx context.Context, method string, params any) (json.RawMessage, error) {
	raw, err := n.call(ctx, method, params)
	var answer *jsonrpc2.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errManualSilent
	case !errors.As(err, &answer):
	case answer.Message == "manual-nodes not available":
		return nil, errManualDown
	case strings.HasPrefix(answer.Message, "manual-nodes call failed: "):
		return nil, errManualSilent
	}
	return raw, err
}

// manualNodes asks for the nodes that were added by address.
func (n *node) manualNodes(ctx context.Context) ([]manualnodes.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, manualTimeout)
	defer cancel()
	var manual manualnodes.Nodes
	raw, err := n.callManual(ctx, manualnodes.MethodList, nil)
	if err == nil {
		err = json.Unmarshal(raw, &manual)
	}
	return manual.Nodes, err
}

// reads tells lists apart that are worth to be printed: by all of the JSON, and of
// the table by all but ages.
func (l nodeList) reads(asJSON bool) string {
	var text strings.Builder
	if asJSON {
		l.print(&text, true)
		return text.String()
	}
	for _, r := range l.rows() {
		fmt.Fprintln(&text, line("\t", r.name, r.address, r.hardware, r.models, r.note))
	}
	text.WriteString(l.ManualError)
	return text.String()
}

// print prints the list. JSON has all that is known, the table what fits a line.
func (l nodeList) print(out io.Writer, asJSON bool) {
	rows := l.rows()
	if asJSON {
		l.Notes = make(map[string]string)
		for _, r := range rows {
			if r.note != "" {
				l.Notes[r.id] = r.note
			}
		}
		printJSON(out, l)
		return
	}
	t := newTable(out)
	t.row("NAME", "ADDRESS", "SEEN", "HARDWARE", "MODELS", "NOTE")
	for _, r := range rows {
		t.row(r.name, r.address, r.seen, r.hardware, r.models, r.note)
	}
	t.flush()
	if l.ManualError != "" {
		fmt.Fprintln(out, sentence("the nodes added by address are not known now: "+l.ManualError))
	}
}
