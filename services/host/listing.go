// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"flag"
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
