package functional_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	F "gotorch.dev/gotorch/nn/functional"
)

func ExampleGroupedMM() {
	// Three tokens go to the first of two experts, one to the second.
	tokens := gotorch.Ones([]int64{4, 8})
	experts := gotorch.Stack([]gotorch.Tensor{gotorch.Ones([]int64{8, 4}), gotorch.Full([]int64{8, 4}, 2.0)})
	ends := gotorch.FromSlice([]int32{3, 4})
	fmt.Println(F.GroupedMM(tokens, experts, F.GroupedMMOptions{Offs: ends}))
	// Output:
	// tensor([[ 8.,  8.,  8.,  8.],
	//         [ 8.,  8.,  8.,  8.],
	//         [ 8.,  8.,  8.,  8.],
	//         [16., 16., 16., 16.]])
}

func ExampleScaledMM() {
	// Matrices of float8 numbers, each with the number that they were divided by.
	a := gotorch.Ones([]int64{16, 16}).To(gotorch.Float8E4M3FN)
	b := gotorch.Ones([]int64{16, 16}).To(gotorch.Float8E4M3FN)
	scaleA, scaleB := gotorch.FromSlice([]float32{0.5}), gotorch.FromSlice([]float32{3})
	one := []F.ScalingType{F.ScalingTensorWise}
	y := F.ScaledMM(a, b, []gotorch.Tensor{scaleA}, one, []gotorch.Tensor{scaleB}, one,
		F.ScaledMMOptions{OutputDType: gotorch.Float32})
	fmt.Println(y.Index(gotorch.At(0), gotorch.Slice(0, 2)), y.Shape())
	// Output: tensor([24., 24.]) [16 16]
}

func TestScalingsThatPyTorchHasNotAreValueErrors(t *testing.T) {
	x := gotorch.Ones([]int64{16, 16}).To(gotorch.Float8E4M3FN)
	scale, row := []gotorch.Tensor{gotorch.Ones([]int64{1})}, []F.ScalingType{F.ScalingRowWise}
	for part, fn := range map[string]func(){
		"functional.ScaledMM: ValueError: 6 is no ScalingType: they go from 0 to 5": func() {
			F.ScaledMM(x, x, scale, []F.ScalingType{6}, scale, row)
		},
		"functional.ScaledGroupedMM: ValueError: -1 is no ScalingType": func() {
			F.ScaledGroupedMM(x, x, scale, row, scale, []F.ScalingType{-1})
		},
		"functional.ScaledAddMM_: ValueError: 3 is no SwizzleType: they go from 0 to 2": func() {
			F.ScaledAddMM_(x, x, x, scale, row, scale, row, F.ScaledAddMMOptions{SwizzleB: []F.SwizzleType{3}})
		},
	} {
		err := gotorch.Try0(fn)
		if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q", err, part)
		}
	}
}

func TestAProductOfNoTensorIsAnError(t *testing.T) {
	x, recipe := gotorch.Ones([]int64{16, 16}), []F.ScalingType{F.ScalingTensorWise}
	for _, fn := range []func(){
		func() { F.GroupedMM(gotorch.Tensor{}, x) },
		func() { F.ScaledMM(x, gotorch.Tensor{}, []gotorch.Tensor{x}, recipe, []gotorch.Tensor{x}, recipe) },
		func() { F.ScaledMM(x, x, []gotorch.Tensor{{}}, recipe, []gotorch.Tensor{x}, recipe) },
	} {
		if _, ok := gotorch.Try0(fn).(*gotorch.Error); !ok {
			t.Error("no typed error")
		}
	}
}
