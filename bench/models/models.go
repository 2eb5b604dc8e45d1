// Package models has the models that `make bench` trains, and the tests of how memory goes on while they
// train. bench/models.py has the same in Python: with the same seed both begin with the same numbers, and stay
// with them to the last bit (tests/test_bench.py).
package models

import (
	"fmt"
	"math"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
)

// The sizes of all models but MLP: those that nanoGPT has for computers without a GPU, with two layers.
const (
	vocabulary = 65
	width      = 128
	heads      = 4
	length     = 64
	classes    = 10
)

// Trained is a model with what it is trained on.
type Trained struct {
	Model nn.Modular
	Loss  func() gotorch.Tensor
}

// All are the models by name, for a number of images or sequences in a step. They draw numbers in the same
// order as those in Python, in the computer's memory, and are on the device afterwards.
var All = map[string]func(batch int64, d gotorch.Device) Trained{
	"mlp": func(batch int64, d gotorch.Device) Trained {
		m := MLP()
		x, y := gotorch.Randn([]int64{batch, 784}), gotorch.Randint(classes, []int64{batch})
		return on(d, m, x, y, func(x, y gotorch.Tensor) gotorch.Tensor { return F.CrossEntropy(m.Forward(x), y) })
	},
	"cnn": func(batch int64, d gotorch.Device) Trained {
		m := CNN()
		x, y := gotorch.Randn([]int64{batch, 1, 28, 28}), gotorch.Randint(classes, []int64{batch})
		return on(d, m, x, y, func(x, y gotorch.Tensor) gotorch.Tensor { return F.CrossEntropy(m.Forward(x), y) })
	},
	"transformer": func(batch int64, d gotorch.Device) Trained { return overCharacters(NewCharTransformer(), batch, d) },
	"lstm":        func(batch int64, d gotorch.Device) Trained { return overCharacters(NewCharLSTM(), batch, d) },
	"encoder": func(batch int64, d gotorch.Device) Trained {
		m := NewClassifier()
		x, y := gotorch.Randint(vocabulary, []int64{batch, length}), gotorch.Randint(classes, []int64{batch})
		return on(d, m, x, y, func(x, y gotorch.Tensor) gotorch.Tensor { return F.CrossEntropy(m.Forward(x), y) })
	},
}

// overCharacters trains m to tell the next character.
func overCharacters(m nn.Layer, batch int64, d gotorch.Device) Trained {
	x, y := gotorch.Randint(vocabulary, []int64{batch, length}), gotorch.Randint(vocabulary, []int64{batch * length})
	return on(d, m, x, y, func(x, y gotorch.Tensor) gotorch.Tensor {
		return F.CrossEntropy(m.Forward(x).View([]int64{batch * length, vocabulary}), y)
	})
}

// on is a model on a device, with what it is trained on there.
func on(d gotorch.Device, m nn.Modular, x, y gotorch.Tensor, loss func(x, y gotorch.Tensor) gotorch.Tensor) Trained {
	m.To(d)
	x, y = x.To(d), y.To(d)
	return Trained{m, func() gotorch.Tensor { return loss(x, y) }}
}

// Optimizers make optimisers by name, with the names that PyTorch has for their implementations.
var Optimizers = map[string]func(params []gotorch.Tensor) optim.Optimizer{
	"sgd": func(params []gotorch.Tensor) optim.Optimizer {
		return optim.SGD(params, optim.SGDOptions{LR: 0.01})
	},
	"foreach": func(params []gotorch.Tensor) optim.Optimizer { return optim.AdamW(params) },
	"fused": func(params []gotorch.Tensor) optim.Optimizer {
		return optim.AdamW(params, optim.AdamWOptions{Fused: true})
	},
}

// Step returns a training step, which returns its loss, for a name such as "lstm_12_fused": of the model, of how
// many sequences a step has, of the optimiser. It is on the processor, or on the device.
func Step(name string, device ...gotorch.Device) func() gotorch.Tensor {
	var model, optimizer string
	var batch int64
	if _, err := fmt.Sscanf(strings.ReplaceAll(name, "_", " "), "%s %d %s", &model, &batch, &optimizer); err != nil {
		panic(err)
	}
	d := gotorch.CPU
	for _, d = range device {
	}
	gotorch.ManualSeed(0)
	t := All[model](batch, d)
	opt := Optimizers[optimizer](t.Model.Parameters())
	return func() gotorch.Tensor {
		opt.ZeroGrad()
		loss := t.Loss()
		loss.Backward()
		opt.Step()
		return loss
	}
}

// MLP is a network of two layers for handwritten digits.
func MLP() *nn.SequentialModule {
	return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
}

// CNN is a network of two convolutions for handwritten digits.
func CNN() *nn.SequentialModule {
	return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
		nn.Flatten(), nn.Linear(800, 10))
}

// CharTransformer tells characters from those before them.
type CharTransformer struct {
	nn.Module
	Token, Place *nn.EmbeddingModule
	Blocks       []*Block
	Norm         *nn.LayerNormModule
	Head         *nn.LinearModule
}

// NewCharTransformer returns one of two blocks.
func NewCharTransformer() *CharTransformer {
	return nn.Init(&CharTransformer{
		Token: nn.Embedding(vocabulary, width), Place: nn.Embedding(length, width),
		Blocks: []*Block{NewBlock(), NewBlock()},
		Norm:   nn.LayerNorm(width), Head: nn.Linear(width, vocabulary),
	})
}

// Forward returns what each next character may be: (N, T) → (N, T, vocabulary).
func (m *CharTransformer) Forward(x gotorch.Tensor) gotorch.Tensor {
	h := m.Token.Forward(x).Add(m.Place.Forward(gotorch.Arange(x.Size(1), gotorch.TensorOptions{Device: x.Device()})))
	for _, block := range m.Blocks {
		h = block.Forward(h)
	}
	return m.Head.Forward(m.Norm.Forward(h))
}

// Block is causal attention and a feed-forward network.
type Block struct {
	nn.Module
	Norm1, Norm2   *nn.LayerNormModule
	QKV, Out       *nn.LinearModule
	Widen, Narrow  *nn.LinearModule
	Attend, Behind *nn.DropoutModule
}

// NewBlock returns a block.
func NewBlock() *Block {
	return nn.Init(&Block{
		Norm1: nn.LayerNorm(width), QKV: nn.Linear(width, 3*width), Out: nn.Linear(width, width),
		Norm2: nn.LayerNorm(width), Widen: nn.Linear(width, 4*width), Narrow: nn.Linear(4*width, width),
		Attend: nn.Dropout(0.1), Behind: nn.Dropout(0.1),
	})
}

// Forward goes through the block: (N, T, E) → (N, T, E).
func (m *Block) Forward(x gotorch.Tensor) gotorch.Tensor {
	x = x.Add(m.Attend.Forward(m.attention(m.Norm1.Forward(x))))
	h := m.Narrow.Forward(F.GELU(m.Widen.Forward(m.Norm2.Forward(x))))
	return x.Add(m.Behind.Forward(h))
}

func (m *Block) attention(x gotorch.Tensor) gotorch.Tensor {
	n, t := x.Size(0), x.Size(1)
	apart := func(x gotorch.Tensor) gotorch.Tensor {
		return x.View([]int64{n, t, heads, width / heads}).Transpose(1, 2)
	}
	qkv := m.QKV.Forward(x).Split(width, gotorch.SplitOptions{Dim: 2})
	y := F.ScaledDotProductAttention(apart(qkv[0]), apart(qkv[1]), apart(qkv[2]), F.ScaledDotProductAttentionOptions{IsCausal: true})
	return m.Out.Forward(y.Transpose(1, 2).Reshape([]int64{n, t, width}))
}

// CharLSTM tells characters from those before them.
type CharLSTM struct {
	nn.Module
	Token *nn.EmbeddingModule
	LSTM  *nn.LSTMModule
	Head  *nn.LinearModule
}

// NewCharLSTM returns one of one layer.
func NewCharLSTM() *CharLSTM {
	return nn.Init(&CharLSTM{
		Token: nn.Embedding(vocabulary, width), LSTM: nn.LSTM(width, width, nn.LSTMOptions{BatchFirst: true}),
		Head: nn.Linear(width, vocabulary),
	})
}

// Forward returns what each next character may be: (N, T) → (N, T, vocabulary).
func (m *CharLSTM) Forward(x gotorch.Tensor) gotorch.Tensor {
	out, _, _ := m.LSTM.Forward(m.Token.Forward(x))
	return m.Head.Forward(out)
}

// Classifier tells of which class a text is, by PyTorch's own encoder.
type Classifier struct {
	nn.Module
	Token   *nn.EmbeddingModule
	Encoder *nn.TransformerEncoderModule
	Head    *nn.LinearModule
}

// NewClassifier returns one of two layers.
func NewClassifier() *Classifier {
	layer := nn.TransformerEncoderLayer(width, heads, nn.TransformerEncoderLayerOptions{DimFeedforward: 4 * width, BatchFirst: true})
	return nn.Init(&Classifier{
		Encoder: nn.TransformerEncoder(layer, 2), Token: nn.Embedding(vocabulary, width), Head: nn.Linear(width, classes),
	})
}

// Forward returns what the class may be: (N, T) → (N, classes).
func (m *Classifier) Forward(x gotorch.Tensor) gotorch.Tensor {
	h := m.Encoder.Forward(m.Token.Forward(x).MulScalar(math.Sqrt(width)))
	return m.Head.Forward(h.MeanDim([]int64{1}))
}
