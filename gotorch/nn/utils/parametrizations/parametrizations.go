// Package parametrizations has the parametrizations of torch.nn.utils.parametrizations: weight normalisation,
// spectral normalisation and orthogonal matrices. Package parametrize says what a parametrization does to a
// module, and takes it away again.
//
//	layer := parametrizations.WeightNorm(nn.Linear(20, 40))
//	// layer.StateDict() has "parametrizations.weight.original0" and "...original1", and "bias".
package parametrizations

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/nn/internal/fields"
	"gotorch.dev/gotorch/nn/utils/parametrize"
)

// orWeight is the name of the tensor where none is given.
func orWeight(name string) string {
	if name == "" {
		return "weight"
	}
	return name
}

// tensor returns the tensor of a module, computed now if it is parametrized.
func tensor(op string, m nn.Modular, name string) gotorch.Tensor {
	if parametrize.IsParametrized(m, name) {
		return parametrize.Refresh(m, name)
	}
	place, ok := nn.Internals(m).Place(name)
	if !ok {
		panic(args.ValueError(op, "Module '%v' has no parameter or buffer with name '%s'", m, name))
	}
	return *place.T
}

// A weight's direction and length ---------------------------------------------------------------------

// WeightNormOptions are the arguments of [WeightNorm] that have defaults.
type WeightNormOptions struct {
	Name string // of the tensor; default: "weight"
	Dim  int64  // the dimension that has a length for each of its places; -1: one length for all, PyTorch's None
}

// WeightNorm has a tensor of m computed of its length and its direction, which are learned apart: original0 is
// the norm of each slice along Dim, original1 the tensor. It returns m. State dicts with the names of
// the older utils.WeightNorm, weight_g and weight_v, can be loaded. It panics as
// [parametrize.RegisterParametrization] does, and with an IndexError if the tensor has no such dimension.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html.
func WeightNorm[M nn.Modular](m M, opts ...WeightNormOptions) M {
	opt := args.Option(opts)
	name := orWeight(opt.Name)
	parametrize.RegisterParametrization(m, name, nn.Init(&_WeightNorm{dim: opt.Dim}), parametrize.RegisterOptions{Unsafe: true})
	parametrize.Refresh(m, name)
	return m
}

// _WeightNorm has the name that PyTorch prints.
type _WeightNorm struct {
	nn.Module
	dim int64
}

func (p *_WeightNorm) Forward(originals ...gotorch.Tensor) gotorch.Tensor {
	if len(originals) != 2 {
		panic(args.ValueError("parametrizations.WeightNorm", "expected a length and a direction, got %d tensors: weight norm must be the first parametrization of a tensor", len(originals)))
	}
	return gotorch.Call("aten::_weight_norm", "", originals[1], originals[0], p.dim)[0].(gotorch.Tensor)
}

func (p *_WeightNorm) RightInverse(weight gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{gotorch.NormExceptDim(weight, gotorch.NormExceptDimOptions{Dim: p.dim}), weight}
}

// LoadOlder takes the names of utils.WeightNorm.
func (p *_WeightNorm) LoadOlder(prefix, name string, dict map[string]gotorch.Tensor) {
	g, v := prefix+name+"_g", prefix+name+"_v"
	length, ok := dict[g]
	direction, both := dict[v]
	if ok && both {
		delete(dict, g)
		delete(dict, v)
		dict[prefix+"parametrizations."+name+".original0"] = length
		dict[prefix+"parametrizations."+name+".original1"] = direction
	}
}

// A weight's greatest singular value ------------------------------------------------------------------

// SpectralNormOptions are the arguments of [SpectralNorm] that have defaults.
type SpectralNormOptions struct {
	Name             string         // of the tensor; default: "weight"
	NPowerIterations gotorch.Scalar // at each call while training; default: 1
	Eps              gotorch.Scalar // against division by zero; default: 1e-12
	Dim              gotorch.Scalar // whose places are the rows of the matrix; default: 0, for transposed convolutions 1
}

// SpectralNorm has a tensor of m divided by its greatest singular value, seen as a matrix, and returns m. The
// value is found by power iteration, whose vectors are the buffers _u and _v of the parametrization; they
// begin at random and change at each call while training. It panics as [parametrize.RegisterParametrization] does,
// with a ValueError if NPowerIterations is not positive, and with an IndexError if there is no dimension Dim.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.spectral_norm.html.
func SpectralNorm[M nn.Modular](m M, opts ...SpectralNormOptions) M {
	const op = "parametrizations.SpectralNorm"
	opt := args.Option(opts)
	name := orWeight(opt.Name)
	weight := tensor(op, m, name)
	p := &_SpectralNorm{dim: args.Int(op, "Dim", opt.Dim, fields.RowDim(nn.Internals(m))), iterations: args.Int(op, "NPowerIterations", opt.NPowerIterations, 1),
		eps: args.Float(op, "Eps", opt.Eps, 1e-12)}
	ndim := weight.Dim()
	if p.dim >= ndim || p.dim < -ndim {
		panic(&gotorch.Error{Op: op, Kind: gotorch.IndexError, Msg: fmt.Sprintf("Dimension out of range (expected to be in range of [-%d, %d] but got %d)", ndim, ndim-1, p.dim)})
	}
	if p.iterations <= 0 {
		panic(args.ValueError(op, "Expected n_power_iterations to be positive, but got n_power_iterations=%d", p.iterations))
	}
	if p.dim < 0 {
		p.dim += ndim
	}
	if ndim > 1 {
		gotorch.Unscoped(func() {
			gotorch.NoGrad(func() {
				gotorch.Scope0(func(s *gotorch.ScopeHandle) {
					matrix := p.matrix(weight)
					create := gotorch.TensorOptions{DType: matrix.DType(), Device: matrix.Device()}
					u := gotorch.Empty([]int64{matrix.Size(0)}, create).Normal_()
					v := gotorch.Empty([]int64{matrix.Size(1)}, create).Normal_()
					p.U, p.V = p.normalize(u), p.normalize(v)
					s.Keep(p.U, p.V)
					p.iterate(matrix, 15)
				})
			})
		})
	}
	return parametrize.RegisterParametrization(m, name, nn.Init(p))
}

// _SpectralNorm has the name that PyTorch prints.
type _SpectralNorm struct {
	nn.Module
	U gotorch.Tensor `nn:"_u,buffer"`
	V gotorch.Tensor `nn:"_v,buffer"`

	dim, iterations int64
	eps             float64
}

func (p *_SpectralNorm) matrix(weight gotorch.Tensor) gotorch.Tensor {
	return fields.Rows(weight, p.dim).Flatten(gotorch.FlattenOptions{StartDim: 1})
}

func (p *_SpectralNorm) normalize(x gotorch.Tensor) gotorch.Tensor {
	return F.Normalize(x, F.NormalizeOptions{Dim: 0, Eps: p.eps})
}

// iterate brings U and V nearer to the singular vectors, in place: others may hold them.
func (p *_SpectralNorm) iterate(matrix gotorch.Tensor, n int64) {
	gotorch.NoGrad(func() {
		for range n {
			p.U.Copy_(p.normalize(matrix.MV(p.V)))
			p.V.Copy_(p.normalize(matrix.MatrixH().MV(p.U)))
		}
	})
}

func (p *_SpectralNorm) Forward(weight gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		if weight.Dim() == 1 {
			return p.normalize(weight)
		}
		matrix := p.matrix(weight)
		if p.Training() {
			p.iterate(matrix, p.iterations)
		}
		// Copies, for autograd needs them as they are now, and the next call changes them.
		u, v := p.U.Clone(), p.V.Clone()
		return weight.Div(u.VDot(matrix.MV(v)))
	})
}

func (p *_SpectralNorm) RightInverse(value gotorch.Tensor) gotorch.Tensor { return value }

// Orthogonal matrices ---------------------------------------------------------------------------------

// OrthogonalMap is how a matrix is made orthogonal.
type OrthogonalMap string

// PyTorch's maps. The default is MatrixExp for square and complex matrices, and Householder for others.
const (
	MatrixExp   OrthogonalMap = "matrix_exp"
	Cayley      OrthogonalMap = "cayley"
	Householder OrthogonalMap = "householder"
)

// OrthogonalOptions are the arguments of [Orthogonal] that have defaults.
type OrthogonalOptions struct {
	Name          string // of the tensor; default: "weight"
	OrthogonalMap OrthogonalMap
	// NoUseTrivialization makes matrices by the map alone, without the one that they begin with as a base,
	// which is slower to learn.
	NoUseTrivialization bool
}

// Orthogonal has a tensor of m, (*, n, k), computed so that it is orthogonal, or unitary where it is complex: its
// columns are, or its rows if there are fewer. It returns m. If the tensor is not orthogonal at first it is
// made so. It panics as [parametrize.RegisterParametrization] does, and with a ValueError for a tensor of fewer
// than 2 dimensions, an unknown map and Householder with complex numbers.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.orthogonal.html.
func Orthogonal[M nn.Modular](m M, opts ...OrthogonalOptions) M {
	const op = "parametrizations.Orthogonal"
	opt := args.Option(opts)
	name := orWeight(opt.Name)
	weight := tensor(op, m, name)
	if n := weight.Dim(); n < 2 {
		panic(args.ValueError(op, "Expected a matrix or batch of matrices. Got a tensor of %d dimensions.", n))
	}
	by := opt.OrthogonalMap
	switch by {
	case "":
		by = Householder
		if weight.Size(-2) == weight.Size(-1) || weight.DType().IsComplex() {
			by = MatrixExp
		}
	case MatrixExp, Cayley, Householder:
	default:
		panic(args.ValueError(op, "orthogonal_map has to be one of \"matrix_exp\", \"cayley\", \"householder\". Got: %s", by))
	}
	if by == Householder && weight.DType().IsComplex() {
		panic(args.ValueError(op, "The householder parametrization does not support complex tensors."))
	}
	p := nn.Init(&_Orthogonal{by: by, shape: weight.Shape(), trivial: !opt.NoUseTrivialization})
	parametrize.RegisterParametrization(m, name, p, parametrize.RegisterOptions{Unsafe: true})
	parametrize.Refresh(m, name)
	return m
}

// _Orthogonal has the name that PyTorch prints.
type _Orthogonal struct {
	nn.Module
	Base gotorch.Tensor `nn:"base,buffer"` // what matrices are multiplied by, if trivial

	by      OrthogonalMap
	shape   []int64
	trivial bool
}

func diagonal(x gotorch.Tensor) gotorch.Tensor {
	return x.Diagonal(gotorch.DiagonalOptions{Dim1: -2, Dim2: new(int64(-1))})
}

func (p *_Orthogonal) Forward(x gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		n, k := x.Size(-2), x.Size(-1)
		transposed := n < k
		if transposed {
			x = x.MT()
			n, k = k, n
		}
		var q gotorch.Tensor
		if p.by == Householder {
			a := x.Tril(gotorch.TrilOptions{Diagonal: -1})
			tau := a.Mul(a).SumDim([]int64{-2}).AddScalar(1.0).Reciprocal().MulScalar(2.0)
			q = gotorch.LinalgHouseholderProduct(a, tau)
			// The diagonal is signs, which are not learned.
			q = q.Mul(diagonal(x).To(gotorch.Int32).Unsqueeze(-2))
		} else {
			q = p.fromSkew(x, n, k)
		}
		if p.Base.T != nil {
			q = p.Base.MatMul(q)
		}
		if transposed {
			q = q.MT()
		}
		return q
	})
}

// fromSkew maps a skew-symmetric matrix, of which x is the lower part, to an orthogonal one.
func (p *_Orthogonal) fromSkew(x gotorch.Tensor, n, k int64) gotorch.Tensor {
	x = x.Tril()
	if n != k { // part of a square one
		shape := x.Shape()
		rest := gotorch.Zeros([]int64{n, n - k}, gotorch.TensorOptions{DType: x.DType(), Device: x.Device()})
		x = gotorch.Cat([]gotorch.Tensor{x, rest.Expand(append(shape[:len(shape)-2:len(shape)-2], -1, -1))}, gotorch.CatOptions{Dim: -1})
	}
	a := x.Sub(x.MH())
	var q gotorch.Tensor
	if p.by == MatrixExp {
		q = gotorch.MatrixExp(a)
	} else { // (I+A/2)(I−A/2)⁻¹
		id := gotorch.Eye(n, gotorch.TensorOptions{DType: a.DType(), Device: a.Device()})
		q = gotorch.LinalgSolve(id.Add(a, gotorch.AddOptions{Alpha: -0.5}), id.Add(a, gotorch.AddOptions{Alpha: 0.5}))
	}
	if n != k {
		q = q.Index(gotorch.Ellipsis, gotorch.Slice(0, k))
	}
	return q
}

// RightInverse makes value the base, if there is one, and what is learned −1 on the diagonal, which the maps
// take to the identity.
func (p *_Orthogonal) RightInverse(value gotorch.Tensor) (result gotorch.Tensor) {
	const op = "parametrizations.Orthogonal"
	if got := value.Shape(); !slices.Equal(got, p.shape) {
		panic(args.ValueError(op, "Expected a matrix or batch of matrices of shape %v. Got a tensor of shape %v.", p.shape, got))
	}
	if !p.trivial && p.by != Householder {
		panic(&gotorch.Error{Op: op, Kind: gotorch.NotImplementedError, Msg: "It is not possible to assign to the matrix exponential or the Cayley parametrizations when use_trivialization=False."})
	}
	gotorch.NoGrad(func() {
		var base gotorch.Tensor
		gotorch.Unscoped(func() {
			result, base = p.inverse(value)
		})
		if p.trivial {
			p.Base = base
		}
	})
	return result
}

func (p *_Orthogonal) inverse(value gotorch.Tensor) (result, base gotorch.Tensor) {
	gotorch.Scope0(func(s *gotorch.ScopeHandle) {
		q := value
		n, k := q.Size(-2), q.Size(-1)
		transposed := n < k
		if transposed {
			q = q.MT()
			n, k = k, n
		}
		if !p.trivial {
			a, tau := gotorch.GEQRF(q)
			signs := diagonal(a).Sign_()
			signs.IndexPut(signs.Index(tau.EqScalar(0)).Neg(), tau.EqScalar(0))
			if result = a; transposed {
				result = a.MT()
			}
			s.Keep(result)
			return
		}
		switch {
		case n != k: // complete it to a square one
			shape := q.Shape()
			random := gotorch.Randn(append(shape[:len(shape)-2:len(shape)-2], n, n-k), gotorch.TensorOptions{DType: q.DType(), Device: q.Device()})
			base = orthogonal(gotorch.Cat([]gotorch.Tensor{q, random}, gotorch.CatOptions{Dim: -1}))
		case isOrthogonal(q):
			base = q.Clone()
		default:
			base = orthogonal(q)
		}
		result = gotorch.ZerosLike(value)
		diagonal(result).Fill_(-1.0)
		s.Keep(result, base)
	})
	return result, base
}

// isOrthogonal reports whether the columns of q are orthogonal, as far as its dtype tells.
func isOrthogonal(q gotorch.Tensor) bool {
	n, k := q.Size(-2), q.Size(-1)
	id := gotorch.Eye(k, gotorch.TensorOptions{DType: q.DType(), Device: q.Device()})
	eps := 10 * float64(n) * epsOf(q.DType())
	return q.MH().MatMul(q).AllClose(id, gotorch.AllCloseOptions{ATol: &eps})
}

// epsOf is the distance from 1 to the next number of a dtype.
func epsOf(d gotorch.DType) float64 {
	switch d {
	case gotorch.Float64, gotorch.Complex128:
		return 0x1p-52
	case gotorch.Float16:
		return 0x1p-10
	case gotorch.BFloat16:
		return 0x1p-7
	}
	return 0x1p-23
}

// orthogonal makes a matrix orthogonal, with positive numbers on the diagonal of R.
func orthogonal(a gotorch.Tensor) gotorch.Tensor {
	x, tau := gotorch.GEQRF(a)
	q := gotorch.LinalgHouseholderProduct(x, tau)
	return q.Mul_(diagonal(x).SGN().Unsqueeze(-2))
}
