package gotorch_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/nn"
)

func TestNumThreads(t *testing.T) {
	before := gotorch.NumThreads()
	defer gotorch.SetNumThreads(before)
	gotorch.SetNumThreads(3)
	// On every OS thread, also on those that ran an op before.
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			gotorch.Ones([]int64{100_000}).Sum()
			time.Sleep(time.Millisecond)
			if n := gotorch.NumThreads(); n != 3 {
				t.Errorf("a thread has %d threads for an op, want 3", n)
			}
		})
	}
	wait.Wait()
	mustFail(t, gotorch.RuntimeError, "expects a positive integer", func() { gotorch.SetNumThreads(0) })
	if gotorch.NumInteropThreads() < 1 {
		t.Error("no inter-op threads")
	}
}

// TestCallsAtATimeAreBounded runs long ops in many goroutines, with callbacks that wait for each
// other: the bound on calls at a time must neither block them nor be lost.
func TestCallsAtATimeAreBounded(t *testing.T) {
	defer gotorch.BoundCalls(runtime.GOMAXPROCS(0))()
	a := gotorch.Rand([]int64{300, 300})
	var wait sync.WaitGroup
	for range 32 {
		wait.Go(func() {
			for range 5 {
				a.MM(a)
			}
		})
	}
	// Hooks that meet: each waits until all have begun.
	n := 4 * runtime.GOMAXPROCS(0)
	var meeting sync.WaitGroup
	meeting.Add(n)
	for range n {
		wait.Go(func() {
			w := leaf(1, 2)
			y := w.MulScalar(2)
			y.RegisterHook(func(grad gotorch.Tensor) gotorch.Tensor {
				meeting.Done()
				meeting.Wait()
				return grad.MulScalar(3)
			})
			y.Sum().Backward()
			if got := gotorch.Item[float64](w.Grad().Sum()); got != 12 {
				t.Errorf("gradients add up to %v, want 12", got)
			}
		})
	}
	done := make(chan bool)
	go func() { wait.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		t.Fatal("deadlock")
	}
	if n := gotorch.CallsNow(); n != 0 {
		t.Errorf("%d calls are counted when none is running", n)
	}
}

// TestRanksOfOneProcessAreMoreThanPlaces has more goroutines wait for each other within C than there are places for.
func TestRanksOfOneProcessAreMoreThanPlaces(t *testing.T) {
	defer gotorch.BoundCalls(1)()
	rankstest.Run(t, 5, distributed.Options{Timeout: 20 * time.Second}, func(g *distributed.Group) {
		model := distributed.DataParallel(nn.Linear(2, 2), distributed.DataParallelOptions{Group: g})
		defer model.Close()
		for range 3 {
			if err := gotorch.Try0(func() { model.Forward(gotorch.Ones([]int64{1, 2})).Sum().Backward() }); err != nil {
				t.Error(err)
				return
			}
		}
	})
	if n := gotorch.CallsNow(); n != 0 {
		t.Errorf("%d calls are counted when none is running", n)
	}
}

// finish fails the test where fn does not return.
func finish(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan bool)
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		buf := make([]byte, 1<<20)
		t.Fatalf("deadlock:\n%s", buf[:runtime.Stack(buf, true)])
	}
}

// TestNestedBackward runs backward passes in hooks of each other. Below 60 of them libtorch computes
// on another thread, while this one sleeps.
func TestNestedBackward(t *testing.T) {
	defer gotorch.BoundCalls(1)()
	var nest func(depth int) float64
	nest = func(depth int) float64 {
		inner := 1.0
		w := leaf(1, 2)
		w.RegisterHook(func(grad gotorch.Tensor) gotorch.Tensor {
			if depth > 0 {
				gotorch.EnableGrad(func() { inner = nest(depth - 1) })
			}
			return grad.AddScalar(inner)
		})
		w.Sum().Backward()
		return gotorch.Item[float64](w.Grad().Sum())
	}
	finish(t, func() {
		nest(1500)
		if got := nest(3); got != 46 { // each is 2 * (1 + the one inside)
			t.Errorf("got %v, want 46", got)
		}
	})
	if n := gotorch.CallsNow(); n != 0 {
		t.Errorf("%d calls are counted when none is running", n)
	}
}

// TestHooksThatWait has hooks of a leaf wait for goroutines that compute, while others are in the same
// hook or, in versions of libtorch that hold a lock around it, wait for that.
func TestHooksThatWait(t *testing.T) {
	defer gotorch.BoundCalls(1)()
	for name, compute := range map[string]func(){
		"op":       func() { gotorch.Ones([]int64{2}).Sum() },
		"backward": func() { leaf(1, 2).Sum().Backward() },
	} {
		t.Run(name, func(t *testing.T) {
			w := leaf(1, 2)
			w.RegisterPostAccumulateGradHook(func(gotorch.Tensor) {
				time.Sleep(20 * time.Millisecond) // the others begin
				done := make(chan bool)
				go func() {
					defer close(done)
					compute()
				}()
				<-done
			})
			finish(t, func() {
				var wait sync.WaitGroup
				for range 3 {
					wait.Go(func() { w.Sum().Backward() })
				}
				wait.Wait()
			})
			expect(t, w.Grad(), "tensor([3., 3.])")
		})
	}
	if n := gotorch.CallsNow(); n != 0 {
		t.Errorf("%d calls are counted when none is running", n)
	}
}

type exitingFunction struct{ forward bool }

func (f exitingFunction) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	if f.forward {
		runtime.Goexit()
	}
	return []gotorch.Tensor{in[0].MulScalar(2)}
}

func (f exitingFunction) Backward(*gotorch.FunctionContext, []gotorch.Tensor) []gotorch.Tensor {
	runtime.Goexit()
	return nil
}

// TestGoexit ends goroutines wherever the program's code is called: all deferred functions run, the
// goroutine does not go on, and what libtorch and this package hold is given back.
func TestGoexit(t *testing.T) {
	gotorch.Collect()
	lent := gotorch.Lent()
	defer gotorch.BoundCalls(1)()
	shared := leaf(1, 2)
	hooked := func(hook func()) func() {
		return func() {
			w := leaf(1, 2)
			w.RegisterHook(func(gotorch.Tensor) gotorch.Tensor { hook(); return gotorch.Tensor{} })
			w.Sum().Backward()
		}
	}
	mask := gotorch.FromSlice([]uint8{1, 0})
	places := map[string]func(){
		"hook": hooked(runtime.Goexit),
		"post hook": func() {
			defer shared.RegisterPostAccumulateGradHook(func(gotorch.Tensor) { runtime.Goexit() }).Remove()
			shared.Sum().Backward()
		},
		"hook in a hook": hooked(func() { gotorch.EnableGrad(hooked(runtime.Goexit)) }),
		"modes in a hook": hooked(func() {
			gotorch.NoGrad(func() { gotorch.Scope0(func(*gotorch.ScopeHandle) { runtime.Goexit() }) })
		}),
		"operator": func() {
			w := leaf(1, 2)
			w.RegisterHook(func(gotorch.Tensor) gotorch.Tensor { runtime.Goexit(); return gotorch.Tensor{} })
			gotorch.Call("aten::_backward", "", w.Sum(), []gotorch.Tensor{w})
		},
		"Forward":  func() { gotorch.Apply(exitingFunction{true}, leaf(1, 2)) },
		"Backward": func() { gotorch.Apply(exitingFunction{}, leaf(1, 2))[0].Sum().Backward() },
		"Grad": func() {
			w := leaf(1, 2)
			gotorch.Grad([]gotorch.Tensor{gotorch.Apply(exitingFunction{}, w)[0].Sum()}, []gotorch.Tensor{w})
		},
		"Try":           func() { gotorch.Try0(hooked(runtime.Goexit)) },
		"Scope":         func() { gotorch.Scope0(func(*gotorch.ScopeHandle) { mask.AddScalar(1); runtime.Goexit() }) },
		"Unscoped":      func() { gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.Unscoped(runtime.Goexit) }) },
		"NoGrad":        func() { gotorch.NoGrad(runtime.Goexit) },
		"InferenceMode": func() { gotorch.InferenceMode(runtime.Goexit) },
		"Autocast":      func() { gotorch.Autocast(gotorch.CPU, 0, runtime.Goexit) },
		"DetectAnomaly": func() { gotorch.DetectAnomaly(runtime.Goexit) },
		"warning": func() {
			defer gotorch.SetWarningHandler(gotorch.WarningHandler())
			gotorch.SetWarningHandler(func(gotorch.Warning) { runtime.Goexit() })
			gotorch.Ones([]int64{2}).Index(mask)
		},
	}
	for name, fn := range places {
		t.Run(name, func(t *testing.T) {
			base := live()
			for range 3 {
				var deferred, wentOn bool
				finish(t, func() {
					defer func() {
						if v := recover(); v != nil {
							t.Error("it panicked with", v)
						}
						deferred = true
					}()
					fn()
					wentOn = true
				})
				if !deferred || wentOn {
					t.Errorf("deferred functions ran: %v; the goroutine went on: %v", deferred, wentOn)
				}
			}
			if n := gotorch.CallsNow(); n != 0 {
				t.Errorf("%d calls are counted when none is running", n)
			}
			returnsTo(t, base)
		})
	}
	shared.SetGrad(gotorch.Tensor{})
	finish(t, func() { shared.Sum().Backward() })
	expect(t, shared.Grad(), "tensor([1., 1.])")
	eventually(t, "callbacks to be released", func() bool { gotorch.Collect(); return gotorch.Lent() <= lent })
	// No thread has kept a mode or a scope.
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if !gotorch.GradEnabled() || gotorch.InferenceModeEnabled() || gotorch.AutocastEnabled(gotorch.CPU) || gotorch.InScope() {
				t.Error("a thread has kept a mode or a scope")
			}
			time.Sleep(time.Millisecond)
		})
	}
	wait.Wait()
}

// Threads of a process of its own -----------------------------------------------------------------------

// inProcess runs a test that measures its process in a new one.
func inProcess(t *testing.T, fn func()) {
	t.Helper()
	if os.Getenv("GOTORCH_TEST_PROCESS") == t.Name() {
		fn()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "GOTORCH_TEST_PROCESS="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// tasks counts the threads that the process has, those in which OpenMP runs ops as well.
func tasks(t *testing.T) int {
	t.Helper()
	found, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestThreadsOfOneGoroutineStayItsOwn(t *testing.T) {
	inProcess(t, func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		all := gotorch.NumThreads()
		is := func(when string, want int) {
			t.Helper()
			if got := gotorch.NumThreads(); got != want {
				t.Errorf("%s an op has %d threads, not %d", when, got, want)
			}
		}
		elsewhere := func() (n int) {
			done := make(chan bool)
			go func() {
				defer close(done)
				runtime.LockOSThread() // and ends the thread
				n = gotorch.NumThreads()
			}()
			<-done
			return n
		}

		restore := ownThreads(all + 2)
		is("with its own", all+2)
		inner := ownThreads(all + 1)
		is("with its own within that", all+1)
		inner()
		is("then", all+2)
		if n := elsewhere(); n != all {
			t.Errorf("another thread has %d threads for an op, not %d", n, all)
		}
		restore()
		is("at last", all)

		// Others begin and end to compute, and divide the processors.
		const many = 24
		restore = ownThreads(many)
		defer gotorch.BoundCalls(8)()
		a := gotorch.Rand([]int64{300, 300})
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				for range 20 {
					a.MM(a)
				}
			})
		}
		wait.Wait()
		before := tasks(t)
		gotorch.Ones([]int64{1 << 22}).Sin()
		if made := tasks(t) - before; made < many/2 {
			t.Errorf("an op that may use %d threads has made %d", many, made)
		}
		is("while others divide the processors", many)
		restore()
		is("after them", all)

		// A count for all threads is for those without one of their own.
		restore = ownThreads(many)
		gotorch.SetNumThreads(all + 3)
		gotorch.Ones([]int64{4}).Sin()
		is("with its own, after SetNumThreads,", many)
		restore()
		is("after SetNumThreads", all+3)
		if n := elsewhere(); n != all+3 {
			t.Errorf("another thread has %d threads for an op, not %d", n, all+3)
		}
	})
}

// What a process may have besides goroutines that are locked: those of Go, of libtorch, of calls.
const otherThreads = 40

func TestThreadsOfShortModes(t *testing.T) {
	inProcess(t, func() {
		x := gotorch.Ones([]int64{4})
		var wait sync.WaitGroup
		compute := func() {
			x.AddScalar(1)
			runtime.Gosched() // as where it is preempted: others begin
		}
		for i := range 3000 {
			wait.Go(func() {
				if i%2 == 0 {
					gotorch.NoGrad(compute)
				} else {
					gotorch.Scope0(func(*gotorch.ScopeHandle) { compute() })
				}
			})
		}
		wait.Wait()
		if n, most := threadsNow(t), gotorch.LockedLimit()+otherThreads; n > most {
			t.Errorf("there are %d threads, want at most %d", n, most)
		}
	})
}

// TestThreadsOfBlockedScopes has more goroutines wait in scopes than a program may have threads.
func TestThreadsOfBlockedScopes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allows 8,128 goroutines")
	}
	inProcess(t, func() {
		most := 3 * gotorch.LockedLimit()
		gotorch.SetMostLocked(most, 10_000)
		x := gotorch.Ones([]int64{4})
		var wait sync.WaitGroup
		answered := make(chan struct{})
		for range 10_500 {
			wait.Go(func() {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					x.AddScalar(1)
					<-answered
				})
			})
		}
		for gotorch.LockedNow() < 10_500 || threadsNow(t) < most { // the bound gives way up to there
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond)
		if n := threadsNow(t); n > most+otherThreads {
			t.Errorf("there are %d threads, want at most %d", n, most+otherThreads)
		}
		close(answered)
		wait.Wait()
		if n := gotorch.LockedNow(); n != 0 {
			t.Errorf("%d places are taken when nobody is inside", n)
		}
		// Threads go.
		eventually(t, "threads to end", func() bool { return threadsNow(t) <= gotorch.LockedLimit()+otherThreads })
		gotorch.NoGrad(func() { x.AddScalar(1) })
	})
}

// TestThreadsThatAreIdleEnd has a program lock goroutines itself.
func TestThreadsThatAreIdleEnd(t *testing.T) {
	inProcess(t, func() {
		x := gotorch.Ones([]int64{4})
		n := 3 * (gotorch.LockedLimit() + otherThreads)
		for range 2 { // and again, when all had been put in order
			var meeting, wait sync.WaitGroup
			meeting.Add(n)
			for range n {
				wait.Go(func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					x.AddScalar(1)
					meeting.Done()
					meeting.Wait()
				})
			}
			wait.Wait()
			if now := threadsNow(t); now < n {
				t.Errorf("there are %d threads, fewer than the %d goroutines had", now, n)
			}
			gotorch.NoGrad(func() {}) // the next call sees that they are too many
			eventually(t, "threads to end", func() bool { return threadsNow(t) <= gotorch.LockedLimit()+otherThreads })
			eventually(t, "nothing to be left to do", func() bool { return !gotorch.Tidying() })
		}
	})
}

// TestModesThatMeet has goroutines wait for each other inside of a mode, more than may be inside at a time.
func TestModesThatMeet(t *testing.T) {
	inProcess(t, func() {
		n := 3 * gotorch.LockedLimit()
		for range 3 {
			var meeting, wait sync.WaitGroup
			meeting.Add(n)
			for range n {
				wait.Go(func() {
					gotorch.NoGrad(func() {
						gotorch.Scope0(func(*gotorch.ScopeHandle) {
							meeting.Done()
							meeting.Wait()
						})
					})
				})
			}
			wait.Wait()
		}
	})
}

func TestTooManyBlockedScopes(t *testing.T) {
	inProcess(t, func() {
		most := gotorch.LockedLimit() + 10
		gotorch.SetMostLocked(most, 2)
		answered := make(chan struct{})
		errs := make(chan error)
		for range most + 5 {
			go func() {
				errs <- gotorch.Try0(func() { gotorch.NoGrad(func() { <-answered }) })
			}()
		}
		for range 5 {
			err := <-errs
			if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "each needs an OS thread") {
				t.Error(err)
			}
		}
		if n := gotorch.LockedNow(); n != int64(most) {
			t.Errorf("%d are inside, want %d", n, most)
		}
		close(answered)
		for range most {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// ownThreads gives the calling goroutine, which is locked to its thread, so many threads per op, until restore is called.
func ownThreads(n int) (restore func()) {
	before := ctorch.OwnThreads(int64(n))
	return func() { ctorch.OwnThreads(before) }
}
