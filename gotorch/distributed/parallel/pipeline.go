package parallel

import (
	"context"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// Schedule is the order in which a rank of a pipeline goes forward and backward through the pieces of a batch. The numbers
// that come out are the same.
type Schedule int

// The schedules.
//
// See https://docs.pytorch.org/docs/stable/distributed.pipelining.html
const (
	// OneFOneB goes backward through a piece as soon as it can, so that a rank keeps the results of as many pieces as
	// there are ranks after it: Schedule1F1B in Python.
	OneFOneB Schedule = iota
	// GPipe goes forward through all pieces, and then backward: ScheduleGPipe in Python.
	GPipe
)

// PipelineOptions are the arguments of [Pipeline] that have defaults.
type PipelineOptions struct {
	// Microbatches are the pieces of a batch. Default: as many as there are ranks.
	Microbatches gotorch.Scalar
	// Schedule: default [OneFOneB].
	Schedule Schedule
}

// PipelineStage is what [Pipeline] makes: the part of a model that this rank computes.
//
// See https://docs.pytorch.org/docs/stable/distributed.pipelining.html#torch.distributed.pipelining.stage.PipelineStage
type PipelineStage struct {
	group    *distributed.Group
	stage    nn.Layer
	loss     nn.Loss
	pieces   int
	schedule Schedule
	sent     []*distributed.Work
}

// Pipeline has each rank of a group compute a part of a model: stage is rank 0's first layers, the last rank's last ones. A
// batch goes through in pieces, so that the ranks work at the same time. The last rank computes the loss, the mean over a
// piece's samples; the others' loss may be nil.
//
//	pipe := parallel.Pipeline(g, stage, nn.CrossEntropyLoss())
//	opt := optim.SGD(stage.Parameters(), ...)
//	opt.ZeroGrad()
//	losses := pipe.Step(x, y) // x counts on rank 0, y on the last
//	opt.Step()
//
// The gradients are those of the mean of the pieces' losses, as if one process had added them up piece by piece. It panics with
// a TypeError where the stage, the group or the last rank's loss is nil, and with a ValueError for a number of pieces that is
// not positive.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.pipelining.html
func Pipeline(g *distributed.Group, stage nn.Layer, loss nn.Loss, opts ...PipelineOptions) *PipelineStage {
	const op = "parallel.Pipeline"
	o := args.Option(opts)
	if g == nil || stage == nil {
		panic(args.TypeError(op, "the group or the stage is nil"))
	}
	p := &PipelineStage{group: g, stage: stage, loss: loss, schedule: o.Schedule,
		pieces: int(args.Int(op, "Microbatches", o.Microbatches, int64(g.Size())))}
	switch {
	case p.last() && loss == nil:
		panic(args.TypeError(op, "the last rank has no loss"))
	case p.pieces < 1:
		panic(args.ValueError(op, "Microbatches is %d, and must be positive", p.pieces))
	case o.Schedule != OneFOneB && o.Schedule != GPipe:
		panic(args.ValueError(op, "there is no schedule %d, but OneFOneB and GPipe", int(o.Schedule)))
	}
	return p
}

func (p *PipelineStage) first() bool { return p.group.Rank() == 0 }
func (p *PipelineStage) last() bool  { return p.group.Rank() == p.group.Size()-1 }

// piece is what a rank keeps of a piece between forward and backward.
type piece struct{ input, output gotorch.Tensor }

// Step goes forward and backward through a batch, whose gradients are added to those of the stage's parameters. x, of whose
// first dimension pieces are cut, is rank 0's, and targets are the last rank's; the others' are not looked at. All ranks must
// call it. It returns the losses of the pieces on the last rank, and none on the others.
//
// It panics with a ValueError if there are more pieces than samples, and with the error of the network or the stage. A group of
// which a rank has failed within a step is good for nothing more.
func (p *PipelineStage) Step(x, targets gotorch.Tensor) []float64 {
	const op = "PipelineStage.Step"
	var inputs, wanted []gotorch.Tensor
	cut := func(name string, t gotorch.Tensor) []gotorch.Tensor {
		if !t.Defined() || t.Dim() == 0 || t.Size(0) < int64(p.pieces) {
			panic(args.ValueError(op, "%s must have as many samples as there are pieces, %d, or more", name, p.pieces))
		}
		return t.TensorSplit(int64(p.pieces))
	}
	if p.first() {
		inputs = cut("x", x)
	}
	if p.last() {
		wanted = cut("targets", targets)
	}
	kept := make([]piece, p.pieces)
	var losses []gotorch.Tensor
	forward := func(i int) {
		var k piece
		if p.first() {
			k.input = inputs[i]
		} else {
			k.input = p.receive(p.group.Rank() - 1).RequiresGrad_()
		}
		k.output = nn.Call(p.stage, k.input)
		if p.last() {
			loss := p.loss.Forward(k.output, wanted[i])
			losses = append(losses, loss.Detach())
			k.output = loss.DivScalar(p.pieces)
		} else {
			p.send(k.output.Detach(), p.group.Rank()+1)
		}
		kept[i] = k
	}
	backward := func(i int) {
		k := kept[i]
		kept[i] = piece{}
		if p.last() {
			k.output.Backward()
		} else {
			k.output.Backward(gotorch.BackwardOptions{Gradient: p.receive(p.group.Rank() + 1)})
		}
		if !p.first() {
			p.send(k.input.Grad(), p.group.Rank()-1)
		}
	}
	ahead := p.pieces // how many pieces are forward before the first goes backward
	if p.schedule == OneFOneB {
		ahead = min(p.pieces, p.group.Size()-p.group.Rank())
	}
	for i := range p.pieces + ahead - 1 {
		if i < p.pieces {
			forward(i)
		}
		if back := i - ahead + 1; back >= 0 {
			backward(back)
		}
	}
	for _, w := range p.sent {
		if err := w.Wait(context.Background()); err != nil {
			panic(err)
		}
	}
	p.sent = nil
	values := make([]float64, len(losses))
	for i, loss := range losses {
		values[i] = gotorch.Item[float64](loss)
	}
	return values
}

// What the ranks of a pipeline send each other: a head that tells dtype and shape, and the elements.

const maxDims = 16

// Of each neighbour there is one stream in each direction, in which tensors keep their order.
func (p *PipelineStage) send(t gotorch.Tensor, to int) {
	if t.Dim() > maxDims {
		panic(args.ValueError("PipelineStage.Step", "a tensor of %d dimensions goes to the next rank, where %d are the most", t.Dim(), maxDims))
	}
	head := make([]int64, 2+maxDims)
	head[0], head[1] = int64(t.DType()), t.Dim()
	copy(head[2:], t.Shape())
	p.sent = append(p.sent, p.group.SendAsync(gotorch.FromSlice(head), to))
	if t.Numel() > 0 {
		p.sent = append(p.sent, p.group.SendAsync(gotorch.Contiguous(t), to))
	}
}

func (p *PipelineStage) receive(from int) gotorch.Tensor {
	t := gotorch.FromSlice(make([]int64, 2+maxDims))
	p.group.Recv(t, from)
	head := gotorch.ToSlice[int64](t)
	result := gotorch.Empty(head[2:2+head[1]], gotorch.TensorOptions{DType: gotorch.DType(head[0])})
	if result.Numel() > 0 {
		p.group.Recv(result, from)
	}
	return result
}
