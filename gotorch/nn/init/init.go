// Package nninit fills tensors with the values that a model begins with. (Go has no package named
// init.) The functions are those of torch.nn.init; with the same seed they give the same numbers.
//
//	import nninit "gotorch.dev/gotorch/nn/init"
//
//	w := gotorch.Empty([]int64{10, 784})
//	nninit.KaimingUniform_(w, nninit.KaimingOptions{Nonlinearity: nninit.ReLU})
//	nninit.Constant_(b, 0.1)
//
// All of them write in place without recording a graph, and return their argument. Where PyTorch
// takes a generator, the options have one.
package nninit

import (
	"fmt"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Nonlinearity is what follows a layer, which decides by how much its weights should be larger.
type Nonlinearity string

// The nonlinearities that [CalculateGain] knows. Identity is also for Sigmoid and all layers that are
// linear themselves.
const (
	Identity  Nonlinearity = "linear"
	Sigmoid   Nonlinearity = "sigmoid"
	Tanh      Nonlinearity = "tanh"
	ReLU      Nonlinearity = "relu"
	LeakyReLU Nonlinearity = "leaky_relu"
	SELU      Nonlinearity = "selu"
)

// CalculateGain returns by how much weights should be larger for what follows the layer. slope is that
// of LeakyReLU for negative numbers, 0.01 if not given. It panics with a ValueError for an unknown
// nonlinearity, and with a TypeError for more than one slope.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.calculate_gain.
func CalculateGain(n Nonlinearity, slope ...float64) float64 {
	if len(slope) > 1 {
		panic(&gotorch.Error{Op: "nninit.CalculateGain", Kind: gotorch.TypeError, Msg: fmt.Sprintf("there may be one slope, not %d", len(slope))})
	}
	switch n {
	case Identity, Sigmoid, "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d":
		return 1
	case Tanh:
		return 5.0 / 3
	case ReLU:
		return math.Sqrt(2)
	case LeakyReLU:
		a := 0.01
		if len(slope) > 0 {
			a = slope[0]
		}
		return math.Sqrt(2 / (1 + float64(a*a)))
	case SELU:
		return 3.0 / 4
	}
	panic(args.ValueError("nninit.CalculateGain", "unsupported nonlinearity %q", n))
}

// Fans returns how many inputs each output of a layer with weight w has, and how many outputs each
// input. It panics with a ValueError if w has fewer than 2 dimensions.
func Fans(w gotorch.Tensor) (in, out int64) {
	shape := w.Shape()
	if len(shape) < 2 {
		panic(args.ValueError("nninit.Fans", "fan in and fan out can not be computed for a tensor with fewer than 2 dimensions, got shape %v", shape))
	}
	in, out = shape[1], shape[0]
	for _, n := range shape[2:] {
		in, out = in*n, out*n
	}
	return in, out
}

// inPlace runs fill without recording a graph, and returns t.
func inPlace(t gotorch.Tensor, fill func()) gotorch.Tensor {
	gotorch.NoGrad(fill)
	return t
}

// UniformOptions are the arguments of [Uniform_] that have defaults.
type UniformOptions struct {
	A         float64        // the least number
	B         gotorch.Scalar // the bound above; default: 1
	Generator *gotorch.Generator
}

// Uniform_ fills t with numbers that are uniform between A and B.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.uniform_.
func Uniform_(t gotorch.Tensor, opts ...UniformOptions) gotorch.Tensor {
	opt := args.Option(opts)
	to := args.Float("nninit.Uniform_", "B", opt.B, 1)
	return inPlace(t, func() { t.Uniform_(gotorch.UniformOptions{From: opt.A, To: &to, Generator: opt.Generator}) })
}

// NormalOptions are the arguments of [Normal_] that have defaults.
type NormalOptions struct {
	Mean      float64
	Std       gotorch.Scalar // default: 1
	Generator *gotorch.Generator
}

// Normal_ fills t with numbers from a normal distribution.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.normal_.
func Normal_(t gotorch.Tensor, opts ...NormalOptions) gotorch.Tensor {
	opt := args.Option(opts)
	std := args.Float("nninit.Normal_", "Std", opt.Std, 1)
	return inPlace(t, func() { t.Normal_(gotorch.Normal_Options{Mean: opt.Mean, Std: &std, Generator: opt.Generator}) })
}

// TruncNormalOptions are the arguments of [TruncNormal_] that have defaults.
type TruncNormalOptions struct {
	Mean      float64
	Std       gotorch.Scalar // default: 1
	A         gotorch.Scalar // default: -2
	B         gotorch.Scalar // default: 2
	Generator *gotorch.Generator
}

// TruncNormal_ fills t with numbers from a normal distribution that lie between A and B. It panics with a
// ValueError if Std is 0.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.trunc_normal_.
func TruncNormal_(t gotorch.Tensor, opts ...TruncNormalOptions) gotorch.Tensor {
	const op = "nninit.TruncNormal_"
	opt := args.Option(opts)
	mean, std := opt.Mean, args.Float(op, "Std", opt.Std, 1)
	a, b := args.Float(op, "A", opt.A, -2), args.Float(op, "B", opt.B, 2)
	if t.Device() == gotorch.Meta {
		return t
	}
	if std == 0 {
		panic(args.ValueError(op, "the deviation must not be 0: use Constant_"))
	}
	below := func(x float64) float64 { return (1 + math.Erf((x-mean)/std/math.Sqrt2)) / 2 }
	uniform := gotorch.UniformOptions{From: a, To: &b, Generator: opt.Generator}

	return inPlace(t, func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			if below(b)-below(a) > 0.3 {
				// Most are inside: draw those outside anew.
				normal := gotorch.Normal_Options{Mean: mean, Std: &std, Generator: opt.Generator}
				low, high := rounded(a, t.DType()), rounded(b, t.DType())
				t.Normal_(normal)
				result := t
				for {
					outside := result.LtScalar(low).BitwiseOr(result.GtScalar(high))
					if !gotorch.Item[bool](outside.Any()) {
						break
					}
					result = gotorch.Where(outside, gotorch.EmptyLike(result).Normal_(normal), result)
				}
				if result.T != t.T {
					t.Copy_(result)
				}
				return
			}
			// Few would be inside: draw uniform numbers, and keep each with the probability that the
			// density there, compared with the highest between A and B, gives it.
			peak := (max(a, min(mean, b)) - mean) / std
			density := func(x gotorch.Tensor) gotorch.Tensor { // its logarithm; overwrites x
				return x.SubScalar_(mean).DivScalar_(std).Pow_(2).MulScalar_(-0.5).SubScalar_(-0.5 * peak * peak)
			}
			dice, candidates := gotorch.EmptyLike(t), gotorch.EmptyLike(t)
			refused := func() gotorch.Tensor {
				dice.Uniform_(gotorch.UniformOptions{Generator: opt.Generator})
				return dice.Log_().Gt(candidates)
			}
			t.Uniform_(uniform)
			density(candidates.Copy_(t))
			result, pending := t, refused()
			for gotorch.Item[bool](pending.Any()) {
				candidates.Uniform_(uniform)
				result = gotorch.Where(pending, candidates, result)
				density(candidates)
				pending = gotorch.Where(pending, refused(), pending)
			}
			if result.T != t.T {
				t.Copy_(result)
			}
		})
	})
}

// rounded returns x as a tensor of dtype d would hold it.
func rounded(x float64, d gotorch.DType) float64 {
	return gotorch.Item[float64](gotorch.FromScalar(x).To(d))
}

// Constant_ fills t with a value.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.constant_.
func Constant_(t gotorch.Tensor, value gotorch.Scalar) gotorch.Tensor {
	return inPlace(t, func() { t.Fill_(value) })
}

// Ones_ fills t with ones.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.ones_.
func Ones_(t gotorch.Tensor) gotorch.Tensor { return Constant_(t, 1) }

// Zeros_ fills t with zeros.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.zeros_.
func Zeros_(t gotorch.Tensor) gotorch.Tensor { return inPlace(t, func() { t.Zero_() }) }

// Eye_ makes t the identity. It panics with a ValueError if t has not 2 dimensions.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.eye_.
func Eye_(t gotorch.Tensor) gotorch.Tensor {
	if t.Dim() != 2 {
		panic(args.ValueError("nninit.Eye_", "only tensors with 2 dimensions are supported, got shape %v", t.Shape()))
	}
	return inPlace(t, func() { gotorch.EyeMOut(t.Size(0), t.Size(1), t) })
}

// DiracOptions are the arguments of [Dirac_] that have defaults.
type DiracOptions struct {
	Groups gotorch.Scalar // default: 1
}

// Dirac_ makes t the weight of a convolution that passes its channels on as they are, as many as it
// has outputs for. It panics with a ValueError if t has not 3, 4 or 5 dimensions, if Groups is not
// positive, or if t's first dimension is no multiple of it.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.dirac_.
func Dirac_(t gotorch.Tensor, opts ...DiracOptions) gotorch.Tensor {
	groups := args.Int("nninit.Dirac_", "Groups", args.Option(opts).Groups, 1)
	if groups <= 0 {
		panic(args.ValueError("nninit.Dirac_", "groups must be positive, but got %d", groups))
	}
	shape := t.Shape()
	if len(shape) < 3 || len(shape) > 5 {
		panic(args.ValueError("nninit.Dirac_", "only tensors with 3, 4, or 5 dimensions are supported, got shape %v", shape))
	}
	if shape[0]%groups != 0 {
		panic(args.ValueError("nninit.Dirac_", "dim 0 must be divisible by groups, got %d and %d", shape[0], groups))
	}
	perGroup := shape[0] / groups
	return inPlace(t, func() {
		t.Zero_()
		for g := range groups {
			for d := range min(perGroup, shape[1]) {
				at := []gotorch.IndexTerm{gotorch.At(g*perGroup + d), gotorch.At(d)}
				for _, n := range shape[2:] {
					at = append(at, gotorch.At(n/2))
				}
				t.IndexPut(1, at...)
			}
		}
	})
}

// XavierOptions are the arguments of [XavierUniform_] and [XavierNormal_] that have defaults.
type XavierOptions struct {
	Gain      gotorch.Scalar // default: 1
	Generator *gotorch.Generator
}

func (o XavierOptions) std(op string, t gotorch.Tensor) float64 {
	in, out := Fans(t)
	return args.Float(op, "Gain", o.Gain, 1) * math.Sqrt(2/float64(in+out))
}

// XavierUniform_ fills t with uniform numbers of the deviation that keeps signals as they are in both
// directions: Gain·√(2/(in + out)), for the in and out of [Fans]. It panics with a ValueError if t has fewer than 2
// dimensions.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.xavier_uniform_.
func XavierUniform_(t gotorch.Tensor, opts ...XavierOptions) gotorch.Tensor {
	opt := args.Option(opts)
	bound := math.Sqrt(3) * opt.std("nninit.XavierUniform_", t)
	return Uniform_(t, UniformOptions{A: -bound, B: bound, Generator: opt.Generator})
}

// XavierNormal_ is [XavierUniform_] with a normal distribution of the same deviation.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.xavier_normal_.
func XavierNormal_(t gotorch.Tensor, opts ...XavierOptions) gotorch.Tensor {
	opt := args.Option(opts)
	std := opt.std("nninit.XavierNormal_", t)
	return Normal_(t, NormalOptions{Std: std, Generator: opt.Generator})
}

// KaimingOptions are the arguments of [KaimingUniform_] and [KaimingNormal_] that have defaults.
type KaimingOptions struct {
	A            float64      // the slope of LeakyReLU for negative numbers
	FanOut       bool         // keep the size of gradients rather than that of signals
	Nonlinearity Nonlinearity // default: LeakyReLU
	Generator    *gotorch.Generator
}

func (o KaimingOptions) std(t gotorch.Tensor) float64 {
	fan, out := Fans(t)
	if o.FanOut {
		fan = out
	}
	if o.Nonlinearity == "" {
		o.Nonlinearity = LeakyReLU
	}
	return CalculateGain(o.Nonlinearity, o.A) / math.Sqrt(float64(fan))
}

// KaimingUniform_ fills t with uniform numbers of the deviation that keeps signals as they are through
// a layer followed by a ReLU: [CalculateGain] of Nonlinearity and A, over √in, or √out with FanOut, for the in and out
// of [Fans]. It panics with a ValueError if t has fewer than 2 dimensions.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.kaiming_uniform_.
func KaimingUniform_(t gotorch.Tensor, opts ...KaimingOptions) gotorch.Tensor {
	if t.Numel() == 0 {
		return t
	}
	opt := args.Option(opts)
	bound := math.Sqrt(3) * opt.std(t)
	return Uniform_(t, UniformOptions{A: -bound, B: bound, Generator: opt.Generator})
}

// KaimingNormal_ is [KaimingUniform_] with a normal distribution of the same deviation.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.kaiming_normal_.
func KaimingNormal_(t gotorch.Tensor, opts ...KaimingOptions) gotorch.Tensor {
	if t.Numel() == 0 {
		return t
	}
	opt := args.Option(opts)
	std := opt.std(t)
	return Normal_(t, NormalOptions{Std: std, Generator: opt.Generator})
}

// OrthogonalOptions are the arguments of [Orthogonal_] that have defaults.
type OrthogonalOptions struct {
	Gain      gotorch.Scalar // default: 1
	Generator *gotorch.Generator
}

// Orthogonal_ makes t, seen as a matrix with as many rows as its first dimension, a random orthogonal
// one times Gain. It panics with a ValueError if t has fewer than 2 dimensions, and with a RuntimeError where
// it cannot be seen so without a copy, as after a transpose of 3.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.orthogonal_.
func Orthogonal_(t gotorch.Tensor, opts ...OrthogonalOptions) gotorch.Tensor {
	const op = "nninit.Orthogonal_"
	opt := args.Option(opts)
	gain := args.Float(op, "Gain", opt.Gain, 1)
	if t.Dim() < 2 {
		panic(args.ValueError(op, "only tensors with 2 or more dimensions are supported, got shape %v", t.Shape()))
	}
	if t.Numel() == 0 {
		return t
	}
	return inPlace(t, func() {
		rows := t.Size(0)
		columns := t.Numel() / rows
		random := gotorch.Empty([]int64{rows, columns}, gotorch.TensorOptions{DType: t.DType(), Device: t.Device()})
		random.Normal_(gotorch.Normal_Options{Generator: opt.Generator})
		if rows < columns {
			random = random.Transpose(0, 1)
		}
		q, r := gotorch.LinalgQR(random)
		// The signs make all orthogonal matrices equally likely (Mezzadri, 2007).
		q.Mul_(r.Diagonal().Sign())
		if rows < columns {
			q = q.Transpose(0, 1)
		}
		t.View([]int64{rows, columns}).Copy_(q)
		t.MulScalar_(gain)
	})
}

// SparseOptions are the arguments of [Sparse_] that have defaults.
type SparseOptions struct {
	Std       gotorch.Scalar     // default: 0.01
	Generator *gotorch.Generator // of the numbers; their places come from the default one
}

// Sparse_ fills t from a normal distribution, and then the part sparsity of each column with zeros. It
// panics with a ValueError if t has not 2 dimensions, or if sparsity is negative or no number.
//
// See https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.sparse_.
func Sparse_(t gotorch.Tensor, sparsity float64, opts ...SparseOptions) gotorch.Tensor {
	const op = "nninit.Sparse_"
	opt := args.Option(opts)
	std := args.Float(op, "Std", opt.Std, 0.01)
	if t.Dim() != 2 {
		panic(args.ValueError(op, "only tensors with 2 dimensions are supported, got shape %v", t.Shape()))
	}
	if !(sparsity >= 0) {
		panic(args.ValueError(op, "sparsity must not be negative, but got %v", sparsity))
	}
	rows, columns := t.Size(0), t.Size(1)
	zeros := int64(math.Ceil(min(sparsity, 1) * float64(rows)))
	return inPlace(t, func() {
		t.Normal_(gotorch.Normal_Options{Std: &std, Generator: opt.Generator})
		for column := range columns {
			places := gotorch.Randperm(rows).Narrow(0, 0, zeros)
			t.Select(1, column).IndexFill_(0, places.To(t.Device()), 0)
		}
	})
}
