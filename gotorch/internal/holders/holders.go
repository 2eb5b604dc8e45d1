// Package holders says in which types gotorch.Scope looks for tensors.
package holders

import (
	"reflect"
	"sync"
)

var lockerType = reflect.TypeFor[sync.Locker]()

// Of finds the types that can hold values of one type.
type Of struct {
	What  reflect.Type
	known sync.Map // whether a value of a type can
}

// Holds reports whether there can be some in a value of type t, where gotorch.Scope looks for tensors.
func (o *Of) Holds(t reflect.Type) bool {
	if holds, ok := o.known.Load(t); ok {
		return holds.(bool)
	}
	holds := search(o.What, t, make(map[reflect.Type]bool))
	o.known.Store(t, holds)
	return holds
}

func search(what, t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == what {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return search(what, t.Elem(), seen)
	case reflect.Map:
		return search(what, t.Key(), seen) || search(what, t.Elem(), seen)
	case reflect.Struct:
		if forGoroutines(t) {
			return false
		}
		for i := range t.NumField() {
			if search(what, t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// forGoroutines reports whether several goroutines may be using a struct of type t, so that none may
// look into it without knowing its rules.
func forGoroutines(t reflect.Type) bool {
	for i := range t.NumField() {
		f := t.Field(i).Type
		if f.Kind() == reflect.Chan || reflect.PointerTo(f).Implements(lockerType) || f == lockerType {
			return true
		}
		for f.Kind() == reflect.Pointer || f.Kind() == reflect.Array || f.Kind() == reflect.Slice {
			f = f.Elem()
		}
		if pkg := f.PkgPath(); pkg == "sync" || pkg == "sync/atomic" {
			return true
		}
	}
	return reflect.PointerTo(t).Implements(lockerType)
}
