// Package train has a training loop: it shows batches to a model, reports, checks and saves, and stops
// when it is told to.
//
//	loop := train.NewLoop(model, opt, nn.CrossEntropyLoss())
//	loop.Progress(os.Stderr)                               // a bar, or lines where there is no terminal
//	loop.Checkpoints("runs/digits", train.CheckpointsOptions{Best: "val_loss"}) // all that a run has, to go on from
//	loop.OnEpoch(train.Validate(testSet, train.Accuracy))  // adds val_loss and val_accuracy
//	loop.StopAtNonFinite()                                 // at a NaN: says which step and layer
//	loop.Schedule(lrscheduler.CosineAnnealingLR(opt, 5), train.PerEpoch)
//	loop.ClipGradNorm(1)
//	loop.EarlyStop("val_loss", train.EarlyStopOptions{Patience: 3})
//	loop.Log(train.CSVLog("runs/digits.csv"))              // also JSONLog, SlogLog, tensorboard.NewLog
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
//
// [NewLossLoop] is for models that learn from more than an input and a target, and [NewStepLoop] for several models
// and optimisers, whose steps are the program's own:
//
//	loop := train.NewStepLoop(func(s *train.StepOf[gotorch.Tensor]) error {
//		... // the discriminator's loss, Backward and Step; then the generator's
//		s.Record("loss_d", lossD)
//		s.Record("loss_g", lossG)
//		return nil
//	})
//	loop.Add("generator", generator)
//	loop.Add("optimizer_g", optG)
//	...
//
// A run that was stopped, or killed at any moment, goes on from its last checkpoint to the same numbers, bit for bit:
// see [LoopOf.Checkpoints].
package train

import (
	"context"
	"errors"
	"iter"
	"math"
	"reflect"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/fileformat"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// BatchesOf is what a loop learns from: a data.Loader, or anything that yields batches. Len is the number of batches in
// an epoch; -1 if it is not known.
//
// Where it is [Stateful], as data.Loader is, a run that resumes goes on with the next batch. Of others the batches that
// were seen in the epoch are drawn once more and passed over, which gives the same if all their random numbers come
// from gotorch's default generator, and if each loop over All is an epoch from its beginning.
type BatchesOf[B any] interface {
	All() iter.Seq2[B, error]
	Len() int
}

// Batches are pairs of inputs and targets.
type Batches = BatchesOf[data.Pair]

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
	if n < 0 { // nobody knows
		if l.steps > 0 {
			return l.steps, math.MaxInt
		}
		return math.MaxInt, l.epochs
	}
	if l.steps > 0 {
		return l.steps, (l.steps-1)/n + 1
	}
	if l.epochs > math.MaxInt/n { // a run that others end
		return math.MaxInt, l.epochs
	}
	return l.epochs * n, l.epochs
}

// When says how often something is done.
type When int

const (
	PerStep  When = iota // after each step in which the optimiser has changed parameters
	PerEpoch             // after each epoch
)

// ErrStop is what a hook returns to end a run without an error.
var ErrStop = errors.New("train: stop")

// Loop trains a model that makes one tensor of another, with pairs of inputs and targets.
type Loop = LoopOf[data.Pair]

// LoopOf trains with batches of type B. It is used by one goroutine at a time.
type LoopOf[B any] struct {
	model nn.Modular // nil: the steps are the program's own
	opt   optim.Optimizer
	loss  func(batch B) gotorch.Tensor
	step  func(*StepOf[B]) error

	pairLoss nn.Loss // of a loop by NewLoop

	parts   []part
	updates []func() // after each step that has changed parameters

	onBackward, onStep []func(*StepOf[B]) error
	onEpoch            []func(*Epoch) error
	onBegin            []func() error
	onEnd              []func(err error, together bool) error // whether all ranks are there
	progress           *progress
	finite             bool // see StopAtNonFinite
	changes            changes
	checkpoints        *checkpoints
	ranks              *ranks
	logs               []*logged
	watches            []watch
}

// NewLoop makes a loop that lets opt change model so that loss becomes less: a module such as
// nn.CrossEntropyLoss makes it, or a function of your own as an nn.LossFunc. It panics as the model's
// Parameters do, if they could not learn, and with a TypeError if one of the three is nil.
func NewLoop(model nn.Layer, opt optim.Optimizer, loss nn.Loss) *Loop {
	if isNil(model) || isNil(opt) || isNil(loss) {
		panic(&gotorch.Error{Op: "train.NewLoop", Kind: gotorch.TypeError, Msg: "the model, the optimiser or the loss is nil"})
	}
	l := NewLossLoop(model, opt, func(batch data.Pair) gotorch.Tensor {
		return loss.Forward(nn.Call(model, batch.Input), batch.Target)
	})
	l.pairLoss = loss
	return l
}

// NewLossLoop makes a loop that lets opt change model so that what loss computes of a batch becomes less. It panics as
// the model's Parameters do, if they could not learn, and with a TypeError if one of the three is nil.
//
//	loop := train.NewLossLoop(model, opt, func(x gotorch.Tensor) gotorch.Tensor {
//		decoded, mean, logVar := model.Forward(x)
//		...
//	})
func NewLossLoop[B any](model nn.Modular, opt optim.Optimizer, loss func(batch B) gotorch.Tensor) *LoopOf[B] {
	if isNil(model) || isNil(opt) || loss == nil {
		panic(&gotorch.Error{Op: "train.NewLossLoop", Kind: gotorch.TypeError, Msg: "the model, the optimiser or the loss is nil"})
	}
	model.Parameters()
	l := &LoopOf[B]{model: model, opt: opt, loss: loss, changes: changes{accumulate: 1}}
	l.Add("model", model)
	l.Add("optimizer", opt)
	return l
}

// NewStepLoop makes a loop whose steps are the program's own: step computes losses and gradients and has optimisers
// change parameters, of as many models as there are. Models and optimisers are made known by [LoopOf.Add]. It panics
// with a TypeError if step is nil.
func NewStepLoop[B any](step func(s *StepOf[B]) error) *LoopOf[B] {
	if step == nil {
		panic(&gotorch.Error{Op: "train.NewStepLoop", Kind: gotorch.TypeError, Msg: "the step is nil"})
	}
	return &LoopOf[B]{step: step, changes: changes{accumulate: 1}}
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
// the parameters. The run ends with the error that it returns.
func (l *LoopOf[B]) OnBackward(hook func(*StepOf[B]) error) {
	l.automatic("OnBackward")
	l.onBackward = append(l.onBackward, hook)
}

// automatic panics if the steps are the program's own.
func (l *LoopOf[B]) automatic(method string) {
	if l.step != nil {
		panic(&gotorch.Error{Op: "train.LoopOf." + method, Kind: gotorch.RuntimeError,
			Msg: "a loop by NewStepLoop has steps of the program's own: do it there"})
	}
}

// OnStep adds a function that is called after every step. The run ends with the error that it returns.
func (l *LoopOf[B]) OnStep(hook func(*StepOf[B]) error) { l.onStep = append(l.onStep, hook) }

// OnEpoch adds a function that is called after every epoch. The run ends with the error that it
// returns.
func (l *LoopOf[B]) OnEpoch(hook func(*Epoch) error) { l.onEpoch = append(l.onEpoch, hook) }

// Profiler is what [LoopOf.Profile] takes: a profiler.Profiler is one.
type Profiler interface {
	Start() error
	Step() error // the next step begins
	Stop() error
}

// Profile starts p with each run, tells it of each step, after the hooks that were added before, and stops it with the
// run, however that ends. The run ends with an error of p's.
//
//	p := profiler.New(profiler.Options{Schedule: profiler.Schedule(profiler.ScheduleOptions{Wait: 5, Active: 3, Repeat: 1})})
//	loop.Profile(p)
//	history, err := loop.Run(ctx, loader, train.Epochs(1))
//	fmt.Println(p.Trace())
func (l *LoopOf[B]) Profile(p Profiler) {
	if isNil(p) {
		panic(&gotorch.Error{Op: "train.LoopOf.Profile", Kind: gotorch.TypeError, Msg: "the profiler is nil"})
	}
	started := false
	l.onBegin = append(l.onBegin, func() error {
		err := p.Start()
		started = err == nil
		return err
	})
	l.OnStep(func(*StepOf[B]) error { return p.Step() })
	l.onEnd = append(l.onEnd, func(error, bool) error {
		if !started {
			return nil
		}
		started = false
		return p.Stop()
	})
}

// Checkpoint saves the model's state to a file after every epoch, after the hooks that were added
// before, and when the run is interrupted. The file is always a complete one, of the latest state that
// was saved. Of a model by distributed.FullyShard it is the whole, which rank 0 has the memory for then. See [LoopOf.Checkpoints] for
// all that a run needs to go on.
func (l *LoopOf[B]) Checkpoint(path string) {
	l.automatic("Checkpoint")
	save := func() error { return saveModel(l.model, path, l.ranks) }
	l.OnEpoch(func(*Epoch) error { return save() })
	l.onEnd = append(l.onEnd, func(err error, together bool) error {
		var broken *gotorch.Error
		better := !errors.As(err, &broken)
		if l.sharded() != nil { // which all ranks save, or none
			better = together
		}
		if err == nil || !better {
			return nil // saved already, or better not
		}
		return save()
	})
}

// saveModel saves a model alone, whole.
func saveModel(model nn.Modular, path string, ranks *ranks) error {
	switch m := model.(type) {
	case *distributed.FullySharded:
		return byRankZero(m, func() (save func() error) {
			state := m.FullStateDict(distributed.FullStateOptions{RankZeroOnly: true})
			return func() error {
				if fileformat.Of(path) == fileformat.Archive {
					return gotorch.Save(path, dictOf(state))
				}
				return gotorch.SaveTensors(path, state)
			}
		})
	case *distributed.DistributedDataParallel:
		if ranks != nil { // the loop knows of it
			model = m.Net
		}
	}
	if ranks.follows() {
		return nil
	}
	return nn.Save(model, path)
}

// Step is a step of a [Loop].
type Step = StepOf[data.Pair]

// StepOf is where a run is, for hooks and for steps of the program's own.
type StepOf[B any] struct {
	Model     nn.Modular      // none where the steps are the program's own
	Optimizer optim.Optimizer // the same
	Batch     B
	Epoch     int  // from 1
	Number    int  // steps so far in the run, from 1
	Total     int  // steps in the whole run
	Updated   bool // whether the step has changed parameters; see Accumulate

	run *run[B]
}

// Done returns which part of the run's steps has been done, from 0 to 1.
func (s *StepOf[B]) Done() float64 { return float64(s.Number) / float64(s.Total) }

// Loss returns the loss of the batch, before the step changed the parameters.
func (s *StepOf[B]) Loss() float64 {
	s.run.read()
	return s.run.history.Losses[len(s.run.history.Losses)-1]
}

// Record adds the number in a tensor of one element to the history, by a name: [History.Series]. What is recorded as
// "loss" in a loop by [NewStepLoop] is the loss of the step. The tensor is not kept. It panics with a ValueError if the
// tensor has not one element.
func (s *StepOf[B]) Record(name string, value gotorch.Tensor) {
	if n := value.Numel(); n != 1 {
		panic(args.ValueError("train.StepOf.Record", "%q must have one element, but has %d, of shape %v", name, n, value.Shape()))
	}
	gotorch.Unscoped(func() { value = value.Detach().Clone() })
	s.run.unread = append(s.run.unread, unread{name, s.Number, value})
}

// Epoch is what an epoch has come to, for hooks.
type Epoch struct {
	*EpochRecord
	Model     nn.Modular      // none where the steps are the program's own
	Optimizer optim.Optimizer // the same
	History   *History        // with this epoch

	loss nn.Loss
	ctx  context.Context

	evaluate     func(set data.Dataset[data.Pair], metrics []Metric) ([]Value, error)
	logText      func(step int, name, text string) error
	logHistogram func(step int, name string, values gotorch.Tensor) error
}

// Record adds a number to the epoch's record, in place of what was recorded by that name before.
func (e *Epoch) Record(name string, value float64) {
	if at := slices.IndexFunc(e.Metrics, func(v Value) bool { return v.Name == name }); at >= 0 {
		e.Metrics[at].Value = value
		return
	}
	e.Metrics = append(e.Metrics, Value{name, value})
}

// Context returns the run's context.
func (e *Epoch) Context() context.Context { return e.ctx }
