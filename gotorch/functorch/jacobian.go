package functorch

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// JacRevOptions are the arguments of [JacRev] that have defaults.
type JacRevOptions struct {
	// ChunkSize is how many rows of the Jacobian are computed at a time, to save memory; with 1 there is
	// no [VMap], and none of its rules for f. Default: all.
	ChunkSize gotorch.Scalar
}

// JacRev returns a function that computes the Jacobian of f with respect to its argument, by automatic
// differentiation in reverse mode: the better way where f has fewer outputs than inputs. For an argument that
// is a tensor the Jacobian has the shape of f's result followed by that of the argument; for a tree it is a
// tree with such a tensor for each of its tensors.
//
// It panics with a RuntimeError if a tensor is complex, or the result is not floating point.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.jacrev.html
func JacRev[A any](f func(A) gotorch.Tensor, opts ...JacRevOptions) func(A) A {
	notNil("JacRev", f == nil)
	chunk := chunkSize("JacRev", args.Option(opts).ChunkSize)
	return func(a A) A {
		jac, _ := jacRev("JacRev", func(a A) ([]gotorch.Tensor, none) { return []gotorch.Tensor{f(a)}, none{} }, a, chunk)
		return jac[0]
	}
}

// JacRevAll is [JacRev] for a function with several results: a Jacobian for each.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.jacrev.html
func JacRevAll[A any](f func(A) []gotorch.Tensor, opts ...JacRevOptions) func(A) []A {
	notNil("JacRevAll", f == nil)
	chunk := chunkSize("JacRevAll", args.Option(opts).ChunkSize)
	return func(a A) []A {
		jac, _ := jacRev("JacRevAll", func(a A) ([]gotorch.Tensor, none) { return f(a), none{} }, a, chunk)
		return jac
	}
}

// JacRevAux is [JacRev] for a function that returns more than what is differentiated, such as its result
// once more: Python's has_aux.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.jacrev.html
func JacRevAux[A, X any](f func(A) (gotorch.Tensor, X), opts ...JacRevOptions) func(A) (jacobian A, aux X) {
	notNil("JacRevAux", f == nil)
	chunk := chunkSize("JacRevAux", args.Option(opts).ChunkSize)
	return func(a A) (A, X) {
		jac, aux := jacRev("JacRevAux", func(a A) ([]gotorch.Tensor, X) {
			y, aux := f(a)
			return []gotorch.Tensor{y}, aux
		}, a, chunk)
		return jac[0], aux
	}
}

// jacobians is what functions here return through a scope.
type jacobians[X any] struct {
	rows [][]gotorch.Tensor // for each result, for each tensor of the argument
	aux  X
}

func jacRev[A, X any](op string, f func(A) ([]gotorch.Tensor, X), a A, chunk int64) ([]A, X) {
	primals := leaves(op, a)
	refuseComplex(op, "inputs", primals)
	j := gotorch.Scope(func(*gotorch.ScopeHandle) (j jacobians[X]) {
		outputs, vjp, aux := VJPAux(f, a)
		j.aux = aux
		refuseComplex(op, "outputs", outputs)
		numels, total := numelsOf(outputs)
		step := total
		if chunk > 0 && chunk < total {
			step = chunk
		}
		var parts [][]gotorch.Tensor
		for start := int64(0); start == 0 || start < total; start += max(step, 1) {
			n := min(step, total-start)
			basis := standardBasis(outputs, numels, n, start)
			if n == 1 && chunk == 1 {
				for i := range basis {
					basis[i] = basis[i].SqueezeDim(0)
				}
				rows := leaves(op, vjp(basis))
				for i := range rows {
					rows[i] = rows[i].Unsqueeze(0)
				}
				parts = append(parts, rows)
				continue
			}
			parts = append(parts, mapping{op: op}.run(basis, make([]int64, len(basis)), func(basis []gotorch.Tensor) ([]gotorch.Tensor, []int64) {
				rows := leaves(op, vjp(basis))
				return rows, make([]int64, len(rows))
			}))
		}
		j.rows = make([][]gotorch.Tensor, len(outputs))
		for i, primal := range primals {
			whole := parts[0][i]
			if len(parts) > 1 {
				var of []gotorch.Tensor
				for _, part := range parts {
					of = append(of, part[i])
				}
				whole = gotorch.Cat(of)
			}
			for o, split := range whole.SplitWithSizes(numels) {
				j.rows[o] = append(j.rows[o], split.View(append(outputs[o].Shape(), primal.Shape()...)))
			}
		}
		return j
	})
	return fillAll(op, a, j.rows), j.aux
}

func fillAll[A any](op string, like A, rows [][]gotorch.Tensor) []A {
	trees := make([]A, len(rows))
	for i, row := range rows {
		trees[i] = fill(op, like, row)
	}
	return trees
}

func refuseComplex(op, what string, tensors []gotorch.Tensor) {
	for i, t := range tensors {
		if t.T != nil && t.DType().IsComplex() {
			panic(runtimeError(op, "Expected all %s to be real but received complex tensor at flattened input idx: %d", what, i))
		}
	}
}

func numelsOf(tensors []gotorch.Tensor) (numels []int64, total int64) {
	for _, t := range tensors {
		numels = append(numels, t.Numel())
		total += t.Numel()
	}
	return numels, total
}

// standardBasis returns rows start to start+n of the identity matrix, whose columns are the elements of all
// tensors, as one tensor (n, shape...) for each of them.
func standardBasis(tensors []gotorch.Tensor, numels []int64, n, start int64) []gotorch.Tensor {
	basis := make([]gotorch.Tensor, len(tensors))
	column := int64(0)
	for i, t := range tensors {
		b := t.NewZeros([]int64{n, numels[i]})
		b.Diagonal(gotorch.DiagonalOptions{Offset: start - column}).Fill_(1)
		basis[i] = b.View(append([]int64{n}, t.Shape()...))
		column += numels[i]
	}
	return basis
}

// JacFwdOptions are the arguments of [JacFwd] that have defaults.
type JacFwdOptions struct {
	// Randomness is that of the [VMap] which computes the columns. Default: "error".
	Randomness string
}

// JacFwd is [JacRev] by automatic differentiation in forward mode: the better way where f has fewer inputs
// than outputs. It panics with a NotImplementedError for an op that has no forward mode.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.jacfwd.html
func JacFwd[A any](f func(A) gotorch.Tensor, opts ...JacFwdOptions) func(A) A {
	notNil("JacFwd", f == nil)
	random := randomness("JacFwd", args.Option(opts).Randomness)
	return func(a A) A {
		jac, _ := jacFwd("JacFwd", func(a A) ([]gotorch.Tensor, none) { return []gotorch.Tensor{f(a)}, none{} }, a, random)
		return jac[0]
	}
}

// JacFwdAll is [JacFwd] for a function with several results: a Jacobian for each.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.jacfwd.html
func JacFwdAll[A any](f func(A) []gotorch.Tensor, opts ...JacFwdOptions) func(A) []A {
	notNil("JacFwdAll", f == nil)
	random := randomness("JacFwdAll", args.Option(opts).Randomness)
	return func(a A) []A {
		jac, _ := jacFwd("JacFwdAll", func(a A) ([]gotorch.Tensor, none) { return f(a), none{} }, a, random)
		return jac
	}
}

// JacFwdAux is [JacFwd] for a function that returns more than what is differentiated: Python's has_aux.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.jacfwd.html
func JacFwdAux[A, X any](f func(A) (gotorch.Tensor, X), opts ...JacFwdOptions) func(A) (jacobian A, aux X) {
	notNil("JacFwdAux", f == nil)
	random := randomness("JacFwdAux", args.Option(opts).Randomness)
	return func(a A) (A, X) {
		jac, aux := jacFwd("JacFwdAux", func(a A) ([]gotorch.Tensor, X) {
			y, aux := f(a)
			return []gotorch.Tensor{y}, aux
		}, a, random)
		return jac[0], aux
	}
}

func jacFwd[A, X any](op string, f func(A) ([]gotorch.Tensor, X), a A, random int) ([]A, X) {
	primals := leaves(op, a)
	refuseComplex(op, "inputs", primals)
	if len(primals) == 0 {
		panic(runtimeError(op, "Expected primals to contain at least one Tensor."))
	}
	j := gotorch.Scope(func(*gotorch.ScopeHandle) (j jacobians[X]) {
		numels, total := numelsOf(primals)
		basis := standardBasis(primals, numels, total, 0)
		var auxTree X
		outputs := 0
		columns := mapping{op: op, randomness: random}.run(basis, make([]int64, len(basis)), func(basis []gotorch.Tensor) ([]gotorch.Tensor, []int64) {
			result, tangents, aux := JVPAux(f, a, fill(op, a, basis))
			refuseComplex(op, "outputs", result)
			auxTree, outputs = aux, len(tangents)
			flat := append(tangents, leaves(op, aux)...)
			return flat, make([]int64, len(flat))
		})
		// aux is the same in each direction.
		j.aux = fill(op, auxTree, mapTensors(columns[outputs:], func(t gotorch.Tensor) gotorch.Tensor { return t.Select(0, 0) }))
		for _, column := range columns[:outputs] {
			var row []gotorch.Tensor
			for i, part := range column.MoveDimInt(0, -1).SplitWithSizes(numels, gotorch.SplitWithSizesOptions{Dim: -1}) {
				if shape := primals[i].Shape(); len(shape) == 0 {
					row = append(row, part.SqueezeDim(-1))
				} else {
					row = append(row, part.Unflatten(-1, shape))
				}
			}
			j.rows = append(j.rows, row)
		}
		return j
	})
	return fillAll(op, a, j.rows), j.aux
}

// Hessian returns a function that computes the second derivatives of f, as [JacFwd] of [JacRev]: the shape of
// f's result, which for most is none, followed by that of the argument twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.hessian.html
func Hessian(f func(gotorch.Tensor) gotorch.Tensor) func(gotorch.Tensor) gotorch.Tensor {
	notNil("Hessian", f == nil)
	return JacFwd(JacRev(f))
}

// HessianAll is [Hessian] with respect to all tensors of a tree: a tree of second derivatives for each tensor,
// in the tree's order. That at i has at the place of j the derivative by i and then by j.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.hessian.html
func HessianAll[A any](f func(A) gotorch.Tensor) func(A) []A {
	const op = "HessianAll"
	notNil(op, f == nil)
	return JacFwdAll(func(a A) []gotorch.Tensor { return leaves(op, JacRev(f)(a)) })
}
