package gotorch

import (
	"math"
	"reflect"
	"strconv"
)

// F16 is a number of dtype [Float16] as a value of Go: elements of [Data] and [FromSlice], results of [Item]. Go has no
// arithmetic for it; compute with Float32.
type F16 struct{ bits uint16 }

// BF16 is a number of dtype [BFloat16] as a value of Go; see [F16].
type BF16 struct{ bits uint16 }

// F16FromBits returns the number of an encoding of IEEE 754.
func F16FromBits(bits uint16) F16 { return F16{bits} }

// Bits returns the encoding.
func (x F16) Bits() uint16 { return x.bits }

// BF16FromBits returns the number of an encoding, the upper half of a float32's.
func BF16FromBits(bits uint16) BF16 { return BF16{bits} }

// Bits returns the encoding.
func (x BF16) Bits() uint16 { return x.bits }

// F16FromFloat32 rounds x to the nearest F16, of two to the even one. What is too large is infinite.
func F16FromFloat32(x float32) F16 {
	bits := math.Float32bits(x)
	sign, abs := uint16(bits>>16)&0x8000, bits&^(1<<31)
	switch {
	case abs > 0x7f800000:
		return F16{sign | 0x7e00} // NaN
	case abs >= 0x477ff000: // halfway between the greatest and what comes after it
		return F16{sign | 0x7c00}
	case abs < 0x38800000: // subnormal: a multiple of 2⁻²⁴, which adding 0.5 rounds to
		return F16{sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-math.Float32bits(0.5))}
	}
	abs += 0xfff + abs>>13&1 // half of the last place that stays, less where that is even
	return F16{sign | uint16((abs-(127-15)<<23)>>13)}
}

// Float32 returns the number, without rounding.
func (x F16) Float32() float32 {
	sign, abs := uint32(x.bits&0x8000)<<16, uint32(x.bits&0x7fff)
	switch {
	case abs >= 0x7c00: // infinite or NaN
		return math.Float32frombits(sign | abs<<13 | 0x7f800000)
	case abs < 0x400: // a multiple of 2⁻²⁴
		return math.Float32frombits(sign | math.Float32bits(float32(abs)/(1<<24)))
	}
	return math.Float32frombits(sign | (abs<<13 + (127-15)<<23))
}

// String returns the number in decimal.
func (x F16) String() string { return strconv.FormatFloat(float64(x.Float32()), 'g', -1, 32) }

// BF16FromFloat32 rounds x to the nearest BF16, of two to the even one.
func BF16FromFloat32(x float32) BF16 {
	bits := math.Float32bits(x)
	if x != x {
		return BF16{0x7fc0}
	}
	return BF16{uint16((bits + 0x7fff + bits>>16&1) >> 16)}
}

// Float32 returns the number, without rounding.
func (x BF16) Float32() float32 { return math.Float32frombits(uint32(x.bits) << 16) }

// String returns the number in decimal.
func (x BF16) String() string { return strconv.FormatFloat(float64(x.Float32()), 'g', -1, 32) }

var f16Type, bf16Type = reflect.TypeFor[F16](), reflect.TypeFor[BF16]()

// dtypeOf returns the dtype that holds the values of a type of Go; 0 for a type that is no element's.
func dtypeOf(t reflect.Type) DType {
	switch t {
	case f16Type:
		return Float16
	case bf16Type:
		return BFloat16
	}
	if kind := int(t.Kind()); kind < len(kindDTypes) {
		return kindDTypes[kind]
	}
	return 0
}
