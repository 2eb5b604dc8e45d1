package transforms

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/vision/transforms/functional"
)

// GrayscaleOptions are the arguments of [Grayscale] that have defaults.
type GrayscaleOptions = F.RGBToGrayscaleOptions

// Grayscale makes the image grey.
//
// torchvision: v2.Grayscale.
func Grayscale(opts ...GrayscaleOptions) Transform {
	const op = "transforms.Grayscale"
	opt := args.Option(opts)
	channels := args.Int(op, "NumOutputChannels", opt.NumOutputChannels, 1)
	if channels != 1 && channels != 3 {
		panic(args.ValueError(op, "NumOutputChannels must be 1 or 3, not %d", channels))
	}
	return onImage(text("Grayscale", "num_output_channels", channels), func(image gotorch.Tensor) gotorch.Tensor {
		return F.RGBToGrayscale(image, opt)
	})
}

// RandomGrayscaleOptions are the arguments of [RandomGrayscale] that have defaults.
type RandomGrayscaleOptions struct {
	P gotorch.Scalar // the probability; default: 0.1
}

// RandomGrayscale makes the image grey with a probability; it keeps its number of channels.
//
// torchvision: v2.RandomGrayscale.
func RandomGrayscale(opts ...RandomGrayscaleOptions) Transform {
	p := args.Option(opts).P
	return sometimes("transforms.RandomGrayscale", text("RandomGrayscale", "p", or(p, 0.1)), p, 0.1,
		onImage("", func(image gotorch.Tensor) gotorch.Tensor {
			c, _, _ := F.Dimensions(image)
			return F.RGBToGrayscale(image, F.RGBToGrayscaleOptions{NumOutputChannels: c})
		}))
}

// RGB gives a grey image three channels.
//
// torchvision: v2.RGB.
func RGB() Transform { return onImage("RGB()", F.GrayscaleToRGB) }

// ColorJitterOptions are the arguments of [ColorJitter] that have defaults. Each is the smallest and the largest factor, or one
// number d, which is from 1-d to 1+d, and for the hue from -d to d; nil changes nothing.
type ColorJitterOptions struct {
	Brightness []float64
	Contrast   []float64
	Saturation []float64
	Hue        []float64 // from -0.5 to 0.5
}

// adjustments are what ColorJitter does, in the order of torchvision's numbers.
var adjustments = [4]func(gotorch.Tensor, float64) gotorch.Tensor{F.AdjustBrightness, F.AdjustContrast, F.AdjustSaturation, F.AdjustHue}

// ColorJitter changes brightness, contrast, saturation and hue by random factors, in random order.
//
// torchvision: v2.ColorJitter.
func ColorJitter(opts ...ColorJitterOptions) Transform {
	const op = "transforms.ColorJitter"
	opt := args.Option(opts)
	var ranges [4]*[2]float64
	for i, list := range [][]float64{opt.Brightness, opt.Contrast, opt.Saturation, opt.Hue} {
		center, low, high := 1.0, 0.0, math.Inf(1)
		if i == 3 {
			center, low, high = 0, -0.5, 0.5
		}
		var r [2]float64
		switch len(list) {
		case 0:
			continue
		case 1:
			if list[0] < 0 {
				panic(args.ValueError(op, "a range that is one number must not be negative, but is %v", list[0]))
			}
			r = [2]float64{center - list[0], center + list[0]}
			if i < 3 {
				r[0] = max(r[0], 0)
			}
		case 2:
			r = [2]float64(list)
		default:
			panic(args.TypeError(op, "a range must be one number or two, not %v", list))
		}
		if !(low <= r[0] && r[0] <= r[1] && r[1] <= high) {
			panic(args.ValueError(op, "a range must be within %v and %v, the smaller number first, but is %v", low, high, r))
		}
		if r != [2]float64{center, center} {
			ranges[i] = &r
		}
	}
	return New(text("ColorJitter", "brightness", opt.Brightness, "contrast", opt.Contrast, "saturation", opt.Saturation, "hue", opt.Hue),
		func(s Sample, g *gotorch.Generator) Sample {
			order := permutation(g, 4)
			var factors [4]float64
			for i, r := range ranges {
				if r != nil {
					factors[i] = uniform(g, r[0], r[1])
				}
			}
			for _, i := range order {
				if ranges[i] != nil && s.Image.Defined() {
					s.Image = adjustments[i](s.Image, factors[i])
				}
			}
			return s
		})
}

// RandomChannelPermutation puts the channels of the image in random order.
//
// torchvision: v2.RandomChannelPermutation.
func RandomChannelPermutation() Transform {
	return New("RandomChannelPermutation()", func(s Sample, g *gotorch.Generator) Sample {
		c, _, _ := s.imageSize("transforms.RandomChannelPermutation")
		s.Image = F.PermuteChannels(s.Image, permutation(g, c))
		return s
	})
}

// RandomPhotometricDistortOptions are the arguments of [RandomPhotometricDistort] that have defaults.
type RandomPhotometricDistortOptions struct {
	Brightness []float64      // nil is 0.875 and 1.125
	Contrast   []float64      // nil is 0.5 and 1.5
	Saturation []float64      // nil is 0.5 and 1.5
	Hue        []float64      // nil is -0.05 and 0.05
	P          gotorch.Scalar // the probability of each; default: 0.5
}

// RandomPhotometricDistort changes brightness, contrast, saturation, hue and the order of channels, each with a probability, as
// SSD is trained.
//
// torchvision: v2.RandomPhotometricDistort.
func RandomPhotometricDistort(opts ...RandomPhotometricDistortOptions) Transform {
	const op = "transforms.RandomPhotometricDistort"
	opt := args.Option(opts)
	p := probability(op, opt.P, 0.5)
	ranges := [4][2]float64{
		ordered(op, "Brightness", opt.Brightness, [2]float64{0.875, 1.125}), ordered(op, "Contrast", opt.Contrast, [2]float64{0.5, 1.5}),
		ordered(op, "Saturation", opt.Saturation, [2]float64{0.5, 1.5}), ordered(op, "Hue", opt.Hue, [2]float64{-0.05, 0.05}),
	}
	return New(text("RandomPhotometricDistort", "p", p), func(s Sample, g *gotorch.Generator) Sample {
		c, _, _ := s.imageSize(op)
		var factors [4]*float64
		for i, r := range ranges {
			if below(g, p) {
				factors[i] = new(uniform(g, r[0], r[1]))
			}
		}
		order := []int{0, 2, 3, 1}
		if below(g, 0.5) {
			order = []int{0, 1, 2, 3}
		}
		var channels []int64
		if below(g, p) {
			channels = permutation(g, c)
		}
		for _, i := range order {
			if factors[i] != nil {
				s.Image = adjustments[i](s.Image, *factors[i])
			}
		}
		if channels != nil {
			s.Image = F.PermuteChannels(s.Image, channels)
		}
		return s
	})
}

// ProbabilityOptions are the arguments of the transforms of colours that have a default.
type ProbabilityOptions struct {
	P gotorch.Scalar // the probability; default: 0.5
}

func randomly(name string, opts []ProbabilityOptions, fn func(gotorch.Tensor) gotorch.Tensor) Transform {
	p := args.Option(opts).P
	return sometimes("transforms."+name, text(name, "p", or(p, 0.5)), p, 0.5, onImage("", fn))
}

// RandomEqualize makes the histogram of each channel even, with a probability.
//
// torchvision: v2.RandomEqualize.
func RandomEqualize(opts ...ProbabilityOptions) Transform {
	return randomly("RandomEqualize", opts, F.Equalize)
}

// RandomInvert inverts the colours with a probability.
//
// torchvision: v2.RandomInvert.
func RandomInvert(opts ...ProbabilityOptions) Transform {
	return randomly("RandomInvert", opts, F.Invert)
}

// RandomPosterize keeps the highest bits of colours, from 0 to 8, with a probability.
//
// torchvision: v2.RandomPosterize.
func RandomPosterize(bits int64, opts ...ProbabilityOptions) Transform {
	return randomly("RandomPosterize", opts, func(t gotorch.Tensor) gotorch.Tensor { return F.Posterize(t, bits) })
}

// RandomSolarize inverts the colours that are not below a threshold, with a probability.
//
// torchvision: v2.RandomSolarize.
func RandomSolarize(threshold float64, opts ...ProbabilityOptions) Transform {
	return randomly("RandomSolarize", opts, func(t gotorch.Tensor) gotorch.Tensor { return F.Solarize(t, threshold) })
}

// RandomAutoContrast stretches the colours of each channel, with a probability.
//
// torchvision: v2.RandomAutocontrast.
func RandomAutoContrast(opts ...ProbabilityOptions) Transform {
	return randomly("RandomAutoContrast", opts, F.AutoContrast)
}

// RandomAdjustSharpness makes the image smoother or sharper, with a probability.
//
// torchvision: v2.RandomAdjustSharpness.
func RandomAdjustSharpness(sharpnessFactor float64, opts ...ProbabilityOptions) Transform {
	return randomly("RandomAdjustSharpness", opts, func(t gotorch.Tensor) gotorch.Tensor {
		return F.AdjustSharpness(t, sharpnessFactor)
	})
}

// GaussianBlurOptions are the arguments of [GaussianBlur] that have defaults.
type GaussianBlurOptions struct {
	Sigma []float64 // the smallest and the largest standard deviation, or one for always; nil is 0.1 and 2
}

// GaussianBlur blurs the image by a random standard deviation, with a kernel of odd sizes.
//
// torchvision: v2.GaussianBlur.
func GaussianBlur[S F.Sizes](kernelSize S, opts ...GaussianBlurOptions) Transform {
	const op = "transforms.GaussianBlur"
	k := pair(op, kernelSize)
	if k[0]%2 == 0 || k[1]%2 == 0 {
		panic(args.ValueError(op, "kernelSize must be odd, not %v", k))
	}
	sigma := [2]float64{0.1, 2}
	if list := args.Option(opts).Sigma; list != nil {
		sigma = two(op, "Sigma", list, 0)
	}
	if !(0 < sigma[0] && sigma[0] <= sigma[1]) {
		panic(args.ValueError(op, "Sigma must be positive, the smaller number first, but is %v", sigma))
	}
	return New(text("GaussianBlur", "kernel_size", k, "sigma", sigma), func(s Sample, g *gotorch.Generator) Sample {
		drawn := uniform(g, sigma[0], sigma[1])
		if s.Image.Defined() {
			s.Image = F.GaussianBlur(s.Image, k, F.GaussianBlurOptions{Sigma: []float64{drawn, drawn}})
		}
		return s
	})
}

// GaussianNoiseOptions are the arguments of [GaussianNoise] that have defaults.
type GaussianNoiseOptions struct {
	Mean   float64        // of a range of colours from 0 to 1
	Sigma  gotorch.Scalar // the standard deviation; default: 0.1
	NoClip bool           // leave what is less than black or more than white
}

// GaussianNoise adds noise to the image, which must be of floats or uint8. Noise is drawn on the image's device: a
// generator that is given must be of that one.
//
// torchvision: v2.GaussianNoise.
func GaussianNoise(opts ...GaussianNoiseOptions) Transform {
	const op = "transforms.GaussianNoise"
	opt := args.Option(opts)
	if sigma := args.Float(op, "Sigma", opt.Sigma, 0.1); sigma < 0 {
		panic(args.ValueError(op, "Sigma must not be negative, but is %v", sigma))
	}
	return New(text("GaussianNoise", "mean", opt.Mean, "sigma", or(opt.Sigma, 0.1)), func(s Sample, g *gotorch.Generator) Sample {
		if s.Image.Defined() {
			s.Image = F.GaussianNoise(s.Image, F.GaussianNoiseOptions{Mean: opt.Mean, Sigma: opt.Sigma, NoClip: opt.NoClip, Generator: g})
		}
		return s
	})
}
