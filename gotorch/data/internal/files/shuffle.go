package files

import (
	"fmt"
	"iter"
	"math/rand/v2"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Shuffled yields what seq does in another order: it holds n back, and yields one of them, drawn at random, for each
// that comes. With n at most 1 the order stays.
func Shuffled[S any](seq iter.Seq[S], n int, rng *rand.Rand) iter.Seq[S] {
	if n <= 1 {
		return seq
	}
	return func(yield func(S) bool) {
		var held []S
		for s := range seq {
			if len(held) < n {
				held = append(held, s)
				continue
			}
			i := rng.IntN(n)
			out := held[i]
			held[i] = s
			if !yield(out) {
				return
			}
		}
		rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for _, s := range held {
			if !yield(s) {
				return
			}
		}
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

// Epoch is where a stream has come to that is resumed by reading what came before once more.
type Epoch struct {
	Kind    string // of stream
	Seed    uint64
	Shuffle int
	Epoch   uint64
	Taken   int64
}

// Dict returns the place as a state dict.
func (e Epoch) Dict() gotorch.Dict {
	return gotorch.Dict{
		{Key: "kind", Value: e.Kind}, {Key: "seed", Value: int64(e.Seed)}, {Key: "shuffle", Value: int64(e.Shuffle)},
		{Key: "epoch", Value: int64(e.Epoch)}, {Key: "taken", Value: e.Taken},
	}
}

// EpochOf reads what Dict has returned. It returns a ValueError where that was of something else.
func EpochOf(d gotorch.Dict, kind string, shuffle int) (Epoch, error) {
	refuse := func(format string, values ...any) error {
		return &gotorch.Error{Op: kind, Kind: gotorch.ValueError, Msg: fmt.Sprintf(format, values...)}
	}
	if got := d.Get("kind"); got != kind {
		return Epoch{}, refuse("the state is not one of %s, but of %v", kind, got)
	}
	var numbers [4]int64
	for i, key := range []string{"seed", "shuffle", "epoch", "taken"} {
		number, ok := d.Get(key).(int64)
		if !ok || number < 0 && key != "seed" {
			return Epoch{}, refuse("the state's %q must be a number that is not negative, but is %v", key, d.Get(key))
		}
		numbers[i] = number
	}
	if numbers[1] != int64(shuffle) {
		return Epoch{}, refuse("the state is of a stream that shuffles among %d, and this one does among %d", numbers[1], shuffle)
	}
	return Epoch{kind, uint64(numbers[0]), shuffle, uint64(numbers[2]), numbers[3]}, nil
}
