package gotorch

import "math"

// FInfo is what the numbers of a floating-point dtype are like, as PyTorch's finfo says it. All are exact.
type FInfo struct {
	Bits           int     // of one number
	Eps            float64 // from 1 to the next number above
	Max            float64 // the largest finite number
	Min            float64 // the lowest finite number: -Max, where there are negative ones
	SmallestNormal float64 // the smallest positive number that has all digits; finfo calls it tiny as well
	Resolution     float64 // a power of ten: so many decimal digits are always kept
}

// IInfo is what the numbers of an integer dtype are like, as PyTorch's iinfo says it.
type IInfo struct {
	Bits int    // of one number
	Max  uint64 // the largest number
	Min  int64  // the lowest number
}

var finfos = map[DType]FInfo{
	Float16:        {16, 0x1p-10, 65504, -65504, 0x1p-14, 1e-3},
	BFloat16:       {16, 0x1p-7, 0x1.fep127, -0x1.fep127, 0x1p-126, 1e-2},
	Float32:        {32, 0x1p-23, math.MaxFloat32, -math.MaxFloat32, 0x1p-126, 1e-6},
	Float64:        {64, 0x1p-52, math.MaxFloat64, -math.MaxFloat64, 0x1p-1022, 1e-15},
	Float8E5M2:     {8, 0x1p-2, 57344, -57344, 0x1p-14, 1},
	Float8E5M2FNUZ: {8, 0x1p-2, 57344, -57344, 0x1p-15, 1},
	Float8E4M3FN:   {8, 0x1p-3, 448, -448, 0x1p-6, 1},
	Float8E4M3FNUZ: {8, 0x1p-3, 240, -240, 0x1p-7, 1},
	Float8E8M0FNU:  {8, 1, 0x1p127, 0x1p-127, 0x1p-127, 1}, // powers of two, of which none is negative
}

// FInfo returns the limits of a floating-point dtype, and of a complex one those of its parts. It panics with a
// TypeError for other dtypes, and for [Float4E2M1FNx2], of which two lie in a byte.
//
//	eps := gotorch.BFloat16.FInfo().Eps
//
// See https://docs.pytorch.org/docs/stable/type_info.html#finfo-doc.
func (d DType) FInfo() FInfo {
	info, ok := finfos[d.ToReal()]
	if !ok {
		panic(newError("DType.FInfo", TypeError, d.String()+" is no floating-point type that has limits; integers have IInfo"))
	}
	return info
}

// IInfo returns the limits of an integer dtype of whole bytes. It panics with a TypeError for other dtypes, and for
// [Bool].
//
// See https://docs.pytorch.org/docs/stable/type_info.html#iinfo-doc.
func (d DType) IInfo() IInfo {
	switch d {
	case Uint8, Uint16, Uint32, Uint64:
		bits := 8 * d.Size()
		return IInfo{bits, math.MaxUint64 >> (64 - bits), 0}
	case Int8, Int16, Int32, Int64:
		bits := 8 * d.Size()
		return IInfo{bits, math.MaxInt64 >> (64 - bits), math.MinInt64 >> (64 - bits)}
	}
	panic(newError("DType.IInfo", TypeError, d.String()+" is no integer type that has limits; floating-point ones have FInfo"))
}
