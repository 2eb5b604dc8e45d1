// Command distributed is the ranks of a job for tests/test_distributed.py: it runs the program of collectives that
// ranks.py runs in Python. Its arguments are the folder of the program, where to meet, the world's size and its rank; under
// torchrun the folder alone.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/distributed/checkpoint"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
)

type program struct {
	Groups [][]int
	Steps  []step
}

type step struct {
	ID      string
	Op      string
	Group   int // -1: all
	Reduce  string
	Root    int
	Tag     int
	Async   bool
	Inputs  int // how many tensors
	Outputs int
	Train   options
	Shape   []int
	Splits  map[string][2][]int64 // by rank in the world: of the output, of the input
}

type options struct {
	BucketCapMB                                              float64
	FindUnusedParameters, GradientAsBucketView, StaticGraph  bool
	NoBroadcastBuffers, Heads, Alternate, ByRank, Accumulate bool
	Compression                                              string
	Frozen, Half                                             bool // of a step "shard"
	Clip                                                     float64
	Norm                                                     string // of Clip, a number or "inf"
	Save, Load                                               string // checkpoints of it
	Model                                                    string // of a step "long"
	Shard                                                    bool
	Hook                                                     string // what reduces gradients: see hook
	PowerSGD                                                 struct {
		Rank, Start                         int64
		Rate, Epsilon                       float64
		NoErrorFeedback, NoWarmStart, Batch bool
		Seed                                uint64
	}
	Local struct { // of Hook "local": pairs of ranks average gradients from Start on, and all ranks parameters each Period
		Start, Period int64
		Alone         bool
		Again         bool // another optimiser goes on with the state of the first after half of the steps
	}
	Batches       []int // how many batches each rank has, in a Join; all go on together after it
	Throw, Remain bool  // ThrowOnEarlyTermination, NoDivideByInitialWorldSize
	Zero          bool  // the optimiser's state is shared out, and joins
	Sparse        bool  // there is an embedding, whose gradient is sparse
}

// net is Net of ranks.py.
type net struct {
	nn.Module
	Body  *nn.SequentialModule
	Heads []*nn.LinearModule
	Words *nn.EmbeddingModule // or nil
}

func (n *net) Forward(x gotorch.Tensor, heads []int) (outs []gotorch.Tensor) {
	if n.Words != nil {
		x = x.Add(n.Words.Forward(gotorch.ArgMax(x, gotorch.ArgMaxOptions{Dim: new(int64(1))})))
	}
	x = n.Body.Forward(x)
	for _, i := range heads {
		outs = append(outs, n.Heads[i].Forward(x))
	}
	return outs
}

func (s step) train(g *distributed.Group, tensors map[string]gotorch.Tensor) {
	o := s.Train
	gotorch.ManualSeed(uint64(100*must(strconv.Atoi(s.ID)) + g.Rank()))
	n := nn.Init(&net{
		Body:  nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU()),
		Heads: []*nn.LinearModule{nn.Linear(7, 2), nn.Linear(7, 2)},
	})
	if o.Sparse {
		n.Words = nn.Embedding(5, 5, nn.EmbeddingOptions{Sparse: true})
	}
	if !o.Heads {
		n.Heads[1].RequiresGrad_(false)
	}
	opts := distributed.DataParallelOptions{
		Group: g, FindUnusedParameters: o.FindUnusedParameters, GradientAsBucketView: o.GradientAsBucketView,
		StaticGraph: o.StaticGraph, NoBroadcastBuffers: o.NoBroadcastBuffers,
		Compression: map[string]distributed.Compression{"fp16": distributed.FP16Compress, "bf16": distributed.BF16Compress}[o.Compression],
	}
	if o.BucketCapMB > 0 {
		opts.BucketCapMB = o.BucketCapMB
	}
	model := distributed.DataParallel(n, opts)
	defer model.Close()
	if hook := s.hook(g); hook != nil {
		model.RegisterCommHook(hook)
	}
	var trained []gotorch.Tensor
	for _, p := range n.Parameters() {
		if p.RequiresGrad() {
			trained = append(trained, p)
		}
	}
	var opt optim.Optimizer = optim.SGD(trained, optim.SGDOptions{LR: 0.1, Momentum: 0.9})
	if o.Sparse {
		opt = optim.SGD(trained, optim.SGDOptions{LR: 0.1})
	}
	if l := o.Local; l.Period > 0 {
		opt = averaging(g, opt, l.Start, l.Period)
	}
	joinables := []distributed.Joinable{model}
	if o.Zero {
		shared := distributed.ZeroRedundancyOptimizer(g, opt)
		opt, joinables = shared, append(joinables, shared)
	}
	step := func(i int) {
		heads := []int{0}
		if o.Heads {
			heads = []int{0, 1}
		}
		if o.Alternate {
			heads = []int{i % 2}
			if o.ByRank {
				heads[0] = (i + g.Rank()) % 2
			}
		}
		pass := func() {
			outs := model.Around(func() []gotorch.Tensor {
				return n.Forward(tensors[fmt.Sprintf("%s.in.%d", s.ID, i)], heads)
			})
			for k, out := range outs {
				outs[k] = out.Pow(2).Mean()
			}
			gotorch.Stack(outs).Sum().Backward()
		}
		if o.Accumulate && i%2 == 0 {
			model.NoSync(pass)
			return
		}
		pass()
		opt.Step()
		opt.ZeroGrad()
	}
	if o.Batches != nil {
		err := distributed.Join(joinables, func() error {
			for i := range o.Batches[g.Rank()] {
				step(i)
			}
			return nil
		}, distributed.JoinOptions{ThrowOnEarlyTermination: o.Throw, NoDivideByInitialWorldSize: o.Remain})
		threw := float32(0)
		if errors.Is(err, distributed.UnevenInputsError) {
			threw = 1
		} else if err != nil {
			panic(err)
		}
		tensors[s.ID+".threw"] = gotorch.FromSlice([]float32{threw})
	}
	for i := range s.Inputs {
		if o.Local.Again && i == s.Inputs/2 {
			state := opt.StateDict()
			opt = averaging(g, optim.SGD(trained, optim.SGDOptions{LR: 0.5}), o.Local.Start, o.Local.Period)
			must(0, opt.LoadStateDict(state))
		}
		step(i)
	}
	for name, t := range model.StateDict() {
		tensors[s.ID+".state."+name] = t
	}
}

func averaging(g *distributed.Group, opt optim.Optimizer, start, period int64) optim.Optimizer {
	return distributed.PostLocalSGDOptimizer(opt, distributed.PeriodicModelAverager(g, int(period),
		distributed.PeriodicModelAveragerOptions{WarmupSteps: start}))
}

// hook is what reduces gradients in a training, or nil.
func (s step) hook(g *distributed.Group) distributed.CommHook {
	o := s.Train.PowerSGD
	power := func() distributed.CommHook {
		return distributed.PowerSGD(g, distributed.PowerSGDOptions{
			MatrixApproximationRank: o.Rank, StartPowerSGDIter: o.Start, MinCompressionRate: o.Rate, NoErrorFeedback: o.NoErrorFeedback,
			NoWarmStart: o.NoWarmStart, OrthogonalizationEpsilon: o.Epsilon, RandomSeed: o.Seed, BatchTensorsWithSameShape: o.Batch,
		}).Hook
	}
	switch s.Train.Hook {
	case "all_reduce":
		return distributed.AllReduceHook(g)
	case "bf16":
		return distributed.BF16CompressWrapper(distributed.AllReduceHook(g))
	case "power":
		return power()
	case "fp16_power":
		return distributed.FP16CompressWrapper(power())
	case "local":
		l := distributed.PostLocalSGDOptions{StartLocalSGDIter: s.Train.Local.Start, NoPostLocalGradientAllReduce: s.Train.Local.Alone}
		for first := 0; first < g.Size(); first += 2 {
			if pair := must(g.New([]int{first, min(first+1, g.Size()-1)}[:min(2, g.Size()-first)])); pair != nil {
				l.Subgroup = pair
			}
		}
		return distributed.PostLocalSGD(g, l).Hook
	case "gather": // the mean of what all ranks have
		return func(b *distributed.GradBucket) (*distributed.Work, error) {
			all := gotorch.Empty([]int64{int64(g.Size()) * b.Buffer().Numel()})
			return g.AllGatherIntoTensorAsync(all, b.Buffer()).Then(func() error {
				b.SetBuffer(all.View([]int64{int64(g.Size()), -1}).MeanDim([]int64{0}))
				return nil
			}), nil
		}
	}
	return nil
}

func (s step) shard(g *distributed.Group, tensors map[string]gotorch.Tensor) {
	gotorch.ManualSeed(uint64(100 * must(strconv.Atoi(s.ID))))
	first, second, last := nn.Linear(5, 7), nn.Linear(7, 7, nn.LinearOptions{NoBias: true}), nn.LayerNorm([]int64{7})
	head := nn.Linear(7, 3)
	n := nn.Sequential(first, nn.ReLU(), second, last, head)
	head.Bias.RequiresGrad_(!s.Train.Frozen)
	opts := distributed.FullyShardOptions{Group: g, Units: []nn.Modular{first, second}}
	if s.Train.Half {
		opts.ParamDType, opts.ReduceDType = gotorch.BFloat16, gotorch.Float32
	}
	model := distributed.FullyShard(n, opts)
	var names []string
	var trained []gotorch.Tensor
	for name, p := range n.NamedParameters() {
		if p.RequiresGrad() {
			names, trained = append(names, name), append(trained, p)
		}
	}
	opt := optim.AdamW(trained, optim.AdamWOptions{LR: 0.01})
	whole := func(when string) { // puts the whole state into tensors
		for name, t := range model.FullStateDict() {
			tensors[s.ID+when+".state."+name] = t
		}
		for _, state := range model.FullOptimStateDict(opt).Get("state").(gotorch.Dict) {
			for _, item := range state.Value.(gotorch.Dict) {
				tensors[fmt.Sprintf("%s%s.optimizer.%v.%s", s.ID, when, item.Key, names[state.Key.(int64)])] = item.Value.(gotorch.Tensor)
			}
		}
	}
	state := checkpoint.State{"model": model, "optim": checkpoint.Optimizer(model, opt)}
	if dir := s.Train.Load; dir != "" {
		var epoch int
		var names []string
		table := gotorch.Zeros([]int64{2, 2})
		state["epoch"], state["note"] = &epoch, checkpoint.State{"names": &names, "table": table}
		must(0, checkpoint.Load(dir, state, checkpoint.LoadOptions{Group: g}))
		tensors[s.ID+".note"] = gotorch.Cat([]gotorch.Tensor{table.Ravel(), gotorch.FromSlice([]float32{float32(epoch), float32(len(names[1]))})})
		whole(".loaded")
		*opt.LRs()[0] *= 10 // which was loaded, too
	}
	for i := range s.Inputs {
		pass := func() {
			model.Forward(tensors[fmt.Sprintf("%s.in.%d", s.ID, i)]).To(gotorch.Float32).Pow(2).Mean().Backward()
		}
		if s.Train.Accumulate && i%2 == 0 {
			model.NoSync(pass)
			continue
		}
		pass()
		if s.Train.Clip > 0 {
			tensors[fmt.Sprintf("%s.norm.%d", s.ID, i)] = model.ClipGradNorm(s.Train.Clip, utils.ClipGradNormOptions{NormType: must(strconv.ParseFloat(s.Train.Norm, 64))})
		}
		opt.Step()
		opt.ZeroGrad()
	}
	if dir := s.Train.Save; dir != "" {
		state["epoch"] = 7
		state["note"] = checkpoint.State{"names": []string{"a", "bcd"}, "table": gotorch.Arange(4).To(gotorch.Float32).Reshape([]int64{2, 2})}
		must(0, checkpoint.Save(dir, state, checkpoint.SaveOptions{Group: g}))
	}
	whole("")
}

func (s step) mesh(world *distributed.Group, in []gotorch.Tensor) {
	var names []string
	for i := range s.Shape {
		names = append(names, fmt.Sprintf("d%d", i))
	}
	mesh := must(distributed.InitDeviceMesh(world, s.Shape, names...))
	defer mesh.Close()
	if mesh.Coordinate() == nil {
		return
	}
	for i, name := range names {
		in[i].Add_(gotorch.FromSlice([]float32{float32(mesh.LocalRank(name))}))
		mesh.Group(name).AllReduce(in[i], distributed.Sum)
	}
}

// sparse reduces tensors of which the elements are sparse, or the rows, or which are not coalesced.
func (s step) sparse(ctx context.Context, g *distributed.Group, tensors map[string]gotorch.Tensor) {
	for i := range s.Inputs {
		name := fmt.Sprintf("%s.in.%d", s.ID, i)
		t := tensors[name].ToSparse()
		switch i % 3 {
		case 1:
			t = tensors[name].ToSparseSparseDim(1)
		case 2:
			t = gotorch.Cat([]gotorch.Tensor{t, t})
		}
		if s.Async {
			if err := g.AllReduceAsync(t, reduces[s.Reduce]).Wait(ctx); err != nil {
				panic(err)
			}
		} else {
			g.AllReduce(t, reduces[s.Reduce])
		}
		t = t.Coalesce()
		tensors[name+".indices"], tensors[name+".values"] = t.Indices(), t.Values()
	}
}

var reduces = map[string]distributed.ReduceOp{
	"sum": distributed.Sum, "product": distributed.Product, "min": distributed.Min, "max": distributed.Max,
	"band": distributed.Band, "bor": distributed.Bor, "bxor": distributed.Bxor, "avg": distributed.Avg,
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func main() {
	gotorch.SetNumThreads(1) // as in Python: more add up in another order
	folder, opts := os.Args[1], distributed.Options{Timeout: 4 * time.Minute}
	if len(os.Args) > 2 {
		opts.InitMethod = os.Args[2]
		opts.WorldSize, opts.Rank = must(strconv.Atoi(os.Args[3])), must(strconv.Atoi(os.Args[4]))
	}
	var p program
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(folder, "program.json"))), &p); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	world := must(distributed.Init(ctx, opts))
	rank := world.Rank()
	tensors := must(gotorch.LoadTensors(filepath.Join(folder, fmt.Sprintf("in%d.pt", rank))))
	groups := []*distributed.Group{world}
	for _, ranks := range p.Groups {
		groups = append(groups, must(world.New(ranks)))
	}
	said, loops := map[string]string{}, map[int]string{}
	for i, g := range groups {
		if g == nil {
			continue
		}
		loops[i-1] = ""
		err := gotorch.Try0(func() { train.NewStepLoop(func(*train.StepOf[int]) error { return nil }).Distributed(g) })
		if err != nil {
			loops[i-1] = err.Error()
		}
	}
	for _, s := range p.Steps {
		g := groups[s.Group+1]
		if g == nil {
			continue
		}
		if err := gotorch.Try0(func() { s.run(ctx, g, tensors) }); err != nil {
			said[s.ID] = err.Error()
		}
	}
	if world.Size() > 1 {
		world.Barrier()
	}
	for _, g := range groups[1:] {
		if g != nil {
			g.Close()
		}
	}
	world.Close()
	for name, t := range tensors {
		tensors[name] = gotorch.Contiguous(t)
	}
	if err := gotorch.SaveTensors(filepath.Join(folder, fmt.Sprintf("out%d.pt", rank)), tensors); err != nil {
		log.Fatal(err)
	}
	for name, value := range map[string]any{"out": said, "loops": loops} {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s%d.json", name, rank)), must(json.Marshal(value)), 0o666); err != nil {
			log.Fatal(err)
		}
	}
}

func (s step) run(ctx context.Context, g *distributed.Group, tensors map[string]gotorch.Tensor) {
	some := func(kind string, n int) (ts []gotorch.Tensor) {
		for i := range n {
			ts = append(ts, tensors[fmt.Sprintf("%s.%s.%d", s.ID, kind, i)])
		}
		return ts
	}
	in, out := some("in", s.Inputs), some("out", s.Outputs)
	how := reduces[s.Reduce]
	wait := func(w *distributed.Work) {
		if err := w.Wait(ctx); err != nil {
			panic(err)
		}
	}
	mine := func(ts []gotorch.Tensor) []gotorch.Tensor {
		if g.Rank() == s.Root {
			return ts
		}
		return nil
	}
	of := s.Splits[strconv.Itoa(g.Ranks()[g.Rank()])]
	switch s.Op {
	case "train":
		s.train(g, tensors)
		return
	case "shard":
		s.shard(g, tensors)
		return
	case "copy": // each rank saves some of what is in a checkpoint
		state := checkpoint.State{}
		for i, pair := range must(checkpoint.Read(s.Train.Load)) {
			if i%g.Size() == g.Rank() {
				state[pair.Key.(string)] = pair.Value
			}
		}
		must(0, checkpoint.Save(s.Train.Save, state, checkpoint.SaveOptions{Group: g}))
		return
	case "long":
		s.long(g, tensors)
		return
	case "mesh":
		s.mesh(g, in)
		return
	case "sparse":
		s.sparse(ctx, g, tensors)
		return
	}
	splits := distributed.Splits{Output: of[0], Input: of[1]}
	switch s.Op {
	case "broadcast":
		if s.Async {
			wait(g.BroadcastAsync(in[0], s.Root))
		} else {
			g.Broadcast(in[0], s.Root)
		}
	case "all_reduce":
		if s.Async {
			wait(g.AllReduceAsync(in[0], how))
		} else {
			g.AllReduce(in[0], how)
		}
	case "all_reduce_coalesced":
		if s.Async {
			wait(g.AllReduceCoalescedAsync(in, how))
		} else {
			g.AllReduceCoalesced(in, how)
		}
	case "reduce":
		if s.Async {
			wait(g.ReduceAsync(in[0], s.Root, how))
		} else {
			g.Reduce(in[0], s.Root, how)
		}
	case "all_gather":
		if s.Async {
			wait(g.AllGatherAsync(out, in[0]))
		} else {
			g.AllGather(out, in[0])
		}
	case "all_gather_into_tensor":
		if s.Async {
			wait(g.AllGatherIntoTensorAsync(out[0], in[0]))
		} else {
			g.AllGatherIntoTensor(out[0], in[0])
		}
	case "gather":
		if s.Async {
			wait(g.GatherAsync(in[0], mine(out), s.Root))
		} else {
			g.Gather(in[0], mine(out), s.Root)
		}
	case "scatter":
		if s.Async {
			wait(g.ScatterAsync(out[0], mine(in), s.Root))
		} else {
			g.Scatter(out[0], mine(in), s.Root)
		}
	case "reduce_scatter":
		if s.Async {
			wait(g.ReduceScatterAsync(out[0], in, how))
		} else {
			g.ReduceScatter(out[0], in, how)
		}
	case "reduce_scatter_tensor":
		if s.Async {
			wait(g.ReduceScatterTensorAsync(out[0], in[0], how))
		} else {
			g.ReduceScatterTensor(out[0], in[0], how)
		}
	case "all_to_all":
		if s.Async {
			wait(g.AllToAllAsync(out, in))
		} else {
			g.AllToAll(out, in)
		}
	case "all_to_all_single":
		if s.Async {
			wait(g.AllToAllSingleAsync(out[0], in[0], splits))
		} else {
			g.AllToAllSingle(out[0], in[0], splits)
		}
	case "ring": // each sends to the next
		next, before := (g.Rank()+1)%g.Size(), (g.Rank()+g.Size()-1)%g.Size()
		sent := g.SendAsync(in[0], next, distributed.P2POptions{Tag: s.Tag})
		if from := g.Recv(out[0], before, distributed.P2POptions{Tag: s.Tag}); from != before {
			log.Fatalf("from %d and not %d", from, before)
		}
		wait(sent)
	case "any": // all send to the root, which does not ask who
		if g.Rank() != s.Root {
			g.Send(in[0], s.Root, distributed.P2POptions{Tag: s.Tag})
			break
		}
		for range g.Size() - 1 {
			t := gotorch.ZerosLike(in[0])
			from := g.Recv(t, distributed.AnyRank, distributed.P2POptions{Tag: s.Tag})
			out[from].Copy_(t)
		}
	case "barrier":
		g.Barrier()
	case "monitored_barrier":
		g.MonitoredBarrier(distributed.MonitoredBarrierOptions{WaitAllRanks: s.Async})
	default:
		log.Fatal("no op ", s.Op)
	}
}
