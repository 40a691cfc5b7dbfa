// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/applog/applogtest"
	"nvpair/internal/worker/workertest"
)

// journalVar makes the test binary a worker and names the file in which it notes
// what happens to it.
const journalVar = "NVPAIR_BROKER_TEST_JOURNAL"

// playWorker is the main of a worker that ends with its input. The proxy takes
// its time to do so.
func playWorker(journal string) {
	binary := strings.TrimSuffix(filepath.Base(os.Args[0]), exeSuffix())
	note(journal, "up "+binary)
	_, _ = io.Copy(io.Discard, os.Stdin)
	note(journal, "asked "+binary)
	if binary == "nvpair-proxy" {
		<-time.After(200 * time.Millisecond)
	}
	note(journal, "ended "+binary)
}

func note(journal, text string) {
	f, err := os.OpenFile(journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = io.WriteString(f, text+"\n")
	}
	if err != nil {
		panic(err)
	}
	_ = f.Close()
}

// grown is a broker with processes for workers.
type grown struct {
	client *workertest.Peer
	log    *applogtest.Buffer
	ended  chan error // what Run returned
}

// grow runs a broker that has these binaries installed.
func grow(t *testing.T, paths map[string]string) *grown {
	t.Helper()
	near, far := net.Pipe()
	log, level, written := applogtest.New(name)
	g := &grown{client: workertest.NewPeer(t, far), log: written, ended: make(chan error, 1)}
	cfg := Config{
		Client: near, Stderr: io.Discard, Version: version, NodeID: nodeID, DataDir: t.TempDir(), Paths: paths,
		Log: log, Level: level,
	}
	go func() { g.ended <- Run(t.Context(), cfg) }()
	return g
}

func (g *grown) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-g.ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatalf("the broker does not end:\n%s", g.log)
		return nil
	}
}

// TestTheProxyIsStoppedBeforeTheOthers: see BR section 17.
func TestTheProxyIsStoppedBeforeTheOthers(t *testing.T) {
	dir := t.TempDir()
	journal := filepath.Join(dir, "journal")
	t.Setenv(journalVar, journal)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector's pause at exit would only take time
	binaries := []string{"nvpair-node-scanner", "nvpair-errors", "nvpair-node-settings", "nvpair-proxy"}
	paths := make(map[string]string)
	for _, b := range binaries {
		paths[b] = filepath.Join(dir, b+exeSuffix())
		if err := os.Link(os.Args[0], paths[b]); err != nil {
			t.Skipf("no links here: %v", err)
		}
	}

	g := grow(t, paths)
	g.client.Expect(notification("app:ready", `{"version":"1.2.3"}`))
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(journal)
		return err == nil && strings.Count(string(b), "up ") == len(binaries)
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, `{"result":null}`, g.client.Call("shutdown", ""))
	require.NoError(t, g.wait(t))

	b, err := os.ReadFile(journal)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")[len(binaries):]
	require.Equal(t, []string{"asked nvpair-proxy", "ended nvpair-proxy"}, lines[:2])
	for _, binary := range binaries {
		require.Contains(t, lines, "ended "+binary)
	}
	require.True(t, strings.HasSuffix(g.log.String(), "INFO shutdown complete\n"), "%s", g.log)
	require.NotContains(t, g.log.String(), "ended unexpectedly")
	g.client.Closed()
}

// TestABrokerWithoutItsScannerDoesNotStart: see BR section 2.
func TestABrokerWithoutItsScannerDoesNotStart(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "nvpair-node-scanner")
	g := grow(t, map[string]string{"nvpair-node-scanner": missing})
	require.ErrorContains(t, g.wait(t), "start "+missing+": ")
	g.client.Closed() // without app:ready
}

// TestAWorkerThatCannotBeStartedStaysDown: see BR-6 and BR-7.
func TestAWorkerThatCannotBeStartedStaysDown(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	g := grow(t, map[string]string{"nvpair-errors": missing, "nvpair-node-settings": missing})
	g.client.Expect(notification("app:ready", `{"version":"1.2.3"}`))
	require.Equal(t, failed("node-settings not available"), g.client.Call("settings/get-force-ports", ""))
	require.Contains(t, g.client.Call("broker:status", ""), `{"name":"settings","state":"failed","restarts":0,"sinceMs":0,"lastEnd":"`)
	require.Contains(t, g.log.String(), fmt.Sprintf("WARN worker could not be started worker=settings path=%s ", missing))
	require.NoError(t, g.client.Conn.Close())
	require.NoError(t, g.wait(t), "the end of the client is an orderly end")
}
