// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func preflightHeader() http.Header {
	return head("Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type",
		"Authorization", "k", "Cookie", "c")
}

func TestAPreflightIsVotedOn(t *testing.T) { // PX-94
	may := head(allowOrigin, page, allowHeaders, "*")
	good := voice{204, may, ""}
	for name, tt := range map[string]struct {
		engines []voice
		status  int
		body    string
	}{
		"no engine":             {nil, 502, "no active node selected or available"},
		"all permit":            {[]voice{good, {200, may, "{}"}}, 204, ""},
		"an ill one":            {[]voice{{500, nil, ""}, good, good}, 204, ""},
		"a denial":              {[]voice{good, {403, may, ""}}, 403, "an engine denied the request"},
		"a redirect":            {[]voice{good, {302, head("Location", "/"), ""}}, 403, "an engine denied the request"},
		"a denial, others ill":  {[]voice{{500, nil, ""}, {400, nil, ""}}, 403, "an engine denied the request"},
		"nobody answers":        {[]voice{{500, may, ""}, {503, may, ""}}, 502, "no engine answered the preflight request"},
		"one does not permit":   {[]voice{good, {200, head(allowOrigin, page), ""}}, 403, "engines do not all permit the request"},
		"one without an answer": {[]voice{good, {204, nil, ""}}, 403, "engines do not all permit the request"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for i, v := range tt.engines {
				r.addNode(string(rune('a'+i)), engineSays(t, v.status, v.header, v.body))
			}
			resp, body := r.ask("OPTIONS", "/api/chat", preflightHeader())
			require.Equal(t, tt.status, resp.StatusCode)
			require.Equal(t, tt.body, body)
			if tt.status == 204 {
				require.Equal(t, page, resp.Header.Get(allowOrigin))
				require.Equal(t, "POST", resp.Header.Get(allowMethods))
				require.Equal(t, "content-type", resp.Header.Get(allowHeaders))
				require.Equal(t, "60", resp.Header.Get(maxAge))
				require.Equal(t, "Access-Control-Request-Headers, Access-Control-Request-Method, Origin", resp.Header.Get("Vary"))
			} else {
				require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
				require.Empty(t, resp.Header[allowOrigin])
			}
			r.requireClusterEvents(tt.status, 0)
		})
	}
}

func TestThePreflightAnswerOfTheOnlyNodeIsPassedOnAsItIs(t *testing.T) {
	for _, v := range []voice{
		{200, head(allowOrigin, "*", allowMethods, "GET, POST"), "body"},
		{403, head("Allow", "GET"), ""},
		{200, nil, `{"error":"Unexpected endpoint"}`},
		{500, nil, "broken"},
	} {
		r := newRig(t)
		r.addNode("a", engineSays(t, v.status, v.header, v.body))
		resp, body := r.ask("OPTIONS", "/v1/chat/completions", preflightHeader())
		require.Equal(t, v.status, resp.StatusCode)
		require.Equal(t, v.body, body)
		for name, values := range v.header {
			require.Equal(t, values, resp.Header[name])
		}
		require.Empty(t, resp.Header[maxAge])
		r.requireClusterEvents(v.status, 1)
	}
	r := newRig(t)
	r.addAddress("a", freePort(t))
	resp, body := r.ask("OPTIONS", "/v1/chat/completions", preflightHeader())
	require.Equal(t, http.StatusBadGateway, resp.StatusCode)
	require.Contains(t, body, "upstream error: ")
	require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
	r.requireClusterEvents(502, 0)
}

func TestPreflightsGoToEightNodesAtATimeWithoutCredentials(t *testing.T) {
	r := newRig(t)
	var now, most, total atomic.Int32
	eight := make(chan struct{}) // closed when eight are here
	engine := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for n, m := now.Add(1), most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if total.Add(1) == preflightsAtOnce {
			close(eight)
		}
		<-eight
		now.Add(-1)
		if req.Header.Get("Authorization")+req.Header.Get("Cookie") != "" || req.ContentLength != 0 || req.Header.Get("Origin") != page {
			t.Errorf("%s %v", req.Method, req.Header)
		}
		w.Header().Set(allowOrigin, "*")
		w.Header().Set(allowHeaders, "*")
	})
	for i := range 20 {
		s := httptest.NewServer(engine)
		t.Cleanup(s.Close)
		r.addNode(strconv.Itoa(i), s)
	}
	resp, body := r.ask("OPTIONS", "/api/chat", preflightHeader())
	require.Equal(t, http.StatusNoContent, resp.StatusCode, body)
	require.EqualValues(t, 20, total.Load())
	require.EqualValues(t, preflightsAtOnce, most.Load())
}

func TestOtherOptionsRequestsAreNoPreflights(t *testing.T) { // PX-93
	for name, header := range map[string]http.Header{
		"no method": head("Origin", page), "no origin": head("Access-Control-Request-Method", "GET"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.addNode("a", engineSays(t, 200, head(allowOrigin, "*"), "a"))
			r.addNode("b", engineSays(t, 403, nil, "b"))
			resp, body := r.ask("OPTIONS", "/api/chat", header)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "a", body)
			require.Equal(t, "a", r.ended(1).NodeID)
		})
	}
}

func TestTheGatesComeBeforeThePreflight(t *testing.T) { // PX-93
	r := newRig(t)
	r.addNode("a", engineSays(t, 200, head(allowOrigin, "*"), ""))
	h := preflightHeader()
	h.Set("X-NVPAIR-Engine-Identity-Probe", "1")
	resp, _ := r.ask("OPTIONS", "/api/chat", h)
	require.Equal(t, http.StatusConflict, resp.StatusCode)
	require.Empty(t, resp.Header[allowOrigin])
}
