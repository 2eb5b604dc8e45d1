package gotorch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func ExampleToList() {
	rows := gotorch.ToList[[][]float32](gotorch.Arange(6).Reshape([]int64{2, 3}))
	fmt.Println(rows, rows[1][2])
	// Output: [[0 1 2] [3 4 5]] 5
}

func ExampleNestedTensor() {
	ragged := gotorch.NestedTensor([]gotorch.Tensor{gotorch.Ones([]int64{1, 2}), gotorch.Ones([]int64{3, 2})})
	fmt.Println(ragged.ToPaddedTensor(0).Shape())
	// Output: [2 3 2]
}

func TestToListIsTheInverseOfNewTensor(t *testing.T) {
	same := func(want any, got any) {
		t.Helper()
		if !reflect.DeepEqual(want, got) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	same(3.5, gotorch.ToList[float64](gotorch.FromScalar(3.5)))
	same([]int32{1, 2}, gotorch.ToList[[]int32](gotorch.NewTensor([]int32{1, 2})))
	deep := [][][]bool{{{true, false}}, {{false, true}}}
	same(deep, gotorch.ToList[[][][]bool](gotorch.NewTensor(deep)))
	same([][]int{{}, {}}, gotorch.ToList[[][]int](gotorch.Zeros([]int64{2, 0})))
	same([][]int{}, gotorch.ToList[[][]int](gotorch.Zeros([]int64{0, 3})))
	same([][]float32{{1, 3}, {2, 4}}, gotorch.ToList[[][]float32](gotorch.NewTensor([][]int8{{1, 2}, {3, 4}}).Transpose(0, 1)))
	same([][]complex64{{1, 2i}}, gotorch.ToList[[][]complex64](gotorch.NewTensor([][]complex128{{1, 2i}})))
	rows := gotorch.ToList[[][]int64](gotorch.Arange(4).Reshape([]int64{2, 2}))
	_ = append(rows[0], 9)
	same([]int64{2, 3}, rows[1])
	x := gotorch.Ones([]int64{2, 2})
	for kind, bad := range map[gotorch.ErrorKind][]func(){
		gotorch.TypeError: {
			func() { gotorch.ToList[[]float32](x) }, func() { gotorch.ToList[[][][]float32](x) }, func() { gotorch.ToList[float32](x) },
			func() { gotorch.ToList[[][]string](x) }, func() { gotorch.ToList[[][]int8](gotorch.Tensor{}) }, func() { gotorch.ToList[any](x) }, func() { gotorch.ToList[[]any](x) },
			func() { gotorch.ToList[[2][]float32](x) }, func() { gotorch.ToList[[][]int](gotorch.NewTensor([][]complex64{{1i}})) },
		},
		gotorch.RuntimeError: {func() { gotorch.ToList[[][]int8](x.MulScalar(300)) }},
	} {
		for i, call := range bad {
			if err := gotorch.Try0(call); !errors.Is(err, kind) {
				t.Errorf("%v %d: got %v", kind, i, err)
			}
		}
	}
}

// All values of 16 bits, and numbers at random, as libtorch converts them.
func TestHalfNumbersAreLibtorchs(t *testing.T) {
	bits := make([]uint16, 1<<16)
	raw := make([]byte, 2<<16)
	for i := range bits {
		bits[i], raw[2*i], raw[2*i+1] = uint16(i), byte(i), byte(i>>8)
	}
	halves, brains := gotorch.FromRaw(raw, gotorch.Float16, 1<<16), gotorch.FromRaw(raw, gotorch.BFloat16, 1<<16)
	for i, want := range gotorch.ToSlice[float32](halves) {
		if got := gotorch.F16FromBits(bits[i]).Float32(); got != want && (got == got || want == want) {
			t.Fatalf("F16 %#x is %v, want %v", i, got, want)
		}
	}
	for i, want := range gotorch.ToSlice[float32](brains) {
		if got := gotorch.BF16FromBits(bits[i]).Float32(); got != want && (got == got || want == want) {
			t.Fatalf("BF16 %#x is %v, want %v", i, got, want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	var numbers []float32
	for range 200000 {
		x := math.Float32frombits(r.Uint32())
		numbers = append(numbers, x, x, float32(r.NormFloat64()), float32(math.Ldexp(float64(r.Uint32N(1<<14)), r.IntN(40)-37)))
	}
	numbers = append(numbers, 65504, 65519.996, 65520, 65536, 0x1p-24, 0x1p-25, 0x1.000002p-25, 0x1p-26, 0, float32(math.Copysign(0, -1)), 0x1.ffcp-15, 0x1p-14)
	x := gotorch.FromSlice(numbers)
	wantH, wantB := gotorch.RawData(x.To(gotorch.Float16)), gotorch.RawData(x.To(gotorch.BFloat16))
	for i, x := range numbers {
		h, b := gotorch.F16FromFloat32(x), gotorch.BF16FromFloat32(x)
		isNaN := x != x
		if want := uint16(wantH[2*i]) | uint16(wantH[2*i+1])<<8; h.Bits() != want && !(isNaN && h.Float32() != h.Float32()) {
			t.Fatalf("%v (%#x) is the F16 %#x, want %#x", x, math.Float32bits(x), h.Bits(), want)
		}
		if want := uint16(wantB[2*i]) | uint16(wantB[2*i+1])<<8; b.Bits() != want && !(isNaN && b.Float32() != b.Float32()) {
			t.Fatalf("%v is the BF16 %#x, want %#x", x, b.Bits(), want)
		}
	}
}

func TestHalfNumbersAreElements(t *testing.T) {
	half := gotorch.F16FromFloat32
	x := gotorch.FromSlice([]gotorch.F16{half(1.5), half(-2)})
	if x.DType() != gotorch.Float16 || gotorch.DTypeOf[gotorch.BF16]() != gotorch.BFloat16 || fmt.Sprint(gotorch.ToSlice[float32](x)) != "[1.5 -2]" {
		t.Error(x)
	}
	gotorch.Data[gotorch.F16](x)[1] = half(4)
	if got := gotorch.Item[gotorch.BF16](x.Select(0, 1)); got.Float32() != 4 || fmt.Sprint(got) != "4" {
		t.Error(got)
	}
	if got := gotorch.NewTensor([][]gotorch.BF16{{gotorch.BF16FromFloat32(3)}}); got.DType() != gotorch.BFloat16 || fmt.Sprint(got.Shape()) != "[1 1]" {
		t.Error(got)
	}
	if got := gotorch.ToList[[]gotorch.F16](gotorch.NewTensor([]float64{0.1, math.Inf(1)})); got[0] != half(0.1) || got[1].Bits() != 0x7c00 {
		t.Error(got)
	}
	if got := gotorch.Ones([]int64{1}).MulScalar(half(0.5)).AddScalar(gotorch.BF16FromFloat32(2)); gotorch.Item[float32](got) != 2.5 {
		t.Error("as a Scalar:", got)
	}
	if got := gotorch.FromScalar(half(7)); got.DType() != gotorch.Float16 || gotorch.Item[int](got) != 7 {
		t.Error(got)
	}
	for kind, bad := range map[gotorch.ErrorKind][]func(){
		gotorch.RuntimeError: {
			func() { gotorch.Item[gotorch.F16](gotorch.FromScalar(70000)) }, func() { gotorch.ToSlice[gotorch.F16](gotorch.FromScalar(70000)) },
			func() { gotorch.ToSlice[gotorch.F16](gotorch.FromScalar(float32(1e6))) }, func() { gotorch.Item[gotorch.BF16](gotorch.FromScalar(1e300)) },
		},
		gotorch.TypeError: {
			func() { gotorch.Item[gotorch.F16](gotorch.FromScalar(1i)) }, func() { gotorch.Data[uint16](x) }, func() { gotorch.ToSlice[gotorch.BF16](gotorch.FromScalar(1i)) },
		},
	} {
		for i, call := range bad {
			if err := gotorch.Try0(call); !errors.Is(err, kind) {
				t.Errorf("%v %d: got %v", kind, i, err)
			}
		}
	}
}

func TestNestedTensors(t *testing.T) {
	a, b := gotorch.Randn([]int64{2, 3}, gotorch.TensorOptions{RequiresGrad: true}), gotorch.Randn([]int64{4, 3})
	n := gotorch.NestedTensor([]gotorch.Tensor{a, b}, gotorch.NestedTensorOptions{DType: gotorch.Float64, RequiresGrad: true})
	if !strings.HasPrefix(n.String(), "nested_tensor(") || n.DType() != gotorch.Float64 || !n.IsLeaf() || !n.RequiresGrad() {
		t.Error(n)
	}
	parts := n.Unbind()
	if len(parts) != 2 || !gotorch.Equal(parts[1], b.To(gotorch.Float64)) {
		t.Error(parts)
	}
	if a.Grad().Defined() {
		t.Error("a gradient goes through NestedTensor")
	}
	gotorch.AsNestedTensor([]gotorch.Tensor{a, b}).Unbind()[0].Sum().Backward()
	if !a.Grad().Defined() || gotorch.Item[float32](a.Grad().Sum()) != 6 {
		t.Error(a.Grad())
	}
	for _, bad := range []func(){
		func() { gotorch.NestedTensor(nil) }, func() { gotorch.NestedTensor([]gotorch.Tensor{a, gotorch.Ones([]int64{1})}) },
		func() { gotorch.NestedTensor([]gotorch.Tensor{{}}) }, func() { gotorch.AsNestedTensor([]gotorch.Tensor{a}, gotorch.NestedTensorOptions{RequiresGrad: true}) },
	} {
		var e *gotorch.Error
		if err := gotorch.Try0(bad); !errors.As(err, &e) {
			t.Error(err)
		}
	}
}

// Keep spares what an inner scope has made, however deep, also within Unscoped and from another goroutine.
func TestKeepReachesInnerScopes(t *testing.T) {
	var kept []gotorch.Tensor
	number := func(n float32) gotorch.Tensor { return gotorch.FromSlice([]float32{n}) }
	before := gotorch.MemoryStats().LiveHandles
	gotorch.Scope0(func(outer *gotorch.ScopeHandle) {
		keep := func(s *gotorch.ScopeHandle, x gotorch.Tensor) {
			s.Keep(x)
			kept = append(kept, x)
		}
		gotorch.Scope0(func(middle *gotorch.ScopeHandle) {
			keep(outer, number(0))
			for range 3 {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					keep(outer, number(1))
					keep(middle, number(2)) // is the outer scope's then, which frees it
					number(3)
				})
			}
			gotorch.Unscoped(func() {
				gotorch.Scope0(func(*gotorch.ScopeHandle) { keep(outer, number(4)) })
			})
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				x := number(5)
				told := make(chan bool)
				go func() {
					outer.Keep(x)
					close(told)
				}()
				<-told
				kept = append(kept, x)
			})
		})
	})
	var alive []float32
	for _, x := range kept {
		if x.Defined() {
			alive = append(alive, gotorch.ToSlice[float32](x)...)
			x.Close()
		}
	}
	if fmt.Sprint(alive) != "[0 1 1 1 4 5]" {
		t.Error("alive are", alive)
	}
	if after := settle(liveTensors, before); after > before {
		t.Errorf("%d handles are left", after-before)
	}
}

func TestToRefusesContradictions(t *testing.T) {
	x, d := gotorch.Ones([]int64{2, 2, 1, 1}), gotorch.Ones([]int64{1}, gotorch.TensorOptions{DType: gotorch.Float64})
	for _, args := range [][]gotorch.ToArg{
		{gotorch.Float64, gotorch.Float16}, {d, gotorch.Float16}, {gotorch.CPU, gotorch.CUDA(0)}, {gotorch.Meta, gotorch.CPU}, {d, gotorch.Meta},
		{gotorch.ToOptions{DType: gotorch.Float64}, gotorch.Float32}, {gotorch.Float32, gotorch.ToOptions{DType: gotorch.Float64}},
		{gotorch.ChannelsLast, gotorch.ContiguousFormat}, {gotorch.Strided, gotorch.SparseCOO},
	} {
		if err := gotorch.Try0(func() { x.To(args...) }); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "two values for") {
			t.Errorf("%v: got %v", args, err)
		}
	}
	if y := x.To(gotorch.Float64, gotorch.Float64, d, gotorch.CPU, gotorch.ToOptions{Copy: true}); y.DType() != gotorch.Float64 {
		t.Error(y)
	}
}

// A value that is put at False has no elements: its shape is checked, and its gradient is zero.
func TestNothingIsPutAtFalse(t *testing.T) {
	x := gotorch.Ones([]int64{2, 3})
	for _, shape := range [][]int64{{}, {1}, {3}, {2, 3}, {1, 2, 3}, {1, 1, 1}} {
		v := gotorch.Full(shape, 5.0, gotorch.TensorOptions{RequiresGrad: true})
		y := x.Clone()
		y.IndexPut(v, gotorch.False)
		if !gotorch.Equal(y, x) || !y.RequiresGrad() {
			t.Error(shape, y)
		}
		if y.Sum().Backward(); !v.Grad().Defined() || gotorch.Item[bool](v.Grad().Any()) {
			t.Error(shape, v.Grad())
		}
	}
	for _, shape := range [][]int64{{2}, {4}, {3, 3}, {2, 2, 3}, {2, 1}} {
		err := gotorch.Try0(func() { x.IndexPut(gotorch.Ones(shape), gotorch.False) })
		other := gotorch.Try0(func() { x.IndexPut(gotorch.Ones(shape), gotorch.False, gotorch.All) })
		if (err == nil) != (other == nil) || len(shape) == 1 && err == nil {
			t.Errorf("%v: %v, and with another term %v", shape, err, other)
		}
	}
	x.IndexPut(7, gotorch.False)
	if gotorch.Item[float32](x.Sum()) != 6 {
		t.Error(x)
	}
}

func TestWholeNumbersPrintWithD(t *testing.T) {
	for want, x := range map[string]gotorch.Tensor{
		"tensor([1, 2])":                   gotorch.NewTensor([]int64{1, 2}),
		"tensor(3, dtype=torch.uint8)":     gotorch.FromScalar(uint8(3)),
		"tensor([ True, False])":           gotorch.NewTensor([]bool{true, false}),
		"%!d(gotorch.Tensor=tensor([1.]))": gotorch.Ones([]int64{1}),
		"none":                             {},
	} {
		if got := fmt.Sprintf("%d", x); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := fmt.Sprintf("%4d", gotorch.NewTensor([]int64{1, 20})); got != "tensor([   1,   20])" {
		t.Errorf("%q", got)
	}
}

// Errors of JSON that is no tensor speak of JSON and tensors.
func TestJSONThatIsNoTensor(t *testing.T) {
	for text, want := range map[string]string{
		`[1,2]`:       "has a array, where a tensor has an object",
		`3`:           "has a number",
		`{}`:          `"dtype", "shape" and "data"`,
		`{"dtype":3}`: `has a number as "dtype"`,
		`{"dtype":"float32","shape":[1],"data":{}}`:    "a list of numbers of its dtype, float32",
		`{"dtype":"int8","shape":[1],"data":[1.5]}`:    "a list of numbers of its dtype, int8",
		`{"dtype":"complex64","shape":[1],"data":[1]}`: "a list of pairs of numbers",
		`{"dtype":"float32","shape":[1.5],"data":[1]}`: `as "shape"`,
		`{"dtype":"float32","shape":[2]}`:              "one is missing",
		`{"dtype":"bits8","shape":[1],"data":[[1]]}`:   "its bytes in base64",
	} {
		x := gotorch.Ones([]int64{1})
		err := json.Unmarshal([]byte(text), &x)
		if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "jsonTensor") || x.Numel() != 1 {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
