package functional

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// DropoutOptions are the arguments of [Dropout] that have defaults.
type DropoutOptions struct {
	InPlace bool // overwrite the input
}

// checkP panics with a ValueError unless p is a probability.
func checkP(op string, p float64) {
	if !(p >= 0 && p <= 1) {
		panic(args.ValueError(op, "dropout probability has to be between 0 and 1, but got %v", p))
	}
}

// Dropout replaces elements by zero, each with probability p, and makes the others larger by 1/(1−p);
// unless training, it changes nothing. The shape stays. It panics with a ValueError if p is not
// between 0 and 1.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html.
func Dropout(input gotorch.Tensor, p float64, training bool, opts ...DropoutOptions) gotorch.Tensor {
	checkP("functional.Dropout", p)
	if args.Option(opts).InPlace {
		return gotorch.Dropout_(input, p, training)
	}
	return gotorch.Dropout(input, p, training)
}

// AlphaDropoutOptions are the arguments of [AlphaDropout] that have defaults.
type AlphaDropoutOptions struct {
	InPlace bool // overwrite the input
}

// AlphaDropout replaces elements by the negative number that [SELU] tends to, each with probability p,
// and scales the others so that mean 0 and deviation 1 stay; unless training, it changes nothing. The
// shape stays. It panics with a ValueError if p is not between 0 and 1.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.alpha_dropout.html.
func AlphaDropout(input gotorch.Tensor, p float64, training bool, opts ...AlphaDropoutOptions) gotorch.Tensor {
	checkP("functional.AlphaDropout", p)
	if args.Option(opts).InPlace {
		return gotorch.AlphaDropout_(input, p, training)
	}
	return gotorch.AlphaDropout(input, p, training)
}

// FeatureAlphaDropoutOptions are the arguments of [FeatureAlphaDropout] that have defaults.
type FeatureAlphaDropoutOptions struct {
	InPlace bool // overwrite the input
}

// FeatureAlphaDropout is [AlphaDropout] for whole channels: (N, C, ...) → (N, C, ...).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.feature_alpha_dropout.html.
func FeatureAlphaDropout(input gotorch.Tensor, p float64, training bool, opts ...FeatureAlphaDropoutOptions) gotorch.Tensor {
	checkP("functional.FeatureAlphaDropout", p)
	if args.Option(opts).InPlace {
		return gotorch.FeatureAlphaDropout_(input, p, training)
	}
	return gotorch.FeatureAlphaDropout(input, p, training)
}

// Dropout1dOptions are the arguments of [Dropout1d] that have defaults.
type Dropout1dOptions struct {
	InPlace bool // overwrite the input
}

// Dropout1d replaces whole channels by zero, each with probability p, and makes the others larger by
// 1/(1−p); unless training, it changes nothing: (N, C, L) → (N, C, L), also without N. It panics with
// a ValueError if p is not between 0 and 1, and with a RuntimeError for other numbers of dimensions.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout1d.html.
func Dropout1d(input gotorch.Tensor, p float64, training bool, opts ...Dropout1dOptions) gotorch.Tensor {
	const op = "functional.Dropout1d"
	checkP(op, p)
	n := input.Dim()
	if n != 2 && n != 3 {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: sprintf("expected 2D or 3D input, but received a %dD input", n)})
	}
	return featureDropout(input, p, training, args.Option(opts).InPlace, n == 3)
}

// Dropout2dOptions are the arguments of [Dropout2d] that have defaults.
type Dropout2dOptions struct {
	InPlace bool // overwrite the input
}

// Dropout2d is [Dropout1d] for (N, C, H, W). An input of 3 dimensions is (N, C, L), as in PyTorch.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout2d.html.
func Dropout2d(input gotorch.Tensor, p float64, training bool, opts ...Dropout2dOptions) gotorch.Tensor {
	checkP("functional.Dropout2d", p)
	return featureDropout(input, p, training, args.Option(opts).InPlace, true)
}

// Dropout3dOptions are the arguments of [Dropout3d] that have defaults.
type Dropout3dOptions struct {
	InPlace bool // overwrite the input
}

// Dropout3d is [Dropout1d] for (N, C, D, H, W), also without N.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout3d.html.
func Dropout3d(input gotorch.Tensor, p float64, training bool, opts ...Dropout3dOptions) gotorch.Tensor {
	checkP("functional.Dropout3d", p)
	return featureDropout(input, p, training, args.Option(opts).InPlace, input.Dim() == 5)
}

// featureDropout drops whole channels. Without a batch the first dimension is the channels.
func featureDropout(input gotorch.Tensor, p float64, training, inPlace, batched bool) gotorch.Tensor {
	x := input
	if !batched {
		x = x.Unsqueeze(0)
	}
	if inPlace {
		gotorch.FeatureDropout_(x, p, training)
		return input
	}
	x = gotorch.FeatureDropout(x, p, training)
	if !batched {
		x = x.SqueezeDim(0)
	}
	return x
}
