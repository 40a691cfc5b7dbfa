// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/filelock"
	"nvpair/shared/brokerapi"
)

// stopWait is longer than a node's own bounded shutdown.
const stopWait = 40 * time.Second

// stop asks the node to stop and waits until nothing of it holds the data
// directory. Without a node there is nothing to do, which is success.
func (c *cli) stop(args []string) int {
	if _, code, ok := c.parse("stop", args, 0, func(*flag.FlagSet) {}); !ok {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	dataDir, err := appdir.DataDir()
	if err != nil {
		return c.fail(err)
	}
	_, err = callOnce(brokerapi.MethodHubStop, nil, stopWait)
	switch {
	case errors.Is(err, errNoNode) && !nodeHeld(dataDir):
		fmt.Fprintf(c.std.Out, "no node is running for %s\n", dataDir)
		return exitOK
	case err != nil && !errors.Is(err, errNoNode) && !errors.Is(err, errDisconnected): // who hangs up is stopping
		return c.fail(err)
	}
	if !awaitReleased(ctx, dataDir) {
		return c.fail(fmt.Errorf("the node is still stopping after %v; its log says what holds it", stopWait))
	}
	fmt.Fprintln(c.std.Out, "stopped")
	return exitOK
}

func nodeHeld(dataDir string) bool {
	_, held, err := filelock.Holder(nodeLock(dataDir))
	return err == nil && held
}

func awaitReleased(ctx context.Context, dataDir string) bool {
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for nodeHeld(dataDir) {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
