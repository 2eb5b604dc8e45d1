package transformers

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// GenerateOptions are the arguments of [Generate] that have defaults.
type GenerateOptions struct {
	// MaxNewTokens is how many tokens are added. Default: 20.
	MaxNewTokens gotorch.Scalar
	// EOS are tokens that end a sequence. Default: none.
	EOS []int64
	// Pad stands behind the end of a sequence while others of the batch go on. Default: the first of EOS.
	Pad gotorch.Scalar
	// Sample draws tokens by their probability, rather than take the best.
	Sample bool
	// Temperature divides the logits before tokens are drawn. Default: 1.
	Temperature gotorch.Scalar
	// TopK has only so many of the best tokens drawn. Default: all.
	TopK int64
	// TopP has only the best tokens drawn whose probabilities make up this much. Default: 1.
	TopP gotorch.Scalar
	// Generator draws the tokens. Default: the default one.
	Generator *gotorch.Generator
	// OnToken is called with the tokens of each step, (N, 1), which are freed afterwards; it ends the generation by
	// returning false. Default: none.
	OnToken func(tokens gotorch.Tensor) bool
}

// Generate goes on with sequences of tokens: (N, T) of int64 → (N, T + new). All of a batch have the same length. It
// ends when every sequence has, or after MaxNewTokens. Each token is computed once, with a [Cache], without gradients, and
// what a step makes is freed with it. The model should be in evaluation mode.
//
// Every token counts: there is no mask for prompts that were padded to one length. So it panics with a ValueError for a
// row that begins or ends with Pad, also where that is the first of EOS by default. Generate for prompts of each length on
// their own; and where such a token is no padding, as the first of GPT-2's, set Pad to another.
//
// It panics with a ValueError as well for options that make no sense, and where tokens become more than the model has
// places for.
func Generate(model CausalLM, ids gotorch.Tensor, opts ...GenerateOptions) gotorch.Tensor {
	const op = "transformers.Generate"
	opt := args.Option(opts)
	most := args.Int(op, "MaxNewTokens", opt.MaxNewTokens, 20)
	temperature, topP := args.Float(op, "Temperature", opt.Temperature, 1), args.Float(op, "TopP", opt.TopP, 1)
	pad := args.IntPointer(op, "Pad", opt.Pad)
	switch {
	case ids.Dim() != 2 || ids.Size(1) < 1:
		panic(args.ValueError(op, "expected at least one token, (N, T), got shape %v", ids.Shape()))
	case most < 0 || opt.TopK < 0 || !(temperature > 0) || !(topP > 0 && topP <= 1):
		panic(args.ValueError(op, "MaxNewTokens and TopK must not be negative, Temperature positive, TopP in (0, 1], got %d, %d, %v, %v", most, opt.TopK, temperature, topP))
	case most > model.MaxPositions()-ids.Size(1): // a sum could overflow
		panic(args.ValueError(op, "%d tokens and %d new ones are more than the %d that the model has places for", ids.Size(1), most, model.MaxPositions()))
	}
	if pad == nil && len(opt.EOS) > 0 {
		pad = &opt.EOS[0]
	}
	if pad != nil {
		if row := padded(ids, *pad); row >= 0 {
			panic(args.ValueError(op, "row %d begins or ends with the padding token %d, and would attend to it: generate for prompts of each length on their own, or set Pad to a token that no row begins or ends with, if it is no padding", row, *pad))
		}
	}
	cache := &Cache{}
	defer cache.Close()
	var result gotorch.Tensor
	gotorch.NoGrad(func() {
		result = gotorch.Scope(func(scope *gotorch.ScopeHandle) gotorch.Tensor {
			all, next := []gotorch.Tensor{ids}, ids
			ended := make([]bool, ids.Size(0))
			for range most {
				next = gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
					logits := model.ForwardWith(next, ForwardOptions{Cache: cache}).Select(1, -1)
					return end(opt.pick(logits, temperature, topP), opt.EOS, pad, ended)
				})
				all = append(all, next)
				if opt.OnToken != nil && !opt.OnToken(next) || len(opt.EOS) > 0 && !slices.Contains(ended, false) {
					break
				}
			}
			return gotorch.Cat(all, gotorch.CatOptions{Dim: 1})
		})
	})
	return result
}

// padded returns the first row that begins or ends with a token, or -1.
func padded(ids gotorch.Tensor, pad int64) int {
	row := -1
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		ends := gotorch.Stack([]gotorch.Tensor{ids.Select(1, 0), ids.Select(1, -1)}, gotorch.StackOptions{Dim: 1})
		if i := slices.Index(gotorch.ToSlice[bool](ends.EqScalar(pad)), true); i >= 0 {
			row = i / 2
		}
	})
	return row
}

// pick chooses the next tokens, (N, 1), by their logits, (N, vocabulary).
func (o GenerateOptions) pick(logits gotorch.Tensor, temperature, topP float64) gotorch.Tensor {
	if !o.Sample {
		return logits.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(-1)), KeepDim: true})
	}
	logits = logits.To(gotorch.Float32).DivScalar(temperature)
	if o.TopK > 0 && o.TopK < logits.Size(1) {
		best, _ := logits.TopK(o.TopK)
		logits = logits.MaskedFill(logits.Lt(best.Narrow(1, o.TopK-1, 1)), math.Inf(-1))
	}
	if topP < 1 {
		// From the worst on, those that make up less than the rest are left out; the best never is.
		sorted, order := logits.Sort(gotorch.SortOptions{})
		out := sorted.Softmax(-1).CumSum(-1).LeScalar(1 - topP)
		out = gotorch.Cat([]gotorch.Tensor{out.Narrow(1, 0, out.Size(1)-1), gotorch.ZerosLike(out.Narrow(1, 0, 1))}, gotorch.CatOptions{Dim: 1})
		logits = logits.MaskedFill(gotorch.ZerosLike(out).Scatter(1, order, out), math.Inf(-1))
	}
	return logits.Softmax(-1).Multinomial(1, gotorch.MultinomialOptions{Generator: o.Generator})
}

// end puts pad behind the ends of sequences, and writes down which end.
func end(next gotorch.Tensor, eos []int64, pad *int64, ended []bool) gotorch.Tensor {
	if len(eos) == 0 {
		return next
	}
	tokens := gotorch.ToSlice[int64](next)
	for i := range tokens {
		if ended[i] {
			tokens[i] = *pad
		}
		ended[i] = ended[i] || slices.Contains(eos, tokens[i])
	}
	return gotorch.FromSlice(tokens, next.Shape()...).To(next.Device())
}
