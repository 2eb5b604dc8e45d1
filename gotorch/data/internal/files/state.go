package files

import (
	"iter"
	"math/rand/v2"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/internal/shuffle"
	"gotorch.dev/gotorch/internal/args"
)

// Position is where a stream has come to that can begin at any place of its files, or pass by what comes before.
type Position struct {
	Kind  string // of stream, such as "lines.Stream"
	Files int    // that it has

	File   int   // which of them it is in
	Offset int64 // in bytes, of what is unpacked
	Sample int64 // how many of the file came before
}

// Begin goes to the beginning of a file.
func (p *Position) Begin(file int) { p.File, p.Offset, p.Sample = file, 0, 0 }

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
	p.File, p.Offset, p.Sample = int(n[1]), n[2], n[3]
	return nil
}

// Epoch is where a stream has come to that goes on by reading what came before once more.
type Epoch struct {
	Kind    string // of stream
	Shuffle int    // samples that are held back, to be yielded in random order; at most 1: none
	Seed    uint64 // of all epochs

	Epoch uint64
	Taken int64 // samples and errors of this epoch
}

// StateDict returns the stream's state.
func (e *Epoch) StateDict() gotorch.Dict {
	return gotorch.Dict{
		{Key: "kind", Value: e.Kind}, {Key: "seed", Value: int64(e.Seed)}, {Key: "shuffle", Value: int64(e.Shuffle)},
		{Key: "epoch", Value: int64(e.Epoch)}, {Key: "taken", Value: e.Taken},
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
	e.Seed, e.Epoch, e.Taken = uint64(seed), uint64(n[1]), n[2]
	return nil
}

// Samples yields the samples of the epoch from where the stream is to the end, and goes to the next epoch then. read is
// all samples of the epoch, of which those before are dropped; rng is for their order.
func Samples[S any](e *Epoch, read func(rng *rand.Rand) iter.Seq[S]) iter.Seq[S] {
	return func(yield func(S) bool) {
		rng := rand.New(rand.NewPCG(e.Seed, e.Epoch))
		all := read(rng)
		if e.Shuffle > 1 {
			held := shuffle.Buffer[S]{Size: e.Shuffle, RNG: rng}
			all = held.All(all)
		}
		before := e.Taken
		for s := range all {
			if before > 0 {
				before--
				continue
			}
			e.Taken++
			if !yield(s) {
				return
			}
		}
		e.Epoch, e.Taken = e.Epoch+1, 0
	}
}

// Seed returns the seed of the options, or one that is drawn from the default generator.
func Seed(op string, field gotorch.Scalar) uint64 {
	if seed, given := args.Seed(op, "Seed", field); given {
		return seed
	}
	drawn := gotorch.Empty(nil, gotorch.TensorOptions{DType: gotorch.Int64})
	defer drawn.Close()
	drawn.Random_()
	return uint64(gotorch.Item[int64](drawn))
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
