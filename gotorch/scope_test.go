package gotorch_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

func ExampleScope() {
	x := gotorch.FromSlice([]float32{-1, 2}, 1, 2)
	w := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	y := gotorch.Scope(func(s *gotorch.ScopeHandle) gotorch.Tensor {
		h := x.MM(w).ReLU() // freed at the end of the scope
		return h.MM(w)
	})
	fmt.Println(y)
	// Output: tensor([[23., 34.]])
}

func TestScopeFreesAllButTheResult(t *testing.T) {
	a := gotorch.Ones([]int64{2, 2})
	before := live()
	var inside []gotorch.Tensor
	y := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		for range 100 {
			inside = append(inside, a.Add(a))
		}
		return inside[50].MulScalar(3)
	})
	if n := gotorch.MemoryStats().LiveHandles - before; n != 1 {
		t.Errorf("%d handles are left, want 1", n)
	}
	expect(t, y, "tensor([[6., 6.],\n        [6., 6.]])")
	for _, x := range inside {
		if x.Defined() {
			t.Fatal("a tensor outlived its scope")
		}
	}
	mustFail(t, gotorch.ValueError, "or after the Scope it was made in", func() { a.Add(inside[0]) })
	inside[0].Close()
}

func TestScopeFreesBigTensorsAndGraphs(t *testing.T) {
	w := leaf(1, 2, 3)
	gotorch.Collect()
	before := gotorch.MemoryStats()
	var big, graph gotorch.Tensor
	kept := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		big = gotorch.Zeros([]int64{1 << 20})
		graph = w.Mul(w).Sum()
		return graph.MulScalar(2)
	})
	after := gotorch.MemoryStats()
	if n := after.LiveHandles - before.LiveHandles; n != 1 {
		t.Errorf("%d handles are left, want 1", n)
	}
	if after.NativeBytes-before.NativeBytes > 1<<20 {
		t.Error("4 MiB are still there after the scope")
	}
	if big.Defined() || graph.Defined() {
		t.Error("a tensor outlived its scope")
	}
	kept.Backward() // the graph lives through the result
	expect(t, w.Grad(), "tensor([ 4.,  8., 12.])")
}

func TestScopeResults(t *testing.T) {
	type inner struct{ x, y gotorch.Tensor }
	type result struct {
		list  []gotorch.Tensor
		array [2]gotorch.Tensor
		table map[string]gotorch.Tensor
		deep  *inner
		any   any
		name  string
	}
	one := gotorch.FromScalar(float32(1))
	before := live()
	var lost gotorch.Tensor
	r := gotorch.Scope(func(*gotorch.ScopeHandle) result {
		made := func() gotorch.Tensor { return one.Add(one) }
		lost = made()
		return result{
			list: []gotorch.Tensor{made(), made()}, array: [2]gotorch.Tensor{made(), made()},
			table: map[string]gotorch.Tensor{"a": made()}, deep: &inner{made(), made()}, any: made(), name: "r",
		}
	})
	for i, x := range []gotorch.Tensor{r.list[0], r.list[1], r.array[0], r.array[1], r.table["a"], r.deep.x, r.deep.y,
		r.any.(gotorch.Tensor)} {
		if !x.Defined() || gotorch.Item[int](x) != 2 {
			t.Errorf("result %d was freed", i)
		}
	}
	if lost.Defined() {
		t.Error("a tensor that is no result outlived its scope")
	}
	if n := gotorch.Scope(func(*gotorch.ScopeHandle) int { one.Add(one); return 7 }); n != 7 {
		t.Errorf("result is %d, want 7", n)
	}
	if x := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return gotorch.Tensor{} }); x.T != nil {
		t.Error("none became a tensor")
	}
	if err := gotorch.Scope(func(*gotorch.ScopeHandle) error { return nil }); err != nil {
		t.Error(err)
	}
	r = result{}
	returnsTo(t, before)
	runtime.KeepAlive(one)
}

func TestScopeKeep(t *testing.T) {
	a := gotorch.Ones([]int64{2})
	var small, big, twice gotorch.Tensor
	var late *gotorch.ScopeHandle
	gotorch.Scope0(func(s *gotorch.ScopeHandle) {
		late = s
		small, big, twice = a.Add(a), gotorch.Zeros([]int64{5000}), a.Neg()
		s.Keep(small, big, twice, a, gotorch.Tensor{})
		s.Keep(twice)
	})
	expect(t, small, "tensor([2., 2.])")
	expect(t, twice, "tensor([-1., -1.])")
	if big.Numel() != 5000 {
		t.Error("the big tensor is gone")
	}
	mustFail(t, gotorch.ValueError, "the scope has ended", func() { late.Keep(a) })
	before := live()
	for _, x := range []*gotorch.Tensor{&small, &big, &twice} {
		runtime.KeepAlive(x.T)
		*x = gotorch.Tensor{}
	}
	returnsTo(t, before-3)
	expect(t, a, "tensor([1., 1.])")
}

func TestScopesNest(t *testing.T) {
	a := gotorch.Ones([]int64{2})
	before := live()
	var innerSmall, innerBig, lost gotorch.Tensor
	outer := gotorch.Scope(func(outer *gotorch.ScopeHandle) gotorch.Tensor {
		first := a.Add(a)
		innerSmall = gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
			lost = a.Neg()
			return a.MulScalar(5)
		})
		innerBig = gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return gotorch.Zeros([]int64{5000}) })
		if lost.Defined() || !innerSmall.Defined() || !first.Defined() {
			t.Error("the inner scope freed the wrong tensors")
		}
		// From the inner scope through the outer one to the collector.
		return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return innerSmall.Add(first) })
	})
	expect(t, outer, "tensor([7., 7.])")
	if innerSmall.Defined() || innerBig.Defined() {
		t.Error("what an inner scope returned outlived the outer one")
	}
	if n := gotorch.MemoryStats().LiveHandles - before; n != 1 {
		t.Errorf("%d handles are left, want 1", n)
	}
	outer = gotorch.Tensor{}
	returnsTo(t, before)
	runtime.KeepAlive(a)
}

func TestScopeKeepsManyOfMany(t *testing.T) {
	before := live()
	kept := gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
		var kept []gotorch.Tensor
		for i := range 500 {
			gotorch.Zeros([]int64{2000})
			gotorch.FromScalar(0)
			kept = append(kept, gotorch.Full([]int64{2000}, i), gotorch.FromScalar(i))
		}
		return kept
	})
	if n := gotorch.MemoryStats().LiveHandles - before; n != 1000 {
		t.Errorf("%d handles are left, want 1000", n)
	}
	runtime.GC()
	for i := range 500 {
		if gotorch.Item[int](kept[2*i].Select(0, 1999)) != i || gotorch.Item[int](kept[2*i+1]) != i {
			t.Fatalf("tensors %d have changed", i)
		}
	}
	kept = nil
	returnsTo(t, before)
}

func TestScopeFreesWhenItsFunctionPanics(t *testing.T) {
	a := gotorch.Ones([]int64{2, 3})
	before := live()
	var x gotorch.Tensor
	err := gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			x = a.Add(a)
			a.MM(a)
		})
	})
	if err == nil || x.Defined() {
		t.Errorf("error %v, tensor is there: %v", err, x.Defined())
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			x = a.Add(a)
			runtime.Goexit()
		})
	}()
	<-done
	if x.Defined() {
		t.Error("a tensor outlived a scope that its goroutine left")
	}
	if n := gotorch.MemoryStats().LiveHandles - before; n != 0 {
		t.Errorf("%d handles are left", n)
	}
	// The thread is out of the scope again.
	y := a.Add(a)
	runtime.GC()
	if !y.Defined() {
		t.Error("a tensor made after the scope was freed")
	}
}

func TestGoroutinesInsideAScopeAreOutsideIt(t *testing.T) {
	a := gotorch.Ones([]int64{2})
	results := make([]gotorch.Tensor, 50)
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		var wait sync.WaitGroup
		for i := range results {
			wait.Go(func() {
				gotorch.Scope0(func(s *gotorch.ScopeHandle) {
					a.Neg()
					results[i] = a.MulScalar(i)
					s.Keep(results[i])
				})
				if i%2 == 0 {
					results[i] = a.MulScalar(i)
				}
			})
		}
		wait.Wait()
	})
	for i, r := range results {
		if got := gotorch.Item[int](r.Select(0, 0)); got != i {
			t.Errorf("result %d is %d", i, got)
		}
	}
}

func TestScopesInManyGoroutines(t *testing.T) {
	a := gotorch.Ones([]int64{2})
	before := live()
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 500 {
				y := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
					runtime.Gosched()
					x := a.MulScalar(g)
					runtime.Gosched()
					return x.AddScalar(i)
				})
				if got := gotorch.Item[int](y.Select(0, 0)); got != g+i {
					t.Errorf("got %d, want %d", got, g+i)
					return
				}
			}
		})
	}
	wait.Wait()
	returnsTo(t, before)
	runtime.KeepAlive(a)
}
