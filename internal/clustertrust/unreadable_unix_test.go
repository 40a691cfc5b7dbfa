// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clustertrust_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/clustertrust"
	"nvpair/internal/clustertrust/clustertest"
)

// Ways to make a name unreadable, for every user.
var unreadable = map[string]func(path string) error{
	"a loop":       func(path string) error { return os.Symlink(filepath.Base(path), path) },
	"a directory":  func(path string) error { return os.Mkdir(path, 0o700) },
	"a named pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
}

// TestAPartThatCannotBeReadKeepsMembership: see SEC-T11, SEC-T12.
func TestAPartThatCannotBeReadKeepsMembership(t *testing.T) {
	for _, part := range []string{"node.crt", "node.key", "admission.json", "trusted", "trusted/pin"} {
		for how, spoil := range unreadable {
			if part == "trusted" && how == "a directory" {
				continue // which it is
			}
			t.Run(part+" is "+how, func(t *testing.T) {
				m, other := clustertest.New(t), clustertest.New(t)
				if part == "admission.json" {
					m.Admit("c1", 1)
				} else {
					m.Pin(other)
				}
				m.Age()
				v := open(m)
				before := v.State()
				require.True(t, before.Clustered())

				path := filepath.Join(m.Dir, part)
				if part == "trusted/pin" {
					path = filepath.Join(m.Dir, "trusted", other.UUID+".json")
				}
				require.NoError(t, os.Rename(path, m.Dir+".away"))
				require.NoError(t, spoil(path))
				after := refresh(t, v)
				require.True(t, after.Clustered())
				require.False(t, after.Unsure())
				require.Equal(t, before.ClusterID, after.ClusterID)
				require.Equal(t, before.Peers(), after.Peers())

				fresh := open(m).State()
				require.False(t, fresh.Clustered(), "not made of nothing")
				require.True(t, fresh.Unsure())

				require.NoError(t, os.Remove(path)) // now it is read that there is none
				if part == "node.crt" || part == "node.key" {
					require.True(t, refresh(t, v).Clustered())
					return
				}
				require.False(t, refresh(t, v).Clustered())
				require.False(t, v.State().Unsure())
			})
		}
	}
}

// refresh must not wait for anything, such as the writer of a pipe.
func refresh(t *testing.T, v *clustertrust.View) *clustertrust.State {
	t.Helper()
	done := make(chan *clustertrust.State, 1)
	go func() { done <- v.Refresh() }()
	select {
	case s := <-done:
		return s
	case <-time.After(10 * time.Second):
		t.Fatal("Refresh waits")
		return nil
	}
}

func TestADirectoryThatCannotBeReachedKeepsWhatWasKnown(t *testing.T) {
	for name, member := range map[string]bool{"member": true, "no member": false} {
		m, other := clustertest.New(t), clustertest.New(t)
		if member {
			m.Pin(other)
		}
		v := open(m)
		require.NoError(t, os.Rename(m.Dir, m.Dir+".away"))
		require.NoError(t, os.WriteFile(m.Dir, nil, 0o600)) // each look fails, that for a journal, too
		require.Equal(t, member, v.Refresh().Clustered(), name)
		require.Equal(t, member, v.State().Trusts(other.UUID), name)
		require.Equal(t, !member, v.State().Unsure(), name)
		require.True(t, open(m).State().Unsure(), name)

		require.NoError(t, os.Remove(m.Dir))
		require.NoError(t, os.Rename(m.Dir+".away", m.Dir))
		require.Equal(t, member, v.Refresh().Clustered(), name)
		require.False(t, v.State().Unsure(), name)
	}
}

func TestAJournalIsOneWhateverItIs(t *testing.T) {
	for how, place := range map[string]func(path string) error{
		"a link that leads nowhere": func(path string) error { return os.Symlink("nowhere", path) },
		"a loop":                    unreadable["a loop"],
		"a directory":               unreadable["a directory"],
		"a named pipe":              unreadable["a named pipe"],
	} {
		m := clustertest.New(t)
		m.Admit("c1", 1)
		m.Age()
		v := open(m)
		journal := filepath.Join(m.Dir, "teardown.pending")
		require.True(t, v.State().Clustered(), how)
		require.NoError(t, place(journal), how)
		require.False(t, v.Refresh().Clustered(), how)
		require.False(t, v.State().Unsure(), how)
		require.NoError(t, os.Remove(journal), how)
		require.True(t, v.Refresh().Clustered(), how)
	}
}

// TestAPinThatCannotBeReadIsNoBurdenForTheOthers: those are not read again with it.
func TestAPinThatCannotBeReadIsNoBurdenForTheOthers(t *testing.T) {
	m, other := clustertest.New(t), clustertest.New(t)
	m.Pin(other)
	pin := filepath.Join(m.Dir, "trusted", other.UUID+".json")
	require.NoError(t, unreadable["a loop"](filepath.Join(m.Dir, "trusted", "a.json")))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(pin, old, old))
	v := open(m)
	require.True(t, v.State().Trusts(other.UUID))

	info, err := os.Stat(pin)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(pin, make([]byte, info.Size()), 0o600)) // would be seen to be no pin if it were read
	require.NoError(t, os.Chtimes(pin, old, old))
	<-time.After(150 * time.Millisecond) // the pin that cannot be read is due again
	require.True(t, v.Refresh().Trusts(other.UUID))
}
