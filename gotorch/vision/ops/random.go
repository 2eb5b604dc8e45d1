package ops

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

func probability(op string, p float64) {
	if !(p >= 0 && p <= 1) {
		panic(args.ValueError(op, "drop probability has to be between 0 and 1, but got %v", p))
	}
}

// StochasticDepth drops rows of a batch while training, and makes the others larger: input (N, ...) → (N, ...). It
// drops with probability p, in mode "row" each row by itself, in mode "batch" all or none. It panics with a
// ValueError if p is no probability, or there is no such mode.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.stochastic_depth.html.
func StochasticDepth(input gotorch.Tensor, p float64, mode string, training bool) gotorch.Tensor {
	depth("ops.StochasticDepth", p, mode)
	if !training || p == 0 {
		return input
	}
	return scoped(func() gotorch.Tensor {
		size := slices.Repeat([]int64{1}, int(input.Dim()))
		if mode == "row" && len(size) > 0 {
			size[0] = input.Size(0)
		}
		survival := 1 - p
		noise := gotorch.Empty(size, gotorch.TensorOptions{DType: input.DType(), Device: input.Device()})
		noise.Bernoulli_(gotorch.Bernoulli_Options{P: &survival})
		if survival > 0 {
			noise.DivScalar_(survival)
		}
		return input.Mul(noise)
	})
}

func depth(op string, p float64, mode string) {
	probability(op, p)
	if mode != "batch" && mode != "row" {
		panic(args.ValueError(op, "mode has to be either 'batch' or 'row', but got %s", mode))
	}
}

// StochasticDepthModule is what [NewStochasticDepth] makes.
type StochasticDepthModule struct {
	nn.Module
	P    float64
	Mode string
}

// NewStochasticDepth makes a layer that calls [StochasticDepth].
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.StochasticDepth.html.
func NewStochasticDepth(p float64, mode string) *StochasticDepthModule {
	depth("ops.NewStochasticDepth", p, mode)
	return nn.Init(&StochasticDepthModule{P: p, Mode: mode})
}

// Forward returns x, (N, ...), some of whose rows are zeros. Outside of training it is x itself.
func (m *StochasticDepthModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	return StochasticDepth(x, m.P, m.Mode, m.Training())
}

// KeepsNothing says that Forward keeps no tensor.
func (m *StochasticDepthModule) KeepsNothing() bool { return true }

// ExtraRepr returns what String writes between the parentheses.
func (m *StochasticDepthModule) ExtraRepr() string {
	return fmt.Sprintf("p=%s, mode=%s", pyFloat(m.P), m.Mode)
}

// DropBlockOptions are the arguments of [DropBlock2d] and [DropBlock3d] that have defaults, and of their modules.
type DropBlockOptions struct {
	InPlace bool           // change what it gets
	Eps     gotorch.Scalar // added to what is divided by; default: 1e-6
}

// dropBlock is for as many directions as input has behind its channels.
func dropBlock(op string, input gotorch.Tensor, directions int, p float64, block int64, training bool, opt DropBlockOptions) gotorch.Tensor {
	eps := args.Float(op, "Eps", opt.Eps, 1e-6)
	probability(op, p)
	shape := input.Shape()
	if len(shape) != directions+2 {
		panic(args.ValueError(op, "input should be %d dimensional. Got %d dimensions.", directions+2, len(shape)))
	}
	if !training || p == 0 {
		return input
	}
	block = min(block, slices.Min(shape[2:]))
	if block%2 == 0 || block < 1 {
		panic(args.ValueError(op, "block size should be odd. Got %d which is even.", block))
	}
	drop := func() gotorch.Tensor {
		size := slices.Clone(shape)
		gamma, places := p, 1.0
		for i := 2; i < len(size); i++ {
			gamma *= float64(shape[i])
			size[i] -= block - 1
			places *= float64(size[i])
		}
		blocks := 1.0
		for range directions {
			blocks *= float64(block)
		}
		gamma /= blocks * places
		noise := gotorch.Empty(size, gotorch.TensorOptions{DType: input.DType(), Device: input.Device()})
		noise.Bernoulli_(gotorch.Bernoulli_Options{P: &gamma})
		noise = F.Pad(noise, slices.Repeat([]int64{block / 2}, 2*directions))
		if directions == 2 {
			noise = F.MaxPool2d(noise, []int64{block}, F.MaxPool2dOptions{Stride: []int64{1}, Padding: []int64{block / 2}})
		} else {
			noise = F.MaxPool3d(noise, []int64{block}, F.MaxPool3dOptions{Stride: []int64{1}, Padding: []int64{block / 2}})
		}
		noise = noise.Neg().AddScalar(1)
		scale := noise.Sum().AddScalar(eps).Reciprocal().MulScalar(noise.Numel())
		if opt.InPlace {
			return input.Mul_(noise).Mul_(scale)
		}
		return input.Mul(noise).Mul(scale)
	}
	if opt.InPlace {
		gotorch.Scope0(func(*gotorch.ScopeHandle) { drop() })
		return input
	}
	return scoped(drop)
}

// DropBlock2d drops square blocks of maps while training, and makes the rest larger: (N, C, H, W) → (N, C, H, W).
// p is the part that is dropped, blockSize the side of a block, an odd number; it is no more than the map's sides.
// It panics with a ValueError if p is no probability, for another number of dimensions, and for a side that is even.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.drop_block2d.html.
func DropBlock2d(input gotorch.Tensor, p float64, blockSize int64, training bool, opts ...DropBlockOptions) gotorch.Tensor {
	return dropBlock("ops.DropBlock2d", input, 2, p, blockSize, training, args.Option(opts))
}

// DropBlock3d is [DropBlock2d] of volumes: (N, C, D, H, W) → (N, C, D, H, W).
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.drop_block3d.html.
func DropBlock3d(input gotorch.Tensor, p float64, blockSize int64, training bool, opts ...DropBlockOptions) gotorch.Tensor {
	return dropBlock("ops.DropBlock3d", input, 3, p, blockSize, training, args.Option(opts))
}

// DropBlock2dModule is what [NewDropBlock2d] makes.
type DropBlock2dModule struct {
	nn.Module
	P         float64
	BlockSize int64
	InPlace   bool
	Eps       float64
}

// NewDropBlock2d makes a layer that calls [DropBlock2d].
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.DropBlock2d.html.
func NewDropBlock2d(p float64, blockSize int64, opts ...DropBlockOptions) *DropBlock2dModule {
	opt := args.Option(opts)
	return nn.Init(&DropBlock2dModule{P: p, BlockSize: blockSize, InPlace: opt.InPlace, Eps: args.Float("ops.NewDropBlock2d", "Eps", opt.Eps, 1e-6)})
}

// Forward returns x, (N, C, H, W), some of whose blocks are zeros. Outside of training it is x itself.
func (m *DropBlock2dModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	return DropBlock2d(x, m.P, m.BlockSize, m.Training(), DropBlockOptions{InPlace: m.InPlace, Eps: m.Eps})
}

// KeepsNothing says that Forward keeps no tensor.
func (m *DropBlock2dModule) KeepsNothing() bool { return true }

// ExtraRepr returns what String writes between the parentheses.
func (m *DropBlock2dModule) ExtraRepr() string {
	return fmt.Sprintf("p=%s, block_size=%d, inplace=%s", pyFloat(m.P), m.BlockSize, pyBool(m.InPlace))
}

// DropBlock3dModule is what [NewDropBlock3d] makes.
type DropBlock3dModule struct {
	nn.Module
	P         float64
	BlockSize int64
	InPlace   bool
	Eps       float64
}

// NewDropBlock3d makes a layer that calls [DropBlock3d].
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.DropBlock3d.html.
func NewDropBlock3d(p float64, blockSize int64, opts ...DropBlockOptions) *DropBlock3dModule {
	opt := args.Option(opts)
	return nn.Init(&DropBlock3dModule{P: p, BlockSize: blockSize, InPlace: opt.InPlace, Eps: args.Float("ops.NewDropBlock3d", "Eps", opt.Eps, 1e-6)})
}

// Forward returns x, (N, C, D, H, W), some of whose blocks are zeros. Outside of training it is x itself.
func (m *DropBlock3dModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	return DropBlock3d(x, m.P, m.BlockSize, m.Training(), DropBlockOptions{InPlace: m.InPlace, Eps: m.Eps})
}

// KeepsNothing says that Forward keeps no tensor.
func (m *DropBlock3dModule) KeepsNothing() bool { return true }

// ExtraRepr returns what String writes between the parentheses.
func (m *DropBlock3dModule) ExtraRepr() string {
	return fmt.Sprintf("p=%s, block_size=%d, inplace=%s", pyFloat(m.P), m.BlockSize, pyBool(m.InPlace))
}
