package transforms_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/vision/transforms"
	"gotorch.dev/gotorch/vision/transforms/functional"
)

// photos is a data set of pictures of noise.
type photos int

func (p photos) Len() int { return int(p) }

func (p photos) At(i int) (data.Pair, error) {
	g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(uint64(i))
	image := gotorch.Empty([]int64{3, 12, 10}, gotorch.TensorOptions{DType: gotorch.Uint8}).RandomTo_(256, gotorch.RandomToOptions{Generator: g})
	return data.Pair{Input: image, Target: gotorch.FromSlice([]int64{int64(i)}).Select(0, 0)}, nil
}

func pipeline() transforms.Transform {
	return transforms.Compose(
		transforms.RandomResizedCrop(8),
		transforms.RandomHorizontalFlip(),
		transforms.RandAugment(),
		transforms.ColorJitter(transforms.ColorJitterOptions{Brightness: []float64{0.4}, Hue: []float64{0.1}}),
		transforms.ToDtype(gotorch.Float32, transforms.ToDtypeOptions{Scale: true}),
		transforms.Normalize([]float64{0.5}, []float64{0.25}),
		transforms.RandomErasing(),
	)
}

func TestResultsDoNotDependOnTheNumberOfWorkers(t *testing.T) {
	batches := func(workers int) (all []gotorch.Tensor) {
		set := data.Transform(photos(12), transforms.Pairs(pipeline()))
		loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 5, Shuffle: true, Workers: workers, Seed: 7})
		for batch, err := range loader.All() {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, batch.Input)
		}
		return all
	}
	alone, many := batches(0), batches(3)
	if len(alone) != 3 || len(many) != 3 {
		t.Fatalf("%d and %d batches", len(alone), len(many))
	}
	for i := range alone {
		if !alone[i].Equal(many[i]) {
			t.Errorf("batch %d differs", i)
		}
		if i > 0 && alone[0].Equal(alone[i]) {
			t.Errorf("batch %d is batch 0", i)
		}
	}
}

func TestTheDefaultGeneratorIsNotTouchedByALoader(t *testing.T) {
	before := gotorch.DefaultGenerator(gotorch.CPU).State()
	sample, err := transforms.Samples(pipeline())(transforms.Sample{Image: gotorch.Zeros([]int64{3, 12, 10}, gotorch.TensorOptions{DType: gotorch.Uint8})}, rand.New(rand.NewPCG(1, 2)))
	if err != nil || sample.Image.Size(-1) != 8 {
		t.Fatal(err)
	}
	if !before.Equal(gotorch.DefaultGenerator(gotorch.CPU).State()) {
		t.Error("the default generator has moved")
	}
}

func TestErrorsOfATransformAreErrorsOfTheLoader(t *testing.T) {
	set := data.Transform(photos(2), transforms.Pairs(transforms.RandomCrop(100)))
	for _, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 2, Workers: 1}).All() {
		if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "is more than the image's 12×10") {
			t.Errorf("got %v", err)
		}
	}
}

func TestATransformMayBeUsedByManyGoroutines(t *testing.T) {
	each := pipeline()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(uint64(i))
			for range 5 {
				pair, _ := photos(1).At(0)
				each.Apply(transforms.Sample{Image: pair.Input}, g)
			}
		})
	}
	wg.Wait()
}

func TestNoHandleIsLeft(t *testing.T) {
	each := transforms.Compose(pipeline(), transforms.RandomRotation(30, transforms.RandomRotationOptions{Fill: []float64{1}}),
		transforms.RandomAffine(10), transforms.RandomPerspective(), transforms.ElasticTransform(transforms.ElasticTransformOptions{Sigma: []float64{0.4}}), transforms.GaussianBlur(3))
	boxes := gotorch.NewTensor([][]float32{{1, 2, 6, 7}})
	run := func() {
		pair, _ := photos(1).At(0)
		s := transforms.Sample{Image: pair.Input, Mask: gotorch.Zeros([]int64{12, 10}),
			Boxes: functional.BoundingBoxes{Tensor: boxes, Format: functional.XYXY, CanvasSize: [2]int64{12, 10}}}
		transforms.Compose(transforms.RandomIoUCrop(), transforms.SanitizeBoundingBoxes()).Apply(s, nil)
		each.Forward(pair.Input).Close()
	}
	live := func() int64 {
		for range 3 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
		}
		return gotorch.MemoryStats().LiveHandles
	}
	run()
	before := live()
	for range 10 {
		run()
	}
	if after := live(); after > before {
		t.Errorf("%d handles, and %d before", after, before)
	}
}

func TestSamplesCollate(t *testing.T) {
	s := transforms.Sample{Image: gotorch.Zeros([]int64{3, 2, 2}), Labels: gotorch.FromSlice([]int64{4})}
	batch, err := s.Collate([]transforms.Sample{s, s})
	if err != nil || fmt.Sprint(batch.Image.Shape(), batch.Labels.Shape(), batch.Mask.Defined()) != "[2 3 2 2] [2 1] false" {
		t.Errorf("%v: %v", batch, err)
	}
	if _, err := s.Collate([]transforms.Sample{s, {Image: s.Image}}); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("a label is missing: %v", err)
	}
	s.Boxes.Tensor = gotorch.Zeros([]int64{1, 4})
	if _, err := s.Collate([]transforms.Sample{s}); !errors.Is(err, gotorch.TypeError) {
		t.Errorf("boxes: %v", err)
	}
}

func TestBadArgumentsAreTypedErrors(t *testing.T) {
	image := gotorch.Zeros([]int64{3, 4, 4})
	for part, c := range map[string]struct {
		kind error
		fn   func()
	}{
		"at least one transform":      {gotorch.ValueError, func() { transforms.Compose() }},
		"a transform is nil":          {gotorch.TypeError, func() { transforms.Compose(nil) }},
		"P must be from 0 to 1":       {gotorch.ValueError, func() { transforms.RandomHorizontalFlip(transforms.FlipOptions{P: 2}) }},
		"size must be one positive":   {gotorch.ValueError, func() { transforms.RandomCrop(0) }},
		"degrees must not be":         {gotorch.ValueError, func() { transforms.RandomRotation(-1.0) }},
		"the smaller one first":       {gotorch.ValueError, func() { transforms.RandomRotation([]float64{2, 1}) }},
		"SideRange must not be":       {gotorch.ValueError, func() { transforms.RandomZoomOut(transforms.RandomZoomOutOptions{SideRange: []float64{0, 1}}) }},
		"Severity must be from 1":     {gotorch.ValueError, func() { transforms.AugMix(transforms.AugMixOptions{Severity: 11}) }},
		"Magnitude must be one of":    {gotorch.ValueError, func() { transforms.RandAugment(transforms.RandAugmentOptions{Magnitude: 31}) }},
		"there is no Policy":          {gotorch.ValueError, func() { transforms.AutoAugment(transforms.AutoAugmentOptions{Policy: "x"}) }},
		"Alpha must be positive":      {gotorch.ValueError, func() { transforms.MixUp(transforms.MixOptions{Alpha: 0}) }},
		"the batch has no labels":     {gotorch.ValueError, func() { transforms.MixUp(transforms.MixOptions{NumClasses: 2}).Forward(image) }},
		"no image, mask, boxes":       {gotorch.TypeError, func() { transforms.RandomCrop(2).Apply(transforms.Sample{}, nil) }},
		"must be (..., C, H, W)":      {gotorch.ValueError, func() { functional.Resize(gotorch.Zeros([]int64{4, 4}), 2) }},
		"zero Tensor":                 {gotorch.TypeError, func() { functional.Invert(gotorch.Tensor{}) }},
		"Interpolation must be":       {gotorch.ValueError, func() { functional.Resize(image, 2, functional.ResizeOptions{Interpolation: "cubic"}) }},
		"nearest or bilinear, not bi": {gotorch.ValueError, func() { functional.Rotate(image, 3, functional.RotateOptions{Interpolation: functional.Bicubic}) }},
		"Fill must have one number":   {gotorch.ValueError, func() { functional.Rotate(image, 3, functional.RotateOptions{Fill: []float64{1, 2}}) }},
		"size and MaxSize":            {gotorch.ValueError, func() { functional.Resize(image, -2) }},
		"too large for an image":      {gotorch.ValueError, func() { functional.GaussianBlur(image, 9) }},
		"must not have a negative":    {gotorch.ValueError, func() { functional.Erase(image, 3, 3, -2, 2, image) }},
		"boxes must be (N, 4)": {gotorch.ValueError, func() {
			functional.ClampBoundingBoxes(functional.BoundingBoxes{Tensor: gotorch.Zeros([]int64{2, 3}), Format: functional.XYXY})
		}},
	} {
		err := gotorch.Try0(c.fn)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", part, err)
		}
	}
	other := transforms.Sample{Image: image, Mask: gotorch.Zeros([]int64{5, 5})}
	err := gotorch.Try0(func() { transforms.RandomCrop(2).Apply(other, nil) })
	if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "several sizes: 4×4 and 5×5") {
		t.Error(err)
	}
}

func TestWhatIsFarOutsideIsBlack(t *testing.T) {
	image := gotorch.Ones([]int64{1, 3, 3})
	for _, at := range [][2]int64{{-9, 0}, {0, -9}, {9, 9}, {-9, -9}} {
		if out := functional.Crop(image, at[0], at[1], 2, 4); fmt.Sprint(out.Shape()) != "[1 2 4]" || gotorch.Item[float64](out.Sum()) != 0 {
			t.Errorf("%v: %v", at, out)
		}
	}
}

func Example() {
	train := transforms.Compose(
		transforms.RandomResizedCrop(224),
		transforms.RandomHorizontalFlip(),
		transforms.ToDtype(gotorch.Float32, transforms.ToDtypeOptions{Scale: true}),
		transforms.Normalize([]float64{0.485, 0.456, 0.406}, []float64{0.229, 0.224, 0.225}),
	)
	image := gotorch.Zeros([]int64{3, 300, 400}, gotorch.TensorOptions{DType: gotorch.Uint8})
	gotorch.ManualSeed(1)
	x := train.Forward(image)
	fmt.Println(x.Shape(), x.DType())
	// Output: [3 224 224] torch.float32
}

func ExampleSample() {
	s := transforms.Sample{
		Image: gotorch.Zeros([]int64{3, 100, 200}),
		Boxes: functional.BoundingBoxes{Tensor: gotorch.NewTensor([][]float32{{10, 20, 50, 60}}), Format: functional.XYXY, CanvasSize: [2]int64{100, 200}},
	}
	flip := transforms.RandomHorizontalFlip(transforms.FlipOptions{P: 1})
	s = transforms.Compose(flip, transforms.Resize(50)).Apply(s, nil)
	fmt.Println(s.Image.Shape(), s.Boxes.Tensor)
	// Output: [3 50 100] tensor([[75., 10., 95., 30.]])
}

func ExampleMixUp() {
	mix := transforms.RandomChoice([]transforms.Transform{
		transforms.MixUp(transforms.MixOptions{NumClasses: 10}), transforms.CutMix(transforms.MixOptions{NumClasses: 10}),
	})
	batch := data.Pair{Input: gotorch.Rand([]int64{4, 3, 8, 8}), Target: gotorch.FromSlice([]int64{1, 2, 3, 4})}
	s := mix.Apply(transforms.Sample{Image: batch.Input, Labels: batch.Target}, nil)
	fmt.Println(s.Image.Shape(), s.Labels.Shape())
	// Output: [4 3 8 8] [4 10]
}

func ExamplePairs() {
	set := data.Transform(photos(8), transforms.Pairs(transforms.RandomCrop(6)))
	for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 4, Workers: 2, Seed: 1}).All() {
		fmt.Println(batch.Input.Shape(), err)
	}
	// Output:
	// [4 3 6 6] <nil>
	// [4 3 6 6] <nil>
}

// columns is an image of which each pixel is the number of its column, or of its row.
func columns(h, w int64) gotorch.Tensor {
	return gotorch.Arange(w).To(gotorch.Uint8).Expand([]int64{1, h, w}).Contiguous()
}

// No part of a long image is as large as it and nearly a square: torchvision takes what is in the middle then.
func TestAResizedCropThatDoesNotFitIsTheMiddle(t *testing.T) {
	o := transforms.RandomResizedCropOptions{Scale: []float64{1, 1}, Ratio: []float64{3.0 / 4, 4.0 / 3}}
	wide := transforms.RandomResizedCrop([]int64{10, 13}, o).Forward(columns(10, 100)) // 10 times 4/3, rounded
	if want := columns(10, 100).Narrow(2, 43, 13); !wide.Equal(want) {
		t.Errorf("of a wide one: %v", wide)
	}
	tall := transforms.RandomResizedCrop([]int64{13, 10}, o).Forward(columns(10, 100).Transpose(1, 2).Contiguous())
	if want := columns(10, 100).Narrow(2, 43, 13).Transpose(1, 2); !tall.Equal(want) {
		t.Errorf("of a tall one: %v", tall)
	}
}

// reached is what fn has changed of an image of ones in any of many tries, as numbers that are not zero.
func reached(image gotorch.Tensor, fn func() gotorch.Tensor) gotorch.Tensor {
	sum := gotorch.ZerosLike(image)
	for range 200 {
		sum = sum.Add(image.Sub(fn()).Abs())
	}
	return sum
}

func TestRectanglesReachAllEdges(t *testing.T) {
	gotorch.ManualSeed(1)
	image := gotorch.Ones([]int64{1, 6, 6})
	erase := transforms.RandomErasing(transforms.RandomErasingOptions{P: 1, Scale: []float64{0.1, 0.2}, Ratio: []float64{1, 1}})
	if sum := reached(image, func() gotorch.Tensor { return erase.Forward(image) }); gotorch.Item[bool](sum.EqScalar(0).Any()) {
		t.Errorf("erased were %v", sum)
	}
	whole := transforms.RandomErasing(transforms.RandomErasingOptions{P: 1, Scale: []float64{1, 1}, Ratio: []float64{1, 1}})
	if got := whole.Forward(image); !got.Equal(image) { // torchvision erases no edge from end to end
		t.Errorf("all was erased: %v", got)
	}
	batch := gotorch.Cat([]gotorch.Tensor{gotorch.Ones([]int64{1, 1, 6, 6}), gotorch.Zeros([]int64{1, 1, 6, 6})})
	labels := gotorch.Arange(2)
	mix := transforms.CutMix(transforms.MixOptions{NumClasses: 2})
	sum := reached(batch, func() gotorch.Tensor { return mix.Apply(transforms.Sample{Image: batch, Labels: labels}, nil).Image })
	if gotorch.Item[bool](sum.EqScalar(0).Any()) {
		t.Errorf("mixed were %v", sum)
	}
}

func TestTheLongerEdgeHasABound(t *testing.T) {
	got := transforms.RandomShortestSize([]int64{100}, transforms.RandomShortestSizeOptions{MaxSize: 50}).Forward(columns(10, 20))
	if fmt.Sprint(got.Shape()) != "[1 25 50]" {
		t.Errorf("got %v", got.Shape())
	}
}
