package gotorch

import (
	"runtime"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// ManualSeed seeds the random numbers of all devices, as torch.manual_seed: the same seed gives the
// same numbers as in Python.
func ManualSeed(seed uint64) {
	if err := ctorch.ManualSeed(seed); err != nil {
		panicC("ManualSeed", unsafe.Pointer(err))
	}
}

// Seed seeds the random numbers of all devices from the system's source of randomness, and returns
// the seed.
func Seed() uint64 {
	seed := NewGenerator(CPU).Seed()
	ManualSeed(seed)
	return seed
}

// InitialSeed returns the seed of the CPU's random numbers.
func InitialSeed() uint64 { return DefaultGenerator(CPU).InitialSeed() }

// Generator is a stream of random numbers. Ops that draw some have a Generator among their options;
// nil is the device's own. It may be used by several goroutines at once, in an order that is then up
// to chance.
type Generator struct{ c ctorch.Owner }

func newGenerator(h ctorch.Generator) *Generator {
	g := new(Generator)
	g.c.Own(unsafe.Pointer(h), func(h unsafe.Pointer) { ctorch.FreeGenerator(ctorch.Generator(h)) })
	return g
}

// NewGenerator returns a new generator for a device, with the seed that new generators have in
// PyTorch. It panics with a RuntimeError if there is no such device.
func NewGenerator(device Device) *Generator {
	var h ctorch.Generator
	if err := ctorch.NewGenerator(cDevice("NewGenerator", device), &h); err != nil {
		panicC("NewGenerator", unsafe.Pointer(err))
	}
	return newGenerator(h)
}

// DefaultGenerator returns the device's own generator: what is done to it is done to all ops that are
// given no other. It panics with a RuntimeError if there is no such device.
func DefaultGenerator(device Device) *Generator {
	var h ctorch.Generator
	if err := ctorch.DefaultGenerator(cDevice("DefaultGenerator", device), &h); err != nil {
		panicC("DefaultGenerator", unsafe.Pointer(err))
	}
	return newGenerator(h)
}

func cDevice(op string, d Device) ctorch.Device {
	if d == 0 {
		panic(newError(op, TypeError, "argument 'device' is the zero Device, where a device is required"))
	}
	return ctorch.Device{Type: int32(d.Type()), Index: int32(d.Index())}
}

// handle returns g's handle for an op; nil for nil.
func (g *Generator) handle(opID, string) unsafe.Pointer {
	if g == nil {
		return nil
	}
	return g.c.H
}

// try calls a C function of g.
func (g *Generator) try(op string, call func(ctorch.Generator) ctorch.Message) {
	if g == nil {
		panic(newError(op, TypeError, "the generator is nil"))
	}
	err := call(ctorch.Generator(g.c.H))
	runtime.KeepAlive(g)
	if err != nil {
		panicC(op, unsafe.Pointer(err))
	}
}

// Device returns the device whose ops g is for.
func (g *Generator) Device() Device {
	var d ctorch.Device
	g.try("Device", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorDevice(h, &d) })
	return deviceOf(d)
}

// ManualSeed starts the stream that belongs to seed, and returns g.
func (g *Generator) ManualSeed(seed uint64) *Generator {
	g.try("ManualSeed", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorManualSeed(h, seed) })
	return g
}

// Seed seeds g from the system's source of randomness, and returns the seed.
func (g *Generator) Seed() uint64 {
	var seed uint64
	g.try("Seed", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorSeed(h, &seed) })
	return seed
}

// InitialSeed returns the seed that g was given last.
func (g *Generator) InitialSeed() uint64 {
	var seed uint64
	g.try("InitialSeed", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorInitialSeed(h, &seed) })
	return seed
}

// Clone returns a new generator that goes on as g would.
func (g *Generator) Clone() *Generator {
	var clone ctorch.Generator
	g.try("Clone", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorClone(h, &clone) })
	return newGenerator(clone)
}

// State returns where in its stream g is: a tensor of bytes, the same as Python's get_state gives.
func (g *Generator) State() Tensor {
	var t ctorch.Tensor
	g.try("State", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorState(h, &t) })
	return wrapHandle(t)
}

// SetState makes g go on from a state. It panics with a RuntimeError if it is no state of such a
// generator.
func (g *Generator) SetState(state Tensor) {
	s := state.hold("SetState", "state")
	defer ctorch.FreeTensor(s)
	g.try("SetState", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorSetState(h, s) })
}

// Offset returns how far in its stream g is. It panics with a RuntimeError for the CPU's generators,
// which do not tell.
func (g *Generator) Offset() uint64 {
	var offset uint64
	g.try("Offset", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorOffset(h, &offset) })
	return offset
}

// SetOffset makes g go on from an offset that Offset has returned.
func (g *Generator) SetOffset(offset uint64) {
	g.try("SetOffset", func(h ctorch.Generator) ctorch.Message { return ctorch.GeneratorSetOffset(h, offset) })
}
