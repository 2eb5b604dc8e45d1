package prune_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils/parametrizations"
	"gotorch.dev/gotorch/nn/utils/prune"
)

func Example() {
	layer := nn.Linear(2, 2, nn.LinearOptions{NoBias: true})
	layer.Weight = nn.Parameter(gotorch.NewTensor([][]float32{{1, -4}, {3, 2}}))
	prune.L1Unstructured(layer, "weight", 0.5)
	fmt.Println(layer.StateDict().Names(), prune.IsPruned(layer))
	fmt.Println(gotorch.ToSlice[float64](layer.Weight))
	prune.Remove(layer, "weight")
	fmt.Println(layer.StateDict().Names(), prune.IsPruned(layer))
	// Output:
	// [weight_mask weight_orig] true
	// [0 -4 3 0]
	// [weight] false
}

func ExampleGlobalUnstructured() {
	first, second := nn.Linear(4, 4), nn.Linear(4, 2)
	prune.GlobalUnstructured([]prune.Parameter{{Module: first, Name: "weight"}, {Module: second, Name: "weight"}},
		&prune.L1UnstructuredMethod{Amount: 6})
	zeros := first.Weight.EqScalar(0).Sum().Add(second.Weight.EqScalar(0).Sum())
	fmt.Println(gotorch.Item[int](zeros))
	// Output:
	// 6
}

// failing is a method that does not return.
type failing struct{ how func() }

func (failing) PruningType() prune.PruningType { return prune.Unstructured }

func (f failing) ComputeMask(t, mask gotorch.Tensor) gotorch.Tensor {
	f.how()
	return gotorch.Tensor{}
}

func TestWhatFailsPrunesNothing(t *testing.T) {
	layer := nn.Linear(3, 3)
	weight := layer.Weight
	x := gotorch.Ones([]int64{2, 3})
	for _, pruned := range []bool{false, true} {
		if pruned {
			prune.RandomUnstructured(layer, "weight", 3)
		}
		want, mask := layer.Forward(x), layer.StateDict()["weight_mask"]
		for _, how := range []func(){func() { panic("no") }, runtime.Goexit, func() {}} {
			done := make(chan bool)
			go func() {
				defer close(done)
				defer func() { recover() }()
				prune.Apply(layer, "weight", failing{how})
			}()
			<-done
		}
		if prune.IsPruned(layer) != pruned || !layer.Forward(x).Equal(want) {
			t.Error("a method that failed has changed the module")
		}
		if pruned && !layer.StateDict()["weight_mask"].Equal(mask) {
			t.Error("the mask is another one")
		}
	}
	if prune.Remove(layer, "weight"); layer.Weight != weight {
		t.Error("the weight is another tensor")
	}
}

func TestMisuse(t *testing.T) {
	layer := nn.Linear(3, 3)
	for name, c := range map[string]struct {
		kind error
		fn   func()
	}{
		"no method":    {gotorch.TypeError, func() { prune.Apply(layer, "weight", nil) }},
		"no amount":    {gotorch.TypeError, func() { prune.RandomUnstructured(layer, "weight", nil) }},
		"a bool":       {gotorch.TypeError, func() { prune.RandomUnstructured(layer, "weight", true) }},
		"NaN":          {gotorch.ValueError, func() { prune.RandomUnstructured(layer, "weight", math.NaN()) }},
		"no norm":      {gotorch.TypeError, func() { prune.LnStructured(layer, "weight", 1, nil, 0) }},
		"another norm": {gotorch.ValueError, func() { prune.LnStructured(layer, "weight", 1, "other", 0) }},
		"no mask":      {gotorch.TypeError, func() { prune.CustomFromMask(layer, "weight", gotorch.Tensor{}) }},
		"a buffer":     {gotorch.ValueError, func() { prune.Identity(nn.BatchNorm1d(3), "running_mean") }},
		"lazy":         {gotorch.ValueError, func() { prune.Identity(nn.LazyLinear(3), "weight") }},
		"parametrized": {gotorch.ValueError, func() { prune.Identity(parametrizations.WeightNorm(nn.Linear(3, 3)), "weight") }},
		"pruned":       {gotorch.ValueError, func() { parametrizations.WeightNorm(prune.Identity(nn.Linear(3, 3), "weight")) }},
		"nothing":      {gotorch.ValueError, func() { prune.GlobalUnstructured(nil, &prune.IdentityMethod{}) }},
		"structured": {gotorch.TypeError, func() {
			prune.GlobalUnstructured([]prune.Parameter{{Module: layer, Name: "weight"}}, &prune.RandomStructuredMethod{Amount: 1})
		}},
		"no such method": {gotorch.IndexError, func() { prune.PruningContainer().At(0) }},
		"empty":          {gotorch.ValueError, func() { prune.PruningContainer().ComputeMask(layer.Weight, layer.Weight) }},
	} {
		if err := gotorch.Try0(c.fn); !errors.Is(err, c.kind) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if prune.IsPruned(layer) || len(layer.StateDict()) != 2 {
		t.Error("an error has changed the module")
	}
}

func TestAPrunedLayerOfNoElements(t *testing.T) {
	layer := nn.Linear(0, 3)
	prune.L1Unstructured(layer, "weight", 0.5)
	if got := layer.Forward(gotorch.Ones([]int64{2, 0})).Shape(); got[1] != 3 {
		t.Errorf("the shape is %v", got)
	}
}

func TestNoModuleIsATypeError(t *testing.T) {
	var none nn.Modular
	for name, fn := range map[string]func(){
		"Identity": func() { prune.Identity(none, "weight") },
		"Remove":   func() { prune.Remove(none, "weight") },
		"MethodOf": func() { prune.MethodOf(none, "weight") },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, gotorch.TypeError) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
