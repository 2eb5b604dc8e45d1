package main

import (
	"fmt"
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/models"
)

// What package vision/models has besides what every module has.
const (
	specialSave = -110 - iota
	specialLoadFile
	specialFeatures
)

// architectures are the functions of package vision/models, by torchvision's names.
var architectures = map[string]any{
	"resnet18": models.ResNet18, "resnet34": models.ResNet34, "resnet50": models.ResNet50, "resnet101": models.ResNet101,
	"resnet152": models.ResNet152, "resnext50_32x4d": models.ResNeXt50_32x4d, "resnext101_32x8d": models.ResNeXt101_32x8d,
	"resnext101_64x4d": models.ResNeXt101_64x4d, "wide_resnet50_2": models.WideResNet50_2, "wide_resnet101_2": models.WideResNet101_2,
	"mobilenet_v2": models.NewMobileNetV2, "mobilenet_v3_small": models.MobileNetV3Small, "mobilenet_v3_large": models.MobileNetV3Large,
	"vgg11": models.VGG11, "vgg11_bn": models.VGG11BN, "vgg13": models.VGG13, "vgg13_bn": models.VGG13BN,
	"vgg16": models.VGG16, "vgg16_bn": models.VGG16BN, "vgg19": models.VGG19, "vgg19_bn": models.VGG19BN,
	"convnext_tiny": models.ConvNeXtTiny, "convnext_small": models.ConvNeXtSmall, "convnext_base": models.ConvNeXtBase,
	"convnext_large": models.ConvNeXtLarge,
	"vit_b_16":       models.ViTB16, "vit_b_32": models.ViTB32, "vit_l_16": models.ViTL16, "vit_l_32": models.ViTL32, "vit_h_14": models.ViTH14,

	"efficientnet_b0": models.EfficientNetB0, "efficientnet_b1": models.EfficientNetB1, "efficientnet_b2": models.EfficientNetB2,
	"efficientnet_b3": models.EfficientNetB3, "efficientnet_b4": models.EfficientNetB4, "efficientnet_b5": models.EfficientNetB5,
	"efficientnet_b6": models.EfficientNetB6, "efficientnet_b7": models.EfficientNetB7,

	"alexnet": models.NewAlexNet, "squeezenet1_0": models.SqueezeNet1_0, "squeezenet1_1": models.SqueezeNet1_1,

	"unet": models.NewUNet, "dcgan_generator": models.NewDCGANGenerator, "dcgan_discriminator": models.NewDCGANDiscriminator,

	// With norms of groups, which are functions.
	"resnet18 of groups": func(opts ...models.ResNetOptions) *models.ResNet {
		opts = append(opts, models.ResNetOptions{})
		opts[0].NormLayer = groupNorm
		return models.ResNet18(opts[0])
	},
	"mobilenet_v2 of groups": func(opts ...models.MobileNetV2Options) *models.MobileNetV2 {
		opts = append(opts, models.MobileNetV2Options{})
		opts[0].NormLayer = groupNorm
		return models.NewMobileNetV2(opts[0])
	},
}

func groupNorm(channels int64) nn.Layer { return nn.GroupNorm(4, channels) }

func init() {
	for name, make := range architectures {
		constructors[name] = make
	}
}

func runVisionModels(index int64, in *reader) []reflect.Value {
	object := kept[in.next()]
	if wrapped, ok := object.(interface{ plain() nn.Modular }); ok {
		object = wrapped.plain()
	}
	model := object.(nn.Modular)
	fails := func(err error) []reflect.Value {
		if err != nil {
			return []reflect.Value{reflect.ValueOf(err.Error())}
		}
		return nil
	}
	switch index {
	case specialSave:
		return fails(nn.Save(model, in.text()))
	case specialLoadFile:
		return fails(nn.Load(model, in.text()))
	case specialFeatures:
		names := in.value(reflect.TypeFor[[]string]()).Interface().([]string)
		x := in.value(typeTensor).Interface().(gotorch.Tensor)
		return []reflect.Value{reflect.ValueOf(models.Features(model.(nn.Layer), names...).Forward(x))}
	}
	panic(broken(fmt.Sprintf("there is no function %d", index)))
}
