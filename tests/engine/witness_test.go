// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheWitnessRecordsARequestAsItWas(t *testing.T) {
	e := StartTest(t, Config{})
	head := "POST /api/chat?x=1 HTTP/1.1\r\nhOst: localhost\r\nTransfer-Encoding: chunked\r\nX-Odd:  two \r\n\r\n"
	body := chatWhole
	c := dial(t, e).send(head + "5\r\n" + body[:5] + "\r\n")
	rest := body[5:]
	c.send(hexSize(len(rest)) + "\r\n" + rest + "\r\n0\r\nTrailer: x\r\n\r\n")
	status, _ := c.whole()
	require.Equal(t, 200, status)
	_, _ = c.post("/api/chat", chatWhole).whole()
	r := ended(t, e, 2)
	sum := sha256.Sum256([]byte(body))
	require.Equal(t, head, r[0].Head)
	require.Equal(t, "/api/chat", r[0].Path)
	require.Equal(t, "x=1", r[0].Query)
	require.Equal(t, "demo", r[0].Model)
	require.Equal(t, int64(len(body)), r[0].BodyBytes)
	require.Equal(t, hex.EncodeToString(sum[:]), r[0].BodyHash)
	require.True(t, r[0].BodyDone)
	require.Equal(t, 200, r[0].Status)
	require.Equal(t, "complete", r[0].End)
	require.Empty(t, r[0].Left)
	require.Equal(t, []int{1, 2}, []int{r[0].Turn, r[1].Turn})
	require.Equal(t, r[0].Conn, r[1].Conn)
	require.Equal(t, r[0].SentBytes, r[1].SentBytes)
	require.False(t, r[1].Arrival.Before(r[0].Arrival))
}

func hexSize(n int) string {
	return string("0123456789abcdef"[n>>4]) + string("0123456789abcdef"[n&15])
}

func TestTheWitnessSeesWhenAndHowAClientLeaves(t *testing.T) {
	for how, leave := range map[string]func(*client) error{
		"closed": func(c *client) error { return c.nc.Close() },
		"reset":  func(c *client) error { _ = c.nc.SetLinger(0); return c.nc.Close() },
	} {
		t.Run(how, func(t *testing.T) {
			e := StartTest(t, Config{Pace: Pace{Delay: time.Hour}})
			c := dial(t, e).post("/api/chat", chatStream)
			res, err := c.response()
			require.NoError(t, err)
			_, err = res.Body.Read(make([]byte, 1<<10))
			require.NoError(t, err)
			open := await(t, e, "first token", func(r Report) bool { return r.Open == 1 && r.Requests[0].SentBytes > 0 })
			require.Equal(t, "open", open.Requests[0].End)
			require.NoError(t, leave(c))
			r := ended(t, e, 1)[0]
			require.Equal(t, how, r.Left)
			require.Equal(t, "left", r.End)
			require.Greater(t, r.LeftMs, 0.0)
			require.Equal(t, open.Requests[0].SentBytes, r.SentBytes)
		})
	}
}

func TestAClientThatLeavesInItsBodyIsSeen(t *testing.T) {
	e := StartTest(t, Config{})
	c := dial(t, e).send("POST /api/chat HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, c.nc.Close())
	r := ended(t, e, 1)[0]
	require.Equal(t, "closed", r.Left)
	require.Equal(t, int64(1), r.BodyBytes)
	require.False(t, r.BodyDone)
	require.Zero(t, r.Status)
}

func TestTheWitnessCountsRequestsAtOnceAndForgets(t *testing.T) {
	e := StartTest(t, Config{Witness: 2})
	inject(t, e, Fault{Kind: KindHang, Times: 3})
	for range 3 {
		dial(t, e).post("/api/chat", chatWhole)
	}
	r := await(t, e, "three at once", func(r Report) bool { return r.Open == 3 })
	require.Equal(t, 3, r.MaxOpen)
	require.Len(t, r.Requests, 2) // the newest
	require.Equal(t, []int{2, 3}, []int{r.Requests[0].AtOnce, r.Requests[1].AtOnce})
	e.ResetWitness()
	require.Equal(t, int64(3), e.Witness().Total, "those in progress stay")
	e.Faults.Clear()
	ended(t, e, 3)
	e.ResetWitness()
	require.Equal(t, Report{Requests: []Record{}}, e.Witness())
}

func TestTheWitnessCanKeepNothing(t *testing.T) {
	e := StartTest(t, Config{Witness: -1})
	_, _ = dial(t, e).post("/api/chat", chatWhole).whole()
	r := await(t, e, "end", func(r Report) bool { return r.Total == 1 && r.Open == 0 })
	require.Empty(t, r.Requests)
}
