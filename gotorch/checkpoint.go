package gotorch

import (
	"fmt"
	"slices"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// CheckpointOptions are the arguments of [Checkpoint] that have defaults.
type CheckpointOptions struct {
	// NoPreserveRNGState lets random functions draw other numbers when f is computed again, which saves the
	// time that it takes to keep the state of the generators.
	NoPreserveRNGState bool
	// NoDeterminismCheck leaves out to look whether f did the same again.
	NoDeterminismCheck bool
}

// Checkpoint returns f(x), and keeps nothing of what f computes but the result: a backward pass that needs
// more calls f again. So a part of a network takes the memory of its input and output only, and the time of a
// forward pass more.
//
//	h = gotorch.Checkpoint(block.Forward, h)
//
// f may use other tensors than x, such as the parameters of a module, and they get their gradients; x is what
// is kept. f must compute the same when it is called again, and change nothing that it has not made. It is
// called in the modes of the first time: with the same autocast, and the same state of the random generators
// of the CPU and of x's device. What f makes and does not return is freed when it returns, as in a [Scope].
// Checkpoints nest, the result may be differentiated twice, and a graph that is retained is computed again for
// each pass, also of several goroutines at a time. Where grad mode is off f is only called.
//
// It panics with a RuntimeError inside of a transform of package functorch, as do gradients of that package
// inside of f, and with a NotImplementedError in a program that Python has loaded, where Python decides what
// ops save. Backward panics with a RuntimeError if f saved other tensors than the first time, or has changed in place
// what an op of it saved, as without a checkpoint (Python gives wrong gradients then); and with an *Error that wraps a
// [CallbackPanic] if f panics. f must not hold on to the result, because then neither can ever be freed.
//
// This is Python's checkpoint with use_reentrant=False.
//
// See https://docs.pytorch.org/docs/stable/checkpoint.html
func Checkpoint(f func(x Tensor) Tensor, x Tensor, opts ...CheckpointOptions) Tensor {
	const op = "Checkpoint"
	if f == nil {
		panic(newError(op, TypeError, "argument 'f' is nil, where a function is required"))
	}
	of := func(xs []Tensor) []Tensor { return []Tensor{f(xs[0])} }
	return checkpoint(op, of, []Tensor{x}, option(opts))[0]
}

// CheckpointAll is [Checkpoint] for a function of several tensors, with several results. None is allowed in
// both.
func CheckpointAll(f func(xs []Tensor) []Tensor, xs []Tensor, opts ...CheckpointOptions) []Tensor {
	const op = "CheckpointAll"
	if f == nil {
		panic(newError(op, TypeError, "argument 'f' is nil, where a function is required"))
	}
	return checkpoint(op, f, xs, option(opts))
}

// CheckpointSequential returns what the functions make of x, one after the other, in as many segments of equal
// length as said, the last one longer. Each but the last is a [Checkpoint]: the last is what the backward pass
// begins with. It panics with a ValueError if there are not between 1 and len(functions) segments.
//
// See https://docs.pytorch.org/docs/stable/checkpoint.html
func CheckpointSequential(functions []func(Tensor) Tensor, segments int, x Tensor, opts ...CheckpointOptions) Tensor {
	const op = "CheckpointSequential"
	opt := option(opts)
	if segments < 1 || segments > len(functions) {
		panic(newError(op, ValueError, fmt.Sprintf("there must be between 1 and %d segments, as there are functions, not %d", len(functions), segments)))
	}
	if slices.ContainsFunc(functions, func(f func(Tensor) Tensor) bool { return f == nil }) {
		panic(newError(op, TypeError, "a function is nil"))
	}
	size := len(functions) / segments
	for s := range segments {
		part := functions[s*size:]
		if s == segments-1 {
			for _, f := range part {
				x = f(x)
			}
			break
		}
		part = part[:size]
		x = Checkpoint(func(x Tensor) Tensor {
			for _, f := range part {
				x = f(x)
			}
			return x
		}, x, opt)
	}
	return x
}

// checkpointed is a function that may be called again.
type checkpointed struct {
	f          func([]Tensor) []Tensor
	given      []bool // which of the inputs are tensors
	check      bool
	generators []generatorState
	casts      []castState
}

// generatorState is a generator in the state that f found it in.
type generatorState struct {
	*Generator
	state Tensor
}

type castState struct {
	device Device
	dtype  DType
	AutocastOptions
}

func checkpoint(op string, f func([]Tensor) []Tensor, xs []Tensor, opt CheckpointOptions) []Tensor {
	for i, x := range xs {
		if x.T != nil {
			x.check(op, fmt.Sprintf("xs[%d]", i))
		}
	}
	if !GradEnabled() || InferenceModeEnabled() {
		return Scope(func(*ScopeHandle) []Tensor { return f(xs) })
	}
	c := &checkpointed{f: f, check: !opt.NoDeterminismCheck}
	var inputs []Tensor
	for _, x := range xs {
		c.given = append(c.given, x.T != nil)
		if x.T != nil {
			inputs = append(inputs, x)
		}
	}
	devices := []Device{CPU}
	for _, x := range inputs {
		if d := x.Device(); d.Type() == DeviceTypeCUDA && !slices.Contains(devices, d) {
			devices = append(devices, d)
		}
	}
	Unscoped(func() { // it lives as long as the graph
		for _, d := range devices {
			if !opt.NoPreserveRNGState {
				g := DefaultGenerator(d)
				c.generators = append(c.generators, generatorState{g, g.State()})
			}
			mode := autocast(op, d)
			c.casts = append(c.casts, castState{d, DType(mode.Dtype + 1), AutocastOptions{!mode.Enabled, !mode.Cache}})
		}
	})

	thread := lockThread()
	defer unlockThread(thread)
	var held holder
	defer held.free()
	in := held.all(op, "xs", inputs)
	token := (&ctorch.Callback{Recompute: func(frame ctorch.Checkpoint) ctorch.Message {
		return protect("in a checkpoint", func() { c.again(frame) })
	}}).Lend()
	if err := ctorch.EnterCheckpoint(in, token); err != nil {
		ctorch.TakeBack(token)
		panicC(op, unsafe.Pointer(err))
	}
	defer ctorch.LeaveCheckpoint()
	return Scope(func(*ScopeHandle) []Tensor { return f(xs) })
}

// again calls f for what it saves.
func (c *checkpointed) again(frame ctorch.Checkpoint) {
	var inputs []Tensor
	Scope0(func(*ScopeHandle) {
		found := make([]ctorch.Tensor, len(c.given))
		n := 0
		for _, given := range c.given {
			if given {
				n++
			}
		}
		state := ctorch.EnterBack() // a checkpoint around this one may be computed
		err := ctorch.CheckpointInputs(frame, unsafe.SliceData(found))
		warnings := ctorch.LeaveBack(state)
		checkBack("Checkpoint", err, warnings)
		unpacked := wrapHandles(found[:n])
		for _, given := range c.given {
			if given {
				inputs, unpacked = append(inputs, unpacked[0]), unpacked[1:]
			} else {
				inputs = append(inputs, Tensor{})
			}
		}
		run := func() { c.f(inputs) }
		for _, cast := range c.casts {
			inner := run
			run = func() { Autocast(cast.device, cast.dtype, inner, cast.AutocastOptions) }
		}
		for _, g := range c.generators {
			now := g.State()
			defer g.SetState(now)
			g.SetState(g.state)
		}
		ctorch.EnterRecompute(frame)
		done := false
		defer func() {
			err := ctorch.LeaveRecompute(c.check && done)
			if done {
				MustNil(unsafe.Pointer(err))
			} else if err != nil {
				ctorch.FreeString(err)
			}
		}()
		SetInferenceMode(false, func() { EnableGrad(run) })
		done = true
	})
}
