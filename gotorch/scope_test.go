package gotorch_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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

func TestScopesLeaveOthersTensorsAlone(t *testing.T) {
	// What a scope returns or keeps and did not make is in use by other goroutines all the time.
	x, w, b := gotorch.Ones([]int64{1, 2}), gotorch.Ones([]int64{2, 2}), gotorch.Full([]int64{2}, 3.0)
	var stop atomic.Bool
	var scopes, users sync.WaitGroup
	for range 4 {
		scopes.Go(func() {
			for !stop.Load() {
				gotorch.Scope(func(s *gotorch.ScopeHandle) []gotorch.Tensor {
					s.Keep(w)
					return []gotorch.Tensor{w, w.Add(w), b}
				})
			}
		})
	}
	for range 4 {
		users.Go(func() {
			for range 3000 {
				y := gotorch.Linear(x, w, gotorch.LinearOptions{Bias: b})
				if got := gotorch.ToSlice[float32](y.View([]int64{2})); !slices.Equal(got, []float32{5, 5}) {
					t.Errorf("got %v, want [5 5]", got)
					return
				}
			}
		})
	}
	users.Wait()
	stop.Store(true)
	scopes.Wait()
}

func TestScopeResultsInCycles(t *testing.T) {
	type node struct {
		x    gotorch.Tensor
		next *node
		any  any
	}
	made := func(i int) gotorch.Tensor { return gotorch.FromScalar(i) }
	slice := gotorch.Scope(func(*gotorch.ScopeHandle) []any {
		s := []any{made(1), nil}
		s[1] = s
		return s
	})
	table := gotorch.Scope(func(*gotorch.ScopeHandle) map[string]any {
		m := map[string]any{"x": made(2)}
		m["m"] = m
		return m
	})
	itself := gotorch.Scope(func(*gotorch.ScopeHandle) *any {
		var a any
		a = []any{&a, made(3)}
		return &a
	})
	ring := gotorch.Scope(func(*gotorch.ScopeHandle) *node {
		n := &node{x: made(4)}
		n.next = &node{x: made(5), next: n}
		n.any = n.next
		return n
	})
	// A struct and its first field have the same address.
	first := gotorch.Scope(func(*gotorch.ScopeHandle) []any {
		p := &struct{ in struct{ x, y gotorch.Tensor } }{}
		p.in.x, p.in.y = made(6), made(7)
		return []any{p, &p.in.x}
	})
	long := gotorch.Scope(func(*gotorch.ScopeHandle) *node {
		n := &node{x: made(8)}
		for range 300_000 {
			n = &node{next: n}
		}
		return n
	})
	last := long
	for last.next != nil {
		last = last.next
	}
	in := &first[0].(*struct{ in struct{ x, y gotorch.Tensor } }).in
	for i, x := range []gotorch.Tensor{
		slice[0].(gotorch.Tensor), table["x"].(gotorch.Tensor), (*itself).([]any)[1].(gotorch.Tensor), ring.x, ring.next.x,
		in.x, in.y, last.x,
	} {
		if !x.Defined() || gotorch.Item[int](x) != i+1 {
			t.Errorf("result %d is not there", i+1)
		}
	}
}

type server struct {
	mutex sync.Mutex
	cache map[string]gotorch.Tensor
}

func TestScopeDoesNotLookIntoWhatGoroutinesShare(t *testing.T) {
	type result struct {
		y      gotorch.Tensor
		server *server
		notify *struct {
			done chan bool
			x    gotorch.Tensor
		}
		count *struct {
			n atomic.Int64
			x gotorch.Tensor
		}
	}
	srv := &server{cache: map[string]gotorch.Tensor{}}
	var stop atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for i := 0; !stop.Load(); i++ {
			srv.mutex.Lock()
			srv.cache[fmt.Sprint(i%1000)] = gotorch.Tensor{}
			srv.mutex.Unlock()
		}
	})
	var r *result
	for i := range 300 {
		r = gotorch.Scope(func(*gotorch.ScopeHandle) *result {
			r := &result{y: gotorch.FromScalar(i), server: srv}
			r.notify = &struct {
				done chan bool
				x    gotorch.Tensor
			}{x: gotorch.FromScalar(1)}
			r.count = &struct {
				n atomic.Int64
				x gotorch.Tensor
			}{x: gotorch.FromScalar(1)}
			srv.mutex.Lock()
			srv.cache["made here"] = gotorch.FromScalar(1)
			srv.mutex.Unlock()
			return r
		})
		if gotorch.Item[int](r.y) != i {
			t.Fatal("the tensor beside the server was freed")
		}
	}
	stop.Store(true)
	other.Wait()
	for what, x := range map[string]gotorch.Tensor{
		"a map behind a mutex": srv.cache["made here"], "a struct with a channel": r.notify.x, "a struct with an atomic": r.count.x,
	} {
		_, err := gotorch.Try(func() gotorch.Tensor { return x.Neg() })
		if err == nil {
			t.Errorf("a tensor in %s outlived its scope", what)
		}
		// Where none would do, a freed tensor is still an error.
		mustFail(t, gotorch.ValueError, "or after the Scope it was made in", func() {
			gotorch.Linear(gotorch.Ones([]int64{1, 1}), gotorch.Ones([]int64{1, 1}), gotorch.LinearOptions{Bias: x})
		})
	}
}

func TestScopeHandlesEndWithTheirScope(t *testing.T) {
	var stale *gotorch.ScopeHandle
	gotorch.Scope0(func(s *gotorch.ScopeHandle) { stale = s })
	for range 200 {
		var x gotorch.Tensor
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			x = gotorch.FromScalar(1)
			mustFail(t, gotorch.ValueError, "the scope has ended", func() { stale.Keep(x) })
		})
		if x.Defined() {
			t.Fatal("a handle of one scope kept a tensor of another")
		}
	}
	// Also where the other scope belongs to another goroutine, and begins at any time.
	handles := make(chan *gotorch.ScopeHandle)
	var wait sync.WaitGroup
	wait.Go(func() {
		for s := range handles {
			x := gotorch.FromScalar(1)
			for gotorch.Try0(func() { s.Keep(x) }) == nil {
			}
		}
	})
	for range 500 {
		gotorch.Scope0(func(s *gotorch.ScopeHandle) { handles <- s })
	}
	close(handles)
	wait.Wait()
}

func TestScopesOfGoroutinesShareSlabs(t *testing.T) {
	// A slab that an inner scope has left is taken by another goroutine's scope, while the outer one
	// still has a word in it. Both hand it to the collector, at the same time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	before := live()
	for range 200 {
		left, entered := make(chan bool), make(chan bool)
		var wait sync.WaitGroup
		wait.Go(func() {
			gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
				x := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return gotorch.FromScalar(1) })
				close(left)
				<-entered
				return x
			})
		})
		wait.Go(func() {
			<-left
			gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
				x := gotorch.FromScalar(1)
				close(entered)
				return x
			})
		})
		wait.Wait()
	}
	returnsTo(t, before)
}
