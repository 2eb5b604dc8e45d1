package profiler_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/finalize"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/profiler"
)

func named(t *profiler.Trace, name string) (found []*profiler.Event) {
	for _, e := range t.Events() {
		if e.Name == name {
			found = append(found, e)
		}
	}
	return found
}

func one(tb testing.TB, t *profiler.Trace, name string) *profiler.Event {
	tb.Helper()
	found := named(t, name)
	if len(found) != 1 {
		tb.Fatalf("there are %d events %q", len(found), name)
	}
	return found[0]
}

func TestSmokeAnEventSaysWhatWasCalled(t *testing.T) {
	a, b := gotorch.Ones([]int64{2, 3}), gotorch.Ones([]int64{3, 4})
	trace := profiler.Profile(func(*profiler.Profiler) {
		a.MM(b)
		a.AddScalar(1)
		gotorch.Cat([]gotorch.Tensor{a, a})
	}, profiler.Options{RecordShapes: true, WithFLOPs: true, WithStack: true, ProfileMemory: true})

	mm := one(t, trace, "aten::mm")
	if mm.Go != "MM" || mm.Kind != profiler.Op || mm.Overload != "" || mm.Parent != nil || mm.Unfinished || mm.Async {
		t.Errorf("%+v", mm)
	}
	if want := [][]int64{{2, 3}, {3, 4}}; !reflect.DeepEqual(mm.Shapes(), want) {
		t.Errorf("shapes are %v", mm.Shapes())
	}
	if mm.Inputs[0].Type != "float" {
		t.Errorf("the dtype is %q", mm.Inputs[0].Type)
	}
	if mm.FLOPs != 2*2*3*4 || mm.Memory != 2*4*4 {
		t.Errorf("%d FLOPs, %d bytes", mm.FLOPs, mm.Memory)
	}
	if len(mm.Stack) == 0 || !strings.HasSuffix(mm.Stack[0].File, "profiler_test.go") ||
		!strings.HasSuffix(mm.Stack[0].Function, "TestSmokeAnEventSaysWhatWasCalled.func1") {
		t.Errorf("the stack is %v", mm.Stack)
	}
	if mm.Start <= 0 || mm.Duration <= 0 || mm.End() > trace.Duration {
		t.Errorf("from %v for %v of %v", mm.Start, mm.Duration, trace.Duration)
	}
	if add := named(trace, "aten::add"); len(add) != 1 || add[0].Go != "AddScalar" {
		t.Errorf("%+v", add)
	}
	cat := one(t, trace, "aten::cat")
	if in := cat.Inputs[0]; in.Type != "TensorList" || len(in.List) != 2 || !slices.Equal(in.List[1].Shape, []int64{2, 3}) {
		t.Errorf("%+v", in)
	}
}

func TestEachGoroutineHasItsLane(t *testing.T) {
	x := gotorch.Ones([]int64{4, 4})
	var inside int64
	trace := profiler.Profile(func(*profiler.Profiler) {
		x.MM(x)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				profiler.Do(context.Background(), pprof.Labels("worker", string(rune('a'+i)), "job", "mul"), func(context.Context) {
					for range 20 {
						x.Mul(x)
						runtime.Gosched()
					}
				})
			})
		}
		wg.Wait()
		inside = one(t, profiler.Profile(func(*profiler.Profiler) { x.Neg() }), "aten::neg").Goroutine
	})
	calls := map[int64]int{}
	for _, e := range named(trace, "aten::mul") {
		calls[e.Goroutine]++
	}
	if len(calls) != 8 {
		t.Fatalf("%d goroutines have called mul", len(calls))
	}
	names := map[string]bool{}
	for g, n := range calls {
		if n != 20 {
			t.Errorf("goroutine %d has called %d times", g, n)
		}
		names[trace.Goroutines()[g]] = true
	}
	if len(names) != 8 || !names["job=mul worker=a"] {
		t.Errorf("names are %v", names)
	}
	if g := one(t, trace, "aten::mm").Goroutine; g != inside || calls[g] != 0 {
		t.Errorf("mm is of goroutine %d, neg of %d", g, inside)
	}
	checkChrome(t, trace)
}

func TestABackwardPassIsLinkedToItsForwardPass(t *testing.T) {
	w := gotorch.Ones([]int64{3, 2}, gotorch.TensorOptions{RequiresGrad: true})
	x := gotorch.Ones([]int64{4, 3})
	w.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.Neg() })
	trace := profiler.Profile(func(*profiler.Profiler) {
		// On several threads: numbers of nodes are a thread's own.
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				y := x.MM(w).Tanh()
				done := make(chan bool)
				go func() { y.Sum().Backward(); close(done) }()
				<-done
			})
		}
		wg.Wait()
	}, profiler.Options{WithStack: true})
	forwards := map[*profiler.Event]bool{}
	for _, e := range named(trace, "MmBackward0") {
		if e.Kind != profiler.Backward || e.Forward == nil || e.Forward.Name != "aten::mm" || e.Go != "Backward" {
			t.Errorf("%+v", e)
			continue
		}
		forwards[e.Forward] = true
		if e.Forward.Goroutine == e.Goroutine {
			t.Error("both passes are of one goroutine")
		}
	}
	if len(forwards) != 3 {
		t.Errorf("the nodes belong to %d calls", len(forwards))
	}
	for _, e := range named(trace, "aten::neg") {
		if e.Go != "Neg" || e.Parent == nil || e.Goroutine != e.Parent.Goroutine {
			t.Errorf("the hook's call is %+v", e)
		}
	}
	checkChrome(t, trace)
}

func TestRangesNestAndEndWhateverEndsThem(t *testing.T) {
	x := gotorch.Ones([]int64{2})
	locked := handles()
	trace := profiler.Profile(func(*profiler.Profiler) {
		y := profiler.RecordFunction1("outer", func() gotorch.Tensor {
			profiler.RecordFunction("inner \"quoted\"\n\x00", func() { x.Neg() })
			return x.Exp()
		})
		y.Log()
		func() {
			defer func() { recover() }()
			profiler.RecordFunction("panics", func() { x.Sin(); panic("so") })
		}()
		done := make(chan bool)
		go func() {
			defer close(done)
			profiler.RecordFunction("exits", func() { x.Cos(); runtime.Goexit() })
		}()
		<-done
		x.Tan()
	})
	parents := map[string]string{"aten::neg": "inner \"quoted\"\n", "aten::exp": "outer", "inner \"quoted\"\n": "outer",
		"aten::log": "", "aten::sin": "panics", "aten::cos": "exits", "aten::tan": ""}
	for name, want := range parents {
		e := one(t, trace, name)
		got := ""
		if e.Parent != nil {
			got = e.Parent.Name
		}
		if got != want {
			t.Errorf("%q is within %q, not %q", name, got, want)
		}
	}
	for _, name := range []string{"outer", "panics", "exits"} {
		if e := one(t, trace, name); e.Kind != profiler.Range || e.Unfinished || e.Goroutine == 0 {
			t.Errorf("%+v", e)
		}
	}
	if now := handles(); now > locked+20 {
		t.Errorf("%d handles, %d before", now, locked)
	}
	checkChrome(t, trace)
}

func handles() int64 { return gotorch.MemoryStats().LiveHandles }

func TestARangeWithoutAProfileMakesNothing(t *testing.T) {
	ran := 0
	fn := func() { ran++ }
	if n := testing.AllocsPerRun(100, func() { profiler.RecordFunction("x", fn) }); n != 0 || ran != 101 {
		t.Errorf("%v allocations, %d runs", n, ran)
	}
}

func TestModulesAreRanges(t *testing.T) {
	model := nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
	x := gotorch.Ones([]int64{1, 3})
	p := profiler.New(profiler.Options{Modules: model})
	testhelp.Must(t, p.Start())
	nn.Call(model, x)
	if cloned := nn.Clone(model); cloned != nil {
		cloned.Forward(x) // the profile knows of the model alone
	}
	testhelp.Must(t, p.Stop())
	var names []string
	for _, e := range p.Trace().Events() {
		if e.Kind == profiler.Range {
			names = append(names, e.Name)
		}
	}
	want := []string{"nn.Module: Sequential", "nn.Module: 0 (Linear)", "nn.Module: 1 (ReLU)", "nn.Module: 2 (Sequential)",
		"nn.Module: 2.0 (Linear)"}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	relu := named(p.Trace(), "aten::relu")[0]
	if relu.Parent == nil || relu.Parent.Name != "nn.Module: 1 (ReLU)" {
		t.Errorf("%+v", relu)
	}
	again := profiler.Profile(func(*profiler.Profiler) { nn.Call(model, x) })
	for _, e := range again.Events() {
		if e.Kind == profiler.Range {
			t.Errorf("%s is still a range", e.Name)
		}
	}
}

func TestAModuleThatPanicsEndsItsRange(t *testing.T) {
	model := nn.Sequential(nn.Linear(3, 4))
	trace := profiler.Profile(func(*profiler.Profiler) {
		if gotorch.Try0(func() { nn.Call(model, gotorch.Ones([]int64{1, 2})) }) == nil {
			t.Error("the shapes fit")
		}
		gotorch.Ones([]int64{1}).Neg()
	}, profiler.Options{Modules: model})
	if e := one(t, trace, "nn.Module: 0 (Linear)"); e.Unfinished {
		t.Error("the range is open")
	}
	if e := one(t, trace, "aten::neg"); e.Parent != nil {
		t.Errorf("neg is within %s", e.Parent.Name)
	}
}

func TestWhatCannotBeDoneIsAnError(t *testing.T) {
	p := profiler.New()
	is := func(err error, kind gotorch.ErrorKind) {
		t.Helper()
		if !errors.Is(err, kind) {
			t.Errorf("%v", err)
		}
	}
	is(p.Stop(), gotorch.RuntimeError)
	is(p.Step(), gotorch.RuntimeError)
	testhelp.Must(t, p.Start())
	is(p.Start(), gotorch.RuntimeError)
	testhelp.Must(t, p.Step()) // without a schedule: nothing
	done := make(chan error)
	go func() { done <- p.Stop() }()
	testhelp.Must(t, <-done)
	is(p.Stop(), gotorch.RuntimeError)
	testhelp.Must(t, p.Start())
	if p.Trace() != nil {
		t.Error("there is a trace of what goes on")
	}
	testhelp.Must(t, p.Stop())
	if p.Trace() == nil {
		t.Error("there is no trace")
	}

	panics := func(kind gotorch.ErrorKind, fn func()) {
		t.Helper()
		is(gotorch.Try0(fn), kind)
	}
	panics(gotorch.ValueError, func() { profiler.New(profiler.Options{MaxEvents: -1}) })
	panics(gotorch.TypeError, func() { profiler.New(profiler.Options{MaxEvents: 1.5}) })
	panics(gotorch.ValueError, func() { profiler.New(profiler.Options{Activities: []profiler.Activity{7}}) })
	panics(gotorch.ValueError, func() { profiler.New(profiler.Options{Activities: []profiler.Activity{profiler.CUDA}}) })
	panics(gotorch.ValueError, func() { profiler.New(profiler.Options{Activities: []profiler.Activity{}}) })
	panics(gotorch.TypeError, func() { profiler.New(profiler.Options{}, profiler.Options{}) })
	panics(gotorch.ValueError, func() { profiler.Schedule(profiler.ScheduleOptions{}) })
	panics(gotorch.ValueError, func() { profiler.Schedule(profiler.ScheduleOptions{Active: 1, Wait: -1}) })
	panics(gotorch.ValueError, func() { p.Trace().KeyAverages(profiler.KeyAveragesOptions{GroupByStackN: -1}) })
	trace := profiler.Profile(func(*profiler.Profiler) { gotorch.Ones([]int64{1}) })
	panics(gotorch.ValueError, func() { trace.KeyAverages().Table(profiler.TableOptions{RowLimit: -2}) })
	panics(gotorch.ValueError, func() { trace.KeyAverages().Table(profiler.TableOptions{SortBy: 99}) })
	panics(gotorch.ValueError, func() { trace.KeyAverages().Table(profiler.TableOptions{TimeUnit: "h"}) })
	panics(gotorch.ValueError, func() { trace.KeyAverages().Table(profiler.TableOptions{MaxNameColumnWidth: 0}) })
	is(trace.WriteStacks(io.Discard, 99), gotorch.ValueError)
	p = profiler.New(profiler.Options{Schedule: func(int) profiler.Action { return 9 }})
	is(p.Start(), gotorch.ValueError)
	if !gotorch.CUDAIsAvailable() {
		p = profiler.New(profiler.Options{Activities: []profiler.Activity{profiler.CPU, profiler.CUDA}})
		is(p.Start(), gotorch.RuntimeError)
	}
	if ctorch.Profiling() {
		t.Error("a profile is still there")
	}
}

func TestSixteenProfilesRecordAtATime(t *testing.T) {
	var all []*profiler.Profiler
	for range 16 {
		p := profiler.New()
		testhelp.Must(t, p.Start())
		all = append(all, p)
	}
	if err := profiler.New().Start(); !errors.Is(err, gotorch.RuntimeError) {
		t.Error(err)
	}
	gotorch.Ones([]int64{1}).Neg()
	for _, p := range all {
		testhelp.Must(t, p.Stop())
		one(t, p.Trace(), "aten::neg")
	}
	trace := profiler.Profile(func(*profiler.Profiler) { gotorch.Ones([]int64{1}).Neg() })
	one(t, trace, "aten::neg")
}

func TestProfileEndsWithItsFunction(t *testing.T) {
	func() {
		defer func() {
			if recover() != "so" {
				t.Error("another panic")
			}
		}()
		profiler.Profile(func(*profiler.Profiler) { panic("so") })
	}()
	done := make(chan bool)
	go func() {
		defer close(done)
		profiler.Profile(func(*profiler.Profiler) { runtime.Goexit() })
	}()
	<-done
	if ctorch.Profiling() {
		t.Error("a profile is still there")
	}
	failed := errors.New("failed")
	if err := func() (err error) {
		defer func() { err = recover().(error) }()
		profiler.Profile(func(*profiler.Profiler) {}, profiler.Options{OnTraceReady: func(*profiler.Trace) error { return failed }})
		return nil
	}(); err != failed {
		t.Error(err)
	}
	// The function may stop the profile itself.
	trace := profiler.Profile(func(p *profiler.Profiler) {
		gotorch.Ones([]int64{1}).Neg()
		testhelp.Must(t, p.Stop())
		gotorch.Ones([]int64{1}).Abs()
	})
	one(t, trace, "aten::neg")
	if len(named(trace, "aten::abs")) != 0 {
		t.Error("abs came after the end")
	}
}

func TestAProfilerThatIsForgottenStopsRecording(t *testing.T) {
	func() { testhelp.Must(t, profiler.New().Start()) }()
	for deadline := time.Now().Add(20 * time.Second); ctorch.Profiling() && time.Now().Before(deadline); {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if ctorch.Profiling() {
		t.Error("it records for nobody")
	}
}

func TestTheScheduleSaysWhichStepsAreRecorded(t *testing.T) {
	x := gotorch.Ones([]int64{1})
	var steps [][]string
	p := profiler.New(profiler.Options{
		Schedule: profiler.Schedule(profiler.ScheduleOptions{SkipFirst: 1, Wait: 1, Warmup: 1, Active: 2, Repeat: 2}),
		OnTraceReady: func(t *profiler.Trace) error {
			var names []string
			for _, e := range t.Events() {
				if e.Kind == profiler.Step {
					names = append(names, e.Name)
					for _, c := range e.Children {
						names = append(names, c.Name)
					}
				}
			}
			steps = append(steps, names)
			return nil
		},
	})
	testhelp.Must(t, p.Start())
	for range 12 {
		x.Neg()
		testhelp.Must(t, p.Step())
	}
	if p.StepNumber() != 12 {
		t.Error(p.StepNumber())
	}
	testhelp.Must(t, p.Stop())
	want := [][]string{{"ProfilerStep#3", "aten::neg", "ProfilerStep#4", "aten::neg"}, {"ProfilerStep#7", "aten::neg", "ProfilerStep#8", "aten::neg"}}
	if !reflect.DeepEqual(steps, want) {
		t.Errorf("%q", steps)
	}
	if rows := p.Trace().KeyAverages().Rows; rows[0].Key != "ProfilerStep*" || rows[0].Count != 2 {
		t.Errorf("%+v", rows[0])
	}
	checkChrome(t, p.Trace())
}

// The actions are those of torch.profiler.schedule(wait=2, warmup=1, active=2, repeat=2, skip_first=3,
// skip_first_wait=1), and of schedule(wait=0, warmup=0, active=1).
func TestAScheduleThatPanicsOrIsWrongChangesNothing(t *testing.T) {
	bad := func() profiler.Action { panic("of the program's") }
	p := profiler.New(profiler.Options{Schedule: func(step int) profiler.Action {
		if step == 2 {
			return bad()
		}
		return profiler.Record
	}})
	testhelp.Must(t, p.Start())
	testhelp.Must(t, p.Step())
	func() {
		defer func() {
			if v := recover(); v != "of the program's" {
				t.Errorf("got %v", v)
			}
		}()
		t.Error(p.Step())
	}()
	bad = func() profiler.Action { return 7 }
	if err := p.Step(); !errors.Is(err, gotorch.ValueError) || p.StepNumber() != 1 {
		t.Errorf("%v, step %d", err, p.StepNumber())
	}
	testhelp.Must(t, p.Stop())
	var steps []string
	for _, e := range p.Trace().Events() {
		steps = append(steps, e.Name)
	}
	if want := []string{"ProfilerStep#0", "ProfilerStep#1"}; !slices.Equal(steps, want) {
		t.Errorf("got %v, want %v", steps, want)
	}
}

func TestScheduleIsTorchs(t *testing.T) {
	n, w, r, s := profiler.None, profiler.Warmup, profiler.Record, profiler.RecordAndSave
	of := profiler.Schedule(profiler.ScheduleOptions{Wait: 2, Warmup: 1, Active: 2, Repeat: 2, SkipFirst: 3, SkipFirstWait: true})
	var got []profiler.Action
	for i := range 16 {
		got = append(got, of(i))
	}
	want := []profiler.Action{n, n, n, w, r, s, n, n, w, r, s, n, n, n, n, n}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	always := profiler.Schedule(profiler.ScheduleOptions{Active: 1})
	if always(0) != s || always(1) != s {
		t.Error(always(0), always(1))
	}
}

// settle frees what earlier tests have dropped, and has the collector free nothing more until the test ends.
func settle(t *testing.T) {
	before := debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for last, same := int64(-1), 0; same < 5; { // it is freed some time after a collection
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
		if now := gotorch.MemoryStats().LiveHandles; now == last {
			same++
		} else {
			last, same = now, 0
		}
	}
}

func TestMemoryIsCountedWhereItIsTaken(t *testing.T) {
	settle(t)
	var kept gotorch.Tensor
	trace := profiler.Profile(func(*profiler.Profiler) {
		kept = gotorch.Ones([]int64{1000})
		gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.Ones([]int64{500000}) })
	}, profiler.Options{ProfileMemory: true})
	allocations := trace.Allocations()
	var sizes []int64
	for _, a := range allocations {
		sizes = append(sizes, a.Bytes)
	}
	if !slices.Equal(sizes, []int64{4000, 2000000, -2000000}) {
		t.Fatalf("%v", sizes)
	}
	if allocations[0].Event.Name != "aten::empty" || allocations[2].Event != nil || allocations[1].Address != allocations[2].Address ||
		allocations[1].Total-allocations[0].Total != 2000000 || allocations[2].Total != allocations[0].Total {
		t.Errorf("%+v", allocations)
	}
	free := one(t, trace, "[memory]")
	if free.Kind != profiler.Memory || free.Memory != -2000000 {
		t.Errorf("%+v", free)
	}
	// What was allocated in one profile, and is freed in another, is known there; what came before is not, nor what it grows by.
	before := gotorch.Ones([]int64{300})
	later := profiler.Profile(func(*profiler.Profiler) {
		gotorch.Scope0(func(s *gotorch.ScopeHandle) {
			kept.Resize_([]int64{2000})
			before.Resize_([]int64{600})
		})
	}, profiler.Options{ProfileMemory: true})
	sizes = nil
	for _, a := range later.Allocations() {
		sizes = append(sizes, a.Bytes)
	}
	if slices.Sort(sizes); !slices.Equal(sizes, []int64{-4000, 8000}) {
		t.Errorf("%v", sizes)
	}
	checkChrome(t, trace)
}

func TestCallerOnlyRecordsOneGoroutine(t *testing.T) {
	x := gotorch.Ones([]int64{2})
	trace := profiler.Profile(func(*profiler.Profiler) {
		x.Neg()
		done := make(chan bool)
		go func() { x.Abs(); close(done) }()
		<-done
		w := gotorch.Ones([]int64{1}, gotorch.TensorOptions{RequiresGrad: true})
		w.Exp().Backward()
	}, profiler.Options{CallerOnly: true, ProfileMemory: true})
	one(t, trace, "aten::neg")
	one(t, trace, "ExpBackward0")
	if len(named(trace, "aten::abs")) != 0 {
		t.Error("the other goroutine is there")
	}
}

func TestATraceIsBounded(t *testing.T) {
	x := gotorch.Ones([]int64{2})
	trace := profiler.Profile(func(*profiler.Profiler) {
		for range 100 {
			x.Neg()
		}
	}, profiler.Options{MaxEvents: 10})
	if n := len(trace.Events()); n != 10 {
		t.Errorf("%d events", n)
	}
	if trace.Dropped < 90 {
		t.Errorf("%d were dropped", trace.Dropped)
	}
	if !strings.Contains(trace.String(), "Not recorded, beyond MaxEvents") {
		t.Error(trace)
	}
	if nothing := profiler.Profile(func(*profiler.Profiler) { x.Neg() }, profiler.Options{MaxEvents: 0}); len(nothing.Events()) != 0 || nothing.String() != "" {
		t.Errorf("%v", nothing)
	}
}

// Goroutines compute, nest ranges, end, and are recorded by profiles that start and stop in others.
func TestProfilesComeAndGoWhileGoroutinesCompute(t *testing.T) {
	before := runtime.NumGoroutine()
	var stop atomic.Bool
	var workers, profiles sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			w := gotorch.Ones([]int64{8, 8}, gotorch.TensorOptions{RequiresGrad: true})
			for !stop.Load() {
				done := make(chan bool)
				go func() {
					defer close(done)
					profiler.RecordFunction("work", func() {
						gotorch.Scope0(func(*gotorch.ScopeHandle) { w.MM(w).Sum().Backward() })
						profiler.RecordFunction("exit", runtime.Goexit)
					})
				}()
				<-done
			}
		})
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for range 3 {
		profiles.Go(func() {
			for i := range rounds {
				p := profiler.New(profiler.Options{RecordShapes: i%2 == 0, ProfileMemory: i%3 == 0, WithStack: i%4 == 0, WithFLOPs: true})
				if err := p.Start(); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				done := make(chan bool)
				go func() {
					defer close(done)
					if err := p.Stop(); err != nil {
						t.Error(err)
					}
				}()
				<-done
				for _, e := range p.Trace().Events() {
					if e.Duration < 0 || e.Start < -time.Second || e.Parent != nil && e.End() > e.Parent.End() {
						t.Errorf("%+v", e)
					}
				}
				if i%6 == 0 {
					checkChrome(t, p.Trace())
				}
			}
		})
	}
	profiles.Wait()
	stop.Store(true)
	workers.Wait()
	if ctorch.Profiling() {
		t.Error("a profile is still there")
	}
	testhelp.NoMoreGoroutines(t, before+3)
}

func TestAnEventOutlivesItsProfile(t *testing.T) {
	// A call that runs when the profile stops is in it as unfinished, and the range that is open too.
	x := gotorch.Ones([]int64{2})
	p := profiler.New()
	testhelp.Must(t, p.Start())
	profiler.RecordFunction("around", func() {
		x.Neg()
		testhelp.Must(t, p.Stop())
		x.Neg()
	})
	around := one(t, p.Trace(), "around")
	if !around.Unfinished || around.End() > p.Trace().Duration {
		t.Errorf("%+v", around)
	}
	one(t, p.Trace(), "aten::neg")
	checkChrome(t, p.Trace())
	// The next profile is not disturbed by what is left of the first.
	q := profiler.New()
	profiler.RecordFunction("no profile", func() {
		testhelp.Must(t, q.Start())
		x.Neg()
	})
	testhelp.Must(t, q.Stop())
	if e := one(t, q.Trace(), "aten::neg"); e.Parent != nil {
		t.Errorf("within %s", e.Parent.Name)
	}
}

func TestAHookMayStartAndStop(t *testing.T) {
	w := gotorch.Ones([]int64{2}, gotorch.TensorOptions{RequiresGrad: true})
	var p *profiler.Profiler
	w.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
		if p != nil {
			testhelp.Must(t, p.Stop())
		}
		p = profiler.New()
		testhelp.Must(t, p.Start())
		return g.Neg()
	})
	w.Exp().Sum().Backward()
	w.Exp().Sum().Backward()
	testhelp.Must(t, p.Stop())
	if len(named(p.Trace(), "aten::neg")) != 1 {
		t.Error(p.Trace())
	}
}

func TestNothingIsLeftOfAProfile(t *testing.T) {
	x := gotorch.Ones([]int64{4, 4})
	use := func() {
		trace := profiler.Profile(func(*profiler.Profiler) {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				for range 50 {
					profiler.RecordFunction("r", func() { x.MM(x) })
				}
			})
		}, profiler.Options{RecordShapes: true, ProfileMemory: true, WithStack: true})
		trace.KeyAverages()
		testhelp.Must(t, trace.WriteChromeTrace(io.Discard))
	}
	use()
	finalize.Dead()
	finalize.Dead()
	handlesBefore, threads := handles(), testhelp.Descriptors(t)
	for range 20 {
		use()
	}
	finalize.Dead()
	if n := handles(); n > handlesBefore {
		t.Errorf("%d handles, %d before", n, handlesBefore)
	}
	if n := testhelp.Descriptors(t); n != threads {
		t.Errorf("%d files are open, %d before", n, threads)
	}
}

func TestTheTableHasTheMostExpensiveFirst(t *testing.T) {
	x := gotorch.Ones([]int64{64, 64})
	trace := profiler.Profile(func(*profiler.Profiler) {
		for range 3 {
			x.MM(x)
		}
		x.Neg()
		x.Reshape([]int64{4096}).Neg()
	}, profiler.Options{RecordShapes: true, ProfileMemory: true, WithFLOPs: true, WithStack: true})
	rows := trace.KeyAverages().Sorted(profiler.FLOPs)
	if rows[0].Key != "aten::mm" || rows[0].Count != 3 || rows[0].Go != "MM" || rows[0].FLOPs != 3*2*64*64*64 ||
		rows[0].Memory != 3*64*64*4 {
		t.Errorf("%+v", rows[0])
	}
	text := trace.KeyAverages().Table(profiler.TableOptions{SortBy: profiler.FLOPs, RowLimit: 1, TimeUnit: "ms", Header: "What it took"})
	for _, want := range []string{"What it took\n", "Self CPU %", "# of Calls", "Total MFLOPs", "1.573", "48.00 KB", "aten::mm", "MM"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "aten::neg") {
		t.Errorf("there is more than a row:\n%s", text)
	}
	by := trace.KeyAverages(profiler.KeyAveragesOptions{GroupByInputShape: true})
	n := 0
	for _, r := range by.Rows {
		if r.Key == "aten::neg" {
			n++
			if r.Count != 1 || len(r.Shapes) != 1 {
				t.Errorf("%+v", r)
			}
		}
	}
	if n != 2 || !strings.Contains(by.String(), "[[64, 64], [64, 64]]") {
		t.Errorf("%d rows of neg:\n%s", n, by)
	}
	stacks := trace.KeyAverages(profiler.KeyAveragesOptions{GroupByStackN: 1})
	if !strings.Contains(stacks.Table(), "profiler_test.go") {
		t.Errorf("%s", stacks.Table())
	}
	var out bytes.Buffer
	testhelp.Must(t, trace.WriteStacks(&out, profiler.StackCalls))
	if !strings.Contains(out.String(), "aten::mm 3\n") {
		t.Errorf("%s", out.String())
	}
}

func TestATraceGoesIntoAFileWholeOrNotAtAll(t *testing.T) {
	trace := profiler.Profile(func(*profiler.Profiler) { gotorch.Ones([]int64{2}).Neg() })
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.json.gz")
	testhelp.Must(t, trace.ExportChromeTrace(plain))
	testhelp.Must(t, trace.ExportChromeTrace(packed))
	f, err := os.Open(packed)
	testhelp.Must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	testhelp.Must(t, err)
	unpacked, err := io.ReadAll(z)
	testhelp.Must(t, err)
	text, err := os.ReadFile(plain)
	testhelp.Must(t, err)
	if !bytes.Equal(text, unpacked) || !json.Valid(text) {
		t.Error("the two differ, or are no JSON")
	}
	full := errors.New("the disk is full")
	for _, after := range []int{0, 10, len(text) / 2} {
		if err := trace.WriteChromeTrace(&short{after, full}); err != full {
			t.Errorf("%v", err)
		}
	}
	if err := trace.ExportChromeTrace(filepath.Join(dir, "none", "a.json")); err == nil {
		t.Error("there is no such folder")
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		if err := trace.ExportChromeTrace("/dev/full"); err == nil {
			t.Error("the device is full")
		}
	}
	entries, err := os.ReadDir(dir)
	testhelp.Must(t, err)
	if len(entries) != 2 {
		t.Errorf("%v", entries)
	}
	if err := profiler.TensorBoardTraceHandler(filepath.Join(dir, "tb"), "../w", true)(trace); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("got %v", err)
	}
	handler := profiler.TensorBoardTraceHandler(filepath.Join(dir, "tb"), "w", true)
	testhelp.Must(t, handler(trace))
	if found, _ := filepath.Glob(filepath.Join(dir, "tb", "w.*.pt.trace.json.gz")); len(found) != 1 {
		t.Error(found)
	}
}

// short takes so many bytes.
type short struct {
	left int
	err  error
}

func (s *short) Write(p []byte) (int, error) {
	if len(p) > s.left {
		return 0, s.err
	}
	s.left -= len(p)
	return len(p), nil
}

// checkChrome holds a trace to what its readers need: JSON, slices that nest in their lanes, lanes with names, arrows
// with two ends.
func checkChrome(tb testing.TB, trace *profiler.Trace) {
	tb.Helper()
	var out bytes.Buffer
	testhelp.Must(tb, trace.WriteChromeTrace(&out))
	var file struct {
		TraceEvents []struct {
			Ph, Name string
			PID, TID any
			TS, Dur  float64
			ID       int
		}
	}
	if err := json.Unmarshal(out.Bytes(), &file); err != nil {
		tb.Fatal(err)
	}
	type lane struct{ pid, tid any }
	open := map[lane][]float64{}
	named := map[lane]bool{}
	arrows := map[int]string{}
	slices := 0
	for _, e := range file.TraceEvents {
		l := lane{e.PID, e.TID}
		switch e.Ph {
		case "M":
			named[l] = named[l] || e.Name == "thread_name"
		case "s", "f":
			arrows[e.ID] += e.Ph
		case "X":
			slices++
			ends := open[l]
			for len(ends) > 0 && e.TS >= ends[len(ends)-1]-1e-6 {
				ends = ends[:len(ends)-1]
			}
			if len(ends) > 0 && e.TS+e.Dur > ends[len(ends)-1]+1.5e-3 {
				tb.Errorf("%s ends %v µs after what is around it", e.Name, e.TS+e.Dur-ends[len(ends)-1])
			}
			open[l] = append(ends, e.TS+e.Dur)
			fallthrough
		case "i":
			if !named[l] {
				tb.Errorf("the lane of %s has no name", e.Name)
			}
		default:
			tb.Errorf("there is a phase %q", e.Ph)
		}
	}
	for id, ends := range arrows {
		if ends != "sf" {
			tb.Errorf("the arrow %d has ends %q", id, ends)
		}
	}
	if slices == 0 && len(trace.Events()) > 0 {
		for _, e := range trace.Events() {
			if e.Kind != profiler.Memory {
				tb.Error("there are no slices")
				break
			}
		}
	}
}
