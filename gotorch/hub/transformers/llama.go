package transformers

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/hub"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// LlamaConfig is what config.json says of a Llama: transformers' LlamaConfig.
type LlamaConfig struct {
	VocabSize             int64   `json:"vocab_size"`
	HiddenSize            int64   `json:"hidden_size"`
	IntermediateSize      int64   `json:"intermediate_size"`
	NumHiddenLayers       int64   `json:"num_hidden_layers"`
	NumAttentionHeads     int64   `json:"num_attention_heads"`
	NumKeyValueHeads      int64   `json:"num_key_value_heads"` // 0 is NumAttentionHeads
	HeadDim               int64   `json:"head_dim"`            // 0 is HiddenSize / NumAttentionHeads
	HiddenAct             string  `json:"hidden_act"`
	MaxPositionEmbeddings int64   `json:"max_position_embeddings"`
	RMSNormEps            float64 `json:"rms_norm_eps"`
	TieWordEmbeddings     bool    `json:"tie_word_embeddings"`
	AttentionBias         bool    `json:"attention_bias"`
	AttentionDropout      float64 `json:"attention_dropout"`
	MLPBias               bool    `json:"mlp_bias"`

	// RopeParameters say how positions turn queries and keys. Older folders have RopeScaling instead, and RopeTheta and
	// OriginalMaxPositionEmbeddings beside it. As in transformers, RopeScaling is taken where both are there;
	// RopeTheta counts where the one that is taken has none, and OriginalMaxPositionEmbeddings before the one in it.
	RopeParameters                *Rope   `json:"rope_parameters"`
	RopeTheta                     float64 `json:"rope_theta"`
	RopeScaling                   *Rope   `json:"rope_scaling"`
	OriginalMaxPositionEmbeddings int64   `json:"original_max_position_embeddings"`
}

// Rope says how positions turn queries and keys. The types are default, linear and llama3.
type Rope struct {
	RopeType                      string  `json:"rope_type"`
	Type                          string  `json:"type"` // what RopeType was called
	RopeTheta                     float64 `json:"rope_theta"`
	Factor                        float64 `json:"factor"`
	LowFreqFactor                 float64 `json:"low_freq_factor"`
	HighFreqFactor                float64 `json:"high_freq_factor"`
	OriginalMaxPositionEmbeddings int64   `json:"original_max_position_embeddings"`
}

// DefaultLlamaConfig returns what a configuration means that leaves a key out: the 7B model of the first version.
func DefaultLlamaConfig() LlamaConfig {
	return LlamaConfig{VocabSize: 32000, HiddenSize: 4096, IntermediateSize: 11008, NumHiddenLayers: 32, NumAttentionHeads: 32,
		HiddenAct: "silu", MaxPositionEmbeddings: 2048, RMSNormEps: 1e-6}
}

// Llama is transformers' LlamaForCausalLM. [NewLlama] makes one, and [LoadLlama] loads one.
type Llama struct {
	nn.Module
	Model  *LlamaModel
	LMHead *nn.LinearModule

	Config LlamaConfig
}

// LlamaModel is Llama without its head.
type LlamaModel struct {
	nn.Module
	EmbedTokens *nn.EmbeddingModule
	Layers      []*LlamaLayer
	Norm        *LlamaNorm

	config LlamaConfig
	rope   Rope
}

// LlamaLayer is a layer of Llama.
type LlamaLayer struct {
	nn.Module
	SelfAttn               *LlamaAttention
	MLP                    *LlamaMLP
	InputLayernorm         *LlamaNorm
	PostAttentionLayernorm *LlamaNorm
}

// LlamaAttention is the attention of a [LlamaLayer].
type LlamaAttention struct {
	nn.Module
	QProj, KProj, VProj, OProj *nn.LinearModule

	run   attention
	layer int
}

// LlamaMLP is the gated linear layers of a [LlamaLayer].
type LlamaMLP struct {
	nn.Module
	GateProj, UpProj, DownProj *nn.LinearModule

	act func(gotorch.Tensor) gotorch.Tensor
}

// LlamaNorm divides by the root of the mean of squares, which it computes in float32.
type LlamaNorm struct {
	nn.Module
	Weight gotorch.Tensor
	Eps    float64
}

// NewLlama makes a Llama with random weights. It panics with a ValueError if sizes do not fit, and with a
// NotImplementedError for an activation or a type of RoPE that it does not know.
func NewLlama(config LlamaConfig, opts ...Options) *Llama {
	const op = "transformers.NewLlama"
	opt := args.Option(opts)
	if config.NumKeyValueHeads == 0 {
		config.NumKeyValueHeads = config.NumAttentionHeads
	}
	sizes := map[string]int64{"VocabSize": config.VocabSize, "HiddenSize": config.HiddenSize, "IntermediateSize": config.IntermediateSize,
		"NumAttentionHeads": config.NumAttentionHeads, "NumKeyValueHeads": config.NumKeyValueHeads, "MaxPositionEmbeddings": config.MaxPositionEmbeddings}
	checkSizes(op, sizes, config.NumAttentionHeads, config.NumKeyValueHeads)
	if config.HeadDim == 0 {
		checkSizes(op, nil, config.HiddenSize, config.NumAttentionHeads)
		config.HeadDim = config.HiddenSize / config.NumAttentionHeads
	}
	if config.HeadDim < 2 || config.HeadDim%2 != 0 || config.HeadDim > math.MaxInt32 {
		panic(args.ValueError(op, "HeadDim must be positive and even, got %d", config.HeadDim))
	}
	norm := func() *LlamaNorm {
		return nn.Init(&LlamaNorm{Weight: gotorch.Ones([]int64{config.HiddenSize}, gotorch.TensorOptions{Device: opt.Device, DType: opt.DType}), Eps: config.RMSNormEps})
	}
	m := &LlamaModel{config: config, rope: config.rope(op), EmbedTokens: opt.embedding(config.VocabSize, config.HiddenSize)}
	hidden, queries, keys := config.HiddenSize, config.NumAttentionHeads*config.HeadDim, config.NumKeyValueHeads*config.HeadDim
	for i := range config.NumHiddenLayers {
		layer := &LlamaLayer{InputLayernorm: norm(), PostAttentionLayernorm: norm()}
		layer.SelfAttn = nn.Init(&LlamaAttention{QProj: opt.linear(hidden, queries, config.AttentionBias), KProj: opt.linear(hidden, keys, config.AttentionBias),
			VProj: opt.linear(hidden, keys, config.AttentionBias), OProj: opt.linear(queries, hidden, config.AttentionBias), layer: int(i),
			run: attention{heads: config.NumAttentionHeads, keyHeads: config.NumKeyValueHeads, scale: 1 / math.Sqrt(float64(config.HeadDim)), dropout: config.AttentionDropout, causal: true}})
		layer.MLP = nn.Init(&LlamaMLP{GateProj: opt.linear(hidden, config.IntermediateSize, config.MLPBias), UpProj: opt.linear(hidden, config.IntermediateSize, config.MLPBias),
			DownProj: opt.linear(config.IntermediateSize, hidden, config.MLPBias), act: activation(op, config.HiddenAct)})
		m.Layers = append(m.Layers, nn.Init(layer))
	}
	m.Norm = norm()
	l := nn.Init(&Llama{Model: nn.Init(m), LMHead: opt.linear(hidden, config.VocabSize, false), Config: config})
	l.TieWeights()
	return l
}

// rope returns how positions turn, of what newer and older folders say of it.
func (c LlamaConfig) rope(op string) Rope {
	r := Rope{}
	if c.RopeScaling != nil {
		r = *c.RopeScaling
	} else if c.RopeParameters != nil {
		r = *c.RopeParameters
	}
	if r.RopeType == "" {
		r.RopeType = r.Type
	}
	if r.RopeType == "" {
		r.RopeType = "default"
	}
	if r.RopeTheta == 0 {
		r.RopeTheta = c.RopeTheta
	}
	if r.RopeTheta == 0 {
		r.RopeTheta = 10000
	}
	if c.OriginalMaxPositionEmbeddings != 0 {
		r.OriginalMaxPositionEmbeddings = c.OriginalMaxPositionEmbeddings
	}
	if r.OriginalMaxPositionEmbeddings == 0 {
		r.OriginalMaxPositionEmbeddings = c.MaxPositionEmbeddings
	}
	switch r.RopeType {
	case "default":
	case "linear", "llama3":
		if !(r.Factor > 0) || r.RopeType == "llama3" && !(r.HighFreqFactor > r.LowFreqFactor) {
			panic(args.ValueError(op, "RoPE of type %q needs a positive factor, and for llama3 a high_freq_factor above low_freq_factor", r.RopeType))
		}
	default:
		panic(args.Errorf(op, gotorch.NotImplementedError, "RoPE of type %q is none of default, linear and llama3", r.RopeType))
	}
	return r
}

// frequencies returns by how much each pair of features turns from one position to the next: (dim/2) of float32.
func (r Rope) frequencies(dim int64, device gotorch.Device) gotorch.Tensor {
	exponents := gotorch.ArangeStartStep(0, dim, gotorch.ArangeStartStepOptions{Step: 2, DType: gotorch.Float32, Device: device}).DivScalar(dim)
	freq := gotorch.PowScalarBase(r.RopeTheta, exponents).Reciprocal()
	switch r.RopeType {
	case "linear":
		return freq.DivScalar(r.Factor)
	case "llama3":
		// Slow turns are slowed down, fast ones stay, and what is between is between.
		original := float64(r.OriginalMaxPositionEmbeddings)
		wavelength := freq.Reciprocal().MulScalar(2 * math.Pi)
		slow := freq.DivScalar(r.Factor)
		smooth := wavelength.Reciprocal().MulScalar(original).SubScalar(r.LowFreqFactor).DivScalar(r.HighFreqFactor - r.LowFreqFactor)
		between := smooth.Neg().AddScalar(1.0).Mul(freq).DivScalar(r.Factor).Add(smooth.Mul(freq))
		freq = gotorch.Where(wavelength.GtScalar(original/r.LowFreqFactor), slow,
			gotorch.Where(wavelength.LtScalar(original/r.HighFreqFactor), freq, between))
	}
	return freq
}

// turn rotates pairs of features by their angles.
func turn(x, cos, sin gotorch.Tensor) gotorch.Tensor {
	half := x.Size(-1) / 2
	turned := gotorch.Cat([]gotorch.Tensor{x.Narrow(-1, half, half).Neg(), x.Narrow(-1, 0, half)}, gotorch.CatOptions{Dim: -1})
	return x.Mul(cos).Add(turned.Mul(sin))
}

// LlamaMapping returns what becomes what between a folder of transformers and a [Llama]: nothing but the prefix that
// a folder of a model without a head lacks, and tables that old folders have.
func LlamaMapping() hub.Mapping {
	return hub.Mapping{
		hub.Prefix("embed_tokens.", "model.embed_tokens.").LoadOnly(), hub.Prefix("layers.", "model.layers.").LoadOnly(),
		hub.Prefix("norm.", "model.norm.").LoadOnly(),
		hub.Drop("model.layers.*.self_attn.rotary_emb.inv_freq"),
	}
}

// LoadLlama loads a folder whose model_type is llama, in evaluation mode. Errors are those of [hub.LoadInto] and of
// [NewLlama].
func LoadLlama(folder *hub.Folder, opts ...LoadOptions) (*Llama, *hub.Report, error) {
	const op = "transformers.LoadLlama"
	config := DefaultLlamaConfig()
	if err := decode(op, folder, "llama", &config); err != nil {
		return nil, nil, err
	}
	// An empty object is as none.
	if scaling, err := hub.GetOr(folder.Config(), map[string]any{}, "rope_scaling"); err != nil {
		return nil, nil, err
	} else if len(scaling) == 0 {
		config.RopeScaling = nil
	}
	return load(op, folder, config.NumHiddenLayers, LlamaMapping(), opts, func(opt Options) *Llama { return NewLlama(config, opt) })
}

// TieWeights makes the embedding the weight of the head as well, if the configuration says so.
func (m *Llama) TieWeights() {
	if m.Config.TieWordEmbeddings {
		m.LMHead.Weight = m.Model.EmbedTokens.Weight
	}
}

// MaxPositions is how many tokens there may be.
func (m *Llama) MaxPositions() int64 { return m.Config.MaxPositionEmbeddings }

// Forward returns logits of the next token: (N, T) of int64 → (N, T, VocabSize).
func (m *Llama) Forward(ids gotorch.Tensor) gotorch.Tensor { return m.ForwardWith(ids) }

// ForwardWith is Forward with options.
func (m *Llama) ForwardWith(ids gotorch.Tensor, opts ...ForwardOptions) gotorch.Tensor {
	return nn.Call(m.LMHead, m.Model.ForwardWith(ids, opts...))
}

// ForwardWith returns the last hidden states: (N, T) of int64 → (N, T, HiddenSize).
func (m *LlamaModel) ForwardWith(ids gotorch.Tensor, opts ...ForwardOptions) gotorch.Tensor {
	const op = "transformers.Llama"
	opt := args.Option(opts)
	before := opt.Cache.Len()
	checkIDs(op, ids, before, m.config.MaxPositionEmbeddings)
	mask := causalMask(op, ids.Size(1), before, opt.AttentionMask, ids.Device())
	x := nn.Call(m.EmbedTokens, ids)
	angles := positions(ids, opt).Unsqueeze(-1).To(gotorch.Float32).Mul(m.rope.frequencies(m.config.HeadDim, ids.Device()))
	angles = gotorch.Cat([]gotorch.Tensor{angles, angles}, gotorch.CatOptions{Dim: -1}).Unsqueeze(1)
	cos, sin := angles.Cos().To(x.DType()), angles.Sin().To(x.DType())
	for _, layer := range m.Layers {
		x = x.Add(layer.SelfAttn.forward(nn.Call(layer.InputLayernorm, x), cos, sin, mask, opt.Cache))
		x = x.Add(nn.Call(layer.MLP, nn.Call(layer.PostAttentionLayernorm, x)))
	}
	return nn.Call(m.Norm, x)
}

func (m *LlamaAttention) forward(x, cos, sin, mask gotorch.Tensor, cache *Cache) gotorch.Tensor {
	query := turn(split(nn.Call(m.QProj, x), m.run.heads), cos, sin)
	key, value := turn(split(nn.Call(m.KProj, x), m.run.keyHeads), cos, sin), split(nn.Call(m.VProj, x), m.run.keyHeads)
	key, value = cache.update(m.layer, key, value)
	return nn.Call(m.OProj, m.run.run(query, key, value, mask, m.Training()))
}

// Forward returns down(act(gate(x))·up(x)).
func (m *LlamaMLP) Forward(x gotorch.Tensor) gotorch.Tensor {
	return nn.Call(m.DownProj, m.act(nn.Call(m.GateProj, x)).Mul(nn.Call(m.UpProj, x)))
}

// Forward returns Weight·x/√(mean(x²)+Eps).
func (m *LlamaNorm) Forward(x gotorch.Tensor) gotorch.Tensor {
	y := x.To(gotorch.Float32)
	y = y.Mul(y.Pow(2).MeanDim([]int64{-1}, gotorch.MeanDimOptions{KeepDim: true}).AddScalar(m.Eps).Rsqrt())
	return m.Weight.Mul(y.To(x.DType()))
}
