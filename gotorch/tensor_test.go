package gotorch_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func TestSmokeWhatATensorIs(t *testing.T) {
	x := gotorch.Zeros([]int64{2, 3, 4}, gotorch.TensorOptions{DType: gotorch.Float64})
	y := x.Transpose(0, 2)
	if !slices.Equal(y.Shape(), []int64{4, 3, 2}) || !slices.Equal(y.Strides(), []int64{1, 4, 12}) {
		t.Errorf("shape %v, strides %v", y.Shape(), y.Strides())
	}
	if y.Dim() != 3 || y.Numel() != 24 || y.Size(0) != 4 || y.Size(-1) != 2 {
		t.Errorf("dim %d, numel %d, sizes %d and %d", y.Dim(), y.Numel(), y.Size(0), y.Size(-1))
	}
	if y.DType() != gotorch.Float64 || y.Device() != gotorch.CPU || y.Layout() != gotorch.Strided {
		t.Errorf("%s, %s, %s", y.DType(), y.Device(), y.Layout())
	}
	if !x.IsContiguous() || y.IsContiguous() {
		t.Error("contiguity is wrong")
	}
	// Native functions that torch 2.11 does not have: there a stand-in computes them.
	if n := x.Narrow(2, 1, 2).StorageOffset(); n != 1 {
		t.Errorf("offset %d", n)
	}
	if y.NDim() != 3 || y.NumelOf() != 24 || y.GetDevice() != -1 {
		t.Errorf("dim %d, numel %d, device %d", y.NDim(), y.NumelOf(), y.GetDevice())
	}
	if !x.IsContiguousDefault() || y.IsContiguousMemoryFormat(gotorch.ContiguousFormat) {
		t.Error("contiguity of native functions is wrong")
	}
	copies := gotorch.Tensors{x, y}.Clone()
	copies[1].Fill_(1)
	if !slices.Equal(copies[1].Shape(), y.Shape()) || gotorch.Item[float64](y.Sum()) != 0 {
		t.Error("copies are not copies")
	}
	mustFail(t, gotorch.IndexError, "Dimension out of range (expected to be in range of [-3, 2], but got 3)", func() { y.Size(3) })
	mustFail(t, gotorch.IndexError, "(expected to be in range of [-1, 0], but got 0)", func() { x.Sum().Size(0) })
	if s := gotorch.FromScalar(1).Shape(); s == nil || len(s) != 0 {
		t.Errorf("shape of a scalar is %v", s)
	}
}

func TestHandlesShareStorage(t *testing.T) {
	x := gotorch.Zeros([]int64{4})
	if x.UseCount() != 1 || x.StorageUseCount() != 1 {
		t.Errorf("%d uses, %d of the storage", x.UseCount(), x.StorageUseCount())
	}
	view := x.View([]int64{2, 2})
	other := x.Clone()
	if x.StorageUseCount() != 2 || view.StorageUseCount() != 2 {
		t.Errorf("the storage has %d uses, want 2", x.StorageUseCount())
	}
	if !x.SharesStorage(view) || x.SharesStorage(other) {
		t.Error("views share storage, copies do not")
	}
	if x.StorageBytes() != 16 || view.StorageBytes() != 16 {
		t.Errorf("the storage has %d bytes", x.StorageBytes())
	}
	before := x.Version()
	view.Add_(other.View([]int64{2, 2}))
	if x.Version() != before+1 {
		t.Errorf("the version went from %d to %d", before, x.Version())
	}
	s := x.Storage()
	if s.Bytes() != 16 || x.StorageUseCount() != 3 {
		t.Errorf("storage of %d bytes with %d uses", s.Bytes(), x.StorageUseCount())
	}
	same := gotorch.SetSourceStorage(gotorch.Empty([]int64{0}), s)
	if same.StorageUseCount() < 4 || same.Numel() != 4 {
		t.Errorf("%d uses, %d elements", same.StorageUseCount(), same.Numel())
	}
	runtime.KeepAlive(s)
}

func TestTensorsWithoutMemory(t *testing.T) {
	meta := gotorch.Zeros([]int64{1 << 40}, gotorch.TensorOptions{Device: gotorch.Meta})
	if meta.Device() != gotorch.Meta || meta.Numel() != 1<<40 {
		t.Errorf("%d elements on %s", meta.Numel(), meta.Device())
	}
	sparse := gotorch.Eye(3).ToSparse()
	if sparse.Layout() != gotorch.SparseCOO || sparse.StorageBytes() != 0 || !slices.Equal(sparse.Shape(), []int64{3, 3}) {
		t.Errorf("%s of %v with %d bytes", sparse.Layout(), sparse.Shape(), sparse.StorageBytes())
	}
	mustFail(t, gotorch.RuntimeError, "has no strides", func() { sparse.Strides() })
	if got := gotorch.ToSlice[float32](gotorch.MM(sparse, gotorch.Eye(3)).To(gotorch.Strided)); got[4] != 1 {
		t.Errorf("a sparse product is %v", got)
	}
	mustFail(t, gotorch.NotImplementedError, "", func() { sparse.Storage() })
}

// Row D6: methods work on a copied value.
func TestTensorIsAValue(t *testing.T) {
	x := gotorch.FromSlice([]float32{1})
	y := x
	y.Add_(y)
	expect(t, x, "tensor([2.])")
	var none gotorch.Tensor
	if none.Defined() || !x.Defined() {
		t.Error("only the zero Tensor is none")
	}
}

func TestDTypes(t *testing.T) {
	seen := map[string]bool{}
	for d := gotorch.DType(1); d.Size() > 0; d++ {
		name := d.Name()
		if seen[name] {
			t.Errorf("%s twice", name)
		}
		seen[name] = true
		if back, err := gotorch.ParseDType(d.String()); err != nil || back != d {
			t.Errorf("%s parses as %s, %v", d, back, err)
		}
		if back, err := gotorch.ParseDType(name); err != nil || back != d {
			t.Errorf("%s parses as %s, %v", name, back, err)
		}
		if !hasDType(t, d) {
			mustFail(t, gotorch.TypeError, "this torch has no dtype number", func() {
				gotorch.Empty([]int64{3}, gotorch.TensorOptions{DType: d, Device: gotorch.Meta})
			})
			continue
		}
		// libtorch itself agrees on size and name.
		x := gotorch.Empty([]int64{3}, gotorch.TensorOptions{DType: d, Device: gotorch.Meta})
		if x.DType() != d || !d.IsQuantized() && x.StorageBytes() != int64(3*d.Size()) {
			t.Errorf("%s: libtorch has %s of %d bytes", d, x.DType(), x.StorageBytes())
		}
		if d.IsFloatingPoint() != x.IsFloatingPoint() || d.IsComplex() != x.IsComplex() {
			t.Errorf("%s: libtorch disagrees on its class", d)
		}
		if signed, err := gotorch.Try(x.IsSigned); err == nil && signed != d.IsSigned() {
			t.Errorf("%s: libtorch disagrees on its sign", d)
		}
	}
	if len(seen) != 47 {
		t.Errorf("%d dtypes, want 47", len(seen))
	}
	for name, want := range map[string]gotorch.DType{"float": gotorch.Float32, "torch.half": gotorch.Float16, "long": gotorch.Int64} {
		if d, err := gotorch.ParseDType(name); err != nil || d != want {
			t.Errorf("%s parses as %s, %v", name, d, err)
		}
	}
	if _, err := gotorch.ParseDType("float33"); err == nil || !strings.Contains(err.Error(), `unknown dtype "float33"`) {
		t.Errorf("got %v", err)
	}
	if d := gotorch.Int32.Promote(gotorch.Float16); d != gotorch.Float16 {
		t.Errorf("int32 and float16 promote to %s", d)
	}
	if gotorch.Complex64.ToReal() != gotorch.Float32 || gotorch.Float64.ToComplex() != gotorch.Complex128 {
		t.Error("ToReal or ToComplex is wrong")
	}
}

func TestDefaultDType(t *testing.T) {
	defer gotorch.SetDefaultDType(gotorch.DefaultDType())
	if d := gotorch.DefaultDType(); d != gotorch.Float32 {
		t.Errorf("the default is %s", d)
	}
	gotorch.SetDefaultDType(gotorch.Float64)
	if d := gotorch.Zeros([]int64{1}).DType(); d != gotorch.Float64 {
		t.Errorf("zeros are %s", d)
	}
	mustFail(t, gotorch.TypeError, "only floating-point types", func() { gotorch.SetDefaultDType(gotorch.Int32) })
	mustFail(t, gotorch.TypeError, "", func() { gotorch.SetDefaultDType(0) })
}

func TestDevices(t *testing.T) {
	for name, want := range map[string]gotorch.Device{
		"cpu": gotorch.CPU, "meta": gotorch.Meta, "mps": gotorch.MPS, "cuda": gotorch.CUDA(-1), "cuda:0": gotorch.CUDA(0),
		"cuda:127": gotorch.CUDA(127),
	} {
		d, err := gotorch.ParseDevice(name)
		if err != nil || d != want || d.String() != name {
			t.Errorf("%s is %s, %v", name, d, err)
		}
	}
	for _, name := range []string{"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:128", "cuda:01", "cpu:0:0"} {
		if d, err := gotorch.ParseDevice(name); err == nil {
			t.Errorf("%q is %s", name, d)
		}
	}
	if d := gotorch.CUDA(3); d.Type() != gotorch.DeviceTypeCUDA || d.Index() != 3 || !d.IsCUDA() || gotorch.CPU.IsCUDA() {
		t.Errorf("%v is wrong", d)
	}
	mustFail(t, gotorch.RuntimeError, "out of range", func() { gotorch.CUDA(128) })
	mustFail(t, gotorch.NotImplementedError, "MPS", func() {
		gotorch.Zeros([]int64{1}, gotorch.TensorOptions{Device: gotorch.MPS})
	})
}

func TestCUDAAbsent(t *testing.T) {
	if gotorch.CUDAIsAvailable() {
		t.Skip("there is a GPU")
	}
	if n := gotorch.CUDADeviceCount(); n != 0 {
		t.Errorf("%d GPUs, but CUDA is not available", n)
	}
	x := gotorch.Ones([]int64{2})
	e := mustFail(t, gotorch.RuntimeError, "CUDA is not available", func() { x.To(gotorch.CUDA(0)) })
	if e.Op == "" {
		t.Error("the error does not name the op")
	}
	mustFail(t, gotorch.RuntimeError, "CUDA is not available", func() {
		gotorch.Zeros([]int64{1}, gotorch.TensorOptions{Device: gotorch.CUDA(-1)})
	})
	mustFail(t, gotorch.RuntimeError, "CUDA is not available", func() { gotorch.CUDASynchronize(gotorch.CUDA(0)) })
	mustFail(t, gotorch.ValueError, "expected a CUDA device", func() { gotorch.CUDASynchronize(gotorch.CPU) })
}

func TestTo(t *testing.T) {
	x := gotorch.FromSlice([]float32{1.5, -2, 3, 4}, 1, 1, 2, 2)
	if y := x.To(gotorch.Int64); y.DType() != gotorch.Int64 || gotorch.ToSlice[int64](y)[0] != 1 {
		t.Errorf("to int64: %v", y)
	}
	for what, y := range map[string]gotorch.Tensor{
		"dtype": x.To(gotorch.Float32), "device": x.To(gotorch.CPU), "layout": x.To(gotorch.Strided), "tensor": x.To(x),
		"nothing": x.To(), "all": x.To(gotorch.CPU, gotorch.Float32, gotorch.Strided), "format": x.To(gotorch.PreserveFormat),
	} {
		if y.T != x.T {
			t.Errorf("To with the same %s is another tensor", what)
		}
	}
	if y := x.To(gotorch.ToOptions{Copy: true}); y.T == x.T || y.SharesStorage(x) {
		t.Error("Copy does not copy")
	}
	if y := x.To(gotorch.Float64, gotorch.Meta); y.DType() != gotorch.Float64 || y.Device() != gotorch.Meta {
		t.Errorf("%s on %s", y.DType(), y.Device())
	}
	other := gotorch.Zeros([]int64{1}, gotorch.TensorOptions{DType: gotorch.Int32, Device: gotorch.Meta})
	if y := x.To(other); y.DType() != gotorch.Int32 || y.Device() != gotorch.Meta {
		t.Errorf("%s on %s", y.DType(), y.Device())
	}
	if y := x.Expand([]int64{2, 3, 2, 2}).To(gotorch.ChannelsLast); !slices.Equal(y.Strides(), []int64{12, 1, 6, 3}) {
		t.Errorf("strides in channels last are %v", y.Strides())
	}
	if y := x.Squeeze().To(gotorch.SparseCOO); y.Layout() != gotorch.SparseCOO {
		t.Errorf("layout is %s", y.Layout())
	}
}

func TestEnumNames(t *testing.T) {
	for got, want := range map[string]string{
		gotorch.Float8E4M3FN.String(): "torch.float8_e4m3fn", gotorch.DType(0).String(): "torch.none",
		gotorch.SparseCSR.String(): "torch.sparse_csr", gotorch.Layout(0).String(): "none",
		gotorch.ChannelsLast3d.String(): "torch.channels_last_3d", gotorch.MemoryFormat(9).String(): "none",
		gotorch.Device(0).String(): "none", gotorch.CUDA(1).String(): "cuda:1",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestScalars(t *testing.T) {
	x := gotorch.FromSlice([]int64{10})
	type mine int
	for _, c := range []struct {
		s    gotorch.Scalar
		want gotorch.DType
	}{
		{1, gotorch.Int64}, {int8(1), gotorch.Int64}, {uint16(1), gotorch.Int64}, {mine(1), gotorch.Int64}, {true, gotorch.Int64},
		{1.0, gotorch.Float32}, {float32(1), gotorch.Float32}, {1i, gotorch.Complex64}, {complex64(1), gotorch.Complex64},
	} {
		if y := x.AddScalar(c.s); y.DType() != c.want {
			t.Errorf("int64 and %T make %s, want %s", c.s, y.DType(), c.want)
		}
	}
	if got := gotorch.Item[uint64](gotorch.Full([]int64{}, uint64(math.MaxUint64), gotorch.TensorOptions{DType: gotorch.Uint64})); got != math.MaxUint64 {
		t.Errorf("the largest uint64 became %d", got)
	}
}

func TestFunctionsThatMakeTensorsTakeTheSameOptions(t *testing.T) {
	opt := gotorch.TensorOptions{DType: gotorch.Float64, MemoryFormat: gotorch.ChannelsLast, RequiresGrad: true}
	size := []int64{2, 3, 4, 5}
	like := gotorch.Zeros(size)
	for name, x := range map[string]gotorch.Tensor{
		"Empty": gotorch.Empty(size, opt), "EmptyLike": gotorch.EmptyLike(like, opt), "OnesLike": gotorch.OnesLike(like, opt),
		"FullLike": gotorch.FullLike(like, 2, opt), "RandLike": gotorch.RandLike(like, opt),
		"NewTensor": gotorch.NewTensor([2][3][4][5]float32{}, opt),
	} {
		if got := x.Strides(); !slices.Equal(got, []int64{60, 1, 15, 3}) || x.DType() != gotorch.Float64 || !x.RequiresGrad() {
			t.Errorf("%s: %v of strides %v", name, x.DType(), got)
		}
	}
	// No choice of order is no option that is silently left out.
	for name, make := range map[string]func() gotorch.Tensor{
		"Zeros": func() gotorch.Tensor { return gotorch.Zeros(size, opt) },
		"Randn": func() gotorch.Tensor { return gotorch.Randn(size, opt) },
		"Full":  func() gotorch.Tensor { return gotorch.Full(size, 1, opt) },
	} {
		if _, err := gotorch.Try(make); !errors.Is(err, gotorch.TypeError) || !strings.Contains(err.Error(), "MemoryFormat") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
