//go:build devices

// Package devices has the tests of what computes beside the processor. They run on each device of one
// table: the stand-in of this folder, which tests/test_devices.py builds, and CUDA where there is a GPU.
//
//	GOTORCH_TEST_DEVICE=standin=/path/libstandin.so go test -tags devices ./tests/devices
//	GOTORCH_TEST_DEVICE=cuda go test -tags devices ./tests/devices
package devices

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/optim"
)

// kind is a device under test.
type kind struct {
	device gotorch.Device // of index 0
	// What the stand-in cannot do.
	async, autocast bool
}

var (
	under kind
	on    gotorch.TensorOptions
	// What a generator on the device gives, seeded before the device's library was loaded.
	early []float32
)

func TestMain(m *testing.M) {
	name, library, _ := strings.Cut(os.Getenv("GOTORCH_TEST_DEVICE"), "=")
	// Late loading: the engine has run, and a seed was set, before libtorch knows the device.
	x := gotorch.FromSlice([]float32{1, 2}).RequiresGrad_()
	x.Sum().Backward()
	gotorch.ManualSeed(7)
	switch name {
	case "standin":
		if gotorch.DeviceCount(gotorch.DeviceTypePrivateUse1) != 0 {
			panic("the stand-in is loaded already")
		}
		if err := gotorch.LoadLibrary(library); err != nil {
			panic(err)
		}
		under = kind{device: gotorch.NewDevice(gotorch.DeviceTypePrivateUse1, 0)}
		standin("limit", 0, 32<<20)
	case "cuda":
		under = kind{device: gotorch.CUDA(0), async: true, autocast: true}
		if !gotorch.CUDAIsAvailable() {
			panic("there is no GPU")
		}
	default:
		panic("GOTORCH_TEST_DEVICE is neither standin=PATH nor cuda")
	}
	on = gotorch.TensorOptions{Device: under.device}
	early = values(gotorch.Randn([]int64{4}, on))
	os.Exit(m.Run())
}

// standin calls an operator of the stand-in.
func standin(what string, args ...any) []any {
	op, err := gotorch.FindOperator("standin::"+what, "")
	if err != nil {
		panic(err)
	}
	return op.Call(args...)
}

func values(t gotorch.Tensor) []float32 {
	return gotorch.Data[float32](t.Detach().To(gotorch.CPU).Contiguous())
}

func onDevice(v ...float32) gotorch.Tensor { return gotorch.FromSlice(v).To(under.device) }

func same(t *testing.T, what string, got gotorch.Tensor, want ...float32) {
	t.Helper()
	if v := values(got); !slices.Equal(v, want) {
		t.Errorf("%s is %v, not %v", what, v, want)
	}
}

// settle frees everything dead.
func settle() {
	finalizers := []metrics.Sample{{Name: "/gc/finalizers/queued:finalizers"}, {Name: "/gc/finalizers/executed:finalizers"}}
	for range 4 {
		runtime.GC()
		for metrics.Read(finalizers); finalizers[1].Value.Uint64() < finalizers[0].Value.Uint64(); metrics.Read(finalizers) {
			time.Sleep(20 * time.Microsecond)
		}
		gotorch.ReleaseCachedMemory()
	}
}

func kindOf(err error) (kind gotorch.ErrorKind) {
	var e *gotorch.Error
	if errors.As(err, &e) {
		kind = e.Kind
	}
	return kind
}

// A backend of another project goes by the name that it gives itself.
func TestNames(t *testing.T) {
	name := under.device.String()
	if d, err := gotorch.ParseDevice(name); err != nil || d != under.device {
		t.Errorf("%s is read as %v, %v", name, d, err)
	}
	if under.device.Type() != gotorch.DeviceTypePrivateUse1 {
		return
	}
	if name != "standin:0" {
		t.Errorf("the stand-in is called %s", name)
	}
	if d, err := gotorch.ParseDevice("privateuseone:1"); err != nil || d.String() != "standin:1" {
		t.Errorf("privateuseone:1 is %v, %v", d, err)
	}
}

func TestPlacement(t *testing.T) {
	x := onDevice(1, -2, 3, -4)
	if x.Device() != under.device {
		t.Fatalf("it is on %v", x.Device())
	}
	y := x.ReLU().Add(x).Reshape([]int64{2, 2})
	if y.Device() != under.device {
		t.Errorf("the result is on %v", y.Device())
	}
	same(t, "the result", y, 2, -2, 6, -4)
	same(t, "a view", y.Index(gotorch.All, gotorch.At(0)), 2, 6)
	same(t, "a product", y.MM(y), 4+-12, -4+8, 12+-24, -12+16)
	if got := gotorch.Item[float32](y.Sum()); got != 2 {
		t.Errorf("Item is %v", got)
	}
	if text := fmt.Sprint(x); !strings.Contains(text, under.device.Type().String()) {
		t.Errorf("printed without its device: %s", text)
	}
	err := gotorch.Try0(func() { x.Add(gotorch.FromSlice([]float32{1, 2, 3, 4})) })
	if kindOf(err) != gotorch.RuntimeError && !under.async {
		// The stand-in does on the CPU what it is given; CUDA refuses.
		same(t, "a sum with a CPU tensor", x.Add(gotorch.FromSlice([]float32{1, 2, 3, 4})), 2, 0, 6, 0)
	}
}

func TestAPartOfTheMachineIsFound(t *testing.T) {
	if d, ok := gotorch.Accelerator(); !ok || d.Type() != under.device.Type() {
		t.Errorf("the accelerator is %v, %v", d, ok)
	}
	if n := gotorch.DeviceCount(under.device.Type()); n < 1 {
		t.Errorf("there are %d devices", n)
	}
	if n := gotorch.DeviceCount(gotorch.DeviceTypeCPU); n != 1 {
		t.Errorf("there are %d CPUs", n)
	}
	err := gotorch.Try0(func() { gotorch.Synchronize(gotorch.NewDevice(under.device.Type(), 100)) })
	if kindOf(err) != gotorch.RuntimeError || !strings.Contains(err.Error(), "there is no device") {
		t.Errorf("device 100: %v", err)
	}
	gotorch.Synchronize(under.device)
	gotorch.Synchronize(gotorch.CPU)
}

func TestCurrentDevice(t *testing.T) {
	kind := under.device.Type()
	if d := gotorch.CurrentDevice(kind); d != under.device {
		t.Errorf("the current device is %v", d)
	}
	if gotorch.DeviceCount(kind) < 2 {
		t.Skip("there is one device")
	}
	second := gotorch.NewDevice(kind, 1)
	gotorch.OnDevice(second, func() {
		x := gotorch.Ones([]int64{2}, gotorch.TensorOptions{Device: gotorch.NewDevice(kind, -1)})
		if x.Device() != second {
			t.Errorf("on the second device tensors are made on %v", x.Device())
		}
		if d := x.Add(x).Device(); d != second {
			t.Errorf("and computed on %v", d)
		}
	})
	err := gotorch.Try0(func() {
		gotorch.OnDevice(second, func() { gotorch.FromSlice([]float32{1}).Reshape([]int64{7}) })
	})
	if d := gotorch.CurrentDevice(kind); d != under.device || err == nil {
		t.Errorf("after a panic (%v) the current device is %v", err, d)
	}
	same(t, "a copy between devices", onDevice(1, 2).To(second).To(under.device), 1, 2)
}

func TestLateLoading(t *testing.T) {
	gotorch.ManualSeed(7)
	if now := values(gotorch.Randn([]int64{4}, on)); under.async && !slices.Equal(now, early) {
		t.Errorf("a seed that was set before the device was loaded gives %v, after %v", early, now)
	}
	w := onDevice(1, 2, 3).RequiresGrad_()
	w.Mul(w).Sum().Backward()
	same(t, "the gradient", w.Grad(), 2, 4, 6)
}

func TestHooksOnEngineThreads(t *testing.T) {
	w := onDevice(1, 2).RequiresGrad_()
	y := w.MulScalar(3)
	calls := 0
	y.RegisterHook(func(grad gotorch.Tensor) gotorch.Tensor {
		calls++
		if grad.Device() != under.device {
			t.Errorf("a hook's gradient is on %v", grad.Device())
		}
		return grad.MulScalar(10)
	})
	y.Sum().Backward()
	same(t, "the gradient", w.Grad(), 30, 30)
	if calls != 1 {
		t.Errorf("the hook was called %d times", calls)
	}
	z := w.MulScalar(2)
	z.RegisterHook(func(gotorch.Tensor) gotorch.Tensor { panic("out of a hook") })
	err := gotorch.Try0(func() { z.Sum().Backward() })
	var panicked *gotorch.CallbackPanic
	if !errors.As(err, &panicked) {
		t.Errorf("a panic in a hook came out as %v", err)
	}
}

func TestStreams(t *testing.T) {
	first := gotorch.DefaultStream(under.device)
	if s := gotorch.CurrentStream(under.device); s != first {
		t.Errorf("the current stream is %v, the default one %v", s, first)
	}
	s := gotorch.NewStream(under.device)
	if s == first || s.Device() != under.device {
		t.Fatalf("a new stream is %v of %v", s, s.Device())
	}
	x := onDevice(1, 2, 3)
	var y gotorch.Tensor
	s.WaitStream(first)
	gotorch.OnStream(s, func() {
		if c := gotorch.CurrentStream(under.device); c != s {
			t.Errorf("inside, the current stream is %v", c)
		}
		y = x.Add(x)
		x.RecordStream(s)
	})
	if c := gotorch.CurrentStream(under.device); c != first {
		t.Errorf("afterwards the current stream is %v", c)
	}
	first.WaitStream(s)
	same(t, "what was computed on another stream", y.Add(y), 4, 8, 12)
	s.Synchronize()
	if !s.Query() {
		t.Error("a stream has work that was waited for")
	}
	err := gotorch.Try0(func() {
		gotorch.OnStream(s, func() { gotorch.FromSlice([]float32{1}).Reshape([]int64{7}) })
	})
	if c := gotorch.CurrentStream(under.device); c != first || err == nil {
		t.Errorf("after a panic (%v) the current stream is %v", err, c)
	}
}

// The stand-in counts what its streams are given.
func TestStreamsGetTheirWork(t *testing.T) {
	if under.async {
		t.Skip("asks the stand-in")
	}
	ask := func(what string, s gotorch.Stream) int64 {
		return standin(what, s.DeviceIndex, s.ID)[0].(int64)
	}
	s, first := gotorch.NewStream(under.device), gotorch.DefaultStream(under.device)
	x := onDevice(1, 2)
	before, beforeFirst, waits := ask("work", s), ask("work", first), ask("waits", s)
	s.WaitStream(first)
	gotorch.OnStream(s, func() { x.Exp() })
	if n := ask("work", s); n <= before {
		t.Errorf("the stream was given %d ops before and %d after", before, n)
	}
	if n := ask("work", first); n != beforeFirst {
		t.Errorf("the default stream was given %d ops instead", n-beforeFirst)
	}
	if n := ask("waits", s); n != waits+1 {
		t.Errorf("the stream waits for %d events", n-waits)
	}
}

func TestEvents(t *testing.T) {
	s := gotorch.CurrentStream(under.device)
	start := gotorch.NewEvent(under.device, gotorch.EventOptions{EnableTiming: true})
	end := gotorch.NewEvent(under.device, gotorch.EventOptions{EnableTiming: true})
	if !start.Query() {
		t.Error("an event that was never recorded has not happened")
	}
	start.Record(s)
	onDevice(1, 2).Exp()
	end.Record(s)
	end.Synchronize()
	if !end.Query() {
		t.Error("an event that was waited for has not happened")
	}
	if ms := start.ElapsedTime(end); !(ms >= 0) {
		t.Errorf("%v ms passed", ms)
	}
	plain := s.RecordEvent()
	if err := gotorch.Try0(func() { plain.ElapsedTime(end) }); err == nil {
		t.Error("an event without timing tells the time")
	}
	var none *gotorch.Event
	if err := gotorch.Try0(none.Synchronize); kindOf(err) != gotorch.TypeError {
		t.Errorf("no event: %v", err)
	}
}

func TestPinnedMemory(t *testing.T) {
	x := gotorch.FromSlice([]float32{1, 2, 3})
	if x.IsPinned() {
		t.Error("plain memory is pinned")
	}
	pinned := x.PinMemory()
	if !pinned.IsPinned() || !gotorch.Zeros([]int64{2}, gotorch.TensorOptions{PinMemory: true}).IsPinned() {
		t.Error("pinned memory is not pinned")
	}
	there := pinned.To(gotorch.ToOptions{Device: under.device, NonBlocking: true})
	gotorch.Synchronize(under.device)
	same(t, "what was copied from it", there, 1, 2, 3)
}

func TestMemoryStatistics(t *testing.T) {
	settle()
	gotorch.ResetPeakDeviceMemory(under.device)
	before := gotorch.DeviceMemoryStats(under.device)
	const n = 1 << 18
	x := gotorch.Zeros([]int64{n}, on)
	during := gotorch.DeviceMemoryStats(under.device)
	if grown := during.Allocated.Current - before.Allocated.Current; grown < 4*n || grown > 8*n {
		t.Errorf("%d bytes are allocated for %d", grown, 4*n)
	}
	if during.Blocks <= before.Blocks {
		t.Errorf("there are %d blocks, before %d", during.Blocks, before.Blocks)
	}
	x.Close()
	gotorch.Synchronize(under.device)
	after := gotorch.DeviceMemoryStats(under.device)
	if after.Allocated.Current != before.Allocated.Current || after.Allocated.Peak < during.Allocated.Current {
		t.Errorf("after Close %+v are allocated, before %+v", after.Allocated, before.Allocated)
	}
	gotorch.ResetPeakDeviceMemory(under.device)
	if m := gotorch.DeviceMemoryStats(under.device).Allocated; m.Peak != m.Current {
		t.Errorf("the peak is %d after it was reset, and %d are in use", m.Peak, m.Current)
	}
	free, total := gotorch.DeviceMemoryInfo(under.device)
	if free <= 0 || free > total {
		t.Errorf("%d of %d bytes are free", free, total)
	}
	gotorch.EmptyDeviceCache(under.device.Type())
	if err := gotorch.Try0(func() { gotorch.DeviceMemoryStats(gotorch.CPU) }); kindOf(err) != gotorch.NotImplementedError {
		t.Errorf("the CPU: %v", err)
	}
}

// A quarter of the device's memory, in float32.
func quarter() []int64 {
	settle()
	gotorch.EmptyDeviceCache(under.device.Type())
	free, _ := gotorch.DeviceMemoryInfo(under.device)
	return []int64{free / 16}
}

func TestDeadTensorsMakeRoom(t *testing.T) {
	size := quarter()
	x := gotorch.Zeros(size, on)
	for range 20 {
		x.AddScalar(1) // dies at once
	}
	same(t, "the last element", x.AddScalar(1).Index(gotorch.SliceFrom(-1)), 1)
	x.Close()
	settle()
}

func TestOutOfMemory(t *testing.T) {
	size := quarter()
	base := gotorch.MemoryStats().LiveHandles
	err := gotorch.Try0(func() { gotorch.Zeros([]int64{size[0] * 8}, on) })
	if kindOf(err) != gotorch.OutOfMemoryError {
		t.Fatalf("twice the memory: %v", err)
	}
	// What is alive stays, and the next that fits is made.
	x, y := gotorch.Zeros(size, on), gotorch.Zeros(size, on)
	if err := gotorch.Try0(func() { gotorch.Zeros([]int64{size[0] * 3}, on) }); kindOf(err) != gotorch.OutOfMemoryError {
		t.Errorf("three quarters beside two: %v", err)
	}
	gotorch.Zeros(size, on).Close()
	x.Close()
	y.Close()
	settle()
	if n := gotorch.MemoryStats().LiveHandles; n > base {
		t.Errorf("%d handles are left", n-base)
	}
}

// The collector knows of the device's memory, so the dead do not fill it: here a collection starts for
// each quarter of it, and what earlier tests left may put off the first.
func TestCollectionsByDeviceMemory(t *testing.T) {
	size := quarter()
	size[0] /= 8
	gotorch.ResetPeakDeviceMemory(under.device)
	before := gotorch.DeviceMemoryStats(under.device)
	x := gotorch.Zeros(size, on)
	for range 200 {
		x.AddScalar(1)
	}
	after := gotorch.DeviceMemoryStats(under.device)
	if after.OOMs != before.OOMs || after.Retries != before.Retries {
		t.Errorf("memory ran out %d times", after.OOMs-before.OOMs)
	}
	if grown := after.Allocated.Peak - before.Allocated.Current; grown > size[0]*4*20 {
		t.Errorf("%d bytes were in use at once, for tensors of %d", grown, size[0]*4)
	}
	x.Close()
}

func TestGoroutinesWithStreams(t *testing.T) {
	x := onDevice(1, 2, 3, 4)
	gotorch.Synchronize(under.device)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			s := gotorch.NewStream(under.device)
			gotorch.OnStream(s, func() {
				w := x.Clone().RequiresGrad_()
				for range 20 {
					w.Mul(w).Sum().Backward()
				}
				s.Synchronize()
				if v := values(w.Grad()); !slices.Equal(v, []float32{40, 80, 120, 160}) {
					t.Errorf("goroutine %d has %v", i, v)
				}
			})
		})
	}
	wait.Wait()
}

func TestGraphs(t *testing.T) {
	in := onDevice(1, 2, 3)
	in.MulScalar(2).AddScalar(1) // what is initialised at its first use
	var out gotorch.Tensor
	var graph *gotorch.DeviceGraph
	err := gotorch.Try0(func() {
		graph = gotorch.CaptureGraph(under.device, func() { out = in.MulScalar(2).AddScalar(1) })
	})
	if kindOf(err) == gotorch.NotImplementedError && under.async {
		return // as docs/devices.md says of older torches
	}
	must(t, err)
	for i := range 3 {
		v := float32(i)
		in.Copy_(gotorch.FromSlice([]float32{v, v + 1, v + 2}))
		graph.Replay()
		same(t, "what a graph computes", out, 2*v+1, 2*v+3, 2*v+5)
	}
	err = gotorch.Try0(func() {
		gotorch.CaptureGraph(under.device, func() { gotorch.FromSlice([]float32{1}).Reshape([]int64{7}) })
	})
	if err == nil {
		t.Error("a panic while a graph is captured is lost")
	}
	same(t, "what is computed after that", in.AddScalar(1), 3, 4, 5)
}

func TestAutocast(t *testing.T) {
	x := onDevice(1, 2, 3, 4).Reshape([]int64{2, 2})
	if gotorch.AutocastEnabled(under.device) {
		t.Error("autocast is on before it is entered")
	}
	gotorch.Autocast(under.device, gotorch.Float16, func() {
		if !gotorch.AutocastEnabled(under.device) || gotorch.AutocastDType(under.device) != gotorch.Float16 {
			t.Errorf("inside, autocast is %v, in %v", gotorch.AutocastEnabled(under.device), gotorch.AutocastDType(under.device))
		}
	})
	if !under.autocast {
		return // no op of the stand-in asks
	}
	gotorch.Autocast(under.device, gotorch.Float16, func() {
		if d := x.MM(x).DType(); d != gotorch.Float16 {
			t.Errorf("a product under autocast is of %v", d)
		}
		if d := x.Sum().DType(); d != gotorch.Float32 {
			t.Errorf("a sum under autocast is of %v", d)
		}
	})
}

func TestGradScaler(t *testing.T) {
	w := onDevice(1, 2).RequiresGrad_()
	opt := optim.SGD([]gotorch.Tensor{w}, optim.SGDOptions{LR: 0.5})
	scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 8, GrowthInterval: 2})
	step := func(factor float64) bool {
		opt.ZeroGrad()
		scaler.Scale(w.MulScalar(factor).Sum()).Backward()
		stepped := scaler.Step(opt)
		scaler.Update()
		return stepped
	}
	if !step(2) {
		t.Error("a step with finite gradients is left out")
	}
	same(t, "the parameter", w, 0, 1)
	if step(1e38 * 1e3) {
		t.Error("a step with infinite gradients is taken")
	}
	same(t, "the parameter", w, 0, 1)
	if s := scaler.GetScale(); s != 4 {
		t.Errorf("the scale is %v after infinite gradients", s)
	}
	step(2)
	step(2)
	if s := scaler.GetScale(); s != 8 {
		t.Errorf("the scale is %v after two steps", s)
	}
}
