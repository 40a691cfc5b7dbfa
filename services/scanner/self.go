// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"nvpair/shared/discovery"
)

// maxServices bounds the registrations of this node; the product has eight.
const maxServices = 64

var errTooManyServices = errors.New("too many services are registered")

// fallbackIP stands in the entry of a node that has no address to publish (DI-76).
const fallbackIP = "127.0.0.1"

// selfEntry is this node's entry of the directory. It comes from the
// registrations and this machine alone (DI-75).
type selfEntry struct {
	name string
	// emit queues an event of that method and must not wait: it is called under
	// mu, so that events leave in the order of the changes.
	emit func(method string, params any)
	// published is called under mu after every change, and must not wait.
	published func(record)

	askable chan struct{} // closed once node-info is registered
	once    sync.Once     // closes askable

	// Lock order: mu, then whatever emit takes.
	mu        sync.Mutex // guards the rest
	hostUUID  string
	ips       []string // best first, never empty
	services  map[string]discovery.Service
	lastSeen  int64 // Unix seconds of the last change
	announced bool  // the discovered event has been queued
	hardware  inventory
	cluster   string // this node's principal while it is a member
	models    modelList
}

func newSelfEntry(hostUUID, name string, emit func(string, any)) *selfEntry {
	return &selfEntry{
		name:     name,
		emit:     emit,
		hostUUID: hostUUID,

		published: func(record) {},
		askable:   make(chan struct{}),
		ips:       []string{fallbackIP},
		services:  map[string]discovery.Service{},
		lastSeen:  time.Now().Unix(),
	}
}

// removedNode is the event of an entry that only changed its key (DI-102).
type removedNode struct {
	Node struct {
		HostUUID string `json:"hostUuid"`
		Name     string `json:"name"`
	} `json:"node"`
}

// announce emits the first event. Changes before it need no event of their own.
func (e *selfEntry) announce() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.announced = true
	e.emit(discovery.NotifyNodeDiscovered, discovery.NodeEvent{Node: e.nodeLocked()})
}

// node returns the entry as it is now.
func (e *selfEntry) node() discovery.DirectoryNode {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nodeLocked()
}

func (e *selfEntry) nodeLocked() discovery.DirectoryNode {
	return discovery.DirectoryNode{
		HostUUID:        e.hostUUID,
		Name:            e.name,
		IP:              e.ips[0],
		IPs:             slices.Clone(e.ips),
		Services:        maps.Clone(e.services),
		LastSeenSeconds: e.lastSeen,
		GPUs:            e.hardware.gpus,
		CPU:             e.hardware.cpu,
		Memory:          e.hardware.memory,
		ClusterUUID:     e.cluster,
		Trusted:         e.cluster != "",
		Models:          e.models.Models,
		ModelsByEngine:  e.models.By,
		LoadedByEngine:  e.models.Loaded,
	}
}

// id is this node's host uuid.
func (e *selfEntry) id() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hostUUID
}

// local is the entry with the address at which this machine reaches itself: all
// that is asked of this node is asked there (DI-77).
func (e *selfEntry) local() discovery.DirectoryNode {
	n := e.node()
	n.IP, n.IPs = fallbackIP, []string{fallbackIP}
	return n
}

// record is what this node says of itself on the network.
func (e *selfEntry) record() record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.recordLocked()
}

func (e *selfEntry) recordLocked() record {
	r := record{hostUUID: e.hostUUID, clusterUUID: e.cluster, services: maps.Clone(e.services)}
	if e.ips[0] != fallbackIP {
		r.ips = slices.Clone(e.ips)
	}
	return r
}

// follow has every change of the record passed on from now on.
func (e *selfEntry) follow(published func(record)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.published = published
	published(e.recordLocked()) // it may have changed meanwhile
}

// learn takes what this node's own node-info says.
func (e *selfEntry) learn(i inventory) {
	e.mu.Lock()
	defer e.mu.Unlock()
	news := i.static != staticOf(e.hardware.gpus, e.hardware.cpu, e.hardware.memory)
	e.hardware = i
	if news {
		e.changedLocked()
	}
}

// learnModels takes what this node's own engine manager says.
func (e *selfEntry) learnModels(l modelList) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.same(e.models) && e.models.Models != nil {
		return
	}
	e.models = l
	e.changedLocked()
}

// setCluster takes this node's principal, "" while it is in no cluster, and reports
// whether that is a change.
func (e *selfEntry) setCluster(principal string) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if principal == e.cluster {
		return false
	}
	e.cluster = principal
	e.changedLocked()
	return true
}

// hasRoom reports whether a registration of that service would be taken.
func (e *selfEntry) hasRoom(service string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.services[service]
	return known || len(e.services) < maxServices
}

// register sets the port of a service and reports whether that is a change.
func (e *selfEntry) register(service string, port int) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.services[service].Port == port {
		return false // DI-111
	}
	e.services[service] = discovery.Service{Port: port}
	if service == discovery.ServiceNodeInfo {
		e.once.Do(func() { close(e.askable) })
	}
	e.changedLocked()
	return true
}

// unregister withdraws a service and reports whether it was there.
func (e *selfEntry) unregister(service string) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.services[service]; !known {
		return false
	}
	delete(e.services, service)
	e.changedLocked()
	return true
}

// setAddresses takes a new list, best first, and reports whether that, or its
// order, is a change (DI-28).
func (e *selfEntry) setAddresses(ips []string) (changed bool) {
	if len(ips) == 0 {
		ips = []string{fallbackIP}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Equal(ips, e.ips) {
		return false
	}
	e.ips = slices.Clone(ips)
	e.changedLocked()
	return true
}

// setIdentity moves the entry under another uuid and reports whether it is
// another one.
func (e *selfEntry) setIdentity(hostUUID string) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if hostUUID == e.hostUUID {
		return false
	}
	var removed removedNode
	removed.Node.HostUUID, removed.Node.Name = e.hostUUID, e.name
	e.hostUUID = hostUUID
	e.lastSeen = time.Now().Unix()
	e.published(e.recordLocked())
	if e.announced {
		e.emit(discovery.NotifyNodeRemoved, removed)
		e.emit(discovery.NotifyNodeDiscovered, discovery.NodeEvent{Node: e.nodeLocked()})
	}
	return true
}

func (e *selfEntry) changedLocked() {
	e.lastSeen = time.Now().Unix()
	e.published(e.recordLocked())
	if e.announced {
		e.emit(discovery.NotifyNodeUpdated, discovery.NodeEvent{Node: e.nodeLocked()})
	}
}
