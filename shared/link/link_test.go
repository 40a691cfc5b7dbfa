// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"

	"nvpair/shared/sharedtest"
)

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	sharedtest.Golden(t, map[string]any{
		"ready": &Ready{},
		"hello": &Hello{},
		"ping":  &Ping{},
		"level": &LogLevel{},
	})
}
