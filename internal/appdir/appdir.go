// SPDX-License-Identifier: Apache-2.0

// Package appdir knows where the product keeps its data on this machine, and
// what a program must settle there before it uses it: the move from former
// places, the version of the layout, the identity of the node.
//
// It guarantees that asking for the place creates nothing, that a layout newer
// than this build is not touched, that no file is lost or replaced in a move,
// and that all processes of one node get one identity.
//
// The order at start is CheckSchema, Migrate, CheckSchema again (what came over
// may be newer too), WriteSchema, and then anything else. This is the only
// package besides the mains that reads the environment.
package appdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// The data directory is <base>/Organisation/Product (WR-62).
const (
	Organisation = "Nvidia Corporation"
	Product      = "Personal AI Router"
)

// Names of environment variables.
const (
	envDataDir  = "NVPAIR_DATA_DIR"
	envLogLevel = "NVPAIR_LOG_LEVEL"
)

// place is a directory below the base.
type place struct{ organisation, product string }

func (p place) under(base string) string { return filepath.Join(base, p.organisation, p.product) }

func current() place { return place{Organisation, Product} }

// previous returns the places of earlier releases, newest first.
func previous() []place { return []place{{"NVIDIA Corporation", "PAIR"}} }

// DataDir returns the absolute path of the data directory: NVPAIR_DATA_DIR if
// set, else the product's directory below the user's base (DEC-1). It creates
// nothing, and fails only if the system does not say where the base is.
func DataDir() (string, error) {
	if dir := os.Getenv(envDataDir); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("make %s absolute: %w; set it to an absolute path", envDataDir, err)
		}
		return abs, nil
	}
	base, err := baseDir()
	if err != nil {
		return "", err
	}
	return current().under(base), nil
}

// Override returns the data directory that NVPAIR_DATA_DIR names, made absolute,
// and whether it names one.
func Override() (dir string, chosen bool) {
	if os.Getenv(envDataDir) == "" {
		return "", false
	}
	dir, err := DataDir()
	return dir, err == nil
}

// baseDir is the directory of WR-61. On Windows that is never the roaming one
// unless the local one is unknown: engines and caches must not roam.
func baseDir() (string, error) {
	base, err := os.Getenv("LOCALAPPDATA"), error(nil)
	if runtime.GOOS != "windows" || base == "" {
		// $XDG_CONFIG_HOME or ~/.config on Linux (DEC-127), ~/Library/Application
		// Support on macOS, %APPDATA% on Windows.
		base, err = os.UserConfigDir()
	}
	if err == nil && !filepath.IsAbs(base) {
		err = fmt.Errorf("%q is not an absolute path", base)
	}
	if err != nil {
		return "", fmt.Errorf("find the user's data directory: %w; set %s to the directory to use", err, envDataDir)
	}
	return base, nil
}

// LogLevelEnv returns NVPAIR_LOG_LEVEL as it is, empty if unset.
func LogLevelEnv() string { return os.Getenv(envLogLevel) }

// exists reports whether path names anything, a dangling link included.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Environ returns this process's environment for a child that runs in another
// directory: a data directory given relative to here is made absolute.
func Environ() []string {
	env := os.Environ()
	if os.Getenv(envDataDir) != "" {
		if dir, err := DataDir(); err == nil {
			env = append(env, envDataDir+"="+dir) // the last one counts
		}
	}
	return env
}

// ResponseHeaderTimeout returns NVPAIR_PROXY_RESPONSE_HEADER_TIMEOUT as it is,
// empty if unset.
func ResponseHeaderTimeout() string { return os.Getenv("NVPAIR_PROXY_RESPONSE_HEADER_TIMEOUT") }

// OllamaHost returns OLLAMA_HOST as it is, empty if unset.
func OllamaHost() string { return os.Getenv("OLLAMA_HOST") }

// AllowedHosts returns the names of NVPAIR_ALLOWED_HOSTS, comma-separated and
// without ports, in lower case: Host headers that plaintext listeners accept
// besides the loopback ones (DEC-44).
func AllowedHosts() []string {
	var hosts []string
	for h := range strings.SplitSeq(os.Getenv("NVPAIR_ALLOWED_HOSTS"), ",") {
		if h = strings.ToLower(strings.TrimSpace(h)); h != "" {
			hosts = append(hosts, h)
		}
	}
	return hosts
}
