// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAWireShowsEachFrameAsItWasWritten(t *testing.T) {
	h := NewHost(t, "alpha")
	p := h.Start(h.Command("cat"))
	w := p.Wire(t)
	w.Send(RequestLine("", "a", ""), `{"jsonrpc":"2.0","id":1.50,"result":null}`)
	require.Equal(t, Frame{Line: `{"jsonrpc":"2.0","method":"a"}`, Method: "a"}, w.Next())
	require.Equal(t, "null", string(w.Next().Result))
	w.Send(RequestLine("", "b", "[1]"), `{"jsonrpc":"2.0","id":1.5,"error":{"code":5,"message":"m"}}`)
	require.Equal(t, &ErrorObject{Code: 5, Message: "m"}, w.Answer("1.5").Error)
	require.Len(t, w.Frames(), 4)
	require.Equal(t, "[1]", string(w.Frames()[2].Params))
	require.NoError(t, p.Stdin.Close())
	w.AwaitEnd(patience)
	require.Equal(t, 0, p.AwaitExit(patience))
}

func TestAWireReportsWhatIsNoFrame(t *testing.T) {
	for _, line := range []string{"", "log line", "[]", `{"method":"a"}`, `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":1}`,
		`{"jsonrpc":"2.0","result":1}`, `{"jsonrpc":"2.0","id":1,"method":5}`, `{"jsonrpc":"2.0","id":1,"method":"a","result":1}`,
		`{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"m"}}`, "{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"} {
		fake := &fakeTB{TB: t}
		read, write := io.Pipe()
		w := NewWire(fake, read, nil)
		_, err := io.WriteString(write, line+"\n")
		require.NoError(t, err)
		require.NoError(t, write.Close())
		w.AwaitEnd(patience)
		fake.end()
		require.Len(t, fake.reports, 1, "%q", line)
	}
}

func TestAWaitOnAWireEnds(t *testing.T) {
	read, write := io.Pipe()
	fake := &fakeTB{TB: t}
	w := NewWire(fake, read, nil)
	fake.run(func() { w.Await("the moon", time.Millisecond, func(Frame) bool { return true }) })
	require.Equal(t, []string{"not within 1ms: the moon; since the last one: nothing"}, fake.reports)
	require.NoError(t, write.Close())
	fake.run(func() { w.Await("the moon", patience, func(Frame) bool { return true }) })
	require.Equal(t, "link ended without the moon; since the last one: nothing", fake.reports[1])
	fake.end()
}

func TestAProgramRunsAsAnotherUser(t *testing.T) {
	h := NewHost(t, "alpha")
	out, err := h.CommandAs(Nobody, "sh", "-c", "id -u; id -g; id -G; cat /proc/sys/kernel/hostname; touch data/mine").CombinedOutput()
	require.ErrorContains(t, err, "exit status 1")
	require.Contains(t, string(out), "65534\n65534\n65534\nalpha\n")
	h.GiveTo(Nobody)
	require.NoError(t, h.CommandAs(Nobody, "touch", "data/mine").Run())
	require.FileExists(t, h.DataDir+"/mine")
	require.NoError(t, os.Chmod(h.Dir, 0o700))
}
