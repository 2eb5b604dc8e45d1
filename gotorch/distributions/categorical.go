package distributions

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
)

// CategoricalDistribution is what [Categorical] makes.
type CategoricalDistribution struct {
	Base
	*ProbsOrLogits
}

// CategoricalOptions are the arguments of [Categorical] that have defaults. Either Probs or Logits must be given, of shape
// (*, n).
type CategoricalOptions struct {
	Probs, Logits  gotorch.Tensor
	NoValidateArgs bool
}

// Categorical is one of 0 to n-1, an int64, with n probabilities that are scaled to sum to 1: Probs are not negative, and
// Logits are their logarithms up to a constant. Parameters are of (*, n), events of no dimensions. It panics with a
// ValueError unless one of the two is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.categorical.Categorical.
func Categorical(opts ...CategoricalOptions) *CategoricalDistribution {
	opt := args.Option(opts)
	isProbs := either("Categorical", opt.Probs, opt.Logits)
	name, value := "logits", opt.Logits
	if isProbs {
		name, value = "probs", opt.Probs
	}
	if value.Dim() < 1 {
		panic(numeric.Errorf("distributions.Categorical", gotorch.ValueError, "`%s` parameter must be at least one-dimensional.", name))
	}
	if isProbs {
		value = value.Div(value.SumDim(last, kept))
	} else {
		value = value.Sub(value.LogSumExp(last, gotorch.LogSumExpOptions{KeepDim: true}))
	}
	d := &CategoricalDistribution{ProbsOrLogits: newProbsOrLogits(isProbs, value, false, false)}
	return Init(d, head(value.Shape(), 1), nil, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *CategoricalDistribution) Parameters() []Parameter {
	return d.parameters(constraints.Simplex, constraints.RealVector)
}

// Expand is part of [Distribution].
func (d *CategoricalDistribution) Expand(batchShape ...int64) Distribution {
	shape := numeric.Join(batchShape, d.count())
	return expanded(&d.Base, &CategoricalDistribution{ProbsOrLogits: d.expand(shape)}, batchShape, nil)
}

// Support is part of [Distribution].
func (d *CategoricalDistribution) Support() constraints.Constraint {
	return constraints.IntegerInterval(0, d.count()-1)
}

// HasEnumerateSupport is part of [Distribution].
func (d *CategoricalDistribution) HasEnumerateSupport() bool {
	return true
}

// Mean is part of [Distribution].
func (d *CategoricalDistribution) Mean() gotorch.Tensor {
	return filled(d.batch, math.NaN(), d.Probs())
}

// Mode is part of [Distribution].
func (d *CategoricalDistribution) Mode() gotorch.Tensor {
	return d.Probs().ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(-1))})
}

// Variance is part of [Distribution].
func (d *CategoricalDistribution) Variance() gotorch.Tensor {
	return filled(d.batch, math.NaN(), d.Probs())
}

// Sample is part of [Distribution].
func (d *CategoricalDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	probs := d.Probs().Reshape([]int64{-1, d.count()})
	samples := probs.Multinomial(numeric.Product(sampleShape), gotorch.MultinomialOptions{Replacement: true})
	return samples.Transpose2D().Reshape(d.ExtendedShape(sampleShape...))
}

// LogProb is part of [Distribution].
func (d *CategoricalDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	t := gotorch.BroadcastTensors([]gotorch.Tensor{value.To(gotorch.Int64).Unsqueeze(-1), d.Logits()})
	index := t[0].Index(gotorch.Ellipsis, gotorch.SliceTo(1))
	return t[1].Gather(-1, index).SqueezeDim(-1)
}

// Entropy is part of [Distribution].
func (d *CategoricalDistribution) Entropy() gotorch.Tensor {
	logits := d.Logits()
	logits = logits.Clamp(gotorch.ClampOptions{Min: numeric.Lowest(logits.DType())})
	return sum(logits.Mul(d.Probs())).Neg()
}

// EnumerateSupport is part of [Distribution].
func (d *CategoricalDistribution) EnumerateSupport(opts ...EnumerateSupportOptions) gotorch.Tensor {
	like := gotorch.TensorOptions{DType: gotorch.Int64, Device: d.param.Device()}
	return enumerated(d.count(), d.batch, like, args.Option(opts))
}

// count is the number of categories.
func (d *CategoricalDistribution) count() int64 { return d.param.Size(-1) }

// OneHotCategoricalDistribution is what [OneHotCategorical] makes.
type OneHotCategoricalDistribution struct {
	Base
	categorical *CategoricalDistribution
}

// OneHotCategoricalOptions are the arguments of [OneHotCategorical] that have defaults. Either Probs or Logits must be given, of shape
// (*, n).
type OneHotCategoricalOptions struct {
	Probs, Logits  gotorch.Tensor
	NoValidateArgs bool
}

// OneHotCategorical is a vector of n zeros with a single 1, where [Categorical] is its place. Events are of (n) and of the
// dtype of the parameter. It panics with a ValueError unless one of Probs and Logits is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.one_hot_categorical.OneHotCategorical.
func OneHotCategorical(opts ...OneHotCategoricalOptions) *OneHotCategoricalDistribution {
	opt := args.Option(opts)
	d := &OneHotCategoricalDistribution{categorical: categorical(opt.Probs, opt.Logits)}
	return Init(d, d.categorical.batch, tail(d.ParamShape(), 1), Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *OneHotCategoricalDistribution) Parameters() []Parameter {
	return d.categorical.ofParts(&d.Base, constraints.Simplex, constraints.RealVector)
}

// Expand is part of [Distribution].
func (d *OneHotCategoricalDistribution) Expand(batchShape ...int64) Distribution {
	of := d.categorical.Expand(batchShape...).(*CategoricalDistribution)
	return expanded(&d.Base, &OneHotCategoricalDistribution{categorical: of}, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *OneHotCategoricalDistribution) Support() constraints.Constraint {
	return constraints.OneHot
}

// HasEnumerateSupport is part of [Distribution].
func (d *OneHotCategoricalDistribution) HasEnumerateSupport() bool {
	return true
}

// Mean is part of [Distribution].
func (d *OneHotCategoricalDistribution) Mean() gotorch.Tensor {
	return d.Probs()
}

// Mode is part of [Distribution].
func (d *OneHotCategoricalDistribution) Mode() gotorch.Tensor {
	probs := d.Probs()
	return oneHot(probs.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(-1))}), probs)
}

// Variance is part of [Distribution].
func (d *OneHotCategoricalDistribution) Variance() gotorch.Tensor {
	return d.Probs().Mul(numeric.From(1, d.Probs()))
}

// Sample is part of [Distribution].
func (d *OneHotCategoricalDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	probs := d.Probs()
	return oneHot(d.categorical.Sample(sampleShape...), probs)
}

// LogProb is part of [Distribution].
func (d *OneHotCategoricalDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	_, index := value.MaxDim(-1)
	return d.categorical.LogProb(index)
}

// Entropy is part of [Distribution].
func (d *OneHotCategoricalDistribution) Entropy() gotorch.Tensor {
	return d.categorical.Entropy()
}

// EnumerateSupport is part of [Distribution].
func (d *OneHotCategoricalDistribution) EnumerateSupport(opts ...EnumerateSupportOptions) gotorch.Tensor {
	n := d.event[0]
	shape := append([]int64{n}, slices.Repeat([]int64{1}, len(d.batch))...)
	values := gotorch.Eye(n, numeric.Like(d.categorical.param)).View(append(shape, n))
	if !args.Option(opts).NoExpand {
		values = values.Expand(append(append([]int64{n}, d.batch...), n))
	}
	return values
}

// categorical is the one inside of others, which is checked as they say themselves.
func categorical(probs, logits gotorch.Tensor) *CategoricalDistribution {
	return Categorical(CategoricalOptions{Probs: probs, Logits: logits})
}

// oneHot makes vectors with a single 1 of indices, of the dtype of the probabilities.
func oneHot(index, probs gotorch.Tensor) gotorch.Tensor {
	return gotorch.OneHot(index, gotorch.OneHotOptions{NumClasses: new(probs.Size(-1))}).To(probs.DType())
}

// Probs are the probabilities.
func (d *OneHotCategoricalDistribution) Probs() gotorch.Tensor { return d.categorical.Probs() }

// Logits are their logarithms.
func (d *OneHotCategoricalDistribution) Logits() gotorch.Tensor { return d.categorical.Logits() }

// ParamShape is the shape of Probs and Logits.
func (d *OneHotCategoricalDistribution) ParamShape() []int64 { return d.categorical.ParamShape() }

// OneHotCategoricalStraightThroughDistribution is what [OneHotCategoricalStraightThrough] makes.
type OneHotCategoricalStraightThroughDistribution struct {
	OneHotCategoricalDistribution
}

// OneHotCategoricalStraightThrough is [OneHotCategorical] with an RSample whose gradient is that of the
// probabilities: the straight-through estimator.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.one_hot_categorical.OneHotCategorical.
func OneHotCategoricalStraightThrough(opts ...OneHotCategoricalOptions) *OneHotCategoricalStraightThroughDistribution {
	opt := args.Option(opts)
	d := &OneHotCategoricalStraightThroughDistribution{OneHotCategoricalDistribution{categorical: categorical(opt.Probs, opt.Logits)}}
	return Init(d, d.categorical.batch, tail(d.ParamShape(), 1), Options{opt.NoValidateArgs})
}

// Expand is part of [Distribution].
func (d *OneHotCategoricalStraightThroughDistribution) Expand(batchShape ...int64) Distribution {
	of := OneHotCategoricalDistribution{categorical: d.categorical.Expand(batchShape...).(*CategoricalDistribution)}
	return expanded(&d.Base, &OneHotCategoricalStraightThroughDistribution{of}, batchShape, d.event)
}

// HasRSample is part of [Distribution].
func (d *OneHotCategoricalStraightThroughDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *OneHotCategoricalStraightThroughDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	samples := d.Sample(sampleShape...)
	probs := d.Probs()
	return samples.Add(probs.Sub(probs.Detach()))
}

// MultinomialDistribution is what [Multinomial] makes.
type MultinomialDistribution struct {
	Base
	TotalCount  int64
	categorical *CategoricalDistribution
	binomial    *BinomialDistribution
}

// MultinomialOptions are the arguments of [Multinomial] that have defaults. Either Probs or Logits must be given, of shape
// (*, n).
type MultinomialOptions struct {
	TotalCount     gotorch.Scalar // an integer; default: 1
	Probs, Logits  gotorch.Tensor
	NoValidateArgs bool
}

// Multinomial is how often each of n categories comes up in TotalCount draws, with probabilities as in [Categorical]:
// events are of (n), and sum to TotalCount. It panics with a ValueError unless one of Probs and Logits is given.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.multinomial.Multinomial.
func Multinomial(opts ...MultinomialOptions) *MultinomialDistribution {
	opt := args.Option(opts)
	n := args.Int("distributions.Multinomial", "TotalCount", opt.TotalCount, 1)
	of := categorical(opt.Probs, opt.Logits)
	d := &MultinomialDistribution{TotalCount: n, categorical: of, binomial: Binomial(BinomialOptions{TotalCount: n, Probs: of.Probs()})}
	return Init(d, of.batch, tail(of.ParamShape(), 1), Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *MultinomialDistribution) Parameters() []Parameter {
	return d.categorical.ofParts(&d.Base, constraints.Simplex, constraints.RealVector)
}

// Expand is part of [Distribution].
func (d *MultinomialDistribution) Expand(batchShape ...int64) Distribution {
	of := d.categorical.Expand(batchShape...).(*CategoricalDistribution)
	trials := d.binomial.Expand(numeric.Join(batchShape, d.event...)...).(*BinomialDistribution)
	return expanded(&d.Base, &MultinomialDistribution{TotalCount: d.TotalCount, categorical: of, binomial: trials}, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *MultinomialDistribution) Support() constraints.Constraint {
	return constraints.Multinomial(d.TotalCount)
}

// Mean is part of [Distribution].
func (d *MultinomialDistribution) Mean() gotorch.Tensor {
	return d.Probs().MulScalar(d.TotalCount)
}

// Variance is part of [Distribution].
func (d *MultinomialDistribution) Variance() gotorch.Tensor {
	return d.Probs().MulScalar(d.TotalCount).Mul(numeric.From(1, d.Probs()))
}

// Sample is part of [Distribution].
func (d *MultinomialDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	samples := d.categorical.Sample(append([]int64{d.TotalCount}, sampleShape...)...)
	order := make([]int64, samples.Dim()) // the draws last
	for i := range order {
		order[i] = (int64(i) + 1) % int64(len(order))
	}
	samples = samples.Permute(order)
	counts := samples.NewZeros(d.ExtendedShape(sampleShape...))
	counts.ScatterAdd_(-1, samples, gotorch.OnesLike(samples))
	return counts.TypeAs(d.Probs())
}

// LogProb is part of [Distribution].
func (d *MultinomialDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	t := gotorch.BroadcastTensors([]gotorch.Tensor{d.Logits(), value})
	logits, value := copied(t[0]), t[1]
	n := sum(value).AddScalar(1).Lgamma()
	xs := sum(value.AddScalar(1).Lgamma())
	set(logits, value.EqScalar(0).BitwiseAnd(logits.EqScalar(math.Inf(-1))), 0)
	return n.Sub(xs).Add(sum(logits.Mul(value)))
}

// Entropy is part of [Distribution].
func (d *MultinomialDistribution) Entropy() gotorch.Tensor {
	n := gotorch.ScalarTensor(d.TotalCount, numeric.Like(d.Probs()))
	t1 := n.Mul(d.categorical.Entropy()).Sub(n.AddScalar(1).Lgamma())
	support := d.binomial.EnumerateSupport(EnumerateSupportOptions{NoExpand: true}).Index(gotorch.SliceFrom(1))
	probs := d.binomial.LogProb(support).Exp()
	return t1.Add(probs.Mul(support.AddScalar(1).Lgamma()).SumDim([]int64{0, -1}))
}

// Probs are the probabilities.
func (d *MultinomialDistribution) Probs() gotorch.Tensor { return d.categorical.Probs() }

// Logits are their logarithms.
func (d *MultinomialDistribution) Logits() gotorch.Tensor { return d.categorical.Logits() }

// ParamShape is the shape of Probs and Logits.
func (d *MultinomialDistribution) ParamShape() []int64 { return d.categorical.ParamShape() }
