// SPDX-License-Identifier: Apache-2.0

package appdir_test

import (
	"fmt"
	"os"
	"path/filepath"

	"nvpair/internal/appdir"
)

func Example() {
	tmp, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(tmp)

	dir := filepath.Join(tmp, "data") // in a program: appdir.DataDir()
	if err := appdir.CheckSchema(dir); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(appdir.WriteSchema(dir))
	first, err := appdir.NodeID(dir)
	fmt.Println(err)
	again, err := appdir.NodeID(dir)
	fmt.Println(again == first, err)
	// Output:
	// <nil>
	// <nil>
	// true <nil>
}
