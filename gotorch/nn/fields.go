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
	"gotorch.dev/gotorch/nn/internal/fields"
)

// How a struct's fields become parameters, buffers and children.

// kind is what a tensor is to the module that it is a field of.
type kind = fields.Kind

const (
	parameter = fields.Parameter
	buffer    = fields.Buffer
	transient = fields.Transient // a buffer that is no part of the state dict
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
	open   bool // it counts for nothing, but may have anything in an interface
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
		return fieldEntries(m, nil)
	}
	return func(yield func(entry) bool) {
		for e := range fieldEntries(m, parts) {
			if !yield(e) {
				return
			}
		}
		partEntries(parts, yield)
	}
}

// fieldEntries yields the tensors and modules of m's own fields, in their order, without those that parts, if there
// are any, have computed: these are not even read, as a call of Forward may be writing them.
func fieldEntries(m Modular, parts *fields.Parts) iter.Seq[entry] {
	computed := func(name string) bool { return parts != nil && parts.FindComputed(name) != nil }
	return func(yield func(entry) bool) {
		v := reflect.ValueOf(m).Elem()
		for _, f := range fieldsOf(v.Type()) {
			in, err := v.FieldByIndexErr(f.index)
			if err != nil {
				continue // in an embedded struct that is a nil pointer
			}
			if f.open {
				if found := lost(in); found != nil {
					panic(hiddenError(f.name, found))
				}
				continue
			}
			name := f.name
			if f.inline {
				name = ""
			}
			if in.Type() == tensorType && computed(name) {
				continue
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
			tensors := m.held().tensors
			for i, name := range m.held().names {
				if !computed(name) && tensors[i].T != nil && !yield(entry{name: name, tensor: &tensors[i]}) {
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
		if v.Kind() == reflect.Interface {
			if inside := lost(v.Elem()); inside != nil {
				panic(hiddenError(like.name, inside))
			}
		}
	case reflect.Struct:
		if child, ok := v.Addr().Interface().(Modular); ok {
			like.child = child
			return yield(like)
		}
	case reflect.Slice, reflect.Array:
		prefix := like.name
		if v.Kind() == reflect.Slice {
			v = v.Slice(0, v.Len()) // as it is now: the field may get another one meanwhile
		}
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
			value := v.MapIndex(key)
			if !value.IsValid() {
				continue // taken out meanwhile
			}
			element.Set(value)
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

func hiddenError(name string, inside reflect.Type) *gotorch.Error {
	return typeError("nn.Init", "%s is a %v in an interface, where it is not found and would not learn: "+
		"make the field a gotorch.Tensor, a module, or a slice or map[string] of them; if it is no part of the module, tag it `nn:\"-\"`", name, inside)
}

// lost returns the type of a tensor or module, or of something that holds one, in a value in which none is found;
// nil if there is none. Behind a pointer it looks into exported fields only, and into no map: what others may be
// changing is not read.
func lost(v reflect.Value) reflect.Type { return lostIn(v, false, map[uintptr]bool{}) }

func lostIn(v reflect.Value, shared bool, seen map[uintptr]bool) reflect.Type {
	if !v.IsValid() {
		return nil
	}
	if basic(v.Kind()) {
		return nil
	}
	if hides(v.Type()) {
		return v.Type()
	}
	if !opens(v.Type()) {
		return nil
	}
	switch v.Kind() {
	case reflect.Interface:
		return lostIn(v.Elem(), shared, seen)
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return nil
		}
		seen[v.Pointer()] = true
		return lostIn(v.Elem(), true, seen)
	case reflect.Slice:
		if seen[v.Pointer()] && v.Len() > 0 {
			return nil
		}
		seen[v.Pointer()] = true
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			if t := lostIn(v.Index(i), shared, seen); t != nil {
				return t
			}
		}
	case reflect.Map:
		if shared || seen[v.Pointer()] {
			return nil
		}
		seen[v.Pointer()] = true
		for at := v.MapRange(); at.Next(); {
			for _, in := range []reflect.Value{at.Key(), at.Value()} {
				if t := lostIn(in, shared, seen); t != nil {
					return t
				}
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if shared && !v.Type().Field(i).IsExported() {
				continue
			}
			if t := lostIn(v.Field(i), shared, seen); t != nil {
				return t
			}
		}
	}
	return nil
}

// basic reports whether values of a kind hold nothing else.
func basic(k reflect.Kind) bool {
	return k <= reflect.Complex128 || k == reflect.String || k == reflect.UnsafePointer || k == reflect.Func
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
		if f.Anonymous && (isTensor(f.Type) || f.Type.Kind() == reflect.Pointer && isTensor(f.Type.Elem())) {
			panic(typeError("nn.Init", "%v embeds gotorch.Tensor, which is not found there and would not learn: give the tensor a field", t))
		}
		if f.Anonymous && inherits(f.Type) {
			continue // VisibleFields lists its fields as t's own
		}
		if f.Anonymous && f.Type.Implements(modularType) {
			panic(typeError("nn.Init", "%v embeds the interface %v: embed nn.Module, and give the other module a field", t, f.Type))
		}
		if !holds(f.Type) {
			if hides(f.Type) {
				panic(typeError("nn.Init", "field %s of %v is a %v, in which tensors and modules are not found and would not learn: "+
					"make it a gotorch.Tensor, a module (a struct that embeds nn.Module), or a slice, array or map[string] of them; "+
					"if it is no part of the module, tag it `nn:\"-\"`", f.Name, t, f.Type))
			}
			if name != "" || tagged {
				panic(typeError("nn.Init", "field %s of %v has a tag nn, but its type %v holds no tensor or module", f.Name, t, f.Type))
			}
			if opens(f.Type) {
				fields = append(fields, field{index: f.Index, name: f.Name, open: true})
			}
			continue
		}
		if !f.IsExported() {
			if f.Type.Kind() == reflect.Interface && !f.Type.Implements(modularType) {
				// Likelier something that has nothing to do with modules.
				fields = append(fields, field{index: f.Index, name: f.Name, open: true})
				continue
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
	notShadowed(t, t, nil)
	fieldsByType.Store(t, fields)
	return fields
}

// notShadowed panics with a TypeError if an embedded struct has a tensor or module in a field that another field
// of the same name hides, as Go's rules have it: then neither or only the other one is found.
func notShadowed(outer, t reflect.Type, index []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clone(index), i)
		if f.Type == moduleType || f.Tag.Get("nn") == "-" {
			continue
		}
		if f.Anonymous && inherits(f.Type) {
			if f.Type.Kind() == reflect.Pointer {
				f.Type = f.Type.Elem()
			}
			if len(at) < 9 { // a struct may embed a pointer to itself
				notShadowed(outer, f.Type, at)
			}
			continue
		}
		if len(index) == 0 || !hides(f.Type) {
			continue
		}
		if seen, ok := outer.FieldByName(f.Name); !ok || !slices.Equal(seen.Index, at) {
			panic(typeError("nn.Init", "field %s of %v, which %v embeds, is hidden by another field of that name, so that it is not found and would not learn: "+
				"rename one of them; if it is no part of the module, tag it `nn:\"-\"`", f.Name, t, outer))
		}
	}
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

// hides reports whether a value of type t is a tensor or module or has one within, whether or not it counts there.
// Interfaces may have anything, which their values tell: see lost. What a function remembers nobody can see.
func hides(t reflect.Type) bool {
	if basic(t.Kind()) {
		return false
	}
	if known, ok := hidingTypes.Load(t); ok {
		return known.(bool)
	}
	found := reaches(t, map[reflect.Type]bool{}, func(t reflect.Type) bool {
		return isTensor(t) || t.Implements(modularType) || reflect.PointerTo(t).Implements(modularType)
	})
	hidingTypes.Store(t, found)
	return found
}

// opens reports whether a value of type t is an interface or has one within.
func opens(t reflect.Type) bool {
	if basic(t.Kind()) {
		return false
	}
	if known, ok := openTypes.Load(t); ok {
		return known.(bool)
	}
	found := reaches(t, map[reflect.Type]bool{}, func(t reflect.Type) bool { return t.Kind() == reflect.Interface })
	openTypes.Store(t, found)
	return found
}

var hidingTypes, openTypes sync.Map

// reaches reports whether is holds for t or a type that it is made of.
func reaches(t reflect.Type, seen map[reflect.Type]bool, is func(t reflect.Type) bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	if is(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Map:
		return reaches(t.Key(), seen, is) || reaches(t.Elem(), seen, is)
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		return reaches(t.Elem(), seen, is)
	case reflect.Struct:
		for i := range t.NumField() {
			if reaches(t.Field(i).Type, seen, is) {
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
