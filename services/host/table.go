// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"
	"unicode"
)

// line joins the cells of a table's row. Names and texts in it come from other
// machines and programs: what could move the cursor, or hide something, becomes a
// visible mark.
func line(gap string, cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.Map(visible, c)
	}
	return strings.Join(cells, gap)
}

func visible(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '\uFFFD'
}
