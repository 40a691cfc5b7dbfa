// SPDX-License-Identifier: Apache-2.0

package appdir

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// places returns where a former release and this one keep their data.
func places(t *testing.T) (base, src, dst string) {
	t.Helper()
	base = isolate(t)
	return base, previous()[0].under(base), current().under(base)
}

func TestWithoutFormerDataNothingIsCreated(t *testing.T) {
	base, _, _ := places(t)
	report, err := Migrate()
	require.NoError(t, err)
	require.Zero(t, report)
	require.NoDirExists(t, filepath.Join(base, Organisation))
}

func TestFormerDataMovesAndTheDirectoryGoes(t *testing.T) {
	_, src, dst := places(t)
	put(t, "s", src, "settings.json")
	put(t, "b", src, "engines", "bin", "x") // only the topmost bin stays
	report, err := Migrate()
	require.NoError(t, err)
	require.Equal(t, Report{Moved: []string{filepath.Join(dst, "engines"), filepath.Join(dst, "settings.json")}}, report)
	require.Equal(t, "s", content(t, dst, "settings.json"))
	require.Equal(t, "b", content(t, dst, "engines", "bin", "x"))
	require.NoDirExists(t, src)
	require.NoFileExists(t, filepath.Join(dst, "..", ".nvpair-data-migration.lock"))
}

func TestDirectoriesMergeAndFilesAreNeverReplaced(t *testing.T) {
	_, src, dst := places(t)
	put(t, "old", src, "settings.json")
	put(t, "new", dst, "settings.json")
	put(t, "old", src, "cluster", "trusted", "a")
	put(t, "new", dst, "cluster", "trusted", "b")
	put(t, "old", src, "cluster", "trusted", "b")
	put(t, "old", src, "file-or-dir", "x")
	put(t, "new", dst, "file-or-dir")
	put(t, "exe", src, "bin", "nvpair")
	put(t, "old", src, "logs", "l") // emptied by its merge
	put(t, "new", dst, "logs", "m")

	want := Report{
		Moved: []string{filepath.Join(dst, "cluster", "trusted", "a"), filepath.Join(dst, "logs", "l")},
		Kept: []string{filepath.Join(src, "cluster", "trusted", "b"), filepath.Join(src, "file-or-dir"),
			filepath.Join(src, "settings.json")},
	}
	report, err := Migrate()
	require.NoError(t, err)
	require.Equal(t, want, report)
	require.Equal(t, "new", content(t, dst, "settings.json"))
	require.Equal(t, "new", content(t, dst, "cluster", "trusted", "b"))
	require.Equal(t, "old", content(t, src, "settings.json"))
	require.Equal(t, "exe", content(t, src, "bin", "nvpair"))
	require.NoDirExists(t, filepath.Join(src, "logs"))

	report, err = Migrate() // again: the same stays, nothing moves
	require.NoError(t, err)
	require.Equal(t, Report{Kept: want.Kept}, report)
}

func TestOverrideKeepsFormerDataInPlace(t *testing.T) {
	_, src, _ := places(t)
	put(t, "s", src, "settings.json")
	t.Setenv(envDataDir, t.TempDir())
	report, err := Migrate()
	require.NoError(t, err)
	require.Zero(t, report)
	require.FileExists(t, filepath.Join(src, "settings.json"))
}

func TestLinkInTheFormerPlaceIsNotFollowed(t *testing.T) {
	_, src, dst := places(t)
	put(t, "s", dst, "settings.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(src), 0o700))
	if err := os.Symlink(dst, src); err != nil {
		t.Skip("no links here")
	}
	report, err := Migrate()
	require.NoError(t, err)
	require.Zero(t, report)
	require.FileExists(t, filepath.Join(src, "settings.json"))
}

func TestSameDirectoryIsNoSource(t *testing.T) {
	dir := t.TempDir()
	require.False(t, isSource(dir, filepath.Join(dir, ".")))
	require.True(t, isSource(dir, filepath.Join(dir, "missing")))
}

func TestStaleLockIsTaken(t *testing.T) {
	base, src, dst := places(t)
	put(t, "s", src, "settings.json")
	lock := put(t, "", base, Organisation, ".nvpair-data-migration.lock")
	old := time.Now().Add(-migrateStale - time.Minute)
	require.NoError(t, os.Chtimes(lock, old, old))
	_, err := Migrate()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dst, "settings.json"))
	require.NoFileExists(t, lock)
}

func TestBusyLockMovesNothing(t *testing.T) {
	base, src, _ := places(t)
	put(t, "s", src, "settings.json")
	lock := put(t, "", base, Organisation, ".nvpair-data-migration.lock")
	synctest.Test(t, func(t *testing.T) { // whose clock is behind that of the file system: never stale
		begin := time.Now()
		report, err := Migrate()
		require.ErrorIs(t, err, ErrMigrationBusy)
		require.Zero(t, report)
		require.Equal(t, migrateWait, time.Since(begin))
	})
	require.FileExists(t, lock)
	require.FileExists(t, filepath.Join(src, "settings.json"))
}

func TestLockIsWaitedFor(t *testing.T) {
	base, src, dst := places(t)
	put(t, "s", src, "settings.json")
	lock := put(t, "", base, Organisation, ".nvpair-data-migration.lock")
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(migrateWait/2, func() { _ = os.Remove(lock) })
		_, err := Migrate()
		require.NoError(t, err)
	})
	require.FileExists(t, filepath.Join(dst, "settings.json"))
	require.NoFileExists(t, lock)
}
