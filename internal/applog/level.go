// SPDX-License-Identifier: Apache-2.0

package applog

import (
	"fmt"
	"log/slog"
	"strings"
)

// ParseLevel reads a level name: debug, info (also the empty string), warn or
// warning, error or err, in any case and with blanks around it (WR-30). The
// error names the value and what is accepted; the level is info then.
func ParseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "debug":
		return slog.LevelDebug, nil
	case "info", "":
		return slog.LevelInfo, nil
	case "warn", "warning":
		return slog.LevelWarn, nil
	case "error", "err":
		return slog.LevelError, nil
	}
	return slog.LevelInfo, fmt.Errorf("log level %q is not one of debug, info, warn, error", s)
}

// LevelName returns debug, info, warn or error. A level between two names has
// the name of the lower one, below debug it is debug.
func LevelName(l slog.Level) string { return strings.ToLower(lineLevel(l)) }

// lineLevel is LevelName as it stands in a line: the line format has these four
// only, so slog's own INFO+2 must not get there.
func lineLevel(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "DEBUG"
	case l < slog.LevelWarn:
		return "INFO"
	case l < slog.LevelError:
		return "WARN"
	}
	return "ERROR"
}

// Initial picks the level a process starts with: the flag's, else the
// environment's, else info; an empty string is a source that was not given
// (WR-48). An invalid environment value counts as not given. An invalid flag
// does too, but badFlag tells the caller to log a warning about it.
func Initial(flagValue, envValue string) (level slog.Level, badFlag bool) {
	if flagValue != "" {
		l, err := ParseLevel(flagValue)
		if err == nil {
			return l, false
		}
		badFlag = true
	}
	l, _ := ParseLevel(envValue) // info if it is invalid or empty
	return l, badFlag
}
