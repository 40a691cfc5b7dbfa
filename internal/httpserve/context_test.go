// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAContextEndsItsChildrenAndCallsWhatWasNotStopped(t *testing.T) {
	c := &requestContext{base: context.Background()}
	child, cancel := context.WithCancelCause(c)
	defer cancel(nil)
	grandchild, cancel2 := context.WithTimeout(child, time.Hour)
	defer cancel2()
	var called atomic.Int32
	both := make(chan struct{})
	context.AfterFunc(c, func() { called.Add(1); close(both) })
	require.True(t, context.AfterFunc(c, func() { called.Add(10) })())
	require.NoError(t, c.Err())
	require.NoError(t, context.Cause(c))
	select {
	case <-c.Done():
		t.Fatal("ended early")
	default:
	}

	c.cancel()
	c.cancel()
	await(t, "the end", c.Done())
	await(t, "the child's end", child.Done())
	await(t, "the grandchild's end", grandchild.Done())
	await(t, "the call", both)
	require.EqualValues(t, 1, called.Load())
	for _, ctx := range []context.Context{c, child, grandchild} {
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
	}
	late, cancel3 := context.WithCancel(c)
	defer cancel3()
	require.Error(t, late.Err())
	require.Empty(t, c.after)
}

func TestAContextToldOfItsBasesEndSaysWhy(t *testing.T) {
	base, end := context.WithCancelCause(context.Background())
	c := &requestContext{base: base}
	why := errors.New("over")
	end(why)
	c.cancel()
	require.ErrorIs(t, c.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(c), why)
}

func TestAChildThatEndsFirstIsForgottenAndNoneCostsAGoroutine(t *testing.T) {
	c := &requestContext{base: context.Background()}
	before := runtime.NumGoroutine()
	var stops []context.CancelFunc
	for range 100 {
		_, cancel := context.WithCancel(c)
		stops = append(stops, cancel)
	}
	require.Less(t, runtime.NumGoroutine(), before+50)
	var all sync.WaitGroup
	for _, stop := range stops {
		all.Go(stop)
	}
	all.Wait()
	require.Empty(t, c.after)
}
