package distributions

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
)

// BernoulliDistribution is what [Bernoulli] makes.
type BernoulliDistribution struct {
	Base
	*ProbsOrLogits
}

// BernoulliOptions are the arguments of [Bernoulli] that have defaults. Either Probs or Logits must be given.
type BernoulliOptions struct {
	Probs, Logits  Param
	NoValidateArgs bool
}

// Bernoulli is 0 or 1: 1 with probability Probs, from 0 to 1, of which Logits are log(p / (1-p)). It panics with a
// ValueError unless one of the two is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.bernoulli.Bernoulli.
func Bernoulli(opts ...BernoulliOptions) *BernoulliDistribution {
	opt := args.Option(opts)
	isProbs := either("Bernoulli", opt.Probs, opt.Logits)
	value := opt.Logits
	if isProbs {
		value = opt.Probs
	}
	p := broadcast("Bernoulli", []string{"the parameter"}, value)[0]
	return Init(&BernoulliDistribution{ProbsOrLogits: newProbsOrLogits(isProbs, p, true, false)}, p.Shape(), nil, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *BernoulliDistribution) Parameters() []Parameter {
	return d.parameters(constraints.UnitInterval, constraints.Real)
}

// Expand is part of [Distribution].
func (d *BernoulliDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &BernoulliDistribution{ProbsOrLogits: d.expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *BernoulliDistribution) Support() constraints.Constraint {
	return constraints.Boolean
}

// HasEnumerateSupport is part of [Distribution].
func (d *BernoulliDistribution) HasEnumerateSupport() bool {
	return true
}

// Mean is part of [Distribution].
func (d *BernoulliDistribution) Mean() gotorch.Tensor {
	return d.Probs()
}

// Mode is part of [Distribution].
func (d *BernoulliDistribution) Mode() gotorch.Tensor {
	probs := d.Probs()
	mode := probs.GeScalar(0.5).To(probs.DType())
	set(mode, probs.EqScalar(0.5), math.NaN())
	return mode
}

// Variance is part of [Distribution].
func (d *BernoulliDistribution) Variance() gotorch.Tensor {
	return d.Probs().Mul(numeric.From(1, d.Probs()))
}

// Sample is part of [Distribution].
func (d *BernoulliDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	shape := d.ExtendedShape(sampleShape...)
	return gotorch.NoGrad1(func() gotorch.Tensor { return d.Probs().Expand(shape).Bernoulli() })
}

// LogProb is part of [Distribution].
func (d *BernoulliDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	t := gotorch.BroadcastTensors([]gotorch.Tensor{d.Logits(), value})
	return crossEntropy(t[0], t[1]).Neg()
}

// Entropy is part of [Distribution].
func (d *BernoulliDistribution) Entropy() gotorch.Tensor {
	return crossEntropy(d.Logits(), d.Probs())
}

// EnumerateSupport is part of [Distribution].
func (d *BernoulliDistribution) EnumerateSupport(opts ...EnumerateSupportOptions) gotorch.Tensor {
	return enumerated(2, d.batch, numeric.Like(d.param), args.Option(opts))
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *BernoulliDistribution) MeanCarrierMeasure() float64 {
	return 0
}

// NaturalParams is part of [ExponentialFamily].
func (d *BernoulliDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.Probs().Logit()}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *BernoulliDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 1)
	return natural[0].Exp().Log1p()
}

// ContinuousBernoulliDistribution is what [ContinuousBernoulli] makes.
type ContinuousBernoulliDistribution struct {
	Base
	*ProbsOrLogits
	lims [2]float64
}

// ContinuousBernoulliOptions are the arguments of [ContinuousBernoulli] that have defaults. Either Probs or Logits must be given.
type ContinuousBernoulliOptions struct {
	Probs, Logits Param
	// Lims are the two probabilities near 0.5 between which a Taylor series is used: 0.499 and 0.501.
	Lims           []float64
	NoValidateArgs bool
}

// ContinuousBernoulli is of numbers x from 0 to 1, with a density in proportion to pˣ·(1-p)¹⁻ˣ for the Probs p, from 0 to
// 1; Logits are log(p / (1-p)). It panics with a ValueError unless one of the two is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.continuous_bernoulli.ContinuousBernoulli.
func ContinuousBernoulli(opts ...ContinuousBernoulliOptions) *ContinuousBernoulliDistribution {
	opt := args.Option(opts)
	lims := [2]float64{0.499, 0.501}
	if opt.Lims != nil {
		if len(opt.Lims) != 2 {
			panic(numeric.Errorf("distributions.ContinuousBernoulli", gotorch.ValueError, "Lims must be two numbers, not %d", len(opt.Lims)))
		}
		lims = [2]float64(opt.Lims)
	}
	isProbs := either("ContinuousBernoulli", opt.Probs, opt.Logits)
	value := opt.Logits
	if isProbs {
		value = opt.Probs
	}
	p := broadcast("ContinuousBernoulli", []string{"the parameter"}, value)[0]
	if isProbs {
		// As in PyTorch probs are checked where the option says that they are not.
		if opt.NoValidateArgs && !numeric.Whole(constraints.UnitInterval.Check(p)) {
			panic(numeric.Errorf("distributions.ContinuousBernoulli", gotorch.ValueError, "The parameter probs has invalid values"))
		}
		p = clampProbs(p)
	}
	d := &ContinuousBernoulliDistribution{ProbsOrLogits: newProbsOrLogits(isProbs, p, true, true), lims: lims}
	return Init(d, p.Shape(), nil, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *ContinuousBernoulliDistribution) Parameters() []Parameter {
	return d.parameters(constraints.UnitInterval, constraints.Real)
}

// Expand is part of [Distribution].
func (d *ContinuousBernoulliDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &ContinuousBernoulliDistribution{ProbsOrLogits: d.expand(batchShape), lims: d.lims}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *ContinuousBernoulliDistribution) Support() constraints.Constraint {
	return constraints.UnitInterval
}

// Mean is part of [Distribution].
func (d *ContinuousBernoulliDistribution) Mean() gotorch.Tensor {
	c := d.cutProbs()
	mean := c.Div(c.MulScalar(2.0).SubScalar(1.0)).Add(numeric.Over(1.0, c.Neg().Log1p().Sub(c.Log())))
	x := d.Probs().SubScalar(0.5)
	taylor := x.Pow(2).MulScalar(16.0 / 45.0).AddScalar(1.0 / 3.0).Mul(x).AddScalar(0.5)
	return gotorch.Where(d.stable(), mean, taylor)
}

// StdDev is part of [Distribution].
func (d *ContinuousBernoulliDistribution) StdDev() gotorch.Tensor {
	return d.Variance().Sqrt()
}

// Variance is part of [Distribution].
func (d *ContinuousBernoulliDistribution) Variance() gotorch.Tensor {
	c := d.cutProbs()
	variance := c.Mul(c.SubScalar(1.0)).Div(numeric.From(1.0, c.MulScalar(2.0)).Pow(2)).
		Add(numeric.Over(1.0, c.Neg().Log1p().Sub(c.Log()).Pow(2)))
	x := d.Probs().SubScalar(0.5).Pow(2)
	taylor := numeric.From(1.0/12.0, numeric.From(1.0/15.0, x.MulScalar(128.0/945.0)).Mul(x))
	return gotorch.Where(d.stable(), variance, taylor)
}

// Sample is part of [Distribution].
func (d *ContinuousBernoulliDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	u := uniform(d.ExtendedShape(sampleShape...), d.Probs())
	return gotorch.NoGrad1(func() gotorch.Tensor { return d.ICDF(u) })
}

// HasRSample is part of [Distribution].
func (d *ContinuousBernoulliDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *ContinuousBernoulliDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.ICDF(uniform(d.ExtendedShape(sampleShape...), d.Probs()))
}

// LogProb is part of [Distribution].
func (d *ContinuousBernoulliDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	t := gotorch.BroadcastTensors([]gotorch.Tensor{d.Logits(), value})
	return crossEntropy(t[0], t[1]).Neg().Add(d.logNorm())
}

// CDF is part of [Distribution].
func (d *ContinuousBernoulliDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	c := d.cutProbs()
	cdf := c.PowTensor(value).Mul(numeric.From(1.0, c).PowTensor(numeric.From(1.0, value))).Add(c).SubScalar(1.0).
		Div(c.MulScalar(2.0).SubScalar(1.0))
	cdf = gotorch.Where(d.stable(), cdf, value)
	cdf = gotorch.Where(value.GeScalar(1.0), gotorch.OnesLike(value), cdf)
	return gotorch.Where(value.LeScalar(0.0), gotorch.ZerosLike(value), cdf)
}

// ICDF is part of [Distribution].
func (d *ContinuousBernoulliDistribution) ICDF(value gotorch.Tensor) gotorch.Tensor {
	c := d.cutProbs()
	above := c.Neg().Add(value.Mul(c.MulScalar(2.0).SubScalar(1.0))).Log1p().Sub(c.Neg().Log1p())
	return gotorch.Where(d.stable(), above.Div(c.Log().Sub(c.Neg().Log1p())), value)
}

// Entropy is part of [Distribution].
func (d *ContinuousBernoulliDistribution) Entropy() gotorch.Tensor {
	log0, log1 := d.Probs().Neg().Log1p(), d.Probs().Log()
	return d.Mean().Mul(log0.Sub(log1)).Sub(d.logNorm()).Sub(log0)
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *ContinuousBernoulliDistribution) MeanCarrierMeasure() float64 {
	return 0
}

// NaturalParams is part of [ExponentialFamily].
func (d *ContinuousBernoulliDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.Logits()}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *ContinuousBernoulliDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 1)
	x := natural[0]
	stable := x.LeScalar(d.lims[0] - 0.5).MaxOther(x.GtScalar(d.lims[1] - 0.5))
	cut := gotorch.Where(stable, x, gotorch.OnesLike(x).MulScalar(d.lims[0]-0.5))
	norm := cut.Expm1().Abs().Log().Sub(cut.Abs().Log())
	taylor := x.MulScalar(0.5).Add(x.Pow(2).DivScalar(24.0)).Sub(x.Pow(4).DivScalar(2880.0))
	return gotorch.Where(stable, norm, taylor)
}

// stable is where the probability is not so close to 0.5 that the formulas lose all digits.
func (d *ContinuousBernoulliDistribution) stable() gotorch.Tensor {
	probs := d.Probs()
	return probs.LeScalar(d.lims[0]).MaxOther(probs.GtScalar(d.lims[1]))
}

// cutProbs are the probabilities where they are stable.
func (d *ContinuousBernoulliDistribution) cutProbs() gotorch.Tensor {
	return gotorch.Where(d.stable(), d.Probs(), gotorch.OnesLike(d.Probs()).MulScalar(d.lims[0]))
}

// logNorm is the logarithm of the normalising constant.
func (d *ContinuousBernoulliDistribution) logNorm() gotorch.Tensor {
	c := d.cutProbs()
	low, high := c.LeScalar(0.5), c.GeScalar(0.5)
	below := gotorch.Where(low, c, gotorch.ZerosLike(c))
	above := gotorch.Where(high, c, gotorch.OnesLike(c))
	norm := c.Neg().Log1p().Sub(c.Log()).Abs().Log().Sub(
		gotorch.Where(c.LeScalar(0.5), below.MulScalar(-2.0).Log1p(), above.MulScalar(2.0).SubScalar(1.0).Log()))
	x := d.Probs().SubScalar(0.5).Pow(2)
	taylor := x.MulScalar(104.0 / 45.0).AddScalar(4.0 / 3.0).Mul(x).AddScalar(math.Ln2)
	return gotorch.Where(d.stable(), norm, taylor)
}

// BinomialDistribution is what [Binomial] makes.
type BinomialDistribution struct {
	Base
	TotalCount gotorch.Tensor
	*ProbsOrLogits
}

// BinomialOptions are the arguments of [Binomial] that have defaults. Either Probs or Logits must be given.
type BinomialOptions struct {
	TotalCount     Param // 1
	Probs, Logits  Param
	NoValidateArgs bool
}

// Binomial is how many of TotalCount trials succeed, each with probability Probs, of which Logits are log(p / (1-p)).
// TotalCount is of whole numbers from 0, and broadcasts with them. It panics with a ValueError unless one of Probs and
// Logits is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.binomial.Binomial.
func Binomial(opts ...BinomialOptions) *BinomialDistribution {
	opt := args.Option(opts)
	if !numeric.Given(opt.TotalCount) {
		opt.TotalCount = 1
	}
	isProbs := either("Binomial", opt.Probs, opt.Logits)
	value := opt.Logits
	if isProbs {
		value = opt.Probs
	}
	p := broadcast("Binomial", []string{"total_count", "the parameter"}, opt.TotalCount, value)
	d := &BinomialDistribution{TotalCount: p[0].TypeAs(p[1]), ProbsOrLogits: newProbsOrLogits(isProbs, p[1], true, false)}
	return Init(d, p[1].Shape(), nil, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *BinomialDistribution) Parameters() []Parameter {
	return append([]Parameter{{"total_count", constraints.NonnegativeInteger, d.TotalCount, false}},
		d.parameters(constraints.UnitInterval, constraints.Real)...)
}

// Expand is part of [Distribution].
func (d *BinomialDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &BinomialDistribution{ProbsOrLogits: d.expand(batchShape), TotalCount: d.TotalCount.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *BinomialDistribution) Support() constraints.Constraint {
	return constraints.IntegerInterval(0, d.TotalCount)
}

// HasEnumerateSupport is part of [Distribution].
func (d *BinomialDistribution) HasEnumerateSupport() bool {
	return true
}

// Mean is part of [Distribution].
func (d *BinomialDistribution) Mean() gotorch.Tensor {
	return d.TotalCount.Mul(d.Probs())
}

// Mode is part of [Distribution].
func (d *BinomialDistribution) Mode() gotorch.Tensor {
	return d.TotalCount.AddScalar(1).Mul(d.Probs()).Floor().ClampTensor(gotorch.ClampTensorOptions{Max: d.TotalCount})
}

// Variance is part of [Distribution].
func (d *BinomialDistribution) Variance() gotorch.Tensor {
	return d.TotalCount.Mul(d.Probs()).Mul(numeric.From(1, d.Probs()))
}

// Sample is part of [Distribution].
func (d *BinomialDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	shape := d.ExtendedShape(sampleShape...)
	// Where counts were not checked PyTorch draws for ever for one that is not finite.
	if !d.Validates() && !numeric.Whole(d.TotalCount.IsFinite()) {
		panic(d.errorf(gotorch.ValueError, "samples can only be drawn for a total_count that is finite, not %s", numeric.Text(d.TotalCount)))
	}
	return gotorch.NoGrad1(func() gotorch.Tensor {
		return gotorch.Binomial(d.TotalCount.Expand(shape), d.Probs().Expand(shape))
	})
}

// LogProb is part of [Distribution].
func (d *BinomialDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	logits := d.Logits()
	n := d.TotalCount.AddScalar(1).Lgamma()
	k := value.AddScalar(1).Lgamma()
	rest := d.TotalCount.Sub(value).AddScalar(1).Lgamma()
	// max(logits, 0), whose gradient at 0 is a half.
	positive := logits.Clamp(gotorch.ClampOptions{Min: 0}).Add(logits).Sub(logits.Clamp(gotorch.ClampOptions{Max: 0})).DivScalar(2)
	norm := d.TotalCount.Mul(positive).Add(d.TotalCount.Mul(logits.Abs().Neg().Exp().Log1p())).Sub(n)
	return value.Mul(logits).Sub(k).Sub(rest).Sub(norm)
}

// Entropy is part of [Distribution].
func (d *BinomialDistribution) Entropy() gotorch.Tensor {
	d.count("Entropy")
	log := d.LogProb(d.EnumerateSupport(EnumerateSupportOptions{NoExpand: true}))
	return log.Exp().Mul(log).SumDim([]int64{0}).Neg()
}

// EnumerateSupport is part of [Distribution].
func (d *BinomialDistribution) EnumerateSupport(opts ...EnumerateSupportOptions) gotorch.Tensor {
	return enumerated(1+d.count("EnumerateSupport"), d.batch, numeric.Like(d.param), args.Option(opts))
}

// count returns the number of trials where that is the same for the whole batch.
func (d *BinomialDistribution) count(what string) int64 {
	n := gotorch.Item[int64](d.TotalCount.Max())
	if gotorch.Item[float64](d.TotalCount.Min()) != float64(n) {
		panic(d.errorf(gotorch.NotImplementedError, "%s needs the same total count for the whole batch", what))
	}
	return n
}

// GeometricDistribution is what [Geometric] makes.
type GeometricDistribution struct {
	Base
	*ProbsOrLogits
}

// GeometricOptions are the arguments of [Geometric] that have defaults. Either Probs or Logits must be given.
type GeometricOptions struct {
	Probs, Logits  Param
	NoValidateArgs bool
}

// Geometric is how many trials fail before the first one that succeeds, each with probability Probs, which is above 0; Logits
// are log(p / (1-p)). It panics with a ValueError unless one of the two is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.geometric.Geometric.
func Geometric(opts ...GeometricOptions) *GeometricDistribution {
	opt := args.Option(opts)
	isProbs := either("Geometric", opt.Probs, opt.Logits)
	value := opt.Logits
	if isProbs {
		value = opt.Probs
	}
	p := broadcast("Geometric", []string{"the parameter"}, value)[0]
	d := Init(&GeometricDistribution{ProbsOrLogits: newProbsOrLogits(isProbs, p, true, false)}, p.Shape(), nil, Options{opt.NoValidateArgs})
	if isProbs && d.Validates() {
		if valid := p.GtScalar(0); !numeric.Whole(valid) {
			panic(d.errorf(gotorch.ValueError,
				"Expected parameter probs (Tensor of shape %s) of distribution %s to be positive but found invalid values:\n%s",
				numeric.Tuple(p.Shape()), d, p.Detach().Index(valid.BitwiseNot())))
		}
	}
	return d
}

// Parameters is part of [Distribution].
func (d *GeometricDistribution) Parameters() []Parameter {
	return d.parameters(constraints.UnitInterval, constraints.Real)
}

// Expand is part of [Distribution].
func (d *GeometricDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &GeometricDistribution{ProbsOrLogits: d.expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *GeometricDistribution) Support() constraints.Constraint {
	return constraints.NonnegativeInteger
}

// Mean is part of [Distribution].
func (d *GeometricDistribution) Mean() gotorch.Tensor {
	return numeric.Over(1.0, d.Probs()).SubScalar(1.0)
}

// Mode is part of [Distribution].
func (d *GeometricDistribution) Mode() gotorch.Tensor {
	return gotorch.ZerosLike(d.Probs())
}

// Variance is part of [Distribution].
func (d *GeometricDistribution) Variance() gotorch.Tensor {
	return numeric.Over(1.0, d.Probs()).SubScalar(1.0).Div(d.Probs())
}

// Sample is part of [Distribution].
func (d *GeometricDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	probs := d.Probs()
	return gotorch.NoGrad1(func() gotorch.Tensor {
		u := probs.NewEmpty(d.ExtendedShape(sampleShape...)).Uniform_(gotorch.UniformOptions{From: numeric.Tiny(probs.DType()), To: new(1.0)})
		return u.Log().Div(probs.Neg().Log1p()).Floor()
	})
}

// LogProb is part of [Distribution].
func (d *GeometricDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	t := gotorch.BroadcastTensors([]gotorch.Tensor{value, d.Probs()})
	value, probs := t[0], copied(t[1])
	set(probs, probs.EqScalar(1).BitwiseAnd(value.EqScalar(0)), 0)
	return value.Mul(probs.Neg().Log1p()).Add(d.Probs().Log())
}

// Entropy is part of [Distribution].
func (d *GeometricDistribution) Entropy() gotorch.Tensor {
	return crossEntropy(d.Logits(), d.Probs()).Div(d.Probs())
}

// NegativeBinomialDistribution is what [NegativeBinomial] makes.
type NegativeBinomialDistribution struct {
	Base
	TotalCount gotorch.Tensor
	*ProbsOrLogits
}

// NegativeBinomialOptions are the arguments of [NegativeBinomial] that have defaults. Either Probs or Logits must be given.
type NegativeBinomialOptions struct {
	Probs, Logits  Param
	NoValidateArgs bool
}

// NegativeBinomial is how many trials succeed, each with probability Probs, from 0 and less than 1, before totalCount, from
// 0, have failed; Logits are log(p / (1-p)). It panics with a ValueError unless one of the two is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.negative_binomial.NegativeBinomial.
func NegativeBinomial(totalCount Param, opts ...NegativeBinomialOptions) *NegativeBinomialDistribution {
	opt := args.Option(opts)
	isProbs := either("NegativeBinomial", opt.Probs, opt.Logits)
	value := opt.Logits
	if isProbs {
		value = opt.Probs
	}
	p := broadcast("NegativeBinomial", []string{"total_count", "the parameter"}, totalCount, value)
	d := &NegativeBinomialDistribution{TotalCount: p[0].TypeAs(p[1]), ProbsOrLogits: newProbsOrLogits(isProbs, p[1], true, false)}
	return Init(d, p[1].Shape(), nil, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *NegativeBinomialDistribution) Parameters() []Parameter {
	return append([]Parameter{{"total_count", atLeast0, d.TotalCount, false}}, d.parameters(below1, constraints.Real)...)
}

// Expand is part of [Distribution].
func (d *NegativeBinomialDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &NegativeBinomialDistribution{ProbsOrLogits: d.expand(batchShape), TotalCount: d.TotalCount.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *NegativeBinomialDistribution) Support() constraints.Constraint {
	return constraints.NonnegativeInteger
}

// Mean is part of [Distribution].
func (d *NegativeBinomialDistribution) Mean() gotorch.Tensor {
	return d.TotalCount.Mul(d.Logits().Exp())
}

// Mode is part of [Distribution].
func (d *NegativeBinomialDistribution) Mode() gotorch.Tensor {
	return d.TotalCount.SubScalar(1).Mul(d.Logits().Exp()).Floor().Clamp(gotorch.ClampOptions{Min: 0.0})
}

// Variance is part of [Distribution].
func (d *NegativeBinomialDistribution) Variance() gotorch.Tensor {
	return d.Mean().Div(d.Logits().Neg().Sigmoid())
}

// Sample is part of [Distribution].
func (d *NegativeBinomialDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	return gotorch.NoGrad1(func() gotorch.Tensor {
		gamma := Gamma(d.TotalCount, d.Logits().Neg().Exp(), Options{NoValidateArgs: true})
		return gotorch.Poisson(gamma.Sample(sampleShape...))
	})
}

// LogProb is part of [Distribution].
func (d *NegativeBinomialDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	log := d.TotalCount.Mul(gotorch.LogSigmoid(d.Logits().Neg())).Add(value.Mul(gotorch.LogSigmoid(d.Logits())))
	norm := d.TotalCount.Add(value).Lgamma().Neg().Add(value.AddScalar(1.0).Lgamma()).Add(d.TotalCount.Lgamma())
	return log.Sub(norm.MaskedFill(d.TotalCount.Add(value).EqScalar(0.0), 0.0))
}

var (
	atLeast0 = constraints.GreaterThanEq(0)
	below1   = constraints.HalfOpenInterval(0.0, 1.0)
)

// PoissonDistribution is what [Poisson] makes.
type PoissonDistribution struct {
	Base
	Rate gotorch.Tensor
}

// Poisson is how many events happen in a time in which rate, from 0, are expected.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.poisson.Poisson.
func Poisson(rate Param, opts ...Options) *PoissonDistribution {
	p := broadcast("Poisson", []string{"rate"}, rate)
	return Init(&PoissonDistribution{Rate: p[0]}, p[0].Shape(), nil, opts...)
}

// Parameters is part of [Distribution].
func (d *PoissonDistribution) Parameters() []Parameter {
	return []Parameter{{"rate", constraints.Nonnegative, d.Rate, false}}
}

// Expand is part of [Distribution].
func (d *PoissonDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &PoissonDistribution{Rate: d.Rate.Expand(batchShape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *PoissonDistribution) Support() constraints.Constraint {
	return constraints.NonnegativeInteger
}

// Mean is part of [Distribution].
func (d *PoissonDistribution) Mean() gotorch.Tensor {
	return d.Rate
}

// Mode is part of [Distribution].
func (d *PoissonDistribution) Mode() gotorch.Tensor {
	return d.Rate.Floor()
}

// Variance is part of [Distribution].
func (d *PoissonDistribution) Variance() gotorch.Tensor {
	return d.Rate
}

// Sample is part of [Distribution].
func (d *PoissonDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	shape := d.ExtendedShape(sampleShape...)
	return gotorch.NoGrad1(func() gotorch.Tensor { return gotorch.Poisson(d.Rate.Expand(shape)) })
}

// LogProb is part of [Distribution].
func (d *PoissonDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	t := gotorch.BroadcastTensors([]gotorch.Tensor{d.Rate, value})
	return t[1].Xlogy(t[0]).Sub(t[0]).Sub(t[1].AddScalar(1).Lgamma())
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *PoissonDistribution) MeanCarrierMeasure() float64 {
	panic(d.missing("MeanCarrierMeasure"))
}

// NaturalParams is part of [ExponentialFamily].
func (d *PoissonDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.Rate.Log()}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *PoissonDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 1)
	return natural[0].Exp()
}
