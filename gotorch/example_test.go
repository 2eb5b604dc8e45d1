package gotorch_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"gotorch.dev/gotorch"
)

func Example() {
	a := gotorch.NewTensor([][]float32{{1, 2}, {3, 4}})
	b := gotorch.FromSlice([]float32{1, 0, 0, 1}, 2, 2)
	s := a.MatMul(b).SumDim([]int64{1}, gotorch.SumDimOptions{KeepDim: true})
	fmt.Println(s)
	fmt.Println(s.Shape(), s.DType(), s.Device())
	// Output:
	// tensor([[3.],
	//         [7.]])
	// [2 1] torch.float32 cpu
}

func Example_memory() {
	x := gotorch.Ones([]int64{3})
	y := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		return x.Exp().Neg().ReLU() // only the last is kept
	})
	fmt.Println(y)
	x.Close()
	_, err := gotorch.Try(func() gotorch.Tensor { return x.Neg() })
	fmt.Println(err)
	// Output:
	// tensor([0., 0., 0.])
	// neg: ValueError: argument 'self' was used after Close, or after the Scope it was made in
}

func Example_errors() {
	a := gotorch.Ones([]int64{2, 3})
	_, err := gotorch.Try(func() gotorch.Tensor { return a.Select(0, 5) })
	fmt.Println(errors.Is(err, gotorch.IndexError))
	fmt.Println(err)
	// Output:
	// true
	// IndexError: select(): index 5 out of range for tensor of size [2, 3] at dimension 0
}

func Example_autograd() {
	w := gotorch.NewTensor([]float32{1, 2}, gotorch.TensorOptions{RequiresGrad: true})
	loss := w.Mul(w).Sum()
	loss.Backward()
	gotorch.NoGrad(func() { w.Sub_(w.Grad(), gotorch.SubOptions{Alpha: 0.25}) })
	fmt.Println(w.Grad(), w.Detach())
	// Output: tensor([2., 4.]) tensor([0.5000, 1.0000])
}

func Example_flags() {
	flags := flag.NewFlagSet("train", flag.ContinueOnError)
	var opt gotorch.TensorOptions
	flags.TextVar(&opt.DType, "dtype", gotorch.Float32, "the dtype of weights")
	flags.TextVar(&opt.Device, "device", gotorch.CPU, "where to train")
	if err := flags.Parse([]string{"-dtype=bfloat16"}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(gotorch.Zeros([]int64{2}, opt))
	// Output: tensor([0., 0.], dtype=torch.bfloat16)
}

func Example_files() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "state.pt")
	err = gotorch.Save(path, map[string]any{"epochs": []int{1, 2, 3}})
	if err != nil {
		panic(err)
	}
	epochs, err := gotorch.LoadAs[map[string][]int](path)
	fmt.Println(epochs["epochs"], err)
	_, err = gotorch.LoadAs[map[string][]string](path)
	fmt.Println(err)
	// Output:
	// [1 2 3] <nil>
	// LoadAs: TypeError: the value["epochs"][0] is int, where string is expected
}
