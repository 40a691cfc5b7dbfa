// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const pullNew = `{"model":"new"}`

func fastPulls() Config { return Config{PullTick: time.Millisecond, PullSteps: 2} }

func TestAPullGoesLayerByLayerAndLeavesAModel(t *testing.T) {
	e := StartTest(t, fastPulls())
	_, body := dial(t, e).post("/api/pull", pullNew).whole()
	var seen []string
	for line := range strings.Lines(body) {
		var l struct {
			Status    string
			Total     int64
			Completed *int64
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		word := l.Status
		switch {
		case l.Completed != nil && *l.Completed == l.Total:
			word = "done"
		case l.Completed != nil:
			word = "some"
		case l.Total > 0:
			word = "none"
		}
		seen = append(seen, word)
	}
	require.Equal(t, []string{"pulling manifest", "none", "some", "done", "none", "some", "done", "verifying sha256 digest",
		"writing manifest", "success"}, seen)
	_, tags := dial(t, e).send("GET /api/tags HTTP/1.1\r\n\r\n").whole()
	require.Contains(t, tags, `"name":"new:latest"`)
	_, body = dial(t, e).post("/api/pull", pullNew).whole()
	require.Equal(t, 6, strings.Count(body, "\n"), body) // present already
	_, body = dial(t, e).post("/api/pull", `{"model":"other","stream":false}`).whole()
	require.JSONEq(t, `{"status":"success"}`, body)
}

func TestAPullStopsWithItsClientAndIsTakenUpAgain(t *testing.T) {
	e := StartTest(t, fastPulls())
	inject(t, e, Fault{Kind: KindPull, Form: "stall"})
	c := dial(t, e).post("/api/pull", pullNew)
	res, err := c.response()
	require.NoError(t, err)
	r := bufio.NewReader(res.Body)
	for range 2 { // the manifest, and the first layer at 0
		_, err := r.ReadString('\n')
		require.NoError(t, err)
	}
	require.NoError(t, c.nc.Close())
	require.Equal(t, "left", ended(t, e, 1)[0].End)
	_, tags := dial(t, e).send("GET /api/tags HTTP/1.1\r\n\r\n").whole()
	require.NotContains(t, tags, "new:latest")

	inject(t, e, Fault{Kind: KindCut, At: AtMidStream, After: 4}) // the layer is done
	_, _, err = dial(t, e).post("/api/pull", pullNew).answer()
	require.Error(t, err)
	e.Faults.Clear()
	_, body := dial(t, e).post("/api/pull", pullNew).whole()
	require.NotContains(t, body, `"total":132028}`) // it does not begin at 0 again
	require.Contains(t, body, "success")
}

func TestARegistryKnowsItsModelsOnly(t *testing.T) {
	cfg := fastPulls()
	cfg.Registry = []string{"new"}
	e := StartTest(t, cfg)
	_, body := dial(t, e).post("/api/pull", `{"model":"nosuch"}`).whole()
	require.Contains(t, body, `{"error":"pull model manifest: file does not exist"}`)
	status, _ := dial(t, e).post("/api/pull", `{"model":"nosuch","stream":false}`).whole()
	require.Equal(t, 500, status)
	_, body = dial(t, e).post("/api/pull", pullNew).whole()
	require.Contains(t, body, "success")
	inject(t, e, Fault{Kind: KindPull, Form: "no-total"})
	_, body = dial(t, e).post("/api/pull", `{"model":"new:latest"}`).whole()
	require.Contains(t, body, "success")
}

func TestADownloadOfLMStudioIsPolled(t *testing.T) {
	e := StartTest(t, Config{Dialect: LMStudio, PullSteps: 2})
	_, body := dial(t, e).post("/api/v1/models/download", pullNew).whole()
	var job struct {
		ID     string `json:"job_id"`
		Status string `json:"status"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &job))
	look := func() string {
		_, body := dial(t, e).send("GET /api/v1/models/download/status/" + job.ID + " HTTP/1.1\r\n\r\n").whole()
		require.NoError(t, json.Unmarshal([]byte(body), &job))
		return job.Status
	}
	require.Equal(t, "downloading", job.Status)
	require.Equal(t, []string{"downloading", "completed"}, []string{look(), look()})
	_, body = dial(t, e).post("/api/v1/models/download", pullNew).whole()
	require.Contains(t, body, "already_downloaded")
	job.ID = "job_other"
	_, body = dial(t, e).send("GET /api/v1/models/download/status/job_other HTTP/1.1\r\n\r\n").whole()
	require.Contains(t, body, "job_not_found")
}
