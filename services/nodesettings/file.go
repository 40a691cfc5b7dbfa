// SPDX-License-Identifier: Apache-2.0

package nodesettings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"nvpair/internal/atomicfile"
	"nvpair/internal/jsonrpc"
)

// maxFileBytes takes any file that save writes: two strings, each as long as a
// frame allows and, in the worst case, twice as long once encoded.
const maxFileBytes = 2*2*jsonrpc.DefaultMaxFrameBytes + 4096

var (
	errNotUTF8   = errors.New("not UTF-8")
	errNotObject = errors.New("not a JSON object")
)

// load reads the file, or takes the defaults if there is none. malformed is why
// its content could not be used; then the defaults are in place too. err is for
// a file that is there but cannot be read safely: going on with defaults would
// overwrite it (ST-17, PO-50).
func (s *service) load() (malformed, err error) {
	s.current = defaults()
	data, err := atomicfile.Read(s.path, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("settings not readable: %w; repair that or name another file with --settings", err)
	}
	stored, malformed := decode(data)
	if malformed == nil {
		s.current = stored
	}
	return malformed, nil
}

// decode reads a file's content over the defaults. Unknown keys are ignored, and
// gone with the next write (ST-16); a known key of the wrong type makes the whole
// content malformed.
func decode(data []byte) (settings, error) {
	s := defaults()
	if !utf8.Valid(data) {
		return s, errNotUTF8 // the decoder would change the strings silently
	}
	var stored map[string]json.RawMessage // unlike a struct, exact about the keys' case
	if err := json.Unmarshal(data, &stored); err != nil {
		return s, err
	}
	if stored == nil {
		return s, errNotObject
	}
	for key, member := range map[string]any{
		"force_ports":           &s.ForcePorts,
		"cluster_auto_sync":     &s.ClusterAutoSync,
		"cluster_id":            &s.ClusterID,
		"cluster_friendly_name": &s.ClusterFriendlyName,
	} {
		raw, found := stored[key]
		if !found {
			continue
		}
		if string(raw) == "null" || json.Unmarshal(raw, member) != nil {
			return s, fmt.Errorf("%s has the wrong type", key)
		}
	}
	return s, nil
}

// save replaces the file whole. On an error the old one is in place.
func save(path string, s settings) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ") // people read this file
	if err := enc.Encode(s); err != nil {
		return err
	}
	return atomicfile.Write(path, buf.Bytes())
}

// setAside renames a malformed file, so that it can be looked at, and returns
// what a person is told about it (ST-17).
func (s *service) setAside(malformed error) (message string) {
	kept := fmt.Sprintf("%s.corrupt-%d", s.path, time.Now().Unix())
	name := filepath.Base(s.path)
	if err := os.Rename(s.path, kept); err != nil {
		s.log.Error("malformed settings could not be set aside", "path", s.path, "malformed", malformed, "err", err)
		return fmt.Sprintf("The settings file %s is damaged. Default settings are in use; "+
			"the next change of a setting replaces the file.", name)
	}
	s.log.Warn("malformed settings set aside", "path", s.path, "kept", kept, "err", malformed)
	return fmt.Sprintf("The settings file %s was damaged and is now %s. Default settings are in use.",
		name, filepath.Base(kept))
}
