package nn

import (
	"fmt"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/nn/utils/rnn"
)

// RNNNonlinearity is what an [RNN] does to each state.
type RNNNonlinearity string

// PyTorch's nonlinearities. The default is tanh.
const (
	RNNTanh RNNNonlinearity = "tanh"
	RNNReLU RNNNonlinearity = "relu"
)

func (n RNNNonlinearity) check(op string) RNNNonlinearity {
	switch n {
	case "":
		return RNNTanh
	case RNNTanh, RNNReLU:
		return n
	}
	panic(args.ValueError(op, "unknown nonlinearity %q: select from tanh and relu", n))
}

// RNNBase is what the recurrent layers have in common. Its parameters are weight_ih_l0, weight_hh_l0, bias_ih_l0
// and bias_hh_l0, with another number for each layer, and weight_hr_l0 for projections; those of the other
// direction end in _reverse.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.RNNBase.html.
type RNNBase struct {
	Module
	InputSize, HiddenSize, NumLayers int64
	HasBias, BatchFirst              bool
	Dropout                          float64 // of what all layers but the last return, while training
	Bidirectional                    bool
	ProjSize                         int64 // 0: none

	op         string
	parameters ordered `nn:"-"` // see held
}

func (m *RNNBase) held() *ordered { return &m.parameters }

// recurrentOptions are the options of all recurrent layers.
type recurrentOptions struct {
	numLayers, projSize            gotorch.Scalar
	noBias, batchFirst, directions bool
	dropout                        float64
	device                         gotorch.Device
	dtype                          gotorch.DType
}

func (m *RNNBase) setUp(op string, gates, inputSize, hiddenSize int64, opt recurrentOptions) {
	m.op = op
	m.InputSize, m.HiddenSize, m.NumLayers = inputSize, hiddenSize, args.Int(op, "NumLayers", opt.numLayers, 1)
	m.HasBias, m.BatchFirst, m.Dropout, m.Bidirectional = !opt.noBias, opt.batchFirst, opt.dropout, opt.directions
	m.ProjSize = args.Int(op, "ProjSize", opt.projSize, 0)
	switch {
	case !(m.Dropout >= 0 && m.Dropout <= 1):
		panic(args.ValueError(op, "dropout should be a number in range [0, 1] representing the probability of an element being zeroed, but is %v", m.Dropout))
	case inputSize <= 0:
		panic(args.ValueError(op, "input_size must be greater than zero, but is %d", inputSize))
	case hiddenSize <= 0:
		panic(args.ValueError(op, "hidden_size must be greater than zero, but is %d", hiddenSize))
	case m.NumLayers <= 0:
		panic(args.ValueError(op, "num_layers must be greater than zero, but is %d", m.NumLayers))
	case m.ProjSize < 0:
		panic(args.ValueError(op, "proj_size should be a positive integer or zero to disable projections, but is %d", m.ProjSize))
	case m.ProjSize >= hiddenSize:
		panic(args.ValueError(op, "proj_size has to be smaller than hidden_size, but is %d", m.ProjSize))
	}
	create := gotorch.TensorOptions{Device: opt.device, DType: opt.dtype}
	out := m.outputSize()
	for layer := range m.NumLayers {
		in := inputSize
		if layer > 0 {
			in = out * m.directions()
		}
		for _, suffix := range []string{"", "_reverse"}[:m.directions()] {
			add := func(name string, shape ...int64) {
				m.parameters.add(fmt.Sprintf("%s_l%d%s", name, layer, suffix), gotorch.Empty(shape, create))
			}
			add("weight_ih", gates*hiddenSize, in)
			add("weight_hh", gates*hiddenSize, out)
			if m.HasBias {
				add("bias_ih", gates*hiddenSize)
				add("bias_hh", gates*hiddenSize)
			}
			if m.ProjSize > 0 {
				add("weight_hr", m.ProjSize, hiddenSize)
			}
		}
	}
	m.ResetParameters()
}

func (m *RNNBase) directions() int64 {
	if m.Bidirectional {
		return 2
	}
	return 1
}

// outputSize is how long the state is that a layer hands on.
func (m *RNNBase) outputSize() int64 {
	if m.ProjSize > 0 {
		return m.ProjSize
	}
	return m.HiddenSize
}

// ResetParameters draws all parameters anew, uniform between −1/√HiddenSize and 1/√HiddenSize.
func (m *RNNBase) ResetParameters() {
	bound := 1 / math.Sqrt(float64(m.HiddenSize))
	for _, t := range m.parameters.tensors {
		nninit.Uniform_(t, nninit.UniformOptions{A: -bound, B: bound})
	}
}

// sequence is what a recurrent layer runs over: a tensor with a batch, or packed data.
type sequence struct {
	data       gotorch.Tensor
	batchSizes gotorch.Tensor // none: data is not packed
	batch      int64
	unbatched  bool
}

// begin checks what a layer is to run over and the states, of which there are some or none, and returns both
// with a batch. sizes are those of the states.
func (m *RNNBase) begin(x gotorch.Tensor, packed *rnn.PackedSequence, states []gotorch.Tensor, sizes ...int64) (sequence, []gotorch.Tensor) {
	m.outer()
	if len(m.parameters.tensors) == 0 {
		panic(typeError("nn.RNNBase", "%T was not made by its function, as nn.LSTM", m.self))
	}
	s := sequence{data: x}
	if packed != nil {
		s.data, s.batchSizes = packed.Data, packed.BatchSizes
		s.batch = gotorch.Item[int64](packed.BatchSizes.Select(0, 0))
	}
	if len(states) != 0 && len(states) != len(sizes) {
		panic(args.ValueError(m.op, "expected %d initial states or none, got %d", len(sizes), len(states)))
	}
	if want, got := m.parameters.tensors[0].DType(), s.data.DType(); want != got && !gotorch.AutocastEnabled(s.data.Device()) {
		panic(args.ValueError(m.op, "input dtype (%v) does not match weight dtype (%v): convert the input with x.To, or the model with its To", got, want))
	}
	if packed == nil {
		switch n := x.Dim(); n {
		case 3:
		case 2:
			s.unbatched = true
			s.data = x.Unsqueeze(m.batchDim())
		default:
			panic(args.ValueError(m.op, "expected input to be 2D or 3D, got %dD instead", n))
		}
		s.batch = s.data.Size(m.batchDim())
	} else if n := s.data.Dim(); n != 2 {
		panic(runtimeError(m.op, "input must have 2 dimensions, got %d", n))
	}
	if n := s.data.Size(-1); n != m.InputSize {
		panic(runtimeError(m.op, "input.size(-1) must be equal to input_size. Expected %d, got %d", m.InputSize, n))
	}
	full := make([]gotorch.Tensor, len(sizes))
	for i, size := range sizes {
		shape := []int64{m.NumLayers * m.directions(), s.batch, size}
		if len(states) == 0 {
			full[i] = gotorch.Zeros(shape, gotorch.TensorOptions{DType: s.data.DType(), Device: s.data.Device()})
			continue
		}
		h := states[i]
		want := int64(3)
		if s.unbatched {
			want = 2
		}
		if n := h.Dim(); n != want {
			panic(runtimeError(m.op, "for an input of %d dimensions, states should be %d-D too, but got a %d-D tensor", x.Dim(), want, n))
		}
		if s.unbatched {
			h = h.Unsqueeze(1)
		}
		if got := h.Shape(); got[0] != shape[0] || got[1] != shape[1] || got[2] != shape[2] {
			panic(runtimeError(m.op, "expected state %d of size %v, got %v", i, shape, got))
		}
		// What is of another size would be permuted as well as the right one.
		if packed != nil && packed.SortedIndices.T != nil {
			h = h.IndexSelect(1, packed.SortedIndices)
		}
		full[i] = h
	}
	return s, full
}

func (m *RNNBase) batchDim() int64 {
	if m.BatchFirst {
		return 0
	}
	return 1
}

// end takes the batch out of results that begin has put there, and restores the order of packed states.
func (m *RNNBase) end(s sequence, packed *rnn.PackedSequence, out gotorch.Tensor, states []gotorch.Tensor) []gotorch.Tensor {
	if s.unbatched {
		out = out.SqueezeDim(m.batchDim())
	}
	results := []gotorch.Tensor{out}
	for _, h := range states {
		switch {
		case s.unbatched:
			h = h.SqueezeDim(1)
		case packed != nil && packed.UnsortedIndices.T != nil:
			h = h.IndexSelect(1, packed.UnsortedIndices)
		}
		results = append(results, h)
	}
	return results
}

// repack is packed with what a layer made of its data.
func repack(packed rnn.PackedSequence, data gotorch.Tensor) rnn.PackedSequence {
	packed.Data = data
	return packed
}

func runtimeError(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(format, values...)}
}

// ExtraRepr returns what String writes between the parentheses.
func (m *RNNBase) ExtraRepr() string {
	s := fmt.Sprintf("%d, %d", m.InputSize, m.HiddenSize)
	s += when(m.ProjSize != 0, fmt.Sprintf(", proj_size=%d", m.ProjSize))
	s += when(m.NumLayers != 1, fmt.Sprintf(", num_layers=%d", m.NumLayers))
	s += when(!m.HasBias, ", bias=False")
	s += when(m.BatchFirst, ", batch_first=True")
	s += when(m.Dropout != 0, ", dropout="+pyFloat(m.Dropout))
	return s + when(m.Bidirectional, ", bidirectional=True")
}

// call runs forward with the layer's hooks, if it has any.
func (m *RNNBase) call(self Modular, forward func(in []gotorch.Tensor) []gotorch.Tensor, in ...gotorch.Tensor) []gotorch.Tensor {
	if m.hooked(self) {
		return m.around(forward, in...)
	}
	return forward(in)
}

// RNNModule is what [RNN] makes.
type RNNModule struct {
	RNNBase
	Nonlinearity RNNNonlinearity
}

// RNNOptions are the arguments of [RNN] that have defaults.
type RNNOptions struct {
	NumLayers     gotorch.Scalar // default: 1
	Nonlinearity  RNNNonlinearity
	NoBias        bool
	BatchFirst    bool    // sequences are (N, T, *) rather than (T, N, *)
	Dropout       float64 // of what all layers but the last return, while training
	Bidirectional bool    // run over the sequence in both directions
	Device        gotorch.Device
	DType         gotorch.DType
}

// RNN is a recurrent network: each state is tanh (or relu) of W_ih·x + b_ih + W_hh·h + b_hh. Parameters begin
// uniform between −1/√hiddenSize and 1/√hiddenSize. It panics with a ValueError for sizes that are not positive.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html.
func RNN(inputSize, hiddenSize int64, opts ...RNNOptions) *RNNModule {
	const op = "nn.RNN"
	opt := args.Option(opts)
	m := &RNNModule{Nonlinearity: opt.Nonlinearity.check(op)}
	m.setUp(op, 1, inputSize, hiddenSize, recurrentOptions{numLayers: opt.NumLayers, noBias: opt.NoBias, batchFirst: opt.BatchFirst,
		dropout: opt.Dropout, directions: opt.Bidirectional, device: opt.Device, dtype: opt.DType})
	return Init(m)
}

// Forward runs over a sequence, (T, N, InputSize), or (N, T, InputSize) with BatchFirst, also without N, from
// a state of (NumLayers·directions, N, HiddenSize), by default zeros. It returns the states of the last layer
// after each step, (T, N, directions·HiddenSize), and those of all layers after the last.
func (m *RNNModule) Forward(x gotorch.Tensor, state ...gotorch.Tensor) (out, h gotorch.Tensor) {
	r := m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor { return m.run(in[0], nil, in[1:]) }, append([]gotorch.Tensor{x}, state...)...)
	return r[0], r[1]
}

// ForwardPacked is Forward for sequences of different lengths.
func (m *RNNModule) ForwardPacked(x rnn.PackedSequence, state ...gotorch.Tensor) (out rnn.PackedSequence, h gotorch.Tensor) {
	r := m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor { x := repack(x, in[0]); return m.run(in[0], &x, in[1:]) }, append([]gotorch.Tensor{x.Data}, state...)...)
	return repack(x, r[0]), r[1]
}

func (m *RNNModule) run(x gotorch.Tensor, packed *rnn.PackedSequence, states []gotorch.Tensor) []gotorch.Tensor {
	s, full := m.begin(x, packed, states, m.HiddenSize)
	var out, h gotorch.Tensor
	params, training := m.parameters.tensors, m.Training()
	switch relu := m.Nonlinearity == RNNReLU; {
	case packed != nil && relu:
		out, h = gotorch.RNNReLUData(s.data, s.batchSizes, full[0], params, m.HasBias, m.NumLayers, m.Dropout, training, m.Bidirectional)
	case packed != nil:
		out, h = gotorch.RNNTanhData(s.data, s.batchSizes, full[0], params, m.HasBias, m.NumLayers, m.Dropout, training, m.Bidirectional)
	case relu:
		out, h = gotorch.RNNReLU(s.data, full[0], params, m.HasBias, m.NumLayers, m.Dropout, training, m.Bidirectional, m.BatchFirst)
	default:
		out, h = gotorch.RNNTanh(s.data, full[0], params, m.HasBias, m.NumLayers, m.Dropout, training, m.Bidirectional, m.BatchFirst)
	}
	return m.end(s, packed, out, []gotorch.Tensor{h})
}

// GRUModule is what [GRU] makes.
type GRUModule struct{ RNNBase }

// GRUOptions are the arguments of [GRU] that have defaults.
type GRUOptions struct {
	NumLayers     gotorch.Scalar // default: 1
	NoBias        bool
	BatchFirst    bool    // sequences are (N, T, *) rather than (T, N, *)
	Dropout       float64 // of what all layers but the last return, while training
	Bidirectional bool    // run over the sequence in both directions
	Device        gotorch.Device
	DType         gotorch.DType
}

// GRU is a network of gated recurrent units. Parameters begin as those of [RNN], and it panics as that does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html.
func GRU(inputSize, hiddenSize int64, opts ...GRUOptions) *GRUModule {
	opt := args.Option(opts)
	m := &GRUModule{}
	m.setUp("nn.GRU", 3, inputSize, hiddenSize, recurrentOptions{numLayers: opt.NumLayers, noBias: opt.NoBias, batchFirst: opt.BatchFirst,
		dropout: opt.Dropout, directions: opt.Bidirectional, device: opt.Device, dtype: opt.DType})
	return Init(m)
}

// Forward runs over a sequence as [RNNModule.Forward] does.
func (m *GRUModule) Forward(x gotorch.Tensor, state ...gotorch.Tensor) (out, h gotorch.Tensor) {
	r := m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor { return m.run(in[0], nil, in[1:]) }, append([]gotorch.Tensor{x}, state...)...)
	return r[0], r[1]
}

// ForwardPacked is Forward for sequences of different lengths.
func (m *GRUModule) ForwardPacked(x rnn.PackedSequence, state ...gotorch.Tensor) (out rnn.PackedSequence, h gotorch.Tensor) {
	r := m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor { x := repack(x, in[0]); return m.run(in[0], &x, in[1:]) }, append([]gotorch.Tensor{x.Data}, state...)...)
	return repack(x, r[0]), r[1]
}

func (m *GRUModule) run(x gotorch.Tensor, packed *rnn.PackedSequence, states []gotorch.Tensor) []gotorch.Tensor {
	s, full := m.begin(x, packed, states, m.HiddenSize)
	var out, h gotorch.Tensor
	if packed != nil {
		out, h = gotorch.GRUData(s.data, s.batchSizes, full[0], m.parameters.tensors, m.HasBias, m.NumLayers, m.Dropout, m.Training(), m.Bidirectional)
	} else {
		out, h = gotorch.GRU(s.data, full[0], m.parameters.tensors, m.HasBias, m.NumLayers, m.Dropout, m.Training(), m.Bidirectional, m.BatchFirst)
	}
	return m.end(s, packed, out, []gotorch.Tensor{h})
}

// LSTMModule is what [LSTM] makes.
type LSTMModule struct{ RNNBase }

// LSTMOptions are the arguments of [LSTM] that have defaults.
type LSTMOptions struct {
	NumLayers     gotorch.Scalar // default: 1
	NoBias        bool
	BatchFirst    bool           // sequences are (N, T, *) rather than (T, N, *)
	Dropout       float64        // of what all layers but the last return, while training
	Bidirectional bool           // run over the sequence in both directions
	ProjSize      gotorch.Scalar // hidden states are projected to this size, less than hiddenSize; default: 0, not projected
	Device        gotorch.Device
	DType         gotorch.DType
}

// LSTM is a network with long short-term memory. Parameters begin as those of [RNN], and it panics as that
// does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html.
func LSTM(inputSize, hiddenSize int64, opts ...LSTMOptions) *LSTMModule {
	opt := args.Option(opts)
	m := &LSTMModule{}
	m.setUp("nn.LSTM", 4, inputSize, hiddenSize, recurrentOptions{numLayers: opt.NumLayers, noBias: opt.NoBias, batchFirst: opt.BatchFirst,
		dropout: opt.Dropout, directions: opt.Bidirectional, projSize: opt.ProjSize, device: opt.Device, dtype: opt.DType})
	return Init(m)
}

// Forward runs over a sequence, (T, N, InputSize), or (N, T, InputSize) with BatchFirst, also without N, from
// two states, by default zeros: the hidden one of (NumLayers·directions, N, HiddenSize), or ProjSize, and the
// cells of (NumLayers·directions, N, HiddenSize). It returns the hidden states of the last layer after each step,
// (T, N, directions·HiddenSize), and both of all layers after the last.
//
//	out, h, c := lstm.Forward(x)
//	out, h, c = lstm.Forward(next, h, c)
func (m *LSTMModule) Forward(x gotorch.Tensor, state ...gotorch.Tensor) (out, h, c gotorch.Tensor) {
	r := m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor { return m.run(in[0], nil, in[1:]) }, append([]gotorch.Tensor{x}, state...)...)
	return r[0], r[1], r[2]
}

// ForwardPacked is Forward for sequences of different lengths.
func (m *LSTMModule) ForwardPacked(x rnn.PackedSequence, state ...gotorch.Tensor) (out rnn.PackedSequence, h, c gotorch.Tensor) {
	r := m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor { x := repack(x, in[0]); return m.run(in[0], &x, in[1:]) }, append([]gotorch.Tensor{x.Data}, state...)...)
	return repack(x, r[0]), r[1], r[2]
}

func (m *LSTMModule) run(x gotorch.Tensor, packed *rnn.PackedSequence, states []gotorch.Tensor) []gotorch.Tensor {
	s, full := m.begin(x, packed, states, m.outputSize(), m.HiddenSize)
	var out, h, c gotorch.Tensor
	if packed != nil {
		out, h, c = gotorch.LSTMData(s.data, s.batchSizes, full, m.parameters.tensors, m.HasBias, m.NumLayers, m.Dropout, m.Training(), m.Bidirectional)
	} else {
		out, h, c = gotorch.LSTM(s.data, full, m.parameters.tensors, m.HasBias, m.NumLayers, m.Dropout, m.Training(), m.Bidirectional, m.BatchFirst)
	}
	return m.end(s, packed, out, []gotorch.Tensor{h, c})
}

// RNNCellBase is what the cells have in common.
type RNNCellBase struct {
	Module
	InputSize, HiddenSize int64

	WeightIh gotorch.Tensor // (gates·HiddenSize, InputSize)
	WeightHh gotorch.Tensor // (gates·HiddenSize, HiddenSize)
	BiasIh   gotorch.Tensor // (gates·HiddenSize), or none
	BiasHh   gotorch.Tensor // (gates·HiddenSize), or none

	op string
}

func (m *RNNCellBase) setUp(op string, gates, inputSize, hiddenSize int64, noBias bool, create gotorch.TensorOptions) {
	if inputSize < 0 || hiddenSize < 0 {
		panic(args.ValueError(op, "sizes must not be negative, but are %d and %d", inputSize, hiddenSize))
	}
	m.op, m.InputSize, m.HiddenSize = op, inputSize, hiddenSize
	m.WeightIh = gotorch.Empty([]int64{gates * hiddenSize, inputSize}, create)
	m.WeightHh = gotorch.Empty([]int64{gates * hiddenSize, hiddenSize}, create)
	if !noBias {
		m.BiasIh = gotorch.Empty([]int64{gates * hiddenSize}, create)
		m.BiasHh = gotorch.Empty([]int64{gates * hiddenSize}, create)
	}
	m.ResetParameters()
}

// ResetParameters draws all parameters anew, uniform between −1/√HiddenSize and 1/√HiddenSize.
func (m *RNNCellBase) ResetParameters() {
	bound := 0.0
	if m.HiddenSize > 0 {
		bound = 1 / math.Sqrt(float64(m.HiddenSize))
	}
	for _, t := range []gotorch.Tensor{m.WeightIh, m.WeightHh, m.BiasIh, m.BiasHh} {
		if t.T != nil {
			nninit.Uniform_(t, nninit.UniformOptions{A: -bound, B: bound})
		}
	}
}

// begin checks the input and the states, of which there are n or none, and returns them with a batch.
func (m *RNNCellBase) begin(x gotorch.Tensor, states []gotorch.Tensor, n int) (input gotorch.Tensor, full []gotorch.Tensor, unbatched bool) {
	m.outer()
	dims := x.Dim()
	if dims != 1 && dims != 2 {
		panic(args.ValueError(m.op, "expected input to be 1D or 2D, got %dD instead", dims))
	}
	if len(states) != 0 && len(states) != n {
		panic(args.ValueError(m.op, "expected %d states or none, got %d", n, len(states)))
	}
	unbatched = dims == 1
	if unbatched {
		x = x.Unsqueeze(0)
	}
	for _, h := range states {
		if k := h.Dim(); k != 1 && k != 2 {
			panic(args.ValueError(m.op, "expected hidden to be 1D or 2D, got %dD instead", k))
		}
		if unbatched {
			h = h.Unsqueeze(0)
		}
		full = append(full, h)
	}
	for len(full) < n {
		full = append(full, gotorch.Zeros([]int64{x.Size(0), m.HiddenSize}, gotorch.TensorOptions{DType: x.DType(), Device: x.Device()}))
	}
	return x, full, unbatched
}

func unbatch(unbatched bool, states ...gotorch.Tensor) []gotorch.Tensor {
	if unbatched {
		for i, h := range states {
			states[i] = h.SqueezeDim(0)
		}
	}
	return states
}

func (m *RNNCellBase) call(self Modular, forward func(in []gotorch.Tensor) []gotorch.Tensor, in ...gotorch.Tensor) []gotorch.Tensor {
	if m.hooked(self) {
		return m.around(forward, in...)
	}
	return forward(in)
}

// ExtraRepr returns what String writes between the parentheses.
func (m *RNNCellBase) ExtraRepr() string {
	return fmt.Sprintf("%d, %d", m.InputSize, m.HiddenSize) + when(m.BiasIh.T == nil, ", bias=False")
}

// RNNCellModule is what [RNNCell] makes.
type RNNCellModule struct {
	RNNCellBase
	Nonlinearity RNNNonlinearity
}

// RNNCellOptions are the arguments of [RNNCell] that have defaults.
type RNNCellOptions struct {
	NoBias       bool
	Nonlinearity RNNNonlinearity
	Device       gotorch.Device
	DType        gotorch.DType
}

// RNNCell is a step of an [RNN]. It panics with a ValueError for an unknown nonlinearity.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.RNNCell.html.
func RNNCell(inputSize, hiddenSize int64, opts ...RNNCellOptions) *RNNCellModule {
	const op = "nn.RNNCell"
	opt := args.Option(opts)
	m := &RNNCellModule{Nonlinearity: opt.Nonlinearity.check(op)}
	m.setUp(op, 1, inputSize, hiddenSize, opt.NoBias, gotorch.TensorOptions{Device: opt.Device, DType: opt.DType})
	return Init(m)
}

// Forward returns the next state of (N, HiddenSize), for an input of (N, InputSize) and a state, by default
// zeros; also without N.
func (m *RNNCellModule) Forward(x gotorch.Tensor, state ...gotorch.Tensor) gotorch.Tensor {
	return m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor {
		x, h, unbatched := m.begin(in[0], in[1:], 1)
		if m.Nonlinearity == RNNReLU {
			return unbatch(unbatched, gotorch.RNNReLUCell(x, h[0], m.WeightIh, m.WeightHh, gotorch.RNNReLUCellOptions{BIH: m.BiasIh, BHH: m.BiasHh}))
		}
		return unbatch(unbatched, gotorch.RNNTanhCell(x, h[0], m.WeightIh, m.WeightHh, gotorch.RNNTanhCellOptions{BIH: m.BiasIh, BHH: m.BiasHh}))
	}, append([]gotorch.Tensor{x}, state...)...)[0]
}

// ExtraRepr returns what String writes between the parentheses.
func (m *RNNCellModule) ExtraRepr() string {
	return m.RNNCellBase.ExtraRepr() + when(m.Nonlinearity != RNNTanh, ", nonlinearity="+string(m.Nonlinearity))
}

// GRUCellModule is what [GRUCell] makes.
type GRUCellModule struct{ RNNCellBase }

// GRUCellOptions are the arguments of [GRUCell] that have defaults.
type GRUCellOptions struct {
	NoBias bool
	Device gotorch.Device
	DType  gotorch.DType
}

// GRUCell is a step of a [GRU].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.GRUCell.html.
func GRUCell(inputSize, hiddenSize int64, opts ...GRUCellOptions) *GRUCellModule {
	opt := args.Option(opts)
	m := &GRUCellModule{}
	m.setUp("nn.GRUCell", 3, inputSize, hiddenSize, opt.NoBias, gotorch.TensorOptions{Device: opt.Device, DType: opt.DType})
	return Init(m)
}

// Forward returns the next state of (N, HiddenSize), for an input of (N, InputSize) and a state, by default
// zeros; also without N.
func (m *GRUCellModule) Forward(x gotorch.Tensor, state ...gotorch.Tensor) gotorch.Tensor {
	return m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor {
		x, h, unbatched := m.begin(in[0], in[1:], 1)
		return unbatch(unbatched, gotorch.GRUCell(x, h[0], m.WeightIh, m.WeightHh, gotorch.GRUCellOptions{BIH: m.BiasIh, BHH: m.BiasHh}))
	}, append([]gotorch.Tensor{x}, state...)...)[0]
}

// LSTMCellModule is what [LSTMCell] makes.
type LSTMCellModule struct{ RNNCellBase }

// LSTMCellOptions are the arguments of [LSTMCell] that have defaults.
type LSTMCellOptions struct {
	NoBias bool
	Device gotorch.Device
	DType  gotorch.DType
}

// LSTMCell is a step of an [LSTM].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html.
func LSTMCell(inputSize, hiddenSize int64, opts ...LSTMCellOptions) *LSTMCellModule {
	opt := args.Option(opts)
	m := &LSTMCellModule{}
	m.setUp("nn.LSTMCell", 4, inputSize, hiddenSize, opt.NoBias, gotorch.TensorOptions{Device: opt.Device, DType: opt.DType})
	return Init(m)
}

// Forward returns the next hidden and cell states of (N, HiddenSize), for an input of (N, InputSize) and the
// two states, by default zeros; also without N.
func (m *LSTMCellModule) Forward(x gotorch.Tensor, state ...gotorch.Tensor) (h, c gotorch.Tensor) {
	r := m.call(m, func(in []gotorch.Tensor) []gotorch.Tensor {
		x, states, unbatched := m.begin(in[0], in[1:], 2)
		h, c := gotorch.LSTMCell(x, states, m.WeightIh, m.WeightHh, gotorch.LSTMCellOptions{BIH: m.BiasIh, BHH: m.BiasHh})
		return unbatch(unbatched, h, c)
	}, append([]gotorch.Tensor{x}, state...)...)
	return r[0], r[1]
}
