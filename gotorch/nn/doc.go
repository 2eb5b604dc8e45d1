// Package nn builds models: layers with PyTorch's options, initial values and names, and modules of
// your own made of them.
//
// The constructors read as in PyTorch, and what can be put in a row can be put in a [Sequential]:
//
//	model := nn.Sequential(
//		nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
//		nn.Linear(32*13*13, 10, nn.LinearOptions{NoBias: true}),
//	)
//	y := model.Forward(x)
//
// A module of your own is a struct that embeds [Module]. Its exported fields that are tensors are
// its parameters, those that are modules its children, in slices and maps too; [Init] finds them:
//
//	type Net struct {
//		nn.Module
//		Conv1 *nn.Conv2dModule
//		Scale gotorch.Tensor
//	}
//
//	func NewNet() *Net {
//		return nn.Init(&Net{Conv1: nn.Conv2d(1, 32, 3), Scale: gotorch.Ones([]int64{1})})
//	}
//
//	func (n *Net) Forward(x gotorch.Tensor) gotorch.Tensor { return n.Conv1.Forward(x).Mul(n.Scale) }
//
// Their names are the fields' in snake case, "conv1.weight", so that state dicts go to PyTorch and
// back; see [Init] for tags that change them. [Save] and [Load] know .safetensors and .pt files.
//
// Layers are in files by family: activation, attention, containers, convolution, distance, dropout, embedding,
// fold, linear, loss, normalization, padding, pooling, recurrent, shape, shuffle, transformer, vision; those that
// follow from PyTorch's signatures are in files that end in _gen.go. [Func] makes a layer of a function,
// [Call] calls a module with its hooks ([Module.RegisterForwardHook]), [Clone] copies one with its tensors. The
// lazy ones ([LazyLinear], [LazyConv2d], ...) find the number of their inputs themselves.
package nn
