// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// platforms are those whose files are checked; a rule that one build tag could hide from is no rule.
var platforms = []string{"linux", "windows", "darwin"}

// root is the repository, seen from this package's folder, where `go test` runs its tests.
const root = "../.."

func TestTheRepositoryKeepsItsImportRules(t *testing.T) {
	found := map[string]bool{} // once, though several platforms have it
	for _, platform := range platforms {
		packages, err := listPackages(root, platform)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(packages, func(p pkg) bool { return p.ImportPath == module+"/internal/archtest" }) {
			t.Fatalf("go list for %s does not even find this package", platform)
		}
		for _, p := range packages {
			for _, violation := range importViolations(p) {
				found[violation] = true
			}
		}
	}
	for violation := range found {
		t.Error(violation)
	}
}

func TestTheRepositoryKeepsItsSourceRules(t *testing.T) {
	files, err := readSources(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	var code []source // without test data, which the go command ignores
	for _, s := range files {
		if slices.Contains(strings.Split(s.path, "/"), "testdata") {
			for _, violation := range licenseViolations(s) {
				t.Error(violation)
			}
			continue
		}
		code = append(code, s)
	}
	if !slices.ContainsFunc(code, func(s source) bool { return s.path == "internal/archtest/repository_test.go" }) {
		t.Fatal("this file was not found")
	}
	for _, s := range code {
		for _, rule := range sourceRules {
			for _, violation := range rule(s) {
				t.Error(violation)
			}
		}
	}
	for _, violation := range docViolations(code) {
		t.Error(violation)
	}
}

// listPackages runs `go list` for all packages below dir as a build for the given GOOS sees them. A package that does
// not compile is listed with what is known of it; the compiler reports the rest.
func listPackages(dir, platform string) ([]pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-buildvcs=false",
		"-json=ImportPath,GoFiles,CgoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+platform)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s: %w: %s", platform, err, stderr.Bytes())
	}
	var packages []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode go list for %s: %w", platform, err)
		}
		packages = append(packages, p)
	}
}

// readSources parses every Go file of the tree except those in hidden folders, whatever its build tags.
func readSources(tree fs.FS) ([]source, error) {
	var files []source
	err := fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); len(name) > 1 && name[0] == '.' {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		s, err := parseSource(path, string(text))
		if err != nil {
			return err
		}
		files = append(files, s)
		return nil
	})
	return files, err
}
