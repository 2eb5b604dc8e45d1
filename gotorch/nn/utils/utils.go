// Package utils has what is done to the parameters of a model as a whole: clipping of gradients, and
// parameters as one vector.
//
//	loss.Backward()
//	norm := utils.ClipGradNorm_(model.Parameters(), 1)
//	opt.Step()
package utils

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// ClipGradNormOptions are the arguments of [ClipGradNorm_] and [GetTotalNorm] that have defaults.
type ClipGradNormOptions struct {
	NormType         gotorch.Scalar // the p of the norm, also math.Inf(1); default: 2
	ErrorIfNonfinite bool           // panic with a RuntimeError if the norm is NaN or infinite
}

// group is tensors on one device, of one dtype, which a foreach function takes.
type group []gotorch.Tensor

// grouped returns tensors by device and dtype. The group of the first tensor comes last: the norms of several dtypes are
// added up in this order in PyTorch too.
func grouped(tensors []gotorch.Tensor) []group {
	type kind struct {
		device gotorch.Device
		dtype  gotorch.DType
	}
	at := map[kind]int{}
	var groups []group
	for _, t := range tensors {
		k := kind{t.Device(), t.DType()}
		i, ok := at[k]
		if !ok {
			i = len(groups)
			at[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], t)
	}
	slices.Reverse(groups)
	return groups
}

// grads returns the gradients of those parameters that have one.
func grads(parameters []gotorch.Tensor) []gotorch.Tensor {
	var found []gotorch.Tensor
	for _, p := range parameters {
		if g := p.Grad(); g.Defined() {
			found = append(found, g)
		}
	}
	return found
}

// GetTotalNorm returns the norm of all tensors as if they were one vector, a tensor of no dimensions; 0 of
// none.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.get_total_norm.html.
func GetTotalNorm(tensors []gotorch.Tensor, opts ...ClipGradNormOptions) gotorch.Tensor {
	const op = "utils.GetTotalNorm"
	opt := args.Option(opts)
	p := args.Float(op, "NormType", opt.NormType, 2)
	if len(tensors) == 0 {
		return gotorch.FromScalar(float32(0))
	}
	total := gotorch.Scope(func(*gotorch.ScopeHandle) (total gotorch.Tensor) {
		gotorch.NoGrad(func() {
			var norms []gotorch.Tensor
			for _, g := range grouped(tensors) {
				for _, norm := range gotorch.ForeachNormScalar(g, gotorch.ForeachNormScalarOptions{Ord: p}) {
					norms = append(norms, norm.To(tensors[0].Device()))
				}
			}
			total = gotorch.LinalgVectorNorm(gotorch.Stack(norms), gotorch.LinalgVectorNormOptions{Ord: p})
		})
		return total
	})
	if opt.ErrorIfNonfinite {
		if x := gotorch.Item[float64](total); math.IsNaN(x) || math.IsInf(x, 0) {
			panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: "the total norm for gradients is non-finite, so it cannot be clipped"})
		}
	}
	return total
}

// ClipGradNorm_ makes gradients smaller, all by the same factor, so that their norm as one vector is not above
// maxNorm, and returns what it was.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html.
func ClipGradNorm_(parameters []gotorch.Tensor, maxNorm float64, opts ...ClipGradNormOptions) gotorch.Tensor {
	total := GetTotalNorm(grads(parameters), opts...)
	ClipGradsWithNorm_(parameters, maxNorm, total)
	return total
}

// ClipGradsWithNorm_ is [ClipGradNorm_] with a norm that is known.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grads_with_norm_.html.
func ClipGradsWithNorm_(parameters []gotorch.Tensor, maxNorm float64, totalNorm gotorch.Tensor) {
	list := grads(parameters)
	if len(list) == 0 {
		return
	}
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		gotorch.NoGrad(func() {
			factor := totalNorm.AddScalar(1e-6).Reciprocal().MulScalar(maxNorm).ClampMax(1.0)
			for _, g := range grouped(list) {
				gotorch.ForeachMulTensor_(g, factor.To(g[0].Device()))
			}
		})
	})
}

// ClipGradValue_ moves all elements of gradients into the range from −clipValue to clipValue.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_value_.html.
func ClipGradValue_(parameters []gotorch.Tensor, clipValue float64) {
	gotorch.NoGrad(func() {
		for _, g := range grouped(grads(parameters)) {
			gotorch.ForeachClampMinScalar_(g, -clipValue)
			gotorch.ForeachClampMaxScalar_(g, clipValue)
		}
	})
}

// ParametersToVector returns the elements of all parameters as one vector, with their part in autograd.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parameters_to_vector.html.
func ParametersToVector(parameters []gotorch.Tensor) gotorch.Tensor {
	flat := make([]gotorch.Tensor, len(parameters))
	for i, p := range parameters {
		flat[i] = p.Reshape([]int64{-1})
	}
	return gotorch.Cat(flat)
}

// VectorToParameters copies the elements of a vector into the parameters, the inverse of [ParametersToVector].
// It panics with a ValueError, and changes nothing, unless vec has as many elements as they have.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.vector_to_parameters.html.
func VectorToParameters(vec gotorch.Tensor, parameters []gotorch.Tensor) {
	n := int64(0)
	for _, p := range parameters {
		n += p.Numel()
	}
	if vec.Dim() != 1 || vec.Numel() != n {
		panic(args.ValueError("utils.VectorToParameters", "the vector must be of shape [%d], as many as the parameters have, but is %v", n, vec.Shape()))
	}
	at := int64(0)
	gotorch.NoGrad(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			for _, p := range parameters {
				p.Copy_(vec.Detach().Narrow(0, at, p.Numel()).View(p.Shape()))
				at += p.Numel()
			}
		})
	})
}
