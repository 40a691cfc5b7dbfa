// SPDX-License-Identifier: Apache-2.0

package jsoncheck_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsoncheck"
)

func TestNestingIsBounded(t *testing.T) {
	for depth, want := range map[int]bool{1: true, jsoncheck.MaxDepth: true, jsoncheck.MaxDepth + 1: false} {
		nested := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		require.Equal(t, want, jsoncheck.Valid([]byte(nested)), depth)
	}
	brackets := `"` + strings.Repeat(`[{\"`, jsoncheck.MaxDepth) + `"`
	require.True(t, jsoncheck.Valid([]byte(brackets)), "brackets in a string do not nest")
	require.True(t, jsoncheck.TooDeep([]byte(strings.Repeat("[", 32<<20))))
	require.False(t, jsoncheck.Valid([]byte("{")))
}

func Example() {
	fmt.Println(jsoncheck.Valid([]byte(`{"a":[1]}`)), jsoncheck.Valid([]byte("{")))
	// Output: true false
}
