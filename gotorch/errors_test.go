package gotorch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

func ExampleTry() {
	a := gotorch.Ones([]int64{2, 3})
	_, err := gotorch.Try(func() gotorch.Tensor { return a.Select(0, 5) })
	fmt.Println(err)
	fmt.Println(errors.Is(err, gotorch.IndexError), errors.Is(err, gotorch.RuntimeError))
	// Output:
	// IndexError: select(): index 5 out of range for tensor of size [2, 3] at dimension 0
	// true false
}

// The messages and classes are what Python shows for the same calls.
func TestErrorsArePyTorchs(t *testing.T) {
	a := gotorch.Ones([]int64{2, 3})
	square := gotorch.Zeros([]int64{2, 2})
	for _, c := range []struct {
		op   string
		kind gotorch.ErrorKind
		msg  string
		fn   func()
	}{
		{"dot", gotorch.RuntimeError, "1D tensors expected, but got 2D and 2D tensors", func() { a.Dot(a) }},
		{"select.int", gotorch.IndexError, "select(): index 5 out of range for tensor of size [2, 3] at dimension 0",
			func() { a.Select(0, 5) }},
		{"transpose.int", gotorch.IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
			func() { a.Transpose(0, 2) }},
		{"linalg_inv", gotorch.LinAlgError,
			"linalg.inv: The diagonal element 1 is zero, the inversion could not be completed because the input matrix is singular.",
			func() { gotorch.LinalgInv(square) }},
		{"view", gotorch.RuntimeError, "shape '[5]' is invalid for input of size 6", func() { a.View([]int64{5}) }},
	} {
		e := mustFail(t, c.kind, c.msg, c.fn)
		if e.Op != c.op || e.Msg != c.msg {
			t.Errorf("got %q of %s, want %q of %s", e.Msg, e.Op, c.msg, c.op)
		}
		if strings.Contains(e.Msg, "\n") || strings.Contains(e.Msg, "Exception raised from") {
			t.Errorf("a backtrace in %q", e.Msg)
		}
	}
}

// Row D6: a zero Tensor is a typed panic that names op and argument.
// The text is Python's line. Where that does not say which function failed, the name is in front.
func TestErrorText(t *testing.T) {
	a := gotorch.Ones([]int64{2, 3})
	for _, c := range []struct {
		fn   func()
		want string
	}{
		{func() { a.Dot(a) }, "dot: RuntimeError: 1D tensors expected, but got 2D and 2D tensors"},
		{func() { a.Select(0, 5) }, "IndexError: select(): index 5 out of range for tensor of size [2, 3] at dimension 0"},
		{func() { gotorch.LinalgInv(a) }, "RuntimeError: linalg.inv: A must be batches of square matrices, but they are 2 by 3 matrices"},
		{func() { a.View([]int64{5}) }, "view: RuntimeError: shape '[5]' is invalid for input of size 6"},
		{func() { a.Transpose(0, 2) }, "transpose.int: IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)"},
		{func() { gotorch.Call("aten::select", "int", a, 0, 5) }, "IndexError: select(): index 5 out of range for tensor of size [2, 3] at dimension 0"},
		{func() { gotorch.Call("aten::view", "", a, []int64{5}) }, "aten::view: RuntimeError: shape '[5]' is invalid for input of size 6"},
	} {
		if err := gotorch.Try0(c.fn); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	for _, c := range []struct{ op, msg, want string }{
		{"add_.Tensor", "add(): no", "K: add(): no"},
		{"cat", "torch.cat(): no", "K: torch.cat(): no"},
		{"aten::mm.out", "mm: no", "K: mm: no"},
		{"mm", "mmm: no", "mm: K: mmm: no"},
		{"mm", "mm no", "mm: K: mm no"},
		{"mm", "in mm: no", "mm: K: in mm: no"},
		{"", "mm: no", "K: mm: no"},
	} {
		if got := (&gotorch.Error{Op: c.op, Kind: "K", Msg: c.msg}).Error(); got != c.want {
			t.Errorf("%q of %q is %q, want %q", c.msg, c.op, got, c.want)
		}
	}
}

func TestMissingArguments(t *testing.T) {
	a := gotorch.Ones([]int64{2})
	var none gotorch.Tensor
	e := mustFail(t, gotorch.TypeError, "argument 'other' is the zero Tensor", func() { a.Add(none) })
	if e.Op != "add.Tensor" {
		t.Errorf("op is %q", e.Op)
	}
	mustFail(t, gotorch.TypeError, "argument 'self' is the zero Tensor", func() { none.Add(a) })
	mustFail(t, gotorch.TypeError, "argument 'self' is the zero Tensor", func() { none.Shape() })
	mustFail(t, gotorch.TypeError, "argument 'tensors' is the zero Tensor", func() { gotorch.Cat([]gotorch.Tensor{a, none}) })
	mustFail(t, gotorch.TypeError, "argument 'other' is nil", func() { a.AddScalar(nil) })
	mustFail(t, gotorch.TypeError, "argument 'args' has a nil", func() { a.To(nil) })
	mustFail(t, gotorch.TypeError, "must be a Go integer, float, complex or bool, not string", func() { a.AddScalar("1") })
	mustFail(t, gotorch.TypeError, "argument 'dtype' is not given", func() { a.ToDType(0) })
	mustFail(t, gotorch.ValueError, "contains a NUL byte", func() {
		gotorch.GELU(a, gotorch.GELUOptions{Approximate: "no\x00ne"})
	})
}

func TestTryLetsOtherPanicsPass(t *testing.T) {
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = gotorch.Try0(func() { panic("other") })
	t.Error("the panic was swallowed")
}

func TestTry(t *testing.T) {
	v, err := gotorch.Try(func() int { return 3 })
	if v != 3 || err != nil {
		t.Errorf("got %v, %v", v, err)
	}
	a, b, err := gotorch.Try2(func() (int, string) { return 1, "x" })
	if a != 1 || b != "x" || err != nil {
		t.Errorf("got %v, %v, %v", a, b, err)
	}
	_, _, err = gotorch.Try2(func() (int, string) { panic(&gotorch.Error{Kind: gotorch.KeyError, Msg: "k"}) })
	if !errors.Is(err, gotorch.KeyError) || err.Error() != "KeyError: k" {
		t.Errorf("got %v", err)
	}
	wrapped := fmt.Errorf("while testing: %w", err)
	if err := gotorch.Try0(func() { panic(wrapped) }); err != wrapped {
		t.Errorf("got %v", err)
	}
}

// Row D7: MustNil frees the string, so 10^5 recovered panics leave resident memory flat.
func TestRecoveredPanicsLeaveMemoryFlat(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 2000
	}
	a := gotorch.Ones([]int64{2, 3})
	fail := func() {
		if _, err := gotorch.Try(func() gotorch.Tensor { return gotorch.MM(a, a) }); err == nil {
			t.Fatal("no error")
		}
	}
	for range 2000 {
		fail()
	}
	handles, before := live(), resident(t)
	for range n {
		fail()
	}
	if grown := resident(t) - before; grown > 16<<20 {
		t.Errorf("%d failed calls grew memory by %d KB", n, grown>>10)
	}
	returnsTo(t, handles)
	runtime.KeepAlive(a)
}

// Row D11. TestForeignExceptions calls operators of a third-party library that throw all sorts of things.
func TestForeignExceptions(t *testing.T) {
	loadForeign(t)
	for what, want := range map[string]string{
		"int":       "RuntimeError: a C++ exception that is no std::exception was thrown",
		"runtime":   "RuntimeError: of the standard library",
		"range":     "IndexError: past the end",
		"memory":    "MemoryError: out of memory",
		"index":     "IndexError: from c10",
		"value":     "ValueError: from c10",
		"type":      "TypeError: from c10",
		"none":      "NotImplementedError: from c10",
		"lines":     "RuntimeError: first line",
		"empty":     "RuntimeError: ",
		"nonascii":  "RuntimeError: größer",
		"oom":       "OutOfMemoryError: from c10",
		"otherwise": "RuntimeError: unknown",

		// tests/test_messages.py compares more of these with Python's.
		"c10:want CPUFloatType, got Variable[SparseCUDALongType]": "RuntimeError: want torch.FloatTensor, got Variable[torch.cuda.sparse.LongTensor]",
		"std:CPUBFloat16Type, XLAFloatType, Type, CPUFloatTypes":  "RuntimeError: CPUBFloat16Type, XLAFloatType, Type, torch.FloatTensors",
	} {
		before := live()
		err := gotorch.Try0(func() { gotorch.Call("gotorch_test::throws", "", what) })
		var e *gotorch.Error
		if !errors.As(err, &e) || string(e.Kind)+": "+e.Msg != want {
			t.Errorf("%s: got %v, want %s", what, err, want)
		}
		if left := gotorch.MemoryStats().LiveHandles - before; left != 0 {
			t.Errorf("%s: %d handles are left", what, left)
		}
	}
}

// loadForeign loads the operators of testdata/throws.cc, compiled against the torch that is loaded.
func loadForeign(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles C++")
	}
	if err := compileForeign(); err != nil {
		t.Fatal(err)
	}
}

var compileForeign = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "gotorch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	lib := gotorch.TorchLib()
	library := filepath.Join(dir, "libthrows.so")
	out, err := exec.Command(cxx, "-std=c++20", "-shared", "-fPIC", "-isystem", filepath.Join(lib, "../include"),
		"testdata/throws.cc", "-o", library, "-L"+lib, "-ltorch_cpu", "-lc10", "-Wl,-rpath,"+lib).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return gotorch.LoadLibrary(library)
})

// worksOrPanics fails the test where fn panics with something else than an *Error.
func worksOrPanics(t *testing.T, name string, fn func()) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: %v", name, p)
		}
	}()
	_ = gotorch.Try0(fn) // which lets other panics through
}

// TestMethodsTakeWhateverComes calls every method with zero values, sizes that are negative or huge and
// tensors that are missing, closed, empty or of another dtype: it works, or panics with an *Error.
func TestMethodsTakeWhateverComes(t *testing.T) {
	lent := gotorch.Lent()
	tensors := []func() gotorch.Tensor{
		func() gotorch.Tensor { return gotorch.Tensor{} },
		func() gotorch.Tensor { return gotorch.Ones([]int64{2, 3}) },
		func() gotorch.Tensor { return gotorch.Ones([]int64{0}) },
		func() gotorch.Tensor { x := gotorch.Ones([]int64{2}); x.Close(); return x },
		func() gotorch.Tensor { return gotorch.FromSlice([]int64{1, 2, 3}) },
		func() gotorch.Tensor { return gotorch.FromSlice([]bool{true, false}) },
	}
	defer gotorch.SetWarningHandler(gotorch.WarningHandler())
	gotorch.SetWarningHandler(func(gotorch.Warning) {})
	tensor := reflect.TypeFor[gotorch.Tensor]()
	argument := func(of reflect.Type, way int) reflect.Value {
		number := []int64{0, 0, -1 << 62, 1 << 62}[way%4]
		switch {
		case of == tensor:
			return reflect.ValueOf(tensors[way%len(tensors)]())
		case of == reflect.TypeFor[[]gotorch.Tensor]() && way%2 == 1:
			return reflect.ValueOf([]gotorch.Tensor{tensors[way%len(tensors)](), {}})
		case of.Kind() == reflect.Int64:
			return reflect.ValueOf(number).Convert(of)
		case of == reflect.TypeFor[[]int64]() && way%2 == 0:
			return reflect.ValueOf([]int64{number, 1 << 40})
		}
		return reflect.Zero(of)
	}
	for m := range tensor.NumMethod() {
		method := tensor.Method(m)
		if method.Name == "Format" { // which fmt calls
			continue
		}
		for way := range 24 {
			worksOrPanics(t, method.Name, func() {
				f := reflect.ValueOf(tensors[way/4]()).Method(m)
				var args []reflect.Value
				for i := range f.Type().NumIn() {
					of := f.Type().In(i)
					if f.Type().IsVariadic() && i == f.Type().NumIn()-1 {
						of = of.Elem()
						if way%2 == 0 {
							break
						}
					}
					if of.Kind() == reflect.Func {
						return
					}
					args = append(args, argument(of, way))
				}
				f.Call(args)
			})
		}
	}
	if n := gotorch.Lent(); n != lent {
		t.Errorf("%d tensors are lent, want %d", n, lent)
	}
}
