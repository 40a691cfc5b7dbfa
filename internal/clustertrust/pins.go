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
)

// errUnreadable means that a pin's file could not be read: what it holds is not
// known.
var errUnreadable = errors.New("cannot be read")

// readPinsLocked reads all pins anew. A directory that cannot be listed keeps the
// former ones, and so does a single file that cannot be read; a file that is read
// and is no pin is none (SEC-T11).
func (v *View) readPinsLocked(s *State) error {
	entries, err := os.ReadDir(filepath.Join(v.dir, "trusted"))
	if errors.Is(err, fs.ErrNotExist) {
		s.pins = nil
		return nil
	}
	if err != nil {
		return err
	}
	pins := make(map[string]*x509.Certificate)
	var unknown error
	for _, e := range entries {
		uuid, isPin := strings.CutSuffix(e.Name(), ".json")
		if !isPin || e.IsDir() {
			continue
		}
		if len(pins) >= maxPins {
			v.complainLocked("trusted", fmt.Errorf("more than %d pins, the rest is ignored", maxPins))
			break
		}
		cert, err := v.readPin(uuid)
		if err == nil {
			pins[uuid] = cert
			continue
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed while we looked
		case errors.Is(err, errUnreadable):
			unknown = errors.Join(unknown, fmt.Errorf("%s: %w", e.Name(), err))
			if former := s.pins[uuid]; former != nil {
				pins[uuid] = former
			}
		default:
			v.complainLocked(filepath.Join("trusted", e.Name()), err)
		}
	}
	s.pins = pins
	return unknown
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
