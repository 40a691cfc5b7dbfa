// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLevelIsChangedByRequest(t *testing.T) {
	for in, want := range map[string]struct {
		name  string
		level slog.Level
	}{
		"debug":     {"debug", slog.LevelDebug},
		" DeBuG\\t": {"debug", slog.LevelDebug},
		"info":      {"info", slog.LevelInfo},
		"":          {"info", slog.LevelInfo},
		"warn":      {"warn", slog.LevelWarn},
		"WARNING":   {"warn", slog.LevelWarn},
		"error":     {"error", slog.LevelError},
		"err":       {"error", slog.LevelError},
	} {
		serve(t, nil, func(p *peer) {
			p.level.Set(slog.LevelWarn)
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"log/set-level","params":{"level":"%s"}}`, in))
			require.Equal(t, []string{`{"jsonrpc":"2.0","id":1,"result":{"level":"` + want.name + `"}}`}, p.got(), in)
			require.Equal(t, want.level, p.level.Level(), in)
			line := "[demo] INFO log level changed level=" + want.name + "\n"
			if want.level > slog.LevelInfo {
				require.Empty(t, p.log.String(), in)
				return
			}
			require.Contains(t, p.log.String(), line, in)
		})
	}
}

func TestBadLevelIsRefused(t *testing.T) {
	for params, want := range map[string]string{
		`,"params":{"level":"loud"}`: `log level \"loud\" is not one of debug, info, warn, error`,
		`,"params":{"level":5}`:      `want {\"level\": \"debug|info|warn|error\"}, got {\"level\":5}`,
		`,"params":["debug"]`:        `want {\"level\": \"debug|info|warn|error\"}, got [\"debug\"]`,
		``:                           `want {\"level\": \"debug|info|warn|error\"}, got `,
	} {
		serve(t, nil, func(p *peer) {
			p.level.Set(slog.LevelWarn)
			p.send(`{"jsonrpc":"2.0","id":1,"method":"log/set-level"` + params + `}`)
			require.Equal(t, []string{
				`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid params: ` + want + `"}}`,
			}, p.got())
			require.Equal(t, slog.LevelWarn, p.level.Level())
			require.Empty(t, p.log.String())
		})
	}
}

func TestLevelIsChangedByNotification(t *testing.T) {
	serve(t, nil, func(p *peer) {
		p.send(`{"jsonrpc":"2.0","method":"log/set-level","params":{"level":"debug"}}`)
		require.Empty(t, p.got())
		require.Equal(t, slog.LevelDebug, p.level.Level())
		require.Contains(t, p.log.String(), "[demo] INFO log level changed level=debug\n")

		p.send(`{"jsonrpc":"2.0","method":"log/set-level","params":{"level":"loud"}}`)
		require.Empty(t, p.got())
		require.Equal(t, slog.LevelDebug, p.level.Level())
		require.Contains(t, p.log.String(), "[demo] WARN log level not changed err=")
		require.Contains(t, p.log.String(), "loud")
	})
}
