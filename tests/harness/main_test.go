// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"runtime"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

// fakeTB stands for a test that is expected to fail. It collects what the test would report; its end is end().
type fakeTB struct {
	testing.TB

	reports  []string // of Errorf and Fatalf
	logs     []string
	cleanups []func()
}

func (f *fakeTB) Helper()                   {}
func (f *fakeTB) Failed() bool              { return len(f.reports) > 0 }
func (f *fakeTB) Cleanup(do func())         { f.cleanups = append(f.cleanups, do) }
func (f *fakeTB) Logf(s string, a ...any)   { f.logs = append(f.logs, fmt.Sprintf(s, a...)) }
func (f *fakeTB) Errorf(s string, a ...any) { f.reports = append(f.reports, fmt.Sprintf(s, a...)) }
func (f *fakeTB) Skipf(s string, a ...any) {
	f.logs = append(f.logs, fmt.Sprintf(s, a...))
	runtime.Goexit()
}
func (f *fakeTB) Fatalf(s string, a ...any) { f.Errorf(s, a...); runtime.Goexit() }

// run calls do, which may end by a fatal failure of the fake test, and returns when it has ended.
func (f *fakeTB) run(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done // do has deadlines of its own
}

// end runs what the end of the fake test would.
func (f *fakeTB) end() {
	for len(f.cleanups) > 0 {
		last := len(f.cleanups) - 1
		do := f.cleanups[last]
		f.cleanups = f.cleanups[:last]
		f.run(do)
	}
}
