// SPDX-License-Identifier: Apache-2.0

// Package lan holds the tests that need more than one machine. Each host is a network namespace of its own, joined to
// others by bridges and routers. Machines that are not ours are stand-ins: the demo engine for a plain engine, a
// reflector and an attacker that speak through sockets of the test.
package lan
