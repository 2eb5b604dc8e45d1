package optim

import (
	"math"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/found"
)

// GradScalerOptions are the arguments of [NewGradScaler]. A number that is left out is the default.
type GradScalerOptions struct {
	InitScale      gotorch.Scalar // the first scale; default: 65536
	GrowthFactor   gotorch.Scalar // above 1; default: 2
	BackoffFactor  gotorch.Scalar // below 1; default: 0.5
	GrowthInterval gotorch.Scalar // an integer: steps without infinity until the scale grows; default: 2000
	Disabled       bool           // do nothing but Step
}

// GradScaler keeps gradients in the range of float16, as torch.amp.GradScaler does: the loss is
// multiplied by a scale, the gradients are divided by it, a step with gradients that are infinite or
// NaN is left out and makes the scale smaller, and many steps without make it bigger. The numbers are
// PyTorch's; with an optimiser's option Fused and a scale that is no power of two, the last bits differ.
//
//	scaler := optim.NewGradScaler()
//	for batch := range loader.All() {
//		var loss gotorch.Tensor
//		gotorch.Autocast(gotorch.CUDA(0), gotorch.Float16, func() {
//			loss = F.CrossEntropy(model.Forward(batch.Input), batch.Target)
//		})
//		opt.ZeroGrad()
//		scaler.Scale(loss).Backward()
//		scaler.Step(opt)
//		scaler.Update()
//	}
//
// A GradScaler is used by one goroutine at a time.
type GradScaler struct {
	init, factor, backoff float64
	interval              int64
	disabled              bool

	scale  gotorch.Tensor // float32 without dimensions; none before the first loss
	growth gotorch.Tensor // int32: steps since the scale has changed
	steps  map[Optimizer]*scaledStep

	loaded      bool // a state that waits for the first loss, whose device is the scale's
	loadedScale float64
	loadedSteps int64
}

// scaledStep is what one optimiser's step has come to.
type scaledStep struct {
	unscaled, done bool
	found          []gotorch.Tensor // per device: 1 where a gradient is not finite
}

// NewGradScaler returns a scaler. It panics with a ValueError if an option is out of range.
//
// See https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling.
func NewGradScaler(opts ...GradScalerOptions) *GradScaler {
	const op = "optim.NewGradScaler"
	opt := args.Option(opts)
	s := &GradScaler{
		init:     args.Float(op, "InitScale", opt.InitScale, 65536),
		factor:   args.Float(op, "GrowthFactor", opt.GrowthFactor, 2),
		backoff:  args.Float(op, "BackoffFactor", opt.BackoffFactor, 0.5),
		interval: args.Int(op, "GrowthInterval", opt.GrowthInterval, 2000),
		disabled: opt.Disabled,
		steps:    map[Optimizer]*scaledStep{},
	}
	switch {
	case !(s.init > 0) || math.IsInf(s.init, 0):
		panic(args.ValueError(op, "invalid InitScale: %v; it must be positive", s.init))
	case !(s.factor > 1):
		panic(args.ValueError(op, "invalid GrowthFactor: %v; it must be above 1", s.factor))
	case !(s.backoff > 0 && s.backoff < 1):
		panic(args.ValueError(op, "invalid BackoffFactor: %v; it must be between 0 and 1", s.backoff))
	case s.interval < 1:
		panic(args.ValueError(op, "invalid GrowthInterval: %d; it must be positive", s.interval))
	}
	return s
}

// Scale returns a loss multiplied by the scale.
func (s *GradScaler) Scale(loss gotorch.Tensor) gotorch.Tensor {
	if s.disabled {
		return loss
	}
	if !s.scale.Defined() {
		scale, steps := s.init, int64(0)
		if s.loaded {
			scale, steps = s.loadedScale, s.loadedSteps
		}
		on := gotorch.TensorOptions{DType: gotorch.Float32, Device: loss.Device()}
		s.scale = remember(func() gotorch.Tensor { return gotorch.Full(nil, scale, on) })
		on.DType = gotorch.Int32
		s.growth = remember(func() gotorch.Tensor { return gotorch.Full(nil, steps, on) })
	}
	return loss.Mul(s.scale.To(loss.Device()))
}

var scalerOps = sync.OnceValue(func() (ops struct{ unscale, update, values *gotorch.Operator }) {
	for name, op := range map[string]**gotorch.Operator{
		"aten::_amp_foreach_non_finite_check_and_unscale_": &ops.unscale, "aten::_amp_update_scale_": &ops.update, "aten::_values": &ops.values,
	} {
		found, err := gotorch.FindOperator(name, "")
		if err != nil {
			panic(err)
		}
		*op = found
	}
	return ops
})

// Unscale divides the gradients of an optimiser's parameters by the scale, for those who look at them
// or clip them before Step, which else does it. Where parameters are those of distributed.FullyShard all ranks must call it, and
// a gradient that is not finite on one counts on all. It panics with a RuntimeError if it has been called
// since the last Update, and with a ValueError for gradients of float16 and those of a compressed sparse layout.
func (s *GradScaler) Unscale(opt Optimizer) {
	const op = "optim.GradScaler.Unscale"
	if s.disabled {
		return
	}
	if !s.scale.Defined() {
		panic(runtimeError(op, "no loss has been scaled yet"))
	}
	groups := groupsOf(op, opt)
	state := s.state(opt)
	switch {
	case state.done:
		panic(runtimeError(op, "Unscale is called after Step"))
	case state.unscaled:
		panic(runtimeError(op, "Unscale has been called for this optimizer since the last Update"))
	}
	type kind struct {
		device gotorch.Device
		dtype  gotorch.DType
	}
	grads := map[kind][]gotorch.Tensor{}
	params := map[gotorch.Device][]gotorch.Tensor{}
	for _, g := range groups {
		for _, p := range g.common.Params {
			params[p.Device()] = append(params[p.Device()], p)
			grad := p.Grad()
			if !grad.Defined() {
				continue
			}
			if grad.DType() == gotorch.Float16 {
				panic(args.ValueError(op, "attempting to unscale FP16 gradients"))
			}
			switch grad.Layout() {
			case gotorch.Strided:
			case gotorch.SparseCOO:
				grad = scalerOps().values.Call(grad)[0].(gotorch.Tensor) // which are the gradient's own
			default:
				panic(args.ValueError(op, "gradients that are %s cannot be unscaled", grad.Layout()))
			}
			k := kind{grad.Device(), grad.DType()}
			grads[k] = append(grads[k], grad)
		}
	}
	step(func() {
		inverse := s.scale.To(gotorch.Float64).Reciprocal().To(gotorch.Float32)
		founds := map[gotorch.Device]gotorch.Tensor{}
		for k, list := range grads {
			if !founds[k.device].Defined() {
				founds[k.device] = remember(func() gotorch.Tensor {
					return gotorch.Zeros([]int64{1}, gotorch.TensorOptions{DType: gotorch.Float32, Device: k.device})
				})
				state.found = append(state.found, founds[k.device])
			}
			scalerOps().unscale.Call(list, founds[k.device], inverse.To(k.device))
		}
		for device, of := range founds {
			found.Together(params[device], of)
		}
	})
	state.unscaled = true
}

func (s *GradScaler) state(opt Optimizer) *scaledStep {
	if s.steps[opt] == nil {
		s.steps[opt] = &scaledStep{}
	}
	return s.steps[opt]
}

// Step divides the gradients by the scale, unless [GradScaler.Unscale] did, and steps if they are all
// finite; it reports whether it did. It panics with a RuntimeError if it has been called for opt since
// the last Update, and if no parameter has a gradient.
func (s *GradScaler) Step(opt Optimizer) bool {
	const op = "optim.GradScaler.Step"
	if s.disabled {
		opt.Step()
		return true
	}
	groupsOf(op, opt)
	state := s.state(opt)
	if state.done {
		panic(runtimeError(op, "Step has been called for this optimizer since the last Update"))
	}
	if !state.unscaled {
		s.Unscale(opt)
	}
	if len(state.found) == 0 {
		panic(runtimeError(op, "no parameter of the optimizer has a gradient"))
	}
	for _, found := range state.found {
		if gotorch.Item[float32](found) != 0 {
			state.done = true
			return false
		}
	}
	opt.Step()
	state.done = true // and not where the step is refused, which may be tried again
	return true
}

// Update changes the scale by what the steps since the last Update have met. It is called once for each
// iteration, after the Step of every optimiser.
func (s *GradScaler) Update() {
	if s.disabled {
		return
	}
	step(func() {
		var all gotorch.Tensor
		for _, state := range s.steps {
			for _, found := range state.found {
				found = found.To(s.scale.Device())
				if all.Defined() {
					found = all.Add(found)
				}
				all = found
			}
		}
		if !all.Defined() {
			panic(runtimeError("optim.GradScaler.Update", "no optimizer has been stepped or unscaled since the last Update"))
		}
		scalerOps().update.Call(s.scale, s.growth, all, s.factor, s.backoff, s.interval)
	})
	for _, state := range s.steps {
		for _, found := range state.found {
			found.Close()
		}
	}
	clear(s.steps)
}

// GetScale returns the scale; 1 for a scaler that is disabled.
func (s *GradScaler) GetScale() float64 {
	switch {
	case s.disabled:
		return 1
	case s.scale.Defined():
		return float64(gotorch.Item[float32](s.scale))
	case s.loaded:
		return s.loadedScale
	}
	return s.init
}

// StateDict returns the scaler's state as PyTorch's state_dict does; it is empty for one that is
// disabled.
func (s *GradScaler) StateDict() gotorch.Dict {
	if s.disabled {
		return gotorch.Dict{}
	}
	steps := s.loadedSteps
	if s.growth.Defined() {
		steps = int64(gotorch.Item[int32](s.growth))
	}
	return gotorch.Dict{
		{Key: "scale", Value: s.GetScale()},
		{Key: "growth_factor", Value: s.factor},
		{Key: "backoff_factor", Value: s.backoff},
		{Key: "growth_interval", Value: s.interval},
		{Key: "_growth_tracker", Value: steps},
	}
}

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it
// returns a *gotorch.Error of kind ValueError and changes nothing.
func (s *GradScaler) LoadStateDict(dict gotorch.Dict) error {
	const op = "optim.GradScaler.LoadStateDict"
	if s.disabled {
		return nil
	}
	if len(dict) == 0 {
		return args.ValueError(op, "the state dict is empty: it is of a scaler that was disabled")
	}
	r := &reader{op: op}
	scale, growth, backoff := r.float(dict, "scale"), r.float(dict, "growth_factor"), r.float(dict, "backoff_factor")
	interval, steps := r.count(dict, "growth_interval"), r.count(dict, "_growth_tracker")
	if r.err != nil {
		return r.err
	}
	// Many steps with infinity leave a scale of 0.
	if !(scale >= 0 && scale <= math.MaxFloat32) || !(growth > 1) || !(backoff > 0 && backoff < 1) || interval < 1 || steps > math.MaxInt32 {
		return args.ValueError(op, "the state dict has a value that is out of range: %v", dict)
	}
	s.factor, s.backoff, s.interval = growth, backoff, interval
	if s.scale.Defined() {
		s.scale.Fill_(scale)
		s.growth.Fill_(steps)
		return nil
	}
	s.loaded, s.loadedScale, s.loadedSteps = true, scale, steps
	return nil
}

func runtimeError(op, msg string) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: msg}
}
