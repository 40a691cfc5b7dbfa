// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// tooLong stands for errTooLong in a list of lines.
const tooLong = "<too long>"

// readLines returns all lines up to the final error, which must be end of input.
func readLines(t testing.TB, r io.Reader, max int) []string {
	t.Helper()
	var got []string
	for l := newLineReader(r, max); ; {
		line, err := l.next()
		switch {
		case errors.Is(err, errTooLong):
			got = append(got, tooLong)
		case err != nil:
			require.ErrorIs(t, err, io.EOF)
			return got
		default:
			require.LessOrEqual(t, cap(line), max+readBlock, "memory held for a line")
			got = append(got, string(line))
		}
	}
}

// modelLines is the reader's rule over the whole input at once.
func modelLines(input string, max int) []string {
	var want []string
	pieces := strings.Split(input, "\n")
	if last := len(pieces) - 1; pieces[last] == "" {
		pieces = pieces[:last]
	}
	for _, piece := range pieces {
		piece = strings.TrimSuffix(piece, "\r")
		if len(piece) > max {
			piece = tooLong
		}
		want = append(want, piece)
	}
	return want
}

func TestLinesAreCutAtNewlines(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"\n", []string{""}},
		{"\r\n", []string{""}},
		{"\n\n", []string{"", ""}},
		{"a\nb\n", []string{"a", "b"}},
		{"a\r\nb", []string{"a", "b"}},
		{"a\r\r\n", []string{"a\r"}},
		{"a\rb\n", []string{"a\rb"}},
		{"a\nb\r", []string{"a", "b"}},
		{"12345678\n", []string{"12345678"}},
		{"12345678\r\n", []string{"12345678"}},
		{"12345678", []string{"12345678"}},
		{"12345678\r", []string{"12345678"}},
		{"123456789\na\n", []string{tooLong, "a"}},
		{"12345678\r\r\na\n", []string{tooLong, "a"}},
		{"12345678\rx\na\n", []string{tooLong, "a"}},
		{"123456789", []string{tooLong}},
		{"123456789\n", []string{tooLong}},
		{"123456789\n123456789\n", []string{tooLong, tooLong}},
		{"a\n123456789", []string{"a", tooLong}},
	} {
		for _, reader := range []io.Reader{
			strings.NewReader(tt.in),
			iotest.OneByteReader(strings.NewReader(tt.in)),
			iotest.DataErrReader(strings.NewReader(tt.in)),
		} {
			require.Equal(t, tt.want, readLines(t, reader, 8), "%q", tt.in)
		}
	}
}

// The limit may lie anywhere in a read block, and the carriage return and the
// newline in different ones.
func TestTheLimitHoldsAcrossReadBlocks(t *testing.T) {
	for _, max := range []int{
		readBlock - 2, readBlock - 1, readBlock, readBlock + 1, 3*readBlock - 1, 3 * readBlock, DefaultMaxFrameBytes,
	} {
		for _, length := range []int{max - 1, max, max + 1, max + 2, max + readBlock, 3*max + 5} {
			for _, end := range []string{"", "\r", "\n", "\r\n", "\ngood\n", "\r\ngood\n", "\n\ngood"} {
				for _, ahead := range []string{"", "a\n"} {
					input := ahead + strings.Repeat("x", length) + end
					got := readLines(t, strings.NewReader(input), max)
					if want := modelLines(input, max); !slices.Equal(got, want) {
						t.Errorf("max %d, %d bytes between %q and %q: %s; want %s",
							max, length, ahead, end, summary(got), summary(want))
					}
				}
			}
		}
	}
}

// summary returns lines in a form that fits a screen.
func summary(lines []string) string {
	short := slices.Clone(lines)
	for i, line := range short {
		if len(line) > 20 {
			short[i] = line[:5] + "..." + line[len(line)-5:]
		}
	}
	return strings.Join(short, "|")
}

func TestNoiseDoesNotHideTheNextFrame(t *testing.T) {
	noise := make([]byte, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(random.UintN(256))
	}
	for _, max := range []int{64, readBlock, DefaultMaxFrameBytes} {
		input := string(noise) + "\n{}\n"
		got := readLines(t, strings.NewReader(input), max)
		require.Equal(t, "{}", got[len(got)-1])
		require.True(t, slices.Equal(modelLines(input, max), got), "max %d", max)
	}
}

func TestALineKeepsItsMemoryToItself(t *testing.T) {
	l := newLineReader(strings.NewReader("aaa\nbbb\n"), 8)
	first, err := l.next()
	require.NoError(t, err)
	_, err = l.next()
	require.NoError(t, err)
	require.Equal(t, "aaa", string(first))
}

func TestAReadErrorComesBehindTheLineItCut(t *testing.T) {
	broken := errors.New("broken")
	l := newLineReader(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 8)
	for _, want := range []string{"a", "b"} {
		line, err := l.next()
		require.NoError(t, err)
		require.Equal(t, want, string(line))
	}
	_, err := l.next()
	require.ErrorIs(t, err, broken)
}

// chunkReader returns at most as many bytes at a time as its random source says.
type chunkReader struct {
	r      *bytes.Reader
	random *rand.Rand
}

func (c *chunkReader) Read(b []byte) (int, error) {
	return c.r.Read(b[:min(len(b), 1+c.random.IntN(40))])
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\r\nbb\n\nccc"), uint16(2), uint64(1), byte(0))
	f.Add([]byte("0123456789\r\n\r\r\n\n"), uint16(10), uint64(2), byte(9))
	f.Add(bytes.Repeat([]byte("x"), 30), uint16(29), uint64(3), byte(200))
	f.Fuzz(func(t *testing.T, data []byte, max uint16, seed uint64, stretch byte) {
		// Long runs of one letter reach the block size, which the fuzzer hardly does.
		input := bytes.ReplaceAll(data, []byte("x"), bytes.Repeat([]byte("x"), 1+97*int(stretch)))
		if len(input) > 1<<19 {
			return
		}
		want := modelLines(string(input), int(max))
		random := rand.New(rand.NewPCG(seed, 0))
		for name, reader := range map[string]io.Reader{
			"whole":    bytes.NewReader(input),
			"chunks":   &chunkReader{bytes.NewReader(input), random},
			"last EOF": iotest.DataErrReader(bytes.NewReader(input)),
		} {
			if got := readLines(t, reader, int(max)); !slices.Equal(got, want) {
				t.Errorf("%s of %q, max %d: %s; want %s", name, data, max, summary(got), summary(want))
			}
		}
	})
}
