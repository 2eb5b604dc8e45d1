package optim

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// MuonOptimizer is what [Muon] makes.
type MuonOptimizer struct {
	Base[MuonGroup, *MuonGroup]
}

// MuonGroup is parameters that are changed by the same rule. Its options may be changed between steps.
type MuonGroup struct {
	Common
	LR             float64    `optim:"lr"`
	WeightDecay    float64    `optim:"weight_decay"`
	Momentum       float64    `optim:"momentum"`
	Nesterov       bool       `optim:"nesterov"`
	NsCoefficients [3]float64 `optim:"ns_coefficients"`
	Eps            float64    `optim:"eps"`
	NsSteps        int64      `optim:"ns_steps"`
	AdjustLRFn     string     `optim:"adjust_lr_fn|None"`
}

// MuonOptions are the arguments of [Muon] that have defaults.
type MuonOptions struct {
	LR             gotorch.Scalar // the learning rate; default: 1e-3
	WeightDecay    gotorch.Scalar // LR times this is the part of a parameter that each step takes away; default: 0.1
	Momentum       gotorch.Scalar // how slowly the average gradient follows; default: 0.95
	NoNesterov     bool           // do not look ahead along the momentum
	NsCoefficients *[3]float64    // of the polynomial that makes updates orthogonal; default: 3.4445, -4.775, 2.0315
	Eps            gotorch.Scalar // the least norm of an update; default: 1e-7
	NsSteps        gotorch.Scalar // how often the polynomial is applied, less than 100; default: 5
	AdjustLRFn     string         // how steps grow with a matrix: "original", "match_rms_adamw" or "spectral_unclamped"; default: "original"
}

// Muon is for matrices: it makes the momentum of each orthogonal, nearly, by a few steps of Newton and Schulz in
// bfloat16. It panics with a ValueError if an option is out of range, if params is empty, or if a parameter is no
// matrix, is the result of a computation or comes twice.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html.
func Muon(params []gotorch.Tensor, opts ...MuonOptions) *MuonOptimizer {
	o := &MuonOptimizer{}
	o.made("optim.Muon", MuonGroup{LR: 1e-3, WeightDecay: 0.1, Momentum: 0.95, Nesterov: true,
		NsCoefficients: [3]float64{3.4445, -4.775, 2.0315}, Eps: 1e-7, NsSteps: 5}, func() { o.AddGroup(params, opts...) })
	return o
}

// AddGroup adds parameters with options of their own and returns their group, whose fields are all of its options.
// An option that is left out is what [Muon] was given, as in PyTorch's add_param_group. It panics as [Muon] does, but params may be empty.
func (o *MuonOptimizer) AddGroup(params []gotorch.Tensor, opts ...MuonOptions) *MuonGroup {
	return o.addGroup(params, args.Option(opts))
}

func (g *MuonGroup) check(op string) {
	notNegative(op, "learning rate", g.LR)
	notNegative(op, "momentum", g.Momentum)
	notNegative(op, "weight decay", g.WeightDecay)
	switch g.AdjustLRFn {
	case "", "original", "match_rms_adamw", "spectral_unclamped":
	default:
		panic(args.ValueError(op, "adjust learning rate function %s is not supported", g.AdjustLRFn))
	}
	if g.NsSteps >= 100 {
		panic(args.ValueError(op, "number of steps must be less than 100 for computational efficiency, but is %d", g.NsSteps))
	}
	for i, p := range g.Params {
		if p.Dim() != 2 {
			panic(args.ValueError(op, "Muon only supports 2D parameters whereas parameter %d has the size %v", i, p.Shape()))
		}
		if p.DType().IsComplex() {
			panic(args.Errorf(op, gotorch.RuntimeError, "Muon does not support complex parameters, as parameter %d", i))
		}
	}
}

func (g *MuonGroup) counted() bool { return false }

// The momentum is laid out in memory as the first gradient is.
func (g *MuonGroup) slots() []slot {
	return []slot{{name: "momentum_buffer", begin: func(p gotorch.Tensor) gotorch.Tensor { return zerosLike(p.Grad()) }}}
}

func (g *MuonGroup) step(grads []gotorch.Tensor) {
	eachStep(g, grads, false, func(p, grad gotorch.Tensor, m *memory) {
		buffer := m.tensors[0]
		buffer.LerpScalar_(grad, 1-g.Momentum)
		update := buffer
		if g.Nesterov {
			update = grad.LerpScalar(buffer, g.Momentum)
		}
		update = g.orthogonal(update)
		scaleOne(p, 1-float64(g.LR*g.WeightDecay))
		p.Add_(update, gotorch.AddOptions{Alpha: -g.LR * g.ratio(float64(p.Size(0)), float64(p.Size(1)))})
	})
}

// orthogonal returns a matrix whose singular values are nearly 1, with the singular vectors of update.
func (g *MuonGroup) orthogonal(update gotorch.Tensor) gotorch.Tensor {
	a, b, c := g.NsCoefficients[0], g.NsCoefficients[1], g.NsCoefficients[2]
	x := update.To(gotorch.ToOptions{DType: gotorch.BFloat16, Copy: true})
	tall := update.Size(0) > update.Size(1)
	if tall {
		x = x.Transpose2D()
	}
	x.Div_(gotorch.LinalgVectorNorm(x, gotorch.LinalgVectorNormOptions{Ord: 2.0}).Clamp(gotorch.ClampOptions{Min: g.Eps}))
	for range g.NsSteps {
		gram := x.MatMul(x.Transpose2D())
		change := gotorch.AddMM(gram, gram, gram, gotorch.AddMMOptions{Beta: b, Alpha: c})
		x = gotorch.AddMM(x, change, x, gotorch.AddMMOptions{Beta: a})
	}
	if tall {
		x = x.Transpose2D()
	}
	return x
}

// ratio is by how much steps are longer for a matrix of some size.
func (g *MuonGroup) ratio(rows, columns float64) float64 {
	switch g.AdjustLRFn {
	case "match_rms_adamw":
		return 0.2 * math.Sqrt(max(rows, columns))
	case "spectral_unclamped":
		return math.Sqrt(rows / columns)
	}
	return math.Sqrt(max(1, rows/columns))
}
