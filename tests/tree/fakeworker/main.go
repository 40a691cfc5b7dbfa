// SPDX-License-Identifier: Apache-2.0

// Command fakeworker stands in for a worker in tests. It announces itself,
// answers pings, answers every request with "fake" and ends with its input,
// except for one fault: the one in the name it is started under, fake-<fault>.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// never is longer than any test; no fake outlives it.
	never = 2 * time.Minute
	// maxFrame is what the broker takes in one frame on links with snapshots.
	maxFrame = 8 << 20
	// flood is how much goes to standard error without a newline.
	flood = 16 << 20
)

// worker is the fake.
type worker struct {
	fault string
	out   *bufio.Writer
}

func main() {
	_, fault, _ := strings.Cut(filepath.Base(os.Args[0]), "fake-")
	time.AfterFunc(never, func() { os.Exit(1) })
	w := &worker{fault: fault, out: bufio.NewWriter(os.Stdout)}
	w.start()
	w.serve(os.Stdin)
	w.end()
}

// start is what comes before the first message.
func (w *worker) start() {
	switch w.fault {
	case "ignores-the-signal":
		signal.Ignore(syscall.SIGTERM)
	case "forks-a-helper":
		startHelper(nil)
	case "forks-an-escaping-helper":
		startHelper(escaped())
	case "floods-stderr":
		_, _ = os.Stderr.WriteString(strings.Repeat("x", flood) + "\n")
	}
	w.send(`{"jsonrpc":"2.0","method":"ready","params":{"version":"fake"}}`)
	if w.fault != "never-says-hello" {
		w.send(`{"jsonrpc":"2.0","method":"worker/hello","params":{"liveness":1,"version":"fake"}}`)
	}
	switch w.fault {
	case "closes-stdout":
		_ = os.Stdout.Close()
		w.send("nobody gets this")
		<-time.After(never)
	case "dies-in-a-request":
		_, _ = io.ReadFull(os.Stdin, make([]byte, 20))
		os.Exit(1)
	case "sends-requests":
		for id, method := range []string{"ping", "broker:status", "settings/get-cluster-id", "shutdown"} {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method))
		}
	case "watches-the-directory":
		w.send(`{"jsonrpc":"2.0","method":"discovery:subscribe","params":{"services":["er"]}}`)
	case "finds-fewer-nodes":
		w.announceNodes()
	}
}

// serve takes one message after the other until the input ends.
func (w *worker) serve(in io.Reader) {
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var message struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		switch err := json.Unmarshal(line, &message); {
		case err != nil:
			fmt.Fprintf(os.Stderr, "received no frame: %q\n", line)
		case message.Method == "":
			fmt.Fprintf(os.Stderr, "received an answer: %s", line)
		case message.Method == "worker/ping":
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"worker/pong","params":%s}`, message.Params))
		case message.ID != nil:
			fmt.Fprintf(os.Stderr, "request %s %s\n", message.Method, message.Params)
			w.answer(message.ID)
		default:
			fmt.Fprintf(os.Stderr, "notification %s %s\n", message.Method, message.Params)
		}
	}
}

// answer answers a request in the way of the fault.
func (w *worker) answer(id json.RawMessage) {
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"fake"}`, id)
	switch w.fault {
	case "answers-twice":
		w.send(answer, strings.Replace(answer, "fake", "again", 1))
	case "answers-unknown-ids":
		for _, other := range []string{"0", "-1", "999999", "1.5", `"1"`, "null", "18446744073709551616", "[1]"} {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"wrong"}`, other))
		}
		w.send(answer)
	case "answers-garbage":
		w.send(garbage(id)...)
		w.send(answer)
	case "answers-too-much":
		w.send(strings.Replace(answer, "fake", strings.Repeat("x", maxFrame), 1))
	case "fills-frames":
		for _, size := range []int{maxFrame, maxFrame + 1} { // the second is over the limit
			const list = `{"jsonrpc":"2.0","method":"errors:update","params":[{"id":"%d","message":"%s"}]}`
			w.send(fmt.Sprintf(list, size, strings.Repeat("x", size-len(fmt.Sprintf(list, size, "")))))
		}
		w.send(strings.Replace(answer, `"fake"`, "[]", 1))
	case "dies-in-an-answer":
		_, _ = os.Stdout.WriteString(answer[:len(answer)/2])
		os.Exit(1)
	default:
		w.send(answer)
	}
}

// garbage is what no peer should send, some of it with an id that is in use.
func garbage(id json.RawMessage) []string {
	frames := []string{
		"", "garbage", "\x00\xff\xfe", "null", "[]", "{}", `"x"`, "17", "{", "}", strings.Repeat("[", 100_000),
		`[{"jsonrpc":"2.0","id":1,"result":1}]`, `{"jsonrpc":"1.0","method":5}`, `{"jsonrpc":"2.0","method":null}`,
		"HTTP/1.1 200 OK\r", strings.Repeat("x", 1<<20+1),
	}
	for _, broken := range []string{
		`{"jsonrpc":"2.0","id":%s}`,
		`{"jsonrpc":"2.0","id":%s,"result":1,"error":{"code":1,"message":"both"}}`,
		`{"jsonrpc":"2.0","id":%s,"result":`,
		`{"jsonrpc":"2.0","id":[%s],"result":"wrong"}`,
		`{"jsonrpc":"2.0","id":"%s","result":"wrong"}`,
	} {
		frames = append(frames, fmt.Sprintf(broken, id))
	}
	for _, method := range []string{"worker/hello", "worker/pong", "discovery:subscribe", "errors:report",
		"errors:clear", "errors:update", "discovery:node-discovered", "connection/cluster-identity", "app:ready"} {
		for _, params := range []string{"5", `"x"`, "[]", "null", `{"seq":"x","services":7,"id":{},"node":[]}`} {
			frames = append(frames, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
		}
		frames = append(frames, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method))
	}
	return frames
}

// announceNodes announces two nodes when it is called first, as far as the
// directory for temporary files knows, and later only one of them.
func (w *worker) announceNodes() {
	nodes := []string{"stays", "goes"}
	mark := filepath.Join(os.TempDir(), "announced")
	if file, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		_ = file.Close()
	} else {
		nodes = nodes[:1]
	}
	for _, node := range nodes {
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"discovery:node-discovered","params":{"node":{"hostUuid":%q,`+
			`"name":%q,"ip":"192.0.2.1","trusted":false,"services":{},"lastSeen":1}}}`, node, node))
	}
}

// send writes frames at once. Who does not read them is no concern of a fake.
func (w *worker) send(frames ...string) {
	for _, frame := range frames {
		_, _ = w.out.WriteString(frame + "\n")
	}
	_ = w.out.Flush()
}

// end is what comes after the input has ended.
func (w *worker) end() {
	switch w.fault {
	case "ignores-the-end-of-input":
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			w.send("still here") // to whom it may concern
		}
	case "ignores-the-signal":
		<-time.After(never)
	}
}

// startHelper starts a program that holds this one's standard streams open.
func startHelper(attributes *syscall.SysProcAttr) {
	helper := exec.Command("sleep", fmt.Sprint(never.Seconds()))
	helper.Stdin, helper.Stdout, helper.Stderr = os.Stdin, os.Stdout, os.Stderr
	helper.SysProcAttr = attributes
	if err := helper.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "start helper: %v\n", err)
		os.Exit(1)
	}
}
