// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nvpair/tests/harness"
)

// nginxTemplate is the proxy that ours is compared with: one worker, kept connections, nothing buffered, nothing logged.
// Its limits on requests a connection are lifted: no other path of the comparison has one.
const nginxTemplate = `daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 8192;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path answers;
    client_max_body_size 64m;
    keepalive_requests 1000000000;
    upstream engine {
        server ENGINE;
        keepalive 128;
        keepalive_requests 1000000000;
    }
    server {
        listen LISTEN;
        location / {
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_request_buffering off;
            proxy_buffering off;
        }
    }
}
`

func nginxConfig() string {
	return strings.NewReplacer("ENGINE", engineAddr, "LISTEN", nginxAddr).Replace(nginxTemplate)
}

// nginxPath returns where nginx is.
func nginxPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatalf("the proxy is compared with nginx, which is not here (Debian: apt-get install nginx-light): %v", err)
	}
	return path
}

// nginxVersion returns what it says of itself.
func nginxVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(nginxPath(t), "-v").CombinedOutput()
	if err != nil {
		t.Fatalf("nginx -v: %v", err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "nginx version: ")
}

// startNginx starts it on a host; the end of the test ends it.
func startNginx(t *testing.T, h *harness.Host) {
	t.Helper()
	prefix := filepath.Join(h.Dir, "nginx")
	config := filepath.Join(prefix, "nginx.conf")
	if err := os.Mkdir(prefix, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(nginxConfig()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, h, nginxPath(t), "-p", prefix, "-c", config, "-e", "stderr")
	t.Cleanup(func() { // before it is killed, which would leave its worker
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("end nginx: %v", err)
			return
		}
		p.awaitEnd(t)
	})
	awaitListening(t, h, nginxAddr)
}

// awaitListening waits until somebody listens there.
func awaitListening(t *testing.T, h *harness.Host, addr string) {
	t.Helper()
	harness.Eventually(t, 10*time.Second, fmt.Sprintf("listener at %s", addr), func() bool {
		conn, err := h.Dial("tcp", addr)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}
