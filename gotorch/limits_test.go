package gotorch_test

import (
	"errors"
	"math"
	"testing"

	"gotorch.dev/gotorch"
)

// What torch.finfo and torch.iinfo print is compared in docs/for-pytorch-users.md; here it is what libtorch rounds to.
func TestLimitsAreThoseOfTheDTypesNumbers(t *testing.T) {
	round := func(d gotorch.DType, x float64) float64 {
		return gotorch.Item[float64](gotorch.FromSlice([]float64{x}).To(d).To(gotorch.Float64).Squeeze())
	}
	floats := []gotorch.DType{gotorch.Float16, gotorch.BFloat16, gotorch.Float32, gotorch.Float64, gotorch.Float8E5M2,
		gotorch.Float8E5M2FNUZ, gotorch.Float8E4M3FN, gotorch.Float8E4M3FNUZ, gotorch.Float8E8M0FNU}
	for _, d := range floats {
		info := d.FInfo()
		if info.Bits != 8*d.Size() {
			t.Errorf("%v has %d bits", d, info.Bits)
		}
		for _, x := range []float64{1, 1 + info.Eps, info.Max, info.Min, info.SmallestNormal} {
			if got := round(d, x); got != x {
				t.Errorf("%v: %v is rounded to %v", d, x, got)
			}
		}
		if d == gotorch.Float64 {
			continue // its rounding cannot be seen in float64
		}
		if d != gotorch.Float8E8M0FNU {
			if got := round(d, 1+info.Eps/4); got != 1 {
				t.Errorf("%v: there is %v between 1 and the next number", d, got)
			}
			if got := round(d, info.SmallestNormal*(1+info.Eps/4)); got != info.SmallestNormal {
				t.Errorf("%v: there is %v above the smallest normal number", d, got)
			}
		}
		if got := round(d, info.Max*1.5); !math.IsInf(got, 0) && !math.IsNaN(got) && got != info.Max {
			t.Errorf("%v: %v is above the largest number", d, got)
		}
	}
	for complex, part := range map[gotorch.DType]gotorch.DType{gotorch.Complex32: gotorch.Float16, gotorch.Complex64: gotorch.Float32,
		gotorch.Complex128: gotorch.Float64, gotorch.BComplex32: gotorch.BFloat16} {
		if complex.FInfo() != part.FInfo() {
			t.Errorf("%v is not as its parts", complex)
		}
	}
	for d, want := range map[gotorch.DType]gotorch.IInfo{
		gotorch.Uint8: {8, math.MaxUint8, 0}, gotorch.Uint16: {16, math.MaxUint16, 0}, gotorch.Uint32: {32, math.MaxUint32, 0},
		gotorch.Uint64: {64, math.MaxUint64, 0}, gotorch.Int8: {8, math.MaxInt8, math.MinInt8}, gotorch.Int16: {16, math.MaxInt16, math.MinInt16},
		gotorch.Int32: {32, math.MaxInt32, math.MinInt32}, gotorch.Int64: {64, math.MaxInt64, math.MinInt64},
	} {
		if got := d.IInfo(); got != want {
			t.Errorf("%v: got %+v, want %+v", d, got, want)
		}
	}
	for _, d := range []gotorch.DType{0, gotorch.Bool, gotorch.Int4, gotorch.QInt8, gotorch.Bits8, gotorch.Float4E2M1FNx2} {
		if err := gotorch.Try0(func() { d.FInfo() }); !errors.Is(err, gotorch.TypeError) {
			t.Errorf("%v: got %v", d, err)
		}
		if err := gotorch.Try0(func() { d.IInfo() }); !errors.Is(err, gotorch.TypeError) {
			t.Errorf("%v: got %v", d, err)
		}
	}
}
