package optim

import (
	"cmp"
	"slices"

	"gotorch.dev/gotorch"
)

// The fused kernels go through memory as it lies, whatever the strides of a tensor say: what they are given must lie in
// one piece, and all that belongs to a parameter in the same order. PyTorch leaves that to its user.

// fusedRefuses returns why a fused kernel cannot do with a parameter; "" if it can.
func fusedRefuses(p gotorch.Tensor) string {
	switch {
	case !p.DType().IsFloatingPoint():
		return "with Fused only parameters of floating point numbers are supported"
	case !inOnePiece(p):
		return "with Fused only parameters whose elements lie next to each other are supported"
	}
	return ""
}

// inOnePiece reports whether a tensor's elements are all that is from its first to its last, in whatever order.
func inOnePiece(t gotorch.Tensor) bool {
	if t.IsContiguous() {
		return true
	}
	type dimension struct{ size, stride int64 }
	var dims []dimension
	strides := t.Strides()
	for i, size := range t.Shape() {
		if size != 1 {
			dims = append(dims, dimension{size, strides[i]})
		}
	}
	slices.SortFunc(dims, func(a, b dimension) int { return cmp.Compare(a.stride, b.stride) })
	next := int64(1)
	for _, d := range dims {
		if d.stride != next {
			return false
		}
		next *= d.size
	}
	return true
}

// sameOrder reports whether the elements of two tensors of one shape lie in memory in the same order, each in one piece.
func sameOrder(p, t gotorch.Tensor) bool {
	return t.IsContiguous() && p.IsContiguous() || slices.Equal(t.Strides(), p.Strides())
}

// laidOutAs returns gradients in the order of their parameters: copies of those that are in another.
func laidOutAs(params, grads []gotorch.Tensor) []gotorch.Tensor {
	copied := false
	for i, g := range grads {
		if sameOrder(params[i], g) {
			continue
		}
		if !copied {
			grads, copied = slices.Clone(grads), true
		}
		grads[i] = gotorch.EmptyLike(params[i].Detach()).Copy_(g)
	}
	return grads
}

// layOut is laidOutAs for what is remembered of a parameter.
func layOut(p gotorch.Tensor, remembered []gotorch.Tensor) {
	for i, t := range remembered {
		if t.Defined() && t.Numel() == p.Numel() && !sameOrder(p, t) {
			remembered[i] = remember(func() gotorch.Tensor {
				return gotorch.EmptyLike(p.Detach(), gotorch.TensorOptions{DType: t.DType()}).Copy_(t)
			})
		}
	}
}
