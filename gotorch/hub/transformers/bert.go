package transformers

import (
	"fmt"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/hub"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// BertConfig is what config.json says of a BERT: transformers' BertConfig.
type BertConfig struct {
	VocabSize             int64             `json:"vocab_size"`
	HiddenSize            int64             `json:"hidden_size"`
	NumHiddenLayers       int64             `json:"num_hidden_layers"`
	NumAttentionHeads     int64             `json:"num_attention_heads"`
	IntermediateSize      int64             `json:"intermediate_size"`
	HiddenAct             string            `json:"hidden_act"`
	HiddenDropoutProb     float64           `json:"hidden_dropout_prob"`
	AttentionDropoutProb  float64           `json:"attention_probs_dropout_prob"`
	MaxPositionEmbeddings int64             `json:"max_position_embeddings"`
	TypeVocabSize         int64             `json:"type_vocab_size"`
	LayerNormEps          float64           `json:"layer_norm_eps"`
	PadTokenID            *int64            `json:"pad_token_id"`
	ClassifierDropout     *float64          `json:"classifier_dropout"` // nil is HiddenDropoutProb
	ID2Label              map[string]string `json:"id2label"`           // the classes of a classifier
	Labels                *int64            `json:"num_labels"`         // how many there are, where it is not the length of ID2Label
}

// DefaultBertConfig returns bert-base, which is what a configuration means that leaves a key out.
func DefaultBertConfig() BertConfig {
	return BertConfig{VocabSize: 30522, HiddenSize: 768, NumHiddenLayers: 12, NumAttentionHeads: 12, IntermediateSize: 3072,
		HiddenAct: "gelu", HiddenDropoutProb: 0.1, AttentionDropoutProb: 0.1, MaxPositionEmbeddings: 512, TypeVocabSize: 2,
		LayerNormEps: 1e-12, PadTokenID: new(int64(0))}
}

// NumLabels is the number of classes: Labels, or that of ID2Label, or two where there is neither.
func (c BertConfig) NumLabels() int64 {
	switch {
	case c.Labels != nil:
		return *c.Labels
	case c.ID2Label != nil:
		return int64(len(c.ID2Label))
	}
	return 2
}

// Bert is transformers' BertModel. [NewBert] makes one, and [LoadBert] loads one.
type Bert struct {
	nn.Module
	Embeddings *BertEmbeddings
	Encoder    *BertEncoder
	Pooler     *BertPooler

	Config BertConfig
}

// BertEmbeddings is what [Bert] makes of tokens.
type BertEmbeddings struct {
	nn.Module
	WordEmbeddings      *nn.EmbeddingModule
	PositionEmbeddings  *nn.EmbeddingModule
	TokenTypeEmbeddings *nn.EmbeddingModule
	LayerNorm           *nn.LayerNormModule `nn:"LayerNorm"`
	Dropout             nn.Layer
}

// BertEncoder is the layers of [Bert].
type BertEncoder struct {
	nn.Module
	Layer []*BertLayer
}

// BertLayer is a layer of [Bert].
type BertLayer struct {
	nn.Module
	Attention    *BertAttention
	Intermediate *BertDense
	Output       *BertOutput

	act func(gotorch.Tensor) gotorch.Tensor
}

// BertAttention is the attention of a [BertLayer].
type BertAttention struct {
	nn.Module
	Self   *BertSelfAttention
	Output *BertOutput
}

// BertSelfAttention is the part of a [BertAttention] before its output.
type BertSelfAttention struct {
	nn.Module
	Query, Key, Value *nn.LinearModule

	run attention
}

// BertDense is a linear layer under the name dense.
type BertDense struct {
	nn.Module
	Dense *nn.LinearModule
}

// BertOutput is a linear layer whose result is added to what came before, and normalised.
type BertOutput struct {
	nn.Module
	Dense     *nn.LinearModule
	LayerNorm *nn.LayerNormModule `nn:"LayerNorm"`
	Dropout   nn.Layer
}

// BertPooler makes one vector of a text, of its first token.
type BertPooler = BertDense

// BertClassifier is transformers' BertForSequenceClassification. [NewBertClassifier] makes one, and [LoadBertClassifier]
// loads one.
type BertClassifier struct {
	nn.Module
	Bert       *Bert
	Dropout    nn.Layer
	Classifier *nn.LinearModule
}

// BertOptions are the arguments of [Bert.ForwardWith] that have defaults.
type BertOptions struct {
	// AttentionMask, (N, T), says which tokens count, by a number that is not zero or by true. Default: all.
	AttentionMask gotorch.Tensor
	// TokenTypeIDs, (N, T), tell a second text from a first one. Default: 0.
	TokenTypeIDs gotorch.Tensor
}

// NewBert makes a BERT with random weights. It panics with a ValueError if sizes do not fit, and with a
// NotImplementedError for an activation that it does not know.
func NewBert(config BertConfig, opts ...Options) *Bert {
	const op = "transformers.NewBert"
	opt := args.Option(opts)
	checkSizes(op, map[string]int64{"VocabSize": config.VocabSize, "HiddenSize": config.HiddenSize, "NumAttentionHeads": config.NumAttentionHeads,
		"IntermediateSize": config.IntermediateSize, "MaxPositionEmbeddings": config.MaxPositionEmbeddings, "TypeVocabSize": config.TypeVocabSize},
		config.HiddenSize, config.NumAttentionHeads)
	hidden := config.HiddenSize
	norm := func() *nn.LayerNormModule { return opt.layerNorm(hidden, config.LayerNormEps) }
	embedding := func(n int64, padding *int64) *nn.EmbeddingModule {
		o := nn.EmbeddingOptions{Device: opt.Device, DType: opt.DType}
		if padding != nil {
			o.PaddingIdx = *padding
		}
		m := nn.Embedding(n, hidden, o)
		gotorch.NoGrad(func() { m.Weight.MulScalar_(0.02) }) // the row for padding stays zero
		return m
	}
	output := func(in int64) *BertOutput {
		return nn.Init(&BertOutput{Dense: opt.linear(in, hidden, true), LayerNorm: norm(), Dropout: nn.Dropout(config.HiddenDropoutProb)})
	}
	e := nn.Init(&BertEmbeddings{WordEmbeddings: embedding(config.VocabSize, config.PadTokenID), PositionEmbeddings: embedding(config.MaxPositionEmbeddings, nil),
		TokenTypeEmbeddings: embedding(config.TypeVocabSize, nil), LayerNorm: norm(), Dropout: nn.Dropout(config.HiddenDropoutProb)})
	encoder := &BertEncoder{}
	for range config.NumHiddenLayers {
		self := nn.Init(&BertSelfAttention{Query: opt.linear(hidden, hidden, true), Key: opt.linear(hidden, hidden, true), Value: opt.linear(hidden, hidden, true),
			run: attention{heads: config.NumAttentionHeads, keyHeads: config.NumAttentionHeads, dropout: config.AttentionDropoutProb,
				scale: 1 / math.Sqrt(float64(hidden/config.NumAttentionHeads))}})
		encoder.Layer = append(encoder.Layer, nn.Init(&BertLayer{
			Attention:    nn.Init(&BertAttention{Self: self, Output: output(hidden)}),
			Intermediate: nn.Init(&BertDense{Dense: opt.linear(hidden, config.IntermediateSize, true)}),
			Output:       output(config.IntermediateSize), act: activation(op, config.HiddenAct)}))
	}
	return nn.Init(&Bert{Embeddings: e, Encoder: nn.Init(encoder), Pooler: nn.Init(&BertPooler{Dense: opt.linear(hidden, hidden, true)}), Config: config})
}

// NewBertClassifier makes a [BertClassifier] of config.NumLabels classes with random weights. It panics as [NewBert] does.
func NewBertClassifier(config BertConfig, opts ...Options) *BertClassifier {
	opt := args.Option(opts)
	p := args.Or(config.ClassifierDropout, config.HiddenDropoutProb)
	return nn.Init(&BertClassifier{Bert: NewBert(config, opt), Dropout: nn.Dropout(p), Classifier: opt.linear(config.HiddenSize, config.NumLabels(), true)})
}

// BertMapping returns what becomes what between a folder of transformers and a [Bert]: a prefix that a folder of a
// model with a head has, and the names that its norms had in old folders. Positions that those have are left out.
func BertMapping() hub.Mapping {
	return append(oldBert(), hub.Prefix("bert.", "").LoadOnly(), hub.Drop("embeddings.position_ids"))
}

// BertClassifierMapping is [BertMapping] for a [BertClassifier], whose names have the prefix.
func BertClassifierMapping() hub.Mapping {
	return append(oldBert(), hub.Prefix("embeddings.", "bert.embeddings.").LoadOnly(), hub.Prefix("encoder.", "bert.encoder.").LoadOnly(),
		hub.Prefix("pooler.", "bert.pooler.").LoadOnly(), hub.Drop("bert.embeddings.position_ids"))
}

func oldBert() hub.Mapping {
	return hub.Mapping{hub.Name("**.LayerNorm.gamma", "**.LayerNorm.weight").LoadOnly(), hub.Name("**.LayerNorm.beta", "**.LayerNorm.bias").LoadOnly()}
}

// LoadBert loads a folder whose model_type is bert, in evaluation mode. With Partial it leaves the weights of a head
// alone. Errors are those of [hub.LoadInto] and of [NewBert], and of kind NotImplementedError for a decoder and for
// positions that are relative.
func LoadBert(folder *hub.Folder, opts ...LoadOptions) (*Bert, *hub.Report, error) {
	return loadBert("transformers.LoadBert", folder, BertMapping(), opts, NewBert)
}

// LoadBertClassifier is [LoadBert] for a [BertClassifier].
func LoadBertClassifier(folder *hub.Folder, opts ...LoadOptions) (*BertClassifier, *hub.Report, error) {
	return loadBert("transformers.LoadBertClassifier", folder, BertClassifierMapping(), opts, NewBertClassifier)
}

func loadBert[M nn.Modular](op string, folder *hub.Folder, mapping hub.Mapping, opts []LoadOptions, make func(BertConfig, ...Options) M) (M, *hub.Report, error) {
	config := DefaultBertConfig()
	if err := decode(op, folder, "bert", &config); err != nil {
		var none M
		return none, nil, err
	}
	if err := knownBert(op, folder.Config()); err != nil {
		var none M
		return none, nil, err
	}
	return load(op, folder, config.NumHiddenLayers, mapping, opts, func(opt Options) M { return make(config, opt) })
}

// knownBert returns an error for a folder whose weights would fit, and mean something else.
func knownBert(op string, config *hub.Config) error {
	decoder, err := hub.GetOr(config, false, "is_decoder")
	if err != nil {
		return err
	}
	places, err := hub.GetOr(config, "absolute", "position_embedding_type")
	if err != nil {
		return err
	}
	unknown := func(what string) error {
		return &gotorch.Error{Op: op, Kind: gotorch.NotImplementedError, Msg: "config.json says " + what}
	}
	switch {
	case decoder:
		return unknown("is_decoder: the tokens of such a BERT see those before them only, and this one's see all")
	case places != "absolute":
		return unknown(fmt.Sprintf("position_embedding_type %q, where this BERT knows absolute positions only", places))
	}
	return nil
}

// Forward returns the last hidden states: (N, T) of int64 → (N, T, HiddenSize).
func (m *Bert) Forward(ids gotorch.Tensor) gotorch.Tensor {
	hidden, _ := m.ForwardWith(ids)
	return hidden
}

// ForwardWith returns the last hidden states, (N, T, HiddenSize), and what the pooler makes of the first, (N, HiddenSize).
func (m *Bert) ForwardWith(ids gotorch.Tensor, opts ...BertOptions) (hidden, pooled gotorch.Tensor) {
	const op = "transformers.Bert"
	opt := args.Option(opts)
	checkIDs(op, ids, 0, m.Config.MaxPositionEmbeddings)
	var mask gotorch.Tensor
	if opt.AttentionMask.Defined() {
		mask = paddingMask(op, opt.AttentionMask, ids.Size(1))
	}
	types := opt.TokenTypeIDs
	if !types.Defined() {
		types = gotorch.ZerosLike(ids)
	}
	e := m.Embeddings
	x := nn.Call(e.WordEmbeddings, ids).Add(nn.Call(e.TokenTypeEmbeddings, types)).Add(nn.Call(e.PositionEmbeddings, positions(ids, ForwardOptions{})))
	x = nn.Call(e.Dropout, nn.Call(e.LayerNorm, x))
	for _, layer := range m.Encoder.Layer {
		x = layer.forward(x, mask)
	}
	return x, nn.Call(m.Pooler.Dense, x.Select(1, 0)).Tanh()
}

func (m *BertLayer) forward(x, mask gotorch.Tensor) gotorch.Tensor {
	self := m.Attention.Self
	y := self.run.run(split(nn.Call(self.Query, x), self.run.heads), split(nn.Call(self.Key, x), self.run.heads), split(nn.Call(self.Value, x), self.run.heads), mask, m.Training())
	x = m.Attention.Output.forward(y, x)
	return m.Output.forward(m.act(nn.Call(m.Intermediate.Dense, x)), x)
}

func (m *BertOutput) forward(x, before gotorch.Tensor) gotorch.Tensor {
	return nn.Call(m.LayerNorm, nn.Call(m.Dropout, nn.Call(m.Dense, x)).Add(before))
}

// Forward returns logits of classes: (N, T) of int64 → (N, NumLabels).
func (m *BertClassifier) Forward(ids gotorch.Tensor) gotorch.Tensor { return m.ForwardWith(ids) }

// ForwardWith is Forward with options.
func (m *BertClassifier) ForwardWith(ids gotorch.Tensor, opts ...BertOptions) gotorch.Tensor {
	_, pooled := m.Bert.ForwardWith(ids, opts...)
	return nn.Call(m.Classifier, nn.Call(m.Dropout, pooled))
}
