package gotorch_test

import (
	"fmt"

	"gotorch.dev/gotorch"
)

// Python's a[0:1, :], a[1, -1], a[..., 0] and a[:, None, ::2]: views of a.
func ExampleTensor_Index() {
	a := gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	fmt.Println(a.Index(gotorch.Slice(0, 1), gotorch.All))
	fmt.Println(a.Index(gotorch.At(1), gotorch.At(-1)))
	fmt.Println(a.Index(gotorch.Ellipsis, gotorch.At(0)))
	fmt.Println(a.Index(gotorch.All, gotorch.NewAxis, gotorch.SliceStep(2)))
	// Output:
	// tensor([[1., 2., 3.]])
	// tensor(6.)
	// tensor([1., 4.])
	// tensor([[[1., 3.]],
	//
	//         [[4., 6.]]])
}

// Python's a[[1, 0]], a[[0, 1], [2, 0]], a[rows, columns] and a[a > 2]: copies.
func ExampleTensor_Index_advanced() {
	a := gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	fmt.Println(a.Index(gotorch.List(1, 0)))
	fmt.Println(a.Index(gotorch.List(0, 1), gotorch.List(2, 0)))
	rows := gotorch.NewTensor([][]int{{0}, {1}})
	columns := gotorch.NewTensor([]int{0, 2})
	fmt.Println(a.Index(rows, columns)) // rows and columns are broadcast together
	fmt.Println(a.Index(a.GtScalar(2)))
	// Output:
	// tensor([[4., 5., 6.],
	//         [1., 2., 3.]])
	// tensor([3., 4.])
	// tensor([[1., 3.],
	//         [4., 6.]])
	// tensor([3., 4., 5., 6.])
}

// Python's a[0, -1] = 7, a[1, :2] = [8, 9] and a[a < 3] = 0.
func ExampleTensor_IndexPut() {
	a := gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	a.IndexPut(7, gotorch.At(0), gotorch.At(-1))
	a.IndexPut(gotorch.FromSlice([]float32{8, 9}), gotorch.At(1), gotorch.SliceTo(2))
	a.IndexPut(0, a.LtScalar(3))
	fmt.Println(a)
	// Output:
	// tensor([[0., 0., 7.],
	//         [8., 9., 6.]])
}

// A histogram: an element is counted as often as it is named.
func ExampleTensor_IndexPutAccumulate() {
	counts := gotorch.Zeros([]int64{4})
	counts.IndexPutAccumulate(1, gotorch.List(0, 2, 2, 3, 2))
	fmt.Println(counts)
	// Output:
	// tensor([1., 0., 3., 1.])
}

func ExampleMask() {
	x := gotorch.FromSlice([]float32{-1, 2, -3, 4})
	positive := gotorch.Mask(x.GtScalar(0))
	fmt.Println(x.Index(positive))
	x.IndexPut(0, positive)
	fmt.Println(x)
	// Output:
	// tensor([2., 4.])
	// tensor([-1.,  0., -3.,  0.])
}

func ExampleTensor_Rows() {
	a := gotorch.NewTensor([][]int{{1, 2}, {3, 4}, {5, 6}})
	for i, row := range a.Rows() {
		fmt.Println(i, row)
	}
	for i, column := range a.Along(1) {
		fmt.Println(i, column)
	}
	// Output:
	// 0 tensor([1, 2])
	// 1 tensor([3, 4])
	// 2 tensor([5, 6])
	// 0 tensor([1, 3, 5])
	// 1 tensor([2, 4, 6])
}

// A step of gradient descent on all parameters at once.
func ExampleTensors() {
	params := gotorch.Tensors{gotorch.FromSlice([]float32{1, 2}), gotorch.FromSlice([]float32{3})}
	grads := gotorch.Tensors{gotorch.FromSlice([]float32{10, 20}), gotorch.FromSlice([]float32{-10})}
	params.Add_(grads, gotorch.AddOptions{Alpha: -0.5})
	fmt.Println(params[0], params[1])
	fmt.Println(grads.Norm())
	// Output:
	// tensor([-4., -8.]) tensor([8.])
	// tensor(24.4949)
}
