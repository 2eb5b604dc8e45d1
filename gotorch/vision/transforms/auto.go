package transforms

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/vision/transforms/functional"
)

// operation is one of those that policies are made of.
type operation struct {
	name string
	// magnitudes are how strong it may be, in bins, on an image of h×w; nil where it has no strength.
	magnitudes func(bins, h, w int64) gotorch.Tensor
	signed     bool
	apply      func(image gotorch.Tensor, m float64, mode F.Interpolation, fill []float64) gotorch.Tensor
}

func upTo(most float64) func(bins, h, w int64) gotorch.Tensor {
	return func(bins, _, _ int64) gotorch.Tensor { return gotorch.Linspace(0.0, most, bins) }
}

// fewerBits are bits from most on, fewer by so many at the end.
func fewerBits(most, fewer float64) func(bins, h, w int64) gotorch.Tensor {
	return func(bins, _, _ int64) gotorch.Tensor {
		return gotorch.Arange(bins).DivScalar(float64(bins-1) / fewer).Neg().AddScalar(most).Round()
	}
}

// What the operations do with an image.
var (
	shearX = func(t gotorch.Tensor, m float64, mode F.Interpolation, fill []float64) gotorch.Tensor {
		o := F.AffineOptions{Interpolation: mode, Fill: fill, Center: []float64{0, 0}}
		return F.Affine(t, 0, []float64{0, 0}, 1, []float64{degrees(math.Atan(m)), 0}, o)
	}
	shearY = func(t gotorch.Tensor, m float64, mode F.Interpolation, fill []float64) gotorch.Tensor {
		o := F.AffineOptions{Interpolation: mode, Fill: fill, Center: []float64{0, 0}}
		return F.Affine(t, 0, []float64{0, 0}, 1, []float64{0, degrees(math.Atan(m))}, o)
	}
	translateX = func(t gotorch.Tensor, m float64, mode F.Interpolation, fill []float64) gotorch.Tensor {
		return F.Affine(t, 0, []float64{math.Trunc(m), 0}, 1, []float64{0, 0}, F.AffineOptions{Interpolation: mode, Fill: fill})
	}
	translateY = func(t gotorch.Tensor, m float64, mode F.Interpolation, fill []float64) gotorch.Tensor {
		return F.Affine(t, 0, []float64{0, math.Trunc(m)}, 1, []float64{0, 0}, F.AffineOptions{Interpolation: mode, Fill: fill})
	}
	rotate = func(t gotorch.Tensor, m float64, mode F.Interpolation, fill []float64) gotorch.Tensor {
		return F.Rotate(t, m, F.RotateOptions{Interpolation: mode, Fill: fill})
	}
	posterize = func(t gotorch.Tensor, m float64, _ F.Interpolation, _ []float64) gotorch.Tensor {
		return F.Posterize(t, int64(m))
	}
	solarize = func(t gotorch.Tensor, m float64, _ F.Interpolation, _ []float64) gotorch.Tensor {
		return F.Solarize(t, F.MaxValue(t.DType())*m)
	}
)

// degrees are an angle's in radians; C divides 180 by π and rounds first.
func degrees(radians float64) float64 { return radians * (180 / float64(math.Pi)) }

// more is a factor of 1 and the magnitude.
func more(adjust func(gotorch.Tensor, float64) gotorch.Tensor) func(gotorch.Tensor, float64, F.Interpolation, []float64) gotorch.Tensor {
	return func(t gotorch.Tensor, m float64, _ F.Interpolation, _ []float64) gotorch.Tensor {
		return adjust(t, 1+m)
	}
}

func plain(fn func(gotorch.Tensor) gotorch.Tensor) func(gotorch.Tensor, float64, F.Interpolation, []float64) gotorch.Tensor {
	return func(t gotorch.Tensor, _ float64, _ F.Interpolation, _ []float64) gotorch.Tensor { return fn(t) }
}

// operations are those of a policy, in torchvision's order: a random number says which.
func operations(shear, move, turn, strength, bits, fewer float64, moves func(side int64) float64) []operation {
	if moves == nil {
		moves = func(int64) float64 { return move }
	}
	return []operation{
		{"ShearX", upTo(shear), true, shearX},
		{"ShearY", upTo(shear), true, shearY},
		{"TranslateX", func(bins, _, w int64) gotorch.Tensor { return gotorch.Linspace(0.0, moves(w), bins) }, true, translateX},
		{"TranslateY", func(bins, h, _ int64) gotorch.Tensor { return gotorch.Linspace(0.0, moves(h), bins) }, true, translateY},
		{"Rotate", upTo(turn), true, rotate},
		{"Brightness", upTo(strength), true, more(F.AdjustBrightness)},
		{"Color", upTo(strength), true, more(F.AdjustSaturation)},
		{"Contrast", upTo(strength), true, more(F.AdjustContrast)},
		{"Sharpness", upTo(strength), true, more(F.AdjustSharpness)},
		{"Posterize", fewerBits(bits, fewer), false, posterize},
		{"Solarize", func(bins, _, _ int64) gotorch.Tensor { return gotorch.Linspace(1.0, 0.0, bins) }, false, solarize},
		{"AutoContrast", nil, false, plain(F.AutoContrast)},
		{"Equalize", nil, false, plain(F.Equalize)},
	}
}

var (
	identity = operation{"Identity", nil, false, plain(func(t gotorch.Tensor) gotorch.Tensor { return t })}
	inverted = operation{"Invert", nil, false, plain(F.Invert)}

	ofImageNet = operations(0.3, 0, 30, 0.9, 8, 4, func(side int64) float64 { return 150.0 / float64(331) * float64(side) })
	ofRand     = append([]operation{identity}, ofImageNet...)
	ofAuto     = append(append([]operation(nil), ofImageNet...), inverted)
	ofTrivial  = append([]operation{identity}, operations(0.99, 32, 135, 0.99, 8, 6, nil)...)
	ofMix      = func() []operation {
		all := operations(0.3, 0, 30, 0.9, 4, 4, func(side int64) float64 { return float64(side) / 3 })
		return append(append(append([]operation(nil), all[:5]...), all[9:]...), all[5:9]...)
	}()
)

// magnitude draws how strong an operation is: the bin at some place, and the sign.
func (o *operation) magnitude(g *gotorch.Generator, bins, h, w int64, place func() int64) float64 {
	if o.magnitudes == nil {
		return 0
	}
	m := gotorch.Item[float64](o.magnitudes(bins, h, w).Select(0, place()))
	if o.signed && atMost(g, 0.5) {
		m = -m
	}
	return m
}

// automatic is a transform that is for an image alone.
func automatic(op, name string, mode, value F.Interpolation, fn func(image gotorch.Tensor, g *gotorch.Generator, mode F.Interpolation) gotorch.Tensor) Transform {
	switch mode {
	case "":
		mode = value
	case Nearest, Bilinear:
	default:
		panic(args.ValueError(op, "Interpolation must be nearest or bilinear, not %q", string(mode)))
	}
	return New(name, func(s Sample, g *gotorch.Generator) Sample {
		noBoxes(op, s, true)
		s.imageSize(op)
		s.Image = fn(s.Image, g, mode)
		return s
	})
}

// AutoAugmentPolicy is a policy of [AutoAugment].
type AutoAugmentPolicy string

// The policies, named after what they were learned on.
const (
	ImageNet AutoAugmentPolicy = "imagenet"
	CIFAR10  AutoAugmentPolicy = "cifar10"
	SVHN     AutoAugmentPolicy = "svhn"
)

// AutoAugmentOptions are the arguments of [AutoAugment] that have defaults.
type AutoAugmentOptions struct {
	Policy        AutoAugmentPolicy // default: "imagenet"
	Interpolation F.Interpolation   // Nearest or Bilinear; default: Nearest
	Fill          []float64         // the colour outside of the image, one number or one a channel; nil is black
}

// step is an operation of a policy: with which probability, and how strong.
type step struct {
	name        string
	probability float64
	magnitude   int64
}

// AutoAugment applies one of 25 pairs of operations of a learned policy to an image of uint8 with 1 or 3 channels.
//
// torchvision: v2.AutoAugment. The policies are those of https://arxiv.org/abs/1805.09501.
func AutoAugment(opts ...AutoAugmentOptions) Transform {
	const op = "transforms.AutoAugment"
	opt := args.Option(opts)
	if opt.Policy == "" {
		opt.Policy = ImageNet
	}
	pairs := policies[opt.Policy]
	if pairs == nil {
		panic(args.ValueError(op, "there is no Policy %q", string(opt.Policy)))
	}
	byName := map[string]*operation{}
	for i := range ofAuto {
		byName[ofAuto[i].name] = &ofAuto[i]
	}
	return automatic(op, text("AutoAugment", "policy", opt.Policy), opt.Interpolation, Nearest,
		func(image gotorch.Tensor, g *gotorch.Generator, mode F.Interpolation) gotorch.Tensor {
			h, w := F.Size(image)
			for _, step := range pairs[integer(g, 0, int64(len(pairs)))] {
				if !atMost(g, step.probability) {
					continue
				}
				o := byName[step.name]
				m := o.magnitude(g, 10, h, w, func() int64 { return step.magnitude })
				image = o.apply(image, m, mode, opt.Fill)
			}
			return image
		})
}

// RandAugmentOptions are the arguments of [RandAugment] that have defaults.
type RandAugmentOptions struct {
	NumOps           gotorch.Scalar  // how many operations; default: 2
	Magnitude        gotorch.Scalar  // how strong they are, as the number of a bin; default: 9
	NumMagnitudeBins gotorch.Scalar  // default: 31
	Interpolation    F.Interpolation // Nearest or Bilinear; default: Nearest
	Fill             []float64       // the colour outside of the image, one number or one a channel; nil is black
}

// RandAugment applies some random operations of one strength to an image of uint8 with 1 or 3 channels.
//
// torchvision: v2.RandAugment.
func RandAugment(opts ...RandAugmentOptions) Transform {
	const op = "transforms.RandAugment"
	opt := args.Option(opts)
	n, m, bins := args.Int(op, "NumOps", opt.NumOps, 2), args.Int(op, "Magnitude", opt.Magnitude, 9), args.Int(op, "NumMagnitudeBins", opt.NumMagnitudeBins, 31)
	if n < 0 {
		panic(args.ValueError(op, "NumOps must not be negative, but is %d", n))
	}
	if bins < 2 || bins > 1<<20 || m < 0 || m >= bins {
		panic(args.ValueError(op, "Magnitude must be one of NumMagnitudeBins, of which there are two or more, but they are %d and %d", m, bins))
	}
	return automatic(op, text("RandAugment", "num_ops", n, "magnitude", m, "num_magnitude_bins", bins), opt.Interpolation, Nearest,
		func(image gotorch.Tensor, g *gotorch.Generator, mode F.Interpolation) gotorch.Tensor {
			h, w := F.Size(image)
			for range n {
				o := &ofRand[integer(g, 0, int64(len(ofRand)))]
				image = o.apply(image, o.magnitude(g, bins, h, w, func() int64 { return m }), mode, opt.Fill)
			}
			return image
		})
}

// TrivialAugmentWideOptions are the arguments of [TrivialAugmentWide] that have defaults.
type TrivialAugmentWideOptions struct {
	NumMagnitudeBins gotorch.Scalar  // default: 31
	Interpolation    F.Interpolation // Nearest or Bilinear; default: Nearest
	Fill             []float64       // the colour outside of the image, one number or one a channel; nil is black
}

// TrivialAugmentWide applies one random operation of random strength to an image of uint8 with 1 or 3 channels.
//
// torchvision: v2.TrivialAugmentWide.
func TrivialAugmentWide(opts ...TrivialAugmentWideOptions) Transform {
	const op = "transforms.TrivialAugmentWide"
	opt := args.Option(opts)
	bins := args.Int(op, "NumMagnitudeBins", opt.NumMagnitudeBins, 31)
	if bins < 2 || bins > 1<<20 {
		panic(args.ValueError(op, "NumMagnitudeBins must be two or more, but is %d", bins))
	}
	return automatic(op, text("TrivialAugmentWide", "num_magnitude_bins", bins), opt.Interpolation, Nearest,
		func(image gotorch.Tensor, g *gotorch.Generator, mode F.Interpolation) gotorch.Tensor {
			h, w := F.Size(image)
			o := &ofTrivial[integer(g, 0, int64(len(ofTrivial)))]
			m := o.magnitude(g, bins, h, w, func() int64 { return integer(g, 0, bins) })
			return o.apply(image, m, mode, opt.Fill)
		})
}

// AugMixOptions are the arguments of [AugMix] that have defaults.
type AugMixOptions struct {
	Severity      gotorch.Scalar  // how strong operations are, from 1 to 10; default: 3
	MixtureWidth  gotorch.Scalar  // how many chains of operations are mixed; default: 3
	ChainDepth    gotorch.Scalar  // how long they are; -1 is one to three; default: -1
	Alpha         gotorch.Scalar  // of the distributions of the weights; default: 1
	NoAllOps      bool            // leave out brightness, contrast, colour and sharpness
	Interpolation F.Interpolation // Nearest or Bilinear; default: Bilinear
	Fill          []float64       // the colour outside of the image, one number or one a channel; nil is black
}

// AugMix mixes an image of uint8 with some that went through chains of random operations.
//
// torchvision: v2.AugMix.
func AugMix(opts ...AugMixOptions) Transform {
	const op = "transforms.AugMix"
	opt := args.Option(opts)
	severity, width := args.Int(op, "Severity", opt.Severity, 3), args.Int(op, "MixtureWidth", opt.MixtureWidth, 3)
	depth, alpha := args.Int(op, "ChainDepth", opt.ChainDepth, -1), args.Float(op, "Alpha", opt.Alpha, 1)
	const strongest = 10
	if severity < 1 || severity > strongest {
		panic(args.ValueError(op, "Severity must be from 1 to %d, but is %d", strongest, severity))
	}
	if width < 1 || width > 1<<20 || !(alpha > 0) {
		panic(args.ValueError(op, "MixtureWidth and Alpha must be positive, but are %d and %v", width, alpha))
	}
	space := ofMix
	if opt.NoAllOps {
		space = space[:9]
	}
	return automatic(op, text("AugMix", "severity", severity, "mixture_width", width, "chain_depth", depth, "alpha", alpha), opt.Interpolation, Bilinear,
		func(image gotorch.Tensor, g *gotorch.Generator, mode F.Interpolation) gotorch.Tensor {
			h, w := F.Size(image)
			batch := image
			for batch.Dim() < 4 {
				batch = batch.Unsqueeze(0)
			}
			each := make([]int64, batch.Dim())
			for i := range each {
				each[i] = 1
			}
			each[0] = batch.Size(0)
			drawn := func(n int64) gotorch.Tensor {
				return dirichlet(g, gotorch.Full([]int64{n}, alpha, gotorch.TensorOptions{DType: gotorch.Float32}).Expand([]int64{each[0], n}))
			}
			m := drawn(2)
			weights := drawn(width).Mul(m.Select(1, 1).Reshape([]int64{each[0], -1}))
			mix := m.Select(1, 0).Reshape(each).Mul(batch)
			for i := range width {
				long := depth
				if long <= 0 {
					long = integer(g, 1, 4)
				}
				chain := batch
				for range long {
					o := &space[integer(g, 0, int64(len(space)))]
					chain = o.apply(chain, o.magnitude(g, strongest, h, w, func() int64 { return integer(g, 0, severity) }), mode, opt.Fill)
				}
				mix.Add_(weights.Select(1, i).Reshape(each).Mul(chain))
			}
			return mix.Reshape(image.Shape()).To(image.DType())
		})
}
