package transformers

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/hub"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

// Options are the arguments of the constructors that have defaults.
type Options struct {
	// Device and DType are those of the parameters. On gotorch.Meta they take no memory, for hub.LoadInto with Assign.
	Device gotorch.Device
	DType  gotorch.DType
}

// LoadOptions are the arguments of [LoadGPT2], [LoadLlama] and the others that have defaults.
type LoadOptions struct {
	// Map leaves the weights in their files until they are used: see [hub.LoadOptions].
	Map bool
	// DType converts the weights. Default: they have the dtype of the folder.
	DType gotorch.DType
	// Device receives the weights. Default: the CPU.
	Device gotorch.Device
	// Partial accepts weights that only the folder has, such as those of another head. Those that only the model has
	// would stay without memory, and are an error anyhow.
	Partial bool
}

// ForwardOptions are the arguments of the models' ForwardWith that have defaults.
type ForwardOptions struct {
	// AttentionMask, (N, S), says which tokens count, by a number that is not zero or by true: those of Cache first,
	// then those of the call. Default: all.
	AttentionMask gotorch.Tensor
	// PositionIDs, (N, T) or (1, T), are the tokens' places. Default: those after the ones in Cache.
	PositionIDs gotorch.Tensor
	// Cache has the keys and values of tokens that came before, and gets those of this call. Default: none.
	Cache *Cache
}

// CausalLM is a language model: each token sees those up to its own place.
type CausalLM interface {
	nn.Layer
	// ForwardWith returns logits of the next token: (N, T) of int64 → (N, T, vocabulary).
	ForwardWith(ids gotorch.Tensor, opts ...ForwardOptions) gotorch.Tensor
	// MaxPositions is how many tokens there may be.
	MaxPositions() int64
}

// Cache keeps the keys and values of each layer, so that a token that is added costs as much as one token. Its zero
// value is empty. It is for one sequence of calls of one model, without gradients.
type Cache struct{ keys, values []gotorch.Tensor }

// Len returns how many tokens there are.
func (c *Cache) Len() int64 {
	if c == nil || len(c.keys) == 0 {
		return 0
	}
	return c.keys[0].Size(-2)
}

// Close frees what is kept. The cache is empty then.
func (c *Cache) Close() {
	for i := range c.keys {
		c.keys[i].Close()
		c.values[i].Close()
	}
	c.keys, c.values = nil, nil
}

// update appends a layer's keys and values, (N, heads, T, E), and returns all.
func (c *Cache) update(layer int, key, value gotorch.Tensor) (keys, values gotorch.Tensor) {
	if c == nil {
		return key, value
	}
	if layer == len(c.keys) {
		gotorch.Unscoped(func() {
			gotorch.NoGrad(func() { c.keys, c.values = append(c.keys, key.Clone()), append(c.values, value.Clone()) })
		})
		return key, value
	}
	join := func(old *gotorch.Tensor, more gotorch.Tensor) gotorch.Tensor {
		var all gotorch.Tensor
		gotorch.Unscoped(func() {
			gotorch.NoGrad(func() { all = gotorch.Cat([]gotorch.Tensor{*old, more}, gotorch.CatOptions{Dim: -2}) })
		})
		old.Close()
		*old = all
		return all
	}
	return join(&c.keys[layer], key), join(&c.values[layer], value)
}

// attention is what the layers of a model share.
type attention struct {
	heads, keyHeads int64
	scale           float64
	dropout         float64
	causal          bool
}

// split makes heads of features: (N, T, heads·E) → (N, heads, T, E).
func split(x gotorch.Tensor, heads int64) gotorch.Tensor {
	return x.View([]int64{x.Size(0), x.Size(1), heads, x.Size(2) / heads}).Transpose(1, 2)
}

// run returns the attention of queries to keys as features again, (N, T, heads·E). before is how many of the keys are
// of tokens before those of the queries.
func (a attention) run(query, key, value, mask gotorch.Tensor, training bool) gotorch.Tensor {
	opt := F.ScaledDotProductAttentionOptions{AttnMask: mask, Scale: a.scale}
	if training {
		opt.DropoutP = a.dropout
	}
	length := query.Size(-2)
	opt.IsCausal = a.causal && length > 1 && !mask.Defined()
	if a.keyHeads != a.heads {
		if mask.Defined() {
			key, value = key.RepeatInterleave(a.heads/a.keyHeads, gotorch.RepeatInterleaveOptions{Dim: new(int64(1))}),
				value.RepeatInterleave(a.heads/a.keyHeads, gotorch.RepeatInterleaveOptions{Dim: new(int64(1))})
		} else {
			opt.EnableGQA = true
		}
	}
	y := F.ScaledDotProductAttention(query, key, value, opt).Transpose(1, 2)
	return y.Reshape([]int64{y.Size(0), length, -1})
}

// causalMask returns the mask for length tokens after before others, true where a key counts: (N, 1, T, S). It is none
// where attention finds it by itself.
func causalMask(op string, length, before int64, padding gotorch.Tensor, device gotorch.Device) gotorch.Tensor {
	if padding.Defined() {
		padding = paddingMask(op, padding, before+length)
	}
	if before == 0 && !padding.Defined() || length == 1 && !padding.Defined() {
		return gotorch.Tensor{}
	}
	all := gotorch.Arange(before+length, gotorch.TensorOptions{DType: gotorch.Int64, Device: device})
	mask := all.Unsqueeze(0).Le(all.Narrow(0, before, length).Unsqueeze(1)).Unsqueeze(0).Unsqueeze(0)
	if padding.Defined() {
		mask = mask.LogicalAnd(padding)
	}
	return mask
}

// paddingMask makes (N, 1, 1, S) of an attention mask.
func paddingMask(op string, mask gotorch.Tensor, length int64) gotorch.Tensor {
	if mask.Dim() != 2 || mask.Size(1) != length {
		panic(args.ValueError(op, "AttentionMask must have the shape (N, %d), for all tokens, got %v", length, mask.Shape()))
	}
	if mask.DType() != gotorch.Bool {
		mask = mask.NeScalar(0)
	}
	return mask.Unsqueeze(1).Unsqueeze(1)
}

// checkIDs panics unless ids are tokens, (N, T), that have a place.
func checkIDs(op string, ids gotorch.Tensor, before, most int64) {
	switch {
	case ids.Dim() != 2 || ids.DType() != gotorch.Int64 && ids.DType() != gotorch.Int32:
		panic(args.ValueError(op, "expected tokens, int64 of shape (N, T), got %v of shape %v", ids.DType(), ids.Shape()))
	case before+ids.Size(1) > most:
		panic(args.ValueError(op, "there are %d tokens, and the model has places for %d", before+ids.Size(1), most))
	}
}

// positions returns the tokens' places, (1, T) unless they are given.
func positions(ids gotorch.Tensor, opt ForwardOptions) gotorch.Tensor {
	if opt.PositionIDs.Defined() {
		return opt.PositionIDs
	}
	before := opt.Cache.Len()
	return gotorch.ArangeStart(before, before+ids.Size(1), gotorch.TensorOptions{DType: gotorch.Int64, Device: ids.Device()}).Unsqueeze(0)
}

// activation returns a function by the name that a configuration has for it.
func activation(op, name string) func(gotorch.Tensor) gotorch.Tensor {
	switch name {
	case "gelu":
		return func(x gotorch.Tensor) gotorch.Tensor { return F.GELU(x) }
	case "gelu_pytorch_tanh":
		return func(x gotorch.Tensor) gotorch.Tensor { return F.GELU(x, F.GELUOptions{Approximate: "tanh"}) }
	case "gelu_new":
		return func(x gotorch.Tensor) gotorch.Tensor {
			inner := x.Add(x.Pow(3.0).MulScalar(0.044715)).MulScalar(math.Sqrt(2 / math.Pi))
			return x.MulScalar(0.5).Mul(inner.Tanh().AddScalar(1.0))
		}
	case "relu":
		return func(x gotorch.Tensor) gotorch.Tensor { return x.ReLU() }
	case "silu", "swish":
		return func(x gotorch.Tensor) gotorch.Tensor { return F.SiLU(x) }
	case "tanh":
		return func(x gotorch.Tensor) gotorch.Tensor { return x.Tanh() }
	}
	panic(args.Errorf(op, gotorch.NotImplementedError, "the activation %q is none of gelu, gelu_new, gelu_pytorch_tanh, relu, silu and tanh", name))
}

// linear makes a layer with the first values that all of the models have.
func (o Options) linear(in, out int64, bias bool) *nn.LinearModule {
	m := nn.Linear(in, out, nn.LinearOptions{NoBias: !bias, Device: o.Device, DType: o.DType})
	begin(m.Weight, 0.02)
	if bias {
		begin(m.Bias, 0)
	}
	return m
}

func (o Options) embedding(n, features int64) *nn.EmbeddingModule {
	m := nn.Embedding(n, features, nn.EmbeddingOptions{Device: o.Device, DType: o.DType})
	begin(m.Weight, 0.02)
	return m
}

func (o Options) layerNorm(features int64, eps float64) *nn.LayerNormModule {
	return nn.LayerNorm(features, nn.LayerNormOptions{Eps: eps, Device: o.Device, DType: o.DType})
}

// begin gives a parameter its first values, from a normal distribution.
func begin(t gotorch.Tensor, std float64) {
	gotorch.NoGrad(func() {
		if std == 0 {
			t.Zero_()
			return
		}
		t.Normal_(gotorch.Normal_Options{Std: &std})
	})
}

// checkSizes panics unless all sizes are positive, and heads divide features.
func checkSizes(op string, sizes map[string]int64, features, heads int64) {
	for name, size := range sizes {
		if size < 1 || size > math.MaxInt32 {
			panic(args.ValueError(op, "%s must be positive, and at most %d, got %d", name, math.MaxInt32, size))
		}
	}
	if features%heads != 0 {
		panic(args.ValueError(op, "%d features cannot be split into %d heads", features, heads))
	}
}

// decode reads config.json, which must be of a type.
func decode(op string, folder *hub.Folder, modelType string, into any) error {
	if is := folder.Config().ModelType(); is != modelType {
		return args.ValueError(op, "%s has a model of type %q, where %q is expected", folder.Dir(), is, modelType)
	}
	return folder.Config().Decode(into)
}

// load makes a model without memory and gives it the weights of a folder. The number of layers is held to that of
// the folder's tensors at first, because a configuration may say anything.
func load[M nn.Modular](op string, folder *hub.Folder, layers int64, mapping hub.Mapping, opts []LoadOptions, make func(Options) M) (model M, report *hub.Report, err error) {
	opt := args.Option(opts)
	if n := int64(len(folder.Names())); layers > n {
		return model, nil, args.ValueError(op, "config.json says that there are %d layers, in a folder of %d tensors", layers, n)
	}
	made, err := gotorch.Try(func() M { return make(Options{Device: gotorch.Meta}) })
	if err != nil {
		return model, nil, err
	}
	report, err = hub.LoadInto(made, folder, hub.LoadOptions{Mapping: mapping, Partial: opt.Partial, Assign: true, Map: opt.Map, DType: opt.DType, Device: opt.Device})
	if err == nil && len(report.Missing)+len(report.Mismatched)+len(report.Incomplete) > 0 {
		err = &hub.FitError{Report: report}
	}
	if err != nil {
		return model, report, err
	}
	made.Eval()
	return made, report, nil
}
