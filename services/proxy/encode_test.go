// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/facade"
	"nvpair/shared/workload"
)

// variants returns values of a struct with each field empty and filled in turn, and
// all of them filled. A field that is added later is covered without a change here.
func variants[T any](t *testing.T) []T {
	t.Helper()
	var zero, full T
	list := []T{zero}
	fields := reflect.VisibleFields(reflect.TypeFor[T]())
	for _, f := range fields {
		if f.Anonymous {
			continue
		}
		one := zero
		for _, v := range []reflect.Value{reflect.ValueOf(&one).Elem(), reflect.ValueOf(&full).Elem()} {
			fill(t, v.FieldByIndex(f.Index))
		}
		list = append(list, one)
	}
	return append(list, full)
}

func fill(t *testing.T, v reflect.Value) {
	const text, number = "a\"\\\x01<é\u2028", 1234567890123
	switch v.Interface().(type) {
	case string:
		v.SetString(text)
	case int, int64:
		v.SetInt(number)
	case *int64:
		n := int64(number)
		v.Set(reflect.ValueOf(&n))
	case *string:
		s := text
		v.Set(reflect.ValueOf(&s))
	default:
		t.Fatalf("no example of a %s", v.Type())
	}
}

func TestEventsAreEncodedAsTheirTypesSay(t *testing.T) {
	for _, info := range variants[workload.Info](t) {
		raw, err := jsonrpc.Marshal(info)
		require.NoError(t, err)
		want, err := jsonrpc.Marshal(workload.Event{Info: raw})
		require.NoError(t, err)
		require.Equal(t, string(want), string(appendEvent(nil, &info)))
	}
	for _, r := range variants[facade.RequestStarted](t) {
		want, err := jsonrpc.Marshal(r)
		require.NoError(t, err)
		require.Equal(t, string(want), string(appendStarted(nil, &r)))
	}
	for _, r := range variants[facade.RequestEnded](t) {
		want, err := jsonrpc.Marshal(r)
		require.NoError(t, err)
		require.Equal(t, string(want), string(appendEnded(nil, &r)))
		require.True(t, json.Valid(appendEnded(nil, &r)))
	}
}
