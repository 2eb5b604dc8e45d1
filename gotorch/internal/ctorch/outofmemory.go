package ctorch

import (
	"strings"
	"sync"
	"sync/atomic"

	"gotorch.dev/gotorch/internal/finalize"
)

// Memory is not out while dead tensors hold it: when an op finds none, what is dead is freed and the op
// is run once more. Only an op that writes into none of its arguments is: another may have written
// already, and would do it twice. For that one there is room when the program tries again.
//
// libtorch's allocators could be asked to call back before they give up, but they do so under locks of
// their own, which freeing takes as well.

// OutOfMemory reports whether an error says that there was no memory, of a device or of the computer.
func OutOfMemory(kind, text string) bool {
	switch kind {
	case "OutOfMemoryError", "MemoryError":
		return true
	case "RuntimeError": // as in Python; where libtorch's own allocator is mimalloc, as on arm64, it says "not enough memory"
		return strings.Contains(text, "DefaultCPUAllocator: ")
	}
	return false
}

// MakeRoom frees everything dead if an error says that memory is out, and reports whether it does.
func MakeRoom(kind, text string) bool {
	if !OutOfMemory(kind, text) {
		return false
	}
	reclaim(3) // what a slab's pool keeps is let go by the second collection after
	return true
}

// makeRoomFor is [MakeRoom] for a message, which stays the caller's.
func makeRoomFor(m Message) bool {
	kind, text, _ := strings.Cut(GoString(m), ": ")
	return MakeRoom(kind, text)
}

// mayRunAgain reports whether an op that failed is to be run once more.
func mayRunAgain(op Op, m Message) bool { return makeRoomFor(m) && !op.Writes() }

// Writes reports whether the op changes what its caller has.
func (op Op) Writes() bool { return opsWriting[op/64]>>(op%64)&1 != 0 }

var reclaiming sync.Mutex

// reclaim collects so many times, and frees all tensors that are found dead.
func reclaim(times int) {
	reclaiming.Lock()
	defer reclaiming.Unlock()
	for range times {
		finalize.Dead()
		DrainAll()
	}
}

// Memory of devices -----------------------------------------------------------------------------------

// The allocators of devices are libtorch's, so their bytes are not in the counters that collections
// start by. Results say which device they are on and how big they are; when so much was made on a
// device that it may matter, its allocator is asked what is alive there. A collection starts when that
// has grown by a sixteenth of the device's memory since the last one. Where an allocator does not
// count, what was made stands for it.
const (
	leastOnDevice   = 64 << 20
	unknownOnDevice = 256 << 20 // where the device does not say how much memory it has
	shareOfDevice   = 16
)

type onDevice struct {
	made atomic.Int64 // bytes of results, views among them
	look atomic.Int64 // how many there are when the allocator is asked

	sync.Mutex
	watched
	counts bool // the allocator does
}

// devices has a place for each type and index; indices from 16 on share.
var devices [24 * 16]onDevice

// madeOnDevice is told what a block says about a result on a device.
func madeOnDevice(meta int64) {
	kind, index := meta>>8&0xff-1, meta>>16&0xff-1
	d := &devices[(kind*16+index&15)%int64(len(devices))]
	if made := d.made.Add(meta >> 24 << 10); made >= d.look.Load() {
		d.ask(Device{int32(kind), int32(index)}, made)
	}
}

//go:noinline
func (d *onDevice) ask(device Device, made int64) {
	if !d.TryLock() {
		return // another goroutine does
	}
	defer d.Unlock()
	if d.bound.Load() == 0 {
		d.start(device)
	}
	live := d.live(device, made)
	if live >= d.limit.Load() {
		reclaim(1)
		live = d.live(device, made)
		if !d.counts {
			d.rebase(made)
		} else {
			d.rebase(live)
		}
	} else if live < d.base.Load() {
		d.rebase(live)
	}
	// What is alive grows by no more than what is made.
	d.look.Store(made + max(d.limit.Load()-live, d.bound.Load()/8))
}

func (d *onDevice) start(device Device) {
	bound := int64(unknownOnDevice)
	var free, total int64
	if err := GetDeviceMemoryInfo(device, &free, &total); err != nil {
		FreeString(err)
	} else {
		bound = min(max(leastOnDevice, total/shareOfDevice), total/4)
	}
	d.bound.Store(bound)
	d.counts = true
	d.counts = d.live(device, -1) >= 0
	d.rebase(0)
}

// live returns the bytes of live tensors on the device; made where its allocator does not count.
func (d *onDevice) live(device Device, made int64) int64 {
	if d.counts {
		var m DeviceMemory
		err := GetDeviceMemory(device, &m)
		if err == nil {
			return m.Allocated.Current
		}
		FreeString(err)
	}
	return made
}
