package models

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/vision/internal/lean"
)

// UNet labels each place of an image: see [NewUNet].
type UNet struct {
	nn.Module
	Inc                        *DoubleConv
	Down1, Down2, Down3, Down4 *UNetDown
	Up1, Up2, Up3, Up4         *UNetUp
	OutC                       *UNetOut `nn:"outc"`
}

// UNetOptions are the arguments of [NewUNet] that have defaults.
type UNetOptions struct {
	Bilinear bool // make images larger by interpolation, which has no weights, rather than by a transposed convolution
}

// DoubleConv is two 3×3 convolutions, each with batch normalisation and ReLU: "double_conv.0" to "double_conv.5".
type DoubleConv struct {
	nn.Module
	DoubleConv nn.Layer
}

// UNetDown halves the size of images: "maxpool_conv.1.double_conv.0", ...
type UNetDown struct {
	nn.Module
	MaxPoolConv nn.Layer `nn:"maxpool_conv"`
}

// UNetUp doubles the size of images, and joins them with those from before they were halved.
type UNetUp struct {
	nn.Module
	Up   nn.Layer
	Conv *DoubleConv
}

// UNetOut is a 1×1 convolution, "conv".
type UNetOut struct {
	nn.Module
	Conv nn.Layer
}

// NewUNet makes a U-Net of channels in to classes out, with 64 to 1024 channels within. torchvision has none: the
// architecture and the names of the state dict ("inc.double_conv.0.weight", "up1.up.weight") are those of the
// repository milesial/Pytorch-UNet, whose weights are the most used. Initial values are the layers' own. It
// panics with a ValueError if a number is not positive.
func NewUNet(channels, classes int64, opts ...UNetOptions) *UNet {
	opt := args.Option(opts)
	if channels < 1 || classes < 1 {
		panic(args.ValueError("models.NewUNet", "channels and classes must be positive, got %d and %d", channels, classes))
	}
	factor := int64(1)
	if opt.Bilinear {
		factor = 2
	}
	m := &UNet{}
	m.Inc = newDoubleConv(channels, 64, 64)
	m.Down1 = newUNetDown(64, 128)
	m.Down2 = newUNetDown(128, 256)
	m.Down3 = newUNetDown(256, 512)
	m.Down4 = newUNetDown(512, 1024/factor)
	m.Up1 = newUNetUp(1024, 512/factor, opt.Bilinear)
	m.Up2 = newUNetUp(512, 256/factor, opt.Bilinear)
	m.Up3 = newUNetUp(256, 128/factor, opt.Bilinear)
	m.Up4 = newUNetUp(128, 64, opt.Bilinear)
	m.OutC = nn.Init(&UNetOut{Conv: nn.Conv2d(64, classes, 1)})
	return nn.Init(m)
}

func newDoubleConv(in, mid, out int64) *DoubleConv {
	conv := func(in, out int64) nn.Layer {
		return nn.Conv2d(in, out, 3, nn.Conv2dOptions{Padding: []int64{1}, NoBias: true})
	}
	return nn.Init(&DoubleConv{DoubleConv: nn.Sequential(
		conv(in, mid), nn.BatchNorm2d(mid), relu(), conv(mid, out), nn.BatchNorm2d(out), relu())})
}

func newUNetDown(in, out int64) *UNetDown {
	return nn.Init(&UNetDown{MaxPoolConv: nn.Sequential(nn.MaxPool2d(2), newDoubleConv(in, out, out))})
}

func newUNetUp(in, out int64, bilinear bool) *UNetUp {
	if bilinear {
		return nn.Init(&UNetUp{Up: nn.Upsample(nn.UpsampleOptions{ScaleFactor: []float64{2}, Mode: "bilinear", AlignCorners: true}),
			Conv: newDoubleConv(in, in/2, out)})
	}
	return nn.Init(&UNetUp{Up: nn.ConvTranspose2d(in, in/2, 2, nn.ConvTranspose2dOptions{Stride: []int64{2}}),
		Conv: newDoubleConv(in, out, out)})
}

// Forward returns what the convolutions make of x.
func (m *DoubleConv) Forward(x gotorch.Tensor) gotorch.Tensor { return nn.Call(m.DoubleConv, x) }

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *DoubleConv) KeepsNothing() bool { return lean.Forget(m.DoubleConv) }

// Forward returns images of half the size: (N, C, H, W) → (N, C', H/2, W/2).
func (m *UNetDown) Forward(x gotorch.Tensor) gotorch.Tensor { return nn.Call(m.MaxPoolConv, x) }

// KeepsNothing says whether none of the layers keeps a tensor: see [nn.KeepsNothing].
func (m *UNetDown) KeepsNothing() bool { return lean.Forget(m.MaxPoolConv) }

// Forward makes x as large as before, with zeros at its edges where that was odd, and joins the two.
func (m *UNetUp) Forward(x, before gotorch.Tensor) gotorch.Tensor {
	return lean.Run(lean.Forget(m.Up, m.Conv), func() gotorch.Tensor {
		x := nn.Call(m.Up, x)
		h, w := before.Size(2)-x.Size(2), before.Size(3)-x.Size(3)
		x = F.Pad(x, []int64{w / 2, w - w/2, h / 2, h - h/2})
		return nn.Call(m.Conv, gotorch.Cat([]gotorch.Tensor{before, x}, gotorch.CatOptions{Dim: 1}))
	})
}

// Forward returns the logits of each place.
func (m *UNetOut) Forward(x gotorch.Tensor) gotorch.Tensor { return nn.Call(m.Conv, x) }

// Forward returns the logits of each place of images: (N, channels, H, W) → (N, classes, H, W), H and W at least
// 16. It panics with a ValueError for images that are smaller or have no batch.
func (m *UNet) Forward(x gotorch.Tensor) gotorch.Tensor {
	if x.Dim() != 4 || min(x.Size(2), x.Size(3)) < 16 {
		panic(args.ValueError("models.UNet", "expected images (N, channels, H, W) with H and W at least 16, got shape %v", x.Shape()))
	}
	x1 := nn.Call(m.Inc, x)
	x2 := nn.Call(m.Down1, x1)
	x3 := nn.Call(m.Down2, x2)
	x4 := nn.Call(m.Down3, x3)
	x = m.Up1.Forward(nn.Call(m.Down4, x4), x4)
	return nn.Call(m.OutC, m.Up4.Forward(m.Up3.Forward(m.Up2.Forward(x, x3), x2), x1))
}
