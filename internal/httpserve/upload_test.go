// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAnswerBeforeTheEndOfALargeUploadArrives(t *testing.T) {
	addr := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})})
	for range 10 {
		c := dial(t, addr)
		c.say("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n")
		go func() { _, _ = io.Copy(c.Conn, strings.NewReader(strings.Repeat("x", 4<<20))) }()
		resp, _ := c.answer("POST")
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
		require.True(t, resp.Close)
		require.NoError(t, c.Close())
	}
}

func TestAnswersPassWhileTheUploadGoesOn(t *testing.T) {
	c := dial(t, serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		require.NoError(t, rc.EnableFullDuplex())
		buf := make([]byte, 1)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	})}))
	for range 3 {
		c.say("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
		resp, err := http.ReadResponse(c.in, nil)
		require.NoError(t, err)
		buf := make([]byte, 1)
		for _, want := range "abc" {
			_, err := io.ReadFull(resp.Body, buf)
			require.NoError(t, err)
			require.Equal(t, string(want), string(buf))
			c.say("1\r\n" + string(want+1) + "\r\n")
		}
		c.say("0\r\n\r\n")
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "d", string(rest))
	}
}

func TestWhatIsLeftOfABodyIsNotReadAsARequest(t *testing.T) {
	for _, do := range []string{"duplex", ""} {
		var seen atomic.Int32
		addr := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if seen.Add(1); do == "duplex" {
				_ = http.NewResponseController(w).EnableFullDuplex()
			}
			ok(w, r)
		})})
		c := dial(t, addr)
		c.say("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + get)
		_, body := c.answer("POST")
		require.Equal(t, "ok", body)
		require.True(t, c.ended())
		require.EqualValues(t, 1, seen.Load())
	}
}

func TestAReaderOfTheBodyThatOutlivesTheHandlerHoldsNothingUp(t *testing.T) {
	for name, end := range map[string]func(http.ResponseWriter){
		"closing":  func(w http.ResponseWriter) { w.Header().Set("Connection", "close") },
		"aborting": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			reading, read := make(chan struct{}), make(chan struct{})
			c := dial(t, serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := r.Body
				go func() {
					defer close(read)
					buf := make([]byte, 1)
					_, _ = body.Read(buf)
					close(reading)
					_, _ = body.Read(buf)
				}()
				<-reading
				end(w)
			})}))
			c.say("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na")
			await(t, "the end of the read", read)
			_, _ = io.Copy(io.Discard, c.in)
		})
	}
}
