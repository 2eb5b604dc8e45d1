package gotorch

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// FLOPs is how many floating point operations a program has made, by the names of PyTorch's operators,
// "aten.addmm".
type FLOPs map[string]int64

// Total returns the sum over all operators.
func (f FLOPs) Total() int64 {
	sum := int64(0)
	for _, n := range f {
		sum += n
	}
	return sum
}

// FlopCounterMode runs fn, and returns how many floating point operations that took: those of matrix
// products, convolutions and attention, by PyTorch's formulas, which go by shapes, and count a
// multiplication and an addition as two. Everything else counts for nothing, as in Python. Backward passes
// that fn runs are counted too.
//
//	flops := gotorch.FlopCounterMode(func() { model.Forward(x).Sum().Backward() })
//	fmt.Println(flops.Total(), flops["aten.convolution_backward"])
//
// nn.Summary has the same by module. Goroutines that fn starts are not counted. Inside of another
// FlopCounterMode both count. It panics with a RuntimeError if 64 goroutines are inside.
//
// See https://docs.pytorch.org/docs/stable/utils.html.
func FlopCounterMode(fn func()) FLOPs {
	events, err := ctorch.CountFLOPs(fn)
	if err != nil {
		panicC("FlopCounterMode", unsafe.Pointer(err))
	}
	flops := FLOPs{}
	for _, event := range events {
		flops[event.Op] += event.FLOPs
	}
	return flops
}
