package data_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
)

// files is a data set with names, some samples of which fail.
type files struct {
	numbers
	fails func(i int) error
}

func (f *files) Name(i int) string { return fmt.Sprintf("cats/%d.jpg", i) }

func (f *files) At(i int) (number, error) {
	if err := f.fails(i); err != nil {
		return number{}, err
	}
	return f.numbers.At(i)
}

func TestAnErrorTellsTheSampleAndItsFile(t *testing.T) {
	set := &files{numbers{n: 50}, func(i int) error {
		if i == 37 {
			return errBroken
		}
		return nil
	}}
	ofSets := data.Concat(data.Subset[number](set, []int{1, 2, 3}), data.Subset[number](set, []int{37, 4}))
	for _, workers := range []int{0, 2} {
		var got error
		for _, err := range data.NewLoader(ofSets, data.LoaderOptions{BatchSize: 2, Workers: workers}).All() {
			got = err
		}
		sample, is := errors.AsType[*data.SampleError](got)
		if !is || sample.Index != 3 || sample.Batch != 1 || sample.Name != "cats/37.jpg" || !errors.Is(got, errBroken) {
			t.Errorf("got %v", got)
		}
		if want := "data: sample 3 (cats/37.jpg), in batch 1: the disk is broken"; fmt.Sprint(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSamplesThatFailAreLeftOutUpToABound(t *testing.T) {
	third := func(i int) error {
		switch {
		case i%9 == 3:
			panic("no picture")
		case i%3 == 0:
			return errBroken
		}
		return nil
	}
	for _, workers := range []int{0, 3} {
		var heard []int
		o := data.LoaderOptions{BatchSize: 3, Workers: workers, MaxErrors: -1, OnError: func(e *data.SampleError) { heard = append(heard, e.Index) }}
		l := data.NewLoader[number](&files{numbers{n: 12}, third}, o)
		want := [][]int{{1, 2}, {4, 5}, {7, 8}, {10, 11}}
		for range 2 { // what is left out is counted for each epoch
			heard = nil
			if got := walk(t, l); !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%d workers: got %v", workers, got)
			}
			if !slices.Equal(heard, []int{0, 3, 6, 9}) || l.Skipped() != 4 {
				t.Errorf("%d workers: heard of %v, skipped %d", workers, heard, l.Skipped())
			}
		}
		o.MaxErrors = 2
		before, openBefore := runtime.NumGoroutine(), open.Load()
		var got [][]int
		var last error
		for batch, err := range data.NewLoader[number](&files{numbers{n: 12}, third}, o).All() {
			if last = err; err == nil {
				got = append(got, batch.values)
				batch.Close()
			}
		}
		sample, is := errors.AsType[*data.SampleError](last)
		if len(got) != 2 || !is || sample.Index != 6 || !strings.Contains(last.Error(), "MaxErrors is 2") {
			t.Errorf("%d workers: got %v, %v", workers, got, last)
		}
		testhelp.NoMoreGoroutines(t, before)
		if n := open.Load() - openBefore; n != 0 {
			t.Errorf("%d batches are not closed", n)
		}
		// Where nothing of a batch is left, there is no batch.
		o.MaxErrors = -1
		o.BatchSize = 1
		if got := walk(t, data.NewLoader[number](&files{numbers{n: 4}, third}, o)); !slices.EqualFunc(got, [][]int{{1}, {2}}, slices.Equal) {
			t.Errorf("got %v", got)
		}
		// A batch that cannot be joined is as many samples as were to be.
		o.BatchSize, o.MaxErrors = 3, 4
		refuses := data.NewLoaderWith[number](&files{numbers{n: 12}, third}, func(samples []number) (int, error) {
			if samples[0].values[0] == 4 {
				return 0, errBroken
			}
			return len(samples), nil
		}, o)
		var left []int
		for n, err := range refuses.All() {
			if left, last = append(left, n), err; err != nil {
				break
			}
		}
		if !slices.Equal(left, []int{2, 0}) || !strings.Contains(fmt.Sprint(last), "sample 6 (cats/6.jpg), in batch 2: the disk is broken (4 others") || refuses.Skipped() != 4 {
			t.Errorf("%d workers: got batches of %d, %d left out, %v", workers, left, refuses.Skipped(), last)
		}
	}
}

// wholesale is a Batcher one of whose samples fails.
type wholesale struct{ *data.TensorDataset }

func (w wholesale) At(i int) (data.Pair, error) {
	if i == 5 {
		return data.Pair{}, errBroken
	}
	return w.TensorDataset.At(i)
}

func (w wholesale) Batch(indices []int, rng *rand.Rand) (data.Pair, error) {
	if slices.Contains(indices, 5) {
		return data.Pair{}, errBroken
	}
	return w.TensorDataset.Batch(indices, rng)
}

func TestOfABatcherTheSampleThatFailsIsFoundOneByOne(t *testing.T) {
	var sizes []int
	for batch, err := range data.NewLoader[data.Pair](wholesale{pairs(10)}, data.LoaderOptions{BatchSize: 4, MaxErrors: 1}).All() {
		testhelp.Must(t, err)
		sizes = append(sizes, batch.Len())
	}
	if !slices.Equal(sizes, []int{4, 3, 2}) {
		t.Errorf("got %v", sizes)
	}
	for _, err := range data.NewLoader[data.Pair](wholesale{pairs(10)}, data.LoaderOptions{BatchSize: 4}).All() {
		if sample, is := errors.AsType[*data.SampleError](err); err != nil && (!is || sample.Index != -1 || !slices.Equal(sample.Indices, []int{4, 5, 6, 7})) {
			t.Errorf("got %v", err)
		}
	}
}

func TestASamplerThatIsWrongIsAnError(t *testing.T) {
	set := &numbers{n: 5}
	for _, workers := range []int{0, 2} {
		for name, c := range map[string]struct {
			o    data.LoaderOptions
			kind gotorch.ErrorKind
		}{
			"beyond":    {data.LoaderOptions{Sampler: data.SubsetRandomSampler([]int{5})}, gotorch.IndexError},
			"negative":  {data.LoaderOptions{Sampler: data.SubsetRandomSampler([]int{-1})}, gotorch.IndexError},
			"no weight": {data.LoaderOptions{Sampler: data.WeightedRandomSampler([]float64{0, 0}, 2)}, gotorch.RuntimeError},
			"endless":   {data.LoaderOptions{Sampler: endless{}}, gotorch.ValueError},
		} {
			c.o.Workers = workers
			var got error
			for _, err := range data.NewLoader[number](set, c.o).All() {
				got = err
			}
			if !errors.Is(got, c.kind) {
				t.Errorf("%s: got %v", name, got)
			}
		}
	}
	stream := data.IterableOf(count{3, new(int)}.All())
	for name, fn := range map[string]func(){
		"two orders": func() {
			data.NewLoader[number](set, data.LoaderOptions{Shuffle: true, Sampler: data.SequentialSampler(set)})
		},
		"two batchings": func() {
			data.NewLoader[number](set, data.LoaderOptions{BatchSize: 2, BatchSampler: data.BatchSampler(data.SequentialSampler(set), 2, false)})
		},
		"two seeds": func() {
			data.NewLoader[number](set, data.LoaderOptions{Seed: 1, Generator: gotorch.NewGenerator(gotorch.CPU)})
		},
		"no batching": func() { data.NewLoader[number](set, data.LoaderOptions{NoBatching: true, BatchSize: 2}) },
		"max errors":  func() { data.NewLoader[number](set, data.LoaderOptions{MaxErrors: -2}) },
		"a stream":    func() { data.NewIterableLoader(stream, data.LoaderOptions{Shuffle: true}) },
		"no buffer":   func() { data.Shuffle(stream, 0) },
		"no lanes":    func() { data.Interleave(0, []data.Iterable[number]{stream}) },
		"no samples":  func() { data.RandomSampler(set, data.RandomSamplerOptions{NumSamples: 0}) },
		"no sets":     func() { data.Concat[number]() },
		"lengths":     func() { data.Stack[number](set, &numbers{n: 4}) },
		"lengths of two": func() {
			data.Zip[number, number, number](set, &numbers{n: 4}, func(a, _ number) (number, error) { return a, nil })
		},
		"NaN": func() { data.RandomSplit[number](set, []float64{nan(), 1}) },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

type endless struct{}

func (endless) Len() int { return 7 }
func (endless) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for yield(1) {
		}
	}
}

// alive counts the samples that are between At and the end of their batch.
type alive struct {
	n         int
	now, most atomic.Int64
}

func (d *alive) Len() int { return d.n }

func (d *alive) At(i int) (int, error) {
	now := d.now.Add(1)
	for most := d.most.Load(); now > most && !d.most.CompareAndSwap(most, now); most = d.most.Load() {
	}
	return i, nil
}

func TestNoMoreIsInMemoryThanIsSaid(t *testing.T) {
	const batch = 4
	for _, workers := range []int{1, 3} {
		for _, prefetch := range []int{0, 1, 5} {
			set := &alive{n: 400}
			o := data.LoaderOptions{BatchSize: batch, Workers: workers, Prefetch: prefetch}
			join := func(samples []int) (int, error) { return len(samples), nil }
			bound := int64((max(workers*prefetch, 1) + 1) * batch)
			slowly := func(l *data.Loader[int], more int64) {
				t.Helper()
				taken := 0
				for n, err := range l.All() {
					testhelp.Must(t, err)
					if taken++; taken < 6 {
						time.Sleep(3 * time.Millisecond) // the workers go as far as they can
					}
					set.now.Add(int64(-n))
				}
				if most := set.most.Load(); taken != 100 || most > bound+more {
					t.Errorf("%d workers, %d ahead: %d samples at a time, of %d batches; %d are said", workers, prefetch, most, taken, bound+more)
				}
			}
			slowly(data.NewLoaderWith(set, join, o), 0)
			set.now.Store(0)
			set.most.Store(0)
			stream := data.IterableOf(func(yield func(int, error) bool) {
				for i := range set.n {
					if !yield(set.At(i)) {
						return
					}
				}
			})
			slowly(data.NewIterableLoaderWith(stream, join, o), 2*batch)
		}
	}
}

func TestInterleavedSetsAreReadBoundedAndInTurn(t *testing.T) {
	before := runtime.NumGoroutine()
	var read atomic.Int64
	part := func(first, n int) data.Iterable[int] {
		return data.IterableOf(func(yield func(int, error) bool) {
			for i := range n {
				read.Add(1)
				if !yield(first+i, nil) {
					return
				}
			}
		})
	}
	var got []int
	for i := range data.Interleave(2, []data.Iterable[int]{part(0, 3), part(10, 1), part(20, 2), part(30, 4)}).All() {
		got = append(got, i)
	}
	// The lane of 10 goes on with 20, and the first that is free then with 30.
	if want := []int{0, 10, 1, 20, 2, 21, 30, 31, 32, 33}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	testhelp.NoMoreGoroutines(t, before)
	read.Store(0)
	for range data.Interleave(1, []data.Iterable[int]{part(0, 1000)}, data.InterleaveOptions{Buffer: 3}).All() {
		time.Sleep(5 * time.Millisecond)
		break
	}
	testhelp.NoMoreGoroutines(t, before)
	if n := read.Load(); n > 5 { // the one that was taken, three, and one that waits for room
		t.Errorf("%d samples were read", n)
	}
	got = nil
	for i := range data.Interleave(3, []data.Iterable[int]{part(0, 1), part(10, 3), part(20, 3)}).All() {
		got = append(got, i)
	}
	if want := []int{0, 10, 20, 11, 21, 12, 22}; !slices.Equal(got, want) {
		t.Errorf("of three, one of which is short: got %v, want %v", got, want)
	}
	for _, panics := range []bool{true, false} {
		broken := data.IterableOf(func(yield func(int, error) bool) {
			yield(1, nil)
			if panics {
				panic(errBroken)
			}
			yield(0, errBroken)
		})
		var last error
		for _, err := range data.NewIterableLoader(data.Interleave(2, []data.Iterable[int]{part(0, 5), broken}), data.LoaderOptions{NoBatching: true}).All() {
			last = err
		}
		if sample, is := errors.AsType[*data.SampleError](last); !is || !errors.Is(last, errBroken) || sample.Index != 3 {
			t.Errorf("got %v", last)
		}
		testhelp.NoMoreGoroutines(t, before)
	}
}

// A stream goes on after an error, if the loader does.
func TestAStreamGoesOnAfterAnError(t *testing.T) {
	stream := data.IterableOf(func(yield func(number, error) bool) {
		for i := range 7 {
			err := error(nil)
			if i == 2 {
				err = errBroken
			}
			if !yield(number{values: []int{i}}, err) {
				return
			}
		}
		panic("at the end")
	})
	for _, workers := range []int{0, 2} {
		before := runtime.NumGoroutine()
		o := data.LoaderOptions{BatchSize: 3, Workers: workers, MaxErrors: 2}
		l := data.NewIterableLoader(stream, o)
		if got := walk(t, l); !slices.EqualFunc(got, [][]int{{0, 1}, {3, 4, 5}, {6}}, slices.Equal) || l.Skipped() != 2 {
			t.Errorf("%d workers: got %v, %d left out", workers, got, l.Skipped())
		}
		o.MaxErrors = 0
		var errs []error
		for _, err := range data.NewIterableLoader(stream, o).All() {
			errs = append(errs, err)
		}
		if sample, is := errors.AsType[*data.SampleError](errs[0]); len(errs) != 1 || !is || sample.Index != 2 {
			t.Errorf("%d workers: got %v", workers, errs)
		}
		testhelp.NoMoreGoroutines(t, before)
	}
}

func TestAStreamThatEndsItsGoroutineEndsTheLoops(t *testing.T) {
	for _, workers := range []int{0, 2} {
		before := runtime.NumGoroutine()
		stream := data.IterableOf(func(yield func(number, error) bool) {
			for i := range 5 {
				if !yield(number{values: []int{i}}, nil) {
					return
				}
			}
			runtime.Goexit()
		})
		good, wentOn, done := 0, false, make(chan struct{})
		go func() {
			defer close(done)
			for batch := range data.NewIterableLoader(stream, data.LoaderOptions{BatchSize: 2, Workers: workers}).All() {
				batch.Close()
				good++
			}
			wentOn = true
		}()
		<-done
		if good != 2 || wentOn {
			t.Errorf("%d workers: %d batches; the goroutine went on: %v", workers, good, wentOn)
		}
		testhelp.NoMoreGoroutines(t, before)
	}
}

func TestTheLengthOfAStreamIsKnownIfItTellsIt(t *testing.T) {
	c := count{10, new(int)}
	if n := data.NewIterableLoader[number](c, data.LoaderOptions{BatchSize: 3}).Len(); n != -1 {
		t.Errorf("got %d", n)
	}
	set := data.Shuffle(data.Chain[number](sized{c}, sized{c}), 3)
	for _, drop := range []bool{false, true} {
		l := data.NewIterableLoader(set, data.LoaderOptions{BatchSize: 3, DropLast: drop})
		if n := len(walk(t, l)); n != l.Len() || drop && n != 6 || !drop && n != 7 {
			t.Errorf("%d batches, Len %d", n, l.Len())
		}
	}
}

type sized struct{ count }

func (s sized) Len() int { return s.n }

func TestAShuffleBufferGivesEachSampleOnceAndNoneTooEarly(t *testing.T) {
	for _, n := range []int{0, 1, 5, 100} {
		for _, size := range []int{1, 2, 7, 100, 1 << 40} {
			var got []int
			for s := range data.Shuffle[number](count{n, new(int)}, size).All() {
				got = append(got, s.values[0])
			}
			for at, i := range got {
				if i > at+size {
					t.Errorf("n %d, size %d: sample %d comes at %d", n, size, i, at)
				}
			}
			if n == 100 && size > 1 && slices.IsSorted(got) || size == 1 && !slices.IsSorted(got) {
				t.Errorf("n %d, size %d: got %v", n, size, got)
			}
			slices.Sort(got)
			for i := range got {
				if got[i] != i {
					t.Fatalf("n %d, size %d: got %v", n, size, got)
				}
			}
			if len(got) != n {
				t.Errorf("n %d, size %d: %d samples", n, size, len(got))
			}
		}
	}
}

// A shuffle buffer of a length that nobody knows goes on from each place.
func TestAShuffleBufferGoesOnFromAnyPlace(t *testing.T) {
	for _, n := range []int{0, 1, 6, 30} {
		for _, size := range []int{1, 4, 29, 30, 31, 1 << 40} {
			set := data.Shuffle[number](count{n, new(int)}, size).(data.Seekable[number])
			var want []int
			for s := range set.From(data.Start{Seed: 5}) {
				want = append(want, s.values[0])
			}
			for skip := range n + 3 {
				var got []int
				for s := range set.From(data.Start{Seed: 5, Skip: skip}) {
					got = append(got, s.values[0])
				}
				if !slices.Equal(got, want[min(skip, n):]) {
					t.Fatalf("n %d, size %d, from %d: got %v, want %v", n, size, skip, got, want[min(skip, n):])
				}
			}
		}
	}
}

// The rules of Go's own iter.Pull2 are in docs/data.md: it may be made and called inside of one and the same Scope. Calling
// its next with another number of scopes around would end the test program.
func TestPullsWorkInsideOfAScope(t *testing.T) {
	loader := data.NewLoader(pairs(12), data.LoaderOptions{BatchSize: 4, Workers: 1})
	sum := 0
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		next, stop := iter.Pull2(loader.All())
		defer stop()
		for batch, err, ok := next(); ok; batch, err, ok = next() {
			testhelp.Must(t, err)
			sum += gotorch.Item[int](batch.Target.Sum())
			gotorch.Scope0(func(*gotorch.ScopeHandle) { batch.Target.Add(batch.Target) })
		}
	})
	if sum != 66 {
		t.Errorf("the sum is %d", sum)
	}
	// With Pull2 of this package, anywhere.
	before := runtime.NumGoroutine()
	for _, l := range []*data.Loader[data.Pair]{loader, data.NewLoader(pairs(12), data.LoaderOptions{BatchSize: 4})} {
		next, stop := data.Pull2(l.All())
		sum = 0
		take := func() bool {
			batch, err, ok := next()
			testhelp.Must(t, err)
			if ok {
				sum += gotorch.Item[int](batch.Target.Sum())
			}
			return ok
		}
		take()
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			take()
			gotorch.Scope0(func(*gotorch.ScopeHandle) { take() })
		})
		if take() || sum != 66 {
			t.Errorf("the sum is %d", sum)
		}
		stop()
		testhelp.NoMoreGoroutines(t, before)
	}
}

func TestPull2IsAsGosOwn(t *testing.T) {
	before := runtime.NumGoroutine()
	ended := 0
	numbers := func(n int) iter.Seq2[int, string] {
		return func(yield func(int, string) bool) {
			defer func() { ended++ }()
			for i := range n {
				if !yield(i, fmt.Sprint(i)) {
					return
				}
			}
		}
	}
	next, stop := data.Pull2(numbers(2))
	for i := range 4 {
		if k, v, ok := next(); ok != (i < 2) || ok && (k != i || v != fmt.Sprint(i)) {
			t.Errorf("got %d, %q, %v", k, v, ok)
		}
	}
	stop()
	next, stop = data.Pull2(numbers(5))
	next()
	stop()
	stop()
	if _, _, ok := next(); ok || ended != 2 {
		t.Errorf("after stop there is more, or the sequence has not ended: %d", ended)
	}
	_, stop = data.Pull2(numbers(5))
	stop() // which was never begun
	if ended != 2 {
		t.Errorf("%d sequences have ended", ended)
	}
	next, _ = data.Pull2(func(func(int, string) bool) { panic(errBroken) })
	func() {
		defer func() {
			if recover() != errBroken {
				t.Error("the panic does not come out")
			}
		}()
		next()
	}()
	if _, _, ok := next(); ok {
		t.Error("there is more after a panic")
	}
	func() { // forgotten
		next, _ := data.Pull2(numbers(5))
		next()
	}()
	for range 10 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	testhelp.NoMoreGoroutines(t, before)
}

func TestStackedAndZippedSets(t *testing.T) {
	a, b := &numbers{n: 3}, data.Subset[number](&numbers{n: 9}, []int{8, 7, 6})
	s, err := data.Stack[number](a, b).At(1)
	if err != nil || s[0].values[0] != 1 || s[1].values[0] != 7 {
		t.Errorf("got %v, %v", s, err)
	}
	m, err := data.StackMap(map[string]data.Dataset[number]{"x": a, "y": b}).At(2)
	if err != nil || m["x"].values[0] != 2 || m["y"].values[0] != 6 {
		t.Errorf("got %v, %v", m, err)
	}
	z := data.Zip[number](a, b, func(x, y number) (int, error) { return 10*x.values[0] + y.values[0], nil })
	if i, err := z.At(1); err != nil || i != 17 || z.Len() != 3 {
		t.Errorf("got %v, %v", i, err)
	}
	rows := data.TensorRows(gotorch.Arange(6).Reshape([]int64{3, 2}), gotorch.Arange(3), gotorch.Arange(3).MulScalar(2))
	for batch, err := range data.NewLoader(rows, data.LoaderOptions{BatchSize: 3}).All() {
		if err != nil || len(batch) != 3 || fmt.Sprint(batch[0].Shape()) != "[3 2]" || fmt.Sprint(batch[2]) != "tensor([0, 2, 4])" {
			t.Errorf("got %v, %v", batch, err)
		}
	}
	c := data.Concat[number](a, &numbers{n: 0}, b)
	for i, want := range []int{0, 1, 2, 8, 7, 6} {
		if s, err := c.At(i); err != nil || s.values[0] != want {
			t.Errorf("got %v, %v", s, err)
		}
	}
	for _, i := range []int{-1, 6} {
		if _, err := c.At(i); !errors.Is(err, gotorch.IndexError) {
			t.Errorf("got %v", err)
		}
		subset := data.Subset[number](a, []int{1})
		if _, err := subset.At(i); !errors.Is(err, gotorch.IndexError) {
			t.Errorf("got %v", err)
		}
		if _, err := subset.(data.Batcher[number]).Batch([]int{0, i}, nil); !errors.Is(err, gotorch.IndexError) {
			t.Errorf("got %v", err)
		}
	}
	join := func(number, number) (int, error) { return 0, nil }
	for _, lengths := range [][2]int{{2, 3}, {3, 2}} {
		a, b := &numbers{n: lengths[0]}, &numbers{n: lengths[1]}
		for name, make := range map[string]func(){
			"Zip": func() { data.Zip[number](a, b, join) }, "Stack": func() { data.Stack[number](a, b) },
			"StackMap": func() { data.StackMap(map[string]data.Dataset[number]{"a": a, "b": b}) },
		} {
			if err := gotorch.Try0(make); !errors.Is(err, gotorch.ValueError) {
				t.Errorf("%s of %v samples: got %v", name, lengths, err)
			}
		}
	}
}

func TestASampleThatBelongsToNoBatchIsChangedAlwaysTheSame(t *testing.T) {
	set := data.Transform[number](&numbers{n: 3}, withRandom)
	var first [3]int
	for range 2 {
		for i := range first {
			sample, err := set.At(i)
			testhelp.Must(t, err)
			if first[i] == 0 {
				first[i] = sample.random
			} else if sample.random != first[i] {
				t.Errorf("sample %d is %d, and was %d", i, sample.random, first[i])
			}
		}
	}
	if first[0] == first[1] || first[1] == first[2] {
		t.Errorf("all are changed alike: %v", first)
	}
}

// As torch.utils.data.RandomSampler, which draws an order of which it takes rest samples, and that is none.
func TestARandomSamplerDrawsOneMoreOrderAtTheEnd(t *testing.T) {
	want := gotorch.NewGenerator(gotorch.CPU).ManualSeed(3)
	for range 2 {
		gotorch.RandpermGenerator(5, want).Close()
	}
	for name, epoch := range map[string]func(data.Sampler[int]){
		"alone": func(s data.Sampler[int]) {
			for range s.All() {
			}
		},
		"of a loader": func(s data.Sampler[int]) {
			for range data.NewLoader[number](&numbers{n: 5}, data.LoaderOptions{Sampler: s, Seed: 1}).All() {
			}
		},
		"of a loader's batches": func(s data.Sampler[int]) {
			for range data.NewLoader[number](&numbers{n: 5}, data.LoaderOptions{BatchSampler: data.BatchSampler(s, 2, false), Seed: 1}).All() {
			}
		},
	} {
		g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(3)
		epoch(data.RandomSampler(&numbers{n: 5}, data.RandomSamplerOptions{Generator: g}))
		if !gotorch.Equal(g.State(), want.State()) {
			t.Errorf("%s: the generator is elsewhere", name)
		}
	}
}

func TestPull2OfNoSequenceIsATypeError(t *testing.T) {
	err := gotorch.Try0(func() { data.Pull2[int, error](nil) })
	if !errors.Is(err, gotorch.TypeError) {
		t.Errorf("got %v", err)
	}
}

// endlessBatches is a batch sampler that goes on behind its end.
type endlessBatches struct{}

func (endlessBatches) Len() int { return 3 }

func (endlessBatches) All() iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for yield([]int{0}) {
		}
	}
}

func TestABatchSamplerThatGivesMoreThanItsLenIsAnError(t *testing.T) {
	for workers := range 2 {
		loader := data.NewLoader[number](&numbers{n: 4}, data.LoaderOptions{BatchSampler: endlessBatches{}, Workers: workers})
		var err error
		thrown := gotorch.Try0(func() {
			for _, err = range loader.All() {
			}
		})
		if !errors.Is(errors.Join(err, thrown), gotorch.ValueError) {
			t.Errorf("got %v and %v", err, thrown)
		}
	}
}

// What is expected are lists of torch.utils.data.DistributedSampler(range(n), replicas, rank, shuffle=False, drop_last=...).
func TestTooFewSamplesForAllProcessesBeginAgain(t *testing.T) {
	for _, c := range []struct {
		n, replicas int
		dropLast    bool
		want        [][]int
	}{
		{5, 3, false, [][]int{{0, 3}, {1, 4}, {2, 0}}},
		{5, 3, true, [][]int{{0}, {1}, {2}}},
		{2, 5, false, [][]int{{0}, {1}, {0}, {1}, {0}}},
		{0, 2, false, [][]int{nil, nil}},
	} {
		for rank, want := range c.want {
			s := data.DistributedSampler(&numbers{n: c.n}, c.replicas, rank, data.DistributedSamplerOptions{NoShuffle: true, DropLast: c.dropLast})
			if got := slices.Collect(s.All()); !slices.Equal(got, want) || s.Len() != len(want) {
				t.Errorf("%d samples for %d processes: rank %d gets %v, want %v", c.n, c.replicas, rank, got, want)
			}
		}
	}
	s := data.DistributedSampler(&numbers{n: 9}, 1, 0)
	s.SetEpoch(4)
	again := data.DistributedSampler(&numbers{n: 9}, 1, 0)
	first := slices.Collect(again.All())
	testhelp.Must(t, again.LoadStateDict(s.StateDict()))
	if got, want := slices.Collect(again.All()), slices.Collect(s.All()); !slices.Equal(got, want) || slices.Equal(got, first) {
		t.Errorf("got %v of the fourth epoch, want %v, which are not %v", got, want, first)
	}
}

// The context ends while a batch is made, or is waited for: nobody takes it.
func TestABatchThatIsMadeWhileTheLoopIsCanceledIsClosed(t *testing.T) {
	for _, workers := range []int{0, 1, 2} {
		before := open.Load()
		ctx, cancel := context.WithCancel(t.Context())
		join := func(samples []number) (number, error) {
			if samples[0].values[0] == 4 {
				cancel()
				time.Sleep(5 * time.Millisecond) // until the loop has heard of it
			}
			return number{}.Collate(samples)
		}
		n := 0
		for batch, err := range data.NewLoaderWith[number](&numbers{n: 12}, join, data.LoaderOptions{BatchSize: 4, Workers: workers, Prefetch: 0}).AllContext(ctx) {
			if err == nil {
				batch.Close()
				n++
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if left := open.Load() - before; n > 1 || left != 0 {
			t.Errorf("%d workers: %d batches came, and %d are not closed", workers, n, left)
		}
	}
}

func TestABatchOfAStreamThatCannotBeJoinedSaysWhich(t *testing.T) {
	join := func(samples []number) (number, error) {
		if samples[0].values[0] == 8 {
			return number{}, errBroken
		}
		return samples[0], nil
	}
	var last error
	for _, err := range data.NewIterableLoaderWith[number](count{20, new(int)}, join, data.LoaderOptions{BatchSize: 4}).All() {
		last = err
	}
	if e, is := errors.AsType[*data.SampleError](last); !is || e.Index != -1 || e.Batch != 2 || !errors.Is(last, errBroken) {
		t.Errorf("got %v", last)
	}
}

// kept is a sample that belongs to its data set.
type kept struct{ closed *atomic.Int64 }

func (k kept) Close() { k.closed.Add(1) }

type keeping struct{ closed *atomic.Int64 }

func (keeping) Len() int               { return 40 }
func (k keeping) At(int) (kept, error) { return kept(k), nil }
func (k keeping) All() iter.Seq2[kept, error] {
	return func(yield func(kept, error) bool) {
		for range k.Len() {
			if !yield(kept(k), nil) {
				return
			}
		}
	}
}

func TestSamplesThatAreNotJoinedStayTheDataSets(t *testing.T) {
	set := keeping{new(atomic.Int64)}
	o := data.LoaderOptions{NoBatching: true, Workers: 2, Prefetch: 5}
	for _, l := range []*data.Loader[kept]{data.NewLoader[kept](set, o), data.NewIterableLoader[kept](set, o)} {
		for _, err := range l.All() {
			testhelp.Must(t, err)
			time.Sleep(3 * time.Millisecond) // while others are prepared
			break
		}
	}
	if n := set.closed.Load(); n != 0 {
		t.Errorf("%d samples were closed", n)
	}
}

func TestASampleThatABatcherDoesNotHaveIsNamed(t *testing.T) {
	set := data.NewTensorDataset(gotorch.Arange(5), gotorch.Arange(5))
	for _, err := range data.NewLoader(set, data.LoaderOptions{Sampler: data.SubsetRandomSampler([]int{7}), Workers: 1}).All() {
		if e, is := errors.AsType[*data.SampleError](err); !is || e.Index != 7 || !errors.Is(err, gotorch.IndexError) {
			t.Errorf("got %v", err)
		}
	}
}

// groupsOf is a batch sampler of what it is.
type groupsOf [][]int

func (g groupsOf) Len() int             { return len(g) }
func (g groupsOf) All() iter.Seq[[]int] { return slices.Values(g) }

func TestABatchOfNoSamplesIsJoinedToo(t *testing.T) {
	join := func(samples []number) (int, error) { return len(samples), nil }
	for _, workers := range []int{0, 2} {
		o := data.LoaderOptions{BatchSampler: groupsOf{{1, 2}, {}, {3}}, Workers: workers}
		var got []int
		for n, err := range data.NewLoaderWith[number](&numbers{n: 5}, join, o).All() {
			testhelp.Must(t, err)
			got = append(got, n)
		}
		if !slices.Equal(got, []int{2, 0, 1}) {
			t.Errorf("%d workers: got batches of %v", workers, got)
		}
		got = nil
		for batch, err := range data.NewLoader(pairs(5), o).All() { // which makes its batches itself
			testhelp.Must(t, err)
			got = append(got, batch.Len())
		}
		if !slices.Equal(got, []int{2, 0, 1}) {
			t.Errorf("%d workers: got batches of %v", workers, got)
		}
	}
}

// Of floats that are added one by one, twenty times 0.05 is more than 1.
func TestFractionsThatAreOneInDecimalsSplit(t *testing.T) {
	for _, n := range []int{3, 10, 20, 40, 49, 100, 1000} {
		fractions := slices.Repeat([]float64{1 / float64(n)}, n)
		for i, part := range data.RandomSplit[number](&numbers{n: 3 * n}, fractions) {
			if part.Len() < 2 || part.Len() > 4 { // of 3·n·(1/n), which may be below 3
				t.Errorf("part %d of %d has %d samples", i, n, part.Len())
			}
		}
	}
	for _, fractions := range [][]float64{{0.5, 0.5000001}, {0.5, 0.4999}, {0.5, math.Nextafter(0.5, 1), 1e-16}} {
		err := gotorch.Try0(func() { data.RandomSplit[number](&numbers{n: 10}, fractions) })
		if e, is := errors.AsType[*gotorch.Error](err); !is || e.Kind != gotorch.ValueError {
			t.Errorf("%v: %v", fractions, err)
		}
	}
}
