// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/nodesettings"
)

// workloadIndex is the list of jobs. Nothing produces jobs yet, so it is empty.
type workloadIndex struct{}

func newWorkloadIndex() *workloadIndex { return &workloadIndex{} }

// all returns the records as they were received; never nil.
func (*workloadIndex) all() []json.RawMessage { return []json.RawMessage{} }

// fromSettings passes the two pushes of node-settings on to the client (ST-20).
func (b *Broker) fromSettings(_ *workerLink, req *jsonrpc.Request) bool {
	switch req.Method {
	case nodesettings.NotifyClusterIdentity, nodesettings.NotifyClusterAutoSync:
		b.client.notify(req.Method, req.Params)
		return true
	}
	return false
}
