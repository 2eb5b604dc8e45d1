package models_test

import (
	"fmt"
	"os"
	"path/filepath"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/vision/models"
)

// Transfer learning: weights that were learned elsewhere, with another layer in the place of the last one, which
// alone learns.
func Example() {
	folder, _ := os.MkdirTemp("", "models")
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "resnet18.pt") // in Python: torch.save(model.state_dict(), path)
	_ = nn.Save(models.ResNet18(), path)

	model := models.ResNet18()
	if err := nn.Load(model, path); err != nil {
		fmt.Println(err)
		return
	}
	model.RequiresGrad_(false)
	model.FC = nn.Linear(512, 3)
	nn.Init(model)
	model.Eval() // the running statistics of the norms stay as they were learned
	opt := optim.SGD(model.FC.Parameters(), optim.SGDOptions{LR: 0.1})

	images, labels := gotorch.Randn([]int64{4, 3, 64, 64}), gotorch.FromSlice([]int64{0, 1, 2, 0})
	loss := nn.CrossEntropyLoss().Forward(model.Forward(images), labels)
	loss.Backward()
	opt.Step()
	learn := 0
	for _, p := range model.NamedParameters() {
		if p.Grad().Defined() {
			learn++
		}
	}
	fmt.Println(learn, "of", len(model.Parameters()), "parameters learn")
	// Output: 2 of 62 parameters learn
}

func ExampleFeatures() {
	model := models.ResNet18()
	model.Eval()
	maps := models.Features(model, "layer3", "layer4").Forward(gotorch.Zeros([]int64{1, 3, 64, 64}))
	fmt.Println(maps[0].Shape(), maps[1].Shape())
	// Output: [1 256 4 4] [1 512 2 2]
}

func ExampleNewUNet() {
	model := models.NewUNet(3, 2)
	fmt.Println(model.Forward(gotorch.Zeros([]int64{1, 3, 32, 48})).Shape())
	// Output: [1 2 32 48]
}
