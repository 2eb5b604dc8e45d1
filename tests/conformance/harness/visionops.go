package main

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/models/detection"
	"gotorch.dev/gotorch/vision/ops"
)

// visionOps are the functions of package vision/ops, by torchvision's names.
var visionOps = map[string]any{
	"nms": ops.NMS, "batched_nms": ops.BatchedNMS, "remove_small_boxes": ops.RemoveSmallBoxes, "clip_boxes_to_image": ops.ClipBoxesToImage,
	"box_convert": ops.BoxConvert, "box_area": ops.BoxArea, "box_iou": ops.BoxIoU, "generalized_box_iou": ops.GeneralizedBoxIoU,
	"distance_box_iou": ops.DistanceBoxIoU, "complete_box_iou": ops.CompleteBoxIoU, "masks_to_boxes": ops.MasksToBoxes,
	"roi_align": ops.RoIAlign, "roi_pool": ops.RoIPool, "ps_roi_align": ops.PSRoIAlign, "ps_roi_pool": ops.PSRoIPool, "rois": ops.RoIs,
	"deform_conv2d": ops.DeformConv2d, "sigmoid_focal_loss": ops.SigmoidFocalLoss, "generalized_box_iou_loss": ops.GeneralizedBoxIoULoss,
	"distance_box_iou_loss": ops.DistanceBoxIoULoss, "complete_box_iou_loss": ops.CompleteBoxIoULoss,
	"stochastic_depth": ops.StochasticDepth, "drop_block2d": ops.DropBlock2d, "drop_block3d": ops.DropBlock3d,
}

// visionModules are the constructors of package vision/ops, by torchvision's names of classes.
var visionModules = map[string]any{
	"ops.RoIAlign": ops.NewRoIAlign, "ops.RoIPool": ops.NewRoIPool, "ops.PSRoIAlign": ops.NewPSRoIAlign, "ops.PSRoIPool": ops.NewPSRoIPool,
	"ops.DeformConv2d": ops.NewDeformConv2d, "ops.StochasticDepth": ops.NewStochasticDepth, "ops.DropBlock2d": ops.NewDropBlock2d,
	"ops.DropBlock3d": ops.NewDropBlock3d, "ops.FrozenBatchNorm2d": ops.NewFrozenBatchNorm2d, "ops.SqueezeExcitation": ops.NewSqueezeExcitation,
	"ops.Conv2dNormActivation": ops.NewConv2dNormActivation, "ops.Conv3dNormActivation": ops.NewConv3dNormActivation, "ops.MLP": ops.NewMLP,
	"ops.Permute": ops.NewPermute,
	"ops.MultiScaleRoIAlign": func(names []string, size []int64, ratio int64, opts ...ops.MultiScaleRoIAlignOptions) poolOfLevels {
		return poolOfLevels{ops.NewMultiScaleRoIAlign(names, size, ratio, opts...)}
	},
	"ops.FeaturePyramidNetwork": func(in []int64, out int64, extra string) pyramid {
		var opt ops.FeaturePyramidNetworkOptions
		switch extra {
		case "pool":
			opt.ExtraBlocks = ops.NewLastLevelMaxPool()
		case "p6p7":
			opt.ExtraBlocks = ops.NewLastLevelP6P7(in[len(in)-1], out)
		case "norm":
			opt.NormLayer = func(n int64) nn.Layer { return nn.BatchNorm2d(n) }
		}
		return pyramid{ops.NewFeaturePyramidNetwork(in, out, opt)}
	},

	"fasterrcnn_resnet50_fpn":               detecting(detection.FasterRCNNResNet50FPN),
	"fasterrcnn_resnet50_fpn_v2":            detecting(detection.FasterRCNNResNet50FPNV2),
	"fasterrcnn_mobilenet_v3_large_fpn":     detecting(detection.FasterRCNNMobileNetV3LargeFPN),
	"fasterrcnn_mobilenet_v3_large_320_fpn": detecting(detection.FasterRCNNMobileNetV3Large320FPN),
}

func init() {
	for name, function := range visionOps {
		others[name] = function
	}
	for name, make := range visionModules {
		constructors[name] = make
	}
}

func features(names []string, maps []gotorch.Tensor) (list ops.FeatureMaps) {
	for i, name := range names {
		list = append(list, ops.FeatureMap{Name: name, Tensor: maps[i]})
	}
	return list
}

type poolOfLevels struct{ *ops.MultiScaleRoIAlign }

// Pool is Forward with what Python can write.
func (m poolOfLevels) Pool(names []string, maps, boxes []gotorch.Tensor, sizes [][2]int64) gotorch.Tensor {
	return m.Forward(features(names, maps), boxes, sizes)
}

type pyramid struct{ *ops.FeaturePyramidNetwork }

// Maps is Forward with what Python can write.
func (m pyramid) Maps(names []string, maps []gotorch.Tensor) ([]string, []gotorch.Tensor) {
	var found []string
	result := m.Forward(features(names, maps))
	for _, r := range result {
		found = append(found, r.Name)
	}
	return found, result.Tensors()
}

type detector struct{ *detection.FasterRCNN }

func (m detector) plain() nn.Modular { return m.FasterRCNN }

func detecting(make func(opts ...detection.FasterRCNNOptions) *detection.FasterRCNN) any {
	return func(opts ...detection.FasterRCNNOptions) detector { return detector{make(opts...)} }
}

// Found returns the boxes, labels and scores of each image.
func (m detector) Found(images []gotorch.Tensor) (list []gotorch.Tensor) {
	_, found := m.Forward(images, nil)
	for _, f := range found {
		list = append(list, f.Boxes, f.Labels, f.Scores)
	}
	return list
}

// Losses returns the losses by torchvision's names.
func (m detector) Losses(images, boxes, labels []gotorch.Tensor) []gotorch.Tensor {
	var targets []detection.Target
	for i := range boxes {
		targets = append(targets, detection.Target{Boxes: boxes[i], Labels: labels[i]})
	}
	l, _ := m.Forward(images, targets)
	return []gotorch.Tensor{l["loss_objectness"], l["loss_rpn_box_reg"], l["loss_classifier"], l["loss_box_reg"]}
}
