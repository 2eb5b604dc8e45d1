package nn

import "gotorch.dev/gotorch"

// SequentialModule is what [Sequential] makes.
type SequentialModule struct {
	Module
	Layers []Layer `nn:",inline"`
}

// Sequential puts layers in a row: each gets what the one before made. They are named by their
// places, "0.weight".
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Sequential.html.
func Sequential(layers ...Layer) *SequentialModule {
	return Init(&SequentialModule{Layers: layers})
}

// Append puts a layer behind the others.
func (m *SequentialModule) Append(layer Layer) {
	bind(layer)
	m.Layers = append(m.Layers, layer)
}

// Forward sends x through all layers.
func (m *SequentialModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	for _, layer := range m.Layers {
		x = layer.Forward(x)
	}
	return x
}
