// SPDX-License-Identifier: Apache-2.0

package errors

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
)

const null = `{"result":null}`

func local() Config { return Config{NodeID: "n-1"} }

func report(id, node, message string, timestamp int64) string {
	return fmt.Sprintf(`{"id":%q,"nodeId":%q,"message":%q,"timestamp":%d}`, id, node, message, timestamp)
}

func TestErrorsAreReportedAndCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, local())
		c.Quiet()
		c.Play("errors.frames", nil)
		require.NoError(t, c.Stop())
	})
}

// TestReportsUpsertByNodeAndID: see ER-20, ER-21 and ER-23.
func TestReportsUpsertByNodeAndID(t *testing.T) {
	for _, tt := range []struct {
		name     string
		second   string
		want     []string // of the update
		noUpdate bool
	}{
		{"newer", report("a", "n-1", "two", 11), []string{"a@n-1 two 11"}, false},
		{"equally old, other text", report("a", "n-1", "two", 10), []string{"a@n-1 two 10"}, false},
		{"equally old, the same", report("a", "n-1", "one", 10), []string{"a@n-1 one 10"}, false},
		{"older", report("a", "n-1", "two", 9), nil, true},
		{"of another node", report("a", "n-0", "two", 9), []string{"a@n-0 two 9", "a@n-1 one 10"}, false},
		{"another id", report("A", "n-9", "two", 9), []string{"A@n-9 two 9", "a@n-1 one 10"}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, local())
			require.Equal(t, null, c.Call("errors:report", report("a", "n-1", "one", 10)))
			require.Equal(t, []string{"a@n-1 one 10"}, c.update())
			require.Equal(t, null, c.Call("errors:report", tt.second), tt.name)
			if tt.noUpdate {
				c.Quiet()
				tt.want = []string{"a@n-1 one 10"}
			} else {
				require.Equal(t, tt.want, c.update(), tt.name)
			}
			require.Equal(t, tt.want, c.initial(), tt.name)
			c.Quiet()
			require.NoError(t, c.Stop())
		})
	}
}

// TestClearTouchesOnlyThisNodesEntry: see ER-24 and ER-25.
func TestClearTouchesOnlyThisNodesEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, local())
		for _, node := range []string{"n-1", "n-2", ""} {
			c.Notify("errors:report", report("a", node, "x", 1))
			c.update()
		}
		require.Equal(t, null, c.Call("errors:clear", `{"id":"a","clearedBy":"n-2"}`))
		require.Equal(t, []string{"a@ x 1", "a@n-2 x 1"}, c.update())
		require.Equal(t, null, c.Call("errors:clear", `{"id":"a"}`)) // absent now
		c.Notify("errors:clear", `{"id":"b"}`)
		c.Quiet()
		require.NoError(t, c.Stop())
	})
}

// TestClearedErrorComesBackWithTheNextReport: see ER-26.
func TestClearedErrorComesBackWithTheNextReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, local())
		c.Notify("errors:report", report("a", "n-1", "x", 10))
		c.update()
		c.Notify("errors:clear", `{"id":"a"}`)
		require.Equal(t, []string{}, c.update())
		c.Notify("errors:report", report("a", "n-1", "older", 3))
		require.Equal(t, []string{"a@n-1 older 3"}, c.update())
		require.NoError(t, c.Stop())
	})
}

func TestInvalidMessagesChangeNothing(t *testing.T) {
	huge := `{"id":"a","message":"` + strings.Repeat("x", maxEntryBytes) + `"}`
	synctest.Test(t, func(t *testing.T) {
		c := start(t, local())
		bad := []struct{ method, params, want string }{
			{"errors:report", `{}`, `"id" is required`},
			{"errors:report", `null`, `"id" is required`},
			{"errors:report", `{"id":"","message":"x"}`, `"id" is required`},
			{"errors:report", `{"id":"a"}`, `"message" is required`},
			{"errors:report", `{"id":"a","message":""}`, `"message" is required`},
			{"errors:report", `[]`, ``},
			{"errors:report", `{"id":1,"message":"x"}`, ``},
			{"errors:report", `{"id":"a","message":"x","timestamp":"1"}`, ``},
			{"errors:report", `{"id":"a","message":"x","timestamp":1.5}`, ``},
			{"errors:report", `{"id":"a","message":"x","severity":{}}`, ``},
			{"errors:report", huge, `the entry is larger than 65536 bytes`},
			{"errors:clear", `{}`, `"id" is required`},
			{"errors:clear", `{"id":""}`, `"id" is required`},
			{"errors:clear", `{"id":7}`, ``},
			{"errors:clear", `{"id":"a","clearedBy":1}`, ``},
			{"errors:clear", `"a"`, ``},
		}
		for _, tt := range bad {
			answer := c.Call(tt.method, tt.params)
			want := `{"error":{"code":-32602,"message":` + strings.TrimSuffix(strconv.Quote("invalid params: "+tt.want), `"`)
			require.True(t, strings.HasPrefix(answer, want), "%s %.80s: %s", tt.method, tt.params, answer)
			c.Notify(tt.method, tt.params)
		}
		c.Send(`{"jsonrpc":"2.0","id":7,"method":"errors:report"}`)
		require.Contains(t, c.Next(), `"code":-32602,"message":"invalid params: none given"`)
		c.Send(`{"jsonrpc":"2.0","id":1,"result":[]}`) // a response to nothing
		c.Quiet()
		require.Equal(t, []string{}, c.initial())
		require.NoError(t, c.Stop())
		require.Equal(t, len(bad), strings.Count(c.Log.String(), "WARN invalid notification dropped"))
		require.NotContains(t, c.Log.String(), "xxx")
	})
}

func TestUnknownMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, local())
		c.Notify("errors:report", report("a", "n-1", "x", 1))
		c.update()
		for _, method := range []string{"errors:update", "errors:list", "discovery:nodes", "discovery:subscribe"} {
			require.JSONEq(t, `{"error":{"code":-32601,"message":"method not found: `+method+`"}}`, c.Call(method, `{}`))
		}
		for _, method := range []string{"errors:get-initial", "shutdown", "errors:update", "unknown", "discovery:nodes"} {
			c.Notify(method, `{"nodes":[]}`)
		}
		c.Quiet()
		require.NoError(t, c.Stop())
	})
}

func TestManyChangesShareAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, local())
		const reports = 200
		for i := range reports { // the worker's writer waits for us all the while
			c.Notify("errors:report", report(fmt.Sprintf("%03d", i), "n-1", "x", 1))
		}
		updates := 0
		for entries := 0; entries < reports; updates++ {
			entries = len(c.update())
		}
		require.Less(t, updates, reports/2)
		require.NoError(t, c.Stop())
	})
}

func TestLongestListFitsAFrameOfFourMebibytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, local())
		text := strings.Repeat("x", maxEntryBytes-200)
		for i := range 70 {
			c.Notify("errors:report", report(fmt.Sprintf("%03d", i), "n-1", text, int64(i)))
		}
		c.Notify("errors:report", report("last", "n-1", text, 99))
		longest := 0
		for frame := ""; !strings.Contains(frame, `"id":"last"`); {
			frame = c.Next()
			longest = max(longest, len(frame))
		}
		require.Greater(t, longest, 4<<20-maxEntryBytes-2<<10)
		require.LessOrEqual(t, longest, 4<<20)
		require.NoError(t, c.Stop())
		require.Equal(t, 1, strings.Count(c.Log.String(), "WARN error list is full")) // not one a report
	})
}

func TestNodeIDIsNeverEmpty(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, host, nodeID(""))
	require.Equal(t, "n-1", nodeID("n-1"))
}

func TestShutdownIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, local())
		require.Equal(t, null, c.Call("shutdown", "null"))
		require.NoError(t, c.Wait())
	})
}

func TestCommandLine(t *testing.T) {
	taken, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	for _, tt := range []struct {
		args    []string
		code    int
		out, er string
	}{
		{[]string{"--version"}, 0, "1.2.3\n", ""},
		{[]string{"--no-such-flag"}, 2, "", "no-such-flag"},
		{[]string{"extra"}, 2, "", "extra"},
		{[]string{"--peer-sync", "--port", port}, 1, "", "bind the port of the peers"}, // ER-4
		{[]string{"--peer-sync", "--port", "70000"}, 1, "", "invalid port"},
	} {
		var out, errs bytes.Buffer
		code := Main(tt.args, "1.2.3", worker.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		require.Equal(t, tt.code, code, "%q: %s", tt.args, errs.String())
		require.Equal(t, tt.out, out.String())
		require.Contains(t, errs.String(), tt.er)
	}
}

func TestBrokersCommandLineIsAccepted(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"--log-level", "warn", "--cluster-dir", t.TempDir(), "--node-id", ""} // ER-1, ER-3
	code := Main(args, "1.2.3", worker.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	require.Equal(t, 0, code, errs.String())
	require.Equal(t, workertest.Ready+"\n"+workertest.Hello+"\n", out.String())
}
