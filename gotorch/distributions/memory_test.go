package distributions_test

import (
	"reflect"
	"runtime"
	"testing"

	"gotorch.dev/gotorch"
	D "gotorch.dev/gotorch/distributions"
	"gotorch.dev/gotorch/distributions/transforms"
)

// everyDistribution makes one of each kind, with parameters that require grad.
func everyDistribution() []D.Distribution {
	learned := func(t gotorch.Tensor) gotorch.Tensor { return t.RequiresGrad_() }
	p := learned(gotorch.FromSlice([]float32{0.2, 0.3, 0.5}))
	half := gotorch.FromSlice([]float32{0.5})
	eye := learned(gotorch.Eye(3))
	normal := D.Normal(0, p)
	return []D.Distribution{
		D.Bernoulli(D.BernoulliOptions{Probs: p}), D.Beta(p, 1), D.Binomial(D.BinomialOptions{TotalCount: 3, Probs: p}),
		D.Categorical(D.CategoricalOptions{Probs: p}), D.Cauchy(0, p), D.Chi2(p),
		D.ContinuousBernoulli(D.ContinuousBernoulliOptions{Probs: p}), D.Dirichlet(p), D.Exponential(p), D.FisherSnedecor(p, 3),
		D.Gamma(p, 1), D.GeneralizedPareto(0, p, 0.5), D.Geometric(D.GeometricOptions{Probs: p}), D.Gumbel(0, p), D.HalfCauchy(p),
		D.HalfNormal(p), D.Independent(normal, 1), D.InverseGamma(p, 1), D.Kumaraswamy(p, 1), D.LKJCholesky(3), D.Laplace(0, p),
		D.LogNormal(0, p), D.LogisticNormal(p, p), D.LowRankMultivariateNormal(p, eye, p),
		D.MixtureSameFamily(D.Categorical(D.CategoricalOptions{Probs: p}), normal),
		D.Multinomial(D.MultinomialOptions{TotalCount: 3, Probs: p}),
		D.MultivariateNormal(p, D.MultivariateNormalOptions{CovarianceMatrix: eye}),
		D.NegativeBinomial(2, D.NegativeBinomialOptions{Probs: p}), normal, D.OneHotCategorical(D.OneHotCategoricalOptions{Probs: p}),
		D.OneHotCategoricalStraightThrough(D.OneHotCategoricalOptions{Logits: p}), D.Pareto(p, 1), D.Poisson(p),
		D.RelaxedBernoulli(half, D.RelaxedBernoulliOptions{Probs: p}),
		D.RelaxedOneHotCategorical(half, D.RelaxedOneHotCategoricalOptions{Probs: p}), D.StudentT(p), D.Uniform(0, p),
		D.VonMises(0, p), D.Weibull(1, p), D.Wishart(4, D.WishartOptions{CovarianceMatrix: eye}),
		D.Transformed(normal, []transforms.Transform{transforms.Sigmoid(), transforms.Affine(1, p)}),
	}
}

// callAll calls all methods of d, of which some refuse.
func callAll(d D.Distribution) {
	of := reflect.ValueOf(d)
	sample := d.Sample(2)
	for i := range of.NumMethod() {
		method := of.Method(i)
		var in []reflect.Value
		for at := range method.Type().NumIn() {
			switch method.Type().In(at) {
			case reflect.TypeFor[gotorch.Tensor]():
				in = append(in, reflect.ValueOf(sample))
			case reflect.TypeFor[[]int64](): // Expand of the same shape, and samples of the batch's
				for _, n := range d.BatchShape() {
					in = append(in, reflect.ValueOf(n))
				}
			}
		}
		_ = gotorch.Try0(func() { method.Call(in) })
	}
	_ = gotorch.Try0(func() { D.KLDivergence(d, d) })
	_ = gotorch.Try0(func() { d.LogProb(sample.AddScalar(-1e9)) })
	_ = gotorch.Try0(func() { d.RSample().Sum().Backward() })
}

func TestNoMethodLeavesHandles(t *testing.T) {
	settled := func() int64 {
		for range 4 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
		}
		return int64(gotorch.MemoryStats().LiveHandles)
	}
	each := func() {
		for _, d := range everyDistribution() {
			callAll(d)
			gotorch.Scope0(func(*gotorch.ScopeHandle) { callAll(d) })
		}
	}
	each()
	before := settled()
	for range 2 {
		each()
	}
	if after := settled(); after > before {
		t.Errorf("%d handles, and %d before", after, before)
	}
}
