package transformers

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/hub"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// GPT2Config is what config.json says of a GPT-2: transformers' GPT2Config.
type GPT2Config struct {
	VocabSize          int64   `json:"vocab_size"`
	NPositions         int64   `json:"n_positions"`
	NEmbd              int64   `json:"n_embd"`
	NLayer             int64   `json:"n_layer"`
	NHead              int64   `json:"n_head"`
	NInner             int64   `json:"n_inner"` // 0 is 4·NEmbd
	ActivationFunction string  `json:"activation_function"`
	LayerNormEpsilon   float64 `json:"layer_norm_epsilon"`
	ResidPDrop         float64 `json:"resid_pdrop"`
	EmbdPDrop          float64 `json:"embd_pdrop"`
	AttnPDrop          float64 `json:"attn_pdrop"`
	ScaleAttnWeights   bool    `json:"scale_attn_weights"`
	ScaleByLayer       bool    `json:"scale_attn_by_inverse_layer_idx"`
	TieWordEmbeddings  bool    `json:"tie_word_embeddings"`
}

// DefaultGPT2Config returns the smallest of the published models: what a configuration means that leaves a key out.
func DefaultGPT2Config() GPT2Config {
	return GPT2Config{VocabSize: 50257, NPositions: 1024, NEmbd: 768, NLayer: 12, NHead: 12, ActivationFunction: "gelu_new",
		LayerNormEpsilon: 1e-5, ResidPDrop: 0.1, EmbdPDrop: 0.1, AttnPDrop: 0.1, ScaleAttnWeights: true, TieWordEmbeddings: true}
}

// GPT2 is transformers' GPT2LMHeadModel. [NewGPT2] makes one, and [LoadGPT2] loads one.
type GPT2 struct {
	nn.Module
	Transformer *GPT2Transformer
	LMHead      *nn.LinearModule

	Config GPT2Config
}

// GPT2Transformer is GPT-2 without its head.
type GPT2Transformer struct {
	nn.Module
	WTE  *nn.EmbeddingModule
	WPE  *nn.EmbeddingModule
	Drop nn.Layer
	H    []*GPT2Block
	LNF  *nn.LayerNormModule `nn:"ln_f"`
}

// GPT2Block is a layer of GPT-2.
type GPT2Block struct {
	nn.Module
	LN1  *nn.LayerNormModule `nn:"ln_1"`
	Attn *GPT2Attention
	LN2  *nn.LayerNormModule `nn:"ln_2"`
	MLP  *GPT2MLP
}

// GPT2Attention is the attention of a [GPT2Block].
type GPT2Attention struct {
	nn.Module
	CAttn   *nn.LinearModule `nn:"c_attn"`
	CProj   *nn.LinearModule `nn:"c_proj"`
	Dropout nn.Layer

	run   attention
	layer int
}

// GPT2MLP is two linear layers of a [GPT2Block].
type GPT2MLP struct {
	nn.Module
	CFC     *nn.LinearModule `nn:"c_fc"`
	CProj   *nn.LinearModule `nn:"c_proj"`
	Dropout nn.Layer

	act func(gotorch.Tensor) gotorch.Tensor
}

// GPT2Mapping returns what becomes what between a folder of transformers and a [GPT2]: linear layers are the other
// way round there, and folders of a model without a head, or of before there were prefixes, have shorter names. Masks
// that old folders have are left out.
func GPT2Mapping() hub.Mapping {
	return hub.Mapping{
		hub.Prefix("wte.", "transformer.wte.").LoadOnly(), hub.Prefix("wpe.", "transformer.wpe.").LoadOnly(),
		hub.Prefix("h.", "transformer.h.").LoadOnly(), hub.Prefix("ln_f.", "transformer.ln_f.").LoadOnly(),
		hub.Name("transformer.h.*.attn.c_attn.weight", "transformer.h.*.attn.c_attn.weight").Transposed(),
		hub.Name("transformer.h.*.attn.c_proj.weight", "transformer.h.*.attn.c_proj.weight").Transposed(),
		hub.Name("transformer.h.*.mlp.c_fc.weight", "transformer.h.*.mlp.c_fc.weight").Transposed(),
		hub.Name("transformer.h.*.mlp.c_proj.weight", "transformer.h.*.mlp.c_proj.weight").Transposed(),
		hub.Drop("transformer.h.*.attn.bias"), hub.Drop("transformer.h.*.attn.masked_bias"),
	}
}

// NewGPT2 makes a GPT-2 with random weights. It panics with a ValueError if sizes do not fit, and with a
// NotImplementedError for an activation that it does not know.
func NewGPT2(config GPT2Config, opts ...Options) *GPT2 {
	const op = "transformers.NewGPT2"
	opt := args.Option(opts)
	if config.NInner == 0 {
		config.NInner = 4 * config.NEmbd
	}
	checkSizes(op, map[string]int64{"VocabSize": config.VocabSize, "NPositions": config.NPositions, "NEmbd": config.NEmbd,
		"NHead": config.NHead, "NInner": config.NInner}, config.NEmbd, config.NHead)
	hidden := config.NEmbd
	norm := func() *nn.LayerNormModule { return opt.layerNorm(hidden, config.LayerNormEpsilon) }
	t := &GPT2Transformer{WTE: opt.embedding(config.VocabSize, hidden), WPE: opt.embedding(config.NPositions, hidden), Drop: nn.Dropout(config.EmbdPDrop)}
	for i := range config.NLayer {
		scale := 1.0
		if config.ScaleAttnWeights {
			scale = 1 / math.Sqrt(float64(hidden/config.NHead))
		}
		if config.ScaleByLayer {
			scale /= float64(i + 1)
		}
		block := &GPT2Block{LN1: norm(), LN2: norm()}
		block.Attn = nn.Init(&GPT2Attention{CAttn: opt.linear(hidden, 3*hidden, true), CProj: opt.linear(hidden, hidden, true),
			Dropout: nn.Dropout(config.ResidPDrop), layer: int(i),
			run: attention{heads: config.NHead, keyHeads: config.NHead, scale: scale, dropout: config.AttnPDrop, causal: true}})
		block.MLP = nn.Init(&GPT2MLP{CFC: opt.linear(hidden, config.NInner, true), CProj: opt.linear(config.NInner, hidden, true),
			Dropout: nn.Dropout(config.ResidPDrop), act: activation(op, config.ActivationFunction)})
		// As many layers add to the residual, each adds the less.
		begin(block.Attn.CProj.Weight, 0.02/math.Sqrt(float64(2*config.NLayer)))
		begin(block.MLP.CProj.Weight, 0.02/math.Sqrt(float64(2*config.NLayer)))
		t.H = append(t.H, nn.Init(block))
	}
	t.LNF = norm()
	m := nn.Init(&GPT2{Transformer: nn.Init(t), LMHead: opt.linear(hidden, config.VocabSize, false), Config: config})
	m.TieWeights()
	return m
}

// LoadGPT2 loads a folder whose model_type is gpt2, in evaluation mode. Sizes may have the names that other models have
// for them, such as hidden_size for n_embd; as in transformers, those are taken where both are there. Errors are those of [hub.LoadInto] and of
// [NewGPT2].
func LoadGPT2(folder *hub.Folder, opts ...LoadOptions) (*GPT2, *hub.Report, error) {
	const op = "transformers.LoadGPT2"
	config := DefaultGPT2Config()
	if err := decode(op, folder, "gpt2", &config); err != nil {
		return nil, nil, err
	}
	for key, size := range map[string]*int64{"hidden_size": &config.NEmbd, "max_position_embeddings": &config.NPositions,
		"num_attention_heads": &config.NHead, "num_hidden_layers": &config.NLayer} {
		var err error
		if *size, err = hub.GetOr(folder.Config(), *size, key); err != nil {
			return nil, nil, err
		}
	}
	return load(op, folder, config.NLayer, GPT2Mapping(), opts, func(opt Options) *GPT2 { return NewGPT2(config, opt) })
}

// TieWeights makes the embedding the weight of the head as well, unless the configuration says otherwise.
func (m *GPT2) TieWeights() {
	if m.Config.TieWordEmbeddings {
		m.LMHead.Weight = m.Transformer.WTE.Weight
	}
}

// MaxPositions is how many tokens there may be.
func (m *GPT2) MaxPositions() int64 { return m.Config.NPositions }

// Forward returns logits of the next token: (N, T) of int64 → (N, T, VocabSize).
func (m *GPT2) Forward(ids gotorch.Tensor) gotorch.Tensor { return m.ForwardWith(ids) }

// ForwardWith is Forward with options.
func (m *GPT2) ForwardWith(ids gotorch.Tensor, opts ...ForwardOptions) gotorch.Tensor {
	return nn.Call(m.LMHead, m.Transformer.ForwardWith(ids, opts...))
}

// ForwardWith returns the last hidden states: (N, T) of int64 → (N, T, NEmbd).
func (m *GPT2Transformer) ForwardWith(ids gotorch.Tensor, opts ...ForwardOptions) gotorch.Tensor {
	const op = "transformers.GPT2"
	opt := args.Option(opts)
	before := opt.Cache.Len()
	checkIDs(op, ids, before, m.WPE.NumEmbeddings)
	mask := causalMask(op, ids.Size(1), before, opt.AttentionMask, ids.Device())
	x := nn.Call(m.WTE, ids).Add(nn.Call(m.WPE, positions(ids, opt)))
	x = nn.Call(m.Drop, x)
	for _, block := range m.H {
		x = block.forward(x, mask, opt.Cache)
	}
	return nn.Call(m.LNF, x)
}

func (m *GPT2Block) forward(x, mask gotorch.Tensor, cache *Cache) gotorch.Tensor {
	x = m.Attn.forward(nn.Call(m.LN1, x), mask, cache).Add(x)
	y := nn.Call(m.MLP.CFC, nn.Call(m.LN2, x))
	return x.Add(nn.Call(m.MLP.Dropout, nn.Call(m.MLP.CProj, m.MLP.act(y))))
}

func (m *GPT2Attention) forward(x, mask gotorch.Tensor, cache *Cache) gotorch.Tensor {
	parts := nn.Call(m.CAttn, x).Split(x.Size(2), gotorch.SplitOptions{Dim: 2})
	key, value := cache.update(m.layer, split(parts[1], m.run.heads), split(parts[2], m.run.heads))
	y := m.run.run(split(parts[0], m.run.heads), key, value, mask, m.Training())
	return nn.Call(m.Dropout, nn.Call(m.CProj, y))
}
