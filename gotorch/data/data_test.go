package data_test

import (
	"errors"
	"fmt"
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

// numbers is a data set of numbers that counts what is asked of it.
type numbers struct {
	n      int
	asked  atomic.Int64
	failAt int // 0: never
	panics bool
	exits  bool
}

// number is a sample that counts how many are not closed.
type number struct {
	values []int
	open   *atomic.Int64
}

var open atomic.Int64

func (number) Collate(samples []number) (number, error) {
	joined := number{open: &open}
	for _, s := range samples {
		joined.values = append(joined.values, s.values...)
	}
	open.Add(1)
	return joined, nil
}

func (n number) Close() { n.open.Add(-1) }

var errBroken = errors.New("the disk is broken")

func (d *numbers) Len() int { return d.n }

func (d *numbers) At(i int) (number, error) {
	d.asked.Add(1)
	if d.failAt > 0 && i == d.failAt {
		if d.exits {
			runtime.Goexit()
		}
		if d.panics {
			gotorch.Ones([]int64{2}).Add(gotorch.Ones([]int64{3}))
		}
		return number{}, errBroken
	}
	return number{values: []int{i}}, nil
}

func walk(t *testing.T, l *data.Loader[number]) (batches [][]int) {
	t.Helper()
	for batch, err := range l.All() {
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, batch.values)
		batch.Close()
	}
	return batches
}

func TestBatchesComeInOrderFromAnyNumberOfWorkers(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 7} {
		set := &numbers{n: 23}
		got := walk(t, data.NewLoader[number](set, data.LoaderOptions{BatchSize: 5, Workers: workers}))
		want := [][]int{{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10, 11, 12, 13, 14}, {15, 16, 17, 18, 19}, {20, 21, 22}}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%d workers: got %v", workers, got)
		}
	}
}

func TestLenAgreesWithTheBatches(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11} {
		for _, drop := range []bool{false, true} {
			l := data.NewLoader[number](&numbers{n: n}, data.LoaderOptions{BatchSize: 5, DropLast: drop, Workers: 1})
			if got := len(walk(t, l)); got != l.Len() {
				t.Errorf("n %d, drop %v: %d batches, Len %d", n, drop, got, l.Len())
			}
		}
	}
}

func TestShuffleDrawsEverySampleOnceAndEveryEpochAnew(t *testing.T) {
	options := data.LoaderOptions{BatchSize: 7, Shuffle: true, Seed: 3}
	a, b := data.NewLoader[number](&numbers{n: 50}, options), data.NewLoader[number](&numbers{n: 50}, options)
	first, second := slices.Concat(walk(t, a)...), slices.Concat(walk(t, a)...)
	if slices.Equal(first, second) || slices.IsSorted(first) {
		t.Error("the order is always the same")
	}
	if !slices.Equal(first, slices.Concat(walk(t, b)...)) {
		t.Error("the same seed gives another order")
	}
	slices.Sort(first)
	for i, value := range first {
		if i != value {
			t.Fatalf("got %v", first)
		}
	}
}

func TestALoopThatIsLeftStopsTheWorkersAndClosesTheirBatches(t *testing.T) {
	before, openBefore := runtime.NumGoroutine(), open.Load()
	set := &numbers{n: 10000}
	taken := 0
	for batch, err := range data.NewLoader[number](set, data.LoaderOptions{BatchSize: 2, Workers: 3, Prefetch: 4}).All() {
		if err != nil {
			t.Fatal(err)
		}
		batch.Close()
		if taken++; taken == 5 {
			break
		}
	}
	testhelp.NoMoreGoroutines(t, before)
	if n := open.Load() - openBefore; n != 0 {
		t.Errorf("%d batches are not closed", n)
	}
	// Five were taken; the workers may have gone on with what fits into the queue.
	if n := set.asked.Load(); n > 2*(5+3*4+3+1) {
		t.Errorf("%d samples were asked for, so the workers are not bounded", n)
	}
}

func TestALoopThatPanicsStopsTheWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	func() {
		defer func() { _ = recover() }()
		for range data.NewLoader[number](&numbers{n: 1000}, data.LoaderOptions{Workers: 2}).All() {
			panic("in the loop")
		}
	}()
	testhelp.NoMoreGoroutines(t, before)
}

func TestErrorsEndTheLoopAtTheirPlace(t *testing.T) {
	for _, workers := range []int{0, 3} {
		before := runtime.NumGoroutine()
		set := &numbers{n: 100, failAt: 42}
		good, failed := 0, 0
		for batch, err := range data.NewLoader[number](set, data.LoaderOptions{BatchSize: 10, Workers: workers}).All() {
			if err != nil {
				failed++
				if !errors.Is(err, errBroken) {
					t.Errorf("got %v", err)
				}
				continue
			}
			good++
			batch.Close()
		}
		if good != 4 || failed != 1 {
			t.Errorf("%d workers: %d good batches, %d errors", workers, good, failed)
		}
		testhelp.NoMoreGoroutines(t, before)
	}
}

// What gotorch panics with is the error itself; other panics are a PanicError with their stack.
func TestAPanicInADataSetIsTheErrorOfItsSample(t *testing.T) {
	for _, workers := range []int{0, 2} {
		before := runtime.NumGoroutine()
		set := &numbers{n: 100, failAt: 42, panics: true}
		var got error
		for batch, err := range data.NewLoader[number](set, data.LoaderOptions{BatchSize: 10, Workers: workers}).All() {
			if got = err; err == nil {
				batch.Close()
			}
		}
		sample, is := errors.AsType[*data.SampleError](got)
		if !is || sample.Index != 42 || sample.Batch != 4 || !errors.Is(got, gotorch.RuntimeError) {
			t.Errorf("%d workers: got %v", workers, got)
		}
		testhelp.NoMoreGoroutines(t, before)
		broken := data.Transform[number](set, func(number, *rand.Rand) (number, error) { panic(errBroken) })
		for _, err := range data.NewLoader(broken, data.LoaderOptions{Workers: workers}).All() {
			panicked, is := errors.AsType[*data.PanicError](err)
			if !is || !errors.Is(err, errBroken) || !strings.Contains(string(panicked.Stack), "TestAPanicInADataSet") {
				t.Errorf("%d workers: got %v", workers, err)
			}
		}
		// A lane is a goroutine of its own, and what it panicked with is told as if it were none.
		for _, value := range []any{errBroken, "text", &gotorch.Error{Kind: gotorch.RuntimeError, Msg: "ours"}} {
			lane := data.IterableOf(func(func(number, error) bool) { panic(value) })
			for _, err := range data.NewIterableLoader(data.Interleave(1, []data.Iterable[number]{lane}), data.LoaderOptions{Workers: workers}).All() {
				panicked, is := errors.AsType[*data.PanicError](err)
				if _, ours := value.(*gotorch.Error); ours {
					if is || !errors.Is(err, gotorch.RuntimeError) {
						t.Errorf("%d workers: got %v", workers, err)
					}
				} else if !is || panicked.Value != value || !strings.Contains(string(panicked.Stack), "TestAPanicInADataSet") {
					t.Errorf("%d workers: got %v", workers, err)
				}
			}
		}
	}
}

// t.Fatal in a data set or in WorkerInit ends the goroutine of the loop, whichever goroutine reads the set.
func TestAWorkerThatEndsItsGoroutineEndsTheLoops(t *testing.T) {
	set := &numbers{n: 100, failAt: 42, exits: true}
	exit := func(int) error { runtime.Goexit(); return nil }
	for _, o := range []data.LoaderOptions{
		{}, {Workers: 1}, {Workers: 2}, {Workers: 1, AnyOrder: true}, {Workers: 3, AnyOrder: true},
		{Workers: 1, WorkerInit: exit}, {Workers: 2, WorkerInit: exit}, {Workers: 1, WorkerInit: exit, AnyOrder: true}, {Workers: 3, WorkerInit: exit, AnyOrder: true},
	} {
		before, openBefore := runtime.NumGoroutine(), open.Load()
		here := fmt.Sprintf("%d workers, any order: %t, WorkerInit: %t", o.Workers, o.AnyOrder, o.WorkerInit != nil)
		o.BatchSize = 10
		good, wentOn := 0, false
		done := make(chan struct{})
		go func() {
			defer close(done)
			for batch := range data.NewLoader[number](set, o).All() {
				batch.Close()
				good++
			}
			wentOn = true
		}()
		<-done
		if most := map[bool]int{false: 4, true: 0}[o.WorkerInit != nil]; wentOn || good > 9 || !o.AnyOrder && good != most {
			t.Errorf("%s: %d batches; the goroutine went on: %v", here, good, wentOn)
		}
		testhelp.NoMoreGoroutines(t, before)
		if n := open.Load() - openBefore; n != 0 {
			t.Errorf("%s: %d batches are not closed", here, n)
		}
	}
}

func TestNegativeOptionsPanic(t *testing.T) {
	for _, o := range []data.LoaderOptions{{BatchSize: -1}, {BatchSize: 0}, {Workers: -1}, {Prefetch: -1}} {
		if err := gotorch.Try0(func() { data.NewLoader[number](&numbers{}, o) }); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
	if err := gotorch.Try0(func() { data.NewLoader[number](&numbers{}).SetEpoch(-1) }); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("an epoch: got %v", err)
	}
}

func TestADataSetThatIsNoneIsRefused(t *testing.T) {
	set := &numbers{n: 3}
	stream := data.IterableOf(func(func(number, error) bool) {})
	for what, fn := range map[string]func(){
		"NewLoader":            func() { data.NewLoader[number](nil) },
		"Subset":               func() { data.Subset[number](nil, nil) },
		"Transform":            func() { data.Transform(nil, withRandom) },
		"Transform, no fn":     func() { data.Transform[number, number](set, nil) },
		"Concat":               func() { data.Concat(data.Dataset[number](set), nil) },
		"Stack":                func() { data.Stack(data.Dataset[number](set), nil) },
		"StackMap":             func() { data.StackMap(map[string]data.Dataset[number]{"a": nil}) },
		"Zip":                  func() { data.Zip(set, nil, func(number, number) (number, error) { return number{}, nil }) },
		"Zip, no fn":           func() { data.Zip[number, number, number](set, set, nil) },
		"RandomSplit":          func() { data.RandomSplit[number](nil, []int{}) },
		"NewIterableLoader":    func() { data.NewIterableLoader[number](nil) },
		"TransformIterable":    func() { data.TransformIterable(nil, withRandom) },
		"TransformIterable fn": func() { data.TransformIterable[number, number](stream, nil) },
		"Chain":                func() { data.Chain(stream, nil) },
		"Interleave":           func() { data.Interleave(2, []data.Iterable[number]{stream, nil}) },
		"Shuffle":              func() { data.Shuffle[number](nil, 2) },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, gotorch.TypeError) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	for _, workers := range []int{0, 2} {
		l := data.NewLoader(&numbers{n: -7}, data.LoaderOptions{BatchSize: 3, Workers: workers})
		if n := l.Len(); n != 0 {
			t.Errorf("Len is %d", n)
		}
		var got error
		for _, err := range l.All() {
			got = err
		}
		if !errors.Is(got, gotorch.ValueError) {
			t.Errorf("got %v", got)
		}
	}
}

func TestZeroIsASeedAndAPrefetch(t *testing.T) {
	loader := func(o data.LoaderOptions) *data.Loader[number] { return data.NewLoader[number](&numbers{n: 50}, o) }
	seeded := data.LoaderOptions{BatchSize: 5, Shuffle: true, Seed: 0}
	if a, b := walk(t, loader(seeded)), walk(t, loader(seeded)); !slices.EqualFunc(a, b, slices.Equal) {
		t.Error("the seed 0 gives two orders")
	}
	got := walk(t, loader(data.LoaderOptions{BatchSize: 5, Workers: 2, Prefetch: 0}))
	if want := walk(t, loader(data.LoaderOptions{BatchSize: 5})); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v", got)
	}
}

// TestOptionsBeyondTheDataSet gives more than there is use for: no batch may be lost, and none made room for.
func TestOptionsBeyondTheDataSet(t *testing.T) {
	for _, o := range []data.LoaderOptions{
		{BatchSize: math.MaxInt},
		{BatchSize: math.MaxInt, DropLast: true},
		{BatchSize: math.MaxInt - 1, Workers: 2},
		{BatchSize: 4, Workers: math.MaxInt},
		{BatchSize: 4, Workers: 2, Prefetch: math.MaxInt},
		{BatchSize: 4, Workers: math.MaxInt, Prefetch: math.MaxInt},
	} {
		var want [][]int
		switch {
		case o.DropLast:
		case o.BatchSize == 4:
			want = [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}
		default:
			want = [][]int{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}
		}
		l := data.NewLoader[number](&numbers{n: 10}, o)
		if got := walk(t, l); !slices.EqualFunc(got, want, slices.Equal) || l.Len() != len(want) {
			t.Errorf("%+v: got %v and Len %d", o, got, l.Len())
		}
	}
}

// pulled takes batches by Pull as walk does by All.
func pulled(t *testing.T, l *data.Loader[number]) (batches [][]int) {
	t.Helper()
	next, stop := l.Pull()
	defer stop()
	for batch, err, ok := next(); ok; batch, err, ok = next() {
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, batch.values)
		batch.Close()
	}
	if _, err, ok := next(); err != nil || ok {
		t.Errorf("after the end there is more: %v, %v", err, ok)
	}
	return batches
}

func TestPullGivesWhatAllGives(t *testing.T) {
	for _, workers := range []int{0, 3} {
		before, openBefore := runtime.NumGoroutine(), open.Load()
		options := data.LoaderOptions{BatchSize: 7, Shuffle: true, Seed: 3, Workers: workers}
		byAll, byPull := data.NewLoader[number](&numbers{n: 50}, options), data.NewLoader[number](&numbers{n: 50}, options)
		for epoch := range 2 {
			if want, got := walk(t, byAll), pulled(t, byPull); !slices.EqualFunc(want, got, slices.Equal) {
				t.Errorf("%d workers, epoch %d: got %v, want %v", workers, epoch, got, want)
			}
		}
		testhelp.NoMoreGoroutines(t, before)
		if n := open.Load() - openBefore; n != 0 {
			t.Errorf("%d batches are not closed", n)
		}
	}
}

// eventually collects garbage until what is read is at most limit, and returns it.
func eventually(read func() int64, limit int64) int64 {
	for range 100 {
		runtime.GC()
		if read() <= limit {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return read()
}

func TestPullWorksInsideOfAScope(t *testing.T) {
	for _, workers := range []int{0, 2} {
		loader := data.NewLoader(pairs(12), data.LoaderOptions{BatchSize: 4, Workers: workers})
		live := func() int64 { return gotorch.MemoryStats().LiveHandles }
		before, handles := runtime.NumGoroutine(), eventually(live, -1)
		next, stop := loader.Pull()
		sum := 0
		if batch, err, ok := next(); err != nil || !ok {
			t.Fatal(err)
		} else {
			sum += gotorch.Item[int](batch.Target.Sum())
			batch.Close()
		}
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			for batch, err, ok := next(); ok; batch, err, ok = next() {
				if err != nil {
					t.Fatal(err)
				}
				sum += gotorch.Item[int](batch.Target.Sum())
				batch.Close()
			}
		})
		stop()
		stop()
		if sum != 66 {
			t.Errorf("%d workers: the sum is %d", workers, sum)
		}
		testhelp.NoMoreGoroutines(t, before)
		if left := eventually(live, handles); left > handles {
			t.Errorf("%d workers: %d handles are left, where %d were before", workers, left, handles)
		}
	}
}

func TestAPullThatIsStoppedOrForgottenStopsTheWorkers(t *testing.T) {
	before, openBefore := runtime.NumGoroutine(), open.Load()
	take := func(stopped bool) {
		next, stop := data.NewLoader[number](&numbers{n: 1000}, data.LoaderOptions{BatchSize: 2, Workers: 3}).Pull()
		for range 3 {
			batch, _, _ := next()
			batch.Close()
		}
		if stopped {
			stop()
			if _, _, ok := next(); ok {
				t.Error("there are batches after stop")
			}
		}
	}
	take(true)
	testhelp.NoMoreGoroutines(t, before)
	take(false)
	for range 10 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	testhelp.NoMoreGoroutines(t, before)
	if n := open.Load() - openBefore; n != 0 {
		t.Errorf("%d batches are not closed", n)
	}
}

func TestAPullEndsWithItsError(t *testing.T) {
	for _, workers := range []int{0, 3} {
		before := runtime.NumGoroutine()
		next, _ := data.NewLoader[number](&numbers{n: 100, failAt: 12}, data.LoaderOptions{BatchSize: 10, Workers: workers}).Pull()
		first, err, ok := next()
		if err != nil || !ok {
			t.Errorf("got %v, %v", err, ok)
		}
		first.Close()
		if _, err, ok := next(); !errors.Is(err, errBroken) || !ok {
			t.Errorf("got %v, %v", err, ok)
		}
		if _, err, ok := next(); err != nil || ok {
			t.Errorf("after the error there is %v, %v", err, ok)
		}
		testhelp.NoMoreGoroutines(t, before)
	}
}

func pairs(n int) *data.TensorDataset {
	x := gotorch.FromSlice(make([]float32, 2*n), int64(n), 2)
	y := make([]int64, n)
	for i := range y {
		y[i] = int64(i)
	}
	return data.NewTensorDataset(x, gotorch.FromSlice(y))
}

func TestTensorDatasetGivesRows(t *testing.T) {
	set := pairs(5)
	sample, err := set.At(3)
	if err != nil || gotorch.Item[int](sample.Target) != 3 || fmt.Sprint(sample.Input.Shape()) != "[2]" {
		t.Errorf("got %v, %v", sample, err)
	}
	rows := data.TensorRows(gotorch.Arange(5))
	for _, i := range []int{5, -1} { // nothing is counted from the end, as in any other data set
		if _, err := set.At(i); !errors.Is(err, gotorch.IndexError) {
			t.Errorf("%d: got %v", i, err)
		}
		if _, err := rows.At(i); !errors.Is(err, gotorch.IndexError) {
			t.Errorf("%d: got %v", i, err)
		}
	}
	batch, err := set.Batch([]int{4, 0}, nil)
	if err != nil || !slices.Equal(gotorch.ToSlice[int](batch.Target), []int{4, 0}) || batch.Len() != 2 {
		t.Errorf("got %v, %v", batch, err)
	}
	err = gotorch.Try0(func() { data.NewTensorDataset(gotorch.Ones([]int64{3, 1}), gotorch.Ones([]int64{2})) })
	if !errors.Is(err, gotorch.ValueError) {
		t.Errorf("got %v", err)
	}
}

func TestSubsetAndTransformKeepTheirPlaces(t *testing.T) {
	set := data.Transform(data.Subset[data.Pair](pairs(10), []int{7, 3, 5}),
		func(p data.Pair, _ *rand.Rand) (data.Pair, error) {
			return data.Pair{Input: p.Input, Target: p.Target.MulScalar(10)}, nil
		})
	for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 3}).All() {
		if err != nil || !slices.Equal(gotorch.ToSlice[int](batch.Target), []int{70, 30, 50}) {
			t.Errorf("got %v, %v", batch, err)
		}
	}
	if p, err := set.At(1); err != nil || gotorch.Item[int](p.Target) != 30 {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestRandomTransformsDoNotDependOnTheWorkers(t *testing.T) {
	set := data.Transform[number](&numbers{n: 40}, func(s number, rng *rand.Rand) (number, error) {
		return number{values: []int{s.values[0], rng.IntN(1 << 30)}}, nil
	})
	var all [][]int
	for _, workers := range []int{0, 1, 4} {
		l := data.NewLoader(set, data.LoaderOptions{BatchSize: 7, Shuffle: true, Seed: 5, Workers: workers})
		all = append(all, slices.Concat(walk(t, l)...))
		if next := slices.Concat(walk(t, l)...); slices.Equal(next, all[0]) {
			t.Error("the second epoch is as the first")
		}
	}
	if !slices.Equal(all[0], all[1]) || !slices.Equal(all[0], all[2]) {
		t.Error("the workers change what is drawn")
	}
}

// The samples come in their order, so that what differs is what transforms draw.
func TestEachEpochAndEachSeedDrawsOtherTransforms(t *testing.T) {
	withRandom := func(s number, rng *rand.Rand) (number, error) { return number{values: []int{rng.IntN(1 << 50)}}, nil }
	again := func(s number, rng *rand.Rand) (number, error) {
		return number{values: append(slices.Clone(s.values), rng.IntN(1<<50))}, nil
	}
	set := data.Transform(data.Transform[number](&numbers{n: 40}, withRandom), again)
	stream := data.TransformIterable(data.TransformIterable(data.IterableOf(func(yield func(number, error) bool) {
		for range 40 {
			if !yield(number{}, nil) {
				return
			}
		}
	}), withRandom), again)
	for name, make := range map[string]func(o data.LoaderOptions) *data.Loader[number]{
		"a set":    func(o data.LoaderOptions) *data.Loader[number] { return data.NewLoader(set, o) },
		"a stream": func(o data.LoaderOptions) *data.Loader[number] { return data.NewIterableLoader(stream, o) },
	} {
		seen := map[int]string{}
		for _, seed := range []int{5, 6} {
			l := make(data.LoaderOptions{BatchSize: 7, Seed: seed, Workers: 2})
			for epoch := range 3 {
				here := fmt.Sprintf("seed %d, epoch %d", seed, epoch)
				for _, drawn := range slices.Concat(walk(t, l)...) {
					if before, is := seen[drawn]; is {
						t.Errorf("%s: %s draws what was drawn in %s", name, here, before)
					}
					seen[drawn] = here
				}
			}
		}
	}
}

func TestSamplesThatCannotBeJoinedSaySo(t *testing.T) {
	set := data.Transform[number](&numbers{n: 2}, func(s number, _ *rand.Rand) (string, error) { return "a", nil })
	for _, err := range data.NewLoader(set).All() {
		if !errors.Is(err, gotorch.TypeError) || !strings.Contains(err.Error(), "Collate([]string) (string, error)") {
			t.Errorf("got %v", err)
		}
	}
}

func TestTensorsAreStacked(t *testing.T) {
	set := data.Transform[number](&numbers{n: 3}, func(s number, _ *rand.Rand) (gotorch.Tensor, error) {
		return gotorch.FromScalar(s.values[0]), nil
	})
	for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 3}).All() {
		if err != nil || !slices.Equal(gotorch.ToSlice[int](batch), []int{0, 1, 2}) {
			t.Errorf("got %v, %v", batch, err)
		}
	}
}

func TestLoadersLeaveNoTensorsBehind(t *testing.T) {
	l := data.NewLoader(pairs(64), data.LoaderOptions{BatchSize: 4, Shuffle: true, Workers: 2})
	epoch := func() {
		for batch, err := range l.All() {
			if err != nil {
				t.Fatal(err)
			}
			batch.Close()
		}
	}
	epoch()
	before := gotorch.MemoryStats().LiveHandles
	for range 10 {
		epoch()
	}
	if after := gotorch.MemoryStats().LiveHandles; after > before {
		t.Errorf("%d tensors are left after ten epochs", after-before)
	}
}

func ExampleNewLoader() {
	inputs := gotorch.FromSlice([]float32{0, 0, 0, 1, 1, 0, 1, 1, 2, 2}, 5, 2)
	targets := gotorch.FromSlice([]int64{0, 1, 1, 0, 0})
	loader := data.NewLoader(data.NewTensorDataset(inputs, targets), data.LoaderOptions{BatchSize: 2})
	for batch, err := range loader.All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(batch.Input.Shape(), batch.Target)
	}
	// Output:
	// [2 2] tensor([0, 1])
	// [2 2] tensor([1, 0])
	// [1 2] tensor([0])
}

func ExampleTransform() {
	set := data.NewTensorDataset(gotorch.FromSlice([]float32{1, 2, 3, 4}, 4, 1), gotorch.FromSlice([]int64{0, 0, 1, 1}))
	noisy := data.Transform(set, func(p data.Pair, rng *rand.Rand) (data.Pair, error) {
		return data.Pair{Input: p.Input.AddScalar(0.1 * rng.NormFloat64()), Target: p.Target}, nil
	})
	for batch := range data.NewLoader(noisy, data.LoaderOptions{BatchSize: 4, Seed: 1}).All() {
		fmt.Println(batch.Input.Shape(), batch.Target)
	}
	// Output: [4 1] tensor([0, 0, 1, 1])
}
