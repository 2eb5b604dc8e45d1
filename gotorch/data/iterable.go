package data

import (
	"iter"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/internal/shuffle"
	"gotorch.dev/gotorch/internal/args"
)

// Iterable is a data set whose samples come one after the other, as from a stream or from files that are larger than
// memory. All goes through it once; it may be called again for the next epoch. A sample that cannot be had is an error,
// after which the sequence may go on. Its counterpart is torch.utils.data.IterableDataset.
//
// Where there is a method Len() int besides, it says how many samples there are.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset.
type Iterable[S any] interface {
	All() iter.Seq2[S, error]
}

// Start is where a sequence of samples begins.
type Start struct {
	Seed uint64 // of what is random in this epoch
	Skip int    // how many samples of the epoch are passed over, those too that were an error; it may be more than there are
}

// Seekable is an Iterable that can begin in the middle without reading what comes before, or that draws random numbers.
// From is to give, for the same seed, the same samples as with no Skip, but for those that are passed over.
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

// IterableOf makes an Iterable of a sequence, which is gone through once for each epoch. It panics with a TypeError if
// there is none.
func IterableOf[S any](seq iter.Seq2[S, error]) Iterable[S] {
	if seq == nil {
		panic(&gotorch.Error{Op: "data.IterableOf", Kind: gotorch.TypeError, Msg: "the sequence is nil"})
	}
	return sequence[S](seq)
}

type sequence[S any] iter.Seq2[S, error]

func (s sequence[S]) All() iter.Seq2[S, error] { return iter.Seq2[S, error](s) }

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

// fresh is the start of an epoch that no loader begins.
func fresh() Start { return Start{Seed: draw(nil)} }

// another returns a seed that has nothing to do with seed, for each n another one.
func another(seed uint64, n int) uint64 { return rand.NewPCG(seed, uint64(n)+1).Uint64() }

// lenOf returns how many samples an Iterable says that it has; -1 if it does not.
func lenOf(set any) int {
	if sized, is := set.(Sized); is {
		return sized.Len()
	}
	return -1
}

// TransformIterable is an Iterable with every sample of set changed by fn. A loader's workers call fn, several of them at a
// time; what comes from rng depends on the epoch's seed and the sample's place, not on them. It panics with a TypeError if
// there is no set or no function.
func TransformIterable[S, R any](set Iterable[S], fn func(sample S, rng *rand.Rand) (R, error)) Iterable[R] {
	checkIterables("data.TransformIterable", set)
	checkFunction("data.TransformIterable", fn == nil)
	return &transformedIterable[S, R]{set, fn}
}

type transformedIterable[S, R any] struct {
	set Iterable[S]
	fn  func(S, *rand.Rand) (R, error)
}

func (t *transformedIterable[S, R]) All() iter.Seq2[R, error] {
	return func(yield func(R, error) bool) { t.From(fresh())(yield) }
}

func (t *transformedIterable[S, R]) From(start Start) iter.Seq2[R, error] {
	return now(t.laters(start))
}

func (t *transformedIterable[S, R]) Len() int { return lenOf(t.set) }

func (t *transformedIterable[S, R]) laters(start Start) iter.Seq[later[R]] {
	return func(yield func(later[R]) bool) {
		place := uint64(start.Skip)
		for inner := range latersOf(t.set, Start{another(start.Seed, 0), start.Skip}) {
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
	return &chain[S]{slices.Clone(sets)}
}

type chain[S any] struct{ sets []Iterable[S] }

func (c *chain[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) { c.From(fresh())(yield) }
}

func (c *chain[S]) From(start Start) iter.Seq2[S, error] { return now(c.laters(start)) }

// Len returns the number of samples; -1 if one of the sets does not tell.
func (c *chain[S]) Len() int {
	sum := 0
	for _, set := range c.sets {
		n := lenOf(set)
		if n < 0 {
			return -1
		}
		sum += n
	}
	return sum
}

func (c *chain[S]) laters(start Start) iter.Seq[later[S]] {
	return func(yield func(later[S]) bool) {
		skip := start.Skip
		for i, set := range c.sets {
			if n := lenOf(set); n >= 0 && skip >= n {
				skip -= n
				continue
			}
			first := Start{Seed: another(start.Seed, i)}
			if lenOf(set) >= 0 { // what is to be passed over ends in this set
				first.Skip, skip = skip, 0
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

// InterleaveOptions are the arguments of [Interleave] that have defaults.
type InterleaveOptions struct {
	Buffer gotorch.Scalar // how many samples each lane reads ahead; default: 16
}

// Interleave reads several iterables, such as the files of one data set, at the same time: lanes of them, each by a
// goroutine, and the next ones when those are at their end. Samples are taken of the lanes in turn, so that their order
// depends on nothing but lanes. At most lanes·(Buffer+1) samples are in memory; [TransformIterable] around it leaves the
// changes to the loader's workers.
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
	return &interleaved[S]{chain[S]{slices.Clone(sets)}, min(lanes, max(len(sets), 1)), int(buffer)}
}

type interleaved[S any] struct {
	chain         chain[S]
	lanes, buffer int
}

func (t *interleaved[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) { t.From(fresh())(yield) }
}

func (t *interleaved[S]) From(start Start) iter.Seq2[S, error] { return now(t.laters(start)) }

func (t *interleaved[S]) Len() int { return t.chain.Len() }

// laneItem is what a lane has read, or how it ended if not well.
type laneItem[S any] struct {
	later  later[S]
	failed *PanicError
	exited bool
}

func (t *interleaved[S]) laters(start Start) iter.Seq[later[S]] {
	return func(yield func(later[S]) bool) {
		stop := make(chan struct{})
		var running sync.WaitGroup
		defer running.Wait()
		defer close(stop)
		var lanes []chan laneItem[S]
		for lane := range t.lanes {
			ch := make(chan laneItem[S], t.buffer)
			lanes = append(lanes, ch)
			running.Go(func() { t.read(lane, start.Seed, ch, stop) })
		}
		skip := start.Skip
		for at := 0; len(lanes) > 0; {
			at %= len(lanes)
			item, more := <-lanes[at]
			switch {
			case !more:
				lanes = slices.Delete(lanes, at, at+1)
				continue
			case item.failed != nil:
				panic(item.failed)
			case item.exited:
				runtime.Goexit()
			}
			at++
			if skip > 0 {
				skip--
			} else if !yield(item.later) {
				return
			}
		}
	}
}

// read reads the sets of a lane.
func (t *interleaved[S]) read(lane int, seed uint64, to chan<- laneItem[S], stop <-chan struct{}) {
	give := func(item laneItem[S]) bool {
		select {
		case <-stop:
			return false
		default:
		}
		select {
		case to <- item:
			return true
		case <-stop:
			return false
		}
	}
	defer close(to)
	last := laneItem[S]{exited: true}
	defer func() {
		if v := recover(); v != nil {
			last = laneItem[S]{failed: &PanicError{v, debug.Stack()}}
		}
		if last.exited || last.failed != nil {
			give(last)
		}
	}()
	for i := lane; i < len(t.chain.sets); i += t.lanes {
		for l := range latersOf(t.chain.sets[i], Start{Seed: another(seed, i)}) {
			if !give(laneItem[S]{later: l}) {
				last.exited = false
				return
			}
		}
	}
	last.exited = false
}

// Shuffle is an Iterable in random order, as far as a buffer of size samples allows: it is filled, and then each sample
// that is given, drawn from it at random, makes place for the next. With a size as large as the set, the order is any.
//
// In the middle of an epoch it goes on without a copy of the buffer: which samples were in it follows from the seed, and
// they are read again, from the oldest of them on.
//
// It panics with a ValueError if size is not positive, and with a TypeError if there is no set.
func Shuffle[S any](set Iterable[S], size int) Iterable[S] {
	checkIterables("data.Shuffle", set)
	if size <= 0 {
		panic(args.ValueError("data.Shuffle", "the buffer's size must be positive, but is %d", size))
	}
	return &shuffled[S]{set, size}
}

type shuffled[S any] struct {
	set  Iterable[S]
	size int
}

func (t *shuffled[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) { t.From(fresh())(yield) }
}

func (t *shuffled[S]) From(start Start) iter.Seq2[S, error] { return now(t.laters(start)) }

func (t *shuffled[S]) Len() int { return lenOf(t.set) }

func newShuffle[T any](seed uint64, size int) *shuffle.Buffer[T] {
	return &shuffle.Buffer[T]{Size: size, RNG: rand.New(rand.NewPCG(seed, uint64(size)))}
}

func (t *shuffled[S]) laters(start Start) iter.Seq[later[S]] {
	seed := another(start.Seed, 0)
	return func(yield func(later[S]) bool) {
		s := newShuffle[later[S]](start.Seed, t.size)
		next := 0 // the place of the first sample that was not read yet
		if start.Skip > 0 {
			var ended bool
			if s, next, ended = t.refill(start, seed); ended {
				s.Rest()(yield)
				return
			}
		}
		s.All(latersOf(t.set, Start{seed, next}))(yield)
	}
}

// refill returns the buffer as it was when Skip samples had been given, and which sample is read next; ended says that
// there is none.
func (t *shuffled[S]) refill(start Start, seed uint64) (s *shuffle.Buffer[later[S]], next int, ended bool) {
	// A place that no set reaches, as in a file that somebody has changed, would be played through for ever.
	if start.Skip > 1<<20 {
		reached := false
		for range latersOf(t.set, Start{seed, start.Skip - 1}) {
			reached = true
			break
		}
		if !reached {
			return newShuffle[later[S]](start.Seed, t.size), start.Skip, true
		}
	}
	// What was where is played through with numbers in place of samples, as if the set had no end; if it turns out to
	// have one, once more.
	count := -1
	if t.size > 1<<16 { // what is not there would be played through for long
		n := 0
		for range latersOf(t.set, Start{Seed: seed}) {
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
			for l := range latersOf(t.set, Start{seed, oldest}) {
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
			for range latersOf(t.set, Start{Seed: seed}) {
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
