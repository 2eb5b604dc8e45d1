// Programs trains programs that tests/test_order.py has made at random, each as often as said, in a goroutine that changes
// threads between ops.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
)

type tensors = []gotorch.Tensor

// program is what Python has made at random: steps that each compute one more tensor, of those that are there.
type program struct {
	Leaves int
	Steps  []step
	Twice  bool // whether the gradients of gradients are taken
}

type step struct {
	Op   string
	A, B int
	By   float64
}

// times is x times a number, and so is its gradient.
type times struct{ by float64 }

func (f times) Forward(ctx *gotorch.FunctionContext, in tensors) tensors {
	ctx.SaveForBackward(in[0])
	return tensors{in[0].MulScalar(f.by)}
}

func (f times) Backward(ctx *gotorch.FunctionContext, grads tensors) tensors {
	_ = ctx.SavedTensors()
	return tensors{grads[0].MulScalar(f.by)}
}

// compute returns the last tensors of p, and notes which hooks run, in their order.
func (p program) compute(all tensors, hooked *[]float64, next func()) tensors {
	for i, s := range p.Steps {
		next()
		a, b := all[s.A], all[s.B]
		var y gotorch.Tensor
		switch s.Op {
		case "mm":
			y = a.MM(b).MulScalar(s.By)
		case "add":
			y = a.Add(b, gotorch.AddOptions{Alpha: s.By})
		case "mul":
			y = a.Mul(b)
		case "tanh":
			y = a.Tanh()
		case "softmax":
			y = a.Softmax(-1)
		case "layer_norm":
			y = gotorch.LayerNorm(a, []int64{8})
		case "cell":
			y = gotorch.RNNTanhCell(a, b, all[0], all[1])
		case "in_place":
			y = a.MulScalar(s.By)
			y.Add_(b)
		case "halves":
			halves := a.Chunk(2, gotorch.ChunkOptions{Dim: 1})
			next()
			y = gotorch.Cat(tensors{halves[1], halves[0].Mul(halves[1])}, gotorch.CatOptions{Dim: 1})
		case "checkpoint":
			y = gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { return x.MM(b).Tanh().Mul(x).Add(b) }, a)
		case "function":
			y = gotorch.Apply(times{s.By}, a)[0]
		case "handed": // a hook whose work another goroutine does
			y = a.MulScalar(s.By)
			if y.RequiresGrad() {
				y.RegisterHook(func(g gotorch.Tensor) (result gotorch.Tensor) {
					*hooked = append(*hooked, float64(i))
					records, done := gotorch.GradEnabled(), make(chan struct{})
					go func() {
						defer close(done)
						gotorch.SetGradEnabled(records, func() { result = g.Mul(b).Tanh().Add(g).Mul(b) })
					}()
					<-done
					return result
				})
			}
		case "hook":
			y = a.MulScalar(1)
			if y.RequiresGrad() {
				y.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor {
					*hooked = append(*hooked, float64(i))
					return g.MulScalar(s.By)
				})
			}
		default:
			panic("there is no " + s.Op)
		}
		all = append(all, y)
	}
	return all[len(all)-3:]
}

// train returns p's leaves after three steps of gradient descent, and the order in which hooks ran.
func (p program) train(leaves tensors, next func()) tensors {
	var hooked []float64
	for i, leaf := range leaves {
		leaves[i] = leaf.Clone().RequiresGrad_()
		leaves[i].RegisterPostAccumulateGradHook(func(gotorch.Tensor) { hooked = append(hooked, -float64(i)-1) })
	}
	for range 3 {
		var sum gotorch.Tensor
		for i, y := range p.compute(leaves, &hooked, next) {
			next()
			if mean := y.Pow(2).Mean(); i == 0 {
				sum = mean
			} else {
				sum = sum.Add(mean)
			}
		}
		if p.Twice {
			for _, g := range gotorch.Grad(tensors{sum}, leaves, gotorch.GradOptions{CreateGraph: true, MaterializeGrads: true}) {
				next()
				sum = sum.Add(g.Pow(2).Sum())
			}
		}
		next()
		sum.Backward()
		gotorch.NoGrad(func() {
			for _, leaf := range leaves {
				if g := leaf.Grad(); g.Defined() {
					leaf.Sub_(g, gotorch.SubOptions{Alpha: 0.05})
					leaf.SetGrad(gotorch.Tensor{})
				}
			}
		})
	}
	out := tensors{gotorch.FromSlice(hooked)}
	for _, leaf := range leaves {
		out = append(out, leaf.Detach())
	}
	return out
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run reads programs and the leaves of each, PROGRAM.0 and so on, and writes what has come of them, PROGRAM.RUN.0 and so on.
func run(file, in, out, times string) error {
	runs, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var programs []program
	if err := json.Unmarshal(text, &programs); err != nil {
		return err
	}
	given, err := gotorch.LoadTensors(in)
	if err != nil {
		return err
	}
	results := map[string]gotorch.Tensor{}
	for n, p := range programs {
		for run := range runs {
			leaves := make(tensors, p.Leaves)
			for i := range leaves {
				leaves[i] = given[fmt.Sprintf("%d.%d", n, i)]
			}
			next := func() {
				if rand.IntN(2) == 0 {
					testhelp.Migrate()
				}
			}
			for i, t := range p.train(leaves, next) {
				results[fmt.Sprintf("%d.%d.%d", n, run, i)] = t
			}
		}
	}
	return gotorch.SaveTensors(out, results)
}
