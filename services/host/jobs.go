// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/workload"
)

// jobsTimeout bounds the questions of nvpair jobs.
const jobsTimeout = 10 * time.Second

// jobs lists what runs and what ran, newest last; with --watch it goes on with
// every change until it is interrupted.
func (c *cli) jobs(args []string) int {
	return c.list(listing{
		name:      "jobs",
		jsonHelp:  "a list, with --watch one record a line",
		watchHelp: "go on with every change",
		show: func(ctx context.Context, n *node, asJSON, watch bool) error {
			changes := n.on(workload.MethodUpsert)
			list, names, err := n.jobList(ctx)
			if err != nil {
				return err
			}
			p := jobPrinter{out: c.std.Out, json: asJSON, names: names, lines: watch}
			p.list(list)
			if !watch {
				return nil
			}
			return n.watchJobs(ctx, changes, p)
		},
	}, args)
}

func (n *node) watchJobs(ctx context.Context, changes <-chan json.RawMessage, p jobPrinter) error {
	last := ""
	for {
		select {
		case raw := <-changes:
			var e workload.Event
			if json.Unmarshal(raw, &e) != nil {
				continue
			}
			if reads := p.reads(e.Info); reads != last {
				p.one(e.Info)
				last = reads
			}
		case <-n.rpc.DisconnectNotify():
			return errDisconnected
		case <-ctx.Done():
			return nil
		}
	}
}

// jobList subscribes, so that nothing is missed, then asks for the list, and for
// the names of the nodes in it.
func (n *node) jobList(ctx context.Context) (brokerapi.Workloads, map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	var list brokerapi.Workloads
	var nodes discovery.AvailableNodes
	err := n.awaitReady(ctx)
	if err == nil {
		_, err = n.call(ctx, brokerapi.MethodWorkloadsSubscribe, nil)
	}
	if err == nil {
		err = n.callInto(ctx, brokerapi.MethodWorkloadsGetInitial, &list)
	}
	if err == nil {
		err = n.callInto(ctx, discovery.MethodGetNodes, &nodes)
	}
	names := make(map[string]string)
	for _, node := range nodes.Nodes {
		names[node.HostUUID] = node.Name
	}
	return list, names, err
}

func (n *node) callInto(ctx context.Context, method string, result any) error {
	raw, err := n.call(ctx, method, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// jobPrinter prints jobs for people or for programs.
type jobPrinter struct {
	out   io.Writer
	json  bool
	lines bool // one record at a time follows
	names map[string]string
}

func (p jobPrinter) list(l brokerapi.Workloads) {
	if p.json && !p.lines {
		printJSON(p.out, l.Workloads)
		return
	}
	if p.json {
		for _, raw := range l.Workloads {
			p.one(raw)
		}
		return
	}
	jobs := make([]workload.Info, 0, len(l.Workloads))
	for _, raw := range l.Workloads {
		var j workload.Info
		if json.Unmarshal(raw, &j) == nil {
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(a, b workload.Info) int { return cmp.Compare(a.CreatedMillis, b.CreatedMillis) })
	t := newTable(p.out)
	t.row("STARTED", "STATE", "TOOK", "ENGINE", "MODEL", "RAN ON", "ERROR")
	for _, j := range jobs {
		t.row(p.cells(j)...)
	}
	t.flush()
}

func (p jobPrinter) one(raw json.RawMessage) {
	var j workload.Info
	switch {
	case p.json:
		writeJSON(p.out, raw)
	case json.Unmarshal(raw, &j) == nil:
		fmt.Fprintln(p.out, line("  ", p.cells(j)...))
	}
}

// reads is what one prints and of which job, for others may look like it.
func (p jobPrinter) reads(raw json.RawMessage) string {
	var text strings.Builder
	var j workload.Info
	_ = json.Unmarshal(raw, &j) // what is no job prints nothing
	p.out = &text
	p.one(raw)
	return fmt.Sprintf("%q %s", j.ID, text.String())
}

func (p jobPrinter) cells(j workload.Info) []string {
	ranOn := j.ScheduledOn
	if name := p.names[ranOn]; name != "" {
		ranOn = name
	}
	text := ""
	if j.Error != nil {
		text = *j.Error
	}
	return []string{time.UnixMilli(j.CreatedMillis).Format(time.DateTime), j.State, took(j),
		j.Engine, j.Model, cmp.Or(ranOn, "-"), text}
}

// took is how long a job has run or ran, from its arrival.
func took(j workload.Info) string {
	end := time.Now().UnixMilli()
	if j.CompletedMillis != nil {
		end = *j.CompletedMillis
	}
	return (time.Duration(end-j.CreatedMillis) * time.Millisecond).Round(10 * time.Millisecond).String()
}
