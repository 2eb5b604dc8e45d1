package ops_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/ops"
)

func zeros(shape ...int64) gotorch.Tensor { return gotorch.Zeros(shape) }

func roi(v ...float32) gotorch.Tensor { return gotorch.FromSlice(v, 1, 5) }

func TestWhatMakesNoSenseIsATypedError(t *testing.T) {
	x, nan := zeros(2, 4, 8, 8), float32(math.NaN())
	seven := []int64{7}
	half := gotorch.TensorOptions{DType: gotorch.Float16}
	for part, c := range map[string]struct {
		kind error
		fn   func()
	}{
		"boxes must be of shape (N, 4)":       {gotorch.ValueError, func() { ops.NMS(zeros(3), zeros(3), 0.5) }},
		"scores must be of shape (N)":         {gotorch.ValueError, func() { ops.NMS(zeros(3, 4), zeros(3, 1), 0.5) }},
		"should be as many, and are 3 and 2":  {gotorch.ValueError, func() { ops.NMS(zeros(3, 4), zeros(2), 0.5) }},
		"of the same dtype":                   {gotorch.RuntimeError, func() { ops.NMS(zeros(3, 4), zeros(3).To(gotorch.Float64), 0.5) }},
		"no kernel for torch.float16":         {gotorch.NotImplementedError, func() { ops.NMS(gotorch.Zeros([]int64{1, 4}, half), gotorch.Zeros([]int64{1}, half), 0.5) }},
		"boxes is no tensor":                  {gotorch.TypeError, func() { ops.NMS(gotorch.Tensor{}, zeros(3), 0.5) }},
		"as many, and are 2, 2 and 3":         {gotorch.ValueError, func() { ops.BatchedNMS(zeros(2, 4), zeros(2), zeros(3), 0.5) }},
		"given in_fmt xy and out_fmt":         {gotorch.ValueError, func() { ops.BoxConvert(zeros(1, 4), "xy", "xyxy") }},
		"given in_fmt xyxy and out_fmt xywhr": {gotorch.NotImplementedError, func() { ops.BoxConvert(zeros(1, 4), "xyxy", "xywhr") }},
		"must be of shape (..., 5)":           {gotorch.ValueError, func() { ops.BoxConvert(zeros(1, 4), "xywhr", "cxcywhr") }},
		"must be of shape (..., 4)":           {gotorch.ValueError, func() { ops.BoxArea(zeros(1, 5)) }},
		"must be of shape (..., N, 4)":        {gotorch.ValueError, func() { ops.BoxIoU(zeros(4), zeros(1, 4)) }},
		"are not measured":                    {gotorch.NotImplementedError, func() { ops.BoxIoU(zeros(1, 5), zeros(1, 5), ops.BoxFormatOptions{Fmt: "xywhr"}) }},
		"masks must be of shape":              {gotorch.ValueError, func() { ops.MasksToBoxes(zeros(3, 3)) }},
		"rois must be of shape (K, 5)":        {gotorch.ValueError, func() { ops.RoIAlign(x, zeros(1, 4), seven) }},
		"input must be of shape":              {gotorch.ValueError, func() { ops.RoIAlign(zeros(4, 8, 8), roi(0, 0, 0, 1, 1), seven) }},
		"rois[0] is of image 2, and there":    {gotorch.ValueError, func() { ops.RoIAlign(x, roi(2, 0, 0, 1, 1), seven) }},
		"rois[0] is of image -1":              {gotorch.ValueError, func() { ops.RoIPool(x, roi(-1, 0, 0, 1, 1), seven) }},
		"rois[0] is of image NaN":             {gotorch.ValueError, func() { ops.PSRoIPool(x, roi(nan, 0, 0, 1, 1), []int64{2}) }},
		"rois[0] has 1e+09 samples, and":      {gotorch.ValueError, func() { ops.RoIAlign(x, roi(0, 0, 0, 1e9, 1), []int64{1}) }},
		"SamplingRatio is 4097":               {gotorch.ValueError, func() { ops.RoIAlign(x, roi(0, 0, 0, 1, 1), seven, ops.RoIAlignOptions{SamplingRatio: 4097}) }},
		"rois[0] has 822083584 samples":       {gotorch.ValueError, func() { ops.RoIAlign(x, roi(0, 0, 0, 1, 1), seven, ops.RoIAlignOptions{SamplingRatio: 4096}) }},
		"rois[0] has 134217728 samples": {gotorch.ValueError, func() {
			ops.RoIAlign(x, roi(0, 0, 0, 1, 1), []int64{1, 1 << 15}, ops.RoIAlignOptions{SamplingRatio: 4096})
		}},
		"outputSize must be one number":      {gotorch.ValueError, func() { ops.RoIAlign(x, roi(0, 0, 0, 1, 1), []int64{1, 2, 3}) }},
		"outputSize must be from 0 to 32768": {gotorch.ValueError, func() { ops.RoIPool(x, roi(0, 0, 0, 1, 1), []int64{-1}) }},
		"a multiple of pooling height":       {gotorch.RuntimeError, func() { ops.PSRoIAlign(x, roi(0, 0, 0, 1, 1), []int64{3}) }},
		"multiple of 2 * 3 * 3, and is 17":   {gotorch.RuntimeError, func() { ops.DeformConv2d(x, zeros(2, 17, 6, 6), zeros(2, 4, 3, 3)) }},
		"offset must be of shape [2 18 6 6]": {gotorch.RuntimeError, func() { ops.DeformConv2d(x, zeros(2, 18, 5, 6), zeros(2, 4, 3, 3)) }},
		"does not fit 4 channels":            {gotorch.RuntimeError, func() { ops.DeformConv2d(x, zeros(2, 18, 6, 6), zeros(2, 3, 3, 3)) }},
		"larger than the padded input":       {gotorch.RuntimeError, func() { ops.DeformConv2d(x, zeros(2, 162, 1, 1), zeros(2, 4, 9, 9)) }},
		"Stride must be one number or two": {gotorch.ValueError, func() {
			ops.DeformConv2d(x, zeros(2, 18, 6, 6), zeros(2, 4, 3, 3), ops.DeformConv2dOptions{Stride: []int64{0}})
		}},
		"in_channels must be divisible":     {gotorch.ValueError, func() { ops.NewDeformConv2d(3, 4, []int64{3}, ops.NewDeformConv2dOptions{Groups: 2}) }},
		"drop probability has to be":        {gotorch.ValueError, func() { ops.StochasticDepth(x, math.NaN(), "row", true) }},
		"mode has to be either":             {gotorch.ValueError, func() { ops.NewStochasticDepth(0.5, "rows") }},
		"block size should be odd":          {gotorch.ValueError, func() { ops.DropBlock2d(x, 0.5, 2, true) }},
		"input should be 5 dimensional":     {gotorch.ValueError, func() { ops.DropBlock3d(x, 0.5, 3, true) }},
		"Invalid alpha value":               {gotorch.ValueError, func() { ops.SigmoidFocalLoss(x, x, ops.SigmoidFocalLossOptions{Alpha: 1.5}) }},
		"numbers of channels must be":       {gotorch.ValueError, func() { ops.NewFeaturePyramidNetwork(nil, 4) }},
		"there should be 1 maps, and are 0": {gotorch.ValueError, func() { ops.NewFeaturePyramidNetwork([]int64{4}, 4).Forward(nil) }},
		"there is no map of the names":      {gotorch.ValueError, func() { ops.NewMultiScaleRoIAlign([]string{"0"}, seven, 2).Forward(nil, nil, nil) }},
		"there must be the boxes of one":    {gotorch.ValueError, func() { ops.RoIs(nil) }},
		"hiddenChannels must have":          {gotorch.ValueError, func() { ops.NewMLP(3, nil) }},
		"KernelSize must be positive":       {gotorch.ValueError, func() { ops.NewConv2dNormActivation(3, 3, ops.ConvNormActivationOptions{KernelSize: []int64{0}}) }},
	} {
		err := gotorch.Try0(c.fn)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", part, err)
		}
	}
}

// Regions and boxes at random, with what floats have besides numbers: an error or a result, and nothing else.
func TestHostileRegionsAreErrorsOrResults(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	strange := []float32{0, -1, 1, 2, 7.5, 8, 9, 1e9, -1e9, 3e38, -3e38, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-40}
	x := gotorch.Randn([]int64{2, 4, 8, 8})
	x.RequiresGrad_()
	for range 120 {
		v := make([]float32, 5)
		for i := range v {
			v[i] = strange[r.IntN(len(strange))]
		}
		if r.IntN(4) > 0 {
			v[0] = float32(r.IntN(2))
		}
		for _, fn := range []func() gotorch.Tensor{
			func() gotorch.Tensor {
				return ops.RoIAlign(x, roi(v...), []int64{2}, ops.RoIAlignOptions{SamplingRatio: r.IntN(3), Aligned: r.IntN(2) == 0})
			},
			func() gotorch.Tensor { return ops.PSRoIAlign(x, roi(v...), []int64{2}) },
			func() gotorch.Tensor { return ops.RoIPool(x, roi(v...), []int64{2}) },
			func() gotorch.Tensor { return ops.PSRoIPool(x, roi(v...), []int64{2}) },
			func() gotorch.Tensor {
				offset := gotorch.Full([]int64{2, 2, 8, 8}, v[1])
				return ops.DeformConv2d(x, offset, gotorch.Ones([]int64{1, 4, 1, 1}))
			},
		} {
			if _, err := gotorch.Try(func() gotorch.Tensor { y := fn(); y.Sum().Backward(); return y }); err != nil {
				var typed *gotorch.Error
				if !errors.As(err, &typed) {
					t.Fatalf("%v: %v", v, err)
				}
			}
		}
		boxes := gotorch.FromSlice(append(v[1:], v[:4]...), 2, 4)
		keep := ops.NMS(boxes, gotorch.FromSlice([]float32{v[0], 1}), 0.5)
		if n := keep.Numel(); n < 1 || n > 2 {
			t.Errorf("of two boxes %v %d are left", v, n)
		}
	}
}

// torchvision casts such corners to integers, and reads what is far from the map.
func TestARegionWithACornerThatIsNoPlaceIsZero(t *testing.T) {
	x := gotorch.Ones([]int64{1, 1, 8, 8})
	for _, corner := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for i := range 4 {
			v := []float32{0, 1, 1, 5, 5}
			v[i+1] = float32(corner)
			for _, ratio := range []int{0, 2} {
				if y := ops.RoIAlign(x, roi(v...), []int64{2}, ops.RoIAlignOptions{SamplingRatio: ratio, Aligned: true}); !y.Equal(gotorch.ZerosLike(y)) {
					t.Errorf("%v with SamplingRatio %d: %v", v, ratio, y)
				}
			}
		}
	}
}

func TestARegionOfPSRoIAlignWithoutSamplesIsTorchvisions(t *testing.T) {
	x := gotorch.Ones([]int64{1, 1, 4, 4})
	for _, c := range []struct {
		x1, y1, x2, y2 float32
		want           float64
	}{{3, 3, 1, 1, 0}, {3, 0, 1, 2, math.Copysign(0, -1)}, {3, 3, 3, 1, math.NaN()}, {9, 9, 11, 11, 0}} {
		got := gotorch.Item[float64](ops.PSRoIAlign(x, roi(0, c.x1, c.y1, c.x2, c.y2), []int64{1}))
		if math.Float64bits(got) != math.Float64bits(c.want) && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%v: %v", c, got)
		}
	}
}

func TestAGradientOfAGradientIsAnError(t *testing.T) {
	x := gotorch.Randn([]int64{1, 1, 4, 4}).RequiresGrad_()
	y := ops.RoIAlign(x, roi(0, 0, 0, 3, 3), []int64{2}).Pow(2).Sum()
	g := gotorch.Grad([]gotorch.Tensor{y}, []gotorch.Tensor{x}, gotorch.GradOptions{CreateGraph: true})[0]
	err := gotorch.Try0(func() { g.Sum().Backward() })
	if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "double backwards") {
		t.Error(err)
	}
}

func TestLargeRegionsAreAsSmallOnes(t *testing.T) { // in several goroutines, and in one
	x := gotorch.Randn([]int64{1, 64, 40, 40})
	rois := ops.RoIs([]gotorch.Tensor{gotorch.NewTensor([][]float32{{0, 0, 39, 39}, {3, 4, 30, 20}})})
	whole := ops.RoIAlign(x, rois, []int64{7})
	for c := range int64(64) {
		if !ops.RoIAlign(x.Narrow(1, c, 1), rois, []int64{7}).Equal(whole.Narrow(1, c, 1)) {
			t.Fatalf("channel %d differs", c)
		}
	}
}

func TestFrozenNormsLoadWhatNormsSave(t *testing.T) {
	norm := nn.BatchNorm2d(3)
	norm.Forward(gotorch.Randn([]int64{2, 3, 4, 4}))
	frozen := ops.NewFrozenBatchNorm2d(3)
	if err := frozen.LoadStateDict(norm.StateDict()); err != nil {
		t.Fatal(err)
	}
	norm.Eval()
	x := gotorch.Randn([]int64{2, 3, 4, 4})
	if !frozen.Forward(x).AllClose(norm.Forward(x), gotorch.AllCloseOptions{}) || len(frozen.Parameters()) != 0 {
		t.Error("a frozen norm computes something else, or learns")
	}
}

func TestNoHandleAndNoGoroutineIsLeft(t *testing.T) {
	run := func() {
		x := gotorch.Randn([]int64{2, 16, 20, 20}).RequiresGrad_()
		rois := ops.RoIs([]gotorch.Tensor{gotorch.Rand([]int64{5, 4}), gotorch.Rand([]int64{3, 4}).MulScalar(20)})
		ops.RoIAlign(x, rois, []int64{7}).Sum().Backward()
		ops.RoIPool(x, rois, []int64{2}).Sum().Backward()
		ops.PSRoIAlign(x, rois, []int64{2}).Sum().Backward()
		ops.DeformConv2d(x, zeros(2, 18, 18, 18), gotorch.Randn([]int64{2, 16, 3, 3})).Sum().Backward()
		boxes := gotorch.Rand([]int64{1200, 4})
		ops.BatchedNMS(boxes, gotorch.Rand([]int64{1200}), gotorch.Randint(5, []int64{1200}), 0.5)
		ops.CompleteBoxIoULoss(boxes, boxes)
		ops.CompleteBoxIoU(boxes, boxes)
		_ = gotorch.Try0(func() { ops.RoIAlign(x, roi(9, 0, 0, 1, 1), []int64{7}) })
	}
	settle := func() int64 {
		for range 3 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
		}
		return int64(gotorch.MemoryStats().LiveHandles)
	}
	run()
	handles, goroutines := settle(), runtime.NumGoroutine()
	for range 3 {
		run()
	}
	left := settle()
	for range 100 { // what a cleanup holds back goes with a later collection
		if left <= handles {
			break
		}
		left = settle()
	}
	if left > handles {
		t.Errorf("%d handles, and were %d", left, handles)
	}
	testhelp.NoMoreGoroutines(t, goroutines)
}
