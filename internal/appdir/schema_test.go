// SPDX-License-Identifier: Apache-2.0

package appdir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMissingSchemaIsFineAndIsWrittenOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, CheckSchema(dir))
	require.NoDirExists(t, dir)
	require.NoError(t, WriteSchema(dir))
	require.Equal(t, `{"schema":1}`, content(t, dir, "schema.json"))
	require.NoError(t, CheckSchema(dir))

	put(t, `{ "schema": 1, "more": true }`, dir, "schema.json")
	require.NoError(t, CheckSchema(dir))
	require.NoError(t, WriteSchema(dir))
	require.Equal(t, `{ "schema": 1, "more": true }`, content(t, dir, "schema.json"))
}

func TestNewerSchemaIsRefusedUntouched(t *testing.T) {
	dir := t.TempDir()
	path := put(t, `{"schema":2}`, dir, "schema.json")
	require.NoError(t, os.Chmod(path, 0o644))
	before, err := os.Stat(path)
	require.NoError(t, err)

	err = CheckSchema(dir)
	var newer *SchemaError
	require.ErrorAs(t, err, &newer)
	require.Equal(t, &SchemaError{Path: path, Found: 2, Supported: 1}, newer)
	require.ErrorContains(t, err, "supports up to version 1; nothing was touched")

	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, before.Mode(), after.Mode())
	require.Equal(t, before.ModTime(), after.ModTime())
}

func TestDamagedSchemaIsAnErrorAndKept(t *testing.T) {
	for _, text := range []string{
		"", "{", "[]", "null", `{}`, `{"schema":0}`, `{"schema":-1}`, `{"schema":1.5}`, `{"schema":"1"}`,
		`{"schema":1} x`, `{"schema":1e99}`,
	} {
		dir := t.TempDir()
		path := put(t, text, dir, "schema.json")
		err := CheckSchema(dir)
		require.ErrorContains(t, err, path+" is damaged", "%q", text)
		require.NotErrorAs(t, err, new(*SchemaError))
		require.Equal(t, text, content(t, path))
	}
}

// Opening a pipe would wait for a writer for ever.
func TestASchemaThatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "schema.json"), 0o700))
	require.ErrorContains(t, CheckSchema(dir), "is no regular file")
}
