package gotorch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
)

// usesOfClosed are calls that use x, all of whose 64 elements are v. They return what they make of it:
// numbers that are all the same, and what these must be. So another tensor's are noticed, which has -1.
var usesOfClosed = map[string]func(x gotorch.Tensor, v float64) (got []float64, want float64){
	"op": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return gotorch.ToSlice[float64](x.Add(x)), 2 * v
	},
	"list": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return gotorch.ToSlice[float64](gotorch.Cat([]gotorch.Tensor{x, x, x})), v
	},
	"long list": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		list := make([]gotorch.Tensor, 100)
		for i := range list {
			list[i] = x
		}
		return gotorch.ToSlice[float64](gotorch.Stack(list)), v
	},
	"list of results": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return gotorch.ToSlice[float64](gotorch.ForeachAddScalar([]gotorch.Tensor{x, x}, 1)[1]), v + 1
	},
	"optional": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		zeros := gotorch.Zeros([]int64{2, 64}, gotorch.TensorOptions{DType: gotorch.Float64})
		return gotorch.ToSlice[float64](gotorch.Linear(zeros, gotorch.Zeros([]int64{64, 64}, gotorch.TensorOptions{DType: gotorch.Float64}),
			gotorch.LinearOptions{Bias: x})), v
	},
	"in place": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		x.Mul_(gotorch.Ones([]int64{64}, gotorch.TensorOptions{DType: gotorch.Float64}))
		return gotorch.ToSlice[float64](x), v
	},
	"into": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		y := gotorch.Zeros([]int64{64}, gotorch.TensorOptions{DType: gotorch.Float64})
		y.Copy_(x)
		return gotorch.ToSlice[float64](y), v
	},
	"view": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return gotorch.ToSlice[float64](x.View([]int64{8, 8}).Transpose(0, 1).Contiguous()), v
	},
	"index": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return gotorch.ToSlice[float64](x.Index(gotorch.Slice(3, 60))), v
	},
	"index by a tensor": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return gotorch.ToSlice[float64](x.Index(x.GtScalar(0))), v
	},
	"index put": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		y := gotorch.Zeros([]int64{64}, gotorch.TensorOptions{DType: gotorch.Float64})
		y.IndexPut(x, gotorch.All)
		x.IndexPut(v, gotorch.At(3))
		return gotorch.ToSlice[float64](y), v
	},
	"item": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return []float64{gotorch.Item[float64](x.Index(gotorch.At(5)))}, v
	},
	"facts": func(x gotorch.Tensor, _ float64) ([]float64, float64) {
		shape, strides := x.Shape(), x.Strides()
		return []float64{float64(shape[0]), float64(64 * strides[0]), float64(x.Size(0)), float64(x.Numel())}, 64
	},
	"text": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		text := x.String()
		if text != "closed" && strings.Count(text, fmt.Sprintf(" %g.", v))+strings.Count(text, fmt.Sprintf("[%g.", v)) != 64 {
			panic("got " + text)
		}
		return nil, 0
	},
	"gradient": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		w := gotorch.Ones([]int64{64}, gotorch.TensorOptions{DType: gotorch.Float64, RequiresGrad: true})
		w.Mul(x).Sum().Backward()
		return gotorch.ToSlice[float64](w.Grad()), v
	},
	"gradient of it": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		w := gotorch.Ones([]int64{64}, gotorch.TensorOptions{DType: gotorch.Float64, RequiresGrad: true})
		gotorch.Backward([]gotorch.Tensor{w.MulScalar(1)}, []gotorch.Tensor{x})
		return gotorch.ToSlice[float64](w.Grad()), v
	},
	"function": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return gotorch.ToSlice[float64](gotorch.Apply(tortureFunction{}, x)[0]), 2 * v
	},
	"by name": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		neg, err := gotorch.FindOperator("aten::neg", "")
		if err != nil {
			panic(err)
		}
		return gotorch.ToSlice[float64](neg.Call(x)[0].(gotorch.Tensor)), -v
	},
	"scope": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		return gotorch.ToSlice[float64](gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return x.Add(x).Add(x) })), 3 * v
	},
	"gob": func(x gotorch.Tensor, v float64) ([]float64, float64) {
		b, err := x.GobEncode()
		if err != nil {
			panic(err)
		}
		var y gotorch.Tensor
		if err := y.GobDecode(b); err != nil {
			panic(err)
		}
		return gotorch.ToSlice[float64](y), v
	},
}

// TestCloseWhileOthersUse closes tensors that other goroutines are using, by Close and by the end of the
// scope that they were made in. Each call either computes with the tensor or finds it closed.
func TestCloseWhileOthersUse(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	base := live()
	for _, processors := range []int{1, 2, 8} {
		runtime.GOMAXPROCS(processors)
		for name, use := range usesOfClosed {
			for _, inScope := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/scope=%v/GOMAXPROCS=%d", name, inScope, processors), func(t *testing.T) {
					closeWhileUsed(t, use, inScope)
				})
			}
		}
	}
	returnsTo(t, base)
}

func closeWhileUsed(t *testing.T, use func(gotorch.Tensor, float64) ([]float64, float64), inScope bool) {
	rounds := 24
	switch {
	case runtime.GOMAXPROCS(0) == 1: // each round waits for goroutines to be preempted
		rounds = 3
	case raceEnabled || testing.Short():
		rounds = 8
	}
	uses := 0
	for round := range rounds {
		v := float64(round%7 + 1)
		full := func(v float64) gotorch.Tensor {
			return gotorch.Full([]int64{64}, v, gotorch.TensorOptions{DType: gotorch.Float64})
		}
		var users sync.WaitGroup
		var using atomic.Int64
		const n = 3
		start := func(x gotorch.Tensor) {
			for range n {
				users.Go(func() {
					for closed := false; !closed; using.Add(1) {
						err := gotorch.Try0(func() {
							got, want := use(x, v)
							for _, f := range got {
								if f != want {
									t.Errorf("got %v, want %g everywhere", got, want)
									break
								}
							}
						})
						closed = !x.Defined()
						if err == nil {
							continue
						}
						var e *gotorch.Error
						if !errors.As(err, &e) || e.Kind != gotorch.ValueError || !strings.Contains(e.Msg, "used after Close") {
							t.Error(err)
						}
					}
				})
			}
			for until := int64(n * (round%3 + 1)); using.Load() < until; {
				runtime.Gosched()
			}
		}
		if inScope {
			gotorch.Scope0(func(*gotorch.ScopeHandle) { start(full(v)) })
		} else {
			x := full(v)
			start(x)
			users.Go(x.Close) // two at a time
			x.Close()
		}
		// What was freed is used again.
		for range 50 {
			full(-1).Close()
		}
		users.Wait()
		uses += int(using.Load())
	}
	if uses < rounds*3 {
		t.Errorf("%d uses in %d rounds", uses, rounds)
	}
}

// TestCloseInsideACall closes what the call around uses: by a hook that the call runs, on its thread.
func TestCloseInsideACall(t *testing.T) {
	base := live()
	for range 100 {
		w, root := leaf(1, 2, 3), gotorch.FromSlice([]float32{1, 1, 1})
		y := w.MulScalar(2)
		y.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
			y.Close()
			root.Close()
			for range 20 {
				gotorch.Full([]int64{3}, -1)
			}
			return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return g.MulScalar(3) })
		})
		gotorch.Backward([]gotorch.Tensor{y}, []gotorch.Tensor{root})
		if got := w.Grad().String(); got != "tensor([6., 6., 6.])" {
			t.Fatalf("got %s", got)
		}
		mustFail(t, gotorch.ValueError, "used after Close", func() { root.Neg() })
	}
	returnsTo(t, base)
}

// TestClosedIsFreed holds that what was closed is freed soon, with nobody calling: also small tensors,
// which wait for others, and what was in use.
func TestClosedIsFreed(t *testing.T) {
	for name, n := range map[string]int64{"small": 3, "large": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			freed := make(chan struct{})
			data := make([]float32, n)
			x := gotorch.FromBlob(data)
			runtime.AddCleanup(&data[0], func(int) { close(freed) }, 0)
			data = nil
			x.Close()
			// No call of gotorch is made here: they would free it.
			eventually(t, "the memory to be free", func() bool {
				runtime.GC()
				select {
				case <-freed:
					return true
				case <-time.After(10 * time.Millisecond):
					return false
				}
			})
		})
	}
}

// TestClosedViewOfMuch closes tensors of few elements that are the last to hold much memory. What waits to be
// freed with others must not add up.
func TestClosedViewOfMuch(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const bytes = 64 << 20
	big := func() gotorch.Tensor { return gotorch.Empty([]int64{bytes / 4}) }
	views := make(chan gotorch.Tensor)
	closed := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for v := range views {
			v.Close()
			closed <- struct{}{}
		}
	}()
	defer close(views)
	for name, once := range map[string]func(){
		"what it is a view of is closed": func() {
			x := big()
			v := x.Index(gotorch.Slice(0, 3))
			x.Close()
			v.Close()
		},
		"what it is a view of has another storage": func() {
			x := big()
			v := x.Index(gotorch.Slice(0, 3))
			x.SetData(v)
			x.Close()
			v.Close()
		},
		"on another thread": func() {
			x := big()
			v := x.Index(gotorch.Slice(0, 3))
			x.Close()
			views <- v
			<-closed
		},
		"in a scope": func() {
			x := big()
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				v := x.Index(gotorch.Slice(0, 3))
				x.SetData(v)
			})
			x.Close()
		},
		"small when it was made": func() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.Empty([]int64{1}).Resize_([]int64{bytes / 4}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			once()
			gotorch.Collect()
			before, most := gotorch.LiveBytes(), int64(0)
			for range 100 {
				once()
				most = max(most, gotorch.LiveBytes()-before)
			}
			if most > 3*bytes {
				t.Errorf("%d MB wait to be freed", most>>20)
			}
		})
	}
}

// TestNotHeld tells memory that lacks from a tensor that was closed: of both C gives no second handle.
func TestNotHeld(t *testing.T) {
	x := gotorch.Ones([]int64{2})
	if e := gotorch.NotHeld(x); e.Kind != gotorch.MemoryError {
		t.Errorf("got %v for a tensor that is there, want a MemoryError", e)
	}
	x.Close()
	if e := gotorch.NotHeld(x); e.Kind != gotorch.ValueError || !strings.Contains(e.Msg, "used after Close") {
		t.Errorf("got %v for a tensor that was closed, want a ValueError", e)
	}
}

// TestCloseWhileCounted closes tensors that a scope hands to the collector at the same time, which inside of
// Python counts their memory: in a process of its own.
func TestCloseWhileCounted(t *testing.T) {
	if os.Getenv("GOTORCH_PRETEND_PYTHON") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCloseWhileCounted$")
		cmd.Env = append(os.Environ(), "GOTORCH_PRETEND_PYTHON=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	counted := gotorch.PretendPython()
	made := make(chan gotorch.Tensor)
	var closing sync.WaitGroup
	closing.Go(func() {
		for x := range made {
			for range rand.IntN(200) {
				runtime.KeepAlive(x)
			}
			x.Close()
		}
	})
	for range 30000 {
		gotorch.Scope0(func(s *gotorch.ScopeHandle) {
			x := gotorch.Empty([]int64{5000})
			s.Keep(x)
			made <- x
		})
	}
	close(made)
	closing.Wait()
	eventually(t, "what was closed to be counted no more", func() bool { return counted() == 0 })
}
