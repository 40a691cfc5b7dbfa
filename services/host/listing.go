// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// listing is a command that prints a list, and goes on with what changes if it is
// told to watch.
type listing struct {
	name      string
	jsonHelp  string // what --json prints
	watchHelp string // what --watch goes on with
	show      func(ctx context.Context, n *node, asJSON, watch bool) error
}

// list runs the command until it is done or interrupted.
func (c *cli) list(l listing, args []string) int {
	var asJSON, watch bool
	_, code, ok := c.parse(l.name, args, 0, func(fs *flag.FlagSet) {
		fs.BoolVar(&asJSON, "json", false, "print JSON: "+l.jsonHelp)
		fs.BoolVar(&watch, "watch", false, l.watchHelp+" until interrupted")
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
	if err := l.show(ctx, n, asJSON, watch); err != nil && ctx.Err() == nil {
		return c.fail(err)
	}
	return exitOK
}

// lists prints one list after another, none that reads the same as the one before.
type lists struct {
	out    io.Writer
	asJSON bool

	any  bool   // one was printed
	last string // how it reads
}

// next prints a list, unless it reads as the last one does. For people an empty
// line stands between two.
func (l *lists) next(reads string, print func(out io.Writer, asJSON bool)) {
	if l.any && reads == l.last {
		return
	}
	if l.any && !l.asJSON {
		fmt.Fprintln(l.out)
	}
	l.any, l.last = true, reads
	print(l.out, l.asJSON)
}
