// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

func TestTheClientFindsTheStandInsAnswersRight(t *testing.T) {
	ln := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, ln) }()
	for _, c := range []Cell{
		{Kind: KindJSON, BodyBytes: 200, Clients: 3, Warm: 1, For: time.Minute, Limit: 5},
		{Kind: KindJSON, BodyBytes: 200_000, Clients: 3, Warm: 1, For: time.Minute, Limit: 5},
		{Kind: KindStream, BodyBytes: 200, Clients: 3, Warm: 1, For: time.Minute, Limit: 5},
		{Kind: KindPause, BodyBytes: 200, Clients: 3, Warm: 1, For: time.Minute, Limit: 5},
	} {
		c.Addr = ln.Addr().String()
		r := c.Run(nil)
		require.Equal(t, []any{15, 18, 0, ""}, []any{r.Requests, r.Sent, r.Failures, r.Failure}, "%+v", c)
		require.Positive(t, r.Rate())
		require.LessOrEqual(t, r.First.P50, r.Whole.Max)
	}
	opened := 0
	slow := Cell{Addr: ln.Addr().String(), Kind: KindSlow, BodyBytes: 200, Clients: 5, Seconds: 2}
	r := slow.Run(func(n int) { opened = n })
	require.Equal(t, []any{5, 5, 5, 0, ""}, []any{opened, r.Requests, r.Sent, r.Failures, r.Failure})
	require.GreaterOrEqual(t, r.Whole.P50, time.Second)
	cancel()
	require.NoError(t, <-ended)
}

func TestEveryOtherAnswerIsAFailure(t *testing.T) {
	stream := func(body string) string { return streamHead + body }
	var chunks strings.Builder
	for i := range Chunks {
		chunks.Write(framed(chunk(i)))
	}
	right := chunks.String() + string(framed(done)) + string(framed(""))
	for what, c := range map[string]struct{ kind, reply string }{
		"status":        {KindJSON, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\n{}"},
		"length":        {KindJSON, string(whole("200 OK", answer+" "))},
		"bytes":         {KindJSON, strings.Replace(string(whole("200 OK", answer)), "usual", "other", 1)},
		"short":         {KindJSON, string(whole("200 OK", answer))[:500]},
		"no length":     {KindJSON, "HTTP/1.1 200 OK\r\n\r\n" + answer},
		"lost chunk":    {KindStream, stream(strings.Replace(right, string(framed(chunk(7))), "", 1))},
		"no terminator": {KindStream, stream(chunks.String() + string(framed("")))},
		"no last chunk": {KindStream, stream(chunks.String() + string(framed(done)))},
		"framing":       {KindStream, stream(strings.Replace(right, "\n\r\n", "\n", 1))},
		"too much":      {KindStream, stream(chunks.String() + string(framed(done+done)))},
	} {
		cell := Cell{Addr: replying(t, c.reply), Kind: c.kind, BodyBytes: 200, Clients: 1, For: time.Minute, Limit: 1}
		r := cell.Run(nil)
		require.Equal(t, []int{0, 1}, []int{r.Requests, r.Failures}, what)
		require.NotEmpty(t, r.Failure)
	}
	nobody := Cell{Addr: "127.0.0.1:1", Kind: KindJSON, Clients: 1}
	require.Equal(t, 1, nobody.Run(nil).Failures)
}

// replying answers one request with these bytes and ends the connection. It returns its address.
func replying(t *testing.T, reply string) string {
	t.Helper()
	ln := listen(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		s := session{conn: conn, in: bufio.NewReader(conn)}
		_, _ = s.read()
		_, _ = io.WriteString(conn, reply)
		_ = conn.Close()
	}()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	return ln.Addr().String()
}

func TestPromptsHaveTheirSizeAndTheirMarksInFront(t *testing.T) {
	for _, kind := range []string{KindJSON, KindStream, KindPause, KindSlow} {
		for _, size := range []int{200, 201, 200_000} {
			body := prompt(kind, 15, size)
			require.Len(t, body, size, kind)
			require.Equal(t, kind != KindJSON, strings.Contains(body[:markBytes], streamMark))
			require.Equal(t, kind == KindPause, strings.Contains(body[:markBytes], pauseMark))
			require.Equal(t, kind == KindSlow, strings.Contains(body[:markBytes], slowMark+"15,"))
		}
	}
	require.InDelta(t, 600, len(answer), 60)
	require.InDelta(t, 120, len(chunk(0)), 10)
}

func TestQuantilesAreSamples(t *testing.T) {
	var s []time.Duration
	for i := range 100 {
		s = append(s, time.Duration(100-i))
	}
	require.Equal(t, Quantiles{51, 96, 100, 100}, quantiles(s))
	require.Equal(t, Quantiles{}, quantiles(nil))
	require.Equal(t, "2", fmt.Sprint((&Result{Requests: 4, Elapsed: 2 * time.Second}).Rate()))
}
