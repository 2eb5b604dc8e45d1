package gotorch_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateAPI = flag.Bool("update-api", false, "write testdata/api.txt anew")

const apiFile = "testdata/api.txt"

// TestAPI compares every exported name, with its type, with the checked-in list. A line that is
// gone breaks somebody's program; a new one becomes part of the promise once it is in the list:
//
//	go test ./gotorch -run TestAPI -update-api
func TestAPI(t *testing.T) {
	got, err := exportedAPI(".")
	if err != nil {
		t.Fatal(err)
	}
	if *updateAPI {
		if err := os.WriteFile(apiFile, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	have := map[string]bool{}
	for _, line := range got {
		have[line] = true
	}
	listed := map[string]bool{}
	for _, line := range want {
		listed[line] = true
		if !have[line] {
			t.Errorf("gone or changed: %s", line)
		}
	}
	for _, line := range got {
		if !listed[line] {
			t.Errorf("new, not in %s: %s", apiFile, line)
		}
	}
	if t.Failed() {
		t.Log("if this is meant: go test ./gotorch -run TestAPI -update-api")
	}
}

// exportedAPI lists the exported declarations of the packages below a folder, sorted.
func exportedAPI(root string) ([]string, error) {
	var lines []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "internal" || name == "testdata" {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Join("gotorch", path))
		set := token.NewFileSet()
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			if parsed.Name.Name == "main" {
				continue
			}
			for _, decl := range parsed.Decls {
				for _, line := range exported(set, decl) {
					lines = append(lines, pkg+": "+line)
				}
			}
		}
		return nil
	})
	slices.Sort(lines)
	return slices.Compact(lines), err
}

// exported gives a line for each exported thing that a declaration declares.
func exported(set *token.FileSet, decl ast.Decl) []string {
	show := func(node any) string {
		var b strings.Builder
		if err := printer.Fprint(&b, set, node); err != nil {
			return err.Error()
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() {
			return nil
		}
		if d.Recv == nil {
			return []string{"func " + d.Name.Name + strings.TrimPrefix(show(d.Type), "func")}
		}
		receiver := show(d.Recv.List[0].Type)
		base, _, _ := strings.Cut(strings.TrimPrefix(receiver, "*"), "[")
		if !token.IsExported(base) {
			return nil
		}
		return []string{fmt.Sprintf("func (%s) %s%s", receiver, d.Name.Name, strings.TrimPrefix(show(d.Type), "func"))}
	case *ast.GenDecl:
		var lines []string
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						line := d.Tok.String() + " " + name.Name
						if s.Type != nil {
							line += " " + show(s.Type)
						}
						lines = append(lines, line)
					}
				}
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					lines = append(lines, typeLines(s, show)...)
				}
			}
		}
		return lines
	}
	return nil
}

// typeLines lists a type and, one a line, its exported fields or methods.
func typeLines(s *ast.TypeSpec, show func(any) string) []string {
	name := "type " + s.Name.Name
	if s.TypeParams != nil {
		var params []string
		for _, field := range s.TypeParams.List {
			for _, n := range field.Names {
				params = append(params, n.Name+" "+show(field.Type))
			}
		}
		name += "[" + strings.Join(params, ", ") + "]"
	}
	var fields *ast.FieldList
	kind := ""
	switch t := s.Type.(type) {
	case *ast.StructType:
		fields, kind = t.Fields, "struct"
	case *ast.InterfaceType:
		fields, kind = t.Methods, "interface"
	default:
		return []string{name + " " + show(s.Type)}
	}
	lines := []string{name + " " + kind}
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			lines = append(lines, name+" "+kind+", embedded "+show(field.Type))
		}
		for _, n := range field.Names {
			if n.IsExported() {
				lines = append(lines, name+" "+kind+", "+n.Name+" "+show(field.Type))
			}
		}
	}
	return lines
}
