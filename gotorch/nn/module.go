package nn

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"unsafe"
	"weak"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn/internal/fields"
)

// Module is what a struct embeds to become a module. Its methods work on the struct that it is
// embedded in, and on all modules within.
//
// A module is not to be copied, and to be used by one goroutine at a time, except that several may
// call Forward of a module that is not training.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html.
type Module struct {
	_    noCopy
	self Modular // what embeds it
	eval bool

	hooks      *hooks        // nil where there are none, and no parts
	stateHooks *stateHooks   // nil where there were never any
	parts      *fields.Parts // nil for most: see parts.go

	// The parameters that Init has made, so that those can be told that came later.
	made known
}

// Modular is any struct that embeds [Module], seen through a pointer. The methods are Module's.
type Modular interface {
	Parameters() []gotorch.Tensor
	NamedParameters() iter.Seq2[string, gotorch.Tensor]
	NamedBuffers() iter.Seq2[string, gotorch.Tensor]
	NamedModules() iter.Seq2[string, Modular]
	Training() bool
	Train(on bool)
	Eval()
	To(args ...gotorch.ToArg)
	ToEmpty(device gotorch.Device)
	ZeroGrad(opts ...ZeroGradOptions)
	StateDict() StateDict
	LoadStateDict(dict StateDict, opts ...LoadOptions) error
	String() string

	module() *Module
}

// Layer is a module that makes one tensor of another.
type Layer interface {
	Modular
	Forward(x gotorch.Tensor) gotorch.Tensor
}

// noCopy makes go vet complain when a module is copied.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

func (m *Module) module() *Module { return m }

// Init makes a module of a struct that embeds [Module], and returns it. The constructor of every
// module of your own ends with it.
//
// These exported fields count, by name: Tensors are parameters, and modules are children; slices,
// arrays and maps (by string) of either are one for each element, "blocks.0", "blocks.1". Fields of
// an embedded struct count as the struct's own. Init makes parameters require gradients, where their
// dtype allows it; a Tensor{} is none.
//
// A field's name is put in snake case: Conv1 is "conv1", FC is "fc", RunningMean "running_mean". A
// tag changes the name and more:
//
//	Down   *Block         `nn:"downsample"` // another name
//	Mean   gotorch.Tensor `nn:",buffer"`    // part of the state, but not trained
//	Mask   gotorch.Tensor `nn:",transient"` // a buffer that is not saved
//	Layers []nn.Layer     `nn:",inline"`    // "0", "1" rather than "layers.0", "layers.1"
//	Cache  gotorch.Tensor `nn:"-"`          // nothing of the module's
//
// Init panics with a TypeError for a tag that it does not understand, for two tensors of one name, for a
// module that is within itself and for a tensor or module where it would not be found: in a field that is not
// exported, in one that another field of the same name hides, or deep in a type of another kind, as a struct that
// embeds a Tensor, a map by numbers, a channel of tensors, or a struct in an interface. A tag "-" says that this is meant.
// What a function remembers nobody can see, nor what an interface holds in a channel or, behind a pointer, in a map or a
// field that is not exported, as in a sync.Map: others may be changing that.
//
// A tensor that is put into a field later must be a parameter already, as [Parameter] makes them, or
// Init must be called again; else Parameters panics. Init leaves alone what it has made before, so that
// what was frozen stays so.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Buffer.html.
func Init[M Modular](m M) M {
	v := reflect.ValueOf(m)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(typeError("nn.Init", "the module must be a pointer to a struct, and is nil, a %v", reflect.TypeFor[M]()))
	}
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic(typeError("nn.Init", "the module must be a pointer to a struct, not %T", m))
	}
	mod := embedded(m)
	if mod == nil {
		panic(typeError("nn.Init", "%T must embed nn.Module, not a pointer to it, nor a module that is nil", m))
	}
	fieldsOf(v.Elem().Type()) // which refuses what is no module at all
	if other := mod.self; other != nil && other != Modular(m) && embedded(other) == mod && !embeds(v.Elem(), reflect.ValueOf(other)) &&
		!embeds(reflect.ValueOf(other).Elem(), v) {
		panic(typeError("nn.Init", "%T embeds a module that a %T embeds already, and can be part of only one: embed a module of its own, or give it a field", m, other))
	}
	mod.self = m
	adopt(m)
	checkNames(m)
	return m
}

// embedded returns the Module within m, or nil where an embedded pointer on the way to it is nil.
func embedded(m Modular) (mod *Module) {
	defer func() {
		if recover() != nil {
			mod = nil
		}
	}()
	return m.module()
}

// checkNames panics with a TypeError if two tensors in m have the same name, or a module is within itself.
func checkNames(m Modular) {
	taken := map[string]gotorch.Tensor{}
	walk(m, "", func(prefix string, m Modular) bool {
		for e := range entries(m) {
			if e.child != nil {
				continue
			}
			name := join(prefix, e.name)
			if other, ok := taken[name]; ok && *other.T != *e.tensor.T {
				panic(typeError("nn.Init", "two tensors of %T have the name %q", m, name))
			}
			taken[name] = *e.tensor
		}
		return true
	})
}

// bind makes sure that m knows what embeds it. Modules that were not given to Init are bound when
// they are found in another one, also where a module that they embed was given to it. It panics with a
// TypeError if m is nil, or no pointer.
func bind(m Modular) *Module {
	// What is bound already was looked at then, and containers ask for each layer in each call.
	if m != nil {
		if mod := embedded(m); mod != nil && mod.self == m {
			return mod
		}
	}
	if m == nil || isNil(m) {
		panic(typeError("nn.Module", "the module is nil, a %T", m))
	}
	mod := whole(m)
	if mod.self == nil || mod.self != m && embeds(reflect.ValueOf(m).Elem(), reflect.ValueOf(mod.self)) {
		mod.self = m
		adopt(m)
	}
	return mod
}

// whole is embedded. It panics with a TypeError for a struct that is a module, rather than a pointer to it, and
// for one without a Module.
func whole(m Modular) *Module {
	if reflect.TypeOf(m).Kind() != reflect.Pointer {
		panic(typeError("nn.Module", "a module must be a pointer to a struct, not a %T", m))
	}
	mod := embedded(m)
	if mod == nil {
		panic(typeError("nn.Module", "%T embeds a module that is nil", m))
	}
	return mod
}

// embeds reports whether a struct embeds what inner points to, or a pointer to it.
func embeds(v, inner reflect.Value) bool {
	for i := range v.NumField() {
		if !v.Type().Field(i).Anonymous {
			continue
		}
		f := v.Field(i)
		if f.Kind() == reflect.Pointer {
			f = f.Elem() // no value, where it is nil
		}
		if f.Kind() != reflect.Struct {
			continue
		}
		if f.Addr().Type() == inner.Type() && f.Addr().Pointer() == inner.Pointer() || embeds(f, inner) {
			return true
		}
	}
	return false
}

// adopt makes m's own tensors into parameters, and binds its children.
func adopt(m Modular) {
	names := map[string]bool{}
	before := known{}
	before.gather(m, map[*Module]bool{})
	made := known{}
	for e := range entries(m) {
		if names[e.name] {
			panic(typeError("nn.Init", "two parts of %T have the name %q", m, e.name))
		}
		names[e.name] = true
		switch {
		case e.child != nil:
			bind(e.child)
		case e.kind == parameter && e.tensor.T != nil:
			if !before.has(*e.tensor) {
				asParameter(e)
			}
			made[weak.Make(e.tensor.T)] = true
		}
	}
	m.module().made = made
}

// known is parameters that Init has made. It does not keep them.
type known map[weak.Pointer[unsafe.Pointer]]bool

func (k known) has(t gotorch.Tensor) bool { return k[weak.Make(t.T)] }

// gather adds the parameters of m and of all modules within, which may share them.
func (k known) gather(m Modular, seen map[*Module]bool) {
	if seen[m.module()] {
		return
	}
	seen[m.module()] = true
	maps.Copy(k, m.module().made)
	for e := range entries(m) {
		if e.child != nil {
			k.gather(e.child, seen)
		}
	}
}

// Parameter returns t as a parameter, for a field of a module that was given to [Init] before: it shares
// t's memory, requires gradients and has no part in the graph that t may be from. It panics with a
// RuntimeError if t is neither floating point nor complex.
//
//	m.Weight = nn.Parameter(gotorch.Randn([]int64{10, 784}))
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html.
func Parameter(t gotorch.Tensor) gotorch.Tensor { return t.Detach().RequiresGrad_() }

// asParameter is what PyTorch's Parameter does to a tensor.
func asParameter(e entry) {
	t := e.tensor
	if !t.IsLeaf() {
		*t = t.Detach()
		if e.store != nil {
			e.store()
		}
	}
	if d := t.DType(); (d.IsFloatingPoint() || d.IsComplex()) && !t.RequiresGrad() {
		t.RequiresGrad_(true)
	}
}

// outer returns what embeds m.
func (m *Module) outer() Modular {
	if m.self == nil {
		panic(typeError("nn.Module", "the module was not given to nn.Init: end its constructor with `return nn.Init(&T{...})`"))
	}
	if m.self.module() != m {
		panic(typeError("nn.Module", "the module is a copy: pass modules by pointer"))
	}
	return m.self
}

func typeError(op, format string, args ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf(format, args...)}
}

// The tree -------------------------------------------------------------------------------------------

func join(prefix, name string) string {
	if prefix == "" || name == "" {
		return prefix + name
	}
	return prefix + "." + name
}

// walk calls visit for m and every module within, parents first. Where a module is found twice it is
// visited twice. It ends when visit returns false. It panics with a TypeError if a module is within itself.
func walk(m Modular, prefix string, visit func(name string, m Modular) bool) bool {
	return walkFrom(nil, m, prefix, visit)
}

// walkFrom is walk below the modules above.
func walkFrom(above []*Module, m Modular, prefix string, visit func(name string, m Modular) bool) bool {
	above = append(above, notWithin(above, m, prefix))
	if !visit(prefix, m) {
		return false
	}
	for e := range entries(m) {
		if e.child != nil && !walkFrom(above, e.child, join(prefix, e.name), visit) {
			return false
		}
	}
	return true
}

// notWithin is bind for a module that must not be one of those above it.
func notWithin(above []*Module, m Modular, name string) *Module {
	mod := bind(m)
	if slices.Contains(above, mod) {
		panic(typeError("nn.Module", "%q leads back to a %T that it is within: tag a field that is not a part `nn:\"-\"`", name, m))
	}
	return mod
}

// NamedModules yields the module itself, named "", and every module within, each once.
func (m *Module) NamedModules() iter.Seq2[string, Modular] {
	self := m.outer()
	return func(yield func(string, Modular) bool) {
		seen := map[*Module]bool{}
		walk(self, "", func(name string, m Modular) bool {
			if seen[m.module()] {
				return true
			}
			seen[m.module()] = true
			return yield(name, m)
		})
	}
}

// NamedChildren yields the modules that are fields of this one, each once.
func (m *Module) NamedChildren() iter.Seq2[string, Modular] {
	self := m.outer()
	return func(yield func(string, Modular) bool) {
		seen := map[*Module]bool{}
		for e := range entries(self) {
			if e.child == nil || seen[bind(e.child)] {
				continue
			}
			seen[e.child.module()] = true
			if !yield(e.name, e.child) {
				return
			}
		}
	}
}

// checkParameters panics with a TypeError if a parameter was assigned after Init and cannot learn.
func (m *Module) checkParameters() {
	var made known
	for name, t := range m.tensors(false, parameter) {
		if !t.Defined() { // closed, which is for its user to find
			continue
		}
		if d := t.DType(); t.RequiresGrad() && t.IsLeaf() || !d.IsFloatingPoint() && !d.IsComplex() {
			continue
		}
		if made == nil {
			made = known{}
			made.gather(m.outer(), map[*Module]bool{})
		}
		if made.has(t) { // frozen
			continue
		}
		what := "does not require gradients"
		if t.RequiresGrad() {
			what = "is the result of a computation"
		}
		panic(typeError("nn.Parameters", "%q of %T was assigned after nn.Init and %s, so it would not learn: assign nn.Parameter(t), "+
			"or call nn.Init again; a tensor that is not to be learned has the tag `nn:\",buffer\"` or `nn:\"-\"`", name, m.outer(), what))
	}
}

// tensors yields the tensors of the wanted kinds in m and all modules within. With each once, a
// tensor that has several names comes under the first.
func (m *Module) tensors(once bool, wanted ...kind) iter.Seq2[string, gotorch.Tensor] {
	return func(yield func(string, gotorch.Tensor) bool) {
		for name, place := range m.places(once, wanted...) {
			if !yield(name, *place.tensor) {
				return
			}
		}
	}
}

// place is where a tensor is.
type place struct {
	entry
	of *Module
}

// put replaces the tensor by another one, which is as much a parameter as the old one.
func (p place) put(t gotorch.Tensor) {
	if t.T == p.tensor.T {
		return
	}
	if p.of.made.has(*p.tensor) {
		p.of.made[weak.Make(t.T)] = true
	}
	*p.tensor = t
	if p.store != nil {
		p.store()
	}
}

// places is tensors with the fields rather than what is in them.
func (m *Module) places(once bool, wanted ...kind) iter.Seq2[string, place] {
	self := m.outer()
	return func(yield func(string, place) bool) {
		modules, handles := map[*Module]bool{}, map[uintptr]bool{}
		walk(self, "", func(prefix string, m Modular) bool {
			if once && modules[m.module()] {
				return true
			}
			modules[m.module()] = true
			for _, kind := range wanted {
				for e := range entries(m) {
					if e.child != nil || e.kind != kind || e.tensor.T == nil {
						continue
					}
					// One that is closed is told too: who uses it gets the error.
					handle := uintptr(*e.tensor.T)
					if once && handle != 0 && handles[handle] {
						continue
					}
					handles[handle] = true
					if !yield(join(prefix, e.name), place{e, m.module()}) {
						return false
					}
				}
			}
			return true
		})
	}
}

// NamedParameters yields every parameter once, in the order of the fields. It panics as
// [Module.Parameters] does.
func (m *Module) NamedParameters() iter.Seq2[string, gotorch.Tensor] {
	m.checkParameters()
	return m.tensors(true, parameter)
}

// Parameters returns every parameter once, in the order of the fields: what an optimiser wants. It
// panics with a TypeError if one would not learn because it was put into its field after [Init] and is
// no parameter: see [Parameter].
func (m *Module) Parameters() []gotorch.Tensor { return second(m.NamedParameters()) }

// NamedBuffers yields every buffer once: tensors that are part of the state and are not trained.
func (m *Module) NamedBuffers() iter.Seq2[string, gotorch.Tensor] {
	return m.tensors(true, buffer, transient)
}

// Buffers returns every buffer once.
func (m *Module) Buffers() []gotorch.Tensor { return second(m.NamedBuffers()) }

func second(seq iter.Seq2[string, gotorch.Tensor]) (list []gotorch.Tensor) {
	for _, t := range seq {
		list = append(list, t)
	}
	return list
}

// NumParameters returns the number of elements of all parameters.
func (m *Module) NumParameters() int64 {
	n := int64(0)
	for _, p := range m.NamedParameters() {
		n += p.Numel()
	}
	return n
}

// What is done to the whole tree ---------------------------------------------------------------------

// Train puts the module and all modules within into training mode, or with on false into evaluation
// mode: layers such as Dropout and BatchNorm2d behave differently then.
func (m *Module) Train(on bool) {
	walk(m.outer(), "", func(_ string, m Modular) bool {
		m.module().eval = !on
		return true
	})
}

// Eval puts the module and all modules within into evaluation mode.
func (m *Module) Eval() { m.Train(false) }

// Training reports whether the module is in training mode, as it is at first. It panics with a
// TypeError if the module was not given to [Init].
func (m *Module) Training() bool {
	m.outer()
	return !m.eval
}

// Apply calls fn for every module within, each once, and then for the module itself.
func (m *Module) Apply(fn func(m Modular)) {
	seen := map[*Module]bool{}
	var apply func(m Modular)
	apply = func(m Modular) {
		if seen[bind(m)] {
			return
		}
		seen[m.module()] = true
		for e := range entries(m) {
			if e.child != nil {
				apply(e.child)
			}
		}
		fn(m)
	}
	apply(m.outer())
}

// ZeroGradOptions are the arguments of [Module.ZeroGrad] that have defaults.
type ZeroGradOptions struct {
	NoSetToNone bool // write zeros into the gradients rather than drop them
}

// ZeroGrad drops the gradients of all parameters.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.zero_grad.
func (m *Module) ZeroGrad(opts ...ZeroGradOptions) {
	keep := args.Option(opts).NoSetToNone
	for _, p := range m.NamedParameters() {
		if !keep {
			p.SetGrad(gotorch.Tensor{})
		} else if grad := p.Grad(); grad.Defined() {
			grad = grad.Detach()
			grad.Zero_()
			p.SetGrad(grad)
		}
	}
}

// RequiresGrad_ makes all parameters require gradients, or none; also those that were put into their
// fields after [Init]. It panics with a RuntimeError, and changes nothing, if on is true and there are parameters of
// integers.
func (m *Module) RequiresGrad_(on bool) {
	walk(m.outer(), "", func(_ string, m Modular) bool {
		adopt(m)
		return true
	})
	all := m.Parameters()
	for _, p := range all {
		if d := p.DType(); on && !d.IsFloatingPoint() && !d.IsComplex() {
			panic(runtimeError("nn.RequiresGrad_", "only Tensors of floating point and complex dtype can require gradients, and %T has a parameter of %v", m.outer(), d))
		}
	}
	for _, p := range all {
		p.RequiresGrad_(on)
	}
}

// To moves all parameters, gradients and buffers to another device, gives those that are floating
// point or complex another dtype, and those of 4 dimensions (5 for ChannelsLast3d) another memory
// format. They stay the same tensors, so that an optimiser made before still knows them; only from and
// to gotorch.Meta they cannot.
//
//	model.To(gotorch.CUDA(0))
//	model.To(gotorch.CUDA(0), gotorch.BFloat16)
func (m *Module) To(args ...gotorch.ToArg) {
	want := toOptions(args)
	m.convertAll(func(t gotorch.Tensor) gotorch.Tensor { return as(t, want) })
}

// convertAll has to make another tensor of each parameter, gradient and buffer. What it returns unchanged stays.
func (m *Module) convertAll(to func(t gotorch.Tensor) gotorch.Tensor) {
	gotorch.NoGrad(func() {
		// What cannot be converted, as it is closed or without memory, is found before anything has changed.
		for _, t := range m.tensors(false, parameter, buffer, transient) {
			if t.Device() == gotorch.Meta {
				detached := t.Detach()
				if moved := to(detached); moved.T != detached.T {
					moved.Close()
				}
				detached.Close()
			}
		}
		converted := map[uintptr]gotorch.Tensor{} // by handles of what they were
		for _, place := range m.places(false, parameter, buffer, transient) {
			handle := uintptr(*place.tensor.T)
			if _, done := converted[handle]; !done {
				gotorch.Unscoped(func() { converted[handle] = convert(*place.tensor, to) })
			}
			place.put(converted[handle])
		}
	})
}

// toOne sets one of To's options, and panics with a ValueError if another argument says otherwise.
func toOne[T comparable](to *T, value T) {
	var none T
	if value == none {
		return
	}
	if *to != none && *to != value {
		panic(args.ValueError("nn.To", "the arguments contradict each other: %v and %v", *to, value))
	}
	*to = value
}

// toOptions returns what To's arguments ask for in all.
func toOptions(args []gotorch.ToArg) (o gotorch.ToOptions) {
	for _, arg := range args {
		switch a := arg.(type) {
		case gotorch.DType:
			toOne(&o.DType, a)
		case gotorch.Device:
			toOne(&o.Device, a)
		case gotorch.MemoryFormat:
			toOne(&o.MemoryFormat, a)
		case gotorch.Tensor:
			toOne(&o.DType, a.DType())
			toOne(&o.Device, a.Device())
		case gotorch.ToOptions:
			toOne(&o.DType, a.DType)
			toOne(&o.Device, a.Device)
			toOne(&o.MemoryFormat, a.MemoryFormat)
			toOne(&o.Layout, a.Layout)
			o.PinMemory, o.NonBlocking, o.Copy = o.PinMemory || a.PinMemory, o.NonBlocking || a.NonBlocking, o.Copy || a.Copy
		default:
			panic(typeError("nn.To", "a module has no %T", arg))
		}
	}
	if d := o.DType; d != 0 && !d.IsFloatingPoint() && !d.IsComplex() {
		panic(typeError("nn.To", "a module can only have floating point or complex dtypes, not %v", d))
	}
	return o
}

// convert makes t and its gradient what is wanted. It returns t, or a tensor to take its place.
func convert(t gotorch.Tensor, to func(t gotorch.Tensor) gotorch.Tensor) gotorch.Tensor {
	old := t.Detach()
	defer old.Close()
	moved := to(old)
	if moved.T == old.T {
		return t
	}
	grad := t.Grad()
	if err := gotorch.Try0(func() { t.SetData(moved) }); err != nil {
		// The two are of kinds that do not fit into the same tensor.
		moved.RequiresGrad_(t.RequiresGrad())
		if grad.Defined() {
			moved.SetGrad(to(grad))
		}
		return moved
	}
	moved.Close()
	if grad.Defined() {
		if moved := to(grad); moved.T != grad.T {
			grad.SetData(moved)
			moved.Close()
		}
	}
	return t
}

// as returns t as wanted, as far as that is a matter of t's kind; t itself if nothing changes.
func as(t gotorch.Tensor, want gotorch.ToOptions) gotorch.Tensor {
	if d := t.DType(); !d.IsFloatingPoint() && !d.IsComplex() {
		want.DType = 0
	}
	if want.MemoryFormat != 0 {
		switch n := t.Dim(); {
		case n == 5 && want.MemoryFormat == gotorch.ChannelsLast3d:
		case n == 4 && want.MemoryFormat == gotorch.ChannelsLast:
		default:
			want.MemoryFormat = 0
		}
	}
	return t.To(want)
}
