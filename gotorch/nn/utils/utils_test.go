package utils_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils"
)

func withGrads(values ...[]float32) []gotorch.Tensor {
	var list []gotorch.Tensor
	for _, v := range values {
		p := nn.Parameter(gotorch.Zeros([]int64{int64(len(v))}))
		p.SetGrad(gotorch.FromSlice(v))
		list = append(list, p)
	}
	return append(list, nn.Parameter(gotorch.Zeros([]int64{2}))) // without a gradient
}

func TestClippingByNorm(t *testing.T) {
	params := withGrads([]float32{3, 0}, []float32{4})
	if got := gotorch.Item[float64](utils.ClipGradNorm_(params, 10)); got != 5 {
		t.Errorf("the norm is %v", got)
	}
	if got := gotorch.ToSlice[float64](params[0].Grad()); got[0] != 3 {
		t.Errorf("what is short was changed to %v", got)
	}
	utils.ClipGradNorm_(params, 1)
	if got := gotorch.Item[float64](utils.GetTotalNorm([]gotorch.Tensor{params[0].Grad(), params[1].Grad()})); math.Abs(got-1) > 1e-5 {
		t.Errorf("the norm is %v", got)
	}
	inf := withGrads([]float32{3, -7})
	if got := gotorch.Item[float64](utils.ClipGradNorm_(inf, 1, utils.ClipGradNormOptions{NormType: math.Inf(1)})); got != 7 {
		t.Errorf("the greatest is %v", got)
	}
	bad := withGrads([]float32{float32(math.NaN())})
	err := gotorch.Try0(func() { utils.ClipGradNorm_(bad, 1, utils.ClipGradNormOptions{ErrorIfNonfinite: true}) })
	if !errors.Is(err, gotorch.RuntimeError) {
		t.Errorf("got %v", err)
	}
	if got := gotorch.Item[float64](utils.ClipGradNorm_(nil, 1)); got != 0 {
		t.Errorf("the norm of nothing is %v", got)
	}
}

func TestClippingByValue(t *testing.T) {
	params := withGrads([]float32{3, -3, 0.5})
	utils.ClipGradValue_(params, 1)
	if got := fmt.Sprint(gotorch.ToSlice[float64](params[0].Grad())); got != "[1 -1 0.5]" {
		t.Errorf("got %s", got)
	}
}

func TestParametersAsAVector(t *testing.T) {
	model := nn.Linear(3, 2)
	vec := utils.ParametersToVector(model.Parameters())
	if vec.Numel() != 8 || !vec.RequiresGrad() {
		t.Errorf("%v elements, in autograd %v", vec.Numel(), vec.RequiresGrad())
	}
	utils.VectorToParameters(gotorch.ArangeStartStep(0, 8, gotorch.ArangeStartStepOptions{DType: gotorch.Float32}), model.Parameters())
	if got := fmt.Sprint(gotorch.ToSlice[float64](model.Bias)); got != "[6 7]" {
		t.Errorf("got %s", got)
	}
	before := model.Weight.Clone()
	if err := gotorch.Try0(func() { utils.VectorToParameters(gotorch.Ones([]int64{7}), model.Parameters()) }); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("got %v", err)
	}
	if !model.Weight.Equal(before) {
		t.Error("a wrong vector has changed the parameters")
	}
}

func ExampleFuseConvBNEval() {
	conv, bn := nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
	conv.Eval()
	bn.Eval()
	fused := utils.FuseConvBNEval(conv, bn)
	x := gotorch.Randn([]int64{1, 3, 8, 8})
	fmt.Println(fused.Forward(x).AllClose(bn.Forward(conv.Forward(x)), gotorch.AllCloseOptions{ATol: new(1e-5)}))
	// Output:
	// true
}

func TestWhatCannotBeFused(t *testing.T) {
	conv, bn := nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
	linear := nn.Linear(3, 8)
	conv.Eval()
	bn.Eval()
	linear.Eval()
	for name, fn := range map[string]func(){
		"training": func() { utils.FuseConvBNEval(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)) },
		"no norm":  func() { utils.FuseConvBNEval(conv, nn.ReLU()) },
		"no conv":  func() { utils.FuseConvBNEval(nn.ReLU(), bn) },
		"statistics": func() {
			b := nn.BatchNorm2d(8, nn.BatchNormOptions{NoTrackRunningStats: true})
			b.Eval()
			utils.FuseConvBNEval(conv, b)
		},
		"features":  func() { b := nn.BatchNorm1d(3); b.Eval(); utils.FuseLinearBNEval(linear, b) },
		"computed":  func() { c := utils.WeightNorm(nn.Conv2d(3, 8, 3)); c.Eval(); utils.FuseConvBNEval(c, bn) },
		"no device": func() { utils.SkipInit(func(gotorch.Device) *nn.LinearModule { return nn.Linear(2, 2) }) },
		"lazy":      func() { utils.WeightNorm(nn.LazyLinear(3)) },
		"a buffer":  func() { utils.WeightNorm(nn.BatchNorm2d(3), utils.WeightNormOptions{Name: "running_mean"}) },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestSkipInitTakesNoRandomNumbersAndTrains(t *testing.T) {
	layer := utils.SkipInit(func(device gotorch.Device) *nn.LinearModule {
		return nn.Linear(3, 2, nn.LinearOptions{Device: device})
	})
	for name, p := range layer.NamedParameters() {
		if p.Device() != gotorch.CPU || !p.RequiresGrad() || !p.IsLeaf() {
			t.Errorf("%s is on %v and no parameter", name, p.Device())
		}
	}
	weight := layer.Weight
	if layer.ToEmpty(gotorch.CPU); layer.Weight != weight {
		t.Error("a tensor with memory became another one")
	}
}
