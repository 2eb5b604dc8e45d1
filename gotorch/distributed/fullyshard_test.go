package distributed_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/nn/utils"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/profiler"
)

// tied is a model of layers that have rows which ranks cannot share out evenly, with a weight that is used twice.
type tied struct {
	nn.Module
	Embed  *nn.EmbeddingModule
	Blocks []*block
	Norm   *nn.LayerNormModule
	Head   *nn.LinearModule
}

type block struct {
	nn.Module
	Up, Down *nn.LinearModule
	Scale    gotorch.Tensor
}

func (b *block) Forward(x gotorch.Tensor) gotorch.Tensor {
	return x.Add(b.Down.Forward(F.GELU(b.Up.Forward(x))).Mul(b.Scale))
}

func (m *tied) Forward(tokens gotorch.Tensor) gotorch.Tensor {
	x := m.Embed.Forward(tokens)
	for _, b := range m.Blocks {
		x = nn.Call(b, x)
	}
	return m.Head.Forward(m.Norm.Forward(x))
}

func newTied() *tied {
	m := &tied{Embed: nn.Embedding(11, 6), Norm: nn.LayerNorm([]int64{6}), Head: nn.Linear(6, 11)}
	m.Head.Weight = m.Embed.Weight
	for range 3 {
		m.Blocks = append(m.Blocks, nn.Init(&block{Up: nn.Linear(6, 7), Down: nn.Linear(7, 6), Scale: gotorch.Ones([]int64{1})}))
	}
	return nn.Init(m)
}

func (m *tied) units() (units []nn.Modular) {
	for _, b := range m.Blocks {
		units = append(units, b)
	}
	return units
}

// copies returns a state that nothing changes.
func copies(d nn.StateDict) nn.StateDict {
	d = maps.Clone(d)
	for name, t := range d {
		d[name] = t.Clone()
	}
	return d
}

func sameState(t *testing.T, what string, got, want nn.StateDict) {
	t.Helper()
	if !slices.Equal(got.Names(), want.Names()) {
		t.Errorf("%s: %v, and want %v", what, got.Names(), want.Names())
		return
	}
	for name, w := range want {
		if !gotorch.Equal(got[name], w) {
			t.Errorf("%s: %s differs by %v", what, name, got[name].Sub(w).Abs().Max())
		}
	}
}

// oneThread has ops compute on one thread each: how many there are depends on what else runs, and how sums are rounded on that.
func oneThread(t *testing.T) {
	before := gotorch.NumThreads()
	gotorch.SetNumThreads(1)
	t.Cleanup(func() { gotorch.SetNumThreads(before) })
}

// samples are tokens and targets of a rank at a step.
func samples(rank, step int) (x, y gotorch.Tensor) {
	g := gotorch.NewGenerator(gotorch.CPU)
	g.ManualSeed(uint64(100*step + rank))
	return gotorch.RandintGenerator(11, []int64{4, 5}, g), gotorch.RandintGenerator(11, []int64{20}, g)
}

func loss(out, y gotorch.Tensor) gotorch.Tensor {
	return F.CrossEntropy(out.Reshape([]int64{-1, 11}), y)
}

// trainedAlone returns the state of a model that one process has trained with the mean of the gradients of n ranks' samples, and
// the first rank's losses.
func trainedAlone(t *testing.T, n, steps int, start nn.StateDict) (state nn.StateDict, losses []float64) {
	net := newFrom(t, start)
	opt := optim.AdamW(net.Parameters(), optim.AdamWOptions{LR: 0.01})
	for step := range steps {
		opt.ZeroGrad()
		for rank := range n {
			x, y := samples(rank, step)
			l := loss(net.Forward(x), y)
			l.Backward()
			if rank == 0 {
				losses = append(losses, gotorch.Item[float64](l))
			}
		}
		for _, p := range net.Parameters() {
			p.Grad().DivScalar_(float64(n))
		}
		opt.Step()
	}
	return copies(net.StateDict()), losses
}

// Shards come to what one process comes to, up to two ranks to the last bit.
func TestSmokeShardsAreTheWhole(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	for _, n := range []int{1, 2, 3, 4} {
		want, wantLosses := trainedAlone(t, n, 5, start)
		for _, opt := range []distributed.FullyShardOptions{{}, {NoPrefetch: true}, {NoReshardAfterForward: true}} {
			for _, units := range []bool{true, false} {
				what := fmt.Sprintf("%d ranks, %+v, units %v", n, opt, units)
				rankstest.Run(t, n, distributed.Options{}, func(g *distributed.Group) {
					net := newTied()
					if g.Rank() == 0 { // which all get
						testhelp.Must(t, net.LoadStateDict(start))
					}
					o := opt
					o.Group = g
					if units {
						o.Units = net.units()
					}
					model := distributed.FullyShard(net, o)
					opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.01})
					var losses []float64
					for step := range 5 {
						x, y := samples(g.Rank(), step)
						opt.ZeroGrad()
						l := loss(model.Forward(x), y)
						l.Backward()
						opt.Step()
						losses = append(losses, gotorch.Item[float64](l))
					}
					state := model.FullStateDict()
					if g.Rank() > 0 {
						return
					}
					if n < 3 { // Gloo adds more than two up in an order of its own
						if !slices.Equal(losses, wantLosses) {
							t.Errorf("%s: losses %v, and want %v", what, losses, wantLosses)
						}
						sameState(t, what, state, want)
						return
					}
					for name, w := range want {
						if !state[name].AllClose(w, gotorch.AllCloseOptions{RTol: new(1e-4), ATol: new(1e-6)}) {
							t.Errorf("%s: %s is %v, and want %v", what, name, state[name], w)
						}
					}
				})
			}
		}
	}
}

func TestPartsAreRowsAndUnshardPutsThemTogether(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		net := newTied()
		testhelp.Must(t, net.LoadStateDict(start))
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
		if got, want := net.Embed.Weight.Shape(), []int64{[]int64{4, 4, 3}[g.Rank()], 6}; !slices.Equal(got, want) {
			t.Error(g, got, want)
		}
		if got, want := net.Blocks[0].Scale.Numel(), []int64{1, 0, 0}[g.Rank()]; got != want {
			t.Error(g, got, want)
		}
		if *net.Head.Weight.T != *net.Embed.Weight.T {
			t.Error("the tied weight is two")
		}
		sameState(t, "full", model.FullStateDict(), start)
		if only := model.FullStateDict(distributed.FullStateOptions{RankZeroOnly: true}); (only == nil) != (g.Rank() > 0) {
			t.Error(g, only)
		}
		x, _ := samples(0, 0)
		got := model.Forward(x)
		if want := gotorch.NoGrad1(func() gotorch.Tensor { return newFrom(t, start).Forward(x) }); !gotorch.Equal(got, want) {
			t.Error(got, want)
		}
		var inferred gotorch.Tensor
		gotorch.InferenceMode(func() { inferred = model.Forward(x) })
		if !gotorch.Equal(inferred, got) {
			t.Error(inferred, got)
		}
		model.Unshard()
		sameState(t, "unsharded", net.StateDict(), start)
		if got := net.Forward(x); !got.RequiresGrad() {
			t.Error("parameters need no gradients any more")
		}
		if err := gotorch.Try0(func() { model.Forward(x) }); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
	})
}

func newFrom(t *testing.T, state nn.StateDict) *tied {
	net := newTied()
	testhelp.Must(t, net.LoadStateDict(state))
	return net
}

// Gradients of several passes, together, are those of one pass of all samples.
func TestPassesWithinNoSyncAddUp(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		grads := func(two func(model *distributed.FullySharded, pass func(step int))) nn.StateDict {
			net := newFrom(t, start)
			model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
			two(model, func(step int) {
				gotorch.Scope0(func(*gotorch.ScopeHandle) { // which what adds up outlives
					x, y := samples(g.Rank(), step)
					loss(model.Forward(x), y).Backward()
				})
			})
			d := nn.StateDict{}
			for name, p := range net.NamedParameters() {
				d[name] = p.Grad().Clone()
			}
			return d
		}
		each := grads(func(_ *distributed.FullySharded, pass func(int)) { pass(0); pass(1); pass(2) })
		once := grads(func(model *distributed.FullySharded, pass func(int)) {
			model.NoSync(func() {
				pass(0)
				pass(1)
				for name, p := range model.Net.NamedParameters() {
					if p.Grad().Defined() {
						t.Error(name, "has a gradient")
					}
				}
			})
			pass(2)
		})
		again := grads(func(model *distributed.FullySharded, pass func(int)) { // of what came before there is nothing
			model.NoSync(func() { pass(7) })
			pass(8)
			model.ZeroGrad()
			model.NoSync(func() {
				pass(0)
				pass(1)
			})
			pass(2)
		})
		sameState(t, "again", again, once)
		for name, want := range each {
			if !once[name].AllClose(want, gotorch.AllCloseOptions{ATol: new(1e-6)}) {
				t.Error(name, once[name], want)
			}
		}
	})
}

func TestWhatShardsRefuse(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := newTied()
		type options = distributed.FullyShardOptions
		complexes := nn.ParameterList(gotorch.Zeros([]int64{2}, gotorch.TensorOptions{DType: gotorch.Complex64}))
		mixed := nn.ParameterList(gotorch.Zeros([]int64{2}), gotorch.Zeros([]int64{2}, gotorch.TensorOptions{DType: gotorch.Float64}))
		for _, c := range []struct {
			name string
			net  nn.Modular
			opt  options
		}{
			{"no group", net, options{}},
			{"a unit elsewhere", net, options{Group: g, Units: []nn.Modular{nn.Linear(2, 2)}}},
			{"a unit that is the whole", net, options{Group: g, Units: []nn.Modular{net}}},
			{"a unit in a unit", net, options{Group: g, Units: []nn.Modular{net.Blocks[0].Up, net.Blocks[0]}}},
			{"no dimensions", nn.ParameterList(gotorch.Zeros(nil)), options{Group: g}},
			{"complex", complexes, options{Group: g}},
			{"two dtypes", mixed, options{Group: g}},
			{"whole numbers", net, options{Group: g, ParamDType: gotorch.Int64}},
		} {
			if err := gotorch.Try0(func() { distributed.FullyShard(c.net, c.opt) }); !errors.Is(err, gotorch.ValueError) {
				t.Error(c.name, err)
			}
		}
		model := distributed.FullyShard(net, options{Group: g, Units: net.units()})
		x, _ := samples(0, 0)
		if err := gotorch.Try0(func() { net.Blocks[0].Forward(gotorch.Ones([]int64{2, 6})) }); !errors.Is(err, gotorch.RuntimeError) {
			t.Error("past its hooks", err)
		}
		if err := gotorch.Try0(func() { net.Forward(x) }); !errors.Is(err, gotorch.RuntimeError) {
			t.Error("past the whole", err)
		}
		out := model.Forward(x).Sum()
		if err := gotorch.Try0(func() { gotorch.Grad(list(out), list(net.Norm.Bias), gotorch.GradOptions{CreateGraph: true}) }); !errors.Is(err, gotorch.NotImplementedError) {
			t.Error("twice", err)
		}
		out = model.Forward(x).Sum()
		gotorch.NoGrad(func() { net.Blocks[1].Up.Weight.AddScalar_(1) })
		if err := gotorch.Try0(func() { out.Backward() }); !errors.Is(err, gotorch.RuntimeError) {
			t.Error("changed", err)
		}
		bad := model.FullStateDict()
		net.To(gotorch.Float64)
		if err := gotorch.Try0(func() { model.Forward(x) }); !errors.Is(err, gotorch.ValueError) {
			t.Error("converted", err)
		}
		bad["norm.bias"] = gotorch.Zeros([]int64{5})
		var state *nn.StateDictError
		if err := model.LoadFullStateDict(bad); !errors.As(err, &state) || !slices.Equal(state.Mismatched[0].Want, []int64{6}) {
			t.Error(err)
		}
	})
}

func list(ts ...gotorch.Tensor) []gotorch.Tensor { return ts }

// A checkpoint around a unit gathers it again when it is computed again.
func TestShardsWithinCheckpoints(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		var want nn.StateDict
		for _, checkpoints := range []bool{false, true} {
			net := newFrom(t, start)
			model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
			x, y := samples(g.Rank(), 0)
			model.Around(func() {
				h := net.Embed.Forward(x)
				for _, b := range net.Blocks {
					if checkpoints {
						h = gotorch.Checkpoint(func(h gotorch.Tensor) gotorch.Tensor { return nn.Call(b, h) }, h)
					} else {
						h = nn.Call(b, h)
					}
				}
				y = loss(net.Head.Forward(net.Norm.Forward(h)), y)
			})
			y.Backward()
			got := nn.StateDict{}
			for name, p := range net.NamedParameters() {
				got[name] = p.Grad()
			}
			if want != nil {
				sameState(t, "checkpoints", got, want)
			}
			want = got
		}
	})
}

// What is frozen, what no rank uses and what one rank uses.
func TestShardsThatAreNotTrained(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		a, b, c := nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
		spare := gotorch.Ones([]int64{4})
		net := nn.Init(&struct {
			nn.Module
			Layers []*nn.LinearModule
			Spare  gotorch.Tensor
			Lent   gotorch.Tensor
			Both   gotorch.Tensor
		}{Layers: []*nn.LinearModule{a, b, c}, Spare: spare, Lent: gotorch.Ones([]int64{4}), Both: gotorch.Ones([]int64{4})})
		b.RequiresGrad_(false)
		a.Weight.RequiresGrad_(false)
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: []nn.Modular{a, b, c}})
		a.RegisterForwardPreHook(func(nn.Modular, []gotorch.Tensor) []gotorch.Tensor {
			if a.Weight.RequiresGrad() || !a.Bias.RequiresGrad() {
				t.Error(g, a.Weight.RequiresGrad(), a.Bias.RequiresGrad())
			}
			return nil
		})
		var out gotorch.Tensor
		model.Around(func() {
			out = c.Forward(b.Forward(a.Forward(gotorch.Ones([]int64{2, 4})))).Mul(net.Both).Sum()
			if g.Rank() == 0 {
				out = out.Add(net.Lent.Sum())
			}
		})
		out.Backward()
		for name, p := range net.NamedParameters() {
			want := map[string]bool{"layers.0.bias": true, "layers.2.weight": true, "layers.2.bias": true, "lent": true, "both": true}[name]
			if p.Grad().Defined() != want {
				t.Error(g, name, p.Grad())
			}
		}
		if got := gotorch.ToSlice[float32](net.Lent.Grad()); !slices.Equal(got, []float32{0.5, 0.5}) {
			t.Error(got)
		}
	})
}

func TestStatesOfOptimizersAreWhole(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		make := func() (*distributed.FullySharded, optim.Optimizer) {
			net := newFrom(t, start)
			model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
			return model, optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.01, AMSGrad: true})
		}
		step := func(model *distributed.FullySharded, opt optim.Optimizer, n int) {
			x, y := samples(g.Rank(), n)
			opt.ZeroGrad()
			loss(model.Forward(x), y).Backward()
			if norm := gotorch.Item[float64](model.ClipGradNorm(0.1)); norm <= 0.1 {
				t.Error(norm)
			}
			opt.Step()
		}
		first, opt := make()
		step(first, opt, 0)
		step(first, opt, 1)
		model, state := first.FullStateDict(), first.FullOptimStateDict(opt)
		// A model that is not sharded takes it.
		alone := newFrom(t, model)
		testhelp.Must(t, optim.AdamW(alone.Parameters(), optim.AdamWOptions{LR: 0.01, AMSGrad: true}).LoadStateDict(state))
		second, opt2 := make()
		testhelp.Must(t, second.LoadFullStateDict(model))
		testhelp.Must(t, second.LoadFullOptimStateDict(opt2, state))
		step(first, opt, 2)
		step(second, opt2, 2)
		sameState(t, "after", second.FullStateDict(), first.FullStateDict())
		if other := optim.SGD(alone.Parameters(), optim.SGDOptions{LR: 1}); !errors.Is(gotorch.Try0(func() { first.FullOptimStateDict(other) }), gotorch.ValueError) {
			t.Error("another's optimiser")
		}
	})
}

// TestNormsOfPartsAreThoseOfTheWhole with each kind of norm.
func TestNormsOfPartsAreThoseOfTheWhole(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	alone := newFrom(t, start)
	x, y := samples(0, 0)
	loss(alone.Forward(x), y).Backward()
	norm := func(p gotorch.Scalar) float64 {
		var grads []gotorch.Tensor
		for _, p := range alone.Parameters() {
			grads = append(grads, p.Grad())
		}
		return gotorch.Item[float64](utils.GetTotalNorm(grads, utils.ClipGradNormOptions{NormType: p}))
	}
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		net := newFrom(t, start)
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
		loss(model.Forward(x), y).Backward()
		for _, p := range []gotorch.Scalar{nil, 1, 2.5, math.Inf(1)} {
			want := norm(p)
			got := gotorch.Item[float64](model.ClipGradNorm(1e9, utils.ClipGradNormOptions{NormType: p}))
			if math.Abs(got-want) > 1e-5*want {
				t.Error(g, p, got, want)
			}
		}
		if err := gotorch.Try0(func() { model.ClipGradNorm(1, utils.ClipGradNormOptions{NormType: 0}) }); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
	})
}

// In half of the bytes, units compute in bfloat16 and the parts stay as they are.
func TestShardsInAnotherDType(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := newFrom(t, start)
		model := distributed.FullyShard(net, distributed.FullyShardOptions{
			Group: g, Units: net.units(), ParamDType: gotorch.BFloat16, ReduceDType: gotorch.Float32,
		})
		x, y := samples(0, 0)
		out := model.Forward(x)
		if out.DType() != gotorch.BFloat16 {
			t.Error(out.DType())
		}
		loss(out, y).Backward()
		half := newFrom(t, start)
		half.To(gotorch.BFloat16)
		loss(half.Forward(x), y).Backward()
		whole := map[string]gotorch.Tensor{}
		for name, p := range half.NamedParameters() {
			whole[name] = p.Grad().To(gotorch.Float32)
		}
		for name, p := range net.NamedParameters() {
			rows := (whole[name].Size(0) + 1) / 2
			first := min(rows*int64(g.Rank()), whole[name].Size(0))
			want := whole[name].Narrow(0, first, min(rows, whole[name].Size(0)-first))
			if p.DType() != gotorch.Float32 || !gotorch.Equal(p.Grad(), want) {
				t.Error(g, name, p.DType(), p.Grad(), want)
			}
		}
	})
}

func TestNothingIsLeftOfShards(t *testing.T) {
	count := func() int64 {
		runtime.GC()
		runtime.GC()
		return gotorch.MemoryStats().LiveHandles
	}
	before := count()
	for _, opt := range []distributed.FullyShardOptions{{}, {NoPrefetch: true}, {NoReshardAfterForward: true}, {ParamDType: gotorch.BFloat16}} {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			opt := opt
			net := newTied()
			opt.Group, opt.Units = g, net.units()
			model := distributed.FullyShard(net, opt)
			for step := range 3 {
				x, y := samples(g.Rank(), step)
				model.Forward(x) // of which there is no backward pass
				gotorch.NoGrad(func() { model.Forward(x) })
				out := loss(model.Forward(x), y)
				out.Backward(gotorch.BackwardOptions{RetainGraph: new(true)})
				out.Backward()
				model.NoSync(func() { loss(model.Forward(x), y).Backward() })
			}
			if g.Rank() == 0 {
				model.FullStateDict()
			} else {
				model.FullStateDict(distributed.FullStateOptions{RankZeroOnly: true})
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

// A weight of two units is whole while any computes.
func TestAWeightOfTwoShards(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	tie := func(net *tied) *tied {
		net.Blocks[2].Up.Weight = net.Blocks[0].Up.Weight
		return net
	}
	alone := tie(newFrom(t, start))
	x, y := samples(0, 0)
	loss(alone.Forward(x), y).Backward()
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := tie(newFrom(t, start))
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
		loss(model.Forward(x), y).Backward()
		for name, p := range net.NamedParameters() {
			whole := map[string]gotorch.Tensor{}
			for n, q := range alone.NamedParameters() {
				whole[n] = q.Grad()
			}
			rows := (whole[name].Size(0) + 1) / 2
			first := min(rows*int64(g.Rank()), whole[name].Size(0))
			want := whole[name].Narrow(0, first, min(rows, whole[name].Size(0)-first))
			if !p.Grad().AllClose(want, gotorch.AllCloseOptions{ATol: new(1e-6)}) {
				t.Error(g, name, p.Grad(), want)
			}
		}
	})
}

// What a hook changes of a unit that comes next, that unit sees.
func TestShardsSeeWhatChangesBeforeTheyCompute(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := newTied()
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
		x, _ := samples(0, 0)
		model.Forward(x) // which the next call takes the order from
		net.Blocks[0].RegisterForwardHook(func(nn.Modular, []gotorch.Tensor, []gotorch.Tensor) []gotorch.Tensor {
			gotorch.NoGrad(func() { net.Blocks[1].Scale.Fill_(7) })
			return nil
		})
		var seen gotorch.Tensor
		net.Blocks[1].RegisterForwardPreHook(func(nn.Modular, []gotorch.Tensor) []gotorch.Tensor {
			seen = net.Blocks[1].Scale.Detach().Clone()
			return nil
		})
		model.Forward(x)
		if got := gotorch.Item[float64](seen); got != 7 {
			t.Error(g, got)
		}
	})
}

// settledBytes is how much memory tensors take when what was dropped is freed, which is some time after a collection.
func settledBytes() (now int64) {
	for last := int64(-1); now != last; {
		last = now
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
		now = gotorch.MemoryStats().NativeBytes
	}
	return now
}

// Parameters that come in several exchanges, and several that come in one.
func TestShardsOfSeveralPiecesAreTheWhole(t *testing.T) {
	oneThread(t)
	made := func() *nn.SequentialModule {
		return nn.Sequential(nn.Linear(300, 1003), nn.Linear(1003, 301), nn.Linear(301, 400), nn.LayerNorm([]int64{400}), nn.Linear(400, 600), nn.Linear(600, 2000))
	}
	alone := made()
	start := copies(alone.StateDict())
	x := gotorch.Randn([]int64{2, 300})
	want := gotorch.NoGrad1(func() gotorch.Tensor { return alone.Forward(x) })
	for _, n := range []int{2, 3} {
		rankstest.Run(t, n, distributed.Options{}, func(g *distributed.Group) {
			net := made()
			testhelp.Must(t, net.LoadStateDict(start))
			model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g})
			sameState(t, g.String(), model.FullStateDict(), start)
			if got := model.Forward(x); !gotorch.Equal(got, want) {
				t.Errorf("%v: %v, and want %v", g, got, want)
			}
		})
	}
}

func TestShardsOnDevicesAreTheWhole(t *testing.T) {
	distributed.AsOnDevices(func() {
		TestSmokeShardsAreTheWhole(t)
		TestShardsOfSeveralPiecesAreTheWhole(t)
		TestShardsInAnotherDType(t)
		TestNothingIsLeftOfShards(t)
	})
}

// A rank has its parts, and at most 3 units: one whose gradients are there, and are copied to be averaged, or which are not yet
// complete, so that it is whole; and one that comes. Gloo has pieces of what comes.
func TestMemoryOfAShardedRank(t *testing.T) {
	const width, layers, ranks, passes = 1536, 6, 2, 10
	const unit = 4 * width * width       // bytes
	const pieces = 3. * (2 << 20) / unit // two that Gloo receives and one that it begins to
	for _, c := range []struct {
		name               string
		frozen, noPrefetch bool
		most               float64 // units
	}{
		// Parts of parameters and of the gradients of all but the first unit, which is averaged last and before which none
		// comes, and 3 units.
		{"trained", false, false, (layers+layers-1)/2. + 3 + pieces},
		{"trained without what comes", false, true, (layers+layers)/2. + 2},
		// Nothing comes back in the backward pass that says that they are done.
		{"frozen", true, false, layers/2. + 2 + pieces},
		{"frozen without what comes", true, true, layers/2. + 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var starts []time.Time // of passes
			trace := profiler.Profile(func(*profiler.Profiler) {
				rankstest.Run(t, ranks, distributed.Options{}, func(g *distributed.Group) {
					var stack []nn.Layer
					var units []nn.Modular
					for range layers {
						l := nn.Linear(width, width, nn.LinearOptions{NoBias: true})
						l.RequiresGrad_(!c.frozen)
						stack, units = append(stack, l), append(units, l)
					}
					model := distributed.FullyShard(nn.Sequential(stack...), distributed.FullyShardOptions{Group: g, Units: units, NoPrefetch: c.noPrefetch})
					for range passes + 1 {
						runtime.GC()
						g.Barrier()
						if g.Rank() == 0 {
							starts = append(starts, time.Now())
						}
						g.Barrier()
						gotorch.Scope0(func(*gotorch.ScopeHandle) {
							model.Forward(gotorch.Ones([]int64{1, width}).RequiresGrad_()).Sum().Backward()
							model.ZeroGrad()
						})
					}
				})
			}, profiler.Options{ProfileMemory: true})
			// A thread of Gloo lets go of what it has received some time after it was asked for, so the pass counts that had least.
			least := int64(math.MaxInt64)
			for i, start := range starts[1:] { // the first has no order by which units come
				end := trace.Start.Add(trace.Duration)
				if i+2 < len(starts) {
					end = starts[i+2]
				}
				var most int64
				for _, a := range trace.Allocations() {
					if at := trace.Start.Add(a.At); at.After(start) && at.Before(end) {
						most = max(most, a.Total)
					}
				}
				least = min(least, most)
			}
			const small = 1 << 17 // bytes of activations and of what tells of gradients
			if got := float64(least-ranks*small) / ranks / unit; got > c.most {
				t.Errorf("%.3f units, and should be %v at most", got, c.most)
			}
			if got := float64(least) / ranks / unit; got < c.most-2 {
				t.Errorf("%.3f units, and should be %v: this measures nothing", got, c.most)
			}
		})
	}
}

// doubled changes its weight before it uses it.
type doubled struct {
	nn.Module
	Weight gotorch.Tensor
}

func (d *doubled) Forward(x gotorch.Tensor) gotorch.Tensor {
	gotorch.NoGrad(func() { d.Weight.MulScalar_(2) })
	return x.Mul(d.Weight).Mul(d.Weight.ViewAs(x)).Sum()
}

// What a call has changed in place is kept for the backward pass as it was used, and not fetched as it is elsewhere.
func TestShardsThatACallChangesAreKept(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Init(&doubled{Weight: gotorch.Ones([]int64{3})})
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g})
		x := gotorch.Ones([]int64{3}).RequiresGrad_()
		model.Forward(x).Backward()
		if got := gotorch.ToSlice[float32](x.Grad()); !slices.Equal(got, []float32{4, 4, 4}) {
			t.Error(g, got)
		}
	})
}

// paired takes its weights for complex numbers.
type paired struct {
	nn.Module
	Weight gotorch.Tensor
}

func (p *paired) Forward(x gotorch.Tensor) gotorch.Tensor {
	return gotorch.ViewAsReal(gotorch.ViewAsComplex(x).Mul(gotorch.ViewAsComplex(p.Weight)))
}

func TestShardsWhoseWeightsAreOfAnotherDTypeWithin(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		alone := nn.Init(&paired{Weight: gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6, 7, 8}).View([]int64{4, 2})})
		net := nn.Init(&paired{Weight: alone.Weight.Detach().Clone()})
		grad := func(m nn.Layer) gotorch.Tensor {
			x := gotorch.Ones([]int64{4, 2}).RequiresGrad_()
			m.Forward(x).Pow(2).Sum().Backward()
			return x.Grad()
		}
		want := grad(alone)
		if got := grad(distributed.FullyShard(net, distributed.FullyShardOptions{Group: g})); !gotorch.Equal(got, want) {
			t.Error(g, got, want)
		}
	})
}

// Units within a checkpoint save nothing, but for what the checkpoint does.
func TestACheckpointAroundShardsSavesNothing(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		after := func(call func(f func(gotorch.Tensor) gotorch.Tensor, x gotorch.Tensor) gotorch.Tensor) int64 {
			net := nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Tanh(), nn.Tanh())
			model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g})
			x := gotorch.Ones([]int64{1000, 8}).RequiresGrad_()
			before := settledBytes()
			gotorch.Scope0(func(scope *gotorch.ScopeHandle) { scope.Keep(call(model.Forward, x)) })
			return gotorch.MemoryStats().NativeBytes - before
		}
		plain := after(func(f func(gotorch.Tensor) gotorch.Tensor, x gotorch.Tensor) gotorch.Tensor { return f(x) })
		checkpointed := after(func(f func(gotorch.Tensor) gotorch.Tensor, x gotorch.Tensor) gotorch.Tensor {
			return gotorch.Checkpoint(f, x)
		})
		if checkpointed > plain-4*8000 { // the results of Tanh
			t.Errorf("%d bytes, and without a checkpoint %d", checkpointed, plain)
		}
	})
}

// A graph of before, which the collector may not have found yet, is in nobody's way.
func TestShardsOfParametersThatAreInAGraph(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		for _, dtype := range []gotorch.DType{gotorch.Float32, gotorch.Float64} {
			// The same on each rank, which share the default generator.
			random := gotorch.NewGenerator(gotorch.CPU)
			random.ManualSeed(1)
			first := nn.Linear(5, 7)
			n := nn.Sequential(first, nn.ReLU(), nn.Linear(7, 2))
			n.To(dtype)
			for _, p := range n.Parameters() {
				p.Detach().Normal_(gotorch.Normal_Options{Generator: random})
			}
			x := gotorch.RandnGenerator([]int64{4, 5}, random, gotorch.TensorOptions{DType: dtype})
			pass := func(forward func(gotorch.Tensor) gotorch.Tensor) (loss gotorch.Tensor) {
				n.ZeroGrad()
				loss = forward(x).Pow(2).Mean()
				loss.Backward(gotorch.BackwardOptions{RetainGraph: new(true)})
				return loss
			}
			losses := []gotorch.Tensor{pass(n.Forward)}
			want := first.Weight.Grad().Clone()
			for range 2 { // a whole one is shared out once more
				model := distributed.FullyShard(n, distributed.FullyShardOptions{Group: g, Units: []nn.Modular{first}})
				losses = append(losses, pass(model.Forward))
				model.Unshard()
				losses = append(losses, pass(n.Forward))
				if got := first.Weight.Grad(); !gotorch.AllClose(got, want) {
					t.Errorf("%v: got %v, want %v", dtype, got, want)
				}
			}
			for _, loss := range losses {
				loss.Close()
			}
		}
	})
}
