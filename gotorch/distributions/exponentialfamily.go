package distributions

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/internal/numeric"
)

// ExponentialFamily is a distribution of an exponential family, whose density is that of a carrier measure times
// exp(<t(x), θ> - F(θ)). For those [KLDivergence] needs no formula.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.exp_family.ExponentialFamily.
type ExponentialFamily interface {
	Distribution
	// NaturalParams are the tensors θ.
	NaturalParams() []gotorch.Tensor
	// LogNormalizer is F at natural, which are as many tensors as NaturalParams; else there is a TypeError.
	LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor
	// MeanCarrierMeasure is the mean of the logarithm of the carrier measure.
	MeanCarrierMeasure() float64
}

// taken returns the n arguments of a LogNormalizer.
func (b *Base) taken(natural []gotorch.Tensor, n int) []gotorch.Tensor {
	if len(natural) != n {
		panic(b.errorf(gotorch.TypeError, "LogNormalizer takes %d natural parameters, not %d", n, len(natural)))
	}
	return natural
}

// bregman returns the log-normaliser at its parameters, which it takes out of any graph, and its gradient there.
func bregman(d ExponentialFamily) (natural []gotorch.Tensor, normalizer gotorch.Tensor, gradient []gotorch.Tensor) {
	for _, p := range d.NaturalParams() {
		natural = append(natural, p.Detach().RequiresGrad_())
	}
	normalizer = d.LogNormalizer(natural...)
	gradient = gotorch.Grad([]gotorch.Tensor{normalizer.Sum()}, natural, gotorch.GradOptions{CreateGraph: true})
	return natural, normalizer, gradient
}

// ExponentialFamilyEntropy computes the entropy of d by the gradient of its log-normaliser: an Entropy for
// distributions without a formula of their own. It is of BatchShape; as in
// PyTorch no gradient reaches the parameters of d.
func ExponentialFamilyEntropy(d ExponentialFamily) gotorch.Tensor {
	measure := d.MeanCarrierMeasure()
	natural, normalizer, gradient := bregman(d)
	result := normalizer.AddScalar(-measure)
	for i, p := range natural {
		result = result.Sub(sum(p.Mul(gradient[i]).Reshape(numeric.Join(d.BatchShape(), -1))))
	}
	return result
}
