// SPDX-License-Identifier: Apache-2.0

package clustertrust_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/clustertrust"
	"nvpair/internal/clustertrust/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(m *clustertest.Member) *clustertrust.View {
	return clustertrust.Open(m.Dir, slog.New(slog.DiscardHandler))
}

func TestAKeyAloneIsNoMembership(t *testing.T) {
	m := clustertest.New(t)
	v := open(m)
	require.False(t, v.State().Clustered())
	require.Empty(t, v.State().Self())
	require.False(t, v.State().Trusts(m.UUID), "who is no member trusts not even itself")

	m.Admit("c1", 1)
	require.True(t, v.Refresh().Clustered())
	require.Equal(t, m.UUID, v.State().Self())
	require.True(t, v.State().Trusts(m.UUID))
	require.Empty(t, v.State().Peers())
}

func TestAPinAloneIsMembershipAndItsRemovalEndsIt(t *testing.T) {
	m, other := clustertest.New(t), clustertest.New(t)
	v := open(m)
	m.Pin(other)
	require.True(t, v.Refresh().Clustered())
	require.True(t, v.State().Trusts(other.UUID))
	require.Equal(t, []string{other.UUID}, v.State().Peers())
	m.Unpin(other)
	require.False(t, v.Refresh().Clustered())
	require.False(t, v.State().Trusts(other.UUID))
}

func TestNoDirectoryIsNoMembership(t *testing.T) {
	var none *clustertrust.View
	require.False(t, none.Refresh().Clustered())
	require.False(t, none.State().Clustered())
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "missing")} {
		v := clustertrust.Open(dir, slog.New(slog.DiscardHandler))
		require.False(t, v.Refresh().Clustered(), dir)
		require.Empty(t, v.State().Peers(), dir)
	}
}

func TestAPendingTeardownIsNoMembership(t *testing.T) {
	m, other := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(m, other)
	m.Admit("c1", 1)
	v := open(m)
	require.True(t, v.State().Clustered())
	journal := filepath.Join(m.Dir, "teardown.pending")
	require.NoError(t, os.WriteFile(journal, []byte("{}"), 0o600))
	require.False(t, v.Refresh().Clustered())
	require.False(t, v.State().Trusts(other.UUID))
	require.NoError(t, os.Remove(journal))
	require.True(t, v.Refresh().Trusts(other.UUID))
}

func TestNothingNewIsTheSameState(t *testing.T) {
	m, other := clustertest.New(t), clustertest.New(t)
	m.Pin(other)
	v := open(m)
	first := v.State()
	require.Same(t, first, v.Refresh())
	m.Pin(other) // written again, the same pin
	require.Same(t, first, v.Refresh())
}

func TestAnAdmissionThatIsNoneIsNone(t *testing.T) {
	m := clustertest.New(t)
	v := open(m)
	for _, text := range []string{"", "{", "[]", `{"clusterId":"c1"}`, `{"epoch":3}`, `{"clusterId":"","epoch":3}`, `{"clusterId":"c1","epoch":-1}`} {
		require.NoError(t, os.WriteFile(filepath.Join(m.Dir, "admission.json"), []byte(text), 0o600))
		require.False(t, v.Refresh().Clustered(), text)
	}
}

func TestAFileThatIsNoPinIsNone(t *testing.T) {
	m, other, third := clustertest.New(t), clustertest.New(t), clustertest.New(t)
	m.Pin(other)
	trusted := filepath.Join(m.Dir, "trusted")
	good, err := os.ReadFile(filepath.Join(trusted, other.UUID+".json"))
	require.NoError(t, err)
	for name, text := range map[string]string{
		third.UUID + ".json": string(good), // the certificate of another node under this name
		"a.json":             `{"nodeUuid":"a","certPem":"no certificate"}`,
		"b.json":             "{",
		"c.json.tmp":         string(good),
		"NUL.json":           `{"nodeUuid":"NUL"}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(trusted, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(trusted, "d.json"), 0o700))
	require.Equal(t, []string{other.UUID}, open(m).State().Peers())
}

func TestWhatCannotBeReadStaysAsItWas(t *testing.T) {
	m, other, third := clustertest.New(t), clustertest.New(t), clustertest.New(t)
	clustertest.Pair(m, other, third)
	v := open(m)
	pin := filepath.Join(m.Dir, "trusted", other.UUID+".json")
	good, err := os.ReadFile(pin)
	require.NoError(t, err)
	require.NoError(t, os.Link(pin, pin+".link")) // a file with a second name is not read

	require.True(t, v.Refresh().Trusts(other.UUID))
	require.True(t, v.State().Trusts(third.UUID))
	require.NoError(t, os.Remove(pin+".link"))
	require.NoError(t, os.WriteFile(pin, good, 0o600))
	require.True(t, v.Refresh().Trusts(other.UUID))

	require.NoError(t, os.WriteFile(filepath.Join(m.Dir, "node.key"), []byte("damaged"), 0o600))
	require.True(t, v.Refresh().Clustered(), "an identity that was loaded is kept")
	require.False(t, open(m).State().Clustered(), "but not made of nothing")
}

func TestAPinWithAnotherCertificateReplacesTheFormer(t *testing.T) {
	m, other := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(m, other)
	v := open(m)
	before := v.State()
	other.Renew()
	m.Pin(other)
	require.NotSame(t, before, v.Refresh())
	require.True(t, v.State().Trusts(other.UUID))
}

// TestAPinThatIsRewrittenInPlaceIsNoticed: the directory's own stamp does not tell.
func TestAPinThatIsRewrittenInPlaceIsNoticed(t *testing.T) {
	m, other := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(m, other)
	m.Age()
	v := open(m)
	first := v.State()
	require.True(t, first.Trusts(other.UUID))
	require.Same(t, first, v.Refresh())
	require.NoError(t, os.WriteFile(filepath.Join(m.Dir, "trusted", other.UUID+".json"), []byte("{}"), 0o600))
	require.False(t, v.Refresh().Trusts(other.UUID))
}

// TestManyPinsAreLookedAtInTurn: one that is removed or replaced counts at once all the
// same, one that is rewritten in place soon.
func TestManyPinsAreLookedAtInTurn(t *testing.T) {
	m := clustertest.New(t)
	var others []*clustertest.Member
	for range 40 {
		others = append(others, clustertest.New(t))
		m.Pin(others[len(others)-1])
	}
	m.Age()
	v := open(m)
	require.Len(t, v.State().Peers(), len(others))
	m.Unpin(others[0])
	require.False(t, v.Refresh().Trusts(others[0].UUID))
	others[1].Renew()
	before := v.State()
	m.Pin(others[1])
	require.NotSame(t, before, v.Refresh())

	m.Age()
	v.Refresh()
	require.NoError(t, os.WriteFile(filepath.Join(m.Dir, "trusted", others[2].UUID+".json"), []byte("{}"), 0o600))
	require.Eventually(t, func() bool { return !v.Refresh().Trusts(others[2].UUID) }, 5*time.Second, 10*time.Millisecond)
}

// TestWhatIsNotSettledIsReadTenTimesASecond: a file whose content changes under the
// same stamp tells when it is read. Its time is ahead of the clock, so that it never
// settles.
func TestWhatIsNotSettledIsReadTenTimesASecond(t *testing.T) {
	m := clustertest.New(t)
	path := filepath.Join(m.Dir, "admission.json")
	ahead := time.Now().Add(time.Hour)
	admit := func(id string) {
		t.Helper()
		m.Admit(id, 1)
		require.NoError(t, os.Chtimes(path, ahead, ahead))
	}
	admit("c1")
	m.Age("admission.json")
	v := open(m)
	require.Equal(t, "c1", v.State().ClusterID)
	var before time.Time // the last reading
	for v.State().ClusterID == "c1" {
		admit("c2")
		before = time.Now()
		v.Refresh()
	}
	admit("c3")
	state := v.Refresh()
	if time.Since(before) < 100*time.Millisecond {
		require.Equal(t, "c2", state.ClusterID, "it was read a moment ago")
	}
	require.Eventually(t, func() bool { return v.Refresh().ClusterID == "c3" }, 5*time.Second, 10*time.Millisecond)
}

func TestAnAbsenceThatWasReadIsSure(t *testing.T) {
	m := clustertest.New(t)
	v := open(m)
	require.False(t, v.State().Unsure())
	require.NoError(t, os.RemoveAll(m.Dir))
	require.False(t, v.Refresh().Clustered())
	require.False(t, v.State().Unsure())
	var none *clustertrust.View
	require.False(t, none.Refresh().Unsure())
}

func TestAKeyPairThatIsDamagedLeavesMembershipUnsure(t *testing.T) {
	m := clustertest.New(t)
	require.NoError(t, os.WriteFile(filepath.Join(m.Dir, "node.key"), []byte("damaged"), 0o600))
	require.False(t, open(m).State().Unsure(), "without an admission or a pin it would be none with any key")
	m.Admit("c1", 1)
	require.False(t, open(m).State().Clustered())
	require.True(t, open(m).State().Unsure())
}
