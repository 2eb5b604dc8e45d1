package distributions

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
)

// Param is a [gotorch.Tensor] or a Go number. Anything else is a TypeError.
type Param = numeric.Param

// Options are the arguments that all distributions have.
type Options struct {
	// NoValidateArgs leaves out that parameters, and the values of LogProb and CDF, are checked.
	NoValidateArgs bool
}

// Distribution is a batch of probability distributions. What one cannot do panics with a NotImplementedError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.distribution.Distribution.
type Distribution interface {
	// BatchShape is the shape of the batch, and EventShape that of one sample of one of them.
	BatchShape() []int64
	EventShape() []int64
	// Support is where values lie, and ArgConstraints where parameters do.
	Support() constraints.Constraint
	ArgConstraints() []ArgConstraint
	// HasRSample reports whether there is RSample, HasEnumerateSupport whether there is EnumerateSupport.
	HasRSample() bool
	HasEnumerateSupport() bool

	// Sample draws a tensor of samples, of shape sampleShape + BatchShape + EventShape, without a gradient.
	Sample(sampleShape ...int64) gotorch.Tensor
	// RSample is Sample where gradients flow from the samples to the parameters.
	RSample(sampleShape ...int64) gotorch.Tensor
	// LogProb is the logarithm of the density or of the probability at value, for each event. With checked
	// arguments it panics with a ValueError for a value outside of Support, or of a shape that does not fit.
	LogProb(value gotorch.Tensor) gotorch.Tensor
	// CDF is the probability of a number up to value, and ICDF the number up to which it is value.
	CDF(value gotorch.Tensor) gotorch.Tensor
	ICDF(value gotorch.Tensor) gotorch.Tensor

	// Mean, Mode, Variance and StdDev are of shape BatchShape + EventShape; where there is none they are NaN or
	// infinite, or there is a NotImplementedError.
	Mean() gotorch.Tensor
	Mode() gotorch.Tensor
	Variance() gotorch.Tensor
	StdDev() gotorch.Tensor
	// Entropy is in nats, and Perplexity its exponential, of BatchShape.
	Entropy() gotorch.Tensor
	Perplexity() gotorch.Tensor
	// EnumerateSupport lists all values along a new first dimension.
	EnumerateSupport(opts ...EnumerateSupportOptions) gotorch.Tensor

	// Expand is the same distribution for a bigger batch: its parameters are views. Nothing is checked again.
	Expand(batchShape ...int64) Distribution
	// String is what PyTorch prints: Normal(loc: 0.0, scale: 1.0).
	String() string
	// Parameters are the parameters with their names and constraints.
	Parameters() []Parameter

	base() *Base
}

// EnumerateSupportOptions are the arguments of EnumerateSupport that have defaults.
type EnumerateSupportOptions struct {
	// NoExpand leaves the dimensions of the batch at size 1.
	NoExpand bool
}

// ArgConstraint is a parameter's name and where its values lie.
type ArgConstraint struct {
	Name       string
	Constraint constraints.Constraint
}

// Parameter is a parameter of a distribution.
type Parameter struct {
	Name       string
	Constraint constraints.Constraint
	// Value is none where the parameter follows from another and has not been asked for yet: then it is not
	// checked.
	Value gotorch.Tensor
	// Unprinted parameters are left out of String.
	Unprinted bool
}

// Base is what a distribution embeds. See [Init].
type Base struct {
	self       Distribution
	batch      []int64
	event      []int64
	validation *bool // nil is the default of the package
}

var unchecked atomic.Bool

// SetDefaultValidateArgs sets whether arguments are checked where no option says that they are not. They are, unless
// this was called.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.distribution.Distribution.set_default_validate_args.
func SetDefaultValidateArgs(validate bool) { unchecked.Store(!validate) }

// Init makes d ready, whose type embeds [Base], for batches and events of these shapes; it checks d's
// Parameters, which have to be set, and returns d. It panics with a ValueError if one lies outside of its
// constraint. A distribution of your own needs no more than what it is asked for:
//
//	type Triangular struct {
//		distributions.Base
//		Width gotorch.Tensor
//	}
//
//	func NewTriangular(width gotorch.Tensor) *Triangular {
//		return distributions.Init(&Triangular{Width: width}, width.Shape(), nil)
//	}
//
//	func (d *Triangular) Parameters() []distributions.Parameter {
//		return []distributions.Parameter{{Name: "width", Constraint: constraints.Positive, Value: d.Width}}
//	}
//	func (d *Triangular) HasRSample() bool { return true }
//	func (d *Triangular) RSample(shape ...int64) gotorch.Tensor {
//		u := gotorch.Rand(append([]int64{2}, d.ExtendedShape(shape...)...))
//		return u.Select(0, 0).Sub(u.Select(0, 1)).Mul(d.Width)
//	}
func Init[D Distribution](d D, batchShape, eventShape []int64, opts ...Options) D {
	b := d.base()
	b.self, b.batch, b.event = d, slices.Clone(batchShape), slices.Clone(eventShape)
	if args.Option(opts).NoValidateArgs {
		b.validation = new(false)
	}
	if b.Validates() {
		for _, p := range d.Parameters() {
			b.check(p)
		}
	}
	return d
}

// check panics with a ValueError if a parameter lies outside of its constraint.
func (b *Base) check(p Parameter) {
	if p.Value.T == nil || constraints.IsDependent(p.Constraint) || numeric.Whole(p.Constraint.Check(p.Value)) {
		return
	}
	panic(b.errorf(gotorch.ValueError,
		"Expected parameter %s (Tensor of shape %s) of distribution %s to satisfy the constraint %s, but found invalid values:\n%s",
		p.Name, numeric.Tuple(p.Value.Shape()), b.self, p.Constraint, p.Value))
}

// expanded makes d ready, which is of with other shapes; nothing is checked now, and later what is checked of of.
func expanded[D Distribution](of *Base, d D, batchShape, eventShape []int64) D {
	b := d.base()
	b.self, b.batch, b.event = d, slices.Clone(batchShape), eventShape
	b.validation = new(of.Validates())
	return d
}

func (b *Base) base() *Base { return b }

// ready returns the distribution that b is embedded in.
func (b *Base) ready() Distribution {
	if b.self == nil {
		panic(numeric.Errorf("distributions", gotorch.ValueError, "a distribution was not made ready: give it to distributions.Init"))
	}
	return b.self
}

func (b *Base) errorf(kind gotorch.ErrorKind, format string, values ...any) *gotorch.Error {
	return numeric.Errorf("distributions."+className(b.ready()), kind, format, values...)
}

func (b *Base) missing(what string) *gotorch.Error {
	return b.errorf(gotorch.NotImplementedError, "%s has no %s", className(b.ready()), what)
}

// className returns the name of a distribution's class in PyTorch: NormalDistribution is Normal.
func className(d Distribution) string {
	t := reflect.TypeOf(d)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	if t.PkgPath() == reflect.TypeFor[Base]().PkgPath() && name != "TransformedDistribution" {
		name = strings.TrimSuffix(name, "Distribution")
	}
	return name
}

// Validates reports whether arguments are checked.
func (b *Base) Validates() bool {
	if b.validation != nil {
		return *b.validation
	}
	return !unchecked.Load()
}

// BatchShape is part of [Distribution].
func (b *Base) BatchShape() []int64 { return slices.Clone(b.batch) }

// EventShape is part of [Distribution].
func (b *Base) EventShape() []int64 { return slices.Clone(b.event) }

// ExtendedShape is the shape of Sample(sampleShape...): with those of the batch and of an event behind it.
func (b *Base) ExtendedShape(sampleShape ...int64) []int64 {
	return slices.Concat(sampleShape, b.batch, b.event)
}

// Parameters returns nothing.
func (b *Base) Parameters() []Parameter { return nil }

// ArgConstraints is part of [Distribution].
func (b *Base) ArgConstraints() []ArgConstraint {
	var found []ArgConstraint
	for _, p := range b.ready().Parameters() {
		found = append(found, ArgConstraint{p.Name, p.Constraint})
	}
	return found
}

// Support panics with a NotImplementedError.
func (b *Base) Support() constraints.Constraint { panic(b.missing("Support")) }

// HasRSample returns false.
func (b *Base) HasRSample() bool { return false }

// HasEnumerateSupport returns false.
func (b *Base) HasEnumerateSupport() bool { return false }

// Sample is RSample without a gradient.
func (b *Base) Sample(sampleShape ...int64) gotorch.Tensor {
	return gotorch.NoGrad1(func() gotorch.Tensor { return b.ready().RSample(sampleShape...) })
}

// RSample panics with a NotImplementedError.
func (b *Base) RSample(...int64) gotorch.Tensor { panic(b.missing("RSample")) }

// LogProb panics with a NotImplementedError.
func (b *Base) LogProb(gotorch.Tensor) gotorch.Tensor { panic(b.missing("LogProb")) }

// CDF panics with a NotImplementedError.
func (b *Base) CDF(gotorch.Tensor) gotorch.Tensor { panic(b.missing("CDF")) }

// ICDF panics with a NotImplementedError.
func (b *Base) ICDF(gotorch.Tensor) gotorch.Tensor { panic(b.missing("ICDF")) }

// Mean panics with a NotImplementedError.
func (b *Base) Mean() gotorch.Tensor { panic(b.missing("Mean")) }

// Mode panics with a NotImplementedError.
func (b *Base) Mode() gotorch.Tensor { panic(b.missing("Mode")) }

// Variance panics with a NotImplementedError.
func (b *Base) Variance() gotorch.Tensor { panic(b.missing("Variance")) }

// StdDev is the square root of the Variance.
func (b *Base) StdDev() gotorch.Tensor { return b.ready().Variance().Sqrt() }

// Entropy panics with a NotImplementedError.
func (b *Base) Entropy() gotorch.Tensor { panic(b.missing("Entropy")) }

// Perplexity is the exponential of the Entropy.
func (b *Base) Perplexity() gotorch.Tensor { return b.ready().Entropy().Exp() }

// EnumerateSupport panics with a NotImplementedError.
func (b *Base) EnumerateSupport(...EnumerateSupportOptions) gotorch.Tensor {
	panic(b.missing("EnumerateSupport"))
}

// Expand panics with a NotImplementedError.
func (b *Base) Expand(...int64) Distribution { panic(b.missing("Expand")) }

// String is part of [Distribution].
func (b *Base) String() string {
	var parts []string
	for _, p := range b.ready().Parameters() {
		if p.Value.T == nil || p.Unprinted {
			continue
		}
		text := numeric.Size(p.Value.Shape())
		if p.Value.Numel() == 1 {
			text = numeric.Text(p.Value)
		}
		parts = append(parts, p.Name+": "+text)
	}
	return className(b.self) + "(" + strings.Join(parts, ", ") + ")"
}

// CheckSample panics with a ValueError if value is not one that LogProb takes: where its shape does not fit the
// distribution's, or where it lies outside of its Support. It does nothing where arguments are not checked.
func (b *Base) CheckSample(value gotorch.Tensor) {
	b.ready()
	if value.T == nil {
		panic(b.errorf(gotorch.TypeError, "value is none, where a tensor is required"))
	}
	if b.Validates() {
		b.checkSample(value)
	}
}

// checkSample is CheckSample in any case.
func (b *Base) checkSample(value gotorch.Tensor) {
	shape := value.Shape()
	if start := len(shape) - len(b.event); start < 0 || !slices.Equal(shape[start:], b.event) {
		panic(b.errorf(gotorch.ValueError, "The right-most size of value must match event_shape: %s vs %s.",
			numeric.Size(shape), numeric.Size(b.event)))
	}
	expected := b.ExtendedShape()
	for i := range min(len(shape), len(expected)) {
		m, n := shape[len(shape)-1-i], expected[len(expected)-1-i]
		if m != 1 && n != 1 && m != n {
			panic(b.errorf(gotorch.ValueError, "Value is not broadcastable with batch_shape+event_shape: %s vs %s.",
				numeric.Size(shape), numeric.Size(expected)))
		}
	}
	support, err := gotorch.Try(b.self.Support)
	if err != nil {
		if errors.Is(err, gotorch.NotImplementedError) {
			return // a distribution that does not say where its values lie
		}
		panic(err)
	}
	if !numeric.Whole(support.Check(value)) {
		panic(b.errorf(gotorch.ValueError,
			"Expected value argument (Tensor of shape %s) to be within the support (%s) of the distribution %s, but found invalid values:\n%s",
			numeric.Tuple(shape), support, b.self, value))
	}
}
