// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"nvpair/shared/brokerapi"
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
	t.row("node", b.NodeID)
	t.row("version", b.Version)
	t.row("up", age(b.UptimeMillis))
	t.row("data", b.DataDir)
	errorsLine := strconv.Itoa(b.ErrorCount)
	if b.ErrorCount > 0 {
		errorsLine += ": " + name + " call errors:get-initial"
	}
	t.row("errors", errorsLine)
	for _, f := range b.Facades {
		where := "not available"
		if f.Ready {
			where = "http://127.0.0.1:" + strconv.Itoa(f.Port)
		}
		t.row(f.Engine, where)
	}
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

// age prints a time for people: never more exact than a second.
func age(millis int64) string {
	return (time.Duration(millis) * time.Millisecond).Truncate(time.Second).String()
}
