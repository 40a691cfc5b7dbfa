// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"nvpair/shared/serviceerror"
)

func TestErrorsForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fixed time: 946684800
		now := int64(946684800000)
		l := errorList{self: "me", list: []serviceerror.ServiceError{
			{ID: "i", Message: "for information", NodeID: "me", Severity: "info", TimestampMillis: now - 1000},
			{ID: "w", Message: "old\x1b[2J", NodeID: "me", Severity: "warning", TimestampMillis: now - 3_600_000, Action: "none"},
			{ID: "n", Message: "new", NodeID: "other", Severity: "warning", TimestampMillis: now + 5000, Action: "restart"},
			{ID: "x", Message: strings.Repeat("y", 5000), NodeID: "me", Severity: "strange", TimestampMillis: now},
			{ID: "e", Message: "bad", NodeID: "me", Severity: "error", TimestampMillis: now - 61_500},
		}}
		var out bytes.Buffer
		l.print(&out, false)
		require.Equal(t, "error  1m1s ago  e\n    bad\n"+
			"warning  0s ago  n  on node other\n    new\n    what to do: restart\n"+
			"warning  1h0m0s ago  w\n    old\uFFFD[2J\n"+
			"strange  0s ago  x\n    "+strings.Repeat("y", maxSentence-1)+"…\n"+
			"info  1s ago  i\n    for information\n", out.String())

		out.Reset()
		errorList{}.print(&out, false)
		require.Equal(t, "no errors\n", out.String())
		out.Reset()
		errorList{}.print(&out, true)
		require.Equal(t, "[]\n", out.String())
	})
}
