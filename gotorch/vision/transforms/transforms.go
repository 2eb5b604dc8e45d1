// Package transforms changes images on their way to a network, as torchvision.transforms.v2 does: with its names,
// options and numbers, to the last bit, and with the same random numbers after the same seed.
//
//	train := transforms.Compose(
//		transforms.RandomResizedCrop(224),
//		transforms.RandomHorizontalFlip(),
//		transforms.RandAugment(),
//		transforms.ToDtype(gotorch.Float32, transforms.ToDtypeOptions{Scale: true}),
//		transforms.Normalize([]float64{0.485, 0.456, 0.406}, []float64{0.229, 0.224, 0.225}),
//	)
//	gotorch.ManualSeed(1)
//	x := train.Forward(image) // what Python's train(image) is after torch.manual_seed(1)
//
// An image is a tensor of (..., C, H, W), which package imageio reads from files. Boxes, masks and key points go with it in a
// [Sample], and are moved as it is.
//
// A loader's workers must not share a source of random numbers, or the result would depend on who comes first. So a
// data set is transformed with [Pairs] or [Samples], which give each sample a generator of its own, seeded from its batch's
// source. The same seed of the loader then makes the same images with any number of workers:
//
//	set := data.Transform(photos, transforms.Pairs(train))
//	loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 64, Shuffle: true, Workers: 4, Seed: 7})
//
// [MixUp] and [CutMix] are for whole batches: they change the labels, too, and come behind the loader. A transform has no
// state and may be used by many goroutines at a time. One of your own is [Lambda], or [New] if it draws.
package transforms

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/vision/transforms/functional"
)

// Sample is an image with what belongs to it. What is not given stays so; an image may be missing, too.
type Sample struct {
	Image     gotorch.Tensor // (..., C, H, W): an image, a batch of them, or a video
	Mask      gotorch.Tensor // (..., H, W): numbers of classes, or a mask for each object
	Boxes     F.BoundingBoxes
	KeyPoints F.KeyPoints
	Labels    gotorch.Tensor // one of the image, or one for each box
}

// Collate stacks the images, masks and labels of samples to a batch. Boxes and key points, of which each image
// has another number, are a TypeError: give a loader a type of your own for these.
func (Sample) Collate(samples []Sample) (Sample, error) {
	for _, s := range samples {
		if s.Boxes.Tensor.Defined() || s.KeyPoints.Tensor.Defined() {
			return Sample{}, &gotorch.Error{Op: "transforms.Sample.Collate", Kind: gotorch.TypeError,
				Msg: "boxes and key points cannot be stacked, for each image has another number of them: use a type with a Collate of its own"}
		}
	}
	return gotorch.Try(func() (batch Sample) {
		for _, part := range []struct {
			of func(*Sample) *gotorch.Tensor
		}{
			{func(s *Sample) *gotorch.Tensor { return &s.Image }},
			{func(s *Sample) *gotorch.Tensor { return &s.Mask }},
			{func(s *Sample) *gotorch.Tensor { return &s.Labels }},
		} {
			var list []gotorch.Tensor
			for i := range samples {
				if t := *part.of(&samples[i]); t.Defined() {
					list = append(list, t)
				}
			}
			switch {
			case len(list) == len(samples) && len(list) > 0:
				*part.of(&batch) = gotorch.Stack(list)
			case len(list) > 0:
				panic(args.ValueError("transforms.Sample.Collate", "some samples have an image, mask or label that others lack"))
			}
		}
		return batch
	})
}

// Transform changes samples. [New] makes one.
type Transform interface {
	// Forward changes an image, with random numbers of the default generator.
	Forward(image gotorch.Tensor) gotorch.Tensor
	// Apply changes a sample, with random numbers of g; nil is the default generator.
	Apply(s Sample, g *gotorch.Generator) Sample
	// String is the transform's name with what it was made with.
	String() string
}

type transform struct {
	text  string
	apply func(s Sample, g *gotorch.Generator) Sample
}

// New makes a transform of a function, which must draw from g alone and leave the tensors of s as they are. What it makes
// on the way is freed when it returns.
func New(text string, apply func(s Sample, g *gotorch.Generator) Sample) Transform {
	if apply == nil {
		panic(args.TypeError("transforms.New", "the function is nil"))
	}
	return &transform{text, apply}
}

func (t *transform) String() string { return t.text }

func (t *transform) Forward(image gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return t.apply(Sample{Image: image}, nil).Image })
}

func (t *transform) Apply(s Sample, g *gotorch.Generator) Sample {
	return gotorch.Scope(func(*gotorch.ScopeHandle) Sample { return t.apply(s, g) })
}

// generators are those that are not in use: making one takes longer than seeding it.
var generators = sync.Pool{New: func() any { return gotorch.NewGenerator(gotorch.CPU) }}

// seeded calls fn with a generator of its own.
func seeded[R any](rng *rand.Rand, fn func(g *gotorch.Generator) R) (R, error) {
	g := generators.Get().(*gotorch.Generator)
	defer generators.Put(g)
	return gotorch.Try(func() R { return fn(g.ManualSeed(rng.Uint64())) })
}

// Samples is a transform as [data.Transform] takes it, for a data set of samples.
func Samples(t Transform) func(s Sample, rng *rand.Rand) (Sample, error) {
	required("transforms.Samples", []Transform{t})
	return func(s Sample, rng *rand.Rand) (Sample, error) {
		return seeded(rng, func(g *gotorch.Generator) Sample { return t.Apply(s, g) })
	}
}

// Pairs is a transform as [data.Transform] takes it, for a data set of pairs whose input is an image and whose target is its
// label.
func Pairs(t Transform) func(p data.Pair, rng *rand.Rand) (data.Pair, error) {
	required("transforms.Pairs", []Transform{t})
	return func(p data.Pair, rng *rand.Rand) (data.Pair, error) {
		return seeded(rng, func(g *gotorch.Generator) data.Pair {
			s := t.Apply(Sample{Image: p.Input, Labels: p.Target}, g)
			return data.Pair{Input: s.Image, Target: s.Labels}
		})
	}
}

// required panics if there is no transform, or a nil one.
func required(op string, list []Transform) {
	if len(list) == 0 {
		panic(args.ValueError(op, "at least one transform is required"))
	}
	if slices.Contains(list, nil) {
		panic(args.TypeError(op, "a transform is nil"))
	}
}

// text is a transform's name with its arguments: names and values in turn.
func text(name string, arguments ...any) string {
	var b strings.Builder
	b.WriteString(name + "(")
	for i := 0; i < len(arguments); i += 2 {
		if i > 0 {
			b.WriteString(", ")
		}
		value := fmt.Sprint(arguments[i+1])
		if strings.HasPrefix(value, "[") {
			value = strings.ReplaceAll(value, " ", ", ")
		}
		fmt.Fprintf(&b, "%s=%s", arguments[i], value)
	}
	return b.String() + ")"
}

// onImage changes the image alone.
func onImage(name string, fn func(image gotorch.Tensor) gotorch.Tensor) Transform {
	return New(name, func(s Sample, _ *gotorch.Generator) Sample {
		if s.Image.Defined() {
			s.Image = fn(s.Image)
		}
		return s
	})
}

// sometimes is a transform with a probability.
func sometimes(op, name string, p gotorch.Scalar, value float64, t Transform) Transform {
	chance := probability(op, p, value)
	return New(name, func(s Sample, g *gotorch.Generator) Sample {
		if !below(g, chance) {
			return s
		}
		return t.Apply(s, g)
	})
}

func probability(op string, p gotorch.Scalar, value float64) float64 {
	chance := args.Float(op, "P", p, value)
	if !(chance >= 0 && chance <= 1) {
		panic(args.ValueError(op, "P must be from 0 to 1, but is %v", chance))
	}
	return chance
}

// moved changes all parts of a sample. Those that have no function stay as they are.
type moved struct {
	image, mask func(gotorch.Tensor) gotorch.Tensor
	boxes       func(F.BoundingBoxes) F.BoundingBoxes
	points      func(F.KeyPoints) F.KeyPoints
}

func (m moved) apply(s Sample) Sample {
	if s.Image.Defined() {
		s.Image = m.image(s.Image)
	}
	if s.Mask.Defined() && m.mask != nil {
		s.Mask = onMask(s.Mask, m.mask)
	}
	if s.Boxes.Tensor.Defined() && m.boxes != nil {
		s.Boxes = m.boxes(s.Boxes)
	}
	if s.KeyPoints.Tensor.Defined() && m.points != nil {
		s.KeyPoints = m.points(s.KeyPoints)
	}
	return s
}

// onMask gives a mask of two dimensions a third one meanwhile.
func onMask(mask gotorch.Tensor, fn func(gotorch.Tensor) gotorch.Tensor) gotorch.Tensor {
	if mask.Dim() == 2 {
		return fn(mask.Unsqueeze(0)).SqueezeDim(0)
	}
	return fn(mask)
}

// size is the height and the width of all parts of a sample. It panics with a ValueError where they differ, and
// with a TypeError where there is none.
func (s Sample) size(op string) (h, w int64) {
	found := false
	see := func(height, width int64) {
		if found && (h != height || w != width) {
			panic(args.ValueError(op, "the parts of the sample have several sizes: %d×%d and %d×%d", h, w, height, width))
		}
		h, w, found = height, width, true
	}
	if s.Image.Defined() {
		see(F.Size(s.Image))
	}
	if s.Mask.Defined() {
		see(F.Size(s.Mask))
	}
	if s.Boxes.Tensor.Defined() {
		see(s.Boxes.CanvasSize[0], s.Boxes.CanvasSize[1])
	}
	if s.KeyPoints.Tensor.Defined() {
		see(s.KeyPoints.CanvasSize[0], s.KeyPoints.CanvasSize[1])
	}
	if !found {
		panic(args.TypeError(op, "the sample has no image, mask, boxes or key points"))
	}
	return h, w
}

// imageSize is the channels, the height and the width of the image.
func (s Sample) imageSize(op string) (c, h, w int64) {
	if !s.Image.Defined() {
		panic(args.TypeError(op, "the sample has no image"))
	}
	return F.Dimensions(s.Image)
}

// The random numbers of torch, in its order: each is drawn as Python draws it.

func uniforms(g *gotorch.Generator, shape ...int64) gotorch.Tensor {
	return gotorch.Empty(shape, gotorch.TensorOptions{DType: gotorch.Float32}).Uniform_(gotorch.UniformOptions{Generator: g})
}

func uniform(g *gotorch.Generator, from, to float64) float64 {
	t := gotorch.Empty([]int64{1}, gotorch.TensorOptions{DType: gotorch.Float32})
	return gotorch.Item[float64](t.Uniform_(gotorch.UniformOptions{From: from, To: &to, Generator: g}))
}

// below reports whether a random number is below a probability, which is rounded to float32 as the number is.
func below(g *gotorch.Generator, p float64) bool { return float32(uniform(g, 0, 1)) < float32(p) }

// atMost is below or the same.
func atMost(g *gotorch.Generator, p float64) bool { return float32(uniform(g, 0, 1)) <= float32(p) }

// integer is a whole number from low on, below high.
func integer(g *gotorch.Generator, low, high int64) int64 {
	t := gotorch.Empty([]int64{1}, gotorch.TensorOptions{DType: gotorch.Int64})
	return gotorch.Item[int64](t.RandomFrom_(low, &high, gotorch.RandomFromOptions{Generator: g}))
}

func permutation(g *gotorch.Generator, n int64) []int64 {
	return gotorch.ToSlice[int64](gotorch.RandpermGenerator(n, g, gotorch.TensorOptions{DType: gotorch.Int64}))
}

// dirichlet draws vectors that sum to 1.
func dirichlet(g *gotorch.Generator, concentration gotorch.Tensor) gotorch.Tensor {
	return gotorch.Call("aten::_sample_dirichlet", "", concentration, g)[0].(gotorch.Tensor)
}

// ratioOf draws the side lengths of a rectangle with some part of an area, and a ratio between its sides.
func ratioOf(g *gotorch.Generator, area float64, scale [2]float64, ratio gotorch.Tensor) (long, short int64) {
	target := area * uniform(g, scale[0], scale[1])
	bounds := gotorch.ToSlice[float64](ratio)
	t := gotorch.Empty([]int64{1}, gotorch.TensorOptions{DType: gotorch.Float32})
	aspect := gotorch.Item[float64](t.Uniform_(gotorch.UniformOptions{From: bounds[0], To: &bounds[1], Generator: g}).Exp())
	return whole(math.Sqrt(target * aspect)), whole(math.Sqrt(target / aspect))
}

// whole rounds as Python does: halves to even numbers.
func whole(f float64) int64 { return int64(math.RoundToEven(f)) }

// logs are the logarithms of a range, as float32.
func logs(bounds [2]float64) gotorch.Tensor {
	return gotorch.NewTensor(bounds[:], gotorch.TensorOptions{DType: gotorch.Float32}).Log()
}

// Range is a number, or the smallest and the largest one.
type Range interface {
	int | float64 | []float64 | [2]float64
}

func floats[R Range](r R) []float64 {
	switch r := any(r).(type) {
	case int:
		return []float64{float64(r)}
	case float64:
		return []float64{r}
	case []float64:
		return slices.Clone(r)
	case [2]float64:
		return r[:]
	}
	panic("unreachable")
}

// around is a range, or one from -d to d for a number.
func around(op, name string, list []float64) [2]float64 {
	switch len(list) {
	case 1:
		if list[0] < 0 {
			panic(args.ValueError(op, "%s must not be negative where it is one number, but is %v", name, list[0]))
		}
		return [2]float64{-list[0], list[0]}
	case 2:
		return ordered(op, name, list, [2]float64{})
	}
	panic(args.ValueError(op, "%s must be one number or two, not %v", name, list))
}

// ordered is a range of two numbers, or the default where it is nil. The first may be the larger one only where
// torch's uniform takes it, which is nowhere.
func ordered(op, name string, list []float64, value [2]float64) [2]float64 {
	if list == nil {
		return value
	}
	if len(list) != 2 || !(list[0] <= list[1]) {
		panic(args.ValueError(op, "%s must be two numbers, the smaller one first, not %v", name, list))
	}
	return [2]float64{list[0], list[1]}
}
