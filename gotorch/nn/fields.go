package nn

import (
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn/internal/seam"
)

// How a struct's fields become parameters, buffers and children.

// kind is what a tensor is to the module that it is a field of.
type kind = seam.Kind

const (
	parameter = seam.Parameter
	buffer    = seam.Buffer
	transient = seam.Transient // a buffer that is no part of the state dict
)

// entry is a tensor or a module within a struct. child is nil for tensors.
type entry struct {
	name   string
	kind   kind
	tensor *gotorch.Tensor
	store  func() // puts tensor back where it is from; nil where it is the field itself
	child  Modular
	list   listKind // of the field that the entry is an element of
	field  string   // the name of that field
}

// listKind tells modules in slices and maps from those that are fields by themselves.
type listKind int

const (
	single listKind = iota
	inSlice
	inMap
)

// field is a struct's field that may hold tensors or modules.
type field struct {
	index  []int
	name   string
	kind   kind
	inline bool
}

var (
	tensorType  = reflect.TypeFor[gotorch.Tensor]()
	moduleType  = reflect.TypeFor[Module]()
	modularType = reflect.TypeFor[Modular]()
)

// entries yields m's own tensors and modules: those of its fields in their order, but for the fields that are
// computed, and those that are no fields.
func entries(m Modular) iter.Seq[entry] {
	parts := m.module().parts
	if parts == nil {
		return fieldEntries(m)
	}
	return func(yield func(entry) bool) {
		for e := range fieldEntries(m) {
			if (e.tensor == nil || parts.FindComputed(e.name) == nil) && !yield(e) {
				return
			}
		}
		partEntries(parts, yield)
	}
}

// fieldEntries yields the tensors and modules of m's own fields, in their order.
func fieldEntries(m Modular) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		v := reflect.ValueOf(m).Elem()
		for _, f := range fieldsOf(v.Type()) {
			in, err := v.FieldByIndexErr(f.index)
			if err != nil {
				continue // in an embedded struct that is a nil pointer
			}
			name := f.name
			if f.inline {
				name = ""
			}
			if !collect(in, entry{name: name, kind: f.kind, field: f.name}, yield) {
				return
			}
		}
		if m, ok := m.(dictionary); ok {
			for name, child := range m.dict().All() {
				if !yield(entry{name: name, child: child, list: inSlice}) {
					return
				}
			}
		}
		if m, ok := m.(holder); ok {
			o := m.held()
			for i, name := range o.names {
				if o.tensors[i].T != nil && !yield(entry{name: name, tensor: &o.tensors[i]}) {
					return
				}
			}
		}
	}
}

// collect yields the tensors and modules of a value. like has what they have in common.
func collect(v reflect.Value, like entry, yield func(entry) bool) bool {
	if v.Type() == tensorType {
		if like.tensor, _ = v.Addr().Interface().(*gotorch.Tensor); like.tensor.T == nil {
			return true // a Tensor{} is none
		}
		return yield(like)
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return true
		}
		if child, ok := v.Interface().(Modular); ok {
			if isNil(child) {
				return true
			}
			whole(child)
			like.child = child
			return yield(like)
		}
		if inside := v.Elem().Type(); v.Kind() == reflect.Interface && lost(inside) {
			panic(typeError("nn.Init", "%s is a %v in an interface, where it is not found and would not learn: "+
				"make the field a gotorch.Tensor, a module, or a slice or map[string] of them; if it is no part of the module, tag it `nn:\"-\"`", like.name, inside))
		}
	case reflect.Struct:
		if child, ok := v.Addr().Interface().(Modular); ok {
			like.child = child
			return yield(like)
		}
	case reflect.Slice, reflect.Array:
		prefix := like.name
		for i := range v.Len() {
			like.name, like.list = join(prefix, strconv.Itoa(i)), inSlice
			if !collect(v.Index(i), like, yield) {
				return false
			}
		}
	case reflect.Map:
		prefix := like.name
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			if name := key.String(); name == "" || strings.Contains(name, ".") {
				panic(typeError("nn.Init", "%s has the key %q: a name must not be empty nor contain a dot", like.field, name))
			}
			// A map's elements have no address, so what is yielded is a copy's. Only who changes it stores
			// it: others may be reading the map.
			element := reflect.New(v.Type().Elem()).Elem()
			element.Set(v.MapIndex(key))
			like.name, like.list = join(prefix, key.String()), inMap
			if element.Type() == tensorType {
				like.store = func() { v.SetMapIndex(key, element) }
			}
			if !collect(element, like, yield) {
				return false
			}
		}
	}
	return true
}

// isNil reports whether m is a nil pointer in an interface.
func isNil(m Modular) bool {
	v := reflect.ValueOf(m)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// isTensor reports whether t is a tensor, or a type that is defined as one.
func isTensor(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.ConvertibleTo(tensorType)
}

// lost reports whether what is of type t, in an interface, is or holds tensors or modules that are not
// found there.
func lost(t reflect.Type) bool {
	for k := t.Kind(); k == reflect.Pointer || k == reflect.Slice || k == reflect.Array || k == reflect.Map; k = t.Kind() {
		t = t.Elem()
	}
	if isTensor(t) || t.Implements(modularType) || reflect.PointerTo(t).Implements(modularType) {
		return true
	}
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			if f := t.Field(i); f.Anonymous && f.Type == tensorType {
				return true
			}
		}
	}
	return false
}

var fieldsByType sync.Map

// fieldsOf returns the fields of a struct that may hold tensors or modules. It panics with a TypeError
// if they break the rules of Init.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldsByType.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		if f.Type == moduleType || within(t, f) {
			continue
		}
		name, options, tagged := strings.Cut(f.Tag.Get("nn"), ",")
		if name == "-" {
			continue
		}
		if f.Anonymous && (f.Type == tensorType || f.Type == reflect.PointerTo(tensorType)) {
			panic(typeError("nn.Init", "%v embeds gotorch.Tensor, which is not found there and would not learn: give the tensor a field", t))
		}
		if f.Anonymous && inherits(f.Type) {
			continue // VisibleFields lists its fields as t's own
		}
		if f.Anonymous && f.Type.Implements(modularType) {
			panic(typeError("nn.Init", "%v embeds the interface %v: embed nn.Module, and give the other module a field", t, f.Type))
		}
		if !holds(f.Type) {
			if hides(f.Type, map[reflect.Type]bool{}) {
				panic(typeError("nn.Init", "field %s of %v is a %v, in which tensors and modules are not found and would not learn: "+
					"make it a gotorch.Tensor, a module (a struct that embeds nn.Module), or a slice, array or map[string] of them; "+
					"if it is no part of the module, tag it `nn:\"-\"`", f.Name, t, f.Type))
			}
			if name != "" || tagged {
				panic(typeError("nn.Init", "field %s of %v has a tag nn, but its type %v holds no tensor or module", f.Name, t, f.Type))
			}
			continue
		}
		if !f.IsExported() {
			if f.Type.Kind() == reflect.Interface && !f.Type.Implements(modularType) {
				continue // likelier something that has nothing to do with modules
			}
			panic(typeError("nn.Init", "field %s of %v must be exported to be found; if it is no part of the module, tag it `nn:\"-\"`", f.Name, t))
		}
		in := field{index: f.Index, name: name}
		if name == "" {
			in.name = snake(f.Name)
		}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "":
			case "buffer":
				in.kind = max(in.kind, buffer)
			case "transient":
				in.kind = transient
			case "inline":
				in.inline = true
			default:
				panic(typeError("nn.Init", "field %s of %v has the tag %q; it may have buffer, transient and inline", f.Name, t, f.Tag))
			}
		}
		if strings.Contains(in.name, ".") {
			panic(typeError("nn.Init", "field %s of %v has the name %q, which must not contain a dot", f.Name, t, in.name))
		}
		fields = append(fields, in)
	}
	fieldsByType.Store(t, fields)
	return fields
}

// inherits reports whether an embedded field makes its struct the same module, as a subclass in
// PyTorch is: then the embedded struct's fields are the outer one's.
func inherits(t reflect.Type) bool {
	if t.Kind() == reflect.Struct {
		return true
	}
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// within reports whether f is in an embedded struct that a tag "-" leaves out, or in Module itself.
func within(t reflect.Type, f reflect.StructField) bool {
	for n := 1; n < len(f.Index); n++ {
		outer := t.FieldByIndex(f.Index[:n])
		if outer.Type == moduleType || outer.Tag.Get("nn") == "-" {
			return true
		}
	}
	return false
}

// holds reports whether a value of type t can be or contain a tensor or module in a way that counts.
func holds(t reflect.Type) bool {
	switch {
	case t == tensorType, t.Implements(modularType):
		return true
	case t.Kind() == reflect.Struct:
		return reflect.PointerTo(t).Implements(modularType)
	case t.Kind() == reflect.Interface:
		return true
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return holds(t.Elem())
	case t.Kind() == reflect.Map:
		if t.Key().Kind() != reflect.String {
			return false
		}
		switch t.Elem().Kind() {
		case reflect.Struct, reflect.Array: // have no address in a map, so they cannot hold modules
			return t.Elem() == tensorType
		}
		return holds(t.Elem())
	}
	return false
}

// hides reports whether a value of type t, which holds nothing that counts, can have a tensor or module
// within all the same. Interfaces may have anything, and are left alone.
func hides(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	if isTensor(t) || t.Implements(modularType) || reflect.PointerTo(t).Implements(modularType) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return hides(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if hides(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// snake returns a Go name as PyTorch's modules write names: RunningMean running_mean, FC fc,
// Conv2dA conv2d_a, HTTPServer http_server.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 {
			before := runes[i-1]
			nextIsLower := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if unicode.IsLower(before) || nextIsLower && before != '_' {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
