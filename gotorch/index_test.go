package gotorch_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
)

var indexCases = flag.String("index-cases", "testdata/index.json", "the expressions of TestIndexAsPyTorch")

// indexCase is what tests/make_index_golden.py writes: a tensor, an index, and what PyTorch makes of
// them.
type indexCase struct {
	Python string
	Shape  []int64
	DType  string
	Layout string
	Index  [][]json.RawMessage

	ShapeOut   []int64 `json:"shape_out"`
	StridesOut []int64 `json:"strides_out"`
	Offset     int64
	Shares     *bool
	Grad       []any

	Put *struct {
		Int        *int64
		Float      any
		Bool       *bool
		Complex    []float64
		Tensor     []json.RawMessage
		Accumulate bool
	}

	Values []any
	Error  string
}

// TestIndexAsPyTorch indexes a thousand times as PyTorch did.
func TestIndexAsPyTorch(t *testing.T) {
	text, err := os.ReadFile(*indexCases)
	if err != nil {
		t.Fatal(err)
	}
	var cases []indexCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	sameErrors := testhelp.IndexErrors.In(t, gotorch.TorchVersion())
	before := gotorch.MemoryStats().LiveHandles
	for _, c := range cases {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			if err := c.check(sameErrors); err != nil {
				t.Errorf("%s on %v %s %s: %v", c.Python, c.Shape, c.DType, c.Layout, err)
			}
		})
	}
	if after := gotorch.MemoryStats().LiveHandles; after > before {
		t.Errorf("%d tensors were left over", after-before)
	}
}

// check indexes once. An error must be PyTorch's to the word where sameErrors is true.
func (c *indexCase) check(sameErrors bool) error {
	x := c.x()
	terms, err := c.terms()
	if err != nil {
		return err
	}
	y, err := gotorch.Try(func() gotorch.Tensor {
		if c.Put == nil {
			return x.Index(terms...)
		}
		value, err := c.value()
		if err != nil {
			panic(err)
		}
		if c.Put.Accumulate {
			return x.IndexPutAccumulate(value, terms...)
		}
		return x.IndexPut(value, terms...)
	})
	var failed *gotorch.Error
	switch {
	case errors.As(err, &failed):
		if c.Error == "" {
			return err
		}
		// Where the case names only the kind, the message is this package's own.
		// And Python's binding puts its own name for libtorch's type.
		got := string(failed.Kind) + ": " + strings.ReplaceAll(failed.Msg, "CPUFloatType", "torch.FloatTensor")
		if got != c.Error && string(failed.Kind) != c.Error && sameErrors {
			return fmt.Errorf("fails with\n\t%s\nwhere PyTorch says\n\t%s", got, c.Error)
		}
		return nil
	case err != nil:
		return err
	case c.Error != "":
		return fmt.Errorf("gives %v, where PyTorch says\n\t%s", y, c.Error)
	}
	if err := sameNumbers("values", numbers(y), c.Values); err != nil || c.Put != nil {
		return err
	}
	return c.checkView(x, y, terms)
}

// checkView looks at what kind of view y is, and at the gradient through it.
func (c *indexCase) checkView(x, y gotorch.Tensor, terms []gotorch.IndexTerm) error {
	if got := y.Shape(); !slices.Equal(got, c.ShapeOut) {
		return fmt.Errorf("has shape %v, want %v", got, c.ShapeOut)
	}
	if got := y.Strides(); !slices.Equal(got, c.StridesOut) {
		return fmt.Errorf("has strides %v, want %v", got, c.StridesOut)
	}
	if got := y.StorageOffset(); got != c.Offset {
		return fmt.Errorf("has offset %d, want %d", got, c.Offset)
	}
	if got := y.SharesStorage(x); c.Shares != nil && got != *c.Shares {
		return fmt.Errorf("shares storage: %v, want %v", got, *c.Shares)
	}
	if c.Grad == nil {
		return nil
	}
	leaf := x.Clone().RequiresGrad_()
	leaf.Index(terms...).Sum().Backward()
	return sameNumbers("gradient", numbers(leaf.Grad()), c.Grad)
}

// x is 0, 1, 2, ... in the order of the memory.
func (c *indexCase) x() gotorch.Tensor {
	shape, n := slices.Clone(c.Shape), int64(1)
	for _, size := range shape {
		n *= size
	}
	if c.Layout == "transposed" {
		slices.Reverse(shape)
	}
	x := gotorch.Arange(n).Reshape(shape).To(mustDType(c.DType))
	if c.Layout == "transposed" {
		dims := make([]int64, len(shape))
		for i := range dims {
			dims[i] = int64(len(dims) - 1 - i)
		}
		x = x.Permute(dims)
	}
	return x
}

func mustDType(name string) gotorch.DType {
	dtype, err := gotorch.ParseDType(name)
	if err != nil {
		panic(err)
	}
	return dtype
}

func (c *indexCase) terms() ([]gotorch.IndexTerm, error) {
	var terms []gotorch.IndexTerm
	for _, raw := range c.Index {
		term, err := indexTerm(raw)
		if err != nil {
			return nil, err
		}
		terms = append(terms, term)
	}
	return terms, nil
}

func indexTerm(raw []json.RawMessage) (gotorch.IndexTerm, error) {
	switch kind := parse[string](raw[0]); kind {
	case "at":
		return gotorch.At(parse[int64](raw[1])), nil
	case "slice":
		return sliceTerm(parse[*int64](raw[1]), parse[*int64](raw[2]), parse[*int64](raw[3])), nil
	case "ellipsis":
		return gotorch.Ellipsis, nil
	case "newaxis":
		return gotorch.NewAxis, nil
	case "bool":
		if parse[bool](raw[1]) {
			return gotorch.True, nil
		}
		return gotorch.False, nil
	case "ints":
		return gotorch.List(parse[[]int](raw[1])...), nil
	case "bools":
		return gotorch.List(parse[[]bool](raw[1])...), nil
	case "mask":
		return gotorch.Mask(tensorOf("bool", raw[1], raw[2])), nil
	case "tensor":
		return tensorOf(parse[string](raw[1]), raw[2], raw[3]), nil
	default:
		return nil, fmt.Errorf("no term %q", kind)
	}
}

// sliceTerm uses each form of slice.
func sliceTerm(start, stop, step *int64) gotorch.IndexTerm {
	var steps []int64
	if step != nil {
		steps = []int64{*step}
	}
	switch {
	case start != nil && stop != nil:
		return gotorch.Slice(*start, *stop, steps...)
	case start != nil:
		return gotorch.SliceFrom(*start, steps...)
	case stop != nil:
		return gotorch.SliceTo(*stop, steps...)
	case step != nil:
		return gotorch.SliceStep(*step)
	}
	return gotorch.All
}

func (c *indexCase) value() (gotorch.Scalar, error) {
	switch p := c.Put; {
	case p.Int != nil:
		return *p.Int, nil
	case p.Float != nil:
		return float(p.Float), nil
	case p.Bool != nil:
		return *p.Bool, nil
	case p.Complex != nil:
		return complex(p.Complex[0], p.Complex[1]), nil
	case p.Tensor != nil:
		return tensorOf(parse[string](p.Tensor[0]), p.Tensor[1], p.Tensor[2]), nil
	}
	return nil, errors.New("no value")
}

func tensorOf(dtype string, shape, values json.RawMessage) gotorch.Tensor {
	return gotorch.FromSlice(parse[[]float64](values)).Reshape(parse[[]int64](shape)).To(mustDType(dtype))
}

func parse[V any](raw json.RawMessage) (v V) {
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	return v
}

// float reads what make_index_golden.py writes for a number: a number, or a string for NaN.
func float(v any) float64 {
	if s, ok := v.(string); ok {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			panic(err)
		}
		return f
	}
	return v.(float64)
}

// numbers returns t's elements; of a complex one, real and imaginary parts.
func numbers(t gotorch.Tensor) []float64 {
	if t.DType().IsComplex() {
		t = gotorch.ViewAsReal(t)
	}
	return gotorch.ToSlice[float64](t)
}

func sameNumbers(what string, got []float64, wantAny []any) error {
	var want []float64
	for _, v := range wantAny {
		if parts, ok := v.([]any); ok {
			want = append(want, float(parts[0]), float(parts[1]))
		} else {
			want = append(want, float(v))
		}
	}
	if !slices.EqualFunc(got, want, func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }) {
		return fmt.Errorf("%s %v, want %v", what, got, want)
	}
	return nil
}

func TestIndexGoIntegers(t *testing.T) {
	x := gotorch.Arange(10)
	type offset int16
	for _, term := range []gotorch.IndexTerm{
		gotorch.At(3), gotorch.At(int8(3)), gotorch.At(uint32(3)), gotorch.At(int64(3)), gotorch.At(offset(3)),
	} {
		if got := gotorch.Item[int](x.Index(term)); got != 3 {
			t.Errorf("x[3] = %d with %T", got, term)
		}
	}
	n := x.Size(0) // an int64
	if got := x.Index(gotorch.Slice(n-2, n)); !got.Equal(gotorch.FromSlice([]int64{8, 9})) {
		t.Errorf("x[n-2:n] = %v", got)
	}
	for _, list := range []gotorch.IndexTerm{
		gotorch.List(1, 2), gotorch.List(int64(1), 2), gotorch.List([]int32{1, 2}...),
	} {
		if got := x.Index(list); !got.Equal(gotorch.FromSlice([]int64{1, 2})) {
			t.Errorf("x[[1, 2]] = %v", got)
		}
	}
}

// All is the function too.
func TestAllIsAFunction(t *testing.T) {
	if got := gotorch.All(gotorch.FromSlice([]bool{true, false})); got.Item() != false {
		t.Errorf("torch.all([True, False]) = %v", got)
	}
}

// A list is copied: what happens to the slice afterwards does not matter.
func TestIndexListIsCopied(t *testing.T) {
	positions, flags := []int64{0, 1}, []bool{true, false}
	ints, bools := gotorch.List(positions...), gotorch.List(flags...)
	positions[0], flags[1] = 1, true
	x := gotorch.Arange(2)
	if got := x.Index(ints); !got.Equal(gotorch.FromSlice([]int64{0, 1})) {
		t.Errorf("x[[0, 1]] = %v", got)
	}
	if got := x.Index(bools); got.Numel() != 1 {
		t.Errorf("x[[True, False]] = %v", got)
	}
}

func TestIndexManyTerms(t *testing.T) {
	x := gotorch.Arange(4).Reshape([]int64{1, 1, 1, 1, 1, 1, 2, 2})
	at := gotorch.At(0)
	if got := gotorch.Item[int](x.Index(at, at, at, at, at, at, gotorch.At(1), at)); got != 2 {
		t.Errorf("x[0, 0, 0, 0, 0, 0, 1, 0] = %d", got)
	}
	x.IndexPut(7, at, at, at, at, at, at, gotorch.At(1), at)
	if got := x.Ravel(); !got.Equal(gotorch.FromSlice([]int64{0, 1, 7, 3})) {
		t.Errorf("after x[0, 0, 0, 0, 0, 0, 1, 0] = 7: %v", got)
	}
	axes := make([]gotorch.IndexTerm, 60)
	for i := range axes {
		axes[i] = gotorch.NewAxis
	}
	if got := x.Index(append(axes, gotorch.Ellipsis)...).Dim(); got != 68 {
		t.Errorf("x[None × 60, ...] has %d dimensions", got)
	}
}

// The view keeps the storage alive; a copy does not.
func TestSmokeIndexView(t *testing.T) {
	x := gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	row := x.Index(gotorch.At(1))
	row.IndexPut(-1, gotorch.SliceTo(2))
	if want := gotorch.FromSlice([]float32{1, 2, 3, -1, -1, 6}, 2, 3); !x.Equal(want) {
		t.Errorf("x = %v", x)
	}
	x.Close()
	if want := gotorch.FromSlice([]float32{-1, -1, 6}); !row.Equal(want) {
		t.Errorf("row = %v after x was closed", row)
	}
}

func TestIndexPutReturnsItself(t *testing.T) {
	x := gotorch.Zeros([]int64{2})
	if y := x.IndexPut(1, gotorch.At(0)).IndexPutAccumulate(2, gotorch.At(0)); y.T != x.T {
		t.Error("another tensor came back")
	}
	if got := gotorch.Data[float32](x); !slices.Equal(got, []float32{3, 0}) {
		t.Errorf("x = %v", got)
	}
}

// The gradient of a value that was put somewhere comes from there, and x gets none there.
func TestSmokeIndexPutGradient(t *testing.T) {
	for _, test := range []struct {
		name  string
		terms []gotorch.IndexTerm
	}{
		{"view", []gotorch.IndexTerm{gotorch.SliceFrom(1)}},
		{"list", []gotorch.IndexTerm{gotorch.List(1, 2)}},
	} {
		x := gotorch.FromSlice([]float32{1, 2, 3}).RequiresGrad_()
		v := gotorch.FromSlice([]float32{5, 7}).RequiresGrad_()
		y := x.MulScalar(1)
		y.IndexPut(v, test.terms...)
		y.Mul(gotorch.FromSlice([]float32{10, 20, 30})).Sum().Backward()
		if got := gotorch.Data[float32](x.Grad()); !slices.Equal(got, []float32{10, 0, 0}) {
			t.Errorf("%s: gradient of x is %v", test.name, got)
		}
		if got := gotorch.Data[float32](v.Grad()); !slices.Equal(got, []float32{20, 30}) {
			t.Errorf("%s: gradient of the value is %v", test.name, got)
		}
	}
}

// Every IndexPut counts as a change in place, so that autograd notices what it would get wrong.
func TestIndexPutCountsAsChange(t *testing.T) {
	value := gotorch.FromScalar(float32(7))
	for name, put := range map[string]func(x gotorch.Tensor){
		"number":     func(x gotorch.Tensor) { x.IndexPut(7, gotorch.At(0)) },
		"tensor":     func(x gotorch.Tensor) { x.IndexPut(value, gotorch.At(0)) },
		"list":       func(x gotorch.Tensor) { x.IndexPut(7, gotorch.List(0)) },
		"mask":       func(x gotorch.Tensor) { x.IndexPut(7, x.GtScalar(0)) },
		"accumulate": func(x gotorch.Tensor) { x.IndexPutAccumulate(7, gotorch.At(0)) },
		"both": func(x gotorch.Tensor) {
			x.Reshape([]int64{2, 1}).IndexPutAccumulate(value, gotorch.List(0, 1), gotorch.At(0))
		},
	} {
		w := gotorch.Ones([]int64{2}).RequiresGrad_()
		x := gotorch.FromSlice([]float32{1, 2})
		y := w.Mul(x).Sum()
		before := x.Version()
		put(x)
		if got := x.Version() - before; got != 1 {
			t.Errorf("%s: the version went up by %d", name, got)
		}
		err := gotorch.Try0(func() { y.Backward() })
		if err == nil || !strings.Contains(err.Error(), "has been modified by an inplace operation") {
			t.Errorf("%s: backward through what was overwritten: %v", name, err)
		}
	}
}

// What index makes of a tensor that autograd knows nothing of are views like any other: a change to
// one that brings a gradient with it reaches the tensor and its other views.
func TestIndexViewsShareGraph(t *testing.T) {
	w := gotorch.Ones([]int64{2}).RequiresGrad_()
	x := gotorch.Zeros([]int64{2, 2})
	row := x.Index(gotorch.At(1), gotorch.SliceFrom(0))
	row.Add_(w.MulScalar(3))
	if !x.RequiresGrad() || !row.RequiresGrad() {
		t.Fatalf("RequiresGrad: of the tensor %v, of the view %v", x.RequiresGrad(), row.RequiresGrad())
	}
	x.IndexPut(5, gotorch.At(1), gotorch.At(0))
	x.Mul(x).Sum().Backward()
	// Of x only x[1, 1] = 3·w[1] still depends on w.
	if got := gotorch.Data[float32](w.Grad()); !slices.Equal(got, []float32{0, 18}) {
		t.Errorf("gradient %v", got)
	}
}

// What an integer in a tensor names is a view, as what an integer names is.
func TestIndexByATensorOfNoDimensionsIsAView(t *testing.T) {
	w := gotorch.Ones([]int64{2}).RequiresGrad_()
	x := gotorch.Ones([]int64{2, 2})
	x.Index(gotorch.FromScalar(int64(1))).Mul_(w)
	if !x.RequiresGrad() {
		t.Error("a change of the view is not recorded in its base")
	}
}

func TestIndexInModes(t *testing.T) {
	leaf := gotorch.FromSlice([]float32{1, 2, 3}).RequiresGrad_()
	gotorch.NoGrad(func() {
		for _, term := range []gotorch.IndexTerm{gotorch.SliceFrom(1), gotorch.List(1)} {
			if name := leaf.Index(term).GradFnName(); name != "" {
				t.Errorf("%s was recorded under NoGrad", name)
			}
		}
		leaf.IndexPut(5, gotorch.At(0)).IndexPut(6, gotorch.List(1))
	})
	if got := gotorch.ToSlice[float32](leaf); !slices.Equal(got, []float32{5, 6, 3}) || !leaf.IsLeaf() {
		t.Errorf("after a change under NoGrad: %v", leaf)
	}
	var inference gotorch.Tensor
	gotorch.InferenceMode(func() {
		inference = gotorch.Arange(4)
		inference.IndexPut(7, gotorch.At(0)).IndexPut(8, gotorch.List(1)).IndexPutAccumulate(1, gotorch.SliceTo(2))
		if got := inference.Index(gotorch.SliceStep(2)); !got.Equal(gotorch.FromSlice([]int64{8, 2})) {
			t.Errorf("x[::2] = %v", got)
		}
		leaf.Detach().IndexPut(4, gotorch.At(0)) // a tensor from outside
	})
	if got := gotorch.ToSlice[int64](inference); !slices.Equal(got, []int64{8, 9, 2, 3}) {
		t.Errorf("in inference mode: %v", got)
	}
	if got := inference.Index(gotorch.At(0), gotorch.NewAxis); got.Item() != int64(8) {
		t.Errorf("x[0, None] = %v", got)
	}
	err := gotorch.Try0(func() { inference.IndexPut(1, gotorch.At(0)) })
	if err == nil || !strings.Contains(err.Error(), "Inplace update to inference tensor outside InferenceMode is not allowed") {
		t.Errorf("a change to an inference tensor outside of the mode: %v", err)
	}
}

// Tensors of other kinds take PyTorch's own way.
func TestIndexOtherKinds(t *testing.T) {
	meta := gotorch.Zeros([]int64{2, 3}, gotorch.TensorOptions{Device: gotorch.Meta})
	if got := meta.Index(gotorch.At(0), gotorch.NewAxis, gotorch.SliceTo(2)).Shape(); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("on meta: shape %v", got)
	}
	meta.IndexPut(1, gotorch.At(0))

	sparse := gotorch.FromSlice([]float32{0, 1, 2, 0}, 2, 2).ToSparse()
	if got := sparse.Index(gotorch.At(1)).ToDense(); !got.Equal(gotorch.FromSlice([]float32{2, 0})) {
		t.Errorf("sparse: x[1] = %v", got)
	}

	z := gotorch.FromSlice([]complex64{1 + 2i, 3 + 4i}).Conj()
	if got := gotorch.ToSlice[complex64](z.Index(gotorch.SliceFrom(1))); got[0] != 3-4i {
		t.Errorf("conjugate: x[1:] = %v", got)
	}
	z.IndexPut(5+6i, gotorch.At(0))
	if got := gotorch.ToSlice[complex64](z); !slices.Equal(got, []complex64{5 + 6i, 3 - 4i}) {
		t.Errorf("conjugate: after x[0] = 5+6j: %v", got)
	}

	q := gotorch.QuantizePerTensor(gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2), 0.5, 0, gotorch.QInt8)
	if got := q.Index(gotorch.At(1), gotorch.SliceFrom(1)).Dequantize(); !got.Equal(gotorch.FromSlice([]float32{4})) {
		t.Errorf("quantized: x[1, 1:] = %v", got)
	}
}

func TestIndexBadArguments(t *testing.T) {
	x := gotorch.Zeros([]int64{2, 2})
	closed := gotorch.Zeros([]int64{1})
	closed.Close()
	var none gotorch.Tensor
	for _, test := range []struct {
		name string
		fn   func()
		kind gotorch.ErrorKind
		says string
	}{
		{"none", func() { none.Index(gotorch.At(0)) }, gotorch.TypeError, "argument 'self' is the zero Tensor"},
		{"closed", func() { closed.Index(gotorch.At(0)) }, gotorch.ValueError, "argument 'self' was used after Close"},
		{"none as a term", func() { x.Index(gotorch.At(0), none) }, gotorch.TypeError, "argument 'terms[1]' is the zero Tensor"},
		{"closed as a term", func() { x.Index(closed) }, gotorch.ValueError, "argument 'terms[0]' was used after Close"},
		{"closed mask", func() { x.Index(gotorch.Mask(closed)) }, gotorch.ValueError, "argument 'terms[0]' was used after Close"},
		{"nil term", func() { x.Index(nil) }, gotorch.TypeError, "argument 'terms[0]' is nil"},
		{"mask of floats", func() { x.Index(gotorch.Mask(x)) }, gotorch.IndexError, "a mask must be a tensor of bool or uint8, not Float"},
		{"two steps", func() { x.Index(gotorch.Slice(0, 1, 1, 1)) }, gotorch.TypeError, "argument 'terms[0]' is a slice with 2 steps"},
		{"65 terms", func() { x.Index(make([]gotorch.IndexTerm, 65)...) }, gotorch.IndexError, "at most 64 terms, not 65"},
		{"put nil", func() { x.IndexPut(nil, gotorch.At(0)) }, gotorch.TypeError, "argument 'value' is nil"},
		{"put a string", func() { x.IndexPut("7", gotorch.At(0)) }, gotorch.TypeError, "argument 'value' must be a Tensor or a Go integer, float, complex or bool, not string"},
		{"put none", func() { x.IndexPut(none, gotorch.At(0)) }, gotorch.TypeError, "argument 'value' is the zero Tensor"},
		{"put closed", func() { x.IndexPut(closed, gotorch.At(0)) }, gotorch.ValueError, "argument 'value' was used after Close"},
		{"put into none", func() { none.IndexPut(1, gotorch.At(0)) }, gotorch.TypeError, "argument 'self' is the zero Tensor"},
		{"put into a leaf", func() {
			gotorch.Zeros([]int64{2}).RequiresGrad_().IndexPut(1, gotorch.At(0))
		}, gotorch.RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation."},
	} {
		err := gotorch.Try0(test.fn)
		var e *gotorch.Error
		if !errors.As(err, &e) || e.Kind != test.kind || !strings.Contains(e.Msg, test.says) {
			t.Errorf("%s: %v, want %s: %s", test.name, err, test.kind, test.says)
		}
	}
	if got := gotorch.Item[float64](x.Abs().Sum()); got != 0 {
		t.Errorf("a failing IndexPut has written: %v", x)
	}
}

// Neither the terms nor what is made of them is left behind, also where indexing fails.
func TestIndexLeavesNothing(t *testing.T) {
	x := gotorch.Arange(6).Reshape([]int64{2, 3})
	mask := x.GtScalar(2)
	gotorch.Collect() // what other tests left
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		before := gotorch.MemoryStats()
		for range 100 {
			x.Index(gotorch.List(0, 1), gotorch.List(2, 0)).Close()
			x.Index(gotorch.List(true, false)).Close()
			x.Index(mask).Close()
			x.Index(gotorch.True, gotorch.At(0)).Close()
			x.IndexPut(1, gotorch.List(0, 1), gotorch.At(0))
			x.IndexPutAccumulate(1, gotorch.List(0, 0))
			if gotorch.Try0(func() { x.Index(gotorch.List(0), gotorch.List(3)) }) == nil {
				t.Fatal("no error")
			}
			if gotorch.Try0(func() { x.IndexPut(gotorch.Tensor{}, gotorch.List(0)) }) == nil {
				t.Fatal("no error")
			}
		}
		after := gotorch.MemoryStats()
		if after.LiveHandles != before.LiveHandles || after.NativeBytes != before.NativeBytes {
			t.Errorf("%d tensors and %d bytes were left over", after.LiveHandles-before.LiveHandles, after.NativeBytes-before.NativeBytes)
		}
	})
}

func TestIndexAllocatesNothing(t *testing.T) {
	x := gotorch.Arange(6).Reshape([]int64{2, 3})
	rows := gotorch.FromSlice([]int64{0, 1})
	last := 1000 // too big for Go's table of small boxed integers
	for name, fn := range map[string]func(){
		"slice": func() { x.Index(gotorch.Slice(0, last), gotorch.All).Close() },
		"at":    func() { x.Index(gotorch.At(last-999), gotorch.At(-1)).Close() },
		"rows":  func() { x.Index(rows, gotorch.SliceFrom(1)).Close() },
		"put":   func() { x.IndexPut(last, gotorch.At(0), gotorch.SliceTo(last)) },
	} {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			if n := testing.AllocsPerRun(1000, fn); n >= 1 {
				t.Errorf("%s: %v heap allocations", name, n)
			}
		})
	}
}

func BenchmarkIndex(b *testing.B) {
	x := gotorch.Arange(6).Reshape([]int64{2, 3})
	rows, columns := gotorch.FromSlice([]int64{0, 1}), gotorch.FromSlice([]int64{2, 0})
	mask := x.GtScalar(2)
	y := x.Clone()
	for _, bench := range []struct {
		name string
		fn   func()
	}{
		{"x[0:1, :]", func() { x.Index(gotorch.Slice(0, 1), gotorch.All) }},
		{"x[1]", func() { x.Index(gotorch.At(1)) }},
		{"x[1, -1]", func() { x.Index(gotorch.At(1), gotorch.At(-1)) }},
		{"x[..., None]", func() { x.Index(gotorch.Ellipsis, gotorch.NewAxis) }},
		{"x[rows]", func() { x.Index(rows) }},
		{"x[rows, columns]", func() { x.Index(rows, columns) }},
		{"x[[0, 1]]", func() { x.Index(gotorch.List(0, 1)) }},
		{"x[mask]", func() { x.Index(mask) }},
		{"y[0, -1] = 7", func() { y.IndexPut(7, gotorch.At(0), gotorch.At(-1)) }},
		{"y[:, 0] = x[:, 1]", func() {
			v := x.Index(gotorch.All, gotorch.At(1))
			y.IndexPut(v, gotorch.All, gotorch.At(0))
		}},
		{"y[mask] = 7", func() { y.IndexPut(7, mask) }},
		{"y[rows] = 7", func() { y.IndexPut(7, rows) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				bench.fn()
			}
		})
		b.Run(bench.name+" in a scope", func(b *testing.B) {
			const batch = 100
			for i := 0; i < b.N; i += batch {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					for range batch {
						bench.fn()
					}
				})
			}
		})
	}
}
