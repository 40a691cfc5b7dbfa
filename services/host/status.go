// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
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
		fmt.Fprintf(c.std.Out, "%s\n", raw)
	default:
		printStatus(c.std.Out, s)
	}
	if s.State != brokerapi.NodeRunning {
		return exitFailed
	}
	return exitOK
}

func printStatus(out io.Writer, s brokerapi.HubStatus) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer func() { _ = w.Flush() }()
	fmt.Fprintf(w, "state\t%s\n", s.State)
	for _, r := range s.Reasons {
		fmt.Fprintf(w, "\t%s\n", r)
	}
	b := s.Broker
	if b == nil {
		return
	}
	fmt.Fprintf(w, "node\t%s\n", b.NodeID)
	fmt.Fprintf(w, "version\t%s\n", b.Version)
	fmt.Fprintf(w, "up\t%s\n", age(b.UptimeMillis))
	fmt.Fprintf(w, "data\t%s\n", b.DataDir)
	errorsLine := strconv.Itoa(b.ErrorCount)
	if b.ErrorCount > 0 {
		errorsLine += ": " + name + " call errors:get-initial"
	}
	fmt.Fprintf(w, "errors\t%s\n", errorsLine)
	for _, f := range b.Facades {
		where := "not available"
		if f.Ready {
			where = "http://127.0.0.1:" + strconv.Itoa(f.Port)
		}
		fmt.Fprintf(w, "%s\t%s\n", f.Engine, where)
	}
	fmt.Fprintf(w, "\nWORKER\tSTATE\tPID\tVERSION\tRESTARTS\tSINCE\tLAST END\n")
	fmt.Fprintf(w, "broker\trunning\t%d\t%s\t%d\t%s\t%s\n", b.PID, b.Version, s.BrokerRestarts, age(b.UptimeMillis), s.BrokerLastEnd)
	for _, x := range b.Workers {
		if x.State == brokerapi.StateAbsent {
			fmt.Fprintf(w, "%s\tnot installed\t\t\t\t\t\n", x.Name)
			continue
		}
		pid := ""
		if x.PID != 0 {
			pid = strconv.Itoa(x.PID)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", x.Name, x.State, pid, x.Version, x.Restarts, age(x.SinceMillis), x.LastEnd)
	}
}

// age prints a time for people: never more exact than a second.
func age(millis int64) string {
	return (time.Duration(millis) * time.Millisecond).Truncate(time.Second).String()
}
