package detection

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/ops"
)

// column returns t[:, i].
func column(t gotorch.Tensor, i int64) gotorch.Tensor { return t.Select(1, i) }

func where(condition gotorch.Tensor) gotorch.Tensor { return gotorch.WhereNonZero(condition)[0] }

// ImageList is images of several sizes in one batch, each in the upper left corner.
type ImageList struct {
	Tensors    gotorch.Tensor // (N, C, H, W)
	ImageSizes [][2]int64     // the height and width of each
}

// BoxCoder makes of boxes how they differ from others, and the other way round.
type BoxCoder struct {
	Weights       [4]float64 // of the differences of the centre's x and y, the width and the height
	BBoxXformClip float64    // the most that the logarithm of a size may grow by
}

// NewBoxCoder makes a coder whose boxes are at most 62.5 times as large as the other ones.
func NewBoxCoder(weights [4]float64) *BoxCoder {
	return &BoxCoder{Weights: weights, BBoxXformClip: math.Log(1000.0 / 16)}
}

// center returns the centres and sizes of boxes, each (N).
func center(boxes gotorch.Tensor) (x, y, w, h gotorch.Tensor) {
	w, h = column(boxes, 2).Sub(column(boxes, 0)), column(boxes, 3).Sub(column(boxes, 1))
	return column(boxes, 0).Add(w.MulScalar(0.5)), column(boxes, 1).Add(h.MulScalar(0.5)), w, h
}

// EncodeSingle returns how boxes (N, 4) differ from proposals (N, 4): (N, 4).
func (c *BoxCoder) EncodeSingle(boxes, proposals gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		x, y, w, h := center(proposals)
		gx, gy, gw, gh := center(boxes)
		return gotorch.Stack([]gotorch.Tensor{
			gx.Sub(x).MulScalar(c.Weights[0]).Div(w), gy.Sub(y).MulScalar(c.Weights[1]).Div(h),
			gw.Div(w).Log().MulScalar(c.Weights[2]), gh.Div(h).Log().MulScalar(c.Weights[3]),
		}, gotorch.StackOptions{Dim: 1})
	})
}

// Encode is [BoxCoder.EncodeSingle] of the boxes of each image.
func (c *BoxCoder) Encode(boxes, proposals []gotorch.Tensor) []gotorch.Tensor {
	sizes := make([]int64, len(boxes))
	for i, b := range boxes {
		sizes[i] = b.Size(0)
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
		return c.EncodeSingle(gotorch.Cat(boxes), gotorch.Cat(proposals)).SplitWithSizes(sizes)
	})
}

// DecodeSingle returns the boxes that codes (N, 4·K) make of boxes (N, 4): (N, 4·K).
func (c *BoxCoder) DecodeSingle(codes, boxes gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		x, y, w, h := center(boxes.To(codes.DType()))
		code := func(i int) gotorch.Tensor {
			return codes.Index(gotorch.All, gotorch.SliceFrom(i, 4)).DivScalar(c.Weights[i])
		}
		down := func(t gotorch.Tensor) gotorch.Tensor { return t.Unsqueeze(1) }
		cx, cy := code(0).Mul(down(w)).Add(down(x)), code(1).Mul(down(h)).Add(down(y))
		halfW := code(2).ClampMax(c.BBoxXformClip).Exp().Mul(down(w)).MulScalar(0.5)
		halfH := code(3).ClampMax(c.BBoxXformClip).Exp().Mul(down(h)).MulScalar(0.5)
		return gotorch.Stack([]gotorch.Tensor{cx.Sub(halfW), cy.Sub(halfH), cx.Add(halfW), cy.Add(halfH)}, gotorch.StackOptions{Dim: 2}).
			Flatten(gotorch.FlattenOptions{StartDim: 1})
	})
}

// Decode is [BoxCoder.DecodeSingle] of the boxes of each image: codes (N₀+N₁+..., 4·K), or of another shape with as
// many elements → (N₀+N₁+..., K, 4).
func (c *BoxCoder) Decode(codes gotorch.Tensor, boxes []gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		all := gotorch.Cat(boxes)
		n := all.Size(0)
		if n > 0 {
			codes = codes.Reshape([]int64{n, -1})
		}
		result := c.DecodeSingle(codes, all)
		if n > 0 {
			result = result.Reshape([]int64{n, -1, 4})
		}
		return result
	})
}

// What a [Matcher] says of what it matches with nothing.
const (
	BelowLowThreshold = -1
	BetweenThresholds = -2
)

// Matcher finds the box that is there for each that was predicted.
type Matcher struct {
	HighThreshold, LowThreshold float64
	// AllowLowQualityMatches has what is best for a box that is there match it, however little they overlap.
	AllowLowQualityMatches bool
}

func newMatcher(op string, high, low float64, allow bool) *Matcher {
	if !(low <= high) {
		panic(args.ValueError(op, "the low threshold should be at most the high one, and they are %v and %v", low, high))
	}
	return &Matcher{HighThreshold: high, LowThreshold: low, AllowLowQualityMatches: allow}
}

// Match returns the row of each column of a matrix (M, N) that has the largest number: (N), int64;
// [BelowLowThreshold] where that is below LowThreshold, and [BetweenThresholds] where it is below HighThreshold. It
// panics with a ValueError if there are no rows or columns.
func (m *Matcher) Match(quality gotorch.Tensor) gotorch.Tensor {
	if quality.Numel() == 0 {
		what := "No proposal boxes available for one of the images during training"
		if quality.Size(0) == 0 {
			what = "No ground-truth boxes available for one of the images during training"
		}
		panic(args.ValueError("detection.Matcher", "%s", what))
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		values, matches := quality.MaxDim(0)
		all := matches.Clone()
		matches.IndexPut(BelowLowThreshold, values.LtScalar(m.LowThreshold))
		matches.IndexPut(BetweenThresholds, values.GeScalar(m.LowThreshold).LogicalAnd(values.LtScalar(m.HighThreshold)))
		if m.AllowLowQualityMatches {
			best, _ := quality.MaxDim(1)
			of := gotorch.WhereNonZero(quality.Eq(best.Unsqueeze(1)))[1]
			matches.IndexPut(all.Index(of), of)
		}
		return matches
	})
}

// BalancedPositiveNegativeSampler chooses so many of an image's boxes at random, with a part of positive ones.
type BalancedPositiveNegativeSampler struct {
	BatchSizePerImage int64
	PositiveFraction  float64 // at most; the others are negative
}

// Sample returns which boxes of each image were chosen as positive, and which as negative, as bools: labels (N) have
// 1 and more for positive ones, 0 for negative ones, and -1 for those that are left out.
func (s *BalancedPositiveNegativeSampler) Sample(labels []gotorch.Tensor) (positive, negative []gotorch.Tensor) {
	for _, l := range labels {
		masks := gotorch.Scope(func(*gotorch.ScopeHandle) [2]gotorch.Tensor {
			pos, neg := where(l.GeScalar(1)), where(l.EqScalar(0))
			numPos := min(pos.Numel(), int64(float64(s.BatchSizePerImage)*s.PositiveFraction))
			numNeg := min(neg.Numel(), s.BatchSizePerImage-numPos)
			chosen := func(of gotorch.Tensor, n int64) gotorch.Tensor {
				some := gotorch.Randperm(of.Numel(), gotorch.TensorOptions{Device: of.Device()}).Narrow(0, 0, n)
				mask := gotorch.Zeros(l.Shape(), gotorch.TensorOptions{DType: gotorch.Bool, Device: l.Device()})
				return mask.IndexPut(true, of.Index(some))
			}
			p := chosen(pos, numPos)
			return [2]gotorch.Tensor{p, chosen(neg, numNeg)}
		})
		positive, negative = append(positive, masks[0]), append(negative, masks[1])
	}
	return positive, negative
}

// AnchorGenerator makes boxes of some sizes and proportions around each place of maps: see [NewAnchorGenerator].
type AnchorGenerator struct {
	nn.Module
	Sizes, AspectRatios [][]float64 // for each map

	cells []gotorch.Tensor `nn:"-"`
}

// NewAnchorGenerator makes a generator for as many maps as there are lists of sizes: of each size and each ratio of
// the height to the width it makes a box. It panics with a ValueError if there are not as many lists of ratios, or a
// number is not positive.
//
// See https://github.com/pytorch/vision/blob/main/torchvision/models/detection/anchor_utils.py.
func NewAnchorGenerator(sizes, aspectRatios [][]float64) *AnchorGenerator {
	const op = "detection.NewAnchorGenerator"
	if len(sizes) == 0 || len(sizes) != len(aspectRatios) {
		panic(args.ValueError(op, "there should be sizes and ratios for each map, and there are %d and %d lists", len(sizes), len(aspectRatios)))
	}
	m := &AnchorGenerator{Sizes: sizes, AspectRatios: aspectRatios}
	for i := range sizes {
		for _, list := range [][]float64{sizes[i], aspectRatios[i]} {
			if len(list) == 0 {
				panic(args.ValueError(op, "map %d has no sizes or ratios", i))
			}
			for _, v := range list {
				if !(v > 0) || math.IsInf(v, 1) {
					panic(args.ValueError(op, "sizes and ratios must be positive, and one is %v", v))
				}
			}
		}
		m.cells = append(m.cells, anchors(sizes[i], aspectRatios[i]))
	}
	return nn.Init(m)
}

// anchors returns the boxes around 0.
func anchors(sizes, ratios []float64) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		scales := gotorch.FromSlice(sizes).To(gotorch.Float32).Unsqueeze(0)
		h := gotorch.FromSlice(ratios).To(gotorch.Float32).Sqrt()
		w := h.Reciprocal()
		ws, hs := w.Unsqueeze(1).Mul(scales).View([]int64{-1}), h.Unsqueeze(1).Mul(scales).View([]int64{-1})
		return gotorch.Stack([]gotorch.Tensor{ws.Neg(), hs.Neg(), ws, hs}, gotorch.StackOptions{Dim: 1}).DivScalar(2).Round()
	})
}

// NumAnchorsPerLocation returns how many boxes a place of each map has.
func (m *AnchorGenerator) NumAnchorsPerLocation() []int64 {
	list := make([]int64, len(m.Sizes))
	for i := range list {
		list[i] = int64(len(m.Sizes[i]) * len(m.AspectRatios[i]))
	}
	return list
}

// Forward returns the boxes of each image, those of all maps (N, C, H, W) one after another: (A, 4). It panics with a
// ValueError if there are not as many maps as it was made for.
func (m *AnchorGenerator) Forward(images ImageList, maps []gotorch.Tensor) []gotorch.Tensor {
	const op = "detection.AnchorGenerator"
	if len(maps) != len(m.cells) {
		panic(args.ValueError(op, "there should be %d maps, as there are lists of sizes, and are %d", len(m.cells), len(maps)))
	}
	all := gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		var list []gotorch.Tensor
		size := images.Tensors.Shape()
		for i, of := range maps {
			shape := of.Shape()
			high, wide := shape[len(shape)-2], shape[len(shape)-1]
			if high < 1 || wide < 1 {
				panic(args.ValueError(op, "map %d is of shape %v, without elements", i, shape))
			}
			cell := m.cells[i].To(gotorch.ToOptions{DType: of.DType(), Device: of.Device()})
			shift := func(n, length int64) gotorch.Tensor {
				return gotorch.Arange(n, gotorch.TensorOptions{DType: gotorch.Int32, Device: of.Device()}).MulScalar(length / n)
			}
			grid := gotorch.MeshgridIndexing([]gotorch.Tensor{shift(high, size[len(size)-2]), shift(wide, size[len(size)-1])}, "ij")
			y, x := grid[0].Reshape([]int64{-1}), grid[1].Reshape([]int64{-1})
			shifts := gotorch.Stack([]gotorch.Tensor{x, y, x, y}, gotorch.StackOptions{Dim: 1})
			list = append(list, shifts.View([]int64{-1, 1, 4}).Add(cell.View([]int64{1, -1, 4})).Reshape([]int64{-1, 4}))
		}
		return gotorch.Cat(list)
	})
	result := make([]gotorch.Tensor, len(images.ImageSizes))
	for i := range result {
		result[i] = all
	}
	return result
}

// similarity is how much boxes that are there and others overlap.
func similarity(there, boxes gotorch.Tensor) gotorch.Tensor { return ops.BoxIoU(there, boxes) }
