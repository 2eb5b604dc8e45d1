package gotorch

import (
	"fmt"
	"slices"
)

// Functions that PyTorch has in Python only, made of others.

// BroadcastShapes returns the shape that tensors of these shapes have when they are computed with together:
// sizes of 1 become those of the others. The shape of none is that of a scalar.
//
// It panics with a RuntimeError if two sizes differ and neither is 1, and with a ValueError if one is negative.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.broadcast_shapes.html.
func BroadcastShapes(shapes ...[]int64) []int64 {
	const op = "BroadcastShapes"
	dims := 0
	for _, s := range shapes {
		dims = max(dims, len(s))
	}
	common := make([]int64, dims)
	for i := range common {
		common[i] = 1
	}
	for i, s := range shapes {
		for back := 1; back <= len(s); back++ {
			n := s[len(s)-back]
			switch at := &common[dims-back]; {
			case n < 0:
				panic(newError(op, ValueError, "Attempting to broadcast a dimension with negative length!"))
			case n == 1 || n == *at:
			case *at == 1:
				*at = n
			default:
				panic(newError(op, RuntimeError, fmt.Sprintf("Attempting to broadcast a dimension of length %d at -%d! "+
					"Mismatching argument at index %d had %v; but expected shape should be broadcastable to %v", n, back, i, s, common)))
			}
		}
	}
	return common
}

// UnravelIndex returns, for each dimension of a shape, a tensor like indices: where in the tensor of that shape the
// elements are whose places are counted by indices, as in a flat one. An index is taken modulo the number of elements.
//
// It panics with a TypeError if indices are no integers, and with a ValueError if a size is negative, or is 0 while
// there are indices.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.unravel_index.html.
func UnravelIndex(indices Tensor, shape []int64) []Tensor {
	const op = "UnravelIndex"
	dtype := indices.DType()
	switch {
	case !dtype.IsInteger() || dtype == Bool:
		panic(newError(op, TypeError, fmt.Sprintf("expected 'indices' to be integer dtype, but got %v", dtype)))
	case slices.ContainsFunc(shape, func(n int64) bool { return n < 0 }):
		panic(newError(op, ValueError, fmt.Sprintf("'shape' cannot have negative values, but got %v", shape)))
	case slices.Contains(shape, 0) && indices.Numel() != 0:
		panic(newError(op, ValueError, fmt.Sprintf("'shape' cannot have zero dimensions when 'indices' is non-empty, but got %v", shape)))
	}
	places := make([]Tensor, len(shape))
	step := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		// Tensors of dimension 1 and not numbers, so that the result is an int64 as in Python.
		places[d] = Scope(func(*ScopeHandle) Tensor {
			size := func(n int64) Tensor { return FromSlice([]int64{n}).To(indices.Device()) }
			return indices.Unsqueeze(-1).FloorDivide(size(step)).Remainder(size(shape[d])).SqueezeDim(-1)
		})
		step *= shape[d]
	}
	return places
}

// SVDLowRankOptions are the arguments of [SVDLowRank] that have defaults.
type SVDLowRankOptions struct {
	Q     *int64 // a bound of a's rank, of which a few more than it has do no harm; default: 6
	NIter *int64 // how often the basis is improved; default: 2
	M     Tensor // what is subtracted from a, broadcast to its shape; default: nothing
}

// SVDLowRank returns the singular value decomposition a ≈ u·diag(s)·vᴴ of matrices (*, m, n) that are of low rank, or
// huge and sparse: u is (*, m, q), s (*, q) and v (*, n, q). It looks for a basis with random vectors, so that
// results differ with the seed. For dense matrices that fit [LinalgSVD] is better, and faster.
//
// It panics with a RuntimeError if a has fewer than two dimensions, or M does not fit it.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.svd_lowrank.html.
func SVDLowRank(a Tensor, opts ...SVDLowRankOptions) (u, s, v Tensor) {
	opt := option(opts)
	q, times := int64(6), int64(2)
	if opt.Q != nil {
		q = *opt.Q
	}
	if opt.NIter != nil {
		times = *opt.NIter
	}
	return svdLowRank("SVDLowRank", a, opt.M, q, times)
}

func svdLowRank(op string, a, mean Tensor, q, times int64) (u, s, v Tensor) {
	shape := matrixShape(op, a)
	if q < 0 {
		panic(newError(op, RuntimeError, fmt.Sprintf("Q is %d, and a rank is not negative", q)))
	}
	usv := Scope(func(*ScopeHandle) [3]Tensor {
		if mean.T != nil {
			mean = mean.BroadcastTo(shape)
		}
		wide := shape[len(shape)-2] < shape[len(shape)-1]
		if wide {
			a = a.MH()
			if mean.T != nil {
				mean = mean.MH()
			}
		}
		// without the mean
		product := func(a, mean, with Tensor) Tensor {
			x := matMulAny(a, with)
			if mean.T != nil {
				x = x.Sub(matMulAny(mean, with))
			}
			return x
		}
		orthogonal := func(x Tensor) Tensor {
			q, _ := LinalgQR(x)
			return q
		}
		dtype := a.DType()
		if !a.IsComplex() {
			dtype = floatingLike(dtype)
		}
		basis := orthogonal(product(a, mean, Randn([]int64{a.Size(-1), q}, TensorOptions{DType: dtype, Device: a.Device()})))
		for range times {
			var adjoint Tensor
			if mean.T != nil {
				adjoint = mean.MH()
			}
			basis = orthogonal(product(a.MH(), adjoint, basis))
			basis = orthogonal(product(a, mean, basis))
		}
		small := basis.MH().MatMul(a)
		if mean.T != nil {
			small = small.Sub(basis.MH().MatMul(mean))
		}
		left, values, right := LinalgSVD(small, LinalgSVDOptions{FullMatrices: new(false)})
		left, right = basis.MatMul(left), right.MH()
		if wide {
			left, right = right, left
		}
		return [3]Tensor{left, values, right}
	})
	return usv[0], usv[1], usv[2]
}

func matrixShape(op string, a Tensor) []int64 {
	shape := a.Shape()
	if len(shape) < 2 {
		panic(newError(op, RuntimeError, fmt.Sprintf("argument 'a' must be a matrix or a batch of them, and has shape %v", shape)))
	}
	return shape
}

// matMulAny is MatMul for a matrix that may be sparse.
func matMulAny(a, b Tensor) Tensor {
	if a.Layout() != Strided {
		return SparseMM(a, b)
	}
	return a.MatMul(b)
}

// floatingLike is the dtype in which a real matrix is decomposed.
func floatingLike(dtype DType) DType {
	switch dtype {
	case Float16, Float32, Float64:
		return dtype
	}
	return Float32
}

// PCALowRankOptions are the arguments of [PCALowRank] that have defaults.
type PCALowRankOptions struct {
	Q        *int64 // a bound of a's rank; default: 6, or m or n where that is less
	NoCenter bool   // a has mean 0 in each column already
	NIter    *int64 // how often the basis is improved; default: 2
}

// PCALowRank is principal component analysis of matrices (*, m, n) of m samples with n features: [SVDLowRank] of a
// without the mean of each column. The columns of v are the principal directions, s²/(m-1) the variances along them,
// and a.MatMul(v) has the samples in them. A sparse a must be one matrix, and stays sparse.
//
// It panics with a ValueError if Q is negative or greater than m or n, or NIter is negative.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.pca_lowrank.html.
func PCALowRank(a Tensor, opts ...PCALowRankOptions) (u, s, v Tensor) {
	const op = "PCALowRank"
	opt := option(opts)
	shape := matrixShape(op, a)
	m, n := shape[len(shape)-2], shape[len(shape)-1]
	q, times := min(6, m, n), int64(2)
	if opt.Q != nil {
		q = *opt.Q
	}
	if opt.NIter != nil {
		times = *opt.NIter
	}
	switch sparse := a.Layout() != Strided; {
	case q < 0 || q > min(m, n):
		panic(newError(op, ValueError, fmt.Sprintf("q(=%d) must be non-negative integer and not greater than min(m, n)=%d", q, min(m, n))))
	case times < 0:
		panic(newError(op, ValueError, fmt.Sprintf("niter(=%d) must be non-negative integer", times)))
	case opt.NoCenter:
		return svdLowRank(op, a, Tensor{}, q, times)
	case sparse && len(shape) != 2:
		panic(newError(op, ValueError, "pca_lowrank input is expected to be 2-dimensional tensor"))
	case sparse:
		mean := SparseSumDim(a, []int64{-2}).DivScalar(m).ToDense().Unsqueeze(1)
		return svdLowRank(op, a, mean.MatMul(Ones([]int64{1, m}, TensorOptions{DType: mean.DType(), Device: a.Device()})).MT(), q, times)
	}
	return svdLowRank(op, a.Sub(a.MeanDim([]int64{-2}, MeanDimOptions{KeepDim: true})), Tensor{}, q, times)
}

// SparseSpdiagsOptions are the arguments of [SparseSpdiags] that have defaults.
type SparseSpdiagsOptions struct {
	Layout Layout // SparseCOO, SparseCSR or SparseCSC; default: SparseCOO
}

// SparseSpdiags returns a sparse matrix of a shape (m, n) that has the rows of diagonals, (k, w), as its diagonals:
// row i is diagonal offsets[i], which is above the main one where the offset is positive, and below where it is
// negative. Element j of a row goes into column j; what would lie outside of the matrix is left out, where Python
// writes beyond its memory. offsets is a vector of k int64, none of them twice. A single diagonal may be a vector, and
// its offset a tensor without dimensions.
//
// It panics with a RuntimeError if a shape or dtype does not fit, an offset is repeated, or the layout is another one.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.sparse.spdiags.html.
func SparseSpdiags(diagonals, offsets Tensor, shape []int64, opts ...SparseSpdiagsOptions) Tensor {
	layout := option(opts).Layout
	wrong := func(format string, a ...any) {
		panic(newError("SparseSpdiags", RuntimeError, fmt.Sprintf(format, a...)))
	}
	if diagonals.Dim() == 1 {
		diagonals = diagonals.Unsqueeze(0)
	}
	if offsets.Dim() == 0 {
		offsets = offsets.Unsqueeze(0)
	}
	switch {
	case diagonals.Dim() != 2:
		wrong("diagonals should have 2 dimensions, and have %d", diagonals.Dim())
	case offsets.Dim() != 1 || offsets.DType() != Int64:
		wrong("offsets should be a vector of int64, and are %v of shape %v", offsets.DType(), offsets.Shape())
	case offsets.Size(0) != diagonals.Size(0):
		wrong("there are %d diagonals and %d offsets", diagonals.Size(0), offsets.Size(0))
	case len(shape) != 2 || shape[0] < 0 || shape[1] < 0:
		wrong("%v is no shape of a matrix", shape)
	case layout != 0 && layout != SparseCOO && layout != SparseCSR && layout != SparseCSC:
		wrong("the layout should be SparseCOO, SparseCSR or SparseCSC, and is %v", layout)
	}
	m, n, width := shape[0], shape[1], diagonals.Size(1)
	var rows, columns, from []int64
	all := ToSlice[int64](offsets)
	for i, offset := range all {
		if slices.Contains(all[:i], offset) {
			wrong("the offset %d is repeated", offset)
		}
		if offset <= -m || offset >= n {
			continue
		}
		for j := max(offset, 0); j < min(width, n, m+offset); j++ {
			rows, columns, from = append(rows, j-offset), append(columns, j), append(from, int64(i)*width+j)
		}
	}
	return Scope(func(*ScopeHandle) Tensor {
		count := int64(len(rows))
		places := FromSlice(slices.Concat(rows, columns), 2, count).To(diagonals.Device())
		values := diagonals.Reshape([]int64{-1}).IndexSelect(0, FromSlice(from, count).To(diagonals.Device()))
		coo := SparseCOOTensor(places, values, shape)
		switch layout {
		case SparseCSR:
			return coo.ToSparseCSR()
		case SparseCSC:
			return coo.ToSparseCSC()
		}
		return coo
	})
}

// ForkRNGOptions are the arguments of [ForkRNG] that have defaults.
type ForkRNGOptions struct {
	Devices  []Device // besides the CPU; default: all CUDA devices
	Disabled bool     // only run fn
}

// ForkRNG runs fn, and gives the default generators of the CPU and the devices the states back that they had before,
// also when fn panics: random numbers that fn draws, and seeds that it sets, change nothing for what comes after.
// The generators are those of the whole program, so that other goroutines must not draw numbers meanwhile; a
// [Generator] of its own has no such rule.
//
// See https://docs.pytorch.org/docs/stable/random.html.
func ForkRNG(fn func(), opts ...ForkRNGOptions) {
	opt := option(opts)
	if fn == nil {
		panic(newError("ForkRNG", TypeError, "argument 'fn' is nil, where a function is required"))
	}
	if !opt.Disabled {
		devices := append([]Device{CPU}, opt.Devices...)
		if opt.Devices == nil {
			for i := range CUDADeviceCount() {
				devices = append(devices, CUDA(i))
			}
		}
		for _, d := range devices {
			g := DefaultGenerator(d)
			var state Tensor
			Unscoped(func() { state = g.State() }) // fn may end its goroutine
			defer func() {
				g.SetState(state)
				state.Close()
			}()
		}
	}
	fn()
}
