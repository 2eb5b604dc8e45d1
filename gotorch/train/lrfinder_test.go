package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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
