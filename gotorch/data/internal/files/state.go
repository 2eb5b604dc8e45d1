package files

import (
	"iter"
	"math/rand/v2"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/shuffle"
	"gotorch.dev/gotorch/internal/args"
)

// The streams have one rule, which is that of a data.Loader. A loop over All begins an epoch. The state is where the loop is that
// yielded last. After LoadStateDict, the next loop is the rest of the epoch that the state is in. From leaves the state alone, and
// is refused where a state is waiting for a loop.

// Position is where a stream has come to that can begin at any place of its files, or pass by what comes before.
type Position struct {
	Kind  string // of stream, such as "lines.Stream"
	Files int    // that it has

	begun  bool  // the next loop begins another epoch
	File   int   // which of them it is in
	Offset int64 // in bytes, of what is unpacked
	Sample int64 // how many of the file came before
}

// Begin goes to the beginning of a file.
func (p *Position) Begin(file int) { p.File, p.Offset, p.Sample = file, 0, 0 }

// A Walk yields what follows a position, but for the first skip elements. It moves the position before it yields. It returns false
// if the loop was left.
type Walk[S any] func(at *Position, skip int, yield func(S, error) bool) bool

// All is a loop over a stream, which is at p.
func All[S any](p *Position, walk Walk[S]) iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		if p.begun {
			p.Begin(0)
		}
		p.begun = true
		at := *p
		if walk(&at, 0, func(sample S, err error) bool {
			*p = at
			return yield(sample, err)
		}) {
			p.Begin(0)
			p.begun = false
		}
	}
}

// From is the sequence of a start.
func From[S any](p *Position, start data.Start, walk Walk[S]) iter.Seq2[S, error] {
	return func(yield func(S, error) bool) {
		if !p.begun && (p.File > 0 || p.Offset > 0 || p.Sample > 0) {
			var none S
			yield(none, waiting(p.Kind))
			return
		}
		walk(&Position{}, start.Skip, yield)
	}
}

// waiting is the error for a state that nobody would hear of.
func waiting(kind string) error {
	return args.ValueError(kind, "the stream has a state by LoadStateDict, which is for a loop over All: a data.Loader has the place in its own state")
}

// StateDict returns the stream's state.
func (p *Position) StateDict() gotorch.Dict {
	return gotorch.Dict{
		{Key: "kind", Value: p.Kind}, {Key: "files", Value: int64(p.Files)}, {Key: "file", Value: int64(p.File)},
		{Key: "offset", Value: p.Offset}, {Key: "sample", Value: p.Sample},
	}
}

// LoadStateDict goes to where another stream was. It returns a ValueError, and stays, if the state is of something else.
func (p *Position) LoadStateDict(dict gotorch.Dict) error {
	n, err := numbers(dict, p.Kind, "files", "file", "offset", "sample")
	if err != nil {
		return err
	}
	if n[0] != int64(p.Files) || n[1] > n[0] {
		return args.ValueError(p.Kind, "the state is of a stream of %d files, and this one has %d", n[0], p.Files)
	}
	p.File, p.Offset, p.Sample, p.begun = int(n[1]), n[2], n[3], false
	return nil
}

// Epoch is where a stream has come to that goes on by reading what came before once more.
type Epoch struct {
	Kind    string // of stream
	Shuffle int    // samples that are held back, to be yielded in random order; at most 1: none
	Seed    uint64 // of all epochs
	Seeded  bool   // by the program: else the order of From follows from the start's seed

	epoch uint64
	taken int64 // samples and errors of this epoch
	begun bool  // the next loop begins another epoch
}

// Next returns which epoch the next loop is of.
func (e *Epoch) Next() int {
	if e.begun {
		return int(e.epoch) + 1
	}
	return int(e.epoch)
}

// Fresh returns the epoch that another stream begins with.
func (e *Epoch) Fresh() Epoch {
	return Epoch{Kind: e.Kind, Shuffle: e.Shuffle, Seed: e.Seed, Seeded: e.Seeded}
}

// StateDict returns the stream's state.
func (e *Epoch) StateDict() gotorch.Dict {
	return gotorch.Dict{
		{Key: "kind", Value: e.Kind}, {Key: "seed", Value: int64(e.Seed)}, {Key: "shuffle", Value: int64(e.Shuffle)},
		{Key: "epoch", Value: int64(e.epoch)}, {Key: "taken", Value: e.taken},
	}
}

// LoadStateDict goes to where another stream was. It returns a ValueError, and stays, if the state is of something else.
func (e *Epoch) LoadStateDict(dict gotorch.Dict) error {
	n, err := numbers(dict, e.Kind, "shuffle", "epoch", "taken")
	if err != nil {
		return err
	}
	seed, is := dict.Get("seed").(int64) // any 64 bits
	if !is {
		return args.ValueError(e.Kind, "the state's \"seed\" must be a number, but is %v", dict.Get("seed"))
	}
	if n[0] != int64(e.Shuffle) {
		return args.ValueError(e.Kind, "the state is of a stream that shuffles among %d, and this one does among %d", n[0], e.Shuffle)
	}
	e.Seed, e.epoch, e.taken, e.begun = uint64(seed), uint64(n[1]), n[2], false
	return nil
}

// A Read yields all elements of an epoch; rng is for their order.
type Read[S any] func(rng *rand.Rand) iter.Seq[S]

// samples yields the elements of an epoch, but for the first skip. It returns false if the loop was left.
func samples[S any](e *Epoch, seed, epoch uint64, skip int64, read Read[S], yield func(S) bool) bool {
	rng := rand.New(rand.NewPCG(seed, epoch))
	all := read(rng)
	if e.Shuffle > 1 {
		held := shuffle.Buffer[S]{Size: e.Shuffle, RNG: rng}
		all = held.All(all)
	}
	for s := range all {
		if skip > 0 {
			skip--
			continue
		}
		if !yield(s) {
			return false
		}
	}
	return true
}

// Samples is a loop over a stream, which is at e.
func Samples[S any](e *Epoch, read Read[S]) iter.Seq[S] {
	return func(yield func(S) bool) {
		if e.begun {
			e.epoch, e.taken = e.epoch+1, 0
		}
		e.begun = true
		epoch, taken := e.epoch, e.taken
		if samples(e, e.Seed, epoch, taken, read, func(s S) bool {
			taken++
			e.epoch, e.taken = epoch, taken
			return yield(s)
		}) {
			e.epoch, e.taken, e.begun = epoch+1, 0, false
		}
	}
}

// SamplesFrom is the sequence of a start.
func SamplesFrom[S any](e *Epoch, start data.Start, read Read[S]) iter.Seq[S] {
	seed, epoch := start.Seed, uint64(0)
	if e.Seeded {
		seed, epoch = e.Seed, uint64(start.Epoch)
	}
	return func(yield func(S) bool) { samples(e, seed, epoch, int64(start.Skip), read, yield) }
}

// Waiting returns an error where a state is waiting for a loop.
func (e *Epoch) Waiting() error {
	if !e.begun && e.taken > 0 {
		return waiting(e.Kind)
	}
	return nil
}

// SetSeed sets the seed that the options have, or one that is drawn from the default generator.
func (e *Epoch) SetSeed(op string, field gotorch.Scalar) {
	if e.Seed, e.Seeded = args.Seed(op, "Seed", field); e.Seeded {
		return
	}
	drawn := gotorch.Empty(nil, gotorch.TensorOptions{DType: gotorch.Int64})
	defer drawn.Close()
	drawn.Random_()
	e.Seed = uint64(gotorch.Item[int64](drawn))
}

// numbers reads the numbers of a state, which must be of a kind.
func numbers(dict gotorch.Dict, kind string, keys ...string) ([]int64, error) {
	if got := dict.Get("kind"); got != kind {
		return nil, args.ValueError(kind, "the state is not one of %s, but of %v", kind, got)
	}
	all := make([]int64, len(keys))
	for i, key := range keys {
		number, is := dict.Get(key).(int64)
		if !is || number < 0 {
			return nil, args.ValueError(kind, "the state's %q must be a number that is not negative, but is %v", key, dict.Get(key))
		}
		all[i] = number
	}
	return all, nil
}
