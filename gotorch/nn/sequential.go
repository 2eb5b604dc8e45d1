package nn

import (
	"maps"
	"slices"
	"strconv"

	"gotorch.dev/gotorch"
)

// SequentialModule is what [Sequential] makes.
type SequentialModule struct {
	Module
	Layers []Layer `nn:",inline"`
}

// Sequential puts layers in a row: each gets what the one before made. They are named by their
// places, "0.weight". It panics with a TypeError if one is nil.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Sequential.html.
func Sequential(layers ...Layer) *SequentialModule {
	for i, layer := range layers {
		checkLayer(layer, i)
	}
	return Init(&SequentialModule{Layers: slices.Clone(layers)})
}

func checkLayer(layer Layer, i int) {
	if layer == nil || isNil(layer) {
		panic(typeError("nn.Sequential", "layer %d is nil, a %T", i, layer))
	}
}

// Append puts a layer behind the others. It panics with a TypeError if the layer is nil, or m is within it.
func (m *SequentialModule) Append(layer Layer) {
	checkLayer(layer, len(m.Layers))
	walkFrom([]*Module{&m.Module}, layer, strconv.Itoa(len(m.Layers)), func(string, Modular) bool { return true })
	m.Layers = append(m.Layers, layer)
}

// Forward sends x through all layers. What this package's own layers hand on to each other is freed at
// once; a layer of yours may keep what it gets and makes.
func (m *SequentialModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *SequentialModule) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return inRow(m.Layers, x)
}

// inRow sends x through layers.
func inRow(layers []Layer, x gotorch.Tensor) gotorch.Tensor {
	for rest := layers; len(rest) > 0; {
		n := 0
		for n < len(rest) && forgets(rest[n]) {
			n++
		}
		if n < 2 {
			n = 1
			x = Call(rest[0], x)
		} else {
			x = passOn(x, rest[:n])
		}
		rest = rest[n:]
	}
	return x
}

// passOn sends x through layers, and frees what is between them.
func passOn(x gotorch.Tensor, layers []Layer) gotorch.Tensor {
	if gotorch.GradEnabled() {
		// The collector has work with each tensor that belongs to a graph, and none in a scope.
		return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
			y := x
			for _, layer := range layers {
				y = layer.Forward(y)
			}
			return y
		})
	}
	y := x
	for _, layer := range layers {
		before := y
		if y = layer.Forward(before); y.T != before.T && before.T != x.T {
			before.Close()
		}
	}
	return y
}

// forgets reports whether a layer says that it keeps nothing of a call, and has no hooks, which may.
func forgets(layer Layer) bool {
	says, ok := layer.(KeepsNothing)
	return ok && bind(layer).hooks == nil && says.KeepsNothing()
}

// Forgets reports whether nothing keeps a tensor of a call of layer: it says so itself ([KeepsNothing]), and has no
// hooks, which may. Then what it makes on its way may be freed, as a gotorch.Scope around the call does. A layer
// of your own that is made of others says what they say:
//
//	func (b *Block) KeepsNothing() bool { return nn.Forgets(b.Conv) && nn.Forgets(b.Norm) }
//
// It panics with a TypeError if layer is nil.
func Forgets(layer Layer) bool { return forgets(layer) }

// KeepsNothing says whether none of the layers keeps a tensor: see [KeepsNothing].
func (m *SequentialModule) KeepsNothing() bool {
	return m.plain(m) && !slices.ContainsFunc(m.Layers, func(layer Layer) bool { return !forgets(layer) })
}

// NamedSequentialModule is what [NamedSequential] makes.
type NamedSequentialModule struct {
	ModuleDictModule

	forwards map[string]func(m Modular, x gotorch.Tensor) gotorch.Tensor // of SetFunc
}

// NamedSequential puts modules in a row as [Sequential] does, by names, as Python's Sequential does with an OrderedDict. They
// are called in the order in which they were set, and may be any module:
//
//	net := nn.NamedSequential().
//		Set("embed", nn.Embedding(100, 16)).
//		SetFunc("lstm", nn.LSTM(16, 32), func(m nn.Modular, x gotorch.Tensor) gotorch.Tensor {
//			y, _, _ := m.(*nn.LSTMModule).Forward(x)
//			return y
//		}).
//		Set("head", nn.Linear(32, 2))
//
// Names may be numbers, "0": then they are those of Python's Sequential of modules that are no [Layer].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Sequential.html.
func NamedSequential() *NamedSequentialModule { return Init(&NamedSequentialModule{}) }

func (m *NamedSequentialModule) className() string { return "Sequential" }

// Set sets the layer of a name, and returns m. It panics as [ModuleDictModule.Set] does.
func (m *NamedSequentialModule) Set(name string, layer Layer) *NamedSequentialModule {
	m.ModuleDictModule.Set(name, layer)
	m.setForward(name, nil)
	return m
}

// SetFunc sets a module that is no [Layer], as its Forward takes or returns something else, and how it is called. forward gets
// the module, which in a [Clone] of m is another one. It returns m, and panics as [ModuleDictModule.Set] does, also with a
// TypeError for a nil forward.
func (m *NamedSequentialModule) SetFunc(name string, module Modular, forward func(m Modular, x gotorch.Tensor) gotorch.Tensor) *NamedSequentialModule {
	if forward == nil {
		panic(typeError("nn.NamedSequential", "the function of module %q is nil", name))
	}
	m.ModuleDictModule.Set(name, module)
	m.setForward(name, forward)
	return m
}

// setForward makes a new map, as that of a clone is the same.
func (m *NamedSequentialModule) setForward(name string, forward func(m Modular, x gotorch.Tensor) gotorch.Tensor) {
	m.forwards = maps.Clone(m.forwards)
	if forward == nil {
		delete(m.forwards, name)
		return
	}
	if m.forwards == nil {
		m.forwards = map[string]func(m Modular, x gotorch.Tensor) gotorch.Tensor{}
	}
	m.forwards[name] = forward
}

// Forward sends x through all modules: see [SequentialModule.Forward]. It panics with a TypeError for a module that is no Layer
// and was not set by SetFunc.
func (m *NamedSequentialModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *NamedSequentialModule) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	var row []Layer
	for name, module := range m.All() {
		if forward := m.forwards[name]; forward != nil {
			x, row = forward(module, inRow(row, x)), nil
			continue
		}
		layer, is := module.(Layer)
		if !is {
			panic(typeError("nn.NamedSequential", "module %q, a %T, is no Layer: set it by SetFunc", name, module))
		}
		row = append(row, layer)
	}
	return inRow(row, x)
}

// KeepsNothing says whether none of the layers keeps a tensor: see [KeepsNothing].
func (m *NamedSequentialModule) KeepsNothing() bool {
	if !m.plain(m) || len(m.forwards) > 0 {
		return false
	}
	for _, module := range m.All() {
		if layer, is := module.(Layer); !is || !forgets(layer) {
			return false
		}
	}
	return true
}
