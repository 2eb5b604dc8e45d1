package nninit_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	nninit "gotorch.dev/gotorch/nn/init"
)

func TestImpossibleShapesPanicWithValueErrors(t *testing.T) {
	flat := gotorch.Ones([]int64{3})
	for part, fn := range map[string]func(){
		"fewer than 2 dimensions":    func() { nninit.KaimingUniform_(flat) },
		"only tensors with 3, 4":     func() { nninit.Dirac_(flat) },
		"groups must be positive":    func() { nninit.Dirac_(gotorch.Ones([]int64{3, 1, 1}), nninit.DiracOptions{Groups: -3}) },
		"divisible by groups":        func() { nninit.Dirac_(gotorch.Ones([]int64{3, 1, 1}), nninit.DiracOptions{Groups: 2}) },
		"2 or more dimensions":       func() { nninit.Orthogonal_(flat) },
		"unsupported nonlinearity":   func() { nninit.CalculateGain("gelu") },
		"2 dimensions are supported": func() { nninit.Eye_(flat) },
		"got shape [3]":              func() { nninit.Sparse_(flat, 0.5) },
	} {
		err := gotorch.Try0(fn)
		if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want a ValueError with %q", err, part)
		}
	}
}

func TestSparseRefusesANegativePartAndTakesAllForMore(t *testing.T) {
	x := gotorch.Ones([]int64{4, 2})
	for _, part := range []float64{-0.5, math.NaN()} {
		if err := gotorch.Try0(func() { nninit.Sparse_(x, part) }); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%v: got %v", part, err)
		}
	}
	if sum := gotorch.Item[float64](x.Sum()); sum != 8 {
		t.Error("what was refused has changed the tensor")
	}
	if sum := gotorch.Item[float64](nninit.Sparse_(x, math.Inf(1)).Sum()); sum != 0 {
		t.Errorf("the sum is %v", sum)
	}
}

func TestParametersAreFilledWithoutAGraph(t *testing.T) {
	w := gotorch.Empty([]int64{4, 3}, gotorch.TensorOptions{RequiresGrad: true})
	for _, fill := range []func(gotorch.Tensor){
		func(w gotorch.Tensor) { nninit.TruncNormal_(w) },
		func(w gotorch.Tensor) { nninit.Orthogonal_(w) },
		func(w gotorch.Tensor) { nninit.Sparse_(w, 0.5) },
		func(w gotorch.Tensor) { nninit.Eye_(w) },
		func(w gotorch.Tensor) { nninit.Zeros_(w) },
	} {
		fill(w)
		if !w.IsLeaf() || !w.RequiresGrad() {
			t.Fatal("the parameter became part of a graph")
		}
	}
	if got := gotorch.Item[float32](w.Sum()); got != 0 {
		t.Errorf("the sum of zeros is %v", got)
	}
}

func TestEmptyTensorsAreLeftAlone(t *testing.T) {
	w := gotorch.Empty([]int64{0, 3})
	nninit.KaimingUniform_(w)
	nninit.KaimingNormal_(w)
	nninit.Orthogonal_(w)
}

func Example() {
	w := gotorch.Empty([]int64{2, 3})
	nninit.Constant_(w, 0.5)
	fmt.Println(w)
	fmt.Printf("%.4f\n", nninit.CalculateGain(nninit.ReLU))
	// Output:
	// tensor([[0.5000, 0.5000, 0.5000],
	//         [0.5000, 0.5000, 0.5000]])
	// 1.4142
}
