// The GoMLX worker of `make bench-peers`: reads "CASE ITERATIONS" lines, answers "WALL_NS CPU_NS", or "none" for a
// case that it does not have.
//
// GoMLX compiles graphs, so that a small op is here a graph of one node, executed. Its backend is the one in pure
// Go, which needs nothing installed; XLA's would have to be downloaded. It has a module of its own, so that
// gotorch's does not depend on GoMLX.
package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/layers"
	"github.com/gomlx/gomlx/pkg/ml/layers/activations"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"
)

func floats(dimensions ...int) *tensors.Tensor {
	n := 1
	for _, d := range dimensions {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(rand.NormFloat64())
	}
	return tensors.FromFlatDataAndDimensions(data, dimensions...)
}

func one[F graph.ExecGraphFn](backend backends.Backend, fn F, args ...any) func(n int) {
	exec := graph.MustNewExec(backend, fn)
	return func(n int) {
		for range n {
			exec.MustExec1(args...).MustFinalizeAll()
		}
	}
}

func mlp(ctx *context.Context, x *graph.Node) *graph.Node {
	x = activations.Relu(layers.DenseWithBias(ctx.In("first"), x, 128))
	return layers.DenseWithBias(ctx.In("second"), x, 10)
}

func forward(backend backends.Backend, batch int) func(n int) {
	exec := context.MustNewExec(backend, context.New(), mlp)
	x := floats(batch, 784)
	return func(n int) {
		for range n {
			exec.MustExec1(x).MustFinalizeAll()
		}
	}
}

func step(backend backends.Backend, optimizer optimizers.Interface) func(n int) {
	model := func(ctx *context.Context, _ any, inputs []*graph.Node) []*graph.Node {
		return []*graph.Node{mlp(ctx, inputs[0])}
	}
	trainer := train.NewTrainer(backend, context.New(), model, losses.SparseCategoricalCrossEntropyLogits, optimizer, nil, nil)
	labels := make([]int32, 64)
	for i := range labels {
		labels[i] = rand.Int32N(10)
	}
	x, y := []*tensors.Tensor{floats(64, 784)}, []*tensors.Tensor{tensors.FromFlatDataAndDimensions(labels, 64, 1)}
	return func(n int) {
		for range n {
			metrics, err := trainer.TrainStep(nil, x, y)
			if err != nil {
				panic(err)
			}
			for _, m := range metrics {
				m.MustFinalizeAll()
			}
		}
	}
}

// pureGo makes the backend, with one thread to an op. It tells so on what is the workers' line of answers.
func pureGo() backends.Backend {
	answers := os.Stdout
	os.Stdout = os.Stderr
	defer func() { os.Stdout = answers }()
	backend, err := simplego.New("parallelism=1")
	if err != nil {
		panic(err)
	}
	return backend
}

func main() {
	backend := pureGo()
	a, b := floats(2, 2), floats(2, 2)
	cases := map[string]func(n int){
		"add":            one(backend, func(x, y *graph.Node) *graph.Node { return graph.Add(x, y) }, a, b),
		"mm":             one(backend, func(x, y *graph.Node) *graph.Node { return graph.MatMul(x, y) }, a, b),
		"relu":           one(backend, func(x *graph.Node) *graph.Node { return activations.Relu(x) }, a),
		"transpose":      one(backend, func(x *graph.Node) *graph.Node { return graph.Transpose(x, 0, 1) }, a),
		"mlp_forward_1":  forward(backend, 1),
		"mlp_forward_64": forward(backend, 64),
		"mlp_step_64":    step(backend, optimizers.StochasticGradientDescent().WithLearningRate(0.01).WithDecay(false)),
		"mlp_adam_64":    step(backend, optimizers.Adam().LearningRate(1e-3).Done()),
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		name, count, _ := strings.Cut(in.Text(), " ")
		n, err := strconv.Atoi(count)
		if err != nil {
			panic(err)
		}
		run, ok := cases[name]
		if !ok {
			fmt.Println("none")
			continue
		}
		wall, cpu := time.Now(), cpuTime()
		run(n)
		fmt.Println(time.Since(wall).Nanoseconds(), (cpuTime() - cpu).Nanoseconds())
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
