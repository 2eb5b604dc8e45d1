package nn

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
)

// MultiheadAttentionModule is what [MultiheadAttention] makes.
type MultiheadAttentionModule struct {
	Module
	EmbedDim, Kdim, Vdim, NumHeads int64
	Dropout                        float64
	AddZeroAttn, BatchFirst        bool

	InProjWeight gotorch.Tensor // (3·EmbedDim, EmbedDim), where Kdim and Vdim are EmbedDim
	QProjWeight  gotorch.Tensor // (EmbedDim, EmbedDim), where they are not
	KProjWeight  gotorch.Tensor // (EmbedDim, Kdim)
	VProjWeight  gotorch.Tensor // (EmbedDim, Vdim)
	InProjBias   gotorch.Tensor // (3·EmbedDim), or none
	BiasK, BiasV gotorch.Tensor // (1, 1, EmbedDim), or none
	OutProj      *LinearModule
}

// MultiheadAttentionOptions are the arguments of [MultiheadAttention] that have defaults.
type MultiheadAttentionOptions struct {
	Dropout     float64 // drops attention weights with this probability, while training
	NoBias      bool
	AddBiasKv   bool           // append a learned key and value
	AddZeroAttn bool           // append a key and value of zeros
	Kdim        gotorch.Scalar // of keys; default: embedDim
	Vdim        gotorch.Scalar // of values; default: embedDim
	BatchFirst  bool           // sequences are (N, T, E) rather than (T, N, E)
	Device      gotorch.Device
	DType       gotorch.DType
}

// MultiheadAttention is attention by several heads, each of embedDim/numHeads: see [MultiheadAttentionModule.Forward].
// It panics with a ValueError if sizes are not positive, or embedDim is no multiple of numHeads.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html.
func MultiheadAttention(embedDim, numHeads int64, opts ...MultiheadAttentionOptions) *MultiheadAttentionModule {
	const op = "nn.MultiheadAttention"
	opt := args.Option(opts)
	switch {
	case embedDim <= 0 || numHeads <= 0:
		panic(args.ValueError(op, "embed_dim and num_heads must be greater than 0, got embed_dim=%d and num_heads=%d instead", embedDim, numHeads))
	case embedDim%numHeads != 0:
		panic(args.ValueError(op, "embed_dim must be divisible by num_heads, got embed_dim=%d and num_heads=%d instead", embedDim, numHeads))
	}
	m := &MultiheadAttentionModule{EmbedDim: embedDim, Kdim: args.Int(op, "Kdim", opt.Kdim, embedDim), Vdim: args.Int(op, "Vdim", opt.Vdim, embedDim),
		NumHeads: numHeads, Dropout: opt.Dropout, AddZeroAttn: opt.AddZeroAttn, BatchFirst: opt.BatchFirst}
	create := gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}
	if m.sameDim() {
		m.InProjWeight = gotorch.Empty([]int64{3 * embedDim, embedDim}, create)
	} else {
		m.QProjWeight = gotorch.Empty([]int64{embedDim, embedDim}, create)
		m.KProjWeight = gotorch.Empty([]int64{embedDim, m.Kdim}, create)
		m.VProjWeight = gotorch.Empty([]int64{embedDim, m.Vdim}, create)
	}
	if !opt.NoBias {
		m.InProjBias = gotorch.Empty([]int64{3 * embedDim}, create)
	}
	m.OutProj = Linear(embedDim, embedDim, LinearOptions{NoBias: opt.NoBias, Device: opt.Device, DType: opt.DType})
	m.OutProj.class = "NonDynamicallyQuantizableLinear"
	if opt.AddBiasKv {
		m.BiasK = gotorch.Empty([]int64{1, 1, embedDim}, create)
		m.BiasV = gotorch.Empty([]int64{1, 1, embedDim}, create)
	}
	m.ResetParameters()
	return Init(m)
}

func (m *MultiheadAttentionModule) sameDim() bool {
	return m.Kdim == m.EmbedDim && m.Vdim == m.EmbedDim
}

// ResetParameters draws the weights anew, but for that of OutProj.
func (m *MultiheadAttentionModule) ResetParameters() {
	for _, w := range []gotorch.Tensor{m.InProjWeight, m.QProjWeight, m.KProjWeight, m.VProjWeight} {
		if w.T != nil {
			nninit.XavierUniform_(w)
		}
	}
	if m.InProjBias.T != nil {
		nninit.Zeros_(m.InProjBias)
		nninit.Zeros_(m.OutProj.Bias)
	}
	if m.BiasK.T != nil {
		nninit.XavierNormal_(m.BiasK)
		nninit.XavierNormal_(m.BiasV)
	}
}

// AttentionOptions are the arguments of [MultiheadAttentionModule.Forward] that have defaults.
type AttentionOptions struct {
	KeyPaddingMask       gotorch.Tensor // (N, S): true where a key does not count, or a number to be added
	NoNeedWeights        bool           // do not return the weights, which is faster
	AttnMask             gotorch.Tensor // (T, S) or (N·NumHeads, T, S): true where a key does not count, or a number to be added
	NoAverageAttnWeights bool           // return the weights of each head
	IsCausal             bool           // AttnMask is that of [SquareSubsequentMask], which is faster without weights
}

// Forward returns attention of queries to keys, (T, N, EmbedDim), and its weights, the average over heads,
// (N, T, S): query is (T, N, EmbedDim), key (S, N, Kdim) and value (S, N, Vdim), or with N first for
// BatchFirst, also without N. Where query, key and value are the same tensor the projections are one product.
// It panics with a ValueError if shapes do not fit.
func (m *MultiheadAttentionModule) Forward(query, key, value gotorch.Tensor, opts ...AttentionOptions) (output, weights gotorch.Tensor) {
	opt := args.Option(opts)
	if m.hooked(m) {
		r := m.around(func(in []gotorch.Tensor) []gotorch.Tensor {
			output, weights := m.forward(in[0], in[1], in[2], opt)
			return []gotorch.Tensor{output, weights}
		}, query, key, value)
		return r[0], r[1]
	}
	return m.forward(query, key, value, opt)
}

func (m *MultiheadAttentionModule) forward(query, key, value gotorch.Tensor, opt AttentionOptions) (output, weights gotorch.Tensor) {
	m.outer()
	defer using(m.OutProj)()
	if m.fast(query, key, value, opt) {
		mask, kind := m.mergedMask(query, opt)
		return gotorch.NativeMultiHeadAttention(query, key, value, m.EmbedDim, m.NumHeads, m.InProjWeight, m.InProjBias, m.OutProj.Weight, m.OutProj.Bias,
			gotorch.NativeMultiHeadAttentionOptions{Mask: mask, NeedWeights: new(!opt.NoNeedWeights), AverageAttnWeights: new(!opt.NoAverageAttnWeights), MaskType: kind})
	}
	batchFirst := m.BatchFirst && query.Dim() == 3
	if batchFirst {
		q, k, v := query, key, value
		query = q.Transpose(1, 0)
		if key = query; k.T != q.T {
			key = k.Transpose(1, 0)
		}
		if value = key; v.T != k.T {
			value = v.Transpose(1, 0)
		}
	}
	forward := F.MultiHeadAttentionForwardOptions{
		InProjWeight: m.InProjWeight, QProjWeight: m.QProjWeight, KProjWeight: m.KProjWeight, VProjWeight: m.VProjWeight,
		InProjBias: m.InProjBias, BiasK: m.BiasK, BiasV: m.BiasV, AddZeroAttn: m.AddZeroAttn, DropoutP: m.Dropout,
		OutProjBias: m.OutProj.Bias, NoTraining: !m.Training(), KeyPaddingMask: opt.KeyPaddingMask, NoNeedWeights: opt.NoNeedWeights,
		AttnMask: opt.AttnMask, UseSeparateProjWeight: !m.sameDim(), NoAverageAttnWeights: opt.NoAverageAttnWeights, IsCausal: opt.IsCausal,
	}
	output, weights = F.MultiHeadAttentionForward(query, key, value, m.EmbedDim, m.NumHeads, m.OutProj.Weight, forward)
	if batchFirst {
		output = output.Transpose(1, 0)
	}
	return output, weights
}

// records reports whether autograd would record what is done with one of the tensors.
func records(tensors ...gotorch.Tensor) bool {
	if !gotorch.GradEnabled() {
		return false
	}
	for _, t := range tensors {
		if t.T != nil && t.RequiresGrad() {
			return true
		}
	}
	return false
}

func isFloat(t gotorch.Tensor) bool { return t.T != nil && t.DType().IsFloatingPoint() }

// fast reports whether PyTorch's kernel for inference can do it, which PyTorch then takes.
func (m *MultiheadAttentionModule) fast(query, key, value gotorch.Tensor, opt AttentionOptions) bool {
	return !m.Training() && !m.watched() && m.BatchFirst && query.T == key.T && key.T == value.T && query.Dim() == 3 && m.sameDim() &&
		m.InProjBias.T != nil && m.NumHeads%2 == 0 && m.BiasK.T == nil && !m.AddZeroAttn && !isFloat(opt.AttnMask) && !isFloat(opt.KeyPaddingMask) &&
		query.DType() == m.InProjWeight.DType() && query.DType() == m.InProjBias.DType() && !gotorch.AutocastEnabled(query.Device()) &&
		!records(query, m.InProjWeight, m.InProjBias, m.OutProj.Weight, m.OutProj.Bias)
}

// mergedMask is both masks as PyTorch's kernel takes them, and its kind, which is nil without a mask.
func (m *MultiheadAttentionModule) mergedMask(query gotorch.Tensor, opt AttentionOptions) (gotorch.Tensor, *int64) {
	padding, mask := opt.KeyPaddingMask, opt.AttnMask
	if padding.T != nil {
		padding = F.CanonicalMask(padding, query.DType())
	}
	if mask.T == nil {
		if padding.T == nil {
			return gotorch.Tensor{}, nil
		}
		return padding, new(int64(1))
	}
	batch, length := query.Size(0), query.Size(1)
	mask = F.CanonicalMask(mask, query.DType())
	if mask.Dim() == 3 {
		mask = mask.View([]int64{batch, -1, length, length})
	} else {
		mask = mask.View([]int64{1, 1, length, length}).Expand([]int64{batch, m.NumHeads, -1, -1})
	}
	if padding.T != nil {
		mask = mask.Add(padding.View([]int64{batch, 1, 1, length}).Expand([]int64{-1, m.NumHeads, -1, -1}))
	}
	return mask, new(int64(2))
}

// SquareSubsequentMask returns the mask by which each of size places sees those up to itself: (size, size),
// zeros and −∞ above the diagonal. It is PyTorch's Transformer.generate_square_subsequent_mask.
func SquareSubsequentMask(size int64, opts ...gotorch.TensorOptions) gotorch.Tensor {
	return gotorch.Full([]int64{size, size}, math.Inf(-1), args.Option(opts)).Triu(gotorch.TriuOptions{Diagonal: 1})
}
