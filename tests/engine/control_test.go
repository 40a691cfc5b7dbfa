// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// controller asks the control port.
func controller(t *testing.T, e *Engine) func(method, path, body string) (int, string) {
	t.Helper()
	srv := httptest.NewServer(e.Control())
	t.Cleanup(srv.Close)
	return func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := srv.Client().Do(r)
		require.NoError(t, err)
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode, string(b)
	}
}

func TestTheControlPortSwitchesFaults(t *testing.T) {
	e := StartTest(t, Config{})
	ask := controller(t, e)
	status, body := ask("POST", "/faults", `{"kind":"status","status":503,"path":"/api/chat"}`)
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"ids":["f1"]}`, body)
	got, _ := dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, 503, got)
	_, body = ask("GET", "/faults", "")
	require.JSONEq(t, `[{"id":"f1","kind":"status","status":503,"path":"/api/chat","hits":1}]`, body)
	status, _ = ask("DELETE", "/faults/f1", "")
	require.Equal(t, 204, status)
	status, _ = ask("DELETE", "/faults/f1", "")
	require.Equal(t, 404, status)
	got, _ = dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, 200, got)
	status, _ = ask("PUT", "/faults", `[{"kind":"busy"},{"kind":"cut"}]`)
	require.Equal(t, 204, status)
	require.Len(t, e.Faults.List(), 2)
	status, _ = ask("DELETE", "/faults", "")
	require.Equal(t, 204, status)
	require.Empty(t, e.Faults.List())
	for _, bad := range []string{`{"kind":"other"}`, `{"kind":"cut","when":"now"}`, `[{]`, ``} {
		status, body = ask("POST", "/faults", bad)
		require.Equal(t, 400, status, body)
	}
}

func TestTheControlPortTellsWhatTheWitnessSaw(t *testing.T) {
	e := StartTest(t, Config{})
	ask := controller(t, e)
	_, _ = dial(t, e).post("/api/chat", chatWhole).whole()
	want := ended(t, e, 1)
	_, body := ask("GET", "/witness", "")
	var report Report
	require.NoError(t, json.Unmarshal([]byte(body), &report))
	require.Equal(t, want[0].BodyHash, report.Requests[0].BodyHash)
	require.Equal(t, want[0].Head, report.Requests[0].Head)
	status, _ := ask("DELETE", "/witness", "")
	require.Equal(t, 204, status)
	require.Empty(t, e.Witness().Requests)
}

func TestTheControlPortChangesTheEngine(t *testing.T) {
	e := StartTest(t, Config{Dialect: LlamaCpp})
	ask := controller(t, e)
	for path, body := range map[string]string{
		"/pace": `{"chunks":3,"delayNs":1000}`, "/models": `[{"name":"other"}]`, "/loading": `{"on":true}`,
		"/listen": `{"state":"paused"}`,
	} {
		status, text := ask("PUT", path, body)
		require.Equal(t, 204, status, "%s: %s", path, text)
		status, _ = ask("PUT", path, `{"odd":1}`)
		require.Equal(t, 400, status, path)
	}
	require.Equal(t, Pace{Chunks: 3, Delay: time.Microsecond}, e.Pace())
	_, body := ask("GET", "/models", "")
	require.Contains(t, body, `"name": "other"`)
	status, _ := ask("PUT", "/listen", `{"state":"open"}`)
	require.Equal(t, 204, status)
	got, _ := dial(t, e).send("GET /health HTTP/1.1\r\n\r\n").whole()
	require.Equal(t, 503, got)
	_, body = ask("GET", "/", "")
	require.Contains(t, body, "stand-in")
}
