package nn

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/nn/internal/fields"
)

// channelNorm is what batch and instance normalization have in common.
type channelNorm struct {
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

	op         string
	directions int // 0: any number
	lazy       laziness
}

// BatchNormNd is what the batch normalizations have in common.
type BatchNormNd struct {
	channelNorm
	sum func(gotorch.Tensor) // of a SyncBatchNorm of several ranks: adds up over them, in place
}

func (m *BatchNormNd) batchNorm() fields.BatchNorm {
	return fields.BatchNorm{RunningMean: m.RunningMean, RunningVar: m.RunningVar, Weight: m.Weight, Bias: m.Bias, Eps: m.Eps, NumFeatures: m.NumFeatures}
}

// BatchNormOptions are the arguments of the batch normalizations that have defaults.
type BatchNormOptions struct {
	Eps                 gotorch.Scalar // added to the variance; default: 1e-5
	Momentum            gotorch.Scalar // default: 0.1
	CumulativeAverage   bool           // PyTorch's momentum=None
	NoAffine            bool           // neither weight nor bias
	NoTrackRunningStats bool           // use the batch's own statistics in evaluation mode too
	Device              gotorch.Device
	DType               gotorch.DType
	NoBias              bool
}

func (o BatchNormOptions) full() BatchNormOptions { return o }

// InstanceNormNd is what the instance normalizations have in common.
type InstanceNormNd struct{ channelNorm }

// InstanceNormOptions are the arguments of the instance normalizations that have defaults.
type InstanceNormOptions struct {
	Eps               gotorch.Scalar // added to the variance; default: 1e-5
	Momentum          gotorch.Scalar // default: 0.1
	CumulativeAverage bool           // PyTorch's momentum=None
	Affine            bool           // weight and bias
	TrackRunningStats bool           // keep running statistics, for evaluation mode
	Device            gotorch.Device
	DType             gotorch.DType
	NoBias            bool
}

func (o InstanceNormOptions) full() BatchNormOptions {
	return BatchNormOptions{Eps: o.Eps, Momentum: o.Momentum, CumulativeAverage: o.CumulativeAverage, NoAffine: !o.Affine,
		NoTrackRunningStats: !o.TrackRunningStats, Device: o.Device, DType: o.DType, NoBias: o.NoBias}
}

func (m *channelNorm) setUp(op string, directions int, numFeatures int64, opt BatchNormOptions) {
	if opt.CumulativeAverage && args.Given(opt.Momentum) {
		panic(args.ValueError(op, "Momentum and CumulativeAverage exclude each other"))
	}
	m.op, m.directions = op, directions
	m.lazy.waits.Store(numFeatures == lazily)
	m.Eps = args.Float(op, "Eps", opt.Eps, 1e-5)
	m.Momentum = args.Float(op, "Momentum", opt.Momentum, 0.1)
	m.CumulativeAverage = opt.CumulativeAverage
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	one := func() gotorch.Tensor { return gotorch.Empty([]int64{numFeatures}, create) }
	if m.isLazy() {
		one = func() gotorch.Tensor { return uninitialized(create) }
	} else {
		m.NumFeatures = numFeatures
	}
	if !opt.NoAffine {
		m.Weight = one()
		if !opt.NoBias {
			m.Bias = one()
		}
	}
	if !opt.NoTrackRunningStats {
		m.RunningMean, m.RunningVar = one(), one()
		m.NumBatchesTracked = gotorch.Zeros([]int64{}, gotorch.TensorOptions{Device: opt.Device, DType: gotorch.Int64})
	}
	if !m.isLazy() {
		m.ResetParameters()
	}
}

func (m *channelNorm) isLazy() bool { return m.lazy.waits.Load() }

func (m *channelNorm) materialize(numFeatures int64) {
	m.lazy.end(func() {
		if m.Weight.T == nil && m.RunningMean.T == nil {
			return // PyTorch leaves NumFeatures at 0 too, where nothing depends on it
		}
		m.NumFeatures = numFeatures
		for _, t := range m.ofFeatures() {
			initialize(t, []int64{numFeatures})
		}
		m.ResetParameters()
	})
}

func (m *channelNorm) unshape() {
	m.NumFeatures = 0
	for _, t := range m.ofFeatures() {
		uninitialize(t)
	}
	m.lazy.waits.Store(true)
}

// ofFeatures returns the tensors with a number for each feature.
func (m *channelNorm) ofFeatures() []gotorch.Tensor {
	return []gotorch.Tensor{m.Weight, m.Bias, m.RunningMean, m.RunningVar}
}

func (m *channelNorm) openSize(shape func(name string) []int64) (int64, bool) {
	for _, name := range []string{"weight", "bias", "running_mean", "running_var"} {
		if s := shape(name); len(s) == 1 {
			return s[0], true
		}
	}
	return 0, false
}

func (m *channelNorm) className() string { return lazyName(m.isLazy(), m.self) }

// ResetRunningStats forgets the batches so far.
func (m *channelNorm) ResetRunningStats() {
	if m.RunningMean.T != nil {
		m.RunningMean.Zero_()
		m.RunningVar.Fill_(1)
		m.NumBatchesTracked.Zero_()
	}
}

// ResetParameters makes everything as it was at first.
func (m *channelNorm) ResetParameters() {
	m.ResetRunningStats()
	if m.Weight.T != nil {
		nninit.Ones_(m.Weight)
	}
	if m.Bias.T != nil {
		nninit.Zeros_(m.Bias)
	}
}

// checkDim panics with a ValueError unless x has as many dimensions as it should, without a batch too if
// unbatched says so.
func (m *channelNorm) checkDim(x gotorch.Tensor, batched, unbatched int64) {
	m.outer()
	n := x.Dim()
	switch {
	case m.directions == 0:
		if n < 2 {
			panic(args.ValueError(m.op, "expected at least 2D input (got %dD input)", n))
		}
	case n != batched && n != unbatched:
		if unbatched == batched {
			panic(args.ValueError(m.op, "expected %dD input (got %dD input)", batched, n))
		}
		panic(args.ValueError(m.op, "expected %dD or %dD input (got %dD input)", min(batched, unbatched), max(batched, unbatched), n))
	}
}

// DropRunningStats takes the running statistics away, as if the module had been made with
// NoTrackRunningStats.
func (m *BatchNormNd) DropRunningStats() {
	m.RunningMean, m.RunningVar, m.NumBatchesTracked = gotorch.Tensor{}, gotorch.Tensor{}, gotorch.Tensor{}
}

func (m *BatchNormNd) forward(x gotorch.Tensor) gotorch.Tensor {
	batched := int64(m.directions) + 2
	unbatched := batched
	if m.directions == 1 {
		unbatched = 2 // of (N, C), which has a batch and no length
	}
	m.checkDim(x, batched, unbatched)
	if m.isLazy() {
		m.materialize(found(m.op, x, 1))
	}
	opt := F.BatchNormOptions{
		Weight: m.Weight, Bias: m.Bias, RunningMean: m.RunningMean, RunningVar: m.RunningVar,
		Training: m.Training() || m.RunningMean.T == nil,
		Momentum: m.Momentum, Eps: m.Eps,
	}
	if m.CumulativeAverage {
		opt.Momentum = 0.0
	}
	if m.Training() && m.NumBatchesTracked.T != nil {
		m.NumBatchesTracked.AddScalar_(1)
		if m.CumulativeAverage {
			opt.Momentum = 1 / gotorch.Item[float64](m.NumBatchesTracked)
		}
	}
	if m.sum != nil && m.Training() {
		return m.together(x, opt)
	}
	return F.BatchNorm(x, opt)
}

func (m *InstanceNormNd) forward(x gotorch.Tensor) gotorch.Tensor {
	batched := int64(m.directions) + 2
	m.checkDim(x, batched, batched-1)
	channels := 1
	if x.Dim() != batched {
		channels = 0
	}
	if m.isLazy() {
		m.materialize(found(m.op, x, channels))
	}
	if n := x.Size(int64(channels)); n != m.NumFeatures && m.Weight.T != nil {
		panic(args.ValueError(m.op, "expected input's size at dim=%d to match num_features (%d), but got: %d", channels, m.NumFeatures, n))
	}
	if channels == 0 {
		x = x.Unsqueeze(0)
	}
	momentum := m.Momentum
	if m.CumulativeAverage {
		momentum = 0
	}
	x = F.InstanceNorm(x, F.InstanceNormOptions{
		RunningMean: m.RunningMean, RunningVar: m.RunningVar, Weight: m.Weight, Bias: m.Bias,
		NoUseInputStats: !m.Training() && m.RunningMean.T != nil, Momentum: momentum, Eps: m.Eps})
	if channels == 0 {
		x = x.SqueezeDim(0)
	}
	return x
}

// Files from before PyTorch 0.4.1 do not have the number of batches, and PyTorch loads them.
func (m *channelNorm) optionalKeys() []string { return []string{"num_batches_tracked"} }

// ExtraRepr returns what String writes between the parentheses.
func (m *channelNorm) ExtraRepr() string {
	momentum := pyFloat(m.Momentum)
	if m.CumulativeAverage {
		momentum = "None"
	}
	return fmt.Sprintf("%d, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s", m.NumFeatures, pyFloat(m.Eps),
		momentum, pyBool(m.Weight.T != nil), pyBool(m.Bias.T != nil), pyBool(m.RunningMean.T != nil))
}

// LayerNormModule is what [LayerNorm] makes.
type LayerNormModule struct {
	Module
	NormalizedShape []int64
	Eps             float64

	Weight gotorch.Tensor // (NormalizedShape...), or none
	Bias   gotorch.Tensor // (NormalizedShape...), or none
}

// LayerNormOptions are the arguments of [LayerNorm] that have defaults.
type LayerNormOptions struct {
	Eps                 gotorch.Scalar // added to the variance; default: 1e-5
	NoElementwiseAffine bool           // neither weight nor bias
	NoBias              bool
	Device              gotorch.Device
	DType               gotorch.DType
}

// LayerNorm gives the last dimensions, of the sizes normalizedShape, mean 0 and deviation 1, then each
// element its Weight, at first 1, and Bias, at first 0; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html.
func LayerNorm[K Sizes](normalizedShape K, opts ...LayerNormOptions) *LayerNormModule {
	const op = "nn.LayerNorm"
	opt := args.Option(opts)
	m := &LayerNormModule{NormalizedShape: ints(normalizedShape), Eps: args.Float(op, "Eps", opt.Eps, 1e-5)}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	if !opt.NoElementwiseAffine {
		m.Weight = gotorch.Empty(m.NormalizedShape, create)
		if !opt.NoBias {
			m.Bias = gotorch.Empty(m.NormalizedShape, create)
		}
	}
	m.ResetParameters()
	return Init(m)
}

// ResetParameters makes Weight ones and Bias zeros.
func (m *LayerNormModule) ResetParameters() { onesAndZeros(m.Weight, m.Bias) }

func onesAndZeros(weight, bias gotorch.Tensor) {
	if weight.T != nil {
		nninit.Ones_(weight)
	}
	if bias.T != nil {
		nninit.Zeros_(bias)
	}
}

// Forward returns F.LayerNorm of x.
func (m *LayerNormModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *LayerNormModule) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return F.LayerNorm(x, m.NormalizedShape, F.LayerNormOptions{Weight: m.Weight, Bias: m.Bias, Eps: m.Eps})
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *LayerNormModule) KeepsNothing() bool { return m.plain(m) }

// ExtraRepr returns what String writes between the parentheses.
func (m *LayerNormModule) ExtraRepr() string {
	return fmt.Sprintf("%s, eps=%s, elementwise_affine=%s, bias=%s", pyTuple(m.NormalizedShape), pyFloat(m.Eps),
		pyBool(m.Weight.T != nil), pyBool(m.Bias.T != nil))
}

// RMSNormModule is what [RMSNorm] makes.
type RMSNormModule struct {
	Module
	NormalizedShape []int64
	Eps             gotorch.Scalar // nil: what the dtype can tell from zero

	Weight gotorch.Tensor // (NormalizedShape...), or none
}

// RMSNormOptions are the arguments of [RMSNorm] that have defaults.
type RMSNormOptions struct {
	Eps                 gotorch.Scalar // added to the mean of squares; default: what the dtype can tell from zero
	NoElementwiseAffine bool           // no weight
	Device              gotorch.Device
	DType               gotorch.DType
}

// RMSNorm divides the last dimensions, of the sizes normalizedShape, by the root of the mean of their
// squares, and multiplies each element by its Weight, at first 1; the shape stays.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html.
func RMSNorm[K Sizes](normalizedShape K, opts ...RMSNormOptions) *RMSNormModule {
	opt := args.Option(opts)
	m := &RMSNormModule{NormalizedShape: ints(normalizedShape)}
	if eps := args.FloatPointer("nn.RMSNorm", "Eps", opt.Eps); eps != nil {
		m.Eps = *eps
	}
	if !opt.NoElementwiseAffine {
		m.Weight = gotorch.Empty(m.NormalizedShape, gotorch.TensorOptions{Device: opt.Device, DType: opt.DType})
	}
	m.ResetParameters()
	return Init(m)
}

// ResetParameters makes Weight ones.
func (m *RMSNormModule) ResetParameters() { onesAndZeros(m.Weight, gotorch.Tensor{}) }

// Forward returns F.RMSNorm of x.
func (m *RMSNormModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *RMSNormModule) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return F.RMSNorm(x, m.NormalizedShape, F.RMSNormOptions{Weight: m.Weight, Eps: m.Eps})
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *RMSNormModule) KeepsNothing() bool { return m.plain(m) }

// ExtraRepr returns what String writes between the parentheses.
func (m *RMSNormModule) ExtraRepr() string {
	return fmt.Sprintf("%s, eps=%s, elementwise_affine=%s", pyTuple(m.NormalizedShape), pyOptionalFloat(m.Eps), pyBool(m.Weight.T != nil))
}

// GroupNormModule is what [GroupNorm] makes.
type GroupNormModule struct {
	Module
	NumGroups, NumChannels int64
	Eps                    float64

	Weight gotorch.Tensor // (NumChannels), or none
	Bias   gotorch.Tensor // (NumChannels), or none
}

// GroupNormOptions are the arguments of [GroupNorm] that have defaults.
type GroupNormOptions struct {
	Eps      gotorch.Scalar // added to the variance; default: 1e-5
	NoAffine bool           // neither weight nor bias
	Device   gotorch.Device
	DType    gotorch.DType
	NoBias   bool
}

// GroupNorm gives each of numGroups groups of channels of (N, C, *) mean 0 and deviation 1, then each channel
// its Weight, at first 1, and Bias, at first 0; the shape stays. It panics with a ValueError if numChannels
// is no multiple of numGroups.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html.
func GroupNorm(numGroups, numChannels int64, opts ...GroupNormOptions) *GroupNormModule {
	const op = "nn.GroupNorm"
	opt := args.Option(opts)
	if numGroups <= 0 || numChannels%numGroups != 0 {
		panic(args.ValueError(op, "num_channels (%d) must be divisible by num_groups (%d)", numChannels, numGroups))
	}
	m := &GroupNormModule{NumGroups: numGroups, NumChannels: numChannels, Eps: args.Float(op, "Eps", opt.Eps, 1e-5)}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	if !opt.NoAffine {
		m.Weight = gotorch.Empty([]int64{numChannels}, create)
		if !opt.NoBias {
			m.Bias = gotorch.Empty([]int64{numChannels}, create)
		}
	}
	m.ResetParameters()
	return Init(m)
}

// ResetParameters makes Weight ones and Bias zeros.
func (m *GroupNormModule) ResetParameters() { onesAndZeros(m.Weight, m.Bias) }

// Forward returns F.GroupNorm of x.
func (m *GroupNormModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *GroupNormModule) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return F.GroupNorm(x, m.NumGroups, F.GroupNormOptions{Weight: m.Weight, Bias: m.Bias, Eps: m.Eps})
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *GroupNormModule) KeepsNothing() bool { return m.plain(m) }

// ExtraRepr returns what String writes between the parentheses.
func (m *GroupNormModule) ExtraRepr() string {
	return fmt.Sprintf("%d, %d, eps=%s, affine=%s, bias=%s", m.NumGroups, m.NumChannels, pyFloat(m.Eps),
		pyBool(m.Weight.T != nil), pyBool(m.Bias.T != nil))
}
