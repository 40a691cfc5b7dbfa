// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
)

// websocketGUID is what the handshake hashes with the client's key (RFC 6455).
const websocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// maxFrame is the longest frame the echo takes.
const maxFrame = 1 << 20

// websocket accepts an upgrade and echoes every frame until the client closes.
func (x *exchange) websocket() {
	sum := sha1.Sum([]byte(x.header("Sec-WebSocket-Key") + websocketGUID))
	x.stream.status = 101
	x.close = true
	x.write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"))
	for x.err == nil {
		op, payload, err := x.readFrame()
		if err != nil {
			x.left(err)
			return
		}
		switch op {
		case 9: // ping
			op = 10
		case 10: // pong
			continue
		}
		x.write(append(frameHead(op, len(payload)), payload...))
		if op == 8 { // close
			return
		}
	}
}

// readFrame reads one frame and takes its mask off. Fragments are echoed as they
// come.
func (x *exchange) readFrame() (op byte, payload []byte, err error) {
	r := x.c.br
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 0x7f)
	var long [8]byte
	switch n {
	case 126:
		_, err = io.ReadFull(r, long[6:])
		n = binary.BigEndian.Uint64(long[:])
	case 127:
		_, err = io.ReadFull(r, long[:])
		n = binary.BigEndian.Uint64(long[:])
	}
	if err != nil || n > maxFrame {
		return 0, nil, io.ErrUnexpectedEOF
	}
	var mask [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return 0, nil, err
		}
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head[0] & 0x0f, payload, nil
}

func frameHead(op byte, n int) []byte {
	b := []byte{0x80 | op}
	switch {
	case n < 126:
		return append(b, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
}
