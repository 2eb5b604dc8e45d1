package gotorch

/*
#include <cgotorch.h>
#include <stdlib.h>
#cgo noescape cgotorch_profile_enter
#cgo nocallback cgotorch_profile_enter
#cgo noescape cgotorch_profile_leave
#cgo nocallback cgotorch_profile_leave
*/
import "C"

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// What package profiler needs. C records what is called on a thread; Go says before a call which goroutine it is, and
// from where it calls.

// attentionProfiled is set in attention while there is a profile.
const attentionProfiled = 1 << 10

var profiles struct {
	sync.Mutex
	n, stacks int // how many there are, and how many of them want stacks
	stack     map[int64]bool

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
	before C.struct_cgotorch_profile_place
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
	var place C.struct_cgotorch_profile_place
	place.goroutine = C.int64_t(door.Goroutine())
	place.call = C.int64_t(profiles.calls.Add(1))
	place.site = C.int64_t(callSite())
	runtime.LockOSThread()
	p.on = true
	p.before = C.cgotorch_profile_enter(place)
}

func (p profiledCall) leave() {
	if p.on {
		C.cgotorch_profile_leave(p.before)
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

// siteOf returns what is known of a place: the innermost exported function of this package, and with stack the
// callers outside of it.
func siteOf(number int64, stack bool) (s door.ProfileSite) {
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
		inside = inside && ours && !strings.HasSuffix(f.File, "_test.go")
		if inside && s.Name == "" {
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

func init() {
	door.Profiling = func() bool { return attention.Load()&attentionProfiled != 0 }
	door.StartProfile = startProfile
	door.StopProfile = stopProfile
	door.EnterRange = enterRange
	door.ProfileClock = func() int64 { return int64(C.cgotorch_profile_clock()) }
}

func startProfile(opt door.ProfileOptions) (int64, error) {
	c := C.ProfileOptions{shapes: C.bool(opt.Shapes), memory: C.bool(opt.Memory), flops: C.bool(opt.FLOPs),
		device: C.bool(opt.Device), max_events: C.int64_t(opt.MaxEvents), goroutine: C.int64_t(opt.Goroutine)}
	profiles.Lock()
	defer profiles.Unlock()
	var id C.int64_t
	if err := C.StartProfile(&c, &id); err != nil {
		return 0, takeError("profiler.Start", unsafe.Pointer(err))
	}
	profiles.n++
	if opt.Stack {
		profiles.stacks++
		if profiles.stack == nil {
			profiles.stack = map[int64]bool{}
		}
		profiles.stack[int64(id)] = true
		profiles.withStacks.Store(true)
	}
	attention.Or(attentionProfiled)
	return int64(id), nil
}

func stopProfile(id int64) (*door.ProfileData, error) {
	profiles.Lock()
	defer profiles.Unlock()
	var c *C.ProfileData
	var data *door.ProfileData
	err := C.StopProfile(C.int64_t(id), &c)
	if err == nil {
		defer C.FreeProfile(c)
		data = profileOf(c, profiles.stack[id])
	} else if e := takeError("profiler.Stop", unsafe.Pointer(err)); e.Kind == ValueError {
		return nil, e // there is no such profile
	} else {
		defer func() { makeRoom(e) }()
		defer endedProfile(id)
		return nil, e
	}
	endedProfile(id)
	return data, nil
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

func profileOf(c *C.ProfileData, stack bool) *door.ProfileData {
	names := map[C.int64_t]string{}
	name := func(at C.int64_t) string {
		s, found := names[at]
		if !found {
			s = C.GoString((*C.char)(unsafe.Add(unsafe.Pointer(c.names), at)))
			names[at] = s
		}
		return s
	}
	d := &door.ProfileData{Start: int64(c.start), Stop: int64(c.stop), Clock: int64(c.clock), Sites: map[int64]door.ProfileSite{},
		DroppedEvents: int64(c.dropped_events), DroppedMemory: int64(c.dropped_memory)}
	d.Events = make([]door.ProfileEvent, c.events_len)
	ints := unsafe.Slice(c.ints, c.ints_len)
	for i, e := range unsafe.Slice(c.events, c.events_len) {
		d.Events[i] = door.ProfileEvent{Start: int64(e.start), End: int64(e.end), Parent: int(e.parent),
			Name: name(e.name), Overload: name(e.overload), Scope: int(e.scope), Thread: int64(e.thread),
			EndThread: int64(e.end_thread), ForwardThread: int64(e.forward_thread), SystemThread: int64(e.system_thread),
			Sequence: int64(e.sequence), FLOPs: int64(e.flops), Memory: int64(e.memory), Goroutine: int64(e.goroutine),
			Call: int64(e.call), Site: int64(e.site)}
		if e.inputs >= 0 {
			r := inputReader{ints[e.inputs:], name}
			d.Events[i].Inputs = r.list(r.next())
		}
		if _, found := d.Sites[int64(e.site)]; !found && e.site != 0 {
			d.Sites[int64(e.site)] = siteOf(int64(e.site), stack)
		}
	}
	d.Memory = make([]door.ProfileMemory, c.memory_len)
	for i, m := range unsafe.Slice(c.memory, c.memory_len) {
		d.Memory[i] = door.ProfileMemory{Time: int64(m.time), Address: int64(m.address), Bytes: int64(m.bytes),
			Total: int64(m.total), Parent: int(m.parent), Thread: int64(m.thread), SystemThread: int64(m.system_thread),
			Goroutine: int64(m.goroutine)}
	}
	d.Activities = make([]door.ProfileActivity, c.activities_len)
	for i, a := range unsafe.Slice(c.activities, c.activities_len) {
		d.Activities[i] = door.ProfileActivity{Start: int64(a.start), End: int64(a.end), Name: name(a.name),
			DeviceType: int(a.device_type), DeviceIndex: int(a.device_index), Resource: int64(a.resource),
			Correlation: int64(a.correlation), Linked: int64(a.linked)}
	}
	return d
}

// inputReader reads inputs as profiler.h describes them.
type inputReader struct {
	ints []C.int64_t
	name func(C.int64_t) string
}

func (r *inputReader) next() C.int64_t {
	v := r.ints[0]
	r.ints = r.ints[1:]
	return v
}

func (r *inputReader) list(n C.int64_t) []door.ProfileInput {
	inputs := make([]door.ProfileInput, n)
	for i := range inputs {
		in := &inputs[i]
		switch in.Kind = int(r.next()); in.Kind {
		case door.ProfileTensor:
			in.DType = r.name(r.next())
			in.Sizes = make([]int64, r.next())
			for k := range in.Sizes {
				in.Sizes[k] = int64(r.next())
			}
		case door.ProfileTensors:
			in.Total = int(r.next())
			in.List = r.list(r.next())
		}
	}
	return inputs
}

func enterRange(name string) (leave func()) {
	thread := lockThread()
	place := C.struct_cgotorch_profile_place{goroutine: C.int64_t(door.Goroutine())}
	before := C.cgotorch_profile_enter(place)
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var r C.ProfileRange
	if err := C.EnterRange(cName, &r); err != nil {
		C.cgotorch_profile_leave(before)
		unlockThread(thread)
		panicC("profiler.RecordFunction", unsafe.Pointer(err))
	}
	return func() {
		C.LeaveRange(r)
		C.cgotorch_profile_leave(before)
		unlockThread(thread)
	}
}
