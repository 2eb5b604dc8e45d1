package main

import (
	"errors"
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
)

// Checks of gradients: Python names the options that are on, and an operator with its arguments or one of the
// functions here, which are right or wrong by intention; Python has the same ones.
const specialGradCheck = -80

// handwritten are functions with gradients of their own: each has what Forward and Backward do.
type handwritten struct {
	forward  func(xs []gotorch.Tensor) []gotorch.Tensor
	backward func(ctx *gotorch.FunctionContext, xs, grads []gotorch.Tensor) []gotorch.Tensor
	sparing  bool
}

func (h handwritten) Forward(ctx *gotorch.FunctionContext, xs []gotorch.Tensor) []gotorch.Tensor {
	ctx.SaveForBackward(xs...)
	ctx.SetMaterializeGrads(!h.sparing)
	return h.forward(xs)
}

func (h handwritten) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return h.backward(ctx, ctx.SavedTensors(), grads)
}

type tensors = []gotorch.Tensor

func square(xs tensors) tensors { return tensors{xs[0].Mul(xs[0])} }
func both(xs tensors) tensors   { return tensors{xs[0].Mul(xs[1]), xs[0].Add(xs[1])} }

// passes counts the backward passes of what is not deterministic.
var passes int

var byHand = map[string]handwritten{
	"right": {square, func(_ *gotorch.FunctionContext, xs, g tensors) tensors { return tensors{g[0].Mul(xs[0]).MulScalar(2)} }, false},
	"too large": {square, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		return tensors{g[0].Mul(xs[0]).MulScalar(2.01)}
	}, false},
	"none": {square, func(_ *gotorch.FunctionContext, _, _ tensors) tensors { return tensors{{}} }, false},
	"not multiplied": {square, func(_ *gotorch.FunctionContext, xs, _ tensors) tensors {
		return tensors{xs[0].MulScalar(2)}
	}, false},
	"another each time": {square, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		passes++
		return tensors{g[0].Mul(xs[0]).MulScalar(2 + 1e-9*float64(passes%2))}
	}, false},
	"second gradient wrong": {square, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		return tensors{g[0].Mul(xs[0].Detach()).MulScalar(2)}
	}, false},
	"conjugate": {square, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		return tensors{g[0].Mul(xs[0].Conj()).MulScalar(2)}
	}, false},
	"needs its gradients": {both, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		return tensors{g[0].Mul(xs[1]).Add(g[1]), g[0].Mul(xs[0]).Add(g[1])}
	}, true},
	"of two": {both, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		return tensors{g[0].Mul(xs[1]).Add(g[1]), g[0].Mul(xs[0]).Add(g[1])}
	}, false},
	"of two swapped": {both, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		return tensors{g[0].Mul(xs[0]).Add(g[1]), g[0].Mul(xs[1]).Add(g[1])}
	}, false},
	"second result forgotten": {both, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		return tensors{g[0].Mul(xs[1]), g[0].Mul(xs[0])}
	}, false},
	"ones where none": {both, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		for i := range g {
			if g[i].T == nil {
				g[i] = gotorch.OnesLike(xs[0])
			}
		}
		return tensors{g[0].Mul(xs[1]).Add(g[1]), g[0].Mul(xs[0]).Add(g[1])}
	}, true},
	"by numbers": {square, func(_ *gotorch.FunctionContext, xs, g tensors) tensors {
		factor := 2.0
		if gotorch.Item[float64](g[0].Abs().Sum()) < 0 {
			factor = 3
		}
		return tensors{g[0].Mul(xs[0].Conj()).MulScalar(factor)}
	}, false},
}

func runGradCheck(_ int64, in *reader) []reflect.Value {
	on := map[string]bool{}
	for range in.next() {
		on[in.text()] = true
	}
	second, name := in.next() != 0, in.text()
	list := func() tensors { return in.value(reflect.TypeFor[tensors]()).Interface().(tensors) }
	xs := list()
	var f operation
	if name != "" {
		h, ok := byHand[name]
		if !ok {
			panic(broken("there is no function " + name))
		}
		f = func(xs tensors) tensors { return gotorch.Apply(h, xs...) }
	} else {
		f = in.operation(func(t gotorch.Tensor) bool { return t.IsFloatingPoint() || t.IsComplex() })
	}
	var err error
	if second {
		err = gotorchtest.GradGradCheck(f, xs, gotorchtest.GradGradCheckOptions{
			NoCheckUndefinedGrad: on["no undefined"], CheckGradDTypes: on["dtypes"], CheckBatchedGrad: on["batched"],
			CheckFwdOverRev: on["forward"], NoCheckRevOverRev: on["no backward"], FastMode: on["fast"], GenNonContigGradOutputs: on["spread"],
		})
	} else {
		err = gotorchtest.GradCheck(f, xs, gotorchtest.GradCheckOptions{
			NoCheckUndefinedGrad: on["no undefined"], CheckGradDTypes: on["dtypes"], CheckBatchedGrad: on["batched"],
			CheckForwardAD: on["forward"], CheckBatchedForwardGrad: on["batched forward"], NoCheckBackwardAD: on["no backward"], FastMode: on["fast"],
		})
	}
	msg, output, input, difference := "", int64(-1), int64(-1), 0.0
	var wrong *gotorchtest.GradCheckError
	if errors.As(err, &wrong) {
		msg, output, input, difference = wrong.Msg, int64(wrong.Output), int64(wrong.Input), wrong.Difference
	}
	return []reflect.Value{reflect.ValueOf(msg), reflect.ValueOf(output), reflect.ValueOf(input), reflect.ValueOf(difference)}
}
