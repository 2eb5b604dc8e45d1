package gotorch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Packages reach what is below them by importing it. None has a variable that a package above fills in when the program starts:
// nothing would hold the two together but what is written twice.
func TestNoPackageFillsInVariables(t *testing.T) {
	files := token.NewFileSet()
	n := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_gen.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		n++
		for _, at := range filledIn(file) {
			t.Errorf("%v: an init function sets a variable", files.Position(at))
		}
		return nil
	})
	if err != nil || n < 300 {
		t.Fatalf("%d files, %v", n, err)
	}

	const doors = `package p
import "gotorch.dev/gotorch/internal/door"
var own func()
var list []int
func init() {
	door.Open = func() {}
	door.All.Doors["main"] = nil
	own = func() {}
	list = append(list, 1)
}
func f() { door.Open = nil }
`
	file, err := parser.ParseFile(files, "doors.go", doors, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, at := range filledIn(file) {
		lines = append(lines, files.Position(at).Line)
	}
	if !slices.Equal(lines, []int{6, 7, 8}) {
		t.Errorf("the test finds lines %v", lines)
	}
}

// filledIn returns where init functions of a file set variables of other packages of this module, or the file's own that are
// functions.
func filledIn(file *ast.File) (found []token.Pos) {
	others := map[string]bool{} // the names of variables and packages
	for _, spec := range file.Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		if !strings.HasPrefix(path, "gotorch.dev/") {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		others[name] = true
	}
	for _, decl := range file.Decls {
		if d, is := decl.(*ast.GenDecl); is && d.Tok == token.VAR {
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				if _, is := v.Type.(*ast.FuncType); is {
					for _, name := range v.Names {
						others[name.Name] = true
					}
				}
			}
		}
	}
	for _, decl := range file.Decls {
		f, is := decl.(*ast.FuncDecl)
		if !is || f.Recv != nil || f.Name.Name != "init" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if assign, is := n.(*ast.AssignStmt); is && assign.Tok == token.ASSIGN {
				for _, left := range assign.Lhs {
					if others[rootOf(left)] {
						found = append(found, left.Pos())
					}
				}
			}
			return true
		})
	}
	return found
}

// rootOf returns the name that an expression begins with.
func rootOf(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x.Name
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return ""
		}
	}
}
