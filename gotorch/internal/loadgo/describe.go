package main

import (
	"fmt"
	"go/constant"
	"go/types"
	"slices"
	"strings"
)

// described is what Python is told about a package.
type described struct {
	Package   string     `json:"package"`
	Path      string     `json:"path"`
	Doc       string     `json:"doc"`
	Functions []function `json:"functions"`
	LeftOut   []leftOut  `json:"left_out"`
	Constants []constVal `json:"constants"`
}

type function struct {
	Name      string   `json:"name"`
	Signature string   `json:"signature"`
	Doc       string   `json:"doc"`
	Where     string   `json:"where"` // file:line
	Params    []value  `json:"params"`
	Variadic  bool     `json:"variadic"` // the last parameter takes any number of values
	Options   *options `json:"options"`  // the fields of a trailing variadic struct
	Results   []value  `json:"results"`
	Fails     bool     `json:"fails"` // a last result, not in Results, is an error

	signature *types.Signature
}

type value struct {
	Name string `json:"name"`
	Doc  string `json:"doc,omitempty"`
	Type *shape `json:"type"`

	goType types.Type
}

// shape is a type as both sides see it.
type shape struct {
	Kind string `json:"kind"` // "int32", "string", "bytes", "tensor", "slice", "map", ...
	Go   string `json:"go"`   // as a user of the package writes it
	Elem *shape `json:"elem,omitempty"`
	Key  *shape `json:"key,omitempty"`
	Len  int64  `json:"len,omitempty"` // of an array
}

type options struct {
	Go      string    `json:"go"`
	Fields  []value   `json:"fields"`
	LeftOut []leftOut `json:"left_out"`

	goType types.Type
}

// leftOut is something that Python cannot have, and why.
type leftOut struct {
	Name      string `json:"name"`
	Signature string `json:"signature"`
	Reason    string `json:"reason"`
}

type constVal struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // "bool", "int", "float" or "str"
	Value string `json:"value"`
}

func describe(pkg *types.Package, docs docs) described {
	d := described{
		Package: pkg.Name(), Path: pkg.Path(), Doc: docs.pkg,
		Functions: []function{}, LeftOut: []leftOut{}, Constants: []constVal{},
	}
	for _, name := range pkg.Scope().Names() { // sorted
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch object := object.(type) {
		case *types.Func:
			f, reason := describeFunction(pkg, object, docs)
			if reason != "" {
				d.LeftOut = append(d.LeftOut, leftOut{name, f.Signature, reason})
			} else {
				d.Functions = append(d.Functions, f)
			}
		case *types.Const:
			if c, ok := describeConstant(object); ok {
				d.Constants = append(d.Constants, c)
			}
		}
	}
	return d
}

// qualifier writes types as a user of pkg reads them in its source.
func qualifier(pkg *types.Package) types.Qualifier {
	return func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return other.Name()
	}
}

func describeFunction(pkg *types.Package, object *types.Func, docs docs) (f function, reason string) {
	signature := object.Signature()
	f = function{Name: object.Name(), Params: []value{}, Results: []value{}, signature: signature}
	f.Signature = "func " + object.Name() + strings.TrimPrefix(types.TypeString(signature, qualifier(pkg)), "func")
	if decl := docs.functions[f.Name]; decl != nil {
		f.Doc = decl.Doc.Text()
		at := docs.fset.Position(decl.Name.Pos())
		f.Where = fmt.Sprintf("%s:%d", at.Filename, at.Line)
	}
	if signature.TypeParams().Len() > 0 {
		return f, "it is generic; wrap it for the types you need"
	}

	d := describer{pkg: pkg}
	params := slices.Collect(signature.Params().Variables())
	for i, p := range params {
		name := p.Name()
		if name == "" || name == "_" {
			name = fmt.Sprintf("arg%d", i)
		}
		t := p.Type()
		if signature.Variadic() && i == len(params)-1 {
			t = t.(*types.Slice).Elem()
			if s, named := optionsStruct(t); s != nil {
				f.Options, reason = d.options(s, named, docs)
				if reason != "" {
					return f, reason
				}
				continue
			}
			f.Variadic = true
		}
		s, why := d.shape(t)
		if why != "" {
			return f, "parameter " + name + " " + why
		}
		f.Params = append(f.Params, value{Name: name, Type: s, goType: t})
	}

	results := slices.Collect(signature.Results().Variables())
	if n := len(results); n > 0 && isError(results[n-1].Type()) {
		f.Fails = true
		results = results[:n-1]
	}
	for i, r := range results {
		s, why := d.shape(r.Type())
		if why != "" {
			return f, fmt.Sprintf("result %d %s", i, why)
		}
		f.Results = append(f.Results, value{Name: r.Name(), Type: s, goType: r.Type()})
	}
	return f, ""
}

// optionsStruct returns the struct that t is, if it may be a function's options.
func optionsStruct(t types.Type) (*types.Struct, *types.Named) {
	named, _ := types.Unalias(t).(*types.Named)
	if named == nil || gotorchType(named) != "" {
		return nil, nil
	}
	s, _ := named.Underlying().(*types.Struct)
	return s, named
}

// describer finds out how Python sees types.
type describer struct {
	pkg *types.Package
	in  []*types.Named // that shape is inside
}

func (d *describer) options(s *types.Struct, named *types.Named, docs docs) (*options, string) {
	if why := d.unreachable(named); why != "" {
		return nil, "its options " + strings.Replace(why, "has the type", "have the type", 1)
	}
	o := &options{Go: types.TypeString(named, qualifier(d.pkg)), Fields: []value{}, LeftOut: []leftOut{}, goType: named}
	for field := range s.Fields() {
		if !field.Exported() {
			continue
		}
		text := types.TypeString(field.Type(), qualifier(d.pkg))
		t, why := d.shape(field.Type())
		if why != "" {
			o.LeftOut = append(o.LeftOut, leftOut{field.Name(), text, why})
			continue
		}
		doc := ""
		if named.Obj().Pkg() == d.pkg {
			doc = docs.fields[named.Obj().Name()+"."+field.Name()]
		}
		o.Fields = append(o.Fields, value{Name: field.Name(), Doc: doc, Type: t, goType: field.Type()})
	}
	return o, ""
}

const gotorchPath = "gotorch.dev/gotorch"

// gotorchType returns the kind of a type of gotorch that Python has too.
func gotorchType(named *types.Named) string {
	if named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != gotorchPath {
		return ""
	}
	switch named.Obj().Name() {
	case "Tensor":
		return "tensor"
	case "DType":
		return "dtype"
	case "Device":
		return "device"
	case "Scalar":
		return "scalar"
	}
	return ""
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// unreachable says why the program around the package cannot name the type, or "".
func (d *describer) unreachable(named *types.Named) string {
	o := named.Obj()
	switch {
	case o.Pkg() == nil:
		return ""
	case !o.Exported():
		return fmt.Sprintf("has the type %s, which is not exported", types.TypeString(named, qualifier(d.pkg)))
	case slices.Contains(strings.Split(o.Pkg().Path(), "/"), "internal"):
		return fmt.Sprintf("has the type %s, which is internal", types.TypeString(named, qualifier(d.pkg)))
	}
	return ""
}

// shape returns how Python sees t, or why it cannot.
func (d *describer) shape(t types.Type) (*shape, string) {
	text := types.TypeString(t, qualifier(d.pkg))
	if named, ok := types.Unalias(t).(*types.Named); ok {
		if kind := gotorchType(named); kind != "" {
			return &shape{Kind: kind, Go: text}, ""
		}
		if why := d.unreachable(named); why != "" {
			return nil, why
		}
		if slices.Contains(d.in, named) {
			return nil, fmt.Sprintf("has the type %s, which contains itself", text)
		}
		d.in = append(d.in, named)
		defer func() { d.in = d.in[:len(d.in)-1] }()
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		switch u.Kind() {
		case types.UnsafePointer, types.Uintptr:
			return nil, fmt.Sprintf("is a bare address, %s", text)
		}
		return &shape{Kind: u.Name(), Go: text}, ""
	case *types.Slice:
		if b, ok := types.Unalias(u.Elem()).(*types.Basic); ok && b.Kind() == types.Byte {
			return &shape{Kind: "bytes", Go: text}, ""
		}
		elem, why := d.shape(u.Elem())
		return &shape{Kind: "slice", Go: text, Elem: elem}, why
	case *types.Array:
		elem, why := d.shape(u.Elem())
		return &shape{Kind: "array", Go: text, Elem: elem, Len: u.Len()}, why
	case *types.Map:
		if b, ok := u.Key().Underlying().(*types.Basic); !ok || b.Info()&(types.IsInteger|types.IsString) == 0 {
			return nil, fmt.Sprintf("is a map whose keys are neither strings nor integers, %s", text)
		}
		key, why := d.shape(u.Key())
		if why != "" {
			return nil, why
		}
		elem, why := d.shape(u.Elem())
		return &shape{Kind: "map", Go: text, Key: key, Elem: elem}, why
	case *types.Pointer:
		if _, ok := u.Elem().Underlying().(*types.Basic); !ok {
			return nil, fmt.Sprintf("is a pointer to something other than a number, bool or string, %s", text)
		}
		elem, why := d.shape(u.Elem())
		return &shape{Kind: "pointer", Go: text, Elem: elem}, why
	case *types.Chan:
		return nil, fmt.Sprintf("is a channel, %s", text)
	case *types.Signature:
		return nil, fmt.Sprintf("is a function, %s, and functions stay where they are", text)
	case *types.Interface:
		if isError(t) {
			return nil, "is an error: only a last result may be"
		}
		return nil, fmt.Sprintf("is an interface, %s", text)
	case *types.Struct:
		return nil, fmt.Sprintf("is a struct, %s: only a last parameter ...Options may be", text)
	}
	return nil, fmt.Sprintf("has the type %s", text)
}

func describeConstant(object *types.Const) (constVal, bool) {
	v := object.Val()
	named, _ := types.Unalias(object.Type()).(*types.Named)
	switch {
	case named != nil && gotorchType(named) != "":
		return constVal{}, false
	case v.Kind() == constant.Bool:
		return constVal{object.Name(), "bool", v.ExactString()}, true
	case v.Kind() == constant.String:
		return constVal{object.Name(), "str", constant.StringVal(v)}, true
	case v.Kind() == constant.Int:
		return constVal{object.Name(), "int", v.ExactString()}, true
	case v.Kind() == constant.Float:
		f, _ := constant.Float64Val(v)
		return constVal{object.Name(), "float", fmt.Sprint(f)}, true
	}
	return constVal{}, false
}
