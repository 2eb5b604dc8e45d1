// Package gotorch is PyTorch for Go: tensors, all of PyTorch's functions on them, and autograd. libtorch
// does the arithmetic, so results are those of Python. The examples of the package go with the sections
// here: memory, errors, autograd, flags, files.
//
// # Tensors
//
// A [Tensor] is a small value, a handle; copies of it are the same tensor. It has elements of one [DType],
// a shape, and memory on a [Device]:
//
//	a := gotorch.NewTensor([][]float32{{1, 2}, {3, 4}}) // from nested slices
//	b := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2) // from elements and a shape
//	c := gotorch.Zeros([]int64{2, 2}, gotorch.TensorOptions{DType: gotorch.Float64})
//
// [Data] is a tensor's memory as a slice, [ToSlice] a copy of it, [Item] the only element. a.Index(...) is
// what a[...] is in Python, and a.IndexPut assigns to it.
//
// Each function of PyTorch has a name in Go: add is [Add], log_softmax is [LogSoftmax]. Many are methods as
// well. Arguments without a default are parameters, and those with one are fields of an options struct:
//
//	s := a.MatMul(b).SumDim([]int64{1}, gotorch.SumDimOptions{KeepDim: true})
//
// There is no overloading, so what takes a number in place of a tensor has a name of its own, [AddScalar].
// Functions whose name ends in an underscore change their first argument, those in Out write into their
// last. All functions that make tensors take [TensorOptions]. The comment of each shows its schema.
//
// # Memory
//
// The collector finds tensors that a program has dropped, and their memory is freed; nothing else has to be
// done. It may be done sooner: [Scope] frees at its end what was made in it, and [Tensor.Close] one tensor.
// A tensor that is used after that is an error, not a crash. [MemoryStats] says what is alive.
//
// # Errors
//
// A wrong shape or dtype is a mistake of the program, as an index out of range is: functions that compute
// panic, always with an [*Error], which has the class and the words of PyTorch's exception. [Try] turns the
// panic into an error. Functions that meet the outside world, such as files, return errors. Both are told
// apart by kind: errors.Is(err, gotorch.IndexError).
//
// # Autograd
//
// What is done with a tensor that was made with RequiresGrad is recorded. [Tensor.Backward] computes
// gradients and adds them to [Tensor.Grad] of the tensors it began with; the function [Grad] returns them.
// In [NoGrad] nothing is recorded; [InferenceMode] and [Autocast] are modes, too. [Apply] makes a function
// with a gradient of its own.
//
// # Dtypes and devices
//
// [Tensor.To] converts to another dtype or device: x.To(gotorch.Float16), x.To(gotorch.CUDA(0)). Both are
// text in JSON and in flags, and [ParseDType] and [ParseDevice] read PyTorch's names. The zero value means
// that none is given, and PyTorch chooses.
//
// # Files
//
// [SaveTensors] and [LoadTensors] write and read what Python does: safetensors files, those in parts by their
// index, and what torch.save writes. [Save] and [Load] do so for other values than named tensors, and
// [LoadAs] for a value whose type is known. No file can make the program run code.
//
// # Packages
//
// Package nn has layers and modules, optim optimisers, distributions probability distributions, data loaders and
// data sets, and train the loop around them. Package aoti runs models that Python has compiled, jit those of TorchScript, and graph is
// what Go packages stand on that Python has written.
package gotorch
