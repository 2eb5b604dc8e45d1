package distributed

import (
	"context"
	"runtime"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// A CommHook takes the place of [DataParallel]'s all-reduce: given the gradients of a bucket, which are this rank's own, it
// makes them those of all ranks, as their mean. What it returns says where they are:
//
//   - no Work and no error: the bucket's buffer has the result;
//   - a [Work]: the buffer has it when the Work has ended. It is waited for when all buckets have begun, at the end of the
//     backward pass, one bucket after the other, and so is what [Work.Then] has added;
//   - an error, which ends the backward pass: Backward panics with an *gotorch.Error that wraps it. So do panics.
//
// It runs within Backward, on its goroutine's OS thread and without grad mode, for one bucket at a time and in the same order
// on all ranks. What it keeps for later passes it makes within [gotorch.Unscoped], as there may be scopes around Backward. It
// must not call the model, or close it.
//
//	model.RegisterCommHook(func(b *distributed.GradBucket) (*distributed.Work, error) {
//		small := b.Buffer().To(gotorch.BFloat16).DivScalar_(world.Size())
//		return world.AllReduceAsync(small, distributed.Sum).Then(func() error {
//			b.Buffer().Copy_(small)
//			return nil
//		}), nil
//	})
//
// Ranks of Python that have the same hook may be in the job, as far as both call the same collectives in the same order.
type CommHook func(bucket *GradBucket) (*Work, error)

// GradBucket is gradients that are reduced together.
//
// Python's: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.GradBucket
type GradBucket struct {
	handle ctorch.DistBucket
	index  int
	last   bool
}

func newGradBucket(handle ctorch.DistBucket) *GradBucket {
	b := &GradBucket{handle: handle}
	b.index, b.last = c10dBucketIndex(handle)
	runtime.AddCleanup(b, func(h ctorch.DistBucket) { ctorch.DistBucketFree(h) }, handle)
	return b
}

// Index returns which of the model's buckets it is, from 0. They are reduced in this order. After the first pass the model makes
// its buckets anew, in the order in which gradients have come.
func (b *GradBucket) Index() int { return b.index }

// IsLast reports whether it is the last of the pass.
func (b *GradBucket) IsLast() bool { return b.last }

// Buffer returns the gradients as one tensor of one dimension; a sparse gradient, which has a bucket to itself, as it is.
func (b *GradBucket) Buffer() gotorch.Tensor {
	defer runtime.KeepAlive(b)
	return c10dBucketBuffer(b.handle)
}

// SetBuffer has t take the buffer's place: Backward's result is what is there when the bucket's Work has ended. It must then have
// as many elements; another dtype is converted.
func (b *GradBucket) SetBuffer(t gotorch.Tensor) {
	defer runtime.KeepAlive(b)
	c10dBucketSetBuffer(b.handle, t)
}

// Gradients returns views of the buffer, of the shapes of [GradBucket.Parameters]; none of a sparse one.
func (b *GradBucket) Gradients() []gotorch.Tensor {
	defer runtime.KeepAlive(b)
	return c10dBucketTensors(b.handle, false)
}

// Parameters returns whose gradients they are, in the order of [GradBucket.Gradients].
func (b *GradBucket) Parameters() []gotorch.Tensor {
	defer runtime.KeepAlive(b)
	return c10dBucketTensors(b.handle, true)
}

// RegisterCommHook has hook reduce the gradients, on all ranks, from the next pass on. It panics with a TypeError for nil, and
// with a RuntimeError where there is a hook already or [DataParallelOptions.Compression].
//
// A model whose hook has failed is good for nothing more, because ranks have begun different collectives: close it, and make
// another one of the module, on all ranks. Ranks that wait for one whose hook has failed get an error when the group's time
// limit has passed. The model is not freed by itself while its hook refers to it: call Close.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.register_comm_hook.
func (d *DistributedDataParallel) RegisterCommHook(hook CommHook) {
	const op = "DataParallel.RegisterCommHook"
	if hook == nil {
		panic(args.TypeError(op, "the hook is nil"))
	}
	if d.reducer == nil {
		panic(args.ValueError(op, "the module was used after Close"))
	}
	inHook := d.inHook
	c10dRegisterCommHook(d.reducer, func(handle ctorch.DistBucket) func() {
		inHook.Add(1)
		defer inHook.Add(-1)
		work, err := hook(newGradBucket(handle))
		if err != nil {
			panic(err)
		}
		if work == nil {
			return nil
		}
		return func() {
			inHook.Add(1)
			defer inHook.Add(-1)
			if err := work.Wait(context.Background()); err != nil {
				panic(err)
			}
		}
	})
}

// AllReduceHook averages gradients, as [DataParallel] does without a hook: to build on.
//
// Python's: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook
func AllReduceHook(g *Group) CommHook {
	return func(b *GradBucket) (*Work, error) { return g.averageAsync(b.Buffer()), nil }
}

func (g *Group) averageAsync(t gotorch.Tensor) *Work {
	return g.AllReduceAsync(t.DivScalar_(g.Size()), Sum)
}

// FP16CompressWrapper has hook reduce gradients that are rounded to float16. It is for a hook like [PowerSGD.Hook]; gradients
// that are rounded, and nothing else, are [FP16Compress].
//
// Python's: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_wrapper
func FP16CompressWrapper(hook CommHook) CommHook { return compressed(hook, gotorch.Float16) }

// BF16CompressWrapper is [FP16CompressWrapper] with bfloat16.
//
// Python's: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_wrapper
func BF16CompressWrapper(hook CommHook) CommHook { return compressed(hook, gotorch.BFloat16) }

func compressed(hook CommHook, dtype gotorch.DType) CommHook {
	return func(b *GradBucket) (*Work, error) {
		b.SetBuffer(b.Buffer().To(dtype))
		return hook(b)
	}
}
