// SPDX-License-Identifier: Apache-2.0

// Package nodesettings names the typed settings of a node (ST section 2).
package nodesettings

// Namespace is what the settings' methods start with.
const Namespace = "settings/"

// Getters take no params and answer {"value": T}; setters take {"value": T} and
// answer {"ok": true}. The first two are booleans, the others strings.
const (
	GetForcePorts          = "settings/get-force-ports"
	SetForcePorts          = "settings/set-force-ports"
	GetClusterAutoSync     = "settings/get-cluster-auto-sync"
	SetClusterAutoSync     = "settings/set-cluster-auto-sync"
	GetClusterID           = "settings/get-cluster-id"
	SetClusterID           = "settings/set-cluster-id"
	GetClusterFriendlyName = "settings/get-cluster-friendly-name"
	SetClusterFriendlyName = "settings/set-cluster-friendly-name"
)

// Notifications that follow a successful set, also of an equal value.
const (
	NotifyClusterAutoSync = "connection/cluster-auto-sync" // {"value": bool}
	NotifyClusterIdentity = "connection/cluster-identity"  // {"id": string}
)

// ResetErrorID is the service error that says that a malformed settings file was
// set aside (DEC-67).
const ResetErrorID = "node-settings:settings-reset"
