// SPDX-License-Identifier: Apache-2.0

// Command demo is what make run starts: a node on this machine and, if no engine
// answers here, a stand-in for one, so that a request is answered on a machine
// that has nothing else. It ends with Ctrl+C and leaves only its data directory.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// manifestName is the demo engine's manifest. It is removed at the end: without
// its engine it would only be looked for in vain.
const manifestName = "nvpair-demo-engine.json"

// patience is how long a model may take to be there before the user is told where
// to look.
const patience = 10 * time.Second

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "demo: takes no arguments; it is what make run starts")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dataDir, err := dataDir()
	if err != nil {
		return err
	}
	if running(dataDir) {
		return fmt.Errorf("a node is already running for %s; stop it with: NVPAIR_DATA_DIR=%s bin/nvpair stop", dataDir, dataDir)
	}
	if !engineAnswers(ctx) {
		end, err := startEngine(dataDir)
		if err != nil {
			return err
		}
		defer end()
	}
	node := exec.Command(filepath.Join("bin", "nvpair"), "serve")
	node.Env = append(os.Environ(), "NVPAIR_DATA_DIR="+dataDir)
	node.Stdout, node.Stderr = os.Stdout, os.Stderr
	node.SysProcAttr = ownGroup() // Ctrl+C comes here; the node is asked in order
	if err := node.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- node.Wait() }()
	go explain(ctx, dataDir)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		_ = node.Process.Signal(os.Interrupt)
		return <-ended
	}
}

// dataDir is the demo's own, unless the user named one.
func dataDir() (string, error) {
	dir := os.Getenv("NVPAIR_DATA_DIR")
	if dir == "" {
		dir = ".run"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(filepath.Join(dir, "engines"), 0o700)
}

// running reports whether a node serves the data directory.
func running(dataDir string) bool {
	cmd := exec.Command(filepath.Join("bin", "nvpair"), "status")
	cmd.Env = append(os.Environ(), "NVPAIR_DATA_DIR="+dataDir)
	var exit *exec.ExitError
	err := cmd.Run()
	return err == nil || (errors.As(err, &exit) && exit.ExitCode() == 1) // 2 is none
}

// engineAnswers reports whether an engine is where Ollama's and LM Studio's are
// looked for.
func engineAnswers(ctx context.Context) bool {
	for _, port := range []int{11434, 11435, 1234, 1235} {
		if _, ok := models(ctx, port, true); ok {
			fmt.Printf("an engine answers on port %d; no stand-in is started\n", port)
			return true
		}
	}
	return false
}

// models asks for a list of models. ok is false unless one came. A facade of a
// node says that it is no engine when it is asked as one.
func models(ctx context.Context, port int, asEngine bool) (names []string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/v1/models", port), nil)
	if err != nil {
		return nil, false
	}
	if asEngine {
		req.Header.Set("X-NVPAIR-Engine-Identity-Probe", "1")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, false
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct {
		Object string `json:"object"`
		Data   []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.NewDecoder(resp.Body).Decode(&list) != nil || list.Object != "list" {
		return nil, false
	}
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, true
}

// startEngine starts the stand-in on a free port and tells the node of it by a
// manifest.
func startEngine(dataDir string) (end func(), err error) {
	cmd := exec.Command(filepath.Join("bin", "nvpair-demo-engine"), "--listen", "127.0.0.1:0", "--delay", "40ms")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = ownGroup()
	in, err := cmd.StdinPipe() // its end ends the engine, even if this process is killed
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	manifest := filepath.Join(dataDir, "engines", manifestName)
	end = func() {
		_ = os.Remove(manifest)
		_ = in.Close()
		_ = cmd.Wait()
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = writeManifest(manifest, strings.TrimSpace(first))
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("start the demo engine: %w", err)
	}
	fmt.Printf("no engine answers on this machine: a stand-in that makes text up listens on %s", first)
	return end, nil
}

func writeManifest(path, addr string) error {
	_, text, ok := strings.Cut(addr, ":")
	port, err := strconv.Atoi(text)
	if !ok || err != nil {
		return errors.New("its first line is no address: " + addr)
	}
	raw, err := json.MarshalIndent(map[string]any{
		"engine": "nvpair-demo-engine", "display_name": "Demo engine (a stand-in)", "manifest_version": 1,
		"dialect": "ollama", "attach_only": true, "runtime": map[string]any{"port": port},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o600)
}

// explain waits until a model can be asked, and says how.
func explain(ctx context.Context, dataDir string) {
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		for _, port := range facades(ctx, dataDir) {
			if names, _ := models(ctx, port, false); len(names) > 0 {
				fmt.Printf("\nTry it:\n  curl http://127.0.0.1:%d/v1/chat/completions -d "+
					"'{\"model\":\"%s\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'\n"+
					"  NVPAIR_DATA_DIR='%s' bin/nvpair jobs\n", port, names[0], dataDir)
				return
			}
		}
		select {
		case <-ticks.C:
		case <-late.C:
			fmt.Printf("\nno model can be asked yet; look at: NVPAIR_DATA_DIR='%s' bin/nvpair status\n", dataDir)
		case <-ctx.Done():
			return
		}
	}
}

// facades returns the ports of the node's facades that are up.
func facades(ctx context.Context, dataDir string) []int {
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "nvpair"), "status", "--json")
	cmd.Env = append(os.Environ(), "NVPAIR_DATA_DIR="+dataDir)
	raw, _ := cmd.Output() // the status of a node that is starting comes with exit status 1
	var s struct {
		Broker struct {
			Facades []struct {
				Ready bool `json:"ready"`
				Port  int  `json:"port"`
			} `json:"facades"`
		} `json:"broker"`
	}
	_ = json.Unmarshal(raw, &s)
	var ports []int
	for _, f := range s.Broker.Facades {
		if f.Ready {
			ports = append(ports, f.Port)
		}
	}
	return ports
}
