package distributed

import (
	"fmt"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// ReduceOp is how the tensors of all ranks become one.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.ReduceOp
type ReduceOp int

// Avg is NCCL's alone. Band, Bor and Bxor are for integers and bool.
const (
	Sum ReduceOp = iota
	Avg
	Product
	Min
	Max
	Band
	Bor
	Bxor
)

var reduceNames = [...]string{"Sum", "Avg", "Product", "Min", "Max", "Band", "Bor", "Bxor"}

func (r ReduceOp) String() string {
	if r < 0 || int(r) >= len(reduceNames) {
		return "ReduceOp(?)"
	}
	return reduceNames[r]
}

func list(ts ...gotorch.Tensor) []gotorch.Tensor { return ts }

// Broadcast copies src's t into every other rank's.
func (g *Group) Broadcast(t gotorch.Tensor, src int) { g.BroadcastAsync(t, src).must() }

// BroadcastAsync is [Group.Broadcast] that does not wait.
func (g *Group) BroadcastAsync(t gotorch.Tensor, src int) *Work {
	const op = "Broadcast"
	g.checkRank(op, "src", src)
	real, free := reals(t)
	defer free()
	return g.begin(ctorch.Broadcast, call{Op: op, Inputs: real, Root: src})
}

// AllReduce makes of all ranks' t one tensor, in each of them. Complex tensors are summed, and nothing else, and so are sparse ones
// (COO), of float32, float64 and integers: where any rank has an element, all have it then.
func (g *Group) AllReduce(t gotorch.Tensor, how ReduceOp) { g.AllReduceAsync(t, how).must() }

// AllReduceAsync is [Group.AllReduce] that does not wait.
func (g *Group) AllReduceAsync(t gotorch.Tensor, how ReduceOp) *Work {
	const op = "AllReduce"
	checkReduce(op, how, t)
	real, free := reals(t)
	defer free()
	return g.begin(ctorch.AllReduce, call{Op: op, Inputs: real, Reduce: int(how)})
}

// AllReduceCoalesced is [Group.AllReduce] of several tensors in one collective.
func (g *Group) AllReduceCoalesced(ts []gotorch.Tensor, how ReduceOp) {
	g.AllReduceCoalescedAsync(ts, how).must()
}

// AllReduceCoalescedAsync is [Group.AllReduceCoalesced] that does not wait.
func (g *Group) AllReduceCoalescedAsync(ts []gotorch.Tensor, how ReduceOp) *Work {
	const op = "AllReduceCoalesced"
	some(op, "ts", ts)
	checkReduce(op, how, ts...)
	real, free := reals(ts...)
	defer free()
	return g.begin(ctorch.AllReduceCoalesced, call{Op: op, Inputs: real, Reduce: int(how)})
}

// Reduce makes of all ranks' t one tensor, in dst's. What is in the others' then is not said.
func (g *Group) Reduce(t gotorch.Tensor, dst int, how ReduceOp) { g.ReduceAsync(t, dst, how).must() }

// ReduceAsync is [Group.Reduce] that does not wait.
func (g *Group) ReduceAsync(t gotorch.Tensor, dst int, how ReduceOp) *Work {
	const op = "Reduce"
	g.checkRank(op, "dst", dst)
	return g.begin(ctorch.Reduce, call{Op: op, Inputs: list(t), Root: dst, Reduce: int(how)})
}

// AllGather copies each rank's t into that rank's place of outputs, which are as many as there are ranks, of t's dtype
// and number of elements.
func (g *Group) AllGather(outputs []gotorch.Tensor, t gotorch.Tensor) {
	g.AllGatherAsync(outputs, t).must()
}

// AllGatherAsync is [Group.AllGather] that does not wait.
func (g *Group) AllGatherAsync(outputs []gotorch.Tensor, t gotorch.Tensor) *Work {
	const op = "AllGather"
	g.one(op, "outputs", outputs)
	sameDType(op, t, outputs)
	in, free := reals(t)
	defer free()
	out, freeOut := reals(outputs...)
	defer freeOut()
	return g.begin(ctorch.AllGather, call{Op: op, Outputs: out, Inputs: in})
}

// AllGatherIntoTensor copies all ranks' input into output, one after the other: its first dimension is as many times
// input's as there are ranks, or it has one more in front, of as many.
func (g *Group) AllGatherIntoTensor(output, input gotorch.Tensor) {
	g.AllGatherIntoTensorAsync(output, input).must()
}

// AllGatherIntoTensorAsync is [Group.AllGatherIntoTensor] that does not wait.
func (g *Group) AllGatherIntoTensorAsync(output, input gotorch.Tensor) *Work {
	in, free := reals(input)
	defer free()
	out, freeOut := reals(output)
	defer freeOut()
	return g.begin(ctorch.AllGatherSingle, call{Op: "AllGatherIntoTensor", Outputs: out, Inputs: in})
}

// allGatherCoalesced is [Group.AllGatherIntoTensorAsync] of several tensors in one collective, which Gloo has for the computer's
// memory.
func (g *Group) allGatherCoalesced(outputs, inputs []gotorch.Tensor) *Work {
	return g.begin(ctorch.AllGatherSingleCoalesced, call{Op: "AllGatherIntoTensor", Outputs: outputs, Inputs: inputs})
}

// Gather copies each rank's t into that rank's place of dst's outputs; the others give none.
func (g *Group) Gather(t gotorch.Tensor, outputs []gotorch.Tensor, dst int) {
	g.GatherAsync(t, outputs, dst).must()
}

// GatherAsync is [Group.Gather] that does not wait.
func (g *Group) GatherAsync(t gotorch.Tensor, outputs []gotorch.Tensor, dst int) *Work {
	const op = "Gather"
	g.checkRank(op, "dst", dst)
	g.oneAt(op, "outputs", outputs, dst)
	sameDType(op, t, outputs)
	return g.begin(ctorch.Gather, call{Op: op, Outputs: outputs, Inputs: list(t), Root: dst})
}

// Scatter copies of src's inputs each rank's place into that rank's t; the others give none.
func (g *Group) Scatter(t gotorch.Tensor, inputs []gotorch.Tensor, src int) {
	g.ScatterAsync(t, inputs, src).must()
}

// ScatterAsync is [Group.Scatter] that does not wait.
func (g *Group) ScatterAsync(t gotorch.Tensor, inputs []gotorch.Tensor, src int) *Work {
	const op = "Scatter"
	g.checkRank(op, "src", src)
	g.oneAt(op, "inputs", inputs, src)
	sameDType(op, t, inputs)
	out, free := reals(t)
	defer free()
	in, freeIn := reals(inputs...)
	defer freeIn()
	return g.begin(ctorch.Scatter, call{Op: op, Outputs: out, Inputs: in, Root: src})
}

// ReduceScatter makes of all ranks' inputs[i] one tensor, in rank i's output. inputs are as many as there are ranks.
func (g *Group) ReduceScatter(output gotorch.Tensor, inputs []gotorch.Tensor, how ReduceOp) {
	g.ReduceScatterAsync(output, inputs, how).must()
}

// ReduceScatterAsync is [Group.ReduceScatter] that does not wait.
func (g *Group) ReduceScatterAsync(output gotorch.Tensor, inputs []gotorch.Tensor, how ReduceOp) *Work {
	const op = "ReduceScatter"
	g.one(op, "inputs", inputs)
	sameDType(op, output, inputs)
	return g.begin(ctorch.ReduceScatter, call{Op: op, Outputs: list(output), Inputs: inputs, Reduce: int(how)})
}

// ReduceScatterTensor is [Group.ReduceScatter] of the parts of one tensor, whose first dimension is as many times
// output's as there are ranks.
func (g *Group) ReduceScatterTensor(output, input gotorch.Tensor, how ReduceOp) {
	g.ReduceScatterTensorAsync(output, input, how).must()
}

// ReduceScatterTensorAsync is [Group.ReduceScatterTensor] that does not wait.
func (g *Group) ReduceScatterTensorAsync(output, input gotorch.Tensor, how ReduceOp) *Work {
	return g.begin(ctorch.ReduceScatterSingle, call{
		Op: "ReduceScatterTensor", Outputs: list(output), Inputs: list(input), Reduce: int(how),
	})
}

// AllToAll copies rank i's inputs[j] into rank j's outputs[i]. Both are as many as there are ranks.
func (g *Group) AllToAll(outputs, inputs []gotorch.Tensor) { g.AllToAllAsync(outputs, inputs).must() }

// AllToAllAsync is [Group.AllToAll] that does not wait.
func (g *Group) AllToAllAsync(outputs, inputs []gotorch.Tensor) *Work {
	const op = "AllToAll"
	g.one(op, "outputs", outputs)
	g.one(op, "inputs", inputs)
	if len(inputs) > 0 {
		sameDType(op, inputs[0], inputs)
		sameDType(op, inputs[0], outputs)
	}
	out, free := reals(outputs...)
	defer free()
	in, freeIn := reals(inputs...)
	defer freeIn()
	return g.begin(ctorch.AllToAll, call{Op: op, Outputs: out, Inputs: in})
}

// Splits are how many rows of the first dimension go to, and come from, each rank in [Group.AllToAllSingle]. Nil is: as
// many for all.
type Splits struct{ Output, Input []int64 }

// AllToAllSingle is [Group.AllToAll] of the parts of one tensor.
func (g *Group) AllToAllSingle(output, input gotorch.Tensor, splits ...Splits) {
	g.AllToAllSingleAsync(output, input, splits...).must()
}

// AllToAllSingleAsync is [Group.AllToAllSingle] that does not wait.
func (g *Group) AllToAllSingleAsync(output, input gotorch.Tensor, splits ...Splits) *Work {
	const op = "AllToAllSingle"
	s := args.Option(splits)
	sameDType(op, output, list(input))
	in, free := reals(input)
	defer free()
	out, freeOut := reals(output)
	defer freeOut()
	return g.begin(ctorch.AllToAllSingle, call{
		Op: op, Outputs: out, Inputs: in, OutputCounts: s.Output, InputCounts: s.Input,
	})
}

// AnyRank as the sender in [Group.Recv] is whoever sends.
const AnyRank = -1

// P2POptions are the arguments of sends and receives that have defaults.
type P2POptions struct {
	// Tag is a number that the receiver asks for. Default: 0.
	Tag int
}

// Send sends t to dst, which receives it with [Group.Recv].
func (g *Group) Send(t gotorch.Tensor, dst int, opts ...P2POptions) {
	g.send("Send", t, dst, opts).must()
}

// SendAsync is [Group.Send] that does not wait.
func (g *Group) SendAsync(t gotorch.Tensor, dst int, opts ...P2POptions) *Work {
	return g.send("SendAsync", t, dst, opts)
}

func (g *Group) send(op string, t gotorch.Tensor, dst int, opts []P2POptions) *Work {
	g.checkRank(op, "dst", dst)
	g.checkOther(op, dst)
	return g.begin(ctorch.Send, call{Op: op, Inputs: list(t), Root: dst, Tag: args.Option(opts).Tag})
}

// Recv receives into t what src has sent, or whoever sends first where src is [AnyRank], and returns who it was.
func (g *Group) Recv(t gotorch.Tensor, src int, opts ...P2POptions) int {
	return g.recv("Recv", t, src, opts).must().Source()
}

// RecvAsync is [Group.Recv] that does not wait. [Work.Source] says who it was.
func (g *Group) RecvAsync(t gotorch.Tensor, src int, opts ...P2POptions) *Work {
	return g.recv("RecvAsync", t, src, opts)
}

func (g *Group) recv(op string, t gotorch.Tensor, src int, opts []P2POptions) *Work {
	if src != AnyRank {
		g.checkRank(op, "src", src)
		g.checkOther(op, src)
	}
	w := g.begin(ctorch.Recv, call{Op: op, Inputs: list(t), Root: src, Tag: args.Option(opts).Tag})
	w.from, w.receives = src, true
	return w
}

// P2POp is a send or receive of [Group.BatchSendRecv].
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.P2POp
type P2POp struct {
	Send gotorch.Tensor // is sent to Peer, or
	Recv gotorch.Tensor // receives what Peer sends
	Peer int
	Tag  int
}

// BatchSendRecv begins sends and receives, none of which waits for another, and returns their works, in order. Each op
// must have one tensor: it panics with a ValueError, and begins nothing, where one has none or two, or no peer.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv
func (g *Group) BatchSendRecv(ops []P2POp) []*Work {
	const op = "BatchSendRecv"
	for i, o := range ops {
		if (o.Send == gotorch.Tensor{}) == (o.Recv == gotorch.Tensor{}) {
			panic(args.ValueError(op, "op %d must have either Send or Recv", i))
		}
		g.checkRank(op, fmt.Sprintf("Peer of op %d", i), o.Peer)
		g.checkOther(op, o.Peer)
	}
	works := make([]*Work, len(ops))
	for i, o := range ops {
		if o.Send != (gotorch.Tensor{}) {
			works[i] = g.send(op, o.Send, o.Peer, []P2POptions{{Tag: o.Tag}})
		} else {
			works[i] = g.recv(op, o.Recv, o.Peer, []P2POptions{{Tag: o.Tag}})
		}
	}
	return works
}

// Barrier waits until all ranks have called it.
func (g *Group) Barrier() { g.BarrierAsync().must() }

// BarrierAsync is [Group.Barrier] that does not wait.
func (g *Group) BarrierAsync() *Work { return g.begin(ctorch.Barrier, call{Op: "Barrier"}) }

// MonitoredBarrierOptions are the arguments of [Group.MonitoredBarrier] that have defaults.
type MonitoredBarrierOptions struct {
	// Timeout: default that of the group.
	Timeout time.Duration
	// WaitAllRanks has rank 0 name all ranks that did not come, and not the first only.
	WaitAllRanks bool
}

// MonitoredBarrier is [Group.Barrier] that says who did not come: rank 0's error names the ranks. Under [DebugDetail] it
// must be the last that the group does: c10d counts it on rank 0 alone, and takes what comes after it for another.
func (g *Group) MonitoredBarrier(opts ...MonitoredBarrierOptions) {
	const op = "MonitoredBarrier"
	opt := args.Option(opts)
	if err := g.enter(op); err != nil {
		panic(err)
	}
	defer g.inUse.RUnlock()
	ms, err := milliseconds(op, opt.Timeout, time.Duration(g.timeoutMS.Load())*time.Millisecond)
	if err != nil {
		panic(err)
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if err := c10dMonitoredBarrier(g.handle, ms, opt.WaitAllRanks); err != nil {
		panic(err)
	}
}

// Checks -----------------------------------------------------------------------------------------

// reals returns complex tensors as real ones, which backends know; free gives back what was made.
func reals(ts ...gotorch.Tensor) (real []gotorch.Tensor, free func()) {
	free = func() {}
	for i, t := range ts {
		if t == (gotorch.Tensor{}) || !t.DType().IsComplex() {
			continue
		}
		if real == nil {
			real = append(real, ts...)
			free = func() {
				for j, r := range real {
					if r != ts[j] {
						r.Close()
					}
				}
			}
		}
		real[i] = gotorch.ViewAsReal(t)
	}
	if real == nil {
		return ts, free
	}
	return real, free
}

func checkReduce(op string, how ReduceOp, ts ...gotorch.Tensor) {
	for _, t := range ts {
		if t != (gotorch.Tensor{}) && how != Sum && how != Avg && t.DType().IsComplex() {
			panic(args.ValueError(op, "complex tensors cannot be reduced by %v, but by Sum", how))
		}
		if t != (gotorch.Tensor{}) && t.DType().IsComplex() && t.Layout() != gotorch.Strided {
			// Python reduces a copy of it, and leaves the tensor as it is.
			panic(args.Errorf(op, gotorch.NotImplementedError, "sparse tensors of complex numbers cannot be reduced: reduce two, or dense ones"))
		}
	}
}

func some(op, name string, ts []gotorch.Tensor) {
	if len(ts) == 0 {
		panic(args.ValueError(op, "%s are none", name))
	}
}

// one wants one tensor for each rank.
func (g *Group) one(op, name string, ts []gotorch.Tensor) {
	if g != nil && len(ts) != len(g.ranks) {
		panic(args.ValueError(op, "%s are %d, and must be as many as the group has ranks: %d", name, len(ts), len(g.ranks)))
	}
}

// oneAt wants one for each rank at root, and none elsewhere.
func (g *Group) oneAt(op, name string, ts []gotorch.Tensor, root int) {
	if g != nil && g.rank == root {
		g.one(op, name, ts)
	} else if len(ts) > 0 {
		panic(args.ValueError(op, "%s are given at rank %d only", name, root))
	}
}

func (g *Group) checkOther(op string, rank int) {
	if g != nil && rank == g.rank {
		panic(args.ValueError(op, "rank %d is this process", rank))
	}
}

func sameDType(op string, t gotorch.Tensor, others []gotorch.Tensor) {
	for _, o := range others {
		if t != (gotorch.Tensor{}) && o != (gotorch.Tensor{}) && o.DType() != t.DType() {
			panic(args.ValueError(op, "the tensors are of %v and %v, and must be of one dtype", t.DType(), o.DType()))
		}
	}
}
