// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/applog/applogtest"
)

// install makes files of these names in a new working directory.
func install(t *testing.T, binaries ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, b := range binaries {
		require.NoError(t, os.WriteFile(b, nil, 0o700))
	}
}

func resolve(explicit map[string]string) (map[string]string, string, error) {
	log := new(applogtest.Buffer)
	paths, err := resolvePaths(explicit, slog.New(slog.NewTextHandler(log, nil)))
	return paths, log.String(), err
}

// TestWorkersLieInTheWorkingDirectory: see BR-1 and BR-2.
func TestWorkersLieInTheWorkingDirectory(t *testing.T) {
	install(t, "nvpair-node-scanner"+exeSuffix(), "nvpair-errors"+exeSuffix())
	paths, log, err := resolve(nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"nvpair-node-scanner": "./nvpair-node-scanner" + exeSuffix(),
		"nvpair-errors":       "./nvpair-errors" + exeSuffix(),
	}, paths)
	missing := 0
	for _, d := range catalog() {
		if _, found := paths[d.binary]; !found && !d.planned {
			missing++
		}
	}
	require.Equal(t, missing, strings.Count(log, "level=WARN"), "one warning for each that is missing")
}

func TestOnlyTheScannerIsNeeded(t *testing.T) {
	install(t, "nvpair-errors"+exeSuffix())
	_, _, err := resolve(nil)
	require.EqualError(t, err, "nvpair-node-scanner is needed and not in the current directory; name it with --scanner-path")
}

func TestAnExplicitPathMustExist(t *testing.T) {
	install(t, "nvpair-node-scanner"+exeSuffix())
	for _, d := range catalog() {
		for _, path := range []string{filepath.Join("no", "such"), ""} {
			_, _, err := resolve(map[string]string{d.binary: path})
			require.ErrorIs(t, err, os.ErrNotExist, "%s %q", d.binary, path)
			require.ErrorContains(t, err, "--"+d.pathFlag+": ")
		}
	}
}

func TestAnExplicitPathIsTaken(t *testing.T) {
	install(t, "my-scanner", "nvpair-node-scanner"+exeSuffix())
	abs, err := filepath.Abs("my-scanner")
	require.NoError(t, err)
	for in, want := range map[string]string{
		abs:            abs,
		"./my-scanner": "./my-scanner",
		"my-scanner":   "./my-scanner", // a bare name would be looked for in PATH
	} {
		paths, _, err := resolve(map[string]string{"nvpair-node-scanner": in})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"nvpair-node-scanner": want}, paths)
	}
}

func TestCrashIDsAreThoseOfTheSupervisorNames(t *testing.T) {
	var names []string
	for _, d := range catalog() {
		names = append(names, d.name)
	}
	require.Equal(t, []string{
		"scanner", "errors", "settings", "engine-manager", "node-info", "nvpair-proxy", "workload-manager", "manual-nodes",
		"cluster-manager", "scheduler",
	}, names)
}
