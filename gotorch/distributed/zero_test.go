package distributed_test

import (
	"errors"
	"reflect"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// numbers is a state dict with slices in place of tensors.
func numbers(value any) any {
	switch v := value.(type) {
	case gotorch.Tensor:
		return gotorch.ToSlice[float64](v.To(gotorch.Float64))
	case gotorch.Dict:
		m := map[any]any{}
		for k, x := range v.All() {
			m[k] = numbers(x)
		}
		return m
	case []any:
		var list []any
		for _, x := range v {
			list = append(list, numbers(x))
		}
		return list
	}
	return value
}

func elements(dict gotorch.Dict) (n int64) {
	states, _ := dict.Get("state").(gotorch.Dict)
	for _, state := range states.All() {
		for _, t := range state.(gotorch.Dict).All() {
			if t, is := t.(gotorch.Tensor); is {
				n += t.Numel()
			}
		}
	}
	return n
}

func TestAStateThatIsSharedOutIsThatOfOne(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		for n, made := range []func([]gotorch.Tensor) optim.Optimizer{ // all ranks in one order
			func(ps []gotorch.Tensor) optim.Optimizer { return optim.AdamW(ps, optim.AdamWOptions{LR: 0.01}) },
			func(ps []gotorch.Tensor) optim.Optimizer {
				return optim.SGD(ps, optim.SGDOptions{LR: 0.1, Momentum: 0.9, WeightDecay: 0.1})
			},
		} {
			name := []string{"adamw", "sgd"}[n]
			model := func() *nn.SequentialModule {
				net := nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Linear(4, 2))
				for i, p := range net.Parameters() {
					gotorch.NoGrad(func() {
						p.Copy_(gotorch.Arange(p.Numel()).To(gotorch.Float32).MulScalar(0.01 * float64(i+1)).ViewAs(p))
					})
				}
				return net
			}
			plain, shared := model(), model()
			one := made(plain.Parameters())
			all := distributed.ZeroRedundancyOptimizer(g, made(shared.Parameters()))
			step := func(net nn.Layer, opt optim.Optimizer, i int) {
				opt.ZeroGrad()
				x := gotorch.Arange(6).To(gotorch.Float32).AddScalar(i).Reshape([]int64{2, 3}).Cos()
				net.Forward(x).Pow(2).Mean().Backward()
				opt.Step()
			}
			for i := range 3 {
				step(plain, one, i)
				step(shared, all, i)
			}
			if err := gotorch.Try0(func() { all.StateDict() }); !errors.Is(err, gotorch.RuntimeError) {
				t.Error(err)
			}
			testhelp.Must(t, all.Consolidate(1))
			if g.Rank() == 1 {
				if got, want := numbers(all.StateDict()), numbers(one.StateDict()); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v, and alone %v", name, got, want)
				}
			}
			if part, whole := elements(all.LocalStateDict()), elements(one.StateDict()); part > whole*6/10 {
				t.Errorf("%s: rank %d keeps %d numbers of %d", name, g.Rank(), part, whole)
			}
			// What one has saved, all go on from.
			next := distributed.ZeroRedundancyOptimizer(g, made(shared.Parameters()))
			testhelp.Must(t, next.LoadStateDict(one.StateDict()))
			step(plain, one, 3)
			step(shared, next, 3)
			for i, p := range plain.Parameters() {
				if !p.Equal(shared.Parameters()[i]) {
					t.Errorf("%s: rank %d has another parameter %d", name, g.Rank(), i)
				}
			}
			if part := elements(next.LocalStateDict()); part != elements(all.LocalStateDict()) {
				t.Error("what was loaded is not shared out")
			}
		}
		if err := gotorch.Try0(func() { distributed.ZeroRedundancyOptimizer(g, nil) }); !errors.Is(err, gotorch.TypeError) {
			t.Error(err)
		}
		lbfgs := optim.LBFGS(nn.Linear(1, 1).Parameters(), optim.LBFGSOptions{LR: 1})
		if err := gotorch.Try0(func() { distributed.ZeroRedundancyOptimizer(g, lbfgs) }); !errors.Is(err, gotorch.NotImplementedError) {
			t.Error(err)
		}
	})
}
