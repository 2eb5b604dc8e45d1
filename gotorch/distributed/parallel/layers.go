package parallel

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

// ColumnParallelLinearModule is what [ColumnParallelLinear] makes.
type ColumnParallelLinearModule struct {
	nn.Module
	Weight gotorch.Tensor // (out/ranks, in)
	Bias   gotorch.Tensor // (out/ranks), or none

	group  *distributed.Group
	gather bool
}

// ColumnParallelLinearOptions are the arguments of [ColumnParallelLinear] that have defaults.
type ColumnParallelLinearOptions struct {
	// GatherOutput has each rank get the whole output. Without it each has its part of the last dimension, as
	// [RowParallelLinear] wants it.
	GatherOutput bool
}

// ColumnParallelLinear is a linear layer of which each rank computes a part of the outputs: (*, in) → (*, out/ranks). The
// number of ranks must divide out; it panics with a ValueError if not.
//
// See https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html#torch.distributed.tensor.parallel.ColwiseParallel
func ColumnParallelLinear(g *distributed.Group, whole *nn.LinearModule, opts ...ColumnParallelLinearOptions) *ColumnParallelLinearModule {
	first, n := part("ColumnParallelLinear", g, whole.Weight.Size(0))
	m := &ColumnParallelLinearModule{group: g, gather: args.Option(opts).GatherOutput, Weight: rows(whole.Weight, first, n)}
	if whole.Bias.Defined() {
		m.Bias = rows(whole.Bias, first, n)
	}
	return nn.Init(m)
}

// Forward computes this rank's part of the outputs.
func (m *ColumnParallelLinearModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	y := linear(CopyToRegion(m.group, x), m.Weight, m.Bias)
	if m.gather {
		return GatherFromRegion(m.group, y)
	}
	return y
}

// Shards makes it a [distributed.Sharder]: each rank has some rows.
func (m *ColumnParallelLinearModule) Shards() map[string]distributed.Shard {
	shards := map[string]distributed.Shard{"weight": shard(m.group, m.Weight, 0)}
	if m.Bias.Defined() {
		shards["bias"] = shard(m.group, m.Bias, 0)
	}
	return shards
}

// RowParallelLinearModule is what [RowParallelLinear] makes.
type RowParallelLinearModule struct {
	nn.Module
	Weight gotorch.Tensor // (out, in/ranks)
	Bias   gotorch.Tensor // (out), or none, the same on all ranks

	group *distributed.Group
	split bool
}

// RowParallelLinearOptions are the arguments of [RowParallelLinear] that have defaults.
type RowParallelLinearOptions struct {
	// SplitInput takes this rank's part of an input that is whole. Without it the input is that part, as
	// [ColumnParallelLinear] returns it.
	SplitInput bool
}

// RowParallelLinear is a linear layer of which each rank multiplies a part of the inputs, and the outputs are added up:
// (*, in/ranks) → (*, out). The number of ranks must divide in; it panics with a ValueError if not.
//
// See https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html#torch.distributed.tensor.parallel.RowwiseParallel
func RowParallelLinear(g *distributed.Group, whole *nn.LinearModule, opts ...RowParallelLinearOptions) *RowParallelLinearModule {
	first, n := part("RowParallelLinear", g, whole.Weight.Size(1))
	m := &RowParallelLinearModule{group: g, split: args.Option(opts).SplitInput,
		Weight: whole.Weight.Detach().Narrow(1, first, n).Clone()}
	if whole.Bias.Defined() {
		m.Bias = whole.Bias.Detach().Clone()
	}
	return nn.Init(m)
}

// Forward computes the whole outputs.
func (m *RowParallelLinearModule) Forward(x gotorch.Tensor) gotorch.Tensor {
	if m.split {
		x = ScatterToRegion(m.group, x)
	}
	y := ReduceFromRegion(m.group, linear(x, m.Weight, gotorch.Tensor{}))
	if m.Bias.Defined() {
		y = y.Add(m.Bias) // once, and not on each rank
	}
	return y
}

// Shards makes it a [distributed.Sharder]: each rank has some columns of the weight.
func (m *RowParallelLinearModule) Shards() map[string]distributed.Shard {
	return map[string]distributed.Shard{"weight": shard(m.group, m.Weight, 1)}
}

// VocabParallelEmbeddingModule is what [VocabParallelEmbedding] makes.
type VocabParallelEmbeddingModule struct {
	nn.Module
	Weight gotorch.Tensor // (words/ranks, features)

	group *distributed.Group
	first int64 // word
}

// VocabParallelEmbedding is an embedding of which each rank has a part of the words: (*) → (*, features). The number of ranks
// must divide that of the words. It panics with a ValueError if not, and with a NotImplementedError for an embedding with
// PaddingIdx, MaxNorm, ScaleGradByFreq or Sparse.
func VocabParallelEmbedding(g *distributed.Group, whole *nn.EmbeddingModule) *VocabParallelEmbeddingModule {
	const op = "VocabParallelEmbedding"
	first, n := part(op, g, whole.Weight.Size(0))
	if args.Given(whole.PaddingIdx) || args.Given(whole.MaxNorm) || whole.ScaleGradByFreq || whole.Sparse {
		panic(args.Errorf(op, gotorch.NotImplementedError, "of an embedding with PaddingIdx, MaxNorm, ScaleGradByFreq or Sparse"))
	}
	return nn.Init(&VocabParallelEmbeddingModule{group: g, first: first, Weight: rows(whole.Weight, first, n)})
}

// Forward looks words up. It panics with an IndexError for one that no rank has.
func (m *VocabParallelEmbeddingModule) Forward(words gotorch.Tensor) gotorch.Tensor {
	checkWords("VocabParallelEmbedding", words, m.Weight.Size(0)*int64(m.group.Size()))
	others, at := away(words, m.first, m.Weight.Size(0))
	found := F.Embedding(at, m.Weight).MaskedFill(others.Unsqueeze(-1), 0)
	return ReduceFromRegion(m.group, found)
}

// Shards makes it a [distributed.Sharder]: each rank has some rows.
func (m *VocabParallelEmbeddingModule) Shards() map[string]distributed.Shard {
	return map[string]distributed.Shard{"weight": shard(m.group, m.Weight, 0)}
}

// shard is a tensor as a rank's part of one that is shared out evenly along a dimension.
func shard(g *distributed.Group, t gotorch.Tensor, dim int) distributed.Shard {
	shape, offsets := t.Shape(), make([]int64, t.Dim())
	offsets[dim] = int64(g.Rank()) * shape[dim]
	shape[dim] *= int64(g.Size())
	return distributed.Shard{Local: t, Shape: shape, Offsets: offsets}
}

// VocabParallelCrossEntropy returns the cross entropy of logits of which each rank has a part of the classes, as of
// [ColumnParallelLinear]: logits (*, classes/ranks) and targets (*) of any class give the losses (*). No rank ever has all
// logits. It panics with an IndexError for a target that is no class.
//
// Its gradient is softmax − 1 at the target, as that of F.CrossEntropy with Reduction "none".
//
// See https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html#torch.distributed.tensor.parallel.loss_parallel
func VocabParallelCrossEntropy(g *distributed.Group, logits, targets gotorch.Tensor) gotorch.Tensor {
	first, n := part("VocabParallelCrossEntropy", g, logits.Size(-1)*int64(g.Size()))
	checkWords("VocabParallelCrossEntropy", targets, n*int64(g.Size()))
	return gotorch.Apply(crossEntropy{g, first}, logits, targets)[0]
}

type crossEntropy struct {
	g     *distributed.Group
	first int64
}

func (f crossEntropy) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	logits, targets := in[0], in[1]
	largest := gotorch.Contiguous(logits.AMax(gotorch.AMaxOptions{Dim: []int64{-1}}))
	f.g.AllReduce(largest, distributed.Max)
	shifted := logits.Sub(largest.Unsqueeze(-1))
	exp := shifted.Exp()
	others, at := away(targets, f.first, logits.Size(-1))
	said := shifted.Gather(-1, at.Unsqueeze(-1)).Squeeze().Reshape(targets.Shape()).MaskedFill(others, 0)
	sums := gotorch.Stack([]gotorch.Tensor{exp.SumDim([]int64{-1}), said}) // together
	f.g.AllReduce(sums, distributed.Sum)
	total, target := sums.Select(0, 0), sums.Select(0, 1)
	ctx.SaveForBackward(exp.Div(total.Unsqueeze(-1)), others, at)
	return []gotorch.Tensor{total.Log().Sub(target)}
}

func (crossEntropy) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	saved := ctx.SavedTensors()
	softmax, others, at := saved[0], saved[1], saved[2]
	one := gotorch.Ones([]int64{1}, gotorch.TensorOptions{DType: softmax.DType(), Device: softmax.Device()}).ExpandAs(others).MaskedFill(others, 0)
	d := softmax.ScatterAdd(-1, at.Unsqueeze(-1), one.Neg().Unsqueeze(-1))
	return []gotorch.Tensor{d.Mul(grads[0].Unsqueeze(-1)), {}}
}

// away returns which of words other ranks have, and where the rest are among this rank's n; 0 for the others.
func away(words gotorch.Tensor, first, n int64) (others, at gotorch.Tensor) {
	at = words.To(gotorch.Int64).SubScalar(first)
	others = at.LtScalar(0).LogicalOr(at.GeScalar(n))
	return others, at.MaskedFill(others, 0)
}

func checkWords(op string, words gotorch.Tensor, n int64) {
	if words.Numel() == 0 {
		return
	}
	least, most := gotorch.Item[int64](words.Min()), gotorch.Item[int64](words.Max())
	if least < 0 || most >= n {
		panic(args.Errorf(op, gotorch.IndexError, "%d to %d, of which each must be from 0 to %d", least, most, n-1))
	}
}

func linear(x, weight, bias gotorch.Tensor) gotorch.Tensor {
	if bias.Defined() {
		return F.Linear(x, weight, F.LinearOptions{Bias: bias})
	}
	return F.Linear(x, weight)
}

// rows is a part of a parameter, as a tensor of its own.
func rows(t gotorch.Tensor, first, n int64) gotorch.Tensor {
	return t.Detach().Narrow(0, first, n).Clone()
}
