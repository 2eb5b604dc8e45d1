package ops

import (
	"math"
	"runtime"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// scoped frees what compute makes on its way.
func scoped(compute func() gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor { return compute() })
}

// last returns a column of boxes, t[..., i].
func last(t gotorch.Tensor, i int) gotorch.Tensor { return t.Index(gotorch.Ellipsis, gotorch.At(i)) }

// ofFour panics with a ValueError if the last dimension of boxes is not of so many numbers.
func ofFour(op, name string, boxes gotorch.Tensor, most int64) {
	if !boxes.Defined() {
		panic(args.TypeError(op, "%s is no tensor, where boxes are required", name))
	}
	shape := boxes.Shape()
	if len(shape) == 0 || shape[len(shape)-1] != 4 || most > 0 && int64(len(shape)) != most {
		panic(args.ValueError(op, "%s must be of shape (..., 4), and is of shape %v", name, shape))
	}
}

// upcast is for products that would overflow.
func upcast(t gotorch.Tensor) gotorch.Tensor {
	switch d := t.DType(); {
	case d.IsFloatingPoint() && d != gotorch.Float32 && d != gotorch.Float64:
		return t.To(gotorch.Float32)
	case !d.IsFloatingPoint() && d != gotorch.Int32 && d != gotorch.Int64:
		return t.To(gotorch.Int32)
	}
	return t
}

func suppress[T float](threshold float64, tensors []gotorch.Tensor) []gotorch.Tensor {
	boxes, scores := tensors[0], tensors[1]
	_, order := scores.SortStable(new(true), gotorch.SortStableOptions{Dim: new(int64(0)), Descending: true})
	places, corners := gotorch.Data[int64](order), gotorch.Data[T](boxes)
	// The boxes that are left, in the order of their scores: they get fewer with each that is kept.
	type box struct {
		x1, y1, x2, y2, area T
		at                   int64
	}
	left := make([]box, len(places))
	for i, at := range places {
		b := corners[4*at : 4*at+4]
		left[i] = box{b[0], b[1], b[2], b[3], T((b[2] - b[0]) * (b[3] - b[1])), at}
	}
	runtime.KeepAlive(order.T)
	var keep []int64
	for len(left) > 0 {
		a := left[0]
		keep = append(keep, a.at)
		rest := left[:0]
		for _, b := range left[1:] {
			x1, y1, x2, y2 := a.x1, a.y1, a.x2, a.y2
			// In this order of comparisons, for NaN: they are as the original's maxima and minima.
			if x1 < b.x1 {
				x1 = b.x1
			}
			if y1 < b.y1 {
				y1 = b.y1
			}
			if b.x2 < x2 {
				x2 = b.x2
			}
			if b.y2 < y2 {
				y2 = b.y2
			}
			w, h := x2-x1, y2-y1
			if !(0 < w) {
				w = 0
			}
			if !(0 < h) {
				h = 0
			}
			shared := T(w * h)
			if !(float64(shared/(a.area+b.area-shared)) > threshold) {
				rest = append(rest, b)
			}
		}
		left = rest
	}
	return []gotorch.Tensor{gotorch.FromSlice(keep)}
}

// NMS returns which boxes remain when those are left out that overlap one of a higher score by more than
// iouThreshold: boxes (N, 4) of corners x1, y1, x2, y2, and scores (N) → (K), int64, by falling scores. It panics
// with a ValueError for other shapes, with a RuntimeError if the dtypes differ, and with a NotImplementedError if it
// is neither float32 nor float64.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.nms.html.
func NMS(boxes, scores gotorch.Tensor, iouThreshold float64) gotorch.Tensor {
	const op = "ops.NMS"
	shaped(op, "boxes", boxes, 2, 4, "(N, 4)")
	shaped(op, "scores", scores, 1, 0, "(N)")
	if boxes.Size(0) != scores.Size(0) {
		panic(args.ValueError(op, "boxes and scores should be as many, and are %d and %d", boxes.Size(0), scores.Size(0)))
	}
	sameDType(op, "boxes", boxes, "scores", scores)
	return scoped(func() gotorch.Tensor {
		return numbers(op, false, iouThreshold, []gotorch.Tensor{boxes, scores}, suppress[float32], suppress[float64])[0]
	})
}

// BatchedNMS is [NMS] of each class by itself: idxs (N) are the classes of boxes (N, 4). Up to 1000 boxes are moved
// apart, so that those of different classes do not overlap, which rounds their corners; more are computed class by
// class, as in torchvision.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.batched_nms.html.
func BatchedNMS(boxes, scores, idxs gotorch.Tensor, iouThreshold float64) gotorch.Tensor {
	const op = "ops.BatchedNMS"
	shaped(op, "boxes", boxes, 2, 4, "(N, 4)")
	shaped(op, "scores", scores, 1, 0, "(N)")
	shaped(op, "idxs", idxs, 1, 0, "(N)")
	n := boxes.Size(0)
	if scores.Size(0) != n || idxs.Size(0) != n {
		panic(args.ValueError(op, "boxes, scores and idxs should be as many, and are %d, %d and %d", n, scores.Size(0), idxs.Size(0)))
	}
	most := int64(4000)
	if boxes.Device() != gotorch.CPU {
		most = 100_000
	}
	return scoped(func() gotorch.Tensor {
		switch {
		case n == 0:
			return gotorch.Empty([]int64{0}, gotorch.TensorOptions{DType: gotorch.Int64, Device: boxes.Device()})
		case boxes.Numel() <= most:
			boxes := boxes.Detach()
			offsets := idxs.To(boxes.DType()).Mul(boxes.Max().AddScalar(1))
			return NMS(boxes.Add(offsets.Unsqueeze(1)), scores, iouThreshold)
		}
		keep := gotorch.Zeros([]int64{n}, gotorch.TensorOptions{DType: gotorch.Bool, Device: boxes.Device()})
		classes, _, _ := gotorch.Unique(idxs)
		for _, class := range classes.Unbind() {
			of := gotorch.WhereNonZero(idxs.Eq(class))[0]
			keep.IndexPut(true, of.Index(NMS(boxes.Index(of), scores.Index(of), iouThreshold)))
		}
		found := gotorch.WhereNonZero(keep)[0]
		_, order := scores.Index(found).Sort(gotorch.SortOptions{Dim: new(int64(-1)), Descending: true})
		return found.Index(order)
	})
}

// RemoveSmallBoxes returns the places of those of boxes (N, 4) both of whose sides are of minSize at least: (K), int64.
// A box with NaN is none of them.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.remove_small_boxes.html.
func RemoveSmallBoxes(boxes gotorch.Tensor, minSize float64) gotorch.Tensor {
	ofFour("ops.RemoveSmallBoxes", "boxes", boxes, 0)
	return scoped(func() gotorch.Tensor {
		wide, high := last(boxes, 2).Sub(last(boxes, 0)), last(boxes, 3).Sub(last(boxes, 1))
		return gotorch.WhereNonZero(wide.GeScalar(minSize).LogicalAnd(high.GeScalar(minSize)))[0]
	})
}

// ClipBoxesToImage returns boxes (..., 4) with their corners moved into an image of a height and width.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.clip_boxes_to_image.html.
func ClipBoxesToImage(boxes gotorch.Tensor, height, width int64) gotorch.Tensor {
	ofFour("ops.ClipBoxesToImage", "boxes", boxes, 0)
	return scoped(func() gotorch.Tensor {
		side := func(first int, most int64) gotorch.Tensor {
			return boxes.Index(gotorch.Ellipsis, gotorch.SliceFrom(first, 2)).Clamp(gotorch.ClampOptions{Min: 0, Max: most})
		}
		return gotorch.Stack([]gotorch.Tensor{side(0, width), side(1, height)}, gotorch.StackOptions{Dim: boxes.Dim()}).Reshape(boxes.Shape())
	})
}

// The formats of boxes.
const (
	XYXY     = "xyxy"     // two opposite corners
	XYWH     = "xywh"     // the corner nearest to 0, and the size
	CXCYWH   = "cxcywh"   // the centre and the size
	XYWHR    = "xywhr"    // a corner, the size, and the degrees by which the box is turned left around it
	CXCYWHR  = "cxcywhr"  // the centre, the size, and the degrees by which the box is turned left
	XYXYXYXY = "xyxyxyxy" // all four corners: the top left one, and on to the right around the box
)

// numbersOf is how many numbers a box has in each format.
var numbersOf = map[string]int64{XYXY: 4, XYWH: 4, CXCYWH: 4, XYWHR: 5, CXCYWHR: 5, XYXYXYXY: 8}

// BoxConvert returns boxes (..., K) in another format: [XYXY], [XYWH] or [CXCYWH] with K of 4, or [XYWHR],
// [CXCYWHR] or [XYXYXYXY] with 5 or 8. It panics with a ValueError for another format, or boxes with another number
// of numbers, and with a NotImplementedError between formats of boxes that are turned and others.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.box_convert.html.
func BoxConvert(boxes gotorch.Tensor, inFmt, outFmt string) gotorch.Tensor {
	const op = "ops.BoxConvert"
	if numbersOf[inFmt] == 0 || numbersOf[outFmt] == 0 {
		panic(args.ValueError(op, "Unsupported Bounding Box Conversions for given in_fmt %s and out_fmt %s", inFmt, outFmt))
	}
	if !boxes.Defined() {
		panic(args.TypeError(op, "boxes is no tensor"))
	}
	if inFmt == outFmt {
		return boxes.Clone()
	}
	if (numbersOf[inFmt] == 4) != (numbersOf[outFmt] == 4) {
		panic(args.Errorf(op, gotorch.NotImplementedError, "Unsupported Bounding Box Conversions for given in_fmt %s and out_fmt %s", inFmt, outFmt))
	}
	shape := boxes.Shape()
	if len(shape) == 0 || shape[len(shape)-1] != numbersOf[inFmt] {
		panic(args.ValueError(op, "boxes must be of shape (..., %d) in the format %s, and are of shape %v", numbersOf[inFmt], inFmt, shape))
	}
	return scoped(func() gotorch.Tensor {
		dtype := boxes.DType()
		switch inFmt {
		case XYWH:
			boxes = fromXYWH(boxes)
		case CXCYWH:
			boxes = fromCXCYWH(boxes)
		case CXCYWHR:
			boxes = turned(boxes, -1)
		case XYXYXYXY:
			boxes = fromCorners(boxes)
		}
		switch outFmt {
		case XYWH:
			c := unbind(boxes)
			boxes = join(c[0], c[1], c[2].Sub(c[0]), c[3].Sub(c[1]))
		case CXCYWH:
			c := unbind(boxes)
			boxes = join(c[0].Add(c[2]).DivScalar(2), c[1].Add(c[3]).DivScalar(2), c[2].Sub(c[0]), c[3].Sub(c[1]))
		case CXCYWHR:
			boxes = turned(boxes, 1)
		case XYXYXYXY:
			boxes = toCorners(boxes)
		}
		if numbersOf[inFmt] != 4 && boxes.DType() != dtype {
			boxes = boxes.To(dtype)
		}
		return boxes
	})
}

func unbind(boxes gotorch.Tensor) []gotorch.Tensor {
	return boxes.Unbind(gotorch.UnbindOptions{Dim: -1})
}

func join(columns ...gotorch.Tensor) gotorch.Tensor {
	return gotorch.Stack(columns, gotorch.StackOptions{Dim: -1})
}

func fromXYWH(boxes gotorch.Tensor) gotorch.Tensor {
	c := unbind(boxes)
	return join(c[0], c[1], c[0].Add(c[2]), c[1].Add(c[3]))
}

func fromCXCYWH(boxes gotorch.Tensor) gotorch.Tensor {
	c := unbind(boxes)
	w, h := c[2].MulScalar(0.5), c[3].MulScalar(0.5)
	return join(c[0].Sub(w), c[1].Sub(h), c[0].Add(w), c[1].Add(h))
}

// whole rounds what was computed of integers, before it becomes integers again.
func whole(of, boxes gotorch.Tensor) gotorch.Tensor {
	if of.DType().IsFloatingPoint() {
		return boxes
	}
	return boxes.Round().To(of.DType())
}

func angles(degrees gotorch.Tensor) (cos, sin gotorch.Tensor) {
	radians := degrees.MulScalar(math.Pi).DivScalar(180.0)
	return radians.Cos(), radians.Sin()
}

// turned moves the first point of boxes that are turned from a corner to the centre, or back where way is -1.
func turned(boxes gotorch.Tensor, way int) gotorch.Tensor {
	c := unbind(boxes)
	cos, sin := angles(c[4])
	// Each half is made anew, so that gradients are added in the original's order.
	w, h := func() gotorch.Tensor { return c[2].DivScalar(2) }, func() gotorch.Tensor { return c[3].DivScalar(2) }
	if way > 0 {
		x := c[0].Add(w().Mul(cos)).Add(h().Mul(sin))
		return whole(boxes, join(x, c[1].Sub(w().Mul(sin)).Add(h().Mul(cos)), c[2], c[3], c[4]))
	}
	x := c[0].Sub(w().Mul(cos)).Sub(h().Mul(sin))
	return whole(boxes, join(x, c[1].Sub(h().Mul(cos)).Add(w().Mul(sin)), c[2], c[3], c[4]))
}

func toCorners(boxes gotorch.Tensor) gotorch.Tensor {
	c := unbind(boxes)
	x, y, w, h := c[0], c[1], c[2], c[3]
	cos, sin := angles(c[4])
	x2, y2 := x.Add(w.Mul(cos)), y.Sub(w.Mul(sin))
	return whole(boxes, join(x, y, x2, y2, x2.Add(h.Mul(sin)), y2.Add(h.Mul(cos)), x.Add(h.Mul(sin)), y.Add(h.Mul(cos))))
}

func fromCorners(boxes gotorch.Tensor) gotorch.Tensor {
	c := unbind(boxes)
	length := func(dx, dy gotorch.Tensor) gotorch.Tensor { return dx.Pow(2).Add(dy.Pow(2)).Sqrt() }
	degrees := gotorch.Atan2(c[1].Sub(c[3]), c[2].Sub(c[0])).MulScalar(180).DivScalar(math.Pi)
	return whole(boxes, join(c[0], c[1], length(c[2].Sub(c[0]), c[1].Sub(c[3])), length(c[4].Sub(c[2]), c[5].Sub(c[3])), degrees))
}

// BoxFormatOptions are the arguments of [BoxArea] and [BoxIoU] that have defaults.
type BoxFormatOptions struct {
	Fmt string // of the boxes: "xyxy", "xywh" or "cxcywh"; default: "xyxy"
}

func (o BoxFormatOptions) format(op string) string {
	switch o.Fmt {
	case "":
		return XYXY
	case XYXY, XYWH, CXCYWH:
		return o.Fmt
	case XYWHR, CXCYWHR, XYXYXYXY:
		panic(args.Errorf(op, gotorch.NotImplementedError, "boxes that are turned, as in the format %s, are not measured: convert them to corners and clip those", o.Fmt))
	}
	panic(args.ValueError(op, "Unsupported format %q: it may be xyxy, xywh or cxcywh", o.Fmt))
}

func area(boxes gotorch.Tensor, format string) gotorch.Tensor {
	boxes = upcast(boxes)
	if format != XYXY {
		return last(boxes, 2).Mul(last(boxes, 3))
	}
	return last(boxes, 2).Sub(last(boxes, 0)).Mul(last(boxes, 3).Sub(last(boxes, 1)))
}

// BoxArea returns the areas of boxes: (..., 4) → (...). It panics with a ValueError for another shape or format.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.box_area.html.
func BoxArea(boxes gotorch.Tensor, opts ...BoxFormatOptions) gotorch.Tensor {
	const op = "ops.BoxArea"
	format := args.Option(opts).format(op)
	ofFour(op, "boxes", boxes, 0)
	return scoped(func() gotorch.Tensor { return area(boxes, format) })
}

// pairs has what is measured of each box of one list with each of another.
type pairs struct{ a, b gotorch.Tensor }

// two returns columns from one place to another of both lists, made to stand against each other.
func (p pairs) two(from, to int) (a, b gotorch.Tensor) {
	columns := gotorch.Slice(from, to)
	return p.a.Index(gotorch.Ellipsis, gotorch.NewAxis, columns), p.b.Index(gotorch.Ellipsis, gotorch.NewAxis, gotorch.All, columns)
}

// one is two for a column, whose dimension disappears.
func (p pairs) one(i int) (a, b gotorch.Tensor) {
	return p.a.Index(gotorch.Ellipsis, gotorch.NewAxis, gotorch.At(i)), p.b.Index(gotorch.Ellipsis, gotorch.NewAxis, gotorch.All, gotorch.At(i))
}

func (p pairs) intersection(format string) (inter, union gotorch.Tensor) {
	one, two := area(p.a, format), area(p.b, format)
	a1, b1 := p.two(0, 2)
	a2, b2 := p.two(2, 4)
	switch format {
	case XYWH:
		a2, b2 = a1.Add(a2), b1.Add(b2)
	case CXCYWH:
		ha, hb := a2.DivScalar(2), b2.DivScalar(2)
		a1, a2, b1, b2 = a1.Sub(ha), a1.Add(ha), b1.Sub(hb), b1.Add(hb)
	}
	size := upcast(gotorch.Minimum(a2, b2).Sub(gotorch.Maximum(a1, b1))).ClampMin(0)
	inter = last(size, 0).Mul(last(size, 1))
	return inter, one.Unsqueeze(-1).Add(two.Unsqueeze(-2)).Sub(inter)
}

// hull returns the sizes of the smallest boxes around both.
func (p pairs) hull() gotorch.Tensor {
	a1, b1 := p.two(0, 2)
	a2, b2 := p.two(2, 4)
	return upcast(gotorch.Maximum(a2, b2).Sub(gotorch.Minimum(a1, b1))).ClampMin(0)
}

func paired(op string, boxes1, boxes2 gotorch.Tensor) pairs {
	for name, boxes := range map[string]gotorch.Tensor{"boxes1": boxes1, "boxes2": boxes2} {
		ofFour(op, name, boxes, 0)
		if boxes.Dim() < 2 {
			panic(args.ValueError(op, "%s must be of shape (..., N, 4), and is of shape %v", name, boxes.Shape()))
		}
	}
	return pairs{boxes1, boxes2}
}

// BoxIoU returns how much each box of one list overlaps each of another: the area that they share, over that of
// both together. Boxes (..., N, 4) and (..., M, 4) → (..., N, M). Two boxes without area give NaN. It panics with a
// ValueError for another shape or format.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.box_iou.html.
func BoxIoU(boxes1, boxes2 gotorch.Tensor, opts ...BoxFormatOptions) gotorch.Tensor {
	const op = "ops.BoxIoU"
	format := args.Option(opts).format(op)
	p := paired(op, boxes1, boxes2)
	return scoped(func() gotorch.Tensor {
		inter, union := p.intersection(format)
		return inter.Div(union)
	})
}

// GeneralizedBoxIoU is [BoxIoU] less the part of the smallest box around both that neither covers: from -1 to 1.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.generalized_box_iou.html.
func GeneralizedBoxIoU(boxes1, boxes2 gotorch.Tensor) gotorch.Tensor {
	p := paired("ops.GeneralizedBoxIoU", boxes1, boxes2)
	return scoped(func() gotorch.Tensor {
		inter, union := p.intersection(XYXY)
		size := p.hull()
		around := last(size, 0).Mul(last(size, 1))
		return inter.Div(union).Sub(around.Sub(union).Div(around))
	})
}

// BoxIoUOptions are the arguments of [DistanceBoxIoU] and [CompleteBoxIoU] that have defaults.
type BoxIoUOptions struct {
	Eps gotorch.Scalar // added to what is divided by; default: 1e-7
}

func (p pairs) distance(eps float64) (distance, iou gotorch.Tensor) {
	inter, union := p.intersection(XYXY)
	iou = inter.Div(union)
	size := p.hull()
	diagonal := last(size, 0).Pow(2).Add(last(size, 1).Pow(2)).AddScalar(eps)
	center := func(boxes gotorch.Tensor, i int) gotorch.Tensor {
		return last(boxes, i).Add(last(boxes, i+2)).DivScalar(2)
	}
	apart := func(i int) gotorch.Tensor {
		return upcast(center(p.a, i).Unsqueeze(-1).Sub(center(p.b, i).Unsqueeze(-2))).Pow(2)
	}
	return iou.Sub(apart(0).Add(apart(1)).Div(diagonal)), iou
}

// DistanceBoxIoU is [BoxIoU] less the squared distance of the centres, over that of the corners of the smallest box
// around both.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.distance_box_iou.html.
func DistanceBoxIoU(boxes1, boxes2 gotorch.Tensor, opts ...BoxIoUOptions) gotorch.Tensor {
	const op = "ops.DistanceBoxIoU"
	eps := args.Float(op, "Eps", args.Option(opts).Eps, 1e-7)
	p := paired(op, boxes1, boxes2)
	return scoped(func() gotorch.Tensor {
		distance, _ := pairs{upcast(p.a), upcast(p.b)}.distance(eps)
		return distance
	})
}

// CompleteBoxIoU is [DistanceBoxIoU] less a penalty for sides of another proportion.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.complete_box_iou.html.
func CompleteBoxIoU(boxes1, boxes2 gotorch.Tensor, opts ...BoxIoUOptions) gotorch.Tensor {
	const op = "ops.CompleteBoxIoU"
	eps := args.Float(op, "Eps", args.Option(opts).Eps, 1e-7)
	p := paired(op, boxes1, boxes2)
	p = pairs{upcast(p.a), upcast(p.b)}
	return scoped(func() gotorch.Tensor {
		distance, iou := p.distance(eps)
		x1, gx1 := p.one(0)
		y1, gy1 := p.one(1)
		x2, gx2 := p.one(2)
		y2, gy2 := p.one(3)
		v := gotorch.Atan(x2.Sub(x1).Div(y2.Sub(y1))).Sub(gotorch.Atan(gx2.Sub(gx1).Div(gy2.Sub(gy1)))).Pow(2).MulScalar(4 / (math.Pi * math.Pi))
		return distance.Sub(weight(v, iou, eps).Mul(v))
	})
}

// weight is how much a penalty v counts; it has no gradient.
func weight(v, iou gotorch.Tensor, eps float64) (alpha gotorch.Tensor) {
	gotorch.NoGrad(func() { alpha = v.Div(iou.Neg().AddScalar(1).Add(v).AddScalar(eps)) })
	return alpha
}

// MasksToBoxes returns the boxes around masks, whose elements are where they are not zero: (N, H, W) → (N, 4), float32,
// of corners within the mask. A mask without elements has the box 0, 0, 0, 0.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.masks_to_boxes.html.
func MasksToBoxes(masks gotorch.Tensor) gotorch.Tensor {
	shaped("ops.MasksToBoxes", "masks", masks, 3, 0, "(N, H, W)")
	return scoped(func() gotorch.Tensor {
		if masks.Numel() == 0 {
			return gotorch.Zeros([]int64{0, 4}, gotorch.TensorOptions{Device: masks.Device()})
		}
		there := masks.To(gotorch.Bool)
		rows, columns := there.AnyDim(2), there.AnyDim(1)
		first := func(t gotorch.Tensor) gotorch.Tensor {
			return t.To(gotorch.Float32).ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))})
		}
		end := func(t gotorch.Tensor) gotorch.Tensor {
			return first(t.Flip([]int64{1})).Neg().AddScalar(t.Size(1) - 1)
		}
		boxes := gotorch.Stack([]gotorch.Tensor{first(columns), first(rows), end(columns), end(rows)}, gotorch.StackOptions{Dim: 1}).To(gotorch.Float32)
		return boxes.IndexPut(0, rows.AnyDim(1).LogicalNot())
	})
}
