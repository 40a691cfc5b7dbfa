// SPDX-License-Identifier: Apache-2.0

package appdir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"nvpair/internal/atomicfile"
	"nvpair/internal/filelock"
)

const (
	maxIdentityBytes = 64 << 10

	// mintWait bounds the wait for another process that is minting, which takes
	// milliseconds.
	mintWait = 10 * time.Second
)

// identityFile is the form of cluster/identity.json and of node-id.json.
type identityFile struct {
	NodeUUID  string `json:"node_uuid"`
	CreatedAt int64  `json:"created_at"` // Unix milliseconds
}

// NodeID returns the identity of the node whose files lie in base (WR-67): the
// one in cluster/identity.json, else the one in node-id.json, else a random
// UUID that is first saved in node-id.json. Processes that mint at once end
// with one id.
//
// A file that is damaged or unsafe is an error that says how to repair it; the
// file is kept and nothing is minted in its place, for peers know the node by
// the old id (DEC-122). An id that cannot be saved is an error as well.
func NodeID(base string) (string, error) {
	if id, err := savedID(base); id != "" || err != nil {
		return id, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), mintWait)
	defer cancel()
	// A kernel lock and not an exclusive create: that would have to link a whole
	// file into place, and until its temporary name is gone readers would see,
	// and refuse, a file with two links.
	lock, err := filelock.Acquire(ctx, filepath.Join(base, "run", "node-id.lock"),
		filelock.Info{PID: os.Getpid(), StartTime: time.Now().Format(time.RFC3339), Kind: "node-id"})
	if err != nil {
		return "", fmt.Errorf("mint the node's identity: %w", err)
	}
	id, err := mintLocked(base)
	return id, errors.Join(err, lock.Release())
}

func nodeIDPath(base string) string { return filepath.Join(base, "node-id.json") }

// savedID returns the id of the first of the two files that exists, "" if none
// does.
func savedID(base string) (string, error) {
	for _, path := range []string{filepath.Join(base, "cluster", "identity.json"), nodeIDPath(base)} {
		data, err := atomicfile.Read(path, maxIdentityBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read the node's identity: %w", err)
		}
		return decodeID(path, data)
	}
	return "", nil
}

// decodeID returns the id as it is written: peers compare it as a string.
func decodeID(path string, data []byte) (string, error) {
	var f identityFile
	err := json.Unmarshal(data, &f)
	if err == nil {
		var id uuid.UUID
		id, err = uuid.Parse(f.NodeUUID)
		// Parse also takes braces and other forms, which no release wrote.
		if err == nil && (len(f.NodeUUID) != len(id.String()) || id == uuid.Nil) {
			err = errors.New("node_uuid is not a UUID")
		}
	}
	if err != nil {
		return "", fmt.Errorf("the node's identity in %s is damaged: %w; the file was kept; restore it from a backup, "+
			"or delete it to start with another identity, which peers do not know", path, err)
	}
	return f.NodeUUID, nil
}

// mintLocked needs the lock of NodeID.
func mintLocked(base string) (string, error) {
	if id, err := savedID(base); id != "" || err != nil {
		return id, err // another process was faster
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("mint the node's identity: no random source: %w", err)
	}
	data, err := json.Marshal(identityFile{id.String(), time.Now().UnixMilli()})
	if err != nil {
		return "", err
	}
	path := nodeIDPath(base)
	atomicfile.RemoveLeftovers(path) // the lock makes us its only writer
	if err := atomicfile.Write(path, data); err != nil {
		return "", fmt.Errorf("save the node's identity: %w", err)
	}
	return id.String(), nil
}
