// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"
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
	var asJSON, watch bool
	_, code, ok := c.parse("jobs", args, 0, func(fs *flag.FlagSet) {
		fs.BoolVar(&asJSON, "json", false, "print JSON: a list, with --watch one record a line")
		fs.BoolVar(&watch, "watch", false, "go on with every change until interrupted")
	})
	if !ok {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	n, err := dial(ctx)
	if err != nil {
		return c.fail(err)
	}
	defer n.close()
	changes := n.on(workload.MethodUpsert)
	list, names, err := n.jobList(ctx)
	if err != nil {
		return c.fail(err)
	}
	p := jobPrinter{out: c.std.Out, json: asJSON, names: names, lines: watch}
	p.list(list)
	if !watch {
		return exitOK
	}
	return c.watchJobs(ctx, n, changes, p)
}

func (c *cli) watchJobs(ctx context.Context, n *node, changes <-chan json.RawMessage, p jobPrinter) int {
	for {
		select {
		case raw := <-changes:
			var e workload.Event
			if json.Unmarshal(raw, &e) == nil {
				p.one(e.Info)
			}
		case <-n.rpc.DisconnectNotify():
			return c.fail(errDisconnected)
		case <-ctx.Done():
			return exitOK
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
		raw, err := json.Marshal(l.Workloads)
		if err == nil {
			fmt.Fprintf(p.out, "%s\n", raw)
		}
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
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STARTED\tSTATE\tTOOK\tENGINE\tMODEL\tRAN ON\tERROR")
	for _, j := range jobs {
		fmt.Fprintln(w, p.row(j, "\t"))
	}
	_ = w.Flush()
}

func (p jobPrinter) one(raw json.RawMessage) {
	var j workload.Info
	switch {
	case p.json:
		fmt.Fprintf(p.out, "%s\n", raw)
	case json.Unmarshal(raw, &j) == nil:
		fmt.Fprintln(p.out, p.row(j, "  "))
	}
}

func (p jobPrinter) row(j workload.Info, gap string) string {
	ranOn := j.ScheduledOn
	if name := p.names[ranOn]; name != "" {
		ranOn = name
	}
	text := ""
	if j.Error != nil {
		text = *j.Error
	}
	return line(gap, time.UnixMilli(j.CreatedMillis).Format(time.DateTime), j.State, took(j),
		j.Engine, j.Model, cmp.Or(ranOn, "-"), text)
}

// took is how long a job has run or ran, from its arrival.
func took(j workload.Info) string {
	end := time.Now().UnixMilli()
	if j.CompletedMillis != nil {
		end = *j.CompletedMillis
	}
	return (time.Duration(end-j.CreatedMillis) * time.Millisecond).Round(10 * time.Millisecond).String()
}
