package main

import (
	"fmt"
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/vision/transforms"
	VF "gotorch.dev/gotorch/vision/transforms/functional"
)

// The functions of torchvision.transforms.v2.functional, by its names.
var imageFunctions = map[string]any{
	"rgb_to_grayscale": VF.RGBToGrayscale, "grayscale_to_rgb": VF.GrayscaleToRGB, "adjust_brightness": VF.AdjustBrightness,
	"adjust_contrast": VF.AdjustContrast, "adjust_saturation": VF.AdjustSaturation, "adjust_hue": VF.AdjustHue,
	"adjust_gamma": VF.AdjustGamma, "adjust_sharpness": VF.AdjustSharpness, "posterize": VF.Posterize, "solarize": VF.Solarize,
	"autocontrast": VF.AutoContrast, "equalize": VF.Equalize, "invert": VF.Invert, "permute_channels": VF.PermuteChannels,
	"normalize": VF.Normalize, "gaussian_blur": VF.GaussianBlur[[]int64], "gaussian_noise": VF.GaussianNoise, "to_dtype": VF.ToDtype,
	"erase": VF.Erase, "uniform_temporal_subsample": VF.UniformTemporalSubsample,
	"horizontal_flip": VF.HorizontalFlip, "vertical_flip": VF.VerticalFlip, "resize": VF.Resize[[]int64], "affine": VF.Affine,
	"rotate": VF.Rotate, "pad": VF.Pad, "crop": VF.Crop, "center_crop": VF.CenterCrop[[]int64], "resized_crop": VF.ResizedCrop[[]int64],
	"perspective": VF.Perspective, "elastic": VF.Elastic, "five_crop": VF.FiveCrop[[]int64], "ten_crop": VF.TenCrop[[]int64],
}

// The classes of torchvision.transforms.v2, by its names.
var imageTransforms = map[string]any{
	"AugMix": transforms.AugMix, "AutoAugment": transforms.AutoAugment, "CenterCrop": transforms.CenterCrop[[]int64],
	"ClampBoundingBoxes": transforms.ClampBoundingBoxes, "ClampKeyPoints": transforms.ClampKeyPoints, "ColorJitter": transforms.ColorJitter,
	"ConvertBoundingBoxFormat": transforms.ConvertBoundingBoxFormat, "CutMix": transforms.CutMix, "ElasticTransform": transforms.ElasticTransform,
	"FiveCrop": transforms.FiveCrop[[]int64], "GaussianBlur": transforms.GaussianBlur[[]int64], "GaussianNoise": transforms.GaussianNoise,
	"Grayscale": transforms.Grayscale, "Identity": transforms.Identity, "LinearTransformation": transforms.LinearTransformation,
	"MixUp": transforms.MixUp, "Normalize": transforms.Normalize, "Pad": transforms.Pad, "RGB": transforms.RGB,
	"RandAugment": transforms.RandAugment, "RandomAdjustSharpness": transforms.RandomAdjustSharpness,
	"RandomAffine": transforms.RandomAffine[[]float64], "RandomAutocontrast": transforms.RandomAutoContrast,
	"RandomChannelPermutation": transforms.RandomChannelPermutation, "RandomCrop": transforms.RandomCrop[[]int64],
	"RandomEqualize": transforms.RandomEqualize, "RandomErasing": transforms.RandomErasing, "RandomGrayscale": transforms.RandomGrayscale,
	"RandomHorizontalFlip": transforms.RandomHorizontalFlip, "RandomInvert": transforms.RandomInvert, "RandomIoUCrop": transforms.RandomIoUCrop,
	"RandomPerspective": transforms.RandomPerspective, "RandomPhotometricDistort": transforms.RandomPhotometricDistort,
	"RandomPosterize": transforms.RandomPosterize, "RandomResize": transforms.RandomResize,
	"RandomResizedCrop": transforms.RandomResizedCrop[[]int64], "RandomRotation": transforms.RandomRotation[[]float64],
	"RandomShortestSize": transforms.RandomShortestSize, "RandomSolarize": transforms.RandomSolarize,
	"RandomVerticalFlip": transforms.RandomVerticalFlip, "RandomZoomOut": transforms.RandomZoomOut, "Resize": transforms.Resize[[]int64],
	"SanitizeBoundingBoxes": transforms.SanitizeBoundingBoxes, "SanitizeKeyPoints": transforms.SanitizeKeyPoints,
	"ScaleJitter": transforms.ScaleJitter, "SetClampingMode": transforms.SetClampingMode, "TenCrop": transforms.TenCrop[[]int64],
	"ToDtype": transforms.ToDtype, "TrivialAugmentWide": transforms.TrivialAugmentWide,
	"UniformTemporalSubsample": transforms.UniformTemporalSubsample,
}

const (
	specialImageFunction = -130 - iota
	specialImageTransform
)

func runVisionTransforms(index int64, in *reader) []reflect.Value {
	switch index {
	case specialImageFunction:
		name := in.text()
		function, ok := imageFunctions[name]
		if !ok {
			panic(broken("there is no function " + name))
		}
		return in.invoke(reflect.ValueOf(function))
	case specialImageTransform:
		t := in.transform()
		tensor := func() gotorch.Tensor { return in.value(typeTensor).Interface().(gotorch.Tensor) }
		canvas := func() [2]int64 { return [2]int64{in.next(), in.next()} }
		s := transforms.Sample{Image: tensor(), Mask: tensor(), Labels: tensor()}
		s.Boxes = VF.BoundingBoxes{Tensor: tensor(), Format: VF.BoxFormat(in.text()), ClampingMode: VF.ClampingMode(in.text()), CanvasSize: canvas()}
		s.KeyPoints = VF.KeyPoints{Tensor: tensor(), CanvasSize: canvas()}
		s = t.Apply(s, nil)
		sizes := []int64{s.Boxes.CanvasSize[0], s.Boxes.CanvasSize[1], s.KeyPoints.CanvasSize[0], s.KeyPoints.CanvasSize[1]}
		return []reflect.Value{reflect.ValueOf(s.Image), reflect.ValueOf(s.Mask), reflect.ValueOf(s.Labels), reflect.ValueOf(s.Boxes.Tensor),
			reflect.ValueOf(s.KeyPoints.Tensor), reflect.ValueOf(sizes), reflect.ValueOf(string(s.Boxes.Format)), reflect.ValueOf(t.String())}
	}
	panic(broken(fmt.Sprintf("there is no function %d", index)))
}

// transform reads one, with those that it is made of.
func (r *reader) transform() transforms.Transform {
	name := r.text()
	var list []transforms.Transform
	for range r.next() {
		list = append(list, r.transform())
	}
	var function any
	switch name {
	case "Compose":
		function = func() transforms.Transform { return transforms.Compose(list...) }
	case "RandomOrder":
		function = func() transforms.Transform { return transforms.RandomOrder(list...) }
	case "RandomApply":
		function = func(o ...transforms.RandomApplyOptions) transforms.Transform {
			return transforms.RandomApply(list, o...)
		}
	case "RandomChoice":
		function = func(o ...transforms.RandomChoiceOptions) transforms.Transform {
			return transforms.RandomChoice(list, o...)
		}
	default:
		if function = imageTransforms[name]; function == nil {
			panic(broken("there is no transform " + name))
		}
	}
	return r.invoke(reflect.ValueOf(function))[0].Interface().(transforms.Transform)
}
