package gotorch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

const uint8Warning = "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."

// warningsOf returns the warnings of fn.
func warningsOf(fn func()) (got []gotorch.Warning) {
	var mutex sync.Mutex
	defer gotorch.SetWarningHandler(gotorch.WarningHandler())
	gotorch.SetWarningHandler(func(w gotorch.Warning) {
		mutex.Lock()
		defer mutex.Unlock()
		got = append(got, w)
	})
	fn()
	return got
}

func expectWarnings(t *testing.T, got []gotorch.Warning, want ...string) {
	t.Helper()
	texts := []string{}
	for _, w := range got {
		texts = append(texts, w.String())
	}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
}

func ExampleSetWarningHandler() {
	defer gotorch.SetWarningHandler(gotorch.WarningHandler())
	gotorch.SetWarningHandler(func(w gotorch.Warning) { fmt.Println("PyTorch says:", w.Msg) })

	x := gotorch.FromSlice([]float32{1, 2, 3})
	mask := gotorch.FromSlice([]uint8{1, 0, 1})
	fmt.Println(x.Index(mask))
	// Output:
	// PyTorch says: indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.
	// tensor([1., 3.])
}

// A program that knows nothing of handlers says the same only once, and so does one whose handler is
// taken away again.
func TestWarningsArePrintedOnce(t *testing.T) {
	if os.Getenv("GOTORCH_TEST_WARN") != "" {
		x, mask := gotorch.Ones([]int64{2}), gotorch.FromSlice([]uint8{1, 0})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 3 {
					x.Index(mask)
				}
			})
		}
		wg.Wait()
		if got := warningsOf(func() { x.Index(mask) }); len(got) != 1 {
			fmt.Fprintln(os.Stderr, "unexpected", got)
		}
		x.Index(mask)
		x.Mul(x.RequiresGrad_()).Grad()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWarningsArePrintedOnce$")
	cmd.Env = append(os.Environ(), "GOTORCH_TEST_WARN=1")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Fatal(err, said.String())
	}
	first, second, _ := strings.Cut(said.String(), "\n")
	if first != "gotorch: warning: "+uint8Warning || !strings.HasPrefix(second, "gotorch: warning: The .grad attribute of a Tensor that is not a leaf") ||
		strings.Count(second, "\n") != 1 {
		t.Errorf("it printed %q", said.String())
	}
}

func TestWarningHandler(t *testing.T) {
	x, mask := leaf(1, 2), gotorch.FromSlice([]uint8{1, 0})
	uint8s := "UserWarning: " + uint8Warning
	expectWarnings(t, warningsOf(func() {}))
	expectWarnings(t, warningsOf(func() { x.Index(mask); x.Index(mask) }), uint8s, uint8s)
	expectWarnings(t, warningsOf(func() {
		x.Detach().IndexPut(gotorch.FromSlice([]float32{1, 2}), gotorch.FromSlice([]uint8{1, 1}))
	}), uint8s)
	expectWarnings(t, warningsOf(func() { gotorch.IndexTensors(x, []gotorch.Tensor{mask}) }), uint8s)
	expectWarnings(t, warningsOf(func() { gotorch.Call("aten::index", "Tensor", x, []gotorch.Tensor{mask}) }), uint8s)

	y := x.MulScalar(2)
	got := warningsOf(func() { y.Grad() })
	if len(got) != 1 || !strings.HasPrefix(got[0].Msg, "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed.") {
		t.Errorf("got %q", got)
	}

	gotorch.WarnAlways.Set(true)
	defer gotorch.WarnAlways.Set(false)
	got = warningsOf(func() { x.Mul(x).Sum().Backward(gotorch.BackwardOptions{CreateGraph: true}) })
	if len(got) != 1 || !strings.HasPrefix(got[0].Msg, "Using backward() with create_graph=True") {
		t.Errorf("got %q", got)
	}
	x.SetGrad(gotorch.Tensor{})
}

func TestWarningsOfOperators(t *testing.T) {
	loadForeign(t)
	x := gotorch.Ones([]int64{2})
	warn := func(what string, n int, fail bool) func() {
		return func() { gotorch.Call("gotorch_test::warns", "", what, x, n, fail) }
	}
	expectWarnings(t, warningsOf(warn("w", 2, false)), "UserWarning: w0", "UserWarning: w1")
	expectWarnings(t, warningsOf(func() { gotorch.Call("gotorch_test::deprecated", "", "two\nlines") }), "DeprecationWarning: two\nlines")
	expectWarnings(t, warningsOf(warn("CPUFloatType", 1, false)), "UserWarning: torch.FloatTensor0")
	expectWarnings(t, warningsOf(func() {
		mustFail(t, gotorch.RuntimeError, "it was told to fail", warn("w", 1, true))
	}), "UserWarning: w0")
}

// What the handler sees is the call that warns: its goroutine and its stack.
func TestWarningHandlerRunsInTheCall(t *testing.T) {
	x, mask := gotorch.Ones([]int64{2}), gotorch.FromSlice([]uint8{1, 0})
	var stack string
	defer gotorch.SetWarningHandler(gotorch.WarningHandler())
	gotorch.SetWarningHandler(func(gotorch.Warning) {
		stack = string(debug.Stack())
		gotorch.MM(gotorch.Eye(2), gotorch.Eye(2)) // it may compute
	})
	scoped := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return x.Index(mask) })
	if !strings.Contains(stack, "TestWarningHandlerRunsInTheCall") {
		t.Error(stack)
	}
	expect(t, scoped, "tensor([1.])")
}

// A hook's own warnings come from the hook, those of the pass around it from the pass.
func TestWarningsInHooks(t *testing.T) {
	mask := gotorch.FromSlice([]uint8{1, 0})
	x := leaf(1, 2)
	x.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
		inner := warningsOf(func() { g.Index(mask) })
		expectWarnings(t, inner, "UserWarning: "+uint8Warning)
		return g
	})
	gotorch.WarnAlways.Set(true)
	defer gotorch.WarnAlways.Set(false)
	got := warningsOf(func() { x.Mul(x).Sum().Backward(gotorch.BackwardOptions{CreateGraph: true}) })
	if len(got) != 1 || !strings.HasPrefix(got[0].Msg, "Using backward() with create_graph=True") {
		t.Errorf("got %q", got)
	}
	x.SetGrad(gotorch.Tensor{})
}

// A handler that panics makes an error of the warning, and the results are freed.
func TestWarningHandlerThatPanics(t *testing.T) {
	type refused struct{ error }
	x, mask := gotorch.Ones([]int64{2}), gotorch.FromSlice([]uint8{1, 0})
	defer gotorch.SetWarningHandler(gotorch.WarningHandler())
	gotorch.SetWarningHandler(func(w gotorch.Warning) { panic(refused{errors.New(w.Msg)}) })
	gotorch.WarnAlways.Set(true)
	defer gotorch.WarnAlways.Set(false)

	y := leaf(1, 2).MulScalar(2)
	calls := map[string]func(){
		"Index":     func() { x.Index(mask) },
		"op":        func() { gotorch.IndexTensors(x, []gotorch.Tensor{mask}) },
		"list":      func() { gotorch.Meshgrid([]gotorch.Tensor{x, x}) },
		"Grad":      func() { y.Grad() },
		"Call":      func() { gotorch.Call("aten::index", "Tensor", x, []gotorch.Tensor{mask}) },
		"Call many": func() { gotorch.Call("aten::meshgrid", "", []gotorch.Tensor{x, x}) },
	}
	for name, fn := range calls {
		base := live()
		for range 20 {
			func() {
				defer func() {
					if _, ok := recover().(refused); !ok {
						t.Errorf("%s: the panic did not come out", name)
					}
				}()
				fn()
			}()
		}
		if left := live() - base; left > 0 {
			t.Errorf("%s: %d handles are left", name, left)
		}
	}
	gotorch.SetWarningHandler(nil)
	gotorch.Eye(2).MM(gotorch.Eye(2))
}

func TestWarningHandlerInManyGoroutines(t *testing.T) {
	x, mask := gotorch.Ones([]int64{2}), gotorch.FromSlice([]uint8{1, 0})
	const goroutines, calls = 8, 50
	got := warningsOf(func() {
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range calls {
					x.Index(mask)
				}
			})
		}
		wg.Wait()
	})
	if len(got) != goroutines*calls {
		t.Errorf("%d warnings, want %d", len(got), goroutines*calls)
	}
}
