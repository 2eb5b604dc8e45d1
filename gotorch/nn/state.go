package nn

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/fileformat"
)

// StateDict is a model's state by PyTorch's names, "conv1.weight": its parameters and buffers.
type StateDict map[string]gotorch.Tensor

// Names returns the names in alphabetical order.
func (d StateDict) Names() []string { return slices.Sorted(maps.Keys(d)) }

// StateDict returns the model's parameters and buffers, without transient ones, and what modules have of
// [ExtraState]. The tensors share memory with the model: what is done to it afterwards, they see. Hooks of
// [Module.RegisterStateDictPreHook] and [Module.RegisterStateDictPostHook] are called.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.state_dict.
func (m *Module) StateDict() StateDict {
	dict, _ := m.state()
	return dict
}

// state returns the state dict, and its names in PyTorch's order.
func (m *Module) state() (dict StateDict, order []string) {
	dict = StateDict{}
	put := func(name string, t gotorch.Tensor) {
		if _, known := dict[name]; !known {
			order = append(order, name)
		}
		dict[name] = t
	}
	var save func(above []*Module, m Modular, prefix string)
	save = func(above []*Module, m Modular, prefix string) {
		above = append(above, notWithin(above, m, strings.TrimSuffix(prefix, ".")))
		h := m.module().stateHooks
		if h != nil {
			for _, hook := range h.statePre {
				hook.fn(m, prefix)
			}
		}
		for _, e := range ownState(m) {
			put(prefix+e.name, e.tensor.Detach())
		}
		if x, ok := m.(ExtraState); ok {
			put(prefix+extraStateKey, x.GetExtraState())
		}
		for e := range entries(m) {
			if e.child != nil {
				save(above, e.child, prefix+e.name+".")
			}
		}
		if h != nil {
			for _, hook := range h.statePost {
				hook.fn(m, dict, prefix)
			}
		}
	}
	save(nil, m.outer(), "")
	// Hooks may have put in more, or taken out some.
	order = slices.DeleteFunc(order, func(name string) bool { _, there := dict[name]; return !there })
	for _, name := range dict.Names() {
		if len(order) == len(dict) {
			break
		}
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	return dict, order
}

// ownState returns what is part of the state among a module's own tensors: parameters before buffers.
func ownState(m Modular) (own []entry) {
	for _, kind := range []kind{parameter, buffer} {
		for e := range entries(m) {
			if e.child == nil && e.kind == kind && e.tensor.T != nil {
				own = append(own, e)
			}
		}
	}
	return own
}

// LoadOptions are the arguments of [Module.LoadStateDict] and [Load] that have defaults.
type LoadOptions struct {
	// Partial is PyTorch's strict=False: names that only the model or only the state dict has are
	// left alone. Report says which.
	Partial bool
	// SkipMismatched leaves tensors alone that have another shape in the model, which is an error else,
	// also with Partial: for a classifier that gets another number of classes.
	SkipMismatched bool
	// Assign is PyTorch's assign=True: the model gets the state dict's tensors themselves, with their dtypes
	// and devices, rather than their numbers; what requires gradients stays as it was. So a model on
	// gotorch.Meta is filled without taking memory twice. An optimiser made before does not know them. A tensor
	// that the model has under several names stays one, unlike in PyTorch; if the state dict has different values
	// for two of its names, that is an error of kind ValueError.
	Assign bool
	// Rename gives the model's name for each name of the state dict, where they differ: for a model that
	// was wrapped, strip "module.". Default: they are the same. Two names that become one are an error of
	// kind ValueError.
	Rename func(name string) string
	// Report, where not nil, receives what was found, also when there is an error.
	Report *LoadReport
	// Device receives the tensors of a file before they are copied into the model's, which stay where
	// they are. Default: the CPU. Only [Load] reads a file.
	Device gotorch.Device
}

// LoadReport says how a state dict fits a model.
type LoadReport struct {
	IncompatibleKeys
	Mismatched []Mismatch  // tensors of other shapes
	Converted  []Converted // tensors of other dtypes, which are converted unless [LoadOptions].Assign is true
	Loaded     []string    // the model's tensors that have their numbers from the state dict; none after an error
}

// IncompatibleKeys is what PyTorch's load_state_dict returns.
type IncompatibleKeys struct {
	Missing    []string // names that only the model has
	Unexpected []string // names that only the state dict has
}

// Mismatch is a tensor that has another shape in the model than in the state dict.
type Mismatch struct {
	Name      string
	Want, Got []int64 // the model's shape and the state dict's
}

// Converted is a tensor that has another dtype in the model than in the state dict.
type Converted struct {
	Name      string
	Want, Got gotorch.DType // the model's and the state dict's
}

// LoadStateDict copies tensors into the model's parameters and buffers of the same names, converting
// dtypes and devices. Where names or shapes do not fit it returns a *StateDictError that lists all that
// is wrong, and a *gotorch.Error for a tensor that cannot be copied: one that is closed, sparse where the
// model's is not, or without memory (gotorch.Meta). Then it changes nothing.
//
// To take what fits and know the rest:
//
//	var report nn.LoadReport
//	err := m.LoadStateDict(dict, nn.LoadOptions{Partial: true, SkipMismatched: true, Report: &report})
//
// Hooks of [Module.RegisterLoadStateDictPreHook] and [Module.RegisterLoadStateDictPostHook] are called, and
// SetExtraState of modules with [ExtraState].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict.
func (m *Module) LoadStateDict(dict StateDict, opts ...LoadOptions) error {
	opt := args.Option(opts)
	if opt.Report != nil {
		*opt.Report = LoadReport{}
	}
	dict, err := dict.renamed(opt.Rename)
	if err != nil {
		return err
	}
	m.outer()
	loaded, err := gotorch.Try(func() error { return m.load(m.brought(dict), opt) })
	if err != nil {
		return err
	}
	return loaded
}

// renamed returns the state dict under other names.
func (d StateDict) renamed(rename func(string) string) (StateDict, error) {
	if rename == nil {
		return maps.Clone(d), nil // hooks may change it
	}
	result := make(StateDict, len(d))
	from := make(map[string]string, len(d))
	for _, name := range d.Names() {
		to := rename(name)
		if other, taken := from[to]; taken {
			return nil, args.ValueError("nn.LoadStateDict", "%q and %q are both renamed to %q", other, name, to)
		}
		from[to], result[to] = name, d[name]
	}
	return result, nil
}

// loading is one LoadStateDict. Everything is looked at before anything is copied; but where there are hooks
// that come after, a module is loaded before its hooks run, as in PyTorch, and what was there is kept meanwhile.
type loading struct {
	opt    LoadOptions
	report *LoadReport
	eager  bool // there are such hooks
	keep   bool // what was there may have to be put back
	shapes []shaped
	copies []copying
	extras []extra
	ties   map[uintptr]*tie // with Assign, by the handles of the model's tensors, before and after
	// How many of shapes, copies and extras are done.
	shaped, copied, set int
	err                 error // what no option allows
}

type copying struct {
	name     string
	to       place
	from     gotorch.Tensor
	previous gotorch.Tensor // to's tensor where one is assigned, else its numbers; none if they are not kept
	tie      *tie           // with Assign
}

// tie is a tensor that Assign puts in the place of one that the model may have under several names.
type tie struct {
	name     string         // the first of them
	was      gotorch.Tensor // the model's: while it is alive, no other has its handle
	from     gotorch.Tensor // the state dict's
	assigned gotorch.Tensor
}

// shaped is a lazy module and the size that it gets.
type shaped struct {
	of   lazyModule
	size int64
}

type extra struct {
	of              ExtraState
	state, previous gotorch.Tensor
}

func (m *Module) load(dict StateDict, opt LoadOptions) (err error) {
	l := &loading{opt: opt, report: &LoadReport{}}
	if opt.Report != nil {
		l.report = opt.Report
	}
	walk(m.outer(), "", func(_ string, m Modular) bool {
		h := m.module().stateHooks
		_, hasMore := m.(ExtraState)
		l.eager = l.eager || h != nil && len(h.loadPost) > 0
		l.keep = l.keep || l.eager || hasMore
		return true
	})
	done := false
	defer func() { l.end(done) }() // also where a hook panics
	l.module(nil, m.outer(), "", dict)
	if err := l.err; err != nil {
		return err
	}
	if err := l.problems(m); err != nil {
		return err
	}
	if err := l.commit(); err != nil {
		return err
	}
	l.assignTied(m)
	for _, c := range l.copies {
		l.report.Loaded = append(l.report.Loaded, c.name)
	}
	done = true
	return nil
}

// problems returns what is wrong as a *StateDictError; nil where the options allow it.
func (l *loading) problems(m *Module) error {
	e := &StateDictError{Module: className(m.outer())}
	if !l.opt.Partial {
		e.Missing, e.Unexpected = l.report.Missing, l.report.Unexpected
	}
	if !l.opt.SkipMismatched {
		e.Mismatched = l.report.Mismatched
	}
	if len(e.Missing)+len(e.Unexpected)+len(e.Mismatched) == 0 {
		return nil
	}
	return e
}

// module looks at a module and those within. Each gets the part of the state dict that is its own, as its hooks
// may change it.
func (l *loading) module(above []*Module, m Modular, prefix string, dict StateDict) {
	above = append(above, notWithin(above, m, strings.TrimSuffix(prefix, ".")))
	h := m.module().stateHooks
	if h != nil {
		for _, hook := range h.loadPre {
			hook.fn(m, dict, prefix)
		}
	}
	shapes := l.lazyShapes(m, prefix, dict)
	own := map[string]bool{}
	for _, e := range ownState(m) {
		own[e.name] = true
		l.tensor(m, prefix+e.name, e, dict, shapes)
	}
	key := prefix + extraStateKey
	if x, ok := m.(ExtraState); ok {
		own[extraStateKey] = true
		switch state, ok := dict[key]; {
		case !ok:
			l.report.Missing = append(l.report.Missing, key)
		case !state.Defined():
			l.fail(typeError("nn.LoadStateDict", "the state dict's %q is the zero Tensor, or was closed", key))
		default:
			l.extras = append(l.extras, extra{of: x, state: state})
		}
	}
	if l.eager && l.err == nil {
		l.err = l.commit()
	}
	var children []string
	for e := range entries(m) {
		if e.child != nil {
			children = append(children, prefix+e.name+".")
		}
	}
	for _, name := range dict.Names() {
		rest, inside := strings.CutPrefix(name, prefix)
		if inside && !own[rest] && !slices.ContainsFunc(children, func(child string) bool { return strings.HasPrefix(name, child) }) {
			l.report.Unexpected = append(l.report.Unexpected, name)
		}
	}
	for e := range entries(m) {
		if e.child == nil {
			continue
		}
		part := StateDict{}
		for name, t := range dict {
			if strings.HasPrefix(name, prefix+e.name+".") {
				part[name] = t
			}
		}
		l.module(above, e.child, prefix+e.name+".", part)
	}
	if h != nil {
		for _, hook := range h.loadPost {
			hook.fn(m, &l.report.IncompatibleKeys)
		}
	}
}

func (l *loading) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// tensor looks at one tensor of a module.
func (l *loading) tensor(m Modular, name string, e entry, dict StateDict, shapes map[string][]int64) {
	to := *e.tensor
	from, ok := dict[name]
	if !ok {
		of, has := m.(interface{ optionalKeys() []string })
		if !has || !slices.Contains(of.optionalKeys(), e.name) {
			l.report.Missing = append(l.report.Missing, name)
		}
		return
	}
	if !from.Defined() {
		l.fail(typeError("nn.LoadStateDict", "the state dict's %q is the zero Tensor, or was closed", name))
		return
	}
	want, got := to.Shape(), from.Shape()
	if shape, ok := shapes[e.name]; ok {
		want = shape
	}
	if len(want) == 0 && len(got) == 1 && got[0] == 1 {
		from, got = from.Select(0, 0), want // as PyTorch 0.3 saved numbers
	}
	if !slices.Equal(want, got) {
		l.report.Mismatched = append(l.report.Mismatched, Mismatch{name, want, got})
		return
	}
	if want, got := to.DType(), from.DType(); want != got {
		l.report.Converted = append(l.report.Converted, Converted{name, want, got})
	}
	if err := l.copyable(name, to, from); err != nil {
		l.fail(err)
		return
	}
	// Copy_ may refuse these, for reasons that only it knows, when others are copied.
	l.keep = l.keep || !to.IsContiguous() || to.IsInference() || to.DType().IsQuantized() || from.DType().IsQuantized()
	l.copies = append(l.copies, copying{name: name, to: place{e, m.module()}, from: from})
}

// lazyShapes returns the shapes that a lazy module's tensors would get by a state dict, by their names.
func (l *loading) lazyShapes(m Modular, prefix string, dict StateDict) map[string][]int64 {
	lazy, ok := m.(lazyModule)
	if !ok || !lazy.isLazy() {
		return nil
	}
	size, ok := lazy.openSize(func(name string) []int64 {
		if t, ok := dict[prefix+name]; ok && t.Defined() {
			return t.Shape()
		}
		return nil
	})
	if !ok {
		return nil
	}
	shapes := map[string][]int64{}
	tried := Clone(m)
	tried.(lazyModule).materialize(size)
	for name, t := range tried.module().tensors(false, parameter, buffer) {
		shapes[name] = t.Shape()
		t.Close()
	}
	l.shapes = append(l.shapes, shaped{lazy, size})
	return shapes
}

// tie looks for tensors that the model has under several names, each of which Assign replaces by one tensor. It
// returns an error where the state dict has different values for the names of one.
func (l *loading) tie() error {
	if !l.opt.Assign {
		return nil
	}
	if l.ties == nil {
		l.ties = map[uintptr]*tie{}
	}
	for i := l.copied; i < len(l.copies); i++ {
		c := &l.copies[i]
		handle := uintptr(*c.to.tensor.T)
		if c.tie = l.ties[handle]; c.tie == nil {
			c.tie = &tie{name: c.name, was: *c.to.tensor, from: c.from}
			l.ties[handle] = c.tie
		} else if !sameValues(c.tie.from, c.from) {
			return args.ValueError("nn.LoadStateDict", "%q and %q are one tensor in the model, and have different values in the state dict: untie them in the model, or load without Assign, where the last one counts", c.tie.name, c.name)
		}
	}
	return nil
}

// sameValues reports whether two tensors have the same dtype, shape and values, NaN being one. What has no values is
// known by its dtype and shape alone.
func sameValues(x, y gotorch.Tensor) (same bool) {
	if x.T == y.T {
		return true
	}
	if x.DType() != y.DType() || x.Layout() != y.Layout() || !slices.Equal(x.Shape(), y.Shape()) {
		return false
	}
	if x.Device() == gotorch.Meta || y.Device() == gotorch.Meta {
		return x.Device() == y.Device()
	}
	err := gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			gotorch.NoGrad(func() {
				y := y.To(x.Device())
				if same = x.Equal(y); !same && (x.DType().IsFloatingPoint() || x.DType().IsComplex()) {
					same = gotorch.ToSlice[bool](x.Eq(y).LogicalOr(x.Ne(x).LogicalAnd(y.Ne(y))).All())[0]
				}
			})
		})
	})
	return err == nil && same
}

// assignTied gives the assigned tensors to those places as well for which the state dict had no name.
func (l *loading) assignTied(m *Module) {
	if len(l.ties) == 0 {
		return
	}
	for _, place := range m.places(false, parameter, buffer, transient) {
		if t := l.ties[uintptr(*place.tensor.T)]; t != nil {
			place.put(t.assigned)
		}
	}
	runtime.KeepAlive(l.ties)
}

// commit copies what was looked at and is not copied yet.
func (l *loading) commit() (err error) {
	if err := l.tie(); err != nil {
		return err
	}
	gotorch.NoGrad(func() {
		for ; l.shaped < len(l.shapes); l.shaped++ {
			l.shapes[l.shaped].of.materialize(l.shapes[l.shaped].size)
		}
		for ; l.copied < len(l.copies); l.copied++ {
			c := &l.copies[l.copied]
			if l.keep {
				if c.previous = *c.to.tensor; !l.opt.Assign {
					gotorch.Unscoped(func() { c.previous = c.previous.Detach().Clone() })
				}
			}
			c.take(l.opt.Assign)
			if l.opt.Assign {
				l.ties[uintptr(*c.tie.assigned.T)] = c.tie // a hook may have the module loaded again, under another name
			}
		}
		for l.set < len(l.extras) && err == nil {
			x := &l.extras[l.set]
			if previous := x.of.GetExtraState(); previous.Defined() {
				gotorch.Unscoped(func() { x.previous = previous.Detach().Clone() }) // it may be the module's own
			}
			l.set++
			err = x.of.SetExtraState(x.state)
		}
	})
	return err
}

// end frees what was kept, or puts it back if something failed.
func (l *loading) end(done bool) {
	gotorch.NoGrad(func() {
		for i := l.copied - 1; i >= 0; i-- { // backwards: a tensor may have been loaded twice, under two names
			c := &l.copies[i]
			switch {
			case c.previous.T == nil:
			case !l.opt.Assign:
				if !done {
					c.to.tensor.Copy_(c.previous)
				}
				c.previous.Close()
			case !done:
				c.to.put(c.previous)
			}
		}
		for i := l.shaped - 1; i >= 0 && !done; i-- {
			l.shapes[i].of.unshape()
		}
		for i := l.set - 1; i >= 0; i-- {
			switch x := l.extras[i]; {
			case !x.previous.Defined():
			case done:
				x.previous.Close()
			default:
				_ = x.of.SetExtraState(x.previous) // which it had before
			}
		}
	})
}

// take gives the model's tensor the numbers of another one, or puts that in its place.
func (c *copying) take(assign bool) {
	if !assign {
		c.to.tensor.Copy_(c.from)
		return
	}
	if c.tie.assigned.T == nil {
		gotorch.Unscoped(func() { c.tie.assigned = c.from.Detach() })
		if c.to.tensor.RequiresGrad() {
			c.tie.assigned.RequiresGrad_(true)
		}
	}
	c.to.put(c.tie.assigned)
}

// copyable returns an error where take would panic, when others are copied already, or do nothing.
func (l *loading) copyable(name string, to, from gotorch.Tensor) error {
	const op = "nn.LoadStateDict"
	if l.opt.Assign {
		if d := from.DType(); to.RequiresGrad() && !d.IsFloatingPoint() && !d.IsComplex() {
			return args.ValueError(op, "%q requires gradients in the model, and is %v in the state dict, which cannot: it cannot be assigned", name, d)
		}
		return nil
	}
	switch toMeta, fromMeta := to.Device() == gotorch.Meta, from.Device() == gotorch.Meta; {
	case to.Layout() != from.Layout():
		return args.ValueError(op, "%q is %v in the model and %v in the state dict", name, to.Layout(), from.Layout())
	case toMeta && !fromMeta:
		return args.ValueError(op, "%q of the model is on the device meta, where it has no memory: move the model with To first", name)
	case fromMeta && !toMeta:
		return args.ValueError(op, "%q of the state dict is on the device meta, and has no numbers", name)
	}
	return nil
}

// StateDictError says why a state dict does not fit a model.
type StateDictError struct {
	Module     string     // "Sequential"
	Missing    []string   // names that only the model has
	Unexpected []string   // names that only the state dict has
	Mismatched []Mismatch // tensors of other shapes
}

// Error lists everything in the words that PyTorch has for it.
func (e *StateDictError) Error() string {
	var lines []string
	if len(e.Missing) > 0 {
		lines = append(lines, "Missing key(s) in state_dict: "+quoted(e.Missing)+".")
	}
	if len(e.Unexpected) > 0 {
		lines = append(lines, "Unexpected key(s) in state_dict: "+quoted(e.Unexpected)+".")
	}
	for _, m := range e.Mismatched {
		lines = append(lines, fmt.Sprintf("size mismatch for %s: copying a param with shape %v from checkpoint, the shape in current model is %v.",
			m.Name, m.Got, m.Want))
	}
	return "Error(s) in loading state_dict for " + e.Module + ":\n\t" + strings.Join(lines, "\n\t")
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// Save writes the model's state to a file that [Load] and Python read: in the safetensors format if
// path ends in .safetensors, and as torch.save writes a state_dict if it ends in .pt, .pth, .bin or
// .ckpt. A file at path is replaced when the new one is complete, and not before.
func Save(m Modular, path string) error {
	if fileformat.Of(path) == fileformat.Archive {
		return gotorch.Save(path, orderedState(m))
	}
	return gotorch.SaveTensors(path, m.StateDict())
}

// orderedState returns the state in PyTorch's order.
func orderedState(m Modular) gotorch.Dict {
	var dict gotorch.Dict
	state, order := bind(m).state()
	for _, name := range order {
		dict = append(dict, gotorch.DictItem{Key: name, Value: state[name]})
	}
	return dict
}

// Encode writes what [Save] writes to a file of the format of torch.save to anywhere. For the safetensors format there is
// gotorch.EncodeSafetensors, which takes m.StateDict().
func Encode(w io.Writer, m Modular) error { return gotorch.Encode(w, "archive", orderedState(m)) }

// Load reads the model's state from a file: one of [Save], a safetensors file, the index of one in parts, or a file of
// torch.save that holds a state_dict. Whatever is beside the tensors there is left out; for a state_dict within a
// checkpoint there is gotorch.LoadAs. If names or shapes do not fit, it returns a *StateDictError and changes nothing.
func Load(m Modular, path string, opts ...LoadOptions) error {
	dict, err := gotorch.LoadTensors(path, gotorch.LoadOptions{Device: args.Option(opts).Device})
	if err != nil {
		return err
	}
	return loadAndClose(m, dict, opts)
}

// Decode is [Load] of what r has until its end, such as the body of an HTTP response: a file of [Encode] or torch.save, or a
// safetensors file. What has no places to read at, as a file has, is read into memory first.
func Decode(m Modular, r io.Reader, opts ...LoadOptions) error {
	at, size, err := readerAt(r)
	if err != nil {
		return err
	}
	dict, err := gotorch.DecodeTensors(at, size, gotorch.LoadOptions{Device: args.Option(opts).Device})
	if err != nil {
		return err
	}
	return loadAndClose(m, dict, opts)
}

// readerAt returns what r has not been read of, and its size.
func readerAt(r io.Reader) (io.ReaderAt, int64, error) {
	if file, ok := r.(interface {
		io.ReaderAt
		io.Seeker
	}); ok {
		if from, err := file.Seek(0, io.SeekCurrent); err == nil { // a pipe has none
			to, err := file.Seek(0, io.SeekEnd)
			if err != nil {
				return nil, 0, err
			}
			return io.NewSectionReader(file, from, to-from), to - from, nil
		}
	}
	data, err := io.ReadAll(r)
	return bytes.NewReader(data), int64(len(data)), err
}

func loadAndClose(m Modular, dict StateDict, opts []LoadOptions) error {
	defer func() {
		for _, t := range dict {
			t.Close()
		}
	}()
	return m.LoadStateDict(dict, opts...)
}
