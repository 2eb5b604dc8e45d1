package nn

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

const syncBatchNorm = "nn.SyncBatchNorm"

// ReduceWith has m go by the batches of several ranks: sum adds a tensor up over them, in place. It is what the process_group is in
// Python; distributed.DataParallel calls it. restore has m go by what it went by before.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html.
func (m *SyncBatchNormModule) ReduceWith(sum func(t gotorch.Tensor)) (restore func()) {
	before := m.sum
	m.sum = sum
	return func() { m.sum = before }
}

// together normalises x by the mean and variance of the batches of all ranks, as F.BatchNorm does by those of x.
func (m *BatchNormNd) together(x gotorch.Tensor, opt F.BatchNormOptions) gotorch.Tensor {
	inputs := []gotorch.Tensor{x}
	for _, t := range []gotorch.Tensor{opt.Weight, opt.Bias} {
		if t.T != nil {
			inputs = append(inputs, t)
		}
	}
	return gotorch.Apply(&syncedBatchNorm{sum: m.sum, opt: opt}, inputs...)[0]
}

// syncedBatchNorm is batch normalisation over several ranks: sum adds a tensor up over them, in place.
type syncedBatchNorm struct {
	sum func(gotorch.Tensor)
	opt F.BatchNormOptions
	n   float64 // samples of all ranks, in a channel
}

// channels are all dimensions but that of the channels.
func overChannels(x gotorch.Tensor) (dims []int64) {
	for d := range x.Dim() {
		if d != 1 {
			dims = append(dims, d)
		}
	}
	return dims
}

// broad returns a number for each channel as x is shaped.
func broad(t, x gotorch.Tensor) gotorch.Tensor {
	shape := make([]int64, x.Dim())
	for d := range shape {
		shape[d] = 1
	}
	shape[1] = -1
	return t.View(shape)
}

// precise is the dtype in which sums of x are computed.
func precise(x gotorch.Tensor) gotorch.DType {
	if x.DType() == gotorch.Float64 {
		return gotorch.Float64
	}
	return gotorch.Float32
}

func (f *syncedBatchNorm) Forward(ctx *gotorch.FunctionContext, inputs []gotorch.Tensor) []gotorch.Tensor {
	x, c := inputs[0], inputs[0].Size(1)
	dims, wide := overChannels(x), x.To(precise(x))
	// The mean first, and the variance around it: a sum of squares would lose what it has of digits where the mean is large.
	sums := gotorch.Cat([]gotorch.Tensor{wide.SumDim(dims), gotorch.Full([]int64{1}, float64(x.Numel()/max(c, 1)), gotorch.TensorOptions{DType: wide.DType(), Device: x.Device()})})
	f.sum(sums)
	f.n = gotorch.Item[float64](sums.Select(0, c))
	mean := sums.Narrow(0, 0, c).DivScalar(f.n)
	centred := wide.Sub(broad(mean, x))
	variance := centred.Pow(2).SumDim(dims)
	f.sum(variance)
	variance = variance.DivScalar(f.n)
	if o := f.opt; o.RunningMean.T != nil {
		momentum := args.Float(syncBatchNorm, "Momentum", o.Momentum, 0.1)
		o.RunningMean.MulScalar_(1 - momentum).Add_(mean.MulScalar(momentum).To(o.RunningMean.DType()))
		o.RunningVar.MulScalar_(1 - momentum).Add_(variance.MulScalar(momentum * f.n / (f.n - 1)).To(o.RunningVar.DType()))
	}
	scale := variance.AddScalar(args.Float(syncBatchNorm, "Eps", f.opt.Eps, 1e-5)).Rsqrt()
	ctx.SaveForBackward(append(inputs, mean, scale)...)
	y := centred.Mul(broad(scale, x))
	if f.opt.Weight.T != nil {
		y = y.Mul(broad(f.opt.Weight, x))
	}
	if f.opt.Bias.T != nil {
		y = y.Add(broad(f.opt.Bias, x))
	}
	return []gotorch.Tensor{y.To(x.DType())}
}

func (f *syncedBatchNorm) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	saved := ctx.SavedTensors()
	x, mean, scale := saved[0], saved[len(saved)-2], saved[len(saved)-1]
	c, dims := x.Size(1), overChannels(x)
	grad := grads[0].To(mean.DType())
	normal := x.To(mean.DType()).Sub(broad(mean, x)).Mul(broad(scale, x))
	ofBias, ofWeight := grad.SumDim(dims), grad.Mul(normal).SumDim(dims)
	sums := gotorch.Cat([]gotorch.Tensor{ofBias, ofWeight})
	f.sum(sums)
	sums = sums.DivScalar(f.n)
	g := grad.Sub(broad(sums.Narrow(0, 0, c), x)).Sub(normal.Mul(broad(sums.Narrow(0, c, c), x))).Mul(broad(scale, x))
	i := 1
	var results []gotorch.Tensor
	if f.opt.Weight.T != nil {
		g = g.Mul(broad(saved[i], x))
		results = append(results, ofWeight.To(saved[i].DType()))
		i++
	}
	if f.opt.Bias.T != nil {
		results = append(results, ofBias.To(saved[i].DType()))
	}
	return append([]gotorch.Tensor{g.To(x.DType())}, results...)
}
