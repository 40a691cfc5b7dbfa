// SPDX-License-Identifier: Apache-2.0

package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"nvpair/internal/filelock"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "run", "demo.lock")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	lock, err := filelock.Acquire(ctx, path, filelock.Info{PID: 4711, Kind: "demo"})
	if held := (*filelock.HeldError)(nil); errors.As(err, &held) {
		fmt.Println("already running with pid", held.Info.PID)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	info, held, _ := filelock.Holder(path)
	fmt.Println(info.PID, held)
	fmt.Println(lock.Release())
	// Output:
	// 4711 true
	// <nil>
}
