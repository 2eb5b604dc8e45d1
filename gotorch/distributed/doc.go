// Package distributed is torch.distributed for Go: the processes of a job, on one machine or many, exchange tensors.
// What does it is PyTorch's own (c10d, with Gloo), so ranks in Go and ranks in Python may be in one job and in one
// group.
//
//	torchrun --no-python --nproc-per-node=4 ./trainer
//
// In each process:
//
//	world, err := distributed.Init(ctx)
//	if err != nil { ... }
//	defer world.Close()
//	t := gotorch.Full([]int64{2}, world.Rank())
//	world.AllReduce(t, distributed.Sum) // 0+1+2+3 on each rank
//
// A collective is called by all ranks of a group, in the same order, with tensors of the same shape and dtype. Those
// without Async in their name return when this rank's part is done, and panic with *[gotorch.Error], as all that
// computes does; [gotorch.Try0] makes the panic an error. Those with Async return a [Work] at once; until it has ended
// nobody may read or write its tensors. Ranks in arguments and results are ranks within the group.
//
// A peer that died, and a time limit that passed, are errors on all others: see [NetworkError] and [TimeoutError]. A
// group on which a collective has failed is good for nothing more: close it.
//
// Python's names: https://docs.pytorch.org/docs/stable/distributed.html
package distributed
