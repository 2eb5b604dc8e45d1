package functional

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// RGBToGrayscaleOptions are the arguments of [RGBToGrayscale] that have defaults.
type RGBToGrayscaleOptions struct {
	NumOutputChannels gotorch.Scalar // 1, or 3 that are the same; default: 1
}

// RGBToGrayscale makes an image grey: (..., 3 or 1, H, W) → (..., NumOutputChannels, H, W), with the luma of
// ITU-R 601-2. It panics with a ValueError for another NumOutputChannels than 1 and 3.
//
// torchvision: rgb_to_grayscale and to_grayscale.
func RGBToGrayscale(image gotorch.Tensor, opts ...RGBToGrayscaleOptions) gotorch.Tensor {
	const op = "functional.RGBToGrayscale"
	channels := args.Int(op, "NumOutputChannels", args.Option(opts).NumOutputChannels, 1)
	if channels != 1 && channels != 3 {
		panic(args.ValueError(op, "NumOutputChannels must be 1 or 3, not %d", channels))
	}
	c, _, _ := chw(op, image)
	if c != 1 && c != 3 {
		panic(args.ValueError(op, "the image must have 1 or 3 channels, not %d", c))
	}
	return lean(func() gotorch.Tensor { return grey(image, channels, true) })
}

// grey is [RGBToGrayscale]; without keep, integers become floats.
func grey(image gotorch.Tensor, channels int64, keep bool) gotorch.Tensor {
	shape := image.Shape()
	at := len(shape) - 3
	if shape[at] == 1 {
		if channels == 1 {
			return image.Clone()
		}
		times := slices.Repeat([]int64{1}, len(shape))
		times[at] = 3
		return image.Repeat(times)
	}
	rgb := image.Unbind(gotorch.UnbindOptions{Dim: -3})
	l := times(rgb[0], 0.2989).Add_(rgb[1], gotorch.AddOptions{Alpha: 0.587}).Add_(rgb[2], gotorch.AddOptions{Alpha: 0.114})
	l = l.Unsqueeze(-3)
	if keep {
		l = l.To(image.DType())
	}
	if channels == 3 {
		l = l.Expand(shape)
	}
	return l
}

// GrayscaleToRGB gives a grey image three channels that are the same: (..., 1, H, W) → (..., 3, H, W). An image with
// three or more comes back as it is. It panics with a ValueError for two channels.
//
// torchvision: grayscale_to_rgb.
func GrayscaleToRGB(image gotorch.Tensor) gotorch.Tensor {
	const op = "functional.GrayscaleToRGB"
	c, _, _ := chw(op, image)
	switch {
	case c >= 3:
		return image
	case c != 1:
		panic(args.ValueError(op, "the image must have 1 channel, or 3 and more, not %d", c))
	}
	return lean(func() gotorch.Tensor { return grey(image, 3, true) })
}

// factor panics with a ValueError if a factor is negative. NaN is let through, as in Python.
func factor(op string, f float64) {
	if f < 0 {
		panic(args.ValueError(op, "the factor must not be negative, but is %v", f))
	}
}

// blend is ratio of one image and the rest of another, within the bounds of the first one's colours.
func blend(image, other gotorch.Tensor, ratio float64) gotorch.Tensor {
	d := image.DType()
	out := times(image, ratio).Add_(other, gotorch.AddOptions{Alpha: 1 - ratio})
	return clamp_(out, 0, bound(d)).To(d)
}

// AdjustBrightness multiplies colours with a factor: 0 is black, 1 changes nothing, 2 is twice as bright. It panics
// with a ValueError if the factor is negative, and with a TypeError if there are neither 1 nor 3 channels.
//
// torchvision: adjust_brightness.
func AdjustBrightness(image gotorch.Tensor, brightnessFactor float64) gotorch.Tensor {
	const op = "functional.AdjustBrightness"
	factor(op, brightnessFactor)
	colours(op, image)
	return lean(func() gotorch.Tensor {
		d := image.DType()
		return clamp_(times(image, brightnessFactor), 0, bound(d)).To(d)
	})
}

// AdjustSaturation blends an image with its grey one: 0 is grey, 1 changes nothing, 2 is twice as colourful. One
// with a single channel comes back as it is. It panics as [AdjustBrightness] does.
//
// torchvision: adjust_saturation.
func AdjustSaturation(image gotorch.Tensor, saturationFactor float64) gotorch.Tensor {
	const op = "functional.AdjustSaturation"
	factor(op, saturationFactor)
	if colours(op, image) == 1 {
		return image
	}
	return lean(func() gotorch.Tensor { return blend(image, luma(image), saturationFactor) })
}

// luma is the grey of three channels as a float, without fractions where the colours are integers.
func luma(image gotorch.Tensor) gotorch.Tensor {
	l := grey(image, 1, false)
	if !image.IsFloatingPoint() {
		l = l.Floor_()
	}
	return l
}

// AdjustContrast blends an image with its mean grey: 0 is grey, 1 changes nothing, 2 doubles the contrast. It panics
// as [AdjustBrightness] does.
//
// torchvision: adjust_contrast.
func AdjustContrast(image gotorch.Tensor, contrastFactor float64) gotorch.Tensor {
	const op = "functional.AdjustContrast"
	factor(op, contrastFactor)
	c := colours(op, image)
	return lean(func() gotorch.Tensor {
		var l gotorch.Tensor
		if c == 3 {
			l = luma(image)
		} else {
			l = image.To(floating(image))
		}
		return blend(image, l.MeanDim([]int64{-3, -2, -1}, gotorch.MeanDimOptions{KeepDim: true}), contrastFactor)
	})
}

// AdjustSharpness blends an image with a smoothed one: 0 is smooth, 1 changes nothing, 2 is sharper. The pixels at the
// border stay. It panics as [AdjustBrightness] does.
//
// torchvision: adjust_sharpness.
func AdjustSharpness(image gotorch.Tensor, sharpnessFactor float64) gotorch.Tensor {
	const op = "functional.AdjustSharpness"
	c := colours(op, image)
	factor(op, sharpnessFactor)
	_, h, w := chw(op, image)
	if image.Numel() == 0 || h <= 2 || w <= 2 {
		return image
	}
	return lean(func() gotorch.Tensor {
		d, computed := image.DType(), floating(image)
		shape := image.Shape()
		out := image
		if len(shape) > 4 {
			out = batched(image, c, h, w)
		}
		const a, b = 1.0 / 13, 5.0 / 13
		kernel := numbers(image, computed, a, a, a, a, b, a, a, a, a).View([]int64{1, 1, 3, 3}).Expand([]int64{c, 1, 3, 3})
		out = out.To(gotorch.ToOptions{DType: computed, Copy: true})
		smooth := F.Conv2d(out, kernel, F.Conv2dOptions{Groups: c})
		if !image.IsFloatingPoint() {
			smooth = smooth.Round_()
		}
		inner := out.Narrow(-2, 1, h-2).Narrow(-1, 1, w-2)
		inner.Add_(smooth.Sub_(inner), gotorch.AddOptions{Alpha: 1 - sharpnessFactor})
		out = clamp_(out, 0, bound(d)).To(d)
		if len(shape) > 4 {
			out = out.Reshape(shape)
		}
		return out
	})
}

// toHSV is the hue, saturation and value of an image of floats.
func toHSV(image gotorch.Tensor) (h, s, v gotorch.Tensor) {
	rgb := image.Unbind(gotorch.UnbindOptions{Dim: -3})
	r, g := rgb[0], rgb[1]
	low, high := image.AMinMax(gotorch.AMinMaxOptions{Dim: new(int64(-3))})
	// Where all channels are the same, hue and saturation are 0: the divisors are 1 there rather than 0.
	same := high.Eq(low)
	span := high.Sub(low)
	ones := gotorch.OnesLike(high)
	s = span.Div(gotorch.Where(same, ones, high))
	divisor := gotorch.Where(same, ones, span).Unsqueeze(-3)
	distance := high.Unsqueeze(-3).Sub(image).Div(divisor).Unbind(gotorch.UnbindOptions{Dim: -3})
	rc, gc, bc := distance[0], distance[1], distance[2]
	notR, isG := high.Ne(r), high.Eq(g)
	hg := rc.AddScalar(2.0).Sub_(bc).Mul_(isG.BitwiseAnd(notR))
	hr := bc.Sub_(gc).Mul_(notR.BitwiseNot())
	hb := gc.AddScalar_(4.0).Sub_(rc).Mul_(notR.LogicalAnd_(isG.LogicalNot_()))
	h = hr.Add_(hg).Add_(hb)
	h = h.MulScalar_(1.0 / 6).AddScalar_(1.0).FmodScalar_(1.0)
	return h, s, high
}

// Which of v, p, q and t is red, green and blue, for each sixth of the circle of hues.
var ofSixths = [][]int64{{0, 2, 1, 1, 3, 0}, {3, 0, 0, 2, 1, 1}, {1, 1, 3, 0, 0, 2}}

// fromHSV is an image of floats with such hues, saturations and values.
func fromHSV(h, s, v gotorch.Tensor) gotorch.Tensor {
	h6 := times(h, 6)
	i := h6.Floor()
	f := h6.Sub_(i)
	i = i.To(gotorch.Int32)
	sf := s.Mul(f)
	rest := s.Neg().AddScalar_(1.0)
	q := clamp_(sf.Neg().AddScalar_(1.0).Mul_(v), 0.0, 1.0)
	t := clamp_(sf.Add_(rest).Mul_(v), 0.0, 1.0)
	p := clamp_(rest.Mul_(v), 0.0, 1.0)
	i.RemainderScalar_(6)
	all := gotorch.Stack([]gotorch.Tensor{v, p, q, t}, gotorch.StackOptions{Dim: -3})
	choice := gotorch.NewTensor(ofSixths, like(v, gotorch.Int64)).IndexTensors([]gotorch.Tensor{{}, i})
	if choice.Dim() > 3 {
		choice = choice.MoveAxisInt(0, -3)
	}
	return all.Gather(-3, choice)
}

// AdjustHue turns hues by a part of the circle from -0.5 to 0.5, both of which are the complementary colours. An image
// with a single channel comes back as it is. It panics with a ValueError for another factor, and with a
// TypeError if there are neither 1 nor 3 channels.
//
// torchvision: adjust_hue.
func AdjustHue(image gotorch.Tensor, hueFactor float64) gotorch.Tensor {
	const op = "functional.AdjustHue"
	if !(-0.5 <= hueFactor && hueFactor <= 0.5) {
		panic(args.ValueError(op, "the factor must be from -0.5 to 0.5, but is %v", hueFactor))
	}
	if colours(op, image) == 1 || image.Numel() == 0 {
		return image
	}
	return lean(func() gotorch.Tensor {
		h, s, v := toHSV(toDtype(op, image, gotorch.Float32, true))
		h.AddScalar_(hueFactor).RemainderScalar_(1.0)
		return toDtype(op, fromHSV(h, s, v), image.DType(), true)
	})
}

// AdjustGammaOptions are the arguments of [AdjustGamma] that have defaults.
type AdjustGammaOptions struct {
	Gain gotorch.Scalar // what colours are multiplied with afterwards; default: 1
}

// AdjustGamma raises colours, from 0 to 1, to a power: above 1 shadows become darker, below 1 brighter. It panics with
// a ValueError if gamma is negative.
//
// torchvision: adjust_gamma.
func AdjustGamma(image gotorch.Tensor, gamma float64, opts ...AdjustGammaOptions) gotorch.Tensor {
	const op = "functional.AdjustGamma"
	if gamma < 0 {
		panic(args.ValueError(op, "gamma must not be negative, but is %v", gamma))
	}
	gain := args.Float(op, "Gain", args.Option(opts).Gain, 1)
	hw(op, image)
	return lean(func() gotorch.Tensor {
		var out gotorch.Tensor
		if image.IsFloatingPoint() {
			out = image.Pow(gamma)
		} else {
			out = toDtype(op, image, gotorch.Float32, true).Pow_(gamma)
		}
		if gain != 1 {
			out = clamp_(times_(out, gain), 0.0, 1.0)
		}
		return toDtype(op, out, image.DType(), true)
	})
}

// Posterize keeps the highest bits of colours, from 0 to 8. Floats are rounded down to as many levels. It panics with
// a TypeError for other bits.
//
// torchvision: posterize.
func Posterize(image gotorch.Tensor, bits int64) gotorch.Tensor {
	const op = "functional.Posterize"
	if bits < 0 || bits > 8 {
		panic(args.TypeError(op, "bits must be from 0 to 8, but are %d", bits))
	}
	hw(op, image)
	if image.IsFloatingPoint() {
		levels := int64(1) << bits
		return lean(func() gotorch.Tensor {
			return times_(clamp_(times(image, float64(levels)).Floor_(), 0, levels-1), 1/float64(levels))
		})
	}
	all := valueBits(op, image.DType())
	if bits >= all {
		return image
	}
	return image.BitwiseAndScalar((int64(1)<<bits - 1) << (all - bits))
}

// Solarize inverts the colours that are not below a threshold. It panics with a TypeError if the threshold is above
// what colours of the dtype may be.
//
// torchvision: solarize.
func Solarize(image gotorch.Tensor, threshold float64) gotorch.Tensor {
	const op = "functional.Solarize"
	hw(op, image)
	if threshold > maxValue(image.DType()) {
		panic(args.TypeError(op, "the threshold must not be above %v, the largest value of %s, but is %v", maxValue(image.DType()), image.DType(), threshold))
	}
	return lean(func() gotorch.Tensor {
		return gotorch.Where(image.GeScalar(threshold), invert(op, image), image)
	})
}

// AutoContrast stretches the colours of each channel, so that the darkest becomes black and the lightest white. It
// panics with a TypeError if there are neither 1 nor 3 channels.
//
// torchvision: autocontrast.
func AutoContrast(image gotorch.Tensor) gotorch.Tensor {
	const op = "functional.AutoContrast"
	colours(op, image)
	if image.Numel() == 0 {
		return image
	}
	return lean(func() gotorch.Tensor {
		d := image.DType()
		x := image.To(floating(image))
		over := gotorch.AMaxOptions{Dim: []int64{-2, -1}, KeepDim: true}
		low, high := x.AMin(gotorch.AMinOptions(over)), x.AMax(over)
		flat := high.Eq(low)
		scale := times_(high.Sub_(low), 1/maxValue(d))
		low.MaskedFill_(flat, 0.0)
		scale.MaskedFill_(flat, 1.0)
		return clamp_(x.Sub(low).Div_(scale), 0, bound(d)).To(d)
	})
}

// Equalize makes the histogram of each channel as even as can be, by Pillow's rule. Other dtypes than uint8 are
// converted to it and back.
//
// torchvision: equalize.
func Equalize(image gotorch.Tensor) gotorch.Tensor {
	const op = "functional.Equalize"
	hw(op, image)
	if image.Numel() == 0 {
		return image
	}
	return lean(func() gotorch.Tensor {
		bytes := toDtype(op, image, gotorch.Uint8, true)
		shape := bytes.Shape()
		planes := shape[:len(shape)-2]
		flat := bytes.Flatten(gotorch.FlattenOptions{StartDim: -2}).To(gotorch.Int64)
		pixels := flat.Size(-1)
		hist := flat.NewZeros(append(slices.Clone(planes), 256), gotorch.TensorOptions{DType: gotorch.Int32})
		hist.ScatterAdd_(-1, flat, hist.NewOnes([]int64{1}).ExpandAs(flat))
		sums := hist.CumSum(-1)
		// The brightest colour that there is comes where the sum is complete.
		brightest := sums.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(-1))}).Unsqueeze_(-1)
		others := hist.Gather(-1, brightest).Neg().AddScalar_(pixels)
		floor := new("floor")
		step := others.DivScalarMode_(255, floor)
		// Channels whose step is 0 stay as they are; there may be others in the batch.
		valid := step.NeScalar(0).Unsqueeze(-1)
		sums = sums.Narrow(-1, 0, 255)
		sums.Add_(step.DivScalarMode(2, floor)).DivMode_(step.ClampMin_(1), floor)
		lut := clamp_(sums, 0, 255).To(gotorch.Uint8)
		black := lut.NewZeros([]int64{1}).Expand(append(slices.Clone(planes), 1))
		lut = gotorch.Cat([]gotorch.Tensor{black, lut}, gotorch.CatOptions{Dim: -1})
		equal := lut.Gather(-1, flat).View(shape)
		return toDtype(op, gotorch.Where(valid, equal, bytes), image.DType(), true)
	})
}

// Invert makes of each colour what is missing to white. It panics with a TypeError for a dtype that is no
// colour's, such as bool.
//
// torchvision: invert.
func Invert(image gotorch.Tensor) gotorch.Tensor {
	const op = "functional.Invert"
	hw(op, image)
	return lean(func() gotorch.Tensor { return invert(op, image) })
}

func invert(op string, image gotorch.Tensor) gotorch.Tensor {
	switch {
	case image.IsFloatingPoint():
		return image.Neg().AddScalar_(1.0)
	case image.DType() == gotorch.Uint8:
		return image.BitwiseNot()
	}
	return image.BitwiseXorScalar(int64(1)<<valueBits(op, image.DType()) - 1)
}

// PermuteChannels puts channel permutation[i] at place i. It panics with a ValueError if there are not as many as the
// image has.
//
// torchvision: permute_channels.
func PermuteChannels(image gotorch.Tensor, permutation []int64) gotorch.Tensor {
	const op = "functional.PermuteChannels"
	c, _, _ := chw(op, image)
	if int64(len(permutation)) != c {
		panic(args.ValueError(op, "the permutation must have a number for each of the %d channels, not %d", c, len(permutation)))
	}
	for _, p := range permutation {
		if p < -c || p >= c {
			panic(args.Errorf(op, gotorch.IndexError, "the permutation has a number that is no channel's"))
		}
	}
	if image.Numel() == 0 {
		return image
	}
	return lean(func() gotorch.Tensor {
		return image.IndexSelect(-3, gotorch.NewTensor(permutation, like(image, gotorch.Int64)).RemainderScalar(c))
	})
}
