package nn_test

import (
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

func TestTheFirstCallsOfALazyModuleMayComeFromSeveralGoroutines(t *testing.T) {
	model := nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.LazyInstanceNorm2d(),
		nn.LazyConvTranspose2d(2, 3), nn.Flatten(), nn.LazyLinear(3))
	model.Eval()
	x := gotorch.Ones([]int64{2, 3, 5, 5})
	var results [4]gotorch.Tensor
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i] = model.Forward(x) })
	}
	all.Wait()
	for i, got := range results {
		if want := model.Forward(x); !got.Equal(want) {
			t.Errorf("call %d gave %v, and later ones %v", i, got, want)
		}
	}
}

func TestALazyModuleStaysLazyIfItsShapeIsImpossible(t *testing.T) {
	for name, make := range map[string]func() nn.Layer{
		"LazyLinear":          func() nn.Layer { return nn.LazyLinear(2) },
		"LazyConv1d":          func() nn.Layer { return nn.LazyConv1d(2, 1) },
		"LazyConvTranspose1d": func() nn.Layer { return nn.LazyConvTranspose1d(2, 1) },
		"LazyBatchNorm1d":     func() nn.Layer { return nn.LazyBatchNorm1d() },
	} {
		m := make()
		huge := gotorch.Empty([]int64{1, 1 << 46, 1}, gotorch.TensorOptions{Device: gotorch.Meta})
		if name == "LazyLinear" {
			huge = huge.Flatten()
		}
		panics(t, func() { m.Forward(huge) })
		if got := m.String(); !strings.HasPrefix(got, name) {
			t.Errorf("it is a %s", got)
		}
		x := gotorch.Ones([]int64{2, 3, 4})
		if name == "LazyLinear" {
			x = gotorch.Ones([]int64{2, 3})
		}
		if got := m.Forward(x).Size(0); got != 2 {
			t.Errorf("%s: got %d", name, got)
		}
	}
}

func TestALoadThatFailsLeavesLazyModulesLazy(t *testing.T) {
	make := func() *nn.SequentialModule {
		return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Unflatten(1, []int64{4, 1}), nn.LazyConv1d(2, 1), nn.LazyConvTranspose1d(2, 1), nn.Flatten(), nn.Linear(2, 2))
	}
	trained := make()
	trained.Forward(gotorch.Ones([]int64{2, 3}))
	dict := trained.StateDict()
	delete(dict, "6.bias")
	model := make()
	before, shapes := model.String(), model.StateDict()
	model.RegisterLoadStateDictPostHook(func(nn.Modular, *nn.IncompatibleKeys) {})
	if err := model.LoadStateDict(dict); err == nil {
		t.Fatal("no error")
	}
	if got := model.String(); got != before {
		t.Errorf("it is\n%s\nafter\n%s", got, before)
	}
	for name, got := range model.StateDict() {
		if want := shapes[name]; got.Numel() != want.Numel() {
			t.Errorf("%s has shape %v after %v", name, got.Shape(), want.Shape())
		}
	}
	model.Forward(gotorch.Ones([]int64{2, 5})) // of another size
	if err := model.LoadStateDict(model.StateDict()); err != nil {
		t.Error(err)
	}
}
