package data

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// job is a batch that is to be prepared.
type job struct {
	number  int   // in the epoch
	indices []int // of a Dataset
	laters  any   // of an Iterable, a []later[S]
	first   int   // place of its first sample in the epoch of an Iterable
	count   int   // samples
}

// result is what became of a job.
type result[B any] struct {
	job
	batch B
	n     int // samples that were joined; with 0 there is no batch
	errs  []*SampleError
	err   error // of the worker, and no sample's: the epoch ends
	ended bool  // the goroutine, by runtime.Goexit
}

// source is a data set and how its samples are joined.
type source[B any] interface {
	// samples returns how many there are, if that is known: in the rest of an epoch of which other numbers of ranks had so many.
	samples(dealt int) (n int, known bool)
	// streams reports whether it is an Iterable.
	streams() bool
	// push gives what is to be prepared, from a batch and a sample on; pull does when it is asked.
	push(e *epoch, batch, sample int) iter.Seq[job]
	pull(e *epoch, batch, sample int) (next func() (job, bool), stop func())
	// prepare makes the batch.
	prepare(ctx context.Context, e *epoch, j job) result[B]
	// discard closes a batch that nobody took.
	discard(batch B)
	// states returns the iterables that have a state of their own.
	states() []stateful
	// shared returns how ranks share it, if it is an Iterable that they do.
	shared() (sharing, bool)
}

// prepared makes a batch, and frees what it was made of, if the loader is to.
func prepared[B any](ctx context.Context, src source[B], e *epoch, j job) (r result[B]) {
	prepare := func() (r result[B]) {
		r = src.prepare(ctx, e, j)
		if !e.pin || r.n == 0 {
			return r
		}
		batch, err := guarded(func() (B, error) { return pinned(r.batch) })
		if err != nil {
			return result[B]{job: r.job, errs: append(r.errs, &SampleError{Index: -1, Batch: j.number, Indices: j.indices, Err: err})}
		}
		src.discard(r.batch)
		r.batch = batch
		return r
	}
	if !e.scoped {
		return prepare()
	}
	r.batch = gotorch.Scope(func(*gotorch.ScopeHandle) B {
		r = prepare()
		return r.batch
	})
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

// Data sets ----------------------------------------------------------------------------------------

// mapped is a Dataset.
type mapped[S, B any] struct {
	set     Dataset[S]
	get     getter[S]
	batcher Batcher[B]     // nil: there is none
	bulk    BulkDataset[S] // the same
	collate func([]S) (B, error)

	unjoined bool // samples are given as they are
}

func (m *mapped[S, B]) samples(int) (int, bool) { return m.set.Len(), true }

func (m *mapped[S, B]) states() []stateful { return nil }

func (m *mapped[S, B]) shared() (sharing, bool) { return nil, false }

func (m *mapped[S, B]) streams() bool { return false }

func (m *mapped[S, B]) job(e *epoch, i int) job {
	indices := e.indices(i)
	return job{number: i, indices: indices, count: len(indices)}
}

func (m *mapped[S, B]) push(e *epoch, batch, _ int) iter.Seq[job] {
	return func(yield func(job) bool) {
		for i := batch; i < e.batches; i++ {
			if _, taken := e.taken[i]; !taken && !yield(m.job(e, i)) {
				return
			}
		}
	}
}

func (m *mapped[S, B]) pull(e *epoch, batch, _ int) (func() (job, bool), func()) {
	i := batch - 1
	return func() (j job, more bool) {
		for i++; i < e.batches; i++ {
			if _, taken := e.taken[i]; !taken {
				return m.job(e, i), true
			}
		}
		return j, false
	}, nothing
}

func (m *mapped[S, B]) discard(batch B) {
	if !m.unjoined {
		discard(batch)
	}
}

func (m *mapped[S, B]) prepare(ctx context.Context, e *epoch, j job) result[B] {
	for _, i := range j.indices {
		if i < 0 || i >= e.length {
			return gather(ctx, e, j, m.at(ctx, e, j), m.fail(j), m.collate) // which says which
		}
	}
	var whole func() (B, error)
	switch {
	case m.batcher != nil:
		whole = func() (B, error) { return m.batcher.Batch(j.indices, e.rand(j.number)) }
	case m.bulk != nil:
		whole = func() (B, error) { return m.joined(j.indices) }
	default:
		return gather(ctx, e, j, m.at(ctx, e, j), m.fail(j), m.collate)
	}
	batch, err := guarded(whole)
	switch {
	case err == nil:
		return result[B]{job: j, batch: batch, n: max(j.count, 1)}
	case !e.goOn:
		return result[B]{job: j, errs: []*SampleError{m.fail(j)(-1, err)}}
	}
	// Which of them it is that fails comes out one by one.
	return gather(ctx, e, j, m.at(ctx, e, j), m.fail(j), m.collate)
}

// joined makes a batch of samples that come in one go.
func (m *mapped[S, B]) joined(indices []int) (none B, err error) {
	samples, err := m.bulk.Samples(indices)
	if err != nil {
		return none, err
	}
	if len(samples) != len(indices) {
		return none, args.ValueError("data.Loader", "the data set's Samples gave %d for %d indices", len(samples), len(indices))
	}
	return m.collate(samples)
}

// at returns the k-th sample of a batch.
func (m *mapped[S, B]) at(ctx context.Context, e *epoch, j job) func(k int) (S, error) {
	var rng *rand.Rand
	return func(k int) (none S, err error) {
		if rng == nil {
			rng = e.rand(j.number)
		}
		i := j.indices[k]
		if i < 0 || i >= e.length {
			return none, noSample("data.Loader", i, e.length)
		}
		return m.get(ctx, i, rng)
	}
}

func (m *mapped[S, B]) fail(j job) func(k int, err error) *SampleError {
	return func(k int, err error) *SampleError {
		if k < 0 {
			return &SampleError{Index: -1, Batch: j.number, Indices: j.indices, Err: err}
		}
		i := j.indices[k]
		name, _ := guarded(func() (string, error) { return nameIn(m.set, i), nil })
		return &SampleError{Index: i, Name: name, Batch: j.number, Err: err}
	}
}

// gather asks for the samples of a batch, and joins those that there are.
func gather[S, B any](ctx context.Context, e *epoch, j job, get func(k int) (S, error), fail func(k int, err error) *SampleError, join func([]S) (B, error)) result[B] {
	r := result[B]{job: j}
	samples := make([]S, 0, j.count)
	k := -1
	some := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = recovered(v)
			}
		}()
		for k++; k < j.count; k++ {
			if ctx.Err() != nil {
				return nil
			}
			sample, err := get(k)
			if err != nil {
				return err
			}
			samples = append(samples, sample)
		}
		return nil
	}
	for {
		err := some()
		if err == nil {
			break
		}
		r.errs = append(r.errs, fail(k, err))
		if !e.goOn {
			return r
		}
	}
	if ctx.Err() != nil || len(samples) == 0 && len(r.errs) > 0 {
		return r
	}
	batch, err := guarded(func() (B, error) { return join(samples) })
	if err != nil {
		r.errs = append(r.errs, fail(-1, err))
		return r
	}
	r.batch, r.n = batch, max(len(samples), 1)
	return r
}

// Iterables ----------------------------------------------------------------------------------------

// streamed is an Iterable.
type streamed[S, B any] struct {
	set       Iterable[S]
	collate   func([]S) (B, error)
	batchSize int
	dropLast  bool
	unjoined  bool // samples are given as they are
}

func (s *streamed[S, B]) samples(dealt int) (int, bool) {
	n := lenOf(s.set)
	if by, is := sharedBy(s.set); is {
		n = by.rest(dealt)
	}
	return n, n >= 0
}

func (s *streamed[S, B]) streams() bool { return true }

func (s *streamed[S, B]) states() []stateful { return statesIn(s.set) }

func (s *streamed[S, B]) shared() (sharing, bool) { return sharedBy(s.set) }

func (s *streamed[S, B]) push(e *epoch, batch, sample int) iter.Seq[job] {
	return func(yield func(job) bool) {
		var laters []later[S]
		left := false
		give := func() bool {
			j := job{number: batch, laters: laters, first: sample, count: len(laters)}
			batch++
			sample += len(laters)
			laters = nil
			if _, taken := e.taken[j.number]; taken {
				return true
			}
			left = true // also where yield panics
			left = !yield(j)
			return !left
		}
		defer func() {
			switch v := recover(); {
			case v == nil:
			case left: // nobody is there to hear of it
				panic(v)
			default:
				err := recovered(v)
				laters = append(laters, func() (none S, _ error) { return none, err })
				give()
			}
		}()
		warned := e.length < 0
		for l := range latersOf(s.set, Start{Seed: e.seed, Epoch: e.number, Skip: sample, dealt: e.dealt}) {
			laters = append(laters, l)
			if n := sample + len(laters); !warned && n > e.length {
				warned = true
				gotorch.Warn(gotorch.Warning{Kind: "UserWarning", Msg: fmt.Sprintf(
					"data.Loader: the Len of the %T is %d, and an epoch has more samples: Loader.Len and what is planned with it are wrong", s.set, e.length)})
			}
			if len(laters) == s.batchSize && !give() {
				return
			}
		}
		if len(laters) > 0 && !s.dropLast {
			give()
		}
	}
}

func (s *streamed[S, B]) pull(e *epoch, batch, sample int) (func() (job, bool), func()) {
	next, stop := Pull2(func(yield func(job, struct{}) bool) {
		for j := range s.push(e, batch, sample) {
			if !yield(j, struct{}{}) {
				return
			}
		}
	})
	return func() (job, bool) {
		j, _, more := next()
		return j, more
	}, stop
}

func (s *streamed[S, B]) discard(batch B) {
	if !s.unjoined {
		discard(batch)
	}
}

func (s *streamed[S, B]) prepare(ctx context.Context, e *epoch, j job) result[B] {
	laters := j.laters.([]later[S])
	j.laters = nil
	return gather(ctx, e, j, func(k int) (S, error) {
		l := laters[k]
		laters[k] = nil // what was read is not needed any more
		return l()
	}, func(k int, err error) *SampleError {
		if k < 0 {
			return &SampleError{Index: -1, Batch: j.number, Err: err}
		}
		return &SampleError{Index: j.first + k, Batch: j.number, Err: err}
	}, s.collate)
}

// Workers ------------------------------------------------------------------------------------------

// ahead is workers that prepare batches. The batches' places are queued in order; each worker takes the
// next place that is not taken and puts its batch there.
type ahead[B any] struct {
	source  source[B]
	queue   chan place[B] // as many places as there may be at a time
	ready   chan place[B] // where the order is any, those that have a batch; else nil
	held    *place[B]     // whoever takes batches waits for it
	stop    context.CancelFunc
	running sync.WaitGroup
	reader  ended // to be read when none is running
	timeout time.Duration
	late    bool
}

type place[B any] struct {
	job
	result chan result[B]
}

func (l *Loader[B]) loadAhead(ctx context.Context, e *epoch, at *progress) *ahead[B] {
	const most = 1 << 16 // places, which are made room for
	workers, prepared := l.workers, most
	if !l.source.streams() {
		// No more of either than there is work for.
		batches := max(e.batches-at.batches, 0)
		workers, prepared = min(workers, batches), min(prepared, batches)
	}
	workers = min(workers, most)
	if workers > 0 && l.prefetch < prepared/workers {
		prepared = workers * l.prefetch
	}
	if l.anyOrder { // who takes batches waits for one that is ready
		prepared = max(prepared, 1)
	}
	ctx, stop := context.WithCancel(ctx)
	a := &ahead[B]{source: l.source, queue: make(chan place[B], prepared), stop: stop, timeout: l.timeout}
	if l.anyOrder {
		a.ready = make(chan place[B], prepared+1) // more are never queued
	}
	todo := make(chan place[B])
	jobs := l.source.push(e, at.batches, at.samples)
	a.running.Go(func() {
		a.reader.exited = true
		defer close(a.queue)
		defer close(todo)
		defer func() {
			a.reader.note(recover())
			if a.reader.exited { // reading has ended the goroutine: whoever takes batches is to do the same
				p := place[B]{result: make(chan result[B], 1)}
				p.result <- result[B]{ended: true}
				next := a.queue
				if a.ready != nil {
					next = a.ready
				}
				select {
				case next <- p:
				case <-ctx.Done():
				}
			}
		}()
	reading:
		for j := range jobs {
			p := place[B]{j, make(chan result[B], 1)}
			select {
			case a.queue <- p:
			case <-ctx.Done():
				break reading
			}
			select {
			case todo <- p:
			case <-ctx.Done():
				break reading
			}
		}
		a.reader.exited = false
	})
	var working sync.WaitGroup
	for worker := range workers {
		working.Add(1)
		a.running.Go(func() {
			defer working.Done()
			var failed error
			if l.workerInit != nil {
				begun := false
				defer func() { // also where WorkerInit has ended the goroutine: whoever takes a batch is to do the same
					if begun {
						return
					}
					if p, more := <-todo; more {
						a.give(p, result[B]{ended: true})
					}
				}()
				failed = initialized(l.workerInit, worker)
				begun = true
			}
			for p := range todo {
				a.work(ctx, e, p, failed)
			}
		})
	}
	if a.ready != nil {
		a.running.Go(func() {
			working.Wait()
			close(a.ready)
		})
	}
	return a
}

// take waits for the next batch; there is none at the end, and if ctx ends or it takes too long.
func (a *ahead[B]) take(ctx context.Context) (r result[B], more, late bool) {
	var timedOut <-chan time.Time
	if a.timeout > 0 {
		timer := time.NewTimer(a.timeout)
		defer timer.Stop()
		timedOut = timer.C
	}
	next := a.queue
	if a.ready != nil {
		next = a.ready
	}
	select {
	case p, more := <-next:
		if !more {
			return r, false, false
		}
		a.held = &p
	case <-ctx.Done():
		return r, false, false
	case <-timedOut:
		a.late = true
		return r, false, true
	}
	select {
	case r = <-a.held.result:
		a.held = nil
		if a.ready != nil {
			<-a.queue // makes room for another
		}
		return r, true, false
	case <-ctx.Done():
		return r, false, false
	case <-timedOut:
		a.late = true
		return r, false, true
	}
}

// close stops the workers, waits for them, and closes what they had prepared. It returns how reading ended. Those that hang
// when the time is over are left behind.
func (a *ahead[B]) close() (reader ended) {
	a.stop()
	if a.timeout == 0 {
		a.running.Wait()
		a.drop()
		return a.reader
	}
	done := make(chan struct{})
	go func() {
		a.running.Wait()
		a.drop()
		close(done)
	}()
	wait := a.timeout
	if a.late { // it was waited for already
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
		return a.reader
	case <-timer.C:
		return reader
	}
}

// drop closes the batches that nobody took.
func (a *ahead[B]) drop() {
	drop := func(p place[B]) {
		select {
		case r := <-p.result:
			if r.n > 0 {
				a.source.discard(r.batch)
			}
		default: // no worker had taken it
		}
	}
	if a.held != nil {
		drop(*a.held)
	}
	for p := range a.queue {
		drop(p)
	}
	if a.ready != nil {
		for p := range a.ready {
			drop(p)
		}
	}
}

// initialized calls what a worker begins with.
func initialized(init func(int) error, worker int) error {
	_, err := guarded(func() (none struct{}, err error) { return none, init(worker) })
	if err != nil {
		return fmt.Errorf("data.Loader: WorkerInit of worker %d: %w", worker, err)
	}
	return nil
}

// work is prepare in a worker. The end of the goroutine, as by t.Fatal, would leave whoever takes the batch waiting: he
// does the same instead. failed is an error that the worker has begun with.
func (a *ahead[B]) work(ctx context.Context, e *epoch, p place[B], failed error) {
	r := result[B]{ended: true}
	defer func() { a.give(p, r) }()
	if failed != nil {
		r = result[B]{job: p.job, err: failed}
		return
	}
	r = prepared(ctx, a.source, e, p.job)
}

// give puts a result where whoever takes batches finds it.
func (a *ahead[B]) give(p place[B], r result[B]) {
	p.result <- r
	if a.ready != nil {
		a.ready <- p
	}
}
