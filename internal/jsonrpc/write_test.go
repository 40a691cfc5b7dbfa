// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fullDisk is a transport behind which a disk has room for some bytes more.
type fullDisk struct {
	net.Conn // for reading
	room     int
	written  strings.Builder
	batches  int
}

func (d *fullDisk) Write(b []byte) (int, error) {
	d.batches++
	n := min(len(b), d.room)
	d.room -= n
	d.written.Write(b[:n])
	if n < len(b) {
		return n, &fs.PathError{Op: "write", Path: "out", Err: syscall.ENOSPC}
	}
	return n, nil
}

// complete returns the lines of the output that are frames.
func (d *fullDisk) complete() (methods []string) {
	for line := range strings.Lines(d.written.String()) {
		if f, err := parseFrame([]byte(strings.TrimSuffix(line, "\n"))); err == nil {
			methods = append(methods, f.Method)
		}
	}
	return methods
}

func TestAFullDiskLosesOnlyWhatDidNotFit(t *testing.T) {
	const frame = len(`{"jsonrpc":"2.0","method":"a"}` + "\n")
	for _, tt := range []struct {
		name string
		room int // when "b" is written
		want []string
	}{
		{"nothing fits", 0, []string{"a", "d"}},
		{"one byte fits", 1, []string{"a", "d"}},
		{"all but the newline fits", frame - 1, []string{"a", "b", "d"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				var log fakeLog
				disk := &fullDisk{Conn: near, room: frame}
				s := serve(t, disk, Config{Log: log.logger()})
				notify := func(method string) {
					require.NoError(t, s.Notify(method, nil))
					synctest.Wait()
				}
				notify("a")
				disk.room = tt.room
				notify("b")
				notify("c") // the disk is still full: not even a newline fits
				disk.room = 1 << 10
				notify("d")
				require.Equal(t, tt.want, disk.complete(), "%q", disk.written.String())
				require.Equal(t, 4, disk.batches, "no write but those of frames")
				require.Len(t, log.all(), 1, "one report a second")
				require.Equal(t, "link write failed", log.all()[0].message)
				s.cancel()
				require.NoError(t, s.wait())
			})
		})
	}
}

func TestAReaderThatWentAwayEndsTheLink(t *testing.T) {
	near, far := osPipes(t)
	var log fakeLog
	s := serve(t, near, Config{Log: log.logger()})
	require.NoError(t, far.ReadCloser.Close()) // it would still write
	require.NoError(t, s.Notify("n", nil))
	require.NoError(t, s.wait())
	require.Empty(t, log.all())
	require.ErrorIs(t, s.Notify("n", nil), ErrClosed)
}

func TestErrorsOfAClosedTransportEndTheLink(t *testing.T) {
	type test struct {
		err  error
		ends bool
	}
	tests := []test{
		{io.ErrClosedPipe, true}, {net.ErrClosed, true}, {os.ErrClosed, true},
		{syscall.ENOSPC, false}, {syscall.EIO, false}, {errors.New("other"), false},
	}
	for _, err := range brokenPipes {
		tests = append(tests, test{&net.OpError{Op: "write", Err: err}, true})
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			s := serve(t, &faultyConn{near, func([]byte) (int, error) { return 0, tt.err }}, Config{})
			require.NoError(t, s.Notify("n", nil))
			synctest.Wait()
			select {
			case <-s.ended:
				require.True(t, tt.ends, "%v ended the link", tt.err)
				require.NoError(t, s.err)
			default:
				require.False(t, tt.ends, "%v did not end the link", tt.err)
			}
		})
	}
}

func TestAPeerThatTakesNothingEndsALinkWithWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log fakeLog
		s, _ := serveRaw(t, Config{WriteTimeout: 5 * time.Second, Log: log.logger()})
		<-time.After(time.Minute) // an idle link has no deadline
		begin := time.Now()
		require.NoError(t, s.Notify("n", nil))
		require.ErrorIs(t, s.wait(), os.ErrDeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(begin))
		require.Len(t, log.all(), 1)
	})
}

// A large batch may take longer than WriteTimeout, as long as the peer takes some
// of it within each.
func TestASlowPeerKeepsItsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{WriteTimeout: 5 * time.Second})
		require.NoError(t, s.Notify("n", strings.Repeat("x", 100)))
		var got []byte
		for piece := make([]byte, 10); !strings.HasSuffix(string(got), "\n"); {
			<-time.After(4 * time.Second)
			n, err := peer.Read(piece)
			require.NoError(t, err)
			got = append(got, piece[:n]...)
		}
		require.Contains(t, string(got), `{"jsonrpc":"2.0","method":"n","params":"xxx`)
		require.NoError(t, s.Notify("n", 1))
		require.Equal(t, "1", paramsOf(t, peer.line()))
	})
}

func TestAPartlyTakenBatchIsReportedOnlyWhenItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		var log fakeLog
		var calls atomic.Int64
		s := serve(t, &faultyConn{near, func(b []byte) (int, error) {
			if calls.Add(1) == 3 {
				return 0, os.ErrDeadlineExceeded
			}
			return 1, os.ErrDeadlineExceeded
		}}, Config{WriteTimeout: time.Second, Log: log.logger()})
		require.NoError(t, s.Notify("n", nil))
		require.ErrorIs(t, s.wait(), os.ErrDeadlineExceeded)
		require.EqualValues(t, 3, calls.Load())
		require.Len(t, log.all(), 1)
	})
}
