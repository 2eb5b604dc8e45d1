package data

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// getter returns a sample for a batch, whose source of randomness is rng.
type getter[S any] func(ctx context.Context, i int, rng *rand.Rand) (S, error)

// made is a data set of this package that is made of others.
type made[S any] interface {
	// get is a getter.
	get(ctx context.Context, i int, rng *rand.Rand) (S, error)
	// whole reports whether Batch does more than get for each sample.
	whole() bool
}

// getterOf returns how a loader asks for samples of set.
func getterOf[S any](set Dataset[S]) getter[S] {
	switch set := set.(type) {
	case made[S]:
		return set.get
	case ContextDataset[S]:
		return func(ctx context.Context, i int, _ *rand.Rand) (S, error) { return set.AtContext(ctx, i) }
	}
	return func(_ context.Context, i int, _ *rand.Rand) (S, error) { return set.At(i) }
}

// batcherOf returns set as one that is better asked for batches than for samples, or nil.
func batcherOf[S any](set Dataset[S]) Batcher[S] {
	if inner, is := set.(made[S]); is && !inner.whole() {
		return nil
	}
	b, _ := set.(Batcher[S])
	return b
}

// bulkOf returns set as one that gives the samples of a batch in one go, or nil.
func bulkOf[S any](set Dataset[S]) BulkDataset[S] {
	if s, is := set.(*subset[S]); is && s.bulk == nil {
		return nil
	}
	b, _ := set.(BulkDataset[S])
	return b
}

// nameIn returns the name of a sample, or "".
func nameIn(set any, i int) string {
	if n, is := set.(Namer); is {
		return n.Name(i)
	}
	return ""
}

// noSample is the error for an index that a set of n samples does not have.
func noSample(op string, i, n int) error {
	return &gotorch.Error{Op: op, Kind: gotorch.IndexError, Msg: fmt.Sprintf("there is no sample %d among %d", i, n)}
}

// checkSets refuses data sets that are nil, of which a call in a worker would say less.
func checkSets[S any](op string, sets ...Dataset[S]) {
	for _, set := range sets {
		if set == nil {
			panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the data set is nil"})
		}
	}
}

// checkFunction refuses a function that is nil.
func checkFunction(op string, isNil bool) {
	if isNil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the function is nil"})
	}
}

// Subset is the part of a data set that is at the given indices. Its counterpart is torch.utils.data.Subset. It
// panics with a TypeError if there is no set.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.Subset.
func Subset[S any](set Dataset[S], indices []int) Dataset[S] {
	checkSets("data.Subset", set)
	return &subset[S]{set, indices, getterOf(set), batcherOf(set), bulkOf(set)}
}

type subset[S any] struct {
	set     Dataset[S]
	indices []int
	inner   getter[S]
	batcher Batcher[S]
	bulk    BulkDataset[S]
}

func (d *subset[S]) Len() int { return len(d.indices) }

func (d *subset[S]) At(i int) (sample S, err error) {
	if i < 0 || i >= len(d.indices) {
		return sample, noSample("data.Subset", i, len(d.indices))
	}
	return d.set.At(d.indices[i])
}

func (d *subset[S]) Name(i int) string { return nameIn(d.set, d.indices[i]) }

func (d *subset[S]) whole() bool { return d.batcher != nil }

func (d *subset[S]) get(ctx context.Context, i int, rng *rand.Rand) (S, error) {
	return d.inner(ctx, d.indices[i], rng)
}

// within returns where in the set samples are.
func (d *subset[S]) within(indices []int) ([]int, error) {
	inner := make([]int, len(indices))
	for i, at := range indices {
		if at < 0 || at >= len(d.indices) {
			return nil, noSample("data.Subset", at, len(d.indices))
		}
		inner[i] = d.indices[at]
	}
	return inner, nil
}

func (d *subset[S]) Samples(indices []int) ([]S, error) {
	inner, err := d.within(indices)
	if err != nil {
		return nil, err
	}
	return d.bulk.Samples(inner)
}

func (d *subset[S]) Batch(indices []int, rng *rand.Rand) (none S, err error) {
	inner, err := d.within(indices)
	if err != nil {
		return none, err
	}
	if d.batcher != nil {
		return d.batcher.Batch(inner, rng)
	}
	return joined(d.inner, inner, rng)
}

// joined asks for samples one by one, and joins them.
func joined[S any](get getter[S], indices []int, rng *rand.Rand) (none S, err error) {
	samples := make([]S, len(indices))
	for i, at := range indices {
		if samples[i], err = get(context.Background(), at, rng); err != nil {
			return none, err
		}
	}
	return collate(samples)
}

// Transform is a data set with every sample of set changed by fn. rng is for random changes; At,
// which has no batch to belong to, gives each index always the same. It panics with a TypeError if there is no set or no
// function.
func Transform[S, R any](set Dataset[S], fn func(sample S, rng *rand.Rand) (R, error)) Dataset[R] {
	checkSets("data.Transform", set)
	checkFunction("data.Transform", fn == nil)
	return &transformed[S, R]{set, fn, getterOf(set)}
}

type transformed[S, R any] struct {
	set   Dataset[S]
	fn    func(S, *rand.Rand) (R, error)
	inner getter[S]
}

func (d *transformed[S, R]) Len() int { return d.set.Len() }

func (d *transformed[S, R]) Name(i int) string { return nameIn(d.set, i) }

func (d *transformed[S, R]) whole() bool { return false }

func (d *transformed[S, R]) At(i int) (R, error) {
	return d.get(context.Background(), i, rand.New(rand.NewPCG(0, uint64(i))))
}

func (d *transformed[S, R]) get(ctx context.Context, i int, rng *rand.Rand) (R, error) {
	sample, err := d.inner(ctx, i, rng)
	if err != nil {
		var none R
		return none, err
	}
	return d.fn(sample, rng)
}

func (d *transformed[S, R]) Batch(indices []int, rng *rand.Rand) (R, error) {
	return joined(d.get, indices, rng)
}

// Concat is several data sets one after the other. Its counterpart is torch.utils.data.ConcatDataset. Their lengths are
// asked for once. It panics with a ValueError if there are none, and with a TypeError if one is nil.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.ConcatDataset.
func Concat[S any](sets ...Dataset[S]) Dataset[S] {
	if len(sets) == 0 {
		panic(args.ValueError("data.Concat", "there must be at least one data set"))
	}
	checkSets("data.Concat", sets...)
	d := &concat[S]{sets: slices.Clone(sets)}
	end := 0
	for _, set := range sets {
		end += max(set.Len(), 0)
		d.ends = append(d.ends, end)
		d.inner = append(d.inner, getterOf(set))
	}
	return d
}

type concat[S any] struct {
	sets  []Dataset[S]
	ends  []int
	inner []getter[S]
}

func (d *concat[S]) Len() int { return d.ends[len(d.ends)-1] }

// find returns which set sample i is in, and where.
func (d *concat[S]) find(i int) (set, at int, err error) {
	if i < 0 || i >= d.Len() {
		return 0, 0, noSample("data.Concat", i, d.Len())
	}
	set = sort.SearchInts(d.ends, i+1)
	if set > 0 {
		i -= d.ends[set-1]
	}
	return set, i, nil
}

func (d *concat[S]) At(i int) (none S, err error) {
	set, at, err := d.find(i)
	if err != nil {
		return none, err
	}
	return d.sets[set].At(at)
}

func (d *concat[S]) Name(i int) string {
	set, at, err := d.find(i)
	if err != nil {
		return ""
	}
	return nameIn(d.sets[set], at)
}

func (d *concat[S]) whole() bool { return false }

func (d *concat[S]) get(ctx context.Context, i int, rng *rand.Rand) (none S, err error) {
	set, at, err := d.find(i)
	if err != nil {
		return none, err
	}
	return d.inner[set](ctx, at, rng)
}

// Stack has, as each sample, those of several data sets of one length at the same place: what
// torch.utils.data.StackDataset returns as a tuple. [Zip] is for sets of different types, [StackMap] for names.
//
// It panics with a ValueError if there are none, or if they differ in length, and with a TypeError if one is nil.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.StackDataset.
func Stack[S any](sets ...Dataset[S]) Dataset[[]S] {
	checkLengths("data.Stack", slices.Values(sets))
	get := make([]getter[S], len(sets))
	for k, set := range sets {
		get[k] = getterOf(set)
	}
	sets = slices.Clone(sets)
	return &stacked[[]S]{sets[0], func(i int) string { return nameIn(sets[0], i) }, func(ctx context.Context, i int, rng *rand.Rand) (_ []S, err error) {
		sample := make([]S, len(get))
		for k := range get {
			if sample[k], err = get[k](ctx, i, rng); err != nil {
				return nil, err
			}
		}
		return sample, nil
	}}
}

// StackMap is [Stack] with names: what torch.utils.data.StackDataset returns as a dict. The sets are asked in the order of
// their names.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.StackDataset.
func StackMap[S any](sets map[string]Dataset[S]) Dataset[map[string]S] {
	names := slices.Sorted(maps.Keys(sets))
	in := func(yield func(Dataset[S]) bool) {
		for _, name := range names {
			if !yield(sets[name]) {
				return
			}
		}
	}
	checkLengths("data.StackMap", in)
	var get []getter[S]
	for set := range in {
		get = append(get, getterOf(set))
	}
	first := sets[names[0]]
	return &stacked[map[string]S]{first, func(i int) string { return nameIn(first, i) }, func(ctx context.Context, i int, rng *rand.Rand) (map[string]S, error) {
		sample := make(map[string]S, len(get))
		for k, name := range names {
			one, err := get[k](ctx, i, rng)
			if err != nil {
				return nil, err
			}
			sample[name] = one
		}
		return sample, nil
	}}
}

// Zip has, as each sample, what join makes of those of two data sets at the same place: torch.utils.data.StackDataset for
// sets of different types. It panics with a ValueError if they differ in length, and with a TypeError if a set or the
// function is nil.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.StackDataset.
func Zip[A, B, R any](a Dataset[A], b Dataset[B], join func(A, B) (R, error)) Dataset[R] {
	checkSets("data.Zip", a)
	checkSets("data.Zip", b)
	checkFunction("data.Zip", join == nil)
	if a.Len() != b.Len() {
		panic(args.ValueError("data.Zip", "the data sets must have the same length, and have %d and %d samples", a.Len(), b.Len()))
	}
	getA, getB := getterOf(a), getterOf(b)
	name := func(i int) string {
		if name := nameIn(a, i); name != "" {
			return name
		}
		return nameIn(b, i)
	}
	return &stacked[R]{a, name, func(ctx context.Context, i int, rng *rand.Rand) (none R, err error) {
		x, err := getA(ctx, i, rng)
		if err != nil {
			return none, err
		}
		y, err := getB(ctx, i, rng)
		if err != nil {
			return none, err
		}
		return join(x, y)
	}}
}

func checkLengths[S any](op string, sets func(func(Dataset[S]) bool)) {
	n := -1
	for set := range sets {
		checkSets(op, set)
		if n >= 0 && set.Len() != n {
			panic(args.ValueError(op, "the data sets must have the same length, and there are some of %d and %d samples", n, set.Len()))
		}
		n = max(set.Len(), 0)
	}
	if n < 0 {
		panic(args.ValueError(op, "there must be at least one data set"))
	}
}

// stacked is a data set whose samples are made of those of several.
type stacked[R any] struct {
	first Sized
	name  func(i int) string
	inner getter[R]
}

func (d *stacked[R]) Len() int { return d.first.Len() }

func (d *stacked[R]) Name(i int) string { return d.name(i) }

func (d *stacked[R]) whole() bool { return false }

func (d *stacked[R]) At(i int) (R, error) {
	return d.inner(context.Background(), i, rand.New(rand.NewPCG(0, uint64(i))))
}

func (d *stacked[R]) get(ctx context.Context, i int, rng *rand.Rand) (R, error) {
	return d.inner(ctx, i, rng)
}

// RandomSplitOptions are the arguments of [RandomSplit] that have defaults.
type RandomSplitOptions struct {
	Generator *gotorch.Generator // nil: the default one
}

// RandomSplit splits a data set at random into parts of the given lengths, or, where they are floats, fractions of its
// length: []int{800, 200} or []float64{0.8, 0.2}. What fractions leave over goes to the parts in turn, from the first. The
// parts are those of torch.utils.data.random_split with the same generator.
//
// It panics with a ValueError if lengths do not sum up to the set's, if one is negative, or if fractions are not between 0
// and 1 with the sum 1, and with a TypeError if there is no set.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.random_split.
func RandomSplit[S any, N int | float64](set Dataset[S], lengths []N, opts ...RandomSplitOptions) []Dataset[S] {
	const op = "data.RandomSplit"
	checkSets(op, set)
	o := args.Option(opts)
	n := set.Len()
	var sizes []int
	switch lengths := any(lengths).(type) {
	case []int:
		sizes = lengths
	case []float64:
		sizes = fractionsOf(op, n, lengths)
	}
	sum := 0
	for i, size := range sizes {
		if size < 0 || size > math.MaxInt-sum {
			panic(args.ValueError(op, "the length of part %d is %d", i, size))
		}
		sum += size
	}
	if sum != n {
		panic(args.ValueError(op, "Sum of input lengths does not equal the length of the input dataset! The lengths sum up to %d, and there are %d samples", sum, n))
	}
	order := permutation(n, o.Generator)
	parts := make([]Dataset[S], len(sizes))
	for i, size := range sizes {
		parts[i], order = Subset(set, order[:size:size]), order[size:]
	}
	return parts
}

// fractionsOf returns the lengths of parts that are fractions of n.
func fractionsOf(op string, n int, fractions []float64) []int {
	sum, lost := 0.0, 0.0 // as Python adds floats: with what rounding has lost, so that 20 times 0.05 is 1
	for i, f := range fractions {
		if !(f >= 0 && f <= 1) {
			panic(args.ValueError(op, "Fraction at index %d is not between 0 and 1", i))
		}
		next := sum + f
		lost += (max(sum, f) - next) + min(sum, f)
		sum = next
	}
	sum += lost
	if !(math.Abs(sum-1) <= 1e-9*max(sum, 1)) || sum > 1 {
		panic(args.ValueError(op, "the fractions must sum up to 1, and sum up to %v", sum))
	}
	sizes, rest := make([]int, len(fractions)), n
	for i, f := range fractions {
		sizes[i] = int(math.Floor(float64(n) * f))
		rest -= sizes[i]
	}
	for i := range rest {
		sizes[i%len(sizes)]++
	}
	return sizes
}
