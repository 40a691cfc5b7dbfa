// SPDX-License-Identifier: Apache-2.0

package clustertrust

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// errUnreadable means that a pin's file could not be read: what it holds is not
// known.
var errUnreadable = errors.New("cannot be read")

// pin is what is known of one file in trusted.
type pin struct {
	reading reading
	cert    *x509.Certificate // nil while it is no pin, as far as is known
	unknown bool              // it could not be read
}

// listPinsLocked finds out which pins there are. A directory that cannot be listed
// keeps the former ones.
func (v *View) listPinsLocked(*State) error {
	entries, err := os.ReadDir(filepath.Join(v.dir, "trusted"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	former := v.pins
	v.pins = make(map[string]pin)
	for _, e := range entries {
		uuid, isPin := strings.CutSuffix(e.Name(), ".json")
		if !isPin {
			continue
		}
		if len(v.pins) >= maxPins {
			v.complainLocked("trusted", fmt.Errorf("more than %d pins, the rest is ignored", maxPins))
			break
		}
		v.pins[uuid] = former[uuid]
	}
	return nil
}

// fewPins are looked at each time. More are after the directory changed, which is how
// pins are added, replaced and removed, and else once in recheck.
const fewPins = 32

// readPinsLocked reads the pins that may have changed, and reports whether anything
// was read. A file that cannot be read keeps the pin it was; one that is read and is
// no pin is none (SEC-T11). Their own stamps count, not only the directory's: a file
// can be written in place.
func (v *View) readPinsLocked(changed bool) (anything bool) {
	began := time.Now()
	if len(v.pins) > fewPins && !changed && began.Before(v.pinsDue) {
		return false
	}
	v.pinsDue = began.Add(recheck)
	for uuid, p := range v.pins {
		name := filepath.Join("trusted", uuid+".json")
		at, now := v.stamp(name, os.Stat)
		if p.reading.holds(at, now) {
			continue
		}
		anything = true
		cert, err := v.readPin(uuid)
		p.unknown = errors.Is(err, errUnreadable)
		if !p.unknown {
			p.cert = cert
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.complainLocked(name, err)
		}
		p.reading = newReading(at, now, p.unknown)
		v.pins[uuid] = p
	}
	return anything
}

// takePinsLocked puts what is known of the pins into a state.
func (v *View) takePinsLocked(s *State) {
	s.pins = make(map[string]*x509.Certificate, len(v.pins))
	s.doubts.pins = false
	for uuid, p := range v.pins {
		if p.cert != nil {
			s.pins[uuid] = p.cert
		}
		s.doubts.pins = s.doubts.pins || p.unknown
	}
}

// readPin reads the pin of one peer (CLT-2).
func (v *View) readPin(uuid string) (*x509.Certificate, error) {
	if !isFileName(uuid) {
		return nil, errors.New("the name is no uuid")
	}
	raw, err := v.read(filepath.Join("trusted", uuid+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	var file struct {
		NodeUUID string `json:"nodeUuid"`
		CertPEM  string `json:"certPem"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	if file.NodeUUID != uuid {
		return nil, errors.New("nodeUuid differs from the file's name")
	}
	cert, err := parseCertificate([]byte(file.CertPEM))
	if err != nil {
		return nil, err
	}
	if Principal(cert) != uuid {
		return nil, errors.New("the certificate is another node's")
	}
	return cert, nil
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("certPem holds no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if _, ok := cert.PublicKey.(ed25519.PublicKey); !ok {
		return nil, errors.New("the certificate's key is not an Ed25519 key") // CLI-10
	}
	return cert, nil
}

// isFileName reports whether a uuid may be part of a path on every system (CLT-1).
func isFileName(uuid string) bool {
	if uuid == "" || uuid == "." || strings.ContainsAny(uuid, "/\\:\x00") {
		return false
	}
	base, _, _ := strings.Cut(strings.ToUpper(uuid), ".")
	switch base = strings.TrimRight(base, " "); base {
	case "CON", "PRN", "AUX", "NUL":
		return false
	}
	device := len(base) == 4 && (strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT"))
	return !device && filepath.IsLocal(uuid)
}
