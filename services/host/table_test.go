// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForeignTextCannotSteerTheTerminal(t *testing.T) {
	require.Equal(t, "a|\uFFFD[31mred|b\uFFFDc|\uFFFDé 日", line("|", "a", "\x1b[31mred", "b\tc", "\u202eé 日"))
}
