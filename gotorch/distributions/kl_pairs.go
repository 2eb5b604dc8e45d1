package distributions

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/internal/numeric"
)

// The pairs that a formula is known for: one line each in registerPairs, and a function where it is more than a line.

// infinity registers pairs whose divergence is infinite, because p has values that q has not.
func infinity[P, Q Distribution](of func(P) gotorch.Tensor) {
	RegisterKL(func(p P, _ Q) gotorch.Tensor { return infinite(of(p)) })
}

// Short names, for this file alone.
type (
	bernoulliD           = *BernoulliDistribution
	betaD                = *BetaDistribution
	binomialD            = *BinomialDistribution
	categoricalD         = *CategoricalDistribution
	continuousBernoulliD = *ContinuousBernoulliDistribution
	exponentialD         = *ExponentialDistribution
	gammaD               = *GammaDistribution
	gumbelD              = *GumbelDistribution
	laplaceD             = *LaplaceDistribution
	lowRankD             = *LowRankMultivariateNormalDistribution
	multivariateD        = *MultivariateNormalDistribution
	normalD              = *NormalDistribution
	paretoD              = *ParetoDistribution
	poissonD             = *PoissonDistribution
	uniformD             = *UniformDistribution
)

func init() {
	RegisterKL(klExponentialFamily)
	RegisterKL(klTransformed)
	RegisterKL(klIndependent)

	// Of the same family.
	RegisterKL(klBernoulli)
	RegisterKL(klBeta)
	RegisterKL(klBinomial)
	RegisterKL(klCategorical)
	RegisterKL(func(p, q *CauchyDistribution) gotorch.Tensor {
		t := p.Scale.Add(q.Scale).Pow(2).Add(p.Loc.Sub(q.Loc).Pow(2)).Log()
		return t.Sub(p.Scale.MulScalar(4).Mul(q.Scale).Log())
	})
	RegisterKL(func(p, q continuousBernoulliD) gotorch.Tensor {
		t1 := p.Mean().Mul(p.Logits().Sub(q.Logits()))
		t2 := p.logNorm().Add(p.Probs().Neg().Log1p())
		t3 := q.logNorm().Neg().Sub(q.Probs().Neg().Log1p())
		return t1.Add(t2).Add(t3)
	})
	RegisterKL(klDirichlet)
	RegisterKL(func(p, q exponentialD) gotorch.Tensor {
		ratio := q.Rate.Div(p.Rate)
		return ratio.Log().Neg().Add(ratio).SubScalar(1)
	})
	RegisterKL(klGamma)
	RegisterKL(func(p, q *GeometricDistribution) gotorch.Tensor {
		return p.Entropy().Neg().Sub(q.Probs().Neg().Log1p().Div(p.Probs())).Sub(q.Logits())
	})
	RegisterKL(klGumbel)
	RegisterKL(func(p, q *HalfNormalDistribution) gotorch.Tensor {
		return klNormal(p.BaseDist.(normalD), q.BaseDist.(normalD))
	})
	RegisterKL(klLaplace)
	RegisterKL(klLowRank)
	RegisterKL(klMultivariate)
	RegisterKL(klMultivariateLowRank)
	RegisterKL(klLowRankMultivariate)
	RegisterKL(klNormal)
	RegisterKL(func(p, q *OneHotCategoricalDistribution) gotorch.Tensor {
		return klCategorical(p.categorical, q.categorical)
	})
	RegisterKL(klPareto)
	RegisterKL(func(p, q poissonD) gotorch.Tensor {
		return p.Rate.Mul(p.Rate.Log().Sub(q.Rate.Log())).Sub(p.Rate.Sub(q.Rate))
	})
	RegisterKL(func(p, q uniformD) gotorch.Tensor {
		result := q.High.Sub(q.Low).Div(p.High.Sub(p.Low)).Log()
		set(result, q.Low.Gt(p.Low).BitwiseOr(q.High.Lt(p.High)), math.Inf(1))
		return result
	})

	// Of different families.
	RegisterKL(func(p bernoulliD, q poissonD) gotorch.Tensor {
		return p.Entropy().Neg().Sub(p.Probs().Mul(q.Rate.Log()).Sub(q.Rate))
	})
	RegisterKL(func(p betaD, q continuousBernoulliD) gotorch.Tensor {
		return p.Entropy().Neg().Sub(p.Mean().Mul(q.Logits())).Sub(q.Probs().Neg().Log1p()).Sub(q.logNorm())
	})
	infinity[betaD, paretoD](betaD.Concentration1)
	RegisterKL(func(p betaD, q exponentialD) gotorch.Tensor {
		return p.Entropy().Neg().Sub(q.Rate.Log()).Add(q.Rate.Mul(p.Mean()))
	})
	RegisterKL(klBetaGamma)
	RegisterKL(klBetaNormal)
	RegisterKL(func(p betaD, q uniformD) gotorch.Tensor {
		result := p.Entropy().Neg().Add(q.High.Sub(q.Low).Log())
		set(result, q.Low.GtScalar(0.0).BitwiseOr(q.High.LtScalar(1.0)), math.Inf(1))
		return result
	})

	ofProbs := func(p continuousBernoulliD) gotorch.Tensor { return p.Probs() }
	infinity[continuousBernoulliD, paretoD](ofProbs)
	RegisterKL(func(p continuousBernoulliD, q exponentialD) gotorch.Tensor {
		return p.Entropy().Neg().Sub(q.Rate.Log()).Add(q.Rate.Mul(p.Mean()))
	})
	RegisterKL(klContinuousBernoulliNormal)
	RegisterKL(func(p continuousBernoulliD, q uniformD) gotorch.Tensor {
		result := p.Entropy().Neg().Add(q.High.Sub(q.Low).Log())
		outside := q.Low.GeScalar(0.0).MaxOther(q.High.LeScalar(1.0))
		return gotorch.Where(outside, infinite1(result), result)
	})

	ofRate := func(p exponentialD) gotorch.Tensor { return p.Rate }
	infinity[exponentialD, betaD](ofRate)
	infinity[exponentialD, continuousBernoulliD](ofRate)
	infinity[exponentialD, paretoD](ofRate)
	infinity[exponentialD, uniformD](ofRate)
	RegisterKL(func(p exponentialD, q gammaD) gotorch.Tensor {
		ratio := q.Rate.Div(p.Rate)
		return q.Concentration.Neg().Mul(ratio.Log()).Add(ratio).Add(q.Concentration.Lgamma()).
			Add(q.Concentration.MulScalar(eulerGamma)).SubScalar(1 + eulerGamma)
	})
	RegisterKL(klExponentialGumbel)
	RegisterKL(klExponentialNormal)

	ofConcentration := func(p gammaD) gotorch.Tensor { return p.Concentration }
	infinity[gammaD, betaD](ofConcentration)
	infinity[gammaD, continuousBernoulliD](ofConcentration)
	infinity[gammaD, paretoD](ofConcentration)
	infinity[gammaD, uniformD](ofConcentration)
	RegisterKL(func(p gammaD, q exponentialD) gotorch.Tensor {
		return p.Entropy().Neg().Sub(q.Rate.Log()).Add(q.Rate.Mul(p.Concentration).Div(p.Rate))
	})
	RegisterKL(klGammaGumbel)
	RegisterKL(klGammaNormal)

	ofGumbel := func(p gumbelD) gotorch.Tensor { return p.Loc }
	infinity[gumbelD, betaD](ofGumbel)
	infinity[gumbelD, continuousBernoulliD](ofGumbel)
	infinity[gumbelD, exponentialD](ofGumbel)
	infinity[gumbelD, gammaD](ofGumbel)
	infinity[gumbelD, paretoD](ofGumbel)
	infinity[gumbelD, uniformD](ofGumbel)
	RegisterKL(func(p gumbelD, q normalD) gotorch.Tensor {
		ratio := p.Scale.Div(q.Scale)
		t1 := ratio.DivScalar(math.Sqrt(2 * math.Pi)).Log()
		t2 := ratio.MulScalar(math.Pi).MulScalar(0.5).Pow(2).DivScalar(3)
		t3 := p.Loc.Add(p.Scale.MulScalar(eulerGamma)).Sub(q.Loc).Div(q.Scale).Pow(2).MulScalar(0.5)
		return t1.Neg().Add(t2).Add(t3).SubScalar(eulerGamma + 1)
	})

	ofLaplace := func(p laplaceD) gotorch.Tensor { return p.Loc }
	infinity[laplaceD, betaD](ofLaplace)
	infinity[laplaceD, continuousBernoulliD](ofLaplace)
	infinity[laplaceD, exponentialD](ofLaplace)
	infinity[laplaceD, gammaD](ofLaplace)
	infinity[laplaceD, paretoD](ofLaplace)
	infinity[laplaceD, uniformD](ofLaplace)
	RegisterKL(func(p laplaceD, q normalD) gotorch.Tensor {
		variance := q.Scale.Pow(2)
		ratio := p.Scale.Pow(2).Div(variance)
		t1 := ratio.MulScalar(2).DivScalar(math.Pi).Log().MulScalar(0.5)
		t2, t3, t4 := p.Loc.Pow(2).MulScalar(0.5), p.Loc.Mul(q.Loc), q.Loc.Pow(2).MulScalar(0.5)
		return t1.Neg().Add(ratio).Add(t2.Sub(t3).Add(t4).Div(variance)).SubScalar(1)
	})

	ofNormal := func(p normalD) gotorch.Tensor { return p.Loc }
	infinity[normalD, betaD](ofNormal)
	infinity[normalD, continuousBernoulliD](ofNormal)
	infinity[normalD, exponentialD](ofNormal)
	infinity[normalD, gammaD](ofNormal)
	infinity[normalD, paretoD](ofNormal)
	infinity[normalD, uniformD](ofNormal)
	RegisterKL(klNormalGumbel)
	RegisterKL(klNormalLaplace)

	ofPareto := func(p paretoD) gotorch.Tensor { return p.Scale }
	infinity[paretoD, betaD](ofPareto)
	infinity[paretoD, continuousBernoulliD](ofPareto)
	infinity[paretoD, uniformD](ofPareto)
	RegisterKL(klParetoExponential)
	RegisterKL(klParetoGamma)
	RegisterKL(klParetoNormal)

	ofPoisson := func(p poissonD) gotorch.Tensor { return p.Rate }
	infinity[poissonD, bernoulliD](ofPoisson)
	infinity[poissonD, binomialD](ofPoisson)

	RegisterKL(klUniformBeta)
	RegisterKL(func(p uniformD, q continuousBernoulliD) gotorch.Tensor {
		result := p.Entropy().Neg().Sub(p.Mean().Mul(q.Logits())).Sub(q.Probs().Neg().Log1p()).Sub(q.logNorm())
		outside := p.High.GeScalar(1.0).MaxOther(p.Low.LeScalar(0.0))
		return gotorch.Where(outside, infinite1(result), result)
	})
	RegisterKL(func(p uniformD, q exponentialD) gotorch.Tensor {
		result := q.Rate.Mul(p.High.Add(p.Low)).DivScalar(2).Sub(p.High.Sub(p.Low).Mul(q.Rate).Log())
		set(result, p.Low.LtScalar(0.0), math.Inf(1))
		return result
	})
	RegisterKL(klUniformGamma)
	RegisterKL(klUniformGumbel)
	RegisterKL(klUniformNormal)
	RegisterKL(klUniformPareto)
}

// infinite1 is infinity times ones.
func infinite1(t gotorch.Tensor) gotorch.Tensor { return gotorch.OnesLike(t).MulScalar(math.Inf(1)) }

// xLogX is x·log x, 0 at 0.
func xLogX(x gotorch.Tensor) gotorch.Tensor { return x.Xlogy(x) }

func klBernoulli(p, q bernoulliD) gotorch.Tensor {
	t1 := p.Probs().Mul(gotorch.Softplus(q.Logits().Neg()).Sub(gotorch.Softplus(p.Logits().Neg())))
	set(t1, q.Probs().EqScalar(0), math.Inf(1))
	set(t1, p.Probs().EqScalar(0), 0)
	t2 := numeric.From(1, p.Probs()).Mul(gotorch.Softplus(q.Logits()).Sub(gotorch.Softplus(p.Logits())))
	set(t2, q.Probs().EqScalar(1), math.Inf(1))
	set(t2, p.Probs().EqScalar(1), 0)
	return t1.Add(t2)
}

func klBeta(p, q betaD) gotorch.Tensor {
	// Each use of a parameter is a node of its own, as in PyTorch: gradients are added in that order.
	ofP := p.Concentration1().Add(p.Concentration0())
	ofQ := q.Concentration1().Add(q.Concentration0())
	t1 := q.Concentration1().Lgamma().Add(q.Concentration0().Lgamma()).Add(ofP.Lgamma())
	t2 := p.Concentration1().Lgamma().Add(p.Concentration0().Lgamma()).Add(ofQ.Lgamma())
	t3 := p.Concentration1().Sub(q.Concentration1()).Mul(p.Concentration1().Digamma())
	t4 := p.Concentration0().Sub(q.Concentration0()).Mul(p.Concentration0().Digamma())
	t5 := ofQ.Sub(ofP).Mul(ofP.Digamma())
	return t1.Sub(t2).Add(t3).Add(t4).Add(t5)
}

func klBinomial(p, q binomialD) gotorch.Tensor {
	if numeric.Exists(p.TotalCount.Lt(q.TotalCount)) {
		panic(notImplemented("KL between Binomials where q.total_count > p.total_count is not implemented"))
	}
	t := p.Probs().Mul(p.Logits().Sub(q.Logits())).Add(p.Probs().Neg().Log1p()).Sub(q.Probs().Neg().Log1p())
	kl := p.TotalCount.Mul(t)
	more := p.TotalCount.Gt(q.TotalCount)
	kl.IndexPut(infinite(kl.Index(more)), more)
	return kl
}

func klCategorical(p, q categoricalD) gotorch.Tensor {
	t := p.Probs().Mul(p.Logits().Sub(q.Logits()))
	set(t, q.Probs().EqScalar(0).Expand(t.Shape()), math.Inf(1))
	set(t, p.Probs().EqScalar(0).Expand(t.Shape()), 0)
	return sum(t)
}

func klDirichlet(p, q *DirichletDistribution) gotorch.Tensor {
	ofP, ofQ := sum(p.Concentration), sum(q.Concentration)
	t1 := ofP.Lgamma().Sub(ofQ.Lgamma())
	t2 := sum(p.Concentration.Lgamma().Sub(q.Concentration.Lgamma()))
	t3 := p.Concentration.Sub(q.Concentration)
	t4 := p.Concentration.Digamma().Sub(ofP.Digamma().Unsqueeze(-1))
	return t1.Sub(t2).Add(sum(t3.Mul(t4)))
}

func klGamma(p, q gammaD) gotorch.Tensor {
	t1 := q.Concentration.Mul(p.Rate.Div(q.Rate).Log())
	t2 := q.Concentration.Lgamma().Sub(p.Concentration.Lgamma())
	t3 := p.Concentration.Sub(q.Concentration).Mul(p.Concentration.Digamma())
	t4 := q.Rate.Sub(p.Rate).Mul(p.Concentration.Div(p.Rate))
	return t1.Add(t2).Add(t3).Add(t4)
}

func klGumbel(p, q gumbelD) gotorch.Tensor {
	c1, c2, c3 := p.Scale.Div(q.Scale), q.Loc.Div(q.Scale), p.Loc.Div(q.Scale)
	t1 := c1.Log().Neg().Sub(c2).Add(c3)
	t2 := c1.MulScalar(eulerGamma)
	t3 := c2.Add(c1.AddScalar(1).Lgamma()).Sub(c3).Exp()
	return t1.Add(t2).Add(t3).SubScalar(1 + eulerGamma)
}

func klLaplace(p, q laplaceD) gotorch.Tensor {
	ratio, apart := p.Scale.Div(q.Scale), p.Loc.Sub(q.Loc).Abs()
	t1, t2 := ratio.Log().Neg(), apart.Div(q.Scale)
	t3 := ratio.Mul(apart.Neg().Div(p.Scale).Exp())
	return t1.Add(t2).Add(t3).SubScalar(1)
}

func klNormal(p, q normalD) gotorch.Tensor {
	ratio := p.Scale.Div(q.Scale).Pow(2)
	apart := p.Loc.Sub(q.Loc).Div(q.Scale).Pow(2)
	return ratio.Add(apart).SubScalar(1).Sub(ratio.Log()).MulScalar(0.5)
}

func klPareto(p, q paretoD) gotorch.Tensor {
	scale, alpha := p.Scale.Div(q.Scale), q.Alpha.Div(p.Alpha)
	result := q.Alpha.Mul(scale.Log()).Add(alpha.Log().Neg()).Add(alpha).SubScalar(1)
	set(result, p.Scale.Lt(q.Scale), math.Inf(1))
	return result
}

func sameEvents(p, q *Base, of string) int64 {
	if !slices.Equal(p.event, q.event) {
		panic(numeric.Errorf("distributions.KLDivergence", gotorch.ValueError,
			"KL-divergence between two %s with different event shapes cannot be computed: %s and %s", of, numeric.Size(p.event), numeric.Size(q.event)))
	}
	return p.event[0]
}

// traceSquared is the trace of m·mᵀ.
func traceSquared(m gotorch.Tensor) gotorch.Tensor {
	shape := m.Shape()
	n := len(shape)
	return sum(m.Reshape([]int64{-1, shape[n-1] * shape[n-2]}).Pow(2)).Reshape(shape[:n-2])
}

func klMultivariate(p, q multivariateD) gotorch.Tensor {
	n := sameEvents(&p.Base, &q.Base, "Multivariate Normals")
	half := logDiagonal(q.factor).Sub(logDiagonal(p.factor))
	shape := numeric.Join(numeric.BroadcastShapes("distributions.KLDivergence", head(q.factor.Shape(), 2), head(p.factor.Shape(), 2)), n, n)
	t2 := traceSquared(gotorch.LinalgSolveTriangular(q.factor.Expand(shape), p.factor.Expand(shape), false))
	t3 := mahalanobis(q.factor, q.Loc.Sub(p.Loc))
	return half.Add(t2.Add(t3).SubScalar(n).MulScalar(0.5))
}

func klLowRank(p, q lowRankD) gotorch.Tensor {
	n := sameEvents(&p.Base, &q.Base, "Low Rank Multivariate Normals")
	t1 := q.logDet().Sub(p.logDet())
	t3 := lowRankMahalanobis(q.factor, q.diag, q.Loc.Sub(p.Loc), q.capacitance)
	a := gotorch.LinalgSolveTriangular(q.capacitance, overDiag(q.factor, q.diag), false)
	t2 := sum(p.diag.Div(q.diag)).Add(traceSquared(p.factor.Mul(q.diag.Rsqrt().Unsqueeze(-1)))).
		Sub(traceSquared(a.Mul(p.diag.Sqrt().Unsqueeze(-2)))).Sub(traceSquared(a.MatMul(p.factor)))
	return t1.Add(t2).Add(t3).SubScalar(n).MulScalar(0.5)
}

func klMultivariateLowRank(p multivariateD, q lowRankD) gotorch.Tensor {
	n := sameEvents(&p.Base, &q.Base, "(Low Rank) Multivariate Normals")
	t1 := q.logDet().Sub(logDiagonal(p.factor).MulScalar(2))
	t3 := lowRankMahalanobis(q.factor, q.diag, q.Loc.Sub(p.Loc), q.capacitance)
	a := gotorch.LinalgSolveTriangular(q.capacitance, overDiag(q.factor, q.diag), false)
	t2 := traceSquared(p.factor.Mul(q.diag.Rsqrt().Unsqueeze(-1))).Sub(traceSquared(a.MatMul(p.factor)))
	return t1.Add(t2).Add(t3).SubScalar(n).MulScalar(0.5)
}

func klLowRankMultivariate(p lowRankD, q multivariateD) gotorch.Tensor {
	n := sameEvents(&p.Base, &q.Base, "(Low Rank) Multivariate Normals")
	t1 := logDiagonal(q.factor).MulScalar(2).Sub(p.logDet())
	t3 := mahalanobis(q.factor, q.Loc.Sub(p.Loc))
	batch := numeric.BroadcastShapes("distributions.KLDivergence", head(q.factor.Shape(), 2), head(p.factor.Shape(), 2))
	square := numeric.Join(batch, n, n)
	tril := q.factor.Expand(square)
	factor := p.factor.Expand(numeric.Join(batch, n, p.CovFactor.Size(-1)))
	diag := p.diag.Sqrt().DiagEmbed().Expand(square)
	t2 := traceSquared(gotorch.LinalgSolveTriangular(tril, factor, false)).
		Add(traceSquared(gotorch.LinalgSolveTriangular(tril, diag, false)))
	return t1.Add(t2).Add(t3).SubScalar(n).MulScalar(0.5)
}

func klBetaGamma(p betaD, q gammaD) gotorch.Tensor {
	total := func() gotorch.Tensor { return p.Concentration1().Add(p.Concentration0()) }
	t1 := p.Entropy().Neg()
	t2 := q.Concentration.Lgamma().Sub(q.Concentration.Mul(q.Rate.Log()))
	t3 := q.Concentration.SubScalar(1).Mul(p.Concentration1().Digamma().Sub(total().Digamma()))
	t4 := q.Rate.Mul(p.Concentration1()).Div(total())
	return t1.Add(t2).Sub(t3).Add(t4)
}

func klBetaNormal(p betaD, q normalD) gotorch.Tensor {
	mean, variance := p.Mean(), q.Scale.Pow(2)
	t1 := p.Entropy().Neg()
	t2 := variance.MulScalar(2).MulScalar(math.Pi).Log().MulScalar(0.5)
	spread := mean.Mul(numeric.From(1, mean))
	t3 := spread.Div(p.Concentration1().Add(p.Concentration0()).AddScalar(1)).Add(mean.Pow(2)).MulScalar(0.5)
	t4, t5 := q.Loc.Mul(mean), q.Loc.Pow(2).MulScalar(0.5)
	return t1.Add(t2).Add(t3.Sub(t4).Add(t5).Div(variance))
}

func klContinuousBernoulliNormal(p continuousBernoulliD, q normalD) gotorch.Tensor {
	t1 := p.Entropy().Neg()
	t2 := q.Loc.Div(q.Scale).Square().AddScalar(math.Log(2.0 * math.Pi)).MulScalar(0.5).Add(q.Scale.Log())
	t3 := p.Variance().Add(p.Mean().Square()).Sub(q.Loc.MulScalar(2.0).Mul(p.Mean())).Div(q.Scale.Square().MulScalar(2.0))
	return t1.Add(t2).Add(t3)
}

func klExponentialGumbel(p exponentialD, q gumbelD) gotorch.Tensor {
	product, ratio := p.Rate.Mul(q.Scale), q.Loc.Div(q.Scale)
	t1 := product.Log().SubScalar(1)
	t2 := ratio.Exp().Mul(product).Div(product.AddScalar(1))
	return t1.Sub(ratio).Add(t2).Add(product.Reciprocal())
}

func klExponentialNormal(p exponentialD, q normalD) gotorch.Tensor {
	variance, square := q.Scale.Pow(2), p.Rate.Pow(2)
	t1 := square.Mul(variance).MulScalar(2).MulScalar(math.Pi).Log().MulScalar(0.5)
	t := square.Reciprocal().Sub(q.Loc.Div(p.Rate)).Add(q.Loc.Pow(2).MulScalar(0.5))
	return t1.SubScalar(1).Add(t.Div(variance))
}

func klGammaGumbel(p gammaD, q gumbelD) gotorch.Tensor {
	product, ratio := p.Rate.Mul(q.Scale), q.Loc.Div(q.Scale)
	t1 := p.Concentration.SubScalar(1).Mul(p.Concentration.Digamma()).Sub(p.Concentration.Lgamma()).Sub(p.Concentration)
	t2 := product.Log().Add(p.Concentration.Div(product))
	t3 := ratio.Exp().Mul(product.Reciprocal().AddScalar(1).PowTensor(p.Concentration.Neg())).Sub(ratio)
	return t1.Add(t2).Add(t3)
}

func klGammaNormal(p gammaD, q normalD) gotorch.Tensor {
	variance, square := q.Scale.Pow(2), p.Rate.Pow(2)
	t1 := square.Mul(variance).MulScalar(2).MulScalar(math.Pi).Log().MulScalar(0.5).Sub(p.Concentration).Sub(p.Concentration.Lgamma())
	t2 := p.Concentration.Pow(2).Add(p.Concentration).MulScalar(0.5).Div(square)
	t3 := q.Loc.Mul(p.Concentration).Div(p.Rate)
	t4 := q.Loc.Pow(2).MulScalar(0.5)
	return t1.Add(p.Concentration.SubScalar(1).Mul(p.Concentration.Digamma())).Add(t2.Sub(t3).Add(t4).Div(variance))
}

func klNormalGumbel(p normalD, q gumbelD) gotorch.Tensor {
	mean, variance, loc := p.Loc.Div(q.Scale), p.Scale.Div(q.Scale).Pow(2), q.Loc.Div(q.Scale)
	t1, t2 := variance.Log().MulScalar(0.5), mean.Sub(loc)
	t3 := mean.Neg().Add(variance.MulScalar(0.5)).Add(loc).Exp()
	return t1.Neg().Add(t2).Add(t3).SubScalar(0.5 * (1 + math.Log(2*math.Pi)))
}

func klNormalLaplace(p normalD, q laplaceD) gotorch.Tensor {
	apart, ratio := p.Loc.Sub(q.Loc), p.Scale.Div(q.Scale)
	inScale := apart.Div(p.Scale)
	t1 := ratio.Log()
	t2 := p.Scale.MulScalar(math.Sqrt(2 / math.Pi)).Mul(inScale.Pow(2).MulScalar(-0.5).Exp())
	t3 := apart.Mul(inScale.MulScalar(math.Sqrt(0.5)).Erf())
	return t1.Neg().Add(t2.Add(t3).Div(q.Scale)).SubScalar(0.5 * (1 + math.Log(0.5*math.Pi)))
}

func klParetoExponential(p paretoD, q exponentialD) gotorch.Tensor {
	product := p.Scale.Mul(q.Rate)
	t1, t2 := p.Alpha.Div(product).Log(), p.Alpha.Reciprocal()
	t3 := p.Alpha.Mul(product).Div(p.Alpha.SubScalar(1))
	result := t1.Sub(t2).Add(t3).SubScalar(1)
	set(result, p.Alpha.LeScalar(1), math.Inf(1))
	return result
}

func klParetoGamma(p paretoD, q gammaD) gotorch.Tensor {
	common := p.Scale.Log().Add(p.Alpha.Reciprocal())
	t1 := p.Alpha.Log().Sub(common)
	t2 := q.Concentration.Lgamma().Sub(q.Concentration.Mul(q.Rate.Log()))
	t3 := numeric.From(1, q.Concentration).Mul(common)
	t4 := q.Rate.Mul(p.Alpha).Mul(p.Scale).Div(p.Alpha.SubScalar(1))
	result := t1.Add(t2).Add(t3).Add(t4).SubScalar(1)
	set(result, p.Alpha.LeScalar(1), math.Inf(1))
	return result
}

func klParetoNormal(p paretoD, q normalD) gotorch.Tensor {
	variance := q.Scale.Pow(2).MulScalar(2)
	common := p.Scale.Div(p.Alpha.SubScalar(1))
	t1 := q.Scale.MulScalar(math.Sqrt(2 * math.Pi)).Mul(p.Alpha).Div(p.Scale).Log()
	t2 := p.Alpha.Reciprocal()
	t3 := p.Alpha.Mul(common.Pow(2)).Div(p.Alpha.SubScalar(2))
	t4 := p.Alpha.Mul(common).Sub(q.Loc).Pow(2)
	result := t1.Sub(t2).Add(t3.Add(t4).Div(variance)).SubScalar(1)
	set(result, p.Alpha.LeScalar(2), math.Inf(1))
	return result
}

func klUniformBeta(p uniformD, q betaD) gotorch.Tensor {
	width := p.High.Sub(p.Low)
	t1 := width.Log()
	t2 := q.Concentration1().SubScalar(1).Mul(xLogX(p.High).Sub(xLogX(p.Low)).Sub(width)).Div(width)
	t3 := q.Concentration0().SubScalar(1).
		Mul(xLogX(numeric.From(1, p.High)).Sub(xLogX(numeric.From(1, p.Low))).Add(width)).Div(width)
	t4 := q.Concentration1().Lgamma().Add(q.Concentration0().Lgamma()).Sub(q.Concentration1().Add(q.Concentration0()).Lgamma())
	result := t3.Add(t4).Sub(t1).Sub(t2)
	set(result, p.High.GtScalar(1.0).BitwiseOr(p.Low.LtScalar(0.0)), math.Inf(1))
	return result
}

func klUniformGamma(p uniformD, q gammaD) gotorch.Tensor {
	width := p.High.Sub(p.Low)
	t1 := width.Log()
	t2 := q.Concentration.Lgamma().Sub(q.Concentration.Mul(q.Rate.Log()))
	t3 := numeric.From(1, q.Concentration).Mul(xLogX(p.High).Sub(xLogX(p.Low)).Sub(width)).Div(width)
	t4 := q.Rate.Mul(p.High.Add(p.Low)).DivScalar(2)
	result := t1.Neg().Add(t2).Add(t3).Add(t4)
	set(result, p.Low.LtScalar(0.0), math.Inf(1))
	return result
}

func klUniformGumbel(p uniformD, q gumbelD) gotorch.Tensor {
	common := q.Scale.Div(p.High.Sub(p.Low))
	high, low := p.High.Sub(q.Loc).Div(q.Scale), p.Low.Sub(q.Loc).Div(q.Scale)
	t1 := common.Log().Add(high.Add(low).MulScalar(0.5))
	return t1.Sub(common.Mul(high.Neg().Exp().Sub(low.Neg().Exp())))
}

func klUniformNormal(p uniformD, q normalD) gotorch.Tensor {
	width := p.High.Sub(p.Low)
	t1 := q.Scale.MulScalar(math.Sqrt(math.Pi * 2)).Div(width).Log()
	t2 := width.Pow(2).DivScalar(12)
	t3 := p.High.Add(p.Low).Sub(q.Loc.MulScalar(2)).DivScalar(2).Pow(2)
	return t1.Add(t2.Add(t3).MulScalar(0.5).Div(q.Scale.Pow(2)))
}

func klUniformPareto(p uniformD, q paretoD) gotorch.Tensor {
	width := p.High.Sub(p.Low)
	t1 := q.Alpha.Mul(q.Scale.PowTensor(q.Alpha)).Mul(width).Log()
	t2 := xLogX(p.High).Sub(xLogX(p.Low)).Sub(width).Div(width)
	result := t2.Mul(q.Alpha.AddScalar(1)).Sub(t1)
	set(result, p.Low.Lt(q.Scale), math.Inf(1))
	return result
}
