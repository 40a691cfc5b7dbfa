// SPDX-License-Identifier: Apache-2.0

package nodesettings

import (
	"strings"
	"testing"
)

// TestMethodsAreInTheirNamespace: the broker relays by it (ST-19), pushes are not
// in it.
func TestMethodsAreInTheirNamespace(t *testing.T) {
	for _, pair := range [][2]string{
		{GetForcePorts, SetForcePorts},
		{GetClusterAutoSync, SetClusterAutoSync},
		{GetClusterID, SetClusterID},
		{GetClusterFriendlyName, SetClusterFriendlyName},
	} {
		getter, setter := pair[0], pair[1]
		if subject, ok := strings.CutPrefix(getter, Namespace+"get-"); !ok || setter != Namespace+"set-"+subject {
			t.Errorf("%s and %s are no pair", getter, setter)
		}
	}
	for _, push := range []string{NotifyClusterAutoSync, NotifyClusterIdentity} {
		if strings.HasPrefix(push, Namespace) {
			t.Errorf("%s is in the namespace of the methods", push)
		}
	}
}
