package data

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// LoaderOptions say how a [Loader] walks through a data set.
type LoaderOptions struct {
	BatchSize gotorch.Scalar // samples to a batch; default: 1
	Shuffle   bool           // draw the samples in another order in every epoch
	Seed      gotorch.Scalar // of the order and of random transforms; default: drawn from gotorch's default generator
	DropLast  bool           // leave out the last batch if it is smaller than the others
	Workers   int            // goroutines that prepare batches; default: the one that takes them
	Prefetch  gotorch.Scalar // batches that each worker prepares ahead; default: 2
}

// Loader makes batches of a data set's samples. All methods may be called from several goroutines.
type Loader[S any] struct {
	set                          Dataset[S]
	batchSize, workers, prefetch int
	shuffle, dropLast            bool
	generator                    *gotorch.Generator // nil: the default one
}

// NewLoader makes a loader. It panics with a ValueError if BatchSize is not positive, or Workers or
// Prefetch negative, and with a TypeError if there is no set.
//
// The order is that of PyTorch's DataLoader: with Seed, that of one whose generator was seeded so,
// and without it that of one without a generator after the same manual_seed.
func NewLoader[S any](set Dataset[S], opts ...LoaderOptions) *Loader[S] {
	const op = "data.NewLoader"
	opt := args.Option(opts)
	if set == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the data set is nil"})
	}
	l := &Loader[S]{
		set: set, shuffle: opt.Shuffle, dropLast: opt.DropLast, workers: opt.Workers,
		batchSize: int(args.Int(op, "BatchSize", opt.BatchSize, 1)), prefetch: int(args.Int(op, "Prefetch", opt.Prefetch, 2)),
	}
	switch {
	case l.batchSize <= 0:
		panic(args.ValueError(op, "BatchSize must be positive, but got %d", l.batchSize))
	case l.workers < 0:
		panic(args.ValueError(op, "Workers must not be negative, but got %d; with 0 the goroutine that takes batches prepares them", l.workers))
	case l.prefetch < 0:
		panic(args.ValueError(op, "Prefetch must not be negative, but got %d", l.prefetch))
	}
	if seed, given := args.Seed(op, "Seed", opt.Seed); given {
		l.generator = gotorch.NewGenerator(gotorch.CPU)
		l.generator.ManualSeed(seed)
	}
	return l
}

// Len returns the number of batches in an epoch.
func (l *Loader[S]) Len() int { return l.batches(l.set.Len()) }

// batches is Len for a data set of n samples.
func (l *Loader[S]) batches(n int) int {
	n = max(n, 0) // newEpoch refuses less
	batches := n / l.batchSize
	if n%l.batchSize > 0 && !l.dropLast {
		batches++
	}
	return batches
}

// All is one epoch: it yields each batch once. After an error, which comes with an empty batch, it
// ends. A loop that is left early stops the workers and waits for them; what they had prepared is
// closed, if it has a method Close.
//
// A batch belongs to whoever took it: the collector frees it, or Close does it sooner.
//
// Do not give All to iter.Pull2: where its next is called inside a [gotorch.Scope] or another function
// that keeps the goroutine on its thread, Go ends the program, because a coroutine may not change its
// thread. [Loader.Pull] is for that.
func (l *Loader[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		w := walk[S]{loader: l}
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
func (l *Loader[S]) Pull() (next func() (S, error, bool), stop func()) {
	w := &walk[S]{loader: l}
	return w.next, w.stop
}

// walk is an epoch under way.
type walk[S any] struct {
	loader  *Loader[S]
	started bool
	done    bool
	epoch   epoch
	taken   int       // batches
	ahead   *ahead[S] // nil: there are no workers
	cleanup runtime.Cleanup
}

// next returns the next batch; false at the end.
func (w *walk[S]) next() (batch S, err error, ok bool) {
	if w.done {
		return batch, nil, false
	}
	l := w.loader
	if !w.started {
		w.started = true
		if w.epoch, err = gotorch.Try(l.newEpoch); err != nil {
			w.stop()
			return batch, err, true
		}
		if l.workers > 0 {
			w.ahead = l.loadAhead(w.epoch)
			// Where stop is not called, the workers are stopped when nobody can call next any more.
			w.cleanup = runtime.AddCleanup(w, func(a *ahead[S]) { go a.close() }, w.ahead)
		}
	}
	if w.taken == l.batches(w.epoch.size) {
		w.stop()
		if l.shuffle && l.generator != nil {
			// At the end of an epoch PyTorch's sampler draws an order of which it uses nothing.
			gotorch.RandpermGenerator(int64(w.epoch.size), l.generator).Close()
		}
		return batch, nil, false
	}
	if w.ahead == nil {
		batch, err = l.load(w.epoch, w.taken)
	} else {
		r := w.ahead.take()
		if r.failed != nil {
			w.stop()
			panic(r.failed)
		}
		if r.ended {
			w.stop()
			runtime.Goexit()
		}
		batch, err = r.batch, r.err
	}
	w.taken++
	if err != nil {
		w.stop()
	}
	return batch, err, true
}

// stop ends the epoch.
func (w *walk[S]) stop() {
	w.done = true
	if w.ahead != nil {
		w.cleanup.Stop()
		w.ahead.close()
		w.ahead = nil
	}
}

// epoch is the plan for one walk through the data set.
type epoch struct {
	order []int  // nil: as they come
	size  int    // of the data set
	seed  uint64 // of random transforms
}

// newEpoch draws the same random numbers, in the same order, as an iterator over PyTorch's DataLoader.
func (l *Loader[S]) newEpoch() epoch {
	e := epoch{size: l.set.Len()}
	if e.size < 0 {
		panic(args.ValueError("data.Loader", "the data set's Len is %d", e.size))
	}
	draw := func() uint64 {
		seed := gotorch.Empty(nil, gotorch.TensorOptions{DType: gotorch.Int64})
		defer seed.Close()
		seed.Random_(gotorch.RandomOptions{Generator: l.generator})
		return uint64(gotorch.Item[int64](seed))
	}
	e.seed = draw()
	if !l.shuffle {
		return e
	}
	generator := l.generator
	if generator == nil {
		generator = gotorch.NewGenerator(gotorch.CPU)
		generator.ManualSeed(draw())
	}
	order := gotorch.RandpermGenerator(int64(e.size), generator)
	defer order.Close()
	e.order = gotorch.ToSlice[int](order)
	return e
}

// load prepares the i-th batch of an epoch.
func (l *Loader[S]) load(e epoch, i int) (S, error) {
	first := i * l.batchSize
	n := min(l.batchSize, e.size-first)
	indices := make([]int, 0, n)
	for at := first; at < first+n; at++ {
		if e.order != nil {
			indices = append(indices, e.order[at])
		} else {
			indices = append(indices, at)
		}
	}
	return batch(l.set, indices, rand.New(rand.NewPCG(e.seed, uint64(i))))
}

// result is what a worker made of a batch.
type result[S any] struct {
	batch  S
	err    error
	failed *workerPanic
	ended  bool // its goroutine did, by runtime.Goexit
}

// ahead is workers that prepare batches. The batches' places are queued in order; each worker takes the
// next place that is not taken and puts its batch there.
type ahead[S any] struct {
	queue   chan place[S]
	stop    chan struct{}
	running sync.WaitGroup
}

type place[S any] struct {
	i      int
	result chan result[S]
}

func (l *Loader[S]) loadAhead(e epoch) *ahead[S] {
	// No more of either than there is work for.
	batches := l.batches(e.size)
	workers, prepared := min(l.workers, batches), batches
	if workers > 0 && l.prefetch < batches/workers {
		prepared = workers * l.prefetch
	}
	a := &ahead[S]{queue: make(chan place[S], prepared), stop: make(chan struct{})}
	todo := make(chan place[S])
	a.running.Go(func() {
		defer close(a.queue)
		defer close(todo)
		for i := range batches {
			p := place[S]{i, make(chan result[S], 1)}
			select {
			case a.queue <- p:
			case <-a.stop:
				return
			}
			select {
			case todo <- p:
			case <-a.stop:
				return
			}
		}
	})
	for range workers {
		a.running.Go(func() {
			for p := range todo {
				l.work(e, p)
			}
		})
	}
	return a
}

// take waits for the next batch.
func (a *ahead[S]) take() result[S] {
	p := <-a.queue
	return <-p.result
}

// close stops the workers, waits for them, and closes what they had prepared.
func (a *ahead[S]) close() {
	close(a.stop)
	a.running.Wait()
	for p := range a.queue {
		select {
		case r := <-p.result:
			discard(r.batch)
		default: // no worker had taken it
		}
	}
}

// work is load in a worker. A panic would end the program there before anybody could catch it, and the
// end of the goroutine, as by t.Fatal, would leave whoever takes the batch waiting: he does the same
// instead.
func (l *Loader[S]) work(e epoch, p place[S]) {
	r := result[S]{ended: true}
	defer func() {
		if v := recover(); v != nil {
			r = result[S]{failed: &workerPanic{v, debug.Stack()}}
		}
		p.result <- r
	}()
	batch, err := l.load(e, p.i)
	r = result[S]{batch: batch, err: err}
}

// discard closes a batch that nobody will take.
func discard(batch any) {
	switch b := batch.(type) {
	case interface{ Close() }:
		b.Close()
	case interface{ Close() error }:
		_ = b.Close()
	}
}

// workerPanic is what a loop over a loader panics with when a worker did.
type workerPanic struct {
	value any
	stack []byte
}

func (p *workerPanic) Error() string {
	return fmt.Sprintf("data: a worker of a loader panicked: %v\n\n%s", p.value, p.stack)
}

// Unwrap lets gotorch.Try see the *gotorch.Error that an op in the worker panicked with.
func (p *workerPanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}
