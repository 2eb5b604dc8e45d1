package distributions

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
)

// NormalDistribution is what [Normal] makes.
type NormalDistribution struct {
	Base
	Loc, Scale gotorch.Tensor
}

// Normal is the normal distribution with mean loc and standard deviation scale, which is positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.normal.Normal.
func Normal(loc, scale Param, opts ...Options) *NormalDistribution {
	p := broadcast("Normal", []string{"loc", "scale"}, loc, scale)
	return Init(&NormalDistribution{Loc: p[0], Scale: p[1]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *NormalDistribution) Parameters() []Parameter {
	return []Parameter{{"loc", constraints.Real, d.Loc, false}, {"scale", constraints.Positive, d.Scale, false}}
}

// Expand is part of [Distribution].
func (d *NormalDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &NormalDistribution{Loc: d.Loc.Expand(batchShape), Scale: d.Scale.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *NormalDistribution) Support() constraints.Constraint {
	return constraints.Real
}

// Mean is part of [Distribution].
func (d *NormalDistribution) Mean() gotorch.Tensor {
	return d.Loc
}

// Mode is part of [Distribution].
func (d *NormalDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// StdDev is part of [Distribution].
func (d *NormalDistribution) StdDev() gotorch.Tensor {
	return d.Scale
}

// Variance is part of [Distribution].
func (d *NormalDistribution) Variance() gotorch.Tensor {
	return d.Scale.Pow(2)
}

// Sample is part of [Distribution].
func (d *NormalDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	shape := d.ExtendedShape(sampleShape...)
	return gotorch.NoGrad1(func() gotorch.Tensor { return gotorch.Normal(d.Loc.Expand(shape), d.Scale.Expand(shape)) })
}

// HasRSample is part of [Distribution].
func (d *NormalDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *NormalDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.Loc.Add(standardNormal(d.ExtendedShape(sampleShape...), d.Loc).Mul(d.Scale))
}

// LogProb is part of [Distribution].
func (d *NormalDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	variance := d.Scale.Pow(2)
	return value.Sub(d.Loc).Pow(2).Neg().Div(variance.MulScalar(2)).Sub(d.Scale.Log()).SubScalar(math.Log(math.Sqrt(2 * math.Pi)))
}

// CDF is part of [Distribution].
func (d *NormalDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return value.Sub(d.Loc).Mul(d.Scale.Reciprocal()).DivScalar(math.Sqrt2).Erf().AddScalar(1).MulScalar(0.5)
}

// ICDF is part of [Distribution].
func (d *NormalDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	return d.Loc.Add(d.Scale.Mul(value.MulScalar(2).SubScalar(1).Erfinv()).MulScalar(math.Sqrt2))
}

// Entropy is part of [Distribution].
func (d *NormalDistribution) Entropy() gotorch.Tensor {
	return d.Scale.Log().AddScalar(0.5 + float64(0.5*math.Log(2*math.Pi)))
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *NormalDistribution) MeanCarrierMeasure() float64 {
	return 0
}

// NaturalParams is part of [ExponentialFamily].
func (d *NormalDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.Loc.Div(d.Scale.Pow(2)), d.Scale.Pow(2).Reciprocal().MulScalar(-0.5)}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *NormalDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 2)
	x, y := natural[0], natural[1]
	return x.Pow(2).MulScalar(-0.25).Div(y).Add(numeric.Over(-math.Pi, y).Log().MulScalar(0.5))
}

// LaplaceDistribution is what [Laplace] makes.
type LaplaceDistribution struct {
	Base
	Loc, Scale gotorch.Tensor
}

// Laplace is the Laplace distribution around loc, with density exp(-|x-loc|/scale) / (2·scale). scale is positive.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.laplace.Laplace.
func Laplace(loc, scale Param, opts ...Options) *LaplaceDistribution {
	p := broadcast("Laplace", []string{"loc", "scale"}, loc, scale)
	return Init(&LaplaceDistribution{Loc: p[0], Scale: p[1]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *LaplaceDistribution) Parameters() []Parameter {
	return []Parameter{{"loc", constraints.Real, d.Loc, false}, {"scale", constraints.Positive, d.Scale, false}}
}

// Expand is part of [Distribution].
func (d *LaplaceDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &LaplaceDistribution{Loc: d.Loc.Expand(batchShape), Scale: d.Scale.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *LaplaceDistribution) Support() constraints.Constraint {
	return constraints.Real
}

// Mean is part of [Distribution].
func (d *LaplaceDistribution) Mean() gotorch.Tensor {
	return d.Loc
}

// Mode is part of [Distribution].
func (d *LaplaceDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// Variance is part of [Distribution].
func (d *LaplaceDistribution) Variance() gotorch.Tensor {
	return d.Scale.Pow(2).MulScalar(2)
}

// StdDev is part of [Distribution].
func (d *LaplaceDistribution) StdDev() gotorch.Tensor {
	return d.Scale.MulScalar(math.Sqrt2)
}

// HasRSample is part of [Distribution].
func (d *LaplaceDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *LaplaceDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	u := d.Loc.NewEmpty(d.ExtendedShape(sampleShape...)).Uniform_(gotorch.UniformOptions{From: numeric.Eps(d.Loc.DType()) - 1, To: new(1.0)})
	return d.Loc.Sub(d.Scale.Mul(u.Sign()).Mul(u.Abs().Neg().Log1p()))
}

// LogProb is part of [Distribution].
func (d *LaplaceDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return d.Scale.MulScalar(2).Log().Neg().Sub(value.Sub(d.Loc).Abs().Div(d.Scale))
}

// CDF is part of [Distribution].
func (d *LaplaceDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	x := value.Sub(d.Loc)
	return numeric.From(0.5, x.Sign().MulScalar(0.5).Mul(value.Sub(d.Loc).Abs().Neg().Div(d.Scale).Expm1()))
}

// ICDF is part of [Distribution].
func (d *LaplaceDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	x := value.SubScalar(0.5)
	return d.Loc.Sub(d.Scale.Mul(x.Sign()).Mul(x.Abs().MulScalar(-2).Log1p()))
}

// Entropy is part of [Distribution].
func (d *LaplaceDistribution) Entropy() gotorch.Tensor {
	return d.Scale.MulScalar(2).Log().AddScalar(1)
}

// CauchyDistribution is what [Cauchy] makes.
type CauchyDistribution struct {
	Base
	Loc, Scale gotorch.Tensor
}

// Cauchy is the Cauchy distribution around the median loc; scale is positive, half of the width at half of the highest
// density. Its Mean is NaN, and its Variance infinite.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.cauchy.Cauchy.
func Cauchy(loc, scale Param, opts ...Options) *CauchyDistribution {
	p := broadcast("Cauchy", []string{"loc", "scale"}, loc, scale)
	return Init(&CauchyDistribution{Loc: p[0], Scale: p[1]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *CauchyDistribution) Parameters() []Parameter {
	return []Parameter{{"loc", constraints.Real, d.Loc, false}, {"scale", constraints.Positive, d.Scale, false}}
}

// Expand is part of [Distribution].
func (d *CauchyDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &CauchyDistribution{Loc: d.Loc.Expand(batchShape), Scale: d.Scale.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *CauchyDistribution) Support() constraints.Constraint {
	return constraints.Real
}

// Mean is part of [Distribution].
func (d *CauchyDistribution) Mean() gotorch.Tensor {
	return filled(d.ExtendedShape(), math.NaN(), d.Loc)
}

// Mode is part of [Distribution].
func (d *CauchyDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// Variance is part of [Distribution].
func (d *CauchyDistribution) Variance() gotorch.Tensor {
	return filled(d.ExtendedShape(), math.Inf(1), d.Loc)
}

// HasRSample is part of [Distribution].
func (d *CauchyDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *CauchyDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.Loc.Add(d.Loc.NewEmpty(d.ExtendedShape(sampleShape...)).Cauchy_().Mul(d.Scale))
}

// LogProb is part of [Distribution].
func (d *CauchyDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return numeric.From(-math.Log(math.Pi), d.Scale.Log()).Sub(value.Sub(d.Loc).Div(d.Scale).Pow(2).Log1p())
}

// CDF is part of [Distribution].
func (d *CauchyDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return value.Sub(d.Loc).Div(d.Scale).Atan().DivScalar(math.Pi).AddScalar(0.5)
}

// ICDF is part of [Distribution].
func (d *CauchyDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	return value.SubScalar(0.5).MulScalar(math.Pi).Tan().Mul(d.Scale).Add(d.Loc)
}

// Entropy is part of [Distribution].
func (d *CauchyDistribution) Entropy() gotorch.Tensor {
	return d.Scale.Log().AddScalar(math.Log(4 * math.Pi))
}

// UniformDistribution is what [Uniform] makes.
type UniformDistribution struct {
	Base
	Low, High gotorch.Tensor
}

// Uniform is the uniform distribution from low up to high, without high. low is less than high.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.uniform.Uniform.
func Uniform(low, high Param, opts ...Options) *UniformDistribution {
	p := broadcast("Uniform", []string{"low", "high"}, low, high)
	return Init(&UniformDistribution{Low: p[0], High: p[1]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *UniformDistribution) Parameters() []Parameter {
	return []Parameter{{"low", constraints.LessThan(d.High), d.Low, false}, {"high", constraints.GreaterThan(d.Low), d.High, false}}
}

// Expand is part of [Distribution].
func (d *UniformDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &UniformDistribution{Low: d.Low.Expand(batchShape), High: d.High.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *UniformDistribution) Support() constraints.Constraint {
	return constraints.Interval(d.Low, d.High)
}

// Mean is part of [Distribution].
func (d *UniformDistribution) Mean() gotorch.Tensor {
	return d.High.Add(d.Low).DivScalar(2)
}

// Mode is part of [Distribution].
func (d *UniformDistribution) Mode() gotorch.Tensor {
	return d.High.MulScalar(math.NaN())
}

// StdDev is part of [Distribution].
func (d *UniformDistribution) StdDev() gotorch.Tensor {
	return d.High.Sub(d.Low).DivScalar(math.Sqrt(12))
}

// Variance is part of [Distribution].
func (d *UniformDistribution) Variance() gotorch.Tensor {
	return d.High.Sub(d.Low).Pow(2).DivScalar(12)
}

// HasRSample is part of [Distribution].
func (d *UniformDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *UniformDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.Low.Add(uniform(d.ExtendedShape(sampleShape...), d.Low).Mul(d.High.Sub(d.Low)))
}

// LogProb is part of [Distribution].
func (d *UniformDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	above, below := d.Low.Le(value).TypeAs(d.Low), d.High.Gt(value).TypeAs(d.Low)
	return above.Mul(below).Log().Sub(d.High.Sub(d.Low).Log())
}

// CDF is part of [Distribution].
func (d *UniformDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return value.Sub(d.Low).Div(d.High.Sub(d.Low)).Clamp(gotorch.ClampOptions{Min: 0, Max: 1})
}

// ICDF is part of [Distribution].
func (d *UniformDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	return value.Mul(d.High.Sub(d.Low)).Add(d.Low)
}

// Entropy is part of [Distribution].
func (d *UniformDistribution) Entropy() gotorch.Tensor {
	return d.High.Sub(d.Low).Log()
}

// StudentTDistribution is what [StudentT] makes.
type StudentTDistribution struct {
	Base
	DF, Loc, Scale gotorch.Tensor
	chi2           Distribution
}

// StudentTOptions are the arguments of [StudentT] that have defaults.
type StudentTOptions struct {
	Loc, Scale     Param // 0 and 1
	NoValidateArgs bool
}

// StudentT is Student's t-distribution with df degrees of freedom, moved by Loc and stretched by Scale. df and Scale are
// positive. Its Mean is NaN for a df up to 1, its Variance infinite up to 2 and NaN up to 1.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.studentT.StudentT.
func StudentT(df Param, opts ...StudentTOptions) *StudentTDistribution {
	opt := args.Option(opts)
	if !numeric.Given(opt.Loc) {
		opt.Loc = 0.0
	}
	if !numeric.Given(opt.Scale) {
		opt.Scale = 1.0
	}
	p := broadcast("StudentT", []string{"df", "Loc", "Scale"}, df, opt.Loc, opt.Scale)
	return Init(&StudentTDistribution{DF: p[0], Loc: p[1], Scale: p[2], chi2: Chi2(p[0])}, p[0].Shape(), nil, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *StudentTDistribution) Parameters() []Parameter {
	return []Parameter{{"df", constraints.Positive, d.DF, false}, {"loc", constraints.Real, d.Loc, false}, {"scale", constraints.Positive, d.Scale, false}}
}

// Expand is part of [Distribution].
func (d *StudentTDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &StudentTDistribution{DF: d.DF.Expand(batchShape), Loc: d.Loc.Expand(batchShape), Scale: d.Scale.Expand(batchShape), chi2: d.chi2.Expand(batchShape...)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *StudentTDistribution) Support() constraints.Constraint {
	return constraints.Real
}

// Mean is part of [Distribution].
func (d *StudentTDistribution) Mean() gotorch.Tensor {
	mean := copied(d.Loc)
	set(mean, d.DF.LeScalar(1), math.NaN())
	return mean
}

// Mode is part of [Distribution].
func (d *StudentTDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// Variance is part of [Distribution].
func (d *StudentTDistribution) Variance() gotorch.Tensor {
	variance, finite := copied(d.DF), d.DF.GtScalar(2)
	df := d.DF.Index(finite)
	variance.IndexPut(d.Scale.Index(finite).Pow(2).Mul(df).Div(df.SubScalar(2)), finite)
	set(variance, d.DF.LeScalar(2).BitwiseAnd(d.DF.GtScalar(1)), math.Inf(1))
	set(variance, d.DF.LeScalar(1), math.NaN())
	return variance
}

// HasRSample is part of [Distribution].
func (d *StudentTDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *StudentTDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	x := standardNormal(d.ExtendedShape(sampleShape...), d.DF)
	z := d.chi2.RSample(sampleShape...)
	return d.Loc.Add(d.Scale.Mul(x.Mul(z.Div(d.DF).Rsqrt())))
}

// LogProb is part of [Distribution].
func (d *StudentTDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	y := value.Sub(d.Loc).Div(d.Scale)
	z := d.Scale.Log().Add(d.DF.Log().MulScalar(0.5)).AddScalar(0.5 * math.Log(math.Pi)).
		Add(d.DF.MulScalar(0.5).Lgamma()).Sub(d.DF.AddScalar(1.0).MulScalar(0.5).Lgamma())
	return d.DF.AddScalar(1.0).MulScalar(-0.5).Mul(y.Pow(2.0).Div(d.DF).Log1p()).Sub(z)
}

// Entropy is part of [Distribution].
func (d *StudentTDistribution) Entropy() gotorch.Tensor {
	const lgammaHalf = 0.5723649429247004 // as C's lgamma computes it
	half := func() gotorch.Tensor { return d.DF.AddScalar(1).MulScalar(0.5) }
	lbeta := d.DF.MulScalar(0.5).Lgamma().AddScalar(lgammaHalf).Sub(half().Lgamma())
	// As gradients are added in the order of the calls, that is PyTorch's.
	scale, factor := d.Scale.Log(), half()
	digammas := half().Digamma().Sub(d.DF.MulScalar(0.5).Digamma())
	return scale.Add(factor.Mul(digammas)).Add(d.DF.Log().MulScalar(0.5)).Add(lbeta)
}

// GeneralizedParetoDistribution is what [GeneralizedPareto] makes.
type GeneralizedParetoDistribution struct {
	Base
	Loc, Scale, Concentration gotorch.Tensor
}

// GeneralizedPareto is the generalised Pareto distribution, of what exceeds loc. scale is positive; concentration, the
// shape, is any number: below 0 the numbers end at loc - scale/concentration, and at 0 it is an [Exponential]
// moved by loc.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.generalized_pareto.GeneralizedPareto.
func GeneralizedPareto(loc, scale, concentration Param, opts ...Options) *GeneralizedParetoDistribution {
	p := broadcast("GeneralizedPareto", []string{"loc", "scale", "concentration"}, loc, scale, concentration)
	return Init(&GeneralizedParetoDistribution{Loc: p[0], Scale: p[1], Concentration: p[2]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *GeneralizedParetoDistribution) Parameters() []Parameter {
	return []Parameter{{"loc", constraints.Real, d.Loc, false}, {"scale", constraints.Positive, d.Scale, false}, {"concentration", constraints.Real, d.Concentration, false}}
}

// Expand is part of [Distribution].
func (d *GeneralizedParetoDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &GeneralizedParetoDistribution{Loc: d.Loc.Expand(batchShape), Scale: d.Scale.Expand(batchShape), Concentration: d.Concentration.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *GeneralizedParetoDistribution) Support() constraints.Constraint {
	upper := where(d.Concentration.LtScalar(0), d.Loc.Sub(d.Scale.Div(d.Concentration)), math.Inf(1))
	return constraints.Interval(d.Loc, upper)
}

// HasRSample is part of [Distribution].
func (d *GeneralizedParetoDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *GeneralizedParetoDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.ICDF(uniform(d.ExtendedShape(sampleShape...), d.Loc))
}

// LogProb is part of [Distribution].
func (d *GeneralizedParetoDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	z, zero, c := d.shape(value)
	y := numeric.Over(1, c).Add(gotorch.OnesLike(z))
	other := gotorch.Where(y.EqScalar(0), y, y.Mul(c.Mul(z).Log1p()))
	return d.Scale.Log().Neg().Sub(gotorch.Where(zero, z, other))
}

// LogSurvivalFunction is the logarithm of the probability of a number above value. With checked arguments it panics
// with a ValueError for a value outside of Support.
func (d *GeneralizedParetoDistribution) LogSurvivalFunction(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	z, zero, c := d.shape(value)
	return gotorch.Where(zero, z.Neg(), c.Mul(z).Log1p().Neg().Div(c))
}

// LogCDF is the logarithm of the CDF.
func (d *GeneralizedParetoDistribution) LogCDF(value gotorch.Tensor) gotorch.Tensor {
	return d.LogSurvivalFunction(value).Exp().Neg().Log1p()
}

// CDF is part of [Distribution].
func (d *GeneralizedParetoDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	return d.LogCDF(value).Exp()
}

// ICDF is part of [Distribution].
func (d *GeneralizedParetoDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	zero := d.Concentration.IsClose(gotorch.ZerosLike(d.Concentration))
	c := gotorch.Where(zero, gotorch.OnesLike(d.Concentration), d.Concentration)
	u := value.Neg().Log1p()
	other := d.Loc.Add(d.Scale.Div(c).Mul(c.Neg().Mul(u).Expm1()))
	return gotorch.Where(zero, d.Loc.Sub(d.Scale.Mul(u)), other)
}

// Mean is part of [Distribution].
func (d *GeneralizedParetoDistribution) Mean() gotorch.Tensor {
	valid := d.Concentration.LtScalar(1)
	c := where(valid, d.Concentration, 0.5)
	return where(valid, d.Loc.Add(d.Scale.Div(numeric.From(1, c))), math.NaN())
}

// Mode is part of [Distribution].
func (d *GeneralizedParetoDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// Variance is part of [Distribution].
func (d *GeneralizedParetoDistribution) Variance() gotorch.Tensor {
	valid := d.Concentration.LtScalar(0.5)
	c := where(valid, d.Concentration, 0.25)
	return where(valid, d.Scale.Pow(2).Div(numeric.From(1, c).Pow(2).Mul(numeric.From(1, c.MulScalar(2)))), math.NaN())
}

// Entropy is part of [Distribution].
func (d *GeneralizedParetoDistribution) Entropy() gotorch.Tensor {
	return d.Scale.Log().Add(d.Concentration).AddScalar(1).BroadcastTo(d.BatchShape())
}

// shape returns the value in units of the scale, where the concentration is zero, and the concentration with ones
// there.
func (d *GeneralizedParetoDistribution) shape(value gotorch.Tensor) (z, zero, c gotorch.Tensor) {
	z = value.Sub(d.Loc).Div(d.Scale)
	zero = d.Concentration.IsClose(gotorch.ScalarTensor(0.0, gotorch.TensorOptions{DType: gotorch.DefaultDType()}))
	return z, zero, gotorch.Where(zero, gotorch.OnesLike(d.Concentration), d.Concentration)
}

// VonMisesDistribution is what [VonMises] makes.
type VonMisesDistribution struct {
	Base
	Loc, Concentration gotorch.Tensor
	variance           lazy
}

// VonMises is the von Mises distribution of angles from -π to π around loc, in radians: the larger concentration, which is
// positive, the nearer to loc.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.von_mises.VonMises.
func VonMises(loc, concentration Param, opts ...Options) *VonMisesDistribution {
	p := broadcast("VonMises", []string{"loc", "concentration"}, loc, concentration)
	return Init(&VonMisesDistribution{Loc: p[0], Concentration: p[1]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *VonMisesDistribution) Parameters() []Parameter {
	return []Parameter{{"loc", constraints.Real, d.Loc, false}, {"concentration", constraints.Positive, d.Concentration, false}}
}

// Expand is part of [Distribution].
func (d *VonMisesDistribution) Expand(batchShape ...int64) Distribution {
	return VonMises(d.Loc.Expand(batchShape), d.Concentration.Expand(batchShape), Options{NoValidateArgs: !d.Validates()})
}

// Support is part of [Distribution].
func (d *VonMisesDistribution) Support() constraints.Constraint {
	return constraints.Real
}

// Mean is part of [Distribution].
func (d *VonMisesDistribution) Mean() gotorch.Tensor {
	return d.Loc
}

// Mode is part of [Distribution].
func (d *VonMisesDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// Variance is part of [Distribution].
func (d *VonMisesDistribution) Variance() gotorch.Tensor {
	return d.variance.get(func() gotorch.Tensor {
		return numeric.From(1, logBessel(d.Concentration, 1).Sub(logBessel(d.Concentration, 0)).Exp())
	})
}

// LogProb is part of [Distribution].
func (d *VonMisesDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	return d.Concentration.Mul(value.Sub(d.Loc).Cos()).SubScalar(math.Log(2 * math.Pi)).Sub(logBessel(d.Concentration, 0))
}

// Sample is part of [Distribution].
func (d *VonMisesDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	return gotorch.NoGrad1(func() gotorch.Tensor { return d.draw(d.ExtendedShape(sampleShape...)) })
}

// draw accepts or rejects wrapped Cauchy samples, after Best and Fisher. It computes in float64: in float32 the
// proposal is none for a small concentration.
func (d *VonMisesDistribution) draw(shape []int64) gotorch.Tensor {
	loc, kappa := d.Loc.To(gotorch.Float64), d.Concentration.To(gotorch.Float64)
	tau := kappa.Pow(2).MulScalar(4).AddScalar(1).Sqrt().AddScalar(1)
	rho := tau.Sub(tau.MulScalar(2).Sqrt()).Div(kappa.MulScalar(2))
	r := rho.Pow(2).AddScalar(1).Div(rho.MulScalar(2))
	r = gotorch.Where(kappa.LtScalar(1e-5), numeric.Over(1, kappa).Add(kappa), r)
	// Where r is rounded to 1, all angles are 0, of which none is accepted.
	if !numeric.Whole(r.IsFinite().BitwiseAnd(r.GtScalar(1))) {
		panic(d.errorf(gotorch.ValueError, "samples can only be drawn for a concentration that is positive and finite, and not so large (about 1e16) "+
			"that float64 does not tell their angles from Loc: %s", d.Concentration))
	}
	x := gotorch.Empty(shape, numeric.Like(loc))
	done := gotorch.Zeros(shape, gotorch.TensorOptions{DType: gotorch.Bool, Device: loc.Device()})
	for !numeric.Whole(done) {
		next := gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
			u := uniform(append([]int64{3}, shape...), loc).Unbind()
			z := u[0].MulScalar(math.Pi).Cos()
			f := r.Mul(z).AddScalar(1).Div(r.Add(z))
			c := kappa.Mul(r.Sub(f))
			accept := c.Mul(numeric.From(2, c)).Sub(u[1]).GtScalar(0).
				BitwiseOr(c.Div(u[1]).Log().AddScalar(1).Sub(c).GeScalar(0))
			if !numeric.Exists(accept) {
				return nil
			}
			angle := u[2].SubScalar(0.5).Sign().Mul(f.Acos())
			return []gotorch.Tensor{gotorch.Where(accept, angle, x), done.BitwiseOr(accept)}
		})
		if next != nil {
			x, done = next[0], next[1]
		}
	}
	return x.AddScalar(math.Pi).Add(loc).RemainderScalar(2 * math.Pi).SubScalar(math.Pi).To(d.Loc.DType())
}

// The polynomials for the modified Bessel functions of orders 0 and 1 of Abramowitz and Stegun, 9.8.1 to 9.8.4.
var (
	besselSmall = [2][]float64{
		{1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2},
		{0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3},
	}
	besselLarge = [2][]float64{
		{
			0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2, -0.2057706e-1, 0.2635537e-1, -0.1647633e-1,
			0.392377e-2,
		},
		{
			0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1, 0.2282967e-1, -0.2895312e-1, 0.1787654e-1,
			-0.420059e-2,
		},
	}
)

// logBessel is the logarithm of the modified Bessel function.
func logBessel(x gotorch.Tensor, order int) gotorch.Tensor {
	y := x.DivScalar(3.75)
	small := polynomial(y.Mul(y), besselSmall[order])
	if order == 1 {
		small = x.Abs().Mul(small)
	}
	y = numeric.Over(3.75, x) // before the logarithm: gradients are added in the order of the calls, that is PyTorch's
	large := x.Sub(x.Log().MulScalar(0.5)).Add(polynomial(y, besselLarge[order]).Log())
	return gotorch.Where(x.LtScalar(3.75), small.Log(), large)
}

func polynomial(y gotorch.Tensor, coefficients []float64) gotorch.Tensor {
	n := len(coefficients) - 1
	result := y.MulScalar(coefficients[n]).AddScalar(coefficients[n-1])
	for i := n - 2; i >= 0; i-- {
		result = y.Mul(result).AddScalar(coefficients[i])
	}
	return result
}
