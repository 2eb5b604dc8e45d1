package nn

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// IdentityModule is what [Identity] makes.
type IdentityModule struct{ Module }

// Identity returns what it gets.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Identity.html.
func Identity() *IdentityModule { return Init(&IdentityModule{}) }

// Forward returns x.
func (m *IdentityModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(func(x gotorch.Tensor) gotorch.Tensor { return x }, x)
	}
	return x
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *IdentityModule) KeepsNothing() bool { return m.plain(m) }

// FuncModule is what [Func] makes.
type FuncModule struct {
	Module
	name string
	fn   func(x gotorch.Tensor) gotorch.Tensor
}

// Func makes a layer of a function, for a [Sequential]; String shows it by name. A function of package
// functional is one, with its options:
//
//	nn.Func("scale", func(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(0.5) })
//
// It panics with a TypeError if fn is nil.
func Func(name string, fn func(x gotorch.Tensor) gotorch.Tensor) *FuncModule {
	if fn == nil {
		panic(typeError("nn.Func", "the function %s is nil", name))
	}
	return Init(&FuncModule{name: name, fn: fn})
}

// Forward returns what the function makes of x.
func (m *FuncModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.fn == nil {
		panic(typeError("nn.Func", "%T was not made by nn.Func", m))
	}
	if m.hooked(m) {
		return m.around1(m.fn, x)
	}
	return m.fn(x)
}

// ExtraRepr returns the function's name.
func (m *FuncModule) ExtraRepr() string { return m.name }

// FlattenModule is what [Flatten] makes.
type FlattenModule struct {
	Module
	StartDim, EndDim int64
}

// FlattenOptions are the arguments of [Flatten] that have defaults.
type FlattenOptions struct {
	StartDim gotorch.Scalar // default: 1
	EndDim   gotorch.Scalar // default: -1
}

// Flatten joins the dimensions from StartDim to EndDim to one: (N, C, H, W) → (N, C·H·W).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.flatten.Flatten.html.
func Flatten(opts ...FlattenOptions) *FlattenModule {
	const op = "nn.Flatten"
	opt := args.Option(opts)
	return Init(&FlattenModule{StartDim: args.Int(op, "StartDim", opt.StartDim, 1), EndDim: args.Int(op, "EndDim", opt.EndDim, -1)})
}

// Forward returns x with fewer dimensions, without copying where it can.
func (m *FlattenModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *FlattenModule) forward(x gotorch.Tensor) gotorch.Tensor {
	return x.Flatten(gotorch.FlattenOptions{StartDim: m.StartDim, EndDim: &m.EndDim})
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *FlattenModule) KeepsNothing() bool { return m.plain(m) }

// ExtraRepr returns what String writes between the parentheses.
func (m *FlattenModule) ExtraRepr() string {
	return fmt.Sprintf("start_dim=%d, end_dim=%d", m.StartDim, m.EndDim)
}

// UnflattenModule is what [Unflatten] makes.
type UnflattenModule struct {
	Module
	Dim             int64
	UnflattenedSize []int64
}

// Unflatten makes a dimension into several, of which one may be -1, for what is left:
// (*, S, *) → (*, unflattenedSize..., *).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.flatten.Unflatten.html.
func Unflatten(dim int64, unflattenedSize []int64) *UnflattenModule {
	return Init(&UnflattenModule{Dim: dim, UnflattenedSize: slices.Clone(unflattenedSize)})
}

// Forward returns x with more dimensions, without copying.
func (m *UnflattenModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *UnflattenModule) forward(x gotorch.Tensor) gotorch.Tensor {
	return x.Unflatten(m.Dim, m.UnflattenedSize)
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *UnflattenModule) KeepsNothing() bool { return m.plain(m) }

// ExtraRepr returns what String writes between the parentheses.
func (m *UnflattenModule) ExtraRepr() string {
	return fmt.Sprintf("dim=%d, unflattened_size=%s", m.Dim, pyTuple(m.UnflattenedSize))
}
