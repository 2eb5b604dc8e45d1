package nn

import (
	"math"
	"sync"
	"sync/atomic"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// lazily stands for a size that a lazy module finds in its first input. It is none that a caller gives.
const lazily = math.MinInt64

// uninitialized is a parameter or buffer that gets its shape later, and is the same tensor then, so that an
// optimiser that was given it before still knows it.
func uninitialized(create gotorch.TensorOptions) gotorch.Tensor {
	return gotorch.Empty([]int64{0}, create)
}

// initialize gives an uninitialized tensor its shape.
func initialize(t gotorch.Tensor, shape []int64) {
	if t.T == nil {
		return
	}
	gotorch.Unscoped(func() {
		full := gotorch.Empty(shape, gotorch.TensorOptions{DType: t.DType(), Device: t.Device()})
		t.SetData(full)
		full.Close()
	})
}

// laziness says whether a lazy module's tensors still wait for their shapes. The first call of Forward gives them,
// and calls may come from several goroutines at once.
type laziness struct{ waits atomic.Bool }

// shaping is held while tensors of a lazy module get their shapes.
var shaping sync.Mutex

// end calls shape, unless somebody else has done so meanwhile. If it panics, the module is as lazy as before.
func (l *laziness) end(shape func()) {
	shaping.Lock()
	defer shaping.Unlock()
	if l.waits.Load() {
		shape()
		l.waits.Store(false)
	}
}

// lazyModule is a module whose tensors get their shapes from the first input, or from a state dict.
type lazyModule interface {
	// isLazy says whether they have none yet.
	isLazy() bool
	// materialize makes them, by the size that was open.
	materialize(size int64)
	// unshape makes it lazy again.
	unshape()
	// openSize returns that size by the shape of the tensor of a state dict that has it, and its name.
	openSize(shape func(name string) []int64) (size int64, ok bool)
}

// uninitialize takes the shape of a tensor that initialize has given one.
func uninitialize(t gotorch.Tensor) {
	if t.T == nil {
		return
	}
	gotorch.Unscoped(func() {
		none := uninitialized(gotorch.TensorOptions{DType: t.DType(), Device: t.Device()})
		t.SetData(none)
		none.Close()
	})
}

// found returns the size of the dimension of x that a lazy module was waiting for.
func found(op string, x gotorch.Tensor, dim int) int64 {
	shape := x.Shape()
	if dim < 0 || dim >= len(shape) {
		panic(args.ValueError(op, "expected more than %d dimensions, got input size %v", max(dim, 0), shape))
	}
	return shape[dim]
}
