package swautils_test

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim/swautils"
)

func ExampleAveragedModel() {
	model := nn.Linear(1, 1, nn.LinearOptions{NoBias: true})
	average := swautils.AveragedModel(model)
	for _, weight := range []float64{1, 2, 6} { // what an optimiser makes of it
		gotorch.NoGrad(func() { model.Weight.Fill_(weight) })
		average.UpdateParameters(model)
	}
	fmt.Println(gotorch.Item[float64](average.Model.Weight), gotorch.Item[int64](average.NAveraged))
	// Output: 3 3
}

type batches struct {
	list []data.Pair
	err  error
}

func (b batches) All() iter.Seq2[data.Pair, error] {
	return func(yield func(data.Pair, error) bool) {
		for _, p := range b.list {
			if !yield(p, nil) {
				return
			}
		}
		if b.err != nil {
			yield(data.Pair{}, b.err)
		}
	}
}

func TestUpdateBNLeavesTheModelAsItWas(t *testing.T) {
	norm := nn.BatchNorm1d(2, nn.BatchNorm1dOptions{Momentum: 0.3})
	model := nn.Sequential(nn.Linear(3, 2), norm)
	model.Eval()
	x := gotorch.Randn([]int64{8, 3})
	check := func(name string) {
		t.Helper()
		if norm.CumulativeAverage || norm.Momentum != 0.3 || model.Training() || norm.Training() {
			t.Errorf("%s: momentum %v, cumulative %v, training %v", name, norm.Momentum, norm.CumulativeAverage, norm.Training())
		}
	}
	if err := swautils.UpdateBN(batches{list: []data.Pair{{Input: x}, {Input: x}}}, model); err != nil {
		t.Error(err)
	}
	check("after all")
	if got := gotorch.Item[int64](norm.NumBatchesTracked); got != 2 {
		t.Errorf("%d batches", got)
	}
	broken := errors.New("broken")
	if err := swautils.UpdateBN(batches{[]data.Pair{{Input: x}}, broken}, model); err != broken {
		t.Errorf("got %v", err)
	}
	check("after an error")
	if err := gotorch.Try0(func() { swautils.UpdateBN(batches{list: []data.Pair{{Input: gotorch.Ones([]int64{2, 7})}}}, model) }); err == nil {
		t.Error("inputs of another shape are taken")
	}
	check("after a panic")
	if err := gotorch.Try0(func() { swautils.UpdateBN[data.Pair](nil, model) }); !errors.Is(err, gotorch.TypeError) {
		t.Errorf("got %v", err)
	}
}

func TestModelsThatDoNotFitChangeNothing(t *testing.T) {
	average := swautils.AveragedModel(nn.Linear(3, 2))
	before := fmt.Sprint(average.StateDict())
	for name, fn := range map[string]func(){
		"another shape":   func() { average.UpdateParameters(nn.Linear(2, 2)) },
		"fewer tensors":   func() { average.UpdateParameters(nn.Linear(3, 2, nn.LinearOptions{NoBias: true})) },
		"nil":             func() { average.UpdateParameters((*nn.LinearModule)(nil)) },
		"no model":        func() { average.UpdateParameters(nil) },
		"a decay above 1": func() { swautils.GetEMAAvgFn(swautils.EMAOptions{Decay: 1.5}) },
		"both functions": func() {
			swautils.AveragedModel(nn.Linear(3, 2), swautils.AveragedModelOptions{AvgFn: swautils.GetSWAAvgFn(), MultiAvgFn: swautils.GetSWAMultiAvgFn()})
		},
	} {
		var e *gotorch.Error
		if err := gotorch.Try0(fn); !errors.As(err, &e) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	model, calls := nn.Linear(3, 2), 0
	own := swautils.AveragedModel(model, swautils.AveragedModelOptions{AvgFn: func(averaged, current, n gotorch.Tensor) gotorch.Tensor {
		if calls++; calls == 2 {
			panic("no more")
		}
		return current.MulScalar(2)
	}})
	own.UpdateParameters(model)
	beforeOwn := fmt.Sprint(own.StateDict())
	func() {
		defer func() { recover() }()
		own.UpdateParameters(model)
	}()
	if after := fmt.Sprint(own.StateDict()); after != beforeOwn {
		t.Errorf("after a panic: %s, not %s", after, beforeOwn)
	}
	if after := fmt.Sprint(average.StateDict()); after != before {
		t.Errorf("the average is %s, not %s", after, before)
	}
}
