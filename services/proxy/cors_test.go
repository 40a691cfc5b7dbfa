// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const page = "https://page.example"

// head is an answer's header: name, value, name, value. A name may come twice.
func head(pairs ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

const (
	allowOrigin  = "Access-Control-Allow-Origin"
	allowMethods = "Access-Control-Allow-Methods"
	allowHeaders = "Access-Control-Allow-Headers"
	allowCreds   = "Access-Control-Allow-Credentials"
	maxAge       = "Access-Control-Max-Age"
)

func TestAPermissionIsWhatEveryEnginePermits(t *testing.T) { // PX-95
	plain := pageRequest{origin: page}
	put := pageRequest{origin: page, method: "PUT"}
	post := pageRequest{origin: page, method: "POST", headers: []string{"content-type, X-Api-Key"}}
	auth := pageRequest{origin: page, method: "POST", headers: []string{"authorization"}}
	exact, wild := head(allowOrigin, page), head(allowOrigin, "*")
	varies := "Access-Control-Request-Headers, Access-Control-Request-Method, Origin"
	for name, tt := range map[string]struct {
		ask     pageRequest
		engines []http.Header
		want    http.Header // nil: not permitted
	}{
		"nobody answered":          {plain, nil, nil},
		"exact":                    {plain, []http.Header{exact}, head(allowOrigin, page, "Vary", "Origin")},
		"any becomes the origin":   {plain, []http.Header{exact, wild}, head(allowOrigin, page, "Vary", "Origin")},
		"none":                     {plain, []http.Header{exact, {}}, nil},
		"empty":                    {plain, []http.Header{exact, head(allowOrigin, "")}, nil},
		"another origin":           {plain, []http.Header{head(allowOrigin, page+":80")}, nil},
		"other letter case":        {plain, []http.Header{head(allowOrigin, strings.ToUpper(page))}, nil},
		"two origins":              {plain, []http.Header{head(allowOrigin, page, allowOrigin, page)}, nil},
		"a list of origins":        {plain, []http.Header{head(allowOrigin, page+", *")}, nil},
		"opaque origin":            {pageRequest{origin: "null"}, []http.Header{head(allowOrigin, "null")}, head(allowOrigin, "null", "Vary", "Origin")},
		"a page named *":           {pageRequest{origin: "*"}, []http.Header{wild}, nil},
		"a page of two origins":    {pageRequest{origin: "a,b"}, []http.Header{head(allowOrigin, "a,b")}, nil},
		"no origin":                {pageRequest{}, []http.Header{wild, head(allowOrigin, "")}, nil},
		"vary is joined":           {plain, []http.Header{head(allowOrigin, page, "Vary", "accept, ORIGIN"), head(allowOrigin, page, "Vary", "X-A", "Vary", ", Accept")}, head(allowOrigin, page, "Vary", "Accept, Origin, X-A")},
		"vary is malformed":        {plain, []http.Header{head(allowOrigin, page, "Vary", "a b")}, nil},
		"credentials":              {plain, []http.Header{head(allowOrigin, page, allowCreds, "true")}, head(allowOrigin, page, allowCreds, "true", "Vary", "Origin")},
		"credentials of one only":  {plain, []http.Header{exact, head(allowOrigin, page, allowCreds, "true")}, head(allowOrigin, page, "Vary", "Origin")},
		"credentials for any":      {plain, []http.Header{head(allowOrigin, "*", allowCreds, "true")}, head(allowOrigin, page, "Vary", "Origin")},
		"credentials twice":        {plain, []http.Header{head(allowOrigin, page, allowCreds, "true", allowCreds, "true")}, head(allowOrigin, page, "Vary", "Origin")},
		"credentials True":         {plain, []http.Header{head(allowOrigin, page, allowCreds, "True")}, head(allowOrigin, page, "Vary", "Origin")},
		"method not allowed":       {put, []http.Header{exact}, nil},
		"method in other case":     {put, []http.Header{head(allowOrigin, page, allowMethods, "put")}, nil},
		"method allowed":           {put, []http.Header{head(allowOrigin, page, allowMethods, "GET,PUT")}, head(allowOrigin, page, allowMethods, "PUT", maxAge, "60", "Vary", varies)},
		"any method":               {put, []http.Header{head(allowOrigin, page, allowMethods, "*", allowCreds, "true")}, head(allowOrigin, page, allowMethods, "PUT", maxAge, "60", "Vary", varies)},
		"a method named *":         {pageRequest{origin: page, method: "*"}, []http.Header{head(allowOrigin, page, allowMethods, "*")}, nil},
		"method is malformed":      {pageRequest{origin: page, method: "P T"}, []http.Header{head(allowOrigin, page, allowMethods, "*")}, nil},
		"implied, list malformed":  {pageRequest{origin: page, method: "GET"}, []http.Header{head(allowOrigin, page, allowMethods, "P T")}, nil},
		"headers not allowed":      {post, []http.Header{exact}, nil},
		"headers partly allowed":   {post, []http.Header{head(allowOrigin, page, allowHeaders, "Content-Type")}, nil},
		"headers allowed":          {post, []http.Header{head(allowOrigin, page, allowHeaders, "x-api-key", allowHeaders, "CONTENT-TYPE", allowCreds, "true")}, head(allowOrigin, page, allowCreds, "true", allowMethods, "POST", allowHeaders, "content-type, X-Api-Key", maxAge, "60", "Vary", varies)},
		"any header":               {post, []http.Header{head(allowOrigin, page, allowHeaders, "*", allowCreds, "true")}, head(allowOrigin, page, allowMethods, "POST", allowHeaders, "content-type, X-Api-Key", maxAge, "60", "Vary", varies)},
		"allowed list malformed":   {post, []http.Header{head(allowOrigin, page, allowHeaders, "*, a/b")}, nil},
		"requested list malformed": {pageRequest{origin: page, method: "POST", headers: []string{"a b"}}, []http.Header{head(allowOrigin, page, allowHeaders, "*")}, nil},
		"a header named *":         {pageRequest{origin: page, method: "POST", headers: []string{"*"}}, []http.Header{head(allowOrigin, page, allowHeaders, "*")}, nil},
		"authorization for any":    {auth, []http.Header{head(allowOrigin, page, allowHeaders, "*")}, nil},
		"authorization named":      {auth, []http.Header{head(allowOrigin, page, allowHeaders, "*, Authorization")}, head(allowOrigin, page, allowMethods, "POST", allowHeaders, "authorization", maxAge, "60", "Vary", varies)},
	} {
		got, ok := tt.ask.combine(tt.engines)
		if ok != (tt.want != nil) || ok && !maps.EqualFunc(got, tt.want, slices.Equal) {
			t.Errorf("%s: got %v, %v; want %v", name, got, ok, tt.want)
		}
	}
}

// allows is a browser's reading of a permission (Fetch, CORS check and preflight).
func allows(h http.Header, q pageRequest, credentials bool) bool {
	list := func(name string) []string {
		var out []string
		for _, s := range strings.Split(strings.Join(h[name], ","), ",") {
			out = append(out, strings.TrimSpace(s))
		}
		return out
	}
	wildcard := func(names []string) bool { return !credentials && slices.Contains(names, "*") }
	origin := strings.Join(h[allowOrigin], ", ")
	switch {
	case origin != q.origin && (credentials || origin != "*"):
		return false
	case credentials && strings.Join(h[allowCreds], ", ") != "true":
		return false
	case q.method == "":
		return true
	case q.method != "GET" && q.method != "HEAD" && q.method != "POST" &&
		!slices.Contains(list(allowMethods), q.method) && !wildcard(list(allowMethods)):
		return false
	}
	for _, name := range strings.Split(strings.Join(q.headers, ","), ",") {
		name = strings.TrimSpace(name)
		named := slices.ContainsFunc(list(allowHeaders), func(s string) bool { return strings.EqualFold(s, name) })
		if name != "" && !named && (strings.EqualFold(name, "authorization") || !wildcard(list(allowHeaders))) {
			return false
		}
	}
	return true
}

// requireNoWider fails if a browser may do with the combined permission what it
// may not do with an engine's: what was asked, or anything else.
func requireNoWider(t *testing.T, q pageRequest, engines []http.Header, out http.Header) {
	t.Helper()
	for _, other := range []pageRequest{
		q, {origin: "https://evil.example"}, {origin: q.origin, method: "DELETE"},
		{origin: q.origin, method: q.method, headers: []string{"Authorization"}},
	} {
		if q.method == "" && other.method != "" {
			continue // the answer to a plain request is no preflight's
		}
		for _, credentials := range []bool{false, true} {
			if !allows(out, other, credentials) {
				continue
			}
			for _, h := range engines {
				require.True(t, allows(h, other, credentials), "asked %+v, combined %v allows %+v (%v), engine %v does not",
					q, out, other, credentials, h)
			}
		}
	}
	require.True(t, allows(out, q, false), "%+v: %v", q, out)
	for name, values := range out {
		require.Len(t, values, 1, name)
		require.NotContains(t, values[0], "\n")
	}
}

func TestACombinedPermissionAllowsWhatAllEnginesAllowAndNoMore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(choices ...string) string { return choices[rnd.IntN(len(choices))] }
	permitted := 0
	for range 10_000 {
		q := pageRequest{origin: page, method: pick("", "GET", "PUT", "DELETE")}
		if q.method != "" {
			q.headers = []string{pick("", "authorization", "x-a", "x-a, authorization", "X-B,x-a")}
		}
		engines := make([]http.Header, 1+rnd.IntN(3))
		all := true
		for i := range engines {
			engines[i] = head(allowOrigin, pick(page, page, "*", "https://other.example"), allowCreds, pick("true", "true", "false"),
				allowMethods, pick("PUT", "PUT, DELETE", "*", "GET,*", ""), allowHeaders, pick("X-A,X-B", "*", "*, Authorization", "x-a,authorization,x-b"))
			all = all && allows(engines[i], q, false)
		}
		out, ok := q.combine(engines)
		require.Equal(t, all, ok, "%+v %v", q, engines)
		if ok {
			permitted++
			requireNoWider(t, q, engines, out)
		}
	}
	require.Greater(t, permitted, 500)
}

func FuzzACombinedPermissionIsNoWiderThanAnyEngines(f *testing.F) {
	f.Add(page, "PUT", "x-a", page, "true", "PUT", "x-a", "Origin", "*", "*", "*")
	f.Add(page, "", "", "*", "true", "", "", "a b", page, "", "")
	f.Add("*", "*", "*", "*", "true", "*", "*", "*", "*", "*", "*")
	f.Add(page, "POST", "Authorization", page, "true", "", "*\nAuthorization", "", page+"\n"+page, "", "*")
	f.Fuzz(func(t *testing.T, origin, method, headers, origin1, creds1, methods1, headers1, vary1, origin2, methods2, headers2 string) {
		q := pageRequest{origin: origin, method: method, headers: strings.Split(headers, "\n")}
		lines := func(name, s string) http.Header { return http.Header{name: strings.Split(s, "\n")} }
		one, two := make(http.Header), make(http.Header)
		for _, h := range []http.Header{lines(allowOrigin, origin1), lines(allowCreds, creds1), lines(allowMethods, methods1), lines(allowHeaders, headers1), lines("Vary", vary1)} {
			maps.Copy(one, h)
		}
		for _, h := range []http.Header{lines(allowOrigin, origin2), lines(allowCreds, creds1), lines(allowMethods, methods2), lines(allowHeaders, headers2)} {
			maps.Copy(two, h)
		}
		if out, ok := q.combine([]http.Header{one, two}); ok {
			requireNoWider(t, q, []http.Header{one, two}, out)
		}
	})
}
