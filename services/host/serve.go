// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/filelock"
	"nvpair/internal/ipc"
	"nvpair/internal/supervise"
	"nvpair/internal/worker"
	"nvpair/shared/brokerapi"
	"nvpair/shared/engine"
)

// The broker's own teardown is bounded by 15 s (BR-77); a signal and a kill
// stand behind that.
const (
	brokerGrace = 15 * time.Second
	stopBudget  = 30 * time.Second
)

// brokerPolicy is the policy of workers with the grace a whole tree needs.
func brokerPolicy() supervise.Policy {
	p := supervise.DefaultPolicy()
	p.StopGrace, p.TermGrace = brokerGrace, 5*time.Second
	return p
}

// serveConfig is everything a headless node needs from outside.
type serveConfig struct {
	Out       io.Writer // for people
	Err       io.Writer // the tree's diagnostics
	Log       *slog.Logger
	Version   string
	DataDir   string
	Self      string   // how to start this program from another terminal; "" = by its name
	Endpoints []string // the control socket's places, best first
	Broker    string   // path
	Engines   string   // --proxy-engines, as given
	Policy    supervise.Policy
}

// serve runs a node until a signal or nvpair stop ends it.
func (c *cli) serve(args []string) int {
	cfg := serveConfig{Out: c.std.Out, Err: c.std.Err, Version: c.version, Self: self(), Policy: brokerPolicy()}
	var level string
	_, code, ok := c.parse("serve", args, 0, func(fs *flag.FlagSet) {
		fs.StringVar(&level, "log-level", "", "of this process: debug, info, warn or error (default $NVPAIR_LOG_LEVEL, else info)")
		fs.StringVar(&cfg.Broker, "broker-path", "", "the broker (default: nvpair-ui-broker beside this executable)")
		fs.StringVar(&cfg.Engines, "proxy-engines", engine.IDs(), "comma-separated engines that get a facade")
	})
	if !ok {
		return code
	}
	if _, err := engine.ParseList(cfg.Engines); err != nil {
		return c.misuse("serve", "--proxy-engines: %v", err)
	}
	cfg.Log, _ = worker.NewLog(name, level, c.std.Err)
	ctx, stop := serveContext()
	defer stop()
	if err := prepare(&cfg); err != nil {
		return c.fail(err)
	}
	if err := serve(ctx, cfg); err != nil {
		return c.fail(err)
	}
	return exitOK
}

// serveContext ends with SIGINT or SIGTERM. Hang-up and the end of the input
// mean nothing to a node that outlives its terminal (DEC-120).
func serveContext() (context.Context, context.CancelFunc) {
	ignored := make(chan os.Signal, 1) // never read: what does not fit is dropped
	signal.Notify(ignored, syscall.SIGHUP, syscall.SIGPIPE)
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// prepare finds the data directory and the broker.
func prepare(cfg *serveConfig) error {
	var err error
	if cfg.DataDir, err = appdir.DataDir(); err != nil {
		return err
	}
	if err := appdir.CheckSchema(cfg.DataDir); err != nil {
		return err
	}
	cfg.Endpoints = appdir.ControlEndpoints(cfg.DataDir)
	if cfg.Broker == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the broker: %w; name it with --broker-path", err)
		}
		cfg.Broker = filepath.Join(filepath.Dir(self), "nvpair-ui-broker"+exeSuffix())
	}
	if cfg.Broker, err = filepath.Abs(cfg.Broker); err == nil {
		_, err = os.Stat(cfg.Broker)
	}
	if err != nil {
		return fmt.Errorf("find the broker: %w; name it with --broker-path", err)
	}
	return nil
}

func exeSuffix() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// serve holds the node's lock, runs the broker and the hub until ctx ends, a
// client stops the node or the broker cannot be kept running (an error), and
// returns when nothing of the node is left.
func serve(ctx context.Context, cfg serveConfig) error {
	lock, err := lockNode(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	// What no restart of the broker can mend is said once, here.
	if _, err := appdir.NodeID(cfg.DataDir); err != nil {
		return err
	}
	ln, err := listen(cfg.Endpoints)
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	h := newHub(cfg, ln, stop)
	if err := h.broker.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cfg.Broker, err)
	}
	h.run(ctx) // returns when every client is gone
	h.broker.Stop(time.Now().Add(stopBudget))
	h.announced.Wait()
	if err := context.Cause(ctx); errors.Is(err, errBrokerExhausted) {
		return err
	}
	fmt.Fprintln(cfg.Out, "stopped")
	return nil
}

func lockNode(cfg serveConfig) (*filelock.Lock, error) {
	once, cancel := context.WithCancel(context.Background())
	cancel() // an ended context means one try
	lock, err := filelock.Acquire(once, nodeLock(cfg.DataDir),
		filelock.Info{PID: os.Getpid(), Kind: name + " serve", Version: cfg.Version})
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("a node is already running for %s (process %d, %s); stop it with: %s stop",
			cfg.DataDir, held.Info.PID, held.Info.Kind, name)
	}
	return lock, err
}

// listen opens the control socket at the first place that can have one.
func listen(endpoints []string) (net.Listener, error) {
	var errs []error
	for _, e := range endpoints {
		ln, err := ipc.Listen(e)
		if err == nil {
			return ln, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, errors.New("open the control socket: every path for it is too long; set XDG_RUNTIME_DIR to a short one")
	}
	return nil, fmt.Errorf("open the control socket: %w", errors.Join(errs...))
}

// command is the broker's command line. The broker looks for its workers in its
// working directory (BR-1), which is where it lies itself.
func (cfg serveConfig) command() *exec.Cmd {
	cmd := exec.Command(cfg.Broker, "--proxy-engines", cfg.Engines)
	cmd.Dir = filepath.Dir(cfg.Broker)
	cmd.Env = appdir.Environ()
	return cmd
}

// announce tells the person at the terminal what runs and what to do next.
func (cfg serveConfig) announce(s brokerapi.Status, control net.Addr) {
	running, absent := 0, 0
	for _, w := range s.Workers {
		switch w.State {
		case brokerapi.StateRunning:
			running++
		case brokerapi.StateAbsent:
			absent++
		}
	}
	fmt.Fprintf(cfg.Out, "node %s is up (%s %s)\n", s.NodeID, name, s.Version)
	fmt.Fprintf(cfg.Out, "  workers  %d running, %d not installed\n", running, absent)
	fmt.Fprintf(cfg.Out, "  data     %s\n", cfg.DataDir)
	fmt.Fprintf(cfg.Out, "  control  %s\n", control)
	fmt.Fprintf(cfg.Out, "In another terminal: %s status   (or jobs, call ping, stop)\n", cmp.Or(cfg.Self, name))
}

// self is how to start this program again from another terminal: as it was
// started, for the same data directory.
func self() string {
	command := name
	if path, err := os.Executable(); err == nil && os.Args[0] != name {
		command = path
	}
	if dir, chosen := appdir.Override(); chosen {
		return fmt.Sprintf("NVPAIR_DATA_DIR='%s' %s", dir, command)
	}
	return command
}
