// SPDX-License-Identifier: Apache-2.0

package appdir

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// mintMode makes the test binary a process that prints the id of a directory.
const mintMode = "print-node-id"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == mintMode {
		id, err := NodeID(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(id)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	idA = "11111111-2222-4333-8444-555555555555"
	idB = "AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE" // upper case is kept
)

func idJSON(id string) string { return `{"node_uuid":"` + id + `","created_at":1}` }

// base returns a directory that does not exist yet.
func base(t *testing.T) string { return filepath.Join(t.TempDir(), "base") }

func TestMintedIDIsSavedAndStable(t *testing.T) {
	b := base(t)
	begin := time.Now().UnixMilli()
	id, err := NodeID(b)
	require.NoError(t, err)
	require.Equal(t, uuid.Version(4), uuid.MustParse(id).Version())

	var f identityFile
	require.NoError(t, json.Unmarshal([]byte(content(t, b, "node-id.json")), &f))
	require.Equal(t, id, f.NodeUUID)
	require.GreaterOrEqual(t, f.CreatedAt, begin)
	require.LessOrEqual(t, f.CreatedAt, time.Now().UnixMilli())

	again, err := NodeID(b)
	require.NoError(t, err)
	require.Equal(t, id, again)
}

func TestClusterIdentityComesFirst(t *testing.T) {
	b := base(t)
	put(t, idJSON(idA), b, "node-id.json")
	id, err := NodeID(b)
	require.NoError(t, err)
	require.Equal(t, idA, id)

	put(t, idJSON(idB), b, "cluster", "identity.json")
	id, err = NodeID(b)
	require.NoError(t, err)
	require.Equal(t, idB, id)
}

func TestNothingIsMintedBesideAClusterIdentity(t *testing.T) {
	b := base(t)
	put(t, idJSON(idB), b, "cluster", "identity.json")
	_, err := NodeID(b)
	require.NoError(t, err)
	entries, err := os.ReadDir(b)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestDamagedIdentityIsAnErrorAndKept(t *testing.T) {
	for _, name := range []string{"node-id.json", filepath.Join("cluster", "identity.json")} {
		for _, text := range []string{
			"", "{", "null", "{}", idJSON(""), idJSON("host"), idJSON("{" + idA + "}"), idJSON(idA) + "x",
			idJSON(uuid.Nil.String()), `{"node_uuid":7}`,
		} {
			b := base(t)
			if name != "node-id.json" {
				put(t, idJSON(idA), b, "node-id.json") // no way out
			}
			path := put(t, text, b, name)
			id, err := NodeID(b)
			require.ErrorContains(t, err, path+" is damaged", "%q", text)
			require.ErrorContains(t, err, "restore it from a backup, or delete it")
			require.Empty(t, id)
			require.Equal(t, text, content(t, path))
		}
	}
}

func TestProcessesThatMintAtOnceAgree(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	for range 3 {
		b := base(t)
		ids := make([]string, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				var err error
				var out []byte
				if i%2 == 0 {
					ids[i], err = NodeID(b)
				} else {
					out, err = exec.Command(exe, mintMode, b).Output()
					ids[i] = string(out)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		saved, err := NodeID(b)
		require.NoError(t, err)
		for _, id := range ids {
			require.Equal(t, saved, id)
		}
	}
}
