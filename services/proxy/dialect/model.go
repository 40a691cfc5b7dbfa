// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"bytes"
	"strings"
)

// Model returns the model that a JSON body names, as the client spelled it, or
// "" for none. Of several the last counts, as in the engines; Ollama's also fold
// the case of the key (DEC-136).
func Model(engine string, body []byte) string {
	var model []byte // the value as it is written
	eachMember(body, func(key, value []byte) {
		if isName(key, "model", engine == Ollama) && !(engine == Ollama && string(value) == "null") { // Ollama's null changes nothing
			model = value
		}
	})
	return text(model)
}

// maxKey is the longest model key that is built without the heap.
const maxKey = 256

// AppendKey appends the form of a model's name in which two names of one model
// are equal (PX-47, DEC-50). A name of blanks only has an empty key.
//
// LM Studio's names are exact. Ollama's ignore case, the default registry and
// library, and imply the tag latest. A key is its own key.
func AppendKey(dst []byte, engine, name string) []byte {
	name = strings.TrimSpace(name)
	if engine != Ollama {
		return append(dst, name...)
	}
	start := len(dst)
	for i := 0; i < len(name); i++ {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	key := shorten(dst[start:])
	dst = append(dst[:start], key...)
	if model := key[bytes.LastIndexByte(key, '/')+1:]; len(model) > 0 && !bytes.ContainsAny(model, ":@") {
		dst = append(dst, ":latest"...)
	}
	return dst
}

// shorten takes the default registry off registry/library/model, and the default
// library off library/model. Elsewhere the same words are names like any other.
func shorten(key []byte) []byte {
	if bytes.Count(key, []byte("/")) == 2 {
		key = bytes.TrimPrefix(key, []byte("registry.ollama.ai/"))
	}
	if bytes.Count(key, []byte("/")) == 1 {
		key = bytes.TrimPrefix(key, []byte("library/"))
	}
	return bytes.TrimSpace(key)
}

// Key is AppendKey as a string.
func Key(engine, name string) string {
	var buf [maxKey]byte
	return string(AppendKey(buf[:0], engine, name))
}
