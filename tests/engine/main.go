// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// usageHead is what --help says first.
const usageHead = `nvpair-demo-engine is a stand-in for a real engine, for tests, demos and benchmarks.
No model is behind it: every answer is made from the request alone and says so.
It prints its address as the first line of its output, that of the control port
as the second if there is one, and ends on SIGTERM or at the end of its input.

`

// options is the command line.
type options struct {
	cfg            Config
	listen         string
	control        string
	models         string
	faults         string
	origins        string
	registry       string
	stop           string
	refuse         time.Duration
	loading        time.Duration
	pause          time.Duration
	exitAfter      time.Duration
	ignoreStdinEOF bool
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var dialect string
	fs := flag.NewFlagSet("nvpair-demo-engine", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		_, _ = io.WriteString(stderr, usageHead)
		fs.PrintDefaults()
	}
	c := &o.cfg
	names := make([]string, 0, len(Dialects()))
	for _, d := range Dialects() {
		names = append(names, string(d))
	}
	fs.StringVar(&dialect, "dialect", string(Ollama), "engine to imitate: "+strings.Join(names, ", "))
	fs.StringVar(&dialect, "flavor", string(Ollama), "the same as --dialect")
	fs.StringVar(&o.listen, "listen", "127.0.0.1:0", "address to serve on")
	fs.StringVar(&o.control, "control", "", "address of the control port; empty for none")
	fs.StringVar(&o.models, "models", "", "names, separated by commas, each with +loaded or +embedding behind it as needed;\n"+
		"\"-\" for none (default two of the dialect's own)")
	fs.StringVar(&o.faults, "faults", "", "faults from the start, JSON as on the control port")
	fs.IntVar(&c.Pace.Chunks, "chunks", 16, "tokens of an answer, each a chunk")
	fs.IntVar(&c.Pace.ChunkBytes, "chunk-bytes", 0, "least length of a token")
	fs.DurationVar(&c.Pace.First, "first", 0, "time before the first token")
	fs.DurationVar(&c.Pace.Delay, "delay", 0, "time between tokens")
	fs.BoolVar(&c.Pace.Joined, "joined", false, "many chunks in one write where no time lies between them")
	fs.DurationVar(&c.LoadDelay, "load-delay", 0, "time a model takes to load")
	fs.IntVar(&c.MaxLoaded, "max-loaded", 0, "models loaded at once; 0 is without limit")
	fs.BoolVar(&c.EvictCuts, "evict-cuts", false, "an eviction cuts running streams")
	fs.IntVar(&c.Slots, "slots", 0, "requests a model at once; 0 is without limit")
	fs.IntVar(&c.QueueLimit, "queue", 0, "waiting requests before 503; 0 is without limit")
	fs.DurationVar(&c.Ghost, "ghost", 0, "time a slot stays taken once its client has left")
	fs.StringVar(&c.Version, "engine-version", DefaultVersion, "version the engine reports")
	fs.StringVar(&c.APIKey, "api-key", "", "key to demand; not for ollama")
	fs.StringVar(&o.origins, "origins", "", "ollama: further allowed origins, separated by commas; * for all")
	fs.BoolVar(&c.CORS, "cors", false, "lmstudio: allow every origin")
	fs.BoolVar(&c.JITOff, "no-jit", false, "lmstudio, llamacpp-router: models are not loaded on demand")
	fs.BoolVar(&c.OnlyAnswers, "only-answers", false, "lmstudio: the only loaded model answers for any name")
	fs.BoolVar(&c.Embeddings, "embeddings", false, "llamacpp: embeddings and metrics are on")
	fs.DurationVar(&c.IdleTimeout, "idle", 0, "idle time of a kept connection; 0 is the engine's own, negative is for ever")
	fs.StringVar(&o.registry, "registry", "", "names that can be pulled, separated by commas (default any)")
	fs.DurationVar(&c.PullTick, "pull-tick", 60*time.Millisecond, "time between lines of progress")
	fs.IntVar(&c.PullSteps, "pull-steps", 4, "lines of progress a layer")
	fs.BoolVar(&c.Clock, "clock", false, "real times in bodies")
	fs.IntVar(&c.Witness, "witness", 4096, "requests the witness keeps; negative for none")
	fs.DurationVar(&o.refuse, "refuse", 0, "time from the start in which connections are refused")
	fs.DurationVar(&o.pause, "pause", 0, "time from the start in which connections are not accepted")
	fs.DurationVar(&o.loading, "loading", 0, "time from the start in which all is 503 \"Loading model\"")
	fs.DurationVar(&o.exitAfter, "fail-after", 0, "exit with status 1 after this time, as an engine that cannot load")
	fs.StringVar(&o.stop, "stop", "now", "what SIGTERM does: now, when-idle (deaf until all clients left), never")
	fs.BoolVar(&o.ignoreStdinEOF, "ignore-stdin", false, "do not end at the end of the input")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	c.Dialect = Dialect(dialect)
	return o, o.complete()
}

// complete reads the flags that are lists.
func (o *options) complete() error {
	var err error
	switch o.models {
	case "":
	case "-":
		o.cfg.Models = []Model{}
	default:
		if o.cfg.Models, err = ParseModels(o.models); err != nil {
			return err
		}
	}
	if o.origins != "" {
		o.cfg.Origins = strings.Split(o.origins, ",")
	}
	if o.registry != "" {
		o.cfg.Registry = strings.Split(o.registry, ",")
	}
	if o.stop != "now" && o.stop != "when-idle" && o.stop != "never" {
		return fmt.Errorf("--stop %s: none of now, when-idle, never", o.stop)
	}
	_, err = o.cfg.withDefaults()
	return err
}

// Main runs the demo engine from its command line and returns the exit status: 0
// after an orderly end, 1 after a failure, 2 for a bad command line.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "nvpair-demo-engine:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	inputEnds, end := context.WithCancel(context.Background())
	defer end()
	if !o.ignoreStdinEOF {
		go func() { // ends with the input, and so at the latest with the process
			_, _ = io.Copy(io.Discard, stdin)
			end()
		}()
	}
	if err := o.run(ctx, inputEnds, stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "nvpair-demo-engine:", err)
		return 1
	}
	return 0
}

// errAsked is the failure that --fail-after asks for.
var errAsked = errors.New("ends as --fail-after asks")

// run serves until asked ends, as --stop has it, or until inputEnds does.
func (o *options) run(asked, inputEnds context.Context, stdout io.Writer) error {
	ln, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	o.cfg.Listener = ln
	e, err := Start(context.Background(), o.cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := o.setUp(e); err != nil {
		return err
	}
	lines := e.Addr() + "\n"
	if o.control != "" {
		closeControl, addr, err := serveControl(e, o.control)
		if err != nil {
			return err
		}
		defer closeControl()
		lines += addr + "\n"
	}
	if _, err := io.WriteString(stdout, lines); err != nil {
		return fmt.Errorf("print address: %w", err)
	}
	var fails <-chan time.Time
	if o.exitAfter > 0 {
		fails = time.After(o.exitAfter)
	}
	return o.await(e, asked, inputEnds, fails)
}

// serveControl serves the control port until the returned function is called.
func serveControl(e *Engine, addr string) (func(), string, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, "", fmt.Errorf("listen for control: %w", err)
	}
	srv := &http.Server{Handler: e.Control(), ReadHeaderTimeout: 10 * time.Second}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) }) // ends by Close
	return func() {
		_ = srv.Close()
		wg.Wait()
	}, ln.Addr().String(), nil
}
