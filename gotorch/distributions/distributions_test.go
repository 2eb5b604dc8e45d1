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
	fails(t, gotorch.ValueError, "reinterpreted_batch_ndims must be >= 0, got -1", func() { distributions.Independent(n, -1) })
}

func TestNilPointers(t *testing.T) {
	var none *distributions.NormalDistribution
	n := distributions.Normal(0, 1)
	for what, fn := range map[string]func(){
		"the first of a divergence":  func() { distributions.KLDivergence(none, n) },
		"the second of a divergence": func() { distributions.KLDivergence(n, none) },
		"Independent":                func() { distributions.Independent(none, 0) },
		"the base of Transformed":    func() { distributions.Transformed(none, nil) },
		"a transform": func() {
			distributions.Transformed(n, []transforms.Transform{(*transforms.ExpTransform)(nil)})
		},
		"components": func() {
			mixture := distributions.Categorical(distributions.CategoricalOptions{Probs: gotorch.Ones([]int64{2})})
			distributions.MixtureSameFamily(mixture, none)
		},
		"a part":                   func() { transforms.Compose([]transforms.Transform{(*transforms.ExpTransform)(nil)}) },
		"CumulativeDistribution":   func() { transforms.CumulativeDistribution(none) },
		"BijectTo":                 func() { transforms.BijectTo((*constraints.SimplexConstraint)(nil)) },
		"a constraint of vectors":  func() { constraints.Independent((*constraints.RealConstraint)(nil), 1) },
		"one of joined constraint": func() { constraints.Cat([]constraints.Constraint{(*constraints.RealConstraint)(nil)}) },
	} {
		t.Run(what, func(t *testing.T) { fails(t, gotorch.TypeError, "nil", fn) })
	}
}

func TestNumbersOfDimensionsAreNotNegative(t *testing.T) {
	fails(t, gotorch.ValueError, "reinterpreted_batch_ndims must be >= 0, got -2", func() { transforms.Independent(transforms.Exp(), -2) })
	fails(t, gotorch.ValueError, "event_dim must be >= 0, got -1", func() {
		transforms.Affine(0, 1, transforms.AffineOptions{EventDim: -1})
	})
}

func TestLogNormalizersTakeWhatNaturalParamsReturns(t *testing.T) {
	families := []distributions.ExponentialFamily{
		distributions.Bernoulli(distributions.BernoulliOptions{Probs: 0.5}), distributions.Poisson(1), distributions.Gamma(1, 1),
		distributions.ContinuousBernoulli(distributions.ContinuousBernoulliOptions{Probs: 0.3}), distributions.Exponential(1),
		distributions.Dirichlet(gotorch.Ones([]int64{2})), distributions.Beta(1, 1), distributions.Normal(0, 1),
		distributions.Wishart(3, distributions.WishartOptions{CovarianceMatrix: gotorch.Eye(2)}),
	}
	for _, d := range families {
		natural := d.NaturalParams()
		d.LogNormalizer(natural...)
		fails(t, gotorch.TypeError, "natural parameters", func() { d.LogNormalizer(natural[1:]...) })
		fails(t, gotorch.TypeError, "natural parameters", func() { d.LogNormalizer(append(natural, natural[0])...) })
	}
}

func TestVonMisesEndsForWhatIsNoConcentration(t *testing.T) {
	for _, c := range []float64{math.NaN(), math.Inf(1), 0, 1e17, 1e30} {
		d := distributions.VonMises(0, c, distributions.Options{NoValidateArgs: true})
		fails(t, gotorch.ValueError, "positive and finite", func() { d.Sample(3) })
	}
	for exponent := -30.0; exponent < 17; exponent += 0.25 { // where it ends
		d := distributions.VonMises(0, math.Pow(10, exponent), distributions.Options{NoValidateArgs: true})
		if err := gotorch.Try0(func() { d.Sample(3) }); err != nil && exponent < 15.5 {
			t.Errorf("1e%v: %v", exponent, err)
		}
	}
}

func TestBinomialEndsForWhatIsNoCount(t *testing.T) {
	for _, count := range []float64{math.NaN(), math.Inf(1)} {
		d := distributions.Binomial(distributions.BinomialOptions{TotalCount: count, Probs: 0.5, NoValidateArgs: true})
		fails(t, gotorch.ValueError, "a total_count that is finite", func() { d.Sample(3) })
		fails(t, gotorch.ValueError, "a total_count that is finite", func() { d.Expand(2).Sample() })
	}
}

func TestContinuousBernoulliChecksProbsInAnyCase(t *testing.T) {
	fails(t, gotorch.ValueError, "probs has invalid values", func() {
		distributions.ContinuousBernoulli(distributions.ContinuousBernoulliOptions{Probs: 2, NoValidateArgs: true})
	})
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

// loud has the base of another transform.
type loud struct{ transforms.ExpTransform }

func TestACopyWithAnotherCacheHasAnInverseOfItsOwn(t *testing.T) {
	e := transforms.Init(&loud{}, transforms.Options{CacheSize: 1})
	inverse := e.Inv()
	if made := e.WithCache(0); made.Inv() == inverse || made.Inv().Inv() != made {
		t.Error("the copy has the inverse of the original")
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

// wide and narrow are interfaces of ray alone, to register divergences for.
type (
	wide interface {
		distributions.Distribution
		IsRay()
	}
	narrow interface {
		wide
		IsNarrow()
	}
	other interface {
		wide
		IsOther()
	}
	ray  struct{ distributions.Base }
	beam struct{ ray }
)

func (*ray) IsRay()    {}
func (*ray) IsNarrow() {}
func (*ray) IsOther()  {}

func TestTheClosestDivergenceIsTaken(t *testing.T) {
	distributions.KeepDivergences(t)
	r, b := distributions.Init(&ray{}, nil, nil), distributions.Init(&beam{}, nil, nil)
	registered := func(number int64) func(wide, wide) gotorch.Tensor {
		return func(wide, wide) gotorch.Tensor { return gotorch.FromSlice([]int64{number}) }
	}
	is := func(p, q distributions.Distribution, number int64) {
		t.Helper()
		for range 50 { // by chance, the right one is found once
			if n := gotorch.Item[int64](distributions.KLDivergence(p, q)); n != number {
				t.Fatalf("the divergence %d was taken, not %d", n, number)
			}
		}
	}
	distributions.RegisterKL(registered(1))
	is(r, r, 1)
	distributions.RegisterKL(func(p narrow, q wide) gotorch.Tensor { return registered(2)(p, q) })
	is(r, r, 2)
	distributions.RegisterKL(func(p other, q wide) gotorch.Tensor { return registered(3)(p, q) })
	is(r, r, 2) // as close as 3, and registered before
	distributions.RegisterKL(func(p narrow, q narrow) gotorch.Tensor { return registered(4)(p, q) })
	is(r, r, 4)
	distributions.RegisterKL(func(p *ray, q wide) gotorch.Tensor { return registered(5)(p, q) })
	is(r, r, 5)
	distributions.RegisterKL(func(p wide, q *ray) gotorch.Tensor { return registered(6)(p, q) })
	is(r, r, 5) // the first counts before the second
	is(b, b, 5) // by the ray in it
	distributions.RegisterKL(registered(7))
	distributions.RegisterKL(func(p *ray, q wide) gotorch.Tensor { return registered(8)(p, q) })
	is(r, r, 8) // replaced
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

func TestDivergencesOfTransformedDistributionsNeedEqualEvents(t *testing.T) {
	of := func(n int64) distributions.Distribution {
		base := distributions.Independent(distributions.Normal(gotorch.Zeros([]int64{n}), 1), 1)
		return distributions.Transformed(base, []transforms.Transform{transforms.Exp()})
	}
	fails(t, gotorch.NotImplementedError, "must have the same shape", func() { distributions.KLDivergence(of(1), of(3)) })
	if got := gotorch.Item[float64](distributions.KLDivergence(of(3), of(3))); got != 0 {
		t.Errorf("got %v", got)
	}
}

func TestIndependentDistributionsAreEnumeratedWithoutEvents(t *testing.T) {
	of := distributions.Bernoulli(distributions.BernoulliOptions{Probs: gotorch.FromSlice([]float32{0.25, 0.5})})
	for n, want := range []bool{true, false} {
		d := distributions.Independent(of, int64(n))
		if got := d.HasEnumerateSupport(); got != want {
			t.Errorf("with %d dimensions: %v", n, got)
		}
		if err := gotorch.Try0(func() { d.EnumerateSupport() }); (err == nil) != want {
			t.Errorf("with %d dimensions: %v", n, err)
		}
	}
}
