package models_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/models"
)

func TestBadOptionsAreTypedErrors(t *testing.T) {
	small := models.InvertedResidualConfig{InputChannels: 8, Kernel: 3, ExpandedChannels: 8, OutChannels: 8, Stride: 1, Dilation: 1}
	steep := small
	steep.Stride = 3
	for part, c := range map[string]struct {
		kind error
		fn   func()
	}{
		"NumClasses must not be negative": {gotorch.ValueError, func() { models.ResNet18(models.ResNetOptions{NumClasses: -1}) }},
		"NumClasses must be an integer":   {gotorch.TypeError, func() { models.ViTB32(models.VisionTransformerOptions{NumClasses: "10"}) }},
		"four layers":                     {gotorch.ValueError, func() { models.NewResNet(models.BasicBlocks, []int64{1}) }},
		"should be nil or have 3": {gotorch.ValueError, func() {
			models.ResNet50(models.ResNetOptions{ReplaceStrideWithDilation: []bool{true}})
		}},
		"Dilation > 1": {gotorch.NotImplementedError, func() {
			models.ResNet18(models.ResNetOptions{ReplaceStrideWithDilation: []bool{true, false, false}})
		}},
		"only supports groups=1":        {gotorch.ValueError, func() { models.ResNet18(models.ResNetOptions{Groups: 2}) }},
		"use NewResNet":                 {gotorch.ValueError, func() { models.ResNeXt50_32x4d(models.ResNetOptions{Groups: 2}) }},
		"should not be empty":           {gotorch.ValueError, func() { models.NewMobileNetV3(nil, 10) }},
		"a stride of 1 or 2, got {":     {gotorch.ValueError, func() { models.NewMobileNetV3([]models.InvertedResidualConfig{steep}, 10) }},
		"WidthMult must be a positive":  {gotorch.ValueError, func() { models.NewMobileNetV2(models.MobileNetV2Options{WidthMult: 0}) }},
		"indivisible by patch size":     {gotorch.ValueError, func() { models.ViTB32(models.VisionTransformerOptions{ImageSize: 33}) }},
		"between 0 and 1":               {gotorch.ValueError, func() { models.ConvNeXtTiny(models.ConvNeXtOptions{StochasticDepthProb: 2}) }},
		"must be positive, got 0 and 1": {gotorch.ValueError, func() { models.NewUNet(0, 1) }},
		"NDF and NC must be positive":   {gotorch.ValueError, func() { models.NewDCGANGenerator(models.DCGANOptions{NZ: 0}) }},
		"features is nil":               {gotorch.TypeError, func() { models.NewVGG(nil) }},
		"the model is nil":              {gotorch.TypeError, func() { models.Features(nil, "layer1") }},
	} {
		err := gotorch.Try0(c.fn)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", part, err)
		}
	}
}

func TestImagesOfAWrongShapeAreTypedErrors(t *testing.T) {
	vit := models.ViTB32(models.VisionTransformerOptions{ImageSize: 64, NumClasses: 2})
	unet := models.NewUNet(3, 1)
	for _, layer := range []nn.Layer{vit, unet} {
		for _, shape := range [][]int64{{1, 3, 8, 8}, {3, 64, 64}, {1, 2, 64, 64}, {}} {
			_, err := gotorch.Try(func() gotorch.Tensor { return layer.Forward(gotorch.Zeros(shape)) })
			var typed *gotorch.Error
			if !errors.As(err, &typed) {
				t.Errorf("%T of %v: %v", layer, shape, err)
			}
		}
	}
}

// What a hook keeps is not freed by the blocks around it.
func TestWhatAHookKeepsStays(t *testing.T) {
	model := models.NewMobileNetV2(models.MobileNetV2Options{NumClasses: 2, WidthMult: 0.25})
	model.Eval()
	x := gotorch.Randn([]int64{1, 3, 32, 32})
	var names []string
	for name, m := range model.NamedModules() {
		if _, ok := m.(nn.Layer); ok && name != "" {
			names = append(names, name)
		}
	}
	for _, name := range []string{names[0], names[1], names[2], names[len(names)/2], names[len(names)-1], "features.3.conv.1"} {
		var kept gotorch.Tensor
		hook := model.GetSubmodule(name).(interface {
			RegisterForwardHook(fn nn.ForwardHook) *nn.HookHandle
		}).RegisterForwardHook(func(_ nn.Modular, _, outputs []gotorch.Tensor) []gotorch.Tensor {
			kept = outputs[0]
			return nil
		})
		gotorch.NoGrad(func() { model.Forward(x) })
		hook.Remove()
		if err := gotorch.Try0(func() { kept.Sum() }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFeaturesLeaveNoHooksBehindAPanic(t *testing.T) {
	model := models.ResNet18(models.ResNetOptions{NumClasses: 2})
	f := models.Features(model, "layer1", "layer2")
	if err := gotorch.Try0(func() { f.Forward(gotorch.Zeros([]int64{1, 4, 32, 32})) }); err == nil {
		t.Fatal("images of four channels have features")
	}
	if got := f.Forward(gotorch.Zeros([]int64{1, 3, 32, 32}))[1].Shape(); !slices.Equal(got, []int64{1, 128, 4, 4}) {
		t.Errorf("shape %v", got)
	}
	for name, m := range model.NamedModules() {
		if layer, ok := m.(nn.Layer); ok && name != "" && !nn.Forgets(layer) {
			t.Errorf("%s does not forget", name)
		}
	}
	for _, names := range [][]string{nil, {"layer1", "layer1"}, {"layer7"}} {
		if err := gotorch.Try0(func() { models.Features(model, names...) }); err == nil {
			t.Errorf("features of %q", names)
		}
	}
}

func TestSummaryAndCloneOfAModel(t *testing.T) {
	model := models.MobileNetV3Small(models.MobileNetV3Options{NumClasses: 5})
	model.Eval()
	x := gotorch.Randn([]int64{1, 3, 32, 32})
	if !nn.Clone(model).Forward(x).Equal(model.Forward(x)) {
		t.Error("a clone computes something else")
	}
	if s := nn.Summary(model, []any{x}).String(); !strings.Contains(s, "InvertedResidual") {
		t.Error(s)
	}
}

// A panic in a hook goes on to the caller, and what was set for the call is as before.
func TestAPanicInAHookOfAModelGoesOn(t *testing.T) {
	model := models.NewUNet(1, 1)
	model.Eval()
	x := gotorch.Zeros([]int64{1, 1, 16, 16})
	hook := model.Down1.RegisterForwardHook(func(nn.Modular, []gotorch.Tensor, []gotorch.Tensor) []gotorch.Tensor { panic("mine") })
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				t.Errorf("panic %v", p)
			}
		}()
		models.Features(model, "inc", "outc").Forward(x)
	}()
	hook.Remove()
	if got := model.Forward(x).Shape(); !slices.Equal(got, []int64{1, 1, 16, 16}) || !gotorch.GradEnabled() {
		t.Errorf("shape %v", got)
	}
}
