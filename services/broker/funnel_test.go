// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const now = "946684800000" // at which a synctest bubble begins

func TestReportsAreStampedWhereTheyHaveNothing(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{
			"nothing", `{"id":"a","message":"m"}`,
			`{"id":"a","message":"m","timestamp":` + now + `,"nodeId":"` + nodeID + `"}`,
		},
		{
			"empty and zero", `{"id":"a","message":"","nodeId":"","timestamp":0}`,
			`{"id":"a","message":"","timestamp":` + now + `,"nodeId":"` + nodeID + `"}`,
		},
		{
			"everything", `{"id":"a","message":"m","nodeId":"n","timestamp":5,"severity":"odd","action":"x","engineType":"e",` +
				`"operation":"o","modelName":"<m>"}`,
			`{"id":"a","message":"m","timestamp":5,"nodeId":"n","severity":"odd","action":"x","engineType":"e",` +
				`"operation":"o","modelName":"<m>"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := plant(t)
				store, settings := tr.join(workerErrors, 1), tr.join(workerSettings, 1)
				settings.Send(notification("errors:report", tt.in))
				store.Expect(notification("errors:report", tt.want))
				require.Equal(t, `{"result":null}`, tr.client.Call("errors:report", tt.in))
				store.Expect(notification("errors:report", tt.want))
			})
		})
	}
}

// TestClearsCarryThisNodesName: see EB-2.
func TestClearsCarryThisNodesName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		store, settings := tr.join(workerErrors, 1), tr.join(workerSettings, 1)
		want := notification("errors:clear", `{"id":"a","clearedBy":"`+nodeID+`"}`)
		settings.Send(notification("errors:clear", `{"id":"a"}`))
		store.Expect(want)
		require.Equal(t, `{"result":null}`, tr.client.Call("errors:clear", `{"id":"a","clearedBy":"somebody"}`))
		store.Expect(want)
	})
}

func TestUnfitReportsOfWorkersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		store, settings := tr.join(workerErrors, 1), tr.join(workerSettings, 1)
		settings.Send(notification("errors:report", `{"message":"m"}`), notification("errors:clear", ""))
		store.Idle()
		require.Contains(t, tr.log.String(), `worker=settings method=errors:report err="\"id\" is required"`)
		require.Contains(t, tr.log.String(), `worker=settings method=errors:clear err="\"id\" is required"`)
		settings.Send(request(1, "errors:report", `{"id":"a"}`)) // the broker serves no worker (WR-29)
		store.Idle()
		settings.Idle()
	})
}

// TestCrashesAreReported: see BR-12, BR-13 and EB-6.
func TestCrashesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		store := tr.join(workerErrors, 1)
		entry := func(message string) string {
			return notification("errors:report", `{"id":"supervisor:subprocess-crashed:settings","message":"`+message+
				`","timestamp":`+fmt.Sprint(time.Now().UnixMilli())+`,"nodeId":"`+nodeID+`","severity":"error","action":"none"}`)
		}
		const restarting = "settings ended unexpectedly (exit status 1); it is restarted"

		tr.funnel.clearCrash(workerSettings)
		store.Idle() // a process that never crashed produces no clear
		tr.crash(tr.join(workerSettings, 1))
		store.Expect(entry(restarting))
		tr.crash(tr.join(workerSettings, 2))
		store.Expect(entry(restarting)) // the same id: it refreshes the entry
		tr.funnel.reportExhausted(workerSettings)
		store.Expect(entry("settings keeps failing and stays down; see the log, then restart the node"))

		tr.funnel.clearCrash(workerSettings)
		store.Expect(notification("errors:clear", `{"id":"supervisor:subprocess-crashed:settings","clearedBy":"`+nodeID+`"}`))
		tr.funnel.clearCrash(workerSettings)
		store.Idle()
	})
}

// TestStandingConditionsAreReplayed: see DEC-115.
func TestStandingConditionsAreReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.funnel.reportCrash(workerSettings, "signal: killed")
		tr.funnel.reportCrash(workerScanner, "hung")
		tr.funnel.reportCrash(workerProxy, "exit status 1")
		tr.funnel.clearCrash(workerProxy)
		require.Equal(t, `{"result":null}`, tr.client.Call("errors:report", `{"id":"of the client"}`)) // its own to repeat
		<-time.After(time.Hour)

		store := tr.join(workerErrors, 1)
		got := []string{store.Next(), store.Next()}
		slices.Sort(got)
		require.Contains(t, got[0], `"id":"supervisor:subprocess-crashed:scanner"`)
		require.Contains(t, got[1], `"id":"supervisor:subprocess-crashed:settings"`)
		require.Contains(t, got[1], `"timestamp":`+now, "the time of the crash, not of the replay")
		store.Idle()
	})
}

func TestWhatWorkersReportedIsToldToANewStoreUntilItIsCleared(t *testing.T) { // MN-27
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		store, manual := tr.join(workerErrors, 1), tr.join(workerManual, 1)
		synctest.Wait()
		for _, id := range []string{"a", "b", "c", "d"} {
			manual.Send(notification("errors:report", `{"id":"`+id+`","message":"m"}`))
			store.Next()
		}
		manual.Send(notification("errors:report", `{"id":"large","message":"`+strings.Repeat("x", maxReportedBytes)+`"}`))
		store.Next()
		manual.Send(notification("errors:clear", `{"id":"a"}`))
		store.Next()
		require.Equal(t, `{"result":null}`, tr.client.Call("errors:clear", `{"id":"b"}`)) // a person has read it
		store.Next()
		tr.crash(store)
		manual.Send(notification("errors:clear", `{"id":"c"}`), notification("errors:report", `{"id":"e","message":"m"}`))
		synctest.Wait()
		<-time.After(time.Hour)

		store = tr.join(workerErrors, 2)
		got := []string{store.Next(), store.Next()}
		slices.Sort(got)
		report := func(id string) string {
			return notification("errors:report", `{"id":"`+id+`","message":"m","timestamp":`+now+`,"nodeId":"`+nodeID+`"}`)
		}
		require.Equal(t, []string{report("d"), report("e")}, []string{strings.TrimSpace(got[0]), strings.TrimSpace(got[1])})
		store.Idle()
	})
}

func TestOfTooManyReportsTheOldestIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		for i := range maxReported + 1 {
			require.NoError(t, tr.funnel.reportOfWorker([]byte(fmt.Sprintf(`{"id":"%d","message":"m"}`, i))))
			<-time.After(time.Second)
		}
		require.Len(t, tr.funnel.reported, maxReported)
		require.NotContains(t, tr.funnel.reported, "0")
	})
}

// TestTheStoresOwnEndIsNoEntry: see BR-14.
func TestTheStoresOwnEndIsNoEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		store := tr.join(workerErrors, 1)
		store.Send(notification("errors:update", `[{"id":"a"},{"id":"b"}]`))
		tr.client.Expect(notification("errors:update", `[{"id":"a"},{"id":"b"}]`))
		require.Equal(t, 2, tr.funnel.count())
		tr.crash(store)
		tr.client.Expect(notification("errors:update", "[]")) // nobody holds them any more
		require.Zero(t, tr.funnel.count())
		require.Contains(t, tr.log.String(), `ERROR worker ended unexpectedly worker=errors err="exit status 1"`)
		require.Equal(t, `{"result":[]}`, tr.client.Call("errors:get-initial", ""))
		require.Equal(t, `{"result":null}`, tr.client.Call("errors:report", `{"id":"a"}`))
		tr.join(workerErrors, 2).Idle()
	})
}

func TestUpdatesReachTheClientAsTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		store := tr.join(workerErrors, 1)
		list := `[{"id":"a","unknown": 1.0,"message":"\u00e9"}]`
		store.Send(notification("errors:update", list))
		tr.client.Expect(notification("errors:update", list))
		store.Send(notification("errors:update", ""))
		tr.client.Idle()
	})
}
