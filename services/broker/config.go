// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"nvpair/internal/supervise"
	"nvpair/shared/engine"
)

// teardownBudget is the clock that starts with the teardown (BR section 17).
const teardownBudget = 10 * time.Second

// staleAfter is how long nodes that a crashed scanner knew have to be announced
// again by its successor (DEC-114).
const staleAfter = 75 * time.Second

// Config is everything a broker needs from outside.
type Config struct {
	Client  io.ReadWriteCloser // owned by Run
	Stderr  io.Writer          // takes the workers' diagnostics in whole lines; must not block
	Log     *slog.Logger
	Level   *slog.LevelVar // of Log
	Version string

	NodeID     string
	DataDir    string
	ClusterDir string // "" = the node stays alone

	// Paths maps a worker's binary name to its file. A worker that is not in
	// it is absent.
	Paths   map[string]string
	Engines []engine.Engine // that get a facade

	OllamaHost string // OLLAMA_HOST as it is: where this machine's clients look for Ollama

	// Policy and StaleAfter are for tests that shorten time (DEC-117). The
	// zero values stand for the real ones.
	Policy     supervise.Policy
	StaleAfter time.Duration
}

func (c *Config) setDefaults() {
	if c.Policy == (supervise.Policy{}) {
		c.Policy = supervise.DefaultPolicy()
	}
	if c.StaleAfter == 0 {
		c.StaleAfter = staleAfter
	}
}

// resolvePaths finds the workers' files. explicit maps binary names to paths
// given on the command line; for the others the file of that name in the current
// directory counts (BR-1). A missing explicit path, or a missing scanner, is an
// error; any other missing file is one warning (BR-2).
func resolvePaths(explicit map[string]string, log *slog.Logger) (map[string]string, error) {
	paths := make(map[string]string)
	for _, d := range catalog() {
		path, given := explicit[d.binary]
		switch {
		case !given:
			path = "./" + d.binary + exeSuffix()
		case path != "" && filepath.Base(path) == path:
			path = "./" + path // else it would be looked for in PATH
		}
		_, err := os.Stat(path)
		switch {
		case err == nil && !d.planned:
			paths[d.binary] = path
		case given && err != nil:
			return nil, fmt.Errorf("--%s: %w", d.pathFlag, err)
		case d.required:
			return nil, fmt.Errorf("%s is needed and not in the current directory; name it with --%s", d.binary, d.pathFlag)
		case d.planned:
			log.Debug("worker not part of this version", "worker", d.name)
		default:
			log.Warn("worker not installed", "worker", d.name, "path", path)
		}
	}
	return paths, nil
}

func exeSuffix() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}
