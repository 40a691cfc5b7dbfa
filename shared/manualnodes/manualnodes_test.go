// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	for name, value := range map[string]any{
		"add":            &Add{},
		"add-all":        &Add{},
		"remove":         &Remove{},
		"removed":        &Removed{},
		"nodes":          &Nodes{},
		"nodes-empty":    &Nodes{},
		"status":         &Status{},
		"status-peer":    &Status{},
		"status-removed": &Status{},
	} {
		golden, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(t, err)
		golden = bytes.TrimSpace(golden)
		decoder := json.NewDecoder(bytes.NewReader(golden))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(value), name)
		encoded, err := json.Marshal(value)
		require.NoError(t, err)
		require.Equal(t, string(golden), string(encoded), name)
	}
}
