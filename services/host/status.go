// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"nvpair/shared/brokerapi"
	"nvpair/shared/engine"
)

// statusTimeout is how long a health check may take.
const statusTimeout = 5 * time.Second

// status shows the node, as a table or as JSON. The exit status is 0 when it
// runs, 1 when it is degraded or starting, 2 when there is none.
func (c *cli) status(args []string) int {
	var asJSON bool
	_, code, ok := c.parse("status", args, 0, func(fs *flag.FlagSet) {
		fs.BoolVar(&asJSON, "json", false, "print JSON instead of a table")
	})
	if !ok {
		return code
	}
	raw, err := callOnce(brokerapi.MethodHubStatus, nil, statusTimeout)
	var s brokerapi.HubStatus
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	switch {
	case errors.Is(err, errNoNode):
		if asJSON {
			fmt.Fprintln(c.std.Out, `{"state":"stopped"}`)
		}
		c.fail(err)
		return exitUsage
	case err != nil:
		return c.fail(err)
	case asJSON:
		writeJSON(c.std.Out, raw)
	default:
		printStatus(c.std.Out, s)
	}
	if s.State != brokerapi.NodeRunning {
		return exitFailed
	}
	return exitOK
}

func printStatus(out io.Writer, s brokerapi.HubStatus) {
	t := newTable(out)
	defer t.flush()
	t.row("state", s.State)
	for _, r := range s.Reasons {
		t.row("", r)
	}
	b := s.Broker
	if b == nil {
		return
	}
	t.row()
	printFacades(t, b.Facades)
	t.row()
	t.row("node", b.NodeID)
	t.row("version", b.Version)
	t.row("up", age(b.UptimeMillis))
	t.row("data", b.DataDir)
	errorsLine := strconv.Itoa(b.ErrorCount)
	if b.ErrorCount > 0 {
		errorsLine += ": " + name + " errors"
	}
	t.row("errors", errorsLine)
	t.row()
	t.row("WORKER", "STATE", "PID", "VERSION", "RESTARTS", "SINCE", "LAST END")
	t.row("broker", "running", strconv.Itoa(b.PID), b.Version, strconv.Itoa(s.BrokerRestarts), age(b.UptimeMillis), s.BrokerLastEnd)
	for _, x := range b.Workers {
		if x.State == brokerapi.StateAbsent {
			t.row(x.Name, "not installed", "", "", "", "", "")
			continue
		}
		pid := ""
		if x.PID != 0 {
			pid = strconv.Itoa(x.PID)
		}
		t.row(x.Name, x.State, pid, x.Version, strconv.Itoa(x.Restarts), age(x.SinceMillis), x.LastEnd)
	}
}

// printFacades says which URL to use, and whether an engine answers there.
func printFacades(t table, facades []brokerapi.Facade) {
	t.row("CLIENTS OF", "USE", "WHAT ANSWERS")
	for _, f := range facades {
		who, url := f.Engine, "none"
		if e, known := engine.ByID(f.Engine); known {
			who = e.DisplayName
		}
		if f.Ready {
			url = "http://127.0.0.1:" + strconv.Itoa(f.Port)
		}
		for _, text := range answers(f) {
			t.row(who, url, text)
			who, url = "", ""
		}
		if len(f.Aliases) > 0 {
			t.row("", "http://"+f.Aliases[0], "the same, since OLLAMA_HOST names it")
		}
		if f.AliasNote != "" {
			t.row("", "", "note: "+f.AliasNote)
		}
	}
}

// answers tells of each engine of a facade, in a line each. Where an engine of its
// kind is only usual, its absence is told of if there is no other.
func answers(f brokerapi.Facade) (lines []string) {
	usual, _ := engine.ByID(f.Engine)
	some := slices.ContainsFunc(f.Engines, func(e brokerapi.Engine) bool { return e.Up })
	for _, e := range f.Engines {
		switch {
		case e.Node != "":
			lines = append(lines, fmt.Sprintf("the engine of %s, models: %d", cell(e.Node), e.Models))
		case e.Up:
			lines = append(lines, fmt.Sprintf("the engine at port %d, models: %d", e.Port, e.Models))
		case !some || e.Port != usual.BasePort && e.Port != usual.FacadePort:
			lines = append(lines, fmt.Sprintf("no engine at port %d: %s", e.Port, e.Note))
		}
	}
	if f.Ready && len(f.Engines) == 0 {
		lines = append(lines, "nobody has looked yet")
	}
	if f.Note != "" {
		lines = append(lines, "note: "+f.Note)
	}
	return lines
}

// age prints a time for people: never more exact than a second.
func age(millis int64) string {
	return (time.Duration(millis) * time.Millisecond).Truncate(time.Second).String()
}
