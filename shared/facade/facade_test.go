// SPDX-License-Identifier: Apache-2.0

package facade

import (
	"testing"

	"nvpair/shared/sharedtest"
)

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	sharedtest.Golden(t, map[string]any{
		"enable":          &Enable{},
		"enable-plain":    &Enable{},
		"enabled":         &Enabled{},
		"enabled-aliases": &Enabled{},
		"bind-error":      &BindError{},
		"node":            &Node{},
		"nodes":           &Nodes{},
		"backend":         &Backend{},
		"backend-none":    &Backend{},
		"request-started": &RequestStarted{},
		"request":         &RequestEnded{},
		"request-served":  &RequestEnded{},
	})
}
