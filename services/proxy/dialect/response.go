// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"bytes"
)

// maxResponseID bounds the id of a response.
const maxResponseID = 256

// ResponseID returns the id of the response whose answer begins so, whole or as a
// stream, or "". Engines name it before any content.
func ResponseID(begin []byte) string {
	_, rest, found := bytes.Cut(begin, []byte(`"id":`))
	if !found {
		return ""
	}
	rest = bytes.TrimLeft(rest, " ")
	if len(rest) == 0 || rest[0] != '"' {
		return ""
	}
	id, _, ended := bytes.Cut(rest[1:], []byte{'"'})
	if !ended || len(id) > maxResponseID {
		return ""
	}
	return string(id)
}

// Previous returns the id of the response that a request continues, or "".
func Previous(body []byte) string {
	id := ""
	eachMember(body, func(key, value []byte) {
		if isName(key, "previous_response_id", false) {
			id = text(value)
		}
	})
	if len(id) > maxResponseID {
		return ""
	}
	return id
}
