// Package prune sets elements of a module's parameters to zero, and keeps them there, as
// torch.nn.utils.prune does:
//
//	prune.L1Unstructured(layer, "weight", 0.3) // the 30% that are nearest to zero
//	...                                        // train the rest
//	prune.Remove(layer, "weight")              // make the zeros part of the weight
//
// In between the module has the parameter "weight_orig" and the buffer "weight_mask" in the place of "weight",
// and its field Weight is their product, computed before each call. A layer of package nn does that whenever
// its Forward is called; a module of your own when it is called by nn.Call or nn.CallWith, as with hooks.
//
// A parameter that is pruned again loses elements of those that are left. What is pruned is said by a [Method],
// of which [Apply] takes any.
package prune

import (
	"fmt"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/internal/fields"
	"gotorch.dev/gotorch/nn/utils"
)

// PruningType is what a method prunes, and so what it is given of a parameter that was pruned before.
type PruningType string

// PyTorch's types.
const (
	Unstructured PruningType = "unstructured" // single elements: it gets those that are left, in one dimension
	Structured   PruningType = "structured"   // channels: it gets those of which something is left
	Global       PruningType = "global"       // anything: it gets the whole tensor
)

// Method says which elements go: PyTorch's BasePruningMethod. One of your own has these two methods, and if it
// is [Structured] a method Dim() int64 with the dimension of the channels. It should check what it is asked for in
// ComputeMask, which may panic: then nothing is pruned.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.BasePruningMethod.html.
type Method interface {
	PruningType() PruningType
	// ComputeMask returns a mask of t's shape, with zeros where defaultMask has them, and where else an element
	// is to go. t is the parameter, or scores of the same shape: the lowest go first.
	ComputeMask(t, defaultMask gotorch.Tensor) gotorch.Tensor
}

// checker is a method that says what is wrong with it before it is used.
type checker interface{ check() }

// ImportanceOptions are the arguments of [L1Unstructured], [LnStructured] and [Apply] that have defaults.
type ImportanceOptions struct {
	ImportanceScores gotorch.Tensor // of the parameter's shape, to be looked at in its place
}

// applied is how a parameter of a module is pruned. It is the tag of the hook that computes it.
type applied struct {
	name   string
	method Method
}

func methodOf(m nn.Modular, name string) *applied {
	for _, tag := range nn.Internals(m).Hooks() {
		if a, ok := tag.(*applied); ok && a.name == name {
			return a
		}
	}
	return nil
}

// masked is the parameter with its mask.
func masked(m any, name string) (result gotorch.Tensor) {
	parts := nn.Internals(m.(nn.Modular)).Parts(true)
	mask, orig := parts.Find(name+"_mask").T, parts.Find(name+"_orig").T
	gotorch.Unscoped(func() {
		result = gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return mask.To(orig.DType()).Mul(orig) })
	})
	return result
}

// Apply prunes a parameter of m by a method, and returns m. It panics with a ValueError, and leaves m as it was,
// if m has no such parameter, or scores are of another shape; and as the method does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.BasePruningMethod.html#torch.nn.utils.prune.BasePruningMethod.apply.
func Apply[M nn.Modular](m M, name string, method Method, opts ...ImportanceOptions) M {
	const op = "prune.Apply"
	scores := args.Option(opts).ImportanceScores
	if method == nil {
		panic(typeError(op, "the method is nil"))
	}
	if c, ok := method.(checker); ok {
		c.check()
	}
	place, old := checkPrunable(op, m, name)
	parts := nn.Internals(m).Parts(true)
	defer nn.Internals(m).Tidy() // where it panics
	defer parts.Turn.Take()()
	current := *place.T
	if scores.T == nil {
		scores = current
	} else if got, want := scores.Shape(), current.Shape(); !slices.Equal(got, want) {
		panic(args.ValueError(op, "importance_scores should have the same shape as parameter %s of %v, got %v vs %v", name, m, got, want))
	}
	var mask gotorch.Tensor
	gotorch.Unscoped(func() {
		var before gotorch.Tensor
		if old == nil {
			before = gotorch.OnesLike(current)
		} else {
			before = parts.Find(name + "_mask").T.Detach().Clone(gotorch.CloneOptions{MemoryFormat: gotorch.ContiguousFormat})
			method = old.with(method)
		}
		mask = method.ComputeMask(scores, before)
		if mask.T == nil {
			panic(args.ValueError(op, "ComputeMask of %T returned the zero Tensor", method))
		}
		mask.To(current.DType()).Mul(current) // which panics if it does not fit, before anything has changed
	})
	if old == nil {
		parts.Tensors = append(slices.Clip(parts.Tensors), &fields.Tensor{Name: name + "_orig", Kind: fields.Parameter, T: current})
		parts.Tensors = append(parts.Tensors, &fields.Tensor{Name: name + "_mask", Kind: fields.Buffer, T: mask})
		parts.Computed = append(slices.Clip(parts.Computed), &fields.Computed{Name: name, Kind: place.Kind})
		nn.Internals(m).Made(current)
	} else {
		nn.Internals(m).RemoveHook(old)
		parts.Find(name + "_mask").T = mask
	}
	*place.T = masked(m, name)
	nn.Internals(m).AddHook(&applied{name, method}, func(m any) {
		place, _ := nn.Internals(m.(nn.Modular)).Place(name)
		*place.T = masked(m, name)
	})
	return m
}

// with is how a parameter is pruned that is pruned by another method, too.
func (a *applied) with(method Method) Method {
	c := &PruningContainerMethod{}
	if before, ok := a.method.(*PruningContainerMethod); ok {
		c.methods = slices.Clone(before.methods)
	} else {
		c.methods = []Method{a.method}
	}
	c.AddPruningMethod(method)
	return c
}

// checkPrunable returns where a parameter is, and how it is pruned already, or panics with a ValueError.
func checkPrunable(op string, m nn.Modular, name string) (fields.Place, *applied) {
	place, ok := nn.Internals(m).Place(name)
	old := methodOf(m, name)
	switch parts := nn.Internals(m).Parts(false); {
	case !ok || place.Kind != fields.Parameter:
		panic(args.ValueError(op, "module %v has no parameter with the name %q", m, name))
	case old == nil && parts != nil && parts.FindComputed(name) != nil:
		panic(args.ValueError(op, "%q of module %v is computed of other parameters: it cannot be pruned", name, m))
	case old == nil && parts != nil && (parts.Find(name+"_orig") != nil || parts.Find(name+"_mask") != nil):
		panic(args.ValueError(op, "module %v has a tensor with the name %q or %q already", m, name+"_orig", name+"_mask"))
	case nn.Internals(m).Lazy():
		panic(args.ValueError(op, "%q of a lazy module has no shape yet: call Forward once before", name))
	case !place.T.Defined():
		panic(args.ValueError(op, "%q of module %v is closed", name, m))
	}
	return place, old
}

func typeError(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf(format, values...)}
}

// Remove makes a pruned parameter a parameter of m again, the same tensor as before with zeros where it was
// pruned, and returns m. It panics with a ValueError if the parameter is not pruned.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.remove.html.
func Remove[M nn.Modular](m M, name string) M {
	a := methodOf(m, name)
	if a == nil {
		panic(args.ValueError("prune.Remove", "Parameter '%s' of module %v has to be pruned before pruning can be removed", name, m))
	}
	parts := nn.Internals(m).Parts(true)
	defer parts.Turn.Take()()
	place, _ := nn.Internals(m).Place(name)
	orig := parts.Find(name + "_orig").T
	gotorch.NoGrad(func() {
		value := masked(m, name)
		orig.SetData(value)
		value.Close()
	})
	*place.T = orig
	parts.Remove(name + "_orig")
	parts.Remove(name + "_mask")
	parts.RemoveComputed(name)
	nn.Internals(m).RemoveHook(a)
	nn.Internals(m).Made(orig)
	nn.Internals(m).Tidy()
	return m
}

// IsPruned reports whether a parameter of m, or of a module within, is pruned.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.is_pruned.html.
func IsPruned(m nn.Modular) bool {
	for _, within := range m.NamedModules() {
		for _, tag := range nn.Internals(within).Hooks() {
			if _, ok := tag.(*applied); ok {
				return true
			}
		}
	}
	return false
}

// MethodOf returns how a parameter of m is pruned, or nil if it is not: a [PruningContainerMethod] where it was
// pruned several times.
func MethodOf(m nn.Modular, name string) Method {
	if a := methodOf(m, name); a != nil {
		return a.method
	}
	return nil
}

// PruneOptions are the arguments of [Prune] that have defaults.
type PruneOptions struct {
	DefaultMask      gotorch.Tensor // default: ones
	ImportanceScores gotorch.Tensor // default: t
}

// Prune returns t with zeros where a method says so. It panics with a ValueError if scores are of another shape,
// and as the method does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.BasePruningMethod.html#torch.nn.utils.prune.BasePruningMethod.prune.
func Prune(method Method, t gotorch.Tensor, opts ...PruneOptions) gotorch.Tensor {
	const op = "prune.Prune"
	opt := args.Option(opts)
	if method == nil {
		panic(typeError(op, "the method is nil"))
	}
	if opt.ImportanceScores.T == nil {
		opt.ImportanceScores = t
	} else if got, want := opt.ImportanceScores.Shape(), t.Shape(); !slices.Equal(got, want) {
		panic(args.ValueError(op, "importance_scores should have the same shape as tensor t, got %v vs %v", got, want))
	}
	if opt.DefaultMask.T == nil {
		opt.DefaultMask = gotorch.OnesLike(t)
	}
	return t.Mul(method.ComputeMask(opt.ImportanceScores, opt.DefaultMask))
}

// Amounts ---------------------------------------------------------------------------------------------

// checkAmount panics with a ValueError unless an amount is a number of things or a part of them.
func checkAmount(op string, amount gotorch.Scalar) {
	n, part, whole := split(op, amount)
	if whole && n < 0 || !whole && !(part >= 0 && part <= 1) {
		panic(args.ValueError(op, "amount=%v should either be a float in the range [0, 1] or a non-negative integer", amount))
	}
}

func split(op string, amount gotorch.Scalar) (n int64, part float64, whole bool) {
	if !args.Given(amount) {
		panic(typeError(op, "Invalid type for amount: %v. Must be int or float.", amount))
	}
	part = args.Float(op, "amount", amount, 0)
	if _, err := gotorch.Try(func() int64 { n = args.Int(op, "amount", amount, 0); return n }); err == nil {
		return n, part, true
	}
	return 0, part, false
}

// count is how many of a number of things an amount is.
func count(op string, amount gotorch.Scalar, of int64) int64 {
	checkAmount(op, amount)
	n, part, whole := split(op, amount)
	if !whole {
		return int64(math.RoundToEven(part * float64(of)))
	}
	if n > of {
		panic(args.ValueError(op, "amount=%d should be smaller than the number of parameters to prune=%d", n, of))
	}
	return n
}

// channels returns a dimension of t, counted from the front, and its size. It panics with a ValueError unless there
// are several dimensions, and with an IndexError unless there is this one.
func channels(op string, t gotorch.Tensor, dim int64) (int64, int64) {
	shape := t.Shape()
	n := int64(len(shape))
	if n <= 1 {
		panic(args.ValueError(op, "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape %v with %d dims", shape, n))
	}
	if dim >= n || dim < -n {
		panic(&gotorch.Error{Op: op, Kind: gotorch.IndexError, Msg: fmt.Sprintf("Invalid index %d for tensor of size %v", dim, shape)})
	}
	if dim < 0 {
		dim += n
	}
	return dim, shape[dim]
}

// without is a mask without the elements at these places of it, seen as one row.
func without(mask, places gotorch.Tensor) gotorch.Tensor {
	mask = mask.Clone(gotorch.CloneOptions{MemoryFormat: gotorch.ContiguousFormat})
	mask.View([]int64{-1}).IndexFill_(0, places, 0)
	return mask
}

// keeping is a mask that has kept channels of t, as far as before has them.
func keeping(t, before gotorch.Tensor, dim int64, kept gotorch.Tensor) gotorch.Tensor {
	mask := gotorch.ZerosLike(t)
	mask.IndexFill_(dim, kept, 1)
	return mask.Mul_(before.To(mask.DType()))
}

// The methods -----------------------------------------------------------------------------------------

// IdentityMethod prunes nothing: see [Identity].
type IdentityMethod struct{}

// PruningType is [Unstructured].
func (*IdentityMethod) PruningType() PruningType { return Unstructured }

// ComputeMask returns defaultMask.
func (*IdentityMethod) ComputeMask(_, defaultMask gotorch.Tensor) gotorch.Tensor { return defaultMask }

// Identity gives a parameter of m the form of one that is pruned, with a mask of ones, and returns m. It panics as
// [Apply] does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.identity.html.
func Identity[M nn.Modular](m M, name string) M { return Apply(m, name, &IdentityMethod{}) }

// RandomUnstructuredMethod prunes elements at random: see [RandomUnstructured].
type RandomUnstructuredMethod struct {
	Amount gotorch.Scalar // an integer is how many, a float between 0 and 1 which part
}

// PruningType is [Unstructured].
func (*RandomUnstructuredMethod) PruningType() PruningType { return Unstructured }

func (p *RandomUnstructuredMethod) check() { checkAmount("prune.RandomUnstructured", p.Amount) }

// ComputeMask draws a number for each element of t; those with the greatest go.
func (p *RandomUnstructuredMethod) ComputeMask(t, defaultMask gotorch.Tensor) gotorch.Tensor {
	n := count("prune.RandomUnstructured", p.Amount, t.Numel())
	if n == 0 {
		return without(defaultMask, gotorch.Empty([]int64{0}, gotorch.TensorOptions{DType: gotorch.Int64, Device: t.Device()}))
	}
	_, places := gotorch.RandLike(t).View([]int64{-1}).TopK(n)
	return without(defaultMask, places)
}

// RandomUnstructured prunes elements of a parameter of m at random, and returns m: amount of them if it is an
// integer, that part of them if it is a float. It panics as [Apply] does, and with a ValueError for an amount that
// is negative, a part above 1 or more than there is.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.random_unstructured.html.
func RandomUnstructured[M nn.Modular](m M, name string, amount gotorch.Scalar) M {
	return Apply(m, name, &RandomUnstructuredMethod{Amount: amount})
}

// L1UnstructuredMethod prunes the elements that are nearest to zero: see [L1Unstructured].
type L1UnstructuredMethod struct {
	Amount gotorch.Scalar // an integer is how many, a float between 0 and 1 which part
}

// PruningType is [Unstructured].
func (*L1UnstructuredMethod) PruningType() PruningType { return Unstructured }

func (p *L1UnstructuredMethod) check() { checkAmount("prune.L1Unstructured", p.Amount) }

// ComputeMask has the elements go whose absolute values are least.
func (p *L1UnstructuredMethod) ComputeMask(t, defaultMask gotorch.Tensor) gotorch.Tensor {
	n := count("prune.L1Unstructured", p.Amount, t.Numel())
	if n == 0 {
		return without(defaultMask, gotorch.Empty([]int64{0}, gotorch.TensorOptions{DType: gotorch.Int64, Device: t.Device()}))
	}
	_, places := t.Abs().View([]int64{-1}).TopK(n, gotorch.TopKOptions{Largest: new(false)})
	return without(defaultMask, places)
}

// L1Unstructured prunes the elements of a parameter of m that are nearest to zero, and returns m: see
// [RandomUnstructured] for amount and errors.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.l1_unstructured.html.
func L1Unstructured[M nn.Modular](m M, name string, amount gotorch.Scalar, opts ...ImportanceOptions) M {
	return Apply(m, name, &L1UnstructuredMethod{Amount: amount}, opts...)
}

// RandomStructuredMethod prunes channels at random: see [RandomStructured].
type RandomStructuredMethod struct {
	Amount  gotorch.Scalar // an integer is how many, a float between 0 and 1 which part
	Channel gotorch.Scalar // the dimension of the channels, PyTorch's dim; default: -1
}

// PruningType is [Structured].
func (*RandomStructuredMethod) PruningType() PruningType { return Structured }

// Dim returns the dimension of the channels.
func (p *RandomStructuredMethod) Dim() int64 {
	return args.Int("prune.RandomStructured", "Channel", p.Channel, -1)
}

func (p *RandomStructuredMethod) check() { checkAmount("prune.RandomStructured", p.Amount) }

// ComputeMask draws a number for each channel of t; those with the least go.
func (p *RandomStructuredMethod) ComputeMask(t, defaultMask gotorch.Tensor) gotorch.Tensor {
	const op = "prune.RandomStructured"
	dim, size := channels(op, t, p.Dim())
	n := count(op, p.Amount, size)
	if n == 0 {
		return defaultMask
	}
	draw := gotorch.Rand([]int64{size})
	least, _ := draw.KthValue(n)
	kept := draw.Gt(least).NonZero().Flatten().To(t.Device())
	return keeping(t, defaultMask, dim, kept)
}

// RandomStructured prunes channels of a parameter of m at random, the places of its dimension dim, and returns m:
// see [RandomUnstructured] for amount. It panics as [Apply] does, with a ValueError if there is only one dimension, and
// with an IndexError if there is no dimension dim.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.random_structured.html.
func RandomStructured[M nn.Modular](m M, name string, amount gotorch.Scalar, dim int64) M {
	return Apply(m, name, &RandomStructuredMethod{Amount: amount, Channel: dim})
}

// LnStructuredMethod prunes the channels with the least norm: see [LnStructured].
type LnStructuredMethod struct {
	Amount  gotorch.Scalar // an integer is how many, a float between 0 and 1 which part
	N       gotorch.Scalar // of the norm: a number, also math.Inf(1), "fro" or "nuc"
	Channel gotorch.Scalar // the dimension of the channels, PyTorch's dim; default: -1
}

// PruningType is [Structured].
func (*LnStructuredMethod) PruningType() PruningType { return Structured }

// Dim returns the dimension of the channels.
func (p *LnStructuredMethod) Dim() int64 {
	return args.Int("prune.LnStructured", "Channel", p.Channel, -1)
}

func (p *LnStructuredMethod) check() {
	const op = "prune.LnStructured"
	checkAmount(op, p.Amount)
	switch n := p.N.(type) {
	case nil:
		panic(typeError(op, "n must be a number, \"fro\" or \"nuc\""))
	case string:
		if n != "fro" && n != "nuc" {
			panic(args.ValueError(op, "n must be a number, \"fro\" or \"nuc\", not %q", n))
		}
	default:
		args.Float(op, "n", p.N, 0)
	}
}

// ComputeMask has the channels of t go whose norm is least.
func (p *LnStructuredMethod) ComputeMask(t, defaultMask gotorch.Tensor) gotorch.Tensor {
	const op = "prune.LnStructured"
	p.check()
	dim, size := channels(op, t, p.Dim())
	n := count(op, p.Amount, size)
	_, kept := p.norm(t, dim).TopK(size - n)
	if n == 0 {
		return defaultMask
	}
	return keeping(t, defaultMask, dim, kept)
}

// norm returns that of each channel.
func (p *LnStructuredMethod) norm(t gotorch.Tensor, dim int64) gotorch.Tensor {
	var dims []int64
	for d := range t.Dim() {
		if d != dim {
			dims = append(dims, d)
		}
	}
	name, isName := p.N.(string)
	if matrices := len(dims) == 2; name == "nuc" || name == "fro" && matrices {
		if !matrices {
			dims = []int64{-2, -1}
		}
		return gotorch.LinalgMatrixNormStrOrd(t, gotorch.LinalgMatrixNormStrOrdOptions{Ord: name, Dim: dims})
	}
	ord := 2.0
	if !isName {
		ord = args.Float("prune.LnStructured", "n", p.N, 2)
	}
	return gotorch.LinalgVectorNorm(t, gotorch.LinalgVectorNormOptions{Ord: ord, Dim: dims})
}

// LnStructured prunes the channels of a parameter of m whose norm is least, the places of its dimension dim, and
// returns m. n is the order of the norm, a number, also math.Inf(1), "fro" or "nuc". It panics as
// [RandomStructured] does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.ln_structured.html.
func LnStructured[M nn.Modular](m M, name string, amount, n gotorch.Scalar, dim int64, opts ...ImportanceOptions) M {
	return Apply(m, name, &LnStructuredMethod{Amount: amount, N: n, Channel: dim}, opts...)
}

// CustomFromMaskMethod prunes what a mask says: see [CustomFromMask].
type CustomFromMaskMethod struct{ Mask gotorch.Tensor }

// PruningType is [Global].
func (*CustomFromMaskMethod) PruningType() PruningType { return Global }

// ComputeMask returns the product of both masks. It panics with a ValueError if they are of different shapes.
func (p *CustomFromMaskMethod) ComputeMask(_, defaultMask gotorch.Tensor) gotorch.Tensor {
	const op = "prune.CustomFromMask"
	if p.Mask.T == nil {
		panic(typeError(op, "there is no mask"))
	}
	if got, want := p.Mask.Shape(), defaultMask.Shape(); !slices.Equal(got, want) {
		panic(args.ValueError(op, "the mask must be of the parameter's shape, %v, and is %v", want, got))
	}
	return defaultMask.Mul(p.Mask.To(defaultMask.DType()))
}

// CustomFromMask prunes a parameter of m where mask is zero, and returns m. It panics as [Apply] does, and with a
// ValueError if the mask is of another shape.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.custom_from_mask.html.
func CustomFromMask[M nn.Modular](m M, name string, mask gotorch.Tensor) M {
	return Apply(m, name, &CustomFromMaskMethod{Mask: mask})
}

// PruningContainerMethod is several methods, each of which prunes what those before it have left. Parameters that
// are pruned again have one.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.PruningContainer.html.
type PruningContainerMethod struct{ methods []Method }

// PruningContainer makes one of methods. It panics with a TypeError if one is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.PruningContainer.html.
func PruningContainer(methods ...Method) *PruningContainerMethod {
	c := &PruningContainerMethod{}
	for _, m := range methods {
		c.AddPruningMethod(m)
	}
	return c
}

// AddPruningMethod adds a method. It panics with a TypeError if it is nil.
func (p *PruningContainerMethod) AddPruningMethod(method Method) {
	if method == nil {
		panic(typeError("prune.PruningContainer", "the method is nil"))
	}
	p.methods = append(slices.Clip(p.methods), method)
}

// Len returns how many there are.
func (p *PruningContainerMethod) Len() int { return len(p.methods) }

// At returns a method. It panics with an IndexError if there is none.
func (p *PruningContainerMethod) At(i int) Method {
	if i < 0 || i >= len(p.methods) {
		panic(&gotorch.Error{Op: "prune.PruningContainer", Kind: gotorch.IndexError, Msg: fmt.Sprintf("index %d is out of range: there are %d methods", i, len(p.methods))})
	}
	return p.methods[i]
}

// PruningType is that of the last method.
func (p *PruningContainerMethod) PruningType() PruningType { return p.last().PruningType() }

func (p *PruningContainerMethod) last() Method {
	if len(p.methods) == 0 {
		panic(args.ValueError("prune.PruningContainer", "there is no method in it"))
	}
	return p.methods[len(p.methods)-1]
}

// ComputeMask returns defaultMask, which is what the methods before the last one have left, without what the last
// one prunes of that.
func (p *PruningContainerMethod) ComputeMask(t, defaultMask gotorch.Tensor) gotorch.Tensor {
	const op = "prune.PruningContainer"
	method := p.last()
	mask := defaultMask.To(t.DType())
	if mask.T == defaultMask.T {
		mask = mask.Clone()
	}
	var left []gotorch.IndexTerm
	switch kind := method.PruningType(); kind {
	case Unstructured:
		left = []gotorch.IndexTerm{defaultMask.EqScalar(1)}
	case Structured:
		of, ok := method.(interface{ Dim() int64 })
		if !ok {
			panic(typeError(op, "%T is structured, and has no method Dim() int64", method))
		}
		n := t.Dim()
		dim := of.Dim()
		if dim < 0 {
			dim += n
		}
		if dim < 0 || dim >= n {
			panic(&gotorch.Error{Op: op, Kind: gotorch.IndexError, Msg: fmt.Sprintf("Index is out of bounds for tensor with dimensions %d", n)})
		}
		var others []int64
		for d := range n {
			left = append(left, gotorch.All)
			if d != dim {
				others = append(others, d)
			}
		}
		sum := defaultMask
		if len(others) > 0 {
			sum = defaultMask.SumDim(others)
		}
		left[dim] = sum.NeScalar(0)
	case Global:
		left = []gotorch.IndexTerm{gotorch.Ellipsis}
	default:
		panic(args.ValueError(op, "Unrecognized PRUNING_TYPE %s", kind))
	}
	part := method.ComputeMask(t.Index(left...), defaultMask.Index(left...))
	mask.IndexPut(part.To(mask.DType()), left...)
	return mask
}

// Several parameters ----------------------------------------------------------------------------------

// Parameter names a parameter of a module.
type Parameter struct {
	Module nn.Modular
	Name   string
}

// GlobalOptions are the arguments of [GlobalUnstructured] that have defaults.
type GlobalOptions struct {
	ImportanceScores map[Parameter]gotorch.Tensor // of the parameters' shapes; default: the parameters
}

// GlobalUnstructured prunes parameters of several modules as if they were one, so that each loses as many elements
// as it happens to have among those that go:
//
//	prune.GlobalUnstructured([]prune.Parameter{{fc1, "weight"}, {fc2, "weight"}}, &prune.L1UnstructuredMethod{Amount: 0.2})
//
// It panics with a TypeError for a method that is not [Unstructured], with a ValueError as [Apply] does, and as the
// method does; then nothing is pruned.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.global_unstructured.html.
func GlobalUnstructured(parameters []Parameter, method Method, opts ...GlobalOptions) {
	const op = "prune.GlobalUnstructured"
	scores := args.Option(opts).ImportanceScores
	if method == nil {
		panic(typeError(op, "the method is nil"))
	}
	if c, ok := method.(checker); ok {
		c.check()
	}
	if kind := method.PruningType(); kind != Unstructured {
		panic(typeError(op, "Only \"unstructured\" PRUNING_TYPE supported for the `pruning_method`. Found method %T of type %s", method, kind))
	}
	if len(parameters) == 0 {
		panic(args.ValueError(op, "there are no parameters"))
	}
	var values, masks, of []gotorch.Tensor
	var parts []gotorch.Tensor
	gotorch.Unscoped(func() {
		for i, p := range parameters {
			if p.Module == nil {
				panic(typeError(op, "module %d is nil", i))
			}
			place, old := checkPrunable(op, p.Module, p.Name)
			value := *place.T
			values = append(values, value)
			score, ok := scores[p]
			if !ok {
				score = value
			} else if score.Numel() != value.Numel() {
				panic(args.ValueError(op, "the scores of parameter %d are of shape %v, and it is %v", i, score.Shape(), value.Shape()))
			}
			of = append(of, score)
			mask := gotorch.Tensor{}
			if old != nil {
				mask = nn.Internals(p.Module).Parts(true).Find(p.Name + "_mask").T
			} else {
				mask = gotorch.OnesLike(value)
			}
			masks = append(masks, mask)
		}
		mask := PruningContainer(method).ComputeMask(utils.ParametersToVector(of), utils.ParametersToVector(masks))
		at := int64(0)
		for _, value := range values {
			n := value.Numel()
			parts = append(parts, mask.Narrow(0, at, n).ViewAs(value))
			at += n
		}
	})
	for i, p := range parameters {
		CustomFromMask(p.Module, p.Name, parts[i])
	}
}
