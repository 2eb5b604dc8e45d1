package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
)

// listedPackage is what go list says about a package.
type listedPackage struct {
	ImportPath string
	Dir        string
	Export     string // the compiler's description of the package
	GoFiles    []string
	CgoFiles   []string
	ImportMap  map[string]string
}

func readList(file string) (map[string]listedPackage, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	listed := map[string]listedPackage{}
	decoder := json.NewDecoder(f)
	for {
		var p listedPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return listed, nil
		case err != nil:
			return nil, err
		}
		listed[p.ImportPath] = p
	}
}

// importPackage reads the types of the package from what the compiler wrote, so that they are
// exactly those that it saw.
func importPackage(fset *token.FileSet, listed map[string]listedPackage, path string) (*types.Package, error) {
	lookup := func(path string) (io.ReadCloser, error) {
		p, known := listed[path]
		if !known || p.Export == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(p.Export)
	}
	return importer.ForCompiler(fset, "gc", lookup).Import(path)
}

// docs are a package's comments, and where its functions are.
type docs struct {
	pkg       string
	functions map[string]*ast.FuncDecl
	fields    map[string]string // of "Struct.Field"
	fset      *token.FileSet
}

func readDocs(p listedPackage) (docs, error) {
	d := docs{functions: map[string]*ast.FuncDecl{}, fields: map[string]string{}, fset: token.NewFileSet()}
	for _, name := range append(p.GoFiles, p.CgoFiles...) {
		file, err := parser.ParseFile(d.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return d, err
		}
		if file.Doc != nil && d.pkg == "" {
			d.pkg = file.Doc.Text()
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv == nil {
					d.functions[decl.Name.Name] = decl
				}
			case *ast.GenDecl:
				d.readFields(decl)
			}
		}
	}
	return d, nil
}

func (d docs) readFields(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		spec, _ := spec.(*ast.TypeSpec)
		if spec == nil {
			continue
		}
		s, _ := spec.Type.(*ast.StructType)
		if s == nil {
			continue
		}
		for _, field := range s.Fields.List {
			text := field.Doc.Text()
			if text == "" {
				text = field.Comment.Text()
			}
			for _, name := range field.Names {
				d.fields[spec.Name.Name+"."+name.Name] = text
			}
		}
	}
}
