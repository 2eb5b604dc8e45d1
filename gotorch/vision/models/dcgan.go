package models

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/vision/internal/lean"
)

// DCGANGenerator makes images of noise: see [NewDCGANGenerator].
type DCGANGenerator struct {
	nn.Module
	Main nn.Layer
}

// DCGANDiscriminator says how likely an image is a real one: see [NewDCGANDiscriminator].
type DCGANDiscriminator struct {
	nn.Module
	Main nn.Layer
}

// DCGANOptions are the arguments of [NewDCGANGenerator] and [NewDCGANDiscriminator] that have defaults, by the
// names of PyTorch's example.
type DCGANOptions struct {
	NZ  gotorch.Scalar // numbers of noise for an image; default: 100. Only for the generator
	NGF gotorch.Scalar // channels of the generator at the full size; default: 64
	NDF gotorch.Scalar // channels of the discriminator at the full size; default: 64
	NC  gotorch.Scalar // channels of images; default: 3
}

func (o DCGANOptions) sizes(op string) (nz, ngf, ndf, nc int64) {
	nz, ngf, ndf, nc = args.Int(op, "NZ", o.NZ, 100), args.Int(op, "NGF", o.NGF, 64), args.Int(op, "NDF", o.NDF, 64), args.Int(op, "NC", o.NC, 3)
	if min(nz, ngf, ndf, nc) < 1 {
		panic(args.ValueError(op, "NZ, NGF, NDF and NC must be positive, got %d, %d, %d and %d", nz, ngf, ndf, nc))
	}
	return
}

// NewDCGANGenerator makes the generator of PyTorch's example dcgan, with its state dict ("main.0.weight") and its
// initial weights. It panics with a ValueError if a number is not positive.
//
// See https://docs.pytorch.org/tutorials/beginner/dcgan_faces_tutorial.html.
func NewDCGANGenerator(opts ...DCGANOptions) *DCGANGenerator {
	nz, ngf, _, nc := args.Option(opts).sizes("models.NewDCGANGenerator")
	up := func(in, out, stride, padding int64) nn.Layer {
		return nn.ConvTranspose2d(in, out, 4, nn.ConvTranspose2dOptions{Stride: []int64{stride}, Padding: []int64{padding}, NoBias: true})
	}
	m := nn.Init(&DCGANGenerator{Main: nn.Sequential(
		up(nz, 8*ngf, 1, 0), nn.BatchNorm2d(8*ngf), relu(),
		up(8*ngf, 4*ngf, 2, 1), nn.BatchNorm2d(4*ngf), relu(),
		up(4*ngf, 2*ngf, 2, 1), nn.BatchNorm2d(2*ngf), relu(),
		up(2*ngf, ngf, 2, 1), nn.BatchNorm2d(ngf), relu(),
		up(ngf, nc, 2, 1), nn.Tanh(),
	)})
	m.Apply(gan)
	return m
}

// NewDCGANDiscriminator makes the discriminator of PyTorch's example dcgan, with its state dict ("main.0.weight")
// and its initial weights. It panics with a ValueError if a number is not positive.
//
// See https://docs.pytorch.org/tutorials/beginner/dcgan_faces_tutorial.html.
func NewDCGANDiscriminator(opts ...DCGANOptions) *DCGANDiscriminator {
	_, _, ndf, nc := args.Option(opts).sizes("models.NewDCGANDiscriminator")
	down := func(in, out, stride, padding int64) nn.Layer {
		return nn.Conv2d(in, out, 4, nn.Conv2dOptions{Stride: []int64{stride}, Padding: []int64{padding}, NoBias: true})
	}
	leaky := func() nn.Layer { return nn.LeakyReLU(nn.LeakyReLUOptions{NegativeSlope: 0.2, InPlace: true}) }
	m := nn.Init(&DCGANDiscriminator{Main: nn.Sequential(
		down(nc, ndf, 2, 1), leaky(),
		down(ndf, 2*ndf, 2, 1), nn.BatchNorm2d(2*ndf), leaky(),
		down(2*ndf, 4*ndf, 2, 1), nn.BatchNorm2d(4*ndf), leaky(),
		down(4*ndf, 8*ndf, 2, 1), nn.BatchNorm2d(8*ndf), leaky(),
		down(8*ndf, 1, 1, 0), nn.Sigmoid(),
	)})
	m.Apply(gan)
	return m
}

// gan draws the weights of a layer as the example does.
func gan(m nn.Modular) {
	switch m := m.(type) {
	case *nn.Conv2dModule:
		nninit.Normal_(m.Weight, nninit.NormalOptions{Std: 0.02})
	case *nn.ConvTranspose2dModule:
		nninit.Normal_(m.Weight, nninit.NormalOptions{Std: 0.02})
	case *nn.BatchNorm2dModule:
		nninit.Normal_(m.Weight, nninit.NormalOptions{Mean: 1, Std: 0.02})
		nninit.Zeros_(m.Bias)
	}
}

// Forward returns images from -1 to 1 of noise: (N, NZ, 1, 1) → (N, NC, 64, 64).
func (m *DCGANGenerator) Forward(noise gotorch.Tensor) gotorch.Tensor {
	return lean.Run(lean.Forget(m.Main), func() gotorch.Tensor { return nn.Call(m.Main, noise) })
}

// Forward returns probabilities that images are real ones: (N, NC, 64, 64) → (N).
func (m *DCGANDiscriminator) Forward(images gotorch.Tensor) gotorch.Tensor {
	return lean.Run(lean.Forget(m.Main), func() gotorch.Tensor {
		return nn.Call(m.Main, images).Reshape([]int64{-1, 1}).SqueezeDim(1)
	})
}
