// Maskedlm fills in letters that are missing, as BERT does words: a transformer that sees both sides of a gap.
//
//	go run ./examples/maskedlm                                      # learns from Newton's Opticks, then fills some gaps
//	go run ./examples/maskedlm "the R_ys of L_ght are refr_cted"    # and these
//
// While it learns, 15 of 100 characters are chosen at random, and it is asked which they were. Of these 80 % are hidden,
// 10 % are changed into others, so that it never trusts what it sees, and 10 % stay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
)

type options struct {
	text, out              string
	seed                   uint64
	context, width, layers int64
	batch, epochs, stride  int
	fill                   []string
}

func main() {
	var o options
	flag.StringVar(&o.text, "text", "examples/chargpt/opticks.txt", "`file` to learn from")
	flag.StringVar(&o.out, "out", "build/maskedlm", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.Int64Var(&o.context, "context", 64, "how many characters the model sees")
	flag.Int64Var(&o.width, "width", 128, "how many numbers it has for each, a multiple of 32")
	flag.Int64Var(&o.layers, "layers", 3, "how many layers it has")
	flag.IntVar(&o.batch, "batch", 32, "pieces of text in a step")
	flag.IntVar(&o.epochs, "epochs", 6, "how often to go through the text")
	flag.IntVar(&o.stride, "stride", 8, "a piece begins every so many characters")
	flag.Parse()
	if o.fill = flag.Args(); len(o.fill) == 0 {
		o.fill = []string{"The R_ys of L_ght are refr_cted.", "And by the same Exp_____nt", "the Colours of the Sp__trum"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "maskedlm:", err)
		os.Exit(1)
	}
}

// Text ---------------------------------------------------------------------------------------------

// gap is what stands for a hidden character, number 0.
const gap = '_'

// vocabulary is the characters of a text behind the gap. A character's number is its place.
type vocabulary []rune

func vocabularyOf(text []rune) vocabulary {
	return append(vocabulary{gap}, slices.Compact(slices.Sorted(slices.Values(text)))...)
}

// encode returns the numbers of characters; those that are not known are gaps.
func (v vocabulary) encode(text []rune) []int64 {
	ids := make([]int64, len(text))
	for i, c := range text {
		if at, known := slices.BinarySearch(v[1:], c); known {
			ids[i] = int64(at + 1)
		}
	}
	return ids
}

// pieces is a data set of the rows of a matrix. A loader stacks what At returns to batches.
type pieces struct{ rows gotorch.Tensor }

// Len returns the number of pieces.
func (p pieces) Len() int { return int(p.rows.Size(0)) }

// At returns a piece: (context).
func (p pieces) At(i int) (gotorch.Tensor, error) { return p.rows.Select(0, int64(i)), nil }

// read returns the text's characters, and pieces to learn from and, of its last tenth, to test with.
func (o options) read() (v vocabulary, learn, test pieces, err error) {
	file, err := os.ReadFile(o.text)
	if errors.Is(err, os.ErrNotExist) {
		return nil, learn, test, fmt.Errorf("%w\nrun this in gotorch's folder, or say with -text what to learn from", err)
	}
	if err != nil {
		return nil, learn, test, err
	}
	text := []rune(strings.ReplaceAll(string(file), string(gap), ""))
	v = vocabularyOf(text)
	cut := len(text) * 9 / 10
	if o.context < 1 || int64(len(text)-cut) < o.context {
		return nil, learn, test, fmt.Errorf("%s has %d characters, too few for a context of %d", o.text, len(text), o.context)
	}
	ids := gotorch.FromSlice(v.encode(text))
	learn = pieces{ids.Narrow(0, 0, int64(cut)).Unfold(0, o.context, int64(o.stride))}
	test = pieces{ids.Narrow(0, int64(cut), int64(len(text)-cut)).Unfold(0, o.context, o.context)}
	return v, learn, test, nil
}

// The model ----------------------------------------------------------------------------------------

// BERT is an encoder with a head that tells characters.
type BERT struct {
	nn.Module
	Token   *nn.EmbeddingModule
	Place   gotorch.Tensor // where it is
	Encoder *nn.TransformerEncoderModule
	Head    *nn.LinearModule
}

// newBERT makes one for n characters, the gap among them.
func (o options) newBERT(n int64) *BERT {
	layer := nn.TransformerEncoderLayer(o.width, o.width/32, nn.TransformerEncoderLayerOptions{
		DimFeedforward: 4 * o.width, Activation: "gelu", BatchFirst: true, NormFirst: true})
	return nn.Init(&BERT{
		Token:   nn.Embedding(n, o.width, nn.EmbeddingOptions{Weight: gotorch.Randn([]int64{n, o.width}).MulScalar(0.1)}),
		Place:   places(o.context, o.width),
		Encoder: nn.TransformerEncoder(layer, o.layers, nn.TransformerEncoderOptions{Norm: nn.LayerNorm(o.width)}),
		Head:    nn.Linear(o.width, n),
	})
}

// places tells where a character is, (context, width), by waves of different lengths. From them it is easier to learn what
// "the one before" is than from numbers at random.
func places(context, width int64) gotorch.Tensor {
	at := gotorch.Arange(context, gotorch.TensorOptions{DType: gotorch.Float32}).Unsqueeze(1)
	rates := gotorch.Linspace(0, -math.Log(float64(context)), width/2).Exp()
	waves := at.Mul(rates)
	return gotorch.Cat([]gotorch.Tensor{waves.Sin(), waves.Cos()}, gotorch.CatOptions{Dim: 1}).MulScalar(0.1)
}

// Forward returns scores for what each character is: (N, T) → (N, T, characters).
func (m *BERT) Forward(x gotorch.Tensor) gotorch.Tensor {
	h := m.Token.Forward(x).Add(m.Place.Narrow(0, 0, x.Size(1)))
	return m.Head.Forward(m.Encoder.Forward(h))
}

// hide returns characters as the model sees them, and what it is asked: the same characters where some were chosen, and
// elsewhere −100, which CrossEntropy passes over. characters is how many there are, with the gap.
func hide(x gotorch.Tensor, characters int64, g *gotorch.Generator) (seen, asked gotorch.Tensor) {
	random := func() gotorch.Tensor {
		return gotorch.Empty(x.Shape()).Uniform_(gotorch.UniformOptions{Generator: g})
	}
	chosen, how := random().LtScalar(0.15), random()
	asked = x.MaskedFill(chosen.LogicalNot(), -100)
	hidden, changed := how.LtScalar(0.8), how.GeScalar(0.9)
	other := random().MulScalar(characters - 1).To(gotorch.Int64).AddScalar(1)
	seen = x.MaskedFill(chosen.LogicalAnd(hidden), 0)
	seen = gotorch.Where(chosen.LogicalAnd(changed), other, seen)
	return seen, asked
}

// loss of scores for what was asked.
func loss(scores, asked gotorch.Tensor) gotorch.Tensor {
	return F.CrossEntropy(scores.Flatten(gotorch.FlattenOptions{EndDim: new(int64(1))}), asked.Flatten())
}

// accuracy is how many of the chosen characters of a set the model tells, and how many the commonest one is. The choice
// is the same each time. The model is left in evaluation mode; a loop puts it back.
func (m *BERT) accuracy(set pieces, characters int64) (told, commonest float64) {
	m.Eval()
	g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(1)
	gotorch.InferenceMode(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			seen, asked := hide(set.rows, characters, g)
			chosen := asked.GeScalar(0)
			n := gotorch.Item[float64](chosen.Sum())
			best := m.Forward(seen).ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(2))})
			told = gotorch.Item[float64](best.Eq(asked).Sum()) / n
			commonest = gotorch.Item[float64](asked.MaskedSelect(chosen).BinCount().Max()) / n
		})
	})
	return told, commonest
}

// fillIn returns a text with its gaps filled, the surest one first, because a character that is there helps with the
// others.
func (m *BERT) fillIn(v vocabulary, text string, context int64) string {
	m.Eval()
	chars := []rune(text)
	if int64(len(chars)) > context {
		chars = chars[:context]
	}
	ids := v.encode(chars)
	for slices.Contains(ids, 0) {
		gotorch.InferenceMode(func() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				scores := m.Forward(gotorch.FromSlice(ids, 1, int64(len(ids)))).SqueezeDim(0)
				scores.Select(1, 0).Fill_(math.Inf(-1)) // a gap is no answer
				p, best := scores.Softmax(-1).MaxDim(1)
				sure, guess := gotorch.ToSlice[float64](p), gotorch.ToSlice[int64](best)
				at := -1
				for i, id := range ids {
					if id == 0 && (at < 0 || sure[i] > sure[at]) {
						at = i
					}
				}
				ids[at], chars[at] = guess[at], v[guess[at]]
			})
		})
	}
	return string(chars)
}

// --------------------------------------------------------------------------------------------------

// result is what a run has come to.
type result struct{ accuracy, commonest float64 }

func (o options) run(ctx context.Context, w io.Writer) (r result, err error) {
	if o.width < 32 || o.width%32 != 0 || min(int(o.layers), o.batch, o.epochs, o.stride) < 1 {
		return r, errors.New("the width must be a multiple of 32, and layers, batch, epochs and stride must be positive")
	}
	gotorch.ManualSeed(o.seed)
	v, learn, test, err := o.read()
	if err != nil {
		return r, err
	}
	characters := int64(len(v))
	model := o.newBERT(characters)
	_, r.commonest = model.accuracy(test, characters)
	fmt.Fprintf(w, "%d parameters, %d pieces to learn from; the commonest character is right in %.1f %%\n",
		model.NumParameters(), learn.Len(), 100*r.commonest)

	loader := data.NewLoader[gotorch.Tensor](learn, data.LoaderOptions{BatchSize: o.batch, Shuffle: true})
	opt := optim.AdamW(model.Parameters())
	loop := train.NewLossLoop(model, opt, func(text gotorch.Tensor) gotorch.Tensor {
		seen, asked := hide(text, characters, nil)
		return loss(model.Forward(seen), asked)
	})
	loop.ClipGradNorm(1)
	loop.Schedule(lrscheduler.OneCycleLR(opt, 3e-3, lrscheduler.OneCycleLROptions{TotalSteps: o.epochs * loader.Len(), PctStart: 0.1}), train.PerStep)
	loop.OnEpoch(func(e *train.Epoch) error {
		r.accuracy, _ = model.accuracy(test, characters)
		e.Record("val_accuracy", r.accuracy)
		return nil
	})
	loop.Progress(os.Stderr)
	history, err := loop.Run(ctx, loader, train.Epochs(o.epochs))
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "of text that it has not seen it tells %.1f %% of the characters that it is asked for\n\n", 100*r.accuracy)
	for _, text := range o.fill {
		fmt.Fprintf(w, "%s\n%s\n\n", text, model.fillIn(v, text, o.context))
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return r, err
	}
	told := history.Metric("val_accuracy")
	for i := range told {
		told[i] *= 100
	}
	curve := filepath.Join(o.out, "accuracy.png")
	err = plot.Lines(curve, []plot.Series{
		{Name: "transformer", Y: told},
		{Name: "the commonest character", X: []float64{1, float64(len(told))}, Y: []float64{100 * r.commonest, 100 * r.commonest}, Dashed: true},
	}, plot.LinesOptions{XLabel: "epoch", YLabel: "% of hidden characters", FromZero: true})
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "saved %s\n", curve)
	return r, nil
}
