package functional

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// NormalizeOptions are the arguments of [Normalize] that have defaults.
type NormalizeOptions struct {
	InPlace bool // change the image itself
}

// Normalize subtracts the mean of each channel from a float image, and divides by its standard deviation. mean and
// std have a number for each channel, or one for all. It panics with a TypeError for integers, and with a ValueError
// for a std of 0 or numbers that do not fit.
//
// torchvision: normalize.
func Normalize(image gotorch.Tensor, mean, std []float64, opts ...NormalizeOptions) gotorch.Tensor {
	const op = "functional.Normalize"
	opt := args.Option(opts)
	c, _, _ := chw(op, image)
	if !image.IsFloatingPoint() {
		panic(args.TypeError(op, "the image must be of floats, not of %s: ToDtype makes some", image.DType()))
	}
	for _, list := range [][]float64{mean, std} {
		n := int64(len(list))
		if c == 1 && n > 1 && !opt.InPlace && n == int64(len(mean)) { // one channel for each mean
			continue
		}
		if n != 1 && n != c {
			panic(args.ValueError(op, "mean and std must have one number, or one for each of the %d channels, not %d", c, n))
		}
	}
	for _, s := range std {
		if s == 0 {
			panic(args.ValueError(op, "std must not be 0"))
		}
	}
	return lean(func() gotorch.Tensor {
		column := []int64{-1, 1, 1}
		m := numbers(image, image.DType(), mean...).View(column)
		s := numbers(image, image.DType(), std...).View(column)
		if opt.InPlace {
			return image.Sub_(m).Div_(s)
		}
		return image.Sub(m).Div_(s)
	})
}

// GaussianBlurOptions are the arguments of [GaussianBlur] that have defaults.
type GaussianBlurOptions struct {
	// Sigma is the standard deviation in pixels, or those of x and y. What is not given is 0.15 of the kernel's size
	// and 0.35 more.
	Sigma []float64
}

// GaussianBlur blurs an image with a kernel of odd sizes, kernelSize[0] wide and kernelSize[1] high. The image is
// reflected at its borders, so it must be larger than half of the kernel. It panics with a ValueError for other sizes,
// and for a Sigma that is not positive.
//
// torchvision: gaussian_blur.
func GaussianBlur[S Sizes](image gotorch.Tensor, kernelSize S, opts ...GaussianBlurOptions) gotorch.Tensor {
	return gaussianBlur("functional.GaussianBlur", image, args.Ints(kernelSize), args.Option(opts).Sigma)
}

func gaussianBlur(op string, image gotorch.Tensor, size []int64, sigma []float64) gotorch.Tensor {
	if len(size) == 1 {
		size = append(size, size[0])
	}
	if len(size) != 2 || size[0]%2 != 1 || size[1]%2 != 1 || size[0] < 0 || size[1] < 0 {
		panic(args.ValueError(op, "kernelSize must be one or two odd, positive numbers, not %v", size))
	}
	switch len(sigma) {
	case 0:
		sigma = []float64{float64(float64(size[0])*0.15) + 0.35, float64(float64(size[1])*0.15) + 0.35}
	case 1:
		sigma = []float64{sigma[0], sigma[0]}
	case 2:
	default:
		panic(args.ValueError(op, "Sigma must be one or two numbers, not %v", sigma))
	}
	if !(sigma[0] > 0) || !(sigma[1] > 0) {
		panic(args.ValueError(op, "Sigma must be positive, not %v", sigma))
	}
	c, h, w := chw(op, image)
	if image.Numel() == 0 {
		return image
	}
	if size[0]/2 >= w || size[1]/2 >= h {
		panic(args.ValueError(op, "a kernel of %d×%d pixels is too large for an image of %d×%d", size[0], size[1], w, h))
	}
	return lean(func() gotorch.Tensor {
		shape, d := image.Shape(), floating(image)
		kernel := gaussian(image, size[1], sigma[1], d).Unsqueeze(-1).Mul(gaussian(image, size[0], sigma[0], d))
		kernel = kernel.Expand([]int64{c, 1, size[1], size[0]})
		out := batched(image, c, h, w).To(d)
		out = F.Pad(out, []int64{size[0] / 2, size[0] / 2, size[1] / 2, size[1] / 2}, F.PadOptions{Mode: F.PadReflect})
		out = F.Conv2d(out, kernel, F.Conv2dOptions{Groups: c}).Reshape(shape)
		if image.IsFloatingPoint() {
			return out
		}
		return out.Round_().To(image.DType())
	})
}

// gaussian is a kernel of one dimension.
func gaussian(image gotorch.Tensor, size int64, sigma float64, d gotorch.DType) gotorch.Tensor {
	lim := float64(size-1) / (2.0 * math.Sqrt(2.0))
	x := gotorch.Linspace(-lim, lim, size, like(image, d))
	return x.DivScalar(sigma).Pow(2).Neg().Softmax(0)
}

// GaussianNoiseOptions are the arguments of [GaussianNoise] that have defaults.
type GaussianNoiseOptions struct {
	Mean      float64            // of a range of colours from 0 to 1
	Sigma     gotorch.Scalar     // the standard deviation; default: 0.1
	NoClip    bool               // leave what is less than black or more than white
	Generator *gotorch.Generator // what is drawn from; nil is the one of the image's device
}

// GaussianNoise adds noise to each colour of an image of floats or uint8. It panics with a ValueError for other dtypes
// and a negative Sigma.
//
// torchvision: gaussian_noise.
func GaussianNoise(image gotorch.Tensor, opts ...GaussianNoiseOptions) gotorch.Tensor {
	const op = "functional.GaussianNoise"
	opt := args.Option(opts)
	sigma := args.Float(op, "Sigma", opt.Sigma, 0.1)
	if sigma < 0 {
		panic(args.ValueError(op, "Sigma must not be negative, but is %v", sigma))
	}
	hw(op, image)
	if !image.IsFloatingPoint() && image.DType() != gotorch.Uint8 {
		panic(args.ValueError(op, "the image must be of floats or uint8, not of %s", image.DType()))
	}
	return lean(func() gotorch.Tensor {
		draw := func(d gotorch.DType) gotorch.Tensor {
			return gotorch.EmptyLike(image, gotorch.TensorOptions{DType: d}).Normal_(gotorch.Normal_Options{Generator: opt.Generator})
		}
		if image.IsFloatingPoint() {
			out := image.Add(times_(draw(image.DType()), sigma).AddScalar(opt.Mean))
			if !opt.NoClip {
				out = clamp_(out, 0, 1)
			}
			return out
		}
		out := image.Add(draw(gotorch.Float32).MulScalar(sigma * 255).AddScalar(opt.Mean * 255).To(gotorch.Int16))
		if !opt.NoClip {
			out = clamp_(out, 0, 255)
		}
		return out.To(gotorch.Uint8)
	})
}

// ToDtypeOptions are the arguments of [ToDtype] that have defaults.
type ToDtypeOptions struct {
	Scale bool // keep colours what they are: 255 of uint8 is 1 of a float
}

// ToDtype converts an image. With Scale colours stay what they are, between the dtypes' own blacks and
// whites; without, numbers stay. It panics with a RuntimeError where Scale would have float32 become int32 or int64,
// or float64 become int64, which it is not precise enough for.
//
// torchvision: to_dtype, and with Scale convert_image_dtype.
func ToDtype(image gotorch.Tensor, dtype gotorch.DType, opts ...ToDtypeOptions) gotorch.Tensor {
	const op = "functional.ToDtype"
	scale := args.Option(opts).Scale
	if !image.Defined() {
		panic(args.TypeError(op, "the image is no tensor: it is the zero Tensor"))
	}
	if dtype == 0 {
		panic(args.TypeError(op, "the dtype is the zero DType, where one is required"))
	}
	return lean(func() gotorch.Tensor { return toDtype(op, image, dtype, scale) })
}

func toDtype(op string, image gotorch.Tensor, to gotorch.DType, scale bool) gotorch.Tensor {
	from := image.DType()
	if from == to || !scale {
		return image.To(to)
	}
	switch {
	case from.IsFloatingPoint() && to.IsFloatingPoint():
		return image.To(to)
	case from.IsFloatingPoint():
		if from == gotorch.Float32 && (to == gotorch.Int32 || to == gotorch.Int64) || from == gotorch.Float64 && to == gotorch.Int64 {
			panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError,
				Msg: from.String() + " is not precise enough for the range of " + to.String() + ": convert without Scale, or to another dtype"})
		}
		// With a little less than one added, each integer has an equal part of the range from 0 to 1.
		return times(image, maxValue(to)+1.0-1e-3).To(to)
	case to.IsFloatingPoint():
		return times_(image.To(to), 1/maxValue(from))
	}
	in, out := valueBits(op, from), valueBits(op, to)
	switch {
	case in > out && from == gotorch.Uint16: // which has no shifts
		return image.DivScalar(int64(1) << (in - out)).To(to)
	case in > out:
		return image.BitwiseRightShiftTensorScalar(in - out).To(to)
	case to == gotorch.Uint16:
		return image.To(to).MulScalar(int64(1) << (out - in))
	}
	return image.To(to).BitwiseLeftShiftTensorScalar_(out - in)
}

// EraseOptions are the arguments of [Erase] that have defaults.
type EraseOptions struct {
	InPlace bool // change the image itself
}

// Erase puts v, which is broadcast to (C, h, w), into the rectangle that begins at row i and column j. A part of the rectangle
// that is outside of the image is left out, and a negative i or j counts from the end, as in a slice of Python.
//
// torchvision: erase.
func Erase(image gotorch.Tensor, i, j, h, w int64, v gotorch.Tensor, opts ...EraseOptions) gotorch.Tensor {
	const op = "functional.Erase"
	opt := args.Option(opts)
	hw(op, image)
	if h < 0 || w < 0 {
		panic(args.ValueError(op, "the rectangle of %d×%d must not have a negative size", h, w))
	}
	if !opt.InPlace {
		image = image.Clone()
	}
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		image.Index(gotorch.Ellipsis, gotorch.Slice(i, i+h), gotorch.Slice(j, j+w)).Copy_(v)
	})
	return image
}

// UniformTemporalSubsample picks numSamples frames of a video (..., T, C, H, W), the same times apart: a frame may
// come several times. It panics with a ValueError if numSamples is not positive or there is no frame.
//
// torchvision: uniform_temporal_subsample.
func UniformTemporalSubsample(video gotorch.Tensor, numSamples int64) gotorch.Tensor {
	const op = "functional.UniformTemporalSubsample"
	chw(op, video)
	if video.Dim() < 4 || video.Size(-4) == 0 || numSamples <= 0 {
		panic(args.ValueError(op, "the video must be (..., T, C, H, W) with frames, and numSamples positive, but got %v and %d", video.Shape(), numSamples))
	}
	return lean(func() gotorch.Tensor {
		at := gotorch.Linspace(0, video.Size(-4)-1, numSamples, like(video, gotorch.Float32)).To(gotorch.Int64)
		return video.IndexSelect(-4, at)
	})
}
