// SPDX-License-Identifier: Apache-2.0

package appdir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// maxSocketPath is what every system takes as the path of a Unix domain socket,
// with its terminating zero: 104 bytes on macOS, 108 on Linux.
const maxSocketPath = 103

// ControlEndpoints returns where the control endpoint of the node with that data
// directory may be, best place first (DEC-120). A node listens at the first; a
// client that was started in another environment than the node tries them all.
func ControlEndpoints(dataDir string) []string {
	sum := sha256.Sum256([]byte(dataDir))
	id := hex.EncodeToString(sum[:])[:12]
	if runtime.GOOS == "windows" {
		return []string{`\\.\pipe\nvpair-` + id}
	}
	var places []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		places = append(places, filepath.Join(dir, "nvpair", id+".sock"))
	}
	places = append(places,
		filepath.Join(dataDir, "run", "nvpair.sock"),
		filepath.Join(os.TempDir(), fmt.Sprintf("nvpair-%d-%s", os.Getuid(), id), "nvpair.sock"))
	fitting := places[:0]
	for _, p := range places {
		if len(p) <= maxSocketPath {
			fitting = append(fitting, p)
		}
	}
	return fitting
}
