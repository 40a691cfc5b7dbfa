// SPDX-License-Identifier: Apache-2.0

package nodesettings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
)

const (
	okResult   = `{"result":{"ok":true}}`
	bubbleTime = "946684800" // Unix seconds at which a synctest bubble starts
)

// newFile returns the path of a settings file in a directory that nobody else
// can write; it holds content unless that is empty.
func newFile(t *testing.T, content string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "settings.json")
	if content != "" {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// values asks for all four settings.
func (c *client) values() string {
	c.t.Helper()
	var all []string
	for _, suffix := range []string{"force-ports", "cluster-auto-sync", "cluster-id", "cluster-friendly-name"} {
		var answer struct{ Result struct{ Value any } }
		require.NoError(c.t, json.Unmarshal([]byte(c.Call("settings/get-"+suffix, "null")), &answer))
		all = append(all, fmt.Sprintf("%v", answer.Result.Value))
	}
	return strings.Join(all, "|")
}

func TestSettingsAreReadAndSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "")
		c := start(t, file)
		c.Quiet() // ST-10
		require.NoFileExists(t, file)
		c.Play("settings.frames", nil)
		require.NoError(t, c.Stop())
		require.JSONEq(t, `{"force_ports":false,"cluster_auto_sync":false,"cluster_id":"",
			"cluster_friendly_name":"Büro <1> & \"2\""}`, read(t, file))
	})
}

func TestValuesSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "")
		c := start(t, file)
		require.JSONEq(t, okResult, c.Call("settings/set-force-ports", `{"value":false}`))
		require.JSONEq(t, okResult, c.Call("settings/set-cluster-id", `{"value":"c-1"}`))
		c.Next() // the push
		require.NoError(t, c.Stop())

		c = start(t, file)
		c.Quiet() // no push of what was loaded
		require.Equal(t, "false|false|c-1|", c.values())
		require.NoError(t, c.Stop())
	})
}

func TestStringsAreStoredByteForByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "")
		// Three bytes each that the encoder of the file makes six of.
		long := strings.Repeat("\u2028", jsonrpc.DefaultMaxFrameBytes/3-100)
		for _, text := range []string{"\x00\t\x7f </script> \u2028 é é \U0001F600 ", long} {
			c := start(t, file)
			quoted, err := jsonrpc.Marshal(text)
			require.NoError(t, err)
			quoted = bytes.ReplaceAll(quoted, []byte(`\u2028`), []byte("\u2028"))
			require.JSONEq(t, okResult, c.Call("settings/set-cluster-id", `{"value":`+string(quoted)+`}`))
			c.Next() // the push
			require.JSONEq(t, okResult, c.Call("settings/set-cluster-friendly-name", `{"value":`+string(quoted)+`}`))
			require.NoError(t, c.Stop())

			c = start(t, file)
			require.Equal(t, "true|false|"+text+"|"+text, c.values())
			require.NoError(t, c.Stop())
		}
	})
}

func TestRefusedRequestsChangeNothing(t *testing.T) {
	const (
		notObject = `{"error":{"code":-32602,"message":"invalid params: not an object"}}`
		noValue   = `{"error":{"code":-32602,"message":"invalid params: \"value\" is required"}}`
		wrongType = `{"error":{"code":-32602,"message":"invalid params: \"value\" has the wrong type"}}`
	)
	all := []string{"settings/set-force-ports", "settings/set-cluster-auto-sync", "settings/set-cluster-id",
		"settings/set-cluster-friendly-name"}
	bools, strs := all[:2], all[2:]
	synctest.Test(t, func(t *testing.T) {
		const content = `{"force_ports":false,"cluster_id":"c-1"}`
		file := newFile(t, content)
		c := start(t, file)
		for _, tt := range []struct {
			methods      []string
			params, want string
		}{
			{all, `[true]`, notObject},
			{all, `"on"`, notObject},
			{all, `7`, notObject},
			{all, `{}`, noValue},
			{all, `null`, noValue},
			{all, `{"value":null}`, noValue},
			{all, `{"Value":true}`, noValue},
			{all, `{"value":123}`, wrongType},
			{all, `{"value":{}}`, wrongType},
			{all, `{"value":["x"]}`, wrongType},
			{bools, `{"value":"on"}`, wrongType},
			{bools, `{"value":""}`, wrongType},
			{strs, `{"value":true}`, wrongType},
			{strs, `{"value":0}`, wrongType},
		} {
			for _, method := range tt.methods {
				require.JSONEq(t, tt.want, c.Call(method, tt.params), "%s %s", method, tt.params)
			}
		}
		for _, method := range []string{
			"settings/get-auto-join-invites", "settings/set-auto-join-invites", // withdrawn, like the next two
			"settings/get-cluster-secret", "settings/set-cluster-secret",
			"connection/cluster-identity", "connection/cluster-auto-sync", "connection/set-cluster-id",
			"settings/get", "settings/", "errors:report",
		} {
			require.JSONEq(t, `{"error":{"code":-32601,"message":"method not found: `+method+`"}}`,
				c.Call(method, `{"value":"x"}`))
		}
		c.Quiet()
		require.Equal(t, "false|false|c-1|", c.values())
		require.Equal(t, content, read(t, file))
		require.NoError(t, c.Stop())
	})
}

func TestNotificationsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "")
		c := start(t, file)
		for _, frame := range []string{
			`{"jsonrpc":"2.0","method":"settings/set-force-ports","params":{"value":false}}`,
			`{"jsonrpc":"2.0","id":null,"method":"settings/set-cluster-id","params":{"value":"c-1"}}`,
			`{"jsonrpc":"2.0","method":"settings/get-cluster-id"}`,
			`{"jsonrpc":"2.0","method":"unknown"}`,
		} {
			c.Send(frame)
		}
		c.Quiet()
		require.Equal(t, "true|false||", c.values())
		require.NoFileExists(t, file)
		require.NoError(t, c.Stop())
	})
}

func TestValueThatCannotBeSavedIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "")
		c := start(t, file)
		require.NoError(t, os.Mkdir(file, 0o700)) // nothing can be renamed over a directory, also by root
		for _, method := range []string{"settings/set-cluster-id", "settings/set-cluster-friendly-name"} {
			answer := c.Call(method, `{"value":"refused"}`)
			require.Contains(t, answer, `"code":-32603`)
			require.Contains(t, answer, file)
		}
		c.Quiet() // no push
		require.Equal(t, "true|false||", c.values())

		require.NoError(t, os.Remove(file))
		require.JSONEq(t, okResult, c.Call("settings/set-force-ports", `{"value":false}`))
		require.Equal(t, "false|false||", c.values())
		require.NotContains(t, read(t, file), "refused")
		require.NoError(t, c.Stop())
		entries, err := os.ReadDir(filepath.Dir(file))
		require.NoError(t, err)
		require.Len(t, entries, 1, "temporary files are left")
	})
}

func TestReadOnlyDirectoryKeepsTheOldValue(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root writes everywhere; TestValueThatCannotBeSavedIsNotTaken covers the behaviour")
	}
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, `{"cluster_id":"c-1"}`)
		require.NoError(t, os.Chmod(filepath.Dir(file), 0o500))
		c := start(t, file)
		require.Contains(t, c.Call("settings/set-cluster-id", `{"value":"c-2"}`), `"code":-32603`)
		require.Equal(t, "true|false|c-1|", c.values())
		require.NoError(t, c.Stop())
	})
}

func TestStoredContentIsReadOverTheDefaults(t *testing.T) {
	for content, want := range map[string]string{
		`{}`:                               "true|false||",
		`{"force_ports":false}`:            "false|false||",
		`{"cluster_auto_sync":true}`:       "true|true||",
		`{"FORCE_PORTS":false,"x":[1]}`:    "true|false||",
		" {\n\"cluster_id\" : \"c-1\" }\n": "true|false|c-1|",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, newFile(t, content))
			c.Quiet()
			require.Equal(t, want, c.values(), content)
			require.NoError(t, c.Stop())
		})
	}
}

func TestUnknownKeysDisappearWithTheNextWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const content = `{"auto_join_invites":true,"cluster_secret":"x","force_ports":false}`
		file := newFile(t, content)
		c := start(t, file)
		require.Equal(t, "false|false||", c.values())
		require.Equal(t, content, read(t, file)) // ST-17: reading writes nothing
		require.JSONEq(t, okResult, c.Call("settings/set-cluster-friendly-name", `{"value":"n"}`))
		require.JSONEq(t, `{"force_ports":false,"cluster_auto_sync":false,"cluster_id":"","cluster_friendly_name":"n"}`,
			read(t, file))
		require.NoError(t, c.Stop())
	})
}

func TestExternalEditIsInvisibleAndOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "")
		c := start(t, file)
		require.NoError(t, os.WriteFile(file, []byte(`{"cluster_id":"edited"}`), 0o600))
		require.Equal(t, "true|false||", c.values())
		require.JSONEq(t, okResult, c.Call("settings/set-force-ports", `{"value":true}`))
		require.NotContains(t, read(t, file), "edited")
		require.NoError(t, c.Stop())
	})
}

func TestMalformedFileIsSetAsideAndReported(t *testing.T) {
	for _, content := range []string{
		`{"force_ports":`, `[]`, `null`, `"x"`, ` `, `{"force_ports":"on"}`, `{"cluster_id":7}`,
		`{"cluster_auto_sync":null}`, `{} {}`, "{\"cluster_id\":\"\xff\"}", "\xef\xbb\xbf{}",
	} {
		synctest.Test(t, func(t *testing.T) {
			file := newFile(t, content)
			c := start(t, file)
			c.Expect(`{"jsonrpc":"2.0","method":"errors:report","params":{"id":"node-settings:settings-reset",` +
				`"message":"The settings file settings.json was damaged and is now settings.json.corrupt-` + bubbleTime +
				`. Default settings are in use.","timestamp":0,"severity":"warning","action":"none"}}`)
			require.Equal(t, "true|false||", c.values(), content)
			require.NoFileExists(t, file)
			require.Equal(t, content, read(t, file+".corrupt-"+bubbleTime))

			require.Contains(t, c.Call("settings/set-force-ports", `{"value":1}`), "-32602")
			c.Quiet() // only a write clears the error
			require.JSONEq(t, okResult, c.Call("settings/set-cluster-auto-sync", `{"value":true}`))
			c.Expect(`{"jsonrpc":"2.0","method":"connection/cluster-auto-sync","params":{"value":true}}`)
			c.Expect(`{"jsonrpc":"2.0","method":"errors:clear","params":{"id":"node-settings:settings-reset"}}`)
			require.JSONEq(t, okResult, c.Call("settings/set-cluster-friendly-name", `{"value":"n"}`))
			c.Quiet() // and only once
			require.NoError(t, c.Stop())

			c = start(t, file)
			c.Quiet()
			require.Equal(t, "true|true||n", c.values())
			require.NoError(t, c.Stop())
		})
	}
}

func TestMalformedFileThatCannotBeSetAsideDoesNotStopTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "broken")
		require.NoError(t, os.Mkdir(file+".corrupt-"+bubbleTime, 0o700))
		c := start(t, file)
		require.Contains(t, c.Next(), "errors:report")
		require.JSONEq(t, okResult, c.Call("settings/set-force-ports", `{"value":false}`))
		require.Contains(t, c.Next(), "errors:clear")
		require.Contains(t, read(t, file), `"force_ports": false`)
		require.NoError(t, c.Stop())
		require.Contains(t, c.Log.String(), "ERROR malformed settings could not be set aside")
	})
}

// TestUnsafeFileIsFatal: see ST-17 and PO-50.
func TestUnsafeFileIsFatal(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"a directory": func(file string) error { return os.Mkdir(file, 0o700) },
		"a link":      func(file string) error { return os.Symlink("elsewhere", file) },
		"writable by others": func(file string) error {
			if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
				return err
			}
			return os.Chmod(file, 0o666)
		},
		"too large": func(file string) error {
			return os.WriteFile(file, bytes.Repeat([]byte{' '}, maxFileBytes+1), 0o600)
		},
		"in a directory that others write": func(file string) error {
			if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
				return err
			}
			return os.Chmod(filepath.Dir(file), 0o777)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "writ") && os.PathSeparator == '\\' {
				t.Skip("no mode bits on Windows (PO-61)")
			}
			file := newFile(t, "")
			require.NoError(t, spoil(file))
			p := workertest.Launch(t, "nvpair-node-settings", on(file))
			p.Closed() // without a frame
			err := p.Wait()
			require.ErrorContains(t, err, filepath.Dir(file))
			require.ErrorContains(t, err, "--settings") // it says what to do
			_, err = os.Lstat(file)
			require.NoError(t, err, "the file was touched")
		})
	}
}

func TestStringsAreNeverLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, `{"cluster_id":"Topf1"}`)
		c := start(t, file)
		require.JSONEq(t, okResult, c.Call("settings/set-cluster-friendly-name", `{"value":"Topf2"}`))
		require.Contains(t, c.Call("settings/set-force-ports", `{"value":"Topf3"}`), "-32602")
		require.NoError(t, os.Remove(file))
		require.NoError(t, os.Mkdir(file, 0o700))
		require.Contains(t, c.Call("settings/set-cluster-id", `{"value":"Topf4"}`), "-32603")
		require.NoError(t, c.Stop())
		require.NotContains(t, c.Log.String(), "Topf")
		require.Contains(t, c.Log.String(), "settings loaded force_ports=true cluster_auto_sync=false has_cluster_id=true "+
			"has_cluster_friendly_name=false path="+file)
		require.Contains(t, c.Log.String(), "has_cluster_friendly_name=true")
	})
}

func TestShutdownIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, newFile(t, ""))
		require.JSONEq(t, `{"result":null}`, c.Call("shutdown", "null"))
		require.NoError(t, c.Wait())
	})
}

func TestDefaultFileLiesInTheDataDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("NVPAIR_DATA_DIR", dir)
	path, err := settingsPath("")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "settings.json"), path)
}

func TestUnknownDataDirectoryIsFatal(t *testing.T) {
	for _, name := range []string{"NVPAIR_DATA_DIR", "HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "APPDATA"} {
		t.Setenv(name, "")
	}
	err := Run(t.Context(), Config{})
	require.ErrorContains(t, err, "--settings")
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"--version"}, 0, "1.2.3\n"},
		{[]string{"--no-such-flag"}, 2, ""},
		{[]string{"extra"}, 2, ""},
		{[]string{"--settings", "."}, 1, ""}, // a directory
	} {
		var out, errs bytes.Buffer
		code := Main(tt.args, "1.2.3", worker.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		require.Equal(t, tt.code, code, "%q: %s", tt.args, errs.String())
		require.Equal(t, tt.out, out.String())
	}
}
