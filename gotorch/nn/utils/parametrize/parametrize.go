// Package parametrize computes a parameter of a module from others, as torch.nn.utils.parametrize does: the
// module then learns those others. A parametrization is a module of its own:
//
//	// Symmetric makes a square matrix symmetric.
//	type Symmetric struct{ nn.Module }
//
//	func (m *Symmetric) Forward(x gotorch.Tensor) gotorch.Tensor {
//		upper := x.Triu()
//		return upper.Add(x.Triu(gotorch.TriuOptions{Diagonal: 1}).Transpose2D())
//	}
//
//	layer := parametrize.RegisterParametrization(nn.Linear(3, 3), "weight", nn.Init(&Symmetric{}))
//
// From then on layer.Parameters() has "parametrizations.weight.original" in the place of "weight", and each
// call of the layer computes its field Weight anew. Between calls the field keeps what the last one used;
// [Refresh] computes it at any time, as reading module.weight does in Python. What is assigned to the field
// lasts until the next call: [ParametrizationList.RightInverse] is Python's assignment.
//
// A layer of package nn computes its fields whenever its Forward is called; a module of your own when it is
// called by nn.Call or nn.CallWith, as with hooks. Goroutines that call such a module at the same time take turns.
//
// The ready ones are in package parametrizations: weight and spectral normalisation, orthogonal matrices.
package parametrize

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/internal/fields"
)

// Joiner is a parametrization that makes one tensor of several. An [nn.Layer] is one that makes it of one.
type Joiner interface {
	nn.Modular
	Forward(originals ...gotorch.Tensor) gotorch.Tensor
}

// RightInverter is a parametrization that can be assigned to: RightInverse returns an x for which Forward
// returns value, or what comes near to it. A parametrization without it keeps the tensor as it is when it is
// registered, and cannot be assigned to.
type RightInverter interface {
	RightInverse(value gotorch.Tensor) gotorch.Tensor
}

// Splitter is [RightInverter] for a [Joiner]: it returns as many tensors as Forward gets.
type Splitter interface {
	RightInverse(value gotorch.Tensor) []gotorch.Tensor
}

const child = "parametrizations" // the name of a module's ModuleDict of lists

// ParametrizationList is what computes one tensor of a module: the original tensors, which are its
// parameters "original", or "original0", "original1" and so on, and the parametrizations that they go through,
// its modules "0", "1".
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.ParametrizationList.html.
type ParametrizationList struct {
	nn.ModuleListModule
	// Unsafe is whether one of the parametrizations was registered without the checks.
	Unsafe bool

	several bool
}

// RegisterOptions are the arguments of [RegisterParametrization] that have defaults.
type RegisterOptions struct {
	Unsafe bool // allow parametrizations that change the shape or dtype, and do not check them
}

// Of returns what computes a tensor of m, Python's m.parametrizations[tensorName], or nil if nothing does.
func Of(m nn.Modular, tensorName string) *ParametrizationList {
	dict := lists(m)
	if dict == nil {
		return nil
	}
	list, _ := dict.Get(tensorName).(*ParametrizationList)
	return list
}

// lists returns m's child of that name, or nil.
func lists(m nn.Modular) *nn.ModuleDictModule {
	if parts := nn.Internals(m).Parts(false); parts != nil {
		for _, c := range parts.Children {
			if c.Name == child {
				return c.Module.(*nn.ModuleDictModule)
			}
		}
	}
	return nil
}

// IsParametrized reports whether a tensor of m is computed by parametrizations; without a name, whether any
// is. It panics with a TypeError for more than one name.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.is_parametrized.html.
func IsParametrized(m nn.Modular, tensorName ...string) bool {
	switch len(tensorName) {
	case 0:
		dict := lists(m)
		return dict != nil && dict.Len() > 0
	case 1:
		return Of(m, tensorName[0]) != nil
	}
	panic(typeError("parametrize.IsParametrized", "there may be one name, not %d", len(tensorName)))
}

// RegisterParametrization has a parameter or buffer of m computed by a parametrization, and returns m. A
// further one for the same tensor gets what those before it return. The parametrization is an [nn.Layer], or a
// [Joiner] if its RightInverse makes several tensors of one. tensorName is the name in state dicts, "weight".
//
// The tensor that was the parameter stays one where there is one original, so that an optimiser that was made
// before still knows it; several are new, and must be given to an optimiser.
//
// It panics with a ValueError, and leaves m as it was, if m has no such tensor, or the parametrization changes
// its shape or dtype and Unsafe is not set; with a TypeError if it has no Forward of the right kind; and with
// a RuntimeError for a lazy module that has no shape yet.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.register_parametrization.html.
func RegisterParametrization[M nn.Modular](m M, tensorName string, parametrization nn.Modular, opts ...RegisterOptions) M {
	opt := args.Option(opts)
	checkModule(parametrization)
	give := begin(m)
	defer give()
	parametrization.Train(m.Training())
	if list := Of(m, tensorName); list != nil {
		value := list.extend(m, tensorName, parametrization, opt.Unsafe)
		if place, ok := nn.Internals(m).Place(tensorName); ok && value.T != nil {
			*place.T = value
		}
		return m
	}
	place, ok := nn.Internals(m).Place(tensorName)
	if parts := nn.Internals(m).Parts(false); !ok || parts != nil && parts.FindComputed(tensorName) != nil {
		panic(args.ValueError(registerOp, "Module '%v' does not have a parameter, a buffer, or a parametrized element with name '%s'", m, tensorName))
	}
	if nn.Internals(m).Lazy() {
		panic(&gotorch.Error{Op: registerOp, Kind: gotorch.RuntimeError, Msg: fmt.Sprintf("%s of a lazy module has no shape yet: call Forward once before", tensorName)})
	}
	for name := range m.NamedModules() {
		if name == child && lists(m) == nil {
			panic(typeError(registerOp, "%T has a field with the name %q, which parametrizations need", m, child))
		}
	}
	list, value := newList(place, parametrization, opt.Unsafe)
	parts := nn.Internals(m).Parts(true)
	dict := lists(m)
	if dict == nil {
		dict = nn.ModuleDict()
		parts.Children = append(parts.Children, fields.Child{Name: child, Module: dict})
		parts.Prefix = "Parametrized"
		dict.Train(m.Training())
	}
	dict.Set(tensorName, list)
	computed := &fields.Computed{Name: tensorName, Kind: place.Kind, Compute: func(m any) gotorch.Tensor {
		return Of(m.(nn.Modular), tensorName).Forward()
	}}
	if l, ok := parametrization.(loader); ok {
		computed.Load = func(prefix string, dict map[string]gotorch.Tensor) {
			l.LoadOlder(prefix, tensorName, dict)
		}
	}
	parts.Computed = append(slices.Clip(parts.Computed), computed)
	*place.T = value
	return m
}

const registerOp = "parametrize.RegisterParametrization"

// loader is a parametrization that knows the names that its tensors had in older state dicts.
type loader interface {
	LoadOlder(prefix, name string, dict map[string]gotorch.Tensor)
}

// begin takes the turn of a module that has parts already, so that no call of it is under way.
func begin(m nn.Modular) (end func()) {
	if parts := nn.Internals(m).Parts(false); parts != nil {
		return parts.Turn.Take()
	}
	return func() {}
}

func typeError(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf(format, values...)}
}

// checkModule panics with a TypeError unless a parametrization can be called.
func checkModule(parametrization nn.Modular) {
	if parametrization == nil {
		panic(typeError(registerOp, "the parametrization is nil"))
	}
	nn.Internals(parametrization).Parts(false) // which refuses a pointer that is nil
	switch parametrization.(type) {
	case nn.Layer, Joiner:
		return
	}
	panic(typeError(registerOp, "%T must have a method Forward(x gotorch.Tensor) gotorch.Tensor, or Forward(originals ...gotorch.Tensor) gotorch.Tensor", parametrization))
}

// apply calls a parametrization.
func apply(parametrization nn.Modular, originals ...gotorch.Tensor) (result gotorch.Tensor) {
	switch p := parametrization.(type) {
	case Joiner:
		result = p.Forward(originals...)
	case nn.Layer:
		if len(originals) != 1 {
			panic(typeError("parametrize.ParametrizationList", "Forward of %T takes one tensor, and there are %d originals: it must be Forward(originals ...gotorch.Tensor)", p, len(originals)))
		}
		result = nn.Call(p, originals[0])
	}
	if result.T == nil {
		panic(args.ValueError("parametrize.ParametrizationList", "a parametrization must return a tensor, and %T returned the zero Tensor", parametrization))
	}
	return result
}

// inverse calls RightInverse. has is false where there is none, or it says that it is not implemented.
func inverse(parametrization nn.Modular, value gotorch.Tensor) (results []gotorch.Tensor, several, has bool) {
	defer func() {
		if problem := recover(); problem != nil {
			if err, ok := problem.(*gotorch.Error); !ok || err.Kind != gotorch.NotImplementedError {
				panic(problem)
			}
			results, several, has = []gotorch.Tensor{value}, false, false
		}
	}()
	return invert(parametrization, value)
}

func invert(parametrization nn.Modular, value gotorch.Tensor) (results []gotorch.Tensor, several, has bool) {
	switch p := parametrization.(type) {
	case RightInverter:
		results, has = []gotorch.Tensor{p.RightInverse(value)}, true
	case Splitter:
		results, several, has = p.RightInverse(value), true, true
	default:
		return []gotorch.Tensor{value}, false, false
	}
	for i, t := range results {
		if t.T == nil {
			panic(args.ValueError(registerOp, "'right_inverse' must return a Tensor or a Sequence of tensors, and element %d of what %T returned is the zero Tensor", i, parametrization))
		}
	}
	return results, several, has
}

// newList returns a list of one parametrization for a tensor of a module, and what it computes. Where there is
// one original that is the tensor itself, with the memory of what RightInverse returns. If it panics, the
// tensor is as it was.
func newList(place fields.Place, parametrization nn.Modular, unsafe bool) (list *ParametrizationList, value gotorch.Tensor) {
	original := *place.T
	before, done := gotorch.Tensor{}, false
	defer func() {
		if !done && before.T != nil {
			set(original, before)
		}
	}()
	gotorch.Unscoped(func() {
		var tensors []gotorch.Tensor
		several := false
		gotorch.NoGrad(func() { tensors, several, _ = inverse(parametrization, original) })
		list = nn.Init(&ParametrizationList{Unsafe: unsafe, several: several})
		list.Append(parametrization)
		list.Train(parametrization.Training())
		requires := original.RequiresGrad()
		if !several {
			checkSame(original, tensors[0])
			if tensors[0].T != original.T {
				gotorch.NoGrad(func() { before = original.Detach() })
				set(original, tensors[0])
			}
			tensors[0] = original
		}
		parts := nn.Internals(list).Parts(true)
		for i, t := range tensors {
			if several && (place.Kind == fields.Parameter || t.T == original.T) {
				t = t.Detach() // a tensor of its own, as PyTorch's Parameter makes
			}
			if t.RequiresGrad() != requires {
				t.RequiresGrad_(requires)
			}
			parts.Tensors = append(parts.Tensors, &fields.Tensor{Name: list.name(i), Kind: min(place.Kind, fields.Buffer), T: t})
			nn.Internals(list).Made(t)
		}
		if unsafe {
			value = original.Detach()
			return
		}
		shape, dtype := original.Shape(), original.DType()
		if before.T != nil {
			shape = before.Shape()
		}
		value = list.Forward()
		if got := value.DType(); got != dtype {
			panic(args.ValueError(registerOp, "Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is enabled.\n"+
				"unparametrized dtype: %v\nparametrized dtype: %v", dtype, got))
		}
		if got := value.Shape(); !slices.Equal(got, shape) {
			panic(args.ValueError(registerOp, "Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is enabled.\n"+
				"unparametrized shape: %v\nparametrized shape: %v", shape, got))
		}
	})
	done = true
	return list, value
}

func checkSame(original, t gotorch.Tensor) {
	if got, want := t.DType(), original.DType(); got != want {
		panic(args.ValueError(registerOp, "When `right_inverse` outputs one tensor, it may not change the dtype.\n"+
			"original.dtype: %v\nright_inverse(original).dtype: %v", want, got))
	}
	if got, want := t.Device(), original.Device(); got != want {
		panic(args.ValueError(registerOp, "When `right_inverse` outputs one tensor, it may not change the device.\n"+
			"original.device: %v\nright_inverse(original).device: %v", want, got))
	}
}

// set has a tensor use the memory of another one.
func set(t, source gotorch.Tensor) {
	if t.T != source.T {
		gotorch.NoGrad(func() { t.SetSourceTensor_(source) })
	}
}

// extend adds a parametrization, and returns what the tensor is with it, or none if that was not computed.
func (l *ParametrizationList) extend(m nn.Modular, name string, parametrization nn.Modular, unsafe bool) (value gotorch.Tensor) {
	if !unsafe {
		gotorch.Unscoped(func() {
			before := nn.Internals(m).Refresh(name)
			value = apply(parametrization, before)
			if got, want := value.DType(), before.DType(); got != want {
				panic(args.ValueError(registerOp, "Registering a parametrization may not change the dtype of the tensor, unless the `unsafe` flag is enabled.\n"+
					"module.%s.dtype: %v\nparametrization(module.%s).dtype: %v", name, want, name, got))
			}
			if got, want := value.Shape(), before.Shape(); !slices.Equal(got, want) {
				panic(args.ValueError(registerOp, "Registering a parametrization may not change the shape of the tensor, unless the `unsafe` flag is enabled.\n"+
					"module.%s.shape: %v\nparametrization(module.%s).shape: %v", name, want, name, got))
			}
			back, several, has := inverse(parametrization, value)
			switch {
			case several:
				panic(args.ValueError(registerOp, "parametrization.right_inverse must return a tensor. Got: %d tensors", len(back)))
			case !has:
			case back[0].DType() != before.DType():
				panic(args.ValueError(registerOp, "The tensor returned by parametrization.right_inverse must have the same dtype as module.%s, unless the `unsafe` flag is enabled.\n"+
					"module.%s.dtype: %v\nreturned dtype: %v", name, name, before.DType(), back[0].DType()))
			case !slices.Equal(back[0].Shape(), before.Shape()):
				panic(args.ValueError(registerOp, "The tensor returned by parametrization.right_inverse must have the same shape as module.%s, unless the `unsafe` flag is enabled.\n"+
					"module.%s.shape: %v\nreturned shape: %v", name, name, before.Shape(), back[0].Shape()))
			}
		})
	}
	l.Append(parametrization)
	l.Unsafe = l.Unsafe || unsafe
	return value
}

// name is that of an original.
func (l *ParametrizationList) name(i int) string {
	if l.several {
		return fmt.Sprintf("original%d", i)
	}
	return "original"
}

func (l *ParametrizationList) originals() []*fields.Tensor {
	return nn.Internals(l).Parts(true).Tensors
}

// Originals returns the tensors that the module learns in the place of its own. They are the model's.
func (l *ParametrizationList) Originals() []gotorch.Tensor {
	var list []gotorch.Tensor
	for _, t := range l.originals() {
		list = append(list, t.T)
	}
	return list
}

// Forward computes the tensor from the originals.
func (l *ParametrizationList) Forward() gotorch.Tensor {
	x := apply(l.Modules[0], l.Originals()...)
	for _, p := range l.Modules[1:] {
		x = apply(p, x)
	}
	return x
}

// RightInverse sets the originals to what the tensor is value of, as assigning to module.weight does in
// Python. They use the memory of what the parametrizations return: value's own, where that is value. It panics
// with a RuntimeError if one of the parametrizations has no RightInverse, and with a ValueError, changing
// nothing, if the results have another dtype than the originals or another number.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.ParametrizationList.html.
func (l *ParametrizationList) RightInverse(value gotorch.Tensor) {
	const op = "parametrize.RightInverse"
	gotorch.Unscoped(func() {
		gotorch.NoGrad(func() {
			results := []gotorch.Tensor{value}
			for i, p := range slices.Backward(l.Modules) {
				var has bool
				results, _, has = invert(p, results[0])
				if !has {
					panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: fmt.Sprintf("parametrization %s does not implement right_inverse.", nn.Internals(p).Class())})
				}
				if i > 0 && len(results) != 1 {
					panic(args.ValueError(op, "only the first parametrization may make several tensors, and %s is number %d", nn.Internals(p).Class(), i))
				}
			}
			originals := l.originals()
			if len(results) != len(originals) {
				panic(args.ValueError(op, "'right_inverse' must return a sequence of tensors of length %d. Got a sequence of length %d.", len(originals), len(results)))
			}
			for i, t := range results {
				if got, want := t.DType(), originals[i].T.DType(); got != want {
					panic(args.ValueError(op, "The tensor returned by `right_inverse` has dtype %v while `%s` has dtype %v", got, l.name(i), want))
				}
			}
			for i, t := range results {
				set(originals[i].T, t)
			}
		})
	})
}

// Refresh computes a tensor of m from its originals now, puts it into its field and returns it: what reading
// module.weight does in Python. It is part of autograd's graph; a penalty on a weight is one on
// Refresh's result. It panics with a ValueError if the tensor is not parametrized.
func Refresh(m nn.Modular, tensorName string) gotorch.Tensor {
	if Of(m, tensorName) == nil {
		panic(args.ValueError("parametrize.Refresh", "Module %v does not have a parametrization on %s", m, tensorName))
	}
	return nn.Internals(m).Refresh(tensorName)
}

// RemoveOptions are the arguments of [RemoveParametrizations] that have defaults.
type RemoveOptions struct {
	NoLeaveParametrized bool // the tensor becomes the original again, rather than what is computed of it
}

// RemoveParametrizations makes a tensor a parameter or buffer of m again, with the value that the
// parametrizations give it, and returns m. Where there is one original that is the tensor, so that an
// optimiser still knows it; in the place of several there is a new one. It panics with a ValueError if the tensor
// is not parametrized, or with NoLeaveParametrized if it has several originals.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.remove_parametrizations.html.
func RemoveParametrizations[M nn.Modular](m M, tensorName string, opts ...RemoveOptions) M {
	const op = "parametrize.RemoveParametrizations"
	opt := args.Option(opts)
	list := Of(m, tensorName)
	if list == nil {
		panic(args.ValueError(op, "Module %v does not have a parametrization on %s", m, tensorName))
	}
	parts := nn.Internals(m).Parts(true)
	defer parts.Turn.Take()()
	originals := list.Originals()
	original := originals[0]
	switch {
	case !list.several && !opt.NoLeaveParametrized:
		var value gotorch.Tensor
		gotorch.NoGrad(func() { value = nn.Internals(m).Refresh(tensorName) })
		set(original, value)
	case list.several && opt.NoLeaveParametrized:
		panic(args.ValueError(op, "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors."))
	case list.several:
		requires := slices.ContainsFunc(originals, gotorch.Tensor.RequiresGrad)
		gotorch.Unscoped(func() {
			original = nn.Internals(m).Refresh(tensorName).Detach()
			original.RequiresGrad_(requires)
		})
	}
	place, _ := nn.Internals(m).Place(tensorName)
	*place.T = original
	parts.RemoveComputed(tensorName)
	nn.Internals(m).Made(original)
	dict := lists(m)
	dict.Delete(tensorName)
	if dict.Len() == 0 {
		parts.Children = slices.DeleteFunc(slices.Clone(parts.Children), func(c fields.Child) bool { return c.Name == child })
		parts.Prefix = ""
	}
	nn.Internals(m).Tidy()
	return m
}

// Cached runs fn, in which each parametrized tensor is computed once, when it is needed first, rather than at
// each call of its module. Gradients of several calls go to that one. It holds for this goroutine, and ends
// also when fn panics. What is assigned inside, by an optimiser too, is not seen until it ends.
//
//	parametrize.Cached(func() {
//		for x := range batches {
//			total = total.Add(loss(rnn.Forward(x)))
//		}
//	})
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.cached.html.
func Cached(fn func()) { fields.Cached(fn) }

// TypeBeforeParametrizations returns the name of m's class as PyTorch calls it, without the "Parametrized"
// that String puts before it: "Linear". Its type in Go does not change.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.type_before_parametrizations.html.
func TypeBeforeParametrizations(m nn.Modular) string { return nn.Internals(m).Class() }

// TransferOptions are the arguments of [TransferParametrizationsAndParams] that have defaults.
type TransferOptions struct {
	TensorName string // default: all that are parametrized
}

// TransferParametrizationsAndParams gives to the parametrizations of from, and its originals, and returns to:
// both modules share them then. It panics with a ValueError if to has no tensor of such a name, or from's
// TensorName is not parametrized.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.transfer_parametrizations_and_params.html.
func TransferParametrizationsAndParams[M nn.Modular](from nn.Modular, to M, opts ...TransferOptions) M {
	opt := args.Option(opts)
	dict := lists(from)
	if dict == nil {
		return to
	}
	var names []string
	for name := range dict.All() {
		if opt.TensorName == "" || opt.TensorName == name {
			names = append(names, name)
		}
	}
	if opt.TensorName != "" && len(names) == 0 {
		panic(args.ValueError("parametrize.TransferParametrizationsAndParams", "Module %v does not have a parametrization on %s", from, opt.TensorName))
	}
	for _, name := range names {
		list := Of(from, name)
		for _, p := range list.Modules {
			RegisterParametrization(to, name, p)
		}
		own := Of(to, name)
		for i, t := range own.originals() {
			if i < len(list.originals()) {
				t.T = list.originals()[i].T
				nn.Internals(own).Made(t.T)
			}
		}
	}
	return to
}
