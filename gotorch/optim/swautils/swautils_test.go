package swautils_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
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

// The statistics are those of a loader of pairs with the same inputs.
func TestUpdateBNTakesRows(t *testing.T) {
	x, y := gotorch.Randn([]int64{10, 3}), gotorch.Randn([]int64{10})
	after := func(update func(model nn.Layer) error) []float32 {
		norm := nn.BatchNorm1d(3)
		if err := update(norm); err != nil {
			t.Fatal(err)
		}
		return append(gotorch.ToSlice[float32](norm.RunningMean), gotorch.ToSlice[float32](norm.RunningVar)...)
	}
	o := data.LoaderOptions{BatchSize: 4}
	want := after(func(m nn.Layer) error { return swautils.UpdateBN(data.NewLoader(data.NewTensorDataset(x, y), o), m) })
	for _, rows := range [][]gotorch.Tensor{{x}, {x, y}, {x, y, y}} {
		got := after(func(m nn.Layer) error { return swautils.UpdateBN(data.NewLoader(data.TensorRows(rows...), o), m) })
		if !slices.Equal(got, want) {
			t.Errorf("%d tensors: got %v, want %v", len(rows), got, want)
		}
	}
	none := data.NewLoaderWith(data.TensorRows(x), func([][]gotorch.Tensor) ([]gotorch.Tensor, error) { return nil, nil })
	if err := gotorch.Try0(func() { _ = swautils.UpdateBN(none, nn.BatchNorm1d(3)) }); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("got %v", err)
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

// where is a layer that notes on which device its input is.
type where struct {
	nn.Module
	Norm   *nn.BatchNorm1dModule
	device gotorch.Device
}

func (w *where) Forward(x gotorch.Tensor) gotorch.Tensor {
	w.device = x.Device()
	return x
}

func TestUpdateBNMovesInputsToTheDevice(t *testing.T) {
	model := nn.Init(&where{Norm: nn.BatchNorm1d(2)})
	loader := batches{list: []data.Pair{{Input: gotorch.Ones([]int64{4, 2})}}}
	for _, device := range []gotorch.Device{gotorch.Meta, gotorch.CPU} {
		if err := swautils.UpdateBN(loader, model, swautils.UpdateBNOptions{Device: device}); err != nil || model.device != device {
			t.Errorf("the input is on %v, not %v: %v", model.device, device, err)
		}
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

// counted is a module with a parameter, and a buffer of whole numbers.
type counted struct {
	nn.Module
	Weight gotorch.Tensor
	Steps  gotorch.Tensor `nn:"steps,buffer"`
}

func newCounted() *counted {
	return nn.Init(&counted{Weight: nn.Parameter(gotorch.Zeros([]int64{2})), Steps: gotorch.Zeros([]int64{}, gotorch.TensorOptions{DType: gotorch.Int64})})
}

// Expected values are those of torch.optim.swa_utils, where the weight is 1, 2, 6 and the buffer 10, 20, 60.
func TestAveragesAndWhatTheyCount(t *testing.T) {
	var counts []int64
	own := func(averaged, current, n gotorch.Tensor) gotorch.Tensor {
		counts = append(counts, gotorch.Item[int64](n))
		return averaged.Add(current)
	}
	for name, c := range map[string]struct {
		options       swautils.AveragedModelOptions
		weight, steps float64
	}{
		"default":       {swautils.AveragedModelOptions{}, 3, 60},
		"equal":         {swautils.AveragedModelOptions{AvgFn: swautils.GetSWAAvgFn()}, 3, 60},
		"equal, many":   {swautils.AveragedModelOptions{MultiAvgFn: swautils.GetSWAMultiAvgFn()}, 3, 60},
		"moving":        {swautils.AveragedModelOptions{AvgFn: swautils.GetEMAAvgFn(swautils.EMAOptions{Decay: 0.75})}, 2.4375, 60},
		"moving, many":  {swautils.AveragedModelOptions{MultiAvgFn: swautils.GetEMAMultiAvgFn(swautils.EMAOptions{Decay: 0.75})}, 2.4375, 60},
		"with buffers":  {swautils.AveragedModelOptions{UseBuffers: true}, 3, 30},
		"one's own":     {swautils.AveragedModelOptions{AvgFn: own}, 9, 60},
		"moving, both":  {swautils.AveragedModelOptions{UseBuffers: true, MultiAvgFn: swautils.GetEMAMultiAvgFn(swautils.EMAOptions{Decay: 0.5})}, 3.75, 37},
		"never changes": {swautils.AveragedModelOptions{AvgFn: swautils.GetEMAAvgFn(swautils.EMAOptions{Decay: 1})}, 1, 60},
		"takes the new": {swautils.AveragedModelOptions{AvgFn: swautils.GetEMAAvgFn(swautils.EMAOptions{Decay: 0})}, 6, 60},
	} {
		model := newCounted()
		average := swautils.AveragedModel(model, c.options)
		for i, v := range []float64{1, 2, 6} {
			gotorch.NoGrad(func() { model.Weight.Fill_(v); model.Steps.Fill_(10 * v) })
			average.UpdateParameters(model)
			if n := gotorch.Item[int64](average.NAveraged); n != int64(i+1) {
				t.Errorf("%s: %d were averaged, not %d", name, n, i+1)
			}
		}
		weight, steps := gotorch.Item[float64](average.Model.Weight.Select(0, 1)), gotorch.Item[float64](average.Model.Steps)
		if weight != c.weight || steps != c.steps {
			t.Errorf("%s: %v and %v, not %v and %v", name, weight, steps, c.weight, c.steps)
		}
		if !average.Model.Weight.RequiresGrad() || average.Model.Steps.DType() != gotorch.Int64 {
			t.Errorf("%s: the averages became something else", name)
		}
	}
	if !slices.Equal(counts, []int64{1, 2}) {
		t.Errorf("the function was told that %v were averaged", counts)
	}
}
