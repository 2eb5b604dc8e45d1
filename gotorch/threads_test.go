package gotorch_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
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
	defer gotorch.BoundCalls()()
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
	case <-time.After(time.Minute):
		t.Fatal("deadlock")
	}
	if n := gotorch.CallsNow(); n != 0 {
		t.Errorf("%d calls are counted when none is running", n)
	}
}
