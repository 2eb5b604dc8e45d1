package ctorch

// How handles meet the collector.
//
// A tensor's T points to a word of Go memory with the handle. Small tensors without a graph share
// slabs of such words, because registering a finaliser costs as much as a small op: a slab has one
// finaliser for all. A big tensor, and one that belongs to a graph, has a word and a finaliser of
// its own, so that no unrelated neighbour keeps it alive. Tensors born in a Scope have neither.
//
// Whoever closes a tensor takes the handle out of the word, in C, which knows of calls that use it:
// cgotorch/words.h. So calls are given words, and C reads the handles from them.
//
// Finalisers only queue what is dead. The goroutines that compute free it, some with each call: the
// memory is then still in their caches and is handed out again at once.
//
// Go's collector does not see native memory, so we start it: when what is alive has grown by a bound
// since the last collection.

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	metaOwn  = 1  // the tensor must have a finaliser of its own
	slabSize = 32 // handles per slab: a small live tensor keeps at most that many small dead ones
)

// slab holds the handles of small tensors. Words are given out once and never again, so that a
// Tensor whose handle is gone can never come to mean another one.
type slab struct {
	handles [slabSize]unsafe.Pointer
	used    int
	watched atomic.Bool // has its finaliser
	spared  uint32      // while a scope leaves: those that it does not close
	next    *slab       // in the queue of dead ones
}

// slabs are those with room, one for each P at work: goroutines that run at the same time do not
// meet, and the pool is emptied when nobody makes tensors.
var slabs sync.Pool

func newShared(h uintptr) Word {
	s, _ := slabs.Get().(*slab)
	if s == nil {
		s = newSlab()
	}
	p := s.add(h)
	if s.used < slabSize {
		slabs.Put(s)
	}
	return p
}

// add returns a word for h. There must be room.
func (s *slab) add(h uintptr) Word {
	p := &s.handles[s.used]
	setWord(p, h)
	s.used++
	return p
}

// setWord puts a handle into a word. Handles are no Go pointers, so the collector need not be told.
func setWord(p Word, h uintptr) { *(*uintptr)(unsafe.Pointer(p)) = h }

//go:noinline
func newSlab() *slab {
	s := new(slab)
	s.watch()
	return s
}

// watch gives s its finaliser, if it has none. Scopes of several goroutines may have words in s.
func (s *slab) watch() {
	if s.watched.Swap(true) {
		return
	}
	runtime.SetFinalizer(s, (*slab).die)
	wordsMade(slabSize)
}

// spare makes takeRest leave out the word at p, and reports whether it would not have.
func (s *slab) spare(p Word) bool {
	i := (uintptr(unsafe.Pointer(p)) - uintptr(unsafe.Pointer(&s.handles[0]))) / unsafe.Sizeof(*p)
	was := s.spared
	s.spared |= 1 << i
	return s.spared != was
}

// takeRest appends to words those from start on that are not spared.
func (s *slab) takeRest(words []Word, start int) []Word {
	for i := start; i < s.used; i++ {
		if s.spared>>i&1 == 0 {
			words = append(words, &s.handles[i])
		}
	}
	s.spared = 0
	return words
}

func (s *slab) die() {
	dead.mutex.Lock()
	s.next = dead.slabs
	dead.slabs = s
	dead.mutex.Unlock()
	deadArrived()
}

// NewOwn gives h a word and a finaliser of its own.
func NewOwn(h uintptr) Word {
	p := newWord(h)
	SetFinalizer(p)
	return p
}

// newWord returns a word for h that stands alone.
func newWord(h uintptr) Word {
	// Go's runtime keeps the finalisers of a span of memory in a list that it searches from the
	// front, so fewer and larger objects to a span are quicker: with bare words it takes twice as long.
	type word struct {
		handle unsafe.Pointer
		_      [7]uintptr
	}
	w := new(word)
	setWord(&w.handle, h)
	return &w.handle
}

// SetFinalizer is gotorch.SetTensorFinalizer: the one place where a handle meets the collector.
func SetFinalizer(p Word) {
	runtime.SetFinalizer(p, wordDied)
	if inPython {
		hold(p)
	}
	wordsMade(1)
}

func wordDied(p Word) {
	wordsFreed(1)
	h := *p
	if h == nil {
		return // closed by hand
	}
	*p = nil
	forget(p)
	dead.mutex.Lock()
	dead.handles = append(dead.handles, h)
	dead.mutex.Unlock()
	deadArrived()
}

// CloseWords closes tensors. If small is true they may be freed a little later: cgotorch/words.h says
// why that is quicker.
func CloseWords(words []Word, small bool) {
	waits := Close((*int64)(unsafe.Pointer(unsafe.SliceData(words))), int64(len(words)), small)
	if inPython || everRecorded.Load() {
		for _, p := range words {
			forget(p)
		}
	}
	runtime.KeepAlive(words)
	if waits {
		closedWait()
	}
}

// Handles that were closed and still wait: for a call that uses them, or for others to be freed with.
var closed struct {
	looked atomic.Bool // the timer runs
	mutex  sync.Mutex
	timer  *time.Timer
}

// closedWait has what waits be looked at in a while.
func closedWait() {
	if !closed.looked.Load() && !closed.looked.Swap(true) {
		closedWaitSlow()
	}
}

//go:noinline
func closedWaitSlow() {
	closed.mutex.Lock()
	if closed.timer == nil {
		closed.timer = time.AfterFunc(deadAge, func() {
			closed.looked.Store(false)
			FreeUnused()
		})
	} else {
		closed.timer.Reset(deadAge)
	}
	closed.mutex.Unlock()
}

// FreeUnused frees what waits and is used by no call.
func FreeUnused() {
	if FreeClosed() {
		closedWait()
	}
	DrainTokens()
}

// Other handles -------------------------------------------------------------------------------------

// Owner is the part of a Go value that holds a handle of C other than a tensor's. Its field is a
// pointer in the collector's eyes: objects of few bytes without pointers share their memory with
// others, and are found dead only when all of these are, which may be never.
type Owner struct{ H unsafe.Pointer }

// owned counts handles with an owner.
var owned atomic.Int64

// Owned returns how many handles live that have an [Owner].
func Owned() int64 { return owned.Load() }

// Own makes the collector free h when nothing points to o any more.
func (o *Owner) Own(h unsafe.Pointer, free func(h unsafe.Pointer)) {
	o.H = h
	owned.Add(1)
	runtime.AddCleanup(o, func(h uintptr) {
		free(Pointer(h))
		owned.Add(-1)
	}, uintptr(h))
}

// The queue of the dead ------------------------------------------------------------------------------

var dead struct {
	mutex   sync.Mutex
	slabs   *slab
	handles []unsafe.Pointer
	timer   *time.Timer
	drained atomic.Uint32 // counts drainSome
	seen    atomic.Uint32 // drained when the timer ran last
}

// attention is not zero when a call has more to do than to call.
var attention atomic.Uint32

const (
	attentionDead    = 1 // handles wait to be freed
	attentionBounded = 2 // the number of calls at a time is bounded, see threads.go

	attentionTraced   = 1 << 8  // anomalies are detected: runTraced runs the ops
	attentionWarnings = 1 << 9  // the program has a handler of its own: calls that may warn gather the warnings
	attentionProfiled = 1 << 10 // there is a profile
	attentionSaving   = 1 << 11 // saved tensor hooks are open: ops look for what is to be packed
)

// When nobody computes, nobody frees: then a timer does.
const deadAge = 5 * time.Millisecond

func deadArrived() {
	if attention.Load()&attentionDead != 0 || attention.Or(attentionDead)&attentionDead != 0 {
		return
	}
	dead.mutex.Lock()
	if dead.timer == nil {
		dead.timer = time.AfterFunc(deadAge, drainIdle)
	} else {
		dead.timer.Reset(deadAge)
	}
	dead.mutex.Unlock()
}

func drainIdle() {
	if n := dead.drained.Load(); dead.seen.Swap(n) != n {
		// Somebody computes.
		dead.mutex.Lock()
		dead.timer.Reset(deadAge)
		dead.mutex.Unlock()
		return
	}
	DrainAll()
}

// DrainAll frees all of the dead, and of the closed.
func DrainAll() {
	for attention.Load()&attentionDead != 0 {
		drainSome()
		runtime.Gosched()
	}
	FreeUnused()
}

// drainSome frees a few of the dead.
func drainSome() {
	if attention.Load()&attentionDead == 0 || !dead.mutex.TryLock() {
		return
	}
	dead.drained.Add(1)
	var some [64]unsafe.Pointer
	var s *slab
	n := len(dead.handles)
	switch {
	case n > 0:
		rest := max(0, n-len(some))
		n = copy(some[:], dead.handles[rest:])
		clear(dead.handles[rest:])
		dead.handles = dead.handles[:rest]
	case dead.slabs != nil:
		s = dead.slabs
		dead.slabs = s.next
	default:
		attention.And(^uint32(attentionDead))
	}
	dead.mutex.Unlock()
	if n > 0 {
		freeHandles(some[:n])
	}
	if s != nil {
		freeHandles(s.handles[:s.used])
		wordsFreed(slabSize)
	}
	DrainTokens()
}

func freeHandles(hs []unsafe.Pointer) {
	Free((*int64)(unsafe.Pointer(unsafe.SliceData(hs))), int64(len(hs)))
}
