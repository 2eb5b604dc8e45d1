package functional

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Softmin is [Softmax] of −input: positive numbers that sum to 1 along dim, the largest where input is
// least; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmin.html.
func Softmin(input gotorch.Tensor, dim int64, opts ...SoftmaxOptions) gotorch.Tensor {
	return Softmax(input.Neg(), dim, opts...)
}

// Softsign returns x/(1 + |x|) for each element; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softsign.html.
func Softsign(input gotorch.Tensor) gotorch.Tensor {
	return input.Div(input.Abs().AddScalar(1))
}

// Tanhshrink returns x − tanh(x) for each element; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.tanhshrink.html.
func Tanhshrink(input gotorch.Tensor) gotorch.Tensor {
	return input.Sub(input.Tanh())
}

// GumbelSoftmaxOptions are the arguments of [GumbelSoftmax] that have defaults.
type GumbelSoftmaxOptions struct {
	Tau  gotorch.Scalar // the temperature; default: 1
	Hard bool           // the result is one-hot, and has the gradient of the soft one
	Dim  gotorch.Scalar // default: -1
}

// GumbelSoftmax draws from the distribution whose logarithms, up to a constant, logits are along Dim: it
// returns positive numbers that sum to 1 there, nearer to one-hot the lower Tau; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gumbel_softmax.html.
func GumbelSoftmax(logits gotorch.Tensor, opts ...GumbelSoftmaxOptions) gotorch.Tensor {
	const op = "functional.GumbelSoftmax"
	opt := args.Option(opts)
	tau, dim := args.Float(op, "Tau", opt.Tau, 1), args.Int(op, "Dim", opt.Dim, -1)
	noise := gotorch.EmptyLike(logits, gotorch.TensorOptions{MemoryFormat: gotorch.ContiguousFormat}).Exponential_().Log().Neg()
	soft := logits.Add(noise).DivScalar(tau).Softmax(dim)
	if !opt.Hard {
		return soft
	}
	_, index := soft.MaxDim(dim, gotorch.MaxDimOptions{KeepDim: true})
	hard := gotorch.ZerosLike(logits, gotorch.TensorOptions{MemoryFormat: gotorch.ContiguousFormat}).ScatterValue_(dim, index, 1.0)
	return hard.Sub(soft.Detach()).Add(soft)
}
