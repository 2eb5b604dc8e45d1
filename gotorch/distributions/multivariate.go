package distributions

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
)

// covariance is a positive definite matrix, given by itself, by its inverse or by its Cholesky factor. The others are
// computed when they are first asked for.
type covariance struct {
	matrix, precision, tril lazy
	factor                  gotorch.Tensor // the Cholesky factor, of the batch that was given
	expanded                []int64        // the shape of the matrices
}

// given returns the one matrix that there is.
func (c *covariance) given(op string, kind gotorch.ErrorKind, covarianceMatrix, precisionMatrix, scaleTril gotorch.Tensor) (gotorch.Tensor, *lazy, string) {
	var value gotorch.Tensor
	var where *lazy
	name, n := "", 0
	for _, m := range []struct {
		t    gotorch.Tensor
		l    *lazy
		name string
	}{{covarianceMatrix, &c.matrix, "covariance_matrix"}, {precisionMatrix, &c.precision, "precision_matrix"}, {scaleTril, &c.tril, "scale_tril"}} {
		if m.t.T != nil {
			value, where, name = m.t, m.l, m.name
			n++
		}
	}
	if n != 1 {
		panic(numeric.Errorf("distributions."+op, kind, "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."))
	}
	return value, where, name
}

// factorize computes the Cholesky factor of what was given.
func (c *covariance) factorize(value gotorch.Tensor, where *lazy) {
	switch where {
	case &c.tril:
		c.factor = value
	case &c.matrix:
		c.factor = gotorch.LinalgCholesky(value)
	default:
		c.factor = precisionToTril(value)
	}
}

// expand returns what there is for a bigger batch.
func (c *covariance) expand(shape []int64) covarianceParts {
	var p covarianceParts
	for i, l := range []*lazy{&c.matrix, &c.precision, &c.tril} {
		if t := l.peek(); t.T != nil {
			p[i] = t.Expand(shape)
		}
	}
	return p
}

// covarianceParts are the matrix, its inverse and its factor, as far as they are there.
type covarianceParts [3]gotorch.Tensor

func (c *covariance) set(p covarianceParts) {
	c.matrix.value, c.precision.value, c.tril.value = p[0], p[1], p[2]
}

func (c *covariance) parameters() []Parameter {
	return []Parameter{
		{"covariance_matrix", constraints.PositiveDefinite, c.matrix.peek(), false},
		{"precision_matrix", constraints.PositiveDefinite, c.precision.peek(), false},
		{"scale_tril", constraints.LowerCholesky, c.tril.peek(), false},
	}
}

// ScaleTril is the Cholesky factor of the covariance matrix.
func (c *covariance) ScaleTril() gotorch.Tensor {
	return c.tril.get(func() gotorch.Tensor { return c.factor.Expand(c.expanded) })
}

// CovarianceMatrix is the covariance matrix.
func (c *covariance) CovarianceMatrix() gotorch.Tensor {
	return c.matrix.get(func() gotorch.Tensor { return c.factor.MatMul(c.factor.MT()).Expand(c.expanded) })
}

// precisionToTril is the Cholesky factor of the inverse of a matrix.
func precisionToTril(p gotorch.Tensor) gotorch.Tensor {
	ends := []int64{-2, -1}
	inverse := gotorch.LinalgCholesky(p.Flip(ends)).Flip(ends).Transpose(-2, -1)
	return gotorch.LinalgSolveTriangular(inverse, gotorch.Eye(p.Size(-1), numeric.Like(p)), false)
}

// times multiplies matrices with vectors.
func times(m, v gotorch.Tensor) gotorch.Tensor { return m.MatMul(v.Unsqueeze(-1)).SqueezeDim(-1) }

// mahalanobis is the squared length of the solutions of l·y = x, for batches of which that of x is the bigger. The
// factors are not expanded: x is laid out so that each meets all vectors that it is for.
func mahalanobis(l, x gotorch.Tensor) gotorch.Tensor {
	n := x.Size(-1)
	shape, factors := x.Shape(), head(l.Shape(), 2)
	batch := head(shape, 1)
	outer := len(batch) - len(factors)
	if outer < 0 {
		panic(numeric.Errorf("distributions.LogProb", gotorch.RuntimeError, "a value of shape %s is too short for matrices of shape %s",
			numeric.Size(shape), numeric.Size(l.Shape())))
	}
	split := slices.Clone(batch[:outer])
	for i, s := range factors {
		if s == 0 {
			return x.Pow(2).SumDim(last)
		}
		split = append(split, batch[outer+i]/s, s)
	}
	order := make([]int64, 0, len(split)+1)
	for i := range outer {
		order = append(order, int64(i))
	}
	for parity := range 2 {
		for i := range factors {
			order = append(order, int64(outer+2*i+parity))
		}
	}
	x = x.Reshape(append(slices.Clone(split), n)).Permute(append(order, int64(len(split))))
	flat := l.Reshape([]int64{-1, n, n})
	swapped := x.Reshape([]int64{-1, flat.Size(0), n}).Permute([]int64{1, 2, 0})
	m := gotorch.LinalgSolveTriangular(flat, swapped, false).Pow(2).SumDim([]int64{-2}).Transpose2D()
	m = m.Reshape(head(x.Shape(), 1))
	back := slices.Clone(order[:outer])
	for i := range factors {
		back = append(back, int64(outer+i), int64(outer+len(factors)+i))
	}
	return m.Permute(back).Reshape(batch)
}

// MultivariateNormalDistribution is what [MultivariateNormal] makes.
type MultivariateNormalDistribution struct {
	Base
	Loc gotorch.Tensor
	covariance
}

// MultivariateNormalOptions are the arguments of [MultivariateNormal] that have defaults. One of the matrices must be given.
type MultivariateNormalOptions struct {
	CovarianceMatrix gotorch.Tensor // (*, n, n), positive definite
	PrecisionMatrix  gotorch.Tensor // its inverse
	ScaleTril        gotorch.Tensor // its Cholesky factor
	NoValidateArgs   bool
}

// MultivariateNormal is the normal distribution of vectors, with a mean of (*, n) and a covariance that is given by one of
// the options. The Cholesky factor is the fastest.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.multivariate_normal.MultivariateNormal.
func MultivariateNormal(loc gotorch.Tensor, opts ...MultivariateNormalOptions) *MultivariateNormalDistribution {
	opt := args.Option(opts)
	const op = "MultivariateNormal"
	if numeric.MustTensor("distributions."+op, "loc", loc).Dim() < 1 {
		panic(numeric.Errorf("distributions."+op, gotorch.ValueError, "loc must be at least one-dimensional."))
	}
	d := &MultivariateNormalDistribution{}
	matrix, where, name := d.given(op, gotorch.ValueError, opt.CovarianceMatrix, opt.PrecisionMatrix, opt.ScaleTril)
	if matrix.Dim() < 2 {
		if name == "scale_tril" {
			name += " matrix"
		}
		panic(numeric.Errorf("distributions."+op, gotorch.ValueError,
			"%s must be at least two-dimensional, with optional leading batch dimensions", name))
	}
	batch := numeric.BroadcastShapes("distributions."+op, head(matrix.Shape(), 2), head(loc.Shape(), 1))
	where.value = matrix.Expand(numeric.Join(batch, -1, -1))
	d.Loc = loc.Expand(numeric.Join(batch, -1))
	n := d.Loc.Size(-1)
	d.expanded = numeric.Join(batch, n, n)
	Init(d, batch, []int64{n}, Options{opt.NoValidateArgs})
	d.factorize(matrix, where)
	return d
}

// Parameters is part of [Distribution].
func (d *MultivariateNormalDistribution) Parameters() []Parameter {
	return append([]Parameter{{"loc", constraints.RealVector, d.Loc, false}}, d.parameters()...)
}

// Expand is part of [Distribution].
func (d *MultivariateNormalDistribution) Expand(batchShape ...int64) Distribution {
	n := d.event[0]
	of := &MultivariateNormalDistribution{Loc: d.Loc.Expand(numeric.Join(batchShape, n))}
	of.expanded = numeric.Join(batchShape, n, n)
	of.covariance.set(d.covariance.expand(of.expanded))
	of.factor = d.factor
	return expanded(&d.Base, of, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *MultivariateNormalDistribution) Support() constraints.Constraint {
	return constraints.RealVector
}

// PrecisionMatrix is the inverse of the covariance matrix.
func (d *MultivariateNormalDistribution) PrecisionMatrix() gotorch.Tensor {
	return d.precision.get(func() gotorch.Tensor { return d.factor.CholeskyInverse().Expand(d.expanded) })
}

// Mean is part of [Distribution].
func (d *MultivariateNormalDistribution) Mean() gotorch.Tensor {
	return d.Loc
}

// Mode is part of [Distribution].
func (d *MultivariateNormalDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// Variance is part of [Distribution].
func (d *MultivariateNormalDistribution) Variance() gotorch.Tensor {
	return sum(d.factor.Pow(2)).Expand(d.ExtendedShape())
}

// HasRSample is part of [Distribution].
func (d *MultivariateNormalDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *MultivariateNormalDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	return d.Loc.Add(times(d.factor, standardNormal(d.ExtendedShape(sampleShape...), d.Loc)))
}

// LogProb is part of [Distribution].
func (d *MultivariateNormalDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	m := mahalanobis(d.factor, value.Sub(d.Loc))
	return m.AddScalar(float64(d.event[0]) * math.Log(2*math.Pi)).MulScalar(-0.5).Sub(logDiagonal(d.factor))
}

// Entropy is part of [Distribution].
func (d *MultivariateNormalDistribution) Entropy() gotorch.Tensor {
	h := logDiagonal(d.factor).AddScalar(0.5 * float64(d.event[0]) * (1.0 + math.Log(2*math.Pi)))
	if len(d.batch) > 0 {
		h = h.Expand(d.batch)
	}
	return h
}

// LowRankMultivariateNormalDistribution is what [LowRankMultivariateNormal] makes.
type LowRankMultivariateNormalDistribution struct {
	Base
	Loc, CovFactor, CovDiag           gotorch.Tensor
	factor, diag, capacitance         gotorch.Tensor // of the batch that was given
	variance, tril, matrix, precision lazy
}

// LowRankMultivariateNormal is the normal distribution of vectors whose covariance is covFactor times its transpose, plus a
// diagonal: of (*, n), (*, n, m) and (*, n), for an m much smaller than n.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.lowrank_multivariate_normal.LowRankMultivariateNormal.
func LowRankMultivariateNormal(loc, covFactor, covDiag gotorch.Tensor, opts ...Options) *LowRankMultivariateNormalDistribution {
	const op = "distributions.LowRankMultivariateNormal"
	fail := func(format string, values ...any) {
		panic(numeric.Errorf(op, gotorch.ValueError, format, values...))
	}
	if numeric.MustTensor(op, "loc", loc).Dim() < 1 {
		fail("loc must be at least one-dimensional.")
	}
	event := tail(loc.Shape(), 1)
	if numeric.MustTensor(op, "cov_factor", covFactor).Dim() < 2 {
		fail("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
	}
	if covFactor.Size(-2) != event[0] {
		fail("cov_factor must be a batch of matrices with shape %d x m", event[0])
	}
	if numeric.MustTensor(op, "cov_diag", covDiag).Dim() < 1 || covDiag.Size(-1) != event[0] {
		fail("cov_diag must be a batch of vectors with shape %s", numeric.Size(event))
	}
	t, err := gotorch.Try(func() []gotorch.Tensor {
		return gotorch.BroadcastTensors([]gotorch.Tensor{loc.Unsqueeze(-1), covFactor, covDiag.Unsqueeze(-1)})
	})
	if err != nil {
		fail("Incompatible batch shapes: loc %s, cov_factor %s, cov_diag %s",
			numeric.Size(loc.Shape()), numeric.Size(covFactor.Shape()), numeric.Size(covDiag.Shape()))
	}
	first := func(t gotorch.Tensor) gotorch.Tensor { return t.Index(gotorch.Ellipsis, gotorch.At(0)) }
	d := &LowRankMultivariateNormalDistribution{
		Loc: first(t[0]), CovFactor: t[1], CovDiag: first(t[2]), factor: covFactor, diag: covDiag,
		capacitance: capacitanceTril(covFactor, covDiag),
	}
	return Init(d, head(d.Loc.Shape(), 1), event, opts...)
}

// Parameters is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) Parameters() []Parameter {
	return []Parameter{
		{"loc", constraints.RealVector, d.Loc, false}, {"cov_factor", realMatrix, d.CovFactor, false},
		{"cov_diag", positiveVector, d.CovDiag, false},
	}
}

// Expand is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) Expand(batchShape ...int64) Distribution {
	shape := numeric.Join(batchShape, d.event...)
	of := &LowRankMultivariateNormalDistribution{
		Loc: d.Loc.Expand(shape), CovDiag: d.CovDiag.Expand(shape), CovFactor: d.CovFactor.Expand(numeric.Join(shape, d.CovFactor.Size(-1))),
		factor: d.factor, diag: d.diag, capacitance: d.capacitance,
	}
	return expanded(&d.Base, of, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) Support() constraints.Constraint {
	return constraints.RealVector
}

// Mean is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) Mean() gotorch.Tensor {
	return d.Loc
}

// Mode is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) Mode() gotorch.Tensor {
	return d.Loc
}

// Variance is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) Variance() gotorch.Tensor {
	return d.variance.get(func() gotorch.Tensor { return sum(d.factor.Pow(2)).Add(d.diag).Expand(d.ExtendedShape()) })
}

// ScaleTril is the Cholesky factor of the covariance matrix.
func (d *LowRankMultivariateNormalDistribution) ScaleTril() gotorch.Tensor {
	return d.tril.get(func() gotorch.Tensor {
		root := d.diag.Sqrt().Unsqueeze(-1)
		w := d.factor.Div(root)
		k := plusOne(w.MatMul(w.MT()).Contiguous())
		return root.Mul(gotorch.LinalgCholesky(k)).Expand(d.matrices())
	})
}

// CovarianceMatrix is the covariance matrix.
func (d *LowRankMultivariateNormalDistribution) CovarianceMatrix() gotorch.Tensor {
	return d.matrix.get(func() gotorch.Tensor {
		return d.factor.MatMul(d.factor.MT()).Add(d.diag.DiagEmbed()).Expand(d.matrices())
	})
}

// PrecisionMatrix is the inverse of the covariance matrix.
func (d *LowRankMultivariateNormalDistribution) PrecisionMatrix() gotorch.Tensor {
	return d.precision.get(func() gotorch.Tensor {
		a := gotorch.LinalgSolveTriangular(d.capacitance, overDiag(d.factor, d.diag), false)
		return d.diag.Reciprocal().DiagEmbed().Sub(a.MT().MatMul(a)).Expand(d.matrices())
	})
}

// HasRSample is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	shape := d.ExtendedShape(sampleShape...)
	w := standardNormal(numeric.Join(head(shape, 1), d.CovFactor.Size(-1)), d.Loc)
	e := standardNormal(shape, d.Loc)
	return d.Loc.Add(times(d.factor, w)).Add(d.diag.Sqrt().Mul(e))
}

// LogProb is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	m := lowRankMahalanobis(d.factor, d.diag, value.Sub(d.Loc), d.capacitance)
	return d.logDet().AddScalar(float64(d.event[0]) * math.Log(2*math.Pi)).Add(m).MulScalar(-0.5)
}

// Entropy is part of [Distribution].
func (d *LowRankMultivariateNormalDistribution) Entropy() gotorch.Tensor {
	h := d.logDet().AddScalar(float64(d.event[0]) * (1.0 + math.Log(2*math.Pi))).MulScalar(0.5)
	if len(d.batch) > 0 {
		h = h.Expand(d.batch)
	}
	return h
}

var realMatrix = constraints.Independent(constraints.Real, 2)

// matrices is the shape of the covariance matrices.
func (d *LowRankMultivariateNormalDistribution) matrices() []int64 {
	return slices.Concat(d.batch, d.event, d.event)
}

// overDiag is the transpose of w, divided by a diagonal.
func overDiag(w, diag gotorch.Tensor) gotorch.Tensor { return w.MT().Div(diag.Unsqueeze(-2)) }

// plusOne adds one to the diagonals of contiguous square matrices, in place.
func plusOne(k gotorch.Tensor) gotorch.Tensor {
	m := k.Size(-1)
	k.View([]int64{-1, m * m}).Index(gotorch.All, gotorch.SliceStep(m+1)).AddScalar_(1)
	return k
}

// capacitanceTril is the Cholesky factor of I + Wᵀ·D⁻¹·W.
func capacitanceTril(w, diag gotorch.Tensor) gotorch.Tensor {
	return gotorch.LinalgCholesky(plusOne(overDiag(w, diag).MatMul(w).Contiguous()))
}

// logDet is the logarithm of the determinant of the covariance, by the matrix determinant lemma.
func (d *LowRankMultivariateNormalDistribution) logDet() gotorch.Tensor {
	return logDiagonal(d.capacitance).MulScalar(2).Add(sum(d.diag.Log()))
}

// lowRankMahalanobis is the squared distance of x, by the Woodbury identity.
func lowRankMahalanobis(w, diag, x, capacitance gotorch.Tensor) gotorch.Tensor {
	wx := times(overDiag(w, diag), x)
	return sum(x.Pow(2).Div(diag)).Sub(mahalanobis(capacitance, wx))
}

// WishartDistribution is what [Wishart] makes.
type WishartDistribution struct {
	Base
	DF gotorch.Tensor
	covariance
	chi2 Distribution
}

// WishartOptions are the arguments of [Wishart] that have defaults. One of the matrices must be given.
type WishartOptions struct {
	CovarianceMatrix gotorch.Tensor // (*, n, n), positive definite
	PrecisionMatrix  gotorch.Tensor // its inverse
	ScaleTril        gotorch.Tensor // its Cholesky factor
	NoValidateArgs   bool
}

// Wishart is the distribution of covariance matrices of df samples of a normal distribution whose covariance is given by one
// of the options. It panics with a ValueError unless df is greater than n-1.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.wishart.Wishart.
func Wishart(df Param, opts ...WishartOptions) *WishartDistribution {
	opt := args.Option(opts)
	const op = "distributions.Wishart"
	df = numeric.Check(op, "df", df)
	d := &WishartDistribution{}
	matrix, where, _ := d.given("Wishart", gotorch.ValueError, opt.CovarianceMatrix, opt.PrecisionMatrix, opt.ScaleTril)
	shape := matrix.Shape()
	if len(shape) < 2 {
		panic(numeric.Errorf(op, gotorch.ValueError, "scale_tril must be at least two-dimensional, with optional leading batch dimensions"))
	}
	batch, event := head(shape, 2), tail(shape, 2)
	if t, ok := numeric.AsTensor(df); ok {
		batch = numeric.BroadcastShapes(op, batch, t.Shape())
		d.DF = t.Expand(batch)
	} else {
		d.DF = numeric.Made(df, numeric.Like(matrix))
	}
	if numeric.Exists(d.DF.LeScalar(event[1] - 1)) {
		panic(numeric.Errorf(op, gotorch.ValueError, "Value of df=%s expected to be greater than ndim - 1 = %d.", numeric.Text(df), event[1]-1))
	}
	d.expanded = numeric.Join(batch, event...)
	where.value = matrix.Expand(numeric.Join(batch, -1, -1))
	Init(d, batch, event, Options{opt.NoValidateArgs})
	d.factorize(matrix, where)
	d.chi2 = d.chiSquared()
	return d
}

// Parameters is part of [Distribution].
func (d *WishartDistribution) Parameters() []Parameter {
	return append(d.parameters(), Parameter{"df", constraints.GreaterThan(d.event[1] - 1), d.DF, false})
}

// Expand is part of [Distribution].
func (d *WishartDistribution) Expand(batchShape ...int64) Distribution {
	of := &WishartDistribution{DF: d.DF.Expand(batchShape)}
	of.expanded = numeric.Join(batchShape, d.event...)
	of.factor = d.factor.Expand(of.expanded)
	of.covariance.set(d.covariance.expand(of.expanded))
	of.batch, of.event = batchShape, d.event
	of.chi2 = of.chiSquared()
	return expanded(&d.Base, of, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *WishartDistribution) Support() constraints.Constraint {
	return constraints.PositiveDefinite
}

// PrecisionMatrix is the inverse of the covariance matrix.
func (d *WishartDistribution) PrecisionMatrix() gotorch.Tensor {
	return d.precision.get(func() gotorch.Tensor {
		return gotorch.Eye(d.event[1], numeric.Like(d.factor)).CholeskySolve(d.factor).Expand(d.expanded)
	})
}

// Mean is part of [Distribution].
func (d *WishartDistribution) Mean() gotorch.Tensor {
	return d.perMatrix(d.DF).Mul(d.CovarianceMatrix())
}

// Mode is part of [Distribution].
func (d *WishartDistribution) Mode() gotorch.Tensor {
	factor := d.DF.SubScalar(d.event[1]).SubScalar(1)
	set(factor, factor.LeScalar(0), math.NaN())
	return d.perMatrix(factor).Mul(d.CovarianceMatrix())
}

// Variance is part of [Distribution].
func (d *WishartDistribution) Variance() gotorch.Tensor {
	v := d.CovarianceMatrix()
	diag := diagonal(v)
	return d.perMatrix(d.DF).Mul(v.Pow(2).Add(gotorch.Einsum("...i,...j->...ij", []gotorch.Tensor{diag, diag})))
}

// HasRSample is part of [Distribution].
func (d *WishartDistribution) HasRSample() bool {
	return true
}

// RSample is part of [Distribution].
func (d *WishartDistribution) RSample(sampleShape ...int64) gotorch.Tensor {
	sample := d.bartlett(sampleShape)
	// PyTorch looks here for the matrices that are not singular, and draws those anew; so do we, for the same numbers.
	singular := d.Support().Check(sample)
	batch := make([]int64, len(d.batch))
	for i := range batch {
		batch[i] = int64(-1 - i)
	}
	over := func(t gotorch.Tensor) gotorch.Tensor {
		if len(batch) > 0 {
			t = t.AMax(gotorch.AMaxOptions{Dim: batch})
		}
		return t
	}
	singular = over(singular)
	for try := 0; try < 10 && numeric.Exists(singular); try++ {
		next := d.bartlett(singular.Index(singular).Shape())
		sample.IndexPut(next, singular)
		still := over(d.Support().Check(next).BitwiseNot())
		singular.IndexPut(still, singular.Clone())
	}
	return sample
}

// LogProb is part of [Distribution].
func (d *WishartDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	p := d.event[1]
	_, logDet := gotorch.LinalgSlogdet(value)
	norm := logDiagonal(d.factor).AddScalar(float64(p) * math.Ln2 / 2)
	trace := sum(diagonal(value.CholeskySolve(d.factor))).DivScalar(2)
	return d.DF.Neg().Mul(norm).Sub(d.DF.DivScalar(2).Mvlgamma(p)).
		Add(d.DF.SubScalar(p).SubScalar(1).DivScalar(2).Mul(logDet)).Sub(trace)
}

// Entropy is part of [Distribution].
func (d *WishartDistribution) Entropy() gotorch.Tensor {
	p := d.event[1]
	half := d.DF.DivScalar(2)
	norm := logDiagonal(d.factor).AddScalar(float64(p) * math.Ln2 / 2)
	return norm.MulScalar(p + 1).Add(half.Mvlgamma(p)).
		Sub(d.DF.SubScalar(p).SubScalar(1).DivScalar(2).Mul(d.mvDigamma(d.DF.DivScalar(2)))).
		Add(d.DF.MulScalar(p).DivScalar(2))
}

// MeanCarrierMeasure is part of [ExponentialFamily].
func (d *WishartDistribution) MeanCarrierMeasure() float64 {
	return 0
}

// NaturalParams is part of [ExponentialFamily].
func (d *WishartDistribution) NaturalParams() []gotorch.Tensor {
	return []gotorch.Tensor{d.PrecisionMatrix().Neg().DivScalar(2), d.DF.SubScalar(d.event[1]).SubScalar(1).DivScalar(2)}
}

// LogNormalizer is part of [ExponentialFamily].
func (d *WishartDistribution) LogNormalizer(natural ...gotorch.Tensor) gotorch.Tensor {
	natural = d.taken(natural, 2)
	x, y, p := natural[0], natural[1], d.event[1]
	more := float64(p+1) / 2
	_, logDet := gotorch.LinalgSlogdet(x.MulScalar(-2))
	return y.AddScalar(more).Mul(logDet.Neg().AddScalar(math.Ln2 * float64(p))).Add(y.AddScalar(more).Mvlgamma(p))
}

// chiSquared is the distribution of the squares on the diagonal of Bartlett's decomposition.
func (d *WishartDistribution) chiSquared() Distribution {
	less := gotorch.Arange(d.event[1], numeric.Like(d.factor)).Expand(numeric.Join(d.batch, -1))
	return Chi2(d.DF.Unsqueeze(-1).Sub(less))
}

// perMatrix gives a tensor of the batch's shape two dimensions more.
func (d *WishartDistribution) perMatrix(t gotorch.Tensor) gotorch.Tensor {
	return t.View(numeric.Join(d.batch, 1, 1))
}

// bartlett draws by Bartlett's decomposition.
func (d *WishartDistribution) bartlett(sampleShape []int64) gotorch.Tensor {
	p := d.event[1]
	roots := d.chi2.RSample(sampleShape...).Sqrt()
	roots = roots.Clamp(gotorch.ClampOptions{Min: numeric.Eps(roots.DType())})
	noise := roots.DiagEmbed(gotorch.DiagEmbedOptions{Dim1: new(int64(-2)), Dim2: new(int64(-1))})
	at := gotorch.TrilIndices(p, p, gotorch.TrilIndicesOptions{Offset: -1})
	normal := gotorch.Randn(numeric.Join(slices.Concat(sampleShape, d.batch), p*(p-1)/2), numeric.Like(noise))
	noise.IndexPut(normal, gotorch.Ellipsis, at.Select(0, 0), at.Select(0, 1))
	chol := d.factor.MatMul(noise)
	return chol.MatMul(chol.Transpose(-2, -1))
}

// mvDigamma is the derivative of the logarithm of the multivariate gamma function.
func (d *WishartDistribution) mvDigamma(x gotorch.Tensor) gotorch.Tensor {
	p := d.event[1]
	if !numeric.Whole(x.GtScalar(float64(p-1) / 2)) {
		panic(d.errorf(gotorch.ValueError, "Wrong domain for multivariate digamma function."))
	}
	less := gotorch.Arange(p, numeric.Like(x)).DivScalar(2).Expand(numeric.Join(x.Shape(), -1))
	return sum(x.Unsqueeze(-1).Sub(less).Digamma())
}

// LKJCholeskyDistribution is what [LKJCholesky] makes.
type LKJCholeskyDistribution struct {
	Base
	Dim           int64
	Concentration gotorch.Tensor
	beta          Distribution
}

// LKJCholeskyOptions are the arguments of [LKJCholesky] that have defaults.
type LKJCholeskyOptions struct {
	Concentration  Param // 1
	NoValidateArgs bool
}

// LKJCholesky is of Cholesky factors of correlation matrices of dim rows: with a concentration of 1 all correlation matrices are
// as likely. It panics with a ValueError for a dim below 2.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.lkj_cholesky.LKJCholesky.
func LKJCholesky(dim int64, opts ...LKJCholeskyOptions) *LKJCholeskyDistribution {
	opt := args.Option(opts)
	if dim < 2 {
		panic(numeric.Errorf("distributions.LKJCholesky", gotorch.ValueError,
			"Expected dim to be an integer greater than or equal to 2. Found dim=%d.", dim))
	}
	if !numeric.Given(opt.Concentration) {
		opt.Concentration = 1.0
	}
	c := broadcast("LKJCholesky", []string{"concentration"}, opt.Concentration)[0]
	offset := gotorch.Arange(dim-1, numeric.Like(c))
	offset = gotorch.Cat([]gotorch.Tensor{offset.NewZeros([]int64{1}), offset})
	conc0 := c.AddScalar(0.5 * float64(dim-2)).Unsqueeze(-1).Sub(offset.MulScalar(0.5))
	d := &LKJCholeskyDistribution{Dim: dim, Concentration: c, beta: Beta(offset.AddScalar(0.5), conc0)}
	return Init(d, c.Shape(), []int64{dim, dim}, Options{opt.NoValidateArgs})
}

// Parameters is part of [Distribution].
func (d *LKJCholeskyDistribution) Parameters() []Parameter {
	return []Parameter{{"concentration", constraints.Positive, d.Concentration, false}}
}

// Expand is part of [Distribution].
func (d *LKJCholeskyDistribution) Expand(batchShape ...int64) Distribution {
	of := &LKJCholeskyDistribution{Dim: d.Dim, Concentration: d.Concentration.Expand(batchShape)}
	of.beta = d.beta.Expand(numeric.Join(batchShape, d.Dim)...)
	return expanded(&d.Base, of, batchShape, d.event)
}

// Support is part of [Distribution].
func (d *LKJCholeskyDistribution) Support() constraints.Constraint {
	return constraints.CorrCholesky
}

// Sample is part of [Distribution].
func (d *LKJCholeskyDistribution) Sample(sampleShape ...int64) gotorch.Tensor {
	y := d.beta.Sample(sampleShape...).Unsqueeze(-1)
	normal := gotorch.Randn(d.ExtendedShape(sampleShape...), numeric.Like(y)).Tril(gotorch.TrilOptions{Diagonal: -1})
	sphere := normal.Div(normal.NormDim(2, last, gotorch.NormDimOptions{KeepDim: true}))
	sphere.Index(gotorch.Ellipsis, gotorch.At(0), gotorch.All).Fill_(0.0)
	w := y.Sqrt().Mul(sphere)
	rest := numeric.From(1, sum(w.Pow(2))).Clamp(gotorch.ClampOptions{Min: numeric.Tiny(w.DType())}).Sqrt()
	return w.Add_(rest.DiagEmbed())
}

// LogProb is part of [Distribution].
func (d *LKJCholeskyDistribution) LogProb(value gotorch.Tensor) gotorch.Tensor {
	d.CheckSample(value)
	diag := value.Diagonal(gotorch.DiagonalOptions{Dim1: -1, Dim2: new(int64(-2))}).Index(gotorch.Ellipsis, gotorch.SliceFrom(1))
	order := gotorch.ArangeStart(2, d.Dim+1, gotorch.TensorOptions{Device: d.Concentration.Device()})
	order = d.Concentration.SubScalar(1).MulScalar(2).Unsqueeze(-1).AddScalar(d.Dim).Sub(order)
	log := sum(order.Mul(diag.Log()))
	n := d.Dim - 1
	alpha := d.Concentration.AddScalar(0.5 * float64(n))
	numerator, denominator := alpha.SubScalar(0.5).Mvlgamma(n), alpha.Lgamma().MulScalar(n)
	return log.Sub(numerator.AddScalar(0.5 * float64(n) * math.Log(math.Pi)).Sub(denominator))
}
