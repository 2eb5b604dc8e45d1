package gotorch_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"gotorch.dev/gotorch"
)

// Gradients with checkpoints are held to those without, to the last bit.

func layers() (w1, w2 gotorch.Tensor, f func(gotorch.Tensor) gotorch.Tensor) {
	gotorch.ManualSeed(3)
	w1, w2 = gotorch.Randn([]int64{4, 8}).RequiresGrad_(), gotorch.Randn([]int64{8, 4}).RequiresGrad_()
	return w1, w2, func(x gotorch.Tensor) gotorch.Tensor { return x.MM(w1).Tanh().MM(w2).Sigmoid() }
}

func sameBits(t *testing.T, what string, got, want gotorch.Tensor) {
	t.Helper()
	if !got.Equal(want) {
		t.Errorf("%s is\n%v\nand not\n%v", what, got, want)
	}
}

func TestSmokeCheckpointsGiveTheSameGradients(t *testing.T) {
	w1, w2, f := layers()
	x := gotorch.Randn([]int64{3, 4})
	for _, needsGrad := range []bool{true, false} {
		x.RequiresGrad_(needsGrad)
		of := []gotorch.Tensor{w1, w2}
		if needsGrad {
			of = append(of, x)
		}
		forms := map[string]func(gotorch.Tensor) gotorch.Tensor{
			"one": func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Checkpoint(f, x) },
			"two": func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Checkpoint(f, gotorch.Checkpoint(f, x)) },
			"nested": func(x gotorch.Tensor) gotorch.Tensor {
				return gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Checkpoint(f, f(x)) }, x)
			},
			"deep": func(x gotorch.Tensor) gotorch.Tensor {
				return gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor {
					return gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { return f(gotorch.Checkpoint(f, x)) }, x)
				}, x)
			},
			"used by": func(x gotorch.Tensor) gotorch.Tensor { y := gotorch.Checkpoint(f, x); return y.Mul(y) },
		}
		plain := map[string]func(gotorch.Tensor) gotorch.Tensor{
			"one": f, "two": func(x gotorch.Tensor) gotorch.Tensor { return f(f(x)) }, "nested": func(x gotorch.Tensor) gotorch.Tensor { return f(f(x)) },
			"deep": func(x gotorch.Tensor) gotorch.Tensor { return f(f(x)) }, "used by": func(x gotorch.Tensor) gotorch.Tensor { y := f(x); return y.Mul(y) },
		}
		for name, form := range forms {
			want, got := plain[name](x), form(x)
			sameBits(t, name, got, want)
			wanted := gotorch.Grad([]gotorch.Tensor{want.Sum()}, of)
			y := got.Sum()
			for _, retain := range []bool{true, false} {
				for i, g := range gotorch.Grad([]gotorch.Tensor{y}, of, gotorch.GradOptions{RetainGraph: &retain}) {
					sameBits(t, "the gradient of "+name, g, wanted[i])
				}
			}
			mustFail(t, gotorch.RuntimeError, "second time", func() { gotorch.Grad([]gotorch.Tensor{y}, of) })
		}
	}
}

func TestCheckpointsCanBeDifferentiatedTwice(t *testing.T) {
	_, _, f := layers()
	x := gotorch.Randn([]int64{3, 4}).RequiresGrad_()
	second := func(f func(gotorch.Tensor) gotorch.Tensor) gotorch.Tensor {
		of := []gotorch.Tensor{x}
		g := gotorch.Grad([]gotorch.Tensor{f(x).Sum()}, of, gotorch.GradOptions{CreateGraph: true})[0]
		return gotorch.Grad([]gotorch.Tensor{g.Square().Sum()}, of)[0]
	}
	sameBits(t, "the second derivative", second(func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Checkpoint(f, x) }), second(f))
}

// A function may itself differentiate, as penalties on gradients do.
func TestBackwardPassesWithinCheckpoints(t *testing.T) {
	_, _, f := layers()
	x := gotorch.Randn([]int64{3, 4}).RequiresGrad_()
	penalty := func(x gotorch.Tensor) gotorch.Tensor {
		y := f(x)
		g := gotorch.Grad([]gotorch.Tensor{y.Sum()}, []gotorch.Tensor{x}, gotorch.GradOptions{CreateGraph: true})[0]
		return y.Add(g.Square())
	}
	of := []gotorch.Tensor{x}
	want := gotorch.Grad([]gotorch.Tensor{penalty(x).Sum()}, of)[0]
	sameBits(t, "the gradient", gotorch.Grad([]gotorch.Tensor{gotorch.Checkpoint(penalty, x).Sum()}, of)[0], want)
}

func TestCheckpointsOfSeveralTensors(t *testing.T) {
	a, b := floats(1, 2).RequiresGrad_(), floats(3, 4)
	out := gotorch.CheckpointAll(func(xs []gotorch.Tensor) []gotorch.Tensor {
		if xs[1].T != nil {
			t.Error("none became a tensor")
		}
		return []gotorch.Tensor{xs[0].Mul(xs[2]), xs[2].Sin(), xs[0].Exp()}
	}, []gotorch.Tensor{a, {}, b})
	if out[1].RequiresGrad() {
		t.Error("what depends on nothing requires grad")
	}
	out[0].Sum().Add(out[2].Sum()).Backward()
	sameBits(t, "the gradient", a.Grad(), b.Add(a.Detach().Exp()))
}

func TestSmokeCheckpointsDrawTheSameNumbers(t *testing.T) {
	x := gotorch.Ones([]int64{100}).RequiresGrad_()
	drop := func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Dropout(x, 0.5, true).Square() }
	y := gotorch.Checkpoint(drop, x)
	gotorch.ManualSeed(99)
	before := gotorch.DefaultGenerator(gotorch.CPU).State()
	y.Sum().Backward()
	sameBits(t, "the gradient", x.Grad(), y.Detach().MulScalar(2)) // x is 1, and y 4 or 0: 2·2·2 or 0
	sameBits(t, "the generator's state", gotorch.DefaultGenerator(gotorch.CPU).State(), before)
}

func TestCheckpointsKeepAutocast(t *testing.T) {
	_, _, f := layers()
	x := gotorch.Randn([]int64{3, 4}).RequiresGrad_()
	run := func(f func(gotorch.Tensor) gotorch.Tensor) gotorch.Tensor {
		var y gotorch.Tensor
		gotorch.Autocast(gotorch.CPU, gotorch.BFloat16, func() { y = f(x) })
		return gotorch.Grad([]gotorch.Tensor{y.Sum()}, []gotorch.Tensor{x})[0]
	}
	sameBits(t, "the gradient", run(func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Checkpoint(f, x) }), run(f))
}

// With eight layers of 1 MB each, of which none is kept.
func TestCheckpointsSaveMemory(t *testing.T) {
	deep := func(x gotorch.Tensor) gotorch.Tensor {
		for range 8 {
			x = x.Exp().Log()
		}
		return x
	}
	held := func(f func(gotorch.Tensor) gotorch.Tensor) int64 {
		collectAll()
		x := gotorch.Ones([]int64{1 << 18}).RequiresGrad_()
		before := gotorch.MemoryStats().NativeBytes
		y := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return f(x) })
		bytes := gotorch.MemoryStats().NativeBytes - before
		y.Sum().Backward()
		if g := x.Grad(); !g.AllClose(gotorch.Ones([]int64{1 << 18})) {
			t.Error("the gradient is wrong")
		}
		return int64(bytes)
	}
	const mb = 1 << 20
	if kept := held(deep); kept < 8*mb {
		t.Errorf("without checkpoints only %d bytes are kept, so that the test says nothing", kept)
	}
	if kept := held(func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Checkpoint(deep, x) }); kept > mb+mb/2 {
		t.Errorf("a checkpoint keeps %d bytes", kept)
	}
	var fs []func(gotorch.Tensor) gotorch.Tensor
	for range 4 {
		fs = append(fs, deep)
	}
	if kept := held(func(x gotorch.Tensor) gotorch.Tensor { return gotorch.CheckpointSequential(fs, 4, x) }); kept > 20*mb {
		t.Errorf("four segments keep %d bytes", kept)
	}
}

func TestCheckpointsFindWhatIsNotTheSame(t *testing.T) {
	calls := 0
	x := floats(1, 2).RequiresGrad_()
	on := func(f func(gotorch.Tensor) gotorch.Tensor, opts ...gotorch.CheckpointOptions) func() {
		return func() {
			calls = 0
			gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { calls++; return f(x) }, x, opts...).Sum().Backward()
		}
	}
	fewer := func(x gotorch.Tensor) gotorch.Tensor {
		if calls > 1 {
			return x.Exp()
		}
		return x.Exp().Sin()
	}
	mustFail(t, gotorch.RuntimeError, "saved 2 tensors for the backward pass, and 1", on(fewer))
	mustFail(t, gotorch.RuntimeError, "fewer tensors", on(fewer, gotorch.CheckpointOptions{NoDeterminismCheck: true}))
	mustFail(t, gotorch.RuntimeError, "had shape [2], torch.float32", on(func(x gotorch.Tensor) gotorch.Tensor {
		if calls > 1 {
			x = gotorch.Cat([]gotorch.Tensor{x, x})
		}
		return x.Exp()
	}))
	mustFail(t, gotorch.RuntimeError, "had shape", on(func(x gotorch.Tensor) gotorch.Tensor {
		if calls > 1 {
			x = x.To(gotorch.Float64)
		}
		return x.Exp()
	}))
	mustFail(t, gotorch.TypeError, "nil", func() { gotorch.Checkpoint(nil, x) })
	mustFail(t, gotorch.TypeError, "zero Tensor", func() {
		gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { return x.Exp() }, gotorch.Tensor{}).Sum()
	})
	mustFail(t, gotorch.RuntimeError, "modified by an inplace", func() {
		h := x.Exp()
		y := gotorch.Checkpoint(gotorch.Tensor.Sin, h)
		h.Zero_()
		y.Sum().Backward()
	})
	// What f makes, changes, and still needs; a pass within f finds it too.
	changes := func(x gotorch.Tensor) gotorch.Tensor {
		y := x.Exp()
		return y.Mul_(x).Sin()
	}
	mustFail(t, gotorch.RuntimeError, "modified by an inplace operation: a tensor of shape [2]", func() { gotorch.Checkpoint(changes, x).Sum().Backward() })
	mustFail(t, gotorch.RuntimeError, "modified by an inplace", func() {
		inner := false
		gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor {
			y := x.Sin()
			if inner {
				gotorch.Grad([]gotorch.Tensor{changes(x).Sum()}, []gotorch.Tensor{x})
			}
			inner = true
			return y.Exp()
		}, x).Sum().Backward()
	})
	// What is changed before it is needed is not in the way.
	z := floats(1, 2).RequiresGrad_()
	gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor {
		y := x.Clone()
		return y.Mul_(x).Sin()
	}, z).Sum().Backward()
	if want := z.Detach().Square().Cos().Mul(z.Detach()).MulScalar(2); !z.Grad().AllClose(want) {
		t.Errorf("the gradient is %v and not %v", z.Grad(), want)
	}
	f := []func(gotorch.Tensor) gotorch.Tensor{gotorch.Tensor.Sin, gotorch.Tensor.Exp, gotorch.Tensor.Cos}
	for _, segments := range []int{-1, 0, 4} {
		mustFail(t, gotorch.ValueError, "between 1 and 3", func() { gotorch.CheckpointSequential(f, segments, x) })
	}
	mustFail(t, gotorch.TypeError, "nil", func() { gotorch.CheckpointSequential(append(f, nil), 1, x) })
	x.SetGrad(gotorch.Tensor{})
	for segments := range 3 {
		sameBits(t, "a sequence", gotorch.CheckpointSequential(f, segments+1, x), x.Sin().Exp().Cos())
	}
}

func TestPanicsInCheckpoints(t *testing.T) {
	x := floats(1, 2).RequiresGrad_()
	stop := errors.New("stop")
	later := false
	f := func(x gotorch.Tensor) gotorch.Tensor {
		y := x.Exp()
		if later {
			panic(stop)
		}
		return y.Sin()
	}
	y := gotorch.Checkpoint(f, x).Sum()
	later = true
	state := gotorch.DefaultGenerator(gotorch.CPU).State()
	err := gotorch.Try0(func() { y.Backward(gotorch.BackwardOptions{RetainGraph: new(true)}) })
	if !errors.Is(err, stop) {
		t.Errorf("the error is %v", err)
	}
	sameBits(t, "the generator's state", gotorch.DefaultGenerator(gotorch.CPU).State(), state)
	func() {
		defer func() {
			if recover() != stop {
				t.Error("the panic did not arrive")
			}
		}()
		gotorch.Checkpoint(f, x)
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer func() { // no checkpoint is open: this is saved, and computed with
			later = false
			z := x.Exp().Sin().Sum()
			sameBits(t, "a gradient", gotorch.Grad([]gotorch.Tensor{z}, []gotorch.Tensor{x})[0], x.Detach().Exp().Cos().Mul(x.Detach().Exp()))
		}()
		gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { runtime.Goexit(); return x }, x)
	}()
	<-done
	later = false
	y.Backward() // once more, and now it works
}

func TestCheckpointsWithoutGradOnlyCall(t *testing.T) {
	x := floats(1, 2).RequiresGrad_()
	gotorch.NoGrad(func() {
		if gotorch.Checkpoint(gotorch.Tensor.Sin, x).RequiresGrad() {
			t.Error("it requires grad")
		}
	})
	gotorch.InferenceMode(func() { gotorch.Checkpoint(gotorch.Tensor.Sin, x) })
	sameBits(t, "no gradients at all", gotorch.Checkpoint(gotorch.Tensor.Sin, floats(1)), floats(1).Sin())
}

func TestCheckpointsLeaveNoHandle(t *testing.T) {
	_, _, f := layers()
	x := gotorch.Randn([]int64{3, 4})
	step := func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			y := gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { return gotorch.Checkpoint(f, f(x)) }, x)
			y.Sum().Backward()
			gotorch.Checkpoint(f, x) // whose graph is dropped
		})
	}
	step()
	collectAll()
	before := gotorch.MemoryStats().LiveHandles
	for range 20 {
		step()
	}
	collectAll()
	if after := gotorch.MemoryStats().LiveHandles; after > before+4 {
		t.Errorf("%d handles are left of %d", after, before)
	}
}

func TestCheckpointsInParallel(t *testing.T) {
	done := make(chan bool)
	for range 4 {
		go func() {
			x := floats(1, 2).RequiresGrad_()
			for range 50 {
				x.SetGrad(gotorch.Tensor{})
				gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { return x.Exp().Exp() }, x).Sum().Backward()
			}
			done <- x.Grad().AllClose(x.Detach().Exp().Exp().Mul(x.Detach().Exp()))
		}()
	}
	for range 4 {
		if !<-done {
			t.Error("a gradient is wrong")
		}
	}
}

// Each pass has tensors of its own that were computed again.
func TestPassesOverOneCheckpointInParallel(t *testing.T) {
	x := gotorch.Rand([]int64{8, 8}).RequiresGrad_()
	y := gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor {
		return x.Sin().Exp().MatMul(x).Tanh().Mul(x.Cos())
	}, x).Sum()
	gradient := func() gotorch.Tensor {
		return gotorch.Grad([]gotorch.Tensor{y}, []gotorch.Tensor{x}, gotorch.GradOptions{RetainGraph: new(true)})[0]
	}
	want := gradient()
	failed := make(chan error)
	for range 8 {
		go func() {
			var err error
			for range 50 {
				var got gotorch.Tensor
				if got, err = gotorch.Try(gradient); err == nil && !got.Equal(want) {
					err = errors.New("a gradient is wrong")
				}
				if err != nil {
					break
				}
			}
			failed <- err
		}()
	}
	for range 8 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// What a pass has computed again and not asked for goes with the pass, also if that fails.
func TestPassesKeepNothing(t *testing.T) {
	collectAll()
	x, z := gotorch.Rand([]int64{1000}).RequiresGrad_(), gotorch.Rand([]int64{1000}).RequiresGrad_()
	fail := false
	y := gotorch.CheckpointAll(func(xs []gotorch.Tensor) []gotorch.Tensor {
		h := xs[0].Exp()
		h.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
			if fail {
				panic("failed")
			}
			return g
		})
		return []gotorch.Tensor{h.Mul(xs[1].Sin()).Sin().Sum()}
	}, []gotorch.Tensor{x, z})[0]
	pass := func() {
		gotorch.Try0(func() {
			gotorch.Grad([]gotorch.Tensor{y}, []gotorch.Tensor{x}, gotorch.GradOptions{RetainGraph: new(true)})[0].Close()
		})
	}
	for _, fail = range []bool{false, true} {
		collectAll()
		before := gotorch.MemoryStats().NativeBytes
		pass()
		collectAll()
		if more := gotorch.MemoryStats().NativeBytes - before; more > 0 {
			t.Errorf("fail = %v: %d bytes are left of a pass", fail, more)
		}
	}
}

func collectAll() {
	for range 3 {
		runtime.GC()
		gotorch.ReleaseCachedMemory()
	}
}

func ExampleCheckpoint() {
	x := gotorch.FromSlice([]float32{1, 2}).RequiresGrad_()
	y := gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor {
		fmt.Println("computing")
		return x.Pow(3).Sum()
	}, x)
	y.Backward()
	fmt.Println(x.Grad())
	// Output:
	// computing
	// computing
	// tensor([ 3., 12.])
}

// savesElsewhere asks for its saved tensor in another goroutine, which is in no backward pass.
type savesElsewhere struct{}

func (savesElsewhere) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	ctx.SaveForBackward(in[0])
	return []gotorch.Tensor{in[0].Mul(in[0])}
}

func (savesElsewhere) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	saved := make(chan gotorch.Tensor)
	go func() {
		ctx.SavedTensors() // each time it is computed again
		saved <- ctx.SavedTensors()[0]
	}()
	return []gotorch.Tensor{grads[0].Mul(<-saved).MulScalar(2)}
}

func TestWhatACheckpointSavesIsThereOutsideOfBackward(t *testing.T) {
	x := floats(1, 2, 3).RequiresGrad_()
	called := 0
	f := func(x gotorch.Tensor) gotorch.Tensor {
		called++
		return gotorch.Apply(savesElsewhere{}, x.Exp())[0].Sin()
	}
	f(x).Sum().Backward()
	want := x.Grad().Clone()
	x.SetGrad(gotorch.Tensor{})
	called = 0
	leavesNothing(t, func() {
		gotorch.Checkpoint(f, x).Sum().Backward()
		sameBits(t, "the gradient", x.Grad(), want)
		x.SetGrad(gotorch.Tensor{})
	})
	if called != 8 { // twice: forward, for the backward pass, and for each of two questions
		t.Error(called)
	}
}
