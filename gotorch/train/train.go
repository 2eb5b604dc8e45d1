// Package train has a training loop: it shows batches to a model, reports, checks and saves, and stops
// when it is told to.
//
//	loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
//	loop.Progress(os.Stderr)                               // a bar, or lines where there is no terminal
//	loop.Checkpoint("model.safetensors")                   // after each epoch, and when interrupted
//	loop.OnEpoch(train.Validate(testSet, train.Accuracy))  // adds val_loss and val_accuracy
//	loop.StopAtNonFinite()                                 // at a NaN: says which step and layer
//	loop.OnStep(func(s *train.Step) error {                // a learning rate that falls to zero
//		*opt.LRs()[0] = 1e-3 * (1 - s.Done())
//		return nil
//	})
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
//	defer stop()
//	loader := data.NewLoader(trainSet, data.LoaderOptions{BatchSize: 64, Shuffle: true})
//	history, err := loop.Run(ctx, loader, train.Epochs(5))
//	if errors.Is(err, context.Canceled) {
//		... // Ctrl-C: history has what was done so far
//	}
//
// A step zeroes the gradients, computes output, loss and gradients, and lets the optimiser change the
// parameters. What it makes is freed at its end. The subpackage plot draws histories and predictions.
package train

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"runtime"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/nndoor"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// Batches is what a [Loop] learns from: a data.Loader of pairs, or anything that yields batches. Len is
// the number of batches in an epoch.
type Batches interface {
	All() iter.Seq2[data.Pair, error]
	Len() int
}

// Limit says when a run is over.
type Limit struct {
	epochs, steps int
}

// Epochs ends a run after n times all batches. It panics with a ValueError if n is negative.
func Epochs(n int) Limit { return Limit{epochs: notNegative("train.Epochs", n)} }

// Steps ends a run after n batches. It panics with a ValueError if n is negative.
func Steps(n int) Limit { return Limit{steps: notNegative("train.Steps", n)} }

func notNegative(op string, n int) int {
	if n < 0 {
		panic(args.ValueError(op, "the number must not be negative, but is %d", n))
	}
	return n
}

// total returns the number of steps and epochs, where an epoch has n steps.
func (l Limit) total(n int) (steps, epochs int) {
	if l.steps > 0 {
		return l.steps, (l.steps-1)/n + 1
	}
	if l.epochs > math.MaxInt/n { // a run that others end
		return math.MaxInt, l.epochs
	}
	return l.epochs * n, l.epochs
}

// ErrStop is what a hook returns to end a run without an error.
var ErrStop = errors.New("train: stop")

// Loop trains a model. It is used by one goroutine at a time.
type Loop struct {
	model nn.Layer
	opt   optim.Optimizer
	loss  nn.Loss

	onBackward, onStep []func(*Step) error
	onEpoch            []func(*Epoch) error
	onEnd              []func(err error) error
	progress           *progress
	finite             bool // see StopAtNonFinite
}

// NewLoop makes a loop that lets opt change model so that loss becomes less: a module such as
// nn.CrossEntropyLoss makes it, or a function of your own as an nn.LossFunc. It panics as the model's
// Parameters do, if they could not learn, and with a TypeError if one of the three is nil.
func NewLoop(model nn.Layer, opt optim.Optimizer, loss nn.Loss) *Loop {
	if isNil(model) || isNil(opt) || isNil(loss) {
		panic(&gotorch.Error{Op: "train.NewLoop", Kind: gotorch.TypeError, Msg: "the model, the optimiser or the loss is nil"})
	}
	model.Parameters()
	return &Loop{model: model, opt: opt, loss: loss}
}

// isNil reports whether an interface holds nothing, or a nil pointer or function.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map:
		return r.IsNil()
	}
	return false
}

// OnBackward adds a function that is called in every step between the backward pass and the change of
// the parameters, to clip gradients for instance. The run ends with the error that it returns.
func (l *Loop) OnBackward(hook func(*Step) error) { l.onBackward = append(l.onBackward, hook) }

// OnStep adds a function that is called after every step. The run ends with the error that it returns.
func (l *Loop) OnStep(hook func(*Step) error) { l.onStep = append(l.onStep, hook) }

// OnEpoch adds a function that is called after every epoch. The run ends with the error that it
// returns.
func (l *Loop) OnEpoch(hook func(*Epoch) error) { l.onEpoch = append(l.onEpoch, hook) }

// Checkpoint saves the model's state to a file after every epoch, after the hooks that were added
// before, and when the run is interrupted. The file is always a complete one, of the latest state that
// was saved.
func (l *Loop) Checkpoint(path string) {
	l.OnEpoch(func(*Epoch) error { return nn.Save(l.model, path) })
	l.onEnd = append(l.onEnd, func(err error) error {
		var broken *gotorch.Error
		if err == nil || errors.As(err, &broken) {
			return nil // saved already, or better not
		}
		return nn.Save(l.model, path)
	})
}

// Step is where a run is, for hooks.
type Step struct {
	Model     nn.Layer
	Optimizer optim.Optimizer
	Batch     data.Pair
	Epoch     int // from 1
	Number    int // steps so far in the run, from 1
	Total     int // steps in the whole run

	run *run
}

// Done returns which part of the run's steps has been done, from 0 to 1.
func (s *Step) Done() float64 { return float64(s.Number) / float64(s.Total) }

// Loss returns the loss of the batch, before the step changed the parameters.
func (s *Step) Loss() float64 {
	s.run.read()
	return s.run.history.Losses[len(s.run.history.Losses)-1]
}

// Epoch is what an epoch has come to, for hooks.
type Epoch struct {
	*EpochRecord
	Model     nn.Layer
	Optimizer optim.Optimizer
	History   *History // with this epoch

	loop *Loop
	ctx  context.Context
}

// Record adds a number to the epoch's record.
func (e *Epoch) Record(name string, value float64) {
	e.Metrics = append(e.Metrics, Value{name, value})
}

// run is the state of one Run.
type run struct {
	*Loop
	ctx     context.Context
	history *History
	device  gotorch.Device
	step    Step
	unread  []gotorch.Tensor // losses that are not in the history yet
}

// Run trains the model, in training mode, until the limit, or until ctx is cancelled or a hook or a
// batch fails. It returns what was recorded up to there, and ctx's error or the other one. A step is
// never left half done.
//
// Batches are moved to the device of the model's first parameter. The goroutine is locked to its OS
// thread meanwhile.
func (l *Loop) Run(ctx context.Context, batches Batches, limit Limit) (history *History, err error) {
	r := &run{Loop: l, ctx: ctx, history: &History{}, device: deviceOf(l.model)}
	defer func() {
		if errors.Is(err, ErrStop) {
			err = nil
		}
		for _, hook := range l.onEnd {
			err = errors.Join(err, hook(err))
		}
		l.progress.end()
	}()
	// The threads that share an op's work belong to the thread that calls it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := batches.Len()
	if n <= 0 {
		return r.history, errors.New("train: there are no batches")
	}
	steps, epochs := limit.total(n)
	r.step = Step{Model: l.model, Optimizer: l.opt, Total: steps, run: r}
	// An epoch may have had more steps than batches.Len says.
	for epoch := 1; epoch <= epochs && r.step.Number < steps; epoch++ {
		l.progress.begin(epoch, epochs, min(n, steps-r.step.Number))
		if err := r.epoch(epoch, batches); err != nil {
			return r.history, err
		}
	}
	return r.history, nil
}

// deviceOf returns where the model's first parameter is.
func deviceOf(model nn.Modular) gotorch.Device {
	for _, p := range model.NamedParameters() {
		return p.Device()
	}
	return gotorch.CPU
}

func (r *run) epoch(number int, batches Batches) error {
	begin, first := time.Now(), len(r.history.Losses)
	r.model.Train(true)
	r.step.Epoch = number
	for batch, err := range batches.All() {
		if err == nil {
			err = canceled(r.ctx)
		}
		if err == nil {
			err = r.do(batch)
		}
		if err != nil {
			r.read()
			return fmt.Errorf("train: epoch %d, step %d: %w", number, r.step.Number, err)
		}
		if r.step.Number == r.step.Total {
			break
		}
	}
	r.read()
	record := EpochRecord{Number: number, Steps: r.step.Number, Loss: mean(r.history.Losses[first:])}
	r.history.Epochs = append(r.history.Epochs, record)
	epoch := &Epoch{EpochRecord: &r.history.Epochs[len(r.history.Epochs)-1], Model: r.model, Optimizer: r.opt,
		History: r.history, loop: r.Loop, ctx: r.ctx}
	epoch.Duration = time.Since(begin)
	for _, hook := range r.onEpoch {
		if err := hook(epoch); err != nil {
			return fmt.Errorf("train: after epoch %d: %w", number, err)
		}
	}
	r.progress.done(epoch.EpochRecord)
	return nil
}

// canceled returns the error of a cancelled context, with its cause.
func canceled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// do takes a step.
func (r *run) do(batch data.Pair) error {
	s := &r.step
	var hookErr error
	err := gotorch.Try0(func() {
		s.Batch = batch.To(r.device)
		restore := func() {}
		if r.finite {
			var free func()
			restore, free = nndoor.KeepState(r.model)
			defer free()
		}
		gotorch.Scope0(func(scope *gotorch.ScopeHandle) {
			r.opt.ZeroGrad()
			loss := r.loss.Forward(nn.Call(r.model, s.Batch.Input), s.Batch.Target)
			if r.finite {
				if bad := r.checkLoss(loss, restore); bad != nil {
					restore()
					hookErr = bad
					return
				}
			}
			loss.Backward()
			s.Number++
			loss = loss.Detach()
			scope.Keep(loss)
			r.unread = append(r.unread, loss)
			for _, hook := range r.onBackward {
				if hookErr = hook(s); hookErr != nil {
					return
				}
			}
			if r.finite {
				if bad := r.checkGradients(loss); bad != nil {
					restore()
					r.opt.ZeroGrad()
					r.unread[len(r.unread)-1].Close()
					r.unread = r.unread[:len(r.unread)-1]
					s.Number--
					hookErr = bad
					return
				}
			}
			r.opt.Step()
		})
	})
	if err == nil {
		err = hookErr
	}
	if err != nil {
		return err
	}
	// Reading a loss waits for a device that works by itself. A CPU does not.
	if r.device.Type() == gotorch.DeviceTypeCPU || len(r.unread) == maxUnread {
		r.read()
	}
	for _, hook := range r.onStep {
		if err := hook(s); err != nil {
			return err
		}
	}
	r.progress.step(r)
	return nil
}

const maxUnread = 32

// read moves losses into the history.
func (r *run) read() {
	for _, loss := range r.unread {
		r.history.Losses = append(r.history.Losses, gotorch.Item[float64](loss))
		loss.Close()
	}
	r.unread = r.unread[:0]
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
