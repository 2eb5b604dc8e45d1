package transforms

import (
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/vision/transforms/functional"
)

// nested is the text of a transform of others.
func nested(name string, list []Transform, more string) string {
	var b strings.Builder
	b.WriteString(name + "(\n")
	for _, t := range list {
		b.WriteString("  " + strings.ReplaceAll(t.String(), "\n", "\n  ") + "\n")
	}
	return b.String() + more + ")"
}

// Compose applies transforms one after the other. It panics with a ValueError if there is none.
//
// torchvision: v2.Compose.
func Compose(list ...Transform) Transform {
	required("transforms.Compose", list)
	list = append([]Transform(nil), list...)
	return New(nested("Compose", list, ""), func(s Sample, g *gotorch.Generator) Sample {
		for _, t := range list {
			s = t.Apply(s, g)
		}
		return s
	})
}

// RandomApplyOptions are the arguments of [RandomApply] that have defaults.
type RandomApplyOptions struct {
	P gotorch.Scalar // the probability; default: 0.5
}

// RandomApply applies all transforms of a list, or none.
//
// torchvision: v2.RandomApply.
func RandomApply(list []Transform, opts ...RandomApplyOptions) Transform {
	const op = "transforms.RandomApply"
	required(op, list)
	return sometimes(op, nested("RandomApply", list, ""), args.Option(opts).P, 0.5, Compose(list...))
}

// RandomChoiceOptions are the arguments of [RandomChoice] that have defaults.
type RandomChoiceOptions struct {
	P []float64 // a weight for each transform; nil is the same for all
}

// RandomChoice applies one transform of a list.
//
// torchvision: v2.RandomChoice.
func RandomChoice(list []Transform, opts ...RandomChoiceOptions) Transform {
	const op = "transforms.RandomChoice"
	required(op, list)
	p := args.Option(opts).P
	weights := make([]float64, len(list))
	total := 0.0
	for i := range weights {
		weights[i] = 1
		if p != nil {
			if len(p) != len(list) {
				panic(args.ValueError(op, "P must have a number for each of the %d transforms, not %d", len(list), len(p)))
			}
			weights[i] = p[i]
		}
		if !(weights[i] >= 0) {
			panic(args.ValueError(op, "P must have no negative numbers, but has %v", weights[i]))
		}
		total += weights[i]
	}
	if !(total > 0) {
		panic(args.ValueError(op, "P must have a positive number"))
	}
	for i := range weights {
		weights[i] /= total
	}
	list = append([]Transform(nil), list...)
	return New(nested("RandomChoice", list, ""), func(s Sample, g *gotorch.Generator) Sample {
		weights := gotorch.NewTensor(weights, gotorch.TensorOptions{DType: gotorch.Float32})
		drawn := weights.Multinomial(1, gotorch.MultinomialOptions{Generator: g})
		return list[gotorch.Item[int64](drawn)].Apply(s, g)
	})
}

// RandomOrder applies all transforms of a list, in any order.
//
// torchvision: v2.RandomOrder.
func RandomOrder(list ...Transform) Transform {
	required("transforms.RandomOrder", list)
	list = append([]Transform(nil), list...)
	return New(nested("RandomOrder", list, ""), func(s Sample, g *gotorch.Generator) Sample {
		for _, i := range permutation(g, int64(len(list))) {
			s = list[i].Apply(s, g)
		}
		return s
	})
}

// Identity changes nothing.
//
// torchvision: v2.Identity.
func Identity() Transform {
	return New("Identity()", func(s Sample, _ *gotorch.Generator) Sample { return s })
}

// Lambda applies a function to the image. For one that draws, or looks at more of the sample, see [New].
//
// torchvision: v2.Lambda.
func Lambda(fn func(image gotorch.Tensor) gotorch.Tensor) Transform {
	if fn == nil {
		panic(args.TypeError("transforms.Lambda", "the function is nil"))
	}
	return onImage("Lambda()", fn)
}

// ToDtypeOptions are the arguments of [ToDtype] that have defaults.
type ToDtypeOptions struct {
	Scale bool // keep colours what they are: 255 of uint8 is 1 of a float
}

// ToDtype converts the image, as [functional.ToDtype] does. With Scale and float32 it is what ToTensor and
// ConvertImageDtype are in torchvision.
//
// torchvision: v2.ToDtype.
//
// [functional.ToDtype]: https://pkg.go.dev/gotorch.dev/gotorch/vision/transforms/functional#ToDtype
func ToDtype(dtype gotorch.DType, opts ...ToDtypeOptions) Transform {
	opt := args.Option(opts)
	if dtype == 0 {
		panic(args.TypeError("transforms.ToDtype", "the dtype is the zero DType, where one is required"))
	}
	return onImage(text("ToDtype", "dtype", dtype, "scale", opt.Scale), func(image gotorch.Tensor) gotorch.Tensor {
		return F.ToDtype(image, dtype, F.ToDtypeOptions(opt))
	})
}

// NormalizeOptions are the arguments of [Normalize] that have defaults.
type NormalizeOptions struct {
	InPlace bool // change the image itself
}

// Normalize subtracts the mean of each channel from a float image, and divides by its standard deviation.
//
// torchvision: v2.Normalize.
func Normalize(mean, std []float64, opts ...NormalizeOptions) Transform {
	const op = "transforms.Normalize"
	opt := args.Option(opts)
	if len(mean) == 0 || len(std) == 0 {
		panic(args.ValueError(op, "mean and std must have one number, or one for each channel, not %v and %v", mean, std))
	}
	mean, std = append([]float64(nil), mean...), append([]float64(nil), std...)
	return onImage(text("Normalize", "mean", mean, "std", std), func(image gotorch.Tensor) gotorch.Tensor {
		return F.Normalize(image, mean, std, F.NormalizeOptions(opt))
	})
}

// LinearTransformation multiplies the image, as a row of D = C·H·W numbers less a mean vector of (D), with a matrix of
// (D, D): such as one that makes colours independent. It keeps both tensors and does not copy them.
//
// torchvision: v2.LinearTransformation.
func LinearTransformation(matrix, mean gotorch.Tensor) Transform {
	const op = "transforms.LinearTransformation"
	if !matrix.Defined() || !mean.Defined() || matrix.Dim() != 2 || matrix.Size(0) != matrix.Size(1) || mean.Dim() != 1 || mean.Size(0) != matrix.Size(0) {
		panic(args.ValueError(op, "the matrix must be (D, D) and the mean (D)"))
	}
	if matrix.DType() != mean.DType() || matrix.Device() != mean.Device() {
		panic(args.ValueError(op, "the matrix and the mean must have one dtype and one device"))
	}
	n := mean.Size(0)
	return onImage("LinearTransformation()", func(image gotorch.Tensor) gotorch.Tensor {
		c, h, w := F.Dimensions(image)
		if c*h*w != n {
			panic(args.ValueError(op, "the image has %d×%d×%d numbers, and the matrix is for %d", c, h, w, n))
		}
		flat := image.Reshape([]int64{-1, n}).Sub(mean)
		return flat.MM(matrix.To(flat.DType())).Reshape(image.Shape())
	})
}
