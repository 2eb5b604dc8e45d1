package transforms

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
)

var last = []int64{-1}

// ReshapeTransform is what [Reshape] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ReshapeTransform.
type ReshapeTransform struct {
	Base
	InShape, OutShape []int64
}

// Reshape changes the shape of events from inShape to outShape. It panics with a ValueError if they differ in
// their number of elements.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ReshapeTransform.
func Reshape(inShape, outShape []int64, opts ...Options) *ReshapeTransform {
	if numeric.Product(inShape) != numeric.Product(outShape) {
		panic(numeric.Errorf("transforms.Reshape", gotorch.ValueError, "in_shape, out_shape have different numbers of elements"))
	}
	return Init(&ReshapeTransform{InShape: slices.Clone(inShape), OutShape: slices.Clone(outShape)}, opts...)
}

// Domain is part of [Transform].
func (t *ReshapeTransform) Domain() constraints.Constraint {
	return constraints.Independent(constraints.Real, int64(len(t.InShape)))
}

// Codomain is part of [Transform].
func (t *ReshapeTransform) Codomain() constraints.Constraint {
	return constraints.Independent(constraints.Real, int64(len(t.OutShape)))
}

// Bijective is part of [Transform].
func (t *ReshapeTransform) Bijective() bool { return true }

// before is what stands before the last n sizes, as a slice in Python with a negative end would have it.
func before(shape []int64, n int) []int64 {
	cut := len(shape) - n
	if cut < 0 {
		cut = max(0, len(shape)+cut)
	}
	return shape[:cut]
}

// Call is part of [Transform].
func (t *ReshapeTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return x.Reshape(numeric.Join(before(x.Shape(), len(t.InShape)), t.OutShape...))
}

// Inverse is part of [Transform].
func (t *ReshapeTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return y.Reshape(numeric.Join(before(y.Shape(), len(t.OutShape)), t.InShape...))
}

// LogAbsDetJacobian is part of [Transform].
func (t *ReshapeTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return x.NewZeros(before(x.Shape(), len(t.InShape)))
}

// ForwardShape is part of [Transform].
func (t *ReshapeTransform) ForwardShape(shape []int64) []int64 {
	return exchanged(shape, t.InShape, t.OutShape)
}

// InverseShape is part of [Transform].
func (t *ReshapeTransform) InverseShape(shape []int64) []int64 {
	return exchanged(shape, t.OutShape, t.InShape)
}

func exchanged(shape, from, to []int64) []int64 {
	cut := len(shape) - len(from)
	if cut < 0 {
		panic(tooFew("Reshape"))
	}
	if !slices.Equal(shape[cut:], from) {
		panic(numeric.Errorf("transforms.Reshape", gotorch.ValueError, "Shape mismatch: expected %s but got %s",
			numeric.Size(shape[cut:]), numeric.Size(from)))
	}
	return numeric.Join(shape[:cut], to...)
}

// CorrCholeskyTransform is what [CorrCholesky] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CorrCholeskyTransform.
type CorrCholeskyTransform struct{ Base }

// CorrCholesky is the Cholesky factor of a correlation matrix of D rows, of a vector of D(D-1)/2 numbers: the signed
// stick-breaking of each row.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CorrCholeskyTransform.
func CorrCholesky(opts ...Options) *CorrCholeskyTransform {
	return Init(&CorrCholeskyTransform{}, opts...)
}

// Domain is part of [Transform].
func (t *CorrCholeskyTransform) Domain() constraints.Constraint { return constraints.RealVector }

// Codomain is part of [Transform].
func (t *CorrCholeskyTransform) Codomain() constraints.Constraint { return constraints.CorrCholesky }

// Bijective is part of [Transform].
func (t *CorrCholeskyTransform) Bijective() bool { return true }

// Call is part of [Transform].
func (t *CorrCholeskyTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	x = x.Tanh()
	eps := numeric.Eps(x.DType())
	x = x.Clamp(gotorch.ClampOptions{Min: -1 + eps, Max: 1 - eps})
	r := vecToTril(x)
	left := numeric.From(1, r.Pow(2)).Sqrt().CumProd(-1) // of the stick
	r = r.Add(gotorch.Eye(r.Size(-1), numeric.Like(r)))
	return r.Mul(shifted(left))
}

// Inverse is part of [Transform].
func (t *CorrCholeskyTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	left := numeric.From(1, y.Mul(y).CumSum(-1))
	v, rest := trilToVec(y, -1), trilToVec(shifted(left), -1)
	s := v.Div(rest.Sqrt())
	return s.Log1p().Sub(s.Neg().Log1p()).DivScalar(2)
}

// LogAbsDetJacobian is part of [Transform].
func (t *CorrCholeskyTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	left := trilToVec(numeric.From(1, y.Mul(y).CumSum(-1)), -2)
	stick := left.Log().SumDim(last).MulScalar(0.5)
	tanh := x.Add(gotorch.Softplus(x.MulScalar(-2))).SubScalar(math.Ln2).SumDim(last).MulScalar(-2)
	return stick.Add(tanh)
}

// ForwardShape is part of [Transform].
func (t *CorrCholeskyTransform) ForwardShape(shape []int64) []int64 {
	if len(shape) < 1 {
		panic(tooFew("CorrCholesky"))
	}
	n := shape[len(shape)-1]
	d := int64(math.RoundToEven(math.Sqrt(0.25+2*float64(n)) + 0.5))
	if d*(d-1)/2 != n {
		panic(numeric.Errorf("transforms.CorrCholesky", gotorch.ValueError, "Input is not a flattened lower-diagonal number"))
	}
	return numeric.Join(numeric.Front(shape, 1), d, d)
}

// InverseShape is part of [Transform].
func (t *CorrCholeskyTransform) InverseShape(shape []int64) []int64 {
	if len(shape) < 2 {
		panic(tooFew("CorrCholesky"))
	}
	d := shape[len(shape)-1]
	if shape[len(shape)-2] != d {
		panic(numeric.Errorf("transforms.CorrCholesky", gotorch.ValueError, "Input is not square"))
	}
	return numeric.Join(numeric.Front(shape, 2), d*(d-1)/2)
}

// shifted is t with ones put in front of its last dimension, and its last left out.
func shifted(t gotorch.Tensor) gotorch.Tensor {
	return onesAround(t.Index(gotorch.Ellipsis, gotorch.SliceTo(-1)), 1, 0)
}

// onesAround puts ones before and behind the last dimension.
func onesAround(t gotorch.Tensor, before, behind int64) gotorch.Tensor {
	return gotorch.ConstantPadND(t, []int64{before, behind}, gotorch.ConstantPadNDOptions{Value: 1})
}

// trilMask is true up to a diagonal of an n×n matrix.
func trilMask(n, diagonal int64, like gotorch.Tensor) gotorch.Tensor {
	at := gotorch.Arange(n, gotorch.TensorOptions{Device: like.Device()})
	return at.Lt(at.View([]int64{-1, 1}).AddScalar(diagonal + 1))
}

// trilToVec returns what is up to a diagonal, row by row.
func trilToVec(m gotorch.Tensor, diagonal int64) gotorch.Tensor {
	n := m.Size(-1)
	if diagonal < -n || diagonal >= n {
		panic(numeric.Errorf("transforms.CorrCholesky", gotorch.ValueError, "diag (%d) provided is outside [%d, %d].", diagonal, -n, n-1))
	}
	return m.Index(gotorch.Ellipsis, trilMask(n, diagonal, m))
}

// vecToTril puts a vector below the diagonal of a matrix, row by row.
func vecToTril(v gotorch.Tensor) gotorch.Tensor {
	length := v.Size(-1)
	n := (1 + math.Sqrt(1+float64(8*float64(length)))) / 2
	if math.RoundToEven(n)-n > numeric.Eps(v.DType()) {
		panic(numeric.Errorf("transforms.CorrCholesky", gotorch.ValueError,
			"The size of last dimension is %d which cannot be expressed as the lower triangular part of a square D x D matrix.", length))
	}
	size := int64(math.RoundToEven(n))
	m := v.NewZeros(numeric.Join(numeric.Front(v.Shape(), 1), size, size))
	m.IndexPut(v, gotorch.Ellipsis, trilMask(size, -1, v))
	return m
}

// SoftmaxTransform is what [Softmax] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SoftmaxTransform.
type SoftmaxTransform struct{ Base }

// Softmax is y = exp(x) scaled so that a vector sums to 1, and back by the logarithm. It is not bijective; for what
// needs that there is [StickBreaking].
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.SoftmaxTransform.
func Softmax(opts ...Options) *SoftmaxTransform { return Init(&SoftmaxTransform{}, opts...) }

// Domain is part of [Transform].
func (t *SoftmaxTransform) Domain() constraints.Constraint { return constraints.RealVector }

// Codomain is part of [Transform].
func (t *SoftmaxTransform) Codomain() constraints.Constraint { return constraints.Simplex }

// Equal is part of [Transform].
func (t *SoftmaxTransform) Equal(other Transform) bool { return sameType[*SoftmaxTransform](other) }

// Call is part of [Transform].
func (t *SoftmaxTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	highest, _ := x.MaxDim(-1, gotorch.MaxDimOptions{KeepDim: true})
	p := x.Sub(highest).Exp()
	return p.Div(p.SumDim(last, gotorch.SumDimOptions{KeepDim: true}))
}

// Inverse is part of [Transform].
func (t *SoftmaxTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return y.Log()
}

// ForwardShape is part of [Transform].
func (t *SoftmaxTransform) ForwardShape(shape []int64) []int64 {
	if len(shape) < 1 {
		panic(tooFew("Softmax"))
	}
	return shape
}

// InverseShape is part of [Transform].
func (t *SoftmaxTransform) InverseShape(shape []int64) []int64 {
	if len(shape) < 1 {
		panic(tooFew("Softmax"))
	}
	return shape
}

// StickBreakingTransform is what [StickBreaking] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.StickBreakingTransform.
type StickBreakingTransform struct{ Base }

// StickBreaking is a vector of D+1 numbers that sum to 1, of one of D: each number breaks a part off what is left.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.StickBreakingTransform.
func StickBreaking(opts ...Options) *StickBreakingTransform {
	return Init(&StickBreakingTransform{}, opts...)
}

// Domain is part of [Transform].
func (t *StickBreakingTransform) Domain() constraints.Constraint { return constraints.RealVector }

// Codomain is part of [Transform].
func (t *StickBreakingTransform) Codomain() constraints.Constraint { return constraints.Simplex }

// Bijective is part of [Transform].
func (t *StickBreakingTransform) Bijective() bool { return true }

// Equal is part of [Transform].
func (t *StickBreakingTransform) Equal(other Transform) bool {
	return sameType[*StickBreakingTransform](other)
}

// Call is part of [Transform].
func (t *StickBreakingTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	z := clippedSigmoid(x.Sub(remaining(x, x.Size(-1), x.Size(-1)+1).Log()))
	left := numeric.From(1, z).CumProd(-1)
	return onesAround(z, 0, 1).Mul(onesAround(left, 1, 0))
}

// Inverse is part of [Transform].
func (t *StickBreakingTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	cropped := y.Index(gotorch.Ellipsis, gotorch.SliceTo(-1))
	offset := remaining(y, cropped.Size(-1), y.Size(-1))
	left := numeric.From(1, cropped.CumSum(-1)).Clamp(gotorch.ClampOptions{Min: numeric.Tiny(y.DType())})
	return cropped.Log().Sub(left.Log()).Add(offset.Log())
}

// LogAbsDetJacobian is part of [Transform].
func (t *StickBreakingTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	x = x.Sub(remaining(x, x.Size(-1), x.Size(-1)+1).Log())
	cropped := y.Index(gotorch.Ellipsis, gotorch.SliceTo(-1))
	return x.Neg().Add(gotorch.LogSigmoid(x)).Add(cropped.Log()).SumDim(last)
}

// remaining counts how many parts are left: from, less 1, 2, ... n.
func remaining(like gotorch.Tensor, n, from int64) gotorch.Tensor {
	return numeric.From(from, like.NewOnes([]int64{n}).CumSum(-1))
}

// ForwardShape is part of [Transform].
func (t *StickBreakingTransform) ForwardShape(shape []int64) []int64 {
	if len(shape) < 1 {
		panic(tooFew("StickBreaking"))
	}
	return numeric.Join(numeric.Front(shape, 1), shape[len(shape)-1]+1)
}

// InverseShape is part of [Transform].
func (t *StickBreakingTransform) InverseShape(shape []int64) []int64 {
	if len(shape) < 1 {
		panic(tooFew("StickBreaking"))
	}
	return numeric.Join(numeric.Front(shape, 1), shape[len(shape)-1]-1)
}

// LowerCholeskyTransform is what [LowerCholesky] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.LowerCholeskyTransform.
type LowerCholeskyTransform struct{ Base }

// LowerCholesky is a lower triangular matrix with a positive diagonal, the exponential of that of a matrix.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.LowerCholeskyTransform.
func LowerCholesky(opts ...Options) *LowerCholeskyTransform {
	return Init(&LowerCholeskyTransform{}, opts...)
}

// Domain is part of [Transform].
func (t *LowerCholeskyTransform) Domain() constraints.Constraint {
	return constraints.Independent(constraints.Real, 2)
}

// Codomain is part of [Transform].
func (t *LowerCholeskyTransform) Codomain() constraints.Constraint { return constraints.LowerCholesky }

// Equal is part of [Transform].
func (t *LowerCholeskyTransform) Equal(other Transform) bool {
	return sameType[*LowerCholeskyTransform](other)
}

// Call is part of [Transform].
func (t *LowerCholeskyTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return below(x).Add(diagonal(x).Exp().DiagEmbed())
}

// Inverse is part of [Transform].
func (t *LowerCholeskyTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return below(y).Add(diagonal(y).Log().DiagEmbed())
}

func below(m gotorch.Tensor) gotorch.Tensor { return m.Tril(gotorch.TrilOptions{Diagonal: -1}) }

func diagonal(m gotorch.Tensor) gotorch.Tensor {
	return m.Diagonal(gotorch.DiagonalOptions{Dim1: -2, Dim2: new(int64(-1))})
}

// PositiveDefiniteTransform is what [PositiveDefinite] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.PositiveDefiniteTransform.
type PositiveDefiniteTransform struct{ Base }

// PositiveDefinite is a positive definite matrix, the product of a [LowerCholesky] and its transpose.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.PositiveDefiniteTransform.
func PositiveDefinite(opts ...Options) *PositiveDefiniteTransform {
	return Init(&PositiveDefiniteTransform{}, opts...)
}

// Domain is part of [Transform].
func (t *PositiveDefiniteTransform) Domain() constraints.Constraint {
	return constraints.Independent(constraints.Real, 2)
}

// Codomain is part of [Transform].
func (t *PositiveDefiniteTransform) Codomain() constraints.Constraint {
	return constraints.PositiveDefinite
}

// Equal is part of [Transform].
func (t *PositiveDefiniteTransform) Equal(other Transform) bool {
	return sameType[*PositiveDefiniteTransform](other)
}

// Call is part of [Transform].
func (t *PositiveDefiniteTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	l := LowerCholesky().Forward(x)
	return l.MatMul(l.MT())
}

// Inverse is part of [Transform].
func (t *PositiveDefiniteTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return LowerCholesky().Inv().Forward(gotorch.LinalgCholesky(y))
}
