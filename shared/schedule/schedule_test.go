// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"

	"nvpair/shared/sharedtest"
)

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	sharedtest.Golden(t, map[string]any{
		"priority":       &Priority{},
		"priority-empty": &Priority{},
		"set-priority":   &SetPriority{},
		"status":         &Status{},
		"interval":       &Interval{},
		"ticked":         &Ticked{},
	})
}
