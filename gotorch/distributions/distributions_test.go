package distributions_test

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/transforms"
)

func fails(t *testing.T, kind gotorch.ErrorKind, part string, fn func()) {
	t.Helper()
	err := gotorch.Try0(fn)
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v, want a %s with %q", err, kind, part)
	}
}

func TestWrongArgumentsAreTypedErrors(t *testing.T) {
	fails(t, gotorch.TypeError, "scale must be a gotorch.Tensor or a real number, not string", func() { distributions.Normal(0, "1") })
	fails(t, gotorch.TypeError, "loc is nil", func() { distributions.Normal(nil, 1) })
	fails(t, gotorch.TypeError, "loc is none", func() { distributions.Normal(gotorch.Tensor{}, 1) })
	fails(t, gotorch.TypeError, "value is none", func() { distributions.Normal(0, 1).LogProb(gotorch.Tensor{}) })
	fails(t, gotorch.TypeError, "none", func() { distributions.Dirichlet(gotorch.Tensor{}) })
	fails(t, gotorch.TypeError, "temperature is none", func() { distributions.RelaxedBernoulli(gotorch.Tensor{}) })
	fails(t, gotorch.TypeError, "there may be one options struct", func() {
		distributions.Normal(0, 1, distributions.Options{}, distributions.Options{})
	})
}

func TestNilDistributions(t *testing.T) {
	n := distributions.Normal(0, 1)
	fails(t, gotorch.TypeError, "nil", func() { distributions.Independent(nil, 1) })
	fails(t, gotorch.TypeError, "nil", func() { distributions.Transformed(nil, nil) })
	fails(t, gotorch.TypeError, "nil", func() { distributions.Transformed(n, []transforms.Transform{nil}) })
	fails(t, gotorch.TypeError, "nil", func() { distributions.MixtureSameFamily(nil, n) })
	fails(t, gotorch.TypeError, "nil", func() { distributions.KLDivergence(n, nil) })
	fails(t, gotorch.TypeError, "nil", func() {
		distributions.RegisterKL[*distributions.NormalDistribution, *distributions.NormalDistribution](nil)
	})
	fails(t, gotorch.TypeError, "nil", func() { transforms.BijectTo(nil) })
	fails(t, gotorch.ValueError, "Init", func() { (&triangular{}).BatchShape(); _ = (&triangular{}).String() })
	fails(t, gotorch.ValueError, "cache_size must be 0 or 1", func() { transforms.Exp(transforms.Options{CacheSize: 2}) })
	fails(t, gotorch.ValueError, "reinterpreted_batch_ndims", func() { distributions.Independent(n, -1) })
}

func TestVonMisesEndsForWhatIsNoConcentration(t *testing.T) {
	for _, c := range []float64{math.NaN(), math.Inf(1), 0} {
		d := distributions.VonMises(0, c, distributions.Options{NoValidateArgs: true})
		fails(t, gotorch.ValueError, "positive and finite", func() { d.Sample(3) })
	}
}

func TestChecksCanBeSwitchedOff(t *testing.T) {
	distributions.SetDefaultValidateArgs(false)
	defer distributions.SetDefaultValidateArgs(true)
	distributions.Normal(0, -1).LogProb(gotorch.FromSlice([]float32{1}))
	distributions.SetDefaultValidateArgs(true)
	distributions.Normal(0, -1, distributions.Options{NoValidateArgs: true})
	fails(t, gotorch.ValueError, "Expected parameter scale", func() { distributions.Normal(0, -1) })
}

func TestWhatIsComputedLaterOutlivesScopesAndModes(t *testing.T) {
	p := gotorch.FromSlice([]float64{0.25, 0.75}).RequiresGrad_()
	d := distributions.Bernoulli(distributions.BernoulliOptions{Probs: p})
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		gotorch.NoGrad(func() { d.LogProb(gotorch.FromSlice([]float64{1, 1})) })
	})
	d.LogProb(gotorch.FromSlice([]float64{1, 1})).Sum().Backward()
	if g := gotorch.ToSlice[float64](p.Grad()); math.Abs(g[0]-4) > 1e-9 {
		t.Errorf("the gradient is %v", g)
	}
	d.Logits().Close()
	if l := gotorch.ToSlice[float64](d.Logits()); math.Abs(l[0]+math.Log(3)) > 1e-9 {
		t.Errorf("logits are %v after they were closed", l)
	}
}

func TestDistributionsAreSharedByGoroutines(t *testing.T) {
	d := distributions.Categorical(distributions.CategoricalOptions{Probs: gotorch.FromSlice([]float32{1, 2, 3})})
	g := transforms.Affine(1, 2, transforms.AffineOptions{CacheSize: 1})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			x := g.Forward(d.LogProb(d.Sample(4)))
			g.Inv().Forward(x)
			_ = d.String()
			distributions.KLDivergence(d, d)
			transforms.TransformTo(constraints.Positive)
		})
	}
	wg.Wait()
}

func TestTheCacheKnowsTensors(t *testing.T) {
	e := transforms.Exp(transforms.Options{CacheSize: 1})
	x := gotorch.FromSlice([]float32{0.1, 0.2})
	y := e.Forward(x)
	if e.Inv().Forward(y).T != x.T || e.Forward(x).T != y.T {
		t.Error("the cache is not used")
	}
	if e.Inv().Forward(y.Clone()).T == x.T || transforms.Exp().Inv().Forward(y).T == x.T {
		t.Error("the cache is used for another tensor, or where there is none")
	}
	var inside gotorch.Tensor
	gotorch.Scope0(func(*gotorch.ScopeHandle) { inside = e.Forward(x) })
	if again := e.Forward(x); inside.T != again.T && !again.Defined() || !again.Defined() {
		t.Error("the cache returns what a scope has freed")
	}
}

func TestRegistriesAndSubclasses(t *testing.T) {
	k := distributions.KLDivergence(distributions.Chi2(3), distributions.Gamma(1.5, 0.5))
	if v := gotorch.Item[float64](k); math.Abs(v) > 1e-6 {
		t.Errorf("a chi-squared is no gamma: %v", v)
	}
	fails(t, gotorch.NotImplementedError, "No KL(p || q) is implemented for p type StudentT and q type StudentT", func() {
		distributions.KLDivergence(distributions.StudentT(1), distributions.StudentT(1))
	})
	fails(t, gotorch.NotImplementedError, "Cannot transform _Boolean constraints", func() { transforms.BijectTo(constraints.Boolean) })
}

func TestSmokeExponentialFamilyEntropy(t *testing.T) {
	d := distributions.Normal(1.0, 3.0)
	a, b := gotorch.Item[float64](distributions.ExponentialFamilyEntropy(d)), gotorch.Item[float64](d.Entropy())
	if math.Abs(a-b) > 1e-5 {
		t.Errorf("entropy %v, not %v", a, b)
	}
}

func TestSmokeNothingIsLeft(t *testing.T) {
	use := func() {
		loc := gotorch.Zeros([]int64{3}, gotorch.TensorOptions{RequiresGrad: true})
		for _, d := range []distributions.Distribution{
			distributions.Gumbel(loc, 1), distributions.LogNormal(loc, 2),
			distributions.OneHotCategoricalStraightThrough(distributions.OneHotCategoricalOptions{Logits: loc}),
			distributions.MultivariateNormal(loc, distributions.MultivariateNormalOptions{CovarianceMatrix: gotorch.Eye(3)}),
			distributions.Dirichlet(loc.AddScalar(1)),
		} {
			d.LogProb(d.RSample(2)).Sum().Backward()
			_ = d.String()
		}
		_, _ = gotorch.Try(func() gotorch.Tensor { return distributions.Gumbel(loc, -1).Sample() })
	}
	live := func() int64 {
		for range 4 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
		}
		return int64(gotorch.MemoryStats().LiveHandles)
	}
	use()
	before := live()
	for range 5 {
		use()
	}
	if after := live(); after > before {
		t.Errorf("%d handles, and %d before", after, before)
	}
}
