// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/supervise"
)

func TestStatusIsTheWholeTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.byName[workerErrors].child = supervise.New(tr.childConfig(tr.byName[workerErrors]))
		tr.byName[workerSettings].failed = "permission denied"
		store := tr.join(workerErrors, 1)
		store.send(notification("worker/hello", `{"liveness":1,"version":"4.5.6"}`), notification("errors:update", `[{},{}]`))
		tr.client.line()
		<-time.After(1500 * time.Millisecond)

		raw := tr.client.call("broker:status", "")
		raw = strings.TrimPrefix(strings.Replace(raw, fmt.Sprintf(`"pid":%d,`, os.Getpid()), `"pid":99,`, 1), `"result":`)
		var got bytes.Buffer
		require.NoError(t, json.Indent(&got, []byte(raw), "", "  "))
		got.WriteByte('\n')
		golden(t, "status.json", got.Bytes())
	})
}
