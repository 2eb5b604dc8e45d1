package profiler

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
)

// profileEvent is a ProfileEvent of profiler.h. Parent is an index, or -1.
type profileEvent struct {
	Start, End                       int64
	Parent                           int
	Name, Overload                   string
	Scope                            int
	Thread, EndThread, ForwardThread int64
	SystemThread                     int64
	Sequence                         int64
	Inputs                           []profileInput
	FLOPs, Memory                    int64
	Goroutine, Call, Site            int64
}

// The kinds of a profileInput.
const (
	inputNothing = iota
	inputTensor
	inputTensors
	inputNumber
	inputNumbers
)

// profileInput is an input of an event.
type profileInput struct {
	Kind  int
	DType string
	Sizes []int64
	List  []profileInput
	Total int // of tensors, where List has not all
}

// profileMemory is a ProfileMemory of profiler.h.
type profileMemory struct {
	Time, Address, Bytes, Total     int64
	Parent                          int
	Thread, SystemThread, Goroutine int64
}

// profileActivity is a ProfileActivity of profiler.h.
type profileActivity struct {
	Start, End              int64
	Name                    string
	DeviceType, DeviceIndex int
	Resource                int64
	Correlation, Linked     int64
}

// profileData is a ProfileData of profiler.h.
type profileData struct {
	Start, Stop                  int64
	Clock                        int64 // the clock at the start
	Events                       []profileEvent
	Memory                       []profileMemory
	Activities                   []profileActivity
	Sites                        map[int64]ctorch.ProfileSite
	DroppedEvents, DroppedMemory int64
}

// profileOf copies what C has recorded.
func profileOf(c *ctorch.ProfileData, stack bool) *profileData {
	names := map[int64]string{}
	name := func(at int64) string {
		s, found := names[at]
		if !found {
			s = ctorch.GoString((*ctorch.Char)(unsafe.Add(unsafe.Pointer(c.Names), at)))
			names[at] = s
		}
		return s
	}
	d := &profileData{Start: int64(c.Start), Stop: int64(c.Stop), Clock: int64(c.Clock), Sites: map[int64]ctorch.ProfileSite{},
		DroppedEvents: int64(c.DroppedEvents), DroppedMemory: int64(c.DroppedMemory)}
	d.Events = make([]profileEvent, c.EventsLen)
	ints := unsafe.Slice(c.Ints, c.IntsLen)
	for i, e := range unsafe.Slice(c.Events, c.EventsLen) {
		d.Events[i] = profileEvent{Start: int64(e.Start), End: int64(e.End), Parent: int(e.Parent),
			Name: name(e.Name), Overload: name(e.Overload), Scope: int(e.Scope), Thread: int64(e.Thread),
			EndThread: int64(e.EndThread), ForwardThread: int64(e.ForwardThread), SystemThread: int64(e.SystemThread),
			Sequence: int64(e.Sequence), FLOPs: int64(e.Flops), Memory: int64(e.Memory), Goroutine: int64(e.Goroutine),
			Call: int64(e.Call), Site: int64(e.Site)}
		if e.Inputs >= 0 {
			r := inputReader{ints[e.Inputs:], name}
			d.Events[i].Inputs = r.list(r.next())
		}
		if _, found := d.Sites[int64(e.Site)]; !found && e.Site != 0 {
			d.Sites[int64(e.Site)] = ctorch.SiteOf(int64(e.Site), stack)
		}
	}
	d.Memory = make([]profileMemory, c.MemoryLen)
	for i, m := range unsafe.Slice(c.Memory, c.MemoryLen) {
		d.Memory[i] = profileMemory{Time: int64(m.Time), Address: int64(m.Address), Bytes: int64(m.Bytes),
			Total: int64(m.Total), Parent: int(m.Parent), Thread: int64(m.Thread), SystemThread: int64(m.SystemThread),
			Goroutine: int64(m.Goroutine)}
	}
	d.Activities = make([]profileActivity, c.ActivitiesLen)
	for i, a := range unsafe.Slice(c.Activities, c.ActivitiesLen) {
		d.Activities[i] = profileActivity{Start: int64(a.Start), End: int64(a.End), Name: name(a.Name),
			DeviceType: int(a.DeviceType), DeviceIndex: int(a.DeviceIndex), Resource: int64(a.Resource),
			Correlation: int64(a.Correlation), Linked: int64(a.Linked)}
	}
	return d
}

// inputReader reads inputs as profiler.h describes them.
type inputReader struct {
	ints []int64
	name func(int64) string
}

func (r *inputReader) next() int64 {
	v := r.ints[0]
	r.ints = r.ints[1:]
	return v
}

func (r *inputReader) list(n int64) []profileInput {
	inputs := make([]profileInput, n)
	for i := range inputs {
		in := &inputs[i]
		switch in.Kind = int(r.next()); in.Kind {
		case inputTensor:
			in.DType = r.name(r.next())
			in.Sizes = make([]int64, r.next())
			for k := range in.Sizes {
				in.Sizes[k] = int64(r.next())
			}
		case inputTensors:
			in.Total = int(r.next())
			in.List = r.list(r.next())
		}
	}
	return inputs
}

// enterRange begins a range of the calling goroutine, which is locked to its thread until it calls leave.
func enterRange(name string) (leave func()) {
	const op = "profiler.RecordFunction"
	thread, m := ctorch.LockThread()
	native.Must("", m)
	before := ctorch.ProfileEnter(ctorch.ProfilePlace{Goroutine: goroutine()})
	cName := ctorch.CString(name)
	defer ctorch.CFree(unsafe.Pointer(cName))
	var r ctorch.ProfileRange
	if m := ctorch.EnterRange(cName, &r); m != nil {
		ctorch.ProfileLeave(before)
		ctorch.UnlockThread(thread)
		native.Must(op, m)
	}
	return func() {
		ctorch.LeaveRange(r)
		ctorch.ProfileLeave(before)
		ctorch.UnlockThread(thread)
	}
}
