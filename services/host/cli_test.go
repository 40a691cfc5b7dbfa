// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/appdir"
	"nvpair/internal/ipc"
	"nvpair/internal/worker"
	"nvpair/shared/brokerapi"
)

// ran is what a command line left behind.
type ran struct {
	code     int
	out, err string
}

func run(in string, args ...string) ran {
	var out, errs bytes.Buffer
	code := Main(args, "1.2.3", worker.Streams{In: strings.NewReader(in), Out: &out, Err: &errs})
	return ran{code, out.String(), errs.String()}
}

func TestWhatNeedsNoNode(t *testing.T) {
	for _, tt := range []struct {
		args      []string
		code      int
		out, errs string // parts of the output
	}{
		{nil, exitUsage, "", "nvpair call "},
		{[]string{"--version"}, exitOK, "1.2.3\n", ""},
		{[]string{"version"}, exitOK, "1.2.3\n", ""},
		{[]string{"start"}, exitUsage, "", "nvpair: unknown command \"start\"; see nvpair --help\n"},
		{[]string{"status", "--help"}, exitOK, "print JSON instead of a table", ""},
		{[]string{"status", "--json=x for -y"}, exitUsage, "", `invalid boolean value "x for -y" for --json: `},
		{[]string{"call", "m", "--timeout"}, exitUsage, "", "flag needs an argument: --timeout;"},
		{[]string{"help", "help"}, exitOK, "nvpair help [COMMAND]\n", ""},
		{[]string{"help", "--help"}, exitOK, "nvpair help [COMMAND]\n", ""},
		{[]string{"--help"}, exitOK, "nvpair help ", ""},
		{[]string{"-h", "status"}, exitOK, "nvpair status [--json]\n", ""},
		{[]string{"help", "node", "add", "now"}, exitUsage, "", `nvpair help: unexpected argument "now"`},
		{[]string{"status", "now"}, exitUsage, "", `nvpair status: unexpected argument "now"`},
		{[]string{"status", "--yaml"}, exitUsage, "", "flag provided but not defined: --yaml;"},
		{[]string{"stop", "now"}, exitUsage, "", `nvpair stop: unexpected argument "now"`},
		{[]string{"nodes", "all"}, exitUsage, "", `nvpair nodes: unexpected argument "all"`},
		{[]string{"node"}, exitUsage, "", "nvpair node: add or remove is needed; see nvpair node --help\n"},
		{[]string{"node", "list"}, exitUsage, "", "nvpair node: add or remove is needed"},
		{[]string{"node", "add"}, exitUsage, "", "an address is needed, for example: nvpair node add 192.168.1.20"},
		{[]string{"node", "add", "a", "b"}, exitUsage, "", `nvpair node add: unexpected argument "b"`},
		{[]string{"node", "add", "--help"}, exitOK, "nvpair node add ADDRESS [--name N]", ""},
		{[]string{"node", "--help"}, exitOK, "nvpair node remove NAME|ADDRESS\n", ""},
		{[]string{"help", "node"}, exitOK, "nvpair node remove NAME|ADDRESS\n", ""},
		{[]string{"help", "node", "list"}, exitUsage, "", "nvpair: unknown command \"node list\"; see nvpair --help\n"},
		{[]string{"help", "me"}, exitUsage, "", "nvpair: unknown command \"me\"; see nvpair --help\n"},
		{[]string{"--yaml"}, exitUsage, "", "nvpair: unknown command \"--yaml\"; see nvpair --help\n"},
		{[]string{"\x1b[2J"}, exitUsage, "", `unknown command "\x1b[2J"`},
		{[]string{"node", "remove"}, exitUsage, "", "a name or an address is needed"},
		{[]string{"errors", "clera"}, exitUsage, "", `nvpair errors: unexpected argument "clera"; see nvpair errors --help`},
		{[]string{"errors", "clear"}, exitUsage, "", "an id is needed"},
		{[]string{"errors", "--help"}, exitOK, "nvpair errors clear ID\n", ""},
		{[]string{"call"}, exitUsage, "", "a method is needed"},
		{[]string{"call", "m", "{}", "{}"}, exitUsage, "", `nvpair call: unexpected argument "{}"`},
		{[]string{"call", "m", "{value:true}"}, exitUsage, "", "params are not JSON; quote them"},
		{[]string{"call", "m", "{}", "--timeout", "soon"}, exitUsage, "", `invalid value "soon" for flag --timeout: `},
		{[]string{"serve", "--proxy-engines", "ollama,vllm"}, exitUsage, "",
			`--proxy-engines: unknown engine "vllm", known are: ollama,lmstudio`},
		{[]string{"serve", "here"}, exitUsage, "", `unexpected argument "here"`},
	} {
		got := run("", tt.args...)
		if got.code != tt.code || !strings.Contains(got.out, tt.out) || !strings.Contains(got.err, tt.errs) {
			t.Errorf("nvpair %q: got %+v, want %d with %q and %q", tt.args, got, tt.code, tt.out, tt.errs)
		}
	}
}

func TestFlagsMayStandBehindArguments(t *testing.T) {
	for _, tt := range []struct {
		args  []string
		rest  []string
		level string
		ok    bool
	}{
		{nil, nil, "", true},
		{[]string{"a", "b"}, []string{"a", "b"}, "", true},
		{[]string{"--level", "x", "a"}, []string{"a"}, "x", true},
		{[]string{"a", "--level=x", "b"}, []string{"a", "b"}, "x", true},
		{[]string{"a", "b", "-level", "x"}, []string{"a", "b"}, "x", true},
		{[]string{"-"}, []string{"-"}, "", true},
		{[]string{"a", "--", "-5"}, []string{"a", "-5"}, "", true},
		{[]string{"a", "-5"}, nil, "", false},
		{[]string{"a", "b", "c"}, nil, "", false},
	} {
		c := &cli{std: worker.Streams{Out: new(bytes.Buffer), Err: new(bytes.Buffer)}}
		var level string
		rest, _, ok := c.parse("demo", tt.args, 2, func(fs *flag.FlagSet) { fs.StringVar(&level, "level", "", "") })
		require.Equal(t, tt.ok, ok, "%q", tt.args)
		require.Equal(t, tt.rest, rest, "%q", tt.args)
		require.Equal(t, tt.level, level, "%q", tt.args)
	}
}

func TestParamsAreJSONFromTheLineOrTheInput(t *testing.T) {
	long := `"` + strings.Repeat("x", maxParamsBytes-2) + `"`
	for _, tt := range []struct {
		name, in string
		args     []string
		want     string
		err      string
	}{
		{"none", "ignored", nil, "", ""},
		{"argument", "", []string{`{"a": 1}`}, `{"a": 1}`, ""},
		{"scalar", "", []string{"5"}, "5", ""},
		{"input", "{\"a\":\n1}\n", []string{"-"}, "{\"a\":\n1}\n", ""},
		{"empty input", "", []string{"-"}, "", "params are not JSON"},
		{"empty argument", "", []string{""}, "", "params are not JSON"},
		{"two values", "", []string{"1 2"}, "", "params are not JSON"},
		{"at the limit", "", []string{long}, long, ""},
		{"over the limit", "", []string{long + " "}, "", "params are longer than 1047552 bytes"},
		{"input over the limit", long + strings.Repeat(" ", 100), []string{"-"}, "", "params are longer than 1047552 bytes"},
	} {
		c := &cli{std: worker.Streams{In: strings.NewReader(tt.in)}}
		got, err := c.params(tt.args)
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err, tt.name)
			continue
		}
		require.NoError(t, err, tt.name)
		require.True(t, tt.want == string(got), tt.name)
	}
}

func TestANodeRunsUnlessAnInstalledWorkerDoesNot(t *testing.T) {
	for _, tt := range []struct {
		workers []brokerapi.Worker
		state   string
		reasons []string
	}{
		{nil, brokerapi.NodeRunning, []string{}},
		{[]brokerapi.Worker{{Name: "a", State: "running", LastEnd: "hung"}, {Name: "b", State: "absent"}}, brokerapi.NodeRunning, []string{}},
		{[]brokerapi.Worker{{Name: "a", State: "restarting", LastEnd: "exit status 1"}, {Name: "b", State: "running"}},
			brokerapi.NodeDegraded, []string{"a is restarting: exit status 1"}},
		{[]brokerapi.Worker{{Name: "a", State: "exhausted"}, {Name: "b", State: "failed"}, {Name: "c", State: "stopping"}, {Name: "d", State: "new"}},
			brokerapi.NodeDegraded, []string{"a is exhausted", "b is failed", "c is stopping", "d is new"}},
	} {
		s := brokerapi.HubStatus{Reasons: []string{}}
		judge(&s, brokerapi.Status{Workers: tt.workers})
		require.Equal(t, tt.state, s.State)
		require.Equal(t, tt.reasons, s.Reasons)
		require.Equal(t, tt.workers, s.Broker.Workers)
	}
}

func TestStatusForPeople(t *testing.T) {
	var s brokerapi.HubStatus
	raw, err := os.ReadFile(filepath.Join("testdata", "status.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &s))
	want, err := os.ReadFile(filepath.Join("testdata", "status.txt"))
	require.NoError(t, err)
	var got bytes.Buffer
	printStatus(&got, s)
	require.Equal(t, string(want), got.String())

	got.Reset()
	printStatus(&got, brokerapi.HubStatus{State: "starting"})
	require.Equal(t, "state  starting\n", got.String())
}

// home gives the test a data directory of its own and returns it.
func home(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nvpair") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("NVPAIR_DATA_DIR", dir)
	t.Setenv("XDG_RUNTIME_DIR", "")
	dataDir, err := appdir.DataDir()
	require.NoError(t, err)
	return dataDir
}

// TestEveryCommandHelps covers whatever is added to the table of commands.
func TestEveryCommandHelps(t *testing.T) {
	words := map[string]bool{} // commands, and what only begins one
	for _, cmd := range commands() {
		words[cmd.name] = true
		words[strings.Fields(cmd.name)[0]] = true
	}
	for word := range words {
		args := strings.Fields(word)
		var texts []string
		for _, line := range [][]string{append(slices.Clone(args), "--help"), append(slices.Clone(args), "-h"), append([]string{"help"}, args...)} {
			got := run("", line...)
			require.Equal(t, exitOK, got.code, "%q", line)
			require.Empty(t, got.err, "%q", line)
			require.True(t, strings.HasPrefix(got.out, "nvpair "+word), "%q: %s", line, got.out)
			texts = append(texts, got.out)
		}
		require.Equal(t, []string{texts[0], texts[0], texts[0]}, texts)
		got := run("", append(slices.Clone(args), "--no-such-flag")...)
		require.Equal(t, exitUsage, got.code, word)
		require.Empty(t, got.out, word)
		require.Regexp(t, `^nvpair `+word+`: [^\n]+; see nvpair `+word+` --help\n$`, got.err)
	}
	for _, cmd := range commands() { // every flag is named where the command is
		got := run("", append(strings.Fields(cmd.name), "--help")...)
		head, flags, _ := strings.Cut(got.out, "\n")
		for _, f := range regexp.MustCompile(`(?m)^  (--[a-z-]+)`).FindAllStringSubmatch(flags, -1) {
			require.Contains(t, head, "["+f[1], "nvpair %s", cmd.name)
		}
	}
}

func TestHelpThatWasAskedForIsOutput(t *testing.T) {
	for _, flag := range []string{"--help", "-h", "help"} {
		got := run("", flag)
		require.Equal(t, exitOK, got.code)
		require.Contains(t, got.out, "nvpair status ")
		require.Empty(t, got.err)
	}
}

func TestCommandsWithoutANode(t *testing.T) {
	dir := home(t)
	none := "nvpair: no node is running for " + dir + "; start one with: nvpair serve (NVPAIR_DATA_DIR chooses another directory)\n"
	require.Equal(t, ran{exitUsage, "", none}, run("", "status"))
	require.Equal(t, ran{exitUsage, "{\"state\":\"stopped\"}\n", none}, run("", "status", "--json"))
	require.Equal(t, ran{exitFailed, "", none}, run("", "call", "ping"))
	require.Equal(t, ran{exitOK, "no node is running for " + dir + "\n", ""}, run("", "stop"))
}

func TestANodeThatDoesNotAnswerIsNamed(t *testing.T) {
	dir := home(t)
	lock, err := lockNode(serveConfig{DataDir: dir, Version: "1.2.3"})
	require.NoError(t, err)
	defer func() { _ = lock.Release() }()
	got := run("", "status")
	require.Equal(t, exitUsage, got.code)
	require.Regexp(t, `^nvpair: no node is running: process \d+ holds .* but does not answer; it may be starting or stopping\n$`, got.err)

	_, err = lockNode(serveConfig{DataDir: dir, Version: "1.2.3"})
	require.ErrorContains(t, err, "a node is already running for "+dir)
	require.ErrorContains(t, err, "stop it with: nvpair stop")
}

// TestCommandsReachTheNode runs the commands against a hub on its real socket.
func TestCommandsReachTheNode(t *testing.T) {
	ln, err := listen(appdir.ControlEndpoints(home(t)))
	require.NoError(t, err)
	s := shareOn(t, ln)
	got := run("", "status")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, "state  starting\n", got.out)
	got = run("", "call", "ping", "--timeout", "20ms")
	require.Equal(t, ran{exitFailed, "", "nvpair: no answer to ping within 20ms\n"}, got)

	b := s.serveBroker()
	for i, tt := range []struct {
		args                   []string
		in                     string
		method, params, answer string // at the broker
		want                   ran
	}{
		{
			[]string{"call", "settings/x", `{"a":1}`}, "", "settings/x", `{"a":1}`, `"result":{"b": 2.0}`,
			ran{exitOK, "{\"b\": 2.0}\n", ""},
		},
		{
			[]string{"call", "settings/x", "-", "--timeout=0"}, "[1,\n2]", "settings/x", `[1,2]`, `"result":null`,
			ran{exitOK, "null\n", ""},
		},
		{
			[]string{"call", "settings/x"}, "", "settings/x", "", `"error":{"code":-32602,"message":"no","data":{"c": 3}}`,
			ran{exitFailed, "", "error -32602: no\ndata: {\"c\": 3}\n"},
		},
		{
			[]string{"status"}, "", "broker:status", "", `"result":{"nodeId":"n-1","workers":[]}`,
			ran{exitOK, "node     n-1\n", ""},
		},
		{
			[]string{"status"}, "", "broker:status", "", `"result":{"workers":[{"name":"a","state":"failed"}]}`,
			ran{exitFailed, "state  degraded\n       a is failed\n", ""},
		},
		{
			[]string{"status", "--json"}, "", "broker:status", "", `"result":{"workers":[{"name":"a","state":"failed"}]}`,
			ran{exitFailed, `{"state":"degraded","reasons":["a is failed"],`, ""},
		},
	} {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			id := brokerCalls + 1 + i
			line, err := b.Lines.ReadString('\n')
			if want := request(id, tt.method, tt.params) + "\n"; err != nil || line != want {
				t.Errorf("%q: the broker got %q, %v; want %q", tt.args, line, err, want)
			}
			fmt.Fprintf(b.Conn, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", id, tt.answer)
		}()
		got := run(tt.in, tt.args...)
		<-answered
		require.Equal(t, tt.want.code, got.code, "%q: %+v", tt.args, got)
		require.Equal(t, tt.want.err, got.err, "%q", tt.args)
		require.Contains(t, got.out, tt.want.out, "%q", tt.args)
	}
	require.Equal(t, ran{exitFailed, "", "error -32601: method not found: shutdown\n"}, run("", "call", "shutdown"))
	require.Equal(t, ran{exitOK, "stopped\n", ""}, run("", "stop"))
	require.Error(t, s.ctx.Err())
}

// TestStopWaitsForANodeThatHangsUp: it is stopping already.
func TestStopWaitsForANodeThatHangsUp(t *testing.T) {
	ln, err := listen(appdir.ControlEndpoints(home(t)))
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		if conn, err := ln.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1024))
			_ = conn.Close()
		}
	}()
	require.Equal(t, ran{exitOK, "stopped\n", ""}, run("", "stop"))
	<-hungUp
}

func TestTheFirstPlaceThatWorksIsListenedAt(t *testing.T) {
	dir := home(t)
	good := appdir.ControlEndpoints(dir)[0]
	bad := good + strings.Repeat("x", 200) // longer than any system takes
	ln, err := listen([]string{bad, good})
	require.NoError(t, err)
	require.Equal(t, good, ln.Addr().String())
	_, err = listen([]string{good, bad})
	require.ErrorContains(t, err, "open the control socket: ")

	conn, err := dialAny(t.Context(), []string{bad, good})
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, ln.Close())
	_, err = dialAny(t.Context(), []string{good})
	require.ErrorIs(t, err, ipc.ErrNobody)
}

func TestServeSaysWhichBrokerIsMissing(t *testing.T) {
	dir := home(t)
	missing := filepath.Join(dir, "no", "broker")
	got := run("", "serve", "--broker-path", missing)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "nvpair: find the broker: ")
	require.Contains(t, got.err, missing)
	require.Contains(t, got.err, "; name it with --broker-path\n")
}

func TestServeEndsIfTheBrokerCannotBeStarted(t *testing.T) {
	dir := home(t)
	broken := filepath.Join(dir, "broker")
	require.NoError(t, os.WriteFile(broken, nil, 0o600)) // nothing to execute
	got := run("", "serve", "--broker-path", broken)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "nvpair: start "+broken+": ")
	require.Equal(t, exitOK, run("", "stop").code, "lock and socket are free again")
}
