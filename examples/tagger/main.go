// Tagger tells which part of speech each word of a sentence is, by an LSTM that reads it in both directions.
//
//	go run ./examples/tagger                                   # learns from 2,000 sentences in some seconds
//	go run ./examples/tagger "the old ring the ship often"     # and tags this
//
// The sentences are made by a small grammar, in which half of the words may be several things: "the watch rings the
// old" has "watch" as a noun, "the old watch the rings" as a verb. They have different lengths, so that batches of them
// are packed sequences, without padding.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/nn/utils/rnn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
)

type options struct {
	out               string
	seed              uint64
	sentences, epochs int
	say               []string
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "build/tagger", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.IntVar(&o.sentences, "sentences", 2000, "how many sentences to learn from")
	flag.IntVar(&o.epochs, "epochs", 6, "how often to go through them")
	flag.Parse()
	if o.say = flag.Args(); len(o.say) == 0 {
		o.say = []string{"the old watch the rings", "the watch rings the old", "they light the light often", "the blue glorps fast"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tagger:", err)
		os.Exit(1)
	}
}

// Sentences ----------------------------------------------------------------------------------------

// tags are the parts of speech. A tag's number is its place.
var tags = []string{"DET", "ADJ", "NOUN", "VERB", "ADV", "ADP", "PRON", "CONJ", "."}

// word is a word with its tag.
type word struct{ text, tag string }

// words of a kind that has no other forms.
var (
	prepositions = []string{"near", "with", "behind", "under"}
	adverbs      = []string{"often", "today", "quietly", "fast"}
	adjectives   = []string{"old", "young", "small", "quiet", "fast", "light", "clean", "open", "dry"}
	peoples      = []string{"old", "young", "quiet"} // adjectives that are nouns too: the old
)

// forms are a word that stands alone or with "they", and the other one.
type forms struct{ plain, s string }

// Some words are nouns and verbs, and the plural of the noun is what "she" has of the verb.
var both = []forms{{"watch", "watches"}, {"duck", "ducks"}, {"ring", "rings"}, {"light", "lights"}, {"plant", "plants"}, {"ship", "ships"}, {"paint", "paints"}}
var nouns = append([]forms{{"man", "men"}, {"dog", "dogs"}, {"child", "children"}, {"table", "tables"}, {"sailor", "sailors"}}, both...)
var verbs = append([]forms{{"see", "sees"}, {"find", "finds"}, {"clean", "cleans"}, {"open", "opens"}, {"dry", "dries"}}, both...)

// grammar makes sentences. Their tags can be told for sure, though sometimes only by the last word.
type grammar struct{ *rand.Rand }

func pick[T any](g grammar, from []T) T { return from[g.IntN(len(from))] }

// chance is true in one of n cases.
func (g grammar) chance(n int) bool { return g.IntN(n) == 0 }

func (g grammar) sentence() []word {
	s := g.clause()
	if g.chance(4) {
		s = append(append(s, word{"and", "CONJ"}), g.clause()...)
	}
	return append(s, word{".", "."})
}

// clause is a subject, and a verb that agrees with it.
func (g grammar) clause() []word {
	plural := g.chance(2)
	s := g.subject(plural, 2)
	verb := pick(g, verbs)
	if plural {
		s = append(s, word{verb.plain, "VERB"})
	} else {
		s = append(s, word{verb.s, "VERB"})
	}
	if !g.chance(3) {
		s = append(s, g.subject(g.chance(2), 2)...)
	}
	if g.chance(3) {
		s = append(s, word{pick(g, adverbs), "ADV"})
	}
	return s
}

// subject is what does something, or what something is done to, with at most deep others in it.
func (g grammar) subject(plural bool, deep int) (s []word) {
	switch {
	case plural && g.chance(6):
		return []word{{pick(g, []string{"they", "we", "you"}), "PRON"}}
	case plural && g.chance(4):
		return []word{{"the", "DET"}, {pick(g, peoples), "NOUN"}}
	case plural:
		s = append(s, word{pick(g, []string{"the", "some", "two", "no"}), "DET"})
	default:
		s = append(s, word{pick(g, []string{"the", "a", "every", "no"}), "DET"})
	}
	for g.chance(3) {
		s = append(s, word{pick(g, adjectives), "ADJ"})
	}
	if noun := pick(g, nouns); plural {
		s = append(s, word{noun.s, "NOUN"})
	} else {
		s = append(s, word{noun.plain, "NOUN"})
	}
	if deep > 0 && g.chance(5) {
		s = append(append(s, word{pick(g, prepositions), "ADP"}), g.subject(g.chance(2), deep-1)...)
	}
	return s
}

// Batches ------------------------------------------------------------------------------------------

// Tagged is sentences with the tags of their words, by numbers.
type Tagged struct{ Words, Tags rnn.PackedSequence }

// corpus is a data set of sentences that makes whole batches, which are packed.
type corpus struct {
	sentences [][]word
	words     map[string]int64 // the number of each; 0 is for those that are not there
	blurred   bool             // now and then a word is unknown, so that the model learns to do without
}

// newCorpus makes a set of n sentences. words is nil, or those that are known.
func newCorpus(g grammar, n int, words map[string]int64) *corpus {
	c := &corpus{words: words}
	if words == nil {
		c.words, c.blurred = map[string]int64{}, true
	}
	for range n {
		c.sentences = append(c.sentences, g.sentence())
		for _, w := range c.sentences[len(c.sentences)-1] {
			if _, known := c.words[w.text]; !known && words == nil {
				c.words[w.text] = int64(len(c.words) + 1)
			}
		}
	}
	return c
}

// Len returns the number of sentences.
func (c *corpus) Len() int { return len(c.sentences) }

// At returns a sentence as a batch of one.
func (c *corpus) At(i int) (Tagged, error) { return c.Batch([]int{i}, nil) }

// Batch returns several. The loader calls it, with a source of random numbers for each batch.
func (c *corpus) Batch(indices []int, rng *rand.Rand) (Tagged, error) {
	var words, right []gotorch.Tensor
	for _, i := range indices {
		var w, t []int64
		for _, word := range c.sentences[i] {
			id := c.words[word.text]
			if c.blurred && rng != nil && rng.IntN(50) == 0 {
				id = 0
			}
			w, t = append(w, id), append(t, numberOf(word.tag))
		}
		words, right = append(words, gotorch.FromSlice(w)), append(right, gotorch.FromSlice(t))
	}
	return gotorch.Try(func() Tagged {
		pack := rnn.PackSequenceOptions{NoEnforceSorted: true}
		return Tagged{rnn.PackSequence(words, pack), rnn.PackSequence(right, pack)}
	})
}

func numberOf(tag string) int64 {
	for i, t := range tags {
		if t == tag {
			return int64(i)
		}
	}
	panic("no tag " + tag)
}

// The model ----------------------------------------------------------------------------------------

// Tagger is a bidirectional LSTM.
type Tagger struct {
	nn.Module
	Embed *nn.EmbeddingModule
	LSTM  *nn.LSTMModule
	Drop  *nn.DropoutModule
	Head  *nn.LinearModule
}

// NewTagger makes one for n words, besides unknown ones.
func NewTagger(n int) *Tagger {
	const wide, hidden = 32, 64
	return nn.Init(&Tagger{
		Embed: nn.Embedding(int64(n)+1, wide), LSTM: nn.LSTM(wide, hidden, nn.LSTMOptions{Bidirectional: true}),
		Drop: nn.Dropout(0.2), Head: nn.Linear(2*hidden, int64(len(tags))),
	})
}

// Forward returns scores for each word's tag: (words of all sentences, tags).
func (m *Tagger) Forward(words rnn.PackedSequence) gotorch.Tensor {
	words.Data = m.Embed.Forward(words.Data) // a packed sequence's words, one below the other
	out, _, _ := m.LSTM.ForwardPacked(words)
	return m.Head.Forward(m.Drop.Forward(out.Data))
}

// accuracy is the part of a set's words whose tags the model tells. It leaves the model in evaluation mode; a loop puts it
// back.
func (m *Tagger) accuracy(set *corpus) (float64, error) {
	m.Eval()
	right, all := 0.0, 0.0
	for batch, err := range data.NewLoader[Tagged](set, data.LoaderOptions{BatchSize: 250}).All() {
		if err != nil {
			return 0, err
		}
		gotorch.InferenceMode(func() {
			told := m.Forward(batch.Words).ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))})
			right += gotorch.Item[float64](told.Eq(batch.Tags.Data).Sum())
			all += float64(told.Numel())
		})
	}
	return right / all, nil
}

// habit is the accuracy of who knows of each word only what it is most often.
func habit(learn, test *corpus) float64 {
	counts := map[string]map[string]int{}
	for _, s := range learn.sentences {
		for _, w := range s {
			if counts[w.text] == nil {
				counts[w.text] = map[string]int{}
			}
			counts[w.text][w.tag]++
		}
	}
	right, all := 0, 0
	for _, s := range test.sentences {
		for _, w := range s {
			of := counts[w.text]
			most := "NOUN"
			for _, tag := range tags {
				if of[tag] > of[most] {
					most = tag
				}
			}
			all++
			if most == w.tag {
				right++
			}
		}
	}
	return float64(right) / float64(all)
}

// --------------------------------------------------------------------------------------------------

// result is what a run has come to.
type result struct {
	habit, accuracy float64
}

func (o options) run(ctx context.Context, w io.Writer) (r result, err error) {
	if o.sentences < 1 || o.epochs < 1 {
		return r, errors.New("there must be a sentence to learn from, and an epoch")
	}
	gotorch.ManualSeed(o.seed)
	g := grammar{rand.New(rand.NewPCG(o.seed, 0))}
	learn := newCorpus(g, o.sentences, nil)
	test := newCorpus(g, 500, learn.words)
	r.habit = habit(learn, test)
	fmt.Fprintf(w, "%d different words; who takes each for what it is most often is right in %.1f %%\n", len(learn.words), 100*r.habit)

	model := NewTagger(len(learn.words))
	opt := optim.Adam(model.Parameters(), optim.AdamOptions{LR: 3e-3})
	loop := train.NewLossLoop(model, opt, func(batch Tagged) gotorch.Tensor {
		return F.CrossEntropy(model.Forward(batch.Words), batch.Tags.Data)
	})
	loop.OnEpoch(func(e *train.Epoch) error {
		r.accuracy, err = model.accuracy(test)
		e.Record("val_accuracy", r.accuracy)
		return err
	})
	loop.Progress(os.Stderr)
	loader := data.NewLoader[Tagged](learn, data.LoaderOptions{BatchSize: 50, Shuffle: true})
	history, err := loop.Run(ctx, loader, train.Epochs(o.epochs))
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "the tagger is right in %.2f %% of the words of sentences that it has not seen\n\n", 100*r.accuracy)
	for _, text := range o.say {
		fmt.Fprintln(w, strings.Join(model.tag(learn.words, text), " "))
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return r, err
	}
	curve := filepath.Join(o.out, "accuracy.png")
	err = plot.Lines(curve, []plot.Series{
		{Name: "LSTM", Y: percent(history.Metric("val_accuracy"))},
		{Name: "each word as most often", X: []float64{1, float64(o.epochs)}, Y: percent([]float64{r.habit, r.habit}), Dashed: true},
	}, plot.LinesOptions{XLabel: "epoch", YLabel: "% of words", FromZero: true})
	if err != nil {
		return r, err
	}
	fmt.Fprintf(w, "\nsaved %s\n", curve)
	return r, nil
}

// tag returns the words of a text as word/TAG.
func (m *Tagger) tag(known map[string]int64, text string) (tagged []string) {
	words := strings.Fields(strings.TrimRight(strings.ToLower(text), ". "))
	if len(words) == 0 {
		return nil
	}
	m.Eval()
	var ids []int64
	for _, w := range append(words, ".") {
		ids = append(ids, known[w])
	}
	gotorch.InferenceMode(func() {
		scores := m.Forward(rnn.PackSequence([]gotorch.Tensor{gotorch.FromSlice(ids)}))
		for i, tag := range gotorch.ToSlice[int](scores.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))}))[:len(words)] {
			tagged = append(tagged, words[i]+"/"+tags[tag])
		}
	})
	return tagged
}

func percent(parts []float64) []float64 {
	var whole []float64
	for _, p := range parts {
		whole = append(whole, 100*p)
	}
	return whole
}
