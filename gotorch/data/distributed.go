package data

import (
	"iter"
	"math"

	"gotorch.dev/gotorch/internal/args"
)

// DistributedIterableOptions are the arguments of [DistributedIterable] that have defaults.
type DistributedIterableOptions struct {
	Seed     uint64 // of the whole set's order, the same in all processes
	DropLast bool   // leave out samples so that all processes have equally many; otherwise some are given twice
}

// DistributedIterable gives one of numReplicas processes that train together its part of an Iterable: the elements at rank,
// rank+numReplicas and so on. Every process makes the same set, and reads all of it. It drops elements of the others
// before [TransformIterable] transforms them. Use [DistributedSampler] for a [Dataset].
//
//	lines := data.Shuffle(stream, 10_000)                                     // the same order in all processes
//	mine := data.DistributedIterable(lines, world.Size(), world.Rank())
//	loader := data.NewIterableLoader(data.TransformIterable(mine, decode), ...) // each decodes its own
//
// Random numbers in set follow from the Seed of the options and from the epoch, and not from the loader's seed, so that
// processes agree. The epoch is how many the loader has begun, or what [Loader.SetEpoch] says. All processes get
// equally many elements: if the last round has no element for a process, that process gets an element of the round that another
// has too. With DropLast such a round is left out.
//
// If set reads files, it is faster to give each process separate files, as webdataset.Stream.Shard does. The processes must then
// have equally many batches.
//
// It panics with a ValueError if rank is not between 0 and numReplicas-1, and with a TypeError if there is no set.
func DistributedIterable[S any](set Iterable[S], numReplicas, rank int, opts ...DistributedIterableOptions) Iterable[S] {
	const op = "data.DistributedIterable"
	checkIterables(op, set)
	o := args.Option(opts)
	if rank < 0 || rank >= numReplicas {
		panic(args.ValueError(op, "Invalid rank %d, rank should be in the interval [0, %d]", rank, numReplicas-1))
	}
	return &distributedIterable[S]{set: set, numReplicas: numReplicas, at: rank, seed: o.Seed, dropLast: o.DropLast}
}

type distributedIterable[S any] struct {
	set             Iterable[S]
	numReplicas, at int
	seed            uint64
	dropLast        bool
	epochs
}

// sharing is an Iterable that ranks share, so that what is left of an epoch can be shared anew.
type sharing interface {
	ranks() int
	rank() int
	whole() int         // elements of an epoch of all ranks; -1 if that is not known
	rest(dealt int) int // elements of this rank, where dealt of an epoch were dealt before; -1 if that is not known
}

// sharedBy returns what has the elements of a set, one by one, that ranks share.
func sharedBy(set any) (sharing, bool) {
	if by, is := set.(interface{ shared() (sharing, bool) }); is {
		return by.shared()
	}
	return nil, false
}

func (d *distributedIterable[S]) shared() (sharing, bool) { return d, true }

func (d *distributedIterable[S]) ranks() int { return d.numReplicas }

func (d *distributedIterable[S]) rank() int { return d.at }

func (d *distributedIterable[S]) whole() int { return lenOf(d.set) }

func (d *distributedIterable[S]) rest(dealt int) int {
	n := d.whole()
	if n < 0 {
		return -1
	}
	return numBatches(n-dealt, d.numReplicas, d.dropLast)
}

func (d *distributedIterable[S]) Len() int { return d.rest(0) }

func (d *distributedIterable[S]) seeks() bool { return seeks(d.set) }

func (d *distributedIterable[S]) states() []stateful { return statesIn(d.set) }

func (d *distributedIterable[S]) All() iter.Seq2[S, error] {
	return func(yield func(S, error) bool) { d.From(d.fresh())(yield) }
}

func (d *distributedIterable[S]) From(start Start) iter.Seq2[S, error] { return now(d.laters(start)) }

func (d *distributedIterable[S]) laters(start Start) iter.Seq[later[S]] {
	inner := Start{Seed: another(d.seed, start.Epoch), Epoch: start.Epoch, Skip: math.MaxInt}
	if start.Skip <= (math.MaxInt-start.dealt)/d.numReplicas {
		inner.Skip = start.dealt + start.Skip*d.numReplicas
	}
	return func(yield func(later[S]) bool) {
		var round []later[S] // as far as this rank needs it
		n := 0               // elements of the round
		for l := range latersOf(d.set, inner) {
			if n <= d.at {
				round = append(round, l)
			}
			n++
			full := n == d.numReplicas
			if give := n == d.at+1; give && !d.dropLast || full && d.dropLast {
				if !yield(round[d.at]) {
					return
				}
			}
			if full {
				clear(round)
				round, n = round[:0], 0
			}
		}
		if n > 0 && n <= d.at && !d.dropLast {
			yield(round[d.at%n])
		}
	}
}
