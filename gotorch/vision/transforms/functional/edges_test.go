package functional_test

import (
	"errors"
	"testing"

	"gotorch.dev/gotorch"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/vision/transforms/functional"
)

// torchvision rounds the pixels of some dtypes when it resizes, and truncates those of uint16.
func TestResizeTruncatesUint16(t *testing.T) {
	floats := gotorch.Rand([]int64{3, 7, 9}).MulScalar(60000).Trunc()
	size := []int64{5, 13}
	for dtype, cast := range map[gotorch.DType]func(gotorch.Tensor) gotorch.Tensor{
		gotorch.Uint16: func(x gotorch.Tensor) gotorch.Tensor { return x },
		gotorch.Int32:  func(x gotorch.Tensor) gotorch.Tensor { return x.Round() },
	} {
		want := F.Interpolate(floats.Unsqueeze(0), F.InterpolateOptions{Size: size, Mode: F.InterpolateBilinear, Antialias: true}).Select(0, 0)
		got := functional.Resize(floats.To(dtype), size)
		if !got.Equal(cast(want).To(dtype)) {
			t.Errorf("%s: %v", dtype, got)
		}
	}
}

// A rectangle is a slice of Python, which is clipped at the border and counts from the end.
func TestEraseClips(t *testing.T) {
	image := gotorch.Arange(12).To(gotorch.Float32).View([]int64{1, 3, 4})
	for _, c := range []struct {
		i, j, h, w int64
		want       []float32
	}{
		{1, 2, 9, 9, []float32{0, 1, 2, 3, 4, 5, -1, -1, 8, 9, -1, -1}},
		{-1, -2, 5, 1, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}, // rows 2 to 4 from the end: -1 to 4
		{7, 0, 1, 1, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		want := gotorch.FromSlice(c.want, 1, 3, 4)
		if c.i == -1 { // image[..., -1:4, -2:-1]
			want.Index(gotorch.Ellipsis, gotorch.At(2), gotorch.At(2)).Fill_(-1)
		}
		if got := functional.Erase(image, c.i, c.j, c.h, c.w, gotorch.FromSlice([]float32{-1}, 1, 1, 1)); !got.Equal(want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestNormalizeMakesAChannelForEachMean(t *testing.T) {
	image, mean, std := gotorch.Rand([]int64{2, 1, 3, 4}), []float64{0.1, 0.5, 0.9}, []float64{1, 2, 4}
	of := func(x []float64) gotorch.Tensor {
		return gotorch.FromSlice(x).To(gotorch.Float32).View([]int64{3, 1, 1})
	}
	if got := functional.Normalize(image, mean, std); !got.Equal(image.Sub(of(mean)).Div(of(std))) {
		t.Error(got)
	}
	for name, err := range map[string]error{
		"in place": gotorch.Try0(func() { functional.Normalize(image, mean, std, functional.NormalizeOptions{InPlace: true}) }),
		"std":      gotorch.Try0(func() { functional.Normalize(image, []float64{1}, std) }),
	} {
		if !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
