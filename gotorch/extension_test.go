package gotorch_test

import (
	"errors"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
)

// secondHandle returns a handle of its own to t's tensor, as a C++ extension returns one.
func secondHandle(t gotorch.Tensor) (handle unsafe.Pointer) {
	t.WithHandle(func(h unsafe.Pointer) { handle = unsafe.Pointer(ctorch.RetainTensor(ctorch.Tensor(h))) })
	return handle
}

func TestTensorFromHandle(t *testing.T) {
	gotorch.Collect()
	before := gotorch.MemoryStats().LiveHandles
	a := gotorch.FromSlice([]float32{1, 2, 3})
	b := gotorch.TensorFromHandle(secondHandle(a))
	if !b.SharesStorage(a) || a.UseCount() != 2 {
		t.Errorf("%v is not the tensor of the handle, of which there are %d", b, a.UseCount())
	}
	a.Close()
	if got := gotorch.ToSlice[float32](b); !reflect.DeepEqual(got, []float32{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
	b.Close()
	c := gotorch.FromSlice([]float32{1})
	var d gotorch.Tensor
	gotorch.Scope0(func(*gotorch.ScopeHandle) { d = gotorch.TensorFromHandle(secondHandle(c)) })
	if d.Defined() {
		t.Error("the scope has not freed the tensor")
	}
	func() { gotorch.TensorFromHandle(secondHandle(c)) }() // left to the collector
	c.Close()
	gotorch.Collect()
	if now := gotorch.MemoryStats().LiveHandles; now != before {
		t.Errorf("%d handles are left", now-before)
	}
	mustFail(t, gotorch.TypeError, "argument 'handle' is nil, where the handle of a tensor is required",
		func() { gotorch.TensorFromHandle(nil) })
}

func TestWithHandle(t *testing.T) {
	a := gotorch.FromSlice([]float32{1, 2})
	a.WithHandle(func(h unsafe.Pointer) {
		a.Close() // the handle stays valid
		second := gotorch.TensorFromHandle(unsafe.Pointer(ctorch.RetainTensor(ctorch.Tensor(h))))
		if got := gotorch.ToSlice[float32](second); !reflect.DeepEqual(got, []float32{1, 2}) {
			t.Errorf("got %v", got)
		}
	})
	never := func(unsafe.Pointer) { t.Error("called") }
	mustFail(t, gotorch.ValueError, "argument 'self' was used after Close", func() { a.WithHandle(never) })
	mustFail(t, gotorch.TypeError, "argument 'self' is the zero Tensor", func() { gotorch.Tensor{}.WithHandle(never) })
}

// What a callback panics with goes to C and back.
func TestMessages(t *testing.T) {
	if err := gotorch.ErrorFromC("op", nil); err != nil {
		t.Errorf("got %v of no message", err)
	}
	if m := gotorch.CallbackFromC("in a test", func() {}); m != nil {
		t.Error("there is a message of what did not panic")
	}
	cause := errors.New("it was the hook")
	err := gotorch.ErrorFromC("op", gotorch.CallbackFromC("in a test", func() { panic(cause) }))
	var p *gotorch.CallbackPanic
	if !errors.Is(err, gotorch.RuntimeError) || !errors.Is(err, cause) || !errors.As(err, &p) ||
		err.Error() != "op: RuntimeError: in a test: it was the hook" {
		t.Errorf("got %v", err)
	}
	err = gotorch.ErrorFromC("op", gotorch.CallbackFromC("in a test", func() { gotorch.Ones([]int64{2}).Select(0, 5) }))
	if !errors.Is(err, gotorch.IndexError) {
		t.Errorf("got %v", err)
	}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		gotorch.MustNil(gotorch.CallbackFromC("in a test", runtime.Goexit))
		t.Error("the goroutine goes on")
	}()
	<-ended
	if n := gotorch.Causes(); n != 0 {
		t.Errorf("%d panics are kept", n)
	}
}

// CallC is what calls operators.
func TestCallC(t *testing.T) {
	gotorch.Collect()
	before := gotorch.MemoryStats().LiveHandles
	name, overload := ctorch.CString("aten::unbind"), ctorch.CString("int")
	defer ctorch.FreeStrings([]*ctorch.Char{name, overload})
	var op ctorch.Operator
	if err := gotorch.ErrorFromC("", unsafe.Pointer(ctorch.FindOperator(name, overload, &op))); err != nil {
		t.Fatal(err)
	}
	unbind := func(args gotorch.CValues, results *unsafe.Pointer, n *int64) unsafe.Pointer {
		return unsafe.Pointer(ctorch.CallOperator(op, (*ctorch.Value)(args.Values), args.Len, (**ctorch.Char)(args.Names), args.Count,
			(**ctorch.Value)(unsafe.Pointer(results)), n))
	}
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		out := gotorch.CallC("unbind", unbind, gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2), gotorch.Named("dim", 1))
		if rows := out[0].([]gotorch.Tensor); len(rows) != 2 || gotorch.Item[float32](rows[1].Select(0, 0)) != 2 {
			t.Errorf("got %v", out)
		}
	})
	mustFail(t, gotorch.IndexError, "Dimension out of range", func() { gotorch.CallC("unbind", unbind, gotorch.Ones([]int64{2}), 7) })
	gotorch.Collect()
	if now := gotorch.MemoryStats().LiveHandles; now != before {
		t.Errorf("%d handles are left", now-before)
	}
}

func TestAssign(t *testing.T) {
	var into struct{ Epochs []int }
	if err := gotorch.Assign(&into, gotorch.Dict{{Key: "epochs", Value: []any{int64(1), int64(2)}}}, "the value"); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(into.Epochs, []int{1, 2}) {
		t.Errorf("got %+v", into)
	}
	if err := gotorch.Assign(&into, gotorch.Dict{{Key: "epochs", Value: "no"}}, "the value"); !errors.Is(err, gotorch.TypeError) || len(into.Epochs) != 2 {
		t.Errorf("got %v and %+v", err, into)
	}
	for _, to := range []any{nil, into, (*int)(nil)} {
		if err := gotorch.Assign(to, int64(1), "the value"); !errors.Is(err, gotorch.TypeError) {
			t.Errorf("got %v for %T", err, to)
		}
	}
}
