package ctorch

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// What package profiler needs. C records what is called on a thread; Go says before a call which goroutine it is, and
// from where it calls.

var profiles struct {
	sync.Mutex
	n, stacks int // how many there are, and how many of them want stacks
	stack     map[int64]bool

	goroutine  atomic.Pointer[func() int64] // returns the number of the calling one
	withStacks atomic.Bool
	calls      atomic.Int64 // the number of the last call
}

// A site is a place in the program from where a function was called. Sites have numbers, because C keeps one with
// each event. They are forgotten with the last profile: then numbers go on from base, so that a call which is still
// under way takes none of the next profile's.
var sites struct {
	sync.RWMutex
	base  int64
	index map[siteKey]int64
	list  []siteKey
}

const (
	sitePCs   = 12 // enough to find the function that was called
	sitePCMax = 40 // with a stack
)

type siteKey struct {
	pcs [sitePCMax]uintptr
	n   int
}

// profiledCall is what a call undoes when it is over.
type profiledCall struct {
	on     bool
	before ProfilePlace
}

// enterProfiled says who calls, where there is a profile. The goroutine stays on its thread until leave.
func enterProfiled() (p profiledCall) {
	if attention.Load()&attentionProfiled != 0 {
		p.enter()
	}
	return p
}

//go:noinline
func (p *profiledCall) enter() {
	var place ProfilePlace
	place.Goroutine = (*profiles.goroutine.Load())()
	place.Call = profiles.calls.Add(1)
	place.Site = callSite()
	runtime.LockOSThread()
	p.on = true
	p.before = ProfileEnter(place)
}

func (p profiledCall) leave() {
	if p.on {
		ProfileLeave(p.before)
		runtime.UnlockOSThread()
	}
}

// callSite returns the number of the place that the calling goroutine is at.
func callSite() int64 {
	var key siteKey
	most := sitePCs
	if profiles.withStacks.Load() {
		most = sitePCMax
	}
	key.n = runtime.Callers(4, key.pcs[:most])
	sites.RLock()
	number, found := sites.index[key]
	sites.RUnlock()
	if found {
		return number
	}
	sites.Lock()
	defer sites.Unlock()
	if number, found = sites.index[key]; found {
		return number
	}
	if sites.index == nil {
		sites.index = map[siteKey]int64{}
	}
	sites.list = append(sites.list, key)
	number = sites.base + int64(len(sites.list))
	sites.index[key] = number
	return number
}

// ProfileSite is where a call was made: the function of package gotorch, and with a stack who called it, the innermost first.
type ProfileSite struct {
	Name   string
	Frames []runtime.Frame
}

// SiteOf returns what is known of a place: the innermost exported function of package gotorch, and with stack the
// callers outside of it.
func SiteOf(number int64, stack bool) (s ProfileSite) {
	sites.RLock()
	i := number - sites.base - 1
	if i < 0 || i >= int64(len(sites.list)) {
		sites.RUnlock()
		return s
	}
	key := sites.list[i]
	sites.RUnlock()
	frames := runtime.CallersFrames(key.pcs[:key.n])
	inside := true
	for {
		f, more := frames.Next()
		rest, ours := strings.CutPrefix(f.Function, "gotorch.dev/gotorch.")
		below := strings.HasPrefix(f.Function, "gotorch.dev/gotorch/internal/ctorch.")
		inside = inside && (ours || below) && !strings.HasSuffix(f.File, "_test.go")
		if inside && ours && s.Name == "" {
			s.Name = exportedName(rest)
		}
		if stack && !inside && f.Function != "" {
			s.Frames = append(s.Frames, f)
		}
		if !more {
			return s
		}
	}
}

// exportedName returns the name of a function or method as a program writes it: "MM" of "Tensor.MM", "Scope" of
// "Scope[...].func1"; "" where it is not exported.
func exportedName(function string) string {
	if i := strings.IndexByte(function, '['); i >= 0 {
		function = function[:i]
	}
	name := function[strings.LastIndexByte(function, '.')+1:]
	if name == "" || name[0] < 'A' || name[0] > 'Z' {
		return ""
	}
	return name
}

// Profiling reports whether there is a profile.
func Profiling() bool { return attention.Load()&attentionProfiled != 0 }

// BeginProfile starts a profile, with stack one that knows calls by their stack; goroutine returns the number of the calling
// goroutine. [EndProfile] stops it, once, on any goroutine.
func BeginProfile(options *ProfileOptions, stack bool, goroutine func() int64) (id int64, m Message) {
	profiles.Lock()
	defer profiles.Unlock()
	if m := StartProfile(options, &id); m != nil {
		return 0, m
	}
	profiles.goroutine.Store(&goroutine)
	profiles.n++
	if stack {
		profiles.stacks++
		if profiles.stack == nil {
			profiles.stack = map[int64]bool{}
		}
		profiles.stack[id] = true
		profiles.withStacks.Store(true)
	}
	attention.Or(attentionProfiled)
	return id, nil
}

// EndProfile stops a profile, and calls read with what it has recorded, which is freed then. A ValueError says that there is
// no such profile.
func EndProfile(id int64, read func(data *ProfileData, stack bool)) Message {
	profiles.Lock()
	defer profiles.Unlock()
	var data *ProfileData
	if m := StopProfile(id, &data); m != nil {
		if !strings.HasPrefix(GoString(m), "ValueError: ") {
			endedProfile(id)
		}
		return m
	}
	defer FreeProfile(data)
	read(data, profiles.stack[id])
	endedProfile(id)
	return nil
}

// endedProfile is called with profiles locked.
func endedProfile(id int64) {
	if profiles.stack[id] {
		delete(profiles.stack, id)
		profiles.stacks--
		profiles.withStacks.Store(profiles.stacks > 0)
	}
	if profiles.n--; profiles.n > 0 {
		return
	}
	attention.And(^uint32(attentionProfiled))
	sites.Lock()
	sites.base += int64(len(sites.list))
	sites.list, sites.index = nil, nil
	sites.Unlock()
}
