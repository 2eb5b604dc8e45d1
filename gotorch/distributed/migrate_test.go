package distributed_test

import (
	"fmt"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// Ranks whose goroutines change threads exchange in the same order, and come to the bits of those that stay on one.
func TestRanksThatChangeThreadsTrainAlike(t *testing.T) {
	oneThread(t)
	gotorch.ManualSeed(5)
	start := copies(newTied().StateDict())
	for name, wrap := range map[string]func(net *tied, g *distributed.Group) nn.Modular{
		"DataParallel": func(net *tied, g *distributed.Group) nn.Modular {
			return distributed.DataParallel(net, distributed.DataParallelOptions{Group: g, BucketCapMB: 0.0005})
		},
		"FullyShard": func(net *tied, g *distributed.Group) nn.Modular {
			return distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: net.units()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			// trained returns the state after three steps, each of two forward passes before one backward pass.
			trained := func(g *distributed.Group, next func()) nn.StateDict {
				net := newFrom(t, start)
				model := wrap(net, g)
				opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.01})
				for step := range 3 {
					opt.ZeroGrad()
					x, y := samples(g.Rank(), step)
					next()
					first := loss(forward(model, x), y)
					next()
					x, y = samples(g.Rank(), 10+step)
					second := loss(forward(model, x), y)
					next()
					first.Add(second.MulScalar(0.5)).Backward()
					next()
					opt.Step()
				}
				return copies(net.StateDict())
			}
			rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
				want := trained(g, func() {})
				for run := range testhelp.Rounds(10) {
					got := make(chan nn.StateDict)
					go func() { // which has no thread to itself
						defer close(got)
						got <- trained(g, testhelp.Migrate)
					}()
					sameState(t, fmt.Sprint("run ", run), <-got, want)
				}
			})
		})
	}
}

func forward(model nn.Modular, x gotorch.Tensor) gotorch.Tensor {
	return model.(interface {
		Forward(gotorch.Tensor) gotorch.Tensor
	}).Forward(x)
}
