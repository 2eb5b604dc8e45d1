package ops

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// reduction returns how a loss is reduced: none where the field is nil, unlike in package functional.
func reduction(op string, r *F.Reduction) F.Reduction {
	if r == nil {
		return F.None
	}
	if *r < F.Mean || *r > F.None {
		panic(args.ValueError(op, "Reduction may be Mean, Sum or None, and is %d", *r))
	}
	return *r
}

func reduced(loss gotorch.Tensor, r F.Reduction, zero bool) gotorch.Tensor {
	switch {
	case r == F.None:
		return loss
	case r == F.Sum:
		return loss.Sum()
	case zero && loss.Numel() == 0:
		return loss.Sum().MulScalar(0.0)
	}
	return loss.Mean()
}

// SigmoidFocalLossOptions are the arguments of [SigmoidFocalLoss] that have defaults.
type SigmoidFocalLossOptions struct {
	Alpha     gotorch.Scalar // how much positive examples count, from 0 to 1, or -1: as much as negative ones; default: 0.25
	Gamma     gotorch.Scalar // how much less easy ones count; default: 2
	Reduction *F.Reduction   // nil: none
}

// SigmoidFocalLoss is the binary cross-entropy of inputs, before the sigmoid, where examples that are nearly right
// count less: inputs and targets of one shape, and 0 or 1 in targets. It panics with a ValueError if Alpha is neither
// -1 nor from 0 to 1.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.sigmoid_focal_loss.html.
func SigmoidFocalLoss(inputs, targets gotorch.Tensor, opts ...SigmoidFocalLossOptions) gotorch.Tensor {
	const op = "ops.SigmoidFocalLoss"
	opt := args.Option(opts)
	alpha, gamma, r := args.Float(op, "Alpha", opt.Alpha, 0.25), args.Float(op, "Gamma", opt.Gamma, 2), reduction(op, opt.Reduction)
	if !(alpha >= 0 && alpha <= 1) && alpha != -1 {
		panic(args.ValueError(op, "Invalid alpha value: %v. alpha must be in the range [0,1] or -1 for ignore.", alpha))
	}
	return scoped(func() gotorch.Tensor {
		less := func(t gotorch.Tensor) gotorch.Tensor { return t.Neg().AddScalar(1) }
		p := inputs.Sigmoid()
		loss := F.BinaryCrossEntropyWithLogits(inputs, targets, F.BinaryCrossEntropyWithLogitsOptions{Reduction: F.None})
		right := p.Mul(targets).Add(less(p).Mul(less(targets)))
		loss = loss.Mul(less(right).Pow(gamma))
		if alpha >= 0 {
			loss = targets.MulScalar(alpha).Add(less(targets).MulScalar(1 - alpha)).Mul(loss)
		}
		return reduced(loss, r, false)
	})
}

// BoxIoULossOptions are the arguments of the losses of boxes that have defaults.
type BoxIoULossOptions struct {
	Reduction *F.Reduction   // nil: none
	Eps       gotorch.Scalar // added to what is divided by; default: 1e-7
}

// loss has boxes, and what they should be. What is computed takes them apart anew each time, and in the original's
// order, so that gradients are added in that order.
type loss struct{ boxes1, boxes2 gotorch.Tensor }

func (l loss) columns() (a, b []gotorch.Tensor) { return unbind(l.boxes1), unbind(l.boxes2) }

func lossOf(op string, boxes1, boxes2 gotorch.Tensor, opts []BoxIoULossOptions, compute func(l loss, eps float64) gotorch.Tensor) gotorch.Tensor {
	opt := args.Option(opts)
	eps, r := args.Float(op, "Eps", opt.Eps, 1e-7), reduction(op, opt.Reduction)
	ofFour(op, "boxes1", boxes1, 0)
	ofFour(op, "boxes2", boxes2, 0)
	return scoped(func() gotorch.Tensor {
		full := func(t gotorch.Tensor) gotorch.Tensor {
			if t.DType() != gotorch.Float32 && t.DType() != gotorch.Float64 {
				t = t.To(gotorch.Float32)
			}
			return t
		}
		return reduced(compute(loss{full(boxes1), full(boxes2)}, eps), r, true)
	})
}

func (l loss) intersection() (inter, union gotorch.Tensor) {
	a, b := l.columns()
	x1, y1 := gotorch.Maximum(a[0], b[0]), gotorch.Maximum(a[1], b[1])
	x2, y2 := gotorch.Minimum(a[2], b[2]), gotorch.Minimum(a[3], b[3])
	inter = gotorch.ZerosLike(a[0])
	there := y2.Gt(y1).LogicalAnd(x2.Gt(x1))
	w := x2.Index(there).Sub(x1.Index(there))
	inter.IndexPut(w.Mul(y2.Index(there).Sub(y1.Index(there))), there)
	return inter, size(a).Add(size(b)).Sub(inter)
}

func size(c []gotorch.Tensor) gotorch.Tensor {
	w := c[2].Sub(c[0])
	return w.Mul(c[3].Sub(c[1]))
}

// hull returns the corners of the smallest boxes around both.
func hull(a, b []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{gotorch.Minimum(a[0], b[0]), gotorch.Minimum(a[1], b[1]), gotorch.Maximum(a[2], b[2]), gotorch.Maximum(a[3], b[3])}
}

// GeneralizedBoxIoULoss is one less [GeneralizedBoxIoU] of each box with that in the same place: boxes1 and boxes2 of
// shape (N, 4) → (N), or one number by Reduction. float16 and others are computed in float32.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.generalized_box_iou_loss.html.
func GeneralizedBoxIoULoss(boxes1, boxes2 gotorch.Tensor, opts ...BoxIoULossOptions) gotorch.Tensor {
	return lossOf("ops.GeneralizedBoxIoULoss", boxes1, boxes2, opts, func(l loss, eps float64) gotorch.Tensor {
		inter, union := l.intersection()
		iou := inter.Div(union.AddScalar(eps))
		around := size(hull(l.columns()))
		return iou.Sub(around.Sub(union).Div(around.AddScalar(eps))).Neg().AddScalar(1)
	})
}

func (l loss) distance(eps float64) (distance, iou gotorch.Tensor) {
	inter, union := l.intersection()
	iou = inter.Div(union.AddScalar(eps))
	a, b := l.columns()
	c := hull(a, b)
	w := c[2].Sub(c[0]).Pow(2)
	diagonal := w.Add(c[3].Sub(c[1]).Pow(2)).AddScalar(eps)
	middle := func(one, other gotorch.Tensor) gotorch.Tensor { return one.Add(other).DivScalar(2) }
	x, y := middle(a[2], a[0]), middle(a[3], a[1])
	gx, gy := middle(b[0], b[2]), middle(b[1], b[3])
	dx := x.Sub(gx).Pow(2)
	apart := dx.Add(y.Sub(gy).Pow(2))
	rest := iou.Neg().AddScalar(1)
	return rest.Add(apart.Div(diagonal)), iou
}

// DistanceBoxIoULoss is one less [DistanceBoxIoU] of each box with that in the same place: see
// [GeneralizedBoxIoULoss].
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.distance_box_iou_loss.html.
func DistanceBoxIoULoss(boxes1, boxes2 gotorch.Tensor, opts ...BoxIoULossOptions) gotorch.Tensor {
	return lossOf("ops.DistanceBoxIoULoss", boxes1, boxes2, opts, func(l loss, eps float64) gotorch.Tensor {
		distance, _ := l.distance(eps)
		return distance
	})
}

// CompleteBoxIoULoss is one less [CompleteBoxIoU] of each box with that in the same place: see
// [GeneralizedBoxIoULoss].
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.complete_box_iou_loss.html.
func CompleteBoxIoULoss(boxes1, boxes2 gotorch.Tensor, opts ...BoxIoULossOptions) gotorch.Tensor {
	return lossOf("ops.CompleteBoxIoULoss", boxes1, boxes2, opts, func(l loss, eps float64) gotorch.Tensor {
		distance, iou := l.distance(1e-7) // torchvision's Eps is for the penalty alone
		a, b := l.columns()
		w, h := a[2].Sub(a[0]), a[3].Sub(a[1])
		gw, gh := b[2].Sub(b[0]), b[3].Sub(b[1])
		wanted := gotorch.Atan(gw.Div(gh))
		v := wanted.Sub(gotorch.Atan(w.Div(h))).Pow(2).MulScalar(4 / (math.Pi * math.Pi))
		return distance.Add(weight(v, iou, eps).Mul(v))
	})
}
