// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tinyBundle prints the name that it was started under, and its stamp.
const tinyBundle = `package main

import (
	"fmt"
	"os"
	"path/filepath"
)

var Versions = "none"

func main() { fmt.Print(filepath.Base(os.Args[0]), " ", Versions) }
`

func TestTheExecutableIsStampedAndHasEveryName(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	command := filepath.Join(root, "cmd", "nvpair-bundle")
	require.NoError(t, os.MkdirAll(command, 0o700))
	for path, text := range map[string]string{
		filepath.Join(root, "go.mod"):        "module nvpair\n",
		filepath.Join(root, "versions.json"): `{"$comment": "x", "services": "1.2.3", "components": {"nvpair": "4.5.6"}}`,
		filepath.Join(command, "main.go"):    tinyBundle,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	require.NoError(t, buildInto(root, dir, raceEnabled))

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, len(Binaries))
	first, err := entries[0].Info()
	require.NoError(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		require.True(t, os.SameFile(first, info), "%s is a file of its own", entry.Name())
		cmd := exec.Command(filepath.Join(dir, entry.Name()))
		cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		out, err := cmd.Output()
		require.NoError(t, err)
		require.Equal(t, entry.Name()+" nvpair=4.5.6,services=1.2.3", string(out))
	}
}

func TestABuildThatFailsSaysWhy(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{"go.mod": "module nvpair\n", "versions.json": `{}`} {
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
	require.ErrorContains(t, buildInto(root, t.TempDir(), raceEnabled), "cmd/nvpair-bundle")
}

func TestTheMakefileBuildsTheSame(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs make")
	}
	root, err := moduleRoot()
	require.NoError(t, err)
	cmd := exec.Command("make", "--dry-run", "build")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	names := regexp.MustCompile(`for name in (.*); do`).FindSubmatch(out)
	require.NotNil(t, names, "no list of names in:\n%s", out)
	require.ElementsMatch(t, Binaries, strings.Fields(string(names[1])))

	stamp := regexp.MustCompile(`-X main\.Versions=([^" ]*)"`).FindSubmatch(out)
	require.NotNil(t, stamp, "no stamp in:\n%s", out)
	pairs := strings.Split(string(stamp[1]), ",")
	slices.Sort(pairs)
	versions, err := os.ReadFile(filepath.Join(root, "versions.json"))
	require.NoError(t, err)
	want, err := stampOf(versions)
	require.NoError(t, err)
	require.Equal(t, want, strings.Join(pairs, ","))
	for _, name := range Binaries {
		require.Contains(t, want, ","+name+"=", "versions.json has no number for it")
	}
}
