package nn

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
)

// TransformerOptions are the arguments of [TransformerEncoderLayer] and [TransformerDecoderLayer] that have
// defaults.
type TransformerOptions struct {
	DimFeedforward gotorch.Scalar                        // default: 2048
	Dropout        gotorch.Scalar                        // default: 0.1
	Activation     string                                // "relu" or "gelu"; default: "relu"
	ActivationFunc func(x gotorch.Tensor) gotorch.Tensor // in place of Activation
	LayerNormEps   gotorch.Scalar                        // default: 1e-5
	BatchFirst     bool                                  // sequences are (N, T, E) rather than (T, N, E)
	NormFirst      bool                                  // normalise before attention and feed-forward rather than behind
	NoBias         bool
	Device         gotorch.Device
	DType          gotorch.DType
}

// TransformerEncoderLayerOptions are the arguments of [TransformerEncoderLayer] that have defaults.
type TransformerEncoderLayerOptions = TransformerOptions

// TransformerDecoderLayerOptions are the arguments of [TransformerDecoderLayer] that have defaults.
type TransformerDecoderLayerOptions = TransformerOptions

// activation is what a transformer layer does between its linear ones.
type activation struct {
	fn   func(x gotorch.Tensor) gotorch.Tensor
	name string // "relu" or "gelu", or "" for one of the user's
}

func (o TransformerOptions) activation(op string) activation {
	if o.ActivationFunc != nil {
		if o.Activation != "" {
			panic(args.ValueError(op, "Activation and ActivationFunc exclude each other"))
		}
		return activation{fn: o.ActivationFunc}
	}
	switch o.Activation {
	case "", "relu":
		return activation{func(x gotorch.Tensor) gotorch.Tensor { return F.ReLU(x) }, "relu"}
	case "gelu":
		return activation{func(x gotorch.Tensor) gotorch.Tensor { return F.GELU(x) }, "gelu"}
	}
	panic(args.ValueError(op, "activation should be relu/gelu, not %s", o.Activation))
}

// EncoderOptions are the arguments of the Forward methods of encoders that have defaults.
type EncoderOptions struct {
	Mask           gotorch.Tensor // (T, T) or (N·nhead, T, T): true where a place is not seen, or a number to be added
	KeyPaddingMask gotorch.Tensor // (N, T): true where a place does not count, or a number to be added
	IsCausal       bool           // Mask is that of [SquareSubsequentMask], which is faster
	NoCausalCheck  bool           // do not look whether Mask is that one, where IsCausal does not say it
}

// canonical returns the options with masks of numbers to be added.
func (o EncoderOptions) canonical(d gotorch.DType) EncoderOptions {
	if o.KeyPaddingMask.T != nil {
		o.KeyPaddingMask = F.CanonicalMask(o.KeyPaddingMask, d)
	}
	if o.Mask.T != nil {
		o.Mask = F.CanonicalMask(o.Mask, d)
	}
	return o
}

// TransformerEncoderLayerModule is what [TransformerEncoderLayer] makes.
type TransformerEncoderLayerModule struct {
	Module
	SelfAttn  *MultiheadAttentionModule
	Linear1   *LinearModule
	Dropout   *DropoutModule
	Linear2   *LinearModule
	NormFirst bool
	Norm1     *LayerNormModule
	Norm2     *LayerNormModule
	Dropout1  *DropoutModule
	Dropout2  *DropoutModule

	activation activation
}

// TransformerEncoderLayer is self-attention and a feed-forward network, each with a residual connection and
// layer normalization: (T, N, dModel) → (T, N, dModel), also without N. It panics with a ValueError if dModel
// is no multiple of nhead, or for an unknown activation.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoderLayer.html.
func TransformerEncoderLayer(dModel, nhead int64, opts ...TransformerEncoderLayerOptions) *TransformerEncoderLayerModule {
	const op = "nn.TransformerEncoderLayer"
	opt := args.Option(opts)
	p, forward := args.Float(op, "Dropout", opt.Dropout, 0.1), args.Int(op, "DimFeedforward", opt.DimFeedforward, 2048)
	linear := LinearOptions{NoBias: opt.NoBias, Device: opt.Device, DType: opt.DType}
	norm := LayerNormOptions{Eps: args.Float(op, "LayerNormEps", opt.LayerNormEps, 1e-5), NoBias: opt.NoBias, Device: opt.Device, DType: opt.DType}
	m := &TransformerEncoderLayerModule{NormFirst: opt.NormFirst, activation: opt.activation(op)}
	m.SelfAttn = MultiheadAttention(dModel, nhead, MultiheadAttentionOptions{Dropout: p, NoBias: opt.NoBias, BatchFirst: opt.BatchFirst, Device: opt.Device, DType: opt.DType})
	m.Linear1 = Linear(dModel, forward, linear)
	m.Dropout = Dropout(p)
	m.Linear2 = Linear(forward, dModel, linear)
	m.Norm1, m.Norm2 = LayerNorm(dModel, norm), LayerNorm(dModel, norm)
	m.Dropout1, m.Dropout2 = Dropout(p), Dropout(p)
	return Init(m)
}

// Forward encodes a sequence.
func (m *TransformerEncoderLayerModule) Forward(src gotorch.Tensor, opts ...EncoderOptions) gotorch.Tensor {
	opt := args.Option(opts)
	if m.hooked(m) {
		return m.around1(func(src gotorch.Tensor) gotorch.Tensor { return m.forward(src, opt) }, src)
	}
	return m.forward(src, opt)
}

func (m *TransformerEncoderLayerModule) forward(src gotorch.Tensor, opt EncoderOptions) gotorch.Tensor {
	m.outer()
	opt = opt.canonical(src.DType())
	if m.mayBeFast(src) {
		for _, within := range m.NamedModules() {
			defer using(within)()
		}
	}
	if m.fast(src) {
		mask, kind := m.SelfAttn.mergedMask(src, AttentionOptions{AttnMask: opt.Mask, KeyPaddingMask: opt.KeyPaddingMask})
		a := m.SelfAttn
		return gotorch.TransformerEncoderLayerFwd(src, a.EmbedDim, a.NumHeads, a.InProjWeight, a.InProjBias, a.OutProj.Weight, a.OutProj.Bias,
			m.activation.name == "gelu", m.NormFirst, m.Norm1.Eps, m.Norm1.Weight, m.Norm1.Bias, m.Norm2.Weight, m.Norm2.Bias,
			m.Linear1.Weight, m.Linear1.Bias, m.Linear2.Weight, m.Linear2.Bias,
			gotorch.TransformerEncoderLayerFwdOptions{Mask: mask, MaskType: kind})
	}
	x := src
	if m.NormFirst {
		x = x.Add(m.attend(m.Norm1.Forward(x), opt))
		return x.Add(m.feed(m.Norm2.Forward(x)))
	}
	x = m.Norm1.Forward(x.Add(m.attend(x, opt)))
	return m.Norm2.Forward(x.Add(m.feed(x)))
}

func (m *TransformerEncoderLayerModule) attend(x gotorch.Tensor, opt EncoderOptions) gotorch.Tensor {
	return m.Dropout1.Forward(attention(m.SelfAttn, x, x, opt.Mask, opt.KeyPaddingMask, opt.IsCausal))
}

// attention is a layer's attention of x to memory, without weights.
func attention(m *MultiheadAttentionModule, x, memory, mask, padding gotorch.Tensor, causal bool) gotorch.Tensor {
	out, _ := m.Forward(x, memory, memory, AttentionOptions{AttnMask: mask, KeyPaddingMask: padding, NoNeedWeights: true, IsCausal: causal})
	return out
}

func (m *TransformerEncoderLayerModule) feed(x gotorch.Tensor) gotorch.Tensor {
	return m.Dropout2.Forward(m.Linear2.Forward(m.Dropout.Forward(m.activation.fn(m.Linear1.Forward(x)))))
}

// mayBeFast reports whether PyTorch's kernel for inference can do it, as far as that does not depend on what
// autograd records.
func (m *TransformerEncoderLayerModule) mayBeFast(src gotorch.Tensor) bool {
	a := m.SelfAttn
	if src.Dim() != 3 || m.Training() || !a.BatchFirst || a.InProjBias.T == nil || !a.sameDim() || m.activation.name == "" ||
		m.Norm1.Eps != m.Norm2.Eps || a.NumHeads%2 == 1 || gotorch.AutocastEnabled(src.Device()) {
		return false
	}
	for _, within := range m.NamedModules() {
		if h := within.module().hooks; h != nil && !h.empty() {
			return false
		}
	}
	return true
}

// fast reports whether PyTorch's kernel for inference can do it, which PyTorch then takes.
func (m *TransformerEncoderLayerModule) fast(src gotorch.Tensor) bool {
	a := m.SelfAttn
	return m.mayBeFast(src) && !records(src, a.InProjWeight, a.InProjBias, a.OutProj.Weight, a.OutProj.Bias, m.Norm1.Weight, m.Norm1.Bias, m.Norm2.Weight, m.Norm2.Bias,
		m.Linear1.Weight, m.Linear1.Bias, m.Linear2.Weight, m.Linear2.Bias)
}

// EncoderLayer is a layer of a [TransformerEncoder], as [TransformerEncoderLayer] makes it.
type EncoderLayer interface {
	Modular
	Forward(src gotorch.Tensor, opts ...EncoderOptions) gotorch.Tensor
}

// TransformerEncoderModule is what [TransformerEncoder] makes.
type TransformerEncoderModule struct {
	Module
	Layers []EncoderLayer
	Norm   Layer // or nil

	nested, maskCheck bool
}

// TransformerEncoderOptions are the arguments of [TransformerEncoder] that have defaults.
type TransformerEncoderOptions struct {
	Norm                 Layer // behind the last layer; default: none
	NoEnableNestedTensor bool  // compute padding too in evaluation, where it would otherwise be left out and become zeros
	NoMaskCheck          bool  // do not look whether padding is at the end, which it must be then
}

// TransformerEncoder puts numLayers copies of a layer in a row. It panics with a ValueError if numLayers is
// negative.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoder.html.
func TransformerEncoder(encoderLayer EncoderLayer, numLayers int64, opts ...TransformerEncoderOptions) *TransformerEncoderModule {
	if numLayers < 0 {
		panic(args.ValueError("nn.TransformerEncoder", "the number of layers must not be negative, but is %d", numLayers))
	}
	opt := args.Option(opts)
	bind(encoderLayer)
	m := &TransformerEncoderModule{Norm: opt.Norm, maskCheck: !opt.NoMaskCheck}
	for range numLayers {
		m.Layers = append(m.Layers, Clone(encoderLayer))
	}
	if l, ok := encoderLayer.(*TransformerEncoderLayerModule); ok && !opt.NoEnableNestedTensor {
		a := l.SelfAttn
		m.nested = !l.NormFirst && a.BatchFirst && a.sameDim() && a.InProjBias.T != nil && l.activation.name != "" &&
			l.Norm1.Eps == l.Norm2.Eps && a.NumHeads%2 == 0
	}
	return Init(m)
}

// Forward encodes a sequence: see [TransformerEncoderLayer].
func (m *TransformerEncoderModule) Forward(src gotorch.Tensor, opts ...EncoderOptions) gotorch.Tensor {
	opt := args.Option(opts)
	if m.hooked(m) {
		return m.around1(func(src gotorch.Tensor) gotorch.Tensor { return m.forward(src, opt) }, src)
	}
	return m.forward(src, opt)
}

func (m *TransformerEncoderModule) forward(src gotorch.Tensor, opt EncoderOptions) gotorch.Tensor {
	m.outer()
	opt = opt.canonical(src.DType())
	x, layers := src, opt
	batchFirst := false
	if len(m.Layers) > 0 {
		if l, ok := m.Layers[0].(*TransformerEncoderLayerModule); ok {
			batchFirst = l.SelfAttn.BatchFirst
		}
	}
	nested := m.useNested(src, opt)
	if nested {
		x = gotorch.Call("aten::_nested_tensor_from_mask", "", src, opt.KeyPaddingMask.LogicalNot(), false)[0].(gotorch.Tensor)
		layers.KeyPaddingMask = gotorch.Tensor{}
	}
	layers.IsCausal = isCausal(opt.Mask, opt.IsCausal, opt.NoCausalCheck, src, batchFirst)
	for _, layer := range m.Layers {
		x = layer.Forward(x, layers)
	}
	if nested {
		x = gotorch.NestedToPaddedTensor(x, 0, gotorch.NestedToPaddedTensorOptions{OutputSize: src.Shape()})
	}
	if m.Norm != nil {
		x = Call(m.Norm, x)
	}
	return x
}

// useNested reports whether PyTorch would leave padding out.
func (m *TransformerEncoderModule) useNested(src gotorch.Tensor, opt EncoderOptions) bool {
	if !m.nested || len(m.Layers) == 0 || m.Layers[0].Training() || src.Dim() != 3 || opt.KeyPaddingMask.T == nil || opt.Mask.T != nil ||
		gotorch.AutocastEnabled(src.Device()) {
		return false
	}
	l, ok := m.Layers[0].(*TransformerEncoderLayerModule)
	if !ok || !l.fast(src) {
		return false
	}
	if !m.maskCheck {
		return true
	}
	aligned := gotorch.Call("aten::_nested_tensor_from_mask_left_aligned", "", src, opt.KeyPaddingMask.LogicalNot())[0]
	return aligned.(bool)
}

// isCausal reports whether a mask is that of [SquareSubsequentMask].
func isCausal(mask gotorch.Tensor, said, unchecked bool, x gotorch.Tensor, batchFirst bool) bool {
	if said || unchecked || mask.T == nil {
		return said
	}
	length := int64(0)
	switch n := x.Dim(); {
	case n == 2 || !batchFirst:
		length = x.Size(0)
	default:
		length = x.Size(1)
	}
	causal := SquareSubsequentMask(length, gotorch.TensorOptions{DType: mask.DType(), Device: mask.Device()})
	return gotorch.Equal(mask, causal)
}

// DecoderOptions are the arguments of the Forward methods of decoders that have defaults.
type DecoderOptions struct {
	TgtMask              gotorch.Tensor // (T, T) or (N·nhead, T, T): true where a place is not seen, or a number to be added
	MemoryMask           gotorch.Tensor // (T, S) or (N·nhead, T, S)
	TgtKeyPaddingMask    gotorch.Tensor // (N, T): true where a place does not count, or a number to be added
	MemoryKeyPaddingMask gotorch.Tensor // (N, S)
	TgtIsCausal          bool           // TgtMask is that of [SquareSubsequentMask], which is faster
	NoCausalCheck        bool           // do not look whether TgtMask is that one, where TgtIsCausal does not say it
	MemoryIsCausal       bool           // MemoryMask is that of [SquareSubsequentMask]
}

// TransformerDecoderLayerModule is what [TransformerDecoderLayer] makes.
type TransformerDecoderLayerModule struct {
	Module
	SelfAttn      *MultiheadAttentionModule
	MultiheadAttn *MultiheadAttentionModule
	Linear1       *LinearModule
	Dropout       *DropoutModule
	Linear2       *LinearModule
	NormFirst     bool
	Norm1         *LayerNormModule
	Norm2         *LayerNormModule
	Norm3         *LayerNormModule
	Dropout1      *DropoutModule
	Dropout2      *DropoutModule
	Dropout3      *DropoutModule

	activation activation
}

// TransformerDecoderLayer is self-attention, attention to an encoder's result and a feed-forward network, each
// with a residual connection and layer normalization: (T, N, dModel) and (S, N, dModel) → (T, N, dModel), also
// without N. It panics as [TransformerEncoderLayer] does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerDecoderLayer.html.
func TransformerDecoderLayer(dModel, nhead int64, opts ...TransformerDecoderLayerOptions) *TransformerDecoderLayerModule {
	const op = "nn.TransformerDecoderLayer"
	opt := args.Option(opts)
	p, forward := args.Float(op, "Dropout", opt.Dropout, 0.1), args.Int(op, "DimFeedforward", opt.DimFeedforward, 2048)
	linear := LinearOptions{NoBias: opt.NoBias, Device: opt.Device, DType: opt.DType}
	norm := LayerNormOptions{Eps: args.Float(op, "LayerNormEps", opt.LayerNormEps, 1e-5), NoBias: opt.NoBias, Device: opt.Device, DType: opt.DType}
	attn := MultiheadAttentionOptions{Dropout: p, NoBias: opt.NoBias, BatchFirst: opt.BatchFirst, Device: opt.Device, DType: opt.DType}
	m := &TransformerDecoderLayerModule{NormFirst: opt.NormFirst, activation: opt.activation(op)}
	m.SelfAttn, m.MultiheadAttn = MultiheadAttention(dModel, nhead, attn), MultiheadAttention(dModel, nhead, attn)
	m.Linear1 = Linear(dModel, forward, linear)
	m.Dropout = Dropout(p)
	m.Linear2 = Linear(forward, dModel, linear)
	m.Norm1, m.Norm2, m.Norm3 = LayerNorm(dModel, norm), LayerNorm(dModel, norm), LayerNorm(dModel, norm)
	m.Dropout1, m.Dropout2, m.Dropout3 = Dropout(p), Dropout(p), Dropout(p)
	return Init(m)
}

// Forward decodes a sequence, with memory from an encoder.
func (m *TransformerDecoderLayerModule) Forward(tgt, memory gotorch.Tensor, opts ...DecoderOptions) gotorch.Tensor {
	opt := args.Option(opts)
	if m.hooked(m) {
		return m.around(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{m.forward(in[0], in[1], opt)} }, tgt, memory)[0]
	}
	return m.forward(tgt, memory, opt)
}

func (m *TransformerDecoderLayerModule) forward(tgt, memory gotorch.Tensor, opt DecoderOptions) gotorch.Tensor {
	m.outer()
	attend := func(x gotorch.Tensor) gotorch.Tensor {
		return m.Dropout1.Forward(attention(m.SelfAttn, x, x, opt.TgtMask, opt.TgtKeyPaddingMask, opt.TgtIsCausal))
	}
	look := func(x gotorch.Tensor) gotorch.Tensor {
		return m.Dropout2.Forward(attention(m.MultiheadAttn, x, memory, opt.MemoryMask, opt.MemoryKeyPaddingMask, opt.MemoryIsCausal))
	}
	feed := func(x gotorch.Tensor) gotorch.Tensor {
		return m.Dropout3.Forward(m.Linear2.Forward(m.Dropout.Forward(m.activation.fn(m.Linear1.Forward(x)))))
	}
	x := tgt
	if m.NormFirst {
		x = x.Add(attend(m.Norm1.Forward(x)))
		x = x.Add(look(m.Norm2.Forward(x)))
		return x.Add(feed(m.Norm3.Forward(x)))
	}
	x = m.Norm1.Forward(x.Add(attend(x)))
	x = m.Norm2.Forward(x.Add(look(x)))
	return m.Norm3.Forward(x.Add(feed(x)))
}

// DecoderLayer is a layer of a [TransformerDecoder], as [TransformerDecoderLayer] makes it.
type DecoderLayer interface {
	Modular
	Forward(tgt, memory gotorch.Tensor, opts ...DecoderOptions) gotorch.Tensor
}

// TransformerDecoderModule is what [TransformerDecoder] makes.
type TransformerDecoderModule struct {
	Module
	Layers []DecoderLayer
	Norm   Layer // or nil
}

// TransformerDecoderOptions are the arguments of [TransformerDecoder] that have defaults.
type TransformerDecoderOptions struct {
	Norm Layer // behind the last layer; default: none
}

// TransformerDecoder puts numLayers copies of a layer in a row. It panics with a ValueError if numLayers is
// negative.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerDecoder.html.
func TransformerDecoder(decoderLayer DecoderLayer, numLayers int64, opts ...TransformerDecoderOptions) *TransformerDecoderModule {
	if numLayers < 0 {
		panic(args.ValueError("nn.TransformerDecoder", "the number of layers must not be negative, but is %d", numLayers))
	}
	bind(decoderLayer)
	m := &TransformerDecoderModule{Norm: args.Option(opts).Norm}
	for range numLayers {
		m.Layers = append(m.Layers, Clone(decoderLayer))
	}
	return Init(m)
}

// Forward decodes a sequence, with memory from an encoder: see [TransformerDecoderLayer].
func (m *TransformerDecoderModule) Forward(tgt, memory gotorch.Tensor, opts ...DecoderOptions) gotorch.Tensor {
	opt := args.Option(opts)
	if m.hooked(m) {
		return m.around(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{m.forward(in[0], in[1], opt)} }, tgt, memory)[0]
	}
	return m.forward(tgt, memory, opt)
}

func (m *TransformerDecoderModule) forward(tgt, memory gotorch.Tensor, opt DecoderOptions) gotorch.Tensor {
	m.outer()
	batchFirst := false
	if len(m.Layers) > 0 {
		if l, ok := m.Layers[0].(*TransformerDecoderLayerModule); ok {
			batchFirst = l.SelfAttn.BatchFirst
		}
	}
	opt.TgtIsCausal = isCausal(opt.TgtMask, opt.TgtIsCausal, opt.NoCausalCheck, tgt, batchFirst)
	x := tgt
	for _, layer := range m.Layers {
		x = layer.Forward(x, memory, opt)
	}
	if m.Norm != nil {
		x = Call(m.Norm, x)
	}
	return x
}

// Encoder makes the memory of a [Transformer] of its source, as [TransformerEncoder] does.
type Encoder interface {
	Modular
	Forward(src gotorch.Tensor, opts ...EncoderOptions) gotorch.Tensor
}

// Decoder makes the result of a [Transformer] of its target and memory, as [TransformerDecoder] does.
type Decoder interface {
	Modular
	Forward(tgt, memory gotorch.Tensor, opts ...DecoderOptions) gotorch.Tensor
}

// TransformerModule is what [Transformer] makes.
type TransformerModule struct {
	Module
	Encoder       Encoder
	Decoder       Decoder
	DModel, Nhead int64
	BatchFirst    bool
}

// TransformerModelOptions are the arguments of [Transformer], all of which have defaults.
type TransformerModelOptions struct {
	DModel           gotorch.Scalar // default: 512
	Nhead            gotorch.Scalar // default: 8
	NumEncoderLayers gotorch.Scalar // default: 6
	NumDecoderLayers gotorch.Scalar // default: 6
	CustomEncoder    Encoder        // in place of the encoder
	CustomDecoder    Decoder        // in place of the decoder
	TransformerOptions
}

// Transformer is an encoder and a decoder: (S, N, DModel) and (T, N, DModel) → (T, N, DModel), also without N.
// Weights begin as nninit.XavierUniform_ makes them. It panics as [TransformerEncoderLayer] does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html.
func Transformer(opts ...TransformerModelOptions) *TransformerModule {
	const op = "nn.Transformer"
	opt := args.Option(opts)
	m := &TransformerModule{DModel: args.Int(op, "DModel", opt.DModel, 512), Nhead: args.Int(op, "Nhead", opt.Nhead, 8), BatchFirst: opt.BatchFirst}
	norm := LayerNormOptions{Eps: args.Float(op, "LayerNormEps", opt.LayerNormEps, 1e-5), NoBias: opt.NoBias, Device: opt.Device, DType: opt.DType}
	for _, custom := range []Modular{opt.CustomEncoder, opt.CustomDecoder} {
		if custom != nil {
			bind(custom)
		}
	}
	if m.Encoder = opt.CustomEncoder; m.Encoder == nil {
		layer := TransformerEncoderLayer(m.DModel, m.Nhead, opt.TransformerOptions)
		m.Encoder = TransformerEncoder(layer, args.Int(op, "NumEncoderLayers", opt.NumEncoderLayers, 6), TransformerEncoderOptions{Norm: LayerNorm(m.DModel, norm)})
	}
	if m.Decoder = opt.CustomDecoder; m.Decoder == nil {
		layer := TransformerDecoderLayer(m.DModel, m.Nhead, opt.TransformerOptions)
		m.Decoder = TransformerDecoder(layer, args.Int(op, "NumDecoderLayers", opt.NumDecoderLayers, 6), TransformerDecoderOptions{Norm: LayerNorm(m.DModel, norm)})
	}
	Init(m)
	for _, p := range m.NamedParameters() {
		if p.Dim() > 1 {
			nninit.XavierUniform_(p)
		}
	}
	return m
}

// TransformerForward are the arguments of [TransformerModule.Forward] that have defaults: those of the decoder,
// and the encoder's.
type TransformerForward struct {
	SrcMask           gotorch.Tensor // (S, S) or (N·nhead, S, S): true where a place is not seen, or a number to be added
	SrcKeyPaddingMask gotorch.Tensor // (N, S): true where a place does not count, or a number to be added
	SrcIsCausal       bool           // SrcMask is that of [SquareSubsequentMask], which is faster
	DecoderOptions
}

// Forward encodes src and decodes tgt. It panics with a RuntimeError if their batches or widths differ.
func (m *TransformerModule) Forward(src, tgt gotorch.Tensor, opts ...TransformerForward) gotorch.Tensor {
	opt := args.Option(opts)
	if m.hooked(m) {
		return m.around(func(in []gotorch.Tensor) []gotorch.Tensor { return []gotorch.Tensor{m.forward(in[0], in[1], opt)} }, src, tgt)[0]
	}
	return m.forward(src, tgt, opt)
}

func (m *TransformerModule) forward(src, tgt gotorch.Tensor, opt TransformerForward) gotorch.Tensor {
	const op = "nn.Transformer"
	m.outer()
	batch := int64(1)
	if m.BatchFirst {
		batch = 0
	}
	if src.Dim() == 3 && src.Size(batch) != tgt.Size(batch) {
		panic(runtimeError(op, "the batch number of src and tgt must be equal, but they are %v and %v", src.Shape(), tgt.Shape()))
	}
	if src.Size(-1) != m.DModel || tgt.Size(-1) != m.DModel {
		panic(runtimeError(op, "the feature number of src and tgt must be equal to d_model, %d, but they are %v and %v", m.DModel, src.Shape(), tgt.Shape()))
	}
	memory := m.Encoder.Forward(src, EncoderOptions{Mask: opt.SrcMask, KeyPaddingMask: opt.SrcKeyPaddingMask, IsCausal: opt.SrcIsCausal, NoCausalCheck: opt.NoCausalCheck})
	return m.Decoder.Forward(tgt, memory, opt.DecoderOptions)
}
