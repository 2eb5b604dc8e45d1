package nn

import (
	"fmt"
	"maps"
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

// StateDict returns the model's parameters and buffers, without transient ones. The tensors share
// memory with the model: what is done to it afterwards, they see.
func (m *Module) StateDict() StateDict {
	dict := StateDict{}
	for name, t := range m.tensors(false, parameter, buffer) {
		dict[name] = t.Detach()
	}
	return dict
}

// LoadOptions are the arguments of [Module.LoadStateDict] and [Load] that have defaults.
type LoadOptions struct {
	// Partial is PyTorch's strict=False: names that only the model or only the state dict has are
	// left alone.
	Partial bool
	// Rename gives the model's name for each name of the state dict, where they differ: for a model that
	// was wrapped, strip "module.". Default: they are the same. Two names that become one are an error of
	// kind ValueError.
	Rename func(name string) string
	// Device receives the tensors of a file before they are copied into the model's, which stay where
	// they are. Default: the CPU. Only [Load] reads a file.
	Device gotorch.Device
}

// LoadStateDict copies tensors into the model's parameters and buffers of the same names, converting
// dtypes and devices. Where names or shapes do not fit it returns a *StateDictError that lists all that
// is wrong, and a *gotorch.Error for a tensor that cannot be copied: one that is closed, sparse where the
// model's is not, or without memory (gotorch.Meta). Then it changes nothing.
func (m *Module) LoadStateDict(dict StateDict, opts ...LoadOptions) error {
	opt := args.Option(opts)
	partial := opt.Partial
	dict, err := dict.renamed(opt.Rename)
	if err != nil {
		return err
	}
	m.outer()
	loaded, err := gotorch.Try(func() error { return m.load(m.brought(dict), partial) })
	if err != nil {
		return err
	}
	return loaded
}

// renamed returns the state dict under other names.
func (d StateDict) renamed(rename func(string) string) (StateDict, error) {
	if rename == nil {
		return d, nil
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

func (m *Module) load(dict StateDict, partial bool) error {
	problems := &StateDictError{Module: className(m.outer())}
	own := map[string]bool{}
	optional := map[string]bool{}
	walk(m.outer(), "", func(prefix string, m Modular) bool {
		if m, ok := m.(interface{ optionalKeys() []string }); ok {
			for _, key := range m.optionalKeys() {
				optional[join(prefix, key)] = true
			}
		}
		return true
	})
	type copying struct{ to, from gotorch.Tensor }
	var copies []copying
	shapes, materialize := m.lazyShapes(dict)
	for name, to := range m.tensors(false, parameter, buffer) {
		own[name] = true
		from, ok := dict[name]
		if !ok {
			if !partial && !optional[name] {
				problems.Missing = append(problems.Missing, name)
			}
			continue
		}
		if !from.Defined() {
			return typeError("nn.LoadStateDict", "the state dict's %q is the zero Tensor, or was closed", name)
		}
		want, got := to.Shape(), from.Shape()
		if shape, ok := shapes[name]; ok {
			want = shape
		}
		if len(want) == 0 && len(got) == 1 && got[0] == 1 {
			from, got = from.Select(0, 0), want // as PyTorch 0.3 saved numbers
		}
		if !slices.Equal(want, got) {
			problems.Mismatched = append(problems.Mismatched, Mismatch{name, want, got})
			continue
		}
		if err := copyable(name, to, from); err != nil {
			return err
		}
		copies = append(copies, copying{to, from})
	}
	if !partial {
		for _, name := range dict.Names() {
			if !own[name] {
				problems.Unexpected = append(problems.Unexpected, name)
			}
		}
	}
	if len(problems.Missing)+len(problems.Unexpected)+len(problems.Mismatched) > 0 {
		return problems
	}
	gotorch.NoGrad(func() {
		for _, make := range materialize {
			make()
		}
		for _, c := range copies {
			c.to.Copy_(c.from)
		}
	})
	return nil
}

// lazyShapes returns the shapes that tensors of lazy modules would get by a state dict, and what makes them.
func (m *Module) lazyShapes(dict StateDict) (shapes map[string][]int64, materialize []func()) {
	shapes = map[string][]int64{}
	walk(m.outer(), "", func(prefix string, m Modular) bool {
		lazy, ok := m.(lazyModule)
		if !ok || !lazy.isLazy() {
			return true
		}
		size, ok := lazy.openSize(func(name string) []int64 {
			if t, ok := dict[join(prefix, name)]; ok && t.Defined() {
				return t.Shape()
			}
			return nil
		})
		if !ok {
			return true
		}
		tried := Clone(m)
		tried.(lazyModule).materialize(size)
		for name, t := range tried.module().tensors(false, parameter, buffer) {
			shapes[join(prefix, name)] = t.Shape()
			t.Close()
		}
		materialize = append(materialize, func() { lazy.materialize(size) })
		return true
	})
	return shapes, materialize
}

// copyable returns an error where Copy_ would panic, when others are copied already, or do nothing.
func copyable(name string, to, from gotorch.Tensor) error {
	const op = "nn.LoadStateDict"
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

// Mismatch is a tensor that has another shape in the model than in the state dict.
type Mismatch struct {
	Name      string
	Want, Got []int64 // the model's shape and the state dict's
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
	for name, t := range bind(m).tensors(false, parameter, buffer) {
		dict = append(dict, gotorch.DictItem{Key: name, Value: t.Detach()})
	}
	return dict
}

// Load reads the model's state from a file: one of [Save], a safetensors file, the index of one in parts,
// or a state_dict saved by torch.save. If names or shapes do not fit, it returns a *StateDictError and changes nothing.
func Load(m Modular, path string, opts ...LoadOptions) error {
	dict, err := gotorch.LoadTensors(path, gotorch.LoadOptions{Device: args.Option(opts).Device})
	if err != nil {
		return err
	}
	defer func() {
		for _, t := range dict {
			t.Close()
		}
	}()
	return m.LoadStateDict(dict, opts...)
}
