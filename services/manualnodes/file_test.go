// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	wire "nvpair/shared/manualnodes"
)

func TestNodesSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		n := newNetwork(t, both("10.0.0.5"))
		c := start(t, dir, n)
		require.NoFileExists(t, filepath.Join(dir, listFile), "nothing is written before there is something")
		c.add(`{"address":"10.0.0.5","name":"desk <1>","mtls":true,"ports":{"lmstudio":1300}}`)
		c.add(`{"address":"fd00::6","tls_port":8443}`)
		require.JSONEq(t, `[{"id":"desk <1>","address":"10.0.0.5","name":"desk <1>","mtls":true,"ports":{"lmstudio":1300}},
			{"id":"manual:fd00::6","address":"fd00::6","tls_port":8443}]`, read(t, dir, listFile))
		info, err := os.Stat(filepath.Join(dir, listFile))
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode().Perm())
		c.stop()

		c = start(t, dir, n)
		found := map[string]wire.Status{}
		for range 2 {
			line := c.Next()
			for isClear(line) {
				line = c.Next()
			}
			st := decodeStatus(t, line)
			found[st.ID] = st
		}
		require.True(t, found["desk <1>"].OllamaUp)
		require.True(t, found["desk <1>"].MTLSRequired)
		require.Equal(t, 1300, found["desk <1>"].LMStudioPort)
		require.True(t, found["manual:fd00::6"].TLSEnabled)
		require.Equal(t, 8443, found["manual:fd00::6"].NodeInfoPort)
		for id := range found {
			c.Send(request("node/remove", `{"id":"`+id+`"}`))
			c.event("node/removed")
			c.Next()
			c.Next()
		}
		require.Equal(t, "[]\n", read(t, dir, listFile))
		c.stop()
	})
}

func isClear(line string) bool {
	var f struct{ Method string }
	return json.Unmarshal([]byte(line), &f) == nil && f.Method == "errors:clear"
}

func decodeStatus(t *testing.T, line string) wire.Status {
	t.Helper()
	var f struct {
		Method string
		Params wire.Status
	}
	require.NoError(t, json.Unmarshal([]byte(line), &f))
	require.Equal(t, "node/discovered", f.Method, line)
	return f.Params
}

func TestTheListOfAnEarlierReleaseIsTakenOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		n := newNetwork(t, nil)
		const legacy = `[{"id":"x","address":"10.0.0.5","name":"desk","more":1},{"id":"y"},{"id":"z","address":"http://a"}]`
		write(t, dir, "configs/manual-nodes.json", legacy)
		c := start(t, dir, n)
		require.Equal(t, "x", c.event("node/discovered").ID)
		c.Send(request("node/remove", `{"id":"x"}`))
		c.event("node/removed")
		c.Next()
		c.Next()
		c.stop()
		require.Contains(t, c.Log.String(), "not wholly taken over")
		require.Equal(t, legacy, read(t, dir, "configs/manual-nodes.json"), "left alone")

		c = start(t, dir, n)
		require.Empty(t, c.list())
		c.stop()
	})
	for _, useless := range []string{`{}`, `x`, `[`, `[5]`} {
		synctest.Test(t, func(t *testing.T) {
			dir := newDir(t)
			write(t, dir, "configs/manual-nodes.json", useless)
			c := start(t, dir, newNetwork(t, nil))
			require.Empty(t, c.list(), useless)
			c.stop()
		})
	}
}

func TestAListThatCannotBeReadIsLeftAlone(t *testing.T) {
	for name, text := range map[string]string{
		"damaged": `[{"id":`,
		"partly":  `[{"id":"a","address":"10.0.0.5"},{"id":"b","address":"10.0.0.6:80"}]`,
		"twice":   `[{"id":"a","address":"10.0.0.5"},{"id":"a","address":"10.0.0.6"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := newDir(t)
				write(t, dir, listFile, text)
				c := start(t, dir, newNetwork(t, both("10.0.0.7")))
				line := c.Next()
				require.Contains(t, line, `"errors:report"`)
				require.Contains(t, line, `"id":"manual-nodes:list-unreadable"`)
				require.Contains(t, line, "Repair it and restart the node, or move it away")
				if name != "damaged" {
					require.Equal(t, "a", decodeStatus(t, c.Next()).ID, "what can be used is")
				}
				_, st := c.add(`{"address":"10.0.0.7"}`)
				require.True(t, st.OllamaUp)
				require.Equal(t, text, read(t, dir, listFile))

				require.NoError(t, os.Remove(filepath.Join(dir, listFile))) // moved away
				c.Send(request("node/add", `{"address":"10.0.0.7","name":"desk"}`))
				require.JSONEq(t, `{"jsonrpc":"2.0","method":"errors:clear","params":{"id":"manual-nodes:list-unreadable"}}`, c.Next())
				require.Contains(t, c.Next(), `"result"`)
				require.Contains(t, read(t, dir, listFile), `"desk"`)
				c.event("node/updated")
				c.stop()
			})
		})
	}
}

// TestAnOldListIsKeptWhole: what would no longer be added is on it, and no reason
// to leave the file alone.
func TestAnOldListIsKeptWhole(t *testing.T) {
	usable, err := decodeList([]byte(`[{"id":"a","address":"fe80::1"},{"id":"b","address":"224.0.0.1"},{"id":"c","address":"300.1.1.1"}]`))
	require.NoError(t, err)
	require.Len(t, usable, 3)
}

func TestWhatCannotBeSavedIsNotAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		n := newNetwork(t, both("10.0.0.5"))
		c := start(t, dir, n)
		c.Quiet()
		write(t, dir, "manual-nodes", "a file where the directory is to be")
		code, message := c.refused("node/add", `{"address":"10.0.0.5"}`)
		require.Equal(t, -32603, code)
		require.Contains(t, message, "manual-nodes")
		require.Empty(t, c.list())
		require.Empty(t, n.requests())
		c.stop()
	})
}
