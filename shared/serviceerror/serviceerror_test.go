// SPDX-License-Identifier: Apache-2.0

package serviceerror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/sharedtest"
)

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	sharedtest.Golden(t, map[string]any{
		"error":      &ServiceError{},
		"error-bare": &ServiceError{},
		"list":       &[]ServiceError{},
		"list-empty": &[]ServiceError{},
		"clear":      &Clear{},
		"cleared":    &Clear{},
	})
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
