package distributed_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/swautils"
)

// Gradients that nobody has averaged are those of the whole on each rank, and a module that is given them goes on to the same bits.
func TestUnsyncedGradientsGoOn(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	for _, n := range []int{1, 2, 3} {
		rankstest.Run(t, n, distributed.Options{}, func(g *distributed.Group) {
			var finals []nn.StateDict
			for _, moved := range []bool{false, true} {
				net := newFrom(t, start)
				net.Blocks[1].Up.Bias.RequiresGrad_(false)
				opt := distributed.FullyShardOptions{Group: g, Units: net.units(), ReduceDType: gotorch.Float64}
				model := distributed.FullyShard(net, opt)
				if got := model.UnsyncedGradients(); len(got) != 0 {
					t.Error(g, got.Names())
				}
				pass := func(step int) {
					x, y := samples(g.Rank(), step)
					loss(model.Forward(x), y).Backward()
				}
				model.NoSync(func() { pass(0); pass(1) })
				unsynced := model.UnsyncedGradients()
				alone := newFrom(t, start)
				for step := range 2 {
					x, y := samples(g.Rank(), step)
					loss(alone.Forward(x), y).Backward()
				}
				for name, p := range alone.NamedParameters() {
					got := unsynced[name]
					if name == "blocks.1.up.bias" || got.T == nil {
						if got.T != nil || name != "blocks.1.up.bias" {
							t.Error(g, name, got)
						}
						continue
					}
					if got.DType() != gotorch.Float64 || !got.To(gotorch.Float32).AllClose(p.Grad()) {
						t.Error(g, name, got, p.Grad())
					}
				}
				if moved { // to another module, of which rank 0 alone is told by a file
					testhelp.Must(t, model.LoadUnsyncedGradients(nil))
					if got := model.UnsyncedGradients(); len(got) != 0 {
						t.Error(g, got.Names())
					}
					net = newFrom(t, start)
					net.Blocks[1].Up.Bias.RequiresGrad_(false)
					opt.Units = net.units()
					model = distributed.FullyShard(net, opt)
					testhelp.Must(t, model.LoadUnsyncedGradients(unsynced))
					sameState(t, "what was loaded", model.UnsyncedGradients(), unsynced)
				}
				pass(2)
				if got := model.UnsyncedGradients(); len(got) != 0 {
					t.Error(g, got.Names())
				}
				grads := nn.StateDict{}
				for name, p := range net.NamedParameters() {
					if p.Grad().Defined() {
						grads[name] = p.Grad()
					}
				}
				finals = append(finals, copies(grads))
				for _, wrong := range []nn.StateDict{
					{"no such": gotorch.Ones([]int64{1})},
					{"blocks.1.up.bias": gotorch.Ones([]int64{7})}, // not trained
					{"head.bias": gotorch.Ones([]int64{3})},
				} {
					if err := model.LoadUnsyncedGradients(wrong); !errors.Is(err, gotorch.ValueError) {
						t.Error(g, wrong, err)
					}
				}
			}
			sameState(t, "averaged", finals[1], finals[0])
		})
	}
}

// A scaler leaves a step out on all ranks where one's part is not finite, also in a loop by hand; and other parameters than those of a
// module ask nobody.
func TestScalersGoByAllParts(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		net := newTied()
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
		opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1})
		scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 8})
		step := func(bad bool) bool {
			opt.ZeroGrad()
			x, y := samples(g.Rank(), 0)
			gotorch.Scope0(func(*gotorch.ScopeHandle) { scaler.Scale(loss(model.Forward(x), y)).Backward() })
			if bad && g.Rank() == 1 {
				net.Embed.Weight.Grad().Fill_(math.Inf(1))
			}
			done := scaler.Step(opt)
			scaler.Update()
			return done
		}
		if !step(false) || step(true) || scaler.GetScale() != 4 || !step(false) {
			t.Error(g, scaler.GetScale())
		}
		if g.Rank() == 1 {
			p := gotorch.Ones([]int64{2}).RequiresGrad_()
			of, alone := optim.SGD([]gotorch.Tensor{p}), optim.NewGradScaler()
			alone.Scale(p.Sum()).Backward()
			if !alone.Step(of) {
				t.Error("a parameter of no module")
			}
		}
		model.Unshard()
		if g.Rank() == 2 { // alone again
			opt.ZeroGrad()
			x, y := samples(0, 0)
			scaler.Scale(loss(net.Forward(x), y)).Backward()
			if !scaler.Step(opt) {
				t.Error("after Unshard")
			}
		}
	})
}

// A norm that is not finite on one rank is an error of all.
func TestNormsThatAreNotFiniteAreErrorsOfAll(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := newTied()
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g})
		x, y := samples(g.Rank(), 0)
		loss(model.Forward(x), y).Backward()
		if g.Rank() == 1 {
			net.Embed.Weight.Grad().Fill_(math.NaN())
		}
		err := gotorch.Try0(func() { model.ClipGradNorm(1, utils.ClipGradNormOptions{ErrorIfNonfinite: true}) })
		if !errors.Is(err, gotorch.RuntimeError) {
			t.Error(g, err)
		}
	})
}

// A copy is a sharded module of its own, whose parts change without the original's, and whose norms go by all ranks.
func TestCopiesOfShards(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		net := newFrom(t, start)
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
		x, y := samples(g.Rank(), 0)
		model.NoSync(func() { loss(model.Forward(x), y).Backward() })
		unsynced := model.UnsyncedGradients()
		copied := nn.Clone(model)
		if n := len(copied.UnsyncedGradients()); n != 0 {
			t.Error(g, "the copy has gradients", n)
		}
		gotorch.NoGrad(func() {
			for _, p := range model.Parameters() {
				p.Zero_()
			}
		})
		sameState(t, "the copy", copied.FullStateDict(), start)
		alone := newFrom(t, start)
		if got, want := copied.Forward(x), alone.Forward(x); !gotorch.Equal(got, want) {
			t.Error(g, got, want)
		}
		loss(copied.Forward(x), y).Backward()
		for _, p := range model.Parameters() {
			if p.Grad().Defined() {
				t.Error(g, "the original has a gradient")
			}
		}
		for name, p := range copied.NamedParameters() {
			if !p.Grad().Defined() || !slices.Equal(p.Grad().Shape(), p.Shape()) {
				t.Error(g, name, "has no gradient")
			}
		}
		sameState(t, "the original's gradients", model.UnsyncedGradients(), unsynced)
		scaler, opt := optim.NewGradScaler(), optim.SGD(copied.Parameters(), optim.SGDOptions{LR: 0.1})
		scaler.Scale(gotorch.Ones(nil))
		if g.Rank() == 1 { // whose part the others do not see
			copied.Net.(*tied).Embed.Weight.Grad().Fill_(math.Inf(1))
		}
		if scaler.Step(opt) {
			t.Error(g, "a step was done with what is not finite on rank 1")
		}
		again := swautils.AveragedModel(copied) // a copy of the copy
		again.UpdateParameters(copied)
		sameState(t, "the average", again.Model.FullStateDict(), start)
		copied.Unshard()
		sameState(t, "whole again", copies(copied.Net.StateDict()), start)
		sameState(t, "the copy of what is whole", copies(nn.Clone(copied).Net.StateDict()), start)
		sameState(t, "the average", again.Model.FullStateDict(), start)
	})
}

// Buffers are rank 0's after SyncBuffers.
func TestBuffersOfShardsAreSynced(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		net := nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
		model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g})
		model.Forward(gotorch.Randn([]int64{5, 2}).AddScalar(g.Rank()))
		mine := net.StateDict()["1.running_mean"].Clone()
		g.Broadcast(mine, 0)
		model.SyncBuffers()
		if got := net.StateDict()["1.running_mean"]; !gotorch.Equal(got, mine) {
			t.Error(g, got, mine)
		}
		if model.Group() != g {
			t.Error("another group")
		}
	})
}
