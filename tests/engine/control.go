// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxControlBody bounds what the control port reads of a request.
const maxControlBody = 1 << 20

// controlHelp is the answer to GET / on the control port.
const controlHelp = `nvpair demo engine: a stand-in for a real engine, for tests, demos and benchmarks. No model is behind it.

GET    /faults         faults that are on, with their hits
POST   /faults         add one fault, or a list; answers their ids
PUT    /faults         replace all faults by a list
DELETE /faults[/ID]    remove all, or one
GET    /witness        what was seen of each request
DELETE /witness        forget ended requests
GET    /pace           how answers are generated; PUT replaces it
GET    /models         the models; PUT replaces them
PUT    /listen         {"state":"open"|"paused"|"closed"}
PUT    /loading        {"on":true}: 503 "Loading model" to everything
`

// Control returns the control port's handler. Whoever reaches it may do anything
// to the engine; it knows no key.
func (e *Engine) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, controlHelp) })
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, e.Faults.List()) })
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		faults, err := decodeFaults(r)
		if err != nil {
			refuse(w, err)
			return
		}
		ids, err := e.Faults.Add(faults...)
		if err != nil {
			refuse(w, err)
			return
		}
		reply(w, map[string]any{"ids": ids})
	})
	mux.HandleFunc("PUT /faults", func(w http.ResponseWriter, r *http.Request) {
		faults, err := decodeFaults(r)
		if err == nil {
			err = e.Faults.Set(faults...)
		}
		done(w, err)
	})
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		e.Faults.Clear()
		done(w, nil)
	})
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if !e.Faults.Remove(r.PathValue("id")) {
			http.Error(w, "no such fault", http.StatusNotFound)
			return
		}
		done(w, nil)
	})
	mux.HandleFunc("GET /witness", func(w http.ResponseWriter, _ *http.Request) { reply(w, e.Witness()) })
	mux.HandleFunc("DELETE /witness", func(w http.ResponseWriter, _ *http.Request) {
		e.ResetWitness()
		done(w, nil)
	})
	e.controlState(mux)
	return mux
}

// controlState adds the routes that are no faults and no witness.
func (e *Engine) controlState(mux *http.ServeMux) {
	mux.HandleFunc("GET /pace", func(w http.ResponseWriter, _ *http.Request) { reply(w, e.Pace()) })
	mux.HandleFunc("PUT /pace", func(w http.ResponseWriter, r *http.Request) {
		var p Pace
		err := decode(r, &p)
		if err == nil {
			e.SetPace(p)
		}
		done(w, err)
	})
	mux.HandleFunc("GET /models", func(w http.ResponseWriter, _ *http.Request) { reply(w, e.models.all()) })
	mux.HandleFunc("PUT /models", func(w http.ResponseWriter, r *http.Request) {
		var list []Model
		err := decode(r, &list)
		if err == nil {
			e.SetModels(list)
		}
		done(w, err)
	})
	mux.HandleFunc("PUT /listen", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			State Listening `json:"state"`
		}
		err := decode(r, &body)
		if err == nil {
			err = e.Listen(body.State)
		}
		done(w, err)
	})
	mux.HandleFunc("PUT /loading", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			On bool `json:"on"`
		}
		err := decode(r, &body)
		if err == nil {
			e.SetLoading(body.On)
		}
		done(w, err)
	})
}

func decodeFaults(r *http.Request) ([]Fault, error) {
	var raw json.RawMessage
	if err := decode(r, &raw); err != nil {
		return nil, err
	}
	return parseFaults(raw)
}

// parseFaults reads one fault or a list of them.
func parseFaults(raw []byte) ([]Fault, error) {
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '[' {
		var list []Fault
		err := strict(raw, &list)
		return list, err
	}
	one := make([]Fault, 1)
	err := strict(raw, &one[0])
	return one, err
}

// strict decodes JSON and refuses members that would silently do nothing.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode body: %w", err)
	}
	return nil
}

func decode(r *http.Request, v any) error {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxControlBody))
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	return strict(b, v)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	_ = enc.Encode(v) // the client left
}

func refuse(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusBadRequest) }

func done(w http.ResponseWriter, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
