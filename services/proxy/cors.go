// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// pageRequest is what a web page asks of another origin. Engines decide what
// pages may do: the proxy permits what every engine permits, and nothing of its
// own (PX-92).
type pageRequest struct {
	origin  string   // "" when no page asks
	method  string   // of the request that a preflight asks for, "" for a request that is there
	headers []string // that it will carry: the header's lines as they came
}

// asked returns what the page behind a request asks; preflight is false for a
// request that is there already. A header sent twice is malformed: it becomes a
// list, which is no origin and no method.
func asked(r *http.Request) (q pageRequest, preflight bool) {
	q.origin = strings.Join(r.Header["Origin"], ",")
	if r.Method != http.MethodOptions || q.origin == "" {
		return q, false
	}
	q.method = strings.Join(r.Header["Access-Control-Request-Method"], ",")
	q.headers = r.Header["Access-Control-Request-Headers"]
	return q, q.method != ""
}

// combine makes one permission of the answers of several engines: the headers
// that tell the page, or false if one of them does not permit what is asked, if
// anything is malformed, or if there is no answer (PX-95). The permission is no
// wider than any engine's.
func (q pageRequest) combine(answers []http.Header) (http.Header, bool) {
	headers, ok := q.wanted()
	if !ok || len(answers) == 0 {
		return nil, false
	}
	credentials := true
	vary := map[string]string{"origin": "Origin"} // by name in lower case
	for _, h := range answers {
		permitted, named := q.permission(h, headers)
		names, ok := tokens(h["Vary"])
		if !permitted || !ok {
			return nil, false
		}
		credentials = credentials && named && slices.Equal(h["Access-Control-Allow-Credentials"], []string{"true"})
		for _, name := range names {
			vary[strings.ToLower(name)] = http.CanonicalHeaderKey(name)
		}
	}
	out := http.Header{"Access-Control-Allow-Origin": {q.origin}}
	if credentials {
		out.Set("Access-Control-Allow-Credentials", "true")
	}
	if q.method != "" {
		out.Set("Access-Control-Allow-Methods", q.method)
		out.Set("Access-Control-Max-Age", "60")
		if len(headers) > 0 {
			out.Set("Access-Control-Allow-Headers", strings.Join(headers, ", "))
		}
		for _, name := range [...]string{"Access-Control-Request-Method", "Access-Control-Request-Headers"} {
			vary[strings.ToLower(name)] = name
		}
	}
	out.Set("Vary", strings.Join(slices.Sorted(maps.Values(vary)), ", "))
	return out, true
}

// wanted returns the names of the headers a page wants to send, false if what it
// asks is malformed. "*" would come back as a wildcard.
func (q pageRequest) wanted() (headers []string, ok bool) {
	headers, ok = tokens(q.headers)
	return headers, ok && isOrigin(q.origin) && !slices.Contains(headers, "*") &&
		(q.method == "" || isToken(q.method) && q.method != "*")
}

// permission reports whether an engine's answer permits the request, and whether
// it does so without a wildcard.
func (q pageRequest) permission(h http.Header, headers []string) (permitted, named bool) {
	permitted, named = q.permitsOrigin(h)
	if !permitted || q.method == "" {
		return permitted, named
	}
	methods, ok := tokens(h["Access-Control-Allow-Methods"])
	allowed, ok2 := tokens(h["Access-Control-Allow-Headers"])
	if !ok || !ok2 {
		return false, false
	}
	// Nobody needs to allow these three; names of methods differ by letter case.
	if !slices.Contains([]string{"GET", "HEAD", "POST"}, q.method) && !slices.Contains(methods, q.method) {
		named = false
		permitted = slices.Contains(methods, "*")
	}
	for _, header := range headers {
		if slices.ContainsFunc(allowed, func(s string) bool { return strings.EqualFold(s, header) }) {
			continue
		}
		named = false
		permitted = permitted && slices.Contains(allowed, "*") && !strings.EqualFold(header, "Authorization")
	}
	return permitted, named
}

// permitsOrigin reports whether an engine lets the page's origin read its answer,
// and whether it names it. None, an empty one or two is a refusal (DEC-50).
func (q pageRequest) permitsOrigin(h http.Header) (permitted, named bool) {
	origins := h["Access-Control-Allow-Origin"]
	if len(origins) != 1 || !isOrigin(q.origin) {
		return false, false
	}
	return origins[0] == q.origin || origins[0] == "*", origins[0] == q.origin
}

// isOrigin reports whether s can be one origin. "*" would come back as a wildcard.
func isOrigin(s string) bool {
	return s != "" && s != "*" && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == ',' })
}

// tokens splits the lines of a header that lists names, false if one is no name.
// Empty elements do not count (RFC 9110 section 5.6.1).
func tokens(lines []string) (list []string, ok bool) {
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			element = strings.Trim(element, " \t")
			switch {
			case element == "":
			case !isToken(element):
				return nil, false
			default:
				list = append(list, element)
			}
		}
	}
	return list, true
}

// isToken reports whether s is a name as methods and headers have it (RFC 9110
// section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
