package nn

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// UpsampleModule is what [Upsample], [UpsamplingNearest2d] and [UpsamplingBilinear2d] make.
type UpsampleModule struct {
	Module
	Size                 []int64
	ScaleFactor          []float64
	Mode                 F.InterpolateMode
	AlignCorners         gotorch.Scalar // a bool, or nil
	RecomputeScaleFactor bool

	class string
}

// UpsampleOptions are the arguments of [Upsample] that have defaults: either Size or ScaleFactor must be
// given. Lists have one element for all directions, or one for each.
type UpsampleOptions struct {
	Size                 []int64           // of the result, without N and C
	ScaleFactor          []float64         // of the result's size to the input's
	Mode                 F.InterpolateMode // default: F.InterpolateNearest
	AlignCorners         gotorch.Scalar    // a bool: the corners of input and result are the centres of their elements
	RecomputeScaleFactor bool              // go by the sizes, rounded down, rather than by ScaleFactor
}

// Upsample resizes sequences, pictures or volumes: (N, C, ...) → (N, C, ...). What contradicts itself is refused
// by Forward, as F.Interpolate does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Upsample.html.
func Upsample(opts ...UpsampleOptions) *UpsampleModule {
	return upsample("Upsample", args.Option(opts))
}

func upsample(class string, opt UpsampleOptions) *UpsampleModule {
	if opt.Mode == "" {
		opt.Mode = F.InterpolateNearest
	}
	return Init(&UpsampleModule{Size: slices.Clone(opt.Size), ScaleFactor: slices.Clone(opt.ScaleFactor), Mode: opt.Mode,
		AlignCorners: opt.AlignCorners, RecomputeScaleFactor: opt.RecomputeScaleFactor, class: class})
}

// UpsamplingNearest2dOptions are the arguments of [UpsamplingNearest2d]: either must be given.
type UpsamplingNearest2dOptions struct {
	Size        []int64   // of the result, without N and C
	ScaleFactor []float64 // of the result's size to the input's
}

// UpsamplingNearest2d is [Upsample] of pictures that takes the nearest element.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.UpsamplingNearest2d.html.
func UpsamplingNearest2d(opts ...UpsamplingNearest2dOptions) *UpsampleModule {
	opt := args.Option(opts)
	return upsample("UpsamplingNearest2d", UpsampleOptions{Size: opt.Size, ScaleFactor: opt.ScaleFactor})
}

// UpsamplingBilinear2dOptions are the arguments of [UpsamplingBilinear2d]: either must be given.
type UpsamplingBilinear2dOptions struct {
	Size        []int64   // of the result, without N and C
	ScaleFactor []float64 // of the result's size to the input's
}

// UpsamplingBilinear2d is [Upsample] of pictures by bilinear interpolation, with the corners aligned.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.UpsamplingBilinear2d.html.
func UpsamplingBilinear2d(opts ...UpsamplingBilinear2dOptions) *UpsampleModule {
	opt := args.Option(opts)
	return upsample("UpsamplingBilinear2d", UpsampleOptions{Size: opt.Size, ScaleFactor: opt.ScaleFactor, Mode: F.InterpolateBilinear, AlignCorners: true})
}

// Forward returns F.Interpolate of x.
func (m *UpsampleModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *UpsampleModule) forward(x gotorch.Tensor) gotorch.Tensor {
	return F.Interpolate(x, F.InterpolateOptions{Size: m.Size, ScaleFactor: m.ScaleFactor, Mode: m.Mode,
		AlignCorners: m.AlignCorners, RecomputeScaleFactor: m.RecomputeScaleFactor})
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *UpsampleModule) KeepsNothing() bool { return m.plain(m) }

func (m *UpsampleModule) className() string { return m.class }

// ExtraRepr returns what String writes between the parentheses.
func (m *UpsampleModule) ExtraRepr() string {
	info := "size=" + pyOptionalInts(m.Size)
	if m.ScaleFactor != nil {
		info = "scale_factor=" + pyFloats(m.ScaleFactor)
	}
	return info + ", mode=" + pyQuoted(m.Mode)
}
