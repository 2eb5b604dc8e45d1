package transforms

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/vision/transforms/functional"
)

// RandomErasingOptions are the arguments of [RandomErasing] that have defaults.
type RandomErasingOptions struct {
	P           gotorch.Scalar // the probability; default: 0.5
	Scale       []float64      // the smallest and the largest part of the area; nil is 0.02 and 0.33
	Ratio       []float64      // the smallest and the largest ratio of height to width; nil is 0.3 and 3.3
	Value       []float64      // the colour, one number or one a channel; nil is 0
	RandomValue bool           // noise rather than a colour; torchvision: value="random"
	InPlace     bool           // change the image itself
}

// RandomErasing paints over a rectangle of the image, with a probability. Masks, boxes and points stay.
//
// torchvision: v2.RandomErasing.
func RandomErasing(opts ...RandomErasingOptions) Transform {
	const op = "transforms.RandomErasing"
	opt := args.Option(opts)
	scale, ratio := ordered(op, "Scale", opt.Scale, [2]float64{0.02, 0.33}), ordered(op, "Ratio", opt.Ratio, [2]float64{0.3, 3.3})
	if scale[0] < 0 || scale[1] > 1 || ratio[0] <= 0 {
		panic(args.ValueError(op, "Scale must be from 0 to 1 and Ratio positive, not %v and %v", scale, ratio))
	}
	if opt.RandomValue && opt.Value != nil {
		panic(args.ValueError(op, "Value and RandomValue exclude each other"))
	}
	value, log := filled(opt.Value), logs(ratio)
	return sometimes(op, text("RandomErasing", "p", or(opt.P, 0.5), "scale", scale, "ratio", ratio), opt.P, 0.5,
		New("", func(s Sample, g *gotorch.Generator) Sample {
			c, height, width := s.imageSize(op)
			if n := int64(len(value)); n != 1 && n != c {
				panic(args.ValueError(op, "Value must have one number, or one for each of the %d channels, not %d", c, n))
			}
			for range 10 {
				h, w := ratioOf(g, float64(height*width), scale, log)
				if h >= height || w >= width {
					continue
				}
				var v gotorch.Tensor
				if opt.RandomValue {
					v = gotorch.Empty([]int64{c, h, w}, gotorch.TensorOptions{DType: gotorch.Float32}).Normal_(gotorch.Normal_Options{Generator: g})
				} else {
					v = gotorch.NewTensor(value, gotorch.TensorOptions{DType: gotorch.Float32}).View([]int64{-1, 1, 1})
				}
				i, j := integer(g, 0, height-h+1), integer(g, 0, width-w+1)
				s.Image = F.Erase(s.Image, i, j, h, w, v, F.EraseOptions{InPlace: opt.InPlace})
				break
			}
			return s
		}))
}

// MixOptions are the arguments of [MixUp] and [CutMix] that have defaults.
type MixOptions struct {
	Alpha      gotorch.Scalar // both parameters of the beta distribution that the ratio is drawn from; default: 1
	NumClasses gotorch.Scalar // how many classes there are, where labels are numbers; nil is that they are probabilities
}

// mixing is what [MixUp] and [CutMix] have in common: mix gets the ratio and says what is left of the images.
func mixing(op, name string, opts []MixOptions, mix func(image gotorch.Tensor, ratio float64, g *gotorch.Generator) (gotorch.Tensor, float64)) Transform {
	opt := args.Option(opts)
	alpha := args.Float(op, "Alpha", opt.Alpha, 1)
	if !(alpha > 0) {
		panic(args.ValueError(op, "Alpha must be positive, but is %v", alpha))
	}
	classes := args.IntPointer(op, "NumClasses", opt.NumClasses)
	return New(text(name, "alpha", alpha, "num_classes", opt.NumClasses), func(s Sample, g *gotorch.Generator) Sample {
		if s.Boxes.Tensor.Defined() || s.Mask.Defined() || s.KeyPoints.Tensor.Defined() {
			panic(args.ValueError(op, "boxes, masks and key points are not for this transform"))
		}
		labels, n := s.Labels, int64(-1)
		if classes != nil {
			n = *classes
		}
		switch {
		case !labels.Defined():
			panic(args.ValueError(op, "the batch has no labels"))
		case labels.Dim() != 1 && labels.Dim() != 2:
			panic(args.ValueError(op, "labels must be (N), of classes, or (N, classes), of probabilities, but the shape is %v", labels.Shape()))
		case labels.Dim() == 2 && classes != nil && labels.Size(1) != n:
			panic(args.ValueError(op, "labels are for %d classes, and NumClasses is %d", labels.Size(1), n))
		case labels.Dim() == 1 && classes == nil:
			panic(args.ValueError(op, "NumClasses must be given where labels are numbers of classes"))
		case !s.Image.Defined():
			panic(args.ValueError(op, "the batch has no images"))
		case s.Image.Dim() != 4 && s.Image.Dim() != 5:
			panic(args.ValueError(op, "a batch must be (N, C, H, W), or (N, T, C, H, W), but the shape is %v", s.Image.Shape()))
		case s.Image.Size(0) != labels.Size(0):
			panic(args.ValueError(op, "there are %d images and %d labels", s.Image.Size(0), labels.Size(0)))
		}
		both := gotorch.NewTensor([][]float32{{float32(alpha), float32(alpha)}})
		ratio := gotorch.Item[float64](dirichlet(g, both).Select(-1, 0))
		s.Image, ratio = mix(s.Image, ratio, g)
		if labels.Dim() == 1 {
			labels = gotorch.OneHot(labels, gotorch.OneHotOptions{NumClasses: classes})
		}
		if !labels.IsFloatingPoint() {
			labels = labels.To(gotorch.Float32)
		}
		s.Labels = mixed(labels, ratio)
		return s
	})
}

// mixed is each row with a part of the one before it.
func mixed(t gotorch.Tensor, ratio float64) gotorch.Tensor {
	return rolled(t).MulScalar_(1 - ratio).Add_(t.MulScalar(ratio))
}

func rolled(t gotorch.Tensor) gotorch.Tensor {
	return t.Roll([]int64{1}, gotorch.RollOptions{Dims: []int64{0}})
}

// MixUp mixes each image of a batch with the one before it, and the labels by the same ratio: images (N, C, H, W) of floats, labels
// (N) of classes or (N, classes) → (N, classes). Use it behind a loader:
//
//	for batch, err := range loader.All() {
//		s := mix.Apply(transforms.Sample{Image: batch.Input, Labels: batch.Target}, nil)
//		loss := F.CrossEntropy(model.Forward(s.Image), s.Labels)
//
// torchvision: v2.MixUp.
func MixUp(opts ...MixOptions) Transform {
	return mixing("transforms.MixUp", "MixUp", opts, func(image gotorch.Tensor, ratio float64, _ *gotorch.Generator) (gotorch.Tensor, float64) {
		return mixed(image, ratio), ratio
	})
}

// CutMix puts a rectangle of the image before it into each image of a batch, and mixes the labels by its area. See [MixUp].
//
// torchvision: v2.CutMix.
func CutMix(opts ...MixOptions) Transform {
	return mixing("transforms.CutMix", "CutMix", opts, func(image gotorch.Tensor, ratio float64, g *gotorch.Generator) (gotorch.Tensor, float64) {
		h, w := F.Size(image)
		if h == 0 || w == 0 {
			panic(args.ValueError("transforms.CutMix", "the images have no pixels"))
		}
		x, y := integer(g, 0, w), integer(g, 0, h)
		r := 0.5 * math.Sqrt(1-ratio)
		dx, dy := int64(r*float64(w)), int64(r*float64(h))
		x1, y1, x2, y2 := max(x-dx, 0), max(y-dy, 0), min(x+dx, w), min(y+dy, h)
		out := image.Clone()
		part := func(t gotorch.Tensor) gotorch.Tensor { return t.Narrow(-2, y1, y2-y1).Narrow(-1, x1, x2-x1) }
		part(out).Copy_(part(rolled(image)))
		return out, 1 - float64((x2-x1)*(y2-y1))/float64(w*h)
	})
}
