package gotorch_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
)

func ExampleFromSlice() {
	fmt.Println(gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3))
	fmt.Println(gotorch.FromSlice([]int{7, 8}).DType())
	// Output:
	// tensor([[1., 2., 3.],
	//         [4., 5., 6.]])
	// torch.int64
}

func ExampleNewTensor() {
	fmt.Println(gotorch.NewTensor([][]int64{{1, 2}, {3, 4}}))
	_, err := gotorch.Try(func() gotorch.Tensor { return gotorch.NewTensor([][]int64{{1, 2}, {3}}) })
	fmt.Println(err)
	// Output:
	// tensor([[1, 2],
	//         [3, 4]])
	// NewTensor: ValueError: ragged data: expected 2 elements at [1], got 1
}

func ExampleData() {
	x := gotorch.Zeros([]int64{2, 2})
	gotorch.Data[float32](x)[3] = 5
	fmt.Println(x)
	// Output:
	// tensor([[0., 0.],
	//         [0., 5.]])
}

func ExampleItem() {
	x := gotorch.FromSlice([]float32{1, 2, 3.5})
	fmt.Println(gotorch.Item[float64](x.Sum()), x.Sum().Item())
	// Output: 6.5 6.5
}

// roundTrip checks that a slice of one Go type comes back from a tensor as it went in.
func roundTrip[T gotorch.Element](t *testing.T, dtype gotorch.DType, values ...T) {
	t.Helper()
	x := gotorch.FromSlice(values)
	if x.DType() != dtype || !slices.Equal(x.Shape(), []int64{int64(len(values))}) {
		t.Errorf("%T became %s of shape %v", values, x.DType(), x.Shape())
	}
	if got := gotorch.Data[T](x); !slices.Equal(got, values) {
		t.Errorf("%T %v came back as %v", values, values, got)
	}
	if got := gotorch.ToSlice[T](x); !slices.Equal(got, values) {
		t.Errorf("ToSlice of %T %v is %v", values, values, got)
	}
	for i, v := range values {
		if got := gotorch.Item[T](x.Select(0, int64(i))); got != v {
			t.Errorf("Item of %T %v is %v", v, v, got)
		}
		if s := gotorch.FromScalar(v); s.DType() != dtype || s.Dim() != 0 {
			t.Errorf("FromScalar of %T is %s with %d dimensions", v, s.DType(), s.Dim())
		}
	}
}

type celsius float32

func TestSmokeEveryGoTypeRoundTrips(t *testing.T) {
	roundTrip(t, gotorch.Bool, true, false)
	roundTrip[int](t, gotorch.Int64, math.MinInt, math.MaxInt, 0)
	roundTrip[int8](t, gotorch.Int8, math.MinInt8, math.MaxInt8)
	roundTrip[int16](t, gotorch.Int16, math.MinInt16, math.MaxInt16)
	roundTrip[int32](t, gotorch.Int32, math.MinInt32, math.MaxInt32)
	roundTrip[int64](t, gotorch.Int64, math.MinInt64, math.MaxInt64)
	roundTrip[uint](t, gotorch.Uint64, 0, math.MaxUint)
	roundTrip[uint8](t, gotorch.Uint8, 0, math.MaxUint8)
	roundTrip[uint16](t, gotorch.Uint16, 0, math.MaxUint16)
	roundTrip[uint32](t, gotorch.Uint32, 0, math.MaxUint32)
	roundTrip[uint64](t, gotorch.Uint64, 0, math.MaxUint64)
	roundTrip[float32](t, gotorch.Float32, math.MaxFloat32, -0.1)
	roundTrip(t, gotorch.Float64, math.MaxFloat64, math.SmallestNonzeroFloat64)
	roundTrip(t, gotorch.Complex64, complex64(1-2i))
	roundTrip(t, gotorch.Complex128, 1-2i, 5)
	roundTrip[celsius](t, gotorch.Float32, 36.6)
}

func TestFromSliceRefusesOtherShapes(t *testing.T) {
	for _, shape := range [][]int64{{2, 2}, {-1}, {3, -1, -1}, {0}, {math.MaxInt64, math.MaxInt64, 3}, {1 << 62, 4}} {
		mustFail(t, gotorch.ValueError, "does not have the 3 elements", func() { gotorch.FromSlice([]int{1, 2, 3}, shape...) })
	}
	if x := gotorch.FromSlice([]int{}, 0, 5); x.Numel() != 0 || !slices.Equal(x.Shape(), []int64{0, 5}) {
		t.Errorf("shape is %v", x.Shape())
	}
	// An empty shape is one, and no shape is that of the data: in all three alike.
	number := gotorch.Zeros(nil)
	for name, x := range map[string]gotorch.Tensor{
		"FromSlice": gotorch.FromSlice([]float32{1}, number.Shape()...),
		"FromBlob":  gotorch.FromBlob([]float32{1}, number.Shape()...),
		"FromRaw":   gotorch.FromRaw(make([]byte, 4), gotorch.Float32, number.Shape()...),
	} {
		if x.Dim() != 0 {
			t.Errorf("%s makes shape %v of an empty one", name, x.Shape())
		}
	}
	for name, x := range map[string]gotorch.Tensor{
		"FromSlice": gotorch.FromSlice([]float32{1}),
		"FromBlob":  gotorch.FromBlob([]float32{1}),
		"FromRaw":   gotorch.FromRaw(make([]byte, 4), gotorch.Float32),
	} {
		if !slices.Equal(x.Shape(), []int64{1}) {
			t.Errorf("%s makes shape %v without one", name, x.Shape())
		}
	}
	mustFail(t, gotorch.ValueError, "does not have the 3 elements", func() { gotorch.FromSlice([]int{1, 2, 3}, number.Shape()...) })
	if x := gotorch.FromSlice[float32](nil); !slices.Equal(x.Shape(), []int64{0}) {
		t.Errorf("shape is %v", x.Shape())
	}
}

func TestNewTensor(t *testing.T) {
	for _, c := range []struct {
		data  any
		dtype gotorch.DType
		want  string
	}{
		{5, gotorch.Int64, "tensor(5)"},
		{float32(2.5), gotorch.Float32, "tensor(2.5000)"},
		{[]bool{true, false}, gotorch.Bool, "tensor([ True, False])"},
		{[2][2]int32{{1, 2}, {3, 4}}, gotorch.Int32, "tensor([[1, 2],\n        [3, 4]], dtype=torch.int32)"},
		{[][][]uint8{{{1}, {2}}}, gotorch.Uint8, "tensor([[[1],\n         [2]]], dtype=torch.uint8)"},
		{[][]float32{}, gotorch.Float32, "tensor([], size=(0, 0))"},
		{[][]float32{{}, {}}, gotorch.Float32, "tensor([], size=(2, 0))"},
		{[3]celsius{1, 2, 3}, gotorch.Float32, "tensor([1., 2., 3.])"},
	} {
		x := gotorch.NewTensor(c.data)
		if x.DType() != c.dtype {
			t.Errorf("%T became %s", c.data, x.DType())
		}
		expect(t, x, c.want)
	}
	x := gotorch.NewTensor([]float64{1, 2}, gotorch.TensorOptions{DType: gotorch.BFloat16, RequiresGrad: true})
	expect(t, x, "tensor([1., 2.], dtype=torch.bfloat16, requires_grad=True)")
	mustFail(t, gotorch.ValueError, "ragged data: expected 1 elements at [0][1], got 2", func() {
		gotorch.NewTensor([][][]int{{{1}, {1, 2}}})
	})
	mustFail(t, gotorch.ValueError, "ragged data", func() { gotorch.NewTensor([][]int{{}, {1}}) })
	for _, bad := range []any{nil, "text", []string{"a"}, []any{1, 2}, map[int]int{}, struct{}{}} {
		mustFail(t, gotorch.TypeError, "argument 'data'", func() { gotorch.NewTensor(bad) })
	}
}

func TestDataRefusesWhatItCannotShow(t *testing.T) {
	x := gotorch.Zeros([]int64{2, 3})
	mustFail(t, gotorch.TypeError, "a tensor of torch.float32 cannot be seen as []float64", func() { gotorch.Data[float64](x) })
	mustFail(t, gotorch.ValueError, "not contiguous", func() { gotorch.Data[float32](x.Transpose(0, 1)) })
	mustFail(t, gotorch.RuntimeError, "on meta", func() {
		gotorch.Data[float32](gotorch.Zeros([]int64{2}, gotorch.TensorOptions{Device: gotorch.Meta}))
	})
	z := gotorch.FromSlice([]complex64{1i}).Conj()
	mustFail(t, gotorch.ValueError, "conjugated", func() { gotorch.Data[complex64](z) })
	mustFail(t, gotorch.TypeError, "zero Tensor", func() { gotorch.Data[float32](gotorch.Tensor{}) })
	if n := len(gotorch.Data[float32](gotorch.Zeros([]int64{0}))); n != 0 {
		t.Errorf("%d elements of none", n)
	}
	sparse := gotorch.Ones([]int64{2, 2}).ToSparse()
	if _, err := gotorch.Try(func() []float32 { return gotorch.Data[float32](sparse) }); err == nil {
		t.Error("a sparse tensor has no plain memory")
	}
}

func TestToSliceTakesAnyTensor(t *testing.T) {
	x := gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if got := gotorch.ToSlice[float32](x.Transpose(0, 1)); !slices.Equal(got, []float32{1, 4, 2, 5, 3, 6}) {
		t.Errorf("transposed: %v", got)
	}
	if got := gotorch.ToSlice[int](x); !slices.Equal(got, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("as int: %v", got)
	}
	if got := gotorch.ToSlice[float64](x.To(gotorch.Float16)); !slices.Equal(got, []float64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("from float16: %v", got)
	}
	if got := gotorch.ToSlice[complex64](gotorch.FromSlice([]complex64{1 + 2i}).Conj()); got[0] != 1-2i {
		t.Errorf("conjugated: %v", got)
	}
	if got := gotorch.ToSlice[float32](gotorch.Eye(2).ToSparse()); !slices.Equal(got, []float32{1, 0, 0, 1}) {
		t.Errorf("sparse: %v", got)
	}
	if got := gotorch.ToSlice[float32](x.Clone().RequiresGrad_()); len(got) != 6 {
		t.Errorf("requires grad: %v", got)
	}
	got := gotorch.ToSlice[float32](x)
	got[0] = 99
	if gotorch.Item[float32](x.Select(0, 0).Select(0, 0)) != 1 {
		t.Error("ToSlice does not copy")
	}
	meta := gotorch.Zeros([]int64{2}, gotorch.TensorOptions{Device: gotorch.Meta})
	mustFail(t, gotorch.NotImplementedError, "Cannot copy out of meta tensor", func() { gotorch.ToSlice[float32](meta) })
}

func TestItemConverts(t *testing.T) {
	half := gotorch.FromScalar(-2.5)
	if gotorch.Item[int](half) != -2 || gotorch.Item[float32](half) != -2.5 || gotorch.Item[complex128](half) != -2.5 ||
		!gotorch.Item[bool](half) {
		t.Error("-2.5 converts wrongly")
	}
	most := gotorch.FromScalar(uint64(math.MaxUint64))
	if gotorch.Item[uint64](most) != math.MaxUint64 || gotorch.Item[float64](most) != math.MaxUint64 {
		t.Error("the largest uint64 converts wrongly")
	}
	if gotorch.Item[int](gotorch.FromScalar(true)) != 1 || gotorch.Item[float64](gotorch.FromScalar(-7)) != -7 {
		t.Error("bool or int converts wrongly")
	}
	mustFail(t, gotorch.TypeError, "imaginary part", func() { gotorch.Item[float64](gotorch.FromScalar(1i)) })
	for what, fn := range map[string]func(){
		"int8 without overflow: it is 300":  func() { gotorch.Item[int8](gotorch.FromScalar(300)) },
		"uint8 without overflow: it is -1":  func() { gotorch.Item[uint8](gotorch.FromScalar(-1)) },
		"int without overflow: it is NaN":   func() { gotorch.Item[int](gotorch.FromScalar(math.NaN())) },
		"float32 without overflow: it is 1": func() { gotorch.Item[float32](gotorch.FromScalar(1e300)) },
		"int64 without overflow: it is 9223372036854775808": func() {
			gotorch.Item[int64](gotorch.FromScalar(uint64(1 << 63)))
		},
		"int8 without overflow: it is -129": func() { gotorch.ToSlice[int8](gotorch.FromSlice([]int64{1, -129, 3})) },
		"int32 without overflow: it is +Inf": func() {
			gotorch.ToSlice[int32](gotorch.FromSlice([]float32{1, float32(math.Inf(1))}))
		},
		"float32 without overflow: it is -1e+300": func() { gotorch.ToSlice[float32](gotorch.FromSlice([]float64{math.NaN(), -1e300})) },
		"int without overflow: it is 1844674407370955161": func() {
			gotorch.ToSlice[int](gotorch.FromSlice([]uint64{1, math.MaxUint64}))
		},
		"uint8 without overflow: it is 256": func() { gotorch.ToSlice[uint8](gotorch.FromScalar(256).To(gotorch.Float16)) },
		"int8 without overflow: it is 301":  func() { gotorch.NewTensor([]int{1, 301}, gotorch.TensorOptions{DType: gotorch.Int8}) },
		"uint8 without overflow: it is -2": func() {
			gotorch.NewTensor([]float32{1, -2}, gotorch.TensorOptions{DType: gotorch.Uint8})
		},
	} {
		mustFail(t, gotorch.RuntimeError, what, fn)
	}
	mustFail(t, gotorch.TypeError, "imaginary part", func() { gotorch.ToSlice[float32](gotorch.FromSlice([]complex64{1, 2i})) })
	large := gotorch.NewTensor([]float64{1e300, -2.5}, gotorch.TensorOptions{DType: gotorch.Float32})
	if got := gotorch.ToSlice[float64](large); !math.IsInf(got[0], 1) || got[1] != -2.5 { // as torch.tensor
		t.Errorf("1e300 as a float32 is %v", got)
	}
	mustFail(t, gotorch.RuntimeError, "a Tensor with 2 elements cannot be converted to Scalar", func() {
		gotorch.Item[int](gotorch.Zeros([]int64{2}))
	})
	for _, c := range []struct{ got, want gotorch.Scalar }{
		{gotorch.FromScalar(true).Item(), true}, {gotorch.FromScalar(int8(3)).Item(), int64(3)},
		{gotorch.FromScalar(float32(0.5)).Item(), 0.5}, {gotorch.FromScalar(1i).Item(), 1i},
		{gotorch.FromScalar(uint64(math.MaxUint64)).Item(), uint64(math.MaxUint64)},
	} {
		if c.got != c.want {
			t.Errorf("got %T %v, want %T %v", c.got, c.got, c.want, c.want)
		}
	}
}

func TestFromBlobSharesGoMemory(t *testing.T) {
	gotorch.Collect()
	lent := gotorch.Lent()
	func() {
		data := []float32{1, 2, 3, 4}
		x := gotorch.FromBlob(data, 2, 2)
		data[3] = 40
		expect(t, x, "tensor([[ 1.,  2.],\n        [ 3., 40.]])")
		x.Mul_(x)
		if data[1] != 4 {
			t.Errorf("data is %v", data)
		}
		if gotorch.Lent() != lent+1 {
			t.Error("the memory is not pinned")
		}
		view := x.Select(0, 1)
		x.Close()
		data = nil
		runtime.GC()
		if gotorch.Lent() != lent+1 {
			t.Error("the memory is not pinned while a view needs it")
		}
		expect(t, view, "tensor([   9., 1600.])")
		view.Close()
		eventually(t, "memory to be unpinned after the last view was closed", func() bool { return gotorch.Lent() == lent })
	}()
	for range 100 {
		gotorch.FromBlob(make([]int64, 10))
	}
	eventually(t, "memory to be unpinned", func() bool { return gotorch.Lent() <= lent })
	mustFail(t, gotorch.ValueError, "does not have the 4 elements", func() { gotorch.FromBlob(make([]int, 4), 5) })
	if n := gotorch.FromBlob([]int{}).Numel(); n != 0 || gotorch.Lent() != lent {
		eventually(t, "an empty blob to be dropped", func() bool { return gotorch.Lent() <= lent })
	}
}

// hasDType reports whether the torch that is loaded knows a dtype.
func hasDType(t *testing.T, d gotorch.DType) bool {
	t.Helper()
	return d != gotorch.BComplex32 || testhelp.BComplex32.In(t, gotorch.TorchVersion())
}

func TestRawData(t *testing.T) {
	x := gotorch.FromRaw([]byte{0x00, 0x3c, 0x00, 0xc0}, gotorch.Float16, 2)
	expect(t, x, "tensor([ 1., -2.], dtype=torch.float16)")
	if got := gotorch.RawData(x); !slices.Equal(got, []byte{0x00, 0x3c, 0x00, 0xc0}) {
		t.Errorf("bits are %x", got)
	}
	mustFail(t, gotorch.ValueError, "no whole number", func() { gotorch.FromRaw(make([]byte, 3), gotorch.Float16, 1) })
	mustFail(t, gotorch.TypeError, "zero DType", func() { gotorch.FromRaw(nil, 0) })
	for d := gotorch.DType(1); d.Size() > 0; d++ {
		if d.IsQuantized() || !hasDType(t, d) {
			continue // it needs a scale, or a newer torch
		}
		x := gotorch.FromRaw(make([]byte, 2*d.Size()), d, 2)
		if x.DType() != d || len(gotorch.RawData(x)) != 2*d.Size() {
			t.Errorf("%s: got %s of %d bytes", d, x.DType(), len(gotorch.RawData(x)))
		}
	}
}

func TestThereIsOneOptionsStruct(t *testing.T) {
	x := gotorch.Ones([]int64{2})
	for name, fn := range map[string]func(){
		"a generated function": func() { x.Add(x, gotorch.AddOptions{}, gotorch.AddOptions{Alpha: 2}) },
		"a factory":            func() { gotorch.Zeros(nil, gotorch.TensorOptions{}, gotorch.TensorOptions{}) },
		"NewTensor":            func() { gotorch.NewTensor(1, gotorch.TensorOptions{}, gotorch.TensorOptions{}) },
		"Backward":             func() { x.Backward(gotorch.BackwardOptions{}, gotorch.BackwardOptions{}) },
		"Grad":                 func() { gotorch.Grad(nil, nil, gotorch.GradOptions{}, gotorch.GradOptions{}) },
		"Tensors":              func() { gotorch.Tensors{x}.Add(nil, gotorch.AddOptions{}, gotorch.AddOptions{}) },
		"Autocast": func() {
			gotorch.Autocast(gotorch.CPU, 0, func() {}, gotorch.AutocastOptions{}, gotorch.AutocastOptions{})
		},
		"DetectAnomaly": func() { gotorch.DetectAnomaly(func() {}, gotorch.AnomalyOptions{}, gotorch.AnomalyOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			mustFail(t, gotorch.TypeError, "there may be one options struct, and there are 2", fn)
		})
	}
}
