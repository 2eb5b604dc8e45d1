// Package parallel has layers whose weights the ranks of a group share out, each with a part of every layer: tensor
// parallelism, for models of which one device cannot hold the whole.
//
//	up := parallel.ColumnParallelLinear(tp, nn.Linear(512, 2048))  // each rank computes some of the 2048
//	down := parallel.RowParallelLinear(tp, nn.Linear(2048, 512))   // and what they add to all of the 512
//	y := down.Forward(F.GELU(up.Forward(x)))                       // one all-reduce; one more in the backward pass
//
// A layer is made of one of package nn that is whole, and the same on all ranks (see nn.Init and gotorch.ManualSeed), of which
// it keeps a part; so what the ranks compute together is what that layer computes, up to the order of additions. All ranks
// must call the layers in the same order, with the same input: the backward pass exchanges in the order in which the goroutine
// has made the graph. The group is often one of a mesh:
// distributed.InitDeviceMesh(world, []int{2, 4}, "dp", "tp"), with distributed.DataParallel along "dp".
//
// [Pipeline] has each rank compute some of the layers instead.
//
// Python has the same as torch.distributed.tensor.parallel:
// https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
package parallel

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
)

// CopyToRegion returns x, whose gradients the backward pass adds up over the ranks: where each rank goes on with all of x to
// compute a part.
func CopyToRegion(g *distributed.Group, x gotorch.Tensor) gotorch.Tensor {
	return gotorch.Apply(copyToRegion{g}, x)[0]
}

// ReduceFromRegion returns the sum of the ranks' x, whose gradient each rank gets whole: where each has a part of a sum.
func ReduceFromRegion(g *distributed.Group, x gotorch.Tensor) gotorch.Tensor {
	return gotorch.Apply(reduceFromRegion{g}, x)[0]
}

// GatherFromRegion returns the ranks' x one after the other along the last dimension, of which the backward pass gives each
// rank its part. Each rank's is of one shape.
func GatherFromRegion(g *distributed.Group, x gotorch.Tensor) gotorch.Tensor {
	return gotorch.Apply(gatherFromRegion{g}, x)[0]
}

// ScatterToRegion returns this rank's part of x along the last dimension, which the ranks' number divides. The backward pass
// gathers the gradients of all parts.
func ScatterToRegion(g *distributed.Group, x gotorch.Tensor) gotorch.Tensor {
	part("ScatterToRegion", g, x.Size(-1)) // panics
	return gotorch.Apply(scatterToRegion{g}, x)[0]
}

type (
	copyToRegion     struct{ g *distributed.Group }
	reduceFromRegion struct{ g *distributed.Group }
	gatherFromRegion struct{ g *distributed.Group }
	scatterToRegion  struct{ g *distributed.Group }
)

func (copyToRegion) Forward(_ *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{in[0].ViewAs(in[0])}
}

func (f copyToRegion) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{sum(f.g, grads[0])}
}

func (f reduceFromRegion) Forward(_ *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{sum(f.g, in[0])}
}

func (reduceFromRegion) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return grads
}

func (f gatherFromRegion) Forward(_ *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{gather(f.g, in[0])}
}

func (f gatherFromRegion) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{mine(f.g, grads[0])}
}

func (f scatterToRegion) Forward(_ *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{mine(f.g, in[0])}
}

func (f scatterToRegion) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{gather(f.g, grads[0])}
}

func sum(g *distributed.Group, x gotorch.Tensor) gotorch.Tensor {
	total := gotorch.Contiguous(x.Clone())
	g.AllReduce(total, distributed.Sum)
	return total
}

func gather(g *distributed.Group, x gotorch.Tensor) gotorch.Tensor {
	parts := make([]gotorch.Tensor, g.Size())
	for i := range parts {
		parts[i] = gotorch.Empty(x.Shape(), gotorch.TensorOptions{DType: x.DType(), Device: x.Device()})
	}
	g.AllGather(parts, gotorch.Contiguous(x))
	return gotorch.Cat(parts, gotorch.CatOptions{Dim: -1})
}

// mine is this rank's part of the last dimension.
func mine(g *distributed.Group, x gotorch.Tensor) gotorch.Tensor {
	n := x.Size(-1) / int64(g.Size())
	return x.Narrow(-1, int64(g.Rank())*n, n).Clone()
}

// part returns where this rank's part of n begins, and its length. It panics with a ValueError where the ranks' number
// does not divide n.
func part(op string, g *distributed.Group, n int64) (first, length int64) {
	if g == nil {
		panic(args.TypeError(op, "the group is nil: this process is not in it"))
	}
	size := int64(g.Size())
	if n%size != 0 {
		panic(args.ValueError(op, "%d cannot be shared out among %d ranks: it must be a multiple of that", n, size))
	}
	return int64(g.Rank()) * (n / size), n / size
}
