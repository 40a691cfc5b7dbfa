// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/services/proxy/dialect"
)

// engineSays starts an engine that answers everything with that status, header
// and body.
func engineSays(t *testing.T, status int, header http.Header, body string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

// ask sends a request without a body and returns the answer, read.
func (r *rig) ask(method, path string, header http.Header) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url(path), nil)
	require.NoError(r.t, err)
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp, string(raw)
}

// requireClusterEvents checks the events of a rig's only request: for all nodes,
// and no job.
func (r *rig) requireClusterEvents(status, starts int) {
	r.t.Helper()
	e := r.ended(1)
	require.Equal(r.t, "cluster", e.Target)
	require.Empty(r.t, e.NodeID)
	require.Equal(r.t, status, e.Status)
	started := r.noted("ollama:proxy/request-started")
	require.Len(r.t, started, starts)
	for _, raw := range started {
		require.JSONEq(r.t, `{"id":"1","method":"`+e.Method+`","path":"`+e.Path+`","target":"cluster"}`, string(raw))
	}
	require.Len(r.t, r.noted("ollama:proxy/request"), 1)
	require.Empty(r.t, r.trace())
}

const (
	oneModel  = `{"object":"list","data":[{"id":"m","own":true}], "more":1}`
	noModels  = `{"object":"list","data":[]}`
	errorList = `{"error":{"code":null,"message":"%","param":null,"type":"?"}}`
)

// voice is what an engine says to the question for its models.
type voice struct {
	status int
	header http.Header
	body   string
}

func TestWhatAPageGetsOfTheListsIsVotedOn(t *testing.T) { // PX-91
	may, mayNot := head(allowOrigin, page), head("X-Other", "1")
	good := voice{200, may, noModels}
	denied := "an engine denied access to the model list"
	nothing := "model inventory unavailable"
	combined := head(allowOrigin, page, "Vary", "Origin")
	for name, tt := range map[string]struct {
		engines []voice
		status  int
		refusal string // "": a list
		cors    http.Header
	}{
		"401":                          {[]voice{good, {401, may, ""}}, 403, denied, nil},
		"403":                          {[]voice{{500, may, ""}, {403, may, ""}}, 403, denied, nil},
		"200 without permission":       {[]voice{good, {200, mayNot, noModels}}, 403, denied, nil},
		"200 with an empty permission": {[]voice{good, {200, head(allowOrigin, ""), noModels}}, 403, denied, nil},
		"a denial beside no list":      {[]voice{{404, may, ""}, {200, mayNot, "no list"}}, 403, denied, nil},
		"no candidate":                 {nil, 502, nothing, nil},
		"nobody answers":               {[]voice{{500, may, noModels}, {503, may, ""}}, 502, nothing, nil},
		"no list, all permit":          {[]voice{good, {200, may, `{"data":[{}]}`}}, 502, nothing, combined},
		"an error, all permit":         {[]voice{good, {404, may, ""}}, 502, nothing, combined},
		"an error that permits nobody": {[]voice{good, {404, mayNot, ""}}, 502, nothing, nil},
		"a redirect":                   {[]voice{good, {302, head(allowOrigin, page, "Location", "/api/tags"), ""}}, 502, nothing, combined},
		"not combinable":               {[]voice{good, {200, head(allowOrigin, page, "Vary", "a b"), noModels}}, 403, "engines do not all permit access to the model list", nil},
		"all permit":                   {[]voice{{200, head(allowOrigin, "*", "Vary", "Accept"), noModels}, good}, 200, "", head(allowOrigin, page, "Vary", "Accept, Origin")},
		"all that answer permit":       {[]voice{good, {500, nil, ""}, good}, 200, "", combined},
		"one alone refuses":            {[]voice{{200, mayNot, noModels}}, 403, denied, nil},
		"one alone wants a key":        {[]voice{{401, may, ""}}, 403, denied, nil},
		"one alone is no list":         {[]voice{{200, may, `{}`}}, 502, nothing, combined},
		"one alone is loading":         {[]voice{{503, may, ""}}, 502, nothing, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for i, v := range tt.engines {
				r.addNode(string(rune('a'+i)), engineSays(t, v.status, v.header, v.body))
			}
			resp, body := r.ask("GET", "/v1/models", head("Origin", page))
			require.Equal(t, tt.status, resp.StatusCode)
			want := noModels
			if kind := map[bool]string{true: "api_error", false: "invalid_request_error"}[tt.status >= 500]; tt.refusal != "" {
				want = strings.NewReplacer("%", tt.refusal, "?", kind).Replace(errorList)
			}
			require.Equal(t, want, body)
			for _, name := range []string{allowOrigin, allowCreds, "Vary"} {
				require.Equal(t, tt.cors[name], resp.Header[name], name)
			}
			require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
			r.requireClusterEvents(tt.status, min(len(tt.engines), 1))
		})
	}
}

func TestTheListOfTheOnlyNodeIsPassedOnAsItIs(t *testing.T) {
	for name, tt := range map[string]struct {
		ask    http.Header
		engine voice
	}{
		"permitted to a page":           {head("Origin", page), voice{200, head(allowOrigin, "*", "X-Own", "1", "Content-Type", "a/b"), oneModel}},
		"permitted, empty as null":      {head("Origin", page), voice{200, head(allowOrigin, page), `{"object":"list","data":null}`}},
		"nobody's page":                 {nil, voice{200, head("X-Own", "1"), oneModel}},
		"an engine's error, no page":    {nil, voice{401, head("Www-Authenticate", "Bearer"), "key!"}},
		"an engine that loads, no page": {nil, voice{503, nil, "loading"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.addNode("a", engineSays(t, tt.engine.status, tt.engine.header, tt.engine.body))
			resp, body := r.ask("GET", "/v1/models", tt.ask)
			require.Equal(t, tt.engine.status, resp.StatusCode)
			require.Equal(t, tt.engine.body, body)
			for name, values := range tt.engine.header {
				require.Equal(t, values, resp.Header[name], name)
			}
			r.requireClusterEvents(tt.engine.status, 1)
		})
	}
}

// headers starts an engine with an empty list that tells the headers it is sent.
func headers(t *testing.T) (*httptest.Server, <-chan http.Header) {
	got := make(chan http.Header, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got <- req.Header
		w.Header().Set(allowOrigin, "*")
		_, _ = io.WriteString(w, noModels)
	}))
	t.Cleanup(s.Close)
	return s, got
}

func TestEnginesAreAskedForTheirListsAsTheClientAsks(t *testing.T) { // PX-86
	r := newRig(t)
	a, got := headers(t)
	b, _ := headers(t)
	r.addNode("a", a)
	sent := head("Origin", page, "Authorization", "k", "Cookie", "c", "Range", "bytes=0-1", "If-None-Match", `"x"`, "X-Own", "1",
		"Accept-Encoding", "gzip", "Connection", "x-hop", "X-Hop", "1", "User-Agent", "u")
	r.ask("GET", "/v1/models?x=1", sent)
	alone := <-got
	require.Equal(t, head("Origin", page, "Authorization", "k", "Cookie", "c", "X-Own", "1", "User-Agent", "u",
		"Accept", "application/json", "X-Forwarded-For", "127.0.0.1"), alone)
	r.addNode("b", b)
	sent.Set("Accept", "text/json")
	r.ask("GET", "/v1/models?x=1", sent)
	require.Equal(t, head("Origin", page, "X-Own", "1", "User-Agent", "u", "Accept", "text/json", "X-Forwarded-For", "127.0.0.1"), <-got)
}

func TestTheSelectedNodesRecordsComeFirst(t *testing.T) { // PX-88
	r := newRig(t)
	for _, id := range []string{"a", "b", "c"} {
		r.addNode(id, engineSays(t, 200, nil, `{"data":[{"id":"m","at":"`+id+`"},{"id":"`+id+`"}]}`))
	}
	r.call("node/set-priority", map[string]any{"generation": 1, "nodes": []string{"c", "b"}})
	_, body := r.ask("GET", "/v1/models", nil)
	require.Equal(t, `{"object":"list","data":[{"id":"m","at":"c"},{"id":"c"},{"id":"b"},{"id":"a"}]}`, body)
	r.call("ollama:node/select", map[string]string{"id": "a"})
	_, body = r.ask("GET", "/v1/models", nil)
	require.Equal(t, `{"object":"list","data":[{"id":"m","at":"a"},{"id":"a"},{"id":"c"},{"id":"b"}]}`, body)
}

func TestOneWarningTellsThatModelsOfOneNameDiffer(t *testing.T) {
	var log bytes.Buffer
	f := &facadeServer{log: slog.New(slog.NewJSONHandler(&log, nil))}
	f.engine.ID = "ollama"
	s := &survey{x: &exchange{f: f}, answers: []listAnswer{
		{node: "a", records: []string{`{"name":"m"}`, `{"name":"n","digest":"1"}`}},
		{node: "b", records: []string{`{"name":"m","digest":"1"}`, `{"name":"N:latest","digest":"1"}`}},
		{node: "c", records: []string{`{"name":"m","digest":"2"}`, `{"name":"n","digest":"2"}`}},
	}}
	s.class = dialect.ListTags
	require.Equal(t, []string{`{"name":"m"}`, `{"name":"n","digest":"1"}`}, s.merge())
	var line map[string]any
	require.NoError(t, json.Unmarshal(log.Bytes(), &line), "one line")
	require.Equal(t, []any{"WARN", "m:latest", "c", "b"}, []any{line["level"], line["id"], line["node"], line["other"]})
}

func TestTooLongAListIsNone(t *testing.T) {
	r := newRig(t)
	r.addNode("a", engineSays(t, 200, nil, `{"data":[{"id":"long"}]}`+strings.Repeat(" ", maxListBytes)))
	r.addNode("b", engineSays(t, 200, nil, `{"data":[{"id":"m"}]}`))
	_, body := r.ask("GET", "/v1/models", nil)
	require.Equal(t, `{"object":"list","data":[{"id":"m"}]}`, body)
}

func TestAllListsTogetherAreBounded(t *testing.T) {
	var left atomic.Int64
	left.Store(6)
	one, two := &share{strings.NewReader("1234"), &left}, &share{strings.NewReader("1234"), &left}
	_, err := io.ReadAll(one)
	require.NoError(t, err)
	_, err = io.ReadAll(two)
	require.ErrorIs(t, err, errLarge)
}

func TestAListThatMemoryIsMissingForIsRefusedWhole(t *testing.T) { // DEC-145
	r := newRigWith(t, limits{held: 1000})
	r.addNode("a", engineSays(t, 200, nil, `{"data":[{"id":"`+strings.Repeat("x", 1500)+`"}]}`))
	r.addNode("b", engineSays(t, 200, nil, noModels))
	resp, body := r.ask("GET", "/v1/models", nil)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, body)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
}

func TestAClientThatLeavesEndsTheQuestionsForItsList(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	asked, left := make(chan struct{}, 2), make(chan struct{}, 2)
	for _, id := range []string{"a", "b"} {
		r.addNode(id, listing(t, func(_ http.ResponseWriter, req *http.Request) {
			asked <- struct{}{}
			<-req.Context().Done()
			left <- struct{}{}
		}))
	}
	req, err := http.NewRequestWithContext(ctx, "GET", r.url("/v1/models"), nil)
	require.NoError(t, err)
	go func() { <-asked; <-asked; cancel() }()
	_, err = http.DefaultClient.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	<-left
	<-left
	r.requireClusterEvents(0, 1)
}
