package parallel_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/distributed/parallel"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/nn"
)

// stages are the parts of one model, whose activations have several shapes.
func stages() []*nn.SequentialModule {
	return []*nn.SequentialModule{
		nn.Sequential(linear(4, 6, 1, true), nn.Tanh()),
		nn.Sequential(linear(6, 6, 3, true), nn.Unflatten(1, []int64{2, 3})),
		nn.Sequential(nn.Tanh(), nn.Flatten(), linear(6, 5, 5, true)),
		nn.Sequential(nn.ReLU(), linear(5, 3, 7, true)),
	}
}

func TestAPipelineIsTheWholeModel(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		for _, pieces := range []int{1, 2, 3, 7} {
			x := drawn(11, 7, 4)
			y := gotorch.FromSlice([]int64{0, 1, 2, 2, 1, 0, 1})
			whole := nn.Sequential()
			for _, s := range stages() {
				whole.Append(s)
			}
			var want []float64
			xs, ys := x.TensorSplit(int64(pieces)), y.TensorSplit(int64(pieces))
			for i := range pieces {
				loss := nn.CrossEntropyLoss().Forward(whole.Forward(xs[i]), ys[i])
				want = append(want, gotorch.Item[float64](loss))
				loss.DivScalar(pieces).Backward()
			}
			grads := whole.Parameters()
			for _, schedule := range []parallel.Schedule{parallel.OneFOneB, parallel.GPipe} {
				rankstest.Run(t, n, distributed.Options{}, func(g *distributed.Group) {
					mine := nn.Sequential()
					all := stages()
					per := len(all) / n
					for _, s := range all[g.Rank()*per : (g.Rank()+1)*per] {
						mine.Append(s)
					}
					pipe := parallel.Pipeline(g, mine, nn.CrossEntropyLoss(), parallel.PipelineOptions{Microbatches: pieces, Schedule: schedule})
					for range 2 { // the second adds the same once more
						losses := pipe.Step(x, y)
						if last := g.Rank() == n-1; last && !slices.Equal(losses, want) || !last && len(losses) > 0 {
							t.Error(g, pieces, schedule, losses, want)
						}
					}
					first := 0
					for _, s := range all[:g.Rank()*per] {
						first += len(s.Parameters())
					}
					for i, p := range mine.Parameters() {
						close_(t, g.String(), p.Grad(), grads[first+i].Grad().MulScalar(2))
					}
				})
			}
		}
	}
}

func TestPipelinesThatCannotBe(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		for _, c := range []struct {
			kind error
			fn   func()
		}{
			{gotorch.TypeError, func() { parallel.Pipeline(g, nil, nn.MSELoss()) }},
			{gotorch.TypeError, func() { parallel.Pipeline(nil, nn.Linear(1, 1), nn.MSELoss()) }},
			{gotorch.ValueError, func() {
				parallel.Pipeline(g, nn.Linear(1, 1), nn.MSELoss(), parallel.PipelineOptions{Microbatches: 0})
			}},
			{gotorch.ValueError, func() {
				parallel.Pipeline(g, nn.Linear(1, 1), nn.MSELoss(), parallel.PipelineOptions{Schedule: 7})
			}},
			{gotorch.ValueError, func() {
				parallel.Pipeline(g, nn.Linear(1, 1), nn.MSELoss()).Step(gotorch.Ones([]int64{1, 1}), gotorch.Ones([]int64{1, 1}))
			}},
		} {
			if err := gotorch.Try0(c.fn); !errors.Is(err, c.kind) {
				t.Error(g, err)
			}
		}
		if g.Rank() == 1 {
			if err := gotorch.Try0(func() { parallel.Pipeline(g, nn.Linear(1, 1), nil) }); !errors.Is(err, gotorch.TypeError) {
				t.Error(err)
			}
		} else {
			parallel.Pipeline(g, nn.Linear(1, 1), nil)
		}
	})
}

func TestNothingIsLeftOfAPipeline(t *testing.T) {
	step := func() {
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			all := stages()
			mine := nn.Sequential(all[2*g.Rank()], all[2*g.Rank()+1])
			pipe := parallel.Pipeline(g, mine, nn.CrossEntropyLoss())
			pipe.Step(drawn(1, 4, 4), gotorch.FromSlice([]int64{0, 1, 2, 0}))
		})
	}
	count := func() int64 {
		runtime.GC()
		runtime.GC()
		return gotorch.MemoryStats().LiveHandles
	}
	step()
	before := count()
	for range 3 {
		step()
	}
	for end := time.Now().Add(time.Minute); count() > before; {
		if time.Now().After(end) {
			t.Fatalf("%d tensors live, where %d did", count(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
