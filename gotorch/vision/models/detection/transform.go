package detection

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

// Target is what is in an image.
type Target struct {
	Boxes  gotorch.Tensor // (L, 4), corners x1, y1, x2, y2 in pixels, of a floating point dtype
	Labels gotorch.Tensor // (L), int64, from 1 on: 0 is the background
}

// Detections are what a model found in an image, by falling scores.
type Detections struct {
	Boxes  gotorch.Tensor // (L, 4), corners x1, y1, x2, y2 in pixels of the image that was given
	Labels gotorch.Tensor // (L), int64
	Scores gotorch.Tensor // (L), from 0 to 1
}

// GeneralizedRCNNTransform makes a batch of images of several sizes: see [NewGeneralizedRCNNTransform].
type GeneralizedRCNNTransform struct {
	nn.Module
	MinSize             []int64
	MaxSize             int64
	ImageMean, ImageStd []float64
	SizeDivisible       int64
	FixedSize           []int64 // width and height, or nil
}

// GeneralizedRCNNTransformOptions are the arguments of [NewGeneralizedRCNNTransform] that have defaults.
type GeneralizedRCNNTransformOptions struct {
	SizeDivisible gotorch.Scalar // of the batch's height and width; default: 32
	FixedSize     []int64        // the width and height that all images get; nil: by minSize and maxSize
}

// NewGeneralizedRCNNTransform makes a module that normalises images, and resizes them so that the shorter side is
// minSize and the longer one at most maxSize. Of several minSizes it draws one while training, and takes the last one
// else. It panics with a ValueError if there is none, a size is not positive, or there are not as many deviations as
// means.
//
// See https://github.com/pytorch/vision/blob/main/torchvision/models/detection/transform.py.
func NewGeneralizedRCNNTransform(minSize []int64, maxSize int64, imageMean, imageStd []float64, opts ...GeneralizedRCNNTransformOptions) *GeneralizedRCNNTransform {
	const op = "detection.NewGeneralizedRCNNTransform"
	opt := args.Option(opts)
	m := &GeneralizedRCNNTransform{MinSize: slices.Clone(minSize), MaxSize: maxSize, ImageMean: slices.Clone(imageMean), ImageStd: slices.Clone(imageStd),
		SizeDivisible: args.Int(op, "SizeDivisible", opt.SizeDivisible, 32), FixedSize: slices.Clone(opt.FixedSize)}
	const most = 1 << 20
	switch {
	case len(minSize) == 0 || slices.Min(minSize) < 1 || maxSize < 1 || m.SizeDivisible < 1 || max(slices.Max(minSize), maxSize, m.SizeDivisible) > most:
		panic(args.ValueError(op, "sizes must be from 1 to %d, got %v, %d and %d", most, minSize, maxSize, m.SizeDivisible))
	case len(opt.FixedSize) != 0 && (len(opt.FixedSize) != 2 || slices.Min(opt.FixedSize) < 1 || slices.Max(opt.FixedSize) > most):
		panic(args.ValueError(op, "FixedSize must be a width and a height, and is %v", opt.FixedSize))
	case len(imageMean) == 0 || len(imageMean) != len(imageStd):
		panic(args.ValueError(op, "there must be a mean and a deviation for each channel, got %v and %v", imageMean, imageStd))
	}
	return nn.Init(m)
}

// Forward returns images as a batch, and the targets for their new sizes. It panics with a ValueError if an image is
// not of shape (C, H, W) with a pixel at least, and with a TypeError if it is not of a floating point dtype.
func (m *GeneralizedRCNNTransform) Forward(images []gotorch.Tensor, targets []Target) (ImageList, []Target) {
	const op = "detection.GeneralizedRCNNTransform"
	resized := make([]gotorch.Tensor, len(images))
	targets = slices.Clone(targets)
	for i, image := range images {
		shape := image.Shape()
		switch {
		case len(shape) != 3:
			panic(args.ValueError(op, "images is expected to be a list of 3d tensors of shape [C, H, W], got %v", shape))
		case shape[0] != int64(len(m.ImageMean)) || shape[1] < 1 || shape[2] < 1:
			panic(args.ValueError(op, "images must have %d channels and a pixel at least, and images[%d] is of shape %v", len(m.ImageMean), i, shape))
		case !image.DType().IsFloatingPoint():
			panic(args.TypeError(op, "Expected input images to be of floating type (in range [0, 1]), but found type %s instead", image.DType()))
		}
		resized[i] = m.resize(m.normalize(image))
		if targets != nil {
			size := resized[i].Shape()
			targets[i].Boxes = resizeBoxes(targets[i].Boxes, [2]int64(shape[1:]), [2]int64(size[1:]))
		}
	}
	list := ImageList{}
	for _, image := range resized {
		list.ImageSizes = append(list.ImageSizes, [2]int64(image.Shape()[1:]))
	}
	list.Tensors = m.batch(resized)
	return list, targets
}

func (m *GeneralizedRCNNTransform) normalize(image gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		along := func(values []float64) gotorch.Tensor {
			return gotorch.FromSlice(values, int64(len(values)), 1, 1).To(gotorch.ToOptions{DType: image.DType(), Device: image.Device()})
		}
		return image.Sub(along(m.ImageMean)).Div(along(m.ImageStd))
	})
}

func (m *GeneralizedRCNNTransform) resize(image gotorch.Tensor) gotorch.Tensor {
	size := m.MinSize[len(m.MinSize)-1]
	if m.Training() {
		at := int(gotorch.Item[float64](gotorch.Empty([]int64{1}).Uniform_(gotorch.UniformOptions{To: new(float64(len(m.MinSize)))})))
		size = m.MinSize[min(at, len(m.MinSize)-1)]
	}
	opt := F.InterpolateOptions{Mode: F.InterpolateBilinear, AlignCorners: false}
	if len(m.FixedSize) == 2 {
		opt.Size = []int64{m.FixedSize[1], m.FixedSize[0]}
	} else {
		h, w := image.Size(1), image.Size(2)
		opt.ScaleFactor = []float64{min(float64(size)/float64(min(h, w)), float64(m.MaxSize)/float64(max(h, w)))}
		opt.RecomputeScaleFactor = true
		if int64(float64(min(h, w))*opt.ScaleFactor[0]) < 1 {
			panic(args.ValueError("detection.GeneralizedRCNNTransform", "an image of %d×%d has no pixels left when its longer side is %d", h, w, m.MaxSize))
		}
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		return F.Interpolate(image.Unsqueeze(0), opt).Select(0, 0)
	})
}

func (m *GeneralizedRCNNTransform) batch(images []gotorch.Tensor) gotorch.Tensor {
	size := slices.Clone(images[0].Shape())
	for _, image := range images {
		for i, n := range image.Shape() {
			size[i] = max(size[i], n)
		}
	}
	for i := 1; i < 3; i++ {
		size[i] = (size[i] + m.SizeDivisible - 1) / m.SizeDivisible * m.SizeDivisible
	}
	result := images[0].NewFull(append([]int64{int64(len(images))}, size...), 0)
	for i, image := range images {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			result.Index(gotorch.At(i), gotorch.All, gotorch.SliceTo(image.Size(1)), gotorch.SliceTo(image.Size(2))).Copy_(image)
		})
	}
	return result
}

// Postprocess returns what was found in images of one size as it is in those of another.
func (m *GeneralizedRCNNTransform) Postprocess(found []Detections, sizes, originals [][2]int64) []Detections {
	found = slices.Clone(found)
	for i := range found {
		found[i].Boxes = resizeBoxes(found[i].Boxes, sizes[i], originals[i])
	}
	return found
}

// resizeBoxes returns boxes of an image when that has another size, of heights and widths.
func resizeBoxes(boxes gotorch.Tensor, from, to [2]int64) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		y, x := float64(float32(to[0])/float32(from[0])), float64(float32(to[1])/float32(from[1]))
		return gotorch.Stack([]gotorch.Tensor{column(boxes, 0).MulScalar(x), column(boxes, 1).MulScalar(y),
			column(boxes, 2).MulScalar(x), column(boxes, 3).MulScalar(y)}, gotorch.StackOptions{Dim: 1})
	})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *GeneralizedRCNNTransform) ExtraRepr() string {
	sizes := make([]string, len(m.MinSize))
	for i, n := range m.MinSize {
		sizes[i] = strconv.FormatInt(n, 10)
	}
	text := strings.Join(sizes, ", ")
	if len(sizes) == 1 {
		text += ","
	}
	list := func(values []float64) string {
		parts := make([]string, len(values))
		for i, v := range values {
			parts[i] = strconv.FormatFloat(v, 'f', -1, 64)
			if v == math.Trunc(v) {
				parts[i] += ".0"
			}
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprintf("Normalize(mean=%s, std=%s)\nResize(min_size=(%s), max_size=%d, mode='bilinear')", list(m.ImageMean), list(m.ImageStd), text, m.MaxSize)
}
