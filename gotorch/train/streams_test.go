package train_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/lines"
	"gotorch.dev/gotorch/data/webdataset"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/iterabletest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
)

// A run over any Iterable, stopped after any of its steps, goes on with the batches that it would have had.
func TestARunOverAnyIterableGoesOnAfterEachStep(t *testing.T) {
	gotorch.SetWarningHandler(func(gotorch.Warning) {}) // of sets that say too small a length
	defer gotorch.SetWarningHandler(nil)
	workers := []int{0, 1, 4}
	for number, set := range iterabletest.Sets(t, 25) {
		if testing.Short() && number%5 > 0 {
			continue
		}
		rng := rand.New(rand.NewPCG(uint64(number), 5))
		options := data.LoaderOptions{BatchSize: 2 + rng.IntN(4), MaxErrors: -1}
		run := func(ctx context.Context, folder string, limit train.Limit, hook func(step int)) (batches []string, err error) {
			gotorch.ManualSeed(uint64(number))
			o := options
			o.Workers = workers[rng.IntN(len(workers))]
			loader := data.NewIterableLoaderWith(set.Make(), func(s []string) ([]string, error) { return slices.Clone(s), nil }, o)
			loop := train.NewStepLoop(func(s *train.StepOf[[]string]) error {
				// The model draws random numbers between those of the loader.
				drawn := gotorch.Rand([]int64{1})
				batches = append(batches, strings.Join(s.Batch, " ")+drawn.String())
				hook(s.Number)
				return nil
			})
			if folder != "" {
				loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
			}
			_, err = loop.Run(ctx, loader, limit)
			return batches, err
		}
		none := func(int) {}
		first, err := run(t.Context(), "", train.Epochs(1), none)
		if err != nil { // it is empty
			continue
		}
		total := 2*len(first) + 1
		want, err := run(t.Context(), "", train.Steps(total), none)
		testhelp.Must(t, err)
		if len(want) != total {
			t.Fatalf("%s: %d steps, want %d", set.Name, len(want), total)
		}
		for stop := 1; stop < total; stop++ {
			folder := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			if rng.IntN(2) == 0 {
				_, err := run(ctx, folder, train.Steps(stop), none)
				testhelp.Must(t, err)
			} else {
				_, err := run(ctx, folder, train.Steps(total), func(step int) {
					if step == stop {
						cancel()
					}
				})
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			}
			cancel()
			got, err := run(t.Context(), folder, train.Steps(total), none)
			testhelp.Must(t, err)
			if !slices.Equal(got, want[stop:]) {
				t.Fatalf("%s, after step %d:\ngot  %q\nwant %q", set.Name, stop, got, want[stop:])
			}
		}
	}
}

// grouped are batches of three of a stream of files, which is their state.
type grouped[S any] struct {
	data.Iterable[S]
	train.Stateful
	text func(S) string
}

func (g grouped[S]) Len() int { return -1 }

func (g grouped[S]) All() iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		var batch []string
		for s, err := range g.Iterable.All() {
			text := "an error"
			if err == nil {
				text = g.text(s)
			}
			if batch = append(batch, text); len(batch) == 3 {
				if !yield(batch, nil) {
					return
				}
				batch = nil
			}
		}
		if len(batch) > 0 {
			yield(batch, nil)
		}
	}
}

// A stream of files is itself the state of a program's own batches.
func TestARunGoesOnByTheStateOfAStream(t *testing.T) {
	var archives, texts []string
	for i := range 3 {
		archives = append(archives, filestest.Write(t, "a.tar", filestest.Tar(fmt.Sprint(i, ".a"), "1", fmt.Sprint(i, "b.a"), "2", fmt.Sprint(i, "c.a"), "3")))
		texts = append(texts, filestest.Write(t, "a.txt", fmt.Appendf(nil, "%d\n%d0\n\xff\n", i, i)))
	}
	for name, make := range map[string]func() train.BatchesOf[[]string]{
		"webdataset": func() train.BatchesOf[[]string] {
			s := webdataset.New(archives, webdataset.Options{Shuffle: 4, ShuffleShards: true})
			return grouped[*webdataset.Sample]{s, s, func(s *webdataset.Sample) string { return s.Key }}
		},
		"lines": func() train.BatchesOf[[]string] {
			s := lines.NewStream(texts)
			return grouped[string]{s, s, func(s string) string { return s }}
		},
	} {
		run := func(folder string, steps int) (batches []string) {
			gotorch.ManualSeed(3)
			loop := train.NewStepLoop(func(s *train.StepOf[[]string]) error {
				batches = append(batches, strings.Join(s.Batch, " "))
				return nil
			})
			if folder != "" {
				loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
			}
			_, err := loop.Run(t.Context(), make(), train.Steps(steps))
			testhelp.Must(t, err)
			return batches
		}
		want := run("", 8)
		for stop := 1; stop < 8; stop++ {
			folder := t.TempDir()
			run(folder, stop)
			gotorch.ManualSeed(77)
			if got := run(folder, 8); !slices.Equal(got, want[stop:]) {
				t.Errorf("%s, after step %d: got %q, want %q", name, stop, got, want[stop:])
			}
		}
	}
}

// FindLR goes through a set of unknown length as often as it takes, and leaves the loader where it was.
func TestFindLRTakesAStream(t *testing.T) {
	set := points(23)
	for _, workers := range []int{0, 2} {
		gotorch.ManualSeed(1)
		model := nn.Linear(2, 2)
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Accumulate(2)
		loader := func() *data.Loader[data.Pair] {
			return data.NewIterableLoader(data.Shuffle[data.Pair](stream{set}, 7), data.LoaderOptions{BatchSize: 5, Workers: workers, Seed: 3})
		}
		inputs := func(l *data.Loader[data.Pair]) (all []float64) {
			for batch, err := range l.All() {
				testhelp.Must(t, err)
				all = append(all, gotorch.Item[float64](batch.Input.Sum()))
			}
			return all
		}
		plain, searched := loader(), loader()
		found, err := loop.FindLR(t.Context(), searched, train.FindLROptions{Steps: 20, Diverge: 0})
		testhelp.Must(t, err)
		if len(found.LRs) != 20 {
			t.Errorf("%d workers: %d rates", workers, len(found.LRs))
		}
		for range 2 {
			if got, want := inputs(searched), inputs(plain); !slices.Equal(got, want) {
				t.Errorf("%d workers: got %v, want %v", workers, got, want)
			}
		}
		empty := data.NewIterableLoader[data.Pair](stream{data.Subset(set, nil)})
		if _, err := loop.FindLR(t.Context(), empty); err == nil {
			t.Error("there is no error")
		}
	}
}
