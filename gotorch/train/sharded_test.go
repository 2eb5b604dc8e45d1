package train_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/distributed/checkpoint"
	"gotorch.dev/gotorch/internal/finalize"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/optim/swautils"
	"gotorch.dev/gotorch/train"
)

// drawn returns a network, the same each time. Its rows are none that ranks can share out evenly.
var drawn = func() func() *nn.SequentialModule {
	var mutex sync.Mutex
	var state nn.StateDict
	made := func() *nn.SequentialModule {
		return nn.Sequential(nn.Linear(2, 7), nn.LayerNorm([]int64{7}), nn.Tanh(), nn.Linear(7, 2))
	}
	return func() *nn.SequentialModule {
		mutex.Lock()
		defer mutex.Unlock()
		net := made()
		if state == nil {
			state = nn.StateDict{}
			for name, t := range net.StateDict() {
				state[name] = t.Clone()
			}
		}
		if err := net.LoadStateDict(state); err != nil {
			panic(err)
		}
		return net
	}
}()

func numbers(state nn.StateDict) map[string][]float64 {
	of := map[string][]float64{}
	for name, t := range state {
		of[name] = gotorch.ToSlice[float64](t.To(gotorch.CPU, gotorch.Float64))
	}
	return of
}

func sameNumbers(t *testing.T, what string, got, want map[string][]float64, within float64) {
	t.Helper()
	if !maps.EqualFunc(got, want, func(a, b []float64) bool {
		return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.Abs(x-y) <= within || math.IsNaN(x) && math.IsNaN(y) })
	}) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestAShardedLoopIsTheOneByHand, to the last bit, and that of DataParallel: to the last bit with two ranks where nothing is added up in
// another order.
func TestAShardedLoopIsTheOneByHand(t *testing.T) {
	oneThread(t)
	for _, size := range []int{1, 2, 3} {
		for _, clip := range []bool{false, true} {
			results := map[string]map[string][]float64{}
			for _, kind := range []string{"by hand", "sharded", "parallel"} {
				rankstest.Run(t, size, distributed.Options{}, func(g *distributed.Group) {
					model, whole, end := shared(g, drawn(), kind != "parallel")
					defer end()
					opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.05})
					schedule := lrscheduler.StepLR(opt, 3, lrscheduler.StepLROptions{Gamma: 0.5})
					set := points(72)
					loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 6, Sampler: data.DistributedSampler(set, size, g.Rank())})
					var losses []float64
					if kind == "by hand" {
						sharded := model.(*distributed.FullySharded)
						for epoch := range 2 {
							loader.SetEpoch(epoch)
							step := 0
							for batch, err := range loader.All() {
								testhelp.Must(t, err)
								pass := func() {
									loss := nn.CrossEntropyLoss().Forward(sharded.Forward(batch.Input), batch.Target)
									loss.DivScalar(2).Backward()
									loss = loss.Detach().To(gotorch.Float64)
									g.AllReduce(loss, distributed.Sum)
									losses = append(losses, gotorch.Item[float64](loss)/float64(size))
								}
								if step++; step%2 == 1 {
									opt.ZeroGrad()
									sharded.NoSync(pass)
									continue
								}
								pass()
								if clip {
									sharded.ClipGradNorm(0.1)
								}
								opt.Step()
								schedule.Step()
							}
						}
					} else {
						loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
						loop.Distributed(g)
						loop.Accumulate(2)
						if clip {
							loop.ClipGradNorm(0.1)
						}
						loop.Schedule(schedule, train.PerStep)
						history, err := loop.Run(t.Context(), loader, train.Epochs(2))
						if err != nil {
							t.Error(kind, err)
						}
						losses = history.Losses
					}
					if state := whole(); g.Rank() == 0 {
						results[kind] = numbers(state)
						results[kind]["losses"] = losses
					}
				})
			}
			what := fmt.Sprintf("%d ranks, clip %v", size, clip)
			if len(results["by hand"]["losses"]) != 2*72/6/size {
				t.Fatal(what, len(results["by hand"]["losses"]))
			}
			// The history's losses are means of float64, added up in the ranks' order.
			sameNumbers(t, what+": losses", map[string][]float64{"": results["sharded"]["losses"]}, map[string][]float64{"": results["by hand"]["losses"]}, 1e-15)
			delete(results["sharded"], "losses")
			delete(results["by hand"], "losses")
			sameNumbers(t, what+": the loop's", results["sharded"], results["by hand"], 0)
			within := 0.0
			if clip || size > 2 {
				within = 1e-5
			}
			delete(results["parallel"], "losses")
			sameNumbers(t, what+": DataParallel's", results["sharded"], results["parallel"], within)
		}
	}
}

// TestAShardedModelIsValidated: each sample counts once, and all ranks compute equally often, also where one has a batch less or no
// sample at all.
func TestAShardedModelIsValidated(t *testing.T) {
	oneThread(t)
	for _, shard := range []bool{true, false} {
		for _, c := range []struct {
			size int
			n    int64
		}{{1, 30}, {2, 513}, {2, 512}, {3, 769}, {3, 2}, {3, 1}} {
			set := points(c.n)
			var want []train.Value
			net := drawn()
			want, err := train.Evaluate(t.Context(), net, set, train.Accuracy)
			testhelp.Must(t, err)
			rankstest.Run(t, c.size, distributed.Options{}, func(g *distributed.Group) {
				model, _, end := shared(g, drawn(), shard)
				defer end()
				loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 1e-30}), nn.CrossEntropyLoss())
				loop.Distributed(g)
				seen := 0
				loop.OnEpoch(train.Validate(set, train.Accuracy, train.Metric{Name: "seen", Sum: func(_, target gotorch.Tensor) (float64, int) {
					seen += int(target.Size(0))
					return float64(target.Size(0)), 1
				}}))
				history, err := loop.Run(t.Context(), data.NewLoader(points(int64(4*c.size)), data.LoaderOptions{BatchSize: 4}), train.Epochs(1))
				if err != nil {
					t.Error(c, g, err)
					return
				}
				if got := history.Last("val_accuracy"); got != want[0].Value {
					t.Error(c, g, got, want)
				}
				if each := (int(c.n) - g.Rank() + c.size - 1) / c.size; seen != each {
					t.Error(c, g, "looked at", seen, "and not", each)
				}
			})
		}
	}
}

// TestAValidationThatFailsOnOneRankEndsAll, and no rank waits for another within the model.
func TestAValidationThatFailsOnOneRankEndsAll(t *testing.T) {
	for _, where := range []string{"the set", "a metric"} {
		rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
			model, _, end := shared(g, drawn(), true)
			defer end()
			loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
			loop.Distributed(g)
			var set data.Dataset[data.Pair] = points(3 * 300)
			if where == "the set" && g.Rank() == 1 {
				set = failing{points(3 * 300), 1 + 3*256, false} // in its second batch
			}
			loop.OnEpoch(train.Validate(set, train.Metric{Name: "m", Sum: func(_, _ gotorch.Tensor) (float64, int) {
				if where == "a metric" && g.Rank() == 1 {
					panic(&gotorch.Error{Op: "metric", Kind: gotorch.ValueError, Msg: "broken"})
				}
				return 1, 1
			}}))
			history, err := loop.Run(t.Context(), data.NewLoader(points(30), data.LoaderOptions{BatchSize: 10}), train.Epochs(1))
			var of *train.RankError
			switch {
			case g.Rank() != 1 && (!errors.As(err, &of) || of.Rank != 1):
				t.Error(where, g, err)
			case g.Rank() == 1 && !errors.Is(err, errDisk) && !errors.Is(err, gotorch.ValueError):
				t.Error(where, g, err)
			case len(history.Epochs[0].Metrics) != 0:
				t.Error(where, g, history.Epochs)
			}
		})
	}
}

// TestSetsOfOtherSizesAreNotValidated, as ranks would compute more often than others.
func TestSetsOfOtherSizesAreNotValidated(t *testing.T) {
	for _, shard := range []bool{false, true} {
		rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
			model, _, end := shared(g, drawn(), shard)
			defer end()
			loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
			loop.Distributed(g)
			loop.OnEpoch(train.Validate(points(20 + 1000*int64(g.Rank()/2))))
			_, err := loop.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(1))
			var of *train.RankError
			if !errors.As(err, &of) || of.Rank != 2 {
				t.Error(g, err)
			}
		})
	}
}

// TestTheCauseOfWhatIsNotFiniteIsFoundInShards, which no rank has whole.
func TestTheCauseOfWhatIsNotFiniteIsFoundInShards(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(g *distributed.Group, net *nn.SequentialModule, batch data.Pair) data.Pair
		part  train.NonFinitePart
		of    string
		all   bool // ranks have the error
	}{
		{"a parameter of rank 1", func(g *distributed.Group, net *nn.SequentialModule, batch data.Pair) data.Pair {
			if g.Rank() == 1 {
				gotorch.NoGrad(func() { net.Parameters()[0].Fill_(math.NaN()) })
			}
			return batch
		}, train.NonFiniteParameter, "module.0.weight", true},
		{"rank 1's input", func(g *distributed.Group, _ *nn.SequentialModule, batch data.Pair) data.Pair {
			if g.Rank() == 1 {
				batch.Input = batch.Input.MulScalar(math.Inf(1))
			}
			return batch
		}, train.NonFiniteInput, "", false},
		{"a module on rank 1", func(g *distributed.Group, _ *nn.SequentialModule, batch data.Pair) data.Pair {
			if g.Rank() == 1 {
				batch.Input = gotorch.Full(batch.Input.Shape(), 3e38)
			}
			return batch
		}, train.NonFiniteModule, "module.0", false},
	} {
		errs := make([]error, 2)
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			net := drawn()
			gotorch.NoGrad(func() { net.Parameters()[0].Mul_(gotorch.FromScalar(1000)) })
			model, _, end := shared(g, net, true)
			defer end()
			loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
			loop.Distributed(g)
			loop.StopAtNonFinite()
			number := 0
			batches := spoiled{data.NewLoader(points(40), data.LoaderOptions{BatchSize: 10}), func(b data.Pair) data.Pair {
				if number++; number == 3 {
					return c.spoil(g, net, b)
				}
				return b
			}}
			_, errs[g.Rank()] = loop.Run(t.Context(), batches, train.Epochs(1))
			for _, p := range model.Parameters() {
				if p.Grad().Defined() {
					t.Error(c.name, "a gradient is left")
				}
			}
		})
		for rank, err := range errs {
			var bad *train.NonFiniteError
			var other *train.RankError
			switch {
			case (rank == 1 || c.all) && (!errors.As(err, &bad) || bad.Part != c.part || bad.Name != c.of || bad.Step != 3):
				t.Errorf("%s, rank %d: %v", c.name, rank, err)
			case rank == 0 && !c.all && !errors.As(err, &other):
				t.Errorf("%s, rank %d: %v", c.name, rank, err)
			}
		}
	}
}

// spoiled are batches that are changed.
type spoiled struct {
	*data.Loader[data.Pair]
	change func(data.Pair) data.Pair
}

func (s spoiled) All() iter.Seq2[data.Pair, error] {
	return func(yield func(data.Pair, error) bool) {
		for b, err := range s.Loader.All() {
			if !yield(s.change(b), err) {
				return
			}
		}
	}
}

// TestGradientsThatAreNotFiniteAreAllRanks: each has the names of all, and no parameter has changed.
func TestGradientsThatAreNotFiniteAreAllRanks(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		model, whole, end := shared(g, drawn(), true)
		defer end()
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		loop.StopAtNonFinite()
		loop.OnBackward(func(s *train.Step) error {
			if s.Number == 2 && g.Rank() == 1 { // rank 1's part of one, which rank 0 does not see
				model.Parameters()[0].Grad().Fill_(math.Inf(1))
			}
			return nil
		})
		var after map[string][]float64
		loop.OnStep(func(s *train.Step) error {
			after = numbers(whole())
			return nil
		})
		_, err := loop.Run(t.Context(), data.NewLoader(points(40), data.LoaderOptions{BatchSize: 10}), train.Epochs(1))
		var bad *train.NonFiniteError
		if !errors.As(err, &bad) || bad.Step != 2 || !slices.Equal(bad.Gradients, []string{"module.0.weight"}) {
			t.Error(g, err)
		}
		sameNumbers(t, "parameters", numbers(whole()), after, 0)
	})
}

// TestARunBeginsWithoutGradients that another had added up, and nobody averaged.
func TestARunBeginsWithoutGradients(t *testing.T) {
	oneThread(t)
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		var states []map[string][]float64
		for _, before := range []bool{false, true} {
			model, whole, end := shared(g, drawn(), true)
			defer end()
			run := func(ctx context.Context, cancel func()) error {
				loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
				loop.Distributed(g)
				loop.Accumulate(2)
				loop.OnStep(func(*train.Step) error {
					cancel()
					return nil
				})
				_, err := loop.Run(ctx, data.NewLoader(points(40), data.LoaderOptions{BatchSize: 10}), train.Epochs(1))
				return err
			}
			if before {
				ctx, cancel := context.WithCancel(t.Context())
				loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
				loop.Distributed(g)
				loop.Accumulate(4)
				loop.OnStep(func(*train.Step) error {
					cancel()
					return nil
				})
				if _, err := loop.Run(ctx, data.NewLoader(points(40), data.LoaderOptions{BatchSize: 10}), train.Epochs(1)); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if len(model.(*distributed.FullySharded).UnsyncedGradients()) == 0 {
					t.Error("no gradient is left, and one is to be")
				}
			}
			testhelp.Must(t, run(t.Context(), func() {}))
			states = append(states, numbers(whole()))
		}
		sameNumbers(t, "the second run", states[1], states[0], 0)
	})
}

// TestValidationGoesByTheBuffersOfRank0, which are each rank's own while it learns.
func TestValidationGoesByTheBuffersOfRank0(t *testing.T) {
	var means [2][]float64
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		norm := nn.BatchNorm1d(7)
		model, _, end := shared(g, nn.Sequential(nn.Linear(2, 7), norm, nn.Linear(7, 2)), true)
		defer end()
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		set := points(40)
		var own []float64
		loop.OnStep(func(*train.Step) error {
			own = gotorch.ToSlice[float64](norm.RunningMean.To(gotorch.Float64))
			return nil
		})
		loop.OnEpoch(train.Validate(set, train.Metric{Name: "m", Sum: func(_, _ gotorch.Tensor) (float64, int) {
			means[g.Rank()] = gotorch.ToSlice[float64](norm.RunningMean.To(gotorch.Float64))
			return 1, 1
		}}))
		loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 5, Sampler: data.DistributedSampler(set, 2, g.Rank())})
		if _, err := loop.Run(t.Context(), loader, train.Epochs(1)); err != nil {
			t.Error(err)
		}
		if slices.Equal(own, means[g.Rank()]) != (g.Rank() == 0) {
			t.Error(g, own, means[g.Rank()])
		}
	})
	if !slices.Equal(means[0], means[1]) {
		t.Error(means)
	}
}

// TestEachRankGoesOnWithItsBuffers, which are of its own batches; a rank that was not there has rank 0's.
func TestEachRankGoesOnWithItsBuffers(t *testing.T) {
	oneThread(t)
	run := func(folder string, size, steps int) [3][]float64 {
		var means [3][]float64
		rankstest.Run(t, size, distributed.Options{}, func(g *distributed.Group) {
			gotorch.ManualSeed(7)
			norm := nn.BatchNorm1d(2)
			model, _, end := shared(g, nn.Sequential(norm, nn.Linear(2, 2)), true)
			defer end()
			loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
			loop.Distributed(g)
			loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
			set := points(60)
			loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 5, Sampler: data.DistributedSampler(set, size, g.Rank())})
			if _, err := loop.Run(t.Context(), loader, train.Steps(steps)); err != nil {
				t.Error(err)
			}
			means[g.Rank()] = gotorch.ToSlice[float64](norm.RunningMean.To(gotorch.Float64))
		})
		return means
	}
	want := run(t.TempDir(), 2, 5)
	folder := t.TempDir()
	run(folder, 2, 2)
	got := run(folder, 2, 5)
	for rank := range 2 {
		if !slices.Equal(got[rank], want[rank]) {
			t.Error(rank, got[rank], want[rank])
		}
	}
	if slices.Equal(got[0], got[1]) {
		t.Error("both have seen the same")
	}
	for rank, of := range run(folder, 3, 5) { // nothing is left to do
		if !slices.Equal(of, got[0]) {
			t.Error(rank, of, got[0])
		}
	}
}

// TestAModelThatFailsOnOneRankWhileItIsValidated: that rank leaves, and the others notice.
func TestAModelThatFailsOnOneRankWhileItIsValidated(t *testing.T) {
	errs := make([]error, 2)
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		net := drawn()
		net.RegisterForwardPreHook(func(m nn.Modular, _ []gotorch.Tensor) []gotorch.Tensor {
			if g.Rank() == 1 && !m.Training() {
				panic(&gotorch.Error{Op: "model", Kind: gotorch.ValueError, Msg: "broken"})
			}
			return nil
		})
		model, _, end := shared(g, net, true)
		defer end()
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		loop.OnEpoch(train.Validate(points(20)))
		_, errs[g.Rank()] = loop.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(1))
	})
	if !errors.Is(errs[1], gotorch.ValueError) || !errors.Is(errs[0], distributed.NetworkError) {
		t.Error(errs)
	}
}

// TestAScalerOfShardsGoesByAllRanks: what overflows in one rank's part has all leave the step out.
func TestAScalerOfShardsGoesByAllRanks(t *testing.T) {
	scales := make([][]float64, 3)
	states := make([]map[string][]float64, 3)
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		model, whole, end := shared(g, drawn(), true)
		defer end()
		scaler := optim.NewGradScaler(optim.GradScalerOptions{InitScale: 1024, GrowthInterval: 3})
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		loop.Scale(scaler)
		remove := model.Parameters()[0].RegisterPostAccumulateGradHook(func(p gotorch.Tensor) {
			if g.Rank() == 2 && len(scales[2]) == 2 { // of its part alone
				p.Grad().Fill_(math.Inf(1))
			}
		})
		defer remove.Remove()
		loop.OnStep(func(*train.Step) error {
			scales[g.Rank()] = append(scales[g.Rank()], scaler.GetScale())
			return nil
		})
		if _, err := loop.Run(t.Context(), data.NewLoader(points(80), data.LoaderOptions{BatchSize: 10}), train.Epochs(1)); err != nil {
			t.Error(err)
		}
		states[g.Rank()] = numbers(whole())
	})
	for rank := range scales {
		if !slices.Equal(scales[rank], []float64{1024, 1024, 512, 512, 512, 1024, 1024, 1024}) {
			t.Error(rank, scales[rank])
		}
		for name, values := range states[rank] {
			if slices.ContainsFunc(values, math.IsNaN) {
				t.Error(rank, name, values)
			}
		}
	}
}

// TestAveragesOfShardsAreThoseOfTheWhole, in the run, in its checkpoints, and in one that goes on.
func TestAveragesOfShardsAreThoseOfTheWhole(t *testing.T) {
	oneThread(t)
	set := points(48)
	run := func(g *distributed.Group, shard bool, folder string, steps int) (average map[string][]float64, answers []float64) {
		model, _, end := shared(g, drawn(), shard)
		defer end()
		opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1, Momentum: 0.9})
		loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
		loop.Distributed(g)
		x := gotorch.Linspace(-1, 1, 8).View([]int64{4, 2})
		var forward func(x gotorch.Tensor) gotorch.Tensor
		var state func() nn.StateDict
		ema := swautils.AveragedModelOptions{MultiAvgFn: swautils.GetEMAMultiAvgFn(swautils.EMAOptions{Decay: 0.7})}
		if sharded, is := model.(*distributed.FullySharded); is {
			a := swautils.AveragedModel(sharded, ema)
			train.Average(loop, sharded, a, train.PerStep)
			forward, state = a.Forward, func() nn.StateDict { return a.Model.FullStateDict() }
		} else {
			net := model.(*distributed.DistributedDataParallel).Net.(*nn.SequentialModule)
			a := swautils.AveragedModel(net, ema)
			train.Average(loop, net, a, train.PerStep)
			forward, state = a.Forward, func() nn.StateDict { return a.Model.StateDict() }
		}
		loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true, Steps: 1})
		loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 6, Sampler: data.DistributedSampler(set, g.Size(), g.Rank())})
		if _, err := loop.Run(t.Context(), loader, train.Steps(steps)); err != nil {
			t.Error(err)
		}
		gotorch.NoGrad(func() { answers = gotorch.ToSlice[float64](forward(x).Flatten().To(gotorch.Float64)) })
		return numbers(state()), answers
	}
	all := map[string]map[string][]float64{}
	parallel := t.TempDir()
	for what, c := range map[string]struct {
		shard  bool
		folder string
		steps  []int
	}{
		"parallel": {false, parallel, []int{7}},
		"sharded":  {true, t.TempDir(), []int{7}},
		"parts":    {true, t.TempDir(), []int{2, 3, 7}},
	} {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			for _, steps := range c.steps {
				state, answers := run(g, c.shard, c.folder, steps)
				if g.Rank() == 0 {
					all[what] = state
					all[what]["answers"] = answers
				}
			}
		})
	}
	sameNumbers(t, "sharded", all["sharded"], all["parallel"], 1e-6)
	sameNumbers(t, "in parts", all["parts"], all["sharded"], 0)
	// A run of another kind goes on from either.
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		state, answers := run(g, true, parallel, 7)
		state["answers"] = answers
		sameNumbers(t, "loaded", state, all["parallel"], 1e-6)
	})
	// What rank 0 alone has is not averaged by mistake.
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		net := drawn()
		model, _, _ := shared(g, net, true)
		loop := train.NewLoop(model, optim.SGD(model.Parameters()), nn.CrossEntropyLoss())
		err := gotorch.Try0(func() { train.Average(loop, net, swautils.AveragedModel(net), train.PerStep) })
		if !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
	})
}

// TestFoldersThatAreKept: the latest and the best, no other, and nothing that is not the run's.
func TestFoldersThatAreKept(t *testing.T) {
	folder := t.TempDir()
	// Ranks that were killed have left parts, and one was killed while it removed.
	for _, name := range []string{"step-00000001/__0_0.distcp", "step-00000002/__1_0.distcp", "step-00000099/__0_0.distcp", "step-00000003/mine.txt", "step-7/.metadata"} {
		testhelp.Must(t, os.MkdirAll(filepath.Join(folder, filepath.Dir(name)), 0o777))
		testhelp.Must(t, os.WriteFile(filepath.Join(folder, name), []byte("torn"), 0o666))
	}
	if got, err := train.LatestCheckpoint(folder); got != "" || err != nil {
		t.Fatal(got, err)
	}
	testhelp.Must(t, os.WriteFile(filepath.Join(folder, "best.pt"), nil, 0o666))
	losses := []float64{5, 3, 4, 6}
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		model, _, end := shared(g, drawn(), true)
		defer end()
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		loop.OnEpoch(func(e *train.Epoch) error {
			e.Record("number", losses[e.Number-1])
			return nil
		})
		loop.Checkpoints(folder, train.CheckpointsOptions{Best: "number", Keep: 2})
		if _, err := loop.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(4)); err != nil {
			t.Error(err)
		}
	})
	var names []string
	entries, err := os.ReadDir(folder)
	testhelp.Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"best", "step-00000003", "step-00000006", "step-00000008", "step-7"}; !slices.Equal(names, want) {
		t.Error(names)
	}
	if latest, err := train.LatestCheckpoint(folder); err != nil || filepath.Base(latest) != "step-00000008" {
		t.Error(latest, err)
	}
	best, err := checkpoint.Read(filepath.Join(folder, "best"))
	testhelp.Must(t, err)
	loop := best.Get("loop").(gotorch.Tuple)[0].(gotorch.Dict).Get("train").(gotorch.Dict)
	if loop.Get("step") != int64(4) || loop.Get("best") != 3.0 {
		t.Error(loop.Get("step"), loop.Get("best"))
	}
	// One process reads it, into a model that is whole, or goes on.
	net := drawn()
	testhelp.Must(t, train.LoadCheckpoint(filepath.Join(folder, "best"), net, optim.SGD(net.Parameters())))
	saved := nn.StateDict{}
	for name, value := range best.Get("model_state_dict").(gotorch.Dict).All() {
		saved[name.(string)] = value.(gotorch.Tensor)
	}
	sameNumbers(t, "read", numbers(net.StateDict()), numbers(saved), 0)
	if numbers(net.StateDict())["0.weight"][0] == numbers(drawn().StateDict())["0.weight"][0] {
		t.Error("nothing was learnt")
	}
	narrow := nn.Sequential(nn.Linear(2, 7), nn.LayerNorm([]int64{7}), nn.Tanh(), nn.Linear(7, 3))
	was := numbers(copiesOf(narrow.StateDict()))
	if err := train.LoadCheckpoint(filepath.Join(folder, "best"), narrow, optim.SGD(narrow.Parameters())); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	sameNumbers(t, "what does not fit", numbers(narrow.StateDict()), was, 0)
	alone := t.TempDir()
	testhelp.Must(t, os.CopyFS(alone, os.DirFS(folder)))
	net = drawn()
	single := train.NewLoop(net, optim.SGD(net.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
	single.OnEpoch(func(e *train.Epoch) error {
		e.Record("number", 1)
		return nil
	})
	single.Checkpoints(alone, train.CheckpointsOptions{Best: "number", Resume: true})
	history, err := single.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(5))
	if err != nil || len(history.Losses) != 10 || history.Epochs[1].Metrics[0].Value != 3 {
		t.Error(err, history)
	}
	names = nil
	entries, err = os.ReadDir(alone)
	testhelp.Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"best.pt", "step-00000003", "step-00000010.pt", "step-7"}; !slices.Equal(names, want) {
		t.Error(names)
	}
	// A folder that has a run is none for another.
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		model, _, end := shared(g, drawn(), true)
		defer end()
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		loop.Checkpoints(folder)
		if _, err := loop.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(4)); err == nil {
			t.Error("a second run writes into the folder of the first")
		}
	})
	// Nor is one that is damaged: all ranks have an error.
	testhelp.Must(t, os.Truncate(filepath.Join(folder, "step-00000008", "__1_0.distcp"), 10))
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		model, _, end := shared(g, drawn(), true)
		defer end()
		partsBefore := numbers(copiesOf(model.StateDict()))
		loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
		loop.Distributed(g)
		loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
		history, err := loop.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(9))
		if err == nil || len(history.Losses) > 0 && g.Rank() == 1 {
			t.Error(g, err, len(history.Losses))
		}
		if g.Rank() == 1 { // whose part it is
			sameNumbers(t, "what could not be loaded", numbers(copiesOf(model.StateDict())), partsBefore, 0)
		}
	})
}

func copiesOf(state nn.StateDict) nn.StateDict {
	of := nn.StateDict{}
	for name, t := range state {
		of[name] = t.Clone()
	}
	return of
}

// TestWhatCannotBeSavedIsAnErrorOfAll ranks, where one has no place for its part, and where they have no folder together.
func TestWhatCannotBeSavedIsAnErrorOfAll(t *testing.T) {
	for _, what := range []string{"no place", "apart"} {
		root := t.TempDir()
		testhelp.Must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o666))
		errs := make([]error, 2)
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			model, _, end := shared(g, drawn(), true)
			defer end()
			loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
			loop.Distributed(g)
			folder := filepath.Join(root, "run")
			if g.Rank() == 1 && what == "no place" {
				folder = filepath.Join(root, "file", "run")
			} else if g.Rank() == 1 {
				folder = filepath.Join(root, "other")
			}
			loop.Checkpoints(folder)
			_, errs[g.Rank()] = loop.Run(t.Context(), data.NewLoader(points(20), data.LoaderOptions{BatchSize: 10}), train.Epochs(2))
		})
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "rank 1") && rank == 0 {
				t.Errorf("%s: rank %d: %v", what, rank, err)
			}
		}
		if latest, err := train.LatestCheckpoint(filepath.Join(root, "run")); latest != "" || err != nil {
			t.Errorf("%s: %s, %v", what, latest, err)
		}
	}
}

// TestShardedLoopsThatAreRefused says what to do.
func TestShardedLoopsThatAreRefused(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		model, _, end := shared(g, drawn(), true)
		defer end()
		opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1})
		loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
		if _, err := loop.Run(t.Context(), data.NewLoader(points(20)), train.Epochs(1)); !errors.Is(err, gotorch.TypeError) || !strings.Contains(err.Error(), "Distributed") {
			t.Error(err)
		}
		other, err := g.New([]int{0, 1})
		testhelp.Must(t, err)
		defer other.Close()
		defer g.Barrier() // the other rank may still be connecting
		if err := gotorch.Try0(func() { loop.Distributed(other) }); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		loop = train.NewLoop(model, distributed.ZeroRedundancyOptimizer(g, opt), nn.CrossEntropyLoss())
		if err := gotorch.Try0(func() { loop.Distributed(g) }); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
	})
}

// TestTwoShardedModelsOfOneLoop are saved with the steps of a program's own, and go on.
func TestTwoShardedModelsOfOneLoop(t *testing.T) {
	oneThread(t)
	run := func(folder string, size, steps int, together bool) (result map[string][]float64, err error) {
		rankstest.Run(t, size, distributed.Options{}, func(g *distributed.Group) {
			a, wholeA, _ := shared(g, drawn(), true)
			b, wholeB, _ := shared(g, drawn(), true)
			optA := optim.Adam(a.Parameters(), optim.AdamOptions{LR: 0.01})
			optB := optim.SGD(b.Parameters(), optim.SGDOptions{LR: 0.1, Momentum: 0.9})
			if together {
				optA = optim.Adam(append(a.Parameters(), b.Parameters()...))
			}
			loop := train.NewStepLoop(func(s *train.StepOf[data.Pair]) error {
				optA.ZeroGrad()
				optB.ZeroGrad()
				loss := nn.CrossEntropyLoss().Forward(a.Forward(s.Batch.Input).Add(b.Forward(s.Batch.Input)), s.Batch.Target)
				loss.Backward()
				optA.Step()
				optB.Step()
				s.Record("loss", loss)
				return nil
			})
			loop.Add("a", a)
			loop.Add("b", b)
			loop.Add("optimizer_a", optA)
			loop.Add("optimizer_b", optB)
			loop.Distributed(g)
			loop.Checkpoints(folder, train.CheckpointsOptions{Resume: true})
			set := points(48)
			loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 12 / size, Sampler: data.DistributedSampler(set, size, g.Rank())})
			_, failed := loop.Run(t.Context(), loader, train.Steps(steps))
			if g.Rank() == size-1 {
				err = failed
			}
			stateA, stateB := numbers(wholeA()), numbers(wholeB())
			if g.Rank() == 0 {
				result = stateA
				for name, v := range stateB {
					result["b."+name] = v
				}
			}
		})
		return result, err
	}
	want, err := run(t.TempDir(), 2, 7, false)
	testhelp.Must(t, err)
	folder := t.TempDir()
	_, err = run(folder, 2, 3, false)
	testhelp.Must(t, err)
	got, err := run(folder, 2, 5, false)
	testhelp.Must(t, err)
	_ = got
	got, err = run(folder, 2, 7, false)
	testhelp.Must(t, err)
	sameNumbers(t, "two models", got, want, 0)
	if _, err := run(t.TempDir(), 2, 3, true); !errors.Is(err, gotorch.NotImplementedError) {
		t.Error(err)
	}
}

// TestWholeFilesOfShards are what DataParallel's loop writes, but for how sums are rounded, and are read by either.
func TestWholeFilesOfShards(t *testing.T) {
	oneThread(t)
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	for _, shard := range []bool{true, false} {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			model, whole, end := shared(g, drawn(), shard)
			defer end()
			opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.01})
			loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
			loop.Distributed(g)
			loop.Checkpoint(at(fmt.Sprint(shard, ".pt")))
			loop.Checkpoint(at(fmt.Sprint(shard, ".safetensors")))
			loop.OnStep(func(s *train.Step) error {
				if s.Number == 3 && g.Rank() == 1 {
					cancel()
				}
				return nil
			})
			set := points(48)
			loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 6, Sampler: data.DistributedSampler(set, 2, g.Rank())})
			if _, err := loop.Run(ctx, loader, train.Epochs(2)); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			now := numbers(whole())
			if shard {
				testhelp.Must(t, train.SaveCheckpoint(at("both.pt"), model, opt))
				if err := train.SaveCheckpoint(at("none/both.pt"), model, opt); err == nil || g.Rank() == 1 && !errors.As(err, new(*train.RankError)) {
					t.Error(g, err)
				}
				other, whole, _ := shared(g, nn.Sequential(nn.Linear(2, 7), nn.LayerNorm([]int64{7}), nn.Tanh(), nn.Linear(7, 2)), true)
				fresh := optim.AdamW(other.Parameters(), optim.AdamWOptions{LR: 1})
				testhelp.Must(t, train.LoadCheckpoint(at("both.pt"), other, fresh))
				sameNumbers(t, "loaded", numbers(whole()), now, 0)
			}
			if g.Rank() == 0 {
				net := drawn()
				for _, kind := range []string{".pt", ".safetensors"} {
					gotorch.NoGrad(func() { net.Parameters()[0].Zero_() })
					path := at(fmt.Sprint(shard, kind))
					testhelp.Must(t, nn.Load(net, path))
					sameNumbers(t, "the model's file", numbers(net.StateDict()), now, 0)
					if content, err := os.ReadFile(path); err != nil || strings.HasPrefix(string(content), "PK") != (kind == ".pt") {
						t.Error(path, "is of another format", err)
					}
				}
				if shard {
					fresh := optim.AdamW(net.Parameters(), optim.AdamWOptions{LR: 1})
					testhelp.Must(t, train.LoadCheckpoint(at("both.pt"), net, fresh))
					if *fresh.LRs()[0] != 0.01 || len(fresh.StateDict().Get("state").(gotorch.Dict)) != 6 {
						t.Error(fresh.StateDict())
					}
				}
			}
		})
	}
}

// TestShardsAreWatchedWhole: logs have the numbers of whole parameters.
func TestShardsAreWatchedWhole(t *testing.T) {
	oneThread(t)
	logs := map[bool][]string{}
	for _, shard := range []bool{true, false} {
		file := filepath.Join(t.TempDir(), "log.csv")
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			model, _, end := shared(g, drawn(), shard)
			defer end()
			loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}), nn.CrossEntropyLoss())
			loop.Distributed(g)
			loop.Log(train.CSVLog(file, train.FileLogOptions{NoTime: true}))
			loop.Watch(train.WatchOptions{Every: 2})
			set := points(48)
			loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 6, Sampler: data.DistributedSampler(set, 2, g.Rank())})
			if _, err := loop.Run(t.Context(), loader, train.Epochs(1)); err != nil {
				t.Error(err)
			}
		})
		content, err := os.ReadFile(file)
		testhelp.Must(t, err)
		logs[shard] = strings.FieldsFunc(string(content), func(r rune) bool { return r == ',' || r == '\n' })
	}
	if len(logs[true]) != len(logs[false]) || !strings.Contains(strings.Join(logs[true], " "), "gradient/0.weight/norm") {
		t.Fatal(logs)
	}
	for i, want := range logs[false] {
		got := logs[true][i]
		x, err1 := strconv.ParseFloat(got, 64)
		y, err2 := strconv.ParseFloat(want, 64)
		if err1 != nil || err2 != nil {
			if got != want {
				t.Error(got, want)
			}
		} else if math.Abs(x-y) > 1e-5*math.Max(1, math.Abs(y)) {
			t.Error(got, want)
		}
	}
}

// TestARateIsFoundForShards, and everything is as it was.
func TestARateIsFoundForShards(t *testing.T) {
	found := make([]*train.LRRange, 2)
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		model, whole, end := shared(g, drawn(), true)
		defer end()
		sharded := model.(*distributed.FullySharded)
		opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1, Momentum: 0.9})
		loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
		loop.Distributed(g)
		loop.Accumulate(2)
		set := points(48)
		loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 6, Sampler: data.DistributedSampler(set, 2, g.Rank())})
		sharded.NoSync(func() { sharded.Forward(gotorch.Ones([]int64{1, 2})).Sum().Backward() })
		before, gradients := numbers(whole()), numbers(sharded.UnsyncedGradients())
		var err error
		if found[g.Rank()], err = loop.FindLR(t.Context(), loader, train.FindLROptions{Steps: 20}); err != nil {
			t.Error(err)
		}
		sameNumbers(t, "parameters", numbers(whole()), before, 0)
		if len(gradients) != 6 {
			t.Error(len(gradients))
		}
		sameNumbers(t, "gradients", numbers(sharded.UnsyncedGradients()), gradients, 0)
	})
	if found[0] == nil || found[1] == nil || !slices.Equal(found[0].Losses, found[1].Losses) || len(found[0].Losses) < 10 {
		t.Error(found)
	}
}

// TestNothingIsLeftOfShardedLoops: what they have made goes away with them.
func TestNothingIsLeftOfShardedLoops(t *testing.T) {
	use := func() {
		folder := t.TempDir()
		for range 2 {
			rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
				model, _, end := shared(g, drawn(), true)
				defer end()
				opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.01})
				loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
				loop.Distributed(g)
				loop.Accumulate(2)
				loop.ClipGradNorm(1)
				loop.StopAtNonFinite()
				loop.OnEpoch(train.Validate(points(9), train.Accuracy))
				sharded := model.(*distributed.FullySharded)
				train.Average(loop, sharded, swautils.AveragedModel(sharded), train.PerStep)
				loop.Checkpoints(folder, train.CheckpointsOptions{Steps: 1, Best: "val_loss", Resume: true})
				set := points(48)
				loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 6, Sampler: data.DistributedSampler(set, 2, g.Rank())})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				loop.OnStep(func(s *train.Step) error {
					if s.Number == 3 {
						cancel()
					}
					return nil
				})
				_, _ = loop.Run(ctx, loader, train.Epochs(2))
			})
		}
	}
	live := func() int64 {
		finalize.Dead()
		return gotorch.MemoryStats().LiveHandles
	}
	use()
	before := live()
	for now := live(); now < before; now = live() {
		before = now
	}
	for range 3 {
		use()
	}
	for end := time.Now().Add(time.Minute); live() > before; {
		if time.Now().After(end) {
			t.Fatalf("%d tensors live, where %d did", live(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAFolderOfAnotherProgramIsNamed(t *testing.T) {
	folder := t.TempDir()
	net := nn.Linear(2, 2)
	testhelp.Must(t, checkpoint.Save(folder, checkpoint.State{"model": net}))
	err := train.LoadCheckpoint(folder, net, optim.SGD(net.Parameters(), optim.SGDOptions{LR: 0.1}))
	if err == nil || !strings.Contains(err.Error(), "no checkpoint of a train.Loop") || !strings.Contains(err.Error(), folder) {
		t.Error(err)
	}
}
