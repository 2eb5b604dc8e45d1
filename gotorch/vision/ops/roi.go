package ops

import (
	"fmt"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// RoIs joins the boxes of each image of a batch into regions of interest, as the functions that pool them take
// them: of boxes (L₀, 4), (L₁, 4), ... it makes (L₀+L₁+..., 5), where the first column is the number of the image.
// It panics with a ValueError for another shape, and if there is no image.
//
//	regions := ops.RoIs([]gotorch.Tensor{boxesOfFirst, boxesOfSecond})
func RoIs(boxes []gotorch.Tensor) gotorch.Tensor {
	const op = "ops.RoIs"
	if len(boxes) == 0 {
		panic(args.ValueError(op, "there must be the boxes of one image at least"))
	}
	for i, b := range boxes {
		shaped(op, fmt.Sprintf("boxes[%d]", i), b, 2, 4, "(L, 4)")
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		ids := make([]gotorch.Tensor, len(boxes))
		for i, b := range boxes {
			ids[i] = b.NewFull([]int64{b.Size(0), 1}, i)
		}
		return gotorch.Cat([]gotorch.Tensor{gotorch.Cat(ids), gotorch.Cat(boxes)}, gotorch.CatOptions{Dim: 1})
	})
}

// region has what the functions that pool regions know of a call.
type region struct {
	op          string
	scale       float64
	high, wide  int64 // of the result
	sampling    int64
	aligned     bool
	sensitive   bool    // to the position: each bin has channels of its own
	shape       []int64 // of the input
	outChannels int64
}

// outputSize returns the height and width of a result, of one number or two.
func outputSize(op string, size []int64) (high, wide int64) {
	switch len(size) {
	case 1:
		high, wide = size[0], size[0]
	case 2:
		high, wide = size[0], size[1]
	default:
		panic(args.ValueError(op, "outputSize must be one number, or height and width, and is %v", size))
	}
	if high < 0 || wide < 0 || high > 1<<15 || wide > 1<<15 {
		panic(args.ValueError(op, "outputSize must be from 0 to 32768, and is %v", size))
	}
	return high, wide
}

func newRegion(op string, input, rois gotorch.Tensor, size []int64, scale float64) region {
	shaped(op, "input", input, 4, 0, "(N, C, H, W)")
	shaped(op, "rois", rois, 2, 5, "(K, 5)")
	sameDType(op, "input", input, "rois", rois)
	r := region{op: op, scale: scale, shape: input.Shape()}
	r.high, r.wide = outputSize(op, size)
	r.outChannels = r.shape[1]
	if math.IsNaN(scale) {
		panic(args.ValueError(op, "SpatialScale must be a number, and is %v", scale))
	}
	return r
}

// byPosition makes each bin have channels of its own.
func (r region) byPosition() region {
	bins := r.high * r.wide
	if bins == 0 || r.shape[1]%bins != 0 {
		panic(args.Errorf(r.op, gotorch.RuntimeError, "input channels must be a multiple of pooling height * pooling width, and are %d for %d×%d", r.shape[1], r.high, r.wide))
	}
	r.sensitive, r.outChannels = true, r.shape[1]/bins
	return r
}

// images returns the image of each region. It panics with a ValueError if there is none of that number.
func images[T float](r *region, rois []T) []int {
	list := make([]int, len(rois)/5)
	for k := range list {
		number := rois[5*k]
		if !(number > -1 && number < T(r.shape[0])) {
			panic(args.ValueError(r.op, "rois[%d] is of image %v, and there are %d", k, number, r.shape[0]))
		}
		list[k] = int(number)
	}
	return list
}

// Aligned regions -------------------------------------------------------------------------------------

// mostSamples is how many samples a region may have, in one direction and within the map: they are in memory at once.
// mostRatio is what they allow a single bin in a direction.
const (
	mostSamples = 1 << 24
	mostRatio   = 1 << 12
)

// tap is where a sample lies in one direction: between two elements, with the weight of each.
type tap[T float] struct {
	low, high  int
	wLow, wTop T
}

// taps has the samples of all bins in one direction, without those outside of the map: of bin i they are
// list[ends[i]:ends[i+1]].
type taps[T float] struct {
	list []tap[T]
	ends []int
}

// along finds the samples of bins in one direction.
func along[T float](r *region, k int, start, length T, bins, size int64, byBin bool) (t taps[T], grid int64) {
	step := length / T(bins)
	grid = r.sampling
	if grid <= 0 {
		per := math.Ceil(float64(length / T(bins)))
		switch {
		case math.IsNaN(per) || math.IsInf(per, 0):
			grid = 0
		case per > mostSamples:
			panic(r.tooMany(k, per*float64(bins)))
		default: // of a region that is inside out it is negative, and two of those are a positive count
			grid = int64(max(per, -mostSamples))
		}
	}
	if n := grid * bins; n > mostSamples {
		panic(r.tooMany(k, float64(n)))
	}
	t.ends = make([]int, bins+1)
	for bin := range bins {
		var at T
		if byBin { // the sum in the order of ps_roi_align
			at = T(T(bin)*step) + start
		} else {
			at = start + T(T(bin)*step)
		}
		for i := range grid {
			y := at + T(T(T(float32(i)+0.5)*step)/T(grid))
			if !(y >= -1 && y <= T(size)) {
				continue
			}
			y = max(y, 0)
			low := int(y)
			high := low + 1
			if low >= int(size)-1 {
				low = int(size) - 1
				high = low
				y = T(low)
			}
			part := y - T(low)
			t.list = append(t.list, tap[T]{low, high, 1 - part, part})
		}
		t.ends[bin+1] = len(t.list)
	}
	return t, grid
}

func (r *region) tooMany(k int, samples float64) error {
	return args.ValueError(r.op, "rois[%d] has %.9g samples, and %d are the most: give a small SamplingRatio, or clip the boxes", k, samples, mostSamples)
}

// sample is a place in the map, between four elements.
type sample[T float] struct {
	at [4]int32
	w  [4]T
}

// samples has those of one region: of bin i, row by row, they are list[ends[i]:ends[i+1]].
type samples[T float] struct {
	list  []sample[T]
	ends  []int
	count T // by which their sum is divided
}

func (s *samples[T]) of(r *region, k int, roi []T) {
	var offset T
	if r.aligned || r.sensitive {
		offset = 0.5
	}
	scale := T(r.scale)
	left, top := T(roi[1]*scale)-offset, T(roi[2]*scale)-offset
	width, height := T(roi[3]*scale)-offset-left, T(roi[4]*scale)-offset-top
	if !r.aligned && !r.sensitive { // malformed ones are 1×1
		if width < 1 {
			width = 1
		}
		if height < 1 {
			height = 1
		}
	}
	ys, gridY := along(r, k, top, height, r.high, r.shape[2], r.sensitive)
	xs, gridX := along(r, k, left, width, r.wide, r.shape[3], r.sensitive)
	if n := len(ys.list) * len(xs.list); n > mostSamples {
		panic(r.tooMany(k, float64(n)))
	}
	s.count = T(gridY * gridX)
	s.list, s.ends = s.list[:0], append(s.ends[:0], 0)
	stride := int(r.shape[3])
	for by := range r.high {
		for bx := range r.wide {
			for _, y := range ys.list[ys.ends[by]:ys.ends[by+1]] {
				for _, x := range xs.list[xs.ends[bx]:xs.ends[bx+1]] {
					s.list = append(s.list, sample[T]{
						at: [4]int32{int32(y.low*stride + x.low), int32(y.low*stride + x.high), int32(y.high*stride + x.low), int32(y.high*stride + x.high)},
						w:  [4]T{y.wLow * x.wLow, y.wLow * x.wTop, y.wTop * x.wLow, y.wTop * x.wTop},
					})
				}
			}
			s.ends = append(s.ends, len(s.list))
		}
	}
}

// align is given the input and the regions, and alignBackward the gradient of its result and the regions.
func align[T float](r region, tensors []gotorch.Tensor) []gotorch.Tensor {
	input, boxes := tensors[0], gotorch.ToSlice[T](tensors[1])
	of := images(&r, boxes)
	size := []int64{int64(len(of)), r.outChannels, r.high, r.wide}
	result := gotorch.Zeros(size, gotorch.TensorOptions{DType: gotorch.DTypeOf[T]()})
	channels, bins, area := int(r.outChannels), int(r.high*r.wide), int(r.shape[2]*r.shape[3])
	if result.Numel() == 0 || area == 0 {
		return []gotorch.Tensor{result}
	}
	in, out := gotorch.Data[T](input), gotorch.Data[T](result)
	var s samples[T]
	for k, image := range of {
		s.of(&r, k, boxes[5*k:5*k+5])
		count := s.count
		if !r.sensitive && count < 1 {
			count = 1
		}
		parallel(channels, 4*channels*len(s.list), func(from, to int) {
			for c := from; c < to; c++ {
				to := out[(k*channels+c)*bins:][:bins]
				for bin := range to {
					channel := c
					if r.sensitive {
						channel = c*bins + bin
					}
					pixels := in[(image*int(r.shape[1])+channel)*area:][:area]
					var sum T
					for i := s.ends[bin]; i < s.ends[bin+1]; i++ {
						p := &s.list[i]
						sum += T(p.w[0]*pixels[p.at[0]]) + T(p.w[1]*pixels[p.at[1]]) + T(p.w[2]*pixels[p.at[2]]) + T(p.w[3]*pixels[p.at[3]])
					}
					to[bin] = sum / count
				}
			}
		})
	}
	return []gotorch.Tensor{result}
}

func alignBackward[T float](r region, tensors []gotorch.Tensor) []gotorch.Tensor {
	grad, boxes := tensors[0], gotorch.ToSlice[T](tensors[1])
	of := images(&r, boxes)
	result := gotorch.Zeros(r.shape, gotorch.TensorOptions{DType: gotorch.DTypeOf[T]()})
	channels, bins, area := int(r.outChannels), int(r.high*r.wide), int(r.shape[2]*r.shape[3])
	if grad.Numel() == 0 || area == 0 {
		return []gotorch.Tensor{result}
	}
	in, out := gotorch.Data[T](grad), gotorch.Data[T](result)
	var s samples[T]
	for k, image := range of {
		s.of(&r, k, boxes[5*k:5*k+5])
		count := s.count
		// Each channel has elements of its own, so that the order of their sums does not depend on the goroutines.
		parallel(channels, 12*channels*len(s.list), func(from, to int) {
			for c := from; c < to; c++ {
				from := in[(k*channels+c)*bins:][:bins]
				for bin, g := range from {
					channel := c
					if r.sensitive {
						channel = c*bins + bin
					}
					pixels := out[(image*int(r.shape[1])+channel)*area:][:area]
					for i := s.ends[bin]; i < s.ends[bin+1]; i++ {
						p := &s.list[i]
						for j, at := range p.at {
							pixels[at] += T(g*p.w[j]) / count
						}
					}
				}
			}
		})
	}
	return []gotorch.Tensor{result}
}

// aligning is the differentiable function.
type aligning struct{ region }

func (f aligning) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	ctx.SaveForBackward(in[1])
	return numbers(f.op, true, f.region, in, align[float32], align[float64])
}

func (f aligning) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	rois := ctx.SavedTensors()[0]
	return append(gradient(f.op, grads, func(grads []gotorch.Tensor) []gotorch.Tensor {
		return numbers(f.op, true, f.region, []gotorch.Tensor{grads[0], rois}, alignBackward[float32], alignBackward[float64])
	}), gotorch.Tensor{})
}

// RoIAlignOptions are the arguments of [RoIAlign] and [NewRoIAlign] that have defaults.
type RoIAlignOptions struct {
	SpatialScale  gotorch.Scalar // of the map's size to that of what boxes are in; default: 1.0
	SamplingRatio gotorch.Scalar // samples of a bin in each direction, at most 4096, or as many as it has elements where it is not positive; default: -1
	Aligned       bool           // shift by half an element, so that elements are where their centres are
}

// RoIAlign pools regions of maps to one size: input (N, C, H, W) and rois (K, 5) → (K, C, height, width). A row of
// rois is the number of an image and the corners x1, y1, x2, y2; [RoIs] makes them of lists of boxes. Each bin of a
// region is the mean of samples, each interpolated between four elements. outputSize is one number, or height and
// width. Samples outside of the map are 0, and so is a region with a corner that is NaN or infinite.
//
// float32 and float64 are computed as torchvision does, to the last bit. float16 and bfloat16 are computed in float32
// and rounded once, where torchvision rounds each sum. Tensors of other devices are copied to the processor and back.
// Only the input has a gradient, and that has none.
//
// It panics with a ValueError for another shape, for an image that is not there, and for a region of more than 2²⁴
// samples, in a direction or within the map; with a RuntimeError if the dtypes differ.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.roi_align.html.
func RoIAlign(input, rois gotorch.Tensor, outputSize []int64, opts ...RoIAlignOptions) gotorch.Tensor {
	const op = "ops.RoIAlign"
	opt := args.Option(opts)
	r := newRegion(op, input, rois, outputSize, args.Float(op, "SpatialScale", opt.SpatialScale, 1))
	r.sampling, r.aligned = samplingRatio(op, opt.SamplingRatio), opt.Aligned
	return gotorch.Apply(aligning{r}, input, rois)[0]
}

func samplingRatio(op string, field gotorch.Scalar) int64 {
	n := args.Int(op, "SamplingRatio", field, -1)
	if n > mostRatio {
		panic(args.ValueError(op, "SamplingRatio is %d, and %d is the most", n, mostRatio))
	}
	return n
}

// PSRoIAlignOptions are the arguments of [PSRoIAlign] and [NewPSRoIAlign] that have defaults.
type PSRoIAlignOptions struct {
	SpatialScale  gotorch.Scalar // of the map's size to that of what boxes are in; default: 1.0
	SamplingRatio gotorch.Scalar // samples of a bin in each direction, at most 4096, or as many as it has elements where it is not positive; default: -1
}

// PSRoIAlign is [RoIAlign] where each bin has channels of its own: input (N, C·height·width, H, W) and rois (K, 5) →
// (K, C, height, width). A region without height or width is NaN, unless there is a SamplingRatio, and one that is inside
// out is 0, as in torchvision. It panics with a RuntimeError if the
// channels are no multiple of height·width.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.ps_roi_align.html.
func PSRoIAlign(input, rois gotorch.Tensor, outputSize []int64, opts ...PSRoIAlignOptions) gotorch.Tensor {
	const op = "ops.PSRoIAlign"
	opt := args.Option(opts)
	r := newRegion(op, input, rois, outputSize, args.Float(op, "SpatialScale", opt.SpatialScale, 1)).byPosition()
	r.sampling = samplingRatio(op, opt.SamplingRatio)
	return gotorch.Apply(aligning{r}, input, rois)[0]
}

// Rounded regions -------------------------------------------------------------------------------------

// window is the elements from low to high.
type window struct{ low, high int }

// rounded returns the first element of a region and how many it has, with extra ones at its end.
func rounded[T float](from, to, scale T, extra int) (start, size int) {
	round := func(v T) int {
		f := math.Round(float64(T(v * scale)))
		if math.IsNaN(f) {
			return math.MinInt32
		}
		return int(min(max(f, math.MinInt32), math.MaxInt32))
	}
	start = round(from)
	return start, max(round(to)-start+extra, 1)
}

// windows returns those of the bins of a region in one direction, within a map whose last element is before most.
func windows[T float](start, size int, bins int64, most int) []window {
	list := make([]window, bins)
	step := T(size) / T(bins)
	inside := func(v float64) int { return min(max(int(v)+start, 0), most) }
	for i := range list {
		list[i] = window{inside(math.Floor(float64(T(T(i) * step)))), inside(math.Ceil(float64(T(T(i+1) * step))))}
	}
	return list
}

// pool calls fn for each region, the image of which is given, and each channel of its result, with the windows of its
// bins: extra is for rounded, and the last rows and columns of the map that are left out are margin.
func pool[T float](r region, boxes []T, images []int, extra, margin int, fn func(k, image, channel int, ys, xs []window)) {
	channels, height, width := int(r.outChannels), int(r.shape[2]), int(r.shape[3])
	for k, image := range images {
		roi := boxes[5*k : 5*k+5]
		left, w := rounded(roi[1], roi[3], T(r.scale), extra)
		top, h := rounded(roi[2], roi[4], T(r.scale), extra)
		xs, ys := windows[T](left, w, r.wide, width-margin), windows[T](top, h, r.high, height-margin)
		parallel(channels, channels*min(w*h, height*width), func(from, to int) {
			for c := from; c < to; c++ {
				fn(k, image, c, ys, xs)
			}
		})
	}
}

// maxPool returns the largest element of each bin, and its place or -1. It is given the input and the regions, and
// maxPoolBackward the gradient, the regions and the places.
func maxPool[T float](r region, tensors []gotorch.Tensor) []gotorch.Tensor {
	input, boxes := tensors[0], gotorch.ToSlice[T](tensors[1])
	of := images(&r, boxes)
	size := []int64{int64(len(of)), r.outChannels, r.high, r.wide}
	result := gotorch.Zeros(size, gotorch.TensorOptions{DType: gotorch.DTypeOf[T]()})
	where := gotorch.Full(size, -1, gotorch.TensorOptions{DType: gotorch.Int32})
	channels, bins, area, width := int(r.outChannels), int(r.high*r.wide), int(r.shape[2]*r.shape[3]), int(r.shape[3])
	if result.Numel() == 0 || area == 0 {
		return []gotorch.Tensor{result, where}
	}
	in, out, places := gotorch.Data[T](input), gotorch.Data[T](result), gotorch.Data[int32](where)
	pool(r, boxes, of, 1, 0, func(k, image, c int, ys, xs []window) {
		pixels := in[(image*channels+c)*area:][:area]
		at := (k*channels + c) * bins
		for _, y := range ys {
			for _, x := range xs {
				var best T
				place := -1
				if y.low < y.high && x.low < x.high {
					best = -math.MaxFloat32 // also for float64, as in torchvision
				}
				for row := y.low; row < y.high; row++ {
					for i := row*width + x.low; i < row*width+x.high; i++ {
						if pixels[i] > best {
							best, place = pixels[i], i
						}
					}
				}
				out[at], places[at] = best, int32(place)
				at++
			}
		}
	})
	return []gotorch.Tensor{result, where}
}

func maxPoolBackward[T float](r region, tensors []gotorch.Tensor) []gotorch.Tensor {
	of := images(&r, gotorch.ToSlice[T](tensors[1]))
	result := gotorch.Zeros(r.shape, gotorch.TensorOptions{DType: gotorch.DTypeOf[T]()})
	channels, bins, area := int(r.outChannels), int(r.high*r.wide), int(r.shape[2]*r.shape[3])
	in, out, places := gotorch.Data[T](tensors[0]), gotorch.Data[T](result), gotorch.Data[int32](tensors[2])
	for k, image := range of {
		for c := range channels {
			pixels := out[(image*channels+c)*area:][:area]
			for bin := range bins {
				at := (k*channels+c)*bins + bin
				if place := places[at]; place >= 0 {
					pixels[place] += in[at]
				}
			}
		}
	}
	return []gotorch.Tensor{result}
}

// meanPool is the mean of windows that end before the map's last row and column, which torchvision leaves out. It is
// given the input and the regions, and meanPoolBackward the gradient and the regions.
func meanPool[T float](r region, tensors []gotorch.Tensor) []gotorch.Tensor {
	input, boxes := tensors[0], gotorch.ToSlice[T](tensors[1])
	of := images(&r, boxes)
	result := gotorch.Zeros([]int64{int64(len(of)), r.outChannels, r.high, r.wide}, gotorch.TensorOptions{DType: gotorch.DTypeOf[T]()})
	channels, bins, area, width := int(r.outChannels), int(r.high*r.wide), int(r.shape[2]*r.shape[3]), int(r.shape[3])
	if result.Numel() == 0 || area == 0 {
		return []gotorch.Tensor{result}
	}
	in, out := gotorch.Data[T](input), gotorch.Data[T](result)
	pool(r, boxes, of, 0, 1, func(k, image, c int, ys, xs []window) {
		for by, y := range ys {
			for bx, x := range xs {
				bin := by*int(r.wide) + bx
				pixels := in[(image*int(r.shape[1])+c*bins+bin)*area:][:area]
				var sum T
				for row := y.low; row < y.high; row++ {
					for i := row*width + x.low; i < row*width+x.high; i++ {
						sum += pixels[i]
					}
				}
				if y.low < y.high && x.low < x.high {
					out[(k*channels+c)*bins+bin] = sum / T((y.high-y.low)*(x.high-x.low))
				}
			}
		}
	})
	return []gotorch.Tensor{result}
}

// meanPoolBackward spreads gradients over windows that, unlike those of meanPool, have the map's last row and
// column too: it is what torchvision does.
func meanPoolBackward[T float](r region, tensors []gotorch.Tensor) []gotorch.Tensor {
	grad, boxes := tensors[0], gotorch.ToSlice[T](tensors[1])
	of := images(&r, boxes)
	result := gotorch.Zeros(r.shape, gotorch.TensorOptions{DType: gotorch.DTypeOf[T]()})
	channels, bins, area, width := int(r.outChannels), int(r.high*r.wide), int(r.shape[2]*r.shape[3]), int(r.shape[3])
	if grad.Numel() == 0 || area == 0 {
		return []gotorch.Tensor{result}
	}
	in, out := gotorch.Data[T](grad), gotorch.Data[T](result)
	pool(r, boxes, of, 0, 0, func(k, image, c int, ys, xs []window) {
		for by, y := range ys {
			for bx, x := range xs {
				bin := by*int(r.wide) + bx
				pixels := out[(image*int(r.shape[1])+c*bins+bin)*area:][:area]
				part := in[(k*channels+c)*bins+bin] / T((y.high-y.low)*(x.high-x.low))
				for row := y.low; row < y.high; row++ {
					for i := row*width + x.low; i < row*width+x.high; i++ {
						pixels[i] += part
					}
				}
			}
		}
	})
	return []gotorch.Tensor{result}
}

// pooling is the differentiable function.
type pooling struct{ region }

func (f pooling) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	single, double := maxPool[float32], maxPool[float64]
	if f.sensitive {
		single, double = meanPool[float32], meanPool[float64]
	}
	results := numbers(f.op, false, f.region, in, single, double)
	ctx.SaveForBackward(slices.Concat(in[1:], results[1:])...)
	return results[:1]
}

func (f pooling) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	saved := ctx.SavedTensors()
	single, double := maxPoolBackward[float32], maxPoolBackward[float64]
	if f.sensitive {
		single, double = meanPoolBackward[float32], meanPoolBackward[float64]
	}
	return append(gradient(f.op, grads, func(grads []gotorch.Tensor) []gotorch.Tensor {
		return numbers(f.op, false, f.region, slices.Concat(grads[:1], saved), single, double)
	}), gotorch.Tensor{})
}

// RoIPoolOptions are the arguments of [RoIPool] and [NewRoIPool] that have defaults.
type RoIPoolOptions struct {
	SpatialScale gotorch.Scalar // of the map's size to that of what boxes are in; default: 1.0
}

// RoIPool pools regions of maps to one size: input (N, C, H, W) and rois (K, 5) → (K, C, height, width), float32 or
// float64. Corners are rounded to elements, and each bin is the largest of its elements, or 0 where it has none:
// see [RoIAlign], also for the errors.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.roi_pool.html.
func RoIPool(input, rois gotorch.Tensor, outputSize []int64, opts ...RoIPoolOptions) gotorch.Tensor {
	const op = "ops.RoIPool"
	r := newRegion(op, input, rois, outputSize, args.Float(op, "SpatialScale", args.Option(opts).SpatialScale, 1))
	return gotorch.Apply(pooling{r}, input, rois)[0]
}

// PSRoIPoolOptions are the arguments of [PSRoIPool] and [NewPSRoIPool] that have defaults.
type PSRoIPoolOptions struct {
	SpatialScale gotorch.Scalar // of the map's size to that of what boxes are in; default: 1.0
}

// PSRoIPool is the mean of the elements of each bin, which has channels of its own: input (N, C·height·width, H, W)
// and rois (K, 5) → (K, C, height, width), float32 or float64. As in torchvision, the map's last row and column count
// for gradients only. It panics with a RuntimeError if the channels are no multiple of height·width.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.ps_roi_pool.html.
func PSRoIPool(input, rois gotorch.Tensor, outputSize []int64, opts ...PSRoIPoolOptions) gotorch.Tensor {
	const op = "ops.PSRoIPool"
	r := newRegion(op, input, rois, outputSize, args.Float(op, "SpatialScale", args.Option(opts).SpatialScale, 1)).byPosition()
	return gotorch.Apply(pooling{r}, input, rois)[0]
}

// Modules ---------------------------------------------------------------------------------------------

// RoIAlignModule is what [NewRoIAlign] makes.
type RoIAlignModule struct {
	nn.Module
	OutputSize    []int64
	SpatialScale  float64
	SamplingRatio int64
	Aligned       bool
}

// NewRoIAlign makes a module that calls [RoIAlign]. Unlike the function's, its scale and ratio have no defaults.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.RoIAlign.html.
func NewRoIAlign(size []int64, spatialScale float64, ratio int64, aligned bool) *RoIAlignModule {
	const op = "ops.NewRoIAlign"
	outputSize(op, size)
	samplingRatio(op, ratio)
	return nn.Init(&RoIAlignModule{OutputSize: slices.Clone(size), SpatialScale: spatialScale, SamplingRatio: ratio, Aligned: aligned})
}

// Forward pools regions: input (N, C, H, W) and rois (K, 5) → (K, C, height, width).
func (m *RoIAlignModule) Forward(input, rois gotorch.Tensor) gotorch.Tensor {
	return RoIAlign(input, rois, m.OutputSize, RoIAlignOptions{SpatialScale: m.SpatialScale, SamplingRatio: m.SamplingRatio, Aligned: m.Aligned})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *RoIAlignModule) ExtraRepr() string {
	return fmt.Sprintf("output_size=%s, spatial_scale=%s, sampling_ratio=%d, aligned=%s", pySize(m.OutputSize), pyFloat(m.SpatialScale), m.SamplingRatio, pyBool(m.Aligned))
}

// PSRoIAlignModule is what [NewPSRoIAlign] makes.
type PSRoIAlignModule struct {
	nn.Module
	OutputSize    []int64
	SpatialScale  float64
	SamplingRatio int64
}

// NewPSRoIAlign makes a module that calls [PSRoIAlign]. Unlike the function's, its scale and ratio have no defaults.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.PSRoIAlign.html.
func NewPSRoIAlign(size []int64, spatialScale float64, ratio int64) *PSRoIAlignModule {
	const op = "ops.NewPSRoIAlign"
	outputSize(op, size)
	samplingRatio(op, ratio)
	return nn.Init(&PSRoIAlignModule{OutputSize: slices.Clone(size), SpatialScale: spatialScale, SamplingRatio: ratio})
}

// Forward pools regions: input (N, C·height·width, H, W) and rois (K, 5) → (K, C, height, width).
func (m *PSRoIAlignModule) Forward(input, rois gotorch.Tensor) gotorch.Tensor {
	return PSRoIAlign(input, rois, m.OutputSize, PSRoIAlignOptions{SpatialScale: m.SpatialScale, SamplingRatio: m.SamplingRatio})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *PSRoIAlignModule) ExtraRepr() string {
	return fmt.Sprintf("output_size=%s, spatial_scale=%s, sampling_ratio=%d", pySize(m.OutputSize), pyFloat(m.SpatialScale), m.SamplingRatio)
}

// RoIPoolModule is what [NewRoIPool] makes.
type RoIPoolModule struct {
	nn.Module
	OutputSize   []int64
	SpatialScale float64
}

// NewRoIPool makes a module that calls [RoIPool]. Unlike the function's, its scale has no default.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.RoIPool.html.
func NewRoIPool(size []int64, spatialScale float64) *RoIPoolModule {
	outputSize("ops.NewRoIPool", size)
	return nn.Init(&RoIPoolModule{OutputSize: slices.Clone(size), SpatialScale: spatialScale})
}

// Forward pools regions: input (N, C, H, W) and rois (K, 5) → (K, C, height, width).
func (m *RoIPoolModule) Forward(input, rois gotorch.Tensor) gotorch.Tensor {
	return RoIPool(input, rois, m.OutputSize, RoIPoolOptions{SpatialScale: m.SpatialScale})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *RoIPoolModule) ExtraRepr() string {
	return fmt.Sprintf("output_size=%s, spatial_scale=%s", pySize(m.OutputSize), pyFloat(m.SpatialScale))
}

// PSRoIPoolModule is what [NewPSRoIPool] makes.
type PSRoIPoolModule struct {
	nn.Module
	OutputSize   []int64
	SpatialScale float64
}

// NewPSRoIPool makes a module that calls [PSRoIPool]. Unlike the function's, its scale has no default.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.PSRoIPool.html.
func NewPSRoIPool(size []int64, spatialScale float64) *PSRoIPoolModule {
	outputSize("ops.NewPSRoIPool", size)
	return nn.Init(&PSRoIPoolModule{OutputSize: slices.Clone(size), SpatialScale: spatialScale})
}

// Forward pools regions: input (N, C·height·width, H, W) and rois (K, 5) → (K, C, height, width).
func (m *PSRoIPoolModule) Forward(input, rois gotorch.Tensor) gotorch.Tensor {
	return PSRoIPool(input, rois, m.OutputSize, PSRoIPoolOptions{SpatialScale: m.SpatialScale})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *PSRoIPoolModule) ExtraRepr() string {
	return fmt.Sprintf("output_size=%s, spatial_scale=%s", pySize(m.OutputSize), pyFloat(m.SpatialScale))
}
