// SPDX-License-Identifier: Apache-2.0

// Package nodesettings is the worker that keeps the typed settings of this node
// in one file. It interprets none of them, has no socket and calls nobody.
//
// A value that was acknowledged is on disk. Requests are taken strictly one at a
// time, each with its write to disk, so a slow disk delays the next request and
// nothing else. The answer to a setter leaves before the notification it causes.
package nodesettings

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"nvpair/internal/appdir"
	"nvpair/internal/atomicfile"
	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker"
	wire "nvpair/shared/nodesettings"
	"nvpair/shared/serviceerror"
)

// fileName is the settings file in the data directory.
const fileName = "settings.json"

// Config is what the worker needs from outside.
type Config struct {
	worker.Config
	File string // of the settings; empty is settings.json in the data directory
}

// Main runs the worker from its command line and returns its exit status.
func Main(args []string, version string, std worker.Streams) int {
	var cfg Config
	return worker.Main(worker.Program{
		Name:    "nvpair-node-settings",
		Version: version,
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&cfg.File, "settings", "", "file of the settings (default "+fileName+" in the data directory)")
		},
		Run: func(ctx context.Context, common worker.Config) error {
			cfg.Config = common
			return Run(ctx, cfg)
		},
	}, args, std)
}

// Run serves the link until ctx ends or the link closes. It fails before the
// first frame if the settings cannot be read safely; the error says what to do.
func Run(ctx context.Context, cfg Config) error {
	path, err := settingsPath(cfg.File)
	if err != nil {
		return err
	}
	atomicfile.RemoveLeftovers(path)
	s := &service{path: path, log: cfg.Log}
	malformed, err := s.load()
	if err != nil {
		return err
	}
	s.link = worker.NewLink(cfg.Config)
	if malformed != nil {
		s.reset.Store(true)
		s.reportReset(s.setAside(malformed))
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "settings loaded", append(s.current.attrs(), slog.String("path", path))...)
	s.link.Serve(ctx, s.handle)
	return nil
}

// settingsPath resolves the flag. Without a data directory there is no other
// default: two processes that silently use different files are worse (ST-3).
func settingsPath(file string) (string, error) {
	if file != "" {
		return file, nil
	}
	dir, err := appdir.DataDir()
	if err != nil {
		return "", fmt.Errorf("no place for the settings: %w, or name their file with --settings", err)
	}
	return filepath.Join(dir, fileName), nil
}

// service is the worker's state. All but reset belongs to the loop of its link.
type service struct {
	path    string
	log     *slog.Logger
	link    *worker.Link
	current settings    // always what the file holds, or would if it existed
	reset   atomic.Bool // a malformed file was replaced by defaults and nothing written since; the loop writes
}

func (s *service) handle(req *jsonrpc.Request) {
	member, sets := s.current.member(req.Method)
	switch {
	case member == nil || req.IsNotification(): // ST-7: setters included
		s.link.Unknown(req)
	case sets:
		s.set(req)
	default:
		req.Reply(value{member})
	}
}

// set persists first and commits after (ST-14).
func (s *service) set(req *jsonrpc.Request) {
	next := s.current
	member, _ := next.member(req.Method)
	if err := decodeValue(req.Params, member); err != nil {
		req.Fail(err)
		return
	}
	if err := save(s.path, next); err != nil {
		s.log.Warn("settings not saved", "method", req.Method, "err", err)
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInternal, "%v", err))
		return
	}
	changed := next != s.current
	s.current = next
	if changed {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "settings changed", next.attrs()...)
	}
	req.Reply(ok{true})
	s.push(req.Method)
	if s.reset.CompareAndSwap(true, false) {
		s.notify(serviceerror.MethodClear, serviceerror.Clear{ID: wire.ResetErrorID})
	}
}

// push sends the notification of a setter that has one, also for an equal value
// (ST-11).
func (s *service) push(setter string) {
	switch setter {
	case wire.SetClusterID:
		s.notify(wire.NotifyClusterIdentity, identity{s.current.ClusterID})
	case wire.SetClusterAutoSync:
		s.notify(wire.NotifyClusterAutoSync, value{s.current.ClusterAutoSync})
	}
}

// notify does not retry: getters are the recovery (ST-12).
func (s *service) notify(method string, params any) {
	if err := s.link.Notify(method, params); err != nil {
		s.log.Warn("notification not sent", "method", method, "err", err)
	}
}

// reportReset makes the service error of DEC-67 the first frame after the two
// that announce the worker: a stream marked before Serve is written behind what
// Serve queues before it starts to write. If the first set comes before that,
// nothing is left to report.
func (s *service) reportReset(message string) {
	s.link.NewStream(serviceerror.MethodReport, func() (json.RawMessage, bool) {
		if !s.reset.Load() {
			return nil, false
		}
		params, err := jsonrpc.Marshal(serviceerror.ServiceError{
			ID:       wire.ResetErrorID,
			Message:  message,
			Severity: serviceerror.SeverityWarning,
			Action:   serviceerror.ActionNone,
		})
		return params, err == nil
	}).Mark()
}
