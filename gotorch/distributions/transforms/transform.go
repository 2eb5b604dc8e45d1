package transforms

import (
	"reflect"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
)

// Param is a [gotorch.Tensor] or a Go number.
type Param = numeric.Param

// Options are the arguments that all transforms have.
type Options struct {
	// CacheSize is 0, or 1 to remember the last input and output.
	CacheSize int64
}

// Transform is a map from a domain to a codomain. What one cannot do panics with a NotImplementedError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.Transform.
type Transform interface {
	// Domain and Codomain are where inputs and outputs lie.
	Domain() constraints.Constraint
	Codomain() constraints.Constraint
	// EventDim is the number of last dimensions that are transformed together. It panics with a ValueError
	// where that is not the same for inputs and outputs.
	EventDim() int64
	// Bijective reports whether Inv undoes Forward, and the other way round.
	Bijective() bool
	// Sign is the sign of the derivative, for bijective ones of single numbers: an int, or a tensor where it
	// depends on a parameter.
	Sign() Param
	// Forward transforms x.
	Forward(x gotorch.Tensor) gotorch.Tensor
	// Inv is the transform the other way. That of Inv is the transform itself.
	Inv() Transform
	// LogAbsDetJacobian is the logarithm of the absolute determinant of the derivative at x, where y is
	// Forward(x): for each event of x.
	LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor
	// ForwardShape and InverseShape tell the shape of a result from that of an argument.
	ForwardShape(shape []int64) []int64
	InverseShape(shape []int64) []int64
	// CacheSize is 0 or 1, and WithCache the same transform with another.
	CacheSize() int64
	WithCache(size int64) Transform
	// Equal reports whether other is known to do the same.
	Equal(other Transform) bool
	// String is what PyTorch prints.
	String() string

	// Call and Inverse compute, without the cache: what Forward and Inv().Forward stand on.
	Call(x gotorch.Tensor) gotorch.Tensor
	Inverse(y gotorch.Tensor) gotorch.Tensor

	base() *Base
}

// Base is what a transform embeds. See the package's documentation.
type Base struct {
	self      Transform
	cacheSize int64

	mutex sync.Mutex // guards what follows
	inv   Transform
	x, y  gotorch.Tensor // of the last call
}

// Init makes t ready, whose type embeds [Base], and returns it. It panics with a ValueError for a CacheSize
// other than 0 and 1.
func Init[T Transform](t T, opts ...Options) T {
	size := args.Option(opts).CacheSize
	if size != 0 && size != 1 {
		panic(numeric.Errorf("transforms.Init", gotorch.ValueError, "cache_size must be 0 or 1"))
	}
	b := t.base()
	b.self, b.cacheSize = t, size
	return t
}

func (b *Base) base() *Base {
	return b
}

// ready returns the transform that b is embedded in.
func (b *Base) ready() Transform {
	if b.self == nil {
		panic(numeric.Errorf("transforms", gotorch.ValueError, "a transform was not made ready: give it to transforms.Init"))
	}
	return b.self
}

func (b *Base) missing(what string) *gotorch.Error {
	return numeric.Errorf("transforms", gotorch.NotImplementedError, "%s has no %s", className(b.ready()), what)
}

// Domain panics with a NotImplementedError: each transform has its own.
func (b *Base) Domain() constraints.Constraint { panic(b.missing("Domain")) }

// Codomain panics with a NotImplementedError: each transform has its own.
func (b *Base) Codomain() constraints.Constraint { panic(b.missing("Codomain")) }

// EventDim is part of [Transform].
func (b *Base) EventDim() int64 {
	in, out := b.ready().Domain().EventDim(), b.self.Codomain().EventDim()
	if in != out {
		panic(numeric.Errorf("transforms.EventDim", gotorch.ValueError, "Please use either .domain.event_dim or .codomain.event_dim"))
	}
	return in
}

// Bijective returns false.
func (b *Base) Bijective() bool { return false }

// Sign panics with a NotImplementedError.
func (b *Base) Sign() Param { panic(b.missing("Sign")) }

// Call panics with a NotImplementedError.
func (b *Base) Call(gotorch.Tensor) gotorch.Tensor { panic(b.missing("Forward")) }

// Inverse panics with a NotImplementedError.
func (b *Base) Inverse(gotorch.Tensor) gotorch.Tensor { panic(b.missing("Inverse")) }

// LogAbsDetJacobian panics with a NotImplementedError.
func (b *Base) LogAbsDetJacobian(_, _ gotorch.Tensor) gotorch.Tensor {
	panic(b.missing("LogAbsDetJacobian"))
}

// Forward is part of [Transform].
func (b *Base) Forward(x gotorch.Tensor) gotorch.Tensor {
	numeric.MustTensor("transforms.Forward", "x", x)
	if b.cacheSize == 0 {
		return b.ready().Call(x)
	}
	if y, ok := b.cached(x, &b.x, &b.y); ok {
		return y
	}
	y := b.ready().Call(x)
	b.remember(x, y)
	return y
}

// inverse is the other way, by the same cache.
func (b *Base) inverse(y gotorch.Tensor) gotorch.Tensor {
	numeric.MustTensor("transforms.Forward", "x", y)
	if b.cacheSize == 0 {
		return b.ready().Inverse(y)
	}
	if x, ok := b.cached(y, &b.y, &b.x); ok {
		return x
	}
	x := b.ready().Inverse(y)
	b.remember(x, y)
	return x
}

// cached returns the other one of the pair where t is the one, and both have not been closed.
func (b *Base) cached(t gotorch.Tensor, one, other *gotorch.Tensor) (gotorch.Tensor, bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return *other, one.T == t.T && one.Defined() && other.Defined()
}

func (b *Base) remember(x, y gotorch.Tensor) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.x, b.y = x, y
}

// Inv is part of [Transform].
func (b *Base) Inv() Transform {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.inv == nil {
		b.inv = Init(&InverseTransform{of: b.ready()}, Options{b.cacheSize})
	}
	return b.inv
}

// ForwardShape is part of [Transform].
func (b *Base) ForwardShape(shape []int64) []int64 { return shape }

// InverseShape is part of [Transform].
func (b *Base) InverseShape(shape []int64) []int64 { return shape }

// CacheSize is part of [Transform].
func (b *Base) CacheSize() int64 { return b.cacheSize }

// WithCache is part of [Transform]: a copy of the struct with a cache of its own.
func (b *Base) WithCache(size int64) Transform {
	if b.cacheSize == size {
		return b.ready()
	}
	from := reflect.ValueOf(b.ready()).Elem()
	to := reflect.New(from.Type())
	for i := range from.NumField() {
		// The base, with its mutex, is not copied; the fields may be unexported.
		if f := from.Type().Field(i); f.Type != reflect.TypeFor[Base]() {
			address := func(v reflect.Value) reflect.Value {
				return reflect.NewAt(f.Type, v.Field(i).Addr().UnsafePointer()).Elem()
			}
			address(to.Elem()).Set(address(from))
		}
	}
	made := to.Interface().(Transform)
	*made.base() = Base{} // a struct that embeds another transform has that one's base, which was copied with it
	return Init(made, Options{size})
}

// Equal is part of [Transform]: whether other is this one.
func (b *Base) Equal(other Transform) bool { return b.ready() == other }

// String is part of [Transform].
func (b *Base) String() string { return className(b.ready()) + "()" }

func className(t Transform) string {
	name := reflect.TypeOf(t).Elem().Name()
	if name == "InverseTransform" {
		name = "_InverseTransform"
	}
	return name
}

// sameType is the Equal of transforms without parameters.
func sameType[T Transform](other Transform) bool {
	_, ok := other.(T)
	return ok
}

// The other way -----------------------------------------------------------------------------------------

// InverseTransform is what Inv of another transform is.
type InverseTransform struct {
	Base
	of Transform
}

// Domain is part of [Transform].
func (t *InverseTransform) Domain() constraints.Constraint { return t.of.Codomain() }

// Codomain is part of [Transform].
func (t *InverseTransform) Codomain() constraints.Constraint { return t.of.Domain() }

// Bijective is part of [Transform].
func (t *InverseTransform) Bijective() bool { return t.of.Bijective() }

// Sign is part of [Transform].
func (t *InverseTransform) Sign() Param { return t.of.Sign() }

// Inv is part of [Transform].
func (t *InverseTransform) Inv() Transform { return t.of }

// WithCache is part of [Transform].
func (t *InverseTransform) WithCache(size int64) Transform { return t.of.WithCache(size).Inv() }

// Equal is part of [Transform].
func (t *InverseTransform) Equal(other Transform) bool {
	o, ok := other.(*InverseTransform)
	return ok && same(t.of, o.of)
}

// same is Python's == for elements of lists, which are equal where they are one thing.
func same(a, b Transform) bool { return a == b || a.Equal(b) }

// String is part of [Transform].
func (t *InverseTransform) String() string { return "_InverseTransform(" + t.of.String() + ")" }

// Forward is part of [Transform].
func (t *InverseTransform) Forward(x gotorch.Tensor) gotorch.Tensor { return t.of.base().inverse(x) }

// Call is part of [Transform].
func (t *InverseTransform) Call(x gotorch.Tensor) gotorch.Tensor { return t.of.Inverse(x) }

// Inverse is part of [Transform].
func (t *InverseTransform) Inverse(y gotorch.Tensor) gotorch.Tensor { return t.of.Call(y) }

// LogAbsDetJacobian is part of [Transform].
func (t *InverseTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return t.of.LogAbsDetJacobian(y, x).Neg()
}

// ForwardShape is part of [Transform].
func (t *InverseTransform) ForwardShape(shape []int64) []int64 { return t.of.InverseShape(shape) }

// InverseShape is part of [Transform].
func (t *InverseTransform) InverseShape(shape []int64) []int64 { return t.of.ForwardShape(shape) }
