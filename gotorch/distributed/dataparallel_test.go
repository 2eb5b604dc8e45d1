package distributed_test

import (
	"errors"
	"runtime"
	"slices"
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

func TestRanksWithOtherModelsAreRefused(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Linear(2, int64(1+g.Rank()))
		err := gotorch.Try0(func() { distributed.DataParallel(net, distributed.DataParallelOptions{Group: g}) })
		if !errors.Is(err, gotorch.RuntimeError) && !errors.Is(err, distributed.NetworkError) { // where the other has left
			t.Error(err)
		}
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
				model := distributed.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), opt)
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
