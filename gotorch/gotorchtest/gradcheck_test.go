package gotorchtest_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"

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

func TestGradCheckRefuses(t *testing.T) {
	x := doubles(2, 3)
	identity := one(func(x gotorch.Tensor) gotorch.Tensor { return x })
	check := func(f operation, inputs []gotorch.Tensor, opts ...gotorchtest.GradCheckOptions) func() {
		return func() { _ = gotorchtest.GradCheck(f, inputs, opts...) }
	}
	calls := 0
	for name, test := range map[string]struct {
		kind gotorch.ErrorKind
		fn   func()
	}{
		"nil":                {gotorch.TypeError, check(nil, []gotorch.Tensor{x})},
		"no inputs":          {gotorch.ValueError, check(identity, nil)},
		"none requires grad": {gotorch.ValueError, check(identity, []gotorch.Tensor{x.Detach(), {}})},
		"a step of 0":        {gotorch.ValueError, check(identity, []gotorch.Tensor{x}, gotorchtest.GradCheckOptions{Eps: 0})},
		"a step of NaN":      {gotorch.ValueError, check(identity, []gotorch.Tensor{x}, gotorchtest.GradCheckOptions{Eps: math.NaN()})},
		"negative":           {gotorch.ValueError, check(identity, []gotorch.Tensor{x}, gotorchtest.GradCheckOptions{NondetTol: -1})},
		"no number":          {gotorch.TypeError, check(identity, []gotorch.Tensor{x}, gotorchtest.GradCheckOptions{RTol: "1"})},
		"nothing":            {gotorch.ValueError, check(identity, []gotorch.Tensor{x}, gotorchtest.GradCheckOptions{NoCheckBackwardAD: true})},
		"batches of nothing": {gotorch.ValueError, check(identity, []gotorch.Tensor{x}, gotorchtest.GradCheckOptions{CheckBatchedForwardGrad: true})},
		"two options":        {gotorch.TypeError, check(identity, []gotorch.Tensor{x}, gotorchtest.GradCheckOptions{}, gotorchtest.GradCheckOptions{})},
		"overlapping":        {gotorch.RuntimeError, check(identity, []gotorch.Tensor{doubles(1, 3).Detach().Expand([]int64{2, 3}).RequiresGrad_()})},
		"sparse input":       {gotorch.ValueError, check(identity, []gotorch.Tensor{x.Detach().ToSparse().RequiresGrad_()})},
		"sparse result":      {gotorch.ValueError, check(one(func(x gotorch.Tensor) gotorch.Tensor { return x.ToSparse() }), []gotorch.Tensor{x})},
		"no result":          {gotorch.TypeError, check(one(func(gotorch.Tensor) gotorch.Tensor { return gotorch.Tensor{} }), []gotorch.Tensor{x})},
		"another shape later": {gotorch.ValueError, check(func(in []gotorch.Tensor) []gotorch.Tensor {
			calls++
			return []gotorch.Tensor{in[0].Reshape([]int64{-1}).Narrow(0, 0, int64(1+calls%3))}
		}, []gotorch.Tensor{x})},
		"too many gradients": {gotorch.ValueError, func() {
			_ = gotorchtest.GradGradCheck(identity, []gotorch.Tensor{x}, gotorchtest.GradGradCheckOptions{GradOutputs: []gotorch.Tensor{x, x}})
		}},
		"undefined without backward": {gotorch.ValueError, func() {
			_ = gotorchtest.GradGradCheck(identity, []gotorch.Tensor{x}, gotorchtest.GradGradCheckOptions{NoCheckRevOverRev: true, CheckFwdOverRev: true})
		}},
	} {
		if err := gotorch.Try0(test.fn); !errors.Is(err, test.kind) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := gotorchtest.GradCheck(func([]gotorch.Tensor) []gotorch.Tensor { return nil }, []gotorch.Tensor{x}); err != nil {
		t.Errorf("without results: %v", err)
	}
	single := gotorchtest.GradCheck(one(gotorch.Tensor.Exp), []gotorch.Tensor{x.Detach().To(gotorch.Float32).RequiresGrad_()})
	if single == nil || !strings.Contains(single.Error(), "rounding hides differences") {
		t.Errorf("single precision: %v", single)
	}
}

// A function that panics, or ends its goroutine, in whatever call, leaves the input and the modes as they were.
func TestGradCheckLeavesTheInputAsItWas(t *testing.T) {
	x := doubles(2, 2)
	before, version := x.Detach().Clone(), x.Version()
	all := gotorchtest.GradCheckOptions{CheckForwardAD: true, CheckBatchedGrad: true, CheckBatchedForwardGrad: true}
	calls, of := 0, 0
	count := one(func(x gotorch.Tensor) gotorch.Tensor { calls++; return x.Exp() })
	if err := gotorchtest.GradCheck(count, []gotorch.Tensor{x}, all); err != nil {
		t.Fatal(err)
	}
	of = calls
	for stop := 1; stop <= of; stop++ {
		for how, end := range map[string]func(){"panics": func() { panic("as it is meant to") }, "ends": runtime.Goexit} {
			calls = 0
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() {
					_ = recover()
					if !gotorch.GradEnabled() || gotorch.InferenceModeEnabled() {
						t.Errorf("the modes are others after call %d %s", stop, how)
					}
				}()
				_ = gotorchtest.GradCheck(one(func(x gotorch.Tensor) gotorch.Tensor {
					if calls++; calls == stop {
						end()
					}
					return x.Exp()
				}), []gotorch.Tensor{x}, all)
			}()
			<-done
			if !x.Equal(before) || x.Version() != version || x.Grad().Defined() {
				t.Fatalf("after call %d of %d %s the input is %v, version %d; it was %v, version %d", stop, of, how, x, x.Version(), before, version)
			}
		}
	}
	if err := gotorchtest.GradCheck(count, []gotorch.Tensor{x}, all); err != nil {
		t.Error(err)
	}
}
