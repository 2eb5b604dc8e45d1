package data_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
)

// panicsWhenLeft gives numbers, some of them errors, and panics, or ends its goroutine, when a loop over it is left.
type panicsWhenLeft struct {
	n, failAt int
	exits     bool
}

var errLeft = errors.New("was left")

func (p panicsWhenLeft) All() iter.Seq2[number, error] {
	return func(yield func(number, error) bool) {
		for i := range p.n {
			var err error
			if i == p.failAt {
				err = errBroken
			}
			if !yield(number{values: []int{i}}, err) {
				if p.exits {
					runtime.Goexit()
				}
				panic(errLeft)
			}
		}
	}
}

// within are the ways of having a set in others.
var within = map[string]func(set data.Iterable[number]) data.Iterable[number]{
	"alone": func(set data.Iterable[number]) data.Iterable[number] { return set },
	"transform": func(set data.Iterable[number]) data.Iterable[number] {
		return data.TransformIterable(set, withoutRandom)
	},
	"chain": func(set data.Iterable[number]) data.Iterable[number] { return data.Chain(set, set) },
	"interleave": func(set data.Iterable[number]) data.Iterable[number] {
		return data.Interleave(2, []data.Iterable[number]{set, set, set}, data.InterleaveOptions{Buffer: 1})
	},
	"shuffle":     func(set data.Iterable[number]) data.Iterable[number] { return data.Shuffle(set, 3) },
	"distributed": func(set data.Iterable[number]) data.Iterable[number] { return data.DistributedIterable(set, 2, 1) },
}

// The panic of a set that is left comes out of the loop as it is, also where workers read the set; where an error or a
// context has ended the loop, it is joined to that.
func TestASetThatPanicsWhenItIsLeft(t *testing.T) {
	for name, in := range within {
		for _, workers := range []int{0, 1, 4} {
			here := fmt.Sprintf("%s, %d workers", name, workers)
			before := runtime.NumGoroutine()
			loader := func(failAt int) *data.Loader[number] {
				return data.NewIterableLoader(in(panicsWhenLeft{1000, failAt, false}), data.LoaderOptions{BatchSize: 4, Workers: workers, Prefetch: 1})
			}
			panicked := func(fn func()) (value any) {
				defer func() { value = recover() }()
				fn()
				return nil
			}
			is := func(value any) bool {
				err, _ := value.(error)
				return errors.Is(err, errLeft) // a set in a lane comes with the stack of its goroutine
			}
			if got := panicked(func() {
				for batch := range loader(-1).All() {
					batch.Close()
					break
				}
			}); !is(got) {
				t.Errorf("%s: got %v", here, got)
			}
			if got := panicked(func() {
				next, stop := loader(-1).Pull()
				batch, _, _ := next()
				batch.Close()
				stop()
			}); !is(got) {
				t.Errorf("%s, Pull: got %v", here, got)
			}
			var got error
			if p := panicked(func() {
				for batch, err := range loader(7).All() {
					if got = err; err == nil {
						batch.Close()
					}
				}
			}); p != nil || !errors.Is(got, errBroken) || !errors.Is(got, errLeft) {
				t.Errorf("%s, an error: got %v, and a panic %v", here, got, p)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if p := panicked(func() {
				for batch, err := range loader(-1).AllContext(ctx) {
					cancel()
					if got = err; err == nil {
						batch.Close()
					}
				}
			}); p != nil || !errors.Is(got, context.Canceled) || !errors.Is(got, errLeft) {
				t.Errorf("%s, a context: got %v, and a panic %v", here, got, p)
			}
			cancel()
			testhelp.NoMoreGoroutines(t, before)

			// The end of its goroutine ends the loop's.
			wentOn, done := false, make(chan struct{})
			go func() {
				defer close(done)
				for batch := range data.NewIterableLoader(in(panicsWhenLeft{1000, -1, true}), data.LoaderOptions{BatchSize: 4, Workers: workers}).All() {
					batch.Close()
					break
				}
				wentOn = true
			}()
			<-done
			if wentOn {
				t.Errorf("%s: the goroutine went on", here)
			}
			testhelp.NoMoreGoroutines(t, before)
		}
	}
}

// A sequence that goes on after it was left hides no error of its own.
func TestASequenceThatGoesOnAfterFalse(t *testing.T) {
	seq := data.IterableOf(func(yield func(number, error) bool) {
		for i := range 50 {
			var err error
			if i == 11 {
				err = errBroken
			}
			yield(number{values: []int{i}}, err)
		}
	})
	for name, in := range within {
		for _, workers := range []int{0, 2} {
			before := runtime.NumGoroutine()
			var got error
			for batch, err := range data.NewIterableLoader(in(seq), data.LoaderOptions{BatchSize: 3, Workers: workers}).All() {
				if got = err; err == nil {
					batch.Close()
				}
			}
			if !errors.Is(got, errBroken) {
				t.Errorf("%s, %d workers: got %v", name, workers, got)
			}
			if name == "alone" && workers == 0 && (!errors.Is(got, gotorch.RuntimeError) || !strings.Contains(got.Error(), "goes on after yield has returned false")) {
				t.Errorf("got %v", got)
			}
			testhelp.NoMoreGoroutines(t, before)
		}
	}
	// One that goes on to its end gives all.
	for _, workers := range []int{0, 2} {
		n := 0
		l := data.NewIterableLoader(seq, data.LoaderOptions{BatchSize: 3, Workers: workers, MaxErrors: 1})
		for batch, err := range l.All() {
			testhelp.Must(t, err)
			n += len(batch.values)
			batch.Close()
		}
		if n != 49 {
			t.Errorf("%d workers: %d samples", workers, n)
		}
	}
}

// Interleave has as many lanes as there are sets left, whatever their lengths: the order is that of a model.
func TestALaneTakesTheNextSet(t *testing.T) {
	for seed := range uint64(200) {
		rng := rngOf(seed)
		lengths := make([]int, rng.IntN(9))
		var sets []data.Iterable[number]
		for i := range lengths {
			lengths[i] = rng.IntN(5)
			sets = append(sets, count{lengths[i], new(int)})
		}
		lanes, buffer := 1+rng.IntN(5), rng.IntN(3)
		var want, got []int
		next, open := 0, []*[2]int{} // which set, and how many of it were given
		for next < len(sets) && len(open) < lanes {
			open = append(open, &[2]int{next, 0})
			next++
		}
		for at := 0; len(open) > 0; {
			at %= len(open)
			switch l := open[at]; {
			case l[1] < lengths[l[0]]:
				want = append(want, l[1])
				l[1]++
				at++
			case next < len(sets):
				open[at] = &[2]int{next, 0}
				next++
			default:
				open = slices.Delete(open, at, at+1)
			}
		}
		for s, err := range data.Interleave(lanes, sets, data.InterleaveOptions{Buffer: buffer}).All() {
			testhelp.Must(t, err)
			got = append(got, s.values...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d lanes of %v: got %v, want %v", lanes, lengths, got, want)
		}
	}
}
