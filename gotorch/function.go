package gotorch

import (
	"fmt"
	"reflect"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Function is a differentiable function written in Go, as torch.autograd.Function is one written in
// Python. [Apply] calls it. Parameters that are no tensors are fields of the type:
//
//	type scale struct{ by float64 }
//
//	func (s scale) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
//		return []gotorch.Tensor{in[0].MulScalar(s.by)}
//	}
//	func (s scale) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
//		return []gotorch.Tensor{grads[0].MulScalar(s.by)}
//	}
//
//	y := gotorch.Apply(scale{3}, x)[0]
type Function interface {
	// Forward computes the outputs. It runs without grad mode; what Backward will need of tensors
	// is given to ctx.
	Forward(ctx *FunctionContext, inputs []Tensor) []Tensor
	// Backward returns the gradient of each input, given those of the outputs; none stands for
	// zeros. Under CreateGraph it runs with grad mode, and what it does becomes part of the graph.
	// It may be called several times, also in several goroutines, and on a thread of libtorch's. A
	// panic in it ends the backward pass and comes out of [Tensor.Backward]; what is said at
	// [Tensor.RegisterHook] holds here too.
	Backward(ctx *FunctionContext, grads []Tensor) []Tensor
}

// FunctionContext connects the Backward of a [Function] with its Forward.
type FunctionContext struct {
	// Data is the function's own, to hand other things than tensors from Forward to Backward. An
	// output that is kept here instead of by SaveForBackward can never be freed.
	Data any

	f        Function
	name     string
	needs    []bool // in Forward
	saved    []Tensor
	dirty    []Tensor
	constant []Tensor
	sparing  bool                   // does not materialise gradients
	node     ctorch.FunctionContext // in Backward
}

// SaveForBackward keeps tensors for Backward: inputs, outputs, or anything between; none is allowed.
// They are freed with the graph, and changing one in place before Backward has used it makes the
// backward pass panic. A second call replaces the first.
func (ctx *FunctionContext) SaveForBackward(tensors ...Tensor) { ctx.saved = tensors }

// SavedTensors returns, in Backward, what SaveForBackward was given. It panics with a RuntimeError
// if one was changed in place since, or if they were freed by an earlier backward pass.
func (ctx *FunctionContext) SavedTensors() []Tensor {
	ctx.inBackward("SavedTensors")
	hs := make([]ctorch.Tensor, ctorch.FunctionSavedCount(ctx.node))
	if err := ctorch.FunctionSavedTensors(ctx.node, unsafe.SliceData(hs)); err != nil {
		panicC("SavedTensors", unsafe.Pointer(err))
	}
	return wrapHandles(hs)
}

// MarkDirty says that Forward changes these inputs in place. Forward must return them.
func (ctx *FunctionContext) MarkDirty(inputs ...Tensor) { ctx.dirty = inputs }

// MarkNonDifferentiable says that these outputs have no gradient.
func (ctx *FunctionContext) MarkNonDifferentiable(outputs ...Tensor) { ctx.constant = outputs }

// SetMaterializeGrads chooses what Backward gets for an output that received no gradient: zeros
// (true, as without this call) or none.
func (ctx *FunctionContext) SetMaterializeGrads(materialize bool) { ctx.sparing = !materialize }

// NeedsInputGrad reports whether the gradient of input i is wanted: in Forward, whether it may ever
// be; in Backward, whether this pass uses it. It panics with an IndexError if there is no such input.
func (ctx *FunctionContext) NeedsInputGrad(i int) bool {
	if i < 0 || i >= len(ctx.needs) {
		panic(newError("NeedsInputGrad", IndexError, fmt.Sprintf("input %d is out of range: the function has %d", i, len(ctx.needs))))
	}
	if ctx.node == nil {
		return ctx.needs[i]
	}
	return ctorch.FunctionNeedsInputGrad(ctx.node, int64(i))
}

func (ctx *FunctionContext) inBackward(op string) {
	if ctx.node == nil {
		panic(newError(op, RuntimeError, "there are no saved tensors outside of Backward"))
	}
}

// Apply calls f and makes it a node of the graph, if an input requires grad and grad mode is on. The
// node is named after f's type. It panics with what f.Forward panics with; with a TypeError if an
// output is none or f is nil; and with a RuntimeError if an input that was marked dirty is not returned.
func Apply(f Function, inputs ...Tensor) []Tensor {
	if f == nil {
		panic(newError("Apply", TypeError, "the Function is nil"))
	}
	name := functionName(f)
	ctx := &FunctionContext{f: f, name: name + "Backward", needs: make([]bool, len(inputs))}
	wanted := false
	if GradEnabled() {
		for i, t := range inputs {
			if t.T != nil {
				ctx.needs[i] = t.RequiresGrad()
				wanted = wanted || ctx.needs[i]
			}
		}
	}
	var outputs []Tensor
	NoGrad(func() { outputs = f.Forward(ctx, inputs) })

	var held holder
	defer held.free()
	in := held.given(name, "inputs", inputs)
	out := held.all(name, "outputs", outputs)
	saved := held.given(name, "saved", ctx.saved)
	dirty := held.all(name, "dirty", ctx.dirty)
	constant := held.all(name, "constant", ctx.constant)
	cName := append([]byte(ctx.name), 0)
	results := make([]ctorch.Tensor, len(out))
	var token int64
	if wanted {
		token = (&ctorch.Callback{Backward: func(node ctorch.FunctionContext, grads, results []ctorch.Tensor) ctorch.Message {
			return protect("in "+ctx.name, func() { ctx.backward(node, grads, results) })
		}}).Lend()
	}
	err := ctorch.ApplyFunction(cName, token, !ctx.sparing, in, out, saved, dirty, constant, results)
	// The graph keeps what it needs; the context lives as long as the graph.
	ctx.saved, ctx.dirty, ctx.constant = nil, nil, nil
	if err != nil {
		if wanted {
			ctorch.TakeBack(token)
		}
		panicC(name, unsafe.Pointer(err))
	}
	return wrapHandles(results)
}

func functionName(f Function) string {
	t := reflect.TypeOf(f)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Name() == "" {
		return "Function"
	}
	return t.Name()
}

// backward runs f.Backward for the engine.
func (ctx *FunctionContext) backward(node ctorch.FunctionContext, grads, results []ctorch.Tensor) {
	call := *ctx // of its own: the same node may run in several goroutines
	call.node = node
	if _, sparing := ctx.f.(keepsNothing); sparing {
		Scope0(func(*ScopeHandle) { call.backwardOf(grads, results) })
	} else {
		call.backwardOf(grads, results)
	}
}

// keepsNothing is a [Function] whose Backward keeps neither what it gets nor what it makes: all of it is freed when
// it has returned, but for what the engine has got.
type keepsNothing interface{ KeepsNothing() }

func (ctx *FunctionContext) backwardOf(grads, results []ctorch.Tensor) {
	in := make([]Tensor, len(grads))
	for i, g := range grads {
		in[i] = borrowed(g)
	}
	out := ctx.f.Backward(ctx, in)
	ctx.node = nil
	for i, t := range out {
		if i < len(results) {
			continue
		}
		if t.T != nil {
			panic(newError("", RuntimeError, fmt.Sprintf("Backward returned %d gradients for %d inputs", len(out), len(results))))
		}
	}
	if len(out) < len(results) {
		panic(newError("", RuntimeError, fmt.Sprintf("Backward returned %d gradients for %d inputs", len(out), len(results))))
	}
	var held holder
	defer func() { held.free() }() // unless the engine has them
	copy(results, held.given("", "gradient", out[:len(results)]))
	held = holder{}
}
