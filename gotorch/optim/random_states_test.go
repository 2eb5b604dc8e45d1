package optim_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/optim"
)

// written returns all that is in a part of a state dict, to be compared.
func written(v any) string {
	switch v := v.(type) {
	case gotorch.Dict:
		s := "{"
		for key, value := range v.All() {
			s += written(key) + ":" + written(value) + ","
		}
		return s + "}"
	case []any:
		s := "["
		for _, value := range v {
			s += written(value) + ","
		}
		return s + "]"
	case gotorch.Tuple:
		return "tuple" + written([]any(v))
	case gotorch.Tensor:
		if !v.Defined() {
			return "closed"
		}
		if v.Device() == gotorch.Meta {
			return fmt.Sprint("meta", v.DType(), v.Shape())
		}
		if v.Layout() != gotorch.Strided {
			v = v.ToDense()
		}
		if v.DType().IsComplex() {
			v = gotorch.ViewAsReal(v)
		}
		return fmt.Sprint(v.DType(), v.Shape(), gotorch.ToSlice[float64](v.Detach().To(gotorch.Float64).Flatten()))
	}
	return fmt.Sprintf("%T(%v)", v, v)
}

// misfits make what has no place in most state dicts.
var misfits = []func() any{
	func() any { return nil },
	func() any { return int64(-1) },
	func() any { return int64(0) },
	func() any { return int64(math.MaxInt64) },
	func() any { return int64(1) << 40 },
	func() any { return 1.5 },
	func() any { return 1e300 },
	func() any { return math.NaN() },
	func() any { return math.Inf(1) },
	func() any { return "x" },
	func() any { return true },
	func() any { return gotorch.Dict{} },
	func() any { return []any{} },
	func() any { return gotorch.Tuple{1.0, nil} },
	func() any { return gotorch.Tensor{} },
	func() any { return gotorch.Zeros([]int64{0}) },
	func() any { return gotorch.Zeros([]int64{1}) },
	func() any { return gotorch.FromScalar(true) },
	func() any { return gotorch.FromScalar(math.NaN()) },
	func() any { return gotorch.Zeros([]int64{2, 2}, gotorch.TensorOptions{DType: gotorch.Float64}) },
	func() any { return gotorch.Zeros([]int64{2, 2}, gotorch.TensorOptions{Device: gotorch.Meta}) },
	func() any { return gotorch.Zeros([]int64{}, gotorch.TensorOptions{Device: gotorch.Meta}) },
	func() any { return gotorch.Zeros([]int64{2, 2}).ToSparse() },
	func() any { return gotorch.Ones([]int64{2, 2}).RequiresGrad_() },
	func() any { return gotorch.Zeros([]int64{1}).Expand([]int64{2}) },
	func() any { x := gotorch.Zeros([]int64{2, 2}); x.Close(); return x },
}

// misfitting returns a copy with one place changed at random.
func misfitting(r *rand.Rand, v any) any {
	if r.Intn(12) > 0 {
		switch v := v.(type) {
		case gotorch.Dict:
			if len(v) == 0 {
				break
			}
			n := append(gotorch.Dict(nil), v...)
			i := r.Intn(len(n))
			switch r.Intn(8) {
			case 0:
				return append(n[:i:i], n[i+1:]...)
			case 1:
				return append(n, n[i])
			case 2:
				n[i].Key = misfits[r.Intn(len(misfits))]()
			default:
				n[i].Value = misfitting(r, n[i].Value)
			}
			return n
		case []any:
			if len(v) == 0 {
				break
			}
			n := append([]any(nil), v...)
			i := r.Intn(len(n))
			if r.Intn(6) == 0 {
				return append(n, n[i])
			}
			n[i] = misfitting(r, n[i])
			return n
		}
	}
	return misfits[r.Intn(len(misfits))]()
}

// A state dict with one place changed is a ValueError that changes nothing, or it is taken: what comes of it then are
// steps, or typed errors.
func TestStateDictsChangedAtRandomChangeNothingOrFit(t *testing.T) {
	makers := map[string]func(p []gotorch.Tensor) optim.Optimizer{
		"SGD": func(p []gotorch.Tensor) optim.Optimizer { return optim.SGD(p, optim.SGDOptions{Momentum: 0.9}) },
		"fused SGD": func(p []gotorch.Tensor) optim.Optimizer {
			return optim.SGD(p, optim.SGDOptions{Momentum: 0.9, Fused: true})
		},
		"Adam":       func(p []gotorch.Tensor) optim.Optimizer { return optim.Adam(p, optim.AdamOptions{AMSGrad: true}) },
		"fused Adam": func(p []gotorch.Tensor) optim.Optimizer { return optim.Adam(p, optim.AdamOptions{Fused: true}) },
		"Adadelta":   func(p []gotorch.Tensor) optim.Optimizer { return optim.Adadelta(p) },
		"Adafactor":  func(p []gotorch.Tensor) optim.Optimizer { return optim.Adafactor(p) },
		"Adagrad":    func(p []gotorch.Tensor) optim.Optimizer { return optim.Adagrad(p) },
		"Adamax":     func(p []gotorch.Tensor) optim.Optimizer { return optim.Adamax(p) },
		"NAdam":      func(p []gotorch.Tensor) optim.Optimizer { return optim.NAdam(p) },
		"RAdam":      func(p []gotorch.Tensor) optim.Optimizer { return optim.RAdam(p) },
		"ASGD":       func(p []gotorch.Tensor) optim.Optimizer { return optim.ASGD(p) },
		"Muon":       func(p []gotorch.Tensor) optim.Optimizer { return optim.Muon(p[:1]) },
		"Rprop":      func(p []gotorch.Tensor) optim.Optimizer { return optim.Rprop(p) },
		"RMSprop": func(p []gotorch.Tensor) optim.Optimizer {
			return optim.RMSprop(p, optim.RMSpropOptions{Momentum: 0.5, Centered: true})
		},
		"LBFGS": func(p []gotorch.Tensor) optim.Optimizer {
			return optim.LBFGS(p, optim.LBFGSOptions{MaxIter: 3, LineSearchFn: "strong_wolfe"})
		},
	}
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewSource(5))
			refused := 0
			for n := range 60 {
				p := []gotorch.Tensor{gotorch.Randn([]int64{2, 2}).RequiresGrad_(), gotorch.Randn([]int64{2}).RequiresGrad_()}
				opt := make(p)
				step := func() {
					opt.StepWith(func() gotorch.Tensor {
						opt.ZeroGrad()
						loss := p[0].Mul(p[0]).Sum().Add(p[1].Mul(p[1]).Sum())
						loss.Backward()
						return loss
					})
				}
				step()
				step()
				before := written(opt.StateDict())
				dict, ok := misfitting(r, opt.StateDict()).(gotorch.Dict)
				if !ok {
					continue
				}
				what := written(dict)
				if err := opt.LoadStateDict(dict); err != nil {
					refused++
					if !errors.Is(err, gotorch.ValueError) {
						t.Errorf("%d: %v\n%s", n, err, what)
					}
					if after := written(opt.StateDict()); after != before {
						t.Errorf("%d: after %v\n%s\nis\n%s", n, err, before, after)
					}
					continue
				}
				opt.StateDict()
				if err := gotorch.Try0(step); err != nil && !errors.Is(err, gotorch.RuntimeError) {
					t.Errorf("%d: %v\n%s", n, err, what)
				}
			}
			if refused < 10 {
				t.Errorf("%d were refused", refused)
			}
		})
	}
}
