package gotorch

import "iter"

// Rows iterates over the first dimension, as Python's `for row in t` does:
//
//	for i, row := range t.Rows() { ... }
//
// Each row is a view with one dimension less. It panics with a TypeError if t has no dimensions.
func (t Tensor) Rows() iter.Seq2[int, Tensor] { return t.Along(0) }

// Along iterates over dimension dim, counted from the end if negative: the i-th tensor is t with At(i)
// in that place, a view with one dimension less. It panics with an IndexError if t has no such
// dimension, and with a TypeError if t has none at all.
//
// A row is only made when its turn comes. If autograd records what is done with t, all are made at
// once, by [Unbind], which has a much cheaper gradient; such rows cannot be changed in place.
func (t Tensor) Along(dim int64) iter.Seq2[int, Tensor] {
	if t.Dim() == 0 {
		panic(newError("Along", TypeError, "iteration over a 0-d tensor"))
	}
	n := int(t.Size(dim))
	return func(yield func(int, Tensor) bool) {
		if t.RequiresGrad() && GradEnabled() {
			for i, row := range t.Unbind(UnbindOptions{Dim: dim}) {
				if !yield(i, row) {
					return
				}
			}
			return
		}
		for i := range n {
			if !yield(i, t.Select(dim, int64(i))) {
				return
			}
		}
	}
}
