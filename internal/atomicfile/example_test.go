// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"fmt"
	"os"
	"path/filepath"

	"nvpair/internal/atomicfile"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "state", "settings.json")
	atomicfile.RemoveLeftovers(path) // at start, by the only writer of the file
	if err := atomicfile.Write(path, []byte(`{"port":4711}`)); err != nil {
		fmt.Println(err)
	}
	data, err := atomicfile.Read(path, 1<<20)
	fmt.Println(string(data), err)
	// Output: {"port":4711} <nil>
}
