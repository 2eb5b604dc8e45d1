package metrics

import (
	"math"
	"slices"
	"strings"
	"unicode"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// PerplexityOptions are the options of [Perplexity].
type PerplexityOptions struct {
	IgnoreIndex *int64 // tokens that do not count, such as padding
}

// Perplexity says between how many tokens a language model hesitates: exp of the mean negative log-likelihood. The output
// are scores (N, S, V) before the softmax, the target int64 tokens (N, S). Logarithms are taken in float64, so that tiny
// probabilities give large numbers and not +Inf. Before an update it is NaN.
//
// See https://lightning.ai/docs/torchmetrics/stable/text/perplexity.html.
func Perplexity(opts ...PerplexityOptions) *TensorMetric {
	opt := args.Option(opts)
	m := &TensorMetric{base: base{name: "Perplexity"}}
	var total []float64
	var count []int64
	m.floats("total_log_probs", &total, 0, 0)
	m.ints("count", &count, 0, 0)
	m.update = func(output, target gotorch.Tensor) {
		o, t := output.Shape(), target.Shape()
		if len(o) != 3 || len(t) != 2 || !same(o[:2], t) {
			panic(m.valueError("the output should have the shape (N, S, V) and the target (N, S), and they have %v and %v", o, t))
		}
		if !output.IsFloatingPoint() || target.DType() != gotorch.Int64 {
			panic(&gotorch.Error{Op: m.op(), Kind: gotorch.TypeError, Msg: "the output should be floating point and the target torch.int64, and they are " +
				output.DType().String() + " and " + target.DType().String()})
		}
		tokens := gotorch.ToSlice[int64](target)
		counts := make([]bool, len(tokens))
		n := int64(0)
		for i, token := range tokens {
			if opt.IgnoreIndex != nil && token == *opt.IgnoreIndex {
				tokens[i] = 0
				continue
			}
			if token < 0 || token >= o[2] {
				panic(m.valueError("the target should hold tokens from 0 to %d, and holds %d", o[2]-1, token))
			}
			counts[i] = true
			n++
		}
		if n == 0 {
			return
		}
		index := gotorch.FromSlice(tokens, int64(len(tokens)), 1).To(output.Device())
		chosen := output.To(gotorch.Float64).Reshape([]int64{-1, o[2]}).LogSoftmax(1).Gather(1, index)
		for i, v := range gotorch.ToSlice[float64](chosen) {
			if counts[i] {
				total[0] -= v
			}
		}
		count[0] += n
	}
	m.compute = func() gotorch.Tensor { return scalar(math.Exp(total[0] / float64(count[0]))) }
	return m
}

// TextMetric compares texts with what they should be.
type TextMetric struct {
	base
	update  func(preds, target []string)
	compute func() gotorch.Tensor
}

// Update adds texts, and as many targets. It panics with a ValueError if there are not as many.
func (m *TextMetric) Update(preds, target []string) {
	if len(preds) != len(target) {
		panic(m.valueError("there should be as many texts as targets, and are %d and %d", len(preds), len(target)))
	}
	m.update(preds, target)
}

// Compute returns the value over everything since the last Reset.
func (m *TextMetric) Compute() gotorch.Tensor { return m.compute() }

// words are what white space separates, as Python sees it.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
}

// distance is the least cost of insertions, deletions and replacements that make target of text.
func distance[T comparable](text, target []T, replace int64) int64 {
	row := make([]int64, len(target)+1)
	for j := range row {
		row[j] = int64(j)
	}
	for i, have := range text {
		corner := row[0]
		row[0] = int64(i + 1)
		for j, want := range target {
			cost := corner
			if have != want {
				cost += replace
			}
			corner = row[j+1]
			row[j+1] = min(cost, row[j]+1, corner+1)
		}
	}
	return row[len(target)]
}

// WordErrorRate is how many words have to be inserted, deleted or replaced, for each word of the target. Words are what
// white space separates. Without a word in the targets it is NaN or +Inf.
//
// See https://lightning.ai/docs/torchmetrics/stable/text/word_error_rate.html.
func WordErrorRate() *TextMetric {
	return errorRate("WordErrorRate", func(text, target string) (errors, n int64) {
		t := words(target)
		return distance(words(text), t, 1), int64(len(t))
	})
}

// CharErrorRate is how many characters, code points, have to be inserted, deleted or replaced, for each of the target.
//
// See https://lightning.ai/docs/torchmetrics/stable/text/char_error_rate.html.
func CharErrorRate() *TextMetric {
	return errorRate("CharErrorRate", func(text, target string) (errors, n int64) {
		t := []rune(target)
		return distance([]rune(text), t, 1), int64(len(t))
	})
}

func errorRate(name string, of func(text, target string) (errors, n int64)) *TextMetric {
	m := &TextMetric{base: base{name: name}}
	var errors, total []int64
	m.ints("errors", &errors, 0, 0)
	m.ints("total", &total, 0, 0)
	m.update = func(preds, target []string) {
		for i, p := range preds {
			e, n := of(p, target[i])
			errors[0] += e
			total[0] += n
		}
	}
	m.compute = func() gotorch.Tensor { return scalar(float64(errors[0]) / float64(total[0])) }
	return m
}

// EditDistanceOptions are the options of [EditDistance].
type EditDistanceOptions struct {
	SubstitutionCost gotorch.Scalar // of replacing a character; default: 1
	Reduction        string         // over texts, or "sum", or "none"; default: "mean"
}

// EditDistance is the Levenshtein distance of texts and targets, in characters: the least there is, where torchmetrics looks
// near the diagonal only and may find more. Before an update it is 0.
//
// See https://lightning.ai/docs/torchmetrics/stable/text/edit.html.
func EditDistance(opts ...EditDistanceOptions) *TextMetric {
	opt := args.Option(opts)
	m := &TextMetric{base: base{name: "EditDistance"}}
	how := m.reduction(opt.Reduction, "mean")
	cost := args.Int(m.op(), "SubstitutionCost", opt.SubstitutionCost, 1)
	if cost < 0 || cost > 1<<31 {
		panic(m.valueError("SubstitutionCost should be 0 or more, and is %d", cost))
	}
	var scores []int64
	m.ints("edit_scores", &scores, 1)
	m.update = func(preds, target []string) {
		for i, p := range preds {
			scores = append(scores, distance([]rune(p), []rune(target[i]), cost))
		}
	}
	m.compute = func() gotorch.Tensor {
		switch {
		case len(scores) == 0:
			return gotorch.FromSlice([]int64{0}, []int64{}...)
		case how == "none":
			return gotorch.FromSlice(scores)
		case how == "sum":
			return gotorch.FromSlice([]int64{sum(scores)}, []int64{}...)
		}
		return scalar(float64(sum(scores)) / float64(len(scores)))
	}
	return m
}

// BLEUScoreOptions are the options of [BLEUScore].
type BLEUScoreOptions struct {
	NGram   gotorch.Scalar // how many words in a row are compared at most; default: 4
	Smooth  bool           // whether one is added to counts of more than one word
	Weights []float64      // how much each length counts; nil: all as much
}

// BLEU is a metric that compares texts with several that are right.
type BLEU struct {
	base
	n       int
	smooth  bool
	weights []float64

	numerator, denominator, lengths []int64 // lengths: of texts and of targets
}

// BLEUScore says how many words, pairs of words and so on of translations are in one of those that are right. Words are
// what white space separates.
//
// See https://lightning.ai/docs/torchmetrics/stable/text/bleu_score.html.
func BLEUScore(opts ...BLEUScoreOptions) *BLEU {
	opt := args.Option(opts)
	b := &BLEU{base: base{name: "BLEUScore"}, smooth: opt.Smooth, weights: slices.Clone(opt.Weights)}
	n := args.Int(b.op(), "NGram", opt.NGram, 4)
	if n < 1 || n > 1<<10 {
		panic(b.valueError("NGram should be from 1 to %d, and is %d", 1<<10, n))
	}
	b.n = int(n)
	if b.weights == nil {
		b.weights = slices.Repeat([]float64{1 / float64(n)}, b.n)
	}
	if len(b.weights) != b.n {
		panic(b.valueError("there should be %d Weights, one for each length, and are %d", b.n, len(b.weights)))
	}
	b.ints("numerator", &b.numerator, 0, make([]int64, n)...)
	b.ints("denominator", &b.denominator, 0, make([]int64, n)...)
	b.ints("lengths", &b.lengths, 0, 0, 0)
	return b
}

// Update adds texts, and for each one or more that are right. It panics with a ValueError if there are not as many, or none
// for a text.
func (b *BLEU) Update(preds []string, target [][]string) {
	if len(preds) != len(target) {
		panic(b.valueError("there should be as many texts as lists of targets, and are %d and %d", len(preds), len(target)))
	}
	for i, t := range target {
		if len(t) == 0 {
			panic(b.valueError("text %d has no target", i))
		}
	}
	for i, text := range preds {
		have := words(text)
		best, closest := 0, math.MaxInt
		wanted := map[string]int64{}
		for _, t := range target[i] {
			right := words(t)
			if d := max(len(right)-len(have), len(have)-len(right)); d < closest {
				best, closest = len(right), d
			}
			for gram, n := range b.grams(right) {
				wanted[gram] = max(wanted[gram], n)
			}
		}
		b.lengths[0] += int64(len(have))
		b.lengths[1] += int64(best)
		for gram, n := range b.grams(have) {
			at := strings.Count(gram, " ")
			b.denominator[at] += n
			b.numerator[at] += min(n, wanted[gram])
		}
	}
}

// grams counts the words, pairs of words and so on of a text. No word holds a space.
func (b *BLEU) grams(words []string) map[string]int64 {
	counts := map[string]int64{}
	for n := 1; n <= b.n; n++ {
		for i := 0; i+n <= len(words); i++ {
			counts[strings.Join(words[i:i+n], " ")]++
		}
	}
	return counts
}

// Compute returns the score, from 0 to 1. It is 0 while there is a length of which nothing is right.
func (b *BLEU) Compute() gotorch.Tensor {
	var logs float64
	for i, n := range b.numerator {
		if n == 0 {
			return scalar(0)
		}
		num, denom := float64(n), float64(b.denominator[i])
		if b.smooth && i > 0 {
			num, denom = num+1, denom+1
		}
		logs += float64(b.weights[i] * math.Log(num/denom))
	}
	penalty := 1.0
	if have, want := float64(b.lengths[0]), float64(b.lengths[1]); have <= want {
		penalty = math.Exp(1 - want/have)
	}
	return scalar(penalty * math.Exp(logs))
}
