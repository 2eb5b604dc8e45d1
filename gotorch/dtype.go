package gotorch

import (
	"strconv"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// DType is the type of a tensor's elements. The zero DType means "not given".
type DType int8

// All of PyTorch's dtypes. Sub-byte and bits types only hold data; few ops know them.
const (
	Uint8 DType = 1 + iota
	Int8
	Int16
	Int32
	Int64
	Float16
	Float32
	Float64
	Complex32
	Complex64
	Complex128
	Bool
	QInt8
	QUint8
	QInt32
	BFloat16
	QUint4x2
	QUint2x4
	Bits1x8
	Bits2x4
	Bits4x2
	Bits8
	Bits16
	Float8E5M2
	Float8E4M3FN
	Float8E5M2FNUZ
	Float8E4M3FNUZ
	Uint16
	Uint32
	Uint64
	Uint1
	Uint2
	Uint3
	Uint4
	Uint5
	Uint6
	Uint7
	Int1
	Int2
	Int3
	Int4
	Int5
	Int6
	Int7
	Float8E8M0FNU
	Float4E2M1FNx2
	BComplex32
	dtypeEnd
)

type dtypeClass uint8

const (
	classInt dtypeClass = iota
	classFloat
	classComplex
	classBool
	classQuantized
	classBits
)

// dtypes is indexed by DType.
var dtypes = [dtypeEnd]struct {
	name   string
	size   int8
	class  dtypeClass
	signed bool
}{
	{"none", 0, classBits, false},
	Uint8:          {"uint8", 1, classInt, false},
	Int8:           {"int8", 1, classInt, true},
	Int16:          {"int16", 2, classInt, true},
	Int32:          {"int32", 4, classInt, true},
	Int64:          {"int64", 8, classInt, true},
	Float16:        {"float16", 2, classFloat, true},
	Float32:        {"float32", 4, classFloat, true},
	Float64:        {"float64", 8, classFloat, true},
	Complex32:      {"complex32", 4, classComplex, true},
	Complex64:      {"complex64", 8, classComplex, true},
	Complex128:     {"complex128", 16, classComplex, true},
	Bool:           {"bool", 1, classBool, false},
	QInt8:          {"qint8", 1, classQuantized, true},
	QUint8:         {"quint8", 1, classQuantized, false},
	QInt32:         {"qint32", 4, classQuantized, true},
	BFloat16:       {"bfloat16", 2, classFloat, true},
	QUint4x2:       {"quint4x2", 1, classQuantized, false},
	QUint2x4:       {"quint2x4", 1, classQuantized, false},
	Bits1x8:        {"bits1x8", 1, classBits, false},
	Bits2x4:        {"bits2x4", 1, classBits, false},
	Bits4x2:        {"bits4x2", 1, classBits, false},
	Bits8:          {"bits8", 1, classBits, false},
	Bits16:         {"bits16", 2, classBits, false},
	Float8E5M2:     {"float8_e5m2", 1, classFloat, true},
	Float8E4M3FN:   {"float8_e4m3fn", 1, classFloat, true},
	Float8E5M2FNUZ: {"float8_e5m2fnuz", 1, classFloat, true},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", 1, classFloat, true},
	Uint16:         {"uint16", 2, classInt, false},
	Uint32:         {"uint32", 4, classInt, false},
	Uint64:         {"uint64", 8, classInt, false},
	Uint1:          {"uint1", 1, classInt, false},
	Uint2:          {"uint2", 1, classInt, false},
	Uint3:          {"uint3", 1, classInt, false},
	Uint4:          {"uint4", 1, classInt, false},
	Uint5:          {"uint5", 1, classInt, false},
	Uint6:          {"uint6", 1, classInt, false},
	Uint7:          {"uint7", 1, classInt, false},
	Int1:           {"int1", 1, classInt, true},
	Int2:           {"int2", 1, classInt, true},
	Int3:           {"int3", 1, classInt, true},
	Int4:           {"int4", 1, classInt, true},
	Int5:           {"int5", 1, classInt, true},
	Int6:           {"int6", 1, classInt, true},
	Int7:           {"int7", 1, classInt, true},
	Float8E8M0FNU:  {"float8_e8m0fnu", 1, classFloat, false},
	Float4E2M1FNx2: {"float4_e2m1fn_x2", 1, classFloat, true},
	BComplex32:     {"bcomplex32", 4, classComplex, true},
}

// Other names that PyTorch knows dtypes by.
var dtypeAliases = map[string]DType{
	"half": Float16, "float": Float32, "double": Float64, "short": Int16, "int": Int32, "long": Int64,
	"chalf": Complex32, "cfloat": Complex64, "cdouble": Complex128, "bit": Uint1,
}

func (d DType) known() bool { return d > 0 && d < dtypeEnd }

// String returns PyTorch's name, "torch.float32".
func (d DType) String() string { return "torch." + d.Name() }

// Name returns PyTorch's name without its module, "float32".
func (d DType) Name() string {
	if !d.known() {
		return "none"
	}
	return dtypes[d].name
}

// ParseDType returns the dtype of a name as PyTorch writes it: "float32", "torch.float32" or "float".
func ParseDType(name string) (DType, error) {
	short := strings.TrimPrefix(name, "torch.")
	for d := DType(1); d < dtypeEnd; d++ {
		if dtypes[d].name == short {
			return d, nil
		}
	}
	if d, ok := dtypeAliases[short]; ok {
		return d, nil
	}
	return 0, newError("ParseDType", TypeError, "unknown dtype "+quote(name))
}

// MarshalText is part of [encoding.TextMarshaler]: JSON, flag.TextVar and others write d as its [DType.Name],
// and the zero DType as an empty text. The error, a ValueError, is for a number that is no dtype.
func (d DType) MarshalText() ([]byte, error) {
	if d == 0 {
		return nil, nil
	}
	if !d.known() {
		return nil, newError("MarshalText", ValueError, "there is no dtype of number "+strconv.Itoa(int(d)))
	}
	return []byte(d.Name()), nil
}

// UnmarshalText is part of [encoding.TextUnmarshaler]. It reads what [ParseDType] does, and an empty text
// as the zero DType. Where it fails d stays as it is.
func (d *DType) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = 0
		return nil
	}
	parsed, err := ParseDType(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}

// Size returns the bytes that one element takes. Types of several values to a byte take one.
func (d DType) Size() int {
	if !d.known() {
		return 0
	}
	return int(dtypes[d].size)
}

// IsFloatingPoint reports whether d is a real floating point type.
func (d DType) IsFloatingPoint() bool { return d.known() && dtypes[d].class == classFloat }

// IsComplex reports whether d is a complex type.
func (d DType) IsComplex() bool { return d.known() && dtypes[d].class == classComplex }

// IsInteger reports whether d is an integer type. Bool is none.
func (d DType) IsInteger() bool { return d.known() && dtypes[d].class == classInt }

// IsQuantized reports whether d stores integers that stand for other numbers.
func (d DType) IsQuantized() bool { return d.known() && dtypes[d].class == classQuantized }

// IsSigned reports whether d holds negative numbers.
func (d DType) IsSigned() bool { return d.known() && dtypes[d].signed }

// ToReal returns the type of a complex type's parts, and every other type unchanged.
func (d DType) ToReal() DType {
	switch d {
	case Complex32:
		return Float16
	case Complex64:
		return Float32
	case Complex128:
		return Float64
	case BComplex32:
		return BFloat16
	}
	return d
}

// ToComplex returns the complex type whose parts have d's precision. Integers and bool become the
// complex form of the default dtype.
func (d DType) ToComplex() DType {
	switch {
	case d.IsComplex():
		return d
	case d == Float16:
		return Complex32
	case d == BFloat16, d == Float32:
		return Complex64
	case d == Float64:
		return Complex128
	}
	return DefaultDType().ToComplex()
}

// Promote returns the type that tensors of d and other have in common, as PyTorch's promote_types.
func (d DType) Promote(other DType) DType { return PromoteTypes(d, other) }

// required returns d as it travels in an argument block; it panics if d is not given.
func (d DType) required(op opID, arg string) int64 { return requiredEnum(d, op, arg) }

func requiredEnum[E DType | Device | Layout | MemoryFormat](e E, op opID, arg string) int64 {
	if e == 0 {
		panic(newError(op.String(), TypeError, "argument '"+arg+"' is not given, and has no default"))
	}
	return int64(e)
}

// DefaultDType returns the dtype of floating point tensors where none is given: Float32 unless
// [SetDefaultDType] changed it.
func DefaultDType() DType {
	var d int32
	MustNil(unsafe.Pointer(ctorch.GetDefaultDtype(&d)))
	return DType(d + 1)
}

// SetDefaultDType sets the dtype of floating point tensors where none is given, for the whole
// process. It panics with a TypeError if d is no floating point type.
func SetDefaultDType(d DType) {
	if err := ctorch.SetDefaultDtype(int32(d) - 1); err != nil {
		panicC("SetDefaultDType", unsafe.Pointer(err))
	}
}
