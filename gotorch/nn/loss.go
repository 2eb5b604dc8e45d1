package nn

import (
	"fmt"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// Loss says how far a model's output is from the target, as the losses of this package do: Forward returns a
// tensor of one element to learn by.
type Loss interface {
	Forward(output, target gotorch.Tensor) gotorch.Tensor
}

// LossFunc is a function as a [Loss].
//
//	nn.LossFunc(func(output, target gotorch.Tensor) gotorch.Tensor { return output.Sub(target).Abs().Max() })
type LossFunc func(output, target gotorch.Tensor) gotorch.Tensor

// Forward calls f.
func (f LossFunc) Forward(output, target gotorch.Tensor) gotorch.Tensor { return f(output, target) }

func (m *MultiMarginLossModule) check(op string) {
	if m.P != 1 && m.P != 2 {
		panic(args.ValueError(op, "only p == 1 and p == 2 supported, not %d", m.P))
	}
	if m.Weight.T != nil && m.Weight.Dim() != 1 {
		panic(args.ValueError(op, "weight must be one-dimensional, and has %d dimensions", m.Weight.Dim()))
	}
}

func checkMargin(op string, margin float64) {
	if !(margin > 0) {
		panic(args.ValueError(op, "margin must be greater than 0, got %v", margin))
	}
}

func (m *TripletMarginLossModule) check(op string)             { checkMargin(op, m.Margin) }
func (m *TripletMarginWithDistanceLossModule) check(op string) { checkMargin(op, m.Margin) }

// LinearCrossEntropyLossModule is what [LinearCrossEntropyLoss] makes.
type LinearCrossEntropyLossModule struct {
	Module
	Weight         gotorch.Tensor `nn:",buffer"` // of each class, (NumClasses), or none
	NumClasses     int64
	OutFeatures    []int64
	Reduction      F.Reduction
	IgnoreIndex    gotorch.Scalar // an int64, or nil
	LabelSmoothing float64
	Options        *F.LinearCrossEntropyChunking // nil: all at once
	Linear         *LinearModule
}

// LinearCrossEntropyLossOptions are the arguments of [LinearCrossEntropyLoss] that have defaults.
type LinearCrossEntropyLossOptions struct {
	OutFeatures    []int64 // of the loss, behind the classes; default: none
	Bias           bool
	Device         gotorch.Device
	DType          gotorch.DType
	Reduction      F.Reduction
	Weight         gotorch.Tensor // of each class, (numClasses); default: all the same
	IgnoreIndex    gotorch.Scalar // a class that does not count; default: none
	LabelSmoothing float64        // the part of the target that all classes share, from 0 to 1
	// Options computes the loss in chunks of the batch, with less memory. Default: none, all at once.
	Options *F.LinearCrossEntropyChunking
}

// LinearCrossEntropyLoss is [CrossEntropyLoss] behind a [Linear] layer of its own: the input is (N, inFeatures),
// the target (N, *) of int64, or (N, numClasses, *) of probabilities, also without N. It panics with a
// RuntimeError if Weight has another shape, or LabelSmoothing is not between 0 and 1.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyLoss.html.
func LinearCrossEntropyLoss(inFeatures, numClasses int64, opts ...LinearCrossEntropyLossOptions) *LinearCrossEntropyLossModule {
	const op = "nn.LinearCrossEntropyLoss"
	opt := args.Option(opts)
	if opt.Weight.T != nil {
		if s := opt.Weight.Shape(); len(s) != 1 || s[0] != numClasses {
			panic(runtimeError(op, "expected weight shape to be (%d), got %v", numClasses, s))
		}
	}
	if !(opt.LabelSmoothing >= 0 && opt.LabelSmoothing <= 1) {
		panic(runtimeError(op, "expected label_smoothing to be in range [0, 1], got %v", opt.LabelSmoothing))
	}
	m := &LinearCrossEntropyLossModule{Weight: opt.Weight, NumClasses: numClasses, OutFeatures: slices.Clone(opt.OutFeatures),
		Reduction: opt.Reduction, LabelSmoothing: opt.LabelSmoothing}
	if opt.Options != nil {
		opt.Options.Check(op)
		m.Options = new(*opt.Options)
	}
	if args.Given(opt.IgnoreIndex) {
		m.IgnoreIndex = args.Int(op, "IgnoreIndex", opt.IgnoreIndex, 0)
	}
	n := numClasses
	for _, k := range m.OutFeatures {
		n *= k
	}
	m.Linear = Linear(inFeatures, n, LinearOptions{NoBias: !opt.Bias, Device: opt.Device, DType: opt.DType})
	return Init(m)
}

// Forward returns F.LinearCrossEntropy of input and target.
func (m *LinearCrossEntropyLossModule) Forward(input, target gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{m.forward(in[0], in[1])} }, input, target)[0]
	}
	return m.forward(input, target)
}

func (m *LinearCrossEntropyLossModule) forward(input, target gotorch.Tensor) gotorch.Tensor {
	m.outer()
	defer using(m.Linear)()
	shape := append([]int64{m.NumClasses}, m.OutFeatures...)
	bias := m.Linear.Bias
	if bias.T != nil {
		bias = bias.Reshape(shape)
	}
	return F.LinearCrossEntropy(input, m.Linear.Weight.Reshape(append(shape, m.Linear.InFeatures)), target, F.LinearCrossEntropyOptions{
		LinearBias: bias, Weight: m.Weight, Reduction: m.Reduction, IgnoreIndex: m.IgnoreIndex, LabelSmoothing: m.LabelSmoothing, Options: m.Options})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *LinearCrossEntropyLossModule) ExtraRepr() string {
	ignore := "None"
	if n := args.IntPointer("nn.LinearCrossEntropyLoss", "IgnoreIndex", m.IgnoreIndex); n != nil {
		ignore = pyInt(*n)
	}
	out := "()"
	if len(m.OutFeatures) > 0 {
		out = pyTuple(m.OutFeatures)
	}
	options := "None"
	if m.Options != nil {
		options = m.Options.String()
	}
	return fmt.Sprintf("in_features=%d, num_classes=%d, out_features=%s, bias=%s, reduction=%s, ignore_index=%s, label_smoothing=%s, options=%s",
		m.Linear.InFeatures, m.NumClasses, out, pyBool(m.Linear.Bias.T != nil), m.Reduction, ignore, pyFloat(m.LabelSmoothing), options)
}

// AdaptiveLogSoftmaxWithLossModule is what [AdaptiveLogSoftmaxWithLoss] makes.
type AdaptiveLogSoftmaxWithLossModule struct {
	Module
	InFeatures, NClasses int64
	Cutoffs              []int64 // with NClasses as the last
	DivValue             float64
	HeadBias             bool
	Head                 *LinearModule
	Tail                 []*SequentialModule
}

// AdaptiveLogSoftmaxWithLossOptions are the arguments of [AdaptiveLogSoftmaxWithLoss] that have defaults.
type AdaptiveLogSoftmaxWithLossOptions struct {
	DivValue gotorch.Scalar // by how much each cluster's vectors are shorter than those before; default: 4
	HeadBias bool
	Device   gotorch.Device
	DType    gotorch.DType
}

// AdaptiveLogSoftmaxWithLoss is a softmax over many classes, sorted by how often they come, that computes rare
// ones only where they are needed: those from each cutoff on are a cluster. It panics with a ValueError unless
// cutoffs are different, in order, and between 1 and nClasses−1.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveLogSoftmaxWithLoss.html.
func AdaptiveLogSoftmaxWithLoss(inFeatures, nClasses int64, cutoffs []int64, opts ...AdaptiveLogSoftmaxWithLossOptions) *AdaptiveLogSoftmaxWithLossModule {
	const op = "nn.AdaptiveLogSoftmaxWithLoss"
	opt := args.Option(opts)
	if len(cutoffs) == 0 {
		panic(args.ValueError(op, "cutoffs should be a sequence of length larger than 0"))
	}
	for i, c := range cutoffs {
		if c <= 0 || c > nClasses-1 || i > 0 && c <= cutoffs[i-1] {
			panic(args.ValueError(op, "cutoffs should be unique, positive integers sorted in an increasing order, where each value is between 1 and n_classes-1, not %v", cutoffs))
		}
	}
	m := &AdaptiveLogSoftmaxWithLossModule{InFeatures: inFeatures, NClasses: nClasses, Cutoffs: append(slices.Clone(cutoffs), nClasses),
		DivValue: args.Float(op, "DivValue", opt.DivValue, 4), HeadBias: opt.HeadBias}
	linear := LinearOptions{NoBias: true, Device: opt.Device, DType: opt.DType}
	m.Head = Linear(inFeatures, cutoffs[0]+int64(len(cutoffs)), LinearOptions{NoBias: !opt.HeadBias, Device: opt.Device, DType: opt.DType})
	for i := range cutoffs {
		hidden := int64(floorDiv(float64(inFeatures), math.Pow(m.DivValue, float64(i+1))))
		m.Tail = append(m.Tail, Sequential(Linear(inFeatures, hidden, linear), Linear(hidden, m.Cutoffs[i+1]-m.Cutoffs[i], linear)))
	}
	return Init(m)
}

// floorDiv is Python's x // y: the quotient is not rounded up to a whole number that y times would be more than x, as
// 11 / 1.1 is 10 and 11 // 1.1 is 9.
func floorDiv(x, y float64) float64 {
	rest := math.Mod(x, y)
	whole := math.Round((x - rest) / y)
	if rest != 0 && math.Signbit(rest) != math.Signbit(y) {
		whole--
	}
	return whole
}

// ResetParameters draws all weights anew.
func (m *AdaptiveLogSoftmaxWithLossModule) ResetParameters() {
	m.Head.ResetParameters()
	for _, cluster := range m.Tail {
		for _, layer := range cluster.Layers {
			layer.(*LinearModule).ResetParameters()
		}
	}
}

// Forward returns the logarithm of the probability of each target, (N), and the mean of their negatives: the
// input is (N, InFeatures), the target (N) of int64; also without N. It panics with a RuntimeError if they do
// not fit, or for a target that is no class.
func (m *AdaptiveLogSoftmaxWithLossModule) Forward(input, target gotorch.Tensor) (output, loss gotorch.Tensor) {
	if m.hooked(m) {
		r := m.around(func(in []gotorch.Tensor) []gotorch.Tensor {
			output, loss := m.forward(in[0], in[1])
			return []gotorch.Tensor{output, loss}
		}, input, target)
		return r[0], r[1]
	}
	return m.forward(input, target)
}

func (m *AdaptiveLogSoftmaxWithLossModule) forward(input, target gotorch.Tensor) (output, loss gotorch.Tensor) {
	const op = "nn.AdaptiveLogSoftmaxWithLoss"
	m.outer()
	batched := target.Dim() == 1
	switch {
	case target.Dim() > 1:
		panic(runtimeError(op, "0D or 1D target tensor expected, multi-target not supported"))
	case input.Dim() != target.Dim()+1:
		panic(runtimeError(op, "a %dD target tensor expects %dD input tensors, but found inputs with size %v", target.Dim(), target.Dim()+1, input.Shape()))
	case batched && input.Size(0) != target.Size(0):
		panic(runtimeError(op, "input and target should have the same size in the batch dimension, but are %v and %v", input.Shape(), target.Shape()))
	}
	if !batched {
		input, target = input.Unsqueeze(0), target.Unsqueeze(0)
	}
	n := target.Size(0)
	output = input.NewZeros([]int64{n})
	gather := target.NewEmpty([]int64{n})
	used, low := int64(0), int64(0)
	for i, high := range m.Cutoffs {
		mask := target.GeScalar(low).BitwiseAnd(target.LtScalar(high))
		rows := mask.NonZero().SqueezeDim(1)
		if rows.Numel() > 0 {
			inside := target.IndexSelect(0, rows)
			if i == 0 {
				gather.IndexCopy_(0, rows, inside)
			} else {
				gather.IndexFill_(0, rows, m.Cutoffs[0]+int64(i)-1)
				logs := F.LogSoftmax(m.Tail[i-1].Forward(input.IndexSelect(0, rows)), 1)
				local := logs.Gather(1, inside.SubScalar(low).Unsqueeze(1))
				output = output.IndexCopy(0, rows, local.SqueezeDim(1))
			}
			used += rows.Numel()
		}
		low = high
	}
	if used != n {
		panic(runtimeError(op, "target values should be in [0, %d], but values in range [%v, %v] were found", m.NClasses-1,
			gotorch.Item[int64](target.Min()), gotorch.Item[int64](target.Max())))
	}
	head := F.LogSoftmax(m.Head.Forward(input), 1)
	output = output.Add(head.Gather(1, gather.Unsqueeze(1)).SqueezeDim(1))
	loss = output.Neg().Mean()
	if !batched {
		output = output.SqueezeDim(0)
	}
	return output, loss
}

// LogProb returns the logarithms of the probabilities of all classes: (N, InFeatures) → (N, NClasses).
func (m *AdaptiveLogSoftmaxWithLossModule) LogProb(input gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return m.all(input, m.Head.Forward(input))
}

func (m *AdaptiveLogSoftmaxWithLossModule) all(input, head gotorch.Tensor) gotorch.Tensor {
	logs := F.LogSoftmax(head, 1)
	parts := []gotorch.Tensor{logs.Narrow(1, 0, m.Cutoffs[0])}
	for i, cluster := range m.Tail {
		of := logs.Narrow(1, m.Cutoffs[0]+int64(i), 1)
		parts = append(parts, F.LogSoftmax(cluster.Forward(input), 1).Add(of))
	}
	return gotorch.Cat(parts, gotorch.CatOptions{Dim: 1})
}

// Predict returns the most probable class of each input, without computing clusters that are not needed:
// (N, InFeatures) → (N) of int64.
func (m *AdaptiveLogSoftmaxWithLossModule) Predict(input gotorch.Tensor) gotorch.Tensor {
	m.outer()
	head := m.Head.Forward(input)
	best := head.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))})
	rows := best.GeScalar(m.Cutoffs[0]).NonZero().SqueezeDim(1)
	if rows.Numel() == 0 {
		return best
	}
	logs := m.all(input.IndexSelect(0, rows), head.IndexSelect(0, rows))
	return best.IndexCopy(0, rows, logs.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))}))
}
