// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"path/filepath"

	"nvpair/internal/atomicfile"
	"nvpair/shared/facade"
)

// maxPortFile bounds a file that holds one number.
const maxPortFile = 4 << 10

// standalonePort is the port of a facade that nobody planned one for: not
// Ollama's own, where the engine may be (PX section 2).
func (f *facadeServer) standalonePort() int {
	if f.engine.ID == "ollama" {
		return f.engine.BasePort
	}
	return f.engine.FacadePort
}

// startPort is the port to begin with (PX-16): a kept choice counts before the
// asked one unless the broker says otherwise.
func (f *facadeServer) startPort(params facade.Enable) int {
	port := params.Port
	if port == 0 {
		port = f.standalonePort()
	}
	if params.IgnorePersistedPort {
		return port
	}
	if saved := f.savedPort(); saved != 0 && !(f.engine.ID == "lmstudio" && saved == f.engine.BasePort) {
		return saved
	}
	return port
}

// savedPort returns the kept port, 0 for none; anything unreadable is none.
func (f *facadeServer) savedPort() int {
	var saved facade.Port
	raw, err := atomicfile.Read(f.portFile(), maxPortFile)
	if err != nil || json.Unmarshal(raw, &saved) != nil || saved.Port < 1 || saved.Port > 65535 {
		return 0
	}
	return saved.Port
}

func (f *facadeServer) savePort(port int) error {
	raw, err := json.Marshal(facade.Port{Port: port})
	if err != nil {
		return err
	}
	return atomicfile.Write(f.portFile(), raw)
}

func (f *facadeServer) portFile() string { return filepath.Join(f.p.cfg.DataDir, f.engine.SavedPort) }
