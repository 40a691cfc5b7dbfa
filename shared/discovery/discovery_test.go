// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"testing"

	"nvpair/shared/sharedtest"
)

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	sharedtest.Golden(t, map[string]any{
		"registration":       &Registration{},
		"registration-plain": &Registration{},
		"unregistration":     &Unregistration{},
		"ack":                &Ack{},
		"filter":             &Filter{},
		"filter-all":         &Filter{},
		"subscription":       &Subscription{},
		"subscription-all":   &Subscription{},
		"node-event":         &NodeEvent{},
		"directory":          &Directory{},
		"directory-empty":    &Directory{},
		"telemetry":          &Telemetry{},
		"telemetry-invalid":  &Telemetry{},
		"available":          &AvailableNodes{},
		"available-more":     &AvailableNodes{},
		"static-node":        &StaticNode{},
		"static-node-gone":   &StaticNode{},
		"observed":           &ObservedAddresses{},
	})
}
