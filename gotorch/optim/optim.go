// Package optim has the optimisers: they change a model's parameters by the gradients that a backward
// pass has left.
//
//	opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 0.1, Momentum: 0.9})
//	for batch := range loader.All() {
//		loss := F.CrossEntropy(model.Forward(batch.Input), batch.Target)
//		opt.ZeroGrad()
//		loss.Backward()
//		opt.Step()
//	}
//
// Parameters in groups have options of their own, and all of them can be changed between steps. Those that AddGroup is not
// given are what the optimiser was made with, also a bool that is false, which the fields of the group turn off:
//
//	opt := optim.AdamW(body.Parameters(), optim.AdamWOptions{LR: 1e-4, AMSGrad: true})
//	opt.AddGroup(head.Parameters(), optim.AdamWOptions{LR: 1e-3, WeightDecay: 0}).AMSGrad = false
//	opt.Groups[0].LR *= 0.5
//	for _, lr := range opt.LRs() { // of all groups, of any optimiser
//		*lr *= 0.9
//	}
//
// A group that is added may have no parameters. A parameter may be the result of a computation if it retains its gradient,
// by RetainGrad.
//
// An optimiser gives the same numbers as PyTorch's, to the last bit where the gradients are the same
// and the tensors are on a CPU: it does the same arithmetic, in a few calls for all tensors of a group
// (the _foreach_ functions) rather than some for each. With the option Fused it uses the _fused_
// kernels, as PyTorch does with fused=True; they read and write memory once, and differ in the last
// bits. PyTorch's foreach, capturable and differentiable are not options here.
package optim

import (
	"fmt"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Optimizer is what training loops and schedules need of an optimiser. An Optimizer is used by one
// goroutine at a time.
//
// See https://docs.pytorch.org/docs/stable/optim.html#torch.optim.Optimizer.
type Optimizer interface {
	// Step changes the parameters that have a gradient.
	Step()
	// StepWith computes a loss and its gradients by closure, which zeroes them first, then changes the
	// parameters, and returns the loss. LBFGS calls closure several times.
	StepWith(closure func() gotorch.Tensor) gotorch.Tensor
	// ZeroGrad drops the gradients.
	ZeroGrad()
	// LRs returns where the learning rate of each group is, to be read or changed.
	LRs() []*float64
	// ParamGroups returns the groups, whose options have names in any optimiser.
	ParamGroups() []ParamGroup
	// StateDict returns what the optimiser remembers, as PyTorch's state_dict does: saved with
	// gotorch.Save, it can be loaded there.
	StateDict() gotorch.Dict
	// LoadStateDict restores what StateDict of this optimiser, here or in PyTorch, has returned. If
	// it does not fit, it returns a *gotorch.Error of kind ValueError and changes nothing.
	LoadStateDict(dict gotorch.Dict) error
}

// notNegative panics with a ValueError if a value is negative or no number.
func notNegative(op, what string, value float64) {
	if !(value >= 0) {
		panic(args.ValueError(op, "invalid %s: %v", what, value))
	}
}

// isPositive panics with a ValueError unless value is above 0.
func isPositive(op, what string, value float64) {
	if !(value > 0) {
		panic(args.ValueError(op, "invalid %s: %v", what, value))
	}
}

// isFraction panics with a ValueError unless value is at least 0 and below 1.
func isFraction(op, what string, value float64) {
	if !(value >= 0 && value < 1) {
		panic(args.ValueError(op, "invalid %s: %v", what, value))
	}
}

// areBetas panics with a ValueError unless both are at least 0 and below 1.
func areBetas(op string, betas [2]float64) {
	for i, beta := range betas {
		isFraction(op, fmt.Sprintf("beta parameter at index %d", i), beta)
	}
}

// checkParams panics with a ValueError unless params can be the next group. As in PyTorch only the first has at least one.
func checkParams(op string, params []gotorch.Tensor, groups []*Common) {
	if len(params) == 0 && len(groups) == 0 {
		panic(args.ValueError(op, "optimizer got an empty parameter list"))
	}
	taken := map[uintptr]bool{}
	for _, g := range groups {
		for _, p := range g.Params {
			if p.Defined() {
				taken[uintptr(*p.T)] = true
			}
		}
	}
	for i, p := range params {
		if !p.IsLeaf() && !p.RetainsGrad() {
			panic(args.ValueError(op, "can't optimize a non-leaf Tensor: parameter %d is the result of a computation", i))
		}
		if handle := uintptr(*p.T); taken[handle] {
			panic(args.ValueError(op, "parameter %d appears twice, or in more than one parameter group", i))
		} else {
			taken[handle] = true
		}
	}
}

// step runs fn without recording a graph, and frees the tensors that it makes.
func step(fn func()) {
	gotorch.NoGrad(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) { fn() })
	})
}

// scale multiplies all of list by a number. On a CPU _foreach_mul_ rounds the number to float16 or bfloat16,
// where the tensors are; mul_ with a tensor, which is what Python calls, does not.
func scale(list []gotorch.Tensor, by float64) {
	var short, others []gotorch.Tensor
	for _, t := range list {
		if d := t.DType(); (d == gotorch.Float16 || d == gotorch.BFloat16) && t.Device().Type() == gotorch.DeviceTypeCPU {
			short = append(short, t)
		} else {
			others = append(others, t)
		}
	}
	if len(short) > 0 {
		gotorch.ForeachMulTensor_(short, gotorch.FromScalar(float32(by)))
	}
	if len(others) > 0 {
		gotorch.ForeachMulScalar_(others, by)
	}
}

// remember returns what fn makes, which is to outlive every scope that the caller is in.
func remember(fn func() gotorch.Tensor) (t gotorch.Tensor) {
	gotorch.Unscoped(func() { t = fn() })
	return t
}

// State dicts ----------------------------------------------------------------------------------------

// reader takes values out of a dict and keeps the first error.
type reader struct {
	op  string
	err error
}

// keep keeps err, if it is one.
func (r *reader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) fail(key string, got any, want string) {
	r.keep(args.ValueError(r.op, "the state dict has %T as '%s', where %s is required", got, key, want))
}

func (r *reader) float(d gotorch.Dict, key string) float64 {
	switch v := d.Get(key).(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	case gotorch.Tensor:
		if v.Defined() && v.Numel() == 1 && !v.DType().IsComplex() {
			number, err := gotorch.Try(func() float64 { return gotorch.Item[float64](v) })
			r.unreadable(key, err)
			return number
		}
		r.fail(key, v, "a number")
	default:
		r.fail(key, v, "a number")
	}
	return 0
}

// count takes a whole number that is not negative, as a float too, which is how Python has steps.
func (r *reader) count(d gotorch.Dict, key string) int64 {
	if n, ok := d.Get(key).(int64); ok && n >= 0 {
		return n // which a float would round
	}
	n := r.float(d, key)
	if !(n >= 0 && n < 1<<63 && n == math.Trunc(n)) {
		r.keep(args.ValueError(r.op, "the state dict has %v as '%s', where a number of steps is required", n, key))
		return 0
	}
	return int64(n)
}

// bool takes a missing value and None for false: some options are None by default, others are newer
// than the file.
func (r *reader) bool(d gotorch.Dict, key string) bool {
	switch v := d.Get(key).(type) {
	case bool:
		return v
	case nil:
	default:
		r.fail(key, v, "a bool")
	}
	return false
}

// text takes a string; None is "".
func (r *reader) text(d gotorch.Dict, key string) string {
	switch v := d.Get(key).(type) {
	case string:
		return v
	case nil:
	default:
		r.fail(key, v, "a string")
	}
	return ""
}

// list takes a tuple or list with as many values as are wanted; nil if there is none.
func (r *reader) list(d gotorch.Dict, key string, want int) []any {
	v := d.Get(key)
	list, ok := v.([]any)
	if tuple, isTuple := v.(gotorch.Tuple); isTuple {
		list, ok = tuple, true
	}
	if !ok || len(list) != want {
		r.fail(key, v, fmt.Sprintf("a list of %d numbers", want))
		return nil
	}
	return list
}

// numbers takes a tuple or list of as many numbers as into has.
func (r *reader) numbers(d gotorch.Dict, key string, into []float64) {
	for i, v := range r.list(d, key, len(into)) {
		into[i] = r.float(gotorch.Dict{{Key: key, Value: v}}, key)
	}
}

// optionalNumbers is numbers where some may be None.
func (r *reader) optionalNumbers(d gotorch.Dict, key string, into []gotorch.Scalar) {
	for i, v := range r.list(d, key, len(into)) {
		into[i] = nil
		if v != nil {
			into[i] = r.float(gotorch.Dict{{Key: key, Value: v}}, key)
		}
	}
}

// unreadable fails for a tensor that cannot be copied, such as one of device meta, if err says so.
func (r *reader) unreadable(key string, err error) {
	if err != nil {
		r.keep(args.ValueError(r.op, "the state dict has a tensor as '%s' that cannot be read: %v", key, err))
	}
}

// like takes a copy of a tensor of a shape, with the dtype and on the device of the parameter that it is about.
// What a rule begins itself is dense, and a scalar has no dimensions.
func (r *reader) like(d gotorch.Dict, key string, param gotorch.Tensor, shape []int64, s slot) (t gotorch.Tensor) {
	v, ok := d.Get(key).(gotorch.Tensor)
	if !ok || !v.Defined() {
		r.fail(key, d.Get(key), "a tensor")
		return t
	}
	to := gotorch.ToOptions{DType: param.DType(), Device: param.Device(), Copy: true}
	want := fmt.Sprint(shape)
	if s.scalar {
		want = "[]"
	}
	if (s.scalar || s.anyDType) && !param.DType().IsFloatingPoint() {
		to.DType = v.DType() // as PyTorch, such as a real number of a complex parameter
	}
	if got := fmt.Sprint(v.Shape()); got != want {
		r.keep(args.ValueError(r.op, "the state dict has shape %s for '%s' of a parameter of shape %s", got, key, want))
		return t
	}
	if v.Layout() != gotorch.Strided && s.begin != nil {
		r.keep(args.ValueError(r.op, "the state dict has a tensor of layout %v as '%s', where a dense one is required", v.Layout(), key))
		return t
	}
	t, err := gotorch.Try(func() gotorch.Tensor {
		return remember(func() gotorch.Tensor {
			return v.Detach().To(to)
		})
	})
	r.unreadable(key, err)
	return t
}
