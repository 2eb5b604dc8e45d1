package nn

import (
	"gotorch.dev/gotorch/internal/args"
)

func (m *FractionalMaxPool2dModule) check(op string) {
	m.KernelSize = positive(op, times(op, "kernelSize", m.KernelSize, 2))
	checkFractions(op, &m.OutputSize, m.OutputRatio, 2)
}

func (m *FractionalMaxPool3dModule) check(op string) {
	m.KernelSize = positive(op, times(op, "kernelSize", m.KernelSize, 3))
	checkFractions(op, &m.OutputSize, m.OutputRatio, 3)
}

// checkFractions panics with a ValueError unless exactly one of size and ratio is given, and in range.
func checkFractions(op string, size *[]int64, ratio []float64, directions int) {
	switch {
	case *size == nil && ratio == nil:
		panic(args.ValueError(op, "requires specifying either an output size, or a pooling ratio"))
	case *size != nil && ratio != nil:
		panic(args.ValueError(op, "only one of output_size and output_ratio may be specified"))
	case *size != nil:
		*size = times(op, "OutputSize", *size, directions)
	}
	for _, r := range ratio {
		if !(r > 0 && r < 1) {
			panic(args.ValueError(op, "output_ratio must be between 0 and 1 (got %v)", ratio))
		}
	}
}

func positive(op string, kernel []int64) []int64 {
	for _, n := range kernel {
		if n <= 0 {
			panic(args.ValueError(op, "kernel_size must be greater than 0, but got %v", kernel))
		}
	}
	return kernel
}

func checkNormType(op string, p float64) {
	if p == 0 {
		panic(args.ValueError(op, "norm_type must be a non-zero value, but got %v", p))
	}
}

func (m *LPPool1dModule) check(op string) { checkNormType(op, m.NormType) }
func (m *LPPool2dModule) check(op string) { checkNormType(op, m.NormType) }
func (m *LPPool3dModule) check(op string) { checkNormType(op, m.NormType) }
