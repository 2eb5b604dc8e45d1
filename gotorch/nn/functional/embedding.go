package functional

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// EmbeddingOptions are the arguments of [Embedding] that have defaults.
type EmbeddingOptions struct {
	PaddingIdx      gotorch.Scalar // a row that gets no gradient, from the end if negative; default: none
	MaxNorm         gotorch.Scalar // rows of a greater norm are made as short, in weight itself; default: none
	NormType        gotorch.Scalar // the p of that norm; default: 2
	ScaleGradByFreq bool           // divide gradients by how often a word comes
	Sparse          bool           // make the gradient of weight sparse
}

// Embedding returns the rows of weight that input, of int64 or int32, has the numbers of: (*) → (*, D) for
// a weight of (V, D). It panics with a ValueError if PaddingIdx is no row, and with an IndexError if a
// number in input is none.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html.
func Embedding(input, weight gotorch.Tensor, opts ...EmbeddingOptions) gotorch.Tensor {
	const op = "functional.Embedding"
	opt := args.Option(opts)
	padding := int64(-1)
	if args.Given(opt.PaddingIdx) {
		padding = row(op, "PaddingIdx", opt.PaddingIdx, weight.Size(0))
	}
	if args.Given(opt.MaxNorm) {
		input = input.Contiguous()
		renorm(op, weight, input, opt.MaxNorm, opt.NormType)
	}
	return gotorch.Embedding(weight, input, gotorch.EmbeddingOptions{PaddingIdx: &padding, ScaleGradByFreq: opt.ScaleGradByFreq, Sparse: opt.Sparse})
}

// row returns the number of one of n rows, which may be counted from the end. It panics with a ValueError
// if there is none.
func row(op, name string, field gotorch.Scalar, n int64) int64 {
	i := args.Int(op, name, field, 0)
	if i >= n || i < -n {
		panic(args.ValueError(op, "%s must be within the %d rows, but is %d", name, n, i))
	}
	if i < 0 {
		i += n
	}
	return i
}

// renorm shortens the rows of weight that input asks for and that are too long.
func renorm(op string, weight, input gotorch.Tensor, maxNorm, normType gotorch.Scalar) {
	gotorch.NoGrad(func() {
		gotorch.EmbeddingRenorm_(weight, input, args.Float(op, "MaxNorm", maxNorm, 0), args.Float(op, "NormType", normType, 2))
	})
}

// EmbeddingBagMode is what becomes of the rows of a bag.
type EmbeddingBagMode string

// PyTorch's modes. The default is their mean.
const (
	BagSum  EmbeddingBagMode = "sum"
	BagMean EmbeddingBagMode = "mean"
	BagMax  EmbeddingBagMode = "max"
)

// EmbeddingBagOptions are the arguments of [EmbeddingBag] that have defaults.
type EmbeddingBagOptions struct {
	Offsets           gotorch.Tensor   // where each bag begins, (B), for an input of one dimension
	MaxNorm           gotorch.Scalar   // rows of a greater norm are made as short, in weight itself; default: none
	NormType          gotorch.Scalar   // the p of that norm; default: 2
	ScaleGradByFreq   bool             // divide gradients by how often a word comes; not with BagMax
	Mode              EmbeddingBagMode // default: BagMean
	Sparse            bool             // make the gradient of weight sparse; not with BagMax
	PerSampleWeights  gotorch.Tensor   // of the shape of input; only with BagSum
	IncludeLastOffset bool             // the last of Offsets is where the last bag ends
	PaddingIdx        gotorch.Scalar   // a row that does not count; default: none
}

// EmbeddingBag returns the sum, mean or maximum of rows of weight for each bag of row numbers: input is
// (B, N), a bag in each row, or (N) with Offsets; the result is (B, D) for a weight of (V, D). It panics
// with a ValueError if they do not fit.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding_bag.html.
func EmbeddingBag(input, weight gotorch.Tensor, opts ...EmbeddingBagOptions) gotorch.Tensor {
	const op = "functional.EmbeddingBag"
	opt := args.Option(opts)
	if opt.PerSampleWeights.T != nil && !slices.Equal(input.Shape(), opt.PerSampleWeights.Shape()) {
		panic(args.ValueError(op, "PerSampleWeights must have the same shape as the input, got %v and %v", opt.PerSampleWeights.Shape(), input.Shape()))
	}
	if n := weight.Dim(); n != 2 {
		panic(args.ValueError(op, "weight has to be a 2D Tensor, but got Tensor of dimension %d", n))
	}
	switch n := input.Dim(); n {
	case 1:
		if opt.Offsets.T == nil {
			panic(args.ValueError(op, "Offsets has to be a 1D Tensor for an input of one dimension, but there is none"))
		}
		if n := opt.Offsets.Dim(); n != 1 {
			panic(args.ValueError(op, "Offsets has to be a 1D Tensor, but got one of dimension %d", n))
		}
	case 2:
		if opt.Offsets.T != nil {
			panic(args.ValueError(op, "an input of two dimensions has a bag in each row, and no Offsets"))
		}
		opt.Offsets = gotorch.ArangeStartStep(0, input.Numel(), gotorch.ArangeStartStepOptions{Step: max(1, input.Size(1)), DType: input.DType(), Device: input.Device()})
		opt.IncludeLastOffset = false
		input = input.Reshape([]int64{-1})
		if opt.PerSampleWeights.T != nil {
			opt.PerSampleWeights = opt.PerSampleWeights.Reshape([]int64{-1})
		}
	default:
		panic(args.ValueError(op, "input has to be 1D or 2D Tensor, but got Tensor of dimension %d", n))
	}
	var mode int64
	switch opt.Mode {
	case BagSum:
		mode = 0
	case "", BagMean:
		mode = 1
	case BagMax:
		mode = 2
		if opt.ScaleGradByFreq || opt.Sparse {
			panic(args.ValueError(op, "max mode supports neither ScaleGradByFreq nor Sparse"))
		}
	default:
		panic(args.ValueError(op, "Mode has to be one of sum, mean or max, but is %q", opt.Mode))
	}
	if args.Given(opt.MaxNorm) {
		renorm(op, weight, input, opt.MaxNorm, opt.NormType)
	}
	if opt.PerSampleWeights.T != nil && mode != 0 {
		panic(&gotorch.Error{Op: op, Kind: gotorch.NotImplementedError, Msg: "PerSampleWeights is only supported for BagSum"})
	}
	result, _, _, _ := gotorch.EmbeddingBagPaddingIdx(weight, input, opt.Offsets, opt.ScaleGradByFreq, mode, opt.Sparse,
		opt.PerSampleWeights, opt.IncludeLastOffset, args.IntPointer(op, "PaddingIdx", opt.PaddingIdx))
	return result
}

// OneHotOptions are the arguments of [OneHot] that have defaults.
type OneHotOptions struct {
	NumClasses gotorch.Scalar // default: -1, for one more than the greatest in the tensor
}

// OneHot returns int64 vectors with a 1 where tensor, of int64, says, and zeros: (*) → (*, NumClasses).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html.
func OneHot(tensor gotorch.Tensor, opts ...OneHotOptions) gotorch.Tensor {
	classes := args.Int("functional.OneHot", "NumClasses", args.Option(opts).NumClasses, -1)
	return gotorch.OneHot(tensor, gotorch.OneHotOptions{NumClasses: &classes})
}
