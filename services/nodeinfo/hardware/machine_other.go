// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin && !windows

package hardware

import "context"

// Machine reads this machine: what processors and memory it has (NI-39).
// Graphics adapters and the load are not read.
type Machine struct{ fixed Host }

// New looks at what does not change.
func New(Config) *Machine { return &Machine{fixed: new(general).host()} }

// Host returns what does not change.
func (m *Machine) Host() Host { return m.fixed }

// Adapters lists the graphics adapters, of which none is known.
func (m *Machine) Adapters(context.Context) []Adapter { return nil }

// Load takes a sample, which is empty.
func (m *Machine) Load(context.Context) Load { return Load{} }

// Close has nothing to release.
func (m *Machine) Close() {}
