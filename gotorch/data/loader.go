package data

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"sync"

	"gotorch.dev/gotorch"
)

// LoaderOptions say how a [Loader] walks through a data set.
type LoaderOptions struct {
	BatchSize int    // samples to a batch; default: 1
	Shuffle   bool   // draw the samples in another order in every epoch
	Seed      uint64 // of the order and of random transforms; default: drawn from gotorch's default generator
	DropLast  bool   // leave out the last batch if it is smaller than the others
	Workers   int    // goroutines that prepare batches; default: the one that takes them
	Prefetch  int    // batches that each worker prepares ahead; default: 2
}

// Loader makes batches of a data set's samples. All methods may be called from several goroutines.
type Loader[S any] struct {
	set       Dataset[S]
	opts      LoaderOptions
	generator *gotorch.Generator // nil: the default one
}

// NewLoader makes a loader. It panics with a ValueError if an option is negative.
//
// The order is that of PyTorch's DataLoader: with Seed, that of one whose generator was seeded so,
// and without it that of one without a generator after the same manual_seed.
func NewLoader[S any](set Dataset[S], opts ...LoaderOptions) *Loader[S] {
	l := &Loader[S]{set: set}
	if len(opts) > 0 {
		l.opts = opts[0]
	}
	o := &l.opts
	if o.BatchSize < 0 || o.Workers < 0 || o.Prefetch < 0 {
		panic(&gotorch.Error{Op: "data.NewLoader", Kind: gotorch.ValueError, Msg: fmt.Sprintf(
			"BatchSize, Workers and Prefetch must not be negative, got %d, %d and %d", o.BatchSize, o.Workers, o.Prefetch)})
	}
	if o.BatchSize == 0 {
		o.BatchSize = 1
	}
	if o.Prefetch == 0 {
		o.Prefetch = 2
	}
	if o.Seed != 0 {
		l.generator = gotorch.NewGenerator(gotorch.CPU)
		l.generator.ManualSeed(o.Seed)
	}
	return l
}

// Len returns the number of batches in an epoch.
func (l *Loader[S]) Len() int { return l.batches(l.set.Len()) }

// batches is Len for a data set of n samples.
func (l *Loader[S]) batches(n int) int {
	if !l.opts.DropLast {
		n += l.opts.BatchSize - 1
	}
	return n / l.opts.BatchSize
}

// All is one epoch: it yields each batch once. After an error, which comes with an empty batch, it
// ends. A loop that is left early stops the workers and waits for them; what they had prepared is
// closed, if it has a method Close.
//
// A batch belongs to whoever took it: the collector frees it, or Close does it sooner.
func (l *Loader[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		epoch, err := gotorch.Try(l.newEpoch)
		if err != nil {
			var none S
			yield(none, err)
			return
		}
		walk := l.loadEach
		if l.opts.Workers > 0 {
			walk = l.loadAhead
		}
		if walk(epoch, yield) && l.opts.Shuffle && l.generator != nil {
			// At the end of an epoch PyTorch's sampler draws an order of which it uses nothing.
			gotorch.RandpermGenerator(int64(epoch.size), l.generator).Close()
		}
	}
}

// loadEach yields the batches as they are asked for, and reports whether it came to the end.
func (l *Loader[S]) loadEach(e epoch, yield func(S, error) bool) bool {
	for i := range l.batches(e.size) {
		batch, err := l.load(e, i)
		if !yield(batch, err) || err != nil {
			return false
		}
	}
	return true
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
	draw := func() uint64 {
		seed := gotorch.Empty(nil, gotorch.EmptyOptions{DType: gotorch.Int64})
		defer seed.Close()
		seed.Random_(gotorch.RandomOptions{Generator: l.generator})
		return uint64(gotorch.Item[int64](seed))
	}
	e.seed = draw()
	if !l.opts.Shuffle {
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
	indices := make([]int, 0, l.opts.BatchSize)
	for at := i * l.opts.BatchSize; at < min((i+1)*l.opts.BatchSize, e.size); at++ {
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
}

// loadAhead is loadEach with workers. The batches' places are queued in order; each worker takes the
// next place that is not taken and puts its batch there.
func (l *Loader[S]) loadAhead(e epoch, yield func(S, error) bool) bool {
	type place struct {
		i      int
		result chan result[S]
	}
	var (
		queue   = make(chan place, l.opts.Workers*l.opts.Prefetch)
		todo    = make(chan place)
		stop    = make(chan struct{})
		running sync.WaitGroup
	)
	running.Go(func() {
		defer close(queue)
		defer close(todo)
		for i := range l.batches(e.size) {
			p := place{i, make(chan result[S], 1)}
			select {
			case queue <- p:
			case <-stop:
				return
			}
			select {
			case todo <- p:
			case <-stop:
				return
			}
		}
	})
	for range l.opts.Workers {
		running.Go(func() {
			for p := range todo {
				p.result <- l.work(e, p.i)
			}
		})
	}
	defer func() {
		close(stop)
		running.Wait()
		for p := range queue {
			select {
			case r := <-p.result:
				discard(r.batch)
			default: // no worker had taken it
			}
		}
	}()
	for p := range queue {
		r := <-p.result
		if r.failed != nil {
			panic(r.failed)
		}
		if !yield(r.batch, r.err) || r.err != nil {
			return false
		}
	}
	return true
}

// work is load in a worker, where a panic would end the program before anybody could catch it.
func (l *Loader[S]) work(e epoch, i int) (r result[S]) {
	defer func() {
		if v := recover(); v != nil {
			r.failed = &workerPanic{v, debug.Stack()}
		}
	}()
	r.batch, r.err = l.load(e, i)
	return r
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
