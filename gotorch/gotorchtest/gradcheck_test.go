package gotorchtest_test

import (
	"errors"
	"fmt"

	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
)

func ExampleGradCheck() {
	x := gotorch.NewTensor([]float64{1, 2, 3}, gotorch.TensorOptions{RequiresGrad: true})
	cube := func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{in[0].Pow(3)} }
	fmt.Println(gotorchtest.GradCheck(cube, []gotorch.Tensor{x}))
	fmt.Println(gotorchtest.GradGradCheck(cube, []gotorch.Tensor{x}))

	detached := func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{in[0].Mul(in[0].Detach())} }
	var wrong *gotorchtest.GradCheckError
	if err := gotorchtest.GradCheck(detached, []gotorch.Tensor{x}); errors.As(err, &wrong) {
		fmt.Printf("result %d, input %d, by up to %.3f\n", wrong.Output, wrong.Input, wrong.Difference)
	}
	// Output:
	// <nil>
	// <nil>
	// result 0, input 0, by up to 3.000
}

func doubles(shape ...int64) gotorch.Tensor {
	return gotorch.Rand(shape, gotorch.TensorOptions{DType: gotorch.Float64}).AddScalar(0.5).RequiresGrad_()
}

type operation = func(in []gotorch.Tensor) []gotorch.Tensor

// one is a function of the first input with one result.
func one(f func(x gotorch.Tensor) gotorch.Tensor) operation {
	return func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{f(in[0])} }
}

func TestGradCheckOfFunctions(t *testing.T) {
	everything := gotorchtest.GradCheckOptions{CheckGradDTypes: true, CheckBatchedGrad: true, CheckForwardAD: true, CheckBatchedForwardGrad: true}
	fast := everything
	fast.FastMode = true
	onlyForward := gotorchtest.GradCheckOptions{CheckForwardAD: true, NoCheckBackwardAD: true}
	complexes := gotorch.Randn([]int64{4}, gotorch.TensorOptions{DType: gotorch.Complex128, RequiresGrad: true})
	x := doubles(2, 3)
	for name, test := range map[string]struct {
		f      operation
		inputs []gotorch.Tensor
	}{
		"exp":              {one(gotorch.Tensor.Exp), []gotorch.Tensor{x}},
		"not contiguous":   {one(func(x gotorch.Tensor) gotorch.Tensor { return x.Exp().Transpose(0, 1) }), []gotorch.Tensor{x.Detach().Transpose(0, 1).RequiresGrad_()}},
		"the input itself": {one(func(x gotorch.Tensor) gotorch.Tensor { return x }), []gotorch.Tensor{x}},
		"no elements":      {one(gotorch.Tensor.Exp), []gotorch.Tensor{doubles(0, 3)}},
		"a scalar":         {one(gotorch.Tensor.Log), []gotorch.Tensor{doubles()}},
		"several": {func(in []gotorch.Tensor) []gotorch.Tensor {
			return []gotorch.Tensor{in[0].Mul(in[1]), in[0].GtScalar(0), in[1].Sum(), in[0].Detach().MulScalar(0)}
		}, []gotorch.Tensor{x, doubles(3), {}, gotorch.Arange(3)}},
		"complex":         {one(func(z gotorch.Tensor) gotorch.Tensor { return z.Mul(z.Conj()).Add(z.Exp()) }), []gotorch.Tensor{complexes}},
		"complex to real": {one(func(z gotorch.Tensor) gotorch.Tensor { return z.Abs() }), []gotorch.Tensor{complexes}},
		"real to complex": {one(func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Complex(x, x.Square()) }), []gotorch.Tensor{x}},
	} {
		for _, opt := range []gotorchtest.GradCheckOptions{{}, {FastMode: true}, everything, fast, onlyForward} {
			if err := gotorchtest.GradCheck(test.f, test.inputs, opt); err != nil {
				t.Errorf("%s with %+v: %v", name, opt, err)
			}
		}
		for _, opt := range []gotorchtest.GradGradCheckOptions{{}, {FastMode: true, CheckFwdOverRev: true}, {GenNonContigGradOutputs: true, CheckBatchedGrad: true}} {
			if err := gotorchtest.GradGradCheck(test.f, test.inputs, opt); err != nil {
				t.Errorf("second gradient of %s with %+v: %v", name, opt, err)
			}
		}
	}
}
