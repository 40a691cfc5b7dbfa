// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestOneAtATimeAsksAtAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInfos(nil)
		defer i.close()
		free, err := i.take(t.Context(), "a:1")
		require.NoError(t, err)
		elsewhere, err := i.take(t.Context(), "b:1")
		require.NoError(t, err, "another address is another turn")
		elsewhere()

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = i.take(ended, "a:1")
		require.ErrorIs(t, err, context.Canceled)

		next := make(chan func())
		go func() {
			free, err := i.take(t.Context(), "a:1")
			if err != nil {
				t.Error(err)
			}
			next <- free
		}()
		synctest.Wait()
		select {
		case <-next:
			t.Fatal("two ask at once")
		default:
		}
		free()
		(<-next)()
		require.Empty(t, i.turns, "nothing is kept of an address that nobody asks at")
	})
}
