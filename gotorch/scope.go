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
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ScopeHandle is what a function run by [Scope] gets. It is only valid until the function returns.
type ScopeHandle struct {
	scope atomic.Pointer[openScope] // nil once the function has returned
}

// openScope is the state of a scope. It serves one scope after the other; a handle belongs to one.
type openScope struct {
	// Slabs with this scope's handles: the current one, from start on; and full ones before it,
	// the first of them from fullStart on.
	slab      *slab
	start     int
	full      []*slab
	fullStart int

	own      []ownWord               // big tensors, those with a graph, and those that an inner scope kept
	ownIndex map[*unsafe.Pointer]int // where in own, made when leave has many to look up

	handle *ScopeHandle // until the function returns

	mutex sync.Mutex        // for Keep, and to end what it may do
	kept  []*unsafe.Pointer // words to be spared

	outer   *openScope
	around  *openScope                  // the scope around this one: outer, or one that Unscoped has put aside
	inner   atomic.Pointer[ScopeHandle] // of the last scope within, which may have ended
	thread  *osThread
	handles []ScopeHandle // for this and later scopes: made together, each given out once
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
	defer s.leave()
	result := fn(s.handle)
	s.end()
	switch r := any(result).(type) {
	case Tensor:
		s.keep(r.T)
	case []Tensor:
		s.keepAll(r)
	default:
		s.keepWithin(result)
	}
	return result
}

// Scope0 is [Scope] for a function without a result.
func Scope0(fn func(s *ScopeHandle)) {
	s := enterScope()
	defer s.leave()
	fn(s.handle)
}

// Unscoped runs fn as if no scope were around it: what fn makes is left to the collector. It is for
// state that is first made while a caller's scope is open and outlives it, such as a cache or an
// optimiser's averages.
func Unscoped(fn func()) {
	thread := lockThread()
	outer := (*openScope)(C.cgotorch_scope_enter(0))
	defer func() {
		C.cgotorch_scope_enter(outer.asInt())
		unlockThread(thread)
	}()
	fn()
}

// Keep spares tensors from being freed at the end of the scope, and of the scopes that are open within it. They belong
// to the outer scope then, or to the collector where there is none. Tensors from elsewhere are left as they are. It panics
// with a ValueError if the function that s was given to has returned.
func (s *ScopeHandle) Keep(tensors ...Tensor) {
	if !s.keep(tensors) {
		panic(newError("Keep", ValueError, "the scope has ended"))
	}
}

// keep is Keep for this scope and those within. It reports whether the scope is open.
func (s *ScopeHandle) keep(tensors []Tensor) bool {
	open := s.scope.Load()
	if open == nil {
		return false
	}
	open.mutex.Lock()
	if s.scope.Load() != open { // it serves another scope by now
		open.mutex.Unlock()
		return false
	}
	open.keepAll(tensors)
	inner := open.inner.Load()
	open.mutex.Unlock()
	if inner != nil {
		inner.keep(tensors)
	}
	return true
}

// end makes the handle invalid.
func (s *openScope) end() {
	if s.handle == nil {
		return
	}
	s.mutex.Lock()
	s.handle.scope.Store(nil)
	s.handle = nil
	s.mutex.Unlock()
}

func (s *openScope) keepAll(tensors []Tensor) {
	for _, t := range tensors {
		s.keep(t.T)
	}
}

func (s *openScope) keep(p *unsafe.Pointer) {
	if (Tensor{p}).Defined() {
		s.kept = append(s.kept, p)
	}
}

// Idle scopes. The C library holds the address of a scope that is in use, so they are pinned, and
// never given back: there are as many as scopes were in use at one time.
var idleScopes struct {
	mutex  sync.Mutex
	scopes []*openScope
	pinner runtime.Pinner
}

// scopeSlabs are slabs with room that have no finaliser yet.
var scopeSlabs sync.Pool

func enterScope() *openScope {
	thread := lockThread()
	var s *openScope
	idle := &idleScopes
	idle.mutex.Lock()
	if n := len(idle.scopes); n > 0 {
		s = idle.scopes[n-1]
		idle.scopes = idle.scopes[:n-1]
	} else {
		s = new(openScope)
		idle.pinner.Pin(s)
	}
	idle.mutex.Unlock()

	s.thread = thread
	s.outer = (*openScope)(C.cgotorch_scope_enter(s.asInt()))
	s.slab, _ = scopeSlabs.Get().(*slab)
	if s.slab == nil {
		s.slab = new(slab)
	}
	s.start = s.slab.used
	s.newHandle()
	s.inner.Store(nil)
	s.around = (*openScope)(thread.scope)
	if s.around != nil {
		s.around.inner.Store(s.handle)
	}
	thread.scope = unsafe.Pointer(s)
	return s
}

// newHandle gives s a handle that no other scope had or will have.
func (s *openScope) newHandle() {
	if len(s.handles) == 0 {
		s.handles = make([]ScopeHandle, 64)
	}
	s.handle, s.handles = &s.handles[0], s.handles[1:]
	s.handle.scope.Store(s)
}

// asInt returns s as the C library keeps it.
func (s *openScope) asInt() C.int64_t { return C.int64_t(uintptr(unsafe.Pointer(s))) }

// add takes over a handle that was made inside.
func (s *openScope) add(h uintptr, meta int64) Tensor {
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

func (s *openScope) grow() {
	if len(s.full) == 0 {
		s.fullStart = s.start
	}
	s.full = append(s.full, s.slab)
	s.slab = new(slab)
	s.start = 0
}

// leave frees what was made inside and is not kept.
func (s *openScope) leave() {
	s.end()
	if len(s.full)+len(s.own)+len(s.kept) > 0 {
		s.leaveSlow()
	} else {
		row := s.slab.handles[s.start:s.slab.used]
		if C.cgotorch_scope_leave(s.outer.asInt(), (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(row))), C.int64_t(len(row))) {
			closedWait()
		}
	}
	s.thread.scope = unsafe.Pointer(s.around)
	unlockThread(s.thread)

	if s.slab.used < slabSize {
		scopeSlabs.Put(s.slab)
	}
	s.slab, s.outer, s.around = nil, nil, nil
	idle := &idleScopes
	idle.mutex.Lock()
	idle.scopes = append(idle.scopes, s)
	idle.mutex.Unlock()
}

// leaveSlow is leave where not all of the handles lie in one row. Only words that die are written to:
// others may be in use by other goroutines.
func (s *openScope) leaveSlow() {
	for _, p := range s.kept {
		if w, mine := s.take(p); mine {
			s.handOver(w)
		}
	}
	dead := make([]*unsafe.Pointer, 0, slabSize)
	start := s.fullStart
	for _, full := range s.full {
		dead = full.takeRest(dead, start)
		start = 0
	}
	dead = s.slab.takeRest(dead, s.start)
	small := len(dead)
	for _, w := range s.own {
		if (Tensor{w.word}).Defined() {
			dead = append(dead, w.word)
		}
	}
	C.cgotorch_scope_enter(s.outer.asInt())
	closeWords(dead, len(dead) == small)
	clear(s.full)
	clear(s.own)
	clear(s.kept)
	s.full, s.own, s.kept, s.ownIndex = s.full[:0], s.own[:0], s.kept[:0], nil
}

// take reports whether p is a word that this scope is to free; from then on it is not.
func (s *openScope) take(p *unsafe.Pointer) (w ownWord, mine bool) {
	if home := s.slabOf(p); home != nil {
		return ownWord{p, home}, home.spare(p)
	}
	at := s.findOwn(p)
	if at < 0 {
		return ownWord{}, false
	}
	w = s.own[at]
	s.own[at] = ownWord{}
	return w, true
}

// findOwn returns where p is in s.own; -1 if it is not.
func (s *openScope) findOwn(p *unsafe.Pointer) int {
	if s.ownIndex == nil && len(s.own)*len(s.kept) > 1000 {
		s.ownIndex = make(map[*unsafe.Pointer]int, len(s.own))
		for i, w := range s.own {
			s.ownIndex[w.word] = i
		}
	}
	if s.ownIndex != nil {
		if at, found := s.ownIndex[p]; found && s.own[at].word == p {
			return at
		}
		return -1
	}
	return slices.IndexFunc(s.own, func(w ownWord) bool { return w.word == p })
}

// handOver gives a kept word of this scope to the outer scope or the collector.
func (s *openScope) handOver(w ownWord) {
	switch {
	case s.outer != nil:
		s.outer.own = append(s.outer.own, w)
	case w.home == nil:
		SetTensorFinalizer(w.word)
	default:
		w.home.watch()
	}
}

// slabOf returns the slab in which p is a word that this scope has given out.
func (s *openScope) slabOf(p *unsafe.Pointer) *slab {
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

// Tensors in results -------------------------------------------------------------------------------

// keepWithin keeps the tensors that are anywhere in v.
func (s *openScope) keepWithin(v any) {
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
			s.keep((*unsafe.Pointer)(v.Field(0).UnsafePointer()))
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

var (
	tensorType = reflect.TypeFor[Tensor]()
	lockerType = reflect.TypeFor[sync.Locker]()
)

// tensorHolders remembers, for each type, whether a value of it can hold tensors.
var tensorHolders sync.Map

// holdsTensors reports whether there can be tensors in a value of type t, where Scope looks for them.
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
		if forGoroutines(t) {
			return false
		}
		for i := range t.NumField() {
			if searchTensors(t.Field(i).Type, seen) {
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
