// Package data hands a data set to a model: it draws the examples in random order, joins them to
// batches, and prepares the next ones while the model computes. It is what torch.utils.data is in Python.
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
// A data set of your own is a [Dataset], anything with Len and At, or an [Iterable], whose samples come one after
// the other. What a sample is is up to you: a [Pair], a Tensor, a struct or map of tensors, or a type with a method
// that joins several of it to a batch:
//
//	func (Words) Collate(samples []Words) (Words, error)
//
// Where a batch is of another type than its samples, [NewLoaderWith] takes the function that joins them;
// [DefaultCollate] is one, for structs of numbers, texts and tensors. A data set that also has the method of
// [Batcher] makes whole batches itself, which is faster, and one with that of [BulkDataset] gets the samples of a batch in one go.
//
// [Transform], [Subset], [RandomSplit], [Concat] and [Stack] make data sets of data sets, and [TransformIterable],
// [Shuffle], [Interleave] and [Chain] iterables of iterables. A [Sampler] says which samples an epoch has.
//
// With the same seed a loader gives the same batches, in PyTorch's order, however many workers prepare them. It has a
// state, which goes on in the middle of an epoch; train.LoopOf.Checkpoints saves it. docs/data.md is a longer introduction.
package data

import (
	"context"
	"fmt"
	"math/rand/v2"

	"gotorch.dev/gotorch"
)

// Dataset is a collection of samples, numbered from 0. A loader with several workers calls At from
// several goroutines at a time. Its counterpart is torch.utils.data.Dataset.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.Dataset.
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

// BulkDataset is a Dataset that gives the samples of a batch in one go, as one query of a database does. A loader whose data
// set is no [Batcher] calls Samples in place of At, and joins what it returns: as many samples as indices, in their order.
// If it fails, and the loader goes on where samples fail, it calls At for each to find out which it is. Samples must not
// keep indices. Its counterpart is the method __getitems__ of a data set in Python.
type BulkDataset[S any] interface {
	Dataset[S]
	Samples(indices []int) ([]S, error)
}

// ContextDataset is a Dataset that can be interrupted, for samples that take long to come. A loader calls AtContext in
// place of At, with a context that ends when the loop over the loader is left, or the one of [Loader.AllContext] does.
type ContextDataset[S any] interface {
	Dataset[S]
	AtContext(ctx context.Context, i int) (S, error)
}

// Namer is a data set that has names for its samples, such as the paths of their files. A [SampleError] tells them. The
// data sets of this package pass on what the one within says.
type Namer interface {
	Name(i int) string
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

// TensorDataset is a data set whose inputs, and whose targets, lie in one tensor. Its counterpart is
// torch.utils.data.TensorDataset with two tensors; [TensorRows] is for any number.
type TensorDataset struct {
	inputs, targets gotorch.Tensor
}

// NewTensorDataset makes a data set of the rows of inputs and targets, which it keeps and does not
// copy. It panics with a ValueError if they differ in number.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.TensorDataset.
func NewTensorDataset(inputs, targets gotorch.Tensor) *TensorDataset {
	checkRows("data.NewTensorDataset", "inputs and targets", inputs, targets)
	return &TensorDataset{inputs, targets}
}

func checkRows(op, what string, tensors ...gotorch.Tensor) {
	for _, t := range tensors {
		if t.Dim() > 0 && tensors[0].Dim() > 0 && t.Size(0) == tensors[0].Size(0) {
			continue
		}
		var shapes [][]int64
		for _, t := range tensors {
			shapes = append(shapes, t.Shape())
		}
		msg := fmt.Sprintf("%s must have the same number of rows, got shapes %v", what, shapes[0])
		for i, shape := range shapes[1:] {
			switch {
			case i == len(shapes)-2:
				msg += fmt.Sprintf(" and %v", shape)
			default:
				msg += fmt.Sprintf(", %v", shape)
			}
		}
		panic(&gotorch.Error{Op: op, Kind: gotorch.ValueError, Msg: msg})
	}
}

// Len returns the number of rows.
func (d *TensorDataset) Len() int { return int(d.inputs.Size(0)) }

// At returns views of the i-th rows. It returns an IndexError if there are none.
func (d *TensorDataset) At(i int) (Pair, error) {
	if i < 0 {
		return Pair{}, noSample("data.TensorDataset", i, d.Len())
	}
	return gotorch.Try(func() Pair {
		return Pair{d.inputs.Select(0, int64(i)), d.targets.Select(0, int64(i))}
	})
}

// Batch returns copies of the rows.
func (d *TensorDataset) Batch(indices []int, _ *rand.Rand) (Pair, error) {
	return gotorch.Try(func() Pair {
		rows := selectRows(indices, d.inputs, d.targets)
		return Pair{rows[0], rows[1]}
	})
}

// selectRows returns copies of the rows of tensors, which are on one device.
func selectRows(indices []int, tensors ...gotorch.Tensor) []gotorch.Tensor {
	rows := gotorch.FromSlice(indices, int64(len(indices)))
	defer rows.Close()
	if at := tensors[0].Device(); at.Type() != gotorch.DeviceTypeCPU {
		onCPU := rows
		defer onCPU.Close()
		rows = rows.To(at)
	}
	selected := make([]gotorch.Tensor, len(tensors))
	for i, t := range tensors {
		selected[i] = t.IndexSelect(0, rows)
	}
	return selected
}

// TensorRows is a data set of the rows of any number of tensors, which it keeps and does not copy: a sample has a view of
// the row of each. Its counterpart is torch.utils.data.TensorDataset. It panics with a ValueError if there are none, or
// if they differ in the number of rows.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.TensorDataset.
func TensorRows(tensors ...gotorch.Tensor) Dataset[[]gotorch.Tensor] {
	const op = "data.TensorRows"
	if len(tensors) == 0 {
		panic(&gotorch.Error{Op: op, Kind: gotorch.ValueError, Msg: "there must be at least one tensor"})
	}
	checkRows(op, "the tensors", tensors...)
	return &tensorRows{tensors}
}

type tensorRows struct{ tensors []gotorch.Tensor }

func (d *tensorRows) Len() int { return int(d.tensors[0].Size(0)) }

func (d *tensorRows) At(i int) ([]gotorch.Tensor, error) {
	if i < 0 { // which select would count from the end
		return nil, noSample("data.TensorRows", i, d.Len())
	}
	return gotorch.Try(func() []gotorch.Tensor {
		rows := make([]gotorch.Tensor, len(d.tensors))
		for k, t := range d.tensors {
			rows[k] = t.Select(0, int64(i))
		}
		return rows
	})
}

func (d *tensorRows) Batch(indices []int, _ *rand.Rand) ([]gotorch.Tensor, error) {
	return gotorch.Try(func() []gotorch.Tensor { return selectRows(indices, d.tensors...) })
}
