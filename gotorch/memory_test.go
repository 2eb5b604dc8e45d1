package gotorch_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"gotorch.dev/gotorch"
)

// live returns the number of handles once everything dead is freed.
func live() int64 {
	gotorch.Collect()
	return gotorch.MemoryStats().LiveHandles
}

// returnsTo waits until no more handles live than there were at first. Slabs that still have room
// are kept by the pool for two collections, so it takes a few.
func returnsTo(t *testing.T, base int64) {
	t.Helper()
	eventually(t, "handles to be freed", func() bool { return live() <= base })
}

// resident returns the resident memory of this process in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("needs /proc/self/statm: ", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// Row D8: every result has a finaliser.
func TestSmokeHandlesReturnToBaseAfterCollection(t *testing.T) {
	a := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	base, words := live(), gotorch.Words()
	for range 10_000 {
		gotorch.MM(a, a).ReLU()
	}
	big := gotorch.Ones([]int64{1000, 100})
	w := leaf(1, 2, 3)
	for range 100 {
		big.Add(big)
		w.MulScalar(2).Sum()
	}
	big, w = gotorch.Tensor{}, gotorch.Tensor{}
	returnsTo(t, base)
	// What decides when to collect counts them too, in whole slabs.
	eventually(t, "words to be counted as freed", func() bool {
		gotorch.Collect()
		return gotorch.Words() <= words+64
	})
	runtime.KeepAlive(a)
}

func TestTensorsInUseSurviveCollection(t *testing.T) {
	var kept []gotorch.Tensor
	for i := range 1000 {
		for range 10 {
			gotorch.FromScalar(float32(i)) // neighbours that die
		}
		kept = append(kept, gotorch.FromScalar(float32(i)))
	}
	gotorch.Collect()
	for i, k := range kept {
		if got := gotorch.Item[int](k); got != i {
			t.Fatalf("tensor %d is %d after a collection", i, got)
		}
	}
}

func TestCloseFreesAtOnce(t *testing.T) {
	gotorch.Collect()
	base := gotorch.MemoryStats().NativeBytes
	big := gotorch.Zeros([]int64{1 << 20})
	if grown := gotorch.MemoryStats().NativeBytes - base; grown < 4<<20 {
		t.Errorf("4 MiB are counted as %d bytes", grown)
	}
	copied := big
	big.Close()
	if left := gotorch.MemoryStats().NativeBytes - base; left > 1<<20 {
		t.Errorf("%d bytes are left after Close", left)
	}
	big.Close()
	copied.Close()
	gotorch.Tensor{}.Close()
	if big.Defined() || copied.Defined() {
		t.Error("a closed tensor is defined")
	}
}

func TestUseAfterClose(t *testing.T) {
	a, b := gotorch.Ones([]int64{2}), gotorch.Ones([]int64{2})
	b.Close()
	e := mustFail(t, gotorch.ValueError, "argument 'other' was used after Close", func() { a.Add(b) })
	if e.Op != "add.Tensor" {
		t.Errorf("op is %q", e.Op)
	}
	mustFail(t, gotorch.ValueError, "argument 'self' was used after Close", func() { b.Shape() })
	mustFail(t, gotorch.ValueError, "used after Close", func() { gotorch.Cat([]gotorch.Tensor{a, b}) })
}

func TestCloseIsSafeWithAutograd(t *testing.T) {
	w := leaf(3)
	square := w.Mul(w)
	loss := square.Sum()
	square.Close()
	loss.Backward()
	expect(t, w.Grad(), "tensor([6.])")
}

func TestConcurrentCloseFreesOnce(t *testing.T) {
	for range 200 {
		x := gotorch.Ones([]int64{4})
		before := gotorch.MemoryStats()
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(x.Close)
		}
		wait.Wait()
		// Another thread may have taken it over, and be freeing it.
		for deadline := time.Now().Add(time.Minute); gotorch.MemoryStats().LiveHandles >= before.LiveHandles; {
			if time.Now().After(deadline) {
				t.Fatal("no handle was freed")
			}
			runtime.Gosched()
		}
		runtime.KeepAlive(x)
	}
}

func TestCollectorUnderPressure(t *testing.T) {
	// GOGC=1 and a goroutine that collects all the time, while eight compute.
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	var stop atomic.Bool
	var collector, workers sync.WaitGroup
	collector.Go(func() {
		for !stop.Load() {
			runtime.GC()
		}
	})
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	for g := range 8 {
		workers.Go(func() {
			x := gotorch.FromSlice([]float64{float64(g), 1, 0, 2}, 2, 2)
			for i := range rounds {
				y := x.MM(x).Add(x).Transpose(0, 1).Contiguous()
				want := []float64{float64(g*g + g), 0, float64(g) + 3, 6}
				for k, v := range gotorch.ToSlice[float64](y.View([]int64{4})) {
					if v != want[k] {
						t.Errorf("goroutine %d, round %d: element %d is %v, want %v", g, i, k, v, want[k])
						return
					}
				}
				if i%50 == 0 {
					w := gotorch.FromScalar(3.0).RequiresGrad_()
					w.Mul(w).Backward()
					if got := gotorch.Item[float64](w.Grad()); got != 6 {
						t.Errorf("gradient is %v, want 6", got)
						return
					}
				}
			}
		})
	}
	workers.Wait()
	stop.Store(true)
	collector.Wait()
}

// TestLoopThatNeverFrees makes 20 GB of tensors that only the collector frees.
func TestLoopThatNeverFrees(t *testing.T) {
	if testing.Short() {
		t.Skip("measures resident memory")
	}
	gotorch.Zeros([]int64{1 << 18}).Close()
	gotorch.Collect()
	start, most := resident(t), int64(0)
	for i := range 20_000 {
		gotorch.Zeros([]int64{1 << 18})
		if i%100 == 0 {
			most = max(most, resident(t)-start)
		}
	}
	t.Logf("at most %d MB above the start", most>>20)
	if most > 200<<20 {
		t.Errorf("resident memory grew by %d MB, at most 200 are allowed", most>>20)
	}
}

// The collector looks at each object with a finaliser by itself: with one for each handle, a million
// handles stop it for a second. They share slabs of 32, with a finaliser for each slab.
func TestMillionHandlesDoNotStopTheCollector(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory")
	}
	kept := make([]gotorch.Tensor, 1_000_000)
	one := gotorch.FromScalar(float32(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range kept {
		kept[i] = one.Alias()
	}
	runtime.ReadMemStats(&after)
	if objects := after.Mallocs - before.Mallocs; objects > uint64(len(kept)/20) {
		t.Errorf("a million handles are %d Go objects, where slabs of them are %d", objects, len(kept)/32)
	}
	runtime.KeepAlive(kept)
	kept = nil
	gotorch.Collect()
}

func TestMemoryStats(t *testing.T) {
	gotorch.Collect()
	before := gotorch.MemoryStats()
	x := gotorch.Zeros([]int64{1000})
	view := x.View([]int64{10, 100})
	after := gotorch.MemoryStats()
	if n := after.LiveHandles - before.LiveHandles; n != 2 {
		t.Errorf("%d handles are counted, want 2", n)
	}
	if n := after.NativeBytes - before.NativeBytes; n < 4000 || n > 4600 {
		t.Errorf("4000 bytes and a view of them are counted as %d", n)
	}
	if after.MadeHandles-before.MadeHandles != 2 || after.AllocatedBytes <= before.AllocatedBytes {
		t.Errorf("totals went from %+v to %+v", before, after)
	}
	runtime.KeepAlive(x)
	runtime.KeepAlive(view)
}

func TestReleaseCachedMemory(t *testing.T) {
	gotorch.Collect() // what other tests left is freed now, and not after the release
	gotorch.Zeros([]int64{4 << 20}).Close()
	before := gotorch.MemoryStats().CachedBytes
	if before < 16<<20 {
		t.Errorf("%d bytes are cached after 16 MiB were freed", before)
	}
	gotorch.ReleaseCachedMemory()
	// Other threads keep a little of their own.
	if after := gotorch.MemoryStats().CachedBytes; before-after < 15<<20 {
		t.Errorf("of %d cached bytes %d are left after their release", before, after)
	}
}

func TestRecordOrigins(t *testing.T) {
	gotorch.RecordOrigins(true)
	defer gotorch.RecordOrigins(false)
	kept := []gotorch.Tensor{gotorch.Zeros([]int64{256}), gotorch.Zeros([]int64{256})}
	gotorch.Zeros([]int64{10_000}).Close()
	gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.Zeros([]int64{10_000}) })
	for range 3 {
		kept = append(kept, gotorch.Zeros([]int64{512}))
	}
	origins := gotorch.MemoryStats().Origins
	if len(origins) != 2 {
		t.Fatalf("want two lines of this test, got %+v", origins)
	}
	for i, want := range []gotorch.Origin{{Tensors: 3, Bytes: 3 * 2048}, {Tensors: 2, Bytes: 2 * 1024}} {
		o := origins[i]
		if o.Tensors != want.Tensors || o.Bytes != want.Bytes || !strings.Contains(o.Site, "memory_test.go:") ||
			!strings.HasSuffix(o.Site, "TestRecordOrigins") {
			t.Errorf("origin %d is %+v", i, o)
		}
	}
	clear(kept)
	eventually(t, "origins to be forgotten", func() bool {
		gotorch.Collect()
		return len(gotorch.MemoryStats().Origins) == 0
	})
}

func TestSetTensorFinalizer(t *testing.T) {
	base := live()
	x := gotorch.Ones([]int64{2})
	p := new(unsafe.Pointer)
	*p, *x.T = *x.T, nil
	gotorch.SetTensorFinalizer(p)
	y := gotorch.Tensor{T: p}
	runtime.GC()
	expect(t, y, "tensor([1., 1.])")
	p, y = nil, gotorch.Tensor{}
	returnsTo(t, base)
}

func TestTrainingLoopKeepsMemoryFlat(t *testing.T) {
	steps := 10_000
	if testing.Short() {
		steps = 300
	}
	x := gotorch.Ones([]int64{4, 3})
	w := gotorch.Zeros([]int64{3, 1}, gotorch.TensorOptions{RequiresGrad: true})
	step := func() {
		loss := x.MM(w).SubScalar(1).Pow(2).Mean()
		loss.Backward()
		gotorch.NoGrad(func() {
			w.Sub_(w.Grad(), gotorch.SubOptions{Alpha: 0.01})
			w.Grad().Zero_()
		})
	}
	for range 100 {
		step()
	}
	base := live()
	before := gotorch.MemoryStats().NativeBytes
	for range steps {
		step()
	}
	returnsTo(t, base)
	if grown := gotorch.MemoryStats().NativeBytes - before; grown > 4096 {
		t.Errorf("native memory grew by %d bytes", grown)
	}
	runtime.KeepAlive(x)
}

func TestOpsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	ops := map[string]func(){
		"add":       func() { gotorch.Add(a, a) },
		"mm":        func() { a.MM(a) },
		"relu":      func() { a.ReLU() },
		"transpose": func() { a.Transpose(0, 1) },
		"sum":       func() { a.SumDim([]int64{1}, gotorch.SumDimOptions{KeepDim: true}) },
		"mul":       func() { a.MulScalar(2) },
		"zeros":     func() { gotorch.Zeros([]int64{2, 2}) },
		"in place":  func() { a.MulScalar_(1.0) },
		"close":     func() { a.Add(a).Close() },
		"shape":     func() { a.Dim() },
	}
	for name, op := range ops {
		// A slab is one allocation for 32 tensors.
		if n := testing.AllocsPerRun(10_000, op); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			if n := testing.AllocsPerRun(10_000, op); n > 0 {
				t.Errorf("%s in a scope: %v allocations", name, n)
			}
		})
	}
	scope := func() {
		r := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return a.Add(a).ReLU() })
		r.Close()
	}
	if n := testing.AllocsPerRun(10_000, scope); n > 0 {
		t.Errorf("a scope: %v allocations", n)
	}
}

func TestHandlesOfOtherKindsAreFreed(t *testing.T) {
	weight := gotorch.QuantizePerTensor(gotorch.Ones([]int64{4, 4}), 0.1, 0, gotorch.QInt8)
	learned := leaf(1, 2)
	kinds := map[string]func() any{
		"generator":         func() any { return gotorch.NewGenerator(gotorch.CPU) },
		"default generator": func() any { return gotorch.DefaultGenerator(gotorch.CPU) },
		"storage":           func() any { return weight.Storage() },
		"hook": func() any {
			h := learned.RegisterHook(func(gotorch.Tensor) gotorch.Tensor { return gotorch.Tensor{} })
			h.Remove()
			return h
		},
		"post hook": func() any {
			h := learned.RegisterPostAccumulateGradHook(func(gotorch.Tensor) {})
			h.Remove()
			return h
		},
		"object": func() any {
			packed, err := gotorch.Try(func() any { return gotorch.Call("quantized::linear_prepack", "", weight, nil)[0] })
			if err != nil {
				t.Log(err) // this processor has no kernel for it
				return gotorch.NewGenerator(gotorch.CPU)
			}
			return packed
		},
	}
	for what, make1 := range kinds {
		gotorch.Collect()
		base := gotorch.Owned()
		var kept []any
		for i := range 1000 {
			h := make1()
			if i%100 == 0 {
				kept = append(kept, h) // neighbours that live on
			}
		}
		if n := gotorch.Owned() - base; n < int64(len(kept)) {
			t.Errorf("%s: %d handles are counted, and %d are in use", what, n, len(kept))
		}
		eventually(t, what+"s to be freed", func() bool {
			gotorch.Collect()
			return gotorch.Owned()-base <= int64(len(kept))
		})
		runtime.KeepAlive(kept)
	}
}
