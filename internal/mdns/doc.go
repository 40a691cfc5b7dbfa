// SPDX-License-Identifier: Apache-2.0

// Package mdns is a multicast DNS responder and browser (RFC 6762, RFC 6763) for
// IPv4 links. A [Conn] owns one set of sockets. [Conn.Publish] makes a service
// instance known on every link, [Conn.Browse] reports what other hosts make known;
// either works without the other, and both before, while and after [Conn.Run] runs.
//
// # Publishing
//
// A [Publication] is a PTR, an SRV, a TXT and one A record for each address of
// the interface that is spoken on, in this order in every packet, all with a TTL
// of 120 s. It is announced when it is published (after three probes, 0.75 s
// later), once more a second later, and then every 60 s; at once when its TXT
// changes or an interface does. When it is withdrawn, and before Run returns, a
// goodbye is sent. Types are also found by their enumeration (RFC 6763 section 9).
//
// Names are never changed. An instance name that another host uses as well is
// logged once and both go on answering; a probe is for that log line only, so
// questions are answered while it runs. Nothing that another host sends leads to
// an announcement, so that two such hosts cannot drive each other.
//
// Of RFC 6762 it keeps: known-answer suppression (section 7.1), also over several
// packets (7.2), suppression of duplicate questions (7.3), shared
// answers delayed by 20 to 120 ms and merged, and at most one multicast of a record
// on an interface in a second (section 6). An answer that comes too early is sent
// when the second is over. Two things are exempt: answers to probes, for which
// 250 ms suffice, and the first announcement of a changed TXT. Questions that ask
// for a unicast answer, and those of resolvers that know no mDNS (6.7), are
// answered by unicast, but only if the asker's address is on the link's subnet, and
// at most 5 times in a second to one address and 25 times to all on a link, because
// that address may be a lie. Beyond that, and where the record was not multicast in
// the last 30 s (5.4), the first are answered by multicast and the others not.
//
// # Browsing
//
// Every packet is resolved by itself: an instance is reported only with an SRV
// record and an address that came in the same packet. Nothing is cached, merged
// or expired; that is the caller's business. For the same reason questions carry
// no known answers: each answer is a sign of life. The function given to Browse is
// called on Run's goroutine, in the order of the packets. While it runs nothing
// else happens, so it must not block; packets beyond what the socket buffers are
// then lost. It may call all methods of this package but Run.
//
// # Links
//
// A link is an interface that is up, capable of multicast, no loopback and has an
// IPv4 address. They are looked up at start, every 10 s and on [Conn.NetworkChanged],
// or on that alone for a caller that hears of changes; a change counts once it is
// 1.5 s old, and is followed by an announcement of everything and a question for
// everything browsed. If no interface is found the
// last ones are kept. Neither a lack of interfaces nor an occupied port ends Run.
//
// The receiving socket is bound to the group's address, which leaves unicast to
// the machine's other responders. Each packet is sent from a socket of its own,
// bound to the link's address and port 5353.
//
// # Bounds
//
// Packets beyond 9,000 bytes, malformed ones and those that RFC 6762 tells to
// ignore are dropped. What is kept depends on the number of publications, browsers
// and interfaces only, never on what arrives.
package mdns
