package functional

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// PadMode is what [Pad] puts around a tensor.
type PadMode string

// PyTorch's modes. PadConstant and PadZeros are the same where no value is given.
const (
	PadConstant  PadMode = "constant"
	PadZeros     PadMode = "zeros"
	PadReflect   PadMode = "reflect"
	PadReplicate PadMode = "replicate"
	PadCircular  PadMode = "circular"
)

// Valid reports whether m is one of PyTorch's modes, or "" for the default.
func (m PadMode) Valid() bool {
	return slices.Contains([]PadMode{"", PadConstant, PadZeros, PadReflect, PadReplicate, PadCircular}, m)
}

// PadOptions are the arguments of [Pad] that have defaults.
type PadOptions struct {
	Mode  PadMode        // default: PadConstant
	Value gotorch.Scalar // of PadConstant; default: 0
}

// Pad makes a tensor larger at the ends of its last dimensions: pad has how many elements go before
// and after the last one, then before and after the one before it, and so on. It panics with a
// RuntimeError if a Value is given that the mode has no use for.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pad.html.
func Pad(input gotorch.Tensor, pad []int64, opts ...PadOptions) gotorch.Tensor {
	opt := args.Option(opts)
	if opt.Mode == "" || opt.Mode == PadZeros {
		opt.Mode = PadConstant
	}
	return gotorch.Pad(input, pad, gotorch.PadOptions{Mode: string(opt.Mode),
		Value: args.FloatPointer("functional.Pad", "Value", opt.Value)})
}
