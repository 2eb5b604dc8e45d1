package gotorch_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

var printGolden = flag.String("print-golden", "testdata/print.json",
	"what TestPrintStrided reads; tests/make_print_golden.py writes such files")

// stridedCase is a tensor by its memory.
type stridedCase struct {
	Name          string
	DType         string
	Shape, Stride []int64
	Data          []byte
	Conj, Neg     bool
	RequiresGrad  bool   `json:"requires_grad"`
	DefaultDType  string `json:"default_dtype"`
	Options       struct {
		Precision, Threshold, EdgeItems, LineWidth *int
		Profile                                    string
		SciMode                                    *bool `json:"sci_mode"`
	}
	Want string
}

// builtCase is a tensor by the Python that makes it.
type builtCase struct {
	Python string
	Want   string
}

func readPrintCases(t *testing.T, file string) (cases struct {
	Strided []stridedCase
	Built   []builtCase
}) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func parseDType(t *testing.T, name string) gotorch.DType {
	t.Helper()
	dtype, err := gotorch.ParseDType(name)
	if err != nil {
		t.Fatal(err)
	}
	return dtype
}

// memory returns the dtype of the tensor that the case's tensor is a view of.
func (c stridedCase) memory(t *testing.T) gotorch.DType {
	dtype := parseDType(t, c.DType)
	if c.Neg {
		// Such a tensor is the imaginary part of a conjugate.
		return dtype.ToComplex()
	}
	return dtype
}

func (c stridedCase) tensor(t *testing.T) gotorch.Tensor {
	dtype, data, stride := c.memory(t), c.Data, c.Stride
	if c.Neg {
		// The first real part is missing.
		data = append(make([]byte, dtype.Size()/2), data...)
		data = append(data, make([]byte, len(data)%dtype.Size())...)
		stride = make([]int64, len(c.Stride))
		for dim := range stride {
			stride[dim] = c.Stride[dim] / 2
		}
	}
	x := gotorch.FromRaw(data, dtype, int64(len(data)/dtype.Size())).AsStrided(c.Shape, stride)
	switch {
	case c.Neg:
		x = gotorch.Imag(x.Conj())
	case c.Conj:
		x = x.Conj()
	}
	if c.RequiresGrad {
		x.RequiresGrad_()
	}
	return x
}

func (c stridedCase) text(t *testing.T) string {
	if c.DefaultDType != "" {
		defer gotorch.SetDefaultDType(gotorch.DefaultDType())
		gotorch.SetDefaultDType(parseDType(t, c.DefaultDType))
	}
	o := gotorch.PrintOptions{
		Precision: c.Options.Precision,
		Threshold: c.Options.Threshold,
		EdgeItems: c.Options.EdgeItems,
		LineWidth: c.Options.LineWidth,
		Profile: map[string]gotorch.PrintProfile{
			"default": gotorch.DefaultProfile, "short": gotorch.ShortProfile, "full": gotorch.FullProfile,
		}[c.Options.Profile],
	}
	if on := c.Options.SciMode; on != nil {
		o.SciMode = gotorch.SciOff
		if *on {
			o.SciMode = gotorch.SciOn
		}
	}
	return gotorch.Sprint(c.tensor(t), o)
}

func TestPrintStrided(t *testing.T) {
	cases := readPrintCases(t, *printGolden).Strided
	if len(cases) == 0 {
		t.Fatal("no cases in", *printGolden)
	}
	for _, c := range cases {
		if !hasDType(t, c.memory(t)) {
			continue
		}
		if got := c.text(t); got != c.Want {
			t.Errorf("%s: %s, shape %v, strides %v\ngot\n%s\nwant\n%s",
				c.Name, c.DType, c.Shape, c.Stride, got, c.Want)
		}
	}
}

func ones(sizes ...int64) gotorch.Tensor { return gotorch.Ones(sizes) }

func onesThatRequireGrad(sizes ...int64) gotorch.Tensor {
	return gotorch.Ones(sizes, gotorch.TensorOptions{RequiresGrad: true})
}

func eye(n int64) gotorch.Tensor { return gotorch.Eye(n) }

func float64s() gotorch.TensorOptions { return gotorch.TensorOptions{DType: gotorch.Float64} }

func onMeta(dtype gotorch.DType) gotorch.TensorOptions {
	return gotorch.TensorOptions{DType: dtype, Device: gotorch.Meta}
}

func floats(values ...float32) gotorch.Tensor { return gotorch.FromSlice(values) }

func nested(dtype gotorch.DType, parts ...gotorch.Tensor) gotorch.Tensor {
	return gotorch.Call("aten::_nested_tensor_from_tensor_list", "", parts, dtype)[0].(gotorch.Tensor)
}

// built has, for each Python expression in the golden file, the same in Go.
var built = map[string]func() gotorch.Tensor{
	"torch.ones(3, requires_grad=True) + torch.ones(3)": func() gotorch.Tensor {
		return onesThatRequireGrad(3).Add(ones(3))
	},
	"torch.ones(2, 2, dtype=torch.float64, requires_grad=True).t()": func() gotorch.Tensor {
		return gotorch.Ones([]int64{2, 2}, gotorch.TensorOptions{DType: gotorch.Float64, RequiresGrad: true}).Transpose2D()
	},
	"torch.ones(40, requires_grad=True).exp()": func() gotorch.Tensor {
		return onesThatRequireGrad(40).Exp()
	},
	"torch.ones(2, requires_grad=True).unbind()[0]": func() gotorch.Tensor {
		return onesThatRequireGrad(2).Unbind()[0]
	},
	"torch.empty(0, 2, requires_grad=True).neg()": func() gotorch.Tensor {
		return onesThatRequireGrad(0, 2).Neg()
	},
	"copy_slices()": func() gotorch.Tensor {
		base := onesThatRequireGrad(3).Clone()
		base.Narrow(0, 0, 2).MulScalar_(2)
		return base
	},
	"view_made_without_grad()": func() gotorch.Tensor {
		base := onesThatRequireGrad(3).Clone()
		var view gotorch.Tensor
		gotorch.NoGrad(func() {
			view = base.View([]int64{-1})
			view.MulScalar_(2)
		})
		return view
	},
	"torch.arange(10**6).reshape(1000, 1000)": func() gotorch.Tensor {
		return gotorch.Arange(1_000_000).Reshape([]int64{1000, 1000})
	},
	"torch._efficientzerotensor((2, 3))": func() gotorch.Tensor {
		return gotorch.Call("aten::_efficientzerotensor", "", []int64{2, 3})[0].(gotorch.Tensor)
	},
	"torch.ones(2, device='meta')": func() gotorch.Tensor {
		return gotorch.Ones([]int64{2}, onMeta(0))
	},
	"torch.ones(2, 3, dtype=torch.int64, device='meta')": func() gotorch.Tensor {
		return gotorch.Ones([]int64{2, 3}, onMeta(gotorch.Int64))
	},
	"torch.ones(2, 3, dtype=torch.complex64, device='meta', requires_grad=True)": func() gotorch.Tensor {
		x := gotorch.Ones([]int64{2, 3}, onMeta(gotorch.Complex64))
		x.RequiresGrad_()
		return x
	},
	"torch.empty(0, device='meta')": func() gotorch.Tensor {
		return gotorch.Ones([]int64{0}, onMeta(0))
	},
	"torch.eye(2).to_sparse()": func() gotorch.Tensor { return eye(2).ToSparse() },
	"torch.eye(2).to_sparse().requires_grad_()": func() gotorch.Tensor {
		x := eye(2).ToSparse()
		x.RequiresGrad_()
		return x
	},
	"torch.eye(2, requires_grad=True).to_sparse().neg()": func() gotorch.Tensor {
		return gotorch.Eye(2, gotorch.TensorOptions{RequiresGrad: true}).ToSparse().Neg()
	},
	"torch.eye(40, dtype=torch.float64).to_sparse()": func() gotorch.Tensor {
		return gotorch.Eye(40, float64s()).ToSparse()
	},
	"torch.ones(2000, dtype=torch.int32).to_sparse()": func() gotorch.Tensor {
		return gotorch.Ones([]int64{2000}, gotorch.TensorOptions{DType: gotorch.Int32}).ToSparse()
	},
	"torch.ones(2, 3, 2).to_sparse(1)": func() gotorch.Tensor {
		return ones(2, 3, 2).ToSparseSparseDim(1)
	},
	"torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([3 + 1j, 4]), (2,))": func() gotorch.Tensor {
		indices := gotorch.FromSlice([]int64{1, 1}, 1, 2)
		return gotorch.SparseCOOTensor(indices, gotorch.FromSlice([]complex64{3 + 1i, 4}), []int64{2})
	},
	"torch.sparse_coo_tensor(size=(2, 3))": func() gotorch.Tensor {
		return gotorch.SparseCOOTensorSize([]int64{2, 3})
	},
	"torch.sparse_coo_tensor(size=(2, 3), device='meta')": func() gotorch.Tensor {
		return gotorch.SparseCOOTensorSize([]int64{2, 3}, onMeta(0))
	},
	"torch.sparse_coo_tensor(size=())": func() gotorch.Tensor {
		return gotorch.SparseCOOTensorSize([]int64{})
	},
	"torch.sparse_coo_tensor(size=(0, 3), dtype=torch.int64)": func() gotorch.Tensor {
		return gotorch.SparseCOOTensorSize([]int64{0, 3}, gotorch.TensorOptions{DType: gotorch.Int64})
	},
	"torch.tensor([[1, 0], [0, 2.5]]).to_sparse_csr()": func() gotorch.Tensor {
		return gotorch.FromSlice([]float32{1, 0, 0, 2.5}, 2, 2).ToSparseCSR()
	},
	"torch.tensor([[1, 0], [0, 2.5]], dtype=torch.float64).to_sparse_csc()": func() gotorch.Tensor {
		return gotorch.FromSlice([]float64{1, 0, 0, 2.5}, 2, 2).ToSparseCSC()
	},
	"torch.eye(4).to_sparse_bsr((2, 2))": func() gotorch.Tensor { return eye(4).ToSparseBSR([]int64{2, 2}) },
	"torch.eye(4).to_sparse_bsc((2, 2))": func() gotorch.Tensor { return eye(4).ToSparseBSC([]int64{2, 2}) },
	"torch.zeros(2, 3).to_sparse_csr()": func() gotorch.Tensor {
		return gotorch.Zeros([]int64{2, 3}).ToSparseCSR()
	},
	"torch.eye(40).to_sparse_csr()": func() gotorch.Tensor { return eye(40).ToSparseCSR() },
	"torch.zeros(2, 3).to_sparse_csr().to('meta')": func() gotorch.Tensor {
		return gotorch.Zeros([]int64{2, 3}).ToSparseCSR().To(gotorch.Meta)
	},
	"torch.quantize_per_tensor(torch.tensor([1.0, -2.5]), 0.1, 30, torch.quint8)": func() gotorch.Tensor {
		return gotorch.QuantizePerTensor(floats(1, -2.5), 0.1, 30, gotorch.QUint8)
	},
	"torch.quantize_per_tensor(torch.tensor([1.0, -2.5]), 1e-7, 0, torch.qint32)": func() gotorch.Tensor {
		return gotorch.QuantizePerTensor(floats(1, -2.5), 1e-7, 0, gotorch.QInt32)
	},
	"torch.quantize_per_tensor(torch.tensor([1.0, -2.5]), 2.0, 0, torch.qint8)": func() gotorch.Tensor {
		return gotorch.QuantizePerTensor(floats(1, -2.5), 2, 0, gotorch.QInt8)
	},
	"torch.quantize_per_channel(" +
		"torch.ones(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8)": func() gotorch.Tensor {
		zeros := gotorch.FromSlice([]int64{0, 1})
		return gotorch.QuantizePerChannel(ones(2, 2), floats(0.1, 0.2), zeros, 0, gotorch.QInt8)
	},
	"torch.quantize_per_channel(" +
		"torch.ones(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([0.0, 1.0]), 0, torch.quint4x2)": func() gotorch.Tensor {
		return gotorch.QuantizePerChannel(ones(2, 2), floats(0.1, 0.2), floats(0, 1), 0, gotorch.QUint4x2)
	},
	"torch.nested.nested_tensor([torch.ones(2), torch.zeros(2, 3)[0]])": func() gotorch.Tensor {
		return nested(gotorch.Float32, ones(2), gotorch.Zeros([]int64{3}))
	},
	"torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(1, 2)], requires_grad=True).neg()": func() gotorch.Tensor {
		x := nested(gotorch.Float32, ones(2, 2), ones(1, 2))
		x.RequiresGrad_()
		return x.Neg()
	},
	"torch.nested.nested_tensor([torch.ones(2, dtype=torch.float64)], dtype=torch.float64)": func() gotorch.Tensor {
		return nested(gotorch.Float64, gotorch.Ones([]int64{2}, float64s()))
	},
	"torch.nested.nested_tensor([])": func() gotorch.Tensor { return nested(gotorch.Float32) },
	"torch.ones(2, 3, requires_grad=True).to_mkldnn()": func() gotorch.Tensor {
		return onesThatRequireGrad(2, 3).ToMKLDNN()
	},
}

func TestPrintBuilt(t *testing.T) {
	cases := readPrintCases(t, "testdata/print.json").Built
	if len(cases) != len(built) {
		t.Errorf("%d cases, but %d in Go", len(cases), len(built))
	}
	for _, c := range cases {
		t.Run(c.Python, func(t *testing.T) {
			build, ok := built[c.Python]
			if !ok {
				t.Fatal("no such case in Go")
			}
			if got := build().String(); got != c.Want {
				t.Errorf("got\n%s\nwant\n%s", got, c.Want)
			}
		})
	}
}

func TestPrintOnCUDA(t *testing.T) {
	if !gotorch.CUDAIsAvailable() {
		t.Skip("there is no GPU")
	}
	x := gotorch.Arange(1_000_000).Reshape([]int64{100, 10, 1000})
	onCPU := strings.TrimSuffix(x.String(), ")")
	if got, want := x.To(gotorch.CUDA(0)).String(), onCPU+", device='cuda:0')"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	z := gotorch.FromSlice([]complex64{1 + 2i, 3 - 4i}).To(gotorch.CUDA(0)).Conj()
	if got, want := z.String(), "tensor([1.-2.j, 3.+4.j], device='cuda:0')"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFormatVerbs(t *testing.T) {
	x := gotorch.FromSlice([]float32{1, 2.5}, 1, 2)
	closed := ones(1)
	closed.Close()
	for _, c := range []struct {
		format string
		tensor gotorch.Tensor
		want   string
	}{
		{"%v", x, "tensor([[1.0000, 2.5000]])"},
		{"%s", x, "tensor([[1.0000, 2.5000]])"},
		{"%.1f", x, "tensor([[1.0, 2.5]])"},
		{"%.2v", x, "tensor([[1.00, 2.50]])"},
		{"%8v", x, "tensor([[  1.0000,   2.5000]])"},
		{"%.1e", x, "tensor([[1.0e+00, 2.5e+00]])"},
		{"%f", x.MulScalar(1e10), "tensor([[10000000000., 24999999488.]])"},
		{"%g", x.MulScalar(1e10), "tensor([[1.0000e+10, 2.5000e+10]])"},
		{"%5v", gotorch.FromSlice([]int{1, -2}), "tensor([    1,    -2])"},
		{"%+v", x, "tensor([[1.0000, 2.5000]], device='cpu', size=(1, 2), dtype=torch.float32,\n" +
			"       stride=(2, 1), storage_offset=0, storage_nbytes=8)"},
		{"%#v", x, "tensor(..., device='cpu', size=(1, 2), dtype=torch.float32, stride=(2, 1),\n" +
			"       storage_offset=0, storage_nbytes=8)"},
		{"%d", x, "%!d(gotorch.Tensor=tensor([[1.0000, 2.5000]]))"},
		{"%v", gotorch.Tensor{}, "none"},
		{"%v", closed, "closed"},
	} {
		if got := fmt.Sprintf(c.format, c.tensor); got != c.want {
			t.Errorf("%s: got %s, want %s", c.format, got, c.want)
		}
	}
	if got, want := fmt.Sprint([]gotorch.Tensor{ones(1), {}}), "[tensor([1.]) none]"; got != want {
		t.Errorf("a slice of tensors: got %s, want %s", got, want)
	}
}

// PyTorch refuses to print these.
func TestPrintWhatPyTorchCannot(t *testing.T) {
	bits := gotorch.FromRaw(make([]byte, 3), gotorch.Bits8, 3)
	if got, want := bits.String(), "tensor(..., size=(3,), dtype=torch.bits8)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	float4 := gotorch.FromRaw([]byte{5}, gotorch.Float4E2M1FNx2, []int64{}...)
	if got, want := float4.String(), "tensor(5., dtype=torch.float4_e2m1fn_x2)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPrintOptions(t *testing.T) {
	defer gotorch.SetPrintOptions(gotorch.GetPrintOptions())
	x := floats(1.23456, 2, 3, 4, 5)
	for _, step := range []struct {
		options gotorch.PrintOptions
		want    string
	}{
		{gotorch.PrintOptions{Precision: new(1)}, "tensor([1.2, 2.0, 3.0, 4.0, 5.0])"},
		{gotorch.PrintOptions{Threshold: new(3), EdgeItems: new(1)}, "tensor([1.2,  ..., 5.0])"},
		{gotorch.PrintOptions{SciMode: gotorch.SciOn}, "tensor([1.2e+00,  ..., 5.0e+00])"},
		{gotorch.PrintOptions{}, "tensor([1.2,  ..., 5.0])"},
		{gotorch.PrintOptions{Profile: gotorch.FullProfile, LineWidth: new(24)},
			"tensor([1.2346, 2.0000,\n        3.0000, 4.0000,\n        5.0000])"},
	} {
		gotorch.SetPrintOptions(step.options)
		if got := x.String(); got != step.want {
			t.Errorf("%+v: got %s, want %s", step.options, got, step.want)
		}
	}
	if got, want := gotorch.Sprint(x, gotorch.PrintOptions{Profile: gotorch.DefaultProfile, Precision: new(0)}),
		"tensor([1, 2, 3, 4, 5])"; got != want {
		t.Errorf("Sprint: got %s, want %s", got, want)
	}
	before := x.String()
	for _, bad := range []gotorch.PrintOptions{
		{Precision: new(-1)}, {Threshold: new(-1)}, {EdgeItems: new(-1)}, {LineWidth: new(-1)},
		{Profile: 9}, {Profile: -1}, {SciMode: 9}, {SciMode: -1},
	} {
		err := gotorch.Try0(func() { gotorch.SetPrintOptions(bad) })
		if !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%+v: got %v, want a ValueError", bad, err)
		}
	}
	if after := x.String(); after != before {
		t.Errorf("refused options changed %s to %s", before, after)
	}
}

func TestPrintOptionsFromManyGoroutines(t *testing.T) {
	defer gotorch.SetPrintOptions(gotorch.GetPrintOptions())
	x := floats(1.5, 2, 3, 4)
	texts := map[string]bool{"tensor([1.5000, 2.0000, 3.0000, 4.0000])": true, "tensor([1.5,  ..., 4.0])": true}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				switch {
				case g > 0:
					if got := x.String(); !texts[got] {
						t.Errorf("a mixture of options: %s", got)
						return
					}
				case i%2 == 0:
					gotorch.SetPrintOptions(gotorch.PrintOptions{Precision: new(1), Threshold: new(3), EdgeItems: new(1)})
				default:
					gotorch.SetPrintOptions(gotorch.PrintOptions{Profile: gotorch.DefaultProfile})
				}
			}
		})
	}
	wg.Wait()
}

// A summary must not cost what the whole tensor would.
func TestPrintSummaryReadsOnlyCorners(t *testing.T) {
	x := gotorch.Zeros([]int64{1000, 1000})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text := x.String()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 20_000 {
		t.Errorf("printing %d characters allocated %d bytes", len(text), n)
	}
}

func BenchmarkPrintSummary(b *testing.B) {
	x := gotorch.Zeros([]int64{1000, 1000})
	for b.Loop() {
		_ = x.String()
	}
}

func BenchmarkPrintFull(b *testing.B) {
	x := gotorch.Arange(10_000.0).DivScalar(7)
	for b.Loop() {
		_ = gotorch.Sprint(x, gotorch.PrintOptions{Profile: gotorch.FullProfile})
	}
}

func ExampleTensor_String() {
	fmt.Println(gotorch.FromSlice([]float64{1, 2.5, -3, 4}, 2, 2))
	fmt.Println(gotorch.Arange(2000))
	// Output:
	// tensor([[ 1.0000,  2.5000],
	//         [-3.0000,  4.0000]], dtype=torch.float64)
	// tensor([   0,    1,    2,  ..., 1997, 1998, 1999])
}

func ExampleTensor_Format() {
	x := gotorch.FromSlice([]float32{1, 2.5}, 1, 2)
	fmt.Printf("%.1f\n", x)
	fmt.Printf("%#v\n", x)
	// Output:
	// tensor([[1.0, 2.5]])
	// tensor(..., device='cpu', size=(1, 2), dtype=torch.float32, stride=(2, 1),
	//        storage_offset=0, storage_nbytes=8)
}

func ExampleSprint() {
	x := gotorch.FromSlice([]float32{0.5, 1.25})
	fmt.Println(gotorch.Sprint(x, gotorch.PrintOptions{Precision: new(1)}))
	fmt.Println(x)
	// Output:
	// tensor([0.5, 1.2])
	// tensor([0.5000, 1.2500])
}
