package gotorch

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
)

// A tensor travels by gob as its bits, and as JSON in a form for people and other programs:
//
//	{"dtype":"float32","shape":[2,2],"data":[1,2.5,"NaN","-Infinity"]}
//
// data has the elements row by row; complex numbers are pairs. What JSON has no numbers for are
// strings. Types that only hold bits, Bits8 for example, have their bytes in base64 instead of a list.
// Both forms keep dtype, shape, values and whether the tensor requires grad; device and memory layout
// are not kept, and a decoded tensor is a new one on the CPU. The zero Tensor is null.

// plain returns t as a contiguous CPU tensor. The error is for tensors that have no elements of their own.
func (t Tensor) plain(op string) (result Tensor, err error) {
	defer catch(&err)
	dtype := t.DType()
	switch {
	case t.Layout() != Strided, dtype.IsQuantized():
		return Tensor{}, newError(op, NotImplementedError, "sparse and quantised tensors cannot be encoded")
	case t.Device().Type() == DeviceTypeMeta:
		return Tensor{}, newError(op, NotImplementedError, "a tensor on the meta device has no values")
	}
	t.Shape() // panics for nested tensors
	if t.Dim() > maxDims {
		return Tensor{}, newError(op, NotImplementedError, fmt.Sprintf("the tensor has %d dimensions, and no more than %d are decoded", t.Dim(), maxDims))
	}
	return t.Detach().To(CPU).ResolveConj().ResolveNeg().Contiguous(), nil
}

const (
	gobVersion      = 1
	gobRequiresGrad = 1
)

// GobEncode is part of gob.GobEncoder.
func (t Tensor) GobEncode() (b []byte, err error) {
	defer catch(&err)
	if t.T == nil {
		return []byte{0}, nil
	}
	p, err := t.plain("GobEncode")
	if err != nil {
		return nil, err
	}
	flags := byte(0)
	if t.RequiresGrad() {
		flags = gobRequiresGrad
	}
	name, shape, data := p.DType().Name(), p.Shape(), RawData(p)
	b = make([]byte, 0, len(data)+64)
	b = append(b, gobVersion, flags, byte(len(name)))
	b = append(b, name...)
	b = binary.AppendUvarint(b, uint64(len(shape)))
	for _, n := range shape {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = append(b, data...)
	runtime.KeepAlive(p.T)
	return b, nil
}

// GobDecode is part of gob.GobDecoder. It also reads what GoTorch's first version wrote: files of [Decode]
// that hold a tensor.
func (t *Tensor) GobDecode(b []byte) (err error) {
	defer catch(&err)
	bad := newError("GobDecode", ValueError, "the data is truncated, or no tensor")
	if len(b) == 1 && b[0] == 0 {
		*t = Tensor{}
		return nil
	}
	if bytes.HasPrefix(b, []byte("PK\x03\x04")) {
		v, err := Decode(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return err
		}
		made, ok := v.(Tensor)
		if !ok {
			return newError("GobDecode", ValueError, "the data is a file of torch.save that holds no tensor")
		}
		*t = made
		return nil
	}
	if len(b) < 3 || b[0] != gobVersion || len(b) < 3+int(b[2]) {
		return bad
	}
	flags, name := b[1], string(b[3:3+int(b[2])])
	dtype, err := ParseDType(name)
	if err != nil {
		return err
	}
	b = b[3+len(name):]
	next := func() (uint64, bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	ndim, ok := next()
	if !ok || ndim > maxDims {
		return bad
	}
	shape := make([]int64, ndim)
	for i := range shape {
		n, ok := next()
		if !ok || n > math.MaxInt64 {
			return bad
		}
		shape[i] = int64(n)
	}
	made := FromRaw(b, dtype, shape...)
	if flags&gobRequiresGrad != 0 {
		made.RequiresGrad_()
	}
	*t = made
	return nil
}

type jsonTensor struct {
	DType        string          `json:"dtype"`
	Shape        []int64         `json:"shape"`
	RequiresGrad bool            `json:"requires_grad,omitempty"`
	Data         json.RawMessage `json:"data"`
}

// MarshalJSON is part of json.Marshaler.
func (t Tensor) MarshalJSON() (b []byte, err error) {
	defer catch(&err)
	if t.T == nil {
		return []byte("null"), nil
	}
	p, err := t.plain("MarshalJSON")
	if err != nil {
		return nil, err
	}
	return json.Marshal(jsonTensor{p.DType().Name(), p.Shape(), t.RequiresGrad(), jsonData(p)})
}

// asBits reports whether the elements of a type are bits rather than numbers.
func (d DType) asBits() bool {
	if dtypes[d].class == classBits || d == Float4E2M1FNx2 || d == BComplex32 {
		return true
	}
	return dtypes[d].class == classInt && (d >= Uint1 && d <= Uint7 || d >= Int1 && d <= Int7)
}

func jsonData(t Tensor) []byte {
	d := t.DType()
	switch {
	case d.asBits():
		s := base64.StdEncoding.EncodeToString(RawData(t))
		runtime.KeepAlive(t.T)
		return strconv.AppendQuote(nil, s)
	case d == Bool:
		return jsonList(ToSlice[bool](t), strconv.AppendBool)
	case d == Uint64:
		return jsonList(ToSlice[uint64](t), func(b []byte, v uint64) []byte { return strconv.AppendUint(b, v, 10) })
	case d.IsInteger():
		return jsonList(ToSlice[int64](t), func(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) })
	case d == Float64:
		return jsonList(ToSlice[float64](t), func(b []byte, v float64) []byte { return jsonFloat(b, v, 64) })
	case d.IsFloatingPoint():
		return jsonList(ToSlice[float32](t), func(b []byte, v float32) []byte { return jsonFloat(b, float64(v), 32) })
	}
	bits := 32
	if d == Complex128 {
		bits = 64
	}
	return jsonList(ToSlice[complex128](t), func(b []byte, v complex128) []byte {
		b = jsonFloat(append(b, '['), real(v), bits)
		b = jsonFloat(append(b, ','), imag(v), bits)
		return append(b, ']')
	})
}

func jsonList[T any](vs []T, add func([]byte, T) []byte) []byte {
	b := []byte{'['}
	for i, v := range vs {
		if i > 0 {
			b = append(b, ',')
		}
		b = add(b, v)
	}
	return append(b, ']')
}

func jsonFloat(b []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(b, `"-Infinity"`...)
	}
	format := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, v, format, -1, bits)
}

// Numbers as JSON has them. A float32 is rounded once, from its decimal digits.
type (
	jsonFloat32 float32
	jsonFloat64 float64
)

func (f *jsonFloat32) UnmarshalJSON(b []byte) error {
	v, err := parseJSONFloat(b, 32)
	*f = jsonFloat32(v)
	return err
}

func (f *jsonFloat64) UnmarshalJSON(b []byte) error {
	v, err := parseJSONFloat(b, 64)
	*f = jsonFloat64(v)
	return err
}

func parseJSONFloat(b []byte, bits int) (float64, error) {
	switch string(b) {
	case `"NaN"`:
		return math.NaN(), nil
	case `"Infinity"`:
		return math.Inf(1), nil
	case `"-Infinity"`:
		return math.Inf(-1), nil
	}
	v, err := strconv.ParseFloat(string(b), bits)
	if err != nil {
		return 0, newError("UnmarshalJSON", ValueError, "an element is "+string(b)+", which is no number of the tensor's type")
	}
	return v, nil
}

// UnmarshalJSON is part of json.Unmarshaler.
func (t *Tensor) UnmarshalJSON(b []byte) (err error) {
	defer catch(&err)
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		*t = Tensor{}
		return nil
	}
	var j jsonTensor
	if err := json.Unmarshal(b, &j); err != nil {
		return badJSON(err, `an object as {"dtype": "float32", "shape": [2], "data": [1, 2]}`)
	}
	if j.DType == "" || j.Data == nil {
		return newError("UnmarshalJSON", ValueError, `the JSON of a tensor has "dtype", "shape" and "data", and one is missing`)
	}
	d, err := ParseDType(j.DType)
	if err != nil {
		return err
	}
	if d.IsQuantized() {
		return newError("UnmarshalJSON", NotImplementedError, "quantised tensors cannot be decoded")
	}
	if len(j.Shape) > maxDims {
		return newError("UnmarshalJSON", ValueError, fmt.Sprintf("the tensor has %d dimensions, and no more than %d are decoded", len(j.Shape), maxDims))
	}
	made, err := fromJSONData(d, j)
	if err != nil {
		return err
	}
	if j.RequiresGrad {
		made.RequiresGrad_()
	}
	*t = made
	return nil
}

// badJSON returns the error for JSON that is no tensor, in the words of JSON and not of the types that it is read into.
func badJSON(err error, want string) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	at := ""
	if wrong.Field != "" {
		at = fmt.Sprintf(" as %q", wrong.Field)
	}
	return newError("UnmarshalJSON", ValueError, fmt.Sprintf("the JSON has a %s%s, where a tensor has %s", wrong.Value, at, want))
}

func fromJSONData(d DType, j jsonTensor) (Tensor, error) {
	switch {
	case d.asBits():
		var data []byte // encoding/json reads base64 into bytes
		if err := json.Unmarshal(j.Data, &data); err != nil {
			return Tensor{}, badJSON(err, "its bytes in base64")
		}
		return FromRaw(data, d, shapeOf(j)...), nil
	case d == Bool:
		return fromJSONList[bool](d, j)
	case d == Uint64:
		return fromJSONList[uint64](d, j)
	case d.IsInteger():
		return fromJSONList[int64](d, j)
	case d == Float64:
		return fromJSONList[jsonFloat64](d, j)
	case d.IsFloatingPoint():
		return fromJSONList[jsonFloat32](d, j)
	case d == Complex128:
		return fromJSONPairs[jsonFloat64](d, j)
	}
	return fromJSONPairs[jsonFloat32](d, j)
}

// shapeOf returns the shape, where no dimensions are an empty list and not the length of the data.
func shapeOf(j jsonTensor) []int64 {
	if j.Shape == nil {
		return []int64{}
	}
	return j.Shape
}

func fromJSONList[T Element](d DType, j jsonTensor) (Tensor, error) {
	var list []T
	if err := json.Unmarshal(j.Data, &list); err != nil {
		return Tensor{}, badJSON(err, "a list of numbers of its dtype, "+j.DType)
	}
	return fromElements(d, list, j)
}

func fromJSONPairs[F jsonFloat32 | jsonFloat64](d DType, j jsonTensor) (Tensor, error) {
	var pairs [][]F
	if err := json.Unmarshal(j.Data, &pairs); err != nil {
		return Tensor{}, badJSON(err, "a list of pairs of numbers, the real and the imaginary part")
	}
	list := make([]complex128, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return Tensor{}, newError("UnmarshalJSON", ValueError, fmt.Sprintf("element %d is no pair of numbers", i))
		}
		list[i] = complex(float64(p[0]), float64(p[1]))
	}
	return fromElements(d, list, j)
}

func fromElements[T Element](d DType, list []T, j jsonTensor) (Tensor, error) {
	if d.IsInteger() {
		if err := checkRange(d, list); err != nil {
			return Tensor{}, err
		}
	}
	shape := shapeOf(j)
	if !fits(shape, len(list)) {
		return Tensor{}, newError("UnmarshalJSON", ValueError, fmt.Sprintf("shape %v does not have the %d elements of the data", shape, len(list)))
	}
	return FromSlice(list, shape...).To(d), nil
}

// checkRange reports an integer that does not fit into d, which PyTorch would wrap around.
func checkRange[T Element](d DType, list []T) error {
	ints, ok := any(list).([]int64)
	if !ok || d == Int64 {
		return nil
	}
	bits := 8 * d.Size()
	low, high := int64(0), int64(1)<<bits-1
	if d.IsSigned() {
		low, high = -1<<(bits-1), 1<<(bits-1)-1
	}
	for _, v := range ints {
		if v < low || v > high {
			return newError("UnmarshalJSON", ValueError, fmt.Sprintf("an element is %d, which %s cannot hold", v, d))
		}
	}
	return nil
}
