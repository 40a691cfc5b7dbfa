// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mainResult is what a call of Main did.
type mainResult struct {
	code     int
	out, err string
	cfg      *Config // that Run got; nil if it was not called
	own      string  // value of the program's own flag
}

// callMain runs a program whose input has ended already. run may be nil.
func callMain(t *testing.T, run func(context.Context, Config) error, args ...string) mainResult {
	t.Helper()
	var res mainResult
	var out, errs bytes.Buffer
	res.code = Main(Program{
		Name:    "demo",
		Version: "1.2.3",
		Flags:   func(fs *flag.FlagSet) { fs.StringVar(&res.own, "own", "unset", "a flag of this program") },
		Run: func(ctx context.Context, cfg Config) error {
			res.cfg = &cfg
			if run == nil {
				return nil
			}
			return run(ctx, cfg)
		},
	}, args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	res.out, res.err = out.String(), errs.String()
	return res
}

func TestVersionIsPrintedAndNothingElseHappens(t *testing.T) {
	for _, args := range [][]string{
		{"--version"}, {"-version"}, {"--version", "--own", "x"}, {"--log-level", "loud", "--version"},
	} {
		got := callMain(t, nil, args...)
		require.Equal(t, mainResult{out: "1.2.3\n", own: got.own}, got, args)
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	for _, arg := range []string{"--help", "-h"} {
		got := callMain(t, nil, arg)
		require.Zero(t, got.code)
		require.Nil(t, got.cfg)
		require.Empty(t, got.out)
		for _, name := range []string{"-version", "-log-level", "-ipc", "-own"} {
			require.Contains(t, got.err, "  "+name)
		}
	}
}

func TestBadCommandLineIsRefused(t *testing.T) {
	for _, tt := range []struct {
		args []string
		why  string
	}{
		{[]string{"--nonsense"}, "flag provided but not defined: -nonsense"},
		{[]string{"--own"}, "flag needs an argument: -own"},
		{[]string{"stray"}, "demo: unexpected argument \"stray\"\n"},
		{[]string{"--own", "x", "stray", "--version"}, "demo: unexpected argument \"stray\"\n"},
	} {
		got := callMain(t, nil, tt.args...)
		require.Equal(t, 2, got.code, tt.args)
		require.Contains(t, got.err, tt.why, tt.args)
		require.Empty(t, got.out, tt.args)
		require.Nil(t, got.cfg, tt.args)
	}
}

func TestProgramRunsWithItsConfiguration(t *testing.T) {
	var ctxErr error
	got := callMain(t, func(ctx context.Context, cfg Config) error {
		ctxErr = ctx.Err()
		cfg.Log.Info("at work")
		link := NewLink(cfg)
		link.Serve(ctx, link.Unknown)
		return nil
	}, "-own=mine")
	require.NoError(t, ctxErr)
	require.Zero(t, got.code)
	require.Equal(t, "mine", got.own)
	require.Equal(t, "1.2.3", got.cfg.Version)
	require.Equal(t, ready+"\n"+hello+"\n", got.out)
	require.Contains(t, got.err, "[demo] INFO at work\n")
}

func TestLevelComesFromTheFlagThenTheEnvironment(t *testing.T) {
	for _, tt := range []struct {
		flag, env string
		want      slog.Level
		warning   bool
	}{
		{"", "", slog.LevelInfo, false},
		{"", "warn", slog.LevelWarn, false},
		{"debug", "error", slog.LevelDebug, false},
		{"loud", "warn", slog.LevelWarn, true},
		{"loud", "", slog.LevelInfo, true},
		{"", "loud", slog.LevelInfo, false},
	} {
		t.Setenv("NVPAIR_LOG_LEVEL", tt.env)
		var args []string
		if tt.flag != "" {
			args = []string{"--log-level", tt.flag}
		}
		got := callMain(t, nil, args...)
		require.Zero(t, got.code, tt)
		require.Equal(t, tt.want, got.cfg.Level.Level(), tt)
		require.Equal(t, tt.warning, strings.Contains(got.err, "[demo] WARN invalid --log-level ignored level=loud\n"), tt)
	}
}

func TestFailureIsOnStandardErrorAndInTheStatus(t *testing.T) {
	got := callMain(t, func(context.Context, Config) error { return errors.New("disk is full") })
	require.Equal(t, 1, got.code)
	require.Contains(t, got.err, "[demo] ERROR ended err=\"disk is full\"\n")
}

func TestEndpointThatCannotBeDialedIsAFailure(t *testing.T) {
	got := callMain(t, nil, "--ipc", "/nonexistent/socket")
	require.Equal(t, 1, got.code)
	require.Nil(t, got.cfg)
	require.Contains(t, got.err, "[demo] ERROR ended err=\"dial --ipc /nonexistent/socket: ")
}
