package functional

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

func sprintf(format string, values ...any) string { return fmt.Sprintf(format, values...) }

// times returns one number for each of n directions: list, its only element n times, or value n times
// if it is nil. It panics with a ValueError if there are others.
func times(op, arg string, list []int64, value int64, n int) []int64 {
	switch {
	case list == nil:
		return slices.Repeat([]int64{value}, n)
	case len(list) == n:
		return list
	case len(list) == 1:
		return slices.Repeat(list, n)
	}
	panic(args.ValueError(op, "%s must be one number or %d, not %v", arg, n, list))
}

// AsInput stands for a size of the adaptive poolings that is to be as the input's.
const AsInput int64 = -1

// asInput returns the size of the result of an adaptive pooling, with the input's own sizes where AsInput
// stands.
func asInput(op string, size []int64, input gotorch.Tensor, directions int) []int64 {
	size = times(op, "outputSize", size, 0, directions)
	if !slices.Contains(size, AsInput) {
		return size
	}
	shape := input.Shape()
	if len(shape) <= directions {
		panic(args.ValueError(op, "input dimension should be at least %d, got input size %v", directions+1, shape))
	}
	size = slices.Clone(size)
	for i, n := range size {
		if n == AsInput {
			size[i] = shape[len(shape)-directions+i]
		}
	}
	return size
}
