// SPDX-License-Identifier: Apache-2.0

// Package harness runs the built binaries for the suites below tests/, on machines of their own.
//
// A package that uses it hands its tests over in TestMain:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// Bin builds the executable once for the test process, with the race detector if the test has it. NewHost makes a
// machine: a network namespace with nothing but a loopback interface, a host name, and a data directory. What a test
// starts on a Host runs inside it and cannot collide with another test, another host or the real machine: ports,
// multicast, addresses and abstract sockets are the host's own. The file system and the table of processes are shared.
// NewBridge makes a LAN for hosts to be attached to, NewRouter a host that joins several.
//
// A test ends what it started. When it is over, each Host proves that no process is left in its namespace; one that is
// left fails the test and is killed. If the test process itself dies, everything on its hosts is killed as well. The
// standard error of each process is shown when its test has failed, and only then.
//
// All methods of a Host and a Proc may be called from several goroutines, except those that fail the test when they
// run out of time (AwaitExit, AwaitStderr, AwaitNone, Kill, Start, Command): these belong to the test's goroutine.
package harness
