// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/sharedtest"
)

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	sharedtest.Golden(t, map[string]any{
		"info":              &NodeInfo{},
		"info-smallest":     &NodeInfo{},
		"info-no-cluster":   &NodeInfo{},
		"cluster-identity":  &ClusterIdentity{},
		"cluster-departure": &ClusterIdentity{},
		"services":          &Services{},
		"services-none":     &Services{},
		"observed":          &ObservedAddresses{},
		"observed-none":     &ObservedAddresses{},
	})
}

// TestAbsentIsNotEmpty: see NI-8, NI-16 and MN-40.
func TestAbsentIsNotEmpty(t *testing.T) {
	none := ""
	for _, tt := range []struct {
		in   NodeInfo
		want string
	}{
		{NodeInfo{GPUs: []GPU{}}, `{"GPUs":[],"telemetryValid":false,"msSince":0}`},
		{NodeInfo{GPUs: []GPU{}, ClusterUUID: &none}, `{"GPUs":[],"telemetryValid":false,"msSince":0,"clusterUuid":""}`},
		{NodeInfo{GPUs: []GPU{}, Services: map[string]int{}}, `{"GPUs":[],"telemetryValid":false,"msSince":0,"services":{}}`},
		{NodeInfo{GPUs: []GPU{{Name: "x"}}, TelemetryValid: true}, `{"GPUs":[{"name":"x"}],"telemetryValid":true,"msSince":0}`},
	} {
		got, err := json.Marshal(tt.in)
		require.NoError(t, err)
		require.Equal(t, tt.want, string(got))
	}
}

func TestUnusablePushesAreTold(t *testing.T) {
	many := map[string]int{}
	for i := range maxServices + 1 {
		many[fmt.Sprint(i)] = 1
	}
	long, none := strings.Repeat("x", maxClusterUUIDBytes+1), ""
	for _, tt := range []struct {
		in interface{ Validate() error }
		ok bool
	}{
		{ClusterIdentity{}, false},
		{ClusterIdentity{&none}, true},
		{ClusterIdentity{&long}, false},
		{Services{}, false},
		{Services{map[string]int{}}, true},
		{Services{map[string]int{"ni": 14318, "ol": 65535}}, true},
		{Services{map[string]int{"ni": 0}}, false},
		{Services{map[string]int{"ni": 65536}}, false},
		{Services{map[string]int{"": 1}}, false},
		{Services{map[string]int{strings.Repeat("x", maxServiceBytes+1): 1}}, false},
		{Services{many}, false},
	} {
		if err := tt.in.Validate(); (err == nil) != tt.ok {
			t.Errorf("%+v: %v, want ok %t", tt.in, err, tt.ok)
		}
	}
}
