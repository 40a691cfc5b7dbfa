// SPDX-License-Identifier: Apache-2.0

// Package applog writes log records as lines for people and for tools.
//
// It guarantees one line a record, whatever message, keys and values contain,
// and one Write call a line, so that lines of several processes on one pipe do
// not mix as long as the pipe takes a line whole. A field can be read back:
// keys and values are bare or in Go's quotes, never in between.
//
// Records are written in the order in which Handle is called, by the caller's
// goroutine: a writer that blocks holds up whoever logs. Nothing is buffered
// and nothing is dropped here.
package applog

import (
	"context"
	"io"
	"log/slog"
	"sync"
)

// timeLayout is the local time of day with exactly three decimals (WR-46).
const timeLayout = "15:04:05.000"

// handler is the slog.Handler of NewHandler. It never changes once it is in
// use: WithAttrs and WithGroup return copies that share out.
type handler struct {
	out     *output
	level   slog.Leveler
	process string // already escaped
	bound   []byte // fields bound to the logger, as they stand in the line
	prefix  string // open groups, each with its dot
}

// output is the writer that all handlers of one NewHandler share.
type output struct {
	mu sync.Mutex // makes each record one undivided Write; so it is held over that call
	w  io.Writer
}

// NewHandler returns a handler that writes records of at least level to w, one
// Write call each:
//
//	15:04:05.000 [process] LEVEL message key=value ...
//
// A nil level is info; a *slog.LevelVar may change at any time. The handler is
// safe for concurrent use even if w is not. An error of w is returned by Handle,
// which slog ignores.
func NewHandler(w io.Writer, process string, level slog.Leveler) slog.Handler {
	if level == nil {
		level = slog.LevelInfo
	}
	return &handler{out: &output{w: w}, level: level, process: string(appendText(nil, process))}
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	b := make([]byte, 0, 256)
	if !r.Time.IsZero() {
		b = r.Time.Local().AppendFormat(b, timeLayout)
		b = append(b, ' ')
	}
	b = append(b, '[')
	b = append(b, h.process...)
	b = append(b, "] "...)
	b = append(b, lineLevel(r.Level)...)
	b = append(b, ' ')
	b = appendText(b, r.Message)
	b = append(b, h.bound...) // WR-47: before the record's own
	r.Attrs(func(a slog.Attr) bool {
		b = appendAttr(b, h.prefix, a)
		return true
	})
	b = append(b, '\n')

	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := h.out.w.Write(b)
	return err
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.bound = append([]byte(nil), h.bound...) // siblings must not share spare capacity
	for _, a := range attrs {
		c.bound = appendAttr(c.bound, h.prefix, a)
	}
	return &c
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h // slog: an unnamed group is no group
	}
	c := *h
	c.prefix = h.prefix + name + "."
	return &c
}
