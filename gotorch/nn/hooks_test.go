package nn_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

func TestHooksSeeAndChangeWhatPasses(t *testing.T) {
	layer := nn.Linear(3, 2)
	x := gotorch.Randn([]int64{4, 3})
	plain := layer.Forward(x)
	var seen []string
	pre := layer.RegisterForwardPreHook(func(m nn.Modular, in []gotorch.Tensor) []gotorch.Tensor {
		seen = append(seen, "pre")
		if m != nn.Modular(layer) || in[0].T != x.T {
			t.Errorf("the hook got %v and another tensor", m)
		}
		return []gotorch.Tensor{in[0].MulScalar(2)}
	})
	post := layer.RegisterForwardHook(func(_ nn.Modular, in, out []gotorch.Tensor) []gotorch.Tensor {
		seen = append(seen, "post")
		return []gotorch.Tensor{out[0].AddScalar(1)}
	})
	want := layer.Weight.MatMul(x.MulScalar(2).Transpose(0, 1)).Transpose(0, 1).Add(layer.Bias).AddScalar(1)
	for name, got := range map[string]gotorch.Tensor{
		"Forward": layer.Forward(x), "Call": nn.Call(layer, x), "Sequential": nn.Sequential(layer).Forward(x),
	} {
		if !got.AllClose(want) {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
	if !slices.Equal(seen, []string{"pre", "post", "pre", "post", "pre", "post"}) {
		t.Errorf("the hooks were called as %v", seen)
	}
	pre.Remove()
	post.Remove()
	post.Remove()
	if !layer.Forward(x).Equal(plain) {
		t.Error("removed hooks are called")
	}
}

type block struct {
	nn.Module
	Inner *nn.LinearModule
}

func (b *block) Forward(x gotorch.Tensor) gotorch.Tensor { return b.Inner.Forward(x) }

type subclass struct{ *nn.LinearModule }

func (s subclass) Forward(x gotorch.Tensor) gotorch.Tensor { return s.LinearModule.Forward(x).ReLU() }

func TestHooksOfModulesOfYourOwn(t *testing.T) {
	b := nn.Init(&block{Inner: nn.Linear(2, 2)})
	calls := 0
	count := func(nn.Modular, []gotorch.Tensor, []gotorch.Tensor) []gotorch.Tensor { calls++; return nil }
	b.RegisterForwardHook(count)
	x := gotorch.Ones([]int64{1, 2})
	b.Forward(x)
	if calls != 0 {
		t.Error("Forward by itself calls the hook, and Python's forward does not")
	}
	nn.Call(b, x)
	nn.Sequential(b, nn.ReLU()).Forward(x)
	if calls != 2 {
		t.Errorf("the hook was called %d times, not twice", calls)
	}
}

func TestHooksOfAModuleThatEmbedsALayer(t *testing.T) {
	s := nn.Init(&subclass{nn.Linear(2, 2)})
	calls := 0
	s.RegisterForwardHook(func(m nn.Modular, _, _ []gotorch.Tensor) []gotorch.Tensor {
		if m != nn.Modular(s) {
			t.Errorf("the hook got a %T", m)
		}
		calls++
		return nil
	})
	x := gotorch.Ones([]int64{1, 2})
	s.Forward(x)
	nn.Call(s, x)
	if calls != 1 {
		t.Errorf("the hook was called %d times, not once, by Call", calls)
	}
}

func TestBackwardHooks(t *testing.T) {
	layer := nn.Linear(3, 2, nn.LinearOptions{NoBias: true})
	x := gotorch.Ones([]int64{1, 3}, gotorch.TensorOptions{RequiresGrad: true})
	var order []string
	layer.RegisterFullBackwardPreHook(func(_ nn.Modular, out []gotorch.Tensor) []gotorch.Tensor {
		order = append(order, "pre")
		return []gotorch.Tensor{out[0].MulScalar(10)}
	})
	layer.RegisterFullBackwardHook(func(_ nn.Modular, in, out []gotorch.Tensor) []gotorch.Tensor {
		order = append(order, "post")
		if got := gotorch.ToSlice[float64](out[0]); !slices.Equal(got, []float64{10, 10}) {
			t.Errorf("the gradients of outputs are %v", got)
		}
		return []gotorch.Tensor{in[0].MulScalar(0)}
	})
	layer.Forward(x).Sum().Backward()
	if !slices.Equal(order, []string{"pre", "post"}) {
		t.Errorf("called as %v", order)
	}
	if got := gotorch.ToSlice[float64](x.Grad()); !slices.Equal(got, []float64{0, 0, 0}) {
		t.Errorf("the input's gradient is %v", got)
	}
	if got := gotorch.ToSlice[float64](layer.Weight.Grad()); !slices.Equal(got, []float64{10, 10, 10, 10, 10, 10}) {
		t.Errorf("the weight's gradient is %v", got)
	}
	// An input without gradients: the hook has those of the outputs.
	layer.ZeroGrad()
	order = nil
	bare := nn.Linear(3, 2)
	bare.RegisterFullBackwardHook(func(_ nn.Modular, in, out []gotorch.Tensor) []gotorch.Tensor {
		if in != nil || len(out) != 1 {
			t.Errorf("%d gradients of inputs, %d of outputs", len(in), len(out))
		}
		order = append(order, "bare")
		return nil
	})
	bare.Forward(x.Detach()).Sum().Backward()
	if !slices.Equal(order, []string{"bare"}) {
		t.Errorf("called as %v", order)
	}
}

func TestHooksThatReturnTooManyAreTypeErrors(t *testing.T) {
	layer := nn.ReLU()
	layer.RegisterForwardPreHook(func(_ nn.Modular, in []gotorch.Tensor) []gotorch.Tensor { return append(in, in...) })
	if err := gotorch.Try0(func() { layer.Forward(gotorch.Ones([]int64{1})) }); !errors.Is(err, gotorch.TypeError) {
		t.Errorf("got %v", err)
	}
}

func TestHooksLeaveNoHandles(t *testing.T) {
	layer := nn.Linear(3, 2)
	layer.RegisterForwardHook(func(_ nn.Modular, _, out []gotorch.Tensor) []gotorch.Tensor {
		return []gotorch.Tensor{out[0].MulScalar(2)}
	})
	layer.RegisterFullBackwardHook(func(_ nn.Modular, in, _ []gotorch.Tensor) []gotorch.Tensor {
		return []gotorch.Tensor{in[0].MulScalar(2)}
	})
	x := gotorch.Ones([]int64{1, 3}, gotorch.TensorOptions{RequiresGrad: true})
	step := func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			layer.Forward(x).Sum().Backward()
			layer.ZeroGrad()
			x.SetGrad(gotorch.Tensor{})
		})
	}
	noHandlesLeft(t, step)
}

// wrapped has a module of its type's own Forward, and is not given to Init.
type wrapped struct{ *nn.LinearModule }

func (w *wrapped) Forward(x gotorch.Tensor) gotorch.Tensor { return w.LinearModule.Forward(x) }

// keepless says that it keeps nothing.
type keepless struct{ block }

func (k *keepless) KeepsNothing() bool { return true }

func TestHooksAreCalledOnce(t *testing.T) {
	x := gotorch.Ones([]int64{2, 2})
	picture := gotorch.Ones([]int64{1, 1, 2, 2})
	up := nn.ConvTranspose2d(1, 1, 2, nn.ConvTranspose2dOptions{Stride: []int64{2}})
	pool := nn.MaxPool2d(2)
	inner := nn.Sequential(nn.ReLU())
	for name, c := range map[string]struct {
		m    nn.Modular
		call func(m nn.Modular)
	}{
		"one that embeds a layer": {&wrapped{nn.Linear(2, 2)}, func(m nn.Modular) { nn.Call(m.(nn.Layer), x) }},
		"the same, in a row":      {&wrapped{nn.Linear(2, 2)}, func(m nn.Modular) { nn.Sequential(nn.ReLU(), m.(nn.Layer)).Forward(x) }},
		"one that keeps nothing": {nn.Init(&keepless{block{Inner: nn.Linear(2, 2)}}), func(m nn.Modular) {
			nn.Sequential(nn.ReLU(), m.(nn.Layer), nn.ReLU()).Forward(x)
		}},
		"a row in a row":     {inner, func(nn.Modular) { nn.Sequential(nn.ReLU(), nn.Sequential(inner)).Forward(x) }},
		"ForwardSize":        {up, func(nn.Modular) { up.ForwardSize(picture, []int64{4, 4}) }},
		"ForwardWithIndices": {pool, func(nn.Modular) { pool.ForwardWithIndices(picture) }},
	} {
		calls := 0
		type hooked interface {
			RegisterForwardHook(nn.ForwardHook) *nn.HookHandle
		}
		handle := c.m.(hooked).RegisterForwardHook(func(nn.Modular, []gotorch.Tensor, []gotorch.Tensor) []gotorch.Tensor { calls++; return nil })
		c.call(c.m)
		if calls != 1 {
			t.Errorf("%s: the hook was called %d times", name, calls)
		}
		handle.Remove()
		c.call(c.m)
		if calls != 1 {
			t.Errorf("%s: the hook was called when it was removed", name)
		}
	}
	// A pre-hook is before all that depends on the input.
	up.RegisterForwardPreHook(func(_ nn.Modular, in []gotorch.Tensor) []gotorch.Tensor {
		return []gotorch.Tensor{gotorch.Ones([]int64{1, 1, 3, 3})}
	})
	if s := up.ForwardSize(picture, []int64{7, 7}).Shape(); !slices.Equal(s, []int64{1, 1, 7, 7}) {
		t.Errorf("the size is %v", s)
	}
}

func TestNoModuleIsATypeError(t *testing.T) {
	x := gotorch.Ones([]int64{2, 2})
	for name, fn := range map[string]func(){
		"nil":                 func() { nn.Call(nil, x) },
		"a nil pointer":       func() { nn.Clone((*nn.LinearModule)(nil)) },
		"a struct":            func() { nn.Sequential(subclass{nn.Linear(2, 2)}) },
		"a struct, called":    func() { nn.Call(subclass{nn.Linear(2, 2)}, x) },
		"one that embeds nil": func() { nn.Init(&subclass{}) },
		"one in a row":        func() { nn.Sequential(&subclass{}) },
		"an encoder of nil":   func() { nn.TransformerEncoder((*nn.TransformerEncoderLayerModule)(nil), 0) },
		"a decoder of nil":    func() { nn.TransformerDecoder(nil, 1) },
		"an encoder of one's own": func() {
			nn.Transformer(nn.TransformerModelOptions{DModel: 4, Nhead: 2, CustomEncoder: (*nn.TransformerEncoderModule)(nil)})
		},
		"a hook that is nil":          func() { nn.ReLU().RegisterForwardHook(nil) },
		"an LSTM without its weights": func() { nn.Init(&nn.LSTMModule{}).Forward(x) },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, gotorch.TypeError) {
			t.Errorf("%s: %v", name, err)
		}
	}
	(&nn.HookHandle{}).Remove()
}

func TestBackwardHooksGetNoneWhereThereIsNone(t *testing.T) {
	is := func(tensors []gotorch.Tensor) (list []bool) {
		for _, t := range tensors {
			list = append(list, t.T != nil)
		}
		return list
	}
	x := gotorch.Randn([]int64{3, 1, 4}, gotorch.TensorOptions{RequiresGrad: true})
	attention, pool := nn.MultiheadAttention(4, 2), nn.MaxPool1d(2)
	for name, c := range map[string]struct {
		register func(nn.BackwardHook) *nn.HookHandle
		forward  func() gotorch.Tensor
		in, out  []bool
	}{
		"no weights": {attention.RegisterFullBackwardHook, func() gotorch.Tensor {
			y, weights := attention.Forward(x, x, x, nn.AttentionOptions{NoNeedWeights: true})
			if weights.T != nil {
				t.Error("weights that nobody wants")
			}
			return y
		}, []bool{true, true, true}, []bool{true, false}},
		"indices": {pool.RegisterFullBackwardHook, func() gotorch.Tensor {
			y, _ := pool.ForwardWithIndices(x)
			return y
		}, []bool{true}, []bool{true, false}},
	} {
		calls := 0
		c.register(func(_ nn.Modular, in, out []gotorch.Tensor) []gotorch.Tensor {
			calls++
			if !slices.Equal(is(in), c.in) || !slices.Equal(is(out), c.out) {
				t.Errorf("%s: gradients %v and %v", name, is(in), is(out))
			}
			return nil
		})
		c.forward().Sum().Backward()
		if calls != 1 {
			t.Errorf("%s: called %d times", name, calls)
		}
	}
}

// attending has a Forward that is no Layer's.
type attending struct {
	nn.Module
	Weight gotorch.Tensor
}

func (m *attending) Forward(q, k gotorch.Tensor, scale float64) (out, weights gotorch.Tensor) {
	weights = q.MatMul(m.Weight).MatMul(k.Transpose2D()).MulScalar(scale)
	return weights.MatMul(k), weights
}

func TestCallWithIsCallForAnyForward(t *testing.T) {
	m := nn.Init(&attending{Weight: gotorch.Eye(2)})
	x := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2).RequiresGrad_()
	forward := func(in []gotorch.Tensor) []gotorch.Tensor {
		out, weights := m.Forward(in[0], in[1], 0.5)
		return []gotorch.Tensor{out, weights}
	}
	want, _ := m.Forward(x, x, 0.5)
	if got := nn.CallWith(m, forward, x, x); len(got) != 2 || !got[0].Equal(want) {
		t.Errorf("got %v", got)
	}
	var seen []string
	m.RegisterForwardPreHook(func(_ nn.Modular, in []gotorch.Tensor) []gotorch.Tensor {
		seen = append(seen, fmt.Sprint("pre", len(in)))
		return []gotorch.Tensor{in[0].MulScalar(2), in[1]}
	})
	m.RegisterForwardHook(func(_ nn.Modular, in, out []gotorch.Tensor) []gotorch.Tensor {
		seen = append(seen, fmt.Sprint("post", len(in), len(out)))
		return nil
	})
	m.RegisterFullBackwardHook(func(_ nn.Modular, in, out []gotorch.Tensor) []gotorch.Tensor {
		seen = append(seen, fmt.Sprint("back", len(in), len(out)))
		return nil
	})
	got := nn.CallWith(m, forward, x, x)
	got[0].Sum().Backward()
	if !got[0].Equal(want.MulScalar(2)) || fmt.Sprint(seen) != "[pre2 post2 2 back2 2]" {
		t.Errorf("got %v, and the hooks %v", got[0], seen)
	}
	for what, fn := range map[string]func(){
		"a layer of package nn": func() { nn.CallWith(nn.Linear(1, 1), forward) },
		"nil":                   func() { nn.CallWith(m, nil) },
		"no module":             func() { nn.CallWith(nil, forward) },
	} {
		if err := gotorch.Try0(fn); !errors.Is(err, gotorch.TypeError) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
