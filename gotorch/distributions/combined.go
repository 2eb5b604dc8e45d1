package distributions

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
)

// IndependentDistribution is what [Independent] makes.
type IndependentDistribution struct {
	Base
	BaseDist                Distribution
	ReinterpretedBatchNDims int64
}

// Independent makes the last n dimensions of the batch of base a part of its events, so that LogProb is the sum over
// them. It panics with a ValueError if there are fewer, or for a negative number.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.independent.Independent.
func Independent(base Distribution, reinterpretedBatchNDims int64, opts ...Options) *IndependentDistribution {
	if numeric.IsNil(base) {
		panic(numeric.Errorf("distributions.Independent", gotorch.TypeError, "the base distribution is nil"))
	}
	batch := len(base.BatchShape())
	if n := reinterpretedBatchNDims; n < 0 {
		panic(numeric.Errorf("distributions.Independent", gotorch.ValueError, "reinterpreted_batch_ndims must be >= 0, got %d", n))
	} else if n > int64(batch) {
		panic(numeric.Errorf("distributions.Independent", gotorch.ValueError,
			"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual %d vs %d", n, batch))
	}
	shape := append(base.BatchShape(), base.EventShape()...)
	cut := batch - int(reinterpretedBatchNDims)
	d := &IndependentDistribution{BaseDist: base, ReinterpretedBatchNDims: reinterpretedBatchNDims}
	return Init(d, shape[:cut], shape[cut:], opts...)
}

// Expand is part of [Distribution].
func (d *IndependentDistribution) Expand(batchShape ...int64) Distribution {
	of := d.BaseDist.Expand(numeric.Join(batchShape, d.event[:d.ReinterpretedBatchNDims]...)...)
	return expanded(&d.Base, &IndependentDistribution{BaseDist: of, ReinterpretedBatchNDims: d.ReinterpretedBatchNDims}, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *IndependentDistribution) Support() constraints.Constraint {
	support := d.BaseDist.Support()
	if d.ReinterpretedBatchNDims > 0 {
		support = constraints.Independent(support, d.ReinterpretedBatchNDims)
	}
	return support
}

// HasRSample is part of [Distribution].
func (d *IndependentDistribution) HasRSample() bool {
	return d.BaseDist.HasRSample()
}

// HasEnumerateSupport is part of [Distribution].
func (d *IndependentDistribution) HasEnumerateSupport() bool {
	return d.ReinterpretedBatchNDims == 0 && d.BaseDist.HasEnumerateSupport()
}

// Mean is part of [Distribution].
func (d *IndependentDistribution) Mean() gotorch.Tensor {
	return d.BaseDist.Mean()
}

// Mode is part of [Distribution].
func (d *IndependentDistribution) Mode() gotorch.Tensor {
	return d.BaseDist.Mode()
}

// Variance is part of [Distribution].
func (d *IndependentDistribution) Variance() gotorch.Tensor {
	return d.BaseDist.Variance()
}

// Sample is part of [Distribution].
func (d *IndependentDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	return d.BaseDist.Sample(sampleShape...)
}

// RSample is part of [Distribution].
func (d *IndependentDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.BaseDist.RSample(sampleShape...)
}

// LogProb is part of [Distribution].
func (d *IndependentDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	return numeric.SumRightmost(d.BaseDist.LogProb(value), d.ReinterpretedBatchNDims)
}

// Entropy is part of [Distribution].
func (d *IndependentDistribution) Entropy() gotorch.Tensor {
	return numeric.SumRightmost(d.BaseDist.Entropy(), d.ReinterpretedBatchNDims)
}

// EnumerateSupport is part of [Distribution].
func (d *IndependentDistribution) EnumerateSupport(opts ...EnumerateSupportOptions) gotorch.Tensor {
	if d.ReinterpretedBatchNDims > 0 {
		panic(d.errorf(gotorch.NotImplementedError, "Enumeration over cartesian product is not implemented"))
	}
	return d.BaseDist.EnumerateSupport(opts...)
}

// String is part of [Distribution].
func (d *IndependentDistribution) String() string {
	return fmt.Sprintf("Independent(%s, %d)", d.BaseDist, d.ReinterpretedBatchNDims)
}

// MixtureSameFamilyDistribution is what [MixtureSameFamily] makes.
type MixtureSameFamilyDistribution struct {
	Base
	mixture    *CategoricalDistribution
	components Distribution
}

// MixtureSameFamily is a mixture of the distributions along the last dimension of components' batch, of which mixture
// draws one. It panics with a ValueError where the batches do not fit.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.mixture_same_family.MixtureSameFamily.
func MixtureSameFamily(mixture *CategoricalDistribution, components Distribution, opts ...Options) *MixtureSameFamilyDistribution {
	if mixture == nil || numeric.IsNil(components) {
		panic(numeric.Errorf("distributions.MixtureSameFamily", gotorch.TypeError, "a distribution is nil"))
	}
	batch := components.BatchShape()
	if len(batch) == 0 {
		panic(numeric.Errorf("distributions.MixtureSameFamily", gotorch.ValueError,
			"the components are the last dimension of a batch, and %s has none", components))
	}
	mixed, of := mixture.batch, head(batch, 1)
	for i := range min(len(mixed), len(of)) {
		if m, n := mixed[len(mixed)-1-i], of[len(of)-1-i]; m != 1 && n != 1 && m != n {
			panic(numeric.Errorf("distributions.MixtureSameFamily", gotorch.ValueError,
				"`mixture_distribution.batch_shape` (%s) is not compatible with `component_distribution.batch_shape`(%s)",
				numeric.Size(mixed), numeric.Size(of)))
		}
	}
	if m, n := mixture.Logits().Size(-1), batch[len(batch)-1]; m != n {
		panic(numeric.Errorf("distributions.MixtureSameFamily", gotorch.ValueError,
			"`mixture_distribution component` (%d) does not equal `component_distribution.batch_shape[-1]` (%d)", m, n))
	}
	d := &MixtureSameFamilyDistribution{mixture: mixture, components: components}
	return Init(d, of, components.EventShape(), opts...)
}

// Expand is part of [Distribution].
func (d *MixtureSameFamilyDistribution) Expand(batchShape ...int64) Distribution {
	of := d.components.Expand(numeric.Join(batchShape, d.mixture.count())...)
	mixture := d.mixture.Expand(batchShape...).(*CategoricalDistribution)
	return expanded(&d.Base, &MixtureSameFamilyDistribution{mixture: mixture, components: of}, batchShape, of.EventShape())
}

// Support is part of [Distribution].
func (d *MixtureSameFamilyDistribution) Support() constraints.Constraint {
	return constraints.MixtureSameFamily(d.components.Support())
}

// MixtureDistribution is what draws one of the components.
func (d *MixtureSameFamilyDistribution) MixtureDistribution() *CategoricalDistribution {
	return d.mixture
}

// ComponentDistribution is the components, along the last dimension of its batch.
func (d *MixtureSameFamilyDistribution) ComponentDistribution() Distribution {
	return d.components
}

// Mean is part of [Distribution].
func (d *MixtureSameFamilyDistribution) Mean() gotorch.Tensor {
	return d.probs().Mul(d.components.Mean()).SumDim(d.along())
}

// Variance is part of [Distribution].
func (d *MixtureSameFamilyDistribution) Variance() gotorch.Tensor {
	probs := d.probs()
	within := probs.Mul(d.components.Variance()).SumDim(d.along())
	between := probs.Mul(d.components.Mean().Sub(d.Mean().Unsqueeze(d.along()[0])).Pow(2.0)).SumDim(d.along())
	return within.Add(between)
}

// CDF is part of [Distribution].
func (d *MixtureSameFamilyDistribution) CDF(value gotorch.Tensor) gotorch.Tensor {
	each := d.components.CDF(value.Unsqueeze(d.along()[0]))
	return sum(each.Mul(d.mixture.Probs()))
}

// LogProb is part of [Distribution].
func (d *MixtureSameFamilyDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	each := d.components.LogProb(value.Unsqueeze(d.along()[0]))
	return each.Add(d.mixture.Logits().LogSoftmax(-1)).LogSumExp(last)
}

// Sample is part of [Distribution].
func (d *MixtureSameFamilyDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	return gotorch.NoGrad1(func() gotorch.Tensor {
		along := int64(len(sampleShape) + len(d.batch))
		chosen := d.mixture.Sample(sampleShape...)
		all := d.components.Sample(sampleShape...)
		shape := chosen.Shape()
		ones := func(n int) []int64 { return slices.Repeat([]int64{1}, n) }
		chosen = chosen.Reshape(numeric.Join(shape, ones(1+len(d.event))...))
		chosen = chosen.Repeat(numeric.Join(ones(len(shape)+1), d.event...))
		return all.Gather(along, chosen).SqueezeDim(along)
	})
}

// String is part of [Distribution].
func (d *MixtureSameFamilyDistribution) String() string {
	return fmt.Sprintf("MixtureSameFamily(\n  %s,\n  %s)", d.mixture, d.components)
}

// along is the dimension of the components, from the end.
func (d *MixtureSameFamilyDistribution) along() []int64 { return []int64{-1 - int64(len(d.event))} }

// probs are the probabilities of the components, of as many dimensions as their values.
func (d *MixtureSameFamilyDistribution) probs() gotorch.Tensor {
	probs := d.mixture.Probs()
	missing := 0
	if n := len(d.mixture.batch); n != 1 {
		missing = max(0, len(d.batch)-n)
	}
	shape := probs.Shape()
	n := len(shape) - 1
	ones := func(n int) []int64 { return slices.Repeat([]int64{1}, n) }
	return probs.Reshape(slices.Concat(shape[:n], ones(missing), shape[n:], ones(len(d.event))))
}
