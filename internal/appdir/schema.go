// SPDX-License-Identifier: Apache-2.0

package appdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"nvpair/internal/atomicfile"
)

// schemaVersion is the layout of the data directory that this build reads and
// writes (DEC-121).
const schemaVersion = 1

const maxSchemaBytes = 64 << 10

// SchemaError says that the data directory was laid out by a newer release.
type SchemaError struct {
	Path             string // of schema.json
	Found, Supported int
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s has version %d, this build supports up to version %d; nothing was touched; "+
		"install the newer release or set %s to another directory", e.Path, e.Found, e.Supported, envDataDir)
}

type schemaFile struct {
	Schema int `json:"schema"`
}

func schemaPath(dir string) string { return filepath.Join(dir, "schema.json") }

// CheckSchema returns nil if this build may use the data directory dir; a
// directory or schema.json that is missing is fine. A newer layout is a
// *SchemaError. A file that makes no sense is an error too, and is kept. It
// changes nothing, not even the mode of the file.
func CheckSchema(dir string) error {
	path := schemaPath(dir)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path) // opening a pipe would wait for its writer
	}
	if err != nil {
		return fmt.Errorf("check the data directory: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("check the data directory: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSchemaBytes))
	if err != nil {
		return fmt.Errorf("check the data directory: %w", err)
	}

	var s schemaFile
	err = json.Unmarshal(data, &s)
	if err == nil && s.Schema < 1 {
		err = errors.New("no version number from 1")
	}
	if err != nil {
		return fmt.Errorf(`%s is damaged: %w; the file was kept; restore it, or write {"schema":%d} to it `+
			"if no newer release has run here", path, err, schemaVersion)
	}
	if s.Schema > schemaVersion {
		return &SchemaError{Path: path, Found: s.Schema, Supported: schemaVersion}
	}
	return nil
}

// WriteSchema writes schema.json if there is none, with dir if need be. An
// existing one stays as it is, whatever it holds; CheckSchema comes first. Only
// one process may do so, the broker under its lock.
func WriteSchema(dir string) error {
	path := schemaPath(dir)
	there, err := exists(path)
	if there || err != nil {
		return err
	}
	data, err := json.Marshal(schemaFile{schemaVersion})
	if err != nil {
		return err
	}
	return atomicfile.Write(path, data)
}
