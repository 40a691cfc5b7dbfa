// SPDX-License-Identifier: Apache-2.0

// Package load has the two ends between which inference is measured: a stand-in for an engine, which has no model and
// answers the same each time, and a client that sends requests as fast as they are answered and checks every byte of
// every answer. Both cost as little as they can: HTTP is written and read by hand, only what the other end sends.
//
// Command loadtool is both as processes of their own.
package load
