package ctorch

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ScopeHandle is a scope as long as the function runs that it was entered for: gotorch.ScopeHandle.
type ScopeHandle struct {
	scope atomic.Pointer[Scope] // nil once the function has returned
}

// Scope is the state of a scope. It serves one scope after the other; a handle belongs to one.
type Scope struct {
	// Slabs with this scope's handles: the current one, from start on; and full ones before it,
	// the first of them from fullStart on.
	slab      *slab
	start     int
	full      []*slab
	fullStart int

	own      []ownWord    // big tensors, those with a graph, and those that an inner scope kept
	ownIndex map[Word]int // where in own, made when leave has many to look up

	Handle *ScopeHandle // until the function returns

	mutex sync.Mutex // for Keep, and to end what it may do
	kept  []Word     // words to be spared

	outer   *Scope
	around  *Scope                      // the scope around this one: outer, or one that Unscoped has put aside
	inner   atomic.Pointer[ScopeHandle] // of the last scope within, which may have ended
	thread  *Thread
	handles []ScopeHandle // for this and later scopes: made together, each given out once
}

// ownWord is a word with a handle. home is the slab that it is part of; nil if it stands alone.
type ownWord struct {
	word Word
	home *slab
}

// Keep spares words in this scope and those within. It reports whether the scope is open.
func (s *ScopeHandle) Keep(words []Word) bool {
	open := s.scope.Load()
	if open == nil {
		return false
	}
	open.mutex.Lock()
	if s.scope.Load() != open { // it serves another scope by now
		open.mutex.Unlock()
		return false
	}
	open.KeepAll(words)
	inner := open.inner.Load()
	open.mutex.Unlock()
	if inner != nil {
		inner.Keep(words)
	}
	return true
}

// End makes the handle invalid.
func (s *Scope) End() {
	if s.Handle == nil {
		return
	}
	s.mutex.Lock()
	s.Handle.scope.Store(nil)
	s.Handle = nil
	s.mutex.Unlock()
}

// KeepAll is [Scope.Keep] for several.
func (s *Scope) KeepAll(words []Word) {
	for _, w := range words {
		s.Keep(w)
	}
}

// Keep spares a word from being freed at the end.
func (s *Scope) Keep(w Word) {
	if Defined(w) {
		s.kept = append(s.kept, w)
	}
}

// Idle scopes. The C library holds the address of a scope that is in use, so they are pinned, and
// never given back: there are as many as scopes were in use at one time.
var idleScopes struct {
	mutex  sync.Mutex
	scopes []*Scope
	pinner runtime.Pinner
}

// scopeSlabs are slabs with room that have no finaliser yet.
var scopeSlabs sync.Pool

// EnterScope begins a scope, for which the goroutine is locked to its thread until [Scope.Leave]. It fails where no thread
// can be had.
func EnterScope() (*Scope, Message) {
	thread, m := LockThread()
	if m != nil {
		return nil, m
	}
	var s *Scope
	idle := &idleScopes
	idle.mutex.Lock()
	if n := len(idle.scopes); n > 0 {
		s = idle.scopes[n-1]
		idle.scopes = idle.scopes[:n-1]
	} else {
		s = new(Scope)
		idle.pinner.Pin(s)
	}
	idle.mutex.Unlock()

	s.thread = thread
	s.outer = (*Scope)(ScopeEnter(s.asInt()))
	s.slab, _ = scopeSlabs.Get().(*slab)
	if s.slab == nil {
		s.slab = new(slab)
	}
	s.start = s.slab.used
	s.newHandle()
	s.inner.Store(nil)
	s.around = (*Scope)(thread.Scope)
	if s.around != nil {
		s.around.inner.Store(s.Handle)
	}
	thread.Scope = unsafe.Pointer(s)
	return s, nil
}

// newHandle gives s a handle that no other scope had or will have.
func (s *Scope) newHandle() {
	if len(s.handles) == 0 {
		s.handles = make([]ScopeHandle, 64)
	}
	s.Handle, s.handles = &s.handles[0], s.handles[1:]
	s.Handle.scope.Store(s)
}

// Unscoped runs fn as if no scope were around it. The goroutine must stay on its thread meanwhile.
func Unscoped(fn func()) {
	outer := int64(uintptr(ScopeEnter(0)))
	defer ScopeEnter(outer)
	fn()
}

// asInt returns s as the C library keeps it.
func (s *Scope) asInt() int64 { return int64(uintptr(unsafe.Pointer(s))) }

// add takes over a handle that was made inside.
func (s *Scope) add(h uintptr, meta int64) Word {
	if meta&metaOwn != 0 {
		p := newWord(h)
		s.own = append(s.own, ownWord{p, nil})
		return p
	}
	if s.slab.used == slabSize {
		s.grow()
	}
	return s.slab.add(h)
}

func (s *Scope) grow() {
	if len(s.full) == 0 {
		s.fullStart = s.start
	}
	s.full = append(s.full, s.slab)
	s.slab = new(slab)
	s.start = 0
}

// Leave frees what was made inside and is not kept.
func (s *Scope) Leave() {
	s.End()
	if len(s.full)+len(s.own)+len(s.kept) > 0 {
		s.leaveSlow()
	} else {
		row := s.slab.handles[s.start:s.slab.used]
		if ScopeLeave(s.outer.asInt(), (*int64)(unsafe.Pointer(unsafe.SliceData(row))), int64(len(row))) {
			closedWait()
		}
	}
	s.thread.Scope = unsafe.Pointer(s.around)
	UnlockThread(s.thread)

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
func (s *Scope) leaveSlow() {
	for _, p := range s.kept {
		if w, mine := s.take(p); mine {
			s.handOver(w)
		}
	}
	dead := make([]Word, 0, slabSize)
	start := s.fullStart
	for _, full := range s.full {
		dead = full.takeRest(dead, start)
		start = 0
	}
	dead = s.slab.takeRest(dead, s.start)
	small := len(dead)
	for _, w := range s.own {
		if Defined(w.word) {
			dead = append(dead, w.word)
		}
	}
	ScopeEnter(s.outer.asInt())
	CloseWords(dead, len(dead) == small)
	clear(s.full)
	clear(s.own)
	clear(s.kept)
	s.full, s.own, s.kept, s.ownIndex = s.full[:0], s.own[:0], s.kept[:0], nil
}

// take reports whether p is a word that this scope is to free; from then on it is not.
func (s *Scope) take(p Word) (w ownWord, mine bool) {
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
func (s *Scope) findOwn(p Word) int {
	if s.ownIndex == nil && len(s.own)*len(s.kept) > 1000 {
		s.ownIndex = make(map[Word]int, len(s.own))
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
func (s *Scope) handOver(w ownWord) {
	switch {
	case s.outer != nil:
		s.outer.own = append(s.outer.own, w)
	case w.home == nil:
		SetFinalizer(w.word)
	default:
		w.home.watch()
	}
}

// slabOf returns the slab in which p is a word that this scope has given out.
func (s *Scope) slabOf(p Word) *slab {
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
