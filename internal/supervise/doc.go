// SPDX-License-Identifier: Apache-2.0

// Package supervise keeps programs running: one mechanism for every child.
//
// A [Child] starts its program in a process group of its own, with its standard
// streams as a link. When the program ends, hangs or drops its link, the whole
// group is ended, what it wrote last is still handled, and it is started again
// after a growing delay. A program that stays up long enough starts a new
// streak; one that uses up the budget of a streak stays down.
//
// A program that announced that it answers pings is pinged while its link is
// silent. Hanging is counted in unanswered pings, never in elapsed time, so that
// a machine or a whole tree that was suspended and continued loses nothing.
//
// Stopping is ordered and bounded: end of input, a signal, a kill, each with its
// grace. After [Child.Stop] the program and its group are gone, every goroutine
// has ended and every descriptor is closed.
package supervise
