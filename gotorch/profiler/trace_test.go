package profiler

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestWhatIsWithinIsNotLongerThanWhatIsAround(t *testing.T) {
	trace := newTrace(&profileData{Start: 1000, Stop: 1100, Events: []profileEvent{
		{Name: "a", Start: 1000, End: 1010, Parent: -1, Sequence: -1},
		{Name: "b", Start: 1002, End: -1, Parent: 0, Sequence: -1},
		{Name: "c", Start: 1003, End: -1, Parent: 1, Sequence: -1},
	}}, nil, nil, Options{})
	for i, want := range []time.Duration{10, 8, 7} {
		if e := trace.events[i]; e.Duration != want || e.SelfDuration() < 0 {
			t.Errorf("%s: %d, itself %d, want %d", e.Name, e.Duration, e.SelfDuration(), want)
		}
	}
}

func TestAStepIsAroundWhatItsGoroutineHasCalledInIt(t *testing.T) {
	event := func(name string, goroutine, start, end int64) profileEvent {
		return profileEvent{Name: name, Goroutine: goroutine, Start: 1000 + start, End: 1000 + end, Parent: -1, Sequence: -1}
	}
	step := func(number int, goroutine, start, end, ended int64) stepRange {
		return stepRange{number, stepStart{100 + start, goroutine}, 100 + end, ended}
	}
	trace := newTrace(&profileData{Start: 1000, Stop: 1100, Clock: 100, Events: []profileEvent{
		event("before", 1, 1, 2), event("first", 1, 5, 10), event("over the end", 1, 18, 22), event("at the end", 1, 20, 30),
		event("elsewhere", 2, 6, 7), event("in one that ends elsewhere", 1, 31, 32), event("last", 2, 41, 50),
	}}, nil, []stepRange{step(0, 1, -20, -10, 1), step(1, 1, 5, 20, 1), step(2, 1, 20, 30, 1), step(3, 1, 30, 40, 2), step(4, 2, 40, 50, 2)}, Options{})
	want := map[string]string{"before": "", "first": "ProfilerStep#1", "over the end": "", "at the end": "ProfilerStep#2", "elsewhere": "",
		"in one that ends elsewhere": "", "last": "ProfilerStep#4"}
	steps := 0
	for _, e := range trace.events {
		if e.Kind == Step {
			steps++
			continue
		}
		got := ""
		if e.Parent != nil {
			got = e.Parent.Name
		}
		if got != want[e.Name] {
			t.Errorf("%s is in %q, want %q", e.Name, got, want[e.Name])
		}
	}
	if steps != 4 {
		t.Errorf("there are %d steps", steps)
	}
}

func TestWhatAGPUDidIsNoTimeOfTheProcessor(t *testing.T) {
	trace := newTrace(&profileData{Start: 1000, Stop: 9000, Events: []profileEvent{
		{Name: "aten::mm", Start: 1000, End: 3000, Parent: -1, Sequence: -1},
	}, Activities: []profileActivity{
		{Name: "gemm", Start: 2000, End: 5000, DeviceIndex: 1, Resource: 7},
		{Name: "gemm", Start: 5000, End: 6000},
		{Name: "aten::mm", Start: 6000, End: 6500}, // a name of the processor's
	}}, nil, nil, Options{})
	for i, want := range []Event{
		{Name: "aten::mm", Kind: Op, Duration: 2000},
		{Name: "gemm", Kind: Device, Start: 1000, Duration: 3000},
		{Name: "gemm", Kind: Device, Start: 4000, Duration: 1000},
		{Name: "aten::mm", Kind: Device, Start: 5000, Duration: 500},
	} {
		e := trace.events[i]
		if e.Name != want.Name || e.Kind != want.Kind || e.Start != want.Start || e.Duration != want.Duration || e.Parent != nil {
			t.Errorf("event %d is %+v", i, *e)
		}
		if e.Kind == Device && e.SelfDuration() != 0 {
			t.Errorf("%s has %v of itself", e.Name, e.SelfDuration())
		}
	}
	a := trace.KeyAverages()
	if len(a.Rows) != 3 {
		t.Fatalf("rows %+v", a.Rows)
	}
	for i, want := range []Average{
		{Key: "aten::mm", Kind: Op, Count: 1, CPUTime: 2000, SelfCPUTime: 2000},
		{Key: "gemm", Kind: Device, Count: 2, SelfDeviceTime: 4000},
		{Key: "aten::mm", Kind: Device, Count: 1, SelfDeviceTime: 500},
	} {
		r := a.Rows[i]
		if r.Key != want.Key || r.Kind != want.Kind || r.Count != want.Count || r.CPUTime != want.CPUTime || r.SelfCPUTime != want.SelfCPUTime || r.SelfDeviceTime != want.SelfDeviceTime {
			t.Errorf("row %d is %+v", i, r)
		}
	}
	if total := a.Total(); total.SelfDeviceTime != 4500 || total.SelfCPUTime != 2000 || total.Count != 4 {
		t.Errorf("in total %+v", total)
	}
	if by := a.Sorted(SelfDeviceTime); by[0].Key != "gemm" || by[1].Kind != Device {
		t.Errorf("sorted: %+v", by)
	}
	table := a.Table(TableOptions{SortBy: SelfDeviceTime})
	for _, part := range []string{"Self CUDA", "Self CUDA %", "88.89%", "4.000us", "Self CUDA time total: 4.500us", "Self CPU time total: 2.000us"} {
		if !strings.Contains(table, part) {
			t.Errorf("the table lacks %q:\n%s", part, table)
		}
	}
}

// As torch.profiler: what ends on another thread has no memory of its own in the table, and nothing is within it.
func TestMemoryOfWhatIsAsynchronous(t *testing.T) {
	trace := newTrace(&profileData{Start: 1000, Stop: 9000, Events: []profileEvent{
		{Name: "around", Start: 1000, End: 8000, Parent: -1, Sequence: -1, Memory: 1, Thread: 1, EndThread: 1},
		{Name: "async", Start: 2000, End: 5000, Parent: 0, Sequence: -1, Memory: 64, Thread: 1, EndThread: 2},
		{Name: "within", Start: 3000, End: 4000, Parent: 1, Sequence: -1, Memory: 256, Thread: 1, EndThread: 1},
		{Name: "child", Start: 6000, End: 7000, Parent: 0, Sequence: -1, Memory: 1024, Thread: 1, EndThread: 1},
	}}, nil, nil, Options{ProfileMemory: true})
	for i, want := range []struct {
		name                             string
		async                            bool
		memory, self, inTable, selfTable int64
		time, selfTime                   time.Duration
	}{
		{"around", false, 1025, 1, 1025, 1, 7000, 6000},
		{"async", true, 64, 64, 64, 0, 3000, 0},
		{"within", false, 256, 256, 256, 256, 1000, 1000},
		{"child", false, 1024, 1024, 1024, 1024, 1000, 1000},
	} {
		e, r := trace.events[i], trace.KeyAverages().Rows[i]
		if e.Name != want.name || e.Async != want.async || e.Memory != want.memory || e.SelfMemory != want.self || e.Duration != want.time || e.SelfDuration() != want.selfTime {
			t.Errorf("%s: %+v", want.name, *e)
		}
		if r.Key != want.name || r.Memory != want.inTable || r.SelfMemory != want.selfTable || r.CPUTime != want.time || r.SelfCPUTime != want.selfTime {
			t.Errorf("%s in the table: %+v", want.name, r)
		}
	}
	for i, parent := range []string{"", "", "", "around"} {
		got := ""
		if p := trace.events[i].Parent; p != nil {
			got = p.Name
		}
		if got != parent {
			t.Errorf("%s is in %q, not %q", trace.events[i].Name, got, parent)
		}
	}
}

func TestMemoryIsThatOfAllThatIsWithin(t *testing.T) {
	event := func(name string, start, end int64, parent int, memory int64) profileEvent {
		return profileEvent{Name: name, Start: 1000 + start, End: 1000 + end, Parent: parent, Sequence: -1, Memory: memory}
	}
	trace := newTrace(&profileData{Start: 1000, Stop: 2000, Events: []profileEvent{
		event("a", 0, 100, -1, 1), event("b", 10, 90, 0, 2), event("c", 20, 80, 1, 4), // of each other
		event("around", 200, 300, -1, 8), event("aten::is_leaf", 210, 290, 3, 16), event("below", 220, 280, 4, 32), // of which one is left out
		event("same", 400, 500, -1, 64), event("same", 410, 490, 6, 128), event("below", 420, 480, 7, 256), // of which two are one
	}, Memory: []profileMemory{{Time: 1215, Bytes: 16, Parent: 4}, {Time: 1415, Bytes: 128, Parent: 7}, {Time: 1600, Bytes: 512, Parent: -1}}}, nil, nil, Options{ProfileMemory: true})
	want := []struct {
		name, parent string
		memory, self int64
	}{
		{"a", "", 7, 1}, {"b", "a", 6, 2}, {"c", "b", 4, 4},
		{"around", "", 56, 24}, {"below", "around", 32, 32},
		{"same", "", 448, 192}, {"below", "same", 256, 256}, {"[memory]", "", 512, 512},
	}
	if len(trace.events) != len(want) {
		t.Fatalf("there are %d events, not %d", len(trace.events), len(want))
	}
	for i, w := range want {
		e, parent := trace.events[i], ""
		if e.Parent != nil {
			parent = e.Parent.Name
		}
		if e.Name != w.name || parent != w.parent || e.Memory != w.memory || e.SelfMemory != w.self {
			t.Errorf("%s in %q has %d, %d of its own, not %+v", e.Name, parent, e.Memory, e.SelfMemory, w)
		}
	}
	for i, around := range []string{"around", "same", ""} {
		got := ""
		if e := trace.allocations[i].Event; e != nil {
			got = e.Name
		}
		if got != around {
			t.Errorf("allocation %d is in %q, not %q", i, got, around)
		}
	}
}

// A node may call, while it runs, what has its number again: a backward pass of which there is a gradient.
func TestANodeIsOfTheCallBeforeIt(t *testing.T) {
	event := func(name string, scope int, start, end int64, parent int) profileEvent {
		return profileEvent{Name: name, Scope: scope, Start: 1000 + start, End: 1000 + end, Parent: parent, Sequence: 5}
	}
	trace := newTrace(&profileData{Start: 1000, Stop: 2000, Events: []profileEvent{
		event("outer", 0, 5, 30, -1), event("aten::mm", 0, 10, 20, 0),
		event("MmBackward0", 1, 50, 90, -1), event("aten::mul", 0, 60, 70, 2), event("aten::add", 0, 95, 99, -1),
	}}, nil, nil, Options{})
	for _, e := range trace.events {
		switch {
		case e.Kind == Backward && (e.Forward == nil || e.Forward.Name != "aten::mm"):
			t.Errorf("%s is of %+v", e.Name, e.Forward)
		case e.Kind != Backward && e.Forward != nil:
			t.Errorf("%s is of %s", e.Name, e.Forward.Name)
		}
	}
}

func TestATableHasAsManyRowsAsAreAskedFor(t *testing.T) {
	var events []profileEvent
	for i := range 5 {
		events = append(events, profileEvent{Name: fmt.Sprint("row", i), Start: 1000, End: int64(1010 + i), Parent: -1, Sequence: -1})
	}
	trace := newTrace(&profileData{Start: 1000, Stop: 1100, Events: events}, nil, nil, Options{})
	for limit, want := range map[int]int{-1: 5, 0: 0, 1: 1, 4: 4, 5: 5, 9: 5} {
		if got := strings.Count(trace.KeyAverages().Table(TableOptions{SortBy: CPUTime, RowLimit: limit}), "\nrow"); got != want {
			t.Errorf("of %d there are %d", limit, got)
		}
	}
	var called []*Event
	for _, by := range []string{"", "", "", "MatMul", "MM", "MM", "AddMM", "MatMul"} {
		called = append(called, &Event{Name: "aten::mm", Go: by})
	}
	if by := (&Trace{events: called}).KeyAverages().Rows[0].Go; by != "MM" { // the first of those that are as frequent
		t.Errorf("it was called by %s", by)
	}
	if mean := new(Average).MeanCPUTime(); mean != 0 {
		t.Errorf("the mean of nothing is %v", mean)
	}
}
