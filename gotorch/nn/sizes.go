package nn

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// Sizes is one number for all directions, or one for each: of a kernel, a stride, a result.
type Sizes interface {
	int | int64 | []int | []int64 | [1]int | [2]int | [3]int | [4]int | [6]int | [1]int64 | [2]int64 | [3]int64 | [4]int64 | [6]int64
}

func ints[S Sizes](sizes S) []int64 { return args.Ints(sizes) }

// orInts returns list, or a list of the default if it is nil.
func orInts(list []int64, value int64) []int64 {
	if list == nil {
		return []int64{value}
	}
	return slices.Clone(list)
}

// orKernel returns a stride, which is the kernel's size by default.
func orKernel(stride, kernel []int64) []int64 {
	if stride == nil {
		return kernel
	}
	return slices.Clone(stride)
}

// times makes n numbers of one. It panics with a ValueError if there are others.
func times(op, arg string, list []int64, n int) []int64 {
	switch len(list) {
	case n:
		return list
	case 1:
		return slices.Repeat(list, n)
	}
	panic(args.ValueError(op, "%s must be one number or %d, not %v", arg, n, list))
}

// margins is times for what goes before and after, in each direction, the last one first.
func margins(op string, list []int64, n int) []int64 { return times(op, "padding", list, n) }

// batchedOrNot returns x, or panics with a ValueError if it has neither n dimensions nor one more.
func batchedOrNot(op string, x gotorch.Tensor, n int64) gotorch.Tensor {
	if d := x.Dim(); d != n && d != n+1 {
		panic(args.ValueError(op, "expected %dD or %dD input (got %dD input)", n, n+1, d))
	}
	return x
}

func allEqual(list []int64, value int64) bool {
	return !slices.ContainsFunc(list, func(n int64) bool { return n != value })
}

// AsInput stands for a size of an adaptive pooling's result that is to be as the input's.
const AsInput = F.AsInput
