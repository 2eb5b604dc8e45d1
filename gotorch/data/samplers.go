package data

import (
	"iter"
	"slices"
	"sync/atomic"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Sampler says which samples of a data set an epoch has, and in which order: a Sampler[int] gives their indices one by
// one, a Sampler[[]int] those of whole batches. All draws an epoch anew each time that it is called; Len is how many it
// gives. A [Loader] takes all of an epoch's indices when the epoch begins, so All must end: one that gives
// more than Len is a ValueError then.
//
// Where random numbers come from something else than gotorch's default generator, a sampler has the methods StateDict and
// LoadStateDict of a train.Stateful, so that a run can go on in the middle of an epoch.
//
// Its counterpart is torch.utils.data.Sampler.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.Sampler.
type Sampler[I any] interface {
	Len() int
	All() iter.Seq[I]
}

// Sized is what has a number of samples, such as a [Dataset].
type Sized interface{ Len() int }

// planner is a sampler of this package, which draws all of an epoch at once.
type planner interface {
	// plan draws an epoch; base takes the place of the default generator. end is called when the epoch is over.
	plan(base *gotorch.Generator) (order []int, end func())
}

func nothing() {}

// SequentialSampler gives all samples in their order. Its counterpart is torch.utils.data.SequentialSampler. It panics
// with a TypeError if there is no set.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.SequentialSampler.
func SequentialSampler(set Sized) Sampler[int] {
	checkSized("data.SequentialSampler", set)
	return sequential{set}
}

func checkSized(op string, set Sized) {
	if set == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the data set is nil"})
	}
}

type sequential struct{ set Sized }

func (s sequential) Len() int { return s.set.Len() }

func (s sequential) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range s.set.Len() {
			if !yield(i) {
				return
			}
		}
	}
}

// drawn is a sampler that draws an epoch from a generator.
type drawn struct {
	generator *gotorch.Generator // nil: the default one
	n         func() int
	draw      func(g *gotorch.Generator) (order []int, end func())
}

func (s *drawn) Len() int { return s.n() }

func (s *drawn) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		order, end := s.plan(nil)
		for _, i := range order {
			if !yield(i) {
				return
			}
		}
		end()
	}
}

func (s *drawn) plan(base *gotorch.Generator) ([]int, func()) {
	if s.generator != nil {
		base = s.generator
	}
	return s.draw(base)
}

// StateDict returns the state of the sampler's own generator, if it has one.
func (s *drawn) StateDict() gotorch.Dict {
	if s.generator == nil {
		return gotorch.Dict{}
	}
	return gotorch.Dict{{Key: "generator", Value: s.generator.State()}}
}

// LoadStateDict sets the sampler's own generator.
func (s *drawn) LoadStateDict(dict gotorch.Dict) error {
	state, is := dict.Get("generator").(gotorch.Tensor)
	if is != (s.generator != nil) {
		return args.ValueError("data.Sampler.LoadStateDict", "only one of the two samplers has a generator of its own")
	}
	if !is {
		return nil
	}
	return gotorch.Try0(func() { s.generator.SetState(state) })
}

// RandomSamplerOptions are the arguments of [RandomSampler] that have defaults.
type RandomSamplerOptions struct {
	Replacement bool               // a sample may be drawn again
	NumSamples  gotorch.Scalar     // how many an epoch has; nil: as many as the set
	Generator   *gotorch.Generator // nil: one with a seed from the default generator, anew in each epoch
}

// RandomSampler draws samples at random: each once, in the order of torch.utils.data.RandomSampler with the same
// generator, or any of them each time with Replacement. With more NumSamples than the set has and no Replacement, all are
// drawn once before any is drawn again. An empty set gives nothing, as a loader with Shuffle of one.
//
// It panics with a ValueError if NumSamples is not positive, and with a TypeError if there is no set.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.RandomSampler.
func RandomSampler(set Sized, opts ...RandomSamplerOptions) Sampler[int] {
	const op = "data.RandomSampler"
	checkSized(op, set)
	o := args.Option(opts)
	number := args.IntPointer(op, "NumSamples", o.NumSamples)
	if number != nil && *number <= 0 {
		panic(args.ValueError(op, "num_samples should be a positive integer value, but got num_samples=%d", *number))
	}
	n := func() int {
		switch length := max(set.Len(), 0); {
		case number == nil || length == 0:
			return length
		default:
			return int(*number)
		}
	}
	return &drawn{o.Generator, n, func(g *gotorch.Generator) ([]int, func()) {
		length, count := max(set.Len(), 0), n()
		if o.Generator == nil {
			seed := draw(g)
			g = gotorch.NewGenerator(gotorch.CPU).ManualSeed(seed)
		}
		if o.Replacement {
			return withReplacement(length, count, g), nothing
		}
		order, end := permuted(length, count, g)
		return order, end
	}}
}

// draw returns a random number of 64 bits, as PyTorch draws seeds.
func draw(g *gotorch.Generator) uint64 {
	seed := gotorch.Empty(nil, gotorch.TensorOptions{DType: gotorch.Int64})
	defer seed.Close()
	seed.Random_(gotorch.RandomOptions{Generator: g})
	return uint64(gotorch.Item[int64](seed))
}

// permutation returns the numbers below n in random order.
func permutation(n int, g *gotorch.Generator) []int {
	t := gotorch.RandpermGenerator(int64(n), g)
	defer t.Close()
	return gotorch.ToSlice[int](t)
}

// permuted returns count numbers below n, where none comes again before all others have. PyTorch's sampler draws one more
// order at the end of an epoch, of which it may need nothing: end does that.
func permuted(n, count int, g *gotorch.Generator) (order []int, end func()) {
	if n == 0 {
		return nil, nothing
	}
	for len(order)+n <= count {
		one := permutation(n, g)
		if order == nil {
			order = one
		} else {
			order = append(order, one...)
		}
	}
	if rest := count - len(order); rest > 0 {
		return append(order, permutation(n, g)[:rest]...), nothing
	}
	return order, func() { gotorch.RandpermGenerator(int64(n), g).Close() }
}

// withReplacement draws as PyTorch's sampler does, 32 at a time.
func withReplacement(n, count int, g *gotorch.Generator) (order []int) {
	const chunk = 32
	for n > 0 && len(order) < count {
		some := gotorch.RandintGenerator(int64(n), []int64{int64(min(chunk, count-len(order)))}, g)
		order = append(order, gotorch.ToSlice[int](some)...)
		some.Close()
	}
	return order
}

// SubsetRandomSamplerOptions are the arguments of [SubsetRandomSampler] that have defaults.
type SubsetRandomSamplerOptions struct {
	Generator *gotorch.Generator // nil: the default one
}

// SubsetRandomSampler gives indices, which it keeps and does not copy, in random order. Its counterpart is
// torch.utils.data.SubsetRandomSampler.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.SubsetRandomSampler.
func SubsetRandomSampler(indices []int, opts ...SubsetRandomSamplerOptions) Sampler[int] {
	return &drawn{args.Option(opts).Generator, func() int { return len(indices) }, func(g *gotorch.Generator) ([]int, func()) {
		order := permutation(len(indices), g)
		for i, at := range order {
			order[i] = indices[at]
		}
		return order, nothing
	}}
}

// WeightedRandomSamplerOptions are the arguments of [WeightedRandomSampler] that have defaults.
type WeightedRandomSamplerOptions struct {
	NoReplacement bool               // no sample is drawn twice in an epoch
	Generator     *gotorch.Generator // nil: the default one
}

// WeightedRandomSampler draws numSamples indices of weights, each as often as its weight says, which need not sum up to 1:
// for a set with few samples of some class, for instance. Its counterpart is torch.utils.data.WeightedRandomSampler.
//
// It panics with a ValueError if numSamples is not positive. What torch.multinomial refuses, such as negative weights, or
// NoReplacement with fewer weights that are not zero than samples, is a RuntimeError when an epoch begins.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.WeightedRandomSampler.
func WeightedRandomSampler(weights []float64, numSamples int, opts ...WeightedRandomSamplerOptions) Sampler[int] {
	const op = "data.WeightedRandomSampler"
	o := args.Option(opts)
	if numSamples <= 0 {
		panic(args.ValueError(op, "num_samples should be a positive integer value, but got num_samples=%d", numSamples))
	}
	weights = slices.Clone(weights)
	return &drawn{o.Generator, func() int { return numSamples }, func(g *gotorch.Generator) ([]int, func()) {
		w := gotorch.FromSlice(weights)
		defer w.Close()
		order := gotorch.Multinomial(w, int64(numSamples), gotorch.MultinomialOptions{Replacement: !o.NoReplacement, Generator: g})
		defer order.Close()
		return gotorch.ToSlice[int](order), nothing
	}}
}

// DistributedSamplerOptions are the arguments of [DistributedSampler] that have defaults.
type DistributedSamplerOptions struct {
	NoShuffle bool   // give the samples in their order
	Seed      uint64 // of the order, the same in all processes
	DropLast  bool   // leave out samples so that all processes have equally many; otherwise some are given twice
}

// DistributedSamples is what [DistributedSampler] returns.
type DistributedSamples struct {
	set                 Sized
	numReplicas, rank   int
	seed                uint64
	noShuffle, dropLast bool
	epoch               atomic.Int64 // a loader's Len may be asked for while it begins an epoch
	dealt               atomic.Int64 // how many samples of the next epoch were given before, by another number of processes
}

// DistributedSampler gives one of numReplicas processes that train together its part of a data set: those at rank,
// rank+numReplicas and so on of an order that is the same in all of them. [DistributedSamples.SetEpoch] is called
// before each epoch, or all have the same order. Its counterpart is torch.utils.data.DistributedSampler.
//
// It panics with a ValueError if rank is not between 0 and numReplicas-1, and with a TypeError if there is no set.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler.
func DistributedSampler(set Sized, numReplicas, rank int, opts ...DistributedSamplerOptions) *DistributedSamples {
	const op = "data.DistributedSampler"
	checkSized(op, set)
	o := args.Option(opts)
	if rank < 0 || rank >= numReplicas {
		panic(args.ValueError(op, "Invalid rank %d, rank should be in the interval [0, %d]", rank, numReplicas-1))
	}
	return &DistributedSamples{set: set, numReplicas: numReplicas, rank: rank, seed: o.Seed, noShuffle: o.NoShuffle, dropLast: o.DropLast}
}

// SetEpoch says which epoch is next; each has another order.
func (s *DistributedSamples) SetEpoch(epoch int) { s.epoch.Store(int64(epoch)) }

// Len returns the number of samples that this process gets in an epoch: in the next one, where that is the rest of one that was
// begun by another number of processes.
func (s *DistributedSamples) Len() int { return s.rest(int(s.dealt.Load())) }

// rest is how many samples this process gets, where so many were given before.
func (s *DistributedSamples) rest(dealt int) int {
	return numBatches(s.set.Len()-dealt, s.numReplicas, s.dropLast)
}

// All gives the indices of the epoch that SetEpoch has said.
func (s *DistributedSamples) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		order, _ := s.plan(nil)
		for _, i := range order {
			if !yield(i) {
				return
			}
		}
	}
}

func (s *DistributedSamples) plan(*gotorch.Generator) ([]int, func()) {
	n, dealt := max(s.set.Len(), 0), int(s.dealt.Load())
	var order []int
	if !s.noShuffle && n > 0 {
		order = permutation(n, gotorch.NewGenerator(gotorch.CPU).ManualSeed(s.seed+uint64(s.epoch.Load())))
	}
	mine := make([]int, s.rest(dealt))
	for k := range mine {
		at := dealt + (s.rank+k*s.numReplicas)%(n-dealt) // where there are too few, from the begin again
		if mine[k] = at; order != nil {
			mine[k] = order[at]
		}
	}
	s.dealt.Store(0) // the next one has all
	return mine, nothing
}

// StateDict returns which epoch it is, and how much of it other numbers of processes had.
func (s *DistributedSamples) StateDict() gotorch.Dict {
	dict := gotorch.Dict{{Key: "epoch", Value: int(s.epoch.Load())}}
	if dealt := int(s.dealt.Load()); dealt > 0 {
		dict = append(dict, gotorch.DictItem{Key: "dealt", Value: dealt})
	}
	return dict
}

// LoadStateDict sets which epoch it is. It returns a ValueError if dict does not say it.
func (s *DistributedSamples) LoadStateDict(dict gotorch.Dict) error {
	epoch, dealt, err := distributedState("data.DistributedSampler.LoadStateDict", dict)
	if err != nil {
		return err
	}
	s.epoch.Store(int64(epoch))
	s.dealt.Store(int64(dealt))
	return nil
}

func distributedState(op string, dict gotorch.Dict) (epoch, dealt int, err error) {
	epoch, is := plain(dict.Get("epoch")).(int)
	if !is {
		return 0, 0, args.ValueError(op, "epoch is %v, where a number is expected", shown(dict.Get("epoch")))
	}
	if dict.Get("dealt") != nil {
		if dealt, is = plain(dict.Get("dealt")).(int); !is || dealt < 0 {
			return 0, 0, args.ValueError(op, "dealt is %v, where a number is expected that is not negative", shown(dict.Get("dealt")))
		}
	}
	return epoch, dealt, nil
}

// BatchSampler gives what sampler does in batches of batchSize. The last one is left out if it is smaller and dropLast is
// true. Its counterpart is torch.utils.data.BatchSampler; a [Loader] makes one itself of its options BatchSize and
// DropLast.
//
// It panics with a ValueError if batchSize is not positive, and with a TypeError if there is no sampler.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.BatchSampler.
func BatchSampler(sampler Sampler[int], batchSize int, dropLast bool) Sampler[[]int] {
	const op = "data.BatchSampler"
	if sampler == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the sampler is nil"})
	}
	if batchSize <= 0 {
		panic(args.ValueError(op, "batch_size should be a positive integer value, but got batch_size=%d", batchSize))
	}
	return &batches{sampler, batchSize, dropLast}
}

type batches struct {
	sampler  Sampler[int]
	size     int
	dropLast bool
}

func (s *batches) Len() int { return numBatches(s.sampler.Len(), s.size, s.dropLast) }

func (s *batches) All() iter.Seq[[]int] { return s.of(s.sampler.All()) }

func (s *batches) of(indices iter.Seq[int]) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var batch []int
		for i := range indices {
			if batch = append(batch, i); len(batch) == s.size {
				if !yield(batch) {
					return
				}
				batch = make([]int, 0, s.size)
			}
		}
		if len(batch) > 0 && !s.dropLast {
			yield(batch)
		}
	}
}

// numBatches returns how many batches of a size n samples make.
func numBatches(n, size int, dropLast bool) int {
	n = max(n, 0)
	batches := n / size
	if n%size > 0 && !dropLast {
		batches++
	}
	return batches
}

// StateDict returns the state of the sampler within.
func (s *batches) StateDict() gotorch.Dict {
	if inner, is := s.sampler.(stateful); is {
		return inner.StateDict()
	}
	return gotorch.Dict{}
}

// LoadStateDict sets the sampler within.
func (s *batches) LoadStateDict(dict gotorch.Dict) error {
	if inner, is := s.sampler.(stateful); is {
		return inner.LoadStateDict(dict)
	}
	return nil
}

// stateful is train.Stateful.
type stateful interface {
	StateDict() gotorch.Dict
	LoadStateDict(dict gotorch.Dict) error
}
