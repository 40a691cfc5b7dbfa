// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"io"
	"net/http"
	"time"

	"nvpair/services/proxy/dialect"
)

// stream is an answer on its way to the client.
type stream struct {
	x        *exchange
	rc       *http.ResponseController
	flush    bool
	node     string
	end      *dialect.Terminator
	named    *naming
	left     int64     // bytes to come, negative when the engine did not say
	passed   bool      // the client has all that makes the answer whole
	deadline time.Time // of writes, as last set
	writeErr error
}

// write passes bytes on, at once where the client waits for them.
func (s *stream) write(b []byte) bool {
	s.arm()
	s.end.Write(b)
	s.named.write(b)
	s.left -= int64(len(b))
	whole := s.left == 0 || s.end.Seen()
	if whole {
		s.x.whole.Store(true) // before the client can have them and leave
	}
	if _, s.writeErr = s.x.w.Write(b); s.writeErr == nil && s.flush {
		s.writeErr = s.push()
	}
	if s.writeErr != nil {
		return false
	}
	s.passed = s.passed || whole
	s.x.f.p.activity.seen(s.node)
	return true
}

// arm gives the client its time for the next write. The deadline is moved at most
// every few seconds: a timer for every chunk would cost more than the chunk.
func (s *stream) arm() {
	timeout := s.x.f.p.cfg.limits.writeTimeout
	if now := time.Now(); s.deadline.Sub(now) < timeout*5/6 {
		s.deadline = now.Add(timeout)
		_ = s.rc.SetWriteDeadline(s.deadline) // not supported means no limit
	}
}

func (s *stream) push() error {
	if err := s.rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// outcome is how an exchange ended after its commit.
type outcome struct {
	err   error // nil: the engine's answer was passed on whole
	abort bool  // the client's connection must be cut: it cannot tell a short answer otherwise
	gone  bool  // the client left or stopped reading
}

var (
	errNoTerminator = errors.New("stream ended without its terminator")
	errCut          = errors.New("upstream stream aborted mid-response")
)

func (s *stream) outcome(readErr error) outcome {
	switch {
	case s.passed && (s.writeErr != nil || s.x.r.Context().Err() != nil):
		return outcome{} // it left with the whole answer (DEC-142)
	case s.writeErr != nil:
		return outcome{err: s.writeErr, abort: true, gone: true}
	case readErr != nil && !errors.Is(readErr, io.EOF):
		if s.x.r.Context().Err() != nil {
			return outcome{err: s.x.r.Context().Err(), abort: true, gone: true}
		}
		s.arm()
		_ = s.push() // what is there: a client that saw nothing might ask again
		return outcome{err: errCut, abort: true}
	case !s.end.Whole():
		return outcome{err: errNoTerminator}
	}
	return outcome{}
}
