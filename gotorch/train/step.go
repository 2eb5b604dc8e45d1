package train

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/optim/swautils"
)

// What is done in a step, and after it.

// changes say how the steps differ from plain ones.
type changes struct {
	accumulate int
	autocast   func(fn func()) // nil: none
	scaler     *optim.GradScaler
	clip       []func(model nn.Modular)
}

// Accumulate has the optimiser change parameters only after every n steps, by the mean of their gradients, as if the
// batches were one: each loss is divided by n before the backward pass. At the end of an epoch it does so with the
// batches that are left, if it is known how many there are; if not, those are not learnt from. It panics with a ValueError if
// n is not positive.
func (l *LoopOf[B]) Accumulate(n int) {
	l.automatic("Accumulate")
	if n <= 0 {
		panic(args.ValueError("train.LoopOf.Accumulate", "the number of steps must be positive, but is %d", n))
	}
	l.changes.accumulate = n
}

// Autocast computes outputs and losses in mixed precision: gotorch.Autocast with a dtype of 16 bits. Float16 wants a
// scaler besides: [LoopOf.Scale].
func (l *LoopOf[B]) Autocast(dtype gotorch.DType, opts ...gotorch.AutocastOptions) {
	l.automatic("Autocast")
	l.changes.autocast = func(fn func()) { gotorch.Autocast(l.deviceOf(), dtype, fn, opts...) }
}

// Scale multiplies losses by what scaler says, and divides gradients by it before the hooks of [LoopOf.OnBackward]. A
// step in which gradients are not finite then changes no parameters, which is no error, of [LoopOf.StopAtNonFinite]
// neither.
func (l *LoopOf[B]) Scale(scaler *optim.GradScaler) {
	l.automatic("Scale")
	if scaler == nil {
		panic(&gotorch.Error{Op: "train.LoopOf.Scale", Kind: gotorch.TypeError, Msg: "the scaler is nil"})
	}
	l.changes.scaler = scaler
	l.Add("scaler", scaler)
}

// ClipGradNorm has gradients made smaller before each change of parameters, so that their norm as one vector is not
// above maxNorm: utils.ClipGradNorm_. It comes after the hooks of [LoopOf.OnBackward].
func (l *LoopOf[B]) ClipGradNorm(maxNorm float64, opts ...utils.ClipGradNormOptions) {
	l.automatic("ClipGradNorm")
	l.changes.clip = append(l.changes.clip, func(model nn.Modular) {
		if sharded, is := model.(*distributed.FullySharded); is {
			sharded.ClipGradNorm(maxNorm, opts...)
			return
		}
		utils.ClipGradNorm_(model.Parameters(), maxNorm, opts...)
	})
}

// ClipGradValue has the elements of gradients moved into the range from −value to value before each change of
// parameters: utils.ClipGradValue_. It comes after the hooks of [LoopOf.OnBackward].
func (l *LoopOf[B]) ClipGradValue(value float64) {
	l.automatic("ClipGradValue")
	l.changes.clip = append(l.changes.clip, func(model nn.Modular) { utils.ClipGradValue_(model.Parameters(), value) })
}

// Schedule has a scheduler step after each change of parameters, or after each epoch.
func (l *LoopOf[B]) Schedule(s lrscheduler.Scheduler, when When) {
	l.Add(l.freeName("scheduler"), s)
	if when == PerStep {
		l.updates = append(l.updates, s.Step)
		return
	}
	l.OnEpoch(func(*Epoch) error { return gotorch.Try0(s.Step) })
}

// ScheduleBy has a scheduler step after each epoch with a number of the epoch's record, such as "val_loss". It comes
// after what records the number.
func (l *LoopOf[B]) ScheduleBy(metric string, s lrscheduler.MetricScheduler) {
	l.Add(l.freeName("scheduler"), s)
	l.OnEpoch(func(e *Epoch) error {
		value, err := e.recorded(metric)
		if err != nil {
			return err
		}
		return gotorch.Try0(func() { s.Step(value) })
	})
}

// Average has the averages of a model's parameters updated after each change of parameters, as for an exponential
// moving average, or after each epoch, as for stochastic weight averaging. The averages are in checkpoints.
//
//	train.Average(loop, model, average, train.PerStep)
func Average[B any, M nn.Modular](l *LoopOf[B], model M, average *swautils.AveragedModelModule[M], when When) {
	if _, is := any(model).(*distributed.FullySharded); !is {
		params := model.Parameters()
		for _, sharded := range l.shardedIn() {
			if slices.ContainsFunc(sharded.Parameters(), func(p gotorch.Tensor) bool {
				return slices.ContainsFunc(params, func(q gotorch.Tensor) bool { return *p.T == *q.T })
			}) {
				panic(&gotorch.Error{Op: "train.Average", Kind: gotorch.TypeError, Msg: fmt.Sprintf(
					"the model is a %T, of whose parameters this rank has parts: average what distributed.FullyShard returned", model)})
			}
		}
	}
	l.add(part{l.freeName("average"), average, false})
	update := func() { average.UpdateParameters(model) }
	if when == PerStep {
		l.updates = append(l.updates, update)
		return
	}
	l.OnEpoch(func(*Epoch) error { return gotorch.Try0(update) })
}

// abort is what ends a step from within the closure of an optimiser.
type abort struct{ err error }

// learn takes a step of a loop that knows its model.
func (r *run[B]) learn() (err error) {
	s := &r.step
	n := r.changes.accumulate
	number, taken := s.Number+1, r.at.phase+r.at.taken
	first, length := taken%n == 0, r.length()
	s.Updated = (taken+1)%n == 0 || length >= 0 && r.at.taken+1 >= length || number >= s.Total
	restore := func() {}
	if r.finite {
		var free func()
		restore, free = nn.KeepState(r.model)
		defer free()
	}
	evaluated := false
	pass := func() gotorch.Tensor {
		return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
			if first {
				r.zeroGrad()
			}
			var loss gotorch.Tensor
			if r.changes.autocast != nil {
				r.changes.autocast(func() { loss = r.loss(s.Batch) })
			} else {
				loss = r.loss(s.Batch)
			}
			if r.finite {
				if bad := r.badLoss(loss, restore); bad != nil {
					restore()
					r.zeroGrad()
					panic(abort{bad})
				}
			}
			backward := loss
			if n > 1 {
				backward = loss.DivScalar(n)
			}
			if r.changes.scaler != nil {
				backward = r.changes.scaler.Scale(backward)
			}
			backward.Backward()
			loss = loss.Detach()
			if !evaluated { // LBFGS evaluates several times in a step
				evaluated = true
				s.Number = number
				s.Record("loss", loss)
			}
			if s.Updated && r.changes.scaler != nil {
				r.changes.scaler.Unscale(r.opt)
			}
			for _, hook := range r.onBackward {
				if err := hook(s); err != nil {
					panic(abort{err})
				}
			}
			if r.finite && r.changes.scaler == nil {
				if bad := r.badGradients(loss); bad != nil {
					restore()
					r.zeroGrad()
					last := len(r.unread) - 1
					r.unread[last].value.Close()
					r.unread = r.unread[:last]
					s.Number = number - 1
					panic(abort{bad})
				}
			}
			r.watchGradients()
			if s.Updated {
				for _, clip := range r.changes.clip {
					clip(r.model)
				}
			}
			return loss
		})
	}
	evaluate := pass
	if ddp, is := r.model.(interface{ NoSync(fn func()) }); is && !s.Updated {
		evaluate = func() (loss gotorch.Tensor) {
			ddp.NoSync(func() { loss = pass() })
			return loss
		}
	}
	defer func() {
		if v := recover(); v != nil {
			a, is := v.(abort)
			if !is {
				panic(v)
			}
			err = a.err
		}
	}()
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		switch {
		case r.changes.scaler != nil:
			evaluate()
			if s.Updated {
				r.changes.scaler.Step(r.opt)
				r.changes.scaler.Update()
			}
		case n > 1:
			evaluate()
			if s.Updated {
				r.opt.Step()
			}
		default:
			r.opt.StepWith(evaluate)
		}
	})
	return nil
}
