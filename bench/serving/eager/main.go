// Eager serves the models of `make bench-serve` as modules of package nn, with the weights that PyTorch saved.
package main

import (
	"log"
	"math"

	"gotorch.dev/bench/serving/server"
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/models"
)

// The sizes of bench/serving/models.py.
const vocabulary, width, heads, layers, classes = 1000, 256, 4, 4, 10

type encoder struct {
	nn.Module
	Token   *nn.EmbeddingModule
	Encoder *nn.TransformerEncoderModule
	Head    *nn.LinearModule
}

func newEncoder() *encoder {
	layer := nn.TransformerEncoderLayer(width, heads, nn.TransformerEncoderLayerOptions{DimFeedforward: 4 * width, BatchFirst: true})
	return nn.Init(&encoder{
		Encoder: nn.TransformerEncoder(layer, layers, nn.TransformerEncoderOptions{NoEnableNestedTensor: true}),
		Token:   nn.Embedding(vocabulary, width), Head: nn.Linear(width, classes),
	})
}

// Forward returns the classes of texts: (N, T) → (N, classes).
func (m *encoder) Forward(x gotorch.Tensor) gotorch.Tensor {
	h := m.Encoder.Forward(m.Token.Forward(x).MulScalar(math.Sqrt(width)))
	return m.Head.Forward(h.MeanDim([]int64{1}))
}

func main() {
	server.Main(func(name, dir string) func(gotorch.Tensor) gotorch.Tensor {
		var m interface {
			nn.Modular
			Forward(gotorch.Tensor) gotorch.Tensor
		}
		switch name {
		case "mlp":
			m = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
		case "resnet18":
			m = models.ResNet18()
		case "encoder":
			m = newEncoder()
		default:
			log.Fatalf("there is no model %s", name)
		}
		if err := nn.Load(m, dir+"/weights.pt"); err != nil {
			log.Fatal(err)
		}
		m.Eval()
		return m.Forward
	})
}
