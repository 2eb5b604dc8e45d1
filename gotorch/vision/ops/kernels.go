package ops

import (
	"runtime"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// What torchvision has kernels of its own for is computed here, in Go on the processor's memory. Sums are in the
// kernels' order, so that results are theirs to the last bit; the conversions around products keep Go from fusing
// them with a sum, which it does on some processors.

type float interface{ float32 | float64 }

// sameDType panics with a RuntimeError, as torchvision does, if tensors are not of one dtype.
func sameDType(op, a string, x gotorch.Tensor, b string, y gotorch.Tensor) {
	if x.DType() != y.DType() {
		panic(args.Errorf(op, gotorch.RuntimeError, "%s and %s must be of the same dtype, and are %s and %s", a, b, x.DType(), y.DType()))
	}
}

// shaped panics with a ValueError if t is not of so many dimensions, or the last of them is not so long; 0 is any.
func shaped(op, name string, t gotorch.Tensor, dims, last int64, want string) {
	if !t.Defined() {
		panic(args.TypeError(op, "%s is no tensor, where one of shape %s is required", name, want))
	}
	if shape := t.Shape(); int64(len(shape)) != dims || last > 0 && shape[dims-1] != last {
		panic(args.ValueError(op, "%s must be of shape %s, and is of shape %v", name, want, shape))
	}
}

// numbers runs a kernel for the dtype of the first tensor, with tensors that are in the processor's memory and contiguous;
// those of that dtype are of float32 or float64 then. Half precision is computed in float32, and rounded once, at the end.
// It panics with a NotImplementedError for other dtypes.
func numbers[C any](op string, half bool, call C, tensors []gotorch.Tensor, single, double func(call C, tensors []gotorch.Tensor) []gotorch.Tensor) []gotorch.Tensor {
	first := tensors[0]
	dtype, device := first.DType(), first.Device()
	compute, as := single, gotorch.Float32
	switch {
	case dtype == gotorch.Float64:
		compute, as = double, gotorch.Float64
	case dtype == gotorch.Float32:
	case half && (dtype == gotorch.Float16 || dtype == gotorch.BFloat16):
	default:
		panic(args.Errorf(op, gotorch.NotImplementedError, "there is no kernel for %s: it computes in float32 or float64", dtype))
	}
	if device == gotorch.Meta {
		panic(args.Errorf(op, gotorch.NotImplementedError, "tensors on the device meta have no numbers to compute with"))
	}
	here := make([]gotorch.Tensor, len(tensors))
	for i, t := range tensors {
		if t.T == nil {
			continue
		}
		to := gotorch.ToOptions{Device: gotorch.CPU}
		if t.DType() == dtype {
			to.DType = as
		}
		here[i] = t.Detach().To(to).Contiguous()
	}
	results := compute(call, here)
	for _, t := range here {
		runtime.KeepAlive(t.T)
	}
	for i, t := range results {
		if t.T == nil {
			continue
		}
		if t.DType() == as && as != dtype {
			t = t.To(dtype)
		}
		if device != gotorch.CPU {
			t = t.To(device)
		}
		results[i] = t
	}
	return results
}

// parallel calls fn for parts of 0, 1, ... n-1, in several goroutines where there is enough to do: work is about
// how many additions all of it takes. fn must not panic.
func parallel(n, work int, fn func(from, to int)) {
	workers := min(gotorch.NumThreads(), n, work>>16+1)
	if workers < 2 {
		fn(0, n)
		return
	}
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() { fn(n*i/workers, n*(i+1)/workers) })
	}
	wait.Wait()
}

// once is a gradient that has none itself, as in torchvision.
type once struct {
	name    string
	compute func(grads []gotorch.Tensor) []gotorch.Tensor
}

func (f once) Forward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return f.compute(grads)
}

func (f once) Backward(*gotorch.FunctionContext, []gotorch.Tensor) []gotorch.Tensor {
	panic(args.Errorf(f.name, gotorch.RuntimeError, "double backwards on %s not supported", f.name))
}

// gradient calls compute, and has a backward pass through its results refused.
func gradient(name string, grads []gotorch.Tensor, compute func(grads []gotorch.Tensor) []gotorch.Tensor) []gotorch.Tensor {
	if !gotorch.GradEnabled() {
		return compute(grads)
	}
	return gotorch.Apply(once{name, compute}, grads...)
}
