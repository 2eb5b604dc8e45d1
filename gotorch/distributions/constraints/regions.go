package constraints

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/internal/numeric"
)

// Those without parameters.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
var (
	// Boolean is 0 and 1.
	Boolean = &BooleanConstraint{Static{Discrete: true}}
	// OneHot is the vectors of zeros with a single 1.
	OneHot = &OneHotConstraint{Static{Discrete: true, Dimensions: 1}}
	// NonnegativeInteger is 0, 1, 2, ...
	NonnegativeInteger = &IntegerGreaterThanConstraint{Static{Discrete: true}, int64(0)}
	// PositiveInteger is 1, 2, ...
	PositiveInteger = &IntegerGreaterThanConstraint{Static{Discrete: true}, int64(1)}
	// Real is everything but NaN.
	Real = &RealConstraint{}
	// RealVector is vectors without a NaN.
	RealVector = Independent(Real, 1)
	// Positive is the numbers above 0.
	Positive = GreaterThan(0.0)
	// Nonnegative is the numbers from 0.
	Nonnegative = GreaterThanEq(0.0)
	// UnitInterval is the numbers from 0 to 1.
	UnitInterval = Interval(0.0, 1.0)
	// Simplex is the vectors of numbers from 0 that sum to 1, up to 1e-6.
	Simplex = &SimplexConstraint{Static{Dimensions: 1}}
	// LowerTriangular is the matrices with nothing above the diagonal.
	LowerTriangular = &LowerTriangularConstraint{Static{Dimensions: 2}}
	// LowerCholesky is those with a positive diagonal.
	LowerCholesky = &LowerCholeskyConstraint{Static{Dimensions: 2}}
	// CorrCholesky is those with rows of length 1 besides: the factors of correlation matrices.
	CorrCholesky = &CorrCholeskyConstraint{Static{Dimensions: 2}}
	// Square is the square matrices.
	Square = &SquareConstraint{Static{Dimensions: 2}}
	// Symmetric is the symmetric matrices, up to rounding.
	Symmetric = &SymmetricConstraint{Static{Dimensions: 2}}
	// PositiveSemidefinite is the symmetric matrices without a negative eigenvalue.
	PositiveSemidefinite = &PositiveSemidefiniteConstraint{Static{Dimensions: 2}}
	// PositiveDefinite is the symmetric matrices that have a Cholesky factor.
	PositiveDefinite = &PositiveDefiniteConstraint{Static{Dimensions: 2}}
)

// BooleanConstraint is the type of [Boolean].
type BooleanConstraint struct{ Static }

// Check is part of [Constraint].
func (c *BooleanConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return value.EqScalar(0).BitwiseOr(value.EqScalar(1))
}

// String is part of [Constraint].
func (c *BooleanConstraint) String() string { return text(c) }

// OneHotConstraint is the type of [OneHot].
type OneHotConstraint struct{ Static }

// Check is part of [Constraint].
func (c *OneHotConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	boolean := value.EqScalar(0).BitwiseOr(value.EqScalar(1))
	return boolean.AllDim(-1).BitwiseAnd(value.SumDim(last).EqScalar(1))
}

// String is part of [Constraint].
func (c *OneHotConstraint) String() string { return text(c) }

// RealConstraint is the type of [Real].
type RealConstraint struct{ Static }

// Check is part of [Constraint].
func (c *RealConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return value.Eq(value)
}

// String is part of [Constraint].
func (c *RealConstraint) String() string { return text(c) }

// SimplexConstraint is the type of [Simplex].
type SimplexConstraint struct{ Static }

// Check is part of [Constraint].
func (c *SimplexConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	whole := value.SumDim(last).SubScalar(1).Abs().LtScalar(1e-6)
	return value.GeScalar(0).AllDim(-1).BitwiseAnd(whole)
}

// String is part of [Constraint].
func (c *SimplexConstraint) String() string { return text(c) }

// LowerTriangularConstraint is the type of [LowerTriangular].
type LowerTriangularConstraint struct{ Static }

// Check is part of [Constraint].
func (c *LowerTriangularConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return lowerTriangular(value)
}

// String is part of [Constraint].
func (c *LowerTriangularConstraint) String() string { return text(c) }

// LowerCholeskyConstraint is the type of [LowerCholesky].
type LowerCholeskyConstraint struct{ Static }

// Check is part of [Constraint].
func (c *LowerCholeskyConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	triangular := lowerTriangular(value)
	positive, _ := diagonal(value).GtScalar(0).MinDim(-1)
	return triangular.BitwiseAnd(positive)
}

// String is part of [Constraint].
func (c *LowerCholeskyConstraint) String() string { return text(c) }

// CorrCholeskyConstraint is the type of [CorrCholesky].
type CorrCholeskyConstraint struct{ Static }

// Check is part of [Constraint].
func (c *CorrCholeskyConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	tolerance := numeric.Eps(value.DType()) * float64(value.Size(-1)) * 10
	norm := gotorch.LinalgNorm(value.Detach(), gotorch.LinalgNormOptions{Dim: last})
	unit := norm.SubScalar(1.0).Abs().LeScalar(tolerance).AllDim(-1)
	return LowerCholesky.Check(value).BitwiseAnd(unit)
}

// String is part of [Constraint].
func (c *CorrCholeskyConstraint) String() string { return text(c) }

// SquareConstraint is the type of [Square].
type SquareConstraint struct{ Static }

// Check is part of [Constraint].
func (c *SquareConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	shape := matrix(value)
	n := len(shape)
	square := gotorch.TensorOptions{DType: gotorch.Bool, Device: value.Device()}
	return gotorch.Full(shape[:n-2], shape[n-2] == shape[n-1], square)
}

// String is part of [Constraint].
func (c *SquareConstraint) String() string { return text(c) }

// SymmetricConstraint is the type of [Symmetric].
type SymmetricConstraint struct{ Static }

// Check is part of [Constraint].
func (c *SymmetricConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	square := Square.Check(value)
	if !numeric.Whole(square) {
		return square
	}
	return value.IsClose(value.MT(), gotorch.IsCloseOptions{ATol: new(1e-6)}).AllDim(-2).AllDim(-1)
}

// String is part of [Constraint].
func (c *SymmetricConstraint) String() string { return text(c) }

// PositiveSemidefiniteConstraint is the type of [PositiveSemidefinite].
type PositiveSemidefiniteConstraint struct{ Static }

// Check is part of [Constraint].
func (c *PositiveSemidefiniteConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	symmetric := Symmetric.Check(value)
	if !numeric.Whole(symmetric) {
		return symmetric
	}
	return gotorch.LinalgEigvalsh(value).GeScalar(0).AllDim(-1)
}

// String is part of [Constraint].
func (c *PositiveSemidefiniteConstraint) String() string { return text(c) }

// PositiveDefiniteConstraint is the type of [PositiveDefinite].
type PositiveDefiniteConstraint struct{ Static }

// Check is part of [Constraint].
func (c *PositiveDefiniteConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	symmetric := Symmetric.Check(value)
	if !numeric.Whole(symmetric) {
		return symmetric
	}
	_, info := gotorch.LinalgCholeskyEx(value)
	return info.EqScalar(0)
}

// String is part of [Constraint].
func (c *PositiveDefiniteConstraint) String() string { return text(c) }

var last = []int64{-1}

// matrix returns the shape of a value of two dimensions or more.
func matrix(value gotorch.Tensor) []int64 {
	shape := value.Shape()
	if len(shape) < 2 {
		panic(numeric.Errorf("constraints.Check", gotorch.IndexError, "a matrix is required, not a tensor of shape %s", numeric.Size(shape)))
	}
	return shape
}

func diagonal(value gotorch.Tensor) gotorch.Tensor {
	return value.Diagonal(gotorch.DiagonalOptions{Dim1: -2, Dim2: new(int64(-1))})
}

func lowerTriangular(value gotorch.Tensor) gotorch.Tensor {
	same := value.Tril().Eq(value)
	lowest, _ := same.View(numeric.Join(numeric.Front(value.Shape(), 2), -1)).MinDim(-1)
	return lowest
}

// IntegerIntervalConstraint is what [IntegerInterval] makes.
type IntegerIntervalConstraint struct {
	Static
	LowerBound Param
	UpperBound Param
}

// IntegerInterval is from lower to upper, whole numbers. Bounds are numbers or tensors, else there is a TypeError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func IntegerInterval(lower, upper Param) *IntegerIntervalConstraint {
	return &IntegerIntervalConstraint{Static{Discrete: true}, bound("IntegerInterval", "lower_bound", lower), bound("IntegerInterval", "upper_bound", upper)}
}

// Check is part of [Constraint].
func (c *IntegerIntervalConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return whole(value).BitwiseAnd(numeric.Le(c.LowerBound, value)).BitwiseAnd(numeric.AtMost(value, c.UpperBound))
}

// String is part of [Constraint].
func (c *IntegerIntervalConstraint) String() string {
	return text(c, "lower_bound", c.LowerBound, "upper_bound", c.UpperBound)
}

// IntegerGreaterThanConstraint is what [NonnegativeInteger] and [PositiveInteger] are.
type IntegerGreaterThanConstraint struct {
	Static
	LowerBound Param
}

// Check is part of [Constraint].
func (c *IntegerGreaterThanConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return whole(value).BitwiseAnd(numeric.AtLeast(value, c.LowerBound))
}

// String is part of [Constraint].
func (c *IntegerGreaterThanConstraint) String() string { return text(c, "lower_bound", c.LowerBound) }

// GreaterThanConstraint is what [GreaterThan] makes.
type GreaterThanConstraint struct {
	Static
	LowerBound Param
}

// GreaterThan is the numbers above lower. The bound is a number or a tensor, else there is a TypeError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func GreaterThan(lower Param) *GreaterThanConstraint {
	return &GreaterThanConstraint{Static{}, bound("GreaterThan", "lower_bound", lower)}
}

// Check is part of [Constraint].
func (c *GreaterThanConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return numeric.Lt(c.LowerBound, value)
}

// String is part of [Constraint].
func (c *GreaterThanConstraint) String() string { return text(c, "lower_bound", c.LowerBound) }

// GreaterThanEqConstraint is what [GreaterThanEq] makes.
type GreaterThanEqConstraint struct {
	Static
	LowerBound Param
}

// GreaterThanEq is the numbers from lower. The bound is a number or a tensor, else there is a TypeError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func GreaterThanEq(lower Param) *GreaterThanEqConstraint {
	return &GreaterThanEqConstraint{Static{}, bound("GreaterThanEq", "lower_bound", lower)}
}

// Check is part of [Constraint].
func (c *GreaterThanEqConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return numeric.Le(c.LowerBound, value)
}

// String is part of [Constraint].
func (c *GreaterThanEqConstraint) String() string { return text(c, "lower_bound", c.LowerBound) }

// LessThanConstraint is what [LessThan] makes.
type LessThanConstraint struct {
	Static
	UpperBound Param
}

// LessThan is the numbers below upper. The bound is a number or a tensor, else there is a TypeError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func LessThan(upper Param) *LessThanConstraint {
	return &LessThanConstraint{Static{}, bound("LessThan", "upper_bound", upper)}
}

// Check is part of [Constraint].
func (c *LessThanConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return numeric.Below(value, c.UpperBound)
}

// String is part of [Constraint].
func (c *LessThanConstraint) String() string { return text(c, "upper_bound", c.UpperBound) }

// IntervalConstraint is what [Interval] makes.
type IntervalConstraint struct {
	Static
	LowerBound Param
	UpperBound Param
}

// Interval is the numbers from lower to upper, both inside. Bounds are numbers or tensors, else there is a TypeError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func Interval(lower, upper Param) *IntervalConstraint {
	return &IntervalConstraint{Static{}, bound("Interval", "lower_bound", lower), bound("Interval", "upper_bound", upper)}
}

// Check is part of [Constraint].
func (c *IntervalConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return numeric.Le(c.LowerBound, value).BitwiseAnd(numeric.AtMost(value, c.UpperBound))
}

// String is part of [Constraint].
func (c *IntervalConstraint) String() string {
	return text(c, "lower_bound", c.LowerBound, "upper_bound", c.UpperBound)
}

// HalfOpenIntervalConstraint is what [HalfOpenInterval] makes.
type HalfOpenIntervalConstraint struct {
	Static
	LowerBound Param
	UpperBound Param
}

// HalfOpenInterval is the numbers from lower to upper, without upper. Bounds are numbers or tensors, else there is a TypeError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func HalfOpenInterval(lower, upper Param) *HalfOpenIntervalConstraint {
	return &HalfOpenIntervalConstraint{Static{}, bound("HalfOpenInterval", "lower_bound", lower), bound("HalfOpenInterval", "upper_bound", upper)}
}

// Check is part of [Constraint].
func (c *HalfOpenIntervalConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return numeric.Le(c.LowerBound, value).BitwiseAnd(numeric.Below(value, c.UpperBound))
}

// String is part of [Constraint].
func (c *HalfOpenIntervalConstraint) String() string {
	return text(c, "lower_bound", c.LowerBound, "upper_bound", c.UpperBound)
}

// MultinomialConstraint is what [Multinomial] makes.
type MultinomialConstraint struct {
	Static
	UpperBound Param
}

// Multinomial is the vectors of counts that sum to at most upper. The bound is a number or a tensor, else there is a TypeError.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func Multinomial(upper Param) *MultinomialConstraint {
	return &MultinomialConstraint{Static{Discrete: true, Dimensions: 1}, bound("Multinomial", "upper_bound", upper)}
}

// Check is part of [Constraint].
func (c *MultinomialConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	return value.GeScalar(0).AllDim(-1).BitwiseAnd(numeric.AtMost(value.SumDim(last), c.UpperBound))
}

// String is part of [Constraint].
func (c *MultinomialConstraint) String() string { return text(c) }

func whole(value gotorch.Tensor) gotorch.Tensor { return value.RemainderScalar(1).EqScalar(0) }
