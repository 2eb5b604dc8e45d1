package gotorch_test

import (
	"math"
	"testing"

	"gotorch.dev/gotorch"
)

// math.NaN() as a number is Python's nan, and other NaNs keep their bits.
func TestNaNsAsNumbers(t *testing.T) {
	for _, c := range []struct{ given, want uint64 }{
		{math.Float64bits(math.NaN()), 0x7FF8000000000000},
		{0x7FF8000000000000, 0x7FF8000000000000},
		{0xFFF8000000000001, 0xFFF8000000000001},
		{0x7FF8000000000123, 0x7FF8000000000123},
		{math.Float64bits(1.5), math.Float64bits(1.5)},
	} {
		x := math.Float64frombits(c.given)
		filled := gotorch.Zeros([]int64{2}, gotorch.TensorOptions{DType: gotorch.Float64}).Fill_(x)
		if got := math.Float64bits(gotorch.ToSlice[float64](filled)[1]); got != c.want {
			t.Errorf("%#x became %#x", c.given, got)
		}
		z := gotorch.Full([]int64{1}, complex(x, x), gotorch.TensorOptions{DType: gotorch.Complex128})
		if got := gotorch.ToSlice[complex128](z)[0]; math.Float64bits(real(got)) != c.want || math.Float64bits(imag(got)) != c.want {
			t.Errorf("%#x became %v", c.given, got)
		}
	}
}
