package data

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// LoaderOptions say how a [Loader] walks through a data set.
type LoaderOptions struct {
	BatchSize    gotorch.Scalar     // samples to a batch; default: 1
	Shuffle      bool               // draw the samples in another order in every epoch
	Sampler      Sampler[int]       // which samples an epoch has, and their order, in place of Shuffle
	BatchSampler Sampler[[]int]     // which batches an epoch has, in place of BatchSize, Shuffle, Sampler and DropLast
	Seed         gotorch.Scalar     // of the order and of random transforms; default: drawn from gotorch's default generator
	Generator    *gotorch.Generator // where the order and seeds come from, in place of Seed
	DropLast     bool               // leave out the last batch if it is smaller than the others
	NoBatching   bool               // give samples as they are, not joined: what batch_size=None is in Python
	Scoped       bool               // free what samples are made of when they are joined; see [Loader.All] for what may not be kept
	Workers      int                // goroutines that prepare batches; default: the one that takes them
	Prefetch     gotorch.Scalar     // batches that each worker prepares ahead; default: 2
	Timeout      time.Duration      // how long a batch is waited for, with Workers; default: as long as it takes
	WorkerInit   func(int) error    // called by each worker of an epoch with its number, from 0, before it prepares a batch; an error ends the epoch
	AnyOrder     bool               // give batches as they are ready, not in their order; of use with Workers
	PinMemory    bool               // copy batches into memory from which copies to an accelerator are faster
	MaxErrors    int                // how many samples of an epoch may fail and are left out, -1 for any number; all of a batch that cannot be joined
	OnError      func(*SampleError) // hears of each sample, or batch that cannot be joined, that is left out, in the goroutine that takes batches
}

// Loader makes batches of a data set's samples. All methods may be called from several goroutines.
//
// Its counterpart is torch.utils.data.DataLoader.
type Loader[B any] struct {
	source              source[B]
	workers, prefetch   int
	maxErrors           int
	onError             func(*SampleError)
	shuffle             bool
	sampler             Sampler[int]
	batchSampler        Sampler[[]int]
	batchSize           int
	dropLast, noBatches bool
	scoped, pin         bool
	anyOrder            bool
	timeout             time.Duration
	workerInit          func(int) error
	generator           *gotorch.Generator // nil: the default one

	mu     sync.Mutex
	at     *progress    // of the epoch that was begun last; nil before the first
	resume *resume      // what the next epoch goes on from
	epochs int          // that were begun
	dealt  atomic.Int64 // samples of the next epoch that another number of ranks had, of an Iterable
}

// NewLoader makes a loader of a data set whose samples are joined to batches of the same type: by the data set, if it is
// a [Batcher], by the type's method Collate, or as [DefaultCollate] does.
//
// It panics with a ValueError if an option is out of range or contradicts another, and with a TypeError if there is no set.
//
// The order is that of PyTorch's DataLoader: with Seed, that of one whose generator was seeded so,
// and without it that of one without a generator after the same manual_seed.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader.
func NewLoader[S any](set Dataset[S], opts ...LoaderOptions) *Loader[S] {
	const op = "data.NewLoader"
	opt := args.Option(opts)
	if set == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the data set is nil"})
	}
	m := &mapped[S, S]{set: set, get: getterOf(set), batcher: batcherOf(set), bulk: bulkOf(set), collate: collate[S]}
	if opt.NoBatching {
		m.batcher, m.bulk, m.collate, m.unjoined = nil, nil, single[S], true
	}
	return newLoader(op, m, opt)
}

// NewLoaderWith is [NewLoader] with a function that joins samples to batches, of any type: collate_fn in Python. collate
// is called by several workers at a time, and must not keep the slice that it is given.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader.
func NewLoaderWith[S, B any](set Dataset[S], collate func(samples []S) (B, error), opts ...LoaderOptions) *Loader[B] {
	const op = "data.NewLoaderWith"
	opt := args.Option(opts)
	if set == nil || collate == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the data set or the function is nil"})
	}
	if opt.NoBatching {
		panic(args.ValueError(op, "with NoBatching there is nothing to join: use NewLoader"))
	}
	return newLoader(op, &mapped[S, B]{set: set, get: getterOf(set), bulk: bulkOf(set), collate: collate}, opt)
}

// NewIterableLoader is [NewLoader] for an [Iterable]. One goroutine reads it, and workers make of what was read what
// [TransformIterable] says, and join it; without workers, both is done as batches are taken.
//
// Shuffle, Sampler and BatchSampler are a ValueError: the set itself says the order, for instance by [Shuffle].
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader.
func NewIterableLoader[S any](set Iterable[S], opts ...LoaderOptions) *Loader[S] {
	const op = "data.NewIterableLoader"
	opt := args.Option(opts)
	join := collate[S]
	if opt.NoBatching {
		join = single[S]
	}
	return newIterableLoader(op, set, join, opt)
}

// NewIterableLoaderWith is [NewIterableLoader] with a function that joins samples to batches, as [NewLoaderWith].
func NewIterableLoaderWith[S, B any](set Iterable[S], collate func(samples []S) (B, error), opts ...LoaderOptions) *Loader[B] {
	const op = "data.NewIterableLoaderWith"
	opt := args.Option(opts)
	if collate == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the function is nil"})
	}
	if opt.NoBatching {
		panic(args.ValueError(op, "with NoBatching there is nothing to join: use NewIterableLoader"))
	}
	return newIterableLoader(op, set, collate, opt)
}

func newIterableLoader[S, B any](op string, set Iterable[S], collate func([]S) (B, error), opt LoaderOptions) *Loader[B] {
	switch {
	case set == nil:
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the data set is nil"})
	case opt.Shuffle:
		panic(args.ValueError(op, "an Iterable has its own order, so Shuffle cannot be given: data.Shuffle(set, size) draws from a buffer"))
	case opt.Sampler != nil || opt.BatchSampler != nil:
		panic(args.ValueError(op, "an Iterable has its own order, so a sampler cannot be given"))
	}
	l := newLoader[B](op, nil, opt)
	l.source = &streamed[S, B]{set: set, collate: collate, batchSize: l.batchSize, dropLast: l.dropLast, unjoined: l.noBatches}
	return l
}

// single is how samples are joined that are not.
func single[S any](samples []S) (S, error) { return samples[0], nil }

func newLoader[B any](op string, src source[B], opt LoaderOptions) *Loader[B] {
	l := &Loader[B]{
		source: src, shuffle: opt.Shuffle, dropLast: opt.DropLast, workers: opt.Workers, sampler: opt.Sampler,
		batchSampler: opt.BatchSampler, noBatches: opt.NoBatching, scoped: opt.Scoped, maxErrors: opt.MaxErrors, onError: opt.OnError,
		batchSize: int(args.Int(op, "BatchSize", opt.BatchSize, 1)), prefetch: int(args.Int(op, "Prefetch", opt.Prefetch, 2)),
		generator: opt.Generator, timeout: opt.Timeout, workerInit: opt.WorkerInit, anyOrder: opt.AnyOrder, pin: opt.PinMemory,
	}
	seed, seeded := args.Seed(op, "Seed", opt.Seed)
	switch {
	case l.batchSize <= 0:
		panic(args.ValueError(op, "BatchSize must be positive, but got %d", l.batchSize))
	case l.workers < 0:
		panic(args.ValueError(op, "Workers must not be negative, but got %d; with 0 the goroutine that takes batches prepares them", l.workers))
	case l.prefetch < 0:
		panic(args.ValueError(op, "Prefetch must not be negative, but got %d", l.prefetch))
	case l.timeout < 0:
		panic(args.ValueError(op, "Timeout must not be negative, but got %v", l.timeout))
	case l.timeout > 0 && l.workers == 0:
		panic(args.ValueError(op, "Timeout needs Workers: without them the goroutine that waits for a batch makes it"))
	case l.maxErrors < -1:
		panic(args.ValueError(op, "MaxErrors must not be negative, but for -1, but got %d", l.maxErrors))
	case l.sampler != nil && l.shuffle:
		panic(args.ValueError(op, "Sampler says the order, so Shuffle cannot be given as well"))
	case l.batchSampler != nil && (args.Given(opt.BatchSize) || l.shuffle || l.sampler != nil || l.dropLast || l.noBatches):
		panic(args.ValueError(op, "BatchSampler says what batches there are, so BatchSize, Shuffle, Sampler, DropLast and NoBatching cannot be given as well"))
	case l.noBatches && (args.Given(opt.BatchSize) || l.dropLast):
		panic(args.ValueError(op, "with NoBatching there are no batches, so BatchSize and DropLast cannot be given as well"))
	case seeded && l.generator != nil:
		panic(args.ValueError(op, "Seed and Generator cannot both be given"))
	case seeded:
		l.generator = gotorch.NewGenerator(gotorch.CPU).ManualSeed(seed)
	}
	if _, is := gotorch.Accelerator(); l.pin && !is {
		l.pin = false
		gotorch.Warn(gotorch.Warning{Kind: "UserWarning", Msg: op + ": PinMemory is given, and there is no accelerator: batches stay in plain memory"})
	}
	return l
}

// Len returns the number of batches in an epoch; -1 if that is not known, for an [Iterable] that does not say how many
// samples it has. After [Loader.LoadRanks] it is that of the rest of one, until that is begun.
func (l *Loader[B]) Len() int {
	switch {
	case l.batchSampler != nil:
		return l.batchSampler.Len()
	case l.sampler != nil:
		return numBatches(l.sampler.Len(), l.batchSize, l.dropLast)
	}
	n, known := l.source.samples(int(l.dealt.Load()))
	if !known {
		return -1
	}
	return numBatches(n, l.batchSize, l.dropLast)
}

// SetEpoch says which epoch is next, from 0, where it is not the one after the last: the sampler, if it has such a method, as
// that of [DistributedSampler] has, and an [Iterable] by Start.Epoch. It panics with a ValueError if epoch is negative.
func (l *Loader[B]) SetEpoch(epoch int) {
	if epoch < 0 { // which no state could be
		panic(args.ValueError("data.Loader.SetEpoch", "the epoch must not be negative, but is %d", epoch))
	}
	l.mu.Lock()
	l.epochs = epoch
	l.mu.Unlock()
	for _, s := range []any{l.sampler, l.batchSampler} {
		if s, is := s.(interface{ SetEpoch(epoch int) }); is {
			s.SetEpoch(epoch)
		}
	}
}

// All is one epoch: it yields each batch once. After an error, which comes with an empty batch, it
// ends; what a data set, a transform or a function that joins samples returns or panics with is a [SampleError]. Where an [Iterable]
// panics because the loop was left, the panic comes out of the loop, or is joined to the error that ended it.
// A loop that is left early stops the workers and waits for them; what they had prepared is
// closed, if it has a method Close.
//
// A batch belongs to whoever took it: the collector frees it, or Close does it sooner.
//
// A batch that was joined is a copy, and the tensors of its samples are left to the collector, which finds them some batches
// later. With Scoped each batch is prepared in a [gotorch.Scope] instead, and all but the batch is freed when it is done, as
// Python does. A data set, transform or function that joins must then keep no tensor that it makes for a sample beyond the
// batch, but for those that it makes in [gotorch.Unscoped]; what it keeps nevertheless is a closed tensor, and using it a
// ValueError. Of an [Iterable] it is what transforms and joining make that is freed, and not what was read.
//
// With Timeout, a batch that does not come in that time is a RuntimeError, and a context.DeadlineExceeded. The workers are waited
// for no longer than that when the loop is left. Those that hang then are left behind, until what hangs returns.
//
// With AnyOrder, a batch that takes long holds up no other. Which batches there are does not change. The state knows which were taken.
//
// With PinMemory, workers copy the tensors of batches into page-locked memory: those in structs, maps and slices too. A batch with a
// method PinMemory that returns a batch says itself what that is. Where there is no accelerator, NewLoader warns, and nothing is copied.
//
// Besides the batch that was taken last, at most Workers·Prefetch of them are prepared or being made (one, if Prefetch is
// 0); of an [Iterable], the samples of two more are read.
//
// Do not give All to iter.Pull2 where next may be called inside a [gotorch.Scope], or another function
// that keeps the goroutine on its thread, that iter.Pull2 was not called in: Go ends the program, because a coroutine may
// not change its thread. [Loader.Pull] is for that.
func (l *Loader[B]) All() iter.Seq2[B, error] { return l.AllContext(context.Background()) }

// AllContext is [Loader.All] until ctx ends: then the loop gets ctx's error, with its cause, also where it is waiting for
// a batch, and ends, with no goroutine left. Samples that are being made are waited for, at most for Timeout; a [ContextDataset]
// hears of it.
func (l *Loader[B]) AllContext(ctx context.Context) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		w := walk[B]{loader: l, ctx: ctx}
		defer w.stop()
		for {
			batch, err, ok := w.next()
			if !ok || !yield(batch, err) {
				return
			}
		}
	}
}

// Pull is one epoch as iter.Pull2 would give it, for code that asks for batches rather than looping
// over them, as one that takes from two loaders in turn. next returns the next batch, and false after
// the last one or an error. stop ends the epoch early, as leaving a loop over [Loader.All] does; it may
// be called more than once, and must be unless next has returned false. They may be called anywhere,
// but not at the same time. A batch that is prepared without workers belongs to the [gotorch.Scope]
// that next is called in.
//
//	next, stop := loader.Pull()
//	defer stop()
//	for batch, err, ok := next(); ok; batch, err, ok = next() {
//		...
//	}
func (l *Loader[B]) Pull() (next func() (B, error, bool), stop func()) {
	w := &walk[B]{loader: l, ctx: context.Background()}
	return w.next, w.stop
}

// walk is an epoch under way.
type walk[B any] struct {
	loader  *Loader[B]
	ctx     context.Context
	started bool
	done    bool
	epoch   *epoch
	at      *progress
	failed  int       // samples that were left out
	pull    *jobs     // where there are no workers
	ahead   *ahead[B] // where there are
	cleanup runtime.Cleanup
}

// jobs is where batches to prepare come from when they are asked for.
type jobs struct {
	next func() (job, bool)
	stop func()
}

// next returns the next batch; false at the end.
func (w *walk[B]) next() (batch B, err error, ok bool) {
	for !w.done {
		if err := w.canceled(); err != nil {
			return batch, w.fail(err), true
		}
		if !w.started {
			w.started = true
			if err := w.begin(); err != nil {
				return batch, w.fail(err), true
			}
		}
		r, more, late := w.take()
		err := w.canceled()
		if err == nil && late {
			err = fmt.Errorf("%w: %w", &gotorch.Error{Op: "data.Loader", Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(
				"timed out: no batch came within %v after the first %d of the epoch", w.loader.timeout, w.at.batches)}, context.DeadlineExceeded)
		}
		if err != nil {
			if r.n > 0 {
				w.loader.source.discard(r.batch)
			}
			return batch, w.fail(err), true
		}
		switch {
		case !more:
			w.stop()
			w.loader.finish(w.at, w.epoch)
			return batch, nil, false
		case r.ended:
			w.stop()
			runtime.Goexit()
		}
		if r.err != nil {
			return batch, w.fail(r.err), true
		}
		left := r.count
		for _, e := range r.errs {
			n := 1
			if e.Index < 0 { // all that were to be joined
				n = max(left, 1)
			}
			left -= n
			if err := w.leftOut(e, n); err != nil {
				if r.n > 0 {
					w.loader.source.discard(r.batch)
				}
				return batch, w.fail(err), true
			}
		}
		w.loader.taken(w.at, r.job, w.failed)
		if r.n > 0 {
			return r.batch, nil, true
		}
	}
	return batch, nil, false
}

// fail ends the epoch. It returns err, and what the data set panics with because it was left.
func (w *walk[B]) fail(err error) error {
	_, panicked := guarded(func() (none struct{}, err error) {
		w.stop()
		return none, nil
	})
	if panicked != nil {
		return errors.Join(err, panicked)
	}
	return err
}

// leftOut is called for each sample that failed, or n that could not be joined. An error ends the epoch.
func (w *walk[B]) leftOut(e *SampleError, n int) error {
	l := w.loader
	if l.maxErrors >= 0 && n > l.maxErrors-w.failed {
		if w.failed > 0 {
			return fmt.Errorf("%w (%d others were left out before, and MaxErrors is %d)", e, w.failed, l.maxErrors)
		}
		return e
	}
	w.failed += n
	if l.onError != nil {
		l.onError(e)
	}
	return nil
}

// canceled returns the error of the context, with its cause.
func (w *walk[B]) canceled() error {
	err, cause := w.ctx.Err(), context.Cause(w.ctx)
	if err == nil || cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (w *walk[B]) begin() (err error) {
	l := w.loader
	w.epoch, w.at, err = l.begin()
	if err != nil {
		return err
	}
	w.failed = w.at.failed
	if l.workers > 0 {
		w.ahead = l.loadAhead(w.ctx, w.epoch, w.at)
		// Where stop is not called, the workers are stopped when nobody can call next any more.
		w.cleanup = runtime.AddCleanup(w, func(a *ahead[B]) { go func() { a.close() }() }, w.ahead)
		return nil
	}
	next, stop := l.source.pull(w.epoch, w.at.batches, w.at.samples)
	w.pull = &jobs{next, stop}
	return nil
}

// take returns the next batch that is prepared.
func (w *walk[B]) take() (r result[B], more, late bool) {
	if w.ahead != nil {
		return w.ahead.take(w.ctx)
	}
	j, more := w.pull.next()
	if !more {
		return r, false, false
	}
	return prepared(w.ctx, w.loader.source, w.epoch, j), true, false
}

// stop ends the epoch.
func (w *walk[B]) stop() {
	w.done = true
	if a := w.ahead; a != nil {
		w.ahead = nil
		w.cleanup.Stop()
		left := a.close()
		left.carryOn()
	}
	if p := w.pull; p != nil {
		w.pull = nil
		p.stop()
	}
}

// epoch is the plan for one walk through the data set.
type epoch struct {
	seed    uint64  // of random transforms
	number  int     // from 0
	dealt   int     // samples that another number of ranks had
	size    int     // samples; of an Iterable, 0
	order   []int   // of them; nil: as they come
	groups  [][]int // batches, if the data set's samples are not taken one after the other
	batches int
	length  int  // of the data set; -1: not known
	goOn    bool // where a sample fails
	noBatch bool // samples are not joined
	scoped  bool // a batch is prepared in a Scope
	pin     bool // a batch is copied to pinned memory

	taken map[int]int // batches that were taken before others: where their samples end, by the number
	end   func()      // what is drawn when it is over

	batchSize int
}

// indices returns what samples the i-th batch has.
func (e *epoch) indices(i int) []int {
	if e.groups != nil {
		return e.groups[i]
	}
	first := i * e.batchSize
	n := min(e.batchSize, e.size-first)
	if e.order != nil {
		return e.order[first : first+n : first+n]
	}
	indices := make([]int, n)
	for k := range indices {
		indices[k] = first + k
	}
	return indices
}

// draw plans an epoch. It draws the same random numbers, in the same order, as an iterator over PyTorch's DataLoader; base
// takes the place of the default generator.
func (l *Loader[B]) draw(base *gotorch.Generator, dealt int) *epoch {
	n, known := l.source.samples(dealt)
	if known && n < 0 {
		panic(args.ValueError("data.Loader", "the data set's Len is %d", n))
	}
	e := &epoch{length: n, batchSize: l.batchSize, goOn: l.maxErrors != 0, noBatch: l.noBatches, scoped: l.scoped, pin: l.pin, end: nothing}
	own := l.generator
	if own == nil {
		own = base
	}
	e.seed = draw(own)
	if l.source.streams() {
		return e
	}
	e.size = n
	switch {
	case l.batchSampler != nil:
		e.groups, e.end = l.groups(base)
		e.size = 0
		for _, group := range e.groups {
			e.size += len(group)
		}
		e.batches = len(e.groups)
		return e
	case l.sampler != nil:
		e.order, e.end = planOf(l.sampler, base)
		e.size = len(e.order)
	case l.shuffle && n > 0:
		g := own
		if l.generator == nil {
			g = gotorch.NewGenerator(gotorch.CPU).ManualSeed(draw(own))
		}
		e.order, e.end = permuted(n, n, g)
		if l.generator == nil {
			e.end = nothing // nobody else draws from it
		}
	}
	e.batches = numBatches(e.size, l.batchSize, l.dropLast)
	return e
}

// planOf draws an epoch of a sampler.
func planOf(s Sampler[int], base *gotorch.Generator) (order []int, end func()) {
	if p, is := s.(planner); is {
		order, end = p.plan(base)
	} else {
		order, end = []int{}, nothing
		n := s.Len()
		withDefault(base, func() {
			for i := range s.All() {
				if order = append(order, i); len(order) > n {
					panic(args.ValueError("data.Loader", "the sampler's Len is %d, and it gives more", n))
				}
			}
		})
	}
	if order == nil {
		order = []int{}
	}
	return order, end
}

// groups draws an epoch of the batch sampler.
func (l *Loader[B]) groups(base *gotorch.Generator) (groups [][]int, end func()) {
	groups, end = [][]int{}, nothing
	n := l.batchSampler.Len()
	add := func(all iter.Seq[[]int]) {
		for batch := range all {
			if groups = append(groups, append([]int{}, batch...)); len(groups) > n {
				panic(args.ValueError("data.Loader", "the batch sampler's Len is %d, and it gives more", n))
			}
		}
	}
	if of, is := l.batchSampler.(*batches); is {
		var order []int
		order, end = planOf(of.sampler, base)
		add(of.of(func(yield func(int) bool) {
			for _, i := range order {
				if !yield(i) {
					return
				}
			}
		}))
		return groups, end
	}
	withDefault(base, func() { add(l.batchSampler.All()) })
	return groups, end
}

// withDefault calls fn with base's state in the default generator, which has its own again afterwards.
func withDefault(base *gotorch.Generator, fn func()) {
	if base != nil {
		g := gotorch.DefaultGenerator(gotorch.CPU)
		before, other := g.State(), base.State()
		defer before.Close()
		defer other.Close()
		g.SetState(other)
		defer g.SetState(before)
	}
	fn()
}

// rand returns the source of randomness of a batch.
func (e *epoch) rand(batch int) *rand.Rand { return rand.New(rand.NewPCG(e.seed, uint64(batch))) }
