// Chargpt learns to write as Sir Isaac Newton did, letter by letter: a small GPT on a hundred kilobytes of his Opticks.
//
//	go run ./examples/chargpt train                          # saves build/chargpt/model.safetensors, draws loss.png
//	go run ./examples/chargpt -prompt "The Sun" sample       # loads that and writes
//
// A training that was stopped by Ctrl-C, or killed, goes on where it was when the same command is given again, and comes
// to the same numbers. Remove build/chargpt to begin anew.
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

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
)

// options are those of the command line.
type options struct {
	text, out    string
	seed         uint64
	sizes        sizes
	batch        int
	steps, saves int

	prompt      string
	length      int
	temperature float64
}

// sizes say how big the model is.
type sizes struct {
	Context int64 // how many characters it sees at a time
	Width   int64 // numbers that it has for each of them
	Layers  int64
}

func main() {
	var o options
	flags := flag.CommandLine
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "usage: chargpt [options] train | sample\n\n")
		flags.PrintDefaults()
	}
	flag.StringVar(&o.text, "text", "examples/chargpt/opticks.txt", "`file` to learn from")
	flag.StringVar(&o.out, "out", "build/chargpt", "`folder` for what is written")
	flag.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flag.Int64Var(&o.sizes.Context, "context", 64, "how many characters the model sees")
	flag.Int64Var(&o.sizes.Width, "width", 128, "how many numbers it has for each, a multiple of 32")
	flag.Int64Var(&o.sizes.Layers, "layers", 3, "how many blocks it has")
	flag.IntVar(&o.batch, "batch", 16, "pieces of text in a step")
	flag.IntVar(&o.steps, "steps", 3000, "how many steps to train")
	flag.IntVar(&o.saves, "save", 250, "after how many steps to save, besides after each epoch")
	flag.StringVar(&o.prompt, "prompt", "The Rays of ", "what the sample begins with")
	flag.IntVar(&o.length, "length", 600, "characters to write")
	flag.Float64Var(&o.temperature, "temperature", 0.7, "how daring to be; near 0 always the likeliest character")
	flag.Parse()

	var err error
	switch flag.Arg(0) {
	case "train":
		// The first Ctrl-C ends the training after a step, a second one the program.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		context.AfterFunc(ctx, stop)
		_, err = o.train(ctx, os.Stdout)
		if errors.Is(err, context.Canceled) {
			fmt.Println("\nstopped; the same command goes on from here")
			os.Exit(130)
		}
	case "sample":
		err = o.sample(os.Stdout)
	default:
		flags.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chargpt:", err)
		os.Exit(1)
	}
}

func (o options) check() error {
	switch s := o.sizes; {
	case s.Width < 32 || s.Width%32 != 0 || s.Layers < 1:
		return fmt.Errorf("the width must be a multiple of 32 and there must be a layer, but they are %d and %d", s.Width, s.Layers)
	case o.batch < 1 || o.steps < 1:
		return errors.New("there must be something in a batch and a step, but -batch or -steps is not positive")
	case !(o.temperature >= 0): // also if it is no number
		return fmt.Errorf("the temperature must not be negative, but is %v", o.temperature)
	case o.saves < 0:
		return errors.New("the steps between saves must not be negative; with 0 only epochs are saved")
	}
	return nil
}

// Text ---------------------------------------------------------------------------------------------

// vocabulary is the characters of a text. A character's number is its place.
type vocabulary []rune

func vocabularyOf(text string) vocabulary {
	return slices.Compact(slices.Sorted(slices.Values([]rune(text))))
}

// encode returns the numbers of a text's characters.
func (v vocabulary) encode(text string) (ids []int64, err error) {
	for _, c := range text {
		id, known := slices.BinarySearch(v, c)
		if !known {
			return nil, fmt.Errorf("the model has never seen the character %q", c)
		}
		ids = append(ids, int64(id))
	}
	return ids, nil
}

// read returns the text's characters, and pieces of it to learn from and, of its last tenth, to test with.
func (o options) read() (v vocabulary, learn, test *data.TensorDataset, err error) {
	if err := o.check(); err != nil {
		return nil, nil, nil, err
	}
	text, err := os.ReadFile(o.text)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil, fmt.Errorf("%w\nrun this in gotorch's folder, or say with -text what to learn from", err)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	v = vocabularyOf(string(text))
	ids, err := v.encode(string(text))
	if err != nil {
		return nil, nil, nil, err
	}
	cut := int64(len(ids)) * 9 / 10
	if o.sizes.Context < 1 || int64(len(ids))-cut <= o.sizes.Context {
		return nil, nil, nil, fmt.Errorf("%s has %d characters, too few for a context of %d", o.text, len(ids), o.sizes.Context)
	}
	all := gotorch.FromSlice(ids)
	// Pieces that overlap show each character at many places.
	learn = pieces(all.Narrow(0, 0, cut), o.sizes.Context, max(1, o.sizes.Context/8))
	test = pieces(all.Narrow(0, cut, all.Size(0)-cut), o.sizes.Context, o.sizes.Context)
	return v, learn, test, nil
}

// pieces cuts a text into inputs of n characters, one every step characters, and targets: for each character the one
// behind it. They are views of the text, so this takes no memory.
func pieces(text gotorch.Tensor, n, step int64) *data.TensorDataset {
	windows := text.Unfold(0, n+1, step) // (pieces, n+1)
	return data.NewTensorDataset(windows.Narrow(1, 0, n), windows.Narrow(1, 1, n))
}

// The model ----------------------------------------------------------------------------------------

// GPT tells from characters which one may come next, at each place from those up to there.
type GPT struct {
	nn.Module
	Token  *nn.EmbeddingModule // what a character is
	Place  *nn.EmbeddingModule // where it is
	Drop   *nn.DropoutModule
	Blocks []*Block
	Norm   *nn.LayerNormModule
	Head   *nn.LinearModule
}

// NewGPT makes one for n characters.
func NewGPT(n int64, s sizes) *GPT {
	m := &GPT{Token: nn.Embedding(n, s.Width), Place: nn.Embedding(s.Context, s.Width), Drop: nn.Dropout(dropout)}
	for range s.Layers {
		m.Blocks = append(m.Blocks, NewBlock(s.Width))
	}
	m.Norm, m.Head = nn.LayerNorm(s.Width), nn.Linear(s.Width, n)
	nn.Init(m)
	// Small weights: at first all characters are about as likely.
	m.Apply(func(part nn.Modular) {
		switch part := part.(type) {
		case *nn.LinearModule:
			nninit.Normal_(part.Weight, nninit.NormalOptions{Std: 0.02})
			nninit.Zeros_(part.Bias)
		case *nn.EmbeddingModule:
			nninit.Normal_(part.Weight, nninit.NormalOptions{Std: 0.02})
		}
	})
	return m
}

const dropout = 0.1

// Forward returns scores for each next character: (N, T) → (N, T, characters).
func (m *GPT) Forward(x gotorch.Tensor) gotorch.Tensor {
	h := m.Drop.Forward(m.Token.Forward(x).Add(m.Place.Forward(gotorch.Arange(x.Size(1)))))
	for _, block := range m.Blocks {
		h = block.Forward(h)
	}
	return m.Head.Forward(m.Norm.Forward(h))
}

// Block lets each place gather what it needs from those before it, and think about it.
type Block struct {
	nn.Module
	Norm1, Norm2  *nn.LayerNormModule
	QKV, Out      *nn.LinearModule
	Widen, Narrow *nn.LinearModule
	Drop          *nn.DropoutModule
	heads         int64
}

// NewBlock makes one with heads of 32 numbers.
func NewBlock(width int64) *Block {
	return nn.Init(&Block{
		Norm1: nn.LayerNorm(width), QKV: nn.Linear(width, 3*width), Out: nn.Linear(width, width),
		Norm2: nn.LayerNorm(width), Widen: nn.Linear(width, 4*width), Narrow: nn.Linear(4*width, width),
		Drop: nn.Dropout(dropout), heads: width / 32,
	})
}

// Forward goes through the block: (N, T, E) → (N, T, E).
func (m *Block) Forward(x gotorch.Tensor) gotorch.Tensor {
	x = x.Add(m.Drop.Forward(m.attention(m.Norm1.Forward(x))))
	h := m.Narrow.Forward(F.GELU(m.Widen.Forward(m.Norm2.Forward(x))))
	return x.Add(m.Drop.Forward(h))
}

func (m *Block) attention(x gotorch.Tensor) gotorch.Tensor {
	n, t, width := x.Size(0), x.Size(1), x.Size(2)
	qkv := m.QKV.Forward(x).View([]int64{n, t, 3, m.heads, width / m.heads}).Permute([]int64{2, 0, 3, 1, 4}).Unbind()
	y := F.ScaledDotProductAttention(qkv[0], qkv[1], qkv[2], F.ScaledDotProductAttentionOptions{IsCausal: true})
	return m.Out.Forward(y.Transpose(1, 2).Reshape([]int64{n, t, width}))
}

// loss is the mean of −log(probability of the character that came), in nats.
func loss(scores, next gotorch.Tensor) gotorch.Tensor {
	return F.CrossEntropy(scores.Flatten(gotorch.FlattenOptions{EndDim: new(int64(1))}), next.Flatten())
}

// Training -----------------------------------------------------------------------------------------

func (o options) model() string { return filepath.Join(o.out, "model.safetensors") }

func (o options) train(ctx context.Context, w io.Writer) (*train.History, error) {
	gotorch.ManualSeed(o.seed)
	v, learn, test, err := o.read()
	if err != nil {
		return nil, err
	}
	model := NewGPT(int64(len(v)), o.sizes)
	fmt.Fprintf(w, "%d parameters, %d different characters, %d pieces to learn from, %d to test with\n",
		model.NumParameters(), len(v), learn.Len(), test.Len())

	opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{WeightDecay: 0.1})
	loop := train.NewLoop(model, opt, nn.LossFunc(loss))
	loop.ClipGradNorm(1)
	loop.Schedule(lrscheduler.OneCycleLR(opt, 3e-3, lrscheduler.OneCycleLROptions{TotalSteps: o.steps, PctStart: 0.1}), train.PerStep)
	loop.OnEpoch(train.Validate(test))
	loop.Checkpoints(filepath.Join(o.out, "run"), train.CheckpointsOptions{Steps: o.saves, Resume: true})
	loop.Progress(os.Stderr)

	loader := data.NewLoader(learn, data.LoaderOptions{BatchSize: o.batch, Shuffle: true, DropLast: true})
	history, err := loop.Run(ctx, loader, train.Steps(o.steps))
	if err != nil {
		return history, err
	}
	valLoss := history.Last("val_loss")
	fmt.Fprintf(w, "test loss %.3f: of text that it has not seen it tells a character as if there were %.1f to choose from\n",
		valLoss, math.Exp(valLoss))
	if err := nn.Save(model, o.model()); err != nil {
		return history, err
	}
	curve := filepath.Join(o.out, "loss.png")
	if err := plot.Losses(curve, history); err != nil {
		return history, err
	}
	fmt.Fprintf(w, "saved %s and %s\n", o.model(), curve)
	return history, nil
}

// Writing ------------------------------------------------------------------------------------------

func (o options) sample(w io.Writer) error {
	gotorch.ManualSeed(o.seed)
	v, _, _, err := o.read()
	if err != nil {
		return err
	}
	model := NewGPT(int64(len(v)), o.sizes)
	if err := nn.Load(model, o.model()); err != nil {
		return fmt.Errorf("%w\n`chargpt train` makes the model, and sizes and text must be those that it was given", err)
	}
	text, err := v.encode(o.prompt)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return errors.New("the prompt is empty: it needs something to go on from")
	}
	model.Eval()
	fmt.Fprint(w, o.prompt)
	for range o.length {
		next := model.next(text[max(0, len(text)-int(o.sizes.Context)):], o.temperature)
		text = append(text, next)
		fmt.Fprint(w, string(v[next]))
	}
	fmt.Fprintln(w)
	return nil
}

// next draws the character that comes after a text of at most as many as the model can see.
func (m *GPT) next(text []int64, temperature float64) (id int64) {
	gotorch.InferenceMode(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) { // frees what is made for one character before the next
			scores := m.Forward(gotorch.FromSlice(text, 1, int64(len(text)))).Select(1, -1)
			likely := scores.DivScalar(max(temperature, 1e-4)).Softmax(-1)
			id = gotorch.Item[int64](likely.Multinomial(1))
		})
	})
	return id
}
