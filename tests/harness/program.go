// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// programs holds what Program makes: a func() (string, error) for each folder, which builds at most once.
var programs sync.Map

// Program returns the path of a command that only tests use, such as a twin of a real one with faults. folder is where
// it lies in the repository, with slashes. The first call for a folder builds it, with the race detector if this test
// has it; Main removes it.
func Program(t testing.TB, folder string) string {
	t.Helper()
	dir := Bin(t)
	build, _ := programs.LoadOrStore(folder, sync.OnceValues(func() (string, error) { return makeProgram(dir, folder) }))
	file, err := build.(func() (string, error))()
	if err != nil {
		t.Fatalf("build %s: %v", folder, err)
	}
	return file
}

// makeProgram builds the command of a folder below dir, which goes with all that Bin made.
func makeProgram(dir, folder string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "tests", path.Base(folder))
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	args := []string{"build", "-buildvcs=false", "-trimpath", "-o", file}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./"+folder)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, nil
}
