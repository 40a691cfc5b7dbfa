// SPDX-License-Identifier: Apache-2.0

package appdir

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// isolate points every variable that leads to a data directory at a new
// directory, and returns the base in it.
func isolate(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	t.Setenv(envDataDir, "")
	t.Setenv("HOME", root)
	t.Setenv("XDG_CONFIG_HOME", root)
	t.Setenv("LOCALAPPDATA", root)
	t.Setenv("APPDATA", filepath.Join(root, "roaming"))
	if runtime.GOOS == "darwin" {
		return filepath.Join(root, "Library", "Application Support")
	}
	return root
}

// put writes a file with its directories.
func put(t *testing.T, content string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(data)
}

func TestDataDirIsBelowTheUsersBase(t *testing.T) {
	base := isolate(t)
	dir, err := DataDir()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(base, "Nvidia Corporation", "Personal AI Router"), dir)
	require.NoDirExists(t, filepath.Join(base, "Nvidia Corporation")) // WR-63
}

func TestDotConfigIsTheBaseWithoutXDG(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	base := isolate(t)
	t.Setenv("XDG_CONFIG_HOME", "")
	dir, err := DataDir()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(base, ".config", Organisation, Product), dir)
}

func TestOverrideWinsAndIsMadeAbsolute(t *testing.T) {
	isolate(t)
	wd := t.TempDir()
	t.Chdir(wd)
	wd, err := os.Getwd() // as the system sees it
	require.NoError(t, err)
	for in, want := range map[string]string{
		filepath.Join(wd, "a b"): filepath.Join(wd, "a b"),
		"rel":                    filepath.Join(wd, "rel"),
		".":                      wd,
	} {
		t.Setenv(envDataDir, in)
		dir, err := DataDir()
		require.NoError(t, err)
		require.Equal(t, want, dir)
	}
}

func TestUnknownBaseSaysWhatToSet(t *testing.T) {
	isolate(t)
	for _, v := range []string{"", "relative"} {
		for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "APPDATA"} {
			t.Setenv(name, v)
		}
		_, err := DataDir()
		require.ErrorContains(t, err, "set NVPAIR_DATA_DIR")
		_, err = Migrate()
		require.ErrorContains(t, err, "set NVPAIR_DATA_DIR")
	}
}

func TestLogLevelComesFromItsVariable(t *testing.T) {
	t.Setenv(envLogLevel, " Debug")
	require.Equal(t, " Debug", LogLevelEnv())
}
