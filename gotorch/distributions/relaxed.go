package distributions

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/distributions/transforms"
	"gotorch.dev/gotorch/internal/args"
)

// LogitRelaxedBernoulliDistribution is what [LogitRelaxedBernoulli] makes.
type LogitRelaxedBernoulliDistribution struct {
	Base
	Temperature gotorch.Tensor
	*ProbsOrLogits
}

// LogitRelaxedBernoulliOptions are the arguments of [LogitRelaxedBernoulli] that have defaults. Either Probs or Logits must be given.
type LogitRelaxedBernoulliOptions struct {
	Probs, Logits  Param
	NoValidateArgs bool
}

// LogitRelaxedBernoulli is [RelaxedBernoulli] before the sigmoid: of any real numbers. It takes the same arguments.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.relaxed_bernoulli.LogitRelaxedBernoulli.
func LogitRelaxedBernoulli(temperature gotorch.Tensor, opts ...LogitRelaxedBernoulliOptions) *LogitRelaxedBernoulliDistribution {
	numeric.MustTensor("distributions.LogitRelaxedBernoulli", "temperature", temperature)
	opt := args.Option(opts)
	isProbs := either("LogitRelaxedBernoulli", opt.Probs, opt.Logits)
	value := opt.Logits
	if isProbs {
		value = opt.Probs
	}
	p := broadcast("LogitRelaxedBernoulli", []string{"the parameter"}, value)[0]
	return Init(&LogitRelaxedBernoulliDistribution{Temperature: temperature, ProbsOrLogits: newProbsOrLogits(isProbs, p, true, false)}, p.Shape(), nil, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *LogitRelaxedBernoulliDistribution) Parameters() []Parameter {
	return d.parameters(constraints.UnitInterval, constraints.Real)
}

// Expand is part of [Distribution].
func (d *LogitRelaxedBernoulliDistribution) Expand(batchShape ...int64) Distribution {
	return expanded(&d.Base, &LogitRelaxedBernoulliDistribution{ProbsOrLogits: d.expand(batchShape), Temperature: d.Temperature}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *LogitRelaxedBernoulliDistribution) Support() constraints.Constraint {
	return constraints.Real
}

// RSample is part of [Distribution].
func (d *LogitRelaxedBernoulliDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	shape := d.ExtendedShape(sampleShape...)
	probs := clampProbs(d.Probs().Expand(shape))
	u := clampProbs(uniform(shape, probs))
	return u.Log().Sub(u.Neg().Log1p()).Add(probs.Log()).Sub(probs.Neg().Log1p()).Div(d.Temperature)
}

// LogProb is part of [Distribution].
func (d *LogitRelaxedBernoulliDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	t := gotorch.BroadcastTensors([]gotorch.Tensor{d.Logits(), value})
	diff := t[0].Sub(t[1].Mul(d.Temperature))
	return d.Temperature.Log().Add(diff).Sub(diff.Exp().Log1p().MulScalar(2))
}

// RelaxedBernoulliDistribution is what [RelaxedBernoulli] makes.
type RelaxedBernoulliDistribution struct {
	TransformedDistribution
}

// RelaxedBernoulliOptions are the arguments of [RelaxedBernoulli] that have defaults. Either Probs or Logits must be given.
type RelaxedBernoulliOptions struct {
	Probs, Logits  Param
	NoValidateArgs bool
}

// RelaxedBernoulli is of numbers between 0 and 1 that are close to those of [Bernoulli] for a low temperature, with a
// gradient for its parameters. temperature is a tensor, positive, which is not
// checked; none is a TypeError. It panics with a ValueError unless
// one of Probs and Logits is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.relaxed_bernoulli.RelaxedBernoulli.
func RelaxedBernoulli(temperature gotorch.Tensor, opts ...RelaxedBernoulliOptions) *RelaxedBernoulliDistribution {
	opt := args.Option(opts)
	base := LogitRelaxedBernoulli(temperature, LogitRelaxedBernoulliOptions{Probs: opt.Probs, Logits: opt.Logits})
	return initTransformed(&RelaxedBernoulliDistribution{}, base, []transforms.Transform{transforms.Sigmoid()}, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *RelaxedBernoulliDistribution) Parameters() []Parameter {
	return d.relaxed().ofParts(&d.Base, constraints.UnitInterval, constraints.Real)
}

// Expand is part of [Distribution].
func (d *RelaxedBernoulliDistribution) Expand(batchShape ...int64) Distribution {
	of := &RelaxedBernoulliDistribution{}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *RelaxedBernoulliDistribution) Support() constraints.Constraint {
	return constraints.UnitInterval
}

// HasRSample is part of [Distribution].
func (d *RelaxedBernoulliDistribution) HasRSample() bool {
	return true
}

// Temperature is the temperature.
func (d *RelaxedBernoulliDistribution) Temperature() gotorch.Tensor { return d.relaxed().Temperature }

// Probs are the probabilities.
func (d *RelaxedBernoulliDistribution) Probs() gotorch.Tensor { return d.relaxed().Probs() }

// Logits are the logits.
func (d *RelaxedBernoulliDistribution) Logits() gotorch.Tensor { return d.relaxed().Logits() }

func (d *RelaxedBernoulliDistribution) relaxed() *LogitRelaxedBernoulliDistribution {
	return d.BaseDist.(*LogitRelaxedBernoulliDistribution)
}

// ExpRelaxedCategoricalDistribution is what [ExpRelaxedCategorical] makes.
type ExpRelaxedCategoricalDistribution struct {
	Base
	Temperature gotorch.Tensor
	categorical *CategoricalDistribution
}

// ExpRelaxedCategoricalOptions are the arguments of [ExpRelaxedCategorical] that have defaults. Either Probs or Logits must be given.
type ExpRelaxedCategoricalOptions struct {
	Probs, Logits  gotorch.Tensor
	NoValidateArgs bool
}

// ExpRelaxedCategorical is the logarithm of [RelaxedOneHotCategorical], and takes the same arguments.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.relaxed_categorical.RelaxedOneHotCategorical.
func ExpRelaxedCategorical(temperature gotorch.Tensor, opts ...ExpRelaxedCategoricalOptions) *ExpRelaxedCategoricalDistribution {
	numeric.MustTensor("distributions.ExpRelaxedCategorical", "temperature", temperature)
	opt := args.Option(opts)
	d := &ExpRelaxedCategoricalDistribution{Temperature: temperature, categorical: categorical(opt.Probs, opt.Logits)}
	return Init(d, d.categorical.batch, tail(d.ParamShape(), 1), Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *ExpRelaxedCategoricalDistribution) Parameters() []Parameter {
	return d.categorical.ofParts(&d.Base, constraints.Simplex, constraints.RealVector)
}

// Expand is part of [Distribution].
func (d *ExpRelaxedCategoricalDistribution) Expand(batchShape ...int64) Distribution {
	of := d.categorical.Expand(batchShape...).(*CategoricalDistribution)
	return expanded(&d.Base, &ExpRelaxedCategoricalDistribution{Temperature: d.Temperature, categorical: of}, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *ExpRelaxedCategoricalDistribution) Support() constraints.Constraint {
	return constraints.RealVector
}

// HasRSample is part of [Distribution].
func (d *ExpRelaxedCategoricalDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *ExpRelaxedCategoricalDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	u := clampProbs(uniform(d.ExtendedShape(sampleShape...), d.Logits()))
	gumbels := u.Log().Neg().Log().Neg()
	scores := d.Logits().Add(gumbels).Div(d.Temperature)
	return scores.Sub(scores.LogSumExp(last, gotorch.LogSumExpOptions{KeepDim: true}))
}

// LogProb is part of [Distribution].
func (d *ExpRelaxedCategoricalDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	k := d.categorical.count()
	t := gotorch.BroadcastTensors([]gotorch.Tensor{d.Logits(), value})
	scale := gotorch.FullLike(d.Temperature, float64(k)).Lgamma().Sub(d.Temperature.Log().MulScalar(-(k - 1)))
	score := t[0].Sub(t[1].Mul(d.Temperature))
	return sum(score.Sub(score.LogSumExp(last, gotorch.LogSumExpOptions{KeepDim: true}))).Add(scale)
}

// Probs are the probabilities.
func (d *ExpRelaxedCategoricalDistribution) Probs() gotorch.Tensor { return d.categorical.Probs() }

// Logits are their logarithms.
func (d *ExpRelaxedCategoricalDistribution) Logits() gotorch.Tensor { return d.categorical.Logits() }

// ParamShape is the shape of Probs and Logits.
func (d *ExpRelaxedCategoricalDistribution) ParamShape() []int64 { return d.categorical.ParamShape() }

// RelaxedOneHotCategoricalDistribution is what [RelaxedOneHotCategorical] makes.
type RelaxedOneHotCategoricalDistribution struct {
	TransformedDistribution
}

// RelaxedOneHotCategoricalOptions are the arguments of [RelaxedOneHotCategorical] that have defaults. Either Probs or Logits must be given.
type RelaxedOneHotCategoricalOptions struct {
	Probs, Logits  gotorch.Tensor
	NoValidateArgs bool
}

// RelaxedOneHotCategorical is of vectors that sum to 1 and are close to those of [OneHotCategorical] for a low temperature,
// with a gradient for its parameters: the Gumbel-softmax. temperature is a tensor, positive, which is
// not checked; none is a TypeError. Events are of (n) for Probs or Logits of (*, n). It panics with a ValueError unless one of the two is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.relaxed_categorical.RelaxedOneHotCategorical.
func RelaxedOneHotCategorical(temperature gotorch.Tensor, opts ...RelaxedOneHotCategoricalOptions) *RelaxedOneHotCategoricalDistribution {
	opt := args.Option(opts)
	base := ExpRelaxedCategorical(temperature, ExpRelaxedCategoricalOptions(opt))
	return initTransformed(&RelaxedOneHotCategoricalDistribution{}, base, []transforms.Transform{transforms.Exp()}, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *RelaxedOneHotCategoricalDistribution) Parameters() []Parameter {
	return d.relaxed().categorical.ofParts(&d.Base, constraints.Simplex, constraints.RealVector)
}

// Expand is part of [Distribution].
func (d *RelaxedOneHotCategoricalDistribution) Expand(batchShape ...int64) Distribution {
	of := &RelaxedOneHotCategoricalDistribution{}
	return d.expandInto(of, batchShape)
}

// Support is part of [Distribution].
func (d *RelaxedOneHotCategoricalDistribution) Support() constraints.Constraint {
	return constraints.Simplex
}

// HasRSample is part of [Distribution].
func (d *RelaxedOneHotCategoricalDistribution) HasRSample() bool {
	return true
}

// Temperature is the temperature.
func (d *RelaxedOneHotCategoricalDistribution) Temperature() gotorch.Tensor {
	return d.relaxed().Temperature
}

// Probs are the probabilities.
func (d *RelaxedOneHotCategoricalDistribution) Probs() gotorch.Tensor { return d.relaxed().Probs() }

// Logits are the logits.
func (d *RelaxedOneHotCategoricalDistribution) Logits() gotorch.Tensor { return d.relaxed().Logits() }

func (d *RelaxedOneHotCategoricalDistribution) relaxed() *ExpRelaxedCategoricalDistribution {
	return d.BaseDist.(*ExpRelaxedCategoricalDistribution)
}
