// SPDX-License-Identifier: Apache-2.0

// Package facade is the agreement between the broker and nvpair-proxy about one
// engine's facade. On their link these methods carry the engine's address in
// front: "ollama:set-port" (engine.SplitMethod).
package facade

// MethodEnable is process-scoped: it names its engine in its params.
const MethodEnable = "facade/enable" // Enable -> Enabled

// Process-scoped too: they carry no engine's address.
const (
	MethodSetPriority  = "node/set-priority" // the scheduler's ranking, numbered by the broker
	NotifyNodeActivity = "node/activity"     // discovery.Activity
)

// Facade-scoped requests.
const (
	MethodNodesList       = "nodes/list"             // -> Nodes
	MethodNodeSelect      = "node/select"            // Selection -> Selection
	MethodNodeSelected    = "node/selected"          // -> Selection
	MethodAddManual       = "node/add-manual"        // Node -> Added
	MethodRemoveManual    = "node/remove-manual"     // Selection -> Removed
	MethodSetLocalBackend = "node/set-local-backend" // Backend -> discovery.Ack
	MethodSetPort         = "set-port"               // Port -> Ready
)

// Notifications of a facade.
const (
	NotifyReady            = "ready"                  // Ready
	NotifyError            = "error"                  // BindError
	NotifyNodeDiscovered   = "node/discovered"        // Node
	NotifyNodeUpdated      = "node/updated"           // Node
	NotifyNodeRemoved      = "node/removed"           // Node
	NotifySelectionChanged = "node/selection-changed" // Selection
	NotifyRequestStarted   = "proxy/request-started"  // RequestStarted
	NotifyRequest          = "proxy/request"          // RequestEnded
)

// AliasBlocked is the id of the service error that says why a facade does not serve
// where OLLAMA_HOST sends its clients; the broker and the proxy both find out.
const AliasBlocked = "ollama-proxy:ollama-host-alias-blocked"

// Enable asks for one engine's facade.
type Enable struct {
	Engine              string   `json:"engine"`
	Port                int      `json:"port,omitempty"` // 0 = the engine's standalone port
	AliasAddresses      []string `json:"aliasAddresses,omitempty"`
	IgnorePersistedPort bool     `json:"ignorePersistedPort,omitempty"`
	HostUUID            string   `json:"hostUuid,omitempty"` // this node's; an addition
}

// Enabled is what is really bound.
type Enabled struct {
	Engine  string   `json:"engine"`
	Port    int      `json:"port"`
	Aliases []string `json:"aliases,omitempty"` // of AliasAddresses, host:port; an addition
}

// Ready says where a facade listens.
type Ready struct {
	Version string `json:"version"`
	Port    int    `json:"port"`
}

// BindError says that a port could not be had.
type BindError struct {
	Code    string `json:"code"` // bind-failed
	Message string `json:"message"`
	Port    int    `json:"port"`
}

// Port is the params of set-port, 1..65535.
type Port struct {
	Port int `json:"port"`
}

// Node is a node as a facade knows it (PX-14).
type Node struct {
	ID        string   `json:"id"`
	Host      string   `json:"host"` // display only
	Port      int      `json:"port"`
	Addresses []string `json:"addresses"`
	TXT       []string `json:"txt"`
	Models    []string `json:"models,omitempty"`
	IP        string   `json:"ip,omitempty"` // on notifications
}

// Nodes is the result of nodes/list.
type Nodes struct {
	Nodes []Node `json:"nodes"` // sorted by id, never null
}

// Selection names a node; "" is none, or automatic.
type Selection struct {
	ID string `json:"id"`
}

// ManualNode is the params of node/add-manual as the broker sends them for a node
// that the user gave by address (MN-35): what it knows of a Node.
type ManualNode struct {
	ID        string   `json:"id"`
	Engine    string   `json:"engine"` // the facade's
	Host      string   `json:"host"`
	Port      int      `json:"port"`
	Addresses []string `json:"addresses"`
	Models    []string `json:"models,omitempty"`
}

// ManualRef is the params of node/remove-manual as the broker sends them.
type ManualRef struct {
	ID     string `json:"id"`
	Engine string `json:"engine"`
}

// Added is the result of node/add-manual; false means replaced.
type Added struct {
	Added bool `json:"added"`
}

// Removed is the result of node/remove-manual.
type Removed struct {
	Removed bool `json:"removed"`
}

// Backend is where the main one of the own engines listens. Host is loopback, "" is 127.0.0.1.
type Backend struct {
	Engine  string `json:"engine,omitempty"`
	Host    string `json:"host,omitempty"`
	Port    int    `json:"port"`
	Healthy bool   `json:"healthy"`

	// More are further engines of the facade's dialect on this machine, after
	// this one; an addition (DEC-132). They count only while Healthy is true.
	More []LocalTarget `json:"more,omitempty"`
}

// LocalTarget is where a further engine of this machine listens. Host is
// loopback, "" is 127.0.0.1.
type LocalTarget struct {
	Host string `json:"host,omitempty"`
	Port int    `json:"port"`
}

// RequestStarted says that an answer has begun.
type RequestStarted struct {
	ID     string `json:"id"` // decimal, counts from "1" in each facade
	NodeID string `json:"node_id,omitempty"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Target string `json:"target"` // host:port, "cluster" for merged answers
}

// RequestEnded says how a request ended. It holds metadata only.
type RequestEnded struct {
	RequestStarted
	Status         int    `json:"status"` // 0 when the client left before any
	DurationMillis int64  `json:"duration_ms"`
	TTFBMillis     *int64 `json:"ttfb_ms,omitempty"` // from arrival to the first byte of the answer
	Error          string `json:"error,omitempty"`
}
