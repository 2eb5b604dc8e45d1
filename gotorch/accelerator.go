package gotorch

import (
	"runtime"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Accelerator returns the device that computes beside the processor, without an index, and false
// where there is none: what torch.accelerator.current_accelerator does. It looks for CUDA, and loads
// PyTorch's CUDA libraries where there are any.
func Accelerator() (Device, bool) {
	var kind int32
	check("Accelerator", ctorch.GetAccelerator(&kind))
	if kind < 0 {
		return 0, false
	}
	return NewDevice(DeviceType(kind), -1), true
}

// DeviceCount returns how many devices of a type there are.
func DeviceCount(t DeviceType) int {
	var n int64
	check("DeviceCount", ctorch.GetDeviceCount(int32(t), &n))
	return int(n)
}

// CurrentDevice returns the device that is meant by one of its type without an index, where the
// calling goroutine is: device 0, unless [OnDevice] says otherwise.
func CurrentDevice(t DeviceType) Device {
	var d ctorch.Device
	check("CurrentDevice", ctorch.GetCurrentDevice(int32(t), &d))
	return deviceOf(d)
}

// OnDevice runs fn while d is the current device of its type, as torch.accelerator.device_index does.
// As with [NoGrad], goroutines that fn starts have a current device of their own.
func OnDevice(d Device, fn func()) {
	thread := lockThread()
	defer unlockThread(thread)
	var previous ctorch.Device
	check("OnDevice", ctorch.SetCurrentDevice(cDevice("OnDevice", d), &previous))
	defer func() { check("OnDevice", ctorch.SetCurrentDevice(previous, nil)) }()
	fn()
}

// Synchronize waits until a device has finished what it was given.
func Synchronize(d Device) {
	check("Synchronize", ctorch.SynchronizeDevice(cDevice("Synchronize", d)))
}

// check panics with the error that C returned, if it did.
func check(op string, err *ctorch.Char) {
	if err != nil {
		panicC(op, unsafe.Pointer(err))
	}
}

// Streams --------------------------------------------------------------------------------------------

// NewStream returns a stream of a device, as torch.Stream(device) does: a queue of work that is done
// in order, beside that of other streams. The lower the priority, the sooner it is served. Streams
// are handed out again and again, and need no Close.
func NewStream(d Device, priority ...int) Stream {
	var s ctorch.Stream
	check("NewStream", ctorch.NewStream(cDevice("NewStream", d), int64(option(priority)), &s))
	return streamOf(s)
}

// DefaultStream returns the stream that a device works on unless told otherwise.
func DefaultStream(d Device) Stream {
	var s ctorch.Stream
	check("DefaultStream", ctorch.GetDefaultStream(cDevice("DefaultStream", d), &s))
	return streamOf(s)
}

// CurrentStream returns the stream that the calling goroutine's work on a device goes to.
func CurrentStream(d Device) Stream {
	var s ctorch.Stream
	check("CurrentStream", ctorch.GetCurrentStream(cDevice("CurrentStream", d), &s))
	return streamOf(s)
}

// OnStream runs fn while its work goes to s, and s's device is the current one: what `with stream:`
// is in Python. As with [NoGrad], goroutines that fn starts are not in it. Work on other streams that
// fn depends on must be waited for, with [Stream.WaitStream] or an [Event], and a tensor that was made
// on another stream is kept from being handed out again with RecordStream.
func OnStream(s Stream, fn func()) {
	OnDevice(s.Device(), func() {
		var previous ctorch.Stream
		check("OnStream", ctorch.SetCurrentStream(s.c(), &previous))
		defer func() { check("OnStream", ctorch.SetCurrentStream(previous, nil)) }()
		fn()
	})
}

// Device returns the device that s is of.
func (s Stream) Device() Device { return NewDevice(DeviceType(s.DeviceType), int(s.DeviceIndex)) }

// Query reports whether all work that s was given is done.
func (s Stream) Query() bool {
	var done bool
	check("Stream.Query", ctorch.QueryStream(s.c(), &done))
	return done
}

// Synchronize waits until all work that s was given is done.
func (s Stream) Synchronize() { check("Stream.Synchronize", ctorch.SynchronizeStream(s.c())) }

// RecordEvent returns an event that happens when s has done what it was given until now.
func (s Stream) RecordEvent() *Event {
	e := NewEvent(s.Device())
	e.Record(s)
	return e
}

// WaitEvent makes what s is given from now on wait for an event.
func (s Stream) WaitEvent(e *Event) {
	check("Stream.WaitEvent", ctorch.StreamWaitEvent(s.c(), e.handle()))
	runtime.KeepAlive(e)
}

// WaitStream makes what s is given from now on wait for what another stream was given until now.
func (s Stream) WaitStream(other Stream) { s.WaitEvent(other.RecordEvent()) }

func (s Stream) c() ctorch.Stream { return *(*ctorch.Stream)(unsafe.Pointer(&s)) }

func streamOf(s ctorch.Stream) Stream { return *(*Stream)(unsafe.Pointer(&s)) }

// Events ---------------------------------------------------------------------------------------------

// EventOptions are the arguments of [NewEvent] that have defaults.
type EventOptions struct {
	EnableTiming bool // [Event.ElapsedTime] can be asked
}

// Event is a mark in a stream: torch.Event. Events are freed with the Go value.
type Event struct{ c ctorch.Owner }

// NewEvent returns an event for devices of d's type.
func NewEvent(d Device, opts ...EventOptions) *Event {
	opt := option(opts)
	var h ctorch.Event
	check("NewEvent", ctorch.NewEvent(int32(d.Type()), opt.EnableTiming, &h))
	e := new(Event)
	e.c.Own(unsafe.Pointer(h), func(h unsafe.Pointer) { ctorch.FreeEvent(ctorch.Event(h)) })
	return e
}

func (e *Event) handle() ctorch.Event {
	if e == nil {
		return nil
	}
	return ctorch.Event(e.c.H)
}

// Record makes the event happen when s has done what it was given until now.
func (e *Event) Record(s Stream) {
	check("Event.Record", ctorch.RecordEvent(e.handle(), s.c()))
	runtime.KeepAlive(e)
}

// Wait makes what s is given from now on wait for the event.
func (e *Event) Wait(s Stream) { s.WaitEvent(e) }

// Query reports whether the event has happened, which one that was never recorded has.
func (e *Event) Query() bool {
	var done bool
	check("Event.Query", ctorch.QueryEvent(e.handle(), &done))
	runtime.KeepAlive(e)
	return done
}

// Synchronize waits until the event has happened.
func (e *Event) Synchronize() {
	check("Event.Synchronize", ctorch.SynchronizeEvent(e.handle()))
	runtime.KeepAlive(e)
}

// ElapsedTime returns the milliseconds from e to end. Both were made with EnableTiming, and have
// happened.
func (e *Event) ElapsedTime(end *Event) float64 {
	var ms float64
	check("Event.ElapsedTime", ctorch.EventElapsedTime(e.handle(), end.handle(), &ms))
	runtime.KeepAlive(e)
	runtime.KeepAlive(end)
	return float64(ms)
}

// Memory ---------------------------------------------------------------------------------------------

// DeviceBytes is a number of bytes over time.
type DeviceBytes struct {
	Current, Peak    int64
	Allocated, Freed int64 // since the start
}

// DeviceMemory is what [DeviceMemoryStats] returns.
type DeviceMemory struct {
	Allocated DeviceBytes // in use by tensors: torch.accelerator.memory_allocated
	Reserved  DeviceBytes // taken from the device, in use or kept to be handed out again
	Active    DeviceBytes // in use, or freed and waiting for a stream
	Requested DeviceBytes // what tensors asked for, before it was rounded up
	Blocks    int64       // in use
	Retries   int64       // allocations that first gave back what was kept
	OOMs      int64       // allocations that failed
}

// DeviceMemoryStats returns how much of a device's memory tensors take, as
// torch.accelerator.memory_stats does. It panics with a NotImplementedError where the device's
// allocator does not count; that of the CPU is asked with [MemoryStats].
func DeviceMemoryStats(d Device) DeviceMemory {
	var m ctorch.DeviceMemory
	check("DeviceMemoryStats", ctorch.GetDeviceMemory(cDevice("DeviceMemoryStats", d), &m))
	return *(*DeviceMemory)(unsafe.Pointer(&m))
}

// ResetPeakDeviceMemory makes the peaks of [DeviceMemoryStats] the current values.
func ResetPeakDeviceMemory(d Device) {
	check("ResetPeakDeviceMemory", ctorch.ResetPeakDeviceMemory(cDevice("ResetPeakDeviceMemory", d)))
}

// DeviceMemoryInfo returns the free and all bytes of the device itself, whoever uses them.
func DeviceMemoryInfo(d Device) (free, total int64) {
	var f, t int64
	check("DeviceMemoryInfo", ctorch.GetDeviceMemoryInfo(cDevice("DeviceMemoryInfo", d), &f, &t))
	return f, t
}

// EmptyDeviceCache gives back to the devices of a type what nobody uses and their allocator keeps.
func EmptyDeviceCache(t DeviceType) {
	ctorch.DrainAll()
	check("EmptyDeviceCache", ctorch.EmptyDeviceCache(int32(t)))
}

// Graphs ---------------------------------------------------------------------------------------------

// DeviceGraph is work of a device that was captured once and can be given to it again, as a whole:
// torch.accelerator.Graph, and torch.cuda.CUDAGraph. It is freed with the Go value.
//
//	static := gotorch.Zeros([]int64{8, 3}, gotorch.TensorOptions{Device: gotorch.CUDA(0)})
//	var out gotorch.Tensor
//	graph := gotorch.CaptureGraph(gotorch.CUDA(0), func() { out = model.Forward(static) })
//	for batch := range batches {
//		static.Copy_(batch)
//		graph.Replay() // computes into out
//	}
type DeviceGraph struct{ c ctorch.Owner }

// CaptureGraph runs fn while what it gives to the device is captured and not done, on a stream of its
// own. The tensors that fn reads and makes must be kept while the graph is replayed: it reads and
// writes their memory. fn must not read results, nor wait for the device. Work that initialises
// something when it is first done, as many libraries do, is done once before the capture.
//
// It panics with a NotImplementedError where the backend, or this PyTorch, has no such graphs.
func CaptureGraph(d Device, fn func()) *DeviceGraph {
	const op = "CaptureGraph"
	var h ctorch.DeviceGraph
	check(op, ctorch.NewDeviceGraph(int32(d.Type()), &h))
	g := new(DeviceGraph)
	g.c.Own(unsafe.Pointer(h), func(h unsafe.Pointer) { ctorch.FreeDeviceGraph(ctorch.DeviceGraph(h)) })
	s := NewStream(d)
	s.WaitStream(CurrentStream(d))
	OnStream(s, func() {
		check(op, ctorch.BeginCapture(h))
		ended := false
		defer func() {
			if !ended { // fn panics: what was captured is of no use
				ctorch.FreeString(ctorch.EndCapture(h))
			}
		}()
		fn()
		ended = true
		check(op, ctorch.EndCapture(h))
	})
	CurrentStream(d).WaitStream(s)
	runtime.KeepAlive(g)
	return g
}

// Replay gives the captured work to the current stream of the device.
func (g *DeviceGraph) Replay() {
	check("DeviceGraph.Replay", ctorch.ReplayGraph(ctorch.DeviceGraph(g.c.H)))
	runtime.KeepAlive(g)
}
