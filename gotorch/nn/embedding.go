package nn

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
)

// EmbeddingModule is what [Embedding] makes.
type EmbeddingModule struct {
	Module
	NumEmbeddings, EmbeddingDim int64
	PaddingIdx                  gotorch.Scalar // an int64, or nil
	MaxNorm                     gotorch.Scalar // a float64, or nil
	NormType                    float64
	ScaleGradByFreq, Sparse     bool

	Weight gotorch.Tensor // (NumEmbeddings, EmbeddingDim)
}

// EmbeddingOptions are the arguments of [Embedding] that have defaults.
type EmbeddingOptions struct {
	PaddingIdx      gotorch.Scalar // a row that is zero and gets no gradient, from the end if negative; default: none
	MaxNorm         gotorch.Scalar // rows of a greater norm are made as short when they are used; default: none
	NormType        gotorch.Scalar // the p of that norm; default: 2
	ScaleGradByFreq bool           // divide gradients by how often a word comes
	Sparse          bool           // make the gradient of Weight sparse
	Weight          gotorch.Tensor // what the rows begin as; default: numbers from a normal distribution
	Freeze          bool           // the rows are not to be learned
	Device          gotorch.Device
	DType           gotorch.DType
}

// Embedding has a vector for each of numEmbeddings words: (*) of int64 → (*, embeddingDim). It panics with a
// ValueError if PaddingIdx is no row, or Weight has another shape. PyTorch's Embedding.from_pretrained is
//
//	nn.Embedding(rows, columns, nn.EmbeddingOptions{Weight: pretrained, Freeze: true})
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html.
func Embedding(numEmbeddings, embeddingDim int64, opts ...EmbeddingOptions) *EmbeddingModule {
	const op = "nn.Embedding"
	opt := args.Option(opts)
	m := &EmbeddingModule{NumEmbeddings: numEmbeddings, EmbeddingDim: embeddingDim,
		PaddingIdx: paddingRow(op, opt.PaddingIdx, numEmbeddings), MaxNorm: optionalFloat(op, "MaxNorm", opt.MaxNorm),
		NormType: args.Float(op, "NormType", opt.NormType, 2), ScaleGradByFreq: opt.ScaleGradByFreq, Sparse: opt.Sparse}
	m.Weight = rows(op, opt.Weight, numEmbeddings, embeddingDim, gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}, m.ResetParameters, &m.Weight)
	Init(m)
	if opt.Freeze {
		m.Weight.RequiresGrad_(false)
	}
	return m
}

// paddingRow returns the number of a row as an int64, or nil. It panics with a ValueError if there is no such
// row.
func paddingRow(op string, field gotorch.Scalar, n int64) gotorch.Scalar {
	if !args.Given(field) {
		return nil
	}
	i := args.Int(op, "PaddingIdx", field, 0)
	if i >= n || i < -n {
		panic(args.ValueError(op, "padding_idx must be within num_embeddings, %d, but is %d", n, i))
	}
	if i < 0 {
		i += n
	}
	return i
}

func optionalFloat(op, name string, field gotorch.Scalar) gotorch.Scalar {
	if p := args.FloatPointer(op, name, field); p != nil {
		return *p
	}
	return nil
}

// rows returns what an embedding begins as: given, or new rows that reset fills when they are in field.
func rows(op string, given gotorch.Tensor, n, dim int64, create gotorch.TensorOptions, reset func(), field *gotorch.Tensor) gotorch.Tensor {
	if given.T == nil {
		*field = gotorch.Empty([]int64{n, dim}, create)
		reset()
		return *field
	}
	if s := given.Shape(); len(s) != 2 || s[0] != n || s[1] != dim {
		panic(args.ValueError(op, "the shape of Weight, %v, does not match num_embeddings and embedding_dim, %d and %d", s, n, dim))
	}
	return Parameter(given)
}

func resetRows(weight gotorch.Tensor, padding gotorch.Scalar) {
	nninit.Normal_(weight)
	if row := args.IntPointer("nn.Embedding", "PaddingIdx", padding); row != nil {
		gotorch.NoGrad(func() { weight.Select(0, *row).Fill_(0) })
	}
}

// ResetParameters draws the rows anew from a normal distribution.
func (m *EmbeddingModule) ResetParameters() { resetRows(m.Weight, m.PaddingIdx) }

// Forward returns the rows that x has the numbers of.
func (m *EmbeddingModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.hooked(m) {
		return m.around1(m.forward, x)
	}
	return m.forward(x)
}

func (m *EmbeddingModule) forward(x gotorch.Tensor) gotorch.Tensor {
	m.outer()
	return F.Embedding(x, m.Weight, F.EmbeddingOptions{PaddingIdx: m.PaddingIdx, MaxNorm: m.MaxNorm, NormType: m.NormType,
		ScaleGradByFreq: m.ScaleGradByFreq, Sparse: m.Sparse})
}

// KeepsNothing says that Forward keeps no tensor: see [KeepsNothing].
func (m *EmbeddingModule) KeepsNothing() bool { return m.plain(m) }

// ExtraRepr returns what String writes between the parentheses.
func (m *EmbeddingModule) ExtraRepr() string {
	return embeddingRepr(m.NumEmbeddings, m.EmbeddingDim, m.PaddingIdx, m.MaxNorm, m.NormType, m.ScaleGradByFreq) + when(m.Sparse, ", sparse=True")
}

func embeddingRepr(n, dim int64, padding, maxNorm gotorch.Scalar, normType float64, scale bool) string {
	s := fmt.Sprintf("%d, %d", n, dim)
	if padding != nil {
		s += fmt.Sprintf(", padding_idx=%d", padding)
	}
	s += when(maxNorm != nil, ", max_norm="+pyOptionalFloat(maxNorm))
	s += when(normType != 2, ", norm_type="+pyFloat(normType))
	return s + when(scale, ", scale_grad_by_freq=True")
}

// EmbeddingBagModule is what [EmbeddingBag] makes.
type EmbeddingBagModule struct {
	Module
	NumEmbeddings, EmbeddingDim int64
	MaxNorm                     gotorch.Scalar // a float64, or nil
	NormType                    float64
	ScaleGradByFreq             bool
	Mode                        F.EmbeddingBagMode
	Sparse, IncludeLastOffset   bool
	PaddingIdx                  gotorch.Scalar // an int64, or nil

	Weight gotorch.Tensor // (NumEmbeddings, EmbeddingDim)
}

// EmbeddingBagOptions are the arguments of [EmbeddingBag] that have defaults.
type EmbeddingBagOptions struct {
	MaxNorm           gotorch.Scalar     // rows of a greater norm are made as short when they are used; default: none
	NormType          gotorch.Scalar     // the p of that norm; default: 2
	ScaleGradByFreq   bool               // divide gradients by how often a word comes
	Mode              F.EmbeddingBagMode // default: F.BagMean
	Sparse            bool               // make the gradient of Weight sparse
	Weight            gotorch.Tensor     // what the rows begin as; default: numbers from a normal distribution
	Freeze            bool               // the rows are not to be learned
	IncludeLastOffset bool               // the last of the offsets is where the last bag ends
	PaddingIdx        gotorch.Scalar     // a row that is zero and does not count; default: none
	Device            gotorch.Device
	DType             gotorch.DType
}

// EmbeddingBag is [Embedding] that returns the sum, mean or maximum of the rows of each bag of words:
// (B, N) of int64 → (B, embeddingDim), or (N) with the offsets at which bags begin. It panics as Embedding does.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.EmbeddingBag.html.
func EmbeddingBag(numEmbeddings, embeddingDim int64, opts ...EmbeddingBagOptions) *EmbeddingBagModule {
	const op = "nn.EmbeddingBag"
	opt := args.Option(opts)
	m := &EmbeddingBagModule{NumEmbeddings: numEmbeddings, EmbeddingDim: embeddingDim,
		MaxNorm: optionalFloat(op, "MaxNorm", opt.MaxNorm), NormType: args.Float(op, "NormType", opt.NormType, 2),
		ScaleGradByFreq: opt.ScaleGradByFreq, Mode: opt.Mode, Sparse: opt.Sparse, IncludeLastOffset: opt.IncludeLastOffset,
		PaddingIdx: paddingRow(op, opt.PaddingIdx, numEmbeddings)}
	if m.Mode == "" {
		m.Mode = F.BagMean
	}
	m.Weight = rows(op, opt.Weight, numEmbeddings, embeddingDim, gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}, m.ResetParameters, &m.Weight)
	Init(m)
	if opt.Freeze {
		m.Weight.RequiresGrad_(false)
	}
	return m
}

// ResetParameters draws the rows anew from a normal distribution.
func (m *EmbeddingBagModule) ResetParameters() { resetRows(m.Weight, m.PaddingIdx) }

// EmbeddingBagForward are the arguments of [EmbeddingBagModule.Forward] that have defaults.
type EmbeddingBagForward struct {
	Offsets          gotorch.Tensor // where each bag begins, (B), for an input of one dimension
	PerSampleWeights gotorch.Tensor // of the shape of the input; only with F.BagSum
}

// Forward returns F.EmbeddingBag of x.
func (m *EmbeddingBagModule) Forward(x gotorch.Tensor, opts ...EmbeddingBagForward) gotorch.Tensor {
	opt := args.Option(opts)
	forward := func(x gotorch.Tensor) gotorch.Tensor {
		m.outer()
		return F.EmbeddingBag(x, m.Weight, F.EmbeddingBagOptions{Offsets: opt.Offsets, MaxNorm: m.MaxNorm, NormType: m.NormType,
			ScaleGradByFreq: m.ScaleGradByFreq, Mode: m.Mode, Sparse: m.Sparse, PerSampleWeights: opt.PerSampleWeights,
			IncludeLastOffset: m.IncludeLastOffset, PaddingIdx: m.PaddingIdx})
	}
	if m.hooked(m) {
		return m.around1(forward, x)
	}
	return forward(x)
}

// ExtraRepr returns what String writes between the parentheses.
func (m *EmbeddingBagModule) ExtraRepr() string {
	s := embeddingRepr(m.NumEmbeddings, m.EmbeddingDim, nil, m.MaxNorm, m.NormType, m.ScaleGradByFreq) + ", mode=" + pyQuoted(m.Mode)
	if m.PaddingIdx != nil {
		s += fmt.Sprintf(", padding_idx=%d", m.PaddingIdx)
	}
	return s
}
