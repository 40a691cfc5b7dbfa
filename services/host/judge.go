// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"

	"nvpair/shared/brokerapi"
)

// judge decides from the broker's own status whether the node runs: it does
// unless a worker that is installed is not running. A process that exists but
// hangs is found and restarted by its supervisor.
func judge(s *brokerapi.HubStatus, b brokerapi.Status) {
	s.Broker, s.State = &b, brokerapi.NodeRunning
	for _, w := range b.Workers {
		switch w.State {
		case brokerapi.StateAbsent, brokerapi.StateRunning:
			continue
		}
		s.State = brokerapi.NodeDegraded
		reason := fmt.Sprintf("%s is %s", w.Name, w.State)
		if w.LastEnd != "" {
			reason += ": " + w.LastEnd
		}
		s.Reasons = append(s.Reasons, reason)
	}
}
