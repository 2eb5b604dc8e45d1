// Package ops has the operators and blocks of torchvision.ops, under its names.
//
// Boxes are tensors (N, 4) of two corners, x1, y1, x2, y2; [BoxConvert] makes them of other formats. Which of them
// overlap, and which remain when those are left out that overlap better ones:
//
//	iou := ops.BoxIoU(boxes, others)      // (N, 4) and (M, 4) → (N, M)
//	keep := ops.NMS(boxes, scores, 0.5)   // places of boxes, the best first
//	boxes = boxes.Index(keep)
//
// Regions of maps are pooled to one size, with gradients for the maps:
//
//	rois := ops.RoIs([]gotorch.Tensor{boxesOfFirstImage, boxesOfSecond})
//	x := ops.RoIAlign(maps, rois, []int64{7}, ops.RoIAlignOptions{SpatialScale: 0.25})
//
// A function and a module that have one name in Python, but for capitals, are [RoIAlign] and [NewRoIAlign] here.
// [NewMultiScaleRoIAlign] and [NewFeaturePyramidNetwork] work on maps of several sizes, and
// [NewConv2dNormActivation], [NewSqueezeExcitation], [NewMLP] and others are what networks are made of.
//
// torchvision's own kernels are not part of libtorch. Here they are written in Go, for the processor's memory: a
// tensor on another device is copied there, and the result back. What they compute is torchvision's to the last
// bit, except for float16 and bfloat16, which are rounded once, and for the last bits of [DeformConv2d], where
// those of a product of matrices depend on where they are in memory. Boxes that make no sense are no crash: NaN overlaps
// with nothing, and its region is zeros.
package ops
