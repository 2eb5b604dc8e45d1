package utils

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// ConvertConv2dWeightMemoryFormat gives the weights of all convolutions in two directions within m, also transposed
// ones, another memory format, and returns m. The weights stay the same tensors.
//
//	utils.ConvertConv2dWeightMemoryFormat(model, gotorch.ChannelsLast)
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.convert_conv2d_weight_memory_format.html.
func ConvertConv2dWeightMemoryFormat[M nn.Modular](m M, memoryFormat gotorch.MemoryFormat) M {
	return convert(m, 2, memoryFormat)
}

// ConvertConv3dWeightMemoryFormat is [ConvertConv2dWeightMemoryFormat] for convolutions in three directions, and
// gotorch.ChannelsLast3d.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.convert_conv3d_weight_memory_format.html.
func ConvertConv3dWeightMemoryFormat[M nn.Modular](m M, memoryFormat gotorch.MemoryFormat) M {
	return convert(m, 3, memoryFormat)
}

func convert[M nn.Modular](m M, directions int, format gotorch.MemoryFormat) M {
	for _, within := range m.NamedModules() {
		conv, ok := nn.Internals(within).Convolution()
		if !ok || conv.Directions != directions {
			continue
		}
		if parts := nn.Internals(within).Parts(false); parts != nil && parts.FindComputed("weight") != nil {
			continue // the next call computes it anew
		}
		gotorch.NoGrad(func() {
			gotorch.Unscoped(func() {
				copied := conv.Weight.Detach().Clone(gotorch.CloneOptions{MemoryFormat: format})
				conv.Weight.SetData(copied)
				copied.Close()
			})
		})
	}
	return m
}

// SkipInitOptions are the arguments of [SkipInit] that have defaults.
type SkipInitOptions struct {
	Device gotorch.Device // where the module is in the end; default: the CPU
}

// SkipInit makes a module without the time that its initial values take: the elements of its tensors are whatever
// the memory has. construct makes it, and passes on the device that it gets, as PyTorch's modules take it:
//
//	layer := utils.SkipInit(func(device gotorch.Device) *nn.LinearModule {
//		return nn.Linear(4096, 4096, nn.LinearOptions{Device: device})
//	})
//
// It panics with a ValueError if the module has a parameter or buffer that construct did not put on the device that it got.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.skip_init.html.
func SkipInit[M nn.Modular](construct func(device gotorch.Device) M, opts ...SkipInitOptions) M {
	opt := args.Option(opts)
	var zero gotorch.Device
	if opt.Device == zero {
		opt.Device = gotorch.CPU
	}
	m := construct(gotorch.Meta)
	for _, tensors := range []func(func(string, gotorch.Tensor) bool){m.NamedParameters(), m.NamedBuffers()} {
		for name, t := range tensors {
			if t.Device() != gotorch.Meta {
				panic(args.ValueError("utils.SkipInit", "%q of %T is on the device %v: its constructor must pass on the device that it gets", name, m, t.Device()))
			}
		}
	}
	m.ToEmpty(opt.Device)
	return m
}
