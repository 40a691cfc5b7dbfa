// SPDX-License-Identifier: Apache-2.0

package netwatch_test

import (
	"context"
	"fmt"

	"nvpair/internal/netwatch"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	netwatch.Run(ctx, netwatch.Config{}, func() {
		fmt.Println("look at the interfaces")
		stop() // a program goes on until it ends
	})
	// Output: look at the interfaces
}
