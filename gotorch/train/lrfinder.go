package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/modes"
	"gotorch.dev/gotorch/nn"
)

// FindLROptions are the arguments of [LoopOf.FindLR] that have defaults.
type FindLROptions struct {
	Start     gotorch.Scalar // the first learning rate; default: 1e-7
	End       gotorch.Scalar // the last one; default: 10
	Steps     gotorch.Scalar // how many are tried; default: 100
	Linear    bool           // they grow by the same difference; default: by the same factor
	Smoothing gotorch.Scalar // of the losses: how much of the mean so far each keeps, from 0 to below 1; default: 0.9
	Diverge   gotorch.Scalar // end where the smoothed loss is above so many times the best, 0 for never; default: 4
}

// LRRange is what [LoopOf.FindLR] has found.
type LRRange struct {
	LRs        []float64 // that were tried
	Losses     []float64 // with each
	Smoothed   []float64 // the moving average of the losses
	Suggestion float64   // where the smoothed loss falls fastest; NaN where it does not fall
	Diverged   bool      // it ended before End
}

// FindLR tries learning rates, from small to large, a step with each, and tells how the loss goes: where it falls
// fastest is a good one to begin with (L. N. Smith, Cyclical Learning Rates for Training Neural Networks, 2017). It
// takes the loop's own steps, with its losses, accumulation, autocast, scaling, clipping and hooks of OnBackward, and
// without its other hooks, schedules, averages, logs and checkpoints. Batches are gone through as often as necessary.
//
//	found, err := loop.FindLR(ctx, loader)
//	err = plot.LRRange("lr.png", found)
//	*opt.LRs()[0] = found.Suggestion
//
// Everything is as it was afterwards, to the bit, also after an error: models, buffers and modes, gradients, the
// optimiser, what else [LoopOf.Add] knows, random numbers, and batches where they are [Stateful]. All groups of an optimiser
// get the same learning rate. Where the loss becomes infinite or NaN it ends, as where it diverges.
//
// It returns an error if ctx is cancelled, or if a step fails, and panics with a ValueError if an option is out of
// range, and with a RuntimeError if the steps are the program's own.
func (l *LoopOf[B]) FindLR(ctx context.Context, batches BatchesOf[B], opts ...FindLROptions) (found *LRRange, err error) {
	const op = "train.LoopOf.FindLR"
	l.automatic("FindLR")
	o := args.Option(opts)
	start, end := args.Float(op, "Start", o.Start, 1e-7), args.Float(op, "End", o.End, 10)
	steps := int(args.Int(op, "Steps", o.Steps, 100))
	smoothing, diverge := args.Float(op, "Smoothing", o.Smoothing, 0.9), args.Float(op, "Diverge", o.Diverge, 4)
	switch {
	case !(start > 0 && start < end) || math.IsInf(end, 1):
		panic(args.ValueError(op, "Start must be positive and below End, but they are %v and %v", start, end))
	case steps < 2:
		panic(args.ValueError(op, "Steps must be 2 or more, but is %d", steps))
	case !(smoothing >= 0 && smoothing < 1):
		panic(args.ValueError(op, "Smoothing must be from 0 to below 1, but is %v", smoothing))
	case !(diverge >= 0):
		panic(args.ValueError(op, "Diverge must not be negative, but is %v", diverge))
	}
	if batches.Len() == 0 {
		return nil, errors.New("train: there are no batches")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	// A loop with the same steps, and nothing around them.
	bare := *l
	bare.updates, bare.onStep, bare.onEpoch, bare.onEnd = nil, nil, nil, nil
	bare.progress, bare.checkpoints, bare.logs, bare.watches, bare.finite = nil, nil, nil, nil, false
	r := &run[B]{LoopOf: &bare, ctx: ctx, history: &History{}, batches: batches, at: position{epoch: 1}, saved: -1}
	r.device = r.deviceOf()
	r.step = StepOf[B]{Model: l.model, Optimizer: l.opt, Total: steps * l.changes.accumulate, Epoch: 1, run: r}
	defer func() {
		for _, u := range r.unread {
			u.value.Close()
		}
	}()

	restore := r.keepAll()
	defer func() { err = errors.Join(err, restore()) }()
	for _, p := range r.parts {
		if model, is := p.value.(nn.Modular); is && p.trains && !model.Training() {
			model.Train(true)
		}
	}
	found = &LRRange{Suggestion: math.NaN()}
	mean, best := 0.0, math.Inf(1)
	// The rest of an epoch that a loader was in may be empty, or too little for a step.
	for idle := 0; len(found.LRs) < steps; idle++ {
		before := len(found.LRs)
		for batch, err := range batches.All() {
			if err == nil {
				_, err = r.sync(goesOn)
			}
			if err == nil {
				err = r.canceled()
			}
			if err != nil {
				return nil, fmt.Errorf("train: finding a learning rate, step %d: %w", r.step.Number, err)
			}
			lr := start + (end-start)*float64(len(found.LRs))/float64(steps-1)
			if !o.Linear {
				lr = start * math.Pow(end/start, float64(len(found.LRs))/float64(steps-1))
			}
			for _, group := range l.opt.LRs() {
				*group = lr
			}
			// The scaler may have this step change nothing; the loss counts all the same.
			if err := r.do(batch); err != nil {
				return nil, fmt.Errorf("train: finding a learning rate, step %d: %w", r.step.Number, err)
			}
			r.read()
			if !r.step.Updated {
				continue
			}
			loss, n := 0.0, 0
			for _, v := range r.history.Losses {
				loss, n = loss+v, n+1
			}
			if loss, err = r.meanOfRanks(loss / float64(n)); err != nil {
				return nil, fmt.Errorf("train: finding a learning rate, step %d: %w", r.step.Number, err)
			}
			r.history.Losses, r.step.Number, r.at.taken = nil, 0, 0
			mean = float64(smoothing*mean) + float64((1-smoothing)*loss)
			smoothed := mean / (1 - math.Pow(smoothing, float64(len(found.LRs)+1)))
			if math.IsNaN(loss) || math.IsInf(loss, 0) || diverge > 0 && len(found.LRs) > 0 && smoothed > diverge*best {
				found.Diverged = true
			} else {
				best = min(best, smoothed)
				found.LRs, found.Losses, found.Smoothed = append(found.LRs, lr), append(found.Losses, loss), append(found.Smoothed, smoothed)
			}
			if found.Diverged || len(found.LRs) == steps {
				found.suggest(o.Linear)
				return found, nil
			}
		}
		if len(found.LRs) > before {
			idle = -1
		} else if idle > 0 {
			return nil, errors.New("train: finding a learning rate: the batches are too few for a step")
		}
	}
	return found, nil
}

// meanOfRanks is the mean of a number that each rank has, so that all go on, or none.
func (r *run[B]) meanOfRanks(value float64) (mean float64, err error) {
	if r.ranks == nil {
		return value, nil
	}
	err = r.together(func(g *distributed.Group) error {
		all, err := distributed.AllGatherObject(g, value)
		for _, v := range all {
			mean += v / float64(len(all))
		}
		return err
	})
	return mean, err
}

// suggest finds the steepest place of the smoothed losses. The first ones have not much of a mean, and near the end the
// loss is about to rise.
func (f *LRRange) suggest(linear bool) {
	n := len(f.LRs)
	at := func(i int) float64 {
		if linear {
			return f.LRs[i]
		}
		return math.Log(f.LRs[i])
	}
	steepest := 0.0
	for i := 1 + n/20; i < n-1; i++ {
		if slope := (f.Smoothed[i+1] - f.Smoothed[i-1]) / (at(i+1) - at(i-1)); slope < steepest {
			steepest, f.Suggestion = slope, f.LRs[i]
		}
	}
}

// keepAll keeps everything that steps change. restore puts it back, and frees what was kept.
func (r *run[B]) keepAll() (restore func() error) {
	var back []func() error
	random := r.random()
	var place func() error
	keeper, is := r.batches.(interface{ KeepPlace() (restore func() error) })
	if is {
		place = keeper.KeepPlace()
	}
	if loader, stateful := r.batches.(Stateful); stateful && !is {
		state := copied(loader.StateDict()).(gotorch.Dict)
		place = func() error { return loader.LoadStateDict(state) }
	}
	for _, p := range r.parts {
		if model, is := p.value.(nn.Modular); is {
			mode := modes.Keep(model)
			buffers, free := nn.KeepState(model)
			gradients := keepGradients(model)
			if sharded, is := p.value.(*distributed.FullySharded); is {
				own, unsynced := gradients, sharded.UnsyncedGradients()
				gradients = func() {
					own()
					_ = sharded.LoadUnsyncedGradients(unsynced)
				}
			}
			back = append(back, func() error {
				mode()
				buffers()
				free()
				gradients()
				return nil
			})
		}
		if opt, is := p.value.(interface{ LRs() []*float64 }); is {
			var rates []float64
			for _, lr := range opt.LRs() {
				rates = append(rates, *lr)
			}
			back = append(back, func() error {
				for i, lr := range opt.LRs() {
					*lr = rates[i]
				}
				return nil
			})
		}
		if s, is := p.value.(Stateful); is {
			state := copied(s.StateDict()).(gotorch.Dict)
			back = append(back, func() error { return s.LoadStateDict(state) })
		} else {
			back = append(back, p.keep())
		}
	}
	return func() (err error) {
		err = gotorch.Try0(func() {
			for i := range back { // the last are modes and rates, which states may change
				err = errors.Join(err, back[len(back)-1-i]())
			}
		})
		if place != nil {
			err = errors.Join(err, place())
		}
		generators := r.generators()
		for name, state := range random.All() {
			generators[name.(string)].SetState(state.(gotorch.Tensor))
		}
		return err
	}
}

// copied returns a state with tensors of its own: an optimiser writes to those that it has.
func copied(value any) any {
	switch v := value.(type) {
	case gotorch.Tensor:
		if v.Defined() {
			return v.Detach().Clone()
		}
	case gotorch.Dict:
		of := make(gotorch.Dict, len(v))
		for i, item := range v {
			of[i] = gotorch.DictItem{Key: item.Key, Value: copied(item.Value)}
		}
		return of
	case []any:
		of := make([]any, len(v))
		for i, item := range v {
			of[i] = copied(item)
		}
		return of
	}
	return value
}

// keepGradients keeps gradients, which steps may write to.
func keepGradients(model nn.Modular) (restore func()) {
	type kept struct{ p, grad, numbers gotorch.Tensor }
	var all []kept
	gotorch.NoGrad(func() {
		for _, p := range model.Parameters() {
			k := kept{p: p}
			if g := p.Grad(); g.Defined() {
				k.grad, k.numbers = g, g.Detach().Clone()
			}
			all = append(all, k)
		}
	})
	return func() {
		gotorch.NoGrad(func() {
			for _, k := range all {
				if k.grad.Defined() && k.grad.Layout() == gotorch.Strided {
					k.grad.Copy_(k.numbers)
				}
				k.p.SetGrad(k.grad)
			}
		})
	}
}
