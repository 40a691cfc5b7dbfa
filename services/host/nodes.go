// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
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
	"nvpair/shared/engine"
	"nvpair/shared/manualnodes"
)

// nodesTimeout bounds the questions of nvpair nodes and nvpair node.
const nodesTimeout = 10 * time.Second

// nodeList is what nvpair nodes --json prints.
type nodeList struct {
	Nodes  []discovery.AvailableNode `json:"nodes"`
	Manual []manualnodes.Status      `json:"manual"` // what was added by address; never null

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
				list.print(c.std.Out, asJSON)
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

// nodeList asks for all nodes. A node that keeps none by address has none.
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
	if errors.As(err, &answer) {
		return list, nil
	}
	list.Manual = append(list.Manual, manual...)
	return list, err
}

// manualNodes asks for the nodes that were added by address.
func (n *node) manualNodes(ctx context.Context) ([]manualnodes.Status, error) {
	var manual manualnodes.Nodes
	err := n.callInto(ctx, manualnodes.MethodList, &manual)
	return manual.Nodes, err
}

func (l nodeList) print(out io.Writer, asJSON bool) {
	if asJSON {
		printJSON(out, l)
		return
	}
	t := newTable(out)
	t.row("NAME", "ADDRESS", "SEEN", "MODELS", "NOTE")
	shown := make(map[string]bool)
	for _, n := range l.Nodes {
		var added *manualnodes.Status
		for i, m := range l.Manual {
			if cmp.Or(m.HostUUID, m.ID) == n.HostUUID {
				shown[m.ID] = true
				if added == nil || m.Address == n.IPAddress {
					added = &l.Manual[i]
				}
			}
		}
		t.row(n.Name, cmp.Or(n.IPAddress, "-"), l.seen(n, added), models(n, added), l.note(n, added))
	}
	for _, m := range l.Manual { // this machine itself, or not probed yet
		if !shown[m.ID] {
			t.row(cmp.Or(m.Name, m.ID), m.Address, answered(m), "-", cmp.Or(m.Error, "being tried"))
		}
	}
	t.flush()
}

// seen is how long ago a node was heard of. One that was added by address is heard
// of when it answers.
func (l nodeList) seen(n discovery.AvailableNode, added *manualnodes.Status) string {
	switch {
	case n.HostUUID == l.self:
		return "-"
	case added != nil:
		return answered(*added)
	}
	return age(max(0, time.Now().Unix()-n.LastSeenSeconds) * 1000)
}

func answered(m manualnodes.Status) string {
	if m.AnswerAgeMillis == nil {
		return "never"
	}
	return age(*m.AnswerAgeMillis)
}

// models counts the models of each engine that a node has.
func models(n discovery.AvailableNode, added *manualnodes.Status) string {
	var parts []string
	for _, e := range engine.All() {
		_, told := n.ModelsByEngine[e.ID]
		up := added != nil && (e.ID == "ollama" && added.OllamaUp || e.ID == "lmstudio" && added.LMStudioUp)
		if told || up {
			parts = append(parts, fmt.Sprintf("%s %d", e.ID, len(n.ModelsByEngine[e.ID])))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// note is what else there is to say about a node.
func (l nodeList) note(n discovery.AvailableNode, added *manualnodes.Status) string {
	switch {
	case n.HostUUID == l.self:
		return "this node"
	case added != nil:
		return added.Error
	}
	return ""
}
