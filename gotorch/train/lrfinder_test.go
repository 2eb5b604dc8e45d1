package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
)

// whole is all that there is of a model and an optimiser, as texts.
func whole(model *nn.SequentialModule, opt optim.Optimizer) (all []string) {
	for name, t := range model.StateDict() {
		all = append(all, fmt.Sprint(name, gotorch.ToSlice[float64](t.To(gotorch.Float64))))
	}
	for name, p := range model.NamedParameters() {
		grad := "none"
		if p.Grad().Defined() {
			grad = fmt.Sprint(gotorch.ToSlice[float64](p.Grad().To(gotorch.Float64)))
		}
		all = append(all, "gradient "+name+grad)
	}
	for name, m := range model.NamedModules() {
		all = append(all, fmt.Sprint("mode ", name, m.Training()))
	}
	all = append(all, fmt.Sprint(opt.StateDict()),
		fmt.Sprint(gotorch.ToSlice[uint8](gotorch.DefaultGenerator(gotorch.CPU).State())))
	slices.Sort(all)
	return all
}

func TestFindLRLeavesEverythingAsItWas(t *testing.T) {
	optimisers := map[string]func(p []gotorch.Tensor) optim.Optimizer{
		"SGD":   func(p []gotorch.Tensor) optim.Optimizer { return optim.SGD(p, optim.SGDOptions{Momentum: 0.9}) },
		"AdamW": func(p []gotorch.Tensor) optim.Optimizer { return optim.AdamW(p) },
		"LBFGS": func(p []gotorch.Tensor) optim.Optimizer { return optim.LBFGS(p) },
	}
	for name, opt := range optimisers {
		for _, trained := range []bool{false, true} {
			for _, how := range []string{"whole", "failed", "cancelled"} {
				if how != "whole" && (name != "AdamW" || !trained) {
					continue
				}
				gotorch.ManualSeed(4)
				model := nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
				opt := opt(model.Parameters())
				loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
				if name != "LBFGS" {
					loop.Accumulate(2)
				}
				loader := loader(95)
				if trained {
					_, err := loop.Run(t.Context(), loader, train.Steps(13))
					testhelp.Must(t, err)
				}
				model.Layers[1].Train(false)
				ctx, cancel := context.WithCancel(t.Context())
				calls := 0
				loop.OnBackward(func(*train.Step) error {
					if calls++; calls == 9 && how == "failed" {
						return errDisk
					} else if calls == 9 && how == "cancelled" {
						cancel()
					}
					return nil
				})
				before := whole(model, opt)
				found, err := loop.FindLR(ctx, loader, train.FindLROptions{Steps: 12, End: 1})
				switch how {
				case "whole":
					testhelp.Must(t, err)
					if len(found.LRs) == 0 || len(found.LRs) != len(found.Smoothed) {
						t.Errorf("found %+v", found)
					}
				case "failed":
					if !errors.Is(err, errDisk) {
						t.Errorf("got %v", err)
					}
				default:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("got %v", err)
					}
				}
				after := whole(model, opt)
				for i := range before {
					if before[i] != after[i] {
						t.Errorf("%s, trained %v, %s: before %.300s, after %.300s", name, trained, how, before[i], after[i])
						break
					}
				}
				cancel()
			}
		}
	}
}

// failing is a data set whose sample of a number panics, or is an error.
type failing struct {
	*data.TensorDataset
	at     int
	panics bool
}

func (b failing) At(i int) (data.Pair, error) {
	if i == b.at {
		if b.panics {
			panic("broken")
		}
		return data.Pair{}, errDisk
	}
	return b.TensorDataset.At(i)
}

func (b failing) Batch([]int) {} // another method than that of TensorDataset, so that samples are asked for

// What follows is what would have followed: a loop that was left begins a new epoch, one that is under way goes on, and a
// state that was loaded is gone on from.
func TestALoaderIsWhereItWasAfterFindLR(t *testing.T) {
	samplers := map[string]func(o *data.LoaderOptions){
		"seed":     func(o *data.LoaderOptions) { o.Shuffle, o.Seed = true, 3 },
		"no seed":  func(o *data.LoaderOptions) { o.Shuffle = true },
		"in order": func(*data.LoaderOptions) {},
		"generator": func(o *data.LoaderOptions) {
			o.Shuffle, o.Generator = true, gotorch.NewGenerator(gotorch.CPU).ManualSeed(5)
		},
		"sampler": func(o *data.LoaderOptions) {
			o.Sampler = data.RandomSampler(points(38), data.RandomSamplerOptions{Generator: gotorch.NewGenerator(gotorch.CPU).ManualSeed(5)})
		},
	}
	for name, set := range samplers {
		for _, workers := range []int{0, 2} {
			for _, where := range []string{"new", "left", "at the end", "loaded", "within"} {
				run := func(find bool) (order []float32) {
					gotorch.ManualSeed(1)
					o := data.LoaderOptions{BatchSize: 5, Workers: workers}
					set(&o)
					loader := data.NewLoader(points(38), o)
					model := nn.Linear(2, 2)
					loop := train.NewLoop(model, optim.SGD(model.Parameters()), nn.CrossEntropyLoss())
					try := func() {
						if find {
							_, err := loop.FindLR(t.Context(), loader, train.FindLROptions{Steps: 11})
							testhelp.Must(t, err)
						}
					}
					epoch := func(stop int) {
						n := 0
						for b, err := range loader.All() {
							testhelp.Must(t, err)
							order = append(order, gotorch.ToSlice[float32](b.Input.Flatten())...)
							if n++; n == stop {
								if where != "within" {
									break
								}
								try()
							}
						}
					}
					switch where {
					case "left", "within":
						epoch(3)
					case "at the end":
						epoch(-1)
					case "loaded":
						epoch(3)
						testhelp.Must(t, loader.LoadStateDict(loader.StateDict()))
					}
					if where != "within" {
						try()
					}
					epoch(-1)
					epoch(2)
					epoch(-1)
					return order
				}
				if want, got := run(false), run(true); !slices.Equal(got, want) {
					t.Errorf("%s, %d workers, %s: the order is\n%v, not\n%v", name, workers, where, got, want)
				}
			}
		}
	}
}

func TestFindLRThatEndsEarlyLeavesEverythingAsItWas(t *testing.T) {
	for _, how := range []string{"the loss panics", "the loss ends its goroutine", "a hook panics", "a sample is an error", "a sample panics", "the loss is NaN"} {
		for _, workers := range []int{0, 2} {
			gotorch.ManualSeed(4)
			model := nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 2))
			opt := optim.AdamW(model.Parameters())
			calls, within := 0, false
			loop := train.NewLoop(model, opt, nn.LossFunc(func(o, y gotorch.Tensor) gotorch.Tensor {
				if calls++; within && calls > 5 {
					switch how {
					case "the loss panics":
						panic("no more")
					case "the loss ends its goroutine":
						runtime.Goexit()
					case "the loss is NaN":
						return o.Sum().MulScalar(math.NaN())
					}
				}
				return o.Sum()
			}))
			set := data.NewTensorDataset(gotorch.Rand([]int64{40, 2}), gotorch.Arange(40))
			samples := failing{TensorDataset: set, at: -1}
			loader := data.NewLoader[data.Pair](&samples, data.LoaderOptions{BatchSize: 4, Shuffle: true, Seed: 3, Workers: workers})
			_, err := loop.Run(t.Context(), loader, train.Steps(3))
			testhelp.Must(t, err)
			n := 0
			for range loader.All() { // left by a break
				if n++; n == 2 {
					break
				}
			}
			loop.OnBackward(func(*train.Step) error {
				if within && how == "a hook panics" && calls > 5 {
					panic("no more")
				}
				return nil
			})
			switch how {
			case "a sample is an error":
				samples.at = 7
			case "a sample panics":
				samples.at, samples.panics = 7, true
			}
			before, position := whole(model, opt), fmt.Sprint(loader.StateDict())
			calls, within = 0, true
			ended := make(chan struct{})
			var found *train.LRRange
			returned := false
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				found, err = loop.FindLR(t.Context(), loader, train.FindLROptions{Steps: 30})
				returned = true
			}()
			<-ended
			within = false
			if how == "the loss is NaN" {
				if err != nil || !found.Diverged || len(found.LRs) != 5 {
					t.Errorf("%s: %+v, %v", how, found, err)
				}
			} else if returned && err == nil {
				t.Errorf("%s, %d workers: it found %+v", how, workers, found)
			}
			if after := whole(model, opt); !slices.Equal(after, before) {
				t.Errorf("%s, %d workers: after %.500s, before %.500s", how, workers, after, before)
			}
			if after := fmt.Sprint(loader.StateDict()); after != position {
				t.Errorf("%s, %d workers: the loader is at %s, not %s", how, workers, after, position)
			}
		}
	}
}

func TestFindLRFindsWhereTheLossFalls(t *testing.T) {
	// A parabola: a step with the rate r takes x to (1-r)x, so that the loss falls fastest below r = 1, and rises from 2 on.
	for _, linear := range []bool{false, true} {
		x := gotorch.Ones([]int64{1, 1}).MulScalar(3)
		model := nn.Linear(1, 1, nn.LinearOptions{NoBias: true})
		gotorch.NoGrad(func() { model.Weight.Copy_(x) })
		set := data.NewTensorDataset(gotorch.Ones([]int64{4, 1}), gotorch.Zeros([]int64{4, 1}))
		loop := train.NewLoop(model, optim.SGD(model.Parameters()), nn.LossFunc(func(o, y gotorch.Tensor) gotorch.Tensor {
			return o.Sub(y).Pow(2).Mean().DivScalar(2)
		}))
		o := train.FindLROptions{Start: 1e-4, End: 100, Steps: 200, Linear: linear, Smoothing: 0.0}
		if linear {
			o.Start, o.End = 1e-3, 3
		}
		found, err := loop.FindLR(t.Context(), data.NewLoader(set, data.LoaderOptions{BatchSize: 4}), o)
		testhelp.Must(t, err)
		w := 3.0
		for i, loss := range found.Losses {
			if want := w * w / 2; math.Abs(loss-want) > 1e-4*want+1e-12 {
				t.Fatalf("loss %d is %v, want %v", i, loss, want)
			}
			w = float64(float32(w) - float32(found.LRs[i])*float32(w))
		}
		if !(found.Suggestion > 1e-3 && found.Suggestion < 1) {
			t.Errorf("suggested is %v", found.Suggestion)
		}
		if !linear && (!found.Diverged || len(found.LRs) >= 200) {
			t.Errorf("the last of %d rates is %v", len(found.LRs), found.LRs[len(found.LRs)-1])
		}
		if model.Weight.Grad().Defined() || gotorch.Item[float64](model.Weight) != 3 {
			t.Error("the model has changed")
		}
	}
	loop, _, _ := newLoop(0.1)
	for _, o := range []train.FindLROptions{{Start: 0.0}, {Start: 2, End: 1}, {Steps: 1}, {Smoothing: 1}, {Diverge: -1}, {End: math.Inf(1)}} {
		if err := gotorch.Try0(func() { _, _ = loop.FindLR(t.Context(), loader(95), o) }); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	steps := train.NewStepLoop(func(*train.Step) error { return nil })
	if err := gotorch.Try0(func() { _, _ = steps.FindLR(t.Context(), loader(95)) }); !errors.Is(err, gotorch.RuntimeError) {
		t.Errorf("got %v", err)
	}
	if _, err := loop.FindLR(t.Context(), none{}); err == nil || !strings.Contains(err.Error(), "no batches") {
		t.Errorf("got %v", err)
	}
}

// counting is a layer with a buffer that no state dict has.
type counting struct {
	nn.Module
	Linear *nn.LinearModule
	Calls  gotorch.Tensor `nn:"calls,transient"`
}

func (c *counting) Forward(x gotorch.Tensor) gotorch.Tensor {
	c.Calls.AddScalar_(1)
	return nn.Call(c.Linear, x)
}

func TestFindLRPutsBuffersBackThatNoStateDictHas(t *testing.T) {
	model := nn.Init(&counting{Linear: nn.Linear(2, 2), Calls: gotorch.Ones([]int64{})})
	loop := train.NewLoop(model, optim.SGD(model.Parameters()), nn.CrossEntropyLoss())
	_, err := loop.FindLR(t.Context(), loader(95), train.FindLROptions{Steps: 5})
	testhelp.Must(t, err)
	if calls := gotorch.Item[float64](model.Calls); calls != 1 {
		t.Errorf("the buffer is %v", calls)
	}
}

// A data.Loader is Stateful, as BatchesOf says.
var _ train.Stateful = (*data.Loader[data.Pair])(nil)

func TestFindLRPutsALoaderBack(t *testing.T) {
	for _, o := range []data.LoaderOptions{
		{BatchSize: 5, Shuffle: true, Seed: 3}, {BatchSize: 5, Shuffle: true, Seed: 3, Workers: 2},
		{BatchSize: 5, Shuffle: true, Generator: gotorch.NewGenerator(gotorch.CPU).ManualSeed(4)},
		{BatchSize: 5, Shuffle: true},
	} {
		for _, taken := range []int{-1, 0, 2, 8} { // batches before; all of them, and a second epoch
			loader := data.NewLoader(points(38), o)
			model := nn.Linear(2, 2)
			loop := train.NewLoop(model, optim.SGD(model.Parameters()), nn.CrossEntropyLoss())
			if taken == 0 {
				for range loader.All() {
					break
				}
			}
			n := 0
			for taken > 0 {
				for range loader.All() {
					if n++; n == taken {
						break
					}
				}
				if n >= taken {
					break
				}
			}
			before := fmt.Sprint(loader.StateDict())
			order := func() (order []float32) {
				gotorch.ManualSeed(9)
				for range 2 {
					for b, err := range loader.All() {
						testhelp.Must(t, err)
						order = append(order, gotorch.ToSlice[float32](b.Input.Flatten())...)
					}
				}
				return order
			}
			state := loader.StateDict()
			testhelp.Must(t, loader.LoadStateDict(state))
			want := order()
			testhelp.Must(t, loader.LoadStateDict(state))
			_, err := loop.FindLR(t.Context(), loader, train.FindLROptions{Steps: 11})
			testhelp.Must(t, err)
			if after := fmt.Sprint(loader.StateDict()); after != before {
				t.Errorf("%+v, %d: the state is\n%s\nwant\n%s", o, taken, after, before)
			}
			if got := order(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%+v, %d: another order", o, taken)
			}
		}
	}
}
