package functorch_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
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
