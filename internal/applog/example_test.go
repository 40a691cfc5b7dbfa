// SPDX-License-Identifier: Apache-2.0

package applog_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"nvpair/internal/applog"
)

func Example() {
	h := applog.NewHandler(os.Stdout, "nvpair-demo", slog.LevelInfo)
	r := slog.NewRecord(time.Date(2026, 1, 2, 9, 14, 3, 117e6, time.Local), slog.LevelWarn, "probe failed", 0)
	r.Add("port", 4711, "err", errors.New("no answer"))
	_ = h.Handle(context.Background(), r)
	// Output: 09:14:03.117 [nvpair-demo] WARN probe failed port=4711 err="no answer"
}
