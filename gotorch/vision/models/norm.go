package models

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/vision/internal/lean"
)

// LayerNorm2d is layer normalisation over the channels of images: see [NewLayerNorm2d].
type LayerNorm2d struct{ nn.LayerNormModule }

// NewLayerNorm2d makes a layer for images of so many channels, with eps added to the variance: the norm of
// [ConvNeXt].
func NewLayerNorm2d(channels int64, eps float64) *LayerNorm2d {
	m := &LayerNorm2d{}
	m.NormalizedShape, m.Eps = []int64{channels}, eps
	m.Weight, m.Bias = gotorch.Ones([]int64{channels}), gotorch.Zeros([]int64{channels})
	return nn.Init(m)
}

// Forward normalises each place of x, (N, C, H, W).
func (m *LayerNorm2d) Forward(x gotorch.Tensor) gotorch.Tensor {
	return lean.Run(true, func() gotorch.Tensor {
		x := F.LayerNorm(x.Permute([]int64{0, 2, 3, 1}), m.NormalizedShape, F.LayerNormOptions{Weight: m.Weight, Bias: m.Bias, Eps: m.Eps})
		return x.Permute([]int64{0, 3, 1, 2})
	})
}

// KeepsNothing says that Forward keeps no tensor.
func (m *LayerNorm2d) KeepsNothing() bool { return true }
