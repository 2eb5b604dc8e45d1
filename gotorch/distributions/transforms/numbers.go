package transforms

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/libm"
)

// ExpTransform is what [Exp] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ExpTransform.
type ExpTransform struct{ Base }

// Exp is y = exp(x).
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ExpTransform.
func Exp(opts ...Options) *ExpTransform { return Init(&ExpTransform{}, opts...) }

// Domain is part of [Transform].
func (t *ExpTransform) Domain() constraints.Constraint { return constraints.Real }

// Codomain is part of [Transform].
func (t *ExpTransform) Codomain() constraints.Constraint { return constraints.Positive }

// Bijective is part of [Transform].
func (t *ExpTransform) Bijective() bool { return true }

// Sign is part of [Transform].
func (t *ExpTransform) Sign() Param { return 1 }

// Equal is part of [Transform].
func (t *ExpTransform) Equal(other Transform) bool { return sameType[*ExpTransform](other) }

// Call is part of [Transform].
func (t *ExpTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return x.Exp()
}

// Inverse is part of [Transform].
func (t *ExpTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return y.Log()
}

// LogAbsDetJacobian is part of [Transform].
func (t *ExpTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return x
}

// PowerTransform is what [Power] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.PowerTransform.
type PowerTransform struct {
	Base
	Exponent gotorch.Tensor
}

// Power is y = x to the power of exponent, a tensor or a number, for positive x.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.PowerTransform.
func Power(exponent Param, opts ...Options) *PowerTransform {
	e := numeric.Broadcast("transforms.Power", []string{"exponent"}, exponent)[0]
	return Init(&PowerTransform{Exponent: e}, opts...)
}

// Domain is part of [Transform].
func (t *PowerTransform) Domain() constraints.Constraint { return constraints.Positive }

// Codomain is part of [Transform].
func (t *PowerTransform) Codomain() constraints.Constraint { return constraints.Positive }

// Bijective is part of [Transform].
func (t *PowerTransform) Bijective() bool { return true }

// Sign is part of [Transform].
func (t *PowerTransform) Sign() Param { return t.Exponent.Sign() }

// Equal is part of [Transform].
func (t *PowerTransform) Equal(other Transform) bool {
	o, ok := other.(*PowerTransform)
	return ok && numeric.Whole(t.Exponent.Eq(o.Exponent))
}

// Call is part of [Transform].
func (t *PowerTransform) Call(x gotorch.Tensor) gotorch.Tensor { return x.PowTensor(t.Exponent) }

// Inverse is part of [Transform].
func (t *PowerTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return y.PowTensor(numeric.Over(1, t.Exponent))
}

// LogAbsDetJacobian is part of [Transform].
func (t *PowerTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return t.Exponent.Mul(y).Div(x).Abs().Log()
}

// ForwardShape is part of [Transform].
func (t *PowerTransform) ForwardShape(shape []int64) []int64 {
	return numeric.BroadcastShapes("transforms.Power", shape, t.Exponent.Shape())
}

// InverseShape is part of [Transform].
func (t *PowerTransform) InverseShape(shape []int64) []int64 { return t.ForwardShape(shape) }

// SigmoidTransform is what [Sigmoid] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SigmoidTransform.
type SigmoidTransform struct{ Base }

// Sigmoid is y = 1 / (1 + exp(-x)), kept from being 0 or 1.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SigmoidTransform.
func Sigmoid(opts ...Options) *SigmoidTransform { return Init(&SigmoidTransform{}, opts...) }

// Domain is part of [Transform].
func (t *SigmoidTransform) Domain() constraints.Constraint { return constraints.Real }

// Codomain is part of [Transform].
func (t *SigmoidTransform) Codomain() constraints.Constraint { return constraints.UnitInterval }

// Bijective is part of [Transform].
func (t *SigmoidTransform) Bijective() bool { return true }

// Sign is part of [Transform].
func (t *SigmoidTransform) Sign() Param { return 1 }

// Equal is part of [Transform].
func (t *SigmoidTransform) Equal(other Transform) bool { return sameType[*SigmoidTransform](other) }

// Call is part of [Transform].
func (t *SigmoidTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return clippedSigmoid(x)
}

// Inverse is part of [Transform].
func (t *SigmoidTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	y = clipped(y, y.DType())
	return y.Log().Sub(y.Neg().Log1p())
}

// LogAbsDetJacobian is part of [Transform].
func (t *SigmoidTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return gotorch.Softplus(x.Neg()).Neg().Sub(gotorch.Softplus(x))
}

// clipped keeps numbers from 0 and 1, by the precision of dtype d.
func clipped(t gotorch.Tensor, d gotorch.DType) gotorch.Tensor {
	return t.Clamp(gotorch.ClampOptions{Min: numeric.Tiny(d), Max: 1.0 - numeric.Eps(d)})
}

func clippedSigmoid(x gotorch.Tensor) gotorch.Tensor { return clipped(x.Sigmoid(), x.DType()) }

// SoftplusTransform is what [Softplus] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SoftplusTransform.
type SoftplusTransform struct{ Base }

// Softplus is y = log(1 + exp(x)).
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SoftplusTransform.
func Softplus(opts ...Options) *SoftplusTransform { return Init(&SoftplusTransform{}, opts...) }

// Domain is part of [Transform].
func (t *SoftplusTransform) Domain() constraints.Constraint { return constraints.Real }

// Codomain is part of [Transform].
func (t *SoftplusTransform) Codomain() constraints.Constraint { return constraints.Positive }

// Bijective is part of [Transform].
func (t *SoftplusTransform) Bijective() bool { return true }

// Sign is part of [Transform].
func (t *SoftplusTransform) Sign() Param { return 1 }

// Equal is part of [Transform].
func (t *SoftplusTransform) Equal(other Transform) bool { return sameType[*SoftplusTransform](other) }

// Call is part of [Transform].
func (t *SoftplusTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return gotorch.Softplus(x)
}

// Inverse is part of [Transform].
func (t *SoftplusTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return y.Neg().Expm1().Neg().Log().Add(y)
}

// LogAbsDetJacobian is part of [Transform].
func (t *SoftplusTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return gotorch.Softplus(x.Neg()).Neg()
}

// TanhTransform is what [Tanh] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.TanhTransform.
type TanhTransform struct{ Base }

// Tanh is y = tanh(x). It is more exact than an [Affine] of a [Sigmoid].
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.TanhTransform.
func Tanh(opts ...Options) *TanhTransform { return Init(&TanhTransform{}, opts...) }

// Domain is part of [Transform].
func (t *TanhTransform) Domain() constraints.Constraint { return constraints.Real }

// Codomain is part of [Transform].
func (t *TanhTransform) Codomain() constraints.Constraint { return constraints.Interval(-1.0, 1.0) }

// Bijective is part of [Transform].
func (t *TanhTransform) Bijective() bool { return true }

// Sign is part of [Transform].
func (t *TanhTransform) Sign() Param { return 1 }

// Equal is part of [Transform].
func (t *TanhTransform) Equal(other Transform) bool { return sameType[*TanhTransform](other) }

// Call is part of [Transform].
func (t *TanhTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return x.Tanh()
}

// Inverse is part of [Transform].
func (t *TanhTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return y.Atanh()
}

// LogAbsDetJacobian is part of [Transform].
func (t *TanhTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return numeric.From(math.Ln2, x).Sub(gotorch.Softplus(x.MulScalar(-2.0))).MulScalar(2.0)
}

// AbsTransform is what [Abs] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.AbsTransform.
type AbsTransform struct{ Base }

// Abs is y = |x|, which is not bijective: its inverse is the positive one of both.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.AbsTransform.
func Abs(opts ...Options) *AbsTransform { return Init(&AbsTransform{}, opts...) }

// Domain is part of [Transform].
func (t *AbsTransform) Domain() constraints.Constraint { return constraints.Real }

// Codomain is part of [Transform].
func (t *AbsTransform) Codomain() constraints.Constraint { return constraints.Positive }

// Equal is part of [Transform].
func (t *AbsTransform) Equal(other Transform) bool { return sameType[*AbsTransform](other) }

// Call is part of [Transform].
func (t *AbsTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return x.Abs()
}

// Inverse is part of [Transform].
func (t *AbsTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return y
}

// AffineTransform is what [Affine] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.AffineTransform.
type AffineTransform struct {
	Base
	Loc, Scale Param
	eventDim   int64
}

// AffineOptions are the arguments of [Affine] that have defaults.
type AffineOptions struct {
	// EventDim is the number of last dimensions that are one event: 0 for numbers, 1 for vectors.
	EventDim  int64
	CacheSize int64
}

// Affine is y = loc + scale * x, with tensors or numbers. It panics with a TypeError for anything else, and with a
// ValueError for a negative EventDim.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.AffineTransform.
func Affine(loc, scale Param, opts ...AffineOptions) *AffineTransform {
	opt := args.Option(opts)
	notNegative("Affine", "event_dim", opt.EventDim)
	t := &AffineTransform{
		Loc: numeric.Check("transforms.Affine", "loc", loc), Scale: numeric.Check("transforms.Affine", "scale", scale),
		eventDim: opt.EventDim,
	}
	return Init(t, Options{opt.CacheSize})
}

// EventDim is part of [Transform].
func (t *AffineTransform) EventDim() int64 { return t.eventDim }

// Domain is part of [Transform].
func (t *AffineTransform) Domain() constraints.Constraint {
	if t.eventDim == 0 {
		return constraints.Real
	}
	return constraints.Independent(constraints.Real, t.eventDim)
}

// Codomain is part of [Transform].
func (t *AffineTransform) Codomain() constraints.Constraint { return t.Domain() }

// Bijective is part of [Transform].
func (t *AffineTransform) Bijective() bool { return true }

// Equal is part of [Transform].
func (t *AffineTransform) Equal(other Transform) bool {
	o, ok := other.(*AffineTransform)
	return ok && equal(t.Loc, o.Loc) && equal(t.Scale, o.Scale)
}

func equal(a, b Param) bool {
	t, ok := numeric.AsTensor(a)
	if !ok {
		if t, ok = numeric.AsTensor(b); !ok {
			return numeric.Float(a) == numeric.Float(b)
		}
		b = a
	}
	if u, ok := numeric.AsTensor(b); ok {
		return numeric.Whole(t.Eq(u))
	}
	return numeric.Whole(t.EqScalar(b))
}

// Sign is part of [Transform].
func (t *AffineTransform) Sign() Param {
	if scale, ok := numeric.AsTensor(t.Scale); ok {
		return scale.Sign()
	}
	switch scale := numeric.Float(t.Scale); {
	case scale > 0:
		return 1
	case scale < 0:
		return -1
	}
	return 0
}

// Call is part of [Transform].
func (t *AffineTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return numeric.Add(t.Loc, numeric.Mul(t.Scale, x))
}

// Inverse is part of [Transform].
func (t *AffineTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return numeric.Div(numeric.Sub(y, t.Loc), t.Scale)
}

// LogAbsDetJacobian is part of [Transform].
func (t *AffineTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	shape := x.Shape()
	var result gotorch.Tensor
	if scale, ok := numeric.AsTensor(t.Scale); ok {
		result = scale.Abs().Log()
	} else {
		scale := math.Abs(numeric.Float(t.Scale))
		if scale == 0 {
			panic(numeric.Errorf("transforms.Affine", gotorch.ValueError, "a scale of 0 has no LogAbsDetJacobian"))
		}
		result = gotorch.FullLike(x, libm.Log(scale))
	}
	if t.eventDim != 0 {
		result = result.View(numeric.Join(numeric.Front(result.Shape(), t.eventDim), -1)).SumDim([]int64{-1})
		shape = numeric.Front(shape, t.eventDim)
	}
	return result.Expand(shape)
}

// ForwardShape is part of [Transform].
func (t *AffineTransform) ForwardShape(shape []int64) []int64 {
	return numeric.BroadcastShapes("transforms.Affine", shape, numeric.ShapeOf(t.Loc), numeric.ShapeOf(t.Scale))
}

// InverseShape is part of [Transform].
func (t *AffineTransform) InverseShape(shape []int64) []int64 { return t.ForwardShape(shape) }

// Distribution is what [CumulativeDistribution] needs of a distribution.
type Distribution interface {
	Support() constraints.Constraint
	CDF(value gotorch.Tensor) gotorch.Tensor
	ICDF(value gotorch.Tensor) gotorch.Tensor
	LogProb(value gotorch.Tensor) gotorch.Tensor
}

// CumulativeDistributionTransform is what [CumulativeDistribution] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CumulativeDistributionTransform.
type CumulativeDistributionTransform struct {
	Base
	Distribution Distribution
}

// CumulativeDistribution is y = the probability under a distribution of a value up to x.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CumulativeDistributionTransform.
func CumulativeDistribution(distribution Distribution, opts ...Options) *CumulativeDistributionTransform {
	if numeric.IsNil(distribution) {
		panic(numeric.Errorf("transforms.CumulativeDistribution", gotorch.TypeError, "the distribution is nil"))
	}
	return Init(&CumulativeDistributionTransform{Distribution: distribution}, opts...)
}

// Domain is part of [Transform].
func (t *CumulativeDistributionTransform) Domain() constraints.Constraint {
	return t.Distribution.Support()
}

// Codomain is part of [Transform].
func (t *CumulativeDistributionTransform) Codomain() constraints.Constraint {
	return constraints.UnitInterval
}

// Bijective is part of [Transform].
func (t *CumulativeDistributionTransform) Bijective() bool { return true }

// Sign is part of [Transform].
func (t *CumulativeDistributionTransform) Sign() Param { return 1 }

// Call is part of [Transform].
func (t *CumulativeDistributionTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return t.Distribution.CDF(x)
}

// Inverse is part of [Transform].
func (t *CumulativeDistributionTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return t.Distribution.ICDF(y)
}

// LogAbsDetJacobian is part of [Transform].
func (t *CumulativeDistributionTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return t.Distribution.LogProb(x)
}
