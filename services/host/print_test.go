// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"nvpair/internal/worker"
	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/manualnodes"
	"nvpair/shared/serviceerror"
)

func TestForeignTextCannotSteerTheTerminal(t *testing.T) {
	require.Equal(t, "a|\uFFFD[31mred|b c|\uFFFDé 日", line("|", "a", "\x1b[31mred", "b\tc", "\u202eé 日"))
	require.Equal(t, "a b \uFFFD\uFFFD\uFFFD\uFFFD", clean("a\nb\u2028\u009b\u2066\u200b\xff"))
}

func TestOneTextCannotFillTheScreen(t *testing.T) {
	long := strings.Repeat("日", 1000)
	cells := strings.Split(line("|", long, long), "|")
	require.Equal(t, strings.Repeat("日", 63)+"…", cells[0])
	require.Equal(t, strings.Repeat("日", 399)+"…", cells[1])
	require.Equal(t, long[:3*64], cell(long[:3*64]))
}

func TestJSONForATerminalIsTheSameJSON(t *testing.T) {
	for _, text := range []string{"plain é 日", "\x1b[2J", "\u009b2J", "\u202eabc", "\x7f", "\u200b", "\U000e0041", "\u2028", `\u202e "quoted"`} {
		raw, err := json.Marshal(map[string]string{text: text})
		require.NoError(t, err)
		raw = bytes.ReplaceAll(raw, []byte(`\u2028`), []byte("\u2028")) // as others encode it
		var out bytes.Buffer
		writeJSON(&out, raw)
		require.NotContains(t, strings.TrimSuffix(out.String(), "\n"), "\n")
		require.False(t, strings.ContainsFunc(strings.TrimSuffix(out.String(), "\n"), unprintable), "%q", out.String())
		require.JSONEq(t, string(raw), out.String())
	}
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// TestNoOutputCarriesWhatOthersWroteAsItIs gives every printing command a name
// that tries all of it.
func TestNoOutputCarriesWhatOthersWroteAsItIs(t *testing.T) {
	evil := "\x1b]0;owned\x07\x1b[2J\u202e\u009b31m\r\n\t" + strings.Repeat("x", 5000)
	job, err := json.Marshal(map[string]any{"id": evil, "model": evil, "engine": evil, "state": evil, "scheduledOn": "u", "error": evil})
	require.NoError(t, err)
	var out, errs bytes.Buffer
	c := &cli{std: worker.Streams{Out: &out, Err: &errs}}
	jobs := jobPrinter{out: &out, names: map[string]string{"u": evil}}
	status := brokerapi.HubStatus{State: evil, Reasons: []string{evil}, Broker: &brokerapi.Status{
		Version: evil, NodeID: evil, DataDir: evil,
		Workers: []brokerapi.Worker{{Name: evil, State: evil, Version: evil, LastEnd: evil}},
		Facades: []brokerapi.Facade{{Engine: evil}},
	}}
	nodes := nodeList{
		Nodes: []discovery.AvailableNode{{ID: evil, Name: evil, HostUUID: "u", IPAddress: evil,
			ModelsByEngine: map[string][]string{engine.All()[0].ID: {evil}}}},
		Manual: []manualnodes.Status{{ID: evil, Name: evil, Address: evil, Error: evil}},
	}
	wrong := errorList{list: []serviceerror.ServiceError{{ID: evil, Message: evil, NodeID: evil, Severity: evil, Action: evil}}}
	for name, print := range map[string]func(){
		"jobs":          func() { jobs.list(brokerapi.Workloads{Workloads: []json.RawMessage{job}}) },
		"jobs --watch":  func() { jobs.one(job) },
		"jobs --json":   func() { jobPrinter{out: &out, json: true}.one(job) },
		"nodes":         func() { nodes.print(&out, false) },
		"nodes --json":  func() { nodes.print(&out, true) },
		"status":        func() { printStatus(&out, status) },
		"status --json": func() { printJSON(&out, status) },
		"errors":        func() { wrong.print(&out, false) },
		"errors --json": func() { wrong.print(&out, true) },
		"node add":      func() { c.say("%s", added(nodes.Manual[0])) },
		"any error":     func() { c.fail(errors.New(evil)) },
	} {
		out.Reset()
		errs.Reset()
		print()
		for _, l := range strings.Split(out.String()+errs.String(), "\n") {
			require.False(t, strings.ContainsFunc(l, unprintable), "%s: %.300q", name, l)
			if !strings.Contains(name, "json") {
				require.Less(t, utf8.RuneCountInString(l), 1200, "%s: %.300q", name, l)
			}
		}
		require.Contains(t, out.String()+errs.String(), "owned", name)
	}
}
