package gotorch

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch/internal/pickle"
)

// NumPy's arrays and scalars in files of torch.save.

// npDType is a numpy.dtype: "f4", and the order of its bytes.
type npDType struct {
	code       string
	bigEndian  bool
	structured bool // whether it has fields, or arrays as elements
}

// PickleName is part of pickle.Named.
func (*npDType) PickleName() string { return "a numpy.dtype" }

// build takes the state: a version, the order of bytes, an element's dtype and shape, names and fields of fields ...
func (d *npDType) build(state any) error {
	t, _ := state.(*pickle.Tuple)
	if t == nil || len(t.Items) < 5 {
		return loadError(UnpicklingError, "the state of a numpy.dtype is malformed")
	}
	order, _ := textOf(t.Items[1])
	d.bigEndian = order == ">"
	d.structured = t.Items[2] != nil || t.Items[3] != nil || t.Items[4] != nil
	return nil
}

var npDTypes = map[string]DType{
	"b1": Bool, "i1": Int8, "i2": Int16, "i4": Int32, "i8": Int64, "u1": Uint8, "u2": Uint16, "u4": Uint32, "u8": Uint64,
	"f2": Float16, "f4": Float32, "f8": Float64, "c8": Complex64, "c16": Complex128,
}

// npArray is a numpy.ndarray. Its tensor is made when its elements are known.
type npArray struct {
	class  string
	tensor Tensor
	state  any // of one that no tensor can hold
}

// PickleName is part of pickle.Named.
func (*npArray) PickleName() string { return "a numpy.ndarray" }

// opaque is the array as an object, where it has no tensor.
func (a *npArray) opaque() *pickle.Object {
	return &pickle.Object{Class: a.class, Call: true, State: a.state}
}

// build takes the state: a version, shape, dtype, whether the first dimension is the innermost, and the elements.
func (a *npArray) build(u *unpickler, state any) error {
	a.state = state
	t, _ := state.(*pickle.Tuple)
	if t == nil || len(t.Items) < 4 {
		return loadError(UnpicklingError, "the state of a numpy.ndarray is malformed")
	}
	items := t.Items[len(t.Items)-4:]
	fortran, _ := items[2].(bool)
	made, err := u.fromNumpy(items[3], items[1], items[0], fortran)
	if err == nil {
		a.tensor = made
	}
	return err
}

// numpy makes what NumPy's functions return.
func (u *unpickler) numpy(g global, args *pickle.Tuple) (any, error) {
	in := args.Items
	arg := argumentsOf(in)
	bad := loadError(UnpicklingError, "%s is called with the wrong arguments", g)
	if err := u.budget.Take(1024); err != nil {
		return nil, err
	}
	switch g {
	case "numpy.dtype":
		code, ok := textOf(arg(0))
		if !ok || len(code) > 100 {
			return nil, bad
		}
		return &npDType{code: code}, nil
	case "numpy._core.multiarray._reconstruct":
		class, ok := arg(0).(global)
		switch {
		case !ok:
			return nil, bad
		case class != "numpy.ndarray" && class != "numpy.memmap" && class != "numpy.matrix":
			return u.opaque(string(class), &pickle.Tuple{})
		}
		return &npArray{class: string(class)}, nil
	case "numpy._core.numeric._frombuffer":
		order, ok := textOf(arg(3))
		a := &npArray{class: "numpy.ndarray", state: args}
		if !ok || order != "C" && order != "F" || len(in) > 4 && in[4] != nil {
			return a, nil
		}
		var err error
		a.tensor, err = u.fromNumpy(arg(0), arg(1), arg(2), order == "F")
		return a, err
	}
	d, ok := arg(0).(*npDType)
	if !ok {
		return nil, bad
	}
	b, ok, err := u.bytesIn(arg(1))
	if err == nil {
		err = u.budget.Take(2 * len(b)) // of text, to make it
	}
	if err != nil {
		return nil, err
	}
	if v, known := d.number(b); ok && known {
		return v, nil
	}
	class := "numpy._core.multiarray.scalar"
	if len(d.code) > 0 {
		if name := map[byte]string{'M': "numpy.datetime64", 'm': "numpy.timedelta64", 'f': "numpy.longdouble", 'c': "numpy.clongdouble", 'V': "numpy.void"}[d.code[0]]; name != "" {
			class = name
		}
	}
	return u.opaque(class, args)
}

// bytesIn returns bytes, also where Python 2 has written them and they are text.
func (u *unpickler) bytesIn(v any) (b []byte, ok bool, err error) {
	switch v := v.(type) {
	case []byte:
		return v, true, nil
	case string:
		if err := u.budget.Take(len(v)); err != nil {
			return nil, false, err
		}
		return []byte(v), true, nil
	}
	return nil, false, nil
}

// fromNumpy makes a tensor of an array's elements; the zero Tensor of one that no tensor can hold.
func (u *unpickler) fromNumpy(data, of, shape any, fortran bool) (t Tensor, err error) {
	d, ok1 := of.(*npDType)
	sizes, ok2 := dimsOf(shape)
	b, ok3, err := u.bytesIn(data)
	if err != nil {
		return t, err
	}
	if !ok1 || !ok2 || d.structured {
		return t, nil
	}
	dtype := npDTypes[d.code]
	if dtype == 0 || !ok3 {
		return t, nil
	}
	if err := u.budget.Take(1024 + 2*len(b)); err != nil {
		return t, err
	}
	if len(b)%dtype.Size() != 0 || !fits(sizes, len(b)/dtype.Size()) {
		return t, loadError(ValueError, "an array of shape %v and dtype %s has %d bytes", sizes, d.code, len(b))
	}
	b = d.littleEndian(b, dtype)
	if dtype == Bool {
		b = slices.Clone(b)
		for i := range b {
			b[i] = min(b[i], 1)
		}
	}
	order := make([]int64, len(sizes))
	for i := range order {
		order[i] = int64(i)
	}
	if fortran {
		sizes = slices.Clone(sizes)
		slices.Reverse(sizes)
		slices.Reverse(order)
	}
	err = Try0(func() {
		t = u.onDevice(FromRaw(b, dtype, sizes...))
		if fortran {
			t = t.Permute(order)
		}
	})
	return t, err
}

// littleEndian returns the bytes of d's numbers in the order of this machine.
func (d *npDType) littleEndian(b []byte, dtype DType) []byte {
	if !d.bigEndian {
		return b
	}
	b = slices.Clone(b)
	reverseEach(b, partSize(dtype))
	return b
}

// number returns a scalar of d's, as Go has it: integers are int64, floats float64.
func (d *npDType) number(b []byte) (v any, ok bool) {
	if d.structured {
		return nil, false
	}
	if dtype := npDTypes[d.code]; dtype != 0 {
		if len(b) != dtype.Size() {
			return nil, false
		}
		if dtype == Bool {
			return b[0] != 0, true
		}
		t := FromRaw(d.littleEndian(b, dtype), dtype)
		defer t.Close()
		switch {
		case dtype.IsFloatingPoint():
			return Item[float64](t), true
		case dtype.IsComplex():
			return Item[complex128](t), true
		case dtype == Uint64:
			n := new(big.Int).SetUint64(Item[uint64](t))
			if !n.IsInt64() {
				return n, true
			}
		}
		return Item[int64](t), true
	}
	kind, digits := d.code, ""
	if len(kind) > 0 {
		kind, digits = kind[:1], kind[1:]
	}
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil:
	case kind == "S" && len(b) == n:
		return bytes.TrimRight(b, "\x00"), true
	case kind == "U" && len(b) == 4*n:
		var order binary.ByteOrder = binary.LittleEndian
		if d.bigEndian {
			order = binary.BigEndian
		}
		runes := make([]rune, n)
		for i := range runes {
			runes[i] = rune(order.Uint32(b[4*i:]) & math.MaxInt32)
		}
		return strings.TrimRight(string(runes), "\x00"), true
	}
	return nil, false
}
