// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"nvpair/shared/brokerapi"
	"nvpair/shared/serviceerror"
)

// errorsTimeout bounds the questions of nvpair errors.
const errorsTimeout = 10 * time.Second

// errorList is the service errors that stand, and who asks.
type errorList struct {
	list []serviceerror.ServiceError
	self string // this node's id
}

// errors lists what a person should know of; with --watch again at every change
// until it is interrupted.
func (c *cli) errors(args []string) int {
	return c.list(listing{
		name:      "errors",
		jsonHelp:  "a list, with --watch one a line",
		watchHelp: "print the list again at every change",
		show: func(ctx context.Context, n *node, asJSON, watch bool) error {
			changes := n.on(serviceerror.NotifyUpdate)
			printed := lists{out: c.std.Out, asJSON: asJSON}
			for again := true; again; {
				l, err := n.serviceErrors(ctx)
				if err != nil {
					return err
				}
				printed.next(l.reads(asJSON), l.print)
				if again, err = n.awaitChange(ctx, watch, changes); err != nil {
					return err
				}
			}
			return nil
		},
	}, args)
}

// errorsClear takes an error of this node off the list.
func (c *cli) errorsClear(args []string) int {
	rest, code, ok := c.parse("errors clear", args, 1, func(*flag.FlagSet) {})
	if !ok {
		return code
	}
	if len(rest) == 0 {
		return c.misuse("errors clear", "an id is needed, as %s errors lists them", name)
	}
	return c.withNode(func(ctx context.Context, n *node) error {
		l, err := n.serviceErrors(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(l.list, func(e serviceerror.ServiceError) bool {
			return e.NodeID == l.self && (e.ID == rest[0] || sentence(e.ID) == rest[0])
		})
		if i < 0 {
			return fmt.Errorf("this node has no error %q; %s errors lists them", rest[0], name)
		}
		if _, err := n.call(ctx, serviceerror.MethodClear, serviceerror.Clear{ID: l.list[i].ID, ClearedBy: l.self}); err != nil {
			return err
		}
		c.say("cleared %s; it is listed again if it is reported again", l.list[i].ID)
		return nil
	})
}

// serviceErrors asks for what stands.
func (n *node) serviceErrors(ctx context.Context) (errorList, error) {
	ctx, cancel := context.WithTimeout(ctx, errorsTimeout)
	defer cancel()
	var l errorList
	var status brokerapi.Status
	err := n.awaitReady(ctx)
	if err == nil {
		err = n.callInto(ctx, brokerapi.MethodStatus, &status)
	}
	var raw json.RawMessage
	if err == nil {
		raw, err = n.call(ctx, serviceerror.MethodGetInitial, nil)
	}
	if err == nil {
		err = json.Unmarshal(raw, &l.list)
	}
	l.self = status.NodeID
	return l, err
}

// reads tells lists apart that are worth to be printed: by all of the JSON, and for
// people by all but ages.
func (l errorList) reads(asJSON bool) string {
	var text strings.Builder
	if asJSON {
		l.print(&text, true)
		return text.String()
	}
	l.sort()
	for _, e := range l.list {
		fmt.Fprintf(&text, "%q\n", []string{e.Severity, e.ID, e.NodeID, e.Message, e.Action})
	}
	return text.String()
}

// sort puts the worst first, and of equals the newest.
func (l errorList) sort() {
	slices.SortStableFunc(l.list, func(a, b serviceerror.ServiceError) int {
		return cmp.Or(cmp.Compare(gravity(a.Severity), gravity(b.Severity)), cmp.Compare(b.TimestampMillis, a.TimestampMillis))
	})
}

// print prints the list in that order.
func (l errorList) print(out io.Writer, asJSON bool) {
	l.sort()
	if asJSON {
		printJSON(out, append([]serviceerror.ServiceError{}, l.list...)) // never null
		return
	}
	if len(l.list) == 0 {
		fmt.Fprintln(out, "no errors")
	}
	for _, e := range l.list {
		where := ""
		if e.NodeID != l.self {
			where = "  on node " + e.NodeID
		}
		since := age(max(0, time.Now().UnixMilli()-e.TimestampMillis))
		fmt.Fprintf(out, "%s  %s ago  %s%s\n", cell(cmp.Or(e.Severity, "error")), since, sentence(e.ID), cell(where))
		fmt.Fprintf(out, "    %s\n", sentence(e.Message))
		if e.Action != "" && e.Action != serviceerror.ActionNone {
			fmt.Fprintf(out, "    what to do: %s\n", cell(e.Action))
		}
	}
}

// gravity orders severities, the worst first; the set is open.
func gravity(severity string) int {
	switch severity {
	case serviceerror.SeverityError, "":
		return 0
	case serviceerror.SeverityWarning:
		return 1
	case serviceerror.SeverityInfo:
		return 3
	}
	return 2
}
