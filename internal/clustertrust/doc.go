// SPDX-License-Identifier: Apache-2.0

// Package clustertrust is the read side of a node's cluster directory: who this
// node is in the cluster, and whose certificates it has pinned.
//
// A [View] holds the directory, not a copy of what was in it: [View.Refresh] reads
// again what changed since, so that a removed pin counts from the next look on.
// What one look found is a [State], which never changes. A node is a member while it
// has a usable key pair and either an admission or a pin (SEC-T10), and no teardown
// is pending (DEC-73). Who is no member trusts nobody, itself included (SEC-T14). What
// cannot be read leaves that as it was, and [State.Unsure] tells "no" from "not known".
//
// Trust is the comparison of whole certificates: never a name, an address, a date or
// an authority (SEC-12, SEC-16). The configurations for TLS that a View gives decide
// at each handshake by the directory as it is then, and there is no resumption
// (SEC-14).
//
// Nothing here writes to the directory; the cluster manager alone does.
package clustertrust
