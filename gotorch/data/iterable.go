package data

import (
	"iter"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/internal/shuffle"
	"gotorch.dev/gotorch/internal/args"
)

// Iterable is a data set whose samples come one after the other, as from a stream or from files that are larger than
// memory. Its counterpart is torch.utils.data.IterableDataset.
//
// A loop over All is one epoch. Each loop begins with the first sample of an epoch, also where the loop before was left
// early. An element with an error takes the place of a sample; the sequence may go on after it. A sequence must end when
// yield has returned false. With a method Len() int, an Iterable says how many elements an epoch has, or -1.
//
// A [Loader] reads an Iterable once for each epoch. To resume amid an epoch, it reads the epoch again, and drops what was
// taken before. An Iterable must therefore give the same epoch again, in one of three ways:
//
//   - All epochs are the same. It needs no method but All.
//   - It draws random numbers, or can begin anywhere. It is a [Seekable], whose From depends on its Start alone, and
//     the loader calls From in place of All.
//   - It has a state of its own: the methods StateDict and LoadStateDict of a train.Stateful. The loader saves what StateDict
//     returns before an epoch begins, and gives it to LoadStateDict before it reads the epoch again.
//
// The streams of the packages below this one are Seekable. [Shuffle], [Interleave], [Chain], [TransformIterable] and
// [DistributedIterable] work for all three, and for each other. The states of the iterables within are saved, too.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset.
type Iterable[S any] interface {
	All() iter.Seq2[S, error]
}

// Start is where a sequence of samples begins.
type Start struct {
	Seed  uint64 // of what is random in this epoch
	Epoch int    // which epoch it is, from 0, for a set that has a seed of its own
	Skip  int    // how many elements of the epoch are passed over, errors among them; it may be more than there are

	dealt int // elements of the epoch that another number of ranks has taken: see DistributedIterable
}

// Seekable is an Iterable that can begin in the middle, or that draws random numbers.
//
// From gives the elements of an epoch without the first Skip of them. The epoch follows from Seed and Epoch. From changes nothing in
// the set: sequences of several calls may be read at the same time, and each may be left early.
type Seekable[S any] interface {
	Iterable[S]
	From(start Start) iter.Seq2[S, error]
}

// checkIterables refuses sets that are nil, of which a call in a goroutine of its own would say less.
func checkIterables[S any](op string, sets ...Iterable[S]) {
	for _, set := range sets {
		if set == nil {
			panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the data set is nil"})
		}
	}
}

// IterableOf makes an Iterable of a sequence, which is gone through once for each epoch. All epochs must be the same, so that a loader
// can resume: give it a stream itself, and not what its All returns. A sequence that goes on after yield
// has returned false panics with a RuntimeError. IterableOf panics with a TypeError if there is no sequence.
func IterableOf[S any](seq iter.Seq2[S, error]) Iterable[S] {
	if seq == nil {
		panic(&gotorch.Error{Op: "data.IterableOf", Kind: gotorch.TypeError, Msg: "the sequence is nil"})
	}
	return sequence[S](seq)
}

type sequence[S any] iter.Seq2[S, error]

func (s sequence[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		left := false
		s(func(sample S, err error) bool {
			if left {
				panic(&gotorch.Error{Op: "data.IterableOf", Kind: gotorch.RuntimeError, Msg: "the sequence goes on after yield has returned false: it must return then"})
			}
			left = !yield(sample, err)
			return !left
		})
	}
}

// from goes through set from a start on. Of a set that cannot seek, the samples before are read and dropped.
func from[S any](set Iterable[S], start Start) iter.Seq2[S, error] {
	if set, is := set.(Seekable[S]); is {
		return set.From(start)
	}
	if start.Skip == 0 {
		return set.All()
	}
	return func(yield func(S, error) bool) {
		left := start.Skip
		for sample, err := range set.All() {
			if left > 0 {
				left--
				continue
			}
			if !yield(sample, err) {
				return
			}
		}
	}
}

// A later is a sample that is still to be made of what was read. Reading is one after the other; what is left for later
// is done by a loader's workers.
type later[S any] func() (S, error)

// lazy is an Iterable of this package.
type lazy[S any] interface {
	laters(start Start) iter.Seq[later[S]]
}

// latersOf goes through set without making the samples.
func latersOf[S any](set Iterable[S], start Start) iter.Seq[later[S]] {
	if set, is := set.(lazy[S]); is {
		return set.laters(start)
	}
	return func(yield func(later[S]) bool) {
		for sample, err := range from(set, start) {
			if !yield(func() (S, error) { return sample, err }) {
				return
			}
		}
	}
}

// now is All and From of an Iterable that leaves its samples for later.
func now[S any](laters iter.Seq[later[S]]) iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		for l := range laters {
			if !yield(l()) {
				return
			}
		}
	}
}

// composed is an Iterable of this package that has others within.
type composed interface {
	// seeks reports whether it can begin anywhere without reading what comes before, and be read several times for one epoch.
	seeks() bool
	// states returns the iterables within that have a state of their own.
	states() []stateful
}

func seeks[S any](set Iterable[S]) bool {
	if set, is := set.(composed); is {
		return set.seeks()
	}
	_, is := set.(Seekable[S])
	return is
}

// statesIn returns the iterables that have a state of their own among set and those within it.
func statesIn[S any](set Iterable[S]) []stateful {
	switch set := set.(type) {
	case composed:
		return set.states()
	case Seekable[S]: // whose epochs follow from their Start
	case stateful:
		return []stateful{set}
	}
	return nil
}

// epochs counts the epochs that no loader begins.
type epochs struct{ begun atomic.Int64 }

// fresh is the start of the next one.
func (e *epochs) fresh() Start { return Start{Seed: draw(nil), Epoch: int(e.begun.Add(1) - 1)} }

// another returns a seed that has nothing to do with seed, for each n another one.
func another(seed uint64, n int) uint64 { return rand.NewPCG(seed, uint64(n)+1).Uint64() }

// within is the start of the n-th set within one that begins at start.
func (s Start) within(n int) Start { return Start{Seed: another(s.Seed, n), Epoch: s.Epoch} }

// lenOf returns how many samples an Iterable says that it has; -1 if it does not.
func lenOf(set any) int {
	if sized, is := set.(Sized); is {
		return max(sized.Len(), -1)
	}
	return -1
}

// TransformIterable is an Iterable with every sample of set changed by fn. A loader's workers call fn, several of them at a
// time; what comes from rng depends on the epoch's seed and the sample's place, not on them. It panics with a TypeError if
// there is no set or no function.
func TransformIterable[S, R any](set Iterable[S], fn func(sample S, rng *rand.Rand) (R, error)) Iterable[R] {
	checkIterables("data.TransformIterable", set)
	checkFunction("data.TransformIterable", fn == nil)
	return &transformedIterable[S, R]{set: set, fn: fn}
}

type transformedIterable[S, R any] struct {
	set Iterable[S]
	fn  func(S, *rand.Rand) (R, error)
	epochs
}

func (t *transformedIterable[S, R]) All() iter.Seq2[R, error] {
	return func(yield func(R, error) bool) { t.From(t.fresh())(yield) }
}

func (t *transformedIterable[S, R]) From(start Start) iter.Seq2[R, error] {
	return now(t.laters(start))
}

func (t *transformedIterable[S, R]) Len() int { return lenOf(t.set) }

func (t *transformedIterable[S, R]) seeks() bool { return seeks(t.set) }

func (t *transformedIterable[S, R]) shared() (sharing, bool) { return sharedBy(t.set) }

func (t *transformedIterable[S, R]) states() []stateful { return statesIn(t.set) }

func (t *transformedIterable[S, R]) laters(start Start) iter.Seq[later[R]] {
	return func(yield func(later[R]) bool) {
		place := uint64(start.Skip)
		inner := start.within(0)
		inner.Skip, inner.dealt = start.Skip, start.dealt
		for inner := range latersOf(t.set, inner) {
			mine := place
			place++
			if !yield(func() (R, error) {
				sample, err := inner()
				if err != nil {
					var none R
					return none, err
				}
				return t.fn(sample, rand.New(rand.NewPCG(start.Seed, mine)))
			}) {
				return
			}
		}
	}
}

// Chain is several iterables one after the other. Its counterpart is torch.utils.data.ChainDataset. It panics
// with a TypeError if one is nil.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.ChainDataset.
func Chain[S any](sets ...Iterable[S]) Iterable[S] {
	checkIterables("data.Chain", sets...)
	return &chain[S]{several: several[S]{sets: slices.Clone(sets)}}
}

// several are iterables within one.
type several[S any] struct {
	sets []Iterable[S]
	epochs
}

// Len returns the number of samples; -1 if one of the sets does not tell.
func (s *several[S]) Len() int {
	sum := 0
	for _, set := range s.sets {
		n := lenOf(set)
		if n < 0 {
			return -1
		}
		sum += n
	}
	return sum
}

func (s *several[S]) states() (all []stateful) {
	for _, set := range s.sets {
		all = append(all, statesIn(set)...)
	}
	return all
}

type chain[S any] struct{ several[S] }

func (c *chain[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) { c.From(c.fresh())(yield) }
}

func (c *chain[S]) From(start Start) iter.Seq2[S, error] { return now(c.laters(start)) }

func (c *chain[S]) seeks() bool {
	return !slices.ContainsFunc(c.sets, func(set Iterable[S]) bool { return !seeks(set) || lenOf(set) < 0 })
}

func (c *chain[S]) laters(start Start) iter.Seq[later[S]] {
	return func(yield func(later[S]) bool) {
		skip := start.Skip
		for i, set := range c.sets {
			first := start.within(i)
			if skip > 0 && seeks(set) {
				switch n := lenOf(set); {
				case n >= 0 && skip >= n && hasLen(set, first, n):
					skip -= n
					continue
				case n > skip && hasMore(set, first, skip):
					first.Skip, skip = skip, 0
				}
			}
			for l := range latersOf(set, first) {
				if skip > 0 {
					skip--
					continue
				}
				if !yield(l) {
					return
				}
			}
		}
	}
}

// hasMore reports whether an epoch of a set that seeks has more than n samples.
func hasMore[S any](set Iterable[S], start Start, n int) bool {
	start.Skip = n
	for range latersOf(set, start) {
		return true
	}
	return false
}

// hasLen reports whether an epoch of a set that seeks has n samples, as it says: what a Len returns may be an estimate.
func hasLen[S any](set Iterable[S], start Start, n int) bool {
	return !hasMore(set, start, n) && (n == 0 || hasMore(set, start, n-1))
}

// InterleaveOptions are the arguments of [Interleave] that have defaults.
type InterleaveOptions struct {
	Buffer gotorch.Scalar // how many samples each lane reads ahead; default: 16
}

// Interleave reads several iterables, such as the files of one data set, at the same time: lanes of them, each by a
// goroutine. Samples are taken of the lanes in turn. A lane whose set is at its end goes on with the next set that no lane has
// begun, so that as many lanes as there are sets left are busy. The order depends on nothing but the sets and lanes. At
// most lanes·(Buffer+1) samples are in memory; [TransformIterable] around it leaves the changes to the loader's workers.
//
// It panics with a ValueError if lanes is not positive, or Buffer negative, and with a TypeError if a set is nil.
func Interleave[S any](lanes int, sets []Iterable[S], opts ...InterleaveOptions) Iterable[S] {
	const op = "data.Interleave"
	checkIterables(op, sets...)
	o := args.Option(opts)
	buffer := args.Int(op, "Buffer", o.Buffer, 16)
	if lanes <= 0 {
		panic(args.ValueError(op, "lanes must be positive, but is %d", lanes))
	}
	if buffer < 0 || buffer > 1<<20 {
		panic(args.ValueError(op, "Buffer must be between 0 and %d, but is %d", 1<<20, buffer))
	}
	return &interleaved[S]{several[S]{sets: slices.Clone(sets)}, lanes, int(buffer)}
}

type interleaved[S any] struct {
	several[S]
	lanes, buffer int
}

func (t *interleaved[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) { t.From(t.fresh())(yield) }
}

func (t *interleaved[S]) From(start Start) iter.Seq2[S, error] { return now(t.laters(start)) }

func (t *interleaved[S]) seeks() bool { return false }

// lane is a set that a goroutine reads.
type lane[S any] struct {
	read chan later[S] // closed at the end
	ended
}

// ended is how a goroutine ended if not well. It is written before the goroutine ends.
type ended struct {
	failed *PanicError
	exited bool // by runtime.Goexit
}

// note is deferred in the goroutine, where exited is true until it ends well.
func (e *ended) note(v any) {
	if v != nil {
		e.exited = false
		var is bool
		if e.failed, is = v.(*PanicError); !is {
			e.failed = &PanicError{v, debug.Stack()}
		}
	}
}

// carryOn does to this goroutine what happened to the other.
func (e *ended) carryOn() {
	switch {
	case e.failed != nil:
		panic(e.failed)
	case e.exited:
		runtime.Goexit()
	}
}

func (t *interleaved[S]) laters(start Start) iter.Seq[later[S]] {
	return func(yield func(later[S]) bool) {
		stop := make(chan struct{})
		var running sync.WaitGroup
		var lanes []*lane[S]
		next := 0 // set
		open := func() *lane[S] {
			l := &lane[S]{read: make(chan later[S], t.buffer)}
			set, first := t.sets[next], start.within(next)
			next++
			running.Go(func() { l.run(set, first, stop) })
			return l
		}
		unwinding := true
		defer func() {
			close(stop)
			running.Wait()
			for _, l := range lanes {
				if !unwinding { // a set may panic when it is left
					l.carryOn()
				}
			}
		}()
		for next < min(t.lanes, len(t.sets)) {
			lanes = append(lanes, open())
		}
		skip := start.Skip
		for at := 0; len(lanes) > 0; {
			at %= len(lanes)
			l, more := <-lanes[at].read
			if !more {
				lanes[at].carryOn()
				if next < len(t.sets) {
					lanes[at] = open()
				} else {
					lanes = slices.Delete(lanes, at, at+1)
				}
				continue
			}
			at++
			if skip > 0 {
				skip--
			} else if !yield(l) {
				break
			}
		}
		unwinding = false
	}
}

// run reads a set.
func (l *lane[S]) run(set Iterable[S], start Start, stop <-chan struct{}) {
	l.exited = true
	defer close(l.read)
	defer func() { l.note(recover()) }()
reading:
	for s := range latersOf(set, start) {
		select {
		case <-stop: // also where there is room
			break reading
		default:
		}
		select {
		case l.read <- s:
		case <-stop:
			break reading
		}
	}
	l.exited = false
}

// Shuffle is an Iterable in random order, as far as a buffer of size samples allows: it is filled, and then each sample
// that is given, drawn from it at random, makes place for the next. With a size as large as the set, the order is any.
//
// In the middle of an epoch it goes on without a copy of the buffer: which samples were in it follows from the seed, and
// they are read again. Of a [Seekable] that is from the oldest of them on.
//
// It panics with a ValueError if size is not positive, and with a TypeError if there is no set.
func Shuffle[S any](set Iterable[S], size int) Iterable[S] {
	checkIterables("data.Shuffle", set)
	if size <= 0 {
		panic(args.ValueError("data.Shuffle", "the buffer's size must be positive, but is %d", size))
	}
	return &shuffled[S]{set: set, size: size}
}

type shuffled[S any] struct {
	set  Iterable[S]
	size int
	epochs
}

func (t *shuffled[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) { t.From(t.fresh())(yield) }
}

func (t *shuffled[S]) From(start Start) iter.Seq2[S, error] { return now(t.laters(start)) }

func (t *shuffled[S]) Len() int { return lenOf(t.set) }

func (t *shuffled[S]) seeks() bool { return seeks(t.set) }

func (t *shuffled[S]) states() []stateful { return statesIn(t.set) }

func newShuffle[T any](seed uint64, size int) *shuffle.Buffer[T] {
	return &shuffle.Buffer[T]{Size: size, RNG: rand.New(rand.NewPCG(seed, uint64(size)))}
}

func (t *shuffled[S]) laters(start Start) iter.Seq[later[S]] {
	inner := start.within(0)
	return func(yield func(later[S]) bool) {
		s := newShuffle[later[S]](start.Seed, t.size)
		switch {
		case start.Skip == 0:
		case !seeks(t.set):
			// It is read once, from its beginning.
			skip := start.Skip
			for l := range s.All(latersOf(t.set, inner)) {
				if skip > 0 {
					skip--
				} else if !yield(l) {
					return
				}
			}
			return
		default:
			var ended bool
			if s, inner.Skip, ended = t.refill(start, inner); ended {
				s.Rest()(yield)
				return
			}
		}
		s.All(latersOf(t.set, inner))(yield)
	}
}

// refill returns the buffer as it was when Skip samples had been given, and which sample is read next; ended says that
// there is none. inner is where the set begins, which seeks.
func (t *shuffled[S]) refill(start, inner Start) (s *shuffle.Buffer[later[S]], next int, ended bool) {
	// A place that no set reaches, as in a file that somebody has changed, would be played through for ever.
	if start.Skip > 1<<20 && !hasMore(t.set, inner, start.Skip-1) {
		return newShuffle[later[S]](start.Seed, t.size), start.Skip, true
	}
	// What was where is played through with numbers in place of samples, as if the set had no end; if it turns out to
	// have one, once more.
	count := -1
	if t.size > 1<<16 { // what is not there would be played through for long
		n := 0
		for range latersOf(t.set, inner) {
			if n++; n > t.size {
				break
			}
		}
		if n <= t.size {
			count, ended = n, true
		}
	}
	places, next := t.replay(start, count)
	for {
		s = &shuffle.Buffer[later[S]]{Size: t.size, RNG: places.RNG, Held: make([]later[S], len(places.Held))}
		where := map[int]int{}
		oldest := next
		for at, place := range places.Held {
			where[place] = at
			oldest = min(oldest, place)
		}
		read := oldest
		if len(where) > 0 {
			inner.Skip = oldest
			for l := range latersOf(t.set, inner) {
				if at, is := where[read]; is {
					s.Held[at] = l
				}
				if read++; read == next {
					break
				}
			}
		}
		switch {
		case read == next && ended:
			return s, next, true
		case read == next:
			return s, next, false
		case ended: // it has become shorter meanwhile
			s.Held = slices.DeleteFunc(s.Held, func(l later[S]) bool { return l == nil })
			return s, read, true
		}
		if read == oldest { // it ends before what was thought to be there: count it
			read = 0
			inner.Skip = 0
			for range latersOf(t.set, inner) {
				read++
			}
		}
		ended = true
		places, next = t.replay(start, read)
	}
}

// replay goes through the epoch with places in place of samples: n of them, or as many as are needed if n is negative.
func (t *shuffled[S]) replay(start Start, n int) (s *shuffle.Buffer[int], next int) {
	s = newShuffle[int](start.Seed, t.size)
	for given := 0; given < start.Skip; {
		if n >= 0 && next >= n {
			if _, more := s.Drain(); !more {
				break
			}
			given++
			continue
		}
		if _, full := s.Put(next); full {
			given++
		}
		next++
	}
	return s, next
}
