package functorch

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
)

// Trees: values with tensors in them. A tree's tensors have an order, that of fields and elements, and
// for maps that of their keys.

var tensorType = reflect.TypeFor[gotorch.Tensor]()

// deepest is how deep trees may be, lest a slice that is its own element never ends.
const deepest = 1000

// mapTree returns a copy of a tree with each tensor replaced by what fn makes of it. None stays none, and
// what is no tensor stays what it is.
func mapTree[T any](op string, tree T, fn func(gotorch.Tensor) gotorch.Tensor) T {
	switch t := any(&tree).(type) {
	case *gotorch.Tensor:
		if t.T != nil {
			*t = fn(*t)
		}
		return tree
	case *[]gotorch.Tensor:
		if *t != nil {
			*t = mapTensors(*t, fn)
		}
		return tree
	}
	v := mapValue(op, reflect.ValueOf(&tree).Elem(), fn, 0)
	reflect.ValueOf(&tree).Elem().Set(v)
	return tree
}

// mapTensors is mapTree for a list.
func mapTensors(ts []gotorch.Tensor, fn func(gotorch.Tensor) gotorch.Tensor) []gotorch.Tensor {
	mapped := make([]gotorch.Tensor, len(ts))
	for i, t := range ts {
		if t.T != nil {
			mapped[i] = fn(t)
		}
	}
	return mapped
}

// mapValue is mapTree for a value. The result is another value, which shares nothing with v that holds
// tensors.
func mapValue(op string, v reflect.Value, fn func(gotorch.Tensor) gotorch.Tensor, depth int) reflect.Value {
	t := v.Type()
	if t == tensorType {
		if x := v.Interface().(gotorch.Tensor); x.T != nil {
			return reflect.ValueOf(fn(x))
		}
		return v
	}
	if !holdsTensors(t) {
		return v
	}
	if depth > deepest {
		panic(valueError(op, "a %v with tensors is more than %d levels deep, or within itself", t, deepest))
	}
	switch t.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		mapped := reflect.New(t).Elem()
		mapped.Set(mapValue(op, v.Elem(), fn, depth+1))
		return mapped
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		panic(typeError(op, "a %v cannot be transformed: give the function tensors, or structs, slices, arrays and maps of them, "+
			"but no pointers; the parameters of a module go in as a state dict, see FunctionalCall", t))
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		mapped := reflect.MakeSlice(t, v.Len(), v.Len())
		for i := range v.Len() {
			mapped.Index(i).Set(mapValue(op, v.Index(i), fn, depth+1))
		}
		return mapped
	case reflect.Array:
		mapped := reflect.New(t).Elem()
		for i := range v.Len() {
			mapped.Index(i).Set(mapValue(op, v.Index(i), fn, depth+1))
		}
		return mapped
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		mapped := reflect.MakeMapWithSize(t, v.Len())
		for _, key := range sortedKeys(op, v) {
			mapped.SetMapIndex(key, mapValue(op, v.MapIndex(key), fn, depth+1))
		}
		return mapped
	case reflect.Struct:
		mapped := reflect.New(t).Elem()
		mapped.Set(v)
		for i := range t.NumField() {
			if f := t.Field(i); holdsTensors(f.Type) {
				if !f.IsExported() {
					panic(typeError(op, "field %s of %v must be exported to be transformed", f.Name, t))
				}
				mapped.Field(i).Set(mapValue(op, v.Field(i), fn, depth+1))
			}
		}
		return mapped
	}
	return v
}

func sortedKeys(op string, v reflect.Value) []reflect.Value {
	keys := v.MapKeys()
	var order func(a, b reflect.Value) int
	switch k := v.Type().Key(); {
	case k.Kind() == reflect.String:
		order = func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }
	case reflect.Zero(k).CanInt():
		order = func(a, b reflect.Value) int { return cmp.Compare(a.Int(), b.Int()) }
	case reflect.Zero(k).CanUint():
		order = func(a, b reflect.Value) int { return cmp.Compare(a.Uint(), b.Uint()) }
	default:
		panic(typeError(op, "the keys of a %v have no order: use strings or integers", v.Type()))
	}
	slices.SortFunc(keys, order)
	return keys
}

// leaves returns a tree's tensors in their order, without none.
func leaves[T any](op string, tree T) []gotorch.Tensor {
	var found []gotorch.Tensor
	mapTree(op, tree, func(t gotorch.Tensor) gotorch.Tensor {
		found = append(found, t)
		return t
	})
	return found
}

// fill returns a copy of a tree with other tensors, in the order of its leaves.
func fill[T any](op string, tree T, with []gotorch.Tensor) T {
	next := 0
	return mapTree(op, tree, func(gotorch.Tensor) gotorch.Tensor {
		next++
		return with[next-1]
	})
}

// structure describes where a tree has tensors: trees of the same type and structure have as many, in the
// same places.
func structure(op string, tree any) string {
	var b strings.Builder
	describe(op, &b, reflect.ValueOf(tree), 0)
	return b.String()
}

func describe(op string, b *strings.Builder, v reflect.Value, depth int) {
	if !v.IsValid() {
		b.WriteString("nil")
		return
	}
	if v.Type() == tensorType {
		if v.Interface().(gotorch.Tensor).T == nil {
			b.WriteString("none")
		} else {
			b.WriteString("*")
		}
		return
	}
	if !holdsTensors(v.Type()) {
		b.WriteString("_")
		return
	}
	if depth > deepest {
		panic(valueError(op, "a %v with tensors is more than %d levels deep, or within itself", v.Type(), deepest))
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		describe(op, b, v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteString(", ")
			}
			describe(op, b, v.Index(i), depth+1)
		}
		b.WriteByte(']')
	case reflect.Map:
		b.WriteByte('{')
		for i, key := range sortedKeys(op, v) {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(b, "%v: ", key)
			describe(op, b, v.MapIndex(key), depth+1)
		}
		b.WriteByte('}')
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && holdsTensors(f.Type) {
				fmt.Fprintf(b, "%s: ", f.Name)
				describe(op, b, v.Field(i), depth+1)
				b.WriteByte(' ')
			}
		}
		b.WriteByte('}')
	}
}

// sameStructure panics with a RuntimeError if two trees have tensors in different places.
func sameStructure(op, what, like string, a, b any) {
	if sa, sb := structure(op, a), structure(op, b); sa != sb {
		panic(runtimeError(op, "Expected %s to have the same structure as %s. Got %s with structure %s and %s with structure %s",
			what, like, what, sa, like, sb))
	}
}

func typeError(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf(format, values...)}
}

func valueError(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.ValueError, Msg: fmt.Sprintf(format, values...)}
}

func runtimeError(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(format, values...)}
}
