// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"
)

// manyRows is how long the list of the fault "many" is.
const manyRows = 10_000

// models returns the models to list, as a fault of lists may have changed them.
func (x *exchange) models() []Model {
	list := x.e.models.all()
	return changeList(x, list, func(m Model) string { return m.Name }, func(m Model, name string) Model {
		m.Name = name
		return m
	})
}

// changeList is what the faults of lists do to rows with names.
func changeList[T any](x *exchange, list []T, name func(T) string, rename func(T, string) T) []T {
	form := x.plan.form(KindList)
	if form == "" || len(list) == 0 {
		return list
	}
	first := list[0]
	switch form {
	case "empty", "null", "absent":
		return nil
	case "repeated":
		return append(slices.Clone(list), first)
	case "spellings":
		return append(slices.Clone(list), rename(first, strings.ToUpper(name(first))),
			rename(first, "library/"+name(first)), rename(first, "registry.ollama.ai/library/"+name(first)))
	case "changing": // each time another one is missing
		i := int(x.e.lists.Add(1)) % len(list)
		return slices.Delete(slices.Clone(list), i, i+1)
	case "many":
		many := make([]T, manyRows)
		for i := range many {
			many[i] = rename(first, fmt.Sprintf("demo-%05d:latest", i))
		}
		return many
	}
	return list
}

// rows appends a member with a list of n rows.
func (x *exchange) rows(key string, n int, row func(i int)) {
	form := x.plan.form(KindList)
	switch form {
	case "absent":
		x.add(`"demo":true`)
		return
	case "null":
		x.add(`"`, key, `":null`)
		return
	}
	start := len(x.buf)
	x.add(`"`, key, `":[`)
	from := len(x.buf)
	for i := range n {
		if i > 0 {
			x.add(",")
		}
		row(i)
	}
	if form == "bad-row" {
		if n > 0 {
			x.add(",")
		}
		x.add(`{"name":7,"id":null,"size":"x"},null,"demo"`)
	}
	x.add("]")
	if other := map[string]string{"models": "data", "data": "models"}[key]; form == "both" && other != "" {
		rows := slices.Clone(x.buf[from:])
		x.buf = x.buf[:start]
		x.add(`"`, key, `":[`, string(rows), `,"`, other, `":[`, string(rows))
	}
}
