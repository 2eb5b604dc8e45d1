// Package data hands a data set to a model: it draws the examples in random order, joins them to
// batches, and prepares the next ones while the model computes.
//
//	inputs := gotorch.Randn([]int64{1000, 20})
//	targets := gotorch.Randint(10, []int64{1000})
//	set := data.NewTensorDataset(inputs, targets)
//
//	loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 64, Shuffle: true, Workers: 2})
//	for batch, err := range loader.All() { // one epoch
//		if err != nil {
//			return err
//		}
//		loss := F.CrossEntropy(model.Forward(batch.Input), batch.Target)
//		...
//	}
//
// A data set of your own is anything with Len and At. What At returns is up to you: a [Pair], a
// Tensor, or a struct with a method that joins several of it to a batch:
//
//	func (Words) Collate(samples []Words) (Words, error)
//
// A data set that also has the method of [Batcher] makes whole batches itself, which is faster.
// [Transform] changes the samples of a data set, for instance at random.
//
// With the same seed a loader gives the same batches, however many workers prepare them.
package data

import (
	"fmt"
	"math/rand/v2"

	"gotorch.dev/gotorch"
)

// Dataset is a collection of samples, numbered from 0. A loader with several workers calls At from
// several goroutines at a time.
type Dataset[S any] interface {
	Len() int
	At(i int) (S, error)
}

// Batcher is a Dataset that makes batches itself. rng is the batch's own source of randomness: what
// is drawn from it does not depend on the number of workers. Batch must not keep indices.
type Batcher[S any] interface {
	Dataset[S]
	Batch(indices []int, rng *rand.Rand) (S, error)
}

// Pair is what a model learns from: an input and what it should answer. It is both a sample and, with
// one more dimension in front, a batch of them.
type Pair struct {
	Input, Target gotorch.Tensor
}

// Collate stacks samples to a batch.
func (Pair) Collate(samples []Pair) (Pair, error) {
	inputs, targets := make([]gotorch.Tensor, len(samples)), make([]gotorch.Tensor, len(samples))
	for i, s := range samples {
		inputs[i], targets[i] = s.Input, s.Target
	}
	return gotorch.Try(func() Pair { return Pair{gotorch.Stack(inputs), gotorch.Stack(targets)} })
}

// To returns the pair on another device.
func (p Pair) To(device gotorch.Device) Pair {
	return Pair{p.Input.To(device), p.Target.To(device)}
}

// Len returns the number of samples in a batch.
func (p Pair) Len() int { return int(p.Input.Size(0)) }

// Close frees both tensors now rather than when the collector finds them.
func (p Pair) Close() {
	p.Input.Close()
	p.Target.Close()
}

// TensorDataset is a data set whose inputs, and whose targets, lie in one tensor.
type TensorDataset struct {
	inputs, targets gotorch.Tensor
}

// NewTensorDataset makes a data set of the rows of inputs and targets, which it keeps and does not
// copy. It panics with a ValueError if they differ in number.
func NewTensorDataset(inputs, targets gotorch.Tensor) *TensorDataset {
	if inputs.Dim() == 0 || targets.Dim() == 0 || inputs.Size(0) != targets.Size(0) {
		panic(&gotorch.Error{Op: "data.NewTensorDataset", Kind: gotorch.ValueError, Msg: fmt.Sprintf(
			"inputs and targets must have the same number of rows, got shapes %v and %v", inputs.Shape(), targets.Shape())})
	}
	return &TensorDataset{inputs, targets}
}

// Len returns the number of rows.
func (d *TensorDataset) Len() int { return int(d.inputs.Size(0)) }

// At returns views of the i-th rows.
func (d *TensorDataset) At(i int) (Pair, error) {
	return gotorch.Try(func() Pair {
		return Pair{d.inputs.Select(0, int64(i)), d.targets.Select(0, int64(i))}
	})
}

// Batch returns copies of the rows.
func (d *TensorDataset) Batch(indices []int, _ *rand.Rand) (Pair, error) {
	return gotorch.Try(func() Pair {
		rows := gotorch.FromSlice(indices, int64(len(indices)))
		defer rows.Close()
		if at := d.inputs.Device(); at.Type() != gotorch.DeviceTypeCPU {
			onCPU := rows
			defer onCPU.Close()
			rows = rows.To(at)
		}
		return Pair{d.inputs.IndexSelect(0, rows), d.targets.IndexSelect(0, rows)}
	})
}

// Subset is the part of a data set that is at the given indices.
func Subset[S any](set Dataset[S], indices []int) Dataset[S] { return &subset[S]{set, indices} }

type subset[S any] struct {
	set     Dataset[S]
	indices []int
}

func (d *subset[S]) Len() int { return len(d.indices) }

func (d *subset[S]) At(i int) (S, error) { return d.set.At(d.indices[i]) }

func (d *subset[S]) Batch(indices []int, rng *rand.Rand) (S, error) {
	inner := make([]int, len(indices))
	for i, at := range indices {
		inner[i] = d.indices[at]
	}
	return batch(d.set, inner, rng)
}

// Transform is a data set with every sample of set changed by fn. rng is for random changes; At,
// which has no batch to belong to, gives each index always the same.
func Transform[S, R any](set Dataset[S], fn func(sample S, rng *rand.Rand) (R, error)) Dataset[R] {
	return &transformed[S, R]{set, fn}
}

type transformed[S, R any] struct {
	set Dataset[S]
	fn  func(S, *rand.Rand) (R, error)
}

func (d *transformed[S, R]) Len() int { return d.set.Len() }

func (d *transformed[S, R]) At(i int) (R, error) {
	return d.at(i, rand.New(rand.NewPCG(0, uint64(i))))
}

func (d *transformed[S, R]) at(i int, rng *rand.Rand) (R, error) {
	sample, err := d.set.At(i)
	if err != nil {
		var none R
		return none, err
	}
	return d.fn(sample, rng)
}

func (d *transformed[S, R]) Batch(indices []int, rng *rand.Rand) (R, error) {
	samples := make([]R, len(indices))
	for i, at := range indices {
		sample, err := d.at(at, rng)
		if err != nil {
			var none R
			return none, err
		}
		samples[i] = sample
	}
	return collate(samples)
}

// batch returns the samples of set that are at indices, joined.
func batch[S any](set Dataset[S], indices []int, rng *rand.Rand) (S, error) {
	if set, ok := set.(Batcher[S]); ok {
		return set.Batch(indices, rng)
	}
	samples := make([]S, len(indices))
	for i, at := range indices {
		sample, err := set.At(at)
		if err != nil {
			var none S
			return none, err
		}
		samples[i] = sample
	}
	return collate(samples)
}

// collater is what a sample type has that can be joined to batches.
type collater[S any] interface {
	Collate(samples []S) (S, error)
}

func collate[S any](samples []S) (S, error) {
	var none S
	switch kind := any(none).(type) {
	case collater[S]:
		return kind.Collate(samples)
	case gotorch.Tensor:
		stacked, err := gotorch.Try(func() gotorch.Tensor { return gotorch.Stack(any(samples).([]gotorch.Tensor)) })
		return any(stacked).(S), err
	}
	return none, notCollatable[S]()
}

// notCollatable is the error for a type of sample that cannot be joined.
func notCollatable[S any]() error {
	return &gotorch.Error{Op: "data.Loader", Kind: gotorch.TypeError, Msg: fmt.Sprintf(
		"samples of type %T cannot be joined to batches: give the type a method Collate([]%[1]T) (%[1]T, error)", *new(S))}
}
