package distributed_test

import (
	"errors"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

func TestRanksThatDifferAreAnErrorOfDebugDetail(t *testing.T) {
	testhelp.Must(t, distributed.SetDebugLevel(distributed.DebugDetail))
	defer distributed.SetDebugLevel(distributed.DebugOff)
	if distributed.CurrentDebugLevel() != distributed.DebugDetail {
		t.Error(distributed.CurrentDebugLevel())
	}
	float, double := gotorch.TensorOptions{DType: gotorch.Float32}, gotorch.TensorOptions{DType: gotorch.Float64}
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		for _, differ := range []struct {
			name string
			call func(even bool)
			want string
		}{
			{"shapes", func(even bool) {
				n := int64(2)
				if even {
					n = 3
				}
				g.AllReduce(gotorch.Zeros([]int64{n}), distributed.Sum)
			}, "TensorShape"},
			{"dtypes", func(even bool) {
				of := float
				if even {
					of = double
				}
				g.Broadcast(gotorch.Zeros([]int64{3}, of), 0)
			}, "TensorDtypes"},
			{"collectives", func(even bool) {
				if even {
					g.Barrier()
				} else {
					g.AllReduce(gotorch.Zeros([]int64{3}), distributed.Sum)
				}
			}, "Op type"},
		} {
			err := gotorch.Try0(func() { differ.call(g.Rank() == 0) })
			if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), differ.want) || !strings.Contains(err.Error(), "Rank 0") {
				t.Error(g, differ.name, err)
			}
		}
		x := gotorch.Ones([]int64{2}) // the group still works
		g.AllReduce(x, distributed.Sum)
		if gotorch.ToSlice[float32](x)[1] != 2 {
			t.Error(x)
		}
	})
}

// Ranks that compare know what shards exchange, and come to the same.
func TestShardsWithDebugDetail(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(3)
	start := copies(newTied().StateDict())
	trained := func(level distributed.DebugLevel) (state nn.StateDict) {
		testhelp.Must(t, distributed.SetDebugLevel(level))
		defer distributed.SetDebugLevel(distributed.DebugOff)
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			net := newFrom(t, start)
			model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
			x, y := samples(g.Rank(), 0)
			loss(model.Forward(x), y).Backward()
			optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1}).Step()
			if whole := model.FullStateDict(); g.Rank() == 0 {
				state = whole
			}
		})
		return state
	}
	sameState(t, "DETAIL", trained(distributed.DebugDetail), trained(distributed.DebugOff))
}

func TestDebugLevelsAreChecked(t *testing.T) {
	if err := distributed.SetDebugLevel(3); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	if got := distributed.DebugDetail.String() + distributed.DebugOff.String() + distributed.DebugLevel(9).String(); got != "DETAILOFFDebugLevel(?)" {
		t.Error(got)
	}
}
