// Hello finds the line through some points: a first program with gotorch, and the plain form of a
// training loop. The example digits shows the comfortable one.
package main

import (
	"fmt"
	"log"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
)

func main() {
	x := gotorch.Rand([]int64{1000, 1})
	y := x.MulScalar(2).AddScalar(1)
	loader := data.NewLoader(data.NewTensorDataset(x, y), data.LoaderOptions{BatchSize: 20, Shuffle: true})

	model := nn.Linear(1, 1)
	opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1})
	for range 10 {
		for batch, err := range loader.All() {
			if err != nil {
				log.Fatal(err)
			}
			loss := F.MSELoss(model.Forward(batch.Input), batch.Target)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
		}
	}
	fmt.Printf("y = %.2f x + %.2f\n", gotorch.Item[float64](model.Weight), gotorch.Item[float64](model.Bias))
}
