// Package transforms has maps between tensors whose inverse and derivative are known:
// torch.distributions.transforms.
//
//	t := transforms.Affine(1, 2)
//	y := t.Forward(x)                  // 1 + 2x
//	x = t.Inv().Forward(y)
//	l := t.LogAbsDetJacobian(x, y)     // log 2, for each element
//
// [Compose] puts several one after the other, and Transformed of package distributions makes a distribution of
// one and another distribution. [TransformTo] and [BijectTo] find one whose values lie in a constraint, so that a
// parameter without bounds may be learned in its place.
//
// A function here has the name of PyTorch's class without the word Transform, and makes a value of the type with
// that name: [Exp] makes an [*ExpTransform].
//
// # Caching
//
// With a CacheSize of 1 a transform remembers the last input and output. Inv().Forward(y) returns the very tensor
// that y was made of, which costs nothing and is exact; the cache is asked for the tensor, not for its elements. What a
// [gotorch.Scope] has freed is computed again.
//
// # A transform of your own
//
// is a struct that embeds [Base], given to [Init], with Call and what else it can:
//
//	type Cube struct{ transforms.Base }
//
//	func (t *Cube) Domain() constraints.Constraint          { return constraints.Real }
//	func (t *Cube) Codomain() constraints.Constraint        { return constraints.Real }
//	func (t *Cube) Bijective() bool                         { return true }
//	func (t *Cube) Call(x gotorch.Tensor) gotorch.Tensor    { return x.Pow(3) }
//	func (t *Cube) Inverse(y gotorch.Tensor) gotorch.Tensor { return y.Sign().Mul(y.Abs().Pow(1.0 / 3)) }
//
//	cube := transforms.Init(&Cube{})
package transforms
