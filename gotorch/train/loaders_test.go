package train_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
)

// counted counts the samples that are asked for.
type counted struct {
	data.Dataset[data.Pair]
	asked *atomic.Int64
}

func (c counted) At(i int) (data.Pair, error) {
	c.asked.Add(1)
	return c.Dataset.At(i)
}

// stream is a set that can begin anywhere and does not tell its length.
type stream struct{ set data.Dataset[data.Pair] }

func (s stream) All() iter.Seq2[data.Pair, error] { return s.From(data.Start{}) }

func (s stream) From(start data.Start) iter.Seq2[data.Pair, error] {
	return func(yield func(data.Pair, error) bool) {
		for i := start.Skip; i < s.set.Len(); i++ {
			if !yield(s.set.At(i)) {
				return
			}
		}
	}
}

// noise changes samples at random.
func noise(p data.Pair, rng *rand.Rand) (data.Pair, error) {
	return data.Pair{Input: p.Input.AddScalar(0.1 * rng.NormFloat64()), Target: p.Target}, nil
}

var resumed = map[string]func(set data.Dataset[data.Pair]) train.Batches{
	"random, workers": func(set data.Dataset[data.Pair]) train.Batches {
		return data.NewLoader(data.Transform(set, noise), data.LoaderOptions{BatchSize: 7, Shuffle: true, Workers: 2})
	},
	"weighted, seeded": func(set data.Dataset[data.Pair]) train.Batches {
		weights := make([]float64, set.Len())
		for i := range weights {
			weights[i] = float64(1 + i%3)
		}
		return data.NewLoader(data.Transform(set, noise), data.LoaderOptions{BatchSize: 7, Seed: 2, Sampler: data.WeightedRandomSampler(weights, 40)})
	},
	"a stream, workers": func(set data.Dataset[data.Pair]) train.Batches {
		return data.NewIterableLoader(data.TransformIterable(data.Shuffle[data.Pair](stream{set}, 9), noise), data.LoaderOptions{BatchSize: 7, Workers: 2})
	},
}

func fit(ctx context.Context, batches train.Batches, folder string, limit train.Limit, hook func(*train.Step) error) (*train.History, []float32, error) {
	gotorch.ManualSeed(8)
	model := nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.3), nn.Linear(4, 2))
	loop := train.NewLoop(model, optim.Adam(model.Parameters()), nn.CrossEntropyLoss())
	if folder != "" {
		loop.Checkpoints(folder, train.CheckpointsOptions{Steps: 4, Resume: true})
	}
	if hook != nil {
		loop.OnStep(hook)
	}
	history, err := loop.Run(ctx, batches, limit)
	return history, gotorch.ToSlice[float32](model.Parameters()[0].Detach()), err
}

// A run of 43 samples in batches of 7 is stopped after each of the steps of two epochs and one more.
func TestARunGoesOnWithTheRestOfALoadersEpoch(t *testing.T) {
	for name, make := range resumed {
		set := points(43)
		const steps = 15
		want, parameters, err := fit(t.Context(), make(set), "", train.Steps(steps), nil)
		testhelp.Must(t, err)
		for stop := 1; stop < steps; stop++ {
			for _, how := range []string{"cancelled", "limit", "failed"} {
				if how == "failed" && stop%4 != 2 {
					continue // half a second of processor time
				}
				folder := t.TempDir()
				ctx, cancel := context.WithCancel(t.Context())
				limit, broken := train.Steps(steps), errors.New("broken")
				if how == "limit" {
					limit = train.Steps(stop)
				}
				_, _, err := fit(ctx, make(set), folder, limit, func(s *train.Step) error {
					if s.Number == stop && how == "cancelled" {
						cancel()
					}
					if s.Number == stop && how == "failed" {
						return broken
					}
					return nil
				})
				cancel()
				if how == "limit" && err != nil || how == "cancelled" && !errors.Is(err, context.Canceled) || how == "failed" && !errors.Is(err, broken) {
					t.Fatal(err)
				}
				asked := counted{set, new(atomic.Int64)}
				got, others, err := fit(t.Context(), make(asked), folder, train.Steps(steps), nil)
				testhelp.Must(t, err)
				if !slices.Equal(got.Losses, want.Losses) || !slices.Equal(others, parameters) {
					t.Fatalf("%s, %s after step %d:\n%v\n%v", name, how, stop, got.Losses, want.Losses)
				}
				// The rest of the steps, what workers prepare ahead, and of a shuffle buffer what was in it.
				if limit := int64((steps-stop+4)*7 + 5*7); how != "failed" && name != "a stream, workers" && asked.asked.Load() > limit {
					t.Errorf("%s, %s after step %d: %d samples were read again", name, how, stop, asked.asked.Load())
				}
			}
		}
	}
}

func TestAnEpochOfUnknownLengthIsOneOfTheBatchesThatThereAre(t *testing.T) {
	set := points(43)
	for _, workers := range []int{0, 2} {
		loader := data.NewIterableLoader[data.Pair](stream{set}, data.LoaderOptions{BatchSize: 10, Workers: workers})
		history, _, err := fit(t.Context(), loader, "", train.Epochs(3), nil)
		if err != nil || len(history.Losses) != 15 || len(history.Epochs) != 3 {
			t.Errorf("%d steps in %d epochs, %v", len(history.Losses), len(history.Epochs), err)
		}
		history, _, err = fit(t.Context(), loader, "", train.Steps(7), nil)
		if err != nil || len(history.Losses) != 7 || len(history.Epochs) != 2 {
			t.Errorf("%d steps in %d epochs, %v", len(history.Losses), len(history.Epochs), err)
		}
	}
	empty := data.NewIterableLoader[data.Pair](stream{data.Subset(set, nil)})
	for _, limit := range []train.Limit{train.Epochs(2), train.Steps(5)} {
		if _, _, err := fit(t.Context(), empty, "", limit, nil); err == nil || fmt.Sprint(err) != "train: there are no batches" {
			t.Errorf("got %v", err)
		}
	}
}

// blocked is a set that gives nothing before its context ends.
type blocked struct{ data.Dataset[data.Pair] }

func (b blocked) AtContext(ctx context.Context, i int) (data.Pair, error) {
	if i < 14 {
		return b.At(i)
	}
	<-ctx.Done()
	return data.Pair{}, ctx.Err()
}

func TestARunIsCancelledWhileItWaitsForABatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	loader := data.NewLoader[data.Pair](blocked{points(43)}, data.LoaderOptions{BatchSize: 7, Workers: 2})
	history, _, err := fit(ctx, loader, t.TempDir(), train.Epochs(3), func(s *train.Step) error {
		if s.Number == 2 {
			go cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(history.Losses) != 2 {
		t.Errorf("got %d steps, %v", len(history.Losses), err)
	}
}

// doubled has a loader within, and batches of its own.
type doubled struct{ *data.Loader[data.Pair] }

func (d doubled) All() iter.Seq2[data.Pair, error] {
	return func(yield func(data.Pair, error) bool) {
		for batch, err := range d.Loader.All() {
			if !yield(data.Pair{Input: batch.Input.MulScalar(2), Target: batch.Target}, err) {
				return
			}
		}
	}
}

func TestBatchesThatEmbedALoaderAreAskedForTheirOwn(t *testing.T) {
	sum := 0.0
	plain := points(10)
	loader := data.NewLoader(plain, data.LoaderOptions{BatchSize: 10})
	_, _, err := fit(t.Context(), doubled{loader}, "", train.Steps(1), func(s *train.Step) error {
		sum = gotorch.Item[float64](s.Batch.Input.Sum())
		return nil
	})
	testhelp.Must(t, err)
	for batch := range loader.All() {
		if want := 2 * gotorch.Item[float64](batch.Input.Sum()); sum != want {
			t.Errorf("got %v, want %v", sum, want)
		}
	}
}

// A loader has given a batch whose step then failed: a checkpoint of that moment would leave the batch out.
func TestABatchThatWasNotLearntFromComesAgain(t *testing.T) {
	run := func(ctx context.Context, folder string, stop func(step int) error) ([]float64, error) {
		loop := train.NewStepLoop(func(s *train.Step) error {
			if err := stop(s.Number); err != nil {
				return err
			}
			s.Record("mean", s.Batch.Input.Mean())
			return nil
		})
		loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
		history, err := loop.Run(ctx, loader(95), train.Epochs(2))
		return history.Series["mean"], err
	}
	goOn := func(int) error { return nil }
	want, err := run(t.Context(), t.TempDir(), goOn)
	testhelp.Must(t, err)
	for _, at := range []int{1, 3, 10, 11, 14} {
		folder := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := run(ctx, folder, func(step int) error {
			if step == at {
				cancel()
			}
			return ctx.Err()
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		got, err := run(t.Context(), folder, goOn)
		testhelp.Must(t, err)
		if !slices.Equal(got, want) {
			t.Errorf("after step %d failed: %v, want %v", at, got, want)
		}
	}
}
