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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
)

func rngOf(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 9)) }

func withoutRandom(s number, _ *rand.Rand) (number, error) { return s, nil }

// hangs is a set one of whose samples does not come before it is let go.
type hangs struct {
	n, at int
	let   chan struct{}
}

func (h hangs) Len() int { return h.n }

func (h hangs) At(i int) (number, error) {
	if i == h.at {
		<-h.let
	}
	open.Add(1)
	return number{values: []int{i}}, nil
}

// stream is the same as an Iterable, which hangs where it is read.
func (h hangs) All() iter.Seq2[number, error] {
	return func(yield func(number, error) bool) {
		for i := range h.n {
			if !yield(h.At(i)) {
				return
			}
		}
	}
}

// A sample that never comes ends a loop with Timeout, by the time or by the context, and hangs no one but the worker.
func TestASampleThatNeverComesIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(h hangs, o data.LoaderOptions) *data.Loader[number]
	}{
		{"a set", func(h hangs, o data.LoaderOptions) *data.Loader[number] { return data.NewLoader[number](h, o) }},
		{"an iterable", func(h hangs, o data.LoaderOptions) *data.Loader[number] { return data.NewIterableLoader[number](h, o) }},
		{"lanes", func(h hangs, o data.LoaderOptions) *data.Loader[number] {
			return data.NewIterableLoader(data.Interleave(2, []data.Iterable[number]{h, h}), o)
		}},
		{"any order", func(h hangs, o data.LoaderOptions) *data.Loader[number] {
			o.AnyOrder = true
			return data.NewLoader[number](h, o)
		}},
	} {
		for _, how := range []string{"time", "context", "break"} {
			if how != "time" && (c.name == "an iterable" || c.name == "any order") { // each takes a second
				continue
			}
			before := runtime.NumGoroutine()
			h := hangs{40, 17, make(chan struct{})}
			timeout := 100 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			if how != "time" {
				timeout = time.Second
			}
			l := c.make(h, data.LoaderOptions{BatchSize: 4, Workers: 2, Timeout: timeout})
			begun := time.Now()
			var last error
			n := 0
			for batch, err := range l.AllContext(ctx) {
				if last = err; err != nil {
					continue
				}
				batch.Close()
				if n++; n == 3 && how == "context" {
					time.AfterFunc(50*time.Millisecond, cancel)
				}
				if n == 3 && how == "break" {
					break
				}
			}
			cancel()
			switch {
			case how == "time" && (!errors.Is(last, gotorch.RuntimeError) || !errors.Is(last, context.DeadlineExceeded)):
				t.Errorf("%s: got %v", c.name, last)
			case how == "context" && !errors.Is(last, context.Canceled):
				t.Errorf("%s: got %v", c.name, last)
			case how == "break" && last != nil:
				t.Errorf("%s: got %v", c.name, last)
			}
			if took := time.Since(begun); took > 60*time.Second {
				t.Errorf("%s, %s: it took %v", c.name, how, took)
			}
			close(h.let) // what was left behind ends when it can
			testhelp.NoMoreGoroutines(t, before)
			if how == "time" && c.name != "any order" { // nothing is lost
				rest := c.make(hangs{40, -1, nil}, data.LoaderOptions{BatchSize: 4})
				testhelp.Must(t, rest.LoadStateDict(l.StateDict()))
				if got := len(walk(t, rest)); got+n != l.Len() && l.Len() >= 0 {
					t.Errorf("%s: %d batches, and %d before", c.name, got, n)
				}
			}
		}
	}
	for _, o := range []data.LoaderOptions{{Timeout: -1, Workers: 2}, {Timeout: time.Second}} {
		if err := gotorch.Try0(func() { data.NewLoader[number](&numbers{n: 3}, o) }); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("got %v", err)
		}
	}
}

// A batch that takes long does not hold up the others, and each comes once.
func TestBatchesComeInAnyOrder(t *testing.T) {
	let := make(chan struct{})
	l := data.NewLoader[number](hangs{40, 0, let}, data.LoaderOptions{BatchSize: 4, Workers: 3, AnyOrder: true})
	before := runtime.NumGoroutine()
	var got []int
	for batch, err := range l.All() {
		testhelp.Must(t, err)
		if got = append(got, batch.values[0]/4); len(got) == 5 {
			close(let) // the first one, for which none of the five has waited
		}
		batch.Close()
	}
	if slices.Index(got, 0) < 5 {
		t.Errorf("got %v", got)
	}
	if slices.Sort(got); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("got %v", got)
	}
	testhelp.NoMoreGoroutines(t, before)
}

// takesTime is a set and an iterable whose samples take random times.
func takesTime(s number, rng *rand.Rand) (drawnNumber, error) {
	time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
	return withRandom(s, rng)
}

// A loader whose order is any gives the batches that one in order gives, and goes on with those that were not taken.
func TestALoaderOfAnyOrderGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.pt")
	kinds := map[string]func(o data.LoaderOptions) *data.Loader[drawnBatch]{
		"set": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
			o.Shuffle = true
			return data.NewLoaderWith(data.Transform[number](&numbers{n: 43}, takesTime), joinDrawn, o)
		},
		"iterable": func(o data.LoaderOptions) *data.Loader[drawnBatch] {
			return data.NewIterableLoaderWith(data.TransformIterable(data.Shuffle[number](count{43, new(int)}, 8), takesTime), joinDrawn, o)
		},
	}
	for name, make := range kinds {
		want := epochOf(t, make(data.LoaderOptions{BatchSize: 3, Seed: 4}))
		slices.Sort(want)
		for stop := range len(want) + 1 {
			for _, prefetch := range []int{0, 2} {
				options := data.LoaderOptions{BatchSize: 3, Seed: 4, Workers: 4, Prefetch: prefetch, AnyOrder: true}
				l := make(options)
				var got []string
				for k := 0; k < 3 && len(got) < len(want); k++ { // three times, one after the other
					if stop == 0 && k > 0 {
						break
					}
					n := 0
					for batch, err := range l.All() {
						testhelp.Must(t, err)
						if stop == 0 {
							break
						}
						got = append(got, fmt.Sprint(batch))
						if n++; n == stop {
							break
						}
					}
					if stop == 0 {
						l = make(options)
						break
					}
					testhelp.Must(t, gotorch.Save(file, l.StateDict()))
					state, err := gotorch.Load(file)
					testhelp.Must(t, err)
					options.AnyOrder = k == 0
					l = make(options)
					testhelp.Must(t, l.LoadStateDict(state.(gotorch.Dict)))
				}
				if len(got) < len(want) {
					got = append(got, epochOf(t, l)...)
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Fatalf("%s, stopped after %d, %d ahead:\ngot  %v\nwant %v", name, stop, prefetch, got, want)
				}
			}
		}
	}
	l := kinds["set"](data.LoaderOptions{BatchSize: 3, Seed: 4})
	for range l.All() {
		break
	}
	for _, taken := range []any{7, []any{1}, []any{"a", 2}, []any{-1, 2}, []any{1, nil}} {
		if err := l.LoadStateDict(append(l.StateDict(), gotorch.DictItem{Key: "taken", Value: taken})); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%v: got %v", taken, err)
		}
	}
}

func TestEachWorkerBeginsWithWorkerInit(t *testing.T) {
	var mutex sync.Mutex
	var begun []int
	o := data.LoaderOptions{BatchSize: 2, Workers: 3, WorkerInit: func(worker int) error {
		mutex.Lock()
		defer mutex.Unlock()
		begun = append(begun, worker)
		return nil
	}}
	for range 2 {
		if n := len(walk(t, data.NewLoader[number](&numbers{n: 20}, o))); n != 10 {
			t.Errorf("%d batches", n)
		}
	}
	if slices.Sort(begun); !slices.Equal(begun, []int{0, 0, 1, 1, 2, 2}) {
		t.Errorf("got %v", begun)
	}
	for _, fails := range []func(int) error{func(int) error { return errBroken }, func(int) error { panic(errBroken) }} {
		before := runtime.NumGoroutine()
		o.WorkerInit, o.MaxErrors = fails, -1 // it is no sample that fails
		var got error
		for _, err := range data.NewLoader[number](&numbers{n: 20}, o).All() {
			got = err
		}
		if !errors.Is(got, errBroken) || !strings.Contains(got.Error(), "WorkerInit of worker") {
			t.Errorf("got %v", got)
		}
		testhelp.NoMoreGoroutines(t, before)
	}
}

func TestASetThatSaysTooLittleIsWarnedOf(t *testing.T) {
	for _, workers := range []int{0, 2} {
		for length, warns := range map[int]int64{43: 0, 44: 0, -1: 0, 42: 1, 0: 1} {
			var n atomic.Int64
			gotorch.SetWarningHandler(func(w gotorch.Warning) {
				if n.Add(1); w.Kind != "UserWarning" || !strings.Contains(w.Msg, fmt.Sprintf("is %d, and an epoch has more", length)) {
					t.Errorf("got %v", w)
				}
			})
			l := data.NewIterableLoader[number](saysLength{count{43, new(int)}, length}, data.LoaderOptions{BatchSize: 4, Workers: workers})
			if got := len(walk(t, l)); got != 11 || n.Load() != warns {
				t.Errorf("%d workers, %d: %d batches, %d warnings", workers, length, got, n.Load())
			}
			gotorch.SetWarningHandler(nil)
		}
		// A handler that panics makes an error of it.
		gotorch.SetWarningHandler(func(w gotorch.Warning) { panic(errBroken) })
		var got error
		for batch, err := range data.NewIterableLoader[number](saysLength{count{43, new(int)}, 7}, data.LoaderOptions{BatchSize: 4, Workers: workers}).All() {
			if got = err; err == nil {
				batch.Close()
			}
		}
		gotorch.SetWarningHandler(nil)
		if !errors.Is(got, errBroken) {
			t.Errorf("%d workers: got %v", workers, got)
		}
	}
}

type saysLength struct {
	count
	length int
}

func (s saysLength) Len() int { return s.length }

// Ranks that share an iterable have each element once, in rounds, also where another number of ranks has begun the epoch.
func TestRanksShareAnIterable(t *testing.T) {
	for seed := range uint64(testhelp.Rounds(150)) {
		rng := rngOf(seed)
		n, dropLast, workers := rng.IntN(60), rng.IntN(2) == 0, rng.IntN(3)
		loaders := func(ranks, batch int) (all []*data.Loader[drawnBatch]) {
			for rank := range ranks {
				var set data.Iterable[number] = count{n, new(int)}
				if seed%3 == 0 {
					set = sizedCount{count{n, new(int)}}
				}
				// The order of all ranks is the same, whatever the loaders draw.
				mine := data.DistributedIterable(data.Shuffle(set, 1+int(seed%7)), ranks, rank, data.DistributedIterableOptions{Seed: seed, DropLast: dropLast})
				all = append(all, overIterable(mine, data.LoaderOptions{BatchSize: batch, Workers: workers, Seed: 1 + rank}))
			}
			return all
		}
		seen := map[int]int{}
		take := func(all []*data.Loader[drawnBatch], batches int) {
			var lengths []int
			for _, l := range all {
				taken, samples := 0, 0
				if batches != 0 {
					for batch, err := range l.All() {
						testhelp.Must(t, err)
						for _, s := range batch {
							seen[s.place]++
						}
						samples += len(batch)
						if taken++; taken == batches {
							break
						}
					}
				}
				lengths = append(lengths, samples)
			}
			if len(slices.Compact(lengths)) != 1 {
				t.Fatalf("seed %d: ranks have %v samples", seed, lengths)
			}
		}
		sizes, total, ended := []int{}, 0, false
		all := loaders(1+rng.IntN(4), 1+rng.IntN(4))
		for range rng.IntN(4) {
			sizes = append(sizes, len(all))
			take(all, 1+rng.IntN(3))
			if ended = all[0].StateDict().Get("begun") == false; ended {
				break
			}
			var states []gotorch.Dict
			for _, l := range all {
				states = append(states, l.StateDict())
			}
			if rng.IntN(2) == 0 { // as many go on
				again := loaders(len(all), stateBatch(states[0]))
				for i, l := range again {
					testhelp.Must(t, l.LoadStateDict(states[i]))
				}
				all = again
				continue
			}
			all = loaders(1+rng.IntN(4), 1+rng.IntN(4))
			length := all[0].Len()
			for _, l := range all {
				testhelp.Must(t, l.LoadRanks(states))
			}
			if length >= 0 && all[0].Len() > length {
				t.Errorf("seed %d: the rest has %d batches, and all %d", seed, all[0].Len(), length)
			}
		}
		if !ended {
			sizes = append(sizes, len(all))
			take(all, -1)
		}
		most, left := 0, 0
		for i := range n {
			total += seen[i]
			most = max(most, seen[i])
			if seen[i] == 0 {
				left++
			}
		}
		// Less than a round is left out, or given twice; a job that was resized may have had several such rounds at most.
		if dropLast && (most > 1 || left >= slices.Max(sizes)) || !dropLast && (left > 0 || total-n >= slices.Max(sizes)) {
			t.Fatalf("seed %d: %d samples, drop last %v, %v ranks: %v", seed, n, dropLast, sizes, seen)
		}
		// The next epoch is whole, and another order.
		clear(seen)
		take(all, -1)
		if got := len(seen); got < n-slices.Max(sizes)+1 {
			t.Fatalf("seed %d: the next epoch has %d of %d", seed, got, n)
		}
	}
}

func stateBatch(state gotorch.Dict) int { return state.Get("batch_size").(int) }

func TestRanksOfAnIterableRefuseWhatIsNotTheirs(t *testing.T) {
	loader := func(set data.Iterable[number], ranks, rank int) *data.Loader[drawnBatch] {
		return overIterable(data.DistributedIterable(set, ranks, rank), data.LoaderOptions{BatchSize: 2})
	}
	after := func(l *data.Loader[drawnBatch], n int) gotorch.Dict {
		for range l.All() {
			if n--; n == 0 {
				break
			}
		}
		return l.StateDict()
	}
	set := sizedCount{count{30, new(int)}}
	good := []gotorch.Dict{after(loader(set, 2, 0), 2), after(loader(set, 2, 1), 2)}
	for name, states := range map[string][]gotorch.Dict{
		"none": nil, "one": good[:1], "three": append(slices.Clone(good), good[0]), "another place": {good[0], after(loader(set, 2, 1), 1)},
		"another set": {after(loader(sizedCount{count{29, new(int)}}, 2, 0), 2), after(loader(sizedCount{count{29, new(int)}}, 2, 1), 2)},
		"no ranks":    {after(overIterable(set, data.LoaderOptions{BatchSize: 2}), 2)}, "nothing": {nil, nil},
	} {
		l := loader(set, 3, 0)
		if err := l.LoadRanks(states); !errors.Is(err, gotorch.ValueError) || l.Len() != 5 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	testhelp.Must(t, loader(set, 3, 0).LoadRanks(good))
	shuffled := overIterable(data.Shuffle(data.DistributedIterable[number](set, 3, 0), 4), data.LoaderOptions{BatchSize: 2})
	if err := shuffled.LoadRanks(good); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("got %v", err)
	}
	for _, c := range [][2]int{{0, 0}, {2, 2}, {2, -1}} {
		if err := gotorch.Try0(func() { data.DistributedIterable[number](set, c[0], c[1]) }); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("got %v", err)
		}
	}
}
