package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/train"
)

// breaking is a layer that makes a NaN or a gradient that is none, when it is told to.
type breaking struct {
	nn.Module
	Scale gotorch.Tensor
	at    int
	how   string
	calls *int
}

func (b *breaking) Forward(x gotorch.Tensor) gotorch.Tensor {
	*b.calls++
	x = x.Mul(b.Scale)
	if *b.calls < b.at {
		return x
	}
	switch b.how {
	case "nan":
		return x.MulScalar(math.NaN())
	case "gradient": // the square root of zero has an infinite one
		return x.Add(b.Scale.Sub(b.Scale.Detach()).Abs().Sqrt())
	}
	return x
}

// net is a model with buffers, random numbers and a layer that breaks in the third step.
func net(how string) (*nn.SequentialModule, *int) {
	gotorch.ManualSeed(1)
	calls := new(int)
	layer := nn.Init(&breaking{Scale: gotorch.Ones([]int64{1}), at: 3, how: how, calls: calls})
	return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), layer, nn.Linear(3, 1)), calls
}

func pairs(n int) *data.Loader[data.Pair] {
	return data.NewLoader(data.NewTensorDataset(gotorch.Ones([]int64{int64(4 * n), 2}).CumSum(0).MulScalar(0.01), gotorch.Ones([]int64{int64(4 * n), 1})),
		data.LoaderOptions{BatchSize: 4})
}

// state is everything that a step changes, as text.
func state(m nn.Modular, opt optim.Optimizer) string {
	var b strings.Builder
	for _, name := range m.StateDict().Names() {
		fmt.Fprintln(&b, name, m.StateDict()[name])
	}
	fmt.Fprintln(&b, opt.StateDict(), gotorch.Rand([]int64{3}))
	return b.String()
}

func TestStopAtNonFinite(t *testing.T) {
	mse := nn.LossFunc(func(y, target gotorch.Tensor) gotorch.Tensor { return F.MSELoss(y, target) })
	for how, want := range map[string]string{
		"nan":      `train: epoch 1, step 2: step 3: the loss is NaN: the first module to return what is not finite is "3", a breaking`,
		"gradient": `train: epoch 1, step 2: step 3: gradients are not finite, of 3.scale; the loss is `,
		"loss":     `train: epoch 1, step 2: step 3: the loss is +Inf: what the model returns is finite, and its loss is not`,
	} {
		// Two steps without the option, and two with it before the third is refused.
		run := func(steps train.Limit, check bool) (string, error) {
			m, calls := net(how)
			opt := optim.Adam(m.Parameters(), optim.AdamOptions{LR: 0.1})
			loss := mse
			if how == "loss" {
				loss = func(y, target gotorch.Tensor) gotorch.Tensor {
					if *calls == 3 {
						return F.MSELoss(y, target).AddScalar(math.Inf(1))
					}
					return F.MSELoss(y, target)
				}
			}
			loop := train.NewLoop(m, opt, loss)
			if check {
				loop.StopAtNonFinite()
			}
			history, err := loop.Run(context.Background(), pairs(5), steps)
			if len(history.Losses) != 2 {
				t.Errorf("%s: %d losses", how, len(history.Losses))
			}
			if check {
				for name, p := range m.NamedParameters() {
					if p.Grad().Defined() {
						t.Errorf("%s: %s has a gradient", how, name)
					}
				}
			}
			return state(m, opt), err
		}
		good, err := run(train.Steps(2), false)
		if err != nil {
			t.Fatal(err)
		}
		stopped, err := run(train.Epochs(1), true)
		var bad *train.NonFiniteError
		if !errors.As(err, &bad) || bad.Step != 3 || bad.Epoch != 1 || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", how, err)
		}
		if good != stopped {
			t.Errorf("%s: the refused step has changed something:\n%s\nnot\n%s", how, stopped, good)
		}
	}
}

func TestWhatWasNotFiniteBefore(t *testing.T) {
	nan := float32(math.NaN())
	good := gotorch.Ones([]int64{4, 2})
	for part, batch := range map[train.NonFinitePart][2]gotorch.Tensor{
		train.NonFiniteInput:     {good.MulScalar(nan), gotorch.Ones([]int64{4, 1})},
		train.NonFiniteTarget:    {good, gotorch.Full([]int64{4, 1}, math.Inf(1))},
		train.NonFiniteParameter: {good, gotorch.Ones([]int64{4, 1})},
	} {
		m, _ := net("")
		if part == train.NonFiniteParameter {
			gotorch.NoGrad(func() { m.Layers[4].(*nn.LinearModule).Bias.Fill_(nan) })
		}
		loop := train.NewLoop(m, optim.SGD(m.Parameters()), nn.MSELoss())
		loop.StopAtNonFinite()
		_, err := loop.Run(context.Background(), data.NewLoader(data.NewTensorDataset(batch[0], batch[1]), data.LoaderOptions{BatchSize: 4}), train.Epochs(1))
		var bad *train.NonFiniteError
		if !errors.As(err, &bad) || bad.Part != part || part == train.NonFiniteParameter && bad.Name != "4.bias" {
			t.Errorf("%s: %v", part, err)
		}
	}
}

func TestNonFiniteModelWithoutACause(t *testing.T) {
	m := nn.Init(&divided{Inner: nn.Linear(2, 1)})
	loop := train.NewLoop(m, optim.SGD(m.Parameters()), nn.MSELoss())
	loop.StopAtNonFinite()
	_, err := loop.Run(context.Background(), pairs(1), train.Epochs(1))
	if err == nil || !strings.Contains(err.Error(), "what the model, a divided, returns is not finite, and no module within") {
		t.Error(err)
	}
}

type divided struct {
	nn.Module
	Inner *nn.LinearModule
}

func (d *divided) Forward(x gotorch.Tensor) gotorch.Tensor { return d.Inner.Forward(x).DivScalar(0) }

// Sound runs end as without the option, bit for bit, and leave nothing behind.
func TestStopAtNonFiniteChangesNoSoundRun(t *testing.T) {
	run := func(check bool) string {
		m, _ := net("")
		opt := optim.Adam(m.Parameters())
		loop := train.NewLoop(m, opt, nn.MSELoss())
		if check {
			loop.StopAtNonFinite()
		}
		if _, err := loop.Run(context.Background(), pairs(4), train.Epochs(2)); err != nil {
			t.Error(err)
		}
		return state(m, opt)
	}
	if run(true) != run(false) {
		t.Error("the option changes what is computed")
	}
	var left []int64
	for range 3 {
		for range 3 {
			run(true)
			m, _ := net("nan")
			loop := train.NewLoop(m, optim.SGD(m.Parameters()), nn.MSELoss())
			loop.StopAtNonFinite()
			if _, err := loop.Run(context.Background(), pairs(4), train.Epochs(1)); err == nil {
				t.Error("no error")
			}
		}
		for range 3 {
			runtime.GC()
			gotorch.ReleaseCachedMemory()
		}
		left = append(left, gotorch.MemoryStats().LiveHandles)
	}
	if left[2] > left[1] {
		t.Errorf("handles: %v", left)
	}
}

func ExampleLoop_StopAtNonFinite() {
	gotorch.ManualSeed(0)
	model := nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
	loop := train.NewLoop(model, optim.SGD(model.Parameters(), optim.SGDOptions{LR: 1e30}), nn.MSELoss())
	loop.StopAtNonFinite()
	_, err := loop.Run(context.Background(), pairs(5), train.Epochs(3))
	var bad *train.NonFiniteError
	fmt.Println(errors.As(err, &bad), bad.Part, bad.Name)
	// Output: true module 2
}

// chancy is a layer that makes a NaN now and then.
type chancy struct{ nn.Module }

func (*chancy) Forward(x gotorch.Tensor) gotorch.Tensor {
	if gotorch.Item[float64](gotorch.Rand(nil)) < 0.3 {
		return x.MulScalar(math.NaN())
	}
	return x
}

// Which module it was is found by computing once more, with the random numbers of the first time.
func TestAModuleThatIsNonFiniteByChanceIsFound(t *testing.T) {
	for seed := range uint64(10) {
		gotorch.ManualSeed(seed)
		m := nn.Sequential(nn.Linear(2, 3), nn.Init(&chancy{}), nn.Linear(3, 1))
		loop := train.NewLoop(m, optim.SGD(m.Parameters()), nn.MSELoss())
		loop.StopAtNonFinite()
		_, err := loop.Run(t.Context(), pairs(40), train.Epochs(1))
		if bad, is := errors.AsType[*train.NonFiniteError](err); !is || bad.Part != train.NonFiniteModule || bad.Name != "1" {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
