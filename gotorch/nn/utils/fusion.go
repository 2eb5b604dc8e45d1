package utils

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/internal/fields"
)

// FuseConvBNOptions are the arguments of [FuseConvBNEval] and [FuseConvBNWeights] that have defaults.
type FuseConvBNOptions struct {
	Transpose bool // the convolution is a transposed one
}

// FuseConvBNEval returns a copy of a convolution that does what conv followed by bn does, both in evaluation mode:
// conv is one of nn's convolutions, with Transpose a transposed one, and bn one of its batch normalisations with
// running statistics. It panics with a ValueError for modules of other kinds or in training mode.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_conv_bn_eval.html.
func FuseConvBNEval[C nn.Modular](conv C, bn nn.Modular, opts ...FuseConvBNOptions) C {
	const op = "utils.FuseConvBNEval"
	norm := running(op, conv, bn)
	if _, ok := nn.Internals(conv).Convolution(); !ok {
		panic(args.ValueError(op, "%T is no convolution", conv))
	}
	fused := nn.Clone(conv)
	own, _ := nn.Internals(fused).Convolution()
	w, b := FuseConvBNWeights(*own.Weight, *own.Bias, norm.RunningMean, norm.RunningVar, norm.Eps, norm.Weight, norm.Bias, opts...)
	put(fused, own.Weight, w)
	put(fused, own.Bias, b)
	return fused
}

// running returns what bn is, or panics with a ValueError where it cannot be fused with m.
func running(op string, m, bn nn.Modular) fields.BatchNorm {
	norm, ok := nn.Internals(bn).BatchNorm()
	switch {
	case !ok:
		panic(args.ValueError(op, "%T is no batch normalisation", bn))
	case m.Training() || bn.Training():
		panic(args.ValueError(op, "Fusion only for eval!"))
	case norm.RunningMean.T == nil || norm.RunningVar.T == nil:
		panic(args.ValueError(op, "bn.running_mean and bn.running_var must not be None"))
	}
	for _, m := range []nn.Modular{m, bn} {
		if parts := nn.Internals(m).Parts(false); parts != nil && len(parts.Computed) > 0 {
			panic(args.ValueError(op, "%s of %v is computed of other tensors: remove the parametrization, norm or pruning first", parts.Computed[0].Name, m))
		}
	}
	return norm
}

// put makes t the parameter of m that is at place.
func put(m nn.Modular, place *gotorch.Tensor, t gotorch.Tensor) {
	*place = t
	nn.Internals(m).Made(t)
}

// FuseConvBNWeights returns the weight and the bias of a convolution that does what one with convW and convB
// followed by a batch normalisation does: bnRM and bnRV are its running mean and variance, bnW and bnB its weight and bias.
// The zero Tensor for a bias or bnW is Python's None. The results are parameters, of the dtypes of convW and convB,
// which require gradients where those do.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_conv_bn_weights.html.
func FuseConvBNWeights(convW, convB, bnRM, bnRV gotorch.Tensor, bnEps float64, bnW, bnB gotorch.Tensor, opts ...FuseConvBNOptions) (weight, bias gotorch.Tensor) {
	shape := make([]int64, convW.Dim())
	for i := range shape {
		shape[i] = 1
	}
	at := 0
	if args.Option(opts).Transpose {
		at = 1
	}
	if at >= len(shape) {
		panic(args.ValueError("utils.FuseConvBNWeights", "the weight of a convolution has more than %d dimensions", len(shape)))
	}
	shape[at] = -1
	return fused(convW, convB, func(b gotorch.Tensor) (gotorch.Tensor, gotorch.Tensor) {
		w, nb := bnW, bnB
		if w.T == nil {
			w = gotorch.OnesLike(bnRM)
		}
		if nb.T == nil {
			nb = gotorch.ZerosLike(bnRM)
		}
		if b.T == nil {
			b = gotorch.ZerosLike(bnRM)
		}
		rsqrt := bnRV.AddScalar(bnEps).Rsqrt()
		return convW.Mul(w.Mul(rsqrt).Reshape(shape)), b.Sub(bnRM).Mul(rsqrt).Mul(w).Add(nb)
	})
}

// fused returns what compute makes of a bias, or of none, as parameters.
func fused(w, b gotorch.Tensor, compute func(b gotorch.Tensor) (gotorch.Tensor, gotorch.Tensor)) (weight, bias gotorch.Tensor) {
	dtype, requires := w.DType(), false
	if b.T != nil {
		dtype, requires = b.DType(), b.RequiresGrad()
	}
	pair := gotorch.Scope(func(*gotorch.ScopeHandle) (pair [2]gotorch.Tensor) {
		gotorch.NoGrad(func() {
			fusedW, fusedB := compute(b)
			pair = [2]gotorch.Tensor{fusedW.To(w.DType()), fusedB.To(dtype)}
		})
		return pair
	})
	pair[0].RequiresGrad_(w.RequiresGrad())
	pair[1].RequiresGrad_(requires)
	return pair[0], pair[1]
}

// FuseLinearBNEval returns a copy of a linear layer that does what linear followed by bn does, both in evaluation
// mode. bn has as many features as linear has outputs, or one. It panics with a ValueError otherwise, and as
// [FuseConvBNEval] does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_linear_bn_eval.html.
func FuseLinearBNEval(linear *nn.LinearModule, bn nn.Modular) *nn.LinearModule {
	const op = "utils.FuseLinearBNEval"
	norm := running(op, linear, bn)
	if norm.NumFeatures != linear.OutFeatures && norm.NumFeatures != 1 {
		panic(args.ValueError(op, "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got linear.out_features=%d and bn.num_features=%d",
			linear.OutFeatures, norm.NumFeatures))
	}
	if norm.Weight.T == nil || norm.Bias.T == nil {
		panic(args.ValueError(op, "bn.weight and bn.bias must not be None"))
	}
	fused := nn.Clone(linear)
	w, b := FuseLinearBNWeights(fused.Weight, fused.Bias, norm.RunningMean, norm.RunningVar, norm.Eps, norm.Weight, norm.Bias)
	put(fused, &fused.Weight, w)
	put(fused, &fused.Bias, b)
	return fused
}

// FuseLinearBNWeights is [FuseConvBNWeights] for a linear layer. bnW and bnB must be given.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_linear_bn_weights.html.
func FuseLinearBNWeights(linearW, linearB, bnRM, bnRV gotorch.Tensor, bnEps float64, bnW, bnB gotorch.Tensor) (weight, bias gotorch.Tensor) {
	return fused(linearW, linearB, func(b gotorch.Tensor) (gotorch.Tensor, gotorch.Tensor) {
		if b.T == nil {
			b = gotorch.ZerosLike(bnRM)
		}
		scale := bnW.Mul(bnRV.AddScalar(bnEps).Rsqrt())
		return linearW.Mul(scale.Unsqueeze(-1).To(linearW.DType())), b.Sub(bnRM).Mul(scale).Add(bnB)
	})
}
