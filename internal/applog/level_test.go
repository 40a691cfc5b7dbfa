// SPDX-License-Identifier: Apache-2.0

package applog

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLevelNamesAreReadLeniently(t *testing.T) {
	for in, want := range map[string]slog.Level{
		"debug": slog.LevelDebug, " DEBUG\t": slog.LevelDebug,
		"info": slog.LevelInfo, "": slog.LevelInfo, "  ": slog.LevelInfo,
		"warn": slog.LevelWarn, "Warning": slog.LevelWarn,
		"error": slog.LevelError, "err": slog.LevelError,
	} {
		got, err := ParseLevel(in)
		if err != nil || got != want {
			t.Errorf("ParseLevel(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	_, err := ParseLevel("loud")
	require.EqualError(t, err, `log level "loud" is not one of debug, info, warn, error`)
}

func TestEveryLevelHasOneOfFourNames(t *testing.T) {
	for l, want := range map[slog.Level]string{
		-8: "debug", -4: "debug", -1: "debug", 0: "info", 3: "info", 4: "warn", 7: "warn", 8: "error", 12: "error",
	} {
		require.Equal(t, want, LevelName(l), "level %d", l)
	}
}

func TestFlagComesBeforeEnvironmentBeforeInfo(t *testing.T) {
	for _, tt := range []struct {
		flag, env string
		want      slog.Level
		bad       bool
	}{
		{"", "", slog.LevelInfo, false},
		{"", "debug", slog.LevelDebug, false},
		{"", "loud", slog.LevelInfo, false},
		{"error", "debug", slog.LevelError, false},
		{"loud", "debug", slog.LevelDebug, true},
		{"loud", "loud", slog.LevelInfo, true},
	} {
		level, bad := Initial(tt.flag, tt.env)
		require.Equal(t, tt.want, level, "%+v", tt)
		require.Equal(t, tt.bad, bad, "%+v", tt)
	}
}
