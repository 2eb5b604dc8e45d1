package nn

import (
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
	for rest := m.Layers; len(rest) > 0; {
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
