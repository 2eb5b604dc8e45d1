package door

import "runtime"

// ProfileOptions are those of cgotorch's profiler.h, and whether calls are known by their stack.
type ProfileOptions struct {
	Shapes, Memory, FLOPs, Device bool
	Stack                         bool
	MaxEvents                     int64
	Goroutine                     int64 // the only one that is recorded; 0 for all
}

// ProfileEvent is a ProfileEvent of profiler.h. Parent is an index, or -1.
type ProfileEvent struct {
	Start, End                       int64
	Parent                           int
	Name, Overload                   string
	Scope                            int
	Thread, EndThread, ForwardThread int64
	SystemThread                     int64
	Sequence                         int64
	Inputs                           []ProfileInput
	FLOPs, Memory                    int64
	Goroutine, Call, Site            int64
}

// The kinds of a ProfileInput.
const (
	ProfileNothing = iota
	ProfileTensor
	ProfileTensors
	ProfileNumber
	ProfileNumbers
)

// ProfileInput is an input of an event.
type ProfileInput struct {
	Kind  int
	DType string
	Sizes []int64
	List  []ProfileInput
	Total int // of tensors, where List has not all
}

// ProfileMemory is a ProfileMemory of profiler.h.
type ProfileMemory struct {
	Time, Address, Bytes, Total     int64
	Parent                          int
	Thread, SystemThread, Goroutine int64
}

// ProfileActivity is a ProfileActivity of profiler.h.
type ProfileActivity struct {
	Start, End              int64
	Name                    string
	DeviceType, DeviceIndex int
	Resource                int64
	Correlation, Linked     int64
}

// ProfileSite is where a call was made: the function of package gotorch, and with ProfileOptions.Stack who called
// it, the innermost first.
type ProfileSite struct {
	Name   string
	Frames []runtime.Frame
}

// ProfileData is a ProfileData of profiler.h.
type ProfileData struct {
	Start, Stop                  int64
	Clock                        int64 // ProfileClock at the start
	Events                       []ProfileEvent
	Memory                       []ProfileMemory
	Activities                   []ProfileActivity
	Sites                        map[int64]ProfileSite
	DroppedEvents, DroppedMemory int64
}

// Functions for package profiler. StartProfile's errors and StopProfile's are *gotorch.Error; a profile may be
// stopped by any goroutine, once. Goroutine is filled by package profiler: it returns the calling goroutine's number.
// EnterRange begins a range of the calling goroutine, which is locked to its thread until it calls leave.
var (
	StartProfile func(ProfileOptions) (profile int64, err error)
	StopProfile  func(profile int64) (*ProfileData, error)
	Profiling    func() bool
	ProfileClock func() int64
	EnterRange   func(name string) (leave func())
	Goroutine    func() int64
)
