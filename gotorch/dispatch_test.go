package gotorch_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

func TestSmokeCall(t *testing.T) {
	a := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	expect(t, gotorch.Call("aten::mm", "", a, a)[0].(gotorch.Tensor), "tensor([[ 7., 10.],\n        [15., 22.]])")
	expect(t, gotorch.Call("aten::add", "Tensor", a, a, gotorch.Named("alpha", 2))[0].(gotorch.Tensor), "tensor([[ 3.,  6.],\n        [ 9., 12.]])")
}

func TestCallTakesAndReturnsEveryKindOfValue(t *testing.T) {
	a := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	g := gotorch.NewGenerator(gotorch.CPU)
	for _, c := range []struct {
		name, overload string
		args           []any
		want           string
	}{
		{"aten::sum", "dim_IntList", []any{a, []int64{1}, true, gotorch.Named("dtype", gotorch.Float64)}, "[tensor([[3.],\n        [7.]], dtype=torch.float64)]"},
		{"aten::sum", "dim_IntList", []any{a, 1}, "[tensor([3., 7.])]"},
		{"aten::max", "dim", []any{a, 1}, "[tensor([2., 4.]) tensor([1, 1])]"},
		{"aten::split", "Tensor", []any{a, uint8(1)}, "[[tensor([[1., 2.]]) tensor([[3., 4.]])]]"},
		{"aten::unbind", "int", []any{ones(0, 2)}, "[[]]"},
		{"aten::rand", "generator", []any{[]int{2}, gotorch.Named("generator", g.ManualSeed(1<<63+5))}, "[tensor([0.8303, 0.1261])]"},
		{"aten::rand", "generator", []any{[]int{0}, gotorch.Named("generator", nil)}, "[tensor([])]"},
		{"aten::zeros", "", []any{[]int64{2}, gotorch.Named("device", gotorch.CPU), gotorch.Named("dtype", gotorch.Bool), gotorch.Named("layout", gotorch.Strided)}, "[tensor([False, False])]"},
		{"aten::zeros", "", []any{gotorch.Tuple{1, 1}, gotorch.Named("device", "cpu"), gotorch.Named("dtype", gotorch.DType(0))}, "[tensor([[0.]])]"},
		{"aten::clone", "", []any{a.Index(gotorch.At(0)), gotorch.Named("memory_format", gotorch.ContiguousFormat)}, "[tensor([1., 2.])]"},
		{"aten::index", "Tensor", []any{a, []gotorch.Tensor{{}, gotorch.FromSlice([]int64{1})}}, "[tensor([[2.],\n        [4.]])]"},
		{"aten::item", "", []any{floats(3)}, "[3]"},
		{"aten::_local_scalar_dense", "", []any{gotorch.FromSlice([]complex64{3i})}, "[(0+3i)]"},
		{"aten::_local_scalar_dense", "", []any{gotorch.FromSlice([]bool{true})}, "[true]"},
		{"aten::add", "Scalar", []any{gotorch.FromSlice([]int64{1}), true}, "[tensor([2])]"},
		{"aten::add", "Scalar", []any{gotorch.FromSlice([]int64{1}), float32(1.5)}, "[tensor([2.5000])]"},
		{"aten::full", "", []any{[]int64{1}, 2i}, "[tensor([0.+2.j])]"},
		{"aten::einsum", "", []any{"ij,ij->", []gotorch.Tensor{a, a}, gotorch.Named("path", nil)}, "[tensor(30.)]"},
		{"aten::_foreach_add", "ScalarList", []any{[]gotorch.Tensor{a, a}, []gotorch.Scalar{1, 2.5}}, "[[tensor([[2., 3.],\n        [4., 5.]]) tensor([[3.5000, 4.5000],\n        [5.5000, 6.5000]])]]"},
		{"aten::size", "int", []any{a, -1}, "[2]"},
		{"aten::stride", "int", []any{a, 0}, "[2]"},
		{"aten::is_same_size", "", []any{a, a}, "[true]"},
		{"aten::q_scale", "", []any{gotorch.Call("aten::quantize_per_tensor", "", a, 0.5, 0, gotorch.QInt8)[0]}, "[0.5]"},
		{"aten::dropout", "", []any{a.Index(gotorch.At(0)), 0, false}, "[tensor([1., 2.])]"},
		{"aten::gradient", "array", []any{gotorch.FromSlice([]float32{1, 4, 9}), gotorch.Named("dim", []int{0})}, "[[tensor([3., 4., 5.])]]"},
		{"aten::upsample_nearest2d", "vec", []any{ones(1, 1, 1, 1), nil, []float64{1, 2}}, "[tensor([[[[1., 1.]]]])]"},
		{"aten::convolution_backward", "", []any{ones(1, 1, 1, 1), ones(1, 1, 1, 1), ones(1, 1, 1, 1), nil, []int{1}, []int{0}, []int{1}, false, []int{0}, 1, [3]bool{true}}, "[tensor([[[[1.]]]]) none none]"},
		{"aten::resize_", "", []any{ones(1), []int64{0}}, "[tensor([])]"},
		{"aten::set_", "source_Storage", []any{ones(1), a.Storage()}, "[tensor([1., 2., 3., 4.])]"},
		{"aten::_pin_memory", "", nil, ""},
	} {
		got, err := gotorch.Try(func() []any { return gotorch.Call(c.name, c.overload, c.args...) })
		if c.want == "" {
			if err == nil {
				t.Errorf("%s.%s returned %v", c.name, c.overload, got)
			}
			continue
		}
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s.%s returned %v, %v; want %s", c.name, c.overload, got, err, c.want)
		}
	}
}

func TestCallPassesObjectsThrough(t *testing.T) {
	weight := gotorch.Call("aten::quantize_per_tensor", "", ones(2, 2), 0.5, 0, gotorch.QInt8)[0]
	packed, err := gotorch.Try(func() any { return gotorch.Call("quantized::linear_prepack", "", weight, nil)[0] })
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := packed.(*gotorch.Object); !ok {
		t.Fatalf("a packed weight is a %T", packed)
	}
	unpacked := gotorch.Call("quantized::linear_unpack", "", packed)
	expect(t, unpacked[0].(gotorch.Tensor).Dequantize(), "tensor([[1., 1.],\n        [1., 1.]])")
	mustFail(t, gotorch.TypeError, "argument 'W_prepack' of quantized::linear_unpack", func() { gotorch.Call("quantized::linear_unpack", "", 3) })
}

func TestCallOfWhatContainsItself(t *testing.T) {
	list, table, dict := []any{1, nil}, map[string]any{}, gotorch.Dict{{Key: "a"}}
	list[1], table["a"], dict[0].Value = list, table, dict
	for _, arg := range []any{list, table, dict} {
		e := mustFail(t, gotorch.ValueError, "nested too deeply, or contains itself", func() { gotorch.Call("aten::cat", "", arg) })
		if e.Op != "aten::cat" {
			t.Errorf("%v does not name the operator", e)
		}
	}
	// One after the other is not one in the other.
	many := make([]gotorch.Tensor, 3000)
	for i := range many {
		many[i] = ones(1)
	}
	if n := gotorch.Call("aten::cat", "", many)[0].(gotorch.Tensor).Numel(); n != 3000 {
		t.Errorf("got %d elements", n)
	}
}

func TestCallMistakes(t *testing.T) {
	a := ones(2, 2)
	call := func(name, overload string, args ...any) func() {
		return func() { gotorch.Call(name, overload, args...) }
	}
	mustFail(t, gotorch.AttributeError, "there is no operator 'aten::nope'", call("aten::nope", ""))
	mustFail(t, gotorch.AttributeError, "operator 'aten::mm' has no overload 'Tensor'; it has ", call("aten::mm", "Tensor"))
	for text, args := range map[string][]any{
		"aten::mm misses the argument 'self'. Its schema is aten::mm(Tensor self, Tensor mat2) -> Tensor": {},
		"aten::mm misses the argument 'mat2'":                             {a},
		"argument 'mat2' of aten::mm must be Tensor, not int":             {a, 3},
		"argument 'self' of aten::mm must be Tensor, not None":            {nil, a},
		"aten::mm takes 2 arguments, not 3":                               {a, a, a},
		"aten::mm has no argument 'other'":                                {a, gotorch.Named("other", a)},
		"aten::mm was given the argument 'self' twice":                    {a, gotorch.Named("self", a)},
		"argument 1 follows a named one":                                  {gotorch.Named("mat2", a), a},
		"an argument of type struct {} is nothing that an operator takes": {a, struct{}{}},
	} {
		e := mustFail(t, gotorch.TypeError, text, call("aten::mm", "", args...))
		if e.Op != "aten::mm" {
			t.Errorf("%v does not name the operator", e)
		}
	}
	for text, args := range map[string][]any{
		"takes the argument 'alpha' by name only":                      {a, a, 2},
		"argument 'alpha' of aten::add.Tensor must be Scalar, not str": {a, a, gotorch.Named("alpha", "2")},
		"does not fit into an int64":                                   {a, a, gotorch.Named("alpha", uint64(1<<63))},
	} {
		mustFail(t, gotorch.TypeError, text, call("aten::add", "Tensor", args...))
	}
	for text, args := range map[string][]any{
		"argument 'dim' of aten::sum.dim_IntList must be int, not float":    {a, []any{0, 1.5}},
		"argument 'keepdim' of aten::sum.dim_IntList must be bool, not int": {a, 1, 1},
	} {
		mustFail(t, gotorch.TypeError, text, call("aten::sum", "dim_IntList", args...))
	}
	mustFail(t, gotorch.RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x2 and 3x3)", call("aten::mm", "", a, ones(3, 3)))
	closed := ones(1)
	closed.Close()
	mustFail(t, gotorch.ValueError, "used after Close", call("aten::neg", "", closed))
	mustFail(t, gotorch.ValueError, "used after Close", call("aten::stack", "", []gotorch.Tensor{closed}))
}

func TestOperator(t *testing.T) {
	op, err := gotorch.FindOperator("aten::add", "Tensor")
	if err != nil {
		t.Fatal(err)
	}
	if op.Name() != "aten::add.Tensor" || op.Schema() != "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" {
		t.Error(op.Name(), op.Schema())
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if s := op.Call(floats(1), floats(2))[0].(gotorch.Tensor).String(); s != "tensor([3.])" {
					t.Error(s)
				}
			}
		})
	}
	wg.Wait()
	if _, err := gotorch.FindOperator("aten::nope", ""); !errors.Is(err, gotorch.AttributeError) {
		t.Error(err)
	}
	all := gotorch.Operators()
	if len(all) < 2000 || !slices.Contains(all, "aten::mm(Tensor self, Tensor mat2) -> Tensor") || !slices.IsSorted(all) {
		t.Error("there are", len(all), "operators")
	}
}

func TestCallIsDifferentiable(t *testing.T) {
	x := leaf(1, 2)
	x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.MulScalar(10) })
	y := gotorch.Call("aten::mul", "Tensor", x, x)[0].(gotorch.Tensor)
	// Backward as an operator, which comes back into Go.
	gotorch.Call("aten::_backward", "", y.Sum(), []gotorch.Tensor{x})
	expect(t, x.Grad(), "tensor([20., 40.])")
	problem := errors.New("no")
	x.RegisterHook(func(gotorch.Tensor) gotorch.Tensor { panic(problem) })
	e := mustFail(t, gotorch.RuntimeError, "in a hook: no", func() { gotorch.Call("aten::_backward", "", x.Mul(x).Sum(), []gotorch.Tensor{x}) })
	if !errors.Is(e, problem) {
		t.Error(e)
	}
}

func TestCallLeavesNothing(t *testing.T) {
	weight := gotorch.Call("aten::quantize_per_tensor", "", ones(2, 2), 0.5, 0, gotorch.QInt8)[0]
	leavesNothing(t, func() {
		a := ones(2, 2)
		for range 50 {
			gotorch.Call("aten::split", "Tensor", a, 1)
			gotorch.Call("aten::max", "dim", a, 1)
			gotorch.Call("quantized::linear_unpack", "", gotorch.Call("quantized::linear_prepack", "", weight, nil)[0])
			_ = gotorch.Try0(func() { gotorch.Call("aten::mm", "", a, ones(3, 3)) })
			_ = gotorch.Try0(func() { gotorch.Call("aten::mm", "", a, "text") })
		}
	})
}

func TestLoadLibraryThatIsNone(t *testing.T) {
	if err := gotorch.LoadLibrary("/there/is/no/such.so"); !errors.Is(err, gotorch.OSError) {
		t.Error(err)
	}
}

func ExampleCall() {
	x := gotorch.FromSlice([]float32{3, 1, 2})
	out := gotorch.Call("aten::topk", "", x, 2, gotorch.Named("largest", false))
	fmt.Println(out[0], out[1])
	// Output: tensor([1., 2.]) tensor([1, 2])
}

func BenchmarkCall(b *testing.B) {
	op, err := gotorch.FindOperator("aten::add", "Tensor")
	if err != nil {
		b.Fatal(err)
	}
	x := floats(1)
	b.ReportAllocs()
	for range b.N {
		op.Call(x, x)
	}
}
