package args_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	module     = "gotorch.dev/gotorch"
	scalarType = module + ".Scalar"
	itself     = module + "/internal/args"
)

// looksInside are the places that may see what number a Scalar is, with the reason. All others
// leave that to this package, for which zero is a number like any other.
var looksInside = map[string]string{
	itself: "what all others go through",
	module: "makeScalar and optScalar, which hand it to C",
}

// knowing are functions that look into a Scalar of which it is known that it is there.
var knowing = map[string]string{
	"/data/internal/columns.number":         "an integer keeps its 64 bits; after Given",
	"/distributions/internal/numeric.Float": "what Number or Tensor.Item returned",
	"/gotorchtest.number":                   "what Tensor.Item returned",
	"/hub.wholeNumber":                      "whether a float is whole, so that 5e9 is a number of bytes",
	"/internal/pyload.PutScalar":            "numbers of files, and no options",
	"/optim.fill":                           "a number of a pair; after Given",
	"/nn/utils/prune.check":                 "whether n is a name",
	"/nn/utils/prune.norm":                  "whether n is a name",
}

// listed is what the go command says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
	Standard                bool
}

// TestNobodyGuessesWhetherANumberIsGiven holds all packages to one way of reading an option that is
// a Scalar: it is handed on, compared with nil, or read by Float, Int and their kin, which tell zero
// from nothing. An option can therefore not be taken for left out because it is 0, 0.0 or false.
func TestNobodyGuessesWhetherANumberIsGiven(t *testing.T) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles,Standard", module+"/...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, ours := map[string]string{}, []listed(nil)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/") {
			ours = append(ours, p)
		}
	}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	fields, used := 0, map[string]bool{}
	for _, p := range ours {
		if looksInside[p.ImportPath] != "" {
			continue
		}
		var files []*ast.File
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
		config := types.Config{Importer: imports, FakeImportC: true}
		if _, err := config.Check(p.ImportPath, set, files, info); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			for _, d := range f.Decls {
				where := ""
				if d, ok := d.(*ast.FuncDecl); ok {
					where = strings.TrimPrefix(p.ImportPath, module) + "." + d.Name.Name
				}
				fields += reads(t, set, info, d, where, used)
			}
		}
	}
	for where := range knowing {
		if !used[where] {
			t.Errorf("%s looks into no Scalar any more: take it out of the table", where)
		}
	}
	if fields < 300 {
		t.Errorf("only %d fields that are read were found; there are hundreds", fields)
	}
}

// reads tells of each place of a declaration that looks into a Scalar without being among those that
// know, and counts the fields that are read.
func reads(t *testing.T, set *token.FileSet, info *types.Info, decl ast.Decl, where string, used map[string]bool) (fields int) {
	isScalar := func(e ast.Expr) bool {
		of := info.Types[e].Type
		if alias, ok := of.(*types.Alias); ok {
			of = types.Unalias(alias)
		}
		named, ok := of.(*types.Named)
		return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path()+"."+named.Obj().Name() == scalarType
	}
	isNil := func(e ast.Expr) bool { return info.Types[e].IsNil() }
	wrong := func(at ast.Node, what string) {
		if knowing[where] != "" {
			used[where] = true
			return
		}
		t.Errorf("%s: %s; read it with args.Float, Int, Bool or Given, which tell 0 from what is left out",
			set.Position(at.Pos()), what)
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal && isScalar(n) {
				fields++
			}
		case *ast.TypeAssertExpr:
			if isScalar(n.X) {
				wrong(n, "an assertion of a Scalar's type")
			}
		case *ast.BinaryExpr:
			for _, pair := range [2][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
				if isScalar(pair[0]) && !isNil(pair[1]) {
					wrong(n, "a comparison of a Scalar with a value")
				}
			}
		case *ast.SwitchStmt:
			if n.Tag != nil && isScalar(n.Tag) {
				wrong(n, "a switch over a Scalar")
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 0 && isScalar(n.Args[0]) {
				if x, ok := f.X.(*ast.Ident); ok && x.Name == "reflect" {
					wrong(n, "reflection of a Scalar")
				}
			}
		}
		return true
	})
	return fields
}
