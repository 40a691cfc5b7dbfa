// SPDX-License-Identifier: Apache-2.0

package httpserve

import "strings"

// requests returns requests that servers are known to read differently.
func requests() []string {
	get := func(lines ...string) string {
		return "GET /p?q=1 HTTP/1.1\r\nHost: h\r\n" + strings.Join(lines, "") + "\r\n"
	}
	post := func(body string, lines ...string) string {
		return "POST /p HTTP/1.1\r\nHost: h\r\n" + strings.Join(lines, "") + "\r\n" + body
	}
	const evil = "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"
	chunked, ten := "Transfer-Encoding: chunked\r\n", "Content-Length: 10\r\n"
	list := []string{
		get(), get() + get(), get() + get() + get(), "", "\r\n", "\r\n" + get(), "G", "GET", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: h\r\n",
		get() + "G", get() + "GET ", get() + "GET / HTTP/1.1\r\n", get() + "\r\n" + get(),
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + get(),
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\nX-Do: length\r\n\r\n" + get(),
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\nX-Do: flush\r\n\r\n" + get(),
		"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + get(), "GET / HTTP/1.0\r\nX-Do: flush\r\n\r\n",
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", "GET / HTTP/1.1\r\nHoSt: a\r\n\r\n",
		"GET http://x/p HTTP/1.1\r\n\r\n", "GET http://x/p HTTP/1.1\r\nHost: y\r\n\r\n", "GET http://x/p HTTP/1.1\r\nHost: y z\r\n\r\n",
		"GET http://x/p HTTP/1.1\r\nHost:\r\n\r\n", "GET http:///p HTTP/1.1\r\nHost: y\r\n\r\n", "GET http://x/p HTTP/1.0\r\n\r\n",
		"GET http://x/p HTTP/1.1\r\nHost: y\r\nHost: y\r\n\r\n", "GET http://u:p@x/p HTTP/1.1\r\nHost: y\r\n\r\n",
		"GET //x/p HTTP/1.1\r\nHost: y\r\n\r\n", "GET p HTTP/1.1\r\nHost: y\r\n\r\n", "GET * HTTP/1.1\r\nHost: y\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: y\r\n\r\n", "CONNECT x:443 HTTP/1.1\r\nHost: y\r\n\r\n", "CONNECT x:443 HTTP/1.1\r\n\r\n",
		"CONNECT /p HTTP/1.1\r\n\r\n", "GET /\x00 HTTP/1.1\r\nHost: y\r\n\r\n", "GET /a b HTTP/1.1\r\nHost: y\r\n\r\n",
		"GET  / HTTP/1.1\r\nHost: y\r\n\r\n", "GET / HTTP/1.1 \r\nHost: y\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: y\r\n\r\n",
		"G(T / HTTP/1.1\r\nHost: y\r\n\r\n", "GET / HTTP/1.2\r\nHost: y\r\n\r\n", "GET / HTTP/0.9\r\nHost: y\r\n\r\n",
		"GET / HTTP/2.0\r\nHost: y\r\n\r\n", "GET / HTTP/3.0\r\nHost: y\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/1.1\nHost: y\n\n",
		"GET / HTTP/1.1\rHost: y\r\r", "GET / HTTP/1.1\r\r\nHost: y\r\n\r\n", "SSH-2.0-x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\r\n\r\n",
		get("A: b\r\n"), get("A:b\n"), get("A: b\r\n c\r\n"), get("A: b\r\n\tc\r\nD: e\r\n"), get("A: b\x00\r\n"), get("A: b\rc\r\n"),
		get("A : b\r\n"), get(": b\r\n"), get("A\r\n"), get("A: \x80\xff\r\n"), get("\x80: b\r\n"), get("A: b\x7f\r\n"), get("A;b: c\r\n"),
		get("X-Do: split\r\n"), get("X-Do: split,flush\r\n"), get("A: " + strings.Repeat("a", 3000) + "\r\n"),
		get("A: " + strings.Repeat("a", 4900) + "\r\n"), get("A: " + strings.Repeat("a", 6000) + "\r\n"), "GET /" + strings.Repeat("a", 9000),
		get(strings.Repeat("A: b\r\n", 400)), get() + get("A: "+strings.Repeat("a", 5500)+"\r\n"), get() + get("A: "+strings.Repeat("a", 4200)+"\r\n"),
		post("0123456789", ten) + evil, post("0123456789", ten, ten) + evil, post("0123456789", ten, "Content-Length: 11\r\n") + evil,
		post("0123456789", "Content-Length: 10, 10\r\n") + evil, post("0123456789", "Content-Length: +10\r\n") + evil,
		post("0123456789", "Content-Length: -1\r\n") + evil, post("0123456789", "Content-Length: 0xa\r\n") + evil, post("", "Content-Length:\r\n") + evil,
		post("0123456789", "Content-Length: 010\r\n") + evil, post("0123456789", "Content-Length : 10\r\n") + evil,
		post("0123456789", "Content-Length: 99999999999999999999\r\n") + evil, post("01234", ten), post("", ten), post("") + evil, post("01234", "Content-Length: 99999999999999999\r\n"),
		post("a\r\n0123456789\r\n0\r\n\r\n", chunked) + evil, post("a\r\n0123456789\r\n0\r\n\r\n", ten, chunked) + evil,
		post("a\r\n0123456789\r\n0\r\n\r\n", chunked, ten) + evil, post("0\r\n\r\n", chunked, "Content-Length: 0\r\n") + evil,
		post("0\r\n\r\n", chunked, chunked) + evil, post("0\r\n\r\n", "Transfer-Encoding: chunked, chunked\r\n") + evil,
		post("0\r\n\r\n", "Transfer-Encoding: gzip, chunked\r\n") + evil, post("0\r\n\r\n", "Transfer-Encoding: identity\r\n") + evil,
		post("0\r\n\r\n", "Transfer-Encoding: xchunked\r\n") + evil, post("0\r\n\r\n", "Transfer-Encoding:\tchunked\r\n") + evil,
		post("0\r\n\r\n", "Transfer-Encoding: Chunked\r\n") + evil, post("0\r\n\r\n", "Transfer-Encoding: chunked \r\n") + evil,
		post("0\r\n\r\n", "Transfer-Encoding : chunked\r\n") + evil, post("0\r\n\r\n", "Transfer-Encoding:\r\n chunked\r\n") + evil,
		post("0\r\n\r\n", "Transfer_Encoding: chunked\r\n") + evil, post("0\r\n\r\n", "Transfer-Encoding: \x0bchunked\r\n") + evil,
		post("a;x=y\r\n0123456789\r\n0\r\n\r\n", chunked) + evil, post("a;x=\"\r\n0123456789\r\n0\r\n\r\n", chunked) + evil,
		post("a;\n0123456789\r\n0\r\n\r\n", chunked) + evil, post("a\n0123456789\n0\n\n", chunked) + evil, post("a\r0123456789\r\n0\r\n\r\n", chunked) + evil,
		post("0xa\r\n0123456789\r\n0\r\n\r\n", chunked) + evil, post("-1\r\n", chunked) + evil, post("+a\r\n0123456789\r\n0\r\n\r\n", chunked) + evil,
		post("A\r\n0123456789\r\n0\r\n\r\n", chunked) + evil, post("10000000000000000\r\nx", chunked) + evil, post("7fffffffffffffff\r\nx", chunked) + evil,
		post("000000000000000a\r\n0123456789\r\n0\r\n\r\n", chunked) + evil, post("a \r\n0123456789\r\n0\r\n\r\n", chunked) + evil,
		post("a\r\n01234567890\r\n0\r\n\r\n", chunked) + evil, post("a\r\n0123456789\r\n", chunked), post("a\r\n0123456789\r\n0\r\n", chunked), post("zz", chunked),
		post("a\r\n0123456789\r\n0\r\nSum: 7\r\nA: b\r\n\r\n", chunked, "Trailer: Sum\r\n") + evil,
		post("a\r\n0123456789\r\n0\r\nSum: 7\r\n\r\n", chunked) + evil, post("0\r\nContent-Length: 5\r\n\r\n", chunked) + evil,
		post("0\r\nSum\r\n\r\n", chunked) + evil, post("0\r\n"+strings.Repeat("A: bbbbbbbb\r\n", 500)+"\r\n", chunked) + evil,
		post("0\r\n\r\n", chunked, "Trailer: Content-Length\r\n") + evil, post("", ten, "Trailer: Sum\r\n"),
		post("0123456789", ten, "Expect: 100-continue\r\n") + evil, post("a\r\n0123456789\r\n0\r\n\r\n", chunked, "Expect: 100-Continue\r\n") + evil,
		post("", ten, "Expect: 100-continue\r\nX-Do: early\r\n"), post("0123456789", ten, "Expect: 100-continue\r\nX-Do: early\r\n") + evil,
		post("0123456789", ten, "Expect: 100-continue\r\nX-Do: part\r\n") + evil, get("Expect: 100-continue\r\n") + evil,
		post("0123456789", ten, "Expect: other\r\n") + evil, get("Expect: other\r\n") + evil, get("Expect: other, 100-continue\r\n"),
		"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na",
		post("0123456789", ten, "Expect: 100-continue\r\nX-Do: hints\r\n") + evil,
		post("0123456789", ten) + "\r\n" + evil, post("0123456789", ten) + "\r\n\r\n\r\n" + evil, post("0123456789", ten) + "\n",
		get("Connection: close\r\n") + evil, get("Connection: Close\r\n") + evil, get("Connection: x, close\r\n") + evil,
		get("Connection: x\r\nConnection: close\r\n") + evil, get("Connection: keep-alive\r\n") + evil, get("Connection: upgrade\r\nUpgrade: h2c\r\n") + evil,
		"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + evil,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\r\nHost: h\r\n\r\n" + evil, "PRI * HTTP/2.0\r\nX-Do: flush\r\n\r\n",
		"PRI / HTTP/2.0\r\nHost: h\r\n\r\n", "PRI * HTTP/2.1\r\n\r\n", "PRI * HTTP/1.1\r\nHost: h\r\n\r\n" + evil,
		"000 /00000 HTTP/1.1\r\nHost:000\n\r\n\n\n",
	}
	for _, do := range []string{
		"early", "part", "close-body", "hints", "abort", "flush", "length", "short", "excess", "typed", "untyped", "last", "identity", "coded", "encoded",
		"s204", "s304", "s404", "s599", "none", "pieces", "trailers", "trailers,flush", "cut", "length,flush", "coded,length", "identity,length",
		"s204,length", "s304,length", "s304,typed", "s204,flush", "pieces,trailers", "excess,flush", "none,flush", "duplex",
		"last,flush", "untyped,flush", "none,length", "none,s304", "none,coded",
		"gzip", "gzip,length", "gzip,flush", "upgrade", "upgrade,s101", "upgrade,s101,none", "kept", "kept,length", "kept,last", "hints,split", "split,trailers",
	} {
		line := "X-Do: " + do + "\r\n"
		list = append(list,
			get(line)+evil, post("0123456789", ten, line)+evil, post("a\r\n0123456789\r\n0\r\n\r\n", chunked, line)+evil,
			post("012", ten, line), post("3\r\n012", chunked, line), post("3\r\n012zz", chunked, line)+evil,
			"HEAD / HTTP/1.1\r\nHost: h\r\n"+line+"\r\n"+evil,
			"GET / HTTP/1.0\r\n"+line+"\r\n"+evil, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n"+line+"\r\n"+evil,
			"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+line+"\r\n"+evil)
	}
	return list
}
