// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
)

// Bounds of an Outbox, and how often it tries again while something waits.
const (
	maxWaiting      = 40_000
	maxWaitingBytes = 64 << 20
	retryEvery      = 20 * time.Millisecond
)

// Sender is the link behind an Outbox.
type Sender interface {
	// NotifySoon queues a notification; jsonrpc.ErrQueueFull means not now, any
	// other error never. It must not block.
	NotifySoon(method string, params json.RawMessage) error
	// CloseWrite ends the worker's input. It returns at once.
	CloseWrite()
}

// Item is one notification.
type Item struct {
	Method string
	Params json.RawMessage
	// Key names what the item is about: while it waits, a later item with an
	// equal key takes its place. A nil key is never replaced. Keys are
	// comparable.
	Key any
	// Weak is an item that is dropped while one with its key waits.
	Weak bool
	// Covers, if set, reports for keys whether this item makes items that wait
	// needless.
	Covers func(key any) bool
}

// Outbox sends notifications over one link in order. As long as the link takes
// them it holds nothing. Then they wait, bounded, a key's newest in the place of
// its oldest, and the link is tried again every 20 ms. A worker that falls
// behind beyond the bounds is cut off: its input ends, so that it ends, and its
// successor is told everything afresh. All methods may be called from any
// goroutine and never block.
type Outbox struct {
	link    Sender
	log     *slog.Logger
	drained func()

	mu      sync.Mutex // guards the rest; held over Sender's methods, which only queue, to keep the order
	waiting []*Item
	byKey   map[any]*Item // of those that wait
	bytes   int           // of the params that wait
	retry   *time.Timer   // armed while something waits
	ended   bool
}

// NewOutbox returns an empty outbox. Close it when its link has ended. drained
// is called whenever nothing waits any more, and may be nil; it must not block.
func NewOutbox(link Sender, log *slog.Logger, drained func()) *Outbox {
	return &Outbox{link: link, log: log, drained: drained, byKey: make(map[any]*Item)}
}

// Send sends an item, or lets it wait.
func (o *Outbox) Send(i Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || len(o.waiting) == 0 && !o.fullLocked(&i) {
		return
	}
	o.waitLocked(&i)
	if len(o.waiting) > maxWaiting || o.bytes > maxWaitingBytes {
		o.log.Warn("worker is too far behind, its input ends", "waiting", len(o.waiting), "bytes", o.bytes)
		o.endLocked()
		o.link.CloseWrite()
	}
}

// fullLocked offers an item to the link and reports whether it has to wait.
func (o *Outbox) fullLocked(i *Item) bool {
	return errors.Is(o.link.NotifySoon(i.Method, i.Params), jsonrpc.ErrQueueFull)
}

func (o *Outbox) waitLocked(i *Item) {
	if i.Covers != nil {
		o.waiting = slices.DeleteFunc(o.waiting, func(w *Item) bool {
			needless := w.Key != nil && i.Covers(w.Key)
			if needless {
				o.forgetLocked(w)
			}
			return needless
		})
	}
	old := o.byKey[i.Key]
	switch {
	case old == nil:
		o.waiting = append(o.waiting, i)
		o.bytes += len(i.Params)
		if i.Key != nil {
			o.byKey[i.Key] = i
		}
	case !i.Weak:
		o.bytes += len(i.Params) - len(old.Params)
		*old = *i
	}
	if o.retry == nil {
		o.retry = time.AfterFunc(retryEvery, o.drain)
	} else if len(o.waiting) == 1 {
		o.retry.Reset(retryEvery)
	}
}

// forgetLocked takes an item that leaves waiting out of the accounts.
func (o *Outbox) forgetLocked(i *Item) {
	o.bytes -= len(i.Params)
	if i.Key != nil {
		delete(o.byKey, i.Key)
	}
}

// drain runs on the timer's goroutine.
func (o *Outbox) drain() {
	if o.drainSome() && o.drained != nil {
		o.drained()
	}
}

// drainSome sends what the link takes and reports whether that was the rest.
func (o *Outbox) drainSome() (all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	sent := 0
	for _, i := range o.waiting {
		if o.fullLocked(i) {
			break
		}
		o.forgetLocked(i)
		sent++
	}
	if o.waiting = slices.Delete(o.waiting, 0, sent); len(o.waiting) > 0 {
		o.retry.Reset(retryEvery)
		return false
	}
	o.waiting = nil // of a burst
	return true
}

// Idle reports whether nothing waits.
func (o *Outbox) Idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting) == 0
}

// Close drops what waits and everything later.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endLocked()
}

func (o *Outbox) endLocked() {
	o.ended = true
	o.waiting, o.byKey, o.bytes = nil, nil, 0
	if o.retry != nil {
		o.retry.Stop()
	}
}
