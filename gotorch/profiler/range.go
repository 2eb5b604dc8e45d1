package profiler

import (
	"bytes"
	"context"
	"maps"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/petermattis/goid"

	"gotorch.dev/gotorch/internal/ctorch"
)

// RecordFunction runs fn, and marks it in profiles by a name: what fn calls is within. Without a profile it only runs
// fn. It may be nested, and fn may panic or end its goroutine.
//
// While a profile is there the goroutine is locked to its OS thread, so fn should not wait for long: what is said at
// gotorch.Scope holds here. Goroutines that fn starts are not within. A range in which a profile starts is not in it.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.autograd.profiler.record_function.html.
func RecordFunction(name string, fn func()) {
	if ctorch.Profiling() {
		checkGoroutine()
		defer enterRange(name)()
	}
	fn()
}

// RecordFunction1 is [RecordFunction] for a function with a result.
func RecordFunction1[R any](name string, fn func() R) (result R) {
	RecordFunction(name, func() { result = fn() })
	return result
}

// Do is pprof.Do, whose labels also name the goroutine's lane in a trace: "goroutine 12: loader=2". Without labels
// the lane is "goroutine 12".
func Do(ctx context.Context, labels pprof.LabelSet, fn func(ctx context.Context)) {
	pprof.Do(ctx, labels, func(ctx context.Context) {
		var all []string
		pprof.ForLabels(ctx, func(key, value string) bool {
			all = append(all, key+"="+value)
			return true
		})
		slices.Sort(all)
		checkGoroutine()
		defer lanes.name(goroutine(), strings.Join(all, " "))()
		fn(ctx)
	})
}

// lanes are the names of goroutines, for as long as Do runs, and of those that were named while there was a profile.
var lanes laneNames

type laneNames struct {
	mutex    sync.Mutex
	now      map[int64]string
	sessions map[*map[int64]string]struct{}
}

// name names a goroutine until restore.
func (l *laneNames) name(goroutine int64, name string) (restore func()) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.now == nil {
		l.now = map[int64]string{}
	}
	before, had := l.now[goroutine]
	l.now[goroutine] = name
	for names := range l.sessions {
		(*names)[goroutine] = name
	}
	return func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		if had {
			l.now[goroutine] = before
		} else {
			delete(l.now, goroutine)
		}
	}
}

// begin returns a table that has the names from now on, until end.
func (l *laneNames) begin() *map[int64]string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	names := maps.Clone(l.now)
	if names == nil {
		names = map[int64]string{}
	}
	if l.sessions == nil {
		l.sessions = map[*map[int64]string]struct{}{}
	}
	l.sessions[&names] = struct{}{}
	return &names
}

func (l *laneNames) end(names *map[int64]string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.sessions, names)
}

// Goroutines' numbers. Go does not tell them, but at the top of a stack, which takes microseconds to print; package goid
// knows where they are in Go's versions. It is asked whether it is right before it is believed.

var (
	fast   atomic.Bool
	checks sync.Once
)

func goroutine() int64 {
	if fast.Load() {
		return goid.Get()
	}
	return printedGoroutine()
}

// checkGoroutine must have been called before goroutine.
func checkGoroutine() {
	checks.Do(func() {
		right := goid.Get() == printedGoroutine()
		done := make(chan bool)
		go func() { done <- goid.Get() == printedGoroutine() }()
		fast.Store(<-done && right)
	})
}

func printedGoroutine() int64 {
	var buffer [64]byte
	line := buffer[:runtime.Stack(buffer[:], false)]
	number, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte("goroutine ")), []byte(" "))
	n, _ := strconv.ParseInt(string(number), 10, 64)
	return n
}
