package data_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
)

// drawn is a sample that shows what it was drawn with.
type drawnNumber struct{ place, random int }

type drawnBatch []drawnNumber

func joinDrawn(samples []drawnNumber) (drawnBatch, error) { return slices.Clone(samples), nil }

// withRandom adds a random number to each sample.
func withRandom(s number, rng *rand.Rand) (drawnNumber, error) {
	return drawnNumber{s.values[0], rng.IntN(1 << 30)}, nil
}

// count is an iterable of numbers that counts what is read.
type count struct {
	n    int
	read *int
}

func (c count) All() iter.Seq2[number, error] {
	return func(yield func(number, error) bool) {
		for i := range c.n {
			*c.read++
			if !yield(number{values: []int{i}}, nil) {
				return
			}
		}
	}
}

// sizedCount is a count that tells its length.
type sizedCount struct{ count }

func (c sizedCount) Len() int { return c.n }

// seekable is a count that can begin anywhere.
type seekable struct{ count }

func (c seekable) From(start data.Start) iter.Seq2[number, error] {
	return func(yield func(number, error) bool) {
		for i := start.Skip; i < c.n; i++ {
			*c.read++
			if !yield(number{values: []int{i}}, nil) {
				return
			}
		}
	}
}

// ownSampler is a sampler of somebody else's, which draws from the default generator.
type ownSampler int

func (s ownSampler) Len() int { return int(s) }

func (s ownSampler) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for range int(s) {
			t := gotorch.Randint(int64(s), []int64{1})
			i := gotorch.ToSlice[int](t)[0]
			t.Close()
			if !yield(i) {
				return
			}
		}
	}
}

// loaders are ways of making a loader, each time the same one.
var loaders = map[string]func(o data.LoaderOptions) *data.Loader[drawnBatch]{
	"sequential": func(o data.LoaderOptions) *data.Loader[drawnBatch] { return overNumbers(o) },
	"shuffled": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.Shuffle = true
		return overNumbers(o)
	},
	"seeded": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.Shuffle, o.Seed = true, 7
		return overNumbers(o)
	},
	"drop last": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.Shuffle, o.Generator, o.DropLast = true, gotorch.NewGenerator(gotorch.CPU).ManualSeed(3), true
		return overNumbers(o)
	},
	"random sampler": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.Sampler = data.RandomSampler(&numbers{n: 43}, data.RandomSamplerOptions{Replacement: true, NumSamples: 70})
		return overNumbers(o)
	},
	"sampler with a generator": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.Sampler = data.WeightedRandomSampler(make43(), 60, data.WeightedRandomSamplerOptions{Generator: gotorch.NewGenerator(gotorch.CPU).ManualSeed(5)})
		o.Seed = 4
		return overNumbers(o)
	},
	"weighted sampler": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.Sampler = data.WeightedRandomSampler(make43(), 60)
		return overNumbers(o)
	},
	"a user's sampler": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.Sampler = ownSampler(43)
		o.Seed = 1
		return overNumbers(o)
	},
	"batch sampler": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.BatchSampler = data.BatchSampler(data.SubsetRandomSampler([]int{5, 3, 8, 11, 20, 1, 9, 40}), 3, false)
		o.BatchSize = nil
		return overNumbers(o)
	},
	"batch sampler with a generator": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		generator := gotorch.NewGenerator(gotorch.CPU).ManualSeed(6)
		o.BatchSampler = data.BatchSampler(data.RandomSampler(&numbers{n: 9}, data.RandomSamplerOptions{Generator: generator}), 2, false)
		o.BatchSize = nil
		return overNumbers(o)
	},
	"iterable": func(o data.LoaderOptions) *data.Loader[drawnBatch] { return overIterable(count{43, new(int)}, o) },
	"seekable": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.Seed = 2
		return overIterable(seekable{count{43, new(int)}}, o)
	},
	"shuffle buffer": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		return overIterable(data.Shuffle[number](seekable{count{43, new(int)}}, 9), o)
	},
	"shuffle of all": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		o.DropLast = true
		return overIterable(data.Shuffle[number](count{43, new(int)}, 1000), o)
	},
	"interleaved": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		var parts []data.Iterable[number]
		for i := range 5 {
			parts = append(parts, count{i * 4, new(int)})
		}
		return overIterable(data.Shuffle(data.Interleave(3, parts), 6), o)
	},
	"chained": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		return overIterable(data.Chain[number](count{11, new(int)}, data.Shuffle[number](count{20, new(int)}, 4), count{0, new(int)}, seekable{count{9, new(int)}}), o)
	},
	"chained, of known lengths": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
		return overIterable(data.Chain[number](sizedCount{count{8, new(int)}}, count{5, new(int)}, sizedCount{count{0, new(int)}}, sizedCount{count{13, new(int)}}), o)
	},
}

func make43() []float64 {
	weights := make([]float64, 43)
	for i := range weights {
		weights[i] = float64(i % 5)
	}
	return weights
}

func overNumbers(o data.LoaderOptions) *data.Loader[drawnBatch] {
	return data.NewLoaderWith(data.Transform[number](&numbers{n: 43}, withRandom), joinDrawn, o)
}

func overIterable(set data.Iterable[number], o data.LoaderOptions) *data.Loader[drawnBatch] {
	return data.NewIterableLoaderWith(data.TransformIterable(set, withRandom), joinDrawn, o)
}

func epochOf(t *testing.T, l *data.Loader[drawnBatch]) (batches []string) {
	t.Helper()
	for batch, err := range l.All() {
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, fmt.Sprint(batch))
	}
	return batches
}

func TestTheOrderDoesNotDependOnTheWorkers(t *testing.T) {
	for name, make := range loaders {
		var want [][]string
		for _, o := range []data.LoaderOptions{{}, {Workers: 1, Prefetch: 0}, {Workers: 2}, {Workers: 5, Prefetch: 3}} {
			gotorch.ManualSeed(11)
			o.BatchSize = 4
			l := make(o)
			var got [][]string
			for range 3 {
				got = append(got, epochOf(t, l))
			}
			if want == nil {
				want = got
			}
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s, %d workers: got %v, want %v", name, o.Workers, got, want)
			}
		}
		if name != "sequential" && slices.Equal(want[0], want[1]) {
			t.Errorf("%s: two epochs are the same: %v", name, want[0])
		}
	}
}

// A state goes through a file, to a loader with another number of workers, and on from there once more. Random numbers of
// the default generator go on as those of a run do.
func TestALoaderGoesOnFromEachBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.pt")
	for name, make := range loaders {
		gotorch.ManualSeed(11)
		l := make(data.LoaderOptions{BatchSize: 4})
		first := epochOf(t, l)
		random := gotorch.DefaultGenerator(gotorch.CPU).State()
		rest := slices.Concat(epochOf(t, l), epochOf(t, l))
		for stop := range len(first) + 1 {
			for _, workers := range []int{0, 3} {
				gotorch.ManualSeed(11)
				l := make(data.LoaderOptions{BatchSize: 4, Workers: workers})
				taken := 0
				for range l.All() {
					if taken++; taken >= stop {
						break
					}
				}
				if stop == 0 { // before the first
					gotorch.ManualSeed(11)
					l = make(data.LoaderOptions{BatchSize: 4, Workers: workers})
				}
				testhelp.Must(t, gotorch.Save(file, l.StateDict()))
				defaultNow := gotorch.DefaultGenerator(gotorch.CPU).State()
				gotorch.ManualSeed(99)
				loaded, err := gotorch.Load(file)
				testhelp.Must(t, err)
				again := make(data.LoaderOptions{BatchSize: 4, Workers: 3 - workers})
				testhelp.Must(t, again.LoadStateDict(loaded.(gotorch.Dict)))
				if stop%2 == 1 { // a state of a loader that has just got one
					testhelp.Must(t, again.LoadStateDict(again.StateDict()))
				}
				gotorch.DefaultGenerator(gotorch.CPU).SetState(defaultNow)
				if got := epochOf(t, again); !slices.Equal(got, first[stop:]) {
					t.Fatalf("%s, %d workers, after %d: got %v, want %v", name, workers, stop, got, first[stop:])
				}
				if now := gotorch.DefaultGenerator(gotorch.CPU).State(); !gotorch.Equal(now, random) {
					t.Fatalf("%s, %d workers, after %d: the default generator is elsewhere", name, workers, stop)
				}
				if got := slices.Concat(epochOf(t, again), epochOf(t, again)); !slices.Equal(got, rest) {
					t.Fatalf("%s, %d workers, after %d: later epochs are %v, want %v", name, workers, stop, got, rest)
				}
			}
		}
	}
}

func TestWhatWasTakenIsNotReadAgain(t *testing.T) {
	set := &numbers{n: 100}
	l := data.NewLoader[number](set, data.LoaderOptions{BatchSize: 10, Shuffle: true})
	for batch := range l.All() {
		batch.Close()
		if set.asked.Load() == 60 {
			break
		}
	}
	set.asked.Store(0)
	again := data.NewLoader[number](set, data.LoaderOptions{BatchSize: 10, Shuffle: true, Workers: 2})
	testhelp.Must(t, again.LoadStateDict(l.StateDict()))
	if n := len(walk(t, again)); n != 4 || set.asked.Load() != 40 {
		t.Errorf("%d batches of %d samples", n, set.asked.Load())
	}

	read := 0
	stream := func() *data.Loader[drawnBatch] {
		return overIterable(seekable{count{1000, &read}}, data.LoaderOptions{BatchSize: 10})
	}
	before := stream()
	n := 0
	for range before.All() {
		if n++; n == 90 {
			break
		}
	}
	read = 0
	after := stream()
	testhelp.Must(t, after.LoadStateDict(before.StateDict()))
	if got := len(epochOf(t, after)); got != 10 || read != 100 {
		t.Errorf("%d batches, and %d samples were read", got, read)
	}

	// Of a shuffle buffer the samples since the oldest one that was in it are read again: some hundreds, not all 20,000.
	shuffled := func() *data.Loader[drawnBatch] {
		return overIterable(data.Shuffle[number](seekable{count{20_000, &read}}, 50), data.LoaderOptions{BatchSize: 100, Seed: 1})
	}
	before, n = shuffled(), 0
	for range before.All() {
		if n++; n == 190 {
			break
		}
	}
	read = 0
	after = shuffled()
	testhelp.Must(t, after.LoadStateDict(before.StateDict()))
	if got := len(epochOf(t, after)); got != 10 || read > 2000 {
		t.Errorf("%d batches, and %d samples were read", got, read)
	}
}

func TestAStateOfAnotherLoaderIsRefused(t *testing.T) {
	options := data.LoaderOptions{BatchSize: 5, Shuffle: true, Seed: 3}
	l := data.NewLoader[number](&numbers{n: 30}, options)
	for batch := range l.All() {
		batch.Close()
		break
	}
	state := l.StateDict()
	with := func(key string, value any) gotorch.Dict {
		changed := slices.Clone(state)
		for i := range changed {
			if changed[i].Key == key {
				changed[i].Value = value
			}
		}
		return changed
	}
	for name, dict := range map[string]gotorch.Dict{
		"nothing": nil, "version": with("version", 1), "epoch": with("epoch", -1), "length": with("length", 31), "order": with("order", "sequential"),
		"batch size": with("batch_size", 4), "a float": with("batch_size", 5.0), "begun": with("begun", nil),
		"batches": with("batches", -1), "a word": with("batches", "three"), "failed": with("failed", nil),
		"no tensor": with("generator", 7), "a short state": with("generator", gotorch.Zeros([]int64{3}, gotorch.TensorOptions{DType: gotorch.Uint8})),
		"floats": with("generator", gotorch.Zeros([]int64{5056})), "no default": with("random", nil), "an empty tensor": with("random", gotorch.Tensor{}),
	} {
		fresh := data.NewLoader[number](&numbers{n: 30}, options)
		before := fmt.Sprint(fresh.StateDict())
		if err := fresh.LoadStateDict(dict); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: got %v", name, err)
		}
		if after := fmt.Sprint(fresh.StateDict()); after != before {
			t.Errorf("%s: the loader has changed: %v", name, after)
		}
	}
	for name, o := range map[string]data.LoaderOptions{
		"not seeded": {BatchSize: 5, Shuffle: true}, "no shuffle": {BatchSize: 5, Seed: 3}, "drops": {BatchSize: 5, Shuffle: true, Seed: 3, DropLast: true},
		"a sampler": {BatchSize: 5, Seed: 3, Sampler: data.RandomSampler(&numbers{n: 30})},
	} {
		if err := data.NewLoader[number](&numbers{n: 30}, o).LoadStateDict(state); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// A state further on than the set goes ends the epoch.
	far := data.NewLoader[number](&numbers{n: 30}, options)
	testhelp.Must(t, far.LoadStateDict(with("batches", 1<<60)))
	if got := walk(t, far); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestAStateBeyondTheEndOfAStreamEndsTheEpoch(t *testing.T) {
	for name, make := range loaders {
		l := make(data.LoaderOptions{BatchSize: 4})
		for range l.All() {
			break
		}
		state := l.StateDict()
		for i := range state {
			if state[i].Key == "samples" || state[i].Key == "batches" {
				state[i].Value = int64(1) << 60
			}
		}
		again := make(data.LoaderOptions{BatchSize: 4})
		testhelp.Must(t, again.LoadStateDict(state))
		if got := epochOf(t, again); len(got) != 0 {
			t.Errorf("%s: got %v", name, got)
		}
		if got := epochOf(t, again); len(got) == 0 {
			t.Errorf("%s: the next epoch is empty", name)
		}
	}
}

func TestSkippedSamplesCountInAState(t *testing.T) {
	make := func() *data.Loader[drawnBatch] {
		fails := data.Transform[number](&numbers{n: 40}, func(s number, rng *rand.Rand) (drawnNumber, error) {
			if s.values[0]%10 == 3 {
				return drawnNumber{}, errBroken
			}
			return withRandom(s, rng)
		})
		return data.NewLoaderWith(fails, joinDrawn, data.LoaderOptions{BatchSize: 4, Seed: 1, MaxErrors: 4})
	}
	l := make()
	want := epochOf(t, l)
	if l.Skipped() != 4 {
		t.Errorf("%d were left out", l.Skipped())
	}
	half := make()
	n := 0
	for range half.All() {
		if n++; n == 5 {
			break
		}
	}
	rest := make()
	testhelp.Must(t, rest.LoadStateDict(half.StateDict()))
	if rest.Skipped() != 2 {
		t.Errorf("%d were left out before", rest.Skipped())
	}
	if got := epochOf(t, rest); !slices.Equal(got, want[5:]) || rest.Skipped() != 4 {
		t.Errorf("got %v, want %v", got, want[5:])
	}
}

func TestACanceledLoopEndsWithItsContext(t *testing.T) {
	cause := errors.New("the user has enough")
	for _, workers := range []int{0, 1, 3} {
		before, openBefore := runtime.NumGoroutine(), open.Load()
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		l := data.NewLoader[number](&numbers{n: 1000}, data.LoaderOptions{BatchSize: 5, Workers: workers})
		n, errs := 0, []error(nil)
		for batch, err := range l.AllContext(ctx) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			batch.Close()
			if n++; n == 7 {
				cancel(cause)
			}
		}
		if n != 7 || len(errs) != 1 || !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[0], cause) {
			t.Errorf("%d workers: %d batches, %v", workers, n, errs)
		}
		testhelp.NoMoreGoroutines(t, before)
		if left := open.Load() - openBefore; left != 0 {
			t.Errorf("%d workers: %d batches are not closed", workers, left)
		}
		// What was not taken is taken next.
		rest := data.NewLoader[number](&numbers{n: 1000}, data.LoaderOptions{BatchSize: 5})
		testhelp.Must(t, rest.LoadStateDict(l.StateDict()))
		if got := walk(t, rest); len(got) != 193 || got[0][0] != 35 {
			t.Errorf("%d workers: %d batches are left", workers, len(got))
		}
		for _, err := range l.AllContext(ctx) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled loop begins: %v", err)
			}
		}
	}
}

// slow is a data set that waits until it is interrupted.
type slow struct{ waiting chan struct{} }

func (slow) Len() int               { return 10 }
func (slow) At(int) (number, error) { return number{}, errors.New("asked without a context") }
func (s slow) AtContext(ctx context.Context, i int) (number, error) {
	if i < 3 {
		return number{values: []int{i}}, nil
	}
	s.waiting <- struct{}{}
	<-ctx.Done()
	return number{}, ctx.Err()
}

func TestADataSetHearsThatTheLoopIsCanceledOrLeft(t *testing.T) {
	for _, workers := range []int{0, 2} {
		for _, leave := range []bool{false, true} {
			if leave && workers == 0 {
				continue // nobody could leave
			}
			before := runtime.NumGoroutine()
			ctx, cancel := context.WithCancel(t.Context())
			set, taken := slow{make(chan struct{}, 10)}, make(chan struct{})
			if !leave {
				go func() { <-taken; <-set.waiting; cancel() }()
			}
			n := 0
			var got error
			for batch, err := range data.NewLoader(data.Subset[number](set, []int{0, 1, 2, 3, 4}), data.LoaderOptions{Workers: workers}).AllContext(ctx) {
				if got = err; err != nil {
					continue
				}
				batch.Close()
				if n++; n < 3 {
					continue
				}
				close(taken)
				if leave {
					<-set.waiting
					break
				}
			}
			if n != 3 || !leave && !errors.Is(got, context.Canceled) {
				t.Errorf("%d workers, leave %v: %d batches, %v", workers, leave, n, got)
			}
			testhelp.NoMoreGoroutines(t, before+1)
			cancel()
			testhelp.NoMoreGoroutines(t, before)
		}
	}
}

// fickle is a sampler that may fail.
type fickle struct {
	n    int
	fail bool
}

func (s *fickle) Len() int { return s.n }

func (s *fickle) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		if s.fail {
			panic(errBroken)
		}
		for i := range s.n {
			if !yield(i) {
				return
			}
		}
	}
}

// The place to go on from is not forgotten where an epoch cannot be begun.
func TestAnEpochThatCannotBeginIsBegunAgainAtItsPlace(t *testing.T) {
	sampler := &fickle{n: 6}
	l := overNumbers(data.LoaderOptions{Sampler: sampler, BatchSize: 2, Seed: 3})
	want := epochOf(t, l)[1:]
	l = overNumbers(data.LoaderOptions{Sampler: sampler, BatchSize: 2, Seed: 3})
	for range l.All() {
		break
	}
	again := overNumbers(data.LoaderOptions{Sampler: sampler, BatchSize: 2, Seed: 4})
	testhelp.Must(t, again.LoadStateDict(l.StateDict()))
	sampler.fail = true
	for _, err := range again.All() {
		if !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
	}
	sampler.fail = false
	if got := epochOf(t, again); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// counted counts the goroutines while its samples are made.
type counted struct {
	numbers
	most *atomic.Int64
}

func (d *counted) At(i int) (number, error) {
	d.most.Store(max(d.most.Load(), int64(runtime.NumGoroutine())))
	return d.numbers.At(i)
}

func TestThereAreNoMoreWorkersThanBatchesAreLeft(t *testing.T) {
	set := &counted{numbers{n: 20}, new(atomic.Int64)}
	first := data.NewLoader[number](set, data.LoaderOptions{BatchSize: 2})
	n := 0
	for _, err := range first.All() {
		testhelp.Must(t, err)
		if n++; n == 9 {
			break
		}
	}
	second := data.NewLoader[number](set, data.LoaderOptions{BatchSize: 2, Workers: 16})
	testhelp.Must(t, second.LoadStateDict(first.StateDict()))
	before := int64(runtime.NumGoroutine())
	set.most.Store(0)
	if got := walk(t, second); len(got) != 1 {
		t.Fatalf("got %v", got)
	}
	if more := set.most.Load() - before; more > 2 { // the one that says what is to be done, and a worker
		t.Errorf("%d goroutines were started for one batch", more)
	}
}

// The rest of an epoch that two processes have begun is that of three, with workers and without; what cannot be shared out is
// refused, and nothing changes.
func TestTheRestOfAnEpochIsThatOfOthers(t *testing.T) {
	set := &numbers{n: 41}
	indices := func(samples []number) (of []int, err error) {
		for _, s := range samples {
			of = append(of, s.values[0])
		}
		return of, nil
	}
	loader := func(size, rank int, o data.LoaderOptions) *data.Loader[[]int] {
		o.Sampler = data.DistributedSampler(set, size, rank, data.DistributedSamplerOptions{Seed: 3})
		return data.NewLoaderWith(set, indices, o)
	}
	taken := func(l *data.Loader[[]int], n int) (of []int) {
		next, stop := l.Pull()
		defer stop()
		for range n {
			batch, err, ok := next()
			if err != nil || !ok {
				t.Fatal(err)
			}
			of = append(of, batch...)
		}
		return of
	}
	var states []gotorch.Dict
	var before []int
	for rank := range 2 {
		l := loader(2, rank, data.LoaderOptions{BatchSize: 4, Seed: 5})
		l.SetEpoch(7)
		before = append(before, taken(l, 2)...)
		states = append(states, l.StateDict())
	}
	for _, workers := range []int{0, 2} {
		all := slices.Clone(before)
		for rank := range 3 {
			l := loader(3, rank, data.LoaderOptions{BatchSize: 3, Workers: workers, Seed: 5})
			for range 2 { // as often as one likes
				if err := l.LoadRanks(states); err != nil {
					t.Fatal(err)
				}
			}
			if l.Len() != 3 { // of 25 samples, 9 for each
				t.Error(l.Len())
			}
			l.SetEpoch(7)
			mine := taken(l, 1)
			// A job of the same size goes on from there as always.
			again := loader(3, rank, data.LoaderOptions{BatchSize: 3, Workers: workers, Seed: 5})
			if err := again.LoadStateDict(l.StateDict()); err != nil {
				t.Fatal(err)
			}
			again.SetEpoch(7)
			mine = append(mine, taken(again, 2)...)
			if len(mine) != 9 {
				t.Error(mine)
			}
			if again.Len() != 5 { // the next epoch is a whole one
				t.Error(again.Len())
			}
			all = append(all, mine...)
		}
		slices.Sort(all)
		if len(all) != 43 || len(slices.Compact(all)) != 41 { // two fill the last round up
			t.Error(all)
		}
	}

	for what, c := range map[string]struct {
		of     *data.Loader[[]int]
		states []gotorch.Dict
	}{
		"no states":            {loader(3, 0, data.LoaderOptions{Seed: 5}), nil},
		"no state":             {loader(3, 0, data.LoaderOptions{Seed: 5}), []gotorch.Dict{nil}},
		"another order":        {data.NewLoaderWith(set, indices, data.LoaderOptions{Shuffle: true}), states},
		"of another order":     {loader(3, 0, data.LoaderOptions{Seed: 5}), []gotorch.Dict{data.NewLoaderWith(set, indices).StateDict()}},
		"another length":       {data.NewLoaderWith(&numbers{n: 3}, indices, data.LoaderOptions{Sampler: data.DistributedSampler(&numbers{n: 3}, 2, 0)}), states},
		"another place":        {loader(3, 0, data.LoaderOptions{Seed: 5}), []gotorch.Dict{states[0], loader(2, 1, data.LoaderOptions{BatchSize: 4, Seed: 5}).StateDict()}},
		"another generator":    {loader(3, 0, data.LoaderOptions{}), states},
		"what is no batch":     {loader(3, 0, data.LoaderOptions{Seed: 5}), []gotorch.Dict{changed(states[0], "batches", -1)}},
		"more than there is":   {loader(3, 0, data.LoaderOptions{Seed: 5}), []gotorch.Dict{changed(states[0], "batches", 1<<60)}},
		"samples that failed":  {loader(3, 0, data.LoaderOptions{Seed: 5}), []gotorch.Dict{changed(states[0], "failed", 1)}},
		"no epoch":             {loader(3, 0, data.LoaderOptions{Seed: 5}), []gotorch.Dict{changed(states[0], "sampler", gotorch.Dict{})}},
		"a negative beginning": {loader(3, 0, data.LoaderOptions{Seed: 5}), []gotorch.Dict{changed(states[0], "sampler", gotorch.Dict{{Key: "epoch", Value: 1}, {Key: "dealt", Value: -1}})}},
	} {
		n := c.of.Len()
		if err := c.of.LoadRanks(c.states); !errors.Is(err, gotorch.ValueError) || c.of.Len() != n {
			t.Errorf("%s: %v, %d", what, err, c.of.Len())
		}
	}
}

func changed(dict gotorch.Dict, key string, value any) gotorch.Dict {
	dict = slices.Clone(dict)
	for i := range dict {
		if dict[i].Key == key {
			dict[i].Value = value
		}
	}
	return dict
}
