// SPDX-License-Identifier: Apache-2.0

package upstream

import "net"

// closedByPeer cannot look without reading here: a close is then found by the
// request, which is sent once more.
func closedByPeer(net.Conn) bool { return false }
