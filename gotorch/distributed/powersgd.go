package distributed

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// PowerSGDOptions are the arguments of [PowerSGD] that have defaults, with PyTorch's names.
type PowerSGDOptions struct {
	// MatrixApproximationRank is how many columns the two matrices have that cross the network in place of a gradient. Default: 1.
	MatrixApproximationRank gotorch.Scalar
	// StartPowerSGDIter is how many passes average gradients as they are, before. It must be 2 or more, except with both of
	// NoErrorFeedback and NoWarmStart. Default: 1000.
	StartPowerSGDIter gotorch.Scalar
	// MinCompressionRate is by how much a gradient must become smaller to be compressed. Default: 2.
	MinCompressionRate gotorch.Scalar
	// NoErrorFeedback has what a pass has lost not be added to the next one's gradients.
	NoErrorFeedback bool
	// NoWarmStart has each pass begin with matrices at random, and not with those of the last one.
	NoWarmStart bool
	// OrthogonalizationEpsilon is added to the norms of columns, which may be 0 where a layer has no gradient.
	OrthogonalizationEpsilon float64
	// RandomSeed is the same on all ranks, and less than 2^32.
	RandomSeed uint64
	// BatchTensorsWithSameShape compresses gradients of one shape together.
	BatchTensorsWithSameShape bool
}

// PowerSGDState is what [PowerSGD] makes. It is of one model.
//
// See https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState
type PowerSGDState struct {
	group      *Group
	rank       int64
	start      int64
	rate       float64
	feedback   bool
	warm       bool
	epsilon    float64
	batch      bool
	random     *gotorch.Generator
	iteration  int64
	errors     map[int]gotorch.Tensor // by the bucket's index
	ps, qs     map[int]gotorch.Tensor
	before, to int64
}

// PowerSGD compresses gradients for slow networks: of a matrix of n rows and m columns n+m numbers cross the network, or a
// few times as many, and what is lost is added to the gradients of the next pass. It is the method of Vogels, Karimireddy and
// Jaggi (2019), as torch.distributed has it, to the same bits.
//
//	state := distributed.PowerSGD(world, distributed.PowerSGDOptions{StartPowerSGDIter: 100})
//	model.RegisterCommHook(state.Hook)
//
// All ranks need the same options. It panics with a ValueError where an option is out of its range, or the process is not
// in the group.
//
// See https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.PowerSGDState.
func PowerSGD(g *Group, opts ...PowerSGDOptions) *PowerSGDState {
	const op = "distributed.PowerSGD"
	opt := args.Option(opts)
	if err := g.enter(op); err != nil {
		panic(err)
	}
	g.inUse.RUnlock()
	s := &PowerSGDState{
		group: g, rank: args.Int(op, "MatrixApproximationRank", opt.MatrixApproximationRank, 1),
		start: args.Int(op, "StartPowerSGDIter", opt.StartPowerSGDIter, 1000),
		rate:  args.Float(op, "MinCompressionRate", opt.MinCompressionRate, 2), feedback: !opt.NoErrorFeedback,
		warm: !opt.NoWarmStart, epsilon: opt.OrthogonalizationEpsilon, batch: opt.BatchTensorsWithSameShape,
		random: gotorch.NewGenerator(gotorch.CPU),
		errors: map[int]gotorch.Tensor{}, ps: map[int]gotorch.Tensor{}, qs: map[int]gotorch.Tensor{},
	}
	switch {
	case s.rank < 1:
		panic(args.ValueError(op, "MatrixApproximationRank is %d, and must be 1 or more", s.rank))
	case s.start < 0 || (s.feedback || s.warm) && s.start < 2:
		panic(args.ValueError(op, "StartPowerSGDIter is %d, and must be 2 or more with error feedback or a warm start: the model makes its buckets anew after the first pass", s.start))
	case !(s.rate >= 0): // also for NaN
		panic(args.ValueError(op, "MinCompressionRate is %v, and must not be negative", s.rate))
	case !(s.epsilon >= 0):
		panic(args.ValueError(op, "OrthogonalizationEpsilon is %v, and must not be negative", s.epsilon))
	case opt.RandomSeed > math.MaxUint32:
		panic(args.ValueError(op, "RandomSeed is %d, and must be less than 2^32", opt.RandomSeed))
	}
	s.random.ManualSeed(opt.RandomSeed)
	return s
}

// CompressionStats returns how many elements gradients had before and after compression, since the start, and by how much that
// is less: 0 before the first.
func (s *PowerSGDState) CompressionStats() (rate float64, before, after int64) {
	if s.to > 0 {
		rate = float64(s.before) / float64(s.to)
	}
	return rate, s.before, s.to
}

func (s *PowerSGDState) passed(b *GradBucket) {
	if b.IsLast() {
		s.iteration++
	}
}

// compressing is a bucket on its way: p and q have the matrices of all gradients, one after the other.
type compressing struct {
	bucket       *GradBucket
	buffer, copy gotorch.Tensor
	whole        []gotorch.Tensor   // gradients that are averaged as they are
	matrices     []gotorch.Tensor   // of three dimensions
	stacked      [][]gotorch.Tensor // of which each of matrices is a copy; nil where it is a view
	ps, qs       []gotorch.Tensor
}

// Hook is a [CommHook]. A sparse gradient is a NotImplementedError from StartPowerSGDIter on.
//
// It exchanges what is not compressed and P while the backward pass goes on, and Q at its end. Python's ranks exchange Q
// whenever P is there, so that ranks in Go and in Python may be in one job where the model has one bucket.
//
// See https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.powerSGD_hook.
func (s *PowerSGDState) Hook(b *GradBucket) (work *Work, err error) {
	buffer := b.Buffer()
	if s.iteration < s.start {
		s.passed(b)
		return s.group.averageAsync(buffer), nil
	}
	if buffer.Layout() != gotorch.Strided {
		return nil, args.Errorf("PowerSGD", gotorch.NotImplementedError, "a sparse gradient cannot be compressed")
	}
	// What is kept outlives the scopes around Backward, and the rest those around this call.
	gotorch.Unscoped(func() { work = s.begin(&compressing{bucket: b, buffer: buffer}) })
	return work, nil
}

func (s *PowerSGDState) begin(c *compressing) *Work {
	index, dtype := c.bucket.Index(), gotorch.TensorOptions{DType: c.buffer.DType(), Device: c.buffer.Device()}
	if s.feedback {
		if lost, has := s.errors[index]; has {
			c.buffer.Add_(lost)
		}
		c.copy = c.buffer.Clone()
	}
	sizeP, sizeQ := s.sort(c)
	flat := []gotorch.Tensor{gotorch.Empty([]int64{0}, dtype)}
	for _, t := range c.whole {
		flat = append(flat, t.View([]int64{-1}))
	}
	whole := gotorch.Cat(flat)
	_, warm := s.ps[index]
	if !warm {
		s.ps[index], s.qs[index] = gotorch.Empty([]int64{sizeP}, dtype), gotorch.Empty([]int64{sizeQ}, dtype)
	}
	p, q := s.ps[index], s.qs[index]
	if !s.warm {
		delete(s.ps, index)
		delete(s.qs, index)
	}
	s.share(c, p, q)
	if !warm {
		random := gotorch.NewGenerator(gotorch.CPU).ManualSeed(s.seed())
		for _, q := range c.qs {
			q.Copy_(gotorch.RandnGenerator(q.Shape(), random, gotorch.TensorOptions{DType: dtype.DType}))
		}
	}
	for i, q := range c.qs {
		s.orthogonalize(q)
		gotorch.BMMOut(c.matrices[i], q, c.ps[i])
	}
	averaged := s.group.AllReduceAsync(whole, Sum)
	summed := s.group.AllReduceAsync(p, Sum)
	return averaged.Then(func() error {
		gotorch.Unscoped(func() {
			defer whole.Close()
			whole.DivScalar_(s.group.Size())
			at := int64(0)
			for _, t := range c.whole {
				t.Copy_(whole.Narrow(0, at, t.Numel()).ViewAs(t))
				at += t.Numel()
			}
			summed.must()
			s.finish(c, q)
		})
		return nil
	})
}

// sort divides the gradients into those that are compressed and the others, and returns how many elements all P and Q have.
func (s *PowerSGDState) sort(c *compressing) (sizeP, sizeQ int64) {
	type shape [2]int64
	var order []shape
	of := map[shape][]gotorch.Tensor{}
	for _, t := range c.bucket.Gradients() {
		rows := int64(1)
		if t.Dim() > 0 {
			rows = t.Size(0)
		}
		size := t.Numel()
		s.before += size
		if rows == 0 || size == 0 {
			c.whole = append(c.whole, t)
			continue
		}
		columns := size / rows
		rank := min(rows, columns, s.rank)
		small := (rows + columns) * rank
		if float64(small)*s.rate >= float64(size) {
			s.to += size
			c.whole = append(c.whole, t)
			continue
		}
		s.to += small
		sizeP, sizeQ = sizeP+rows*rank, sizeQ+columns*rank
		key := shape{rows, columns}
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], t.View([]int64{rows, columns}))
	}
	for _, key := range order {
		if same := of[key]; s.batch && len(same) > 1 {
			c.matrices = append(c.matrices, gotorch.Stack(same))
			c.stacked = append(c.stacked, same)
			continue
		}
		for _, t := range of[key] {
			c.matrices = append(c.matrices, t.Unsqueeze(0))
			c.stacked = append(c.stacked, nil)
		}
	}
	return sizeP, sizeQ
}

// share gives each matrix its part of p and q.
func (s *PowerSGDState) share(c *compressing, p, q gotorch.Tensor) {
	var atP, atQ int64
	for _, m := range c.matrices {
		n, rows, columns := m.Size(0), m.Size(1), m.Size(2)
		rank := min(rows, columns, s.rank)
		c.ps = append(c.ps, p.Narrow(0, atP, n*rows*rank).View([]int64{n, rows, rank}))
		c.qs = append(c.qs, q.Narrow(0, atQ, n*columns*rank).View([]int64{n, columns, rank}))
		atP, atQ = atP+n*rows*rank, atQ+n*columns*rank
	}
}

// finish goes on when the sums of all ranks' P are there.
func (s *PowerSGDState) finish(c *compressing, q gotorch.Tensor) {
	for i, p := range c.ps {
		s.orthogonalize(p)
		gotorch.BMMOut(c.matrices[i].Transpose(1, 2), p, c.qs[i])
	}
	s.group.AllReduce(q, Sum)
	q.DivScalar_(s.group.Size())
	for i, m := range c.matrices {
		gotorch.BMMOut(c.ps[i], c.qs[i].Transpose(1, 2), m)
		for k, t := range c.stacked[i] {
			t.Copy_(m.Select(0, int64(k)))
		}
	}
	index := c.bucket.Index()
	if s.feedback {
		s.errors[index] = c.copy.Sub_(c.buffer)
	}
	s.passed(c.bucket)
}

// seed returns what numpy.random.RandomState.randint(1_000_000_000) does: both are a Mersenne Twister that is seeded in one way, of
// whose numbers the last 30 bits are taken, again where that is too much.
func (s *PowerSGDState) seed() uint64 {
	drawn := gotorch.Empty([]int64{1}, gotorch.TensorOptions{DType: gotorch.Int32})
	defer drawn.Close()
	for {
		drawn.Random_(gotorch.RandomOptions{Generator: s.random}) // 31 bits
		if n := gotorch.Item[int32](drawn) & (1<<30 - 1); n < 1_000_000_000 {
			return uint64(n)
		}
	}
}

// orthogonalize makes the columns of each of ms orthogonal, and of length 1.
func (s *PowerSGDState) orthogonalize(ms gotorch.Tensor) {
	rank := ms.Size(2)
	if rank > 2 && ms.DType() != gotorch.Float16 && ms.DType() != gotorch.BFloat16 {
		r := gotorch.Empty([]int64{ms.Size(0), rank, rank}, gotorch.TensorOptions{DType: ms.DType(), Device: ms.Device()})
		gotorch.LinalgQROut(ms, ms, r)
		return
	}
	for i := range rank {
		column := ms.Narrow(2, i, 1)
		length := gotorch.LinalgVectorNorm(column, gotorch.LinalgVectorNormOptions{Dim: []int64{1}, KeepDim: true})
		if s.epsilon != 0 {
			length.AddScalar_(s.epsilon)
		}
		column.Div_(length)
		if i+1 < rank {
			rest := ms.Narrow(2, i+1, rank-i-1)
			along := column.Mul(rest).SumDim([]int64{1}, gotorch.SumDimOptions{KeepDim: true})
			rest.Sub_(along.Mul(column))
		}
	}
}
