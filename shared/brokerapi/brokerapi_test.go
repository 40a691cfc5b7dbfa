// SPDX-License-Identifier: Apache-2.0

package brokerapi

import (
	"testing"

	"nvpair/shared/sharedtest"
)

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	sharedtest.Golden(t, map[string]any{
		"pong":            &Pong{},
		"subscribed":      &Subscribed{},
		"facade-up":       &FacadeStatus{},
		"facade-down":     &FacadeStatus{},
		"workloads":       &Workloads{},
		"workloads-empty": &Workloads{},
		"hub-starting":    &HubStatus{},
		"hub-degraded":    &HubStatus{},
		"broker-lost":     &HubBrokerLost{},
		"facade-engines":  &Facade{},
		"facade-blocked":  &Facade{},
	})
}
