// SPDX-License-Identifier: Apache-2.0

// Package engine is a demo engine: a stand-in that speaks the HTTP dialects of
// Ollama, LM Studio, llama.cpp and vLLM without any model behind it. Tests, demos
// and benchmarks use it where a real engine would be slow, large or too well
// behaved. It understands nothing: every text it generates says so, and is made
// from the request alone.
//
// What it guarantees:
//
//   - The same request gets the same body, byte for byte. No clock and no chance
//     enters one unless [Config.Clock] asks for it. The Date header is real.
//   - Status, header and body shapes are those of recorded answers in testdata.
//   - Faults ([Faults]) are switched while it runs, by route, model, or turn.
//   - The witness ([Report]) knows every request from its first byte to the
//     moment its client left, however it ended.
//
// It has its own small HTTP/1.1 server, since most of what it imitates (answers
// cut in mid-chunk, lower-case header names, two contradicting Connection
// headers, an early answer to an unread body) is what net/http exists to prevent.
// A connection is one goroutine; a second one reads ahead while a request waits,
// so that a client that leaves is noticed at once. Writes block on a client that
// does not read; nothing is queued. Requests of one connection are answered in
// order.
//
// It listens in plain HTTP, trusts whoever reaches its control port, and belongs
// on loopback.
package engine
