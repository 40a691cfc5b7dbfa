// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"nvpair/internal/clustertrust"
	wire "nvpair/shared/manualnodes"
)

// Usual ports of what is asked (MN section 4).
const (
	portNodeInfo = 14318
	portOllama   = 11434
	portLMStudio = 1234
)

const (
	requestTimeout = 3 * time.Second // MN-17
	maxBodyBytes   = 4 << 20
	maxModels      = 1000
	maxModelBytes  = 24 << 10 // of all names of one engine of one node
	maxInfoBytes   = 8 << 10  // of each part of node-info that is passed on
	maxIDBytes     = 128
)

// prober asks nodes. It is safe for concurrent use.
type prober struct {
	client *http.Client
	lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	log    *slog.Logger
}

// newProber returns a prober whose every connection attempt ends with ctx.
func newProber(ctx context.Context, cfg Config) (*prober, error) {
	secure, err := tlsConfig(cfg)
	if err != nil {
		return nil, err
	}
	dial := cfg.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	dial = atAddress(dial) // below TLS, which checks the name that was given
	lookup := cfg.Lookup
	if lookup == nil {
		lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	return &prober{log: cfg.Log, lookup: lookup, client: &http.Client{
		// Without keep-alive a name is looked up anew each time (MN-17). A proxy of
		// the environment does not lead to a machine at home.
		Transport: &http.Transport{
			DisableKeepAlives: true, Proxy: nil, DialContext: endingWith(ctx, dial),
			DialTLSContext: endingWith(ctx, dialTLS(dial, secure, clustertrust.Open(cfg.ClusterDir, cfg.Log))),
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// findings are the outcome of a probe.
type findings struct {
	info             *nodeInfo // nil if node-info did not answer
	addresses        []string  // at which it did, of a peer; see wire.Status
	ollama, lmstudio engineAnswer
	peer, local      bool
	err              string // why the node, or one of its engines, is not used; "" if it is
}

type engineAnswer struct {
	up     bool
	models []string
	err    error
}

// Why a node that may well answer is not used.
const (
	errSelf = "this is the address of this machine itself, whose own engines are found without being added"
	errPeer = "it runs nvpair itself, so its engines serve paired nodes only"
	errGone = "its nvpair does not answer; if it was removed there, add the address again"
)

// probe asks node-info first, alone: it tells whether the engine ports are those
// of a plain machine (DEC-65). wasPeer says that an earlier probe found that they
// are not.
func (p *prober) probe(ctx context.Context, target wire.Status, wasPeer bool, self string) findings {
	begin := time.Now()
	var local atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if toItself(c.Conn) {
			local.Store(true)
		}
	}})
	var f findings
	var infoErr error
	f.info, f.addresses, infoErr = p.nodeInfo(ctx, target)
	f.peer = f.info == nil && wasPeer || f.info != nil && f.info.ofOurKind()
	switch {
	case f.info != nil && self != "" && f.info.HostUUID == self:
		f.local, f.peer, f.err = true, false, errSelf
	case f.info != nil && f.peer:
		f.err = errPeer
	case f.peer:
		f.err = errGone + ": " + infoErr.Error()
	default:
		p.engines(ctx, target, &f)
		f.local = local.Load()
		f.settle(target)
	}
	p.log.Debug("probe", "node", target.ID, "addr", target.Address, "ollama", f.ollama.up, "lmstudio", f.lmstudio.up,
		"node_info", f.info != nil, "tls", target.TLSEnabled, "err", f.err, "elapsed", time.Since(begin))
	return f
}

// engines asks both engines at once.
func (p *prober) engines(ctx context.Context, target wire.Status, f *findings) {
	var wg sync.WaitGroup
	wg.Go(func() { f.ollama = p.ollama(ctx, target.Address, target.OllamaPort) })
	wg.Go(func() { f.lmstudio = p.lmstudio(ctx, target.Address, target.LMStudioPort) })
	wg.Wait()
}

// settle decides what the answers of the engines are worth. At the usual ports of
// this machine its own facades answer, or engines that it has without being told.
func (f *findings) settle(target wire.Status) {
	switch {
	case f.local && target.Ports == nil:
		f.ollama, f.lmstudio, f.err = engineAnswer{}, engineAnswer{}, errSelf
	case f.ollama.up || f.lmstudio.up:
		f.err = missing(target, f.ollama.err, f.lmstudio.err)
	case f.info != nil:
		f.err = "no engine answers there"
	default:
		f.err = silence(target, f.ollama.err, f.lmstudio.err)
	}
}

// missing is why an engine does not answer whose port was given, beside one that
// does; "" if there is none.
func missing(target wire.Status, ollama, lmstudio error) string {
	switch {
	case target.Ports == nil:
	case target.Ports.Ollama != 0 && ollama != nil:
		return fmt.Sprintf("Ollama at port %d: %v", target.OllamaPort, ollama)
	case target.Ports.LMStudio != 0 && lmstudio != nil:
		return fmt.Sprintf("LM Studio at port %d: %v", target.LMStudioPort, lmstudio)
	}
	return ""
}

// silence is why no engine answers, in one line.
func silence(target wire.Status, ollama, lmstudio error) string {
	if ollama.Error() == lmstudio.Error() {
		return fmt.Sprintf("ports %d and %d: %v", target.OllamaPort, target.LMStudioPort, ollama)
	}
	return fmt.Sprintf("port %d: %v; port %d: %v", target.OllamaPort, ollama, target.LMStudioPort, lmstudio)
}

// toItself reports whether both ends of a connection are this machine.
func toItself(c net.Conn) bool {
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return false
	}
	remote, err := netip.ParseAddrPort(c.RemoteAddr().String())
	return err == nil && (remote.Addr().IsLoopback() || remote.Addr() == local.Addr())
}

// into fills in what was found.
func (f *findings) into(st *wire.Status) {
	st.OllamaUp, st.OllamaModels = f.ollama.up, f.ollama.models
	st.LMStudioUp, st.LMStudioModels = f.lmstudio.up, f.lmstudio.models
	st.Peer, st.Local, st.Error = f.peer, f.local, f.err
	if f.info == nil {
		return
	}
	st.NodeInfoUp, st.HostUUID = true, f.info.HostUUID
	if f.peer {
		st.Addresses = f.addresses
	}
	st.GPUs, st.CPU, st.Memory = full(f.info.GPUs, '['), full(f.info.CPU, '{'), full(f.info.Memory, '{')
	if services := full(f.info.Services, '{'); services != nil {
		_ = json.Unmarshal(services, &st.Services) // what is no port is left out
	}
	st.TelemetryValid, st.AgeMillis = f.info.TelemetryValid, f.info.AgeMillis
}

// greeting is what an Ollama answers to GET /.
const greeting = "Ollama is running"

func (p *prober) ollama(ctx context.Context, address string, port int) engineAnswer {
	root, err := p.get(ctx, "http", address, port, "/")
	if err != nil {
		return engineAnswer{err: err}
	}
	var list struct {
		Models []struct {
			Name string `json:"name"`
		} `json:"models"`
	}
	if body, err := p.get(ctx, "http", address, port, "/api/tags"); err == nil {
		_ = json.Unmarshal(body, &list) // what is no list tells no models
	}
	if list.Models == nil && strings.TrimSpace(string(root)) != greeting {
		return engineAnswer{err: errOtherServer}
	}
	a := engineAnswer{up: true} // without models, if it does not tell them
	for _, m := range list.Models {
		a.models = append(a.models, m.Name)
	}
	a.models = bounded(a.models)
	return a
}

func (p *prober) lmstudio(ctx context.Context, address string, port int) engineAnswer {
	body, err := p.get(ctx, "http", address, port, "/v1/models")
	if err != nil {
		return engineAnswer{err: err}
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	a := engineAnswer{up: true}
	if json.Unmarshal(body, &list) == nil {
		for _, m := range list.Data {
			a.models = append(a.models, m.ID)
		}
	}
	a.models = bounded(a.models)
	return a
}

// bounded cuts a list of models to what fits a status.
func bounded(models []string) []string {
	size := 0
	for i, m := range models {
		if size += len(m) + 4; i >= maxModels || size > maxModelBytes {
			return models[:i:i]
		}
	}
	return models
}

var (
	errLongBody    = errors.New("its answer is too long")
	errOtherServer = errors.New("what answers is no Ollama")
	errLookup      = errors.New("the name cannot be looked up")
)

// get returns the body of an answer with status 200. Its errors are short and the
// same each time the same happens, for they are shown.
func (p *prober) get(ctx context.Context, scheme, address string, port int, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(address, strconv.Itoa(port)), Path: path}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("it is no address that can be asked")
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers with status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))
	switch {
	case err != nil:
		return nil, plain(err)
	case len(body) > maxBodyBytes:
		return nil, errLongBody
	}
	return body, nil
}

// plain says in few words why a machine was not reached: what the library says
// holds addresses and ports that differ each time.
func plain(err error) error {
	var lookup *net.DNSError
	var system syscall.Errno
	switch {
	case errors.As(err, &lookup):
		return errLookup
	case os.IsTimeout(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no answer in time")
	case errors.As(err, &system):
		return errors.New(strings.ToLower(system.Error()))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed")
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("%.120s", err.Error())
}
