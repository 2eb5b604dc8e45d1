package distributions

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/distributions/transforms"
)

// TransformedDistribution is what [Transformed] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transformed_distribution.TransformedDistribution.
type TransformedDistribution struct {
	Base
	BaseDist   Distribution
	Transforms []transforms.Transform
}

// Transformed is the distribution of what transforms, one after the other, make of a sample of base. It panics
// with a ValueError if base has too few dimensions for them.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transformed_distribution.TransformedDistribution.
func Transformed(base Distribution, ts []transforms.Transform, opts ...Options) *TransformedDistribution {
	return initTransformed(&TransformedDistribution{}, base, ts, opts...)
}

// transformed is embedded by distributions that are made by transforms.
type transformed interface {
	Distribution
	inside() *TransformedDistribution
}

func (d *TransformedDistribution) inside() *TransformedDistribution { return d }

// initTransformed is Init for a distribution that embeds TransformedDistribution.
func initTransformed[D transformed](outer D, base Distribution, ts []transforms.Transform, opts ...Options) D {
	if numeric.IsNil(base) {
		panic(numeric.Errorf("distributions.Transformed", gotorch.TypeError, "the base distribution is nil"))
	}
	all := transforms.Compose(ts)
	domain, codomain := all.Domain().EventDim(), all.Codomain().EventDim()
	event := int64(len(base.EventShape()))
	shape := append(base.BatchShape(), base.EventShape()...)
	if int64(len(shape)) < domain {
		panic(numeric.Errorf("distributions.Transformed", gotorch.ValueError,
			"base_distribution needs to have shape with size at least %d, but got %s.", domain, numeric.Size(shape)))
	}
	forward := all.ForwardShape(shape)
	if expanded := all.InverseShape(forward); !slices.Equal(shape, expanded) {
		base = base.Expand(head(expanded, int(event))...)
	}
	if n := domain - event; n > 0 {
		base = Independent(base, n)
	}
	d := outer.inside()
	d.BaseDist, d.Transforms = base, slices.Clone(ts)
	n := int(max(codomain, event+codomain-domain))
	if len(forward) < n {
		panic(numeric.Errorf("distributions.Transformed", gotorch.ValueError, "a shape of %d dimensions is too short for events of %d", len(forward), n))
	}
	return Init(outer, head(forward, n), tail(forward, n), opts...)
}

// expandInto makes outer, which embeds TransformedDistribution, what d is for a bigger batch.
func (d *TransformedDistribution) expandInto(outer transformed, batchShape []int64) Distribution {
	shape := numeric.Join(batchShape, d.event...)
	for _, t := range slices.Backward(d.Transforms) {
		shape = t.InverseShape(shape)
	}
	of := outer.inside()
	of.BaseDist = d.BaseDist.Expand(head(shape, len(d.BaseDist.EventShape()))...)
	of.Transforms = d.Transforms
	return expanded(&d.Base, outer, batchShape, d.event)
}

// Expand is part of [Distribution].
func (d *TransformedDistribution) Expand(batchShape ...int64) Distribution {
	return d.expandInto(&TransformedDistribution{}, batchShape)
}

// Support is part of [Distribution].
func (d *TransformedDistribution) Support() constraints.Constraint {
	if len(d.Transforms) == 0 {
		return d.BaseDist.Support()
	}
	support := d.Transforms[len(d.Transforms)-1].Codomain()
	if n := int64(len(d.event)) - support.EventDim(); n > 0 {
		support = constraints.Independent(support, n)
	}
	return support
}

// HasRSample is part of [Distribution].
func (d *TransformedDistribution) HasRSample() bool { return d.BaseDist.HasRSample() }

// Sample is part of [Distribution].
func (d *TransformedDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	return gotorch.NoGrad1(func() gotorch.Tensor { return d.forward(d.BaseDist.Sample(sampleShape...)) })
}

// RSample is part of [Distribution].
func (d *TransformedDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.forward(d.BaseDist.RSample(sampleShape...))
}

func (d *TransformedDistribution) forward(x gotorch.Tensor) gotorch.Tensor {
	for _, t := range d.Transforms {
		x = t.Forward(x)
	}
	return x
}

// LogProb is part of [Distribution].
func (d *TransformedDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	event := int64(len(d.event))
	var log gotorch.Tensor
	for _, t := range slices.Backward(d.Transforms) {
		x := t.Inv().Forward(value)
		in := t.Domain().EventDim()
		event += in - t.Codomain().EventDim()
		term := numeric.SumRightmost(t.LogAbsDetJacobian(x, value), event-in)
		if log.T == nil {
			log = numeric.From(0.0, term)
		} else {
			log = log.Sub(term)
		}
		value = x
	}
	rest := numeric.SumRightmost(d.BaseDist.LogProb(value), event-int64(len(d.BaseDist.EventShape())))
	if log.T == nil {
		return rest.AddScalar(0.0)
	}
	return log.Add(rest)
}

// monotonized turns a probability round where the transforms turn the order of numbers round.
func (d *TransformedDistribution) monotonized(value gotorch.Tensor) gotorch.Tensor {
	sign := Param(1)
	for _, t := range d.Transforms {
		sign = transforms.Times(sign, t.Sign())
	}
	if sign == Param(1) {
		return value
	}
	return numeric.Mul(sign, value.SubScalar(0.5)).AddScalar(0.5)
}

// CDF is part of [Distribution].
func (d *TransformedDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	for _, t := range slices.Backward(d.Transforms) {
		value = t.Inv().Forward(value)
	}
	if d.Validates() {
		d.BaseDist.base().checkSample(value)
	}
	return d.monotonized(d.BaseDist.CDF(value))
}

// ICDF is part of [Distribution].
func (d *TransformedDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	return d.forward(d.BaseDist.ICDF(d.monotonized(value)))
}

// LogNormalDistribution is what [LogNormal] makes.
type LogNormalDistribution struct {
	TransformedDistribution
}

// LogNormal is the exponential of a [Normal] of loc and scale, which is positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.log_normal.LogNormal.
func LogNormal(loc, scale Param, opts ...Options) *LogNormalDistribution {
	return initTransformed(&LogNormalDistribution{}, Normal(loc, scale, opts...), []transforms.Transform{transforms.Exp()}, opts...)
}

// Parameters is part of [Distribution].
func (d *LogNormalDistribution) Parameters() []Parameter {
	return []Parameter{{"loc", constraints.Real, d.Loc(), true}, {"scale", constraints.Positive, d.Scale(), true}}
}

// Expand is part of [Distribution].
func (d *LogNormalDistribution) Expand(batchShape ...int64) Distribution {
	of := &LogNormalDistribution{}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *LogNormalDistribution) Support() constraints.Constraint {
	return constraints.Positive
}

// Loc is the mean of the logarithms.
func (d *LogNormalDistribution) Loc() gotorch.Tensor {
	return d.BaseDist.(*NormalDistribution).Loc
}

// Scale is the standard deviation of the logarithms.
func (d *LogNormalDistribution) Scale() gotorch.Tensor {
	return d.BaseDist.(*NormalDistribution).Scale
}

// Mean is part of [Distribution].
func (d *LogNormalDistribution) Mean() gotorch.Tensor {
	return d.Loc().Add(d.Scale().Pow(2).DivScalar(2)).Exp()
}

// Mode is part of [Distribution].
func (d *LogNormalDistribution) Mode() gotorch.Tensor {
	return d.Loc().Sub(d.Scale().Square()).Exp()
}

// Variance is part of [Distribution].
func (d *LogNormalDistribution) Variance() gotorch.Tensor {
	variance := d.Scale().Pow(2)
	return variance.Expm1().Mul(d.Loc().MulScalar(2).Add(variance).Exp())
}

// Entropy is part of [Distribution].
func (d *LogNormalDistribution) Entropy() gotorch.Tensor {
	return d.BaseDist.Entropy().Add(d.Loc())
}

// LogisticNormalDistribution is what [LogisticNormal] makes.
type LogisticNormalDistribution struct {
	TransformedDistribution
}

// LogisticNormal is of vectors of n+1 numbers that sum to 1, made of a [Normal] of n by
// transforms.StickBreaking: parameters are of (*, n), events of (n+1). scale is positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html.
func LogisticNormal(loc, scale Param, opts ...Options) *LogisticNormalDistribution {
	base := Distribution(Normal(loc, scale, opts...))
	if len(base.BatchShape()) == 0 {
		base = base.Expand(1)
	}
	return initTransformed(&LogisticNormalDistribution{}, base, []transforms.Transform{transforms.StickBreaking()}, opts...)
}

// Parameters is part of [Distribution].
func (d *LogisticNormalDistribution) Parameters() []Parameter {
	return []Parameter{{"loc", constraints.Real, d.Loc(), true}, {"scale", constraints.Positive, d.Scale(), true}}
}

// Expand is part of [Distribution].
func (d *LogisticNormalDistribution) Expand(batchShape ...int64) Distribution {
	of := &LogisticNormalDistribution{}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *LogisticNormalDistribution) Support() constraints.Constraint {
	return constraints.Simplex
}

// Loc is the mean before the transform.
func (d *LogisticNormalDistribution) Loc() gotorch.Tensor {
	return d.normal().Loc
}

// Scale is the standard deviation before the transform.
func (d *LogisticNormalDistribution) Scale() gotorch.Tensor {
	return d.normal().Scale
}

func (d *LogisticNormalDistribution) normal() *NormalDistribution {
	return d.BaseDist.(*IndependentDistribution).BaseDist.(*NormalDistribution)
}

// HalfNormalDistribution is what [HalfNormal] makes.
type HalfNormalDistribution struct {
	TransformedDistribution
}

// HalfNormal is the absolute value of a [Normal] around 0 with this scale, which is positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.half_normal.HalfNormal.
func HalfNormal(scale Param, opts ...Options) *HalfNormalDistribution {
	base := Normal(0, scale, Options{NoValidateArgs: true})
	return initTransformed(&HalfNormalDistribution{}, base, []transforms.Transform{transforms.Abs()}, opts...)
}

// Parameters is part of [Distribution].
func (d *HalfNormalDistribution) Parameters() []Parameter {
	return []Parameter{{"scale", constraints.Positive, d.Scale(), true}}
}

// Expand is part of [Distribution].
func (d *HalfNormalDistribution) Expand(batchShape ...int64) Distribution {
	of := &HalfNormalDistribution{}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *HalfNormalDistribution) Support() constraints.Constraint {
	return constraints.Nonnegative
}

// Scale is the scale of the normal distribution.
func (d *HalfNormalDistribution) Scale() gotorch.Tensor {
	return d.BaseDist.(*NormalDistribution).Scale
}

// Mean is part of [Distribution].
func (d *HalfNormalDistribution) Mean() gotorch.Tensor {
	return d.Scale().MulScalar(math.Sqrt(2 / math.Pi))
}

// Mode is part of [Distribution].
func (d *HalfNormalDistribution) Mode() gotorch.Tensor {
	return gotorch.ZerosLike(d.Scale())
}

// Variance is part of [Distribution].
func (d *HalfNormalDistribution) Variance() gotorch.Tensor {
	const factor = 0.3633802276324186 // 1 - 2/π, as float64 computes it
	return d.Scale().Pow(2).MulScalar(factor)
}

// LogProb is part of [Distribution].
func (d *HalfNormalDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return where(value.GeScalar(0), d.BaseDist.LogProb(value).AddScalar(math.Ln2), math.Inf(-1))
}

// CDF is part of [Distribution].
func (d *HalfNormalDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return d.BaseDist.CDF(value).MulScalar(2).SubScalar(1)
}

// ICDF is part of [Distribution].
func (d *HalfNormalDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	return d.BaseDist.ICDF(value.AddScalar(1).DivScalar(2))
}

// Entropy is part of [Distribution].
func (d *HalfNormalDistribution) Entropy() gotorch.Tensor {
	return d.BaseDist.Entropy().SubScalar(math.Ln2)
}

// HalfCauchyDistribution is what [HalfCauchy] makes.
type HalfCauchyDistribution struct {
	TransformedDistribution
}

// HalfCauchy is the absolute value of a [Cauchy] around 0 with this scale, which is positive. Its Mean and Variance are
// infinite.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.half_cauchy.HalfCauchy.
func HalfCauchy(scale Param, opts ...Options) *HalfCauchyDistribution {
	base := Cauchy(0, scale, Options{NoValidateArgs: true})
	return initTransformed(&HalfCauchyDistribution{}, base, []transforms.Transform{transforms.Abs()}, opts...)
}

// Parameters is part of [Distribution].
func (d *HalfCauchyDistribution) Parameters() []Parameter {
	return []Parameter{{"scale", constraints.Positive, d.Scale(), true}}
}

// Expand is part of [Distribution].
func (d *HalfCauchyDistribution) Expand(batchShape ...int64) Distribution {
	of := &HalfCauchyDistribution{}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *HalfCauchyDistribution) Support() constraints.Constraint {
	return constraints.Nonnegative
}

// Scale is the scale of the Cauchy distribution.
func (d *HalfCauchyDistribution) Scale() gotorch.Tensor {
	return d.BaseDist.(*CauchyDistribution).Scale
}

// Mean is part of [Distribution].
func (d *HalfCauchyDistribution) Mean() gotorch.Tensor {
	return filled(d.ExtendedShape(), math.Inf(1), d.Scale())
}

// Mode is part of [Distribution].
func (d *HalfCauchyDistribution) Mode() gotorch.Tensor {
	return gotorch.ZerosLike(d.Scale())
}

// Variance is part of [Distribution].
func (d *HalfCauchyDistribution) Variance() gotorch.Tensor {
	return d.BaseDist.Variance()
}

// LogProb is part of [Distribution].
func (d *HalfCauchyDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	value = likeParameter(value, d.Scale())
	return where(value.GeScalar(0), d.BaseDist.LogProb(value).AddScalar(math.Ln2), math.Inf(-1))
}

// CDF is part of [Distribution].
func (d *HalfCauchyDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return d.BaseDist.CDF(value).MulScalar(2).SubScalar(1)
}

// ICDF is part of [Distribution].
func (d *HalfCauchyDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	return d.BaseDist.ICDF(value.AddScalar(1).DivScalar(2))
}

// Entropy is part of [Distribution].
func (d *HalfCauchyDistribution) Entropy() gotorch.Tensor {
	return d.BaseDist.Entropy().SubScalar(math.Ln2)
}

// InverseGammaDistribution is what [InverseGamma] makes.
type InverseGammaDistribution struct {
	TransformedDistribution
}

// InverseGamma is one over a [Gamma] of concentration and rate, both positive. Its Mean is infinite for a concentration up to
// 1, its Variance up to 2.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.inverse_gamma.InverseGamma.
func InverseGamma(concentration, rate Param, opts ...Options) *InverseGammaDistribution {
	base := Gamma(concentration, rate, opts...)
	minusOne := base.Rate.NewOnes(nil).Neg()
	return initTransformed(&InverseGammaDistribution{}, base, []transforms.Transform{transforms.Power(minusOne)}, opts...)
}

// Parameters is part of [Distribution].
func (d *InverseGammaDistribution) Parameters() []Parameter {
	return []Parameter{{"concentration", constraints.Positive, d.Concentration(), true}, {"rate", constraints.Positive, d.Rate(), true}}
}

// Expand is part of [Distribution].
func (d *InverseGammaDistribution) Expand(batchShape ...int64) Distribution {
	of := &InverseGammaDistribution{}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *InverseGammaDistribution) Support() constraints.Constraint {
	return constraints.Positive
}

// Concentration is that of the gamma distribution.
func (d *InverseGammaDistribution) Concentration() gotorch.Tensor {
	return d.BaseDist.(*GammaDistribution).Concentration
}

// Rate is that of the gamma distribution.
func (d *InverseGammaDistribution) Rate() gotorch.Tensor {
	return d.BaseDist.(*GammaDistribution).Rate
}

// Mean is part of [Distribution].
func (d *InverseGammaDistribution) Mean() gotorch.Tensor {
	return where(d.Concentration().GtScalar(1), d.Rate().Div(d.Concentration().SubScalar(1)), math.Inf(1))
}

// Mode is part of [Distribution].
func (d *InverseGammaDistribution) Mode() gotorch.Tensor {
	return d.Rate().Div(d.Concentration().AddScalar(1))
}

// Variance is part of [Distribution].
func (d *InverseGammaDistribution) Variance() gotorch.Tensor {
	c := d.Concentration()
	variance := d.Rate().Square().Div(c.SubScalar(1).Square().Mul(c.SubScalar(2)))
	return where(c.GtScalar(2), variance, math.Inf(1))
}

// Entropy is part of [Distribution].
func (d *InverseGammaDistribution) Entropy() gotorch.Tensor {
	c := d.Concentration()
	return c.Add(d.Rate().Log()).Add(c.Lgamma()).Sub(c.AddScalar(1).Mul(c.Digamma()))
}

// GumbelDistribution is what [Gumbel] makes.
type GumbelDistribution struct {
	TransformedDistribution
	Loc, Scale gotorch.Tensor
}

// Gumbel is the Gumbel distribution, of the highest of many numbers, with mode loc. scale is positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.gumbel.Gumbel.
func Gumbel(loc, scale Param, opts ...Options) *GumbelDistribution {
	p := broadcast("Gumbel", []string{"loc", "scale"}, loc, scale)
	d := &GumbelDistribution{Loc: p[0], Scale: p[1]}
	tiny, eps := numeric.Tiny(d.Loc.DType()), numeric.Eps(d.Loc.DType())
	var base Distribution
	if _, ok := numeric.Number(loc); ok && isNumber(scale) {
		base = Uniform(tiny, 1-eps, opts...)
	} else {
		base = Uniform(gotorch.FullLike(d.Loc, tiny), gotorch.FullLike(d.Loc, 1-eps), opts...)
	}
	return initTransformed(d, base, []transforms.Transform{
		transforms.Exp().Inv(), transforms.Affine(0, gotorch.OnesLike(d.Scale).Neg()),
		transforms.Exp().Inv(), transforms.Affine(loc, d.Scale.Neg()),
	}, opts...)
}

// Parameters is part of [Distribution].
func (d *GumbelDistribution) Parameters() []Parameter {
	return []Parameter{{"loc", constraints.Real, d.Loc, false}, {"scale", constraints.Positive, d.Scale, false}}
}

// Expand is part of [Distribution].
func (d *GumbelDistribution) Expand(batchShape ...int64) Distribution {
	of := &GumbelDistribution{Loc: d.Loc.Expand(batchShape), Scale: d.Scale.Expand(batchShape)}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *GumbelDistribution) Support() constraints.Constraint {
	return constraints.Real
}

// Mean is part of [Distribution].
func (d *GumbelDistribution) Mean() gotorch.Tensor {
	return d.Loc.Add(d.Scale.MulScalar(eulerGamma))
}

// Mode is part of [Distribution].
func (d *GumbelDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// StdDev is part of [Distribution].
func (d *GumbelDistribution) StdDev() gotorch.Tensor {
	return d.Scale.MulScalar(math.Pi / math.Sqrt(6))
}

// Variance is part of [Distribution].
func (d *GumbelDistribution) Variance() gotorch.Tensor {
	return d.StdDev().Pow(2)
}

// LogProb is part of [Distribution].
func (d *GumbelDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	y := d.Loc.Sub(value).Div(d.Scale)
	return y.Sub(y.Exp()).Sub(d.Scale.Log())
}

// Entropy is part of [Distribution].
func (d *GumbelDistribution) Entropy() gotorch.Tensor {
	return d.Scale.Log().AddScalar(1 + eulerGamma)
}

func isNumber(p Param) bool {
	_, ok := numeric.Number(p)
	return ok
}

// KumaraswamyDistribution is what [Kumaraswamy] makes.
type KumaraswamyDistribution struct {
	TransformedDistribution
	Concentration1, Concentration0 gotorch.Tensor
}

// Kumaraswamy is the Kumaraswamy distribution of numbers between 0 and 1, much like [Beta]. Both parameters are positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.kumaraswamy.Kumaraswamy.
func Kumaraswamy(concentration1, concentration0 Param, opts ...Options) *KumaraswamyDistribution {
	p := broadcast("Kumaraswamy", []string{"concentration1", "concentration0"}, concentration1, concentration0)
	d := &KumaraswamyDistribution{Concentration1: p[0], Concentration0: p[1]}
	base := Uniform(gotorch.FullLike(p[1], 0), gotorch.FullLike(p[1], 1), opts...)
	return initTransformed(d, base, []transforms.Transform{
		transforms.Power(p[1].Reciprocal()), transforms.Affine(1.0, -1.0), transforms.Power(p[0].Reciprocal()),
	}, opts...)
}

// Parameters is part of [Distribution].
func (d *KumaraswamyDistribution) Parameters() []Parameter {
	return []Parameter{{"concentration1", constraints.Positive, d.Concentration1, false}, {"concentration0", constraints.Positive, d.Concentration0, false}}
}

// Expand is part of [Distribution].
func (d *KumaraswamyDistribution) Expand(batchShape ...int64) Distribution {
	of := &KumaraswamyDistribution{Concentration1: d.Concentration1.Expand(batchShape), Concentration0: d.Concentration0.Expand(batchShape)}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *KumaraswamyDistribution) Support() constraints.Constraint {
	return constraints.UnitInterval
}

// Mean is part of [Distribution].
func (d *KumaraswamyDistribution) Mean() gotorch.Tensor {
	return d.moment(1)
}

// Mode is part of [Distribution].
func (d *KumaraswamyDistribution) Mode() gotorch.Tensor {
	a, b := d.Concentration1, d.Concentration0
	log := b.Reciprocal().Mul(b.Neg().Log1p()).Sub(b.Neg().Mul(a).Log1p())
	set(log, b.LtScalar(1).BitwiseOr(a.LtScalar(1)), math.NaN())
	return log.Exp()
}

// Variance is part of [Distribution].
func (d *KumaraswamyDistribution) Variance() gotorch.Tensor {
	return d.moment(2).Sub(d.Mean().Pow(2))
}

// Entropy is part of [Distribution].
func (d *KumaraswamyDistribution) Entropy() gotorch.Tensor {
	t1, t0 := numeric.From(1, d.Concentration1.Reciprocal()), numeric.From(1, d.Concentration0.Reciprocal())
	h0 := d.Concentration0.AddScalar(1).Digamma().AddScalar(eulerGamma)
	return t0.Add(t1.Mul(h0)).Sub(d.Concentration1.Log()).Sub(d.Concentration0.Log())
}

// moment is the mean of the n-th power.
func (d *KumaraswamyDistribution) moment(n int) gotorch.Tensor {
	a := numeric.Over(n, d.Concentration1).AddScalar(1)
	log := a.Lgamma().Add(d.Concentration0.Lgamma()).Sub(a.Add(d.Concentration0).Lgamma())
	return d.Concentration0.Mul(log.Exp())
}

// ParetoDistribution is what [Pareto] makes.
type ParetoDistribution struct {
	TransformedDistribution
	Scale, Alpha gotorch.Tensor
}

// Pareto is the Pareto distribution of numbers x from scale, which are above x with probability (scale/x)^alpha. Both
// parameters are positive. Its Mean is infinite for an alpha up to 1, its Variance up to 2.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.pareto.Pareto.
func Pareto(scale, alpha Param, opts ...Options) *ParetoDistribution {
	p := broadcast("Pareto", []string{"scale", "alpha"}, scale, alpha)
	d := &ParetoDistribution{Scale: p[0], Alpha: p[1]}
	return initTransformed(d, Exponential(p[1], opts...), []transforms.Transform{transforms.Exp(), transforms.Affine(0, p[0])}, opts...)
}

// Parameters is part of [Distribution].
func (d *ParetoDistribution) Parameters() []Parameter {
	return []Parameter{{"alpha", constraints.Positive, d.Alpha, false}, {"scale", constraints.Positive, d.Scale, false}}
}

// Expand is part of [Distribution].
func (d *ParetoDistribution) Expand(batchShape ...int64) Distribution {
	of := &ParetoDistribution{Scale: d.Scale.Expand(batchShape), Alpha: d.Alpha.Expand(batchShape)}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *ParetoDistribution) Support() constraints.Constraint {
	return constraints.GreaterThanEq(d.Scale)
}

// Mean is part of [Distribution].
func (d *ParetoDistribution) Mean() gotorch.Tensor {
	a := d.Alpha.Clamp(gotorch.ClampOptions{Min: 1})
	return a.Mul(d.Scale).Div(a.SubScalar(1))
}

// Mode is part of [Distribution].
func (d *ParetoDistribution) Mode() gotorch.Tensor {
	return d.Scale
}

// Variance is part of [Distribution].
func (d *ParetoDistribution) Variance() gotorch.Tensor {
	a := d.Alpha.Clamp(gotorch.ClampOptions{Min: 2})
	return d.Scale.Pow(2).Mul(a).Div(a.SubScalar(1).Pow(2).Mul(a.SubScalar(2)))
}

// Entropy is part of [Distribution].
func (d *ParetoDistribution) Entropy() gotorch.Tensor {
	return d.Scale.Div(d.Alpha).Log().Add(d.Alpha.Reciprocal().AddScalar(1))
}

// WeibullDistribution is what [Weibull] makes.
type WeibullDistribution struct {
	TransformedDistribution
	Scale, Concentration gotorch.Tensor
	reciprocal           gotorch.Tensor // of the concentration
}

// Weibull is the Weibull distribution of positive numbers: concentration is its shape. Both parameters are positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.weibull.Weibull.
func Weibull(scale, concentration Param, opts ...Options) *WeibullDistribution {
	p := broadcast("Weibull", []string{"scale", "concentration"}, scale, concentration)
	d := &WeibullDistribution{Scale: p[0], Concentration: p[1]}
	return d.init(Exponential(gotorch.OnesLike(p[0]), opts...), opts...)
}

// Parameters is part of [Distribution].
func (d *WeibullDistribution) Parameters() []Parameter {
	return []Parameter{{"scale", constraints.Positive, d.Scale, false}, {"concentration", constraints.Positive, d.Concentration, false}}
}

// Expand is part of [Distribution].
func (d *WeibullDistribution) Expand(batchShape ...int64) Distribution {
	of := &WeibullDistribution{Scale: d.Scale.Expand(batchShape), Concentration: d.Concentration.Expand(batchShape)}
	of.init(d.BaseDist.Expand(batchShape...), Options{NoValidateArgs: true})
	of.validation = new(d.Validates())
	return of
}

// Support is part of [Distribution].
func (d *WeibullDistribution) Support() constraints.Constraint {
	return constraints.Positive
}

// Mean is part of [Distribution].
func (d *WeibullDistribution) Mean() gotorch.Tensor {
	return d.Scale.Mul(d.reciprocal.AddScalar(1).Lgamma().Exp())
}

// Mode is part of [Distribution].
func (d *WeibullDistribution) Mode() gotorch.Tensor {
	return d.Scale.Mul(d.Concentration.SubScalar(1).Div(d.Concentration).PowTensor(d.Concentration.Reciprocal()))
}

// Variance is part of [Distribution].
func (d *WeibullDistribution) Variance() gotorch.Tensor {
	square := d.reciprocal.MulScalar(2).AddScalar(1).Lgamma().Exp()
	return d.Scale.Pow(2).Mul(square.Sub(d.reciprocal.AddScalar(1).Lgamma().MulScalar(2).Exp()))
}

// Entropy is part of [Distribution].
func (d *WeibullDistribution) Entropy() gotorch.Tensor {
	return numeric.From(1, d.reciprocal).MulScalar(eulerGamma).Add(d.Scale.Mul(d.reciprocal).Log()).AddScalar(1)
}

func (d *WeibullDistribution) init(base Distribution, opts ...Options) *WeibullDistribution {
	d.reciprocal = d.Concentration.Reciprocal()
	return initTransformed(d, base, []transforms.Transform{transforms.Power(d.reciprocal), transforms.Affine(0, d.Scale)}, opts...)
}
