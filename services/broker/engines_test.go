// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnEngineMayBeSilentForAWhile(t *testing.T) {
	s := &facadeState{}
	ports := []int{1, 2}
	for _, tt := range []struct {
		seen []sight
		want []int
	}{
		{[]sight{silence, engineThere}, []int{2}}, // one that was never there need not be waited for
		{[]sight{engineThere, engineThere}, []int{1, 2}},
		{[]sight{silence, nothing}, []int{1}},
		{[]sight{silence, nothing}, []int{1}},
		{[]sight{silence, engineThere}, []int{2}},
		{[]sight{engineThere, engineThere}, []int{1, 2}},
		{[]sight{silence, silence}, []int{1, 2}},
		{[]sight{engineThere, nothing}, []int{1}},
	} {
		seen := make([]sighting, len(ports))
		for i := range seen {
			seen[i].sight = tt.seen[i]
		}
		got := s.judge(ports, seen)
		require.Equal(t, tt.want, got, "%v", tt.seen)
		s.backends = got
	}
}

func TestAnEngineKeepsItsModelsWhileItIsSilent(t *testing.T) {
	s := &facadeState{}
	s.backends = s.judge([]int{1}, []sighting{{engineThere, []string{"a"}}})
	for range maxSilentLooks - 1 {
		require.Equal(t, []int{1}, s.judge([]int{1}, []sighting{{sight: silence}}))
		require.Equal(t, []string{"a"}, s.modelsAtLocked(1))
	}
	require.Empty(t, s.judge([]int{1}, []sighting{{sight: silence}}))
	require.Empty(t, s.modelsAtLocked(1))
}

func TestWhatIsShownOfAnEnginesModelsIsBounded(t *testing.T) {
	require.Equal(t, []string{"a", "b"}, listed([]byte(`{"object":"list","data":[{"id":"a"},{"id":7},{},{"id":"b"}]}`)))
	require.Nil(t, listed([]byte(`{"object":"list","data":null}`)))
	many := `{"object":"list","data":[{"id":"x"}` + strings.Repeat(`,{"id":"x"}`, 2*maxShownModels) + `]}`
	require.Len(t, listed([]byte(many)), maxShownModels)
	long := `{"id":"` + strings.Repeat("x", maxShownBytes/2) + `"}`
	require.Len(t, listed([]byte(`{"object":"list","data":[`+long+`,`+long+`,`+long+`]}`)), 2)
}

func TestALookTellsAnEngineFromWhatIsNone(t *testing.T) {
	release := make(chan struct{})
	answers := map[string]string{"engine": `{"object":"list","data":[]}`, "null": `{"object":"list","data":null}`, "other": `{"error":"x"}`, "text": `hello`}
	want := map[string]sight{"engine": engineThere, "null": engineThere, "other": stranger, "text": stranger}
	probe := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for name, body := range answers {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		require.Equal(t, want[name], look(context.Background(), probe, s.Listener.Addr().(*net.TCPAddr).Port).sight, name)
		s.Close()
		require.Equal(t, nothing, look(context.Background(), probe, s.Listener.Addr().(*net.TCPAddr).Port).sight, "refused")
	}
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer mute.Close()
	defer close(release)
	probe.Timeout = 20 * time.Millisecond
	require.Equal(t, silence, look(context.Background(), probe, mute.Listener.Addr().(*net.TCPAddr).Port).sight)
}
