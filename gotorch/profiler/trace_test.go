package profiler

import (
	"testing"
	"time"

	"gotorch.dev/gotorch/internal/door"
)

func TestWhatIsWithinIsNotLongerThanWhatIsAround(t *testing.T) {
	trace := newTrace(&door.ProfileData{Start: 1000, Stop: 1100, Events: []door.ProfileEvent{
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
	event := func(name string, goroutine, start, end int64) door.ProfileEvent {
		return door.ProfileEvent{Name: name, Goroutine: goroutine, Start: 1000 + start, End: 1000 + end, Parent: -1, Sequence: -1}
	}
	step := func(number int, goroutine, start, end, ended int64) stepRange {
		return stepRange{number, stepStart{100 + start, goroutine}, 100 + end, ended}
	}
	trace := newTrace(&door.ProfileData{Start: 1000, Stop: 1100, Clock: 100, Events: []door.ProfileEvent{
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
