package functional_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	F "gotorch.dev/gotorch/nn/functional"
)

func TestBadArgumentsPanicWithValueErrors(t *testing.T) {
	x := gotorch.Ones([]int64{1, 2})
	for part, fn := range map[string]func(){
		"between 0 and 1, but got -0.1": func() { F.Dropout(x, -0.1, true) },
		"same shape, got [1 2] and [2]": func() { F.MSELoss(x, gotorch.Ones([]int64{2})) },
		"input and weight":              func() { F.MSELoss(x, x, F.MSELossOptions{Weight: gotorch.Ones([]int64{1})}) },
		"exclude each other":            func() { F.Conv2d(x, x, F.Conv2dOptions{SamePadding: true, Padding: []int64{0}}) },
		"7 is no reduction":             func() { F.CrossEntropy(x, x, F.CrossEntropyOptions{Reduction: 7}) },
		"more than 1 value per channel": func() { F.BatchNorm(x, F.BatchNormOptions{Training: true}) },
		"must be non-negative":          func() { F.BatchNorm(x, F.BatchNormOptions{Eps: new(-1.0)}) },
	} {
		err := gotorch.Try0(fn)
		if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want a ValueError with %q", err, part)
		}
	}
}

func TestAValueThatTheModeHasNoUseForIsRefused(t *testing.T) {
	x := gotorch.Ones([]int64{1, 4})
	F.Pad(x, []int64{1, 1}, F.PadOptions{Mode: F.PadReflect})
	err := gotorch.Try0(func() { F.Pad(x, []int64{1, 1}, F.PadOptions{Mode: F.PadReflect, Value: 3}) })
	if !errors.Is(err, gotorch.RuntimeError) {
		t.Errorf("got %v", err)
	}
}

func TestInPlaceOverwritesTheInput(t *testing.T) {
	x := gotorch.FromSlice([]float32{-1, 2})
	F.ReLU(x, F.ReLUOptions{InPlace: true})
	F.Dropout(x, 1, true, F.DropoutOptions{InPlace: true})
	if got := gotorch.ToSlice[float32](x); got[0] != 0 || got[1] != 0 {
		t.Errorf("got %v", got)
	}
}

func TestConv2dKeepsTheSizeWithSamePadding(t *testing.T) {
	x, w := gotorch.Ones([]int64{1, 1, 5, 7}), gotorch.Ones([]int64{2, 1, 3, 3})
	if shape := F.Conv2d(x, w, F.Conv2dOptions{SamePadding: true}).Shape(); fmt.Sprint(shape) != "[1 2 5 7]" {
		t.Errorf("got %v", shape)
	}
}

func ExampleCrossEntropy() {
	scores := gotorch.FromSlice([]float32{2, 0, 0, 0, 3, 0}, 2, 3)
	classes := gotorch.FromSlice([]int64{0, 1})
	fmt.Println(F.CrossEntropy(scores, classes))
	fmt.Println(F.CrossEntropy(scores, classes, F.CrossEntropyOptions{Reduction: F.None, LabelSmoothing: 0.1}))
	// Output:
	// tensor(0.1672)
	// tensor([0.3729, 0.2949])
}

func ExampleMaxPool2d() {
	x := gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 1, 2, 4)
	fmt.Println(F.MaxPool2d(x, []int64{2}))
	// Output: tensor([[[6., 8.]]])
}

func ExampleDropout() {
	x := gotorch.Ones([]int64{4})
	fmt.Println(F.Dropout(x, 0.5, false)) // not training
	// Output: tensor([1., 1., 1., 1.])
}

// -1 stands for the input's size in an adaptive pooling, and not here.
func TestNoNegativeSizeForAnArea(t *testing.T) {
	err := gotorch.Try0(func() {
		F.Interpolate(gotorch.Ones([]int64{1, 1, 4, 4}), F.InterpolateOptions{Size: []int64{-1}, Mode: F.InterpolateArea})
	})
	if !errors.Is(err, gotorch.RuntimeError) {
		t.Errorf("got %v", err)
	}
}
