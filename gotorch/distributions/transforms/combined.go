package transforms

import (
	"fmt"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
)

// given returns the transforms with a cache where one is wanted. It panics with a TypeError where one is nil.
func given(op string, size int64, ts []Transform) []Transform {
	ts = slices.Clone(ts)
	for i, t := range ts {
		if numeric.IsNil(t) {
			panic(numeric.Errorf("transforms."+op, gotorch.TypeError, "transform %d is nil", i))
		}
		if size != 0 {
			ts[i] = t.WithCache(size)
		}
	}
	return ts
}

func allBijective(ts []Transform) bool {
	for _, t := range ts {
		if !t.Bijective() {
			return false
		}
	}
	return true
}

// Compose -----------------------------------------------------------------------------------------------

// ComposeTransform is what [Compose] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ComposeTransform.
type ComposeTransform struct {
	Base
	Parts []Transform
}

// Identity changes nothing: a [Compose] of no parts.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ComposeTransform.
var Identity = Compose(nil)

// Compose applies parts one after the other. With a cache each of them gets one.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.ComposeTransform.
func Compose(parts []Transform, opts ...Options) *ComposeTransform {
	return Init(&ComposeTransform{Parts: given("Compose", args.Option(opts).CacheSize, parts)}, opts...)
}

// Domain is part of [Transform].
func (t *ComposeTransform) Domain() constraints.Constraint {
	if len(t.Parts) == 0 {
		return constraints.Real
	}
	domain := t.Parts[0].Domain()
	dim := t.Parts[len(t.Parts)-1].Codomain().EventDim()
	for _, part := range slices.Backward(t.Parts) {
		in := part.Domain().EventDim()
		dim = max(dim+in-part.Codomain().EventDim(), in)
	}
	return widened(domain, dim)
}

// Codomain is part of [Transform].
func (t *ComposeTransform) Codomain() constraints.Constraint {
	if len(t.Parts) == 0 {
		return constraints.Real
	}
	codomain := t.Parts[len(t.Parts)-1].Codomain()
	dim := t.Parts[0].Domain().EventDim()
	for _, part := range t.Parts {
		out := part.Codomain().EventDim()
		dim = max(dim+out-part.Domain().EventDim(), out)
	}
	return widened(codomain, dim)
}

// widened is c for events of dim dimensions.
func widened(c constraints.Constraint, dim int64) constraints.Constraint {
	if more := dim - c.EventDim(); more > 0 {
		return constraints.Independent(c, more)
	}
	return c
}

// Bijective is part of [Transform].
func (t *ComposeTransform) Bijective() bool { return allBijective(t.Parts) }

// Sign is part of [Transform].
func (t *ComposeTransform) Sign() Param {
	sign := Param(1)
	for _, p := range t.Parts {
		sign = Times(sign, p.Sign())
	}
	return sign
}

// Times is the product of two signs.
func Times(a, b Param) Param {
	m, ok := a.(int)
	n, both := b.(int)
	if ok && both {
		return m * n
	}
	return numeric.Mul(a, b)
}

// Inv is part of [Transform].
func (t *ComposeTransform) Inv() Transform {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.inv == nil {
		parts := make([]Transform, 0, len(t.Parts))
		for _, p := range slices.Backward(t.Parts) {
			parts = append(parts, p.Inv())
		}
		inverse := Compose(parts)
		inverse.inv = t
		t.inv = inverse
	}
	return t.inv
}

// WithCache is part of [Transform].
func (t *ComposeTransform) WithCache(size int64) Transform {
	if t.cacheSize == size {
		return t
	}
	return Compose(t.Parts, Options{size})
}

// Equal is part of [Transform].
func (t *ComposeTransform) Equal(other Transform) bool {
	o, ok := other.(*ComposeTransform)
	return ok && slices.EqualFunc(t.Parts, o.Parts, same)
}

// Forward is part of [Transform].
func (t *ComposeTransform) Forward(x gotorch.Tensor) gotorch.Tensor {
	for _, part := range t.Parts {
		x = part.Forward(x)
	}
	return x
}

// Call is part of [Transform].
func (t *ComposeTransform) Call(x gotorch.Tensor) gotorch.Tensor { return t.Forward(x) }

// Inverse is part of [Transform].
func (t *ComposeTransform) Inverse(y gotorch.Tensor) gotorch.Tensor { return t.Inv().Forward(y) }

// LogAbsDetJacobian is part of [Transform].
func (t *ComposeTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	if len(t.Parts) == 0 {
		return gotorch.ZerosLike(x)
	}
	values := []gotorch.Tensor{x}
	for _, part := range t.Parts[:len(t.Parts)-1] {
		values = append(values, part.Forward(values[len(values)-1]))
	}
	values = append(values, y)
	var sum gotorch.Tensor
	dim := t.Domain().EventDim()
	for i, part := range t.Parts {
		in := part.Domain().EventDim()
		term := numeric.SumRightmost(part.LogAbsDetJacobian(values[i], values[i+1]), dim-in)
		if i == 0 {
			sum = term
		} else {
			sum = sum.Add(term)
		}
		dim += part.Codomain().EventDim() - in
	}
	return sum
}

// ForwardShape is part of [Transform].
func (t *ComposeTransform) ForwardShape(shape []int64) []int64 {
	for _, part := range t.Parts {
		shape = part.ForwardShape(shape)
	}
	return shape
}

// InverseShape is part of [Transform].
func (t *ComposeTransform) InverseShape(shape []int64) []int64 {
	for _, part := range slices.Backward(t.Parts) {
		shape = part.InverseShape(shape)
	}
	return shape
}

// String is part of [Transform].
func (t *ComposeTransform) String() string {
	parts := make([]string, len(t.Parts))
	for i, p := range t.Parts {
		parts[i] = p.String()
	}
	return "ComposeTransform(\n    " + strings.Join(parts, ",\n    ") + "\n)"
}

// Independent -------------------------------------------------------------------------------------------

// IndependentTransform is what [Independent] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.IndependentTransform.
type IndependentTransform struct {
	Base
	BaseTransform           Transform
	ReinterpretedBatchNDims int64
}

// notNegative panics with a ValueError where a number of dimensions is below zero.
func notNegative(op, name string, n int64) {
	if n < 0 {
		panic(numeric.Errorf("transforms."+op, gotorch.ValueError, "%s must be >= 0, got %d", name, n))
	}
}

// Independent is base whose events have n dimensions more, over which its LogAbsDetJacobian is summed. It panics with
// a ValueError for a negative n.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.IndependentTransform.
func Independent(base Transform, n int64, opts ...Options) *IndependentTransform {
	notNegative("Independent", "reinterpreted_batch_ndims", n)
	parts := given("Independent", 0, []Transform{base})
	size := args.Option(opts).CacheSize
	return Init(&IndependentTransform{BaseTransform: parts[0].WithCache(size), ReinterpretedBatchNDims: n}, opts...)
}

// WithCache is part of [Transform].
func (t *IndependentTransform) WithCache(size int64) Transform {
	if t.cacheSize == size {
		return t
	}
	return Independent(t.BaseTransform, t.ReinterpretedBatchNDims, Options{size})
}

// Domain is part of [Transform].
func (t *IndependentTransform) Domain() constraints.Constraint {
	return constraints.Independent(t.BaseTransform.Domain(), t.ReinterpretedBatchNDims)
}

// Codomain is part of [Transform].
func (t *IndependentTransform) Codomain() constraints.Constraint {
	return constraints.Independent(t.BaseTransform.Codomain(), t.ReinterpretedBatchNDims)
}

// Bijective is part of [Transform].
func (t *IndependentTransform) Bijective() bool { return t.BaseTransform.Bijective() }

// Sign is part of [Transform].
func (t *IndependentTransform) Sign() Param { return t.BaseTransform.Sign() }

func tooFew(op string) *gotorch.Error {
	return numeric.Errorf("transforms."+op, gotorch.ValueError, "Too few dimensions on input")
}

// Call is part of [Transform].
func (t *IndependentTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	if x.Dim() < t.Domain().EventDim() {
		panic(tooFew("Independent"))
	}
	return t.BaseTransform.Forward(x)
}

// Inverse is part of [Transform].
func (t *IndependentTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	if y.Dim() < t.Codomain().EventDim() {
		panic(tooFew("Independent"))
	}
	return t.BaseTransform.Inv().Forward(y)
}

// LogAbsDetJacobian is part of [Transform].
func (t *IndependentTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return numeric.SumRightmost(t.BaseTransform.LogAbsDetJacobian(x, y), t.ReinterpretedBatchNDims)
}

// ForwardShape is part of [Transform].
func (t *IndependentTransform) ForwardShape(shape []int64) []int64 {
	return t.BaseTransform.ForwardShape(shape)
}

// InverseShape is part of [Transform].
func (t *IndependentTransform) InverseShape(shape []int64) []int64 {
	return t.BaseTransform.InverseShape(shape)
}

// String is part of [Transform].
func (t *IndependentTransform) String() string {
	return fmt.Sprintf("IndependentTransform(%s, %d)", t.BaseTransform, t.ReinterpretedBatchNDims)
}

// Cat ---------------------------------------------------------------------------------------------------

// CatTransform is what [Cat] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CatTransform.
type CatTransform struct {
	Base
	Transforms []Transform
	Dim        int64
	Lengths    []int64
}

// CatOptions are the arguments of [Cat] that have defaults.
type CatOptions struct {
	Dim       int64
	Lengths   []int64 // 1 for each
	CacheSize int64
}

// Cat applies each transform to its part of a tensor along a dimension, as gotorch.Cat joins them.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CatTransform.
func Cat(tseq []Transform, opts ...CatOptions) *CatTransform {
	opt := args.Option(opts)
	if opt.Lengths == nil {
		opt.Lengths = slices.Repeat([]int64{1}, len(tseq))
	}
	if len(opt.Lengths) != len(tseq) {
		panic(numeric.Errorf("transforms.Cat", gotorch.ValueError, "lengths (%d) must match transforms (%d)", len(opt.Lengths), len(tseq)))
	}
	t := &CatTransform{Transforms: given("Cat", opt.CacheSize, tseq), Dim: opt.Dim, Lengths: slices.Clone(opt.Lengths)}
	return Init(t, Options{opt.CacheSize})
}

// WithCache is part of [Transform].
func (t *CatTransform) WithCache(size int64) Transform {
	if t.cacheSize == size {
		return t
	}
	return Cat(t.Transforms, CatOptions{t.Dim, t.Lengths, size})
}

// EventDim is part of [Transform].
func (t *CatTransform) EventDim() int64 {
	if len(t.Transforms) == 0 {
		panic(numeric.Errorf("transforms.Cat", gotorch.ValueError, "there are no transforms"))
	}
	var dim int64
	for _, part := range t.Transforms {
		dim = max(dim, part.EventDim())
	}
	return dim
}

func (t *CatTransform) length() (sum int64) {
	for _, n := range t.Lengths {
		sum += n
	}
	return sum
}

// mustFit panics with a ValueError where a value has not the size wanted along dim.
func mustFit(op string, value gotorch.Tensor, dim, size int64, of string) {
	if n := value.Dim(); dim < -n || dim >= n {
		panic(numeric.Errorf("transforms."+op, gotorch.ValueError, "dim %d out of range for tensor with %d dimensions", dim, n))
	}
	if n := value.Size(dim); n != size {
		panic(numeric.Errorf("transforms."+op, gotorch.ValueError, "x.size(%d) = %d must equal %s %d", dim, n, of, size))
	}
}

// parts calls fn with each transform and its part of each value.
func (t *CatTransform) parts(fn func(part Transform, values []gotorch.Tensor), values ...gotorch.Tensor) {
	for _, v := range values {
		mustFit("Cat", v, t.Dim, t.length(), "length")
	}
	var start int64
	for i, part := range t.Transforms {
		slices := make([]gotorch.Tensor, len(values))
		for j, v := range values {
			slices[j] = v.Narrow(t.Dim, start, t.Lengths[i])
		}
		fn(part, slices)
		start += t.Lengths[i]
	}
}

// Call is part of [Transform].
func (t *CatTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	var ys []gotorch.Tensor
	t.parts(func(part Transform, v []gotorch.Tensor) { ys = append(ys, part.Forward(v[0])) }, x)
	return gotorch.Cat(ys, gotorch.CatOptions{Dim: t.Dim})
}

// Inverse is part of [Transform].
func (t *CatTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	var xs []gotorch.Tensor
	t.parts(func(part Transform, v []gotorch.Tensor) { xs = append(xs, part.Inv().Forward(v[0])) }, y)
	return gotorch.Cat(xs, gotorch.CatOptions{Dim: t.Dim})
}

// LogAbsDetJacobian is part of [Transform].
func (t *CatTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	var terms []gotorch.Tensor
	all := t.EventDim()
	t.parts(func(part Transform, v []gotorch.Tensor) {
		term := part.LogAbsDetJacobian(v[0], v[1])
		if dim := part.EventDim(); dim < all {
			term = numeric.SumRightmost(term, all-dim)
		}
		terms = append(terms, term)
	}, x, y)
	dim := t.Dim
	if dim >= 0 {
		dim -= x.Dim()
	}
	if dim += all; dim < 0 {
		return gotorch.Cat(terms, gotorch.CatOptions{Dim: dim})
	}
	sum := terms[0].AddScalar(0)
	for _, term := range terms[1:] {
		sum = sum.Add(term)
	}
	return sum
}

// Bijective is part of [Transform].
func (t *CatTransform) Bijective() bool { return allBijective(t.Transforms) }

// regions returns the domains or codomains of transforms.
func regions(ts []Transform, of func(Transform) constraints.Constraint) []constraints.Constraint {
	found := make([]constraints.Constraint, len(ts))
	for i, t := range ts {
		found[i] = of(t)
	}
	return found
}

// Domain is part of [Transform].
func (t *CatTransform) Domain() constraints.Constraint {
	return constraints.Cat(regions(t.Transforms, Transform.Domain), constraints.CatOptions{Dim: t.Dim, Lengths: t.Lengths})
}

// Codomain is part of [Transform].
func (t *CatTransform) Codomain() constraints.Constraint {
	return constraints.Cat(regions(t.Transforms, Transform.Codomain), constraints.CatOptions{Dim: t.Dim, Lengths: t.Lengths})
}

// Stack -------------------------------------------------------------------------------------------------

// StackTransform is what [Stack] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.StackTransform.
type StackTransform struct {
	Base
	Transforms []Transform
	Dim        int64
}

// StackOptions are the arguments of [Stack] that have defaults.
type StackOptions struct {
	Dim       int64
	CacheSize int64
}

// Stack applies each transform to one slice of a tensor along a dimension, as gotorch.Stack joins them.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.StackTransform.
func Stack(tseq []Transform, opts ...StackOptions) *StackTransform {
	opt := args.Option(opts)
	return Init(&StackTransform{Transforms: given("Stack", opt.CacheSize, tseq), Dim: opt.Dim}, Options{opt.CacheSize})
}

// WithCache is part of [Transform].
func (t *StackTransform) WithCache(size int64) Transform {
	if t.cacheSize == size {
		return t
	}
	return Stack(t.Transforms, StackOptions{t.Dim, size})
}

// each stacks what fn makes of each transform and its slice of each value.
func (t *StackTransform) each(fn func(part Transform, values []gotorch.Tensor) gotorch.Tensor, values ...gotorch.Tensor) gotorch.Tensor {
	for _, v := range values {
		mustFit("Stack", v, t.Dim, int64(len(t.Transforms)), "len(transforms)")
	}
	results := make([]gotorch.Tensor, len(t.Transforms))
	for i, part := range t.Transforms {
		slices := make([]gotorch.Tensor, len(values))
		for j, v := range values {
			slices[j] = v.Select(t.Dim, int64(i))
		}
		results[i] = fn(part, slices)
	}
	return gotorch.Stack(results, gotorch.StackOptions{Dim: t.Dim})
}

// Call is part of [Transform].
func (t *StackTransform) Call(x gotorch.Tensor) gotorch.Tensor {
	return t.each(func(part Transform, v []gotorch.Tensor) gotorch.Tensor { return part.Forward(v[0]) }, x)
}

// Inverse is part of [Transform].
func (t *StackTransform) Inverse(y gotorch.Tensor) gotorch.Tensor {
	return t.each(func(part Transform, v []gotorch.Tensor) gotorch.Tensor { return part.Inv().Forward(v[0]) }, y)
}

// LogAbsDetJacobian is part of [Transform].
func (t *StackTransform) LogAbsDetJacobian(x, y gotorch.Tensor) gotorch.Tensor {
	return t.each(func(part Transform, v []gotorch.Tensor) gotorch.Tensor {
		return part.LogAbsDetJacobian(v[0], v[1])
	}, x, y)
}

// Bijective is part of [Transform].
func (t *StackTransform) Bijective() bool { return allBijective(t.Transforms) }

// Domain is part of [Transform].
func (t *StackTransform) Domain() constraints.Constraint {
	return constraints.Stack(regions(t.Transforms, Transform.Domain), constraints.StackOptions{Dim: t.Dim})
}

// Codomain is part of [Transform].
func (t *StackTransform) Codomain() constraints.Constraint {
	return constraints.Stack(regions(t.Transforms, Transform.Codomain), constraints.StackOptions{Dim: t.Dim})
}
