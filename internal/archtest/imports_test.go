// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// module is the module's path, the first element of every import path of ours.
const module = "nvpair"

// bundle is the one command that links all services (DEC-112).
const bundle = module + "/cmd/nvpair-bundle"

// knowProduct lists the packages of internal/ that may import shared/.
var knowProduct = []string{"internal/appdir", "internal/clustertrust", "internal/worker"}

// pkg is what `go list -json` tells about one package.
type pkg struct {
	ImportPath   string
	GoFiles      []string
	CgoFiles     []string
	Imports      []string
	TestImports  []string // of its _test.go files inside the package
	XTestImports []string // of its _test.go files in package x_test
}

// importViolations returns what is wrong with the imports of p, one line a violation.
func importViolations(p pkg) []string {
	var found []string
	for _, imported := range p.Imports {
		if why := forbidden(p.ImportPath, imported, false); why != "" {
			found = append(found, fmt.Sprintf("%s imports %s: %s", p.ImportPath, imported, why))
		}
	}
	for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
		if why := forbidden(p.ImportPath, imported, true); why != "" {
			found = append(found, fmt.Sprintf("a test of %s imports %s: %s", p.ImportPath, imported, why))
		}
	}
	return append(found, commandViolations(p)...)
}

// commandViolations returns what is wrong with a package of cmd/: it is one main.go that calls one service.
func commandViolations(p pkg) []string {
	if folder, _ := split(p.ImportPath); folder != "cmd" {
		return nil
	}
	var found []string
	if files := slices.Concat(p.GoFiles, p.CgoFiles); !slices.Equal(files, []string{"main.go"}) {
		found = append(found, fmt.Sprintf("%s consists of %v: a command is one main.go", p.ImportPath, files))
	}
	services := map[string]bool{}
	for _, imported := range p.Imports {
		if folder, name := split(imported); folder == "services" {
			services[name] = true
		}
	}
	if len(services) > 1 && p.ImportPath != bundle {
		found = append(found, fmt.Sprintf("%s imports %d services: a command calls one", p.ImportPath, len(services)))
	}
	return found
}

// forbidden says why a package must not import another, or returns "" if it may. With inTest the import is one of the
// package's test files: those may use third-party libraries and, beside services and commands, the real binaries.
func forbidden(from, imported string, inTest bool) string {
	folder, name := split(from)
	target, targetName := split(imported)
	switch {
	case !slices.Contains([]string{"cmd", "services", "shared", "internal", "tests"}, folder):
		return "no Go package lives outside cmd, services, shared, internal and tests"
	case target == "":
		return forbiddenLibrary(folder, imported, inTest)
	case folder == "tests":
		return ""
	case target == "tests":
		if inTest && (folder == "cmd" || folder == "services") {
			return ""
		}
		return "tests are no part of the product"
	case target == "cmd":
		return "nothing imports a command"
	case folder == "services" && target == "services" && name != targetName:
		return "a service never imports another"
	case folder == "shared" && target != "shared":
		return "shared imports the standard library and shared only"
	case folder == "internal" && target == "services":
		return "internal knows no service"
	case folder == "internal" && target == "shared" && !slices.Contains(knowProduct, folder+"/"+name):
		return "of internal only " + strings.Join(knowProduct, ", ") + " know the product"
	}
	return ""
}

// forbiddenLibrary is forbidden for an import from outside the module.
func forbiddenLibrary(folder, imported string, inTest bool) string {
	first, _, _ := strings.Cut(imported, "/")
	thirdParty := strings.Contains(first, ".") // no first element of the standard library has a dot
	if thirdParty && !inTest && (folder == "cmd" || folder == "shared") {
		return folder + " uses no third-party library"
	}
	return ""
}

// split returns the folder of a package of ours and the folder's element in which it lies: "services" and "proxy" for
// nvpair/services/proxy/route. Both are empty for a package from outside the module.
func split(importPath string) (folder, name string) {
	inside, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return "", ""
	}
	folder, rest, _ := strings.Cut(path.Clean(inside), "/")
	name, _, _ = strings.Cut(rest, "/")
	return folder, name
}

func TestImportsPointTheRightWay(t *testing.T) {
	for _, tt := range []struct {
		from, imported string
		inTest, ok     bool
	}{
		{"nvpair/cmd/nvpair-proxy", "nvpair/services/proxy", false, true},
		{"nvpair/cmd/nvpair-proxy", "nvpair/internal/worker", false, true},
		{"nvpair/cmd/nvpair-proxy", "os", false, true},
		{"nvpair/cmd/nvpair-proxy", "golang.org/x/sys/unix", false, false},
		{"nvpair/cmd/nvpair-proxy", "nvpair/tests/harness", false, false},
		{"nvpair/cmd/nvpair-proxy", "nvpair/tests/harness", true, true},
		{"nvpair/services/proxy", "nvpair/shared/workload", false, true},
		{"nvpair/services/proxy", "nvpair/internal/jsonrpc", false, true},
		{"nvpair/services/proxy", "nvpair/services/proxy/route", false, true},
		{"nvpair/services/proxy/route", "nvpair/services/proxy", false, true},
		{"nvpair/services/proxy", "github.com/tidwall/gjson", false, true},
		{"nvpair/services/proxy", "nvpair/services/broker", false, false},
		{"nvpair/services/proxy", "nvpair/services/proxyother", false, false},
		{"nvpair/services/proxy", "nvpair/services/broker", true, false},
		{"nvpair/services/proxy", "nvpair/cmd/nvpair-proxy", false, false},
		{"nvpair/services/proxy", "nvpair/tests/engine", false, false},
		{"nvpair/services/proxy", "nvpair/tests/engine", true, true},
		{"nvpair/shared/workload", "encoding/json", false, true},
		{"nvpair/shared/workload", "nvpair/shared/node", false, true},
		{"nvpair/shared/workload", "nvpair/internal/jsonrpc", false, false},
		{"nvpair/shared/workload", "nvpair/internal/jsonrpc", true, false},
		{"nvpair/shared/workload", "nvpair/services/proxy", false, false},
		{"nvpair/shared/workload", "github.com/google/uuid", false, false},
		{"nvpair/shared/workload", "github.com/stretchr/testify/require", true, true},
		{"nvpair/internal/jsonrpc", "nvpair/internal/applog", false, true},
		{"nvpair/internal/jsonrpc", "golang.org/x/sync/errgroup", false, true},
		{"nvpair/internal/jsonrpc", "nvpair/shared/link", false, false},
		{"nvpair/internal/jsonrpc", "nvpair/shared/link", true, false},
		{"nvpair/internal/jsonrpc", "nvpair/services/proxy", true, false},
		{"nvpair/internal/jsonrpc", "nvpair/tests/harness", true, false},
		{"nvpair/internal/worker", "nvpair/shared/link", false, true},
		{"nvpair/internal/workerpool", "nvpair/shared/link", false, false},
		{"nvpair/internal/appdir", "nvpair/shared/identity", false, true},
		{"nvpair/internal/clustertrust", "nvpair/shared/identity", false, true},
		{"nvpair/tests/tree", "nvpair/services/proxy", false, true},
		{"nvpair/tests/tree", "github.com/sourcegraph/jsonrpc2", false, true},
		{"nvpair/pkg/thing", "os", false, false},
		{"nvpair", "os", false, false},
	} {
		if why := forbidden(tt.from, tt.imported, tt.inTest); (why == "") != tt.ok {
			t.Errorf("forbidden(%q, %q, %t) = %q; want allowed %t", tt.from, tt.imported, tt.inTest, why, tt.ok)
		}
	}
}

func TestACommandIsOneFileThatCallsOneService(t *testing.T) {
	two := []string{"nvpair/services/proxy", "nvpair/services/proxy/route", "nvpair/services/broker"}
	for _, tt := range []struct {
		name string
		in   pkg
		want int
	}{
		{"one service", pkg{ImportPath: "nvpair/cmd/nvpair-proxy", GoFiles: []string{"main.go"}, Imports: two[:2]}, 0},
		{"two services", pkg{ImportPath: "nvpair/cmd/nvpair-proxy", GoFiles: []string{"main.go"}, Imports: two}, 1},
		{"the bundle", pkg{ImportPath: bundle, GoFiles: []string{"main.go"}, Imports: two}, 0},
		{"two files", pkg{ImportPath: bundle, GoFiles: []string{"flags.go", "main.go"}}, 1},
		{"no command", pkg{ImportPath: "nvpair/tests/tree", GoFiles: []string{"tree.go"}, Imports: two}, 0},
	} {
		if got := commandViolations(tt.in); len(got) != tt.want {
			t.Errorf("%s: %q; want %d violations", tt.name, got, tt.want)
		}
	}
}

func TestViolationsOfAllThreeImportListsAreFound(t *testing.T) {
	bad := []string{"nvpair/services/broker"}
	got := importViolations(pkg{ImportPath: "nvpair/internal/ipc", Imports: bad, TestImports: bad, XTestImports: bad})
	if len(got) != 3 {
		t.Errorf("got %q; want 3 violations", got)
	}
}
