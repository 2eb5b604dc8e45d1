package gotorch

import (
	"reflect"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/holders"
)

// ScopeHandle is what a function run by [Scope] gets. It is only valid until the function returns.
type ScopeHandle struct{ handle ctorch.ScopeHandle }

// Scope calls fn and then frees every tensor that was made inside, except those that fn returns or
// that were given to [ScopeHandle.Keep]. It frees them also when fn panics. Using a freed tensor
// panics with a ValueError.
//
// R may be a Tensor, or slices, arrays, maps, structs, interfaces and pointers with tensors in them.
// Scope does not look into functions and channels, nor into structs that several goroutines may be
// using: those with a field that is a channel, or can be locked, or is of package sync or sync/atomic.
// Tensors that are only there need Keep, or they are freed.
//
// Scopes nest: what an inner scope keeps belongs to the outer one. A scope is a matter of one
// goroutine, which is locked to its OS thread meanwhile: what other goroutines make, also those that
// fn starts, is left to the collector. fn should not wait for long, because only so many goroutines may
// be inside at a time: see docs/memory.md.
//
//	y := gotorch.Scope(func(s *gotorch.ScopeHandle) gotorch.Tensor {
//		h := x.MM(w1).ReLU()
//		return h.MM(w2)
//	})
func Scope[R any](fn func(s *ScopeHandle) R) R {
	s := enterScope()
	defer s.Leave()
	result := fn(handleOf(s))
	s.End()
	switch r := any(result).(type) {
	case Tensor:
		s.Keep(r.T)
	case []Tensor:
		s.KeepAll(wordsIn(r))
	default:
		keepWithin(s, result)
	}
	return result
}

// Scope0 is [Scope] for a function without a result.
func Scope0(fn func(s *ScopeHandle)) {
	s := enterScope()
	defer s.Leave()
	fn(handleOf(s))
}

func enterScope() *ctorch.Scope {
	s, message := ctorch.EnterScope()
	if message != nil {
		panicC("", unsafe.Pointer(message))
	}
	return s
}

func handleOf(s *ctorch.Scope) *ScopeHandle { return (*ScopeHandle)(unsafe.Pointer(s.Handle)) }

// wordsIn returns the words of a list, as they lie in it.
func wordsIn(ts []Tensor) []ctorch.Word {
	return unsafe.Slice((*ctorch.Word)(unsafe.Pointer(unsafe.SliceData(ts))), len(ts))
}

// Unscoped runs fn as if no scope were around it: what fn makes is left to the collector. It is for
// state that is first made while a caller's scope is open and outlives it, such as a cache or an
// optimiser's averages.
func Unscoped(fn func()) {
	thread := lockThread()
	defer unlockThread(thread)
	ctorch.Unscoped(fn)
}

// Keep spares tensors from being freed at the end of the scope, and of the scopes that are open within it. They belong
// to the outer scope then, or to the collector where there is none. Tensors from elsewhere are left as they are. It panics
// with a ValueError if the function that s was given to has returned.
func (s *ScopeHandle) Keep(tensors ...Tensor) {
	if !s.handle.Keep(wordsIn(tensors)) {
		panic(newError("Keep", ValueError, "the scope has ended"))
	}
}

// Tensors in results -------------------------------------------------------------------------------

// keepWithin keeps the tensors that are anywhere in v.
func keepWithin(s *ctorch.Scope, v any) {
	if v == nil {
		return
	}
	// A list of what is still to be looked at, and no recursion: a linked list may be long.
	w := walk{todo: []reflect.Value{reflect.ValueOf(v)}}
	for len(w.todo) > 0 {
		last := len(w.todo) - 1
		v := w.todo[last]
		w.todo = w.todo[:last]
		if v.Type() == tensorType {
			// Reads unexported fields too, which Interface would refuse.
			s.Keep(ctorch.Word(v.Field(0).UnsafePointer()))
		} else {
			w.into(v)
		}
	}
}

type walk struct {
	todo []reflect.Value
	seen map[visited]bool
}

// visited is a pointer, slice or map. A struct and its first field have the same address.
type visited struct {
	at  uintptr
	len int
	of  reflect.Type
}

// into puts what is directly in v on the list.
func (w *walk) into(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && w.first(v, 1) {
			w.add(v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() {
			w.add(v.Elem())
		}
	case reflect.Slice:
		if !v.IsNil() && w.first(v, v.Len()) {
			w.elements(v)
		}
	case reflect.Array:
		w.elements(v)
	case reflect.Map:
		if !v.IsNil() && w.first(v, 1) {
			for it := v.MapRange(); it.Next(); {
				w.add(it.Key())
				w.add(it.Value())
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			w.add(v.Field(i))
		}
	}
}

func (w *walk) elements(v reflect.Value) {
	if holdsTensors(v.Type().Elem()) {
		for i := range v.Len() {
			w.add(v.Index(i))
		}
	}
}

func (w *walk) add(v reflect.Value) {
	if holdsTensors(v.Type()) {
		w.todo = append(w.todo, v)
	}
}

// first reports whether v, of so many elements, is met for the first time.
func (w *walk) first(v reflect.Value, n int) bool {
	if w.seen == nil {
		w.seen = map[visited]bool{}
	}
	at := visited{v.Pointer(), n, v.Type()}
	if w.seen[at] {
		return false
	}
	w.seen[at] = true
	return true
}

var tensorType = reflect.TypeFor[Tensor]()

var tensorHolders = holders.Of{What: tensorType}

// holdsTensors reports whether there can be tensors in a value of type t, where Scope looks for them.
func holdsTensors(t reflect.Type) bool { return tensorHolders.Holds(t) }
