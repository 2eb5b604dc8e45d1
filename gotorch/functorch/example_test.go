package functorch_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
	"gotorch.dev/gotorch/nn"
)

func ExampleGrad() {
	f := func(x gotorch.Tensor) gotorch.Tensor { return x.Pow(3).Sum() }
	x := gotorch.FromSlice([]float64{1, 2})
	fmt.Println(functorch.Grad(f)(x))
	fmt.Println(functorch.Hessian(f)(x))
	// Output:
	// tensor([ 3., 12.], dtype=torch.float64)
	// tensor([[ 6.,  0.],
	//         [ 0., 12.]], dtype=torch.float64)
}

func ExampleVMap() {
	dot := func(x, y gotorch.Tensor) gotorch.Tensor { return x.Mul(y).Sum() }
	xs := gotorch.NewTensor([][]float32{{1, 2}, {3, 4}})
	y := gotorch.FromSlice([]float32{10, 1})
	fmt.Println(functorch.VMap(dot)(xs, xs))
	fmt.Println(functorch.VMap(dot, functorch.VMapOptions{InDims: []int64{0, functorch.None}})(xs, y))
	// Output:
	// tensor([ 5., 25.])
	// tensor([12., 34.])
}

// The gradient for each example of a batch: a gradient, mapped.
func ExampleGrad3() {
	loss := func(w, x, y gotorch.Tensor) gotorch.Tensor { return x.Dot(w).Sub(y).Square() }
	w := gotorch.FromSlice([]float32{1, 1})
	xs := gotorch.NewTensor([][]float32{{1, 2}, {3, 4}})
	ys := gotorch.FromSlice([]float32{3, 5})
	each := functorch.VMap(functorch.Grad3(loss), functorch.VMapOptions{InDims: []int64{functorch.None, 0, 0}})
	fmt.Println(each(w, xs, ys))
	// Output:
	// tensor([[ 0.,  0.],
	//         [12., 16.]])
}

func ExampleJVP() {
	x, v := gotorch.FromSlice([]float32{1, 2, 3}), gotorch.FromSlice([]float32{1, 0, 0})
	y, dy := functorch.JVP(gotorch.Tensor.Square, x, v)
	fmt.Println(y, dy)
	_, vjp := functorch.VJP(gotorch.Tensor.Square, x)
	fmt.Println(vjp(v))
	// Output:
	// tensor([1., 4., 9.]) tensor([2., 0., 0.])
	// tensor([2., 0., 0.])
}

func ExampleVJP() {
	x := gotorch.FromSlice([]float32{1, 2})
	y, vjp := functorch.VJP(gotorch.Tensor.Exp, x)
	fmt.Println(y)
	fmt.Println(vjp(gotorch.FromSlice([]float32{1, 0}))) // the first row of the Jacobian
	// Output:
	// tensor([2.7183, 7.3891])
	// tensor([2.7183, 0.0000])
}

func ExampleJacRev() {
	f := func(x gotorch.Tensor) gotorch.Tensor { return x.CumSum(0).Square() }
	x := gotorch.FromSlice([]float32{1, 2})
	fmt.Println(functorch.JacRev(f)(x))
	fmt.Println(functorch.JacFwd(f)(x))
	// Output:
	// tensor([[2., 0.],
	//         [6., 6.]])
	// tensor([[2., 0.],
	//         [6., 6.]])
}

func ExampleHessian() {
	f := func(x gotorch.Tensor) gotorch.Tensor { return x.Prod() }
	fmt.Println(functorch.Hessian(f)(gotorch.FromSlice([]float32{2, 3, 4})))
	// Output:
	// tensor([[0., 4., 3.],
	//         [4., 0., 2.],
	//         [3., 2., 0.]])
}

// The gradient of a model's loss with respect to weights that are given beside it.
func ExampleFunctionalCall() {
	model := nn.Linear(2, 1, nn.LinearOptions{NoBias: true})
	x := gotorch.NewTensor([][]float32{{1, 2}})
	loss := func(weights nn.StateDict) gotorch.Tensor {
		return functorch.FunctionalCall(model, weights, x).Sum()
	}
	weights := nn.StateDict{"weight": gotorch.NewTensor([][]float32{{3, 4}})}
	fmt.Println(loss(weights))
	fmt.Println(functorch.Grad(loss)(weights)["weight"])
	// Output:
	// tensor(11.)
	// tensor([[1., 2.]])
}

// An ensemble: several models at once, on the same input.
func ExampleStackModuleState() {
	models := []*nn.LinearModule{nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(2, 3)}
	params, _ := functorch.StackModuleState(models)
	fmt.Println(params["weight"].Shape())
	x := gotorch.Ones([]int64{4, 2})
	each := functorch.VMap(func(weight, bias gotorch.Tensor) gotorch.Tensor {
		return functorch.FunctionalCall(models[0], nn.StateDict{"weight": weight, "bias": bias}, x)
	})
	fmt.Println(each(params["weight"], params["bias"]).Shape())
	// Output:
	// [3 3 2]
	// [3 4 3]
}
