package gotorch

/*
#include <cgotorch.h>
#cgo noescape cgotorch_scope_enter
#cgo nocallback cgotorch_scope_enter
#cgo noescape cgotorch_scope_leave
#cgo nocallback cgotorch_scope_leave
#cgo noescape cgotorch_scope_get
#cgo nocallback cgotorch_scope_get
*/
import "C"

import (
	"reflect"
	"runtime"
	"sync"
	"unsafe"
)

// ScopeHandle is what a function run by [Scope] gets. It is only valid until the function returns,
// and only in its goroutine.
type ScopeHandle struct {
	// Slabs with this scope's handles: the current one, from start on; and full ones before it,
	// the first of them from fullStart on.
	slab      *slab
	start     int
	full      []*slab
	fullStart int

	own  []ownWord         // big tensors, those with a graph, and those that an inner scope kept
	kept []*unsafe.Pointer // words to be spared

	ownIndex map[*unsafe.Pointer]ownWord // of own, made when leave has many to look up

	outer  *ScopeHandle
	active bool
}

// ownWord is a word with a handle. home is the slab that it is part of; nil if it stands alone.
type ownWord struct {
	word *unsafe.Pointer
	home *slab
}

// Scope calls fn and then frees every tensor that was made inside, except those that fn returns or
// that were given to [ScopeHandle.Keep]. It frees them also when fn panics. Using a freed tensor
// panics with a ValueError.
//
// R may be a Tensor, or slices, arrays, maps, structs and pointers with tensors in them.
//
// Scopes nest: what an inner scope keeps belongs to the outer one. A scope is a matter of one
// goroutine, which is locked to its OS thread meanwhile: what other goroutines make, also those that
// fn starts, is left to the collector.
//
//	y := gotorch.Scope(func(s *gotorch.ScopeHandle) gotorch.Tensor {
//		h := x.MM(w1).ReLU()
//		return h.MM(w2)
//	})
func Scope[R any](fn func(s *ScopeHandle) R) R {
	s := enterScope()
	defer s.leave()
	result := fn(s)
	switch r := any(result).(type) {
	case Tensor:
		s.keep(r.T)
	case []Tensor:
		s.Keep(r...)
	default:
		s.keepWithin(result)
	}
	return result
}

// Scope0 is [Scope] for a function without a result.
func Scope0(fn func(s *ScopeHandle)) {
	s := enterScope()
	defer s.leave()
	fn(s)
}

// Unscoped runs fn as if no scope were around it: what fn makes is left to the collector. It is for
// state that is first made while a caller's scope is open and outlives it, such as a cache or an
// optimiser's averages.
func Unscoped(fn func()) {
	runtime.LockOSThread()
	outer := (*ScopeHandle)(C.cgotorch_scope_enter(0))
	defer func() {
		C.cgotorch_scope_leave(outer.asInt(), nil, 0)
		runtime.UnlockOSThread()
	}()
	fn()
}

// Keep spares tensors from being freed at the end of the scope. They belong to the outer scope then,
// or to the collector where there is none. Tensors from elsewhere are left as they are.
func (s *ScopeHandle) Keep(tensors ...Tensor) {
	if !s.active {
		panic(newError("Keep", ValueError, "the scope has ended"))
	}
	for _, t := range tensors {
		s.keep(t.T)
	}
}

func (s *ScopeHandle) keep(p *unsafe.Pointer) {
	if p != nil && *p != nil {
		s.kept = append(s.kept, p)
	}
}

// Idle scopes. The C library holds the address of a scope that is in use, so they are pinned, and
// never given back: there are as many as scopes were in use at one time.
var idleScopes struct {
	mutex  sync.Mutex
	scopes []*ScopeHandle
	pinner runtime.Pinner
}

// scopeSlabs are slabs with room that have no finaliser yet.
var scopeSlabs sync.Pool

func enterScope() *ScopeHandle {
	var s *ScopeHandle
	idle := &idleScopes
	idle.mutex.Lock()
	if n := len(idle.scopes); n > 0 {
		s = idle.scopes[n-1]
		idle.scopes = idle.scopes[:n-1]
	} else {
		s = new(ScopeHandle)
		idle.pinner.Pin(s)
	}
	idle.mutex.Unlock()

	runtime.LockOSThread()
	s.outer = (*ScopeHandle)(C.cgotorch_scope_enter(s.asInt()))
	s.slab, _ = scopeSlabs.Get().(*slab)
	if s.slab == nil {
		s.slab = new(slab)
	}
	s.start = s.slab.used
	s.active = true
	return s
}

// asInt returns s as the C library keeps it.
func (s *ScopeHandle) asInt() C.int64_t { return C.int64_t(uintptr(unsafe.Pointer(s))) }

// add takes over a handle that was made inside.
func (s *ScopeHandle) add(h uintptr, meta int64) Tensor {
	if meta&metaOwn != 0 {
		p := newWord(h)
		s.own = append(s.own, ownWord{p, nil})
		return Tensor{p}
	}
	if s.slab.used == slabSize {
		s.grow()
	}
	return Tensor{s.slab.add(h)}
}

func (s *ScopeHandle) grow() {
	if len(s.full) == 0 {
		s.fullStart = s.start
	}
	s.full = append(s.full, s.slab)
	s.slab = new(slab)
	s.start = 0
}

// leave frees what was made inside and is not kept.
func (s *ScopeHandle) leave() {
	s.active = false
	hs := s.slab.handles[s.start:s.slab.used]
	if len(s.full)+len(s.own)+len(s.kept) > 0 {
		s.leaveSlow()
	} else {
		C.cgotorch_scope_leave(s.outer.asInt(), (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(hs))), C.int64_t(len(hs)))
		clear(hs)
	}
	runtime.UnlockOSThread()

	if s.slab.used < slabSize {
		scopeSlabs.Put(s.slab)
	}
	s.slab, s.outer = nil, nil
	idle := &idleScopes
	idle.mutex.Lock()
	idle.scopes = append(idle.scopes, s)
	idle.mutex.Unlock()
}

func (s *ScopeHandle) leaveSlow() {
	// The kept ones are hidden while the rest is freed.
	kept := make([]unsafe.Pointer, len(s.kept))
	for i, p := range s.kept {
		kept[i], *p = *p, nil // nil from the second time on, when kept twice
	}
	start := s.fullStart
	for _, full := range s.full {
		freeHandles(full.handles[start:])
		start = 0
	}
	own := make([]unsafe.Pointer, len(s.own))
	for i, w := range s.own {
		if own[i] = *w.word; own[i] != nil {
			*w.word = nil
			forget(w.word)
		}
	}
	freeHandles(own)
	hs := s.slab.handles[s.start:s.slab.used]
	C.cgotorch_scope_leave(s.outer.asInt(), (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(hs))), C.int64_t(len(hs)))

	start = s.fullStart
	for _, full := range s.full {
		clear(full.handles[start:])
		start = 0
	}
	clear(hs)

	for i, p := range s.kept {
		if kept[i] == nil {
			continue
		}
		*p = kept[i]
		if w, mine := s.find(p); mine {
			s.handOver(w)
		}
	}
	clear(s.full)
	clear(s.own)
	clear(s.kept)
	s.full, s.own, s.kept, s.ownIndex = s.full[:0], s.own[:0], s.kept[:0], nil
}

// handOver gives a kept word of this scope to the outer scope or the collector.
func (s *ScopeHandle) handOver(w ownWord) {
	switch {
	case s.outer != nil:
		s.outer.own = append(s.outer.own, w)
	case w.home == nil:
		SetTensorFinalizer(w.word)
	case !w.home.watched:
		w.home.watch()
	}
}

// find reports whether p is a word that this scope is to free.
func (s *ScopeHandle) find(p *unsafe.Pointer) (w ownWord, mine bool) {
	if home := s.slabOf(p); home != nil {
		return ownWord{p, home}, true
	}
	if s.ownIndex == nil && len(s.own)*len(s.kept) > 1000 {
		s.ownIndex = make(map[*unsafe.Pointer]ownWord, len(s.own))
		for _, w := range s.own {
			s.ownIndex[w.word] = w
		}
	}
	if s.ownIndex != nil {
		w, mine = s.ownIndex[p]
		return w, mine
	}
	for _, w := range s.own {
		if w.word == p {
			return w, true
		}
	}
	return ownWord{}, false
}

// slabOf returns the slab in which p is a word that this scope has given out.
func (s *ScopeHandle) slabOf(p *unsafe.Pointer) *slab {
	within := func(b *slab, from int) bool {
		at := uintptr(unsafe.Pointer(p))
		first := uintptr(unsafe.Pointer(&b.handles[0]))
		return first+uintptr(from)*unsafe.Sizeof(*p) <= at && at < first+unsafe.Sizeof(b.handles)
	}
	if s.start < slabSize && within(s.slab, s.start) {
		return s.slab
	}
	start := s.fullStart
	for _, full := range s.full {
		if within(full, start) {
			return full
		}
		start = 0
	}
	return nil
}

// keepWithin keeps the tensors that are anywhere in v.
func (s *ScopeHandle) keepWithin(v any) {
	if v != nil {
		s.keepValue(reflect.ValueOf(v), make(map[uintptr]bool))
	}
}

var tensorType = reflect.TypeFor[Tensor]()

func (s *ScopeHandle) keepValue(v reflect.Value, seen map[uintptr]bool) {
	if !holdsTensors(v.Type()) {
		return
	}
	if v.Type() == tensorType {
		// Reads unexported fields too, which Interface would refuse.
		s.keep((*unsafe.Pointer)(v.Field(0).UnsafePointer()))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		s.keepValue(v.Elem(), seen)
	case reflect.Interface:
		if !v.IsNil() {
			s.keepValue(v.Elem(), seen)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			s.keepValue(v.Index(i), seen)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			s.keepValue(it.Key(), seen)
			s.keepValue(it.Value(), seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			s.keepValue(v.Field(i), seen)
		}
	}
}

// tensorHolders remembers, for each type, whether a value of it can hold tensors.
var tensorHolders sync.Map

func holdsTensors(t reflect.Type) bool {
	if holds, ok := tensorHolders.Load(t); ok {
		return holds.(bool)
	}
	holds := searchTensors(t, make(map[reflect.Type]bool))
	tensorHolders.Store(t, holds)
	return holds
}

func searchTensors(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == tensorType {
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
		return searchTensors(t.Elem(), seen)
	case reflect.Map:
		return searchTensors(t.Key(), seen) || searchTensors(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if searchTensors(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
