// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Binaries are the names under which the one executable is installed (DEC-112): BINARIES of the Makefile.
var Binaries = []string{"nvpair", "nvpair-ui-broker", "nvpair-node-scanner", "nvpair-errors", "nvpair-node-settings",
	"nvpair-node-info", "nvpair-proxy", "nvpair-job-scheduler", "nvpair-manual-nodes"}

// built is what Bin made, for the whole test process.
var built struct {
	once sync.Once
	dir  string // "" if Bin was never called, or could not make it
	err  error
}

// Bin returns the directory that holds all Binaries, stamped from versions.json as `make build` does it. The first
// call builds them, with the race detector if this test has it; Main removes them.
func Bin(t testing.TB) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = makeBin() })
	if built.err != nil {
		t.Fatalf("build the binaries: %v", built.err)
	}
	return built.dir
}

// removeBin removes what Bin made. No test runs any more.
func removeBin() error {
	if built.dir == "" {
		return nil
	}
	return os.RemoveAll(built.dir)
}

// makeBin builds this repository's binaries into a new temporary directory.
func makeBin() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "nvpair-bin-")
	if err != nil {
		return "", err
	}
	if err := buildInto(root, dir, raceEnabled); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// plain builds what PlainBin returns, at most once.
var plain = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(built.dir, "plain")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, buildInto(root, dir, false)
})

// PlainBin is Bin without the race detector, for what its memory or pace would spoil.
func PlainBin(t testing.TB) string {
	t.Helper()
	if dir := Bin(t); !raceEnabled {
		return dir
	}
	dir, err := plain()
	if err != nil {
		t.Fatalf("build the binaries without the race detector: %v", err)
	}
	return dir
}

// buildInto builds cmd/nvpair-bundle of the module in root and links it into dir under each of Binaries.
func buildInto(root, dir string, race bool) error {
	versions, err := os.ReadFile(filepath.Join(root, "versions.json"))
	if err != nil {
		return err
	}
	stamp, err := stampOf(versions)
	if err != nil {
		return fmt.Errorf("read versions.json: %w", err)
	}
	bundle := filepath.Join(dir, ".bundle")
	args := []string{"build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w -X main.Versions=" + stamp, "-o", bundle}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/nvpair-bundle")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	for _, name := range Binaries {
		if runtime.GOOS == "windows" {
			name += ".exe"
		}
		if err := os.Link(bundle, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return os.Remove(bundle)
}

// stampOf returns the value of main.Versions for the contents of versions.json: name=version, separated by commas,
// the suite's own number under the name "services".
func stampOf(versions []byte) (string, error) {
	var file struct {
		Services   string            `json:"services"`
		Components map[string]string `json:"components"`
	}
	if err := json.Unmarshal(versions, &file); err != nil {
		return "", err
	}
	pairs := []string{"services=" + file.Services}
	for name, version := range file.Components {
		pairs = append(pairs, name+"="+version)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ","), nil
}

// moduleRoot returns the directory of go.mod, looked for upwards from the working directory, which for a test is its
// package's folder.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("find the module's root: %w", err)
		}
		dir = parent
	}
}
