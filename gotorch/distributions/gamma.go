package distributions

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
)

// GammaDistribution is what [Gamma] makes.
type GammaDistribution struct {
	Base
	Concentration, Rate gotorch.Tensor
}

// Gamma is the gamma distribution of positive numbers: concentration is its shape, rate one over its scale, both
// positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.gamma.Gamma.
func Gamma(concentration, rate Param, opts ...Options) *GammaDistribution {
	p := broadcast("Gamma", []string{"concentration", "rate"}, concentration, rate)
	return Init(&GammaDistribution{Concentration: p[0], Rate: p[1]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *GammaDistribution) Parameters() []Parameter {
	return []Parameter{{"concentration", constraints.Positive, d.Concentration, false}, {"rate", constraints.Positive, d.Rate, false}}
}

// Expand is part of [Distribution].
func (d *GammaDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &GammaDistribution{Concentration: d.Concentration.Expand(batchShape), Rate: d.Rate.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *GammaDistribution) Support() constraints.Constraint {
	return constraints.Nonnegative
}

// Mean is part of [Distribution].
func (d *GammaDistribution) Mean() gotorch.Tensor {
	return d.Concentration.Div(d.Rate)
}

// Mode is part of [Distribution].
func (d *GammaDistribution) Mode() gotorch.Tensor {
	return d.Concentration.SubScalar(1).Div(d.Rate).Clamp(gotorch.ClampOptions{Min: 0})
}

// Variance is part of [Distribution].
func (d *GammaDistribution) Variance() gotorch.Tensor {
	return d.Concentration.Div(d.Rate.Pow(2))
}

// HasRSample is part of [Distribution].
func (d *GammaDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *GammaDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	shape := d.ExtendedShape(sampleShape...)
	value := standardGamma(d.Concentration.Expand(shape)).Div(d.Rate.Expand(shape))
	value.Detach().Clamp_(gotorch.ClampOptions{Min: numeric.Tiny(value.DType())})
	return value
}

// LogProb is part of [Distribution].
func (d *GammaDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	value = likeParameter(value, d.Rate)
	d.CheckSample(value)
	return d.Concentration.Xlogy(d.Rate).Add(d.Concentration.SubScalar(1).Xlogy(value)).Sub(d.Rate.Mul(value)).Sub(d.Concentration.Lgamma())
}

// CDF is part of [Distribution].
func (d *GammaDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return gotorch.SpecialGammaInc(d.Concentration, d.Rate.Mul(value))
}

// Entropy is part of [Distribution].
func (d *GammaDistribution) Entropy() gotorch.Tensor {
	return d.Concentration.Sub(d.Rate.Log()).Add(d.Concentration.Lgamma()).Add(numeric.From(1.0, d.Concentration).Mul(d.Concentration.Digamma()))
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *GammaDistribution) MeanCarrierMeasure() float64 {
	return 0
}

// NaturalParams is part of [ExponentialFamily].
func (d *GammaDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.Concentration.SubScalar(1), d.Rate.Neg()}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *GammaDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 2)
	x, y := natural[0].AddScalar(1), natural[1]
	return x.Lgamma().Add(natural[0].AddScalar(1).Mul(y.Reciprocal().Neg().Log()))
}

// standardGamma draws from gamma distributions of rate 1.
func standardGamma(concentration gotorch.Tensor) gotorch.Tensor {
	return gotorch.Call("aten::_standard_gamma", "", concentration)[0].(gotorch.Tensor)
}

// likeParameter is value in the dtype of a parameter, and on its device.
func likeParameter(value, parameter gotorch.Tensor) gotorch.Tensor {
	if value.T == nil {
		return value
	}
	return value.To(parameter.Device(), parameter.DType())
}

// Chi2Distribution is what [Chi2] makes.
type Chi2Distribution struct {
	GammaDistribution
}

// Chi2 is the chi-squared distribution with df degrees of freedom: a [Gamma] of df/2 and 1/2. df is
// positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.chi2.Chi2.
func Chi2(df Param, opts ...Options) *Chi2Distribution {
	df = numeric.Check("distributions.Chi2", "df", df)
	half := Param(nil)
	if t, ok := numeric.AsTensor(df); ok {
		half = t.MulScalar(0.5)
	} else {
		half = 0.5 * numeric.Float(df)
	}
	p := broadcast("Chi2", []string{"df", "rate"}, half, 0.5)
	return Init(&Chi2Distribution{GammaDistribution{Concentration: p[0], Rate: p[1]}}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *Chi2Distribution) Parameters() []Parameter {
	return []Parameter{{"df", constraints.Positive, d.DF(), true}}
}

// Expand is part of [Distribution].
func (d *Chi2Distribution) Expand(batchShape ...int64) Distribution {
	of := GammaDistribution{Concentration: d.Concentration.Expand(batchShape), Rate: d.Rate.Expand(batchShape)}
	return expanded(&d.Base, &Chi2Distribution{of}, batchShape, nil)
}

// DF is the degrees of freedom.
func (d *Chi2Distribution) DF() gotorch.Tensor {
	return d.Concentration.MulScalar(2)
}

// ExponentialDistribution is what [Exponential] makes.
type ExponentialDistribution struct {
	Base
	Rate gotorch.Tensor
}

// Exponential is the exponential distribution of numbers from 0, with mean 1/rate. rate is positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.exponential.Exponential.
func Exponential(rate Param, opts ...Options) *ExponentialDistribution {
	p := broadcast("Exponential", []string{"rate"}, rate)
	return Init(&ExponentialDistribution{Rate: p[0]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *ExponentialDistribution) Parameters() []Parameter {
	return []Parameter{{"rate", constraints.Positive, d.Rate, false}}
}

// Expand is part of [Distribution].
func (d *ExponentialDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &ExponentialDistribution{Rate: d.Rate.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *ExponentialDistribution) Support() constraints.Constraint {
	return constraints.Nonnegative
}

// Mean is part of [Distribution].
func (d *ExponentialDistribution) Mean() gotorch.Tensor {
	return d.Rate.Reciprocal()
}

// Mode is part of [Distribution].
func (d *ExponentialDistribution) Mode() gotorch.Tensor {
	return gotorch.ZerosLike(d.Rate)
}

// StdDev is part of [Distribution].
func (d *ExponentialDistribution) StdDev() gotorch.Tensor {
	return d.Rate.Reciprocal()
}

// Variance is part of [Distribution].
func (d *ExponentialDistribution) Variance() gotorch.Tensor {
	return d.Rate.Pow(-2)
}

// HasRSample is part of [Distribution].
func (d *ExponentialDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *ExponentialDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.Rate.NewEmpty(d.ExtendedShape(sampleShape...)).Exponential_().Div(d.Rate)
}

// LogProb is part of [Distribution].
func (d *ExponentialDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return d.Rate.Log().Sub(d.Rate.Mul(value))
}

// CDF is part of [Distribution].
func (d *ExponentialDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return numeric.From(1, d.Rate.Neg().Mul(value).Exp())
}

// ICDF is part of [Distribution].
func (d *ExponentialDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	return value.Neg().Log1p().Neg().Div(d.Rate)
}

// Entropy is part of [Distribution].
func (d *ExponentialDistribution) Entropy() gotorch.Tensor {
	return numeric.From(1.0, d.Rate.Log())
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *ExponentialDistribution) MeanCarrierMeasure() float64 {
	return 0
}

// NaturalParams is part of [ExponentialFamily].
func (d *ExponentialDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.Rate.Neg()}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *ExponentialDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 1)
	return natural[0].Neg().Log().Neg()
}

// DirichletDistribution is what [Dirichlet] makes.
type DirichletDistribution struct {
	Base
	Concentration gotorch.Tensor
}

// Dirichlet is the Dirichlet distribution of vectors of n positive numbers that sum to 1. concentration is a tensor of
// (*, n), positive; it panics with a ValueError for one without dimensions. Events are of (n).
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.dirichlet.Dirichlet.
func Dirichlet(concentration gotorch.Tensor, opts ...Options) *DirichletDistribution {
	shape := numeric.MustTensor("distributions.Dirichlet", "concentration", concentration).Shape()
	if len(shape) < 1 {
		panic(numeric.Errorf("distributions.Dirichlet", gotorch.ValueError, "`concentration` parameter must be at least one-dimensional."))
	}
	return Init(&DirichletDistribution{Concentration: concentration}, head(shape, 1), tail(shape, 1), opts...)
}

// Parameters is part of [Distribution].
func (d *DirichletDistribution) Parameters() []Parameter {
	return []Parameter{{"concentration", positiveVector, d.Concentration, false}}
}

// Expand is part of [Distribution].
func (d *DirichletDistribution) Expand(batchShape ...int64) Distribution {
	shape := numeric.Join(batchShape, d.event...)
	return expanded(&d.Base, &DirichletDistribution{Concentration: d.Concentration.Expand(shape)}, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *DirichletDistribution) Support() constraints.Constraint {
	return constraints.Simplex
}

// HasRSample is part of [Distribution].
func (d *DirichletDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *DirichletDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return gotorch.Apply(sampleDirichlet{}, d.Concentration.Expand(d.ExtendedShape(sampleShape...)))[0]
}

// LogProb is part of [Distribution].
func (d *DirichletDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return sum(d.Concentration.SubScalar(1.0).Xlogy(value)).Add(sum(d.Concentration).Lgamma()).Sub(sum(d.Concentration.Lgamma()))
}

// Mean is part of [Distribution].
func (d *DirichletDistribution) Mean() gotorch.Tensor {
	return d.Concentration.Div(d.Concentration.SumDim(last, kept))
}

// Mode is part of [Distribution].
func (d *DirichletDistribution) Mode() gotorch.Tensor {
	above := d.Concentration.SubScalar(1).Clamp(gotorch.ClampOptions{Min: 0.0})
	mode := above.Div(above.SumDim(last, kept))
	corner := d.Concentration.LtScalar(1).AllDim(-1)
	most := mode.Index(corner).ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(-1))})
	mode.IndexPut(gotorch.OneHot(most, gotorch.OneHotOptions{NumClasses: new(above.Size(-1))}).To(mode.DType()), corner)
	return mode
}

// Variance is part of [Distribution].
func (d *DirichletDistribution) Variance() gotorch.Tensor {
	total := d.Concentration.SumDim(last, kept)
	return d.Concentration.Mul(total.Sub(d.Concentration)).Div(total.Pow(2).Mul(total.AddScalar(1)))
}

// Entropy is part of [Distribution].
func (d *DirichletDistribution) Entropy() gotorch.Tensor {
	total := sum(d.Concentration)
	return sum(d.Concentration.Lgamma()).Sub(total.Lgamma()).
		Sub(numeric.From(d.Concentration.Size(-1), total).Mul(total.Digamma())).
		Sub(sum(d.Concentration.SubScalar(1.0).Mul(d.Concentration.Digamma())))
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *DirichletDistribution) MeanCarrierMeasure() float64 {
	panic(d.missing("MeanCarrierMeasure"))
}

// NaturalParams is part of [ExponentialFamily].
func (d *DirichletDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.Concentration}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *DirichletDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 1)
	return sum(natural[0].Lgamma()).Sub(sum(natural[0]).Lgamma())
}

var positiveVector = constraints.Independent(constraints.Positive, 1)

// sampleDirichlet draws from Dirichlet distributions, with a gradient for their concentrations.
type sampleDirichlet struct{}

func (sampleDirichlet) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	x := gotorch.Call("aten::_sample_dirichlet", "", in[0])[0].(gotorch.Tensor)
	ctx.SaveForBackward(x, in[0])
	return []gotorch.Tensor{x}
}

func (sampleDirichlet) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	saved := ctx.SavedTensors()
	x, concentration, grad := saved[0], saved[1], grads[0]
	total := concentration.SumDim(last, kept).Expand(concentration.Shape())
	to := gotorch.Call("aten::_dirichlet_grad", "", x, concentration, total)[0].(gotorch.Tensor)
	return []gotorch.Tensor{to.Mul(grad.Sub(x.Mul(grad).SumDim(last, kept)))}
}

// BetaDistribution is what [Beta] makes.
type BetaDistribution struct {
	Base
	dirichlet *DirichletDistribution
}

// Beta is the beta distribution of numbers between 0 and 1, with mean
// concentration1 / (concentration1 + concentration0). Both are positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.beta.Beta.
func Beta(concentration1, concentration0 Param, opts ...Options) *BetaDistribution {
	p := broadcast("Beta", []string{"concentration1", "concentration0"}, concentration1, concentration0)
	dirichlet := Dirichlet(gotorch.Stack(p, gotorch.StackOptions{Dim: -1}), opts...)
	return Init(&BetaDistribution{dirichlet: dirichlet}, dirichlet.batch, nil, opts...)
}

// Parameters is part of [Distribution].
func (d *BetaDistribution) Parameters() []Parameter {
	return []Parameter{{"concentration1", constraints.Positive, d.Concentration1(), true}, {"concentration0", constraints.Positive, d.Concentration0(), true}}
}

// Expand is part of [Distribution].
func (d *BetaDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &BetaDistribution{dirichlet: d.dirichlet.Expand(batchShape...).(*DirichletDistribution)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *BetaDistribution) Support() constraints.Constraint {
	return constraints.UnitInterval
}

// Concentration1 is the first concentration, of the power of x.
func (d *BetaDistribution) Concentration1() gotorch.Tensor {
	return d.dirichlet.Concentration.Index(gotorch.Ellipsis, gotorch.At(0))
}

// Concentration0 is the second concentration, of the power of 1-x.
func (d *BetaDistribution) Concentration0() gotorch.Tensor {
	return d.dirichlet.Concentration.Index(gotorch.Ellipsis, gotorch.At(1))
}

// Mean is part of [Distribution].
func (d *BetaDistribution) Mean() gotorch.Tensor {
	return d.Concentration1().Div(d.Concentration1().Add(d.Concentration0()))
}

// Mode is part of [Distribution].
func (d *BetaDistribution) Mode() gotorch.Tensor {
	return d.dirichlet.Mode().Index(gotorch.Ellipsis, gotorch.At(0))
}

// Variance is part of [Distribution].
func (d *BetaDistribution) Variance() gotorch.Tensor {
	total := d.Concentration1().Add(d.Concentration0())
	return d.Concentration1().Mul(d.Concentration0()).Div(total.Pow(2).Mul(total.AddScalar(1)))
}

// HasRSample is part of [Distribution].
func (d *BetaDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *BetaDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.dirichlet.RSample(sampleShape...).Select(-1, 0)
}

// LogProb is part of [Distribution].
func (d *BetaDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return d.dirichlet.LogProb(gotorch.Stack([]gotorch.Tensor{value, numeric.From(1.0, value)}, gotorch.StackOptions{Dim: -1}))
}

// Entropy is part of [Distribution].
func (d *BetaDistribution) Entropy() gotorch.Tensor {
	return d.dirichlet.Entropy()
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *BetaDistribution) MeanCarrierMeasure() float64 {
	panic(d.missing("MeanCarrierMeasure"))
}

// NaturalParams is part of [ExponentialFamily].
func (d *BetaDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.Concentration1(), d.Concentration0()}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *BetaDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 2)
	return natural[0].Lgamma().Add(natural[1].Lgamma()).Sub(natural[0].Add(natural[1]).Lgamma())
}

// FisherSnedecorDistribution is what [FisherSnedecor] makes.
type FisherSnedecorDistribution struct {
	Base
	DF1, DF2       gotorch.Tensor
	gamma1, gamma2 Distribution
}

// FisherSnedecor is the F-distribution of positive numbers with df1 and df2 degrees of freedom, both positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.fishersnedecor.FisherSnedecor.
func FisherSnedecor(df1, df2 Param, opts ...Options) *FisherSnedecorDistribution {
	p := broadcast("FisherSnedecor", []string{"df1", "df2"}, df1, df2)
	gamma1, gamma2 := Gamma(p[0].MulScalar(0.5), p[0]), Gamma(p[1].MulScalar(0.5), p[1])
	return Init(&FisherSnedecorDistribution{DF1: p[0], DF2: p[1], gamma1: gamma1, gamma2: gamma2}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *FisherSnedecorDistribution) Parameters() []Parameter {
	return []Parameter{{"df1", constraints.Positive, d.DF1, false}, {"df2", constraints.Positive, d.DF2, false}}
}

// Expand is part of [Distribution].
func (d *FisherSnedecorDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &FisherSnedecorDistribution{DF1: d.DF1.Expand(batchShape), DF2: d.DF2.Expand(batchShape), gamma1: d.gamma1.Expand(batchShape...), gamma2: d.gamma2.Expand(batchShape...)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *FisherSnedecorDistribution) Support() constraints.Constraint {
	return constraints.Positive
}

// Mean is part of [Distribution].
func (d *FisherSnedecorDistribution) Mean() gotorch.Tensor {
	df2 := copied(d.DF2)
	set(df2, df2.LeScalar(2), math.NaN())
	return df2.Div(df2.SubScalar(2))
}

// Mode is part of [Distribution].
func (d *FisherSnedecorDistribution) Mode() gotorch.Tensor {
	mode := d.DF1.SubScalar(2).Div(d.DF1).Mul(d.DF2).Div(d.DF2.AddScalar(2))
	set(mode, d.DF1.LeScalar(2), math.NaN())
	return mode
}

// Variance is part of [Distribution].
func (d *FisherSnedecorDistribution) Variance() gotorch.Tensor {
	df2 := copied(d.DF2)
	set(df2, df2.LeScalar(4), math.NaN())
	return df2.Pow(2).MulScalar(2).Mul(d.DF1.Add(df2).SubScalar(2)).Div(d.DF1.Mul(df2.SubScalar(2).Pow(2)).Mul(df2.SubScalar(4)))
}

// HasRSample is part of [Distribution].
func (d *FisherSnedecorDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *FisherSnedecorDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	shape := d.ExtendedShape(sampleShape...)
	x1, x2 := d.gamma1.RSample(sampleShape...).View(shape), d.gamma2.RSample(sampleShape...).View(shape)
	least := gotorch.ClampOptions{Min: numeric.Tiny(x2.DType())}
	return x1.Div(x2.Clamp_(least)).Clamp_(least)
}

// LogProb is part of [Distribution].
func (d *FisherSnedecorDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	c1, c2, c3 := d.DF1.MulScalar(0.5), d.DF2.MulScalar(0.5), d.DF1.Div(d.DF2)
	t1 := c1.Add(c2).Lgamma().Sub(c1.Lgamma()).Sub(c2.Lgamma())
	t2 := c1.Mul(c3.Log()).Add(c1.SubScalar(1).Mul(value.Log()))
	t3 := c1.Add(c2).Mul(c3.Mul(value).Log1p())
	return t1.Add(t2).Sub(t3)
}
