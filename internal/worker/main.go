// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/applog"
	"nvpair/internal/ipc"
)

// orphanGrace is how long a worker whose parent died may take to end by itself
// (WR-53).
const orphanGrace = 5 * time.Second

// Streams are the standard streams of a process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Stdio returns the streams of this process.
func Stdio() Streams { return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr} }

// Program is one binary.
type Program struct {
	Name    string // of the binary, and in every log line
	Version string
	// Flags adds the flags that only this program has; nil for none.
	Flags func(*flag.FlagSet)
	// Run does the work until ctx ends or the link closes.
	Run func(ctx context.Context, cfg Config) error
}

// Main runs a program from its command line and returns the exit status of
// WR-54: 0 after an orderly end, 1 after a failure that is then on Err, 2 for a
// bad command line.
func Main(p Program, args []string, std Streams) int {
	var flagLevel, endpoint string
	code, ok := ParseFlags(p.Name, p.Version, args, std, func(fs *flag.FlagSet) {
		fs.StringVar(&flagLevel, "log-level", "", "debug, info, warn or error (default $NVPAIR_LOG_LEVEL, else info)")
		fs.StringVar(&endpoint, "ipc", "", "Unix socket or named pipe to dial instead of the standard streams")
		if p.Flags != nil {
			p.Flags(fs)
		}
	})
	if !ok {
		return code
	}
	log, level := NewLog(p.Name, flagLevel, std.Err)
	ctx, stop := Context(log, 0)
	defer stop()
	err := checkDataDir()
	var transport io.ReadWriteCloser
	if err == nil {
		transport, err = openLink(ctx, endpoint, std)
	}
	if err == nil {
		err = p.Run(ctx, Config{Link: transport, Version: p.Version, Log: log, Level: level})
	}
	if err != nil {
		log.Error("ended", "err", err)
		return 1
	}
	return 0
}

// ParseFlags parses a command line without positional arguments. ok is false
// when the program is to end with code: after --version or --help, or because
// the line was wrong.
func ParseFlags(name, version string, args []string, std Streams, define func(*flag.FlagSet)) (code int, ok bool) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(std.Err)
	showVersion := fs.Bool("version", false, "print the version and exit")
	define(fs)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0, false
	case err != nil:
		return 2, false // the flag package has said why
	case *showVersion:
		fmt.Fprintln(std.Out, version)
		return 0, false
	case fs.NArg() > 0:
		fmt.Fprintf(std.Err, "%s: unexpected argument %q\n", name, fs.Arg(0))
		return 2, false
	}
	return 0, true
}

// NewLog returns the log of a program, at the level of WR-48.
func NewLog(name, flagLevel string, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	initial, bad := applog.Initial(flagLevel, appdir.LogLevelEnv())
	level.Set(initial)
	log := slog.New(applog.NewHandler(w, name, level))
	if bad {
		log.Warn("invalid --log-level ignored", "level", flagLevel)
	}
	return log, level
}

// Context returns a context that ends with SIGINT, SIGTERM, SIGHUP or the death
// of the parent process. A process that still runs that long after its parent's
// death is ended by force; 0 stands for a worker's 5 s. stop ends what
// watches for them.
func Context(log *slog.Logger, grace time.Duration) (ctx context.Context, stop func()) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A reader that went away is a write error to handle (DEC-47), not a
	// signal to die of; the channel's one place never fills up anything.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	stopWatch := WatchParent(func() {
		log.Warn("parent process died, shutting down")
		cancel()
		time.AfterFunc(cmp.Or(grace, orphanGrace), func() { os.Exit(0) })
	})
	return ctx, func() {
		stopWatch()
		signal.Stop(pipes)
		cancel()
	}
}

// checkDataDir refuses a data directory whose layout is newer than this build.
// Where there is none, whoever needs one says so.
func checkDataDir() error {
	dir, err := appdir.DataDir()
	if err != nil {
		return nil
	}
	return appdir.CheckSchema(dir)
}

func openLink(ctx context.Context, endpoint string, std Streams) (io.ReadWriteCloser, error) {
	if endpoint == "" {
		return ipc.Stdio(std.In, std.Out), nil
	}
	conn, err := ipc.DialAny(ctx, endpoint)
	if err != nil {
		return nil, fmt.Errorf("dial --ipc %s: %w", endpoint, err)
	}
	return conn, nil
}
