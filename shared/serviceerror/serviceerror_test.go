// SPDX-License-Identifier: Apache-2.0

package serviceerror

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
		"error":      &ServiceError{},
		"error-bare": &ServiceError{},
		"list":       &[]ServiceError{},
		"list-empty": &[]ServiceError{},
		"clear":      &Clear{},
		"cleared":    &Clear{},
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

func TestAnEntryNeedsAnIDAndAMessage(t *testing.T) {
	for _, tt := range []struct {
		entry ServiceError
		want  string
	}{
		{ServiceError{ID: "a", Message: "m"}, ""},
		{ServiceError{ID: "a"}, `"message" is required`},
		{ServiceError{Message: "m"}, `"id" is required`},
		{ServiceError{}, `"id" is required`},
	} {
		if tt.want == "" {
			require.NoError(t, tt.entry.Validate())
			continue
		}
		require.EqualError(t, tt.entry.Validate(), tt.want)
	}
	require.NoError(t, Clear{ID: "a"}.Validate())
	require.EqualError(t, Clear{ClearedBy: "n"}.Validate(), `"id" is required`)
}

// TestCrashIDsNameTheWorker: see BR-12.
func TestCrashIDsNameTheWorker(t *testing.T) {
	require.Equal(t, "supervisor:subprocess-crashed:nvpair-proxy", CrashID("nvpair-proxy"))
}
