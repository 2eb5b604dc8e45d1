package main

import (
	"fmt"
	"runtime"
	"strconv"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
)

// The models of nets.py, in Go.

const characters, width, places = 11, 8, 6

// cnn is the network of examples/digits, narrower; "cnn whole" neither normalises nor drops out, and "cnn sync" normalises the
// batches of all ranks.
func cnn(model string) *nn.SequentialModule {
	var layers []nn.Layer
	for _, channels := range [][2]int64{{1, 4}, {4, 6}} {
		layers = append(layers, nn.Conv2d(channels[0], channels[1], 5))
		switch model {
		case "cnn":
			layers = append(layers, nn.BatchNorm2d(channels[1]))
		case "cnn sync":
			layers = append(layers, nn.SyncBatchNorm(channels[1]))
		}
		layers = append(layers, nn.ReLU(), nn.MaxPool2d(2))
	}
	layers = append(layers, nn.Flatten())
	if model == "cnn" {
		layers = append(layers, nn.Dropout(0.3))
	}
	layers = append(layers, nn.Linear(6*4*4, 16), nn.ReLU(), nn.Linear(16, 10))
	return nn.Sequential(layers...)
}

type block struct {
	nn.Module
	Norm1         *nn.LayerNormModule
	QKV           *nn.LinearModule `nn:"qkv"`
	Out           *nn.LinearModule
	Norm2         *nn.LayerNormModule
	Widen, Narrow *nn.LinearModule
}

func newBlock() *block {
	return nn.Init(&block{
		Norm1: nn.LayerNorm([]int64{width}), QKV: nn.Linear(width, 3*width), Out: nn.Linear(width, width),
		Norm2: nn.LayerNorm([]int64{width}), Widen: nn.Linear(width, 4*width), Narrow: nn.Linear(4*width, width),
	})
}

func (b *block) Forward(x gotorch.Tensor) gotorch.Tensor {
	n, t := x.Size(0), x.Size(1)
	qkv := b.QKV.Forward(b.Norm1.Forward(x)).View([]int64{n, t, 3, 2, width / 2}).Permute([]int64{2, 0, 3, 1, 4}).Unbind()
	y := F.ScaledDotProductAttention(qkv[0], qkv[1], qkv[2], F.ScaledDotProductAttentionOptions{IsCausal: true})
	x = x.Add(b.Out.Forward(y.Transpose(1, 2).Reshape([]int64{n, t, width})))
	return x.Add(b.Narrow.Forward(F.GELU(b.Widen.Forward(b.Norm2.Forward(x)))))
}

// transformer has a last layer with the weight of its first.
type transformer struct {
	nn.Module
	Token, Place *nn.EmbeddingModule
	Blocks       []*block
	Norm         *nn.LayerNormModule
	Head         *nn.LinearModule
}

func newTransformer() *transformer {
	m := &transformer{Token: nn.Embedding(characters, width), Place: nn.Embedding(places, width)}
	m.Blocks = []*block{newBlock(), newBlock()}
	m.Norm, m.Head = nn.LayerNorm([]int64{width}), nn.Linear(width, characters, nn.LinearOptions{NoBias: true})
	m.Head.Weight = m.Token.Weight
	return nn.Init(m)
}

func (m *transformer) Forward(x gotorch.Tensor) gotorch.Tensor {
	h := m.Token.Forward(x).Add(m.Place.Forward(gotorch.Arange(x.Size(1))))
	for _, b := range m.Blocks {
		h = nn.Call(b, h)
	}
	return m.Head.Forward(m.Norm.Forward(h))
}

// branches has heads of which a pass uses one, and one that no pass uses.
type branches struct {
	nn.Module
	Body  *nn.LinearModule
	Heads []*nn.LinearModule
	head  int
}

func (m *branches) Forward(x gotorch.Tensor) gotorch.Tensor {
	return m.Heads[m.head].Forward(m.Body.Forward(x).Tanh())
}

// long trains a model for as many steps as there are batches, and is long of ranks.py.
func (s step) long(g *distributed.Group, tensors map[string]gotorch.Tensor) {
	runtime.LockOSThread() // the engine goes by the order in which a thread has made the graph
	defer runtime.UnlockOSThread()
	o := s.Train
	gotorch.ManualSeed(uint64(100*must(strconv.Atoi(s.ID)) + g.Rank()))
	var net nn.Layer
	var units []nn.Modular
	heads := &branches{}
	switch o.Model {
	case "cnn", "cnn whole", "cnn sync":
		layers := cnn(o.Model)
		net, units = layers, []nn.Modular{layers.Layers[0].(nn.Modular), layers.Layers[len(layers.Layers)-1].(nn.Modular)}
	case "transformer":
		m := newTransformer()
		net = m
		for _, b := range m.Blocks {
			units = append(units, b)
		}
	case "branches":
		heads.Body = nn.Linear(5, 7)
		heads.Heads = []*nn.LinearModule{nn.Linear(7, 10), nn.Linear(7, 10), nn.Linear(7, 10)}
		net = nn.Init(heads)
	}
	var model interface {
		nn.Layer
		Parameters() []gotorch.Tensor
	}
	whole := net.StateDict
	if o.Shard {
		m := distributed.FullyShard(net, distributed.FullyShardOptions{Group: g, Units: units})
		model, whole = m, func() nn.StateDict { return m.FullStateDict() }
	} else {
		opts := distributed.DataParallelOptions{Group: g, FindUnusedParameters: o.FindUnusedParameters}
		if o.BucketCapMB > 0 {
			opts.BucketCapMB = o.BucketCapMB
		}
		m := distributed.DataParallel(net, opts)
		defer m.Close()
		model = m
	}
	opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.02, Momentum: 0.9})
	var losses []float64
	for i := range s.Inputs / 2 {
		heads.head = (i + g.Rank()) % 2
		opt.ZeroGrad()
		out := model.Forward(tensors[fmt.Sprintf("%s.in.%d", s.ID, 2*i)])
		loss := F.CrossEntropy(out.Flatten(gotorch.FlattenOptions{EndDim: new(int64(-2))}), tensors[fmt.Sprintf("%s.in.%d", s.ID, 2*i+1)].Flatten())
		loss.Backward()
		opt.Step()
		losses = append(losses, gotorch.Item[float64](loss))
	}
	tensors[s.ID+".losses"] = gotorch.FromSlice(losses)
	for name, t := range whole() {
		tensors[s.ID+".state."+name] = t
	}
}
