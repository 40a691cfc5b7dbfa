// SPDX-License-Identifier: Apache-2.0

// Package sharedtest is what the tests of the wire types have in common.
package sharedtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Golden requires that each payload of testdata, by name and without its .json,
// holds nothing that the value's type does not know, and is the same after it was
// decoded into that value and encoded again. Values are pointers.
func Golden(t *testing.T, payloads map[string]any) {
	t.Helper()
	for name, value := range payloads {
		golden, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		golden = bytes.TrimSpace(golden)
		decoder := json.NewDecoder(bytes.NewReader(golden))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(golden, encoded) {
			t.Errorf("%s: decoded and encoded again it is\n%s\nwant\n%s", name, encoded, golden)
		}
	}
}
