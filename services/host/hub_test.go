// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker/workertest"
)

const notReady = `{"error":{"code":-32000,"message":"the broker is not ready; try again in a moment"}}`

func TestClientsAreToldWhenTheBrokerIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		early := s.connect()
		require.Equal(t, notReady, early.Call("ping", ""))
		b := s.attach()
		require.Equal(t, notReady, early.Call("ping", ""), "attached, not ready")
		b.Send(readyFrame)
		early.Expect(readyFrame)
		s.enter().Idle()
	})
}

func TestTheNodeIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		s.serveBroker()
		synctest.Wait()
		require.Equal(t, `node n-1 is up (nvpair 1.2.3)
  workers  1 running, 1 not installed
  data     /data
  control  /run/n.sock
In another terminal: nvpair status   (or jobs, call ping, stop)
`, s.out.String())
	})
}

// TestIDsAreRewritten: clients number their calls as they like (DEC-120).
func TestIDsAreRewritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		one, two := s.enter(), s.enter()
		one.Send(request(1, "settings/a", `{"x": 1.0}`))
		b.Expect(request(brokerCalls+1, "settings/a", `{"x": 1.0}`))
		two.Send(request(1, "settings/b", ""))
		b.Expect(request(brokerCalls+2, "settings/b", ""))
		two.Send(`{"jsonrpc":"2.0","id":"x","method":"settings/c"}`)
		b.Expect(request(brokerCalls+3, "settings/c", ""))

		b.Send(result(brokerCalls+2, `{"value": 2.0}`))
		two.Expect(result(1, `{"value": 2.0}`))
		const broken = `"error":{"code":-32010,"message":"m","data":{"d": 1}}`
		b.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, brokerCalls+3, broken))
		two.Expect(`{"jsonrpc":"2.0","id":"x",` + broken + `}`)
		b.Send(result(brokerCalls+1, "null"))
		one.Expect(result(1, "null"))
		one.Idle()
		two.Idle()
	})
}

func TestSubscriptionsAreOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		one, two := s.enter(), s.enter()
		for _, ns := range []string{"engine", "workloads", "ollama-proxy"} {
			require.Equal(t, `{"result":{"subscribed":true}}`, one.Call(ns+":subscribe", ""))
		}
		require.Equal(t, `{"result":{"subscribed":true}}`, two.Call("lmstudio-proxy:subscribe", ""))
		b.Idle() // the hub is subscribed itself, always

		events := []string{
			notification("engine:state-changed", `{"engine": "ollama"}`),
			notification("workloads:upsert", `{}`),
			notification("ollama-proxy:proxy/request", `[]`),
		}
		b.Send(events...)
		b.Send(notification("lmstudio-proxy:ready", `{"port":1}`))
		one.Expect(events...)
		one.Idle()
		two.Expect(notification("lmstudio-proxy:ready", `{"port":1}`))
		two.Idle()

		require.Equal(t, `{"result":{"subscribed":false}}`, one.Call("engine:unsubscribe", ""))
		b.Send(events[0])
		one.Idle()
	})
}

func TestANewSubscriberGetsTheNewestBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		early := s.enter()
		require.Equal(t, `{"result":{"subscribed":true}}`, early.Call("discovery:subscribe", ""))
		early.Idle() // there is none yet
		b.Send(
			notification("discovery:nodes-changed", `[{"id": "old"}]`),
			notification("ollama-proxy:ready", `{"port":1}`),
			notification("ollama-proxy:ready", `{"port":2}`),
			notification("engine:ready", `{}`),
		)
		early.Expect(notification("discovery:nodes-changed", `[{"id": "old"}]`))
		b.Send(notification("discovery:nodes-changed", `[{"id": "new"}]`))
		early.Expect(notification("discovery:nodes-changed", `[{"id": "new"}]`))

		late := s.enter()
		for range 2 {
			require.Equal(t, `{"result":{"subscribed":true}}`, late.Call("discovery:subscribe", ""))
			late.Expect(notification("discovery:nodes-changed", `[{"id": "new"}]`))
			require.Equal(t, `{"result":{"subscribed":true}}`, late.Call("ollama-proxy:subscribe", ""))
			late.Expect(notification("ollama-proxy:ready", `{"port":2}`))
			require.Equal(t, `{"result":{"subscribed":true}}`, late.Call("ollama-proxy:subscribe", ""))
			require.Equal(t, `{"result":{"subscribed":true}}`, late.Call("discovery:subscribe", ""))
			require.Equal(t, `{"result":{"subscribed":true}}`, late.Call("engine:subscribe", ""))
			late.Idle() // it was on already; and engines have no baseline
			require.Equal(t, `{"result":{"subscribed":false}}`, late.Call("discovery:unsubscribe", ""))
			require.Equal(t, `{"result":{"subscribed":false}}`, late.Call("ollama-proxy:unsubscribe", ""))
		}
		b.Send(notification("discovery:nodes-changed", `[]`))
		early.Expect(notification("discovery:nodes-changed", `[]`))
		late.Idle()
	})
}

// TestEventsGoToWhoWantsThem is the table of BR section 6.
func TestEventsGoToWhoWantsThem(t *testing.T) {
	for _, tt := range []struct {
		event, namespace string // "" = needs no subscription
	}{
		{"discovery:nodes-changed", "discovery"},
		{"engine:ready", "engine"},
		{"engine:state-changed", "engine"},
		{"engine:settings-changed", ""},
		{"workloads:upsert", "workloads"},
		{"workloads:remove", "workloads"},
		{"ollama-proxy:ready", "ollama-proxy"},
		{"ollama-proxy:node/selection-changed", "ollama-proxy"},
		{"lmstudio-proxy:error", "lmstudio-proxy"},
		{"errors:update", ""},
		{"connection/cluster-identity", ""},
		{"connection/cluster-auto-sync", ""},
		{"cluster:identity-changed", ""},
		{"nodes:changed", ""},
		{"vllm-proxy:ready", ""}, // of a newer broker: unknown is shown
		{"engine", "engine"},
	} {
		c := &hubClient{subscribed: map[string]bool{}}
		if got, want := c.wants(tt.event), tt.namespace == ""; got != want {
			t.Errorf("without a subscription: wants(%q) = %v, want %v", tt.event, got, want)
		}
		for _, ns := range namespaces() {
			c := &hubClient{subscribed: map[string]bool{ns: true}}
			if got, want := c.wants(tt.event), tt.namespace == "" || tt.namespace == ns; got != want {
				t.Errorf("subscribed to %s: wants(%q) = %v, want %v", ns, tt.event, got, want)
			}
		}
	}
}

func TestEventsThatNeedNoSubscriptionReachEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		clients := []*workertest.Peer{s.enter(), s.enter()}
		for _, event := range []string{
			notification("errors:update", `[{"id": "a"}]`),
			notification("connection/cluster-identity", `{"id":"c"}`),
			notification("engine:settings-changed", ""),
		} {
			b.Send(event)
			for _, c := range clients {
				c.Expect(event)
			}
		}
		b.Send(request(1, "connection/cluster-identity", "{}")) // the hub serves no requests
		b.Idle()
	})
}

func TestNotificationsOfClientsAreTheBrokersToJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		c := s.connect()
		c.Send(notification("errors:report", `{"id":"a"}`)) // nobody to take it
		c.Idle()
		b := s.serveBroker()
		c.Expect(readyFrame)
		for _, frame := range []string{
			notification("errors:report", `{"id": "a"}`),
			notification("log/set-level", `{"level":"debug"}`),
			notification("shutdown", ""),
			notification("hub/stop", ""),
			notification("discovery:subscribe", ""),
		} {
			c.Send(frame)
			b.Expect(frame)
		}
		c.Idle()
		require.NoError(t, s.ctx.Err(), "only a request stops the node")
		require.Equal(t, `{"result":{"subscribed":true}}`, c.Call("discovery:subscribe", ""))
	})
}

// big is an event of 1 MiB.
func big(n int) string {
	return notification("connection/cluster-identity", fmt.Sprintf(`"%d %s"`, n, strings.Repeat("x", mib-100)))
}

const mib = 1 << 20

func TestAClientWhoseQueueIsFullIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		stuck, reading := s.enter(), s.enter()
		begin := time.Now()
		for i := range 10 {
			b.Send(big(i))
			reading.Expect(big(i))
		}
		require.Zero(t, time.Since(begin), "nobody waits")
		<-time.After(2 * time.Second) // it is given one to take what is queued
		require.Contains(t, s.log.String(), "WARN hub client does not read, dropped")
		require.Contains(t, b.hubStatus(reading, brokerCalls+1), `"clients":1,`)
		_, err := io.Copy(io.Discard, stuck.Conn)
		require.NoError(t, err, "the hub has hung up")

		again := s.enter() // for new baselines
		b.Send(big(0))
		again.Expect(big(0))
	})
}

func TestAClientThatTakesNoByteIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		stuck, reading := s.enter(), s.enter()
		event := notification("connection/cluster-identity", `{"id":"c"}`)
		b.Send(event)
		reading.Expect(event)
		<-time.After(clientStall - time.Second)
		require.Contains(t, b.hubStatus(reading, brokerCalls+1), `"clients":2,`)
		<-time.After(2 * time.Second)
		require.Contains(t, b.hubStatus(reading, brokerCalls+2), `"clients":1,`)
		stuck.Closed()
	})
}

func TestAClientThatIsOnlySilentStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		c, b := s.connect(), s.serveBroker()
		c.Expect(readyFrame)
		<-time.After(time.Hour)
		require.Contains(t, b.hubStatus(c, brokerCalls+1), `"clients":1,`)
	})
}

// TestTheBrokersDeathIsTold: see DEC-120.
func TestTheBrokersDeathIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		c := s.enter()
		c.Call("discovery:subscribe", "")
		c.Call("ollama-proxy:subscribe", "")
		c.Idle()
		b.Send(notification("discovery:nodes-changed", `[{"id": "old"}]`), notification("ollama-proxy:ready", "{}"))
		c.Next()
		c.Next()
		c.Send(request(1, "engine:start", ""))
		b.Expect(request(brokerCalls+1, "engine:start", ""))
		b.leave()
		c.Expect(failure(1, "broker call failed: jsonrpc peer closed"))
		require.Contains(t, c.Call("ping", ""), `"broker call failed: jsonrpc peer closed"`, "before the supervisor has noticed")
		s.brokerEnded(nil, "exit status 1")
		c.Expect(notification("hub/broker-lost", `{"cause":"exit status 1","restarting":true}`))
		require.Equal(t, notReady, c.Call("ping", ""))
		late := s.connect()
		late.Idle() // not ready
		require.Equal(t, `{"result":{"subscribed":true}}`, late.Call("discovery:subscribe", ""))
		late.Idle() // what a dead broker knew is no baseline

		b = s.serveBroker()
		c.Expect(readyFrame)
		late.Expect(readyFrame)
		b.Send(notification("discovery:nodes-changed", `[]`)) // its baseline for the hub
		c.Expect(notification("discovery:nodes-changed", `[]`))
		late.Expect(notification("discovery:nodes-changed", `[]`))
		c.Send(request(2, "ping", ""))
		b.answer(brokerCalls+1, "ping", "", `{}`)
		c.Expect(result(2, `{}`))
		require.Equal(t, 1, strings.Count(s.log.String(), "ERROR broker ended unexpectedly"))
	})
}

func TestShutdownOfAClientIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b, c := s.serveBroker(), s.enter()
		require.Equal(t, `{"error":{"code":-32601,"message":"method not found: shutdown"}}`, c.Call("shutdown", ""))
		b.Idle()
		require.NoError(t, s.ctx.Err())
	})
}

func TestStopIsAnsweredAndThenEverybodyIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		s.serveBroker()
		c, other := s.enter(), s.enter()
		require.Equal(t, `{"result":null}`, c.Call("hub/stop", ""))
		c.Closed()
		other.Closed()
		require.Error(t, s.ctx.Err())
	})
}

func TestTooManyClientsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		var clients []*workertest.Peer
		for range maxClients {
			clients = append(clients, s.enter())
		}
		s.connect().Closed()
		require.Contains(t, s.log.String(), "WARN control socket: too many clients, refused limit=64")
		require.Contains(t, b.hubStatus(clients[0], brokerCalls+1), `"clients":64,`)
		require.NoError(t, clients[1].Conn.Close())
		synctest.Wait()
		s.enter()
	})
}

// TestOneClientCannotUseUpTheBrokersLink: each has its own share of the calls.
func TestOneClientCannotUseUpTheBrokersLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		greedy, other := s.enter(), s.enter()
		for i := range maxCalls {
			greedy.Send(request(i, "engine:start", ""))
			b.Expect(request(brokerCalls+1+i, "engine:start", ""))
		}
		greedy.Send(request(5000, "engine:start", ""))
		greedy.Expect(failure(5000, "broker call failed: "+jsonrpc.ErrTooManyCalls.Error()))
		next := brokerCalls + maxCalls
		other.Send(request(1, "ping", ""))
		b.answer(next+1, "ping", "", "{}")
		other.Expect(result(1, "{}"))

		b.Send(result(brokerCalls+1, "null"))
		greedy.Expect(result(0, "null"))
		greedy.Send(request(5001, "ping", ""))
		b.answer(next+2, "ping", "", "{}")
		greedy.Expect(result(5001, "{}"))
	})
}

func TestAnAnswerForAClientThatHasGoneIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		c := s.enter()
		c.Send(request(1, "ping", ""))
		b.Expect(request(brokerCalls+1, "ping", ""))
		require.NoError(t, c.Conn.Close())
		synctest.Wait()
		b.Send(result(brokerCalls+1, "{}"))
		other := s.enter()
		other.Idle()
	})
}

// hubStatus returns the node's status as a client sees it. The broker's answer to
// the hub, which has that id, is an empty object.
func (b *fakeBroker) hubStatus(client *workertest.Peer, id int) string {
	b.t.Helper()
	client.Send(request(7, "hub/status", ""))
	b.answer(id, "broker:status", "", "{}")
	return client.Next()
}

func TestStatusIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		c := s.connect()
		pid := fmt.Sprint(os.Getpid())
		require.Equal(t, `{"result":{"state":"starting","reasons":[],"hubPid":`+pid+`,"clients":1,"broker":null}}`,
			c.Call("hub/status", ""))
		b := s.serveBroker()
		c.Expect(readyFrame)

		c.Send(request(1, "hub/status", ""))
		b.answer(brokerCalls+1, "broker:status", "", `{"workers":[{"name":"errors","state":"running"}]}`)
		require.Contains(t, c.Next(), `"result":{"state":"running","reasons":[],`)
		c.Send(request(2, "hub/status", ""))
		b.answer(brokerCalls+2, "broker:status", "", `{"workers":[{"name":"errors","state":"exhausted","lastEnd":"hung"}]}`)
		require.Contains(t, c.Next(), `"result":{"state":"degraded","reasons":["errors is exhausted: hung"],`)

		for i, bad := range []string{`"nonsense"`, ""} {
			begin := time.Now()
			c.Send(request(3, "hub/status", ""))
			b.Expect(request(brokerCalls+3+i, "broker:status", ""))
			if bad != "" {
				b.Send(result(brokerCalls+3+i, bad))
			}
			require.Contains(t, c.Next(), `"result":{"state":"degraded","reasons":["the broker does not answer"],`)
			require.Equal(t, time.Duration(i)*localDeadline, time.Since(begin))
		}
	})
}

func TestTheBrokerIsPinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		b := s.serveBroker()
		b.link.Ping(1)
		b.answer(brokerCalls+1, "ping", "", `{"pong":true}`)
		b.Idle()
		b.link.CloseWrite()
		<-b.ended
	})
}

// stuckTerminal takes nothing until it is let go.
type stuckTerminal chan struct{}

func (s stuckTerminal) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

func TestATerminalThatIsStuckDoesNotStopTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := share(t)
		terminal := make(stuckTerminal)
		s.cfg.Out = terminal
		b := s.serveBroker()
		c := s.enter()
		c.Send(request(1, "ping", ""))
		b.answer(brokerCalls+1, "ping", "", "{}")
		c.Expect(result(1, "{}"))
		close(terminal)
	})
}

// flaky is a listener whose first accepts fail.
type flaky struct {
	net.Listener
	failures int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.failures > 0 {
		f.failures--
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

func TestAcceptingGoesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		s := shareOn(t, &flaky{inner, 3})
		s.clients = inner.conns
		begin := time.Now()
		require.Equal(t, notReady, s.connect().Call("ping", ""))
		require.Equal(t, 300*time.Millisecond, time.Since(begin))
		require.Equal(t, 3, strings.Count(s.log.String(), "WARN control socket: accept failed"))
	})
}
