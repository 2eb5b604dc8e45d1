package distributed_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// Two ranks with half of the samples each are one with all of them.
func TestSmokeRanksTrainOneModel(t *testing.T) {
	gotorch.ManualSeed(1)
	x, y := gotorch.Randn([]int64{8, 3}), gotorch.Randn([]int64{8, 2})
	alone := nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
	start := alone.StateDict()
	for name, t := range start {
		start[name] = t.Clone()
	}
	step := func(net nn.Layer, x, y gotorch.Tensor) {
		opt := optim.SGD(net.Parameters(), optim.SGDOptions{LR: 0.1})
		for range 3 {
			opt.ZeroGrad()
			net.Forward(x).Sub(y).Pow(2).Mean().Backward()
			opt.Step()
		}
	}
	step(alone, x, y)
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
		if g.Rank() == 0 { // which all ranks get
			testhelp.Must(t, net.LoadStateDict(start))
		}
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
		defer model.Close()
		half := func(t gotorch.Tensor) gotorch.Tensor { return t.Narrow(0, int64(4*g.Rank()), 4) }
		step(model, half(x), half(y))
		for name, want := range alone.StateDict() {
			if got := model.StateDict()["module."+name]; !got.AllClose(want) {
				t.Errorf("%s: %v, and alone %v", name, got, want)
			}
		}
	})
}

// A process that takes the buckets of another trains on to the same bits, in a plain loop.
func TestBucketsAreTakenOver(t *testing.T) {
	for _, opt := range []distributed.DataParallelOptions{{}, {GradientAsBucketView: true}, {StaticGraph: true}, {BucketCapMB: 0.0001}} {
		rankstest.Run(t, 4, distributed.Options{}, func(g *distributed.Group) {
			opt := opt
			opt.Group = g
			gotorch.ManualSeed(uint64(g.Rank()))
			made := func() (*nn.SequentialModule, *distributed.DistributedDataParallel) {
				net := nn.Sequential(nn.Linear(3, 17), nn.Tanh(), nn.Linear(17, 9), nn.Tanh(), nn.Linear(9, 2))
				return net, distributed.DataParallel(net, opt)
			}
			inputs := gotorch.Randn([]int64{6, 5, 3})
			train := func(model *distributed.DistributedDataParallel, from, to int) {
				sgd := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.5})
				for i := range to - from {
					model.Forward(inputs.Select(0, int64(from+i))).Pow(2).Mean().Backward()
					sgd.Step()
					sgd.ZeroGrad()
				}
			}
			net, model := made()
			defer model.Close()
			if got := model.Buckets(); got != nil {
				t.Errorf("before the first pass the buckets are %v", got)
			}
			for cut := 1; cut < 4; cut += 2 {
				train(model, cut-1, cut)
				saved, buckets := nn.StateDict{}, model.Buckets()
				for name, v := range net.StateDict() {
					saved[name] = v.Clone()
				}
				train(model, cut, cut+2)
				again, resumed := made()
				testhelp.Must(t, again.LoadStateDict(saved))
				resumed.SetBuckets(buckets)
				train(resumed, cut, cut+2)
				for name, want := range net.StateDict() {
					if got := again.StateDict()[name]; !got.Equal(want) {
						t.Errorf("%v with %+v, resumed after %d steps: %s differs by %v", g, opt, cut, name, got.Sub(want).Abs().Max())
					}
				}
				if got := resumed.Buckets(); len(slices.Concat(got...)) != 6 {
					t.Errorf("the buckets are %v", got)
				}
				resumed.Close()
			}
		})
	}
}

func TestBucketsThatAreNone(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{Timeout: 20 * time.Second}, func(g *distributed.Group) {
		half := nn.Linear(2, 2)
		half.To(gotorch.Float64)
		net := nn.Sequential(nn.Linear(2, 2), half)
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
		defer model.Close()
		all := []string{"0.weight", "0.bias", "1.weight", "1.bias"}
		for _, bad := range [][][]string{
			{}, {{}}, {all[:3]}, {all, all[:1]}, {all[:2], all[1:]}, {all[:2], {"1.weight", "other"}}, {all[:2], {}, all[2:]},
			{all}, // of two dtypes
		} {
			err := gotorch.Try0(func() { model.SetBuckets(bad) })
			if !errors.Is(err, gotorch.ValueError) && !errors.Is(err, gotorch.RuntimeError) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		if err := gotorch.Try0(func() { model.SetBuckets([][]string{all[2*g.Rank() : 2*g.Rank()+2], all[:2]}) }); !errors.Is(err, gotorch.RuntimeError) {
			t.Errorf("the buckets of another rank: %v", err)
		}
		model.SetBuckets([][]string{all[:2], all[2:]})
		if got := model.Buckets(); !slices.Equal(got[0], all[:2]) || !slices.Equal(got[1], all[2:]) {
			t.Errorf("the buckets are %v", got)
		}
		model.Close()
		if err := gotorch.Try0(func() { model.Buckets() }); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
	})
}

func TestWithoutSyncGradientsAreEachRanksOwn(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Linear(1, 1, nn.LinearOptions{NoBias: true})
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
		defer model.Close()
		pass := func() { model.Forward(gotorch.Full([]int64{1, 1}, float32(1+2*g.Rank()))).Sum().Backward() }
		model.NoSync(pass)
		if got := gotorch.Item[float32](net.Weight.Grad()); got != float32(1+2*g.Rank()) {
			t.Error(g, got)
		}
		pass()
		if got := gotorch.Item[float32](net.Weight.Grad()); got != 4 { // (2·1 + 2·3) / 2
			t.Error(g, got)
		}
		gotorch.NoGrad(func() { model.Forward(gotorch.Ones([]int64{1, 1})) }) // nothing waits for others
	})
}

// collecting has a backward pass wait for the collector.
type collecting struct{}

func (collecting) Forward(_ *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{in[0].Clone()}
}
func (collecting) Backward(_ *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	ran := make(chan struct{})
	runtime.AddCleanup(new([16]byte), func(ran chan struct{}) { close(ran) }, ran)
	for {
		runtime.GC()
		select {
		case <-ran: // and what was there to be cleaned up before
			return grads
		case <-time.After(time.Millisecond):
		}
	}
}

// A model that nobody has any more is there as long as a backward pass needs it.
func TestAGraphKeepsWhatAveragesItsGradients(t *testing.T) {
	for range 3 {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			first, last := nn.Linear(1, 1, nn.LinearOptions{NoBias: true}), nn.Linear(1, 1, nn.LinearOptions{NoBias: true})
			gotorch.NoGrad(func() { first.Weight.Fill_(1); last.Weight.Fill_(1) })
			forward := func() gotorch.Tensor {
				model := distributed.DataParallel(nn.Sequential(first, last), distributed.DataParallelOptions{Group: g})
				return model.Around(func() []gotorch.Tensor {
					x := gotorch.Full([]int64{1, 1}, float32(1+2*g.Rank()))
					return []gotorch.Tensor{last.Forward(gotorch.Apply(collecting{}, first.Forward(x))[0])}
				})[0]
			}
			forward().Sum().Backward()
			for _, p := range []gotorch.Tensor{first.Weight, last.Weight} {
				if got := gotorch.Item[float32](p.Grad()); got != 2 { // (1 + 3) / 2
					t.Error(g, got)
				}
			}
		})
	}
}

type branches struct {
	nn.Module
	A, B *nn.LinearModule
}

func (m *branches) Forward(x gotorch.Tensor, a bool) gotorch.Tensor {
	if a {
		return m.A.Forward(x)
	}
	return m.B.Forward(x)
}

func TestParametersThatNobodyUsesKeepTheirGradient(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Init(&branches{A: nn.Linear(2, 1), B: nn.Linear(2, 1)})
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g, FindUnusedParameters: true})
		defer model.Close()
		for range 3 {
			model.Around(func() []gotorch.Tensor {
				return []gotorch.Tensor{net.Forward(gotorch.Ones([]int64{1, 2}), true)}
			})[0].Sum().Backward()
		}
		if net.A.Weight.Grad() == (gotorch.Tensor{}) || net.B.Weight.Grad() != (gotorch.Tensor{}) {
			t.Error(net.A.Weight.Grad(), net.B.Weight.Grad())
		}
		if err := gotorch.Try0(func() { model.Forward(gotorch.Ones([]int64{1, 2})) }); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
	})
	// Without looking for them it is an error in the next pass.
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Init(&branches{A: nn.Linear(2, 1), B: nn.Linear(2, 1)})
		model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
		defer model.Close()
		err := gotorch.Try0(func() {
			for range 2 {
				model.Around(func() []gotorch.Tensor {
					return []gotorch.Tensor{net.Forward(gotorch.Ones([]int64{1, 2}), true)}
				})[0].Sum().Backward()
			}
		})
		if !errors.Is(err, gotorch.RuntimeError) {
			t.Error(err)
		}
	})
}

// Ranks whose models differ get the same error, which says whose and in what, and may go on with another model.
func TestRanksWithOtherModelsAreRefused(t *testing.T) {
	linear := func(in, out int64, opts ...nn.LinearOptions) nn.Layer { return nn.Linear(in, out, opts...) }
	for name, c := range map[string]struct {
		last []nn.Layer // of rank 1
		do   func(net *nn.SequentialModule, opt *distributed.DataParallelOptions)
		says string // with DataParallel
		also string // with FullyShard, "" for the same
	}{
		"a shape":          {last: []nn.Layer{linear(8, 6)}, says: `on rank 1 the parameter "2.weight" is of [6 8], and on rank 0 of [5 8]`},
		"a parameter more": {last: []nn.Layer{linear(8, 5), linear(5, 5)}, says: `rank 1 has the parameter "3.weight", and rank 0 has not`},
		"a parameter less": {last: []nn.Layer{linear(8, 5, nn.LinearOptions{NoBias: true})}, says: `rank 0 has the parameter "2.bias", and rank 1 has not`},
		"a dtype":          {last: []nn.Layer{linear(8, 5, nn.LinearOptions{DType: gotorch.Float64})}, says: `on rank 1 the parameter "2.weight" is torch.float64, and on rank 0 torch.float32`},
		"a buffer":         {last: []nn.Layer{linear(8, 5), nn.BatchNorm1d(5, nn.BatchNormOptions{NoAffine: true})}, says: `rank 1 has the buffer "3.running_mean", and rank 0 has not`},
		"what is trained": {do: func(net *nn.SequentialModule, _ *distributed.DataParallelOptions) {
			net.Parameters()[3].RequiresGrad_(false)
		}, says: `on rank 1 the parameter "2.bias" requires no gradient, and on rank 0 it does`},
		"what is trained there": {do: func(net *nn.SequentialModule, _ *distributed.DataParallelOptions) {}, says: `on rank 1 the parameter "2.bias" requires a gradient, and on rank 0 it does not`},
		"an option": {do: func(_ *nn.SequentialModule, o *distributed.DataParallelOptions) { o.NoInitSync = true },
			says: "NoInitSync true, and rank 0 DataParallel with", also: "NoInitSync true, and rank 0 FullyShard with"},
	} {
		for _, shards := range []bool{false, true} {
			errs := make([]error, 3)
			rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
				first := nn.Linear(4, 8)
				net := nn.Sequential(first, nn.Tanh(), nn.Linear(8, 5))
				opt := distributed.DataParallelOptions{Group: g}
				if name == "what is trained there" && g.Rank() != 1 {
					net.Parameters()[3].RequiresGrad_(false)
				}
				if g.Rank() == 1 {
					if c.last != nil {
						net = nn.Sequential(append([]nn.Layer{first, nn.Tanh()}, c.last...)...)
					}
					if c.do != nil {
						c.do(net, &opt)
					}
				}
				errs[g.Rank()] = gotorch.Try0(func() {
					if shards {
						distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: []nn.Modular{first}, NoInitSync: opt.NoInitSync})
						return
					}
					distributed.DataParallel(net, opt)
				})
				same := distributed.DataParallel(nn.Linear(2, 2), distributed.DataParallelOptions{Group: g})
				defer same.Close()
				same.Forward(gotorch.Ones([]int64{1, 2})).Sum().Backward()
			})
			says := c.says
			if shards && c.also != "" {
				says = c.also
			}
			for rank, err := range errs {
				if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), says) || err.Error() != errs[0].Error() {
					t.Errorf("%s, shards %v, rank %d: %v", name, shards, rank, err)
				}
			}
		}
	}
	// One shards the model, and the other does not.
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		err := gotorch.Try0(func() {
			if g.Rank() == 0 {
				distributed.DataParallel(nn.Linear(2, 2), distributed.DataParallelOptions{Group: g})
			} else {
				distributed.FullyShard(nn.Linear(2, 2), distributed.FullyShardOptions{Group: g})
			}
		})
		if err == nil || !strings.Contains(err.Error(), "rank 1 calls FullyShard") {
			t.Error(err)
		}
	})
	// What ranks call their parameters is theirs.
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Sequential(nn.Linear(2, 2))
		if g.Rank() == 1 {
			net = nn.Sequential(nn.Identity(), nn.Linear(2, 2))
		}
		distributed.DataParallel(net, distributed.DataParallelOptions{Group: g}).Close()
	})
	for _, opt := range []distributed.DataParallelOptions{{}, {BucketCapMB: -1}} {
		if err := gotorch.Try0(func() { distributed.DataParallel(nn.Linear(1, 1), opt) }); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
	}
}

func TestNothingIsLeftOfAModelOfRanks(t *testing.T) {
	count := func() int64 {
		runtime.GC()
		runtime.GC()
		return gotorch.MemoryStats().LiveHandles
	}
	before := count()
	for _, closed := range []bool{true, false} {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			for _, opt := range []distributed.DataParallelOptions{{}, {FindUnusedParameters: true}, {StaticGraph: true}, {GradientAsBucketView: true}, {Compression: distributed.BF16Compress}} {
				opt.Group = g
				model := distributed.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.SyncBatchNorm(4)), opt)
				if closed {
					defer model.Close()
				}
				for range 3 {
					model.Forward(gotorch.Randn([]int64{3, 4})).Sum().Backward()
				}
			}
		})
	}
	for end := time.Now().Add(time.Minute); count() > before; {
		if time.Now().After(end) {
			t.Fatalf("%d tensors live, where %d did", count(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestItsStateIsPythons(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		model := distributed.DataParallel(nn.Sequential(nn.Linear(1, 1)), distributed.DataParallelOptions{Group: g})
		defer model.Close()
		var names []string
		for name := range model.StateDict() {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"module.0.bias", "module.0.weight"}) {
			t.Error(names)
		}
		if !model.Training() {
			t.Error("it does not train")
		}
	})
}

// TestARankThatDoesNotTrainOnIsAnError wherever the others notice it: buffers are broadcast by a call, gradients reduced by
// Backward.
func TestARankThatDoesNotTrainOnIsAnError(t *testing.T) {
	for _, c := range []struct {
		name    string
		buffers bool
	}{{"buffers of a call", true}, {"gradients", false}} {
		t.Run(c.name, func(t *testing.T) {
			failed := make(chan struct{})
			rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
				var net nn.Layer = nn.Linear(3, 3)
				if c.buffers {
					net = nn.Sequential(net, nn.BatchNorm1d(3))
				}
				model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
				defer model.Close()
				g.Barrier()
				if g.Rank() == 1 {
					<-failed
					return
				}
				defer close(failed)
				testhelp.Must(t, g.SetTimeout(300*time.Millisecond))
				err := gotorch.Try0(func() {
					out := model.Forward(gotorch.Ones([]int64{4, 3})).Sum()
					if c.buffers {
						out = model.Forward(gotorch.Ones([]int64{4, 3})).Sum()
					}
					out.Backward()
				})
				if !errors.Is(err, distributed.TimeoutError) && !errors.Is(err, distributed.NetworkError) {
					t.Error(err)
				}
			})
		})
	}
}

// A SyncBatchNorm of several ranks, with batches of any size, is a batch normalisation of all batches as one.
func TestBatchNormsOfAllRanksAreThoseOfTheWhole(t *testing.T) {
	const n = 3
	gotorch.ManualSeed(4)
	for _, c := range []struct {
		name string
		opt  nn.BatchNormOptions
		eval bool
	}{
		{name: "plain"},
		{name: "without weights", opt: nn.BatchNormOptions{NoAffine: true}},
		{name: "without bias", opt: nn.BatchNormOptions{NoBias: true}},
		{name: "without running statistics", opt: nn.BatchNormOptions{NoTrackRunningStats: true}},
		{name: "momentum and eps", opt: nn.BatchNormOptions{Momentum: 0.3, Eps: 0.1}},
		{name: "of all batches", opt: nn.BatchNormOptions{CumulativeAverage: true}},
		{name: "float64", opt: nn.BatchNormOptions{DType: gotorch.Float64}},
		{name: "evaluation", eval: true},
	} {
		dtype := c.opt.DType
		if dtype == 0 {
			dtype = gotorch.Float32
		}
		of := gotorch.TensorOptions{DType: dtype}
		rows := []int64{2, 1, 4}
		x, weight, out := gotorch.Randn([]int64{7, 5, 3}, of).AddScalar(100), gotorch.Randn([]int64{5}, of), gotorch.Randn([]int64{7, 5, 3}, of)
		alone := nn.BatchNorm1d(5, c.opt)
		apply := func(m nn.Layer, x, out gotorch.Tensor) (y, grad gotorch.Tensor) {
			if c.eval {
				m.(interface{ Eval() }).Eval()
			}
			x = x.Detach().Clone().RequiresGrad_()
			for range 2 { // running statistics of two batches
				y = m.Forward(x)
			}
			y.Mul(out).Sum().Backward()
			return y, x.Grad()
		}
		set := func(m nn.Modular) {
			gotorch.NoGrad(func() {
				for _, p := range m.NamedParameters() {
					p.Copy_(weight)
				}
			})
		}
		set(alone)
		wantY, wantGrad := apply(alone, x, out)
		near := func(what string, got, want gotorch.Tensor) {
			if !got.AllClose(want, gotorch.AllCloseOptions{RTol: new(1e-4), ATol: new(1e-4)}) {
				t.Errorf("%s: %s is %v, and want %v", c.name, what, got, want)
			}
		}
		var grads [n]map[string]gotorch.Tensor
		rankstest.Run(t, n, distributed.Options{}, func(g *distributed.Group) {
			m := nn.SyncBatchNorm(5, c.opt)
			// What is bound to the ranks needs a parameter to be trained.
			model := distributed.DataParallel(nn.Sequential(m, nn.Linear(1, 1)), distributed.DataParallelOptions{Group: g})
			set(m)
			at := int64(0)
			for _, n := range rows[:g.Rank()] {
				at += n
			}
			mine := func(t gotorch.Tensor) gotorch.Tensor { return t.Narrow(0, at, rows[g.Rank()]) }
			y, grad := apply(m, mine(x), mine(out))
			near("y", y, mine(wantY))
			near("the gradient of x", grad, mine(wantGrad))
			for name, b := range m.NamedBuffers() {
				near(name, b, alone.StateDict()[name])
			}
			grads[g.Rank()] = map[string]gotorch.Tensor{}
			for name, p := range m.NamedParameters() {
				grads[g.Rank()][name] = p.Grad()
			}
			model.Close()
			if g.Rank() == 0 && !c.eval { // which computes alone now
				m.Forward(mine(x))
			}
		})
		for name, p := range alone.NamedParameters() {
			near("the gradient of "+name, grads[0][name].Add(grads[1][name]).Add(grads[2][name]), p.Grad())
		}
	}
}
