package functional

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Reduction is what a loss makes of the losses of all elements, by default their [Mean]. With [None] the result is of the
// shape of these losses, else a tensor of one number without dimensions.
type Reduction int

// PyTorch's reductions.
const (
	Mean      Reduction = iota // their mean; with class weights the weighted one
	Sum                        // their sum
	None                       // all of them
	BatchMean                  // their sum, divided by the size of the first dimension: of [KLDiv] only
)

// code returns the number that libtorch has for r.
func (r Reduction) code(op string) *int64 {
	if r < 0 || int(r) >= len(reductionCodes) {
		panic(args.ValueError(op, "%d is no reduction here: it may be Mean, Sum or None", r))
	}
	return &reductionCodes[r]
}

var reductionCodes = [...]int64{Mean: 1, Sum: 2, None: 0}

// of returns what becomes of losses.
func (r Reduction) of(op string, losses gotorch.Tensor) gotorch.Tensor {
	switch *r.code(op) {
	case 1:
		return losses.Mean()
	case 2:
		return losses.Sum()
	}
	return losses
}

// sameShape panics with a ValueError unless the shapes are the same.
func sameShape(op, name string, input, other gotorch.Tensor) {
	if shape, want := other.Shape(), input.Shape(); !slices.Equal(shape, want) {
		panic(args.ValueError(op, "input and %s must have the same shape, got %v and %v", name, want, shape))
	}
}

// weighted returns losses times weight, reduced; their mean is by the sum of weights.
func weighted(op string, losses, weight gotorch.Tensor, r Reduction) gotorch.Tensor {
	losses = losses.Mul(weight)
	if *r.code(op) == 1 {
		return losses.Sum().Div(weight.Sum())
	}
	return r.of(op, losses)
}

// CrossEntropyOptions are the arguments of [CrossEntropy] that have defaults.
type CrossEntropyOptions struct {
	Weight         gotorch.Tensor // of each class, (C); default: all the same
	IgnoreIndex    gotorch.Scalar // a class that does not count; default: -100
	Reduction      Reduction
	LabelSmoothing float64 // the part of the target that all classes share, from 0 to 1
}

// CrossEntropy measures how far a model's scores for each class are from the right class: input is
// (N, C) or (N, C, *) or (C), target the classes as int64, of the same shape without C, or the
// probability of each class, of the same shape. With the reduction None the losses are of the shape without C. It
// panics with an IndexError for a target that is no class, and with a RuntimeError or ValueError where shapes do not fit.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html.
func CrossEntropy(input, target gotorch.Tensor, opts ...CrossEntropyOptions) gotorch.Tensor {
	const op = "functional.CrossEntropy"
	opt := args.Option(opts)
	ignore := args.Int(op, "IgnoreIndex", opt.IgnoreIndex, -100)
	return gotorch.CrossEntropyLoss(input, target, gotorch.CrossEntropyLossOptions{
		Weight: opt.Weight, Reduction: opt.Reduction.code(op), IgnoreIndex: &ignore,
		LabelSmoothing: opt.LabelSmoothing})
}

// NLLLossOptions are the arguments of [NLLLoss] that have defaults.
type NLLLossOptions struct {
	Weight      gotorch.Tensor // of each class, (C); default: all the same
	IgnoreIndex gotorch.Scalar // a class that does not count; default: -100
	Reduction   Reduction
}

// NLLLoss is [CrossEntropy] for the logarithms of probabilities, as [LogSoftmax] makes them, and
// classes as targets: (N, C), (N, C, *) or (C), and int64 of the same shape without C.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.nll_loss.html.
func NLLLoss(input, target gotorch.Tensor, opts ...NLLLossOptions) gotorch.Tensor {
	const op = "functional.NLLLoss"
	opt := args.Option(opts)
	ignore := args.Int(op, "IgnoreIndex", opt.IgnoreIndex, -100)
	return gotorch.NLLLossND(input, target, gotorch.NLLLossNDOptions{
		Weight: opt.Weight, Reduction: opt.Reduction.code(op), IgnoreIndex: &ignore})
}

// MSELossOptions are the arguments of [MSELoss] that have defaults.
type MSELossOptions struct {
	Reduction Reduction
	Weight    gotorch.Tensor // of each element; default: all the same
}

// MSELoss returns the squares of the differences between input and target, each times its Weight; the
// mean is then by the sum of weights. It panics with a ValueError if the shapes differ, which PyTorch
// warns of: they would be broadcast, and that is rarely meant.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mse_loss.html.
func MSELoss(input, target gotorch.Tensor, opts ...MSELossOptions) gotorch.Tensor {
	const op = "functional.MSELoss"
	opt := args.Option(opts)
	sameShape(op, "target", input, target)
	if opt.Weight.T == nil {
		return gotorch.MSELoss(input, target, gotorch.MSELossOptions{Reduction: opt.Reduction.code(op)})
	}
	sameShape(op, "weight", input, opt.Weight)
	return weighted(op, input.Sub(target).Pow(2), opt.Weight, opt.Reduction)
}

// L1LossOptions are the arguments of [L1Loss] that have defaults.
type L1LossOptions struct {
	Reduction Reduction
	Weight    gotorch.Tensor // of each element; default: all the same
}

// L1Loss is [MSELoss] of the absolute differences instead of their squares, with the same errors.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.l1_loss.html.
func L1Loss(input, target gotorch.Tensor, opts ...L1LossOptions) gotorch.Tensor {
	const op = "functional.L1Loss"
	opt := args.Option(opts)
	sameShape(op, "target", input, target)
	if opt.Weight.T == nil {
		return gotorch.L1Loss(input, target, gotorch.L1LossOptions{Reduction: opt.Reduction.code(op)})
	}
	sameShape(op, "weight", input, opt.Weight)
	return weighted(op, input.Sub(target).Abs(), opt.Weight, opt.Reduction)
}

// SmoothL1LossOptions are the arguments of [SmoothL1Loss] that have defaults.
type SmoothL1LossOptions struct {
	Reduction Reduction
	Beta      gotorch.Scalar // where squares give way to absolute values; default: 1
}

// SmoothL1Loss is half the square of the difference over Beta below Beta, and the absolute value less
// Beta/2 beyond. It panics with a ValueError if the shapes differ: see [MSELoss].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.smooth_l1_loss.html.
func SmoothL1Loss(input, target gotorch.Tensor, opts ...SmoothL1LossOptions) gotorch.Tensor {
	const op = "functional.SmoothL1Loss"
	opt := args.Option(opts)
	sameShape(op, "target", input, target)
	beta := args.Float(op, "Beta", opt.Beta, 1)
	if beta == 0 {
		return gotorch.L1Loss(input, target, gotorch.L1LossOptions{Reduction: opt.Reduction.code(op)})
	}
	return gotorch.SmoothL1Loss(input, target, gotorch.SmoothL1LossOptions{Reduction: opt.Reduction.code(op), Beta: &beta})
}

// HuberLossOptions are the arguments of [HuberLoss] that have defaults.
type HuberLossOptions struct {
	Reduction Reduction
	Delta     gotorch.Scalar // where squares give way to absolute values; default: 1
	Weight    gotorch.Tensor // of each element; default: all the same
}

// HuberLoss is half the square of the difference up to Delta, and grows with Delta times the difference
// beyond. With a Weight, each loss is multiplied by its own, and the mean is that of the products. It
// panics with a ValueError if the shapes differ: see [MSELoss].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.huber_loss.html.
func HuberLoss(input, target gotorch.Tensor, opts ...HuberLossOptions) gotorch.Tensor {
	const op = "functional.HuberLoss"
	opt := args.Option(opts)
	sameShape(op, "target", input, target)
	delta := args.Float(op, "Delta", opt.Delta, 1)
	if opt.Weight.T == nil {
		return gotorch.HuberLoss(input, target, gotorch.HuberLossOptions{Reduction: opt.Reduction.code(op), Delta: &delta})
	}
	sameShape(op, "weight", input, opt.Weight)
	losses := gotorch.HuberLoss(input, target, gotorch.HuberLossOptions{Reduction: None.code(op), Delta: &delta})
	return opt.Reduction.of(op, losses.Mul(opt.Weight))
}

// BinaryCrossEntropyOptions are the arguments of [BinaryCrossEntropy] that have defaults.
type BinaryCrossEntropyOptions struct {
	Weight    gotorch.Tensor // of each element, broadcast; default: all the same
	Reduction Reduction
}

// BinaryCrossEntropy is −(t·log(x) + (1−t)·log(1−x)), for probabilities x and targets t between 0 and 1.
// It panics with a ValueError if their shapes differ.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy.html.
func BinaryCrossEntropy(input, target gotorch.Tensor, opts ...BinaryCrossEntropyOptions) gotorch.Tensor {
	const op = "functional.BinaryCrossEntropy"
	opt := args.Option(opts)
	sameShape(op, "target", input, target)
	if opt.Weight.T != nil {
		opt.Weight = gotorch.BroadcastTensors([]gotorch.Tensor{target, opt.Weight})[1]
	}
	return gotorch.BinaryCrossEntropy(input, target, gotorch.BinaryCrossEntropyOptions{Weight: opt.Weight, Reduction: opt.Reduction.code(op)})
}

// BinaryCrossEntropyWithLogitsOptions are the arguments of [BinaryCrossEntropyWithLogits] that have
// defaults.
type BinaryCrossEntropyWithLogitsOptions struct {
	Weight    gotorch.Tensor // of each element, broadcast; default: all the same
	Reduction Reduction
	PosWeight gotorch.Tensor // of the positive examples, for each class; default: all the same
}

// BinaryCrossEntropyWithLogits is [BinaryCrossEntropy] of the sigmoid of the input, without the loss of
// precision of both together. It panics with a ValueError if the shapes of input and target differ.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy_with_logits.html.
func BinaryCrossEntropyWithLogits(input, target gotorch.Tensor, opts ...BinaryCrossEntropyWithLogitsOptions) gotorch.Tensor {
	const op = "functional.BinaryCrossEntropyWithLogits"
	opt := args.Option(opts)
	sameShape(op, "target", input, target)
	return gotorch.BinaryCrossEntropyWithLogits(input, target, gotorch.BinaryCrossEntropyWithLogitsOptions{
		Weight: opt.Weight, PosWeight: opt.PosWeight, Reduction: opt.Reduction.code(op)})
}

// CTCLossOptions are the arguments of [CTCLoss] that have defaults.
type CTCLossOptions struct {
	Blank        int64 // the class that stands for no symbol
	Reduction    Reduction
	ZeroInfinity bool // losses that are infinite count as zero
}

// CTCLoss is the negative logarithm of the probability of sequences, over all alignments: logProbs is
// (T, N, C), targets (N, S) or one after the other in one dimension, and the lengths of both are int64 of
// (N); also without N. The mean is that of losses divided by the target's lengths.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.ctc_loss.html.
func CTCLoss(logProbs, targets, inputLengths, targetLengths gotorch.Tensor, opts ...CTCLossOptions) gotorch.Tensor {
	const op = "functional.CTCLoss"
	opt := args.Option(opts)
	return gotorch.CTCLossTensor(logProbs, targets, inputLengths, targetLengths, gotorch.CTCLossTensorOptions{
		Blank: opt.Blank, Reduction: opt.Reduction.code(op), ZeroInfinity: opt.ZeroInfinity})
}

// GaussianNLLLossOptions are the arguments of [GaussianNLLLoss] that have defaults.
type GaussianNLLLossOptions struct {
	Full      bool           // add the constant of the density
	Eps       gotorch.Scalar // the least variance; default: 1e-6
	Reduction Reduction
}

// GaussianNLLLoss is the negative logarithm of the likelihood of target for normal distributions with the
// means input and the variances variance, which has input's shape, or 1 as one of its sizes, or lacks the
// last. It panics with a ValueError if it does not fit, or if a variance is negative.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.GaussianNLLLoss.html.
func GaussianNLLLoss(input, target, variance gotorch.Tensor, opts ...GaussianNLLLossOptions) gotorch.Tensor {
	const op = "functional.GaussianNLLLoss"
	opt := args.Option(opts)
	if gotorch.Item[bool](variance.LtScalar(0).Any()) {
		panic(args.ValueError(op, "variance has negative entry/entries"))
	}
	if want, got := input.Shape(), variance.Shape(); !slices.Equal(want, got) {
		switch {
		case len(want) > 0 && slices.Equal(want[:len(want)-1], got):
			variance = variance.Unsqueeze(-1)
		case len(want) == len(got) && onesApart(want, got):
		default:
			panic(args.ValueError(op, "variance is of incorrect size %v for an input of %v", got, want))
		}
	}
	variance = variance.Clone()
	eps := args.Float(op, "Eps", opt.Eps, 1e-6)
	gotorch.NoGrad(func() { variance.ClampMin_(eps) })
	losses := variance.Log().Add(input.Sub(target).Pow(2).Div(variance)).MulScalar(0.5)
	if opt.Full {
		losses = losses.AddScalar(0.5 * math.Log(2*math.Pi))
	}
	return opt.Reduction.of(op, losses)
}

// onesApart reports whether got has sizes that differ from want's, which add up to 1.
func onesApart(want, got []int64) bool {
	sum := int64(0)
	for i, n := range got {
		if n != want[i] {
			sum += n
		}
	}
	return sum == 1
}

// KLDivOptions are the arguments of [KLDiv] that have defaults.
type KLDivOptions struct {
	Reduction Reduction // BatchMean is what mathematicians mean
	LogTarget bool      // the target is given as logarithms
}

// KLDiv is t·(log(t) − x), the divergence of Kullback and Leibler, for an input x of logarithms and a
// target t, element by element for shapes that broadcast. The default, the mean of all elements, is not what
// mathematicians mean: see [BatchMean].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.kl_div.html.
func KLDiv(input, target gotorch.Tensor, opts ...KLDivOptions) gotorch.Tensor {
	const op = "functional.KLDiv"
	opt := args.Option(opts)
	reduction := opt.Reduction
	if reduction == BatchMean {
		reduction = Sum
	}
	loss := gotorch.KLDiv(input, target, gotorch.KLDivOptions{Reduction: reduction.code(op), LogTarget: opt.LogTarget})
	if opt.Reduction == BatchMean && input.Dim() != 0 {
		loss = loss.DivScalar(input.Size(0))
	}
	return loss
}

// MarginRankingLossOptions are the arguments of [MarginRankingLoss] that have defaults.
type MarginRankingLossOptions struct {
	Margin    float64
	Reduction Reduction
}

// MarginRankingLoss is how far Margin − target·(input1 − input2) is above zero, for targets of 1 and −1.
// It panics with a RuntimeError if the numbers of dimensions differ.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.margin_ranking_loss.html.
func MarginRankingLoss(input1, input2, target gotorch.Tensor, opts ...MarginRankingLossOptions) gotorch.Tensor {
	const op = "functional.MarginRankingLoss"
	opt := args.Option(opts)
	if input1.Dim() != input2.Dim() || input1.Dim() != target.Dim() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: sprintf(
			"all input tensors should have same dimension but got sizes: input1: %v, input2: %v, target: %v", input1.Shape(), input2.Shape(), target.Shape())})
	}
	return gotorch.MarginRankingLoss(input1, input2, target, gotorch.MarginRankingLossOptions{Margin: opt.Margin, Reduction: opt.Reduction.code(op)})
}

// MultiMarginLossOptions are the arguments of [MultiMarginLoss] that have defaults.
type MultiMarginLossOptions struct {
	P         gotorch.Scalar // 1 or 2; default: 1
	Margin    gotorch.Scalar // default: 1
	Weight    gotorch.Tensor // of each class, (C); default: all the same
	Reduction Reduction
}

// MultiMarginLoss is the hinge, to the power P, between the score of the right class and the others: input
// is (N, C), target (N), of int64; also without N. It panics with a ValueError if P is neither 1 nor 2, or
// Weight has not one dimension.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multi_margin_loss.html.
func MultiMarginLoss(input, target gotorch.Tensor, opts ...MultiMarginLossOptions) gotorch.Tensor {
	const op = "functional.MultiMarginLoss"
	opt := args.Option(opts)
	p := args.Int(op, "P", opt.P, 1)
	if p != 1 && p != 2 {
		panic(args.ValueError(op, "only p == 1 and p == 2 supported, not %d", p))
	}
	if opt.Weight.T != nil && opt.Weight.Dim() != 1 {
		panic(args.ValueError(op, "weight must be one-dimensional, and has %d dimensions", opt.Weight.Dim()))
	}
	return gotorch.MultiMarginLoss(input, target, gotorch.MultiMarginLossOptions{
		P: p, Margin: args.Float(op, "Margin", opt.Margin, 1), Weight: opt.Weight, Reduction: opt.Reduction.code(op)})
}

// MultilabelSoftMarginLossOptions are the arguments of [MultilabelSoftMarginLoss] that have defaults.
type MultilabelSoftMarginLossOptions struct {
	Weight    gotorch.Tensor // of each class, (C); default: all the same
	Reduction Reduction
}

// MultilabelSoftMarginLoss is [BinaryCrossEntropyWithLogits], averaged over the classes: input and target
// are (N, C), or (C).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_soft_margin_loss.html.
func MultilabelSoftMarginLoss(input, target gotorch.Tensor, opts ...MultilabelSoftMarginLossOptions) gotorch.Tensor {
	const op = "functional.MultilabelSoftMarginLoss"
	opt := args.Option(opts)
	losses := target.Mul(LogSigmoid(input)).Add(gotorch.RsubScalar(target, 1).Mul(LogSigmoid(input.Neg()))).Neg()
	if opt.Weight.T != nil {
		losses = losses.Mul(opt.Weight)
	}
	last := input.Dim() - 1
	losses = losses.SumDim([]int64{last}).DivScalar(input.Size(last))
	return opt.Reduction.of(op, losses)
}

// TripletMarginLossOptions are the arguments of [TripletMarginLoss] that have defaults.
type TripletMarginLossOptions struct {
	Margin    gotorch.Scalar // default: 1
	P         gotorch.Scalar // of the norm; default: 2
	Eps       gotorch.Scalar // added to differences; default: 1e-6
	Swap      bool           // use the distance from positive to negative where it is less
	Reduction Reduction
}

// TripletMarginLoss is how far the P-norm distance from anchor to positive, plus Margin, is above that
// from anchor to negative: (N, D) each, or (D). It panics with a ValueError if Margin is not positive.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_loss.html.
func TripletMarginLoss(anchor, positive, negative gotorch.Tensor, opts ...TripletMarginLossOptions) gotorch.Tensor {
	const op = "functional.TripletMarginLoss"
	opt := args.Option(opts)
	margin, p, eps := checkMargin(op, opt.Margin), args.Float(op, "P", opt.P, 2), args.Float(op, "Eps", opt.Eps, 1e-6)
	return gotorch.TripletMarginLoss(anchor, positive, negative, gotorch.TripletMarginLossOptions{
		Margin: &margin, P: &p, Eps: &eps, Swap: opt.Swap, Reduction: opt.Reduction.code(op)})
}

// checkMargin returns the margin. It panics with a ValueError if it is not positive.
func checkMargin(op string, field gotorch.Scalar) float64 {
	margin := args.Float(op, "Margin", field, 1)
	if !(margin > 0) {
		panic(args.ValueError(op, "margin must be greater than 0, got %v", margin))
	}
	return margin
}

// DistanceFunction says how far tensors of (N, D) are from each other, row by row: (N).
type DistanceFunction func(x1, x2 gotorch.Tensor) gotorch.Tensor

// TripletMarginWithDistanceLossOptions are the arguments of [TripletMarginWithDistanceLoss] that have
// defaults.
type TripletMarginWithDistanceLossOptions struct {
	DistanceFunction DistanceFunction // default: [PairwiseDistance]
	Margin           gotorch.Scalar   // default: 1
	Swap             bool             // use the distance from positive to negative where it is less
	Reduction        Reduction
}

// TripletMarginWithDistanceLoss is [TripletMarginLoss] with a distance of your own. It panics with a
// ValueError if Margin is not positive, and with a RuntimeError if the numbers of dimensions differ.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_with_distance_loss.html.
func TripletMarginWithDistanceLoss(anchor, positive, negative gotorch.Tensor, opts ...TripletMarginWithDistanceLossOptions) gotorch.Tensor {
	const op = "functional.TripletMarginWithDistanceLoss"
	opt := args.Option(opts)
	margin := checkMargin(op, opt.Margin)
	if anchor.Dim() != positive.Dim() || positive.Dim() != negative.Dim() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: sprintf(
			"the anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor %dD, positive %dD, and negative %dD inputs",
			anchor.Dim(), positive.Dim(), negative.Dim())})
	}
	distance := opt.DistanceFunction
	if distance == nil {
		distance = func(x1, x2 gotorch.Tensor) gotorch.Tensor { return PairwiseDistance(x1, x2) }
	}
	near, far := distance(anchor, positive), distance(anchor, negative)
	if opt.Swap {
		far = gotorch.Minimum(far, distance(positive, negative))
	}
	return opt.Reduction.of(op, near.AddScalar(margin).Sub(far).ClampMin(0))
}

// LinearCrossEntropyOptions are the arguments of [LinearCrossEntropy] that have defaults.
type LinearCrossEntropyOptions struct {
	LinearBias     gotorch.Tensor // (C, *); default: none
	Weight         gotorch.Tensor // of each class, (C); default: all the same
	Reduction      Reduction
	IgnoreIndex    gotorch.Scalar // a class that does not count; default: none
	LabelSmoothing float64        // the part of the target that all classes share, from 0 to 1
	// Options computes the loss in chunks of the batch, with less memory. Default: none, all at once.
	Options *LinearCrossEntropyChunking
}

// LinearCrossEntropy is [CrossEntropy] of [Linear]: input is (N, D) or (D), linearWeight (C, *, D), and target
// (N, *) of int64 or (N, C, *), also without N. It panics with a RuntimeError if they do not fit.
//
//	loss := F.LinearCrossEntropy(hidden, head.Weight, tokens, F.LinearCrossEntropyOptions{Options: &F.LinearCrossEntropyChunking{}})
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear_cross_entropy.html.
func LinearCrossEntropy(input, linearWeight, target gotorch.Tensor, opts ...LinearCrossEntropyOptions) gotorch.Tensor {
	const op = "functional.LinearCrossEntropy"
	opt := args.Option(opts)
	refuse := func(format string, values ...any) {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: sprintf(format, values...)})
	}
	if opt.Options != nil {
		opt.Options.Check(op)
	}
	in, weight := input.Shape(), linearWeight.Shape()
	switch {
	case len(in) != 1 && len(in) != 2:
		refuse("expected input with dimensionality 1 or 2, got %d", len(in))
	case len(weight) < 2:
		refuse("expected linearWeight with dimensionality at least 2, got %d", len(weight))
	case in[len(in)-1] != weight[len(weight)-1]:
		refuse("expected equal input and linearWeight last dimensions (in_features), got %d and %d, respectively", in[len(in)-1], weight[len(weight)-1])
	}
	features, classes := in[len(in)-1], weight[:len(weight)-1]
	if opt.LinearBias.T != nil && !slices.Equal(opt.LinearBias.Shape(), classes) {
		refuse("expected LinearBias shape %v, got %v", classes, opt.LinearBias.Shape())
	}
	if len(classes) > 1 && len(in) == 1 {
		refuse("K-dimensional loss defined by linearWeight shape %v requires batched input, (N, %d), got unbatched input with shape %v", weight, features, in)
	}
	shape := append(slices.Clone(in[:len(in)-1]), classes...)
	if args.Given(opt.IgnoreIndex) && slices.Equal(target.Shape(), shape) {
		refuse("IgnoreIndex cannot be specified when target contains probabilities")
	}
	if opt.Options != nil {
		if loss := opt.Options.inChunks(op, input, linearWeight, target, opt); loss.T != nil {
			return loss
		}
	}
	w, b := linearWeight, opt.LinearBias
	if len(classes) > 1 {
		w = w.Reshape([]int64{-1, features})
		if b.T != nil {
			b = b.Reshape([]int64{-1})
		}
	}
	logits := Linear(input, w, LinearOptions{Bias: b}).Reshape(shape)
	return CrossEntropy(logits, target, CrossEntropyOptions{Weight: opt.Weight, Reduction: opt.Reduction, IgnoreIndex: opt.IgnoreIndex, LabelSmoothing: opt.LabelSmoothing})
}

// String returns PyTorch's name for r.
func (r Reduction) String() string {
	names := [...]string{Mean: "mean", Sum: "sum", None: "none", BatchMean: "batchmean"}
	if r < 0 || int(r) >= len(names) {
		return sprintf("Reduction(%d)", int(r))
	}
	return names[r]
}
