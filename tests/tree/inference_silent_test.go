// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/engine"
)

// soakWanted runs what takes minutes, and the largest cases of what otherwise runs in a smaller one.
var soakWanted = flag.Bool("tree.soak", false, "run the tests that take minutes (make soak)")

// silence is how long an engine says nothing in a test: well over the 1 s after which a request could be tried again.
const silence = 3 * time.Second

// A model that is loaded from a slow disk takes that long, and a client may wait for it (DEC-11).
func TestAnEngineThatIsSilentForMinutesIsWaitedFor(t *testing.T) {
	if !*soakWanted {
		t.Skip("needs -args -tree.soak, as make soak gives it")
	}
	t.Parallel()
	const minutes = 5 * time.Minute
	for _, at := range []engine.Moment{engine.AtBeforeHeaders, engine.AtAfterHeaders, engine.AtMidStream} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			n := startInference(t, engine.Config{})
			n.http.Timeout = minutes + inferenceWithin
			require.NoError(t, n.engine.Faults.Set(engine.Fault{
				Kind: engine.KindSilence, At: at, Ms: minutes.Milliseconds(), Path: "/v1/chat/completions"}))
			require.Equal(t, whole, sight(chat(n.http, 11434, "demo")))
			require.Equal(t, 1, asks(n.engine)["demo"])
			require.Equal(t, map[string]int{"completed": 1}, n.jobs.awaitEnded(t, 1))
		})
	}
}
