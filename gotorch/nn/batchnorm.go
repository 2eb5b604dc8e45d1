package nn

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
)

// BatchNorm2dModule is what [BatchNorm2d] makes.
type BatchNorm2dModule struct {
	Module
	NumFeatures       int64
	Eps               float64
	Momentum          float64 // the part of the running statistics that a batch replaces
	CumulativeAverage bool    // all batches count the same, instead of Momentum

	Weight gotorch.Tensor // (NumFeatures), or none
	Bias   gotorch.Tensor // (NumFeatures), or none

	RunningMean       gotorch.Tensor `nn:",buffer"` // (NumFeatures), or none
	RunningVar        gotorch.Tensor `nn:",buffer"` // (NumFeatures), or none
	NumBatchesTracked gotorch.Tensor `nn:",buffer"` // an int64 of no dimensions, or none
}

// BatchNorm2dOptions are the arguments of [BatchNorm2d] that have defaults.
type BatchNorm2dOptions struct {
	Eps                 gotorch.Scalar // added to the variance; default: 1e-5
	Momentum            gotorch.Scalar // default: 0.1
	CumulativeAverage   bool           // PyTorch's momentum=None
	NoAffine            bool           // neither weight nor bias
	NoBias              bool
	NoTrackRunningStats bool // use the batch's own statistics in evaluation mode too
	Device              gotorch.Device
	DType               gotorch.DType
}

// BatchNorm2d gives each channel of (N, C, H, W) the mean Bias, at first 0, and the deviation Weight,
// at first 1. In training mode it goes by the mean and variance of the batch, and keeps running ones,
// by which it goes in evaluation mode. The shape stays. It panics with a ValueError for CumulativeAverage
// with a Momentum.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html.
func BatchNorm2d(numFeatures int64, opts ...BatchNorm2dOptions) *BatchNorm2dModule {
	const op = "nn.BatchNorm2d"
	opt := args.Option(opts)
	if opt.CumulativeAverage && args.Given(opt.Momentum) {
		panic(args.ValueError(op, "Momentum and CumulativeAverage exclude each other"))
	}
	m := &BatchNorm2dModule{
		NumFeatures:       numFeatures,
		Eps:               args.Float(op, "Eps", opt.Eps, 1e-5),
		Momentum:          args.Float(op, "Momentum", opt.Momentum, 0.1),
		CumulativeAverage: opt.CumulativeAverage,
	}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	size := []int64{numFeatures}
	if !opt.NoAffine {
		m.Weight = gotorch.Empty(size, create)
		if !opt.NoBias {
			m.Bias = gotorch.Empty(size, create)
		}
	}
	if !opt.NoTrackRunningStats {
		m.RunningMean, m.RunningVar = gotorch.Empty(size, create), gotorch.Empty(size, create)
		m.NumBatchesTracked = gotorch.Empty(nil, gotorch.TensorOptions{Device: opt.Device, DType: gotorch.Int64})
	}
	m.ResetParameters()
	return Init(m)
}

// ResetRunningStats forgets the batches so far.
func (m *BatchNorm2dModule) ResetRunningStats() {
	if m.RunningMean.T != nil {
		m.RunningMean.Zero_()
		m.RunningVar.Fill_(1)
		m.NumBatchesTracked.Zero_()
	}
}

// ResetParameters makes everything as it was at first.
func (m *BatchNorm2dModule) ResetParameters() {
	m.ResetRunningStats()
	if m.Weight.T != nil {
		nninit.Ones_(m.Weight)
	}
	if m.Bias.T != nil {
		nninit.Zeros_(m.Bias)
	}
}

// Forward normalises x. It panics with a ValueError if x has not four dimensions, or if there is only
// one value per channel to go by.
func (m *BatchNorm2dModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	if n := x.Dim(); n != 4 {
		panic(args.ValueError("nn.BatchNorm2d", "expected 4D input (got %dD input)", n))
	}
	opt := F.BatchNormOptions{
		Weight: m.Weight, Bias: m.Bias, RunningMean: m.RunningMean, RunningVar: m.RunningVar,
		Training: m.Training() || m.RunningMean.T == nil,
		Momentum: m.Momentum, Eps: m.Eps,
	}
	if m.Training() && m.NumBatchesTracked.T != nil {
		m.NumBatchesTracked.AddScalar_(1)
		if m.CumulativeAverage {
			opt.Momentum = 1 / gotorch.Item[float64](m.NumBatchesTracked)
		}
	}
	return F.BatchNorm(x, opt)
}

// Files from before PyTorch 0.4.1 do not have the number of batches, and PyTorch loads them.
func (m *BatchNorm2dModule) optionalKeys() []string { return []string{"num_batches_tracked"} }

// ExtraRepr returns what String writes between the parentheses.
func (m *BatchNorm2dModule) ExtraRepr() string {
	momentum := pyFloat(m.Momentum)
	if m.CumulativeAverage {
		momentum = "None"
	}
	return fmt.Sprintf("%d, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s", m.NumFeatures, pyFloat(m.Eps),
		momentum, pyBool(m.Weight.T != nil), pyBool(m.Bias.T != nil), pyBool(m.RunningMean.T != nil))
}
