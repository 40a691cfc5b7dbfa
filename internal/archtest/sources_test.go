// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// license is the first line of every Go file.
const license = "// SPDX-License-Identifier: Apache-2.0"

// source is one parsed Go file.
type source struct {
	path string // below the repository root, with slashes
	text string
	fset *token.FileSet
	ast  *ast.File
}

// sourceRules are the rules that look at one file; each returns one line a violation.
var sourceRules = []func(source) []string{licenseViolations, sleepViolations, initViolations, environmentViolations,
	openEndViolations}

// parseSource parses a file's text; path is relative to the repository root.
func parseSource(path, text string) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	return source{path: path, text: text, fset: fset, ast: file}, err
}

// isTest reports whether the file is no part of the product.
func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || strings.HasPrefix(s.path, "tests/")
}

// violation words a finding at a node of the file.
func (s source) violation(at ast.Node, what string) string {
	return fmt.Sprintf("%s: %s", s.fset.Position(at.Pos()), what)
}

// uses returns every mention of one of names of the package importPath, whatever name that is imported under, called
// or not; and its import if that is a dot import, which hides mentions.
func (s source) uses(importPath string, names ...string) []ast.Node {
	var found []ast.Node
	local := map[string]bool{}
	for _, spec := range s.ast.Imports {
		if imported, err := strconv.Unquote(spec.Path.Value); err != nil || imported != importPath {
			continue
		}
		switch {
		case spec.Name == nil:
			local[path.Base(importPath)] = true
		case spec.Name.Name == ".":
			found = append(found, spec)
		default:
			local[spec.Name.Name] = true
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := selector.X.(*ast.Ident); ok && local[x.Name] && slices.Contains(names, selector.Sel.Name) {
				found = append(found, selector)
			}
		}
		return true
	})
	return found
}

// licenseViolations demands the license line.
func licenseViolations(s source) []string {
	if first, _, _ := strings.Cut(s.text, "\n"); first != license {
		return []string{fmt.Sprintf("%s: the first line is not %q", s.path, license)}
	}
	return nil
}

// sleepViolations forbids time.Sleep, in tests too: it makes them slow and still leaves them to chance.
func sleepViolations(s source) []string {
	if ast.IsGenerated(s.ast) {
		return nil
	}
	var found []string
	for _, use := range s.uses("time", "Sleep") {
		found = append(found, s.violation(use, "time.Sleep: wait for an event, with a deadline"))
	}
	return found
}

// initViolations forbids functions that run because their package is linked.
func initViolations(s source) []string {
	var found []string
	for _, declaration := range s.ast.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			found = append(found, s.violation(f, "func init: let a caller call it"))
		}
	}
	return found
}

// environmentViolations keeps reads of environment variables where a reader looks for them.
func environmentViolations(s source) []string {
	if s.isTest() || strings.HasPrefix(s.path, "cmd/") || strings.HasPrefix(s.path, "internal/appdir/") {
		return nil
	}
	var found []string
	for _, use := range slices.Concat(s.uses("os", "Getenv", "LookupEnv"), s.uses("syscall", "Getenv")) {
		found = append(found, s.violation(use, "environment read outside cmd and internal/appdir"))
	}
	return found
}

// openEnd matches a note about work left to do, with the issue that it belongs to, if any, in the first group.
var openEnd = regexp.MustCompile(`\b(?:TODO|FIXME)\b(?: ?\(?(#[0-9]+)\)?)?`)

// openEndViolations forbids notes about work left to do that name no issue.
func openEndViolations(s source) []string {
	var found []string
	for _, group := range s.ast.Comments {
		for _, comment := range group.List {
			for _, match := range openEnd.FindAllStringSubmatch(comment.Text, -1) {
				if match[1] == "" {
					found = append(found, s.violation(comment, match[0]+" without an issue number"))
				}
			}
		}
	}
	return found
}

// docViolations demands a doc comment of every package, one of test files alone included. It looks at all files at
// once because one of a package's files is enough.
func docViolations(files []source) []string {
	type folder struct {
		product                   bool // it has files other than tests
		documented, testDocuments bool // a file other than a test documents it, a test does
	}
	folders := map[string]*folder{}
	for _, s := range files {
		f := folders[path.Dir(s.path)]
		if f == nil {
			f = &folder{}
			folders[path.Dir(s.path)] = f
		}
		if strings.HasSuffix(s.path, "_test.go") {
			f.testDocuments = f.testDocuments || documents(s)
			continue
		}
		f.product = true
		f.documented = f.documented || documents(s)
	}
	var found []string
	for name, f := range folders {
		if !f.documented && (f.product || !f.testDocuments) {
			found = append(found, name+": no file has a doc comment that starts with the package's name")
		}
	}
	slices.Sort(found)
	return found
}

// documents reports whether the file holds its package's doc comment: "Package x ...", or for a command any text that
// is not the license. The external test package of a folder documents nothing.
func documents(s source) bool {
	if strings.HasSuffix(s.ast.Name.Name, "_test") {
		return false
	}
	text := s.ast.Doc.Text()
	if s.ast.Name.Name == "main" {
		return text != "" && !strings.HasPrefix(text, "SPDX")
	}
	return strings.HasPrefix(text, "Package "+s.ast.Name.Name+" ")
}

func TestSourceRulesCatchViolations(t *testing.T) {
	for _, tt := range []struct {
		name, path, text string
		rule             func(source) []string
		want             int
	}{
		{"license", "a/a.go", license + "\n\npackage a", licenseViolations, 0},
		{"license missing", "a/a.go", "package a", licenseViolations, 1},
		{"license in the second line", "a/a.go", "\n" + license + "\npackage a", licenseViolations, 1},
		{"another license", "a/a.go", license + "-or-later\npackage a", licenseViolations, 1},

		{"sleep", "a/a.go", `package a; import "time"; func f() { time.Sleep(1) }`, sleepViolations, 1},
		{"sleep in a test", "a/a_test.go", `package a; import "time"; func f() { time.Sleep(1) }`, sleepViolations, 1},
		{"sleep as a value", "a/a.go", `package a; import "time"; var nap = time.Sleep`, sleepViolations, 1},
		{"sleep renamed", "a/a.go", `package a; import t "time"; func f() { t.Sleep(1) }`, sleepViolations, 1},
		{"sleep by dot import", "a/a.go", `package a; import . "time"; func f() { Sleep(1) }`, sleepViolations, 1},
		{"another sleep", "a/a.go", `package a; import "x/time"; func f() { time.Sleep(1) }`, sleepViolations, 0},
		{"other times", "a/a.go", `package a; import "time"; var now = time.Now() // no time.Sleep`, sleepViolations, 0},
		{"sleep generated", "a/a.go", "// Code generated by x. DO NOT EDIT.\npackage a\nimport \"time\"\nvar nap = time.Sleep",
			sleepViolations, 0},

		{"init", "a/a.go", `package a; func init() {}`, initViolations, 1},
		{"method named init", "a/a.go", `package a; type b int; func (b) init() {}`, initViolations, 0},

		{"getenv", "services/a/a.go", `package a; import "os"; var x = os.Getenv("X")`, environmentViolations, 1},
		{"lookupenv", "internal/a/a.go", `package a; import "os"; var f = os.LookupEnv`, environmentViolations, 1},
		{"syscall", "internal/a/a.go", `package a; import "syscall"; var f = syscall.Getenv`, environmentViolations, 1},
		{"getenv in cmd", "cmd/a/main.go", `package main; import "os"; var x = os.Getenv("X")`, environmentViolations, 0},
		{"getenv in appdir", "internal/appdir/a.go", `package a; import "os"; var x = os.Getenv("X")`,
			environmentViolations, 0},
		{"getenv beside appdir", "internal/appdirs/a.go", `package a; import "os"; var x = os.Getenv("X")`,
			environmentViolations, 1},
		{"getenv in a test", "internal/a/a_test.go", `package a; import "os"; var x = os.Getenv("X")`,
			environmentViolations, 0},
		{"getenv in a suite", "tests/a/a.go", `package a; import "os"; var x = os.Getenv("X")`, environmentViolations, 0},

		{"open end", "a/a.go", "package a // TODO: later", openEndViolations, 1},
		{"open end with a name", "a/a.go", "package a // TODO(someone): later", openEndViolations, 1},
		{"open ends in a block", "a/a.go", "package a /* TODO one\nFIXME two */", openEndViolations, 2},
		{"open end with an issue", "a/a.go", "package a // TODO(#12): later", openEndViolations, 0},
		{"open end with an issue after a space", "a/a.go", "package a // TODO #12: later", openEndViolations, 0},
		{"word that holds one", "a/a.go", "package a // context.TODOs", openEndViolations, 0},
	} {
		s, err := parseSource(tt.path, tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := tt.rule(s); len(got) != tt.want {
			t.Errorf("%s: %q; want %d violations", tt.name, got, tt.want)
		}
	}
}

func TestEveryPackageNeedsADocComment(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"in one file of two", map[string]string{"a/a.go": "package a", "a/doc.go": "// Package a is.\npackage a"}, 0},
		{"in none", map[string]string{"a/a.go": "package a", "a/b.go": "package a"}, 1},
		{"in another folder", map[string]string{"a/a.go": "package a", "b/a.go": "// Package a is.\npackage a"}, 1},
		{"license in its place", map[string]string{"a/a.go": license + "\npackage a"}, 1},
		{"license in place of a command's", map[string]string{"a/main.go": license + "\npackage main"}, 1},
		{"a command's", map[string]string{"a/main.go": "// Command a is.\npackage main"}, 0},
		{"without the name", map[string]string{"a/a.go": "// This is.\npackage a"}, 1},
		{"of the external test package", map[string]string{"a/a_test.go": "// Package a_test is.\npackage a_test"}, 1},
		{"in a test while there is a product", map[string]string{"a/a.go": "package a",
			"a/a_test.go": "// Package a is.\npackage a"}, 1},
		{"in a package of tests", map[string]string{"a/a_test.go": "// Package a is.\npackage a"}, 0},
	} {
		var files []source
		for path, text := range tt.files {
			s, err := parseSource(path, text)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, s)
		}
		if got := docViolations(files); len(got) != tt.want {
			t.Errorf("%s: %q; want %d violations", tt.name, got, tt.want)
		}
	}
}
