package lrscheduler_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
)

func ExampleSequentialLR() {
	weight := gotorch.Ones([]int64{3}, gotorch.TensorOptions{RequiresGrad: true})
	opt := optim.SGD([]gotorch.Tensor{weight}, optim.SGDOptions{LR: 1})
	warmup := lrscheduler.LinearLR(opt, lrscheduler.LinearLROptions{StartFactor: 0.25, TotalIters: 3})
	decay := lrscheduler.ExponentialLR(opt, 0.5)
	sched := lrscheduler.SequentialLR(opt, []lrscheduler.Scheduler{warmup, decay}, []int64{3})
	for epoch := range 6 {
		fmt.Println(epoch, sched.LastLRs()[0])
		opt.Step()
		sched.Step()
	}
	// Output:
	// 0 0.25
	// 1 0.5
	// 2 0.75
	// 3 1
	// 4 0.5
	// 5 0.25
}

func ExampleReduceLROnPlateau() {
	weight := gotorch.Ones([]int64{3}, gotorch.TensorOptions{RequiresGrad: true})
	opt := optim.SGD([]gotorch.Tensor{weight}, optim.SGDOptions{LR: 1})
	sched := lrscheduler.ReduceLROnPlateau(opt, lrscheduler.ReduceLROnPlateauOptions{Patience: 1, Factor: 0.5})
	for _, loss := range []float64{3, 2, 2, 2, 1} {
		opt.Step()
		sched.Step(loss)
		fmt.Print(sched.LastLRs()[0], " ")
	}
	// Output: 1 1 1 0.5 0.5
}
