// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAProgramThatCannotBeBuiltSaysWhy(t *testing.T) {
	_, err := makeProgram(t.TempDir(), "tests/nowhere")
	require.ErrorContains(t, err, "tests/nowhere")
}
