package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// run is the state of one Run.
type run[B any] struct {
	*LoopOf[B]
	ctx     context.Context
	history *History
	device  gotorch.Device
	step    StepOf[B]
	unread  []unread // numbers that are not in the history yet

	batches  BatchesOf[B]
	at       position
	saved    int  // the step of the last checkpoint; -1 before
	watching bool // there are logs, on this rank or on rank 0
	foldered bool // checkpoints are folders, as there are sharded models
	ended    bool // by a hook, before the limit
	resumed  bool // and no epoch was begun since
	astray   bool // a batch was taken and not learnt from, so that the batches' state is not the run's

	marks   gotorch.Dict // of the logs, in the checkpoint that the run goes on from
	entries []entry      // steps that are not logged yet
	watched []Value      // of the step at hand: see Watch
	before  []snapshot   // parameters before the step at hand

	logFailed error

	lock    *os.File // the folder of checkpoints
	failure error    // of this rank, which it tells the others

	// Of runs of several ranks.
	buckets [][]string // of DataParallel, as they were when the ranks last shared their states
	shared  int        // steps whose numbers are means over the ranks
	inStep  bool       // others may be waiting within the step
	lost    bool       // what all do together has failed
	told    bool       // all ranks know of the error
	stopped bool       // a rank was cancelled
	stopper int        // which
	resized bool       // the checkpoint was made by another number of ranks
}

// position is where in an epoch a run is.
type position struct {
	epoch   int           // from 1
	taken   int           // batches of the epoch
	first   int           // steps before the epoch
	elapsed time.Duration // of the epoch, before it was resumed
	begun   time.Time
	random  gotorch.Dict // at the epoch's begin; kept for checkpoints of batches that are not Stateful

	// Of an epoch amid which the run goes on.
	within bool // it is one
	length int  // of its batches, the taken ones among them; of the rest alone, where a job of another size has begun it
	dealt  bool // a job of another size has begun it, and this one has taken nothing of it
	phase  int  // steps of that job whose gradients have not changed parameters yet: see Accumulate
}

// unread is a number that a device may still be computing.
type unread struct {
	name  string
	step  int
	value gotorch.Tensor
}

// Run trains the model, in training mode but for what in it was frozen by Eval, until the limit, or until ctx is
// cancelled or a hook or a batch fails. It returns what was recorded up to there, and ctx's error or the other one. A
// step is never left half done.
//
// Batches are moved to the device of the model's first parameter: tensors, and types with a method
// To(gotorch.Device) that returns such a batch. The goroutine is locked to its OS thread meanwhile.
func (l *LoopOf[B]) Run(ctx context.Context, batches BatchesOf[B], limit Limit) (history *History, err error) {
	if isNil(batches) {
		return &History{}, &gotorch.Error{Op: "train.LoopOf.Run", Kind: gotorch.TypeError, Msg: "the batches are nil"}
	}
	watching := len(l.logs) > 0
	if l.ranks.follows() {
		quiet := *l
		quiet.progress, quiet.logs = nil, nil
		l = &quiet
	}
	r := &run[B]{LoopOf: l, ctx: ctx, history: &History{}, batches: batches, at: position{epoch: 1}, saved: -1}
	r.device = r.deviceOf()
	r.foldered, r.watching = len(l.shardedIn()) > 0, watching
	ended := false // or there is a panic, and a step may be half done
	defer func() {
		if errors.Is(err, ErrStop) {
			err = nil
		}
		if ended {
			if err == nil && r.ranks != nil {
				_, err = r.agree(goesOn) // or another rank has failed at last
				r.told = true
			} else if err != nil {
				r.tell(err)
			}
		}
		if ended && (err == nil || r.canceled() != nil) {
			err = errors.Join(err, r.lastCheckpoint())
		}
		for _, hook := range l.onEnd {
			err = errors.Join(err, hook(err, ended && !r.lost && r.canceled() != nil))
		}
		err = errors.Join(err, r.endLogs())
		if r.lock != nil {
			r.lock.Close()
		}
		l.progress.end()
	}()
	// The threads that share an op's work belong to the thread that calls it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = r.through(limit)
	ended = true
	return r.history, err
}

// through goes through the epochs.
func (r *run[B]) through(limit Limit) error {
	for _, begin := range r.onBegin {
		if err := begin(); err != nil {
			return err
		}
	}
	n := r.batches.Len()
	if n == 0 {
		return errors.New("train: there are no batches")
	}
	steps, epochs := limit.total(n)
	r.step = StepOf[B]{Model: r.model, Optimizer: r.opt, Total: steps, run: r}
	if r.foldered && r.ranks == nil {
		return &gotorch.Error{Op: "train.LoopOf.Run", Kind: gotorch.TypeError, Msg: "the model is sharded: the loop must be told of the ranks, by Distributed"}
	}
	if r.checkpoints != nil {
		if err := r.lockFolder(); err != nil {
			return err
		}
		if err := r.resume(); err != nil {
			return err
		}
	}
	if (r.resized || r.resumed && r.ranks != nil) && limit.steps == 0 && n >= 0 && steps < math.MaxInt {
		// Epochs before may have had another number of steps.
		left := n
		if r.at.within {
			left = max(r.at.length-r.at.taken, 0)
		}
		steps = r.step.Number
		if r.at.epoch <= epochs {
			steps += left + (epochs-r.at.epoch)*n
		}
		r.step.Total = steps
	}
	if limit.steps > 0 && n > 0 {
		// Epochs before may have had another length, so that steps alone end the run. How many epochs it takes is what progress shows.
		left := n
		if r.at.within {
			left = r.at.length
		}
		left -= r.at.taken
		epochs = r.at.epoch + max(steps-r.step.Number-max(left, 0)+n-1, 0)/n
	}
	if err := r.beginLogs(); err != nil {
		return err
	}
	// An epoch may have had more steps than batches.Len says.
	for !r.ended && (r.at.taken > 0 || r.at.dealt || (limit.steps > 0 || r.at.epoch <= epochs) && r.step.Number < steps) {
		length := n
		if r.at.within {
			length = r.at.length
		}
		r.progress.begin(r.at.epoch, epochs, r.at.taken, ofEpoch(length, r.at.taken, steps-r.step.Number))
		if err := r.epoch(); err != nil {
			return err
		}
		if r.at.taken == 0 && !r.resumed { // there would be epochs for ever
			return errors.New("train: there are no batches")
		}
		r.at = position{epoch: r.at.epoch + 1}
		r.resumed = false
	}
	return nil
}

// length returns how many batches the epoch has; -1 if that is not known.
func (r *run[B]) length() int {
	if r.at.within {
		return r.at.length
	}
	return r.batches.Len()
}

// ofEpoch returns how many batches an epoch will have had, of n or of a number that is not known, when so many steps are
// left; 0 if nobody can tell.
func ofEpoch(n, taken, left int) int {
	switch {
	case n < 0 && left > math.MaxInt-taken:
		return 0
	case n < 0 || left < n-taken:
		return taken + left
	}
	return n
}

// deviceOf returns where the first parameter is that is trained.
func (l *LoopOf[B]) deviceOf() gotorch.Device {
	for _, p := range l.parts {
		if model, is := p.value.(nn.Modular); is {
			return deviceOf(model)
		}
	}
	return gotorch.CPU
}

func deviceOf(model nn.Modular) gotorch.Device {
	for _, p := range model.NamedParameters() {
		return p.Device()
	}
	return gotorch.CPU
}

// epoch goes through the batches, from where the run is.
func (r *run[B]) epoch() error {
	r.at.begun = time.Now()
	if r.at.taken == 0 && !r.at.dealt {
		r.at.first = r.step.Number
		r.keepRandom()
	}
	for _, p := range r.parts {
		if model, is := p.value.(nn.Modular); is && p.trains && !model.Training() {
			model.Train(true)
		}
	}
	r.step.Epoch = r.at.epoch
	r.setEpoch()
	failed := func(err error) error {
		r.read()
		return fmt.Errorf("train: epoch %d, step %d: %w", r.at.epoch, r.step.Number, err)
	}
	// A batch that was drawn is learnt from, so that a checkpoint is between two steps.
	if _, err := r.sync(goesOn, r.length(), r.step.Total); err != nil {
		return failed(err)
	}
	if err := r.canceled(); err != nil {
		return failed(err)
	}
	whole := true
	if r.step.Number < r.step.Total {
		limited := false
		for batch, err := range r.left() {
			if err == nil {
				_, err = r.sync(goesOn)
			}
			if err == nil {
				err = r.do(batch)
			}
			if err == nil {
				err = r.stepCheckpoint()
			}
			if err == nil {
				err = r.canceled()
			}
			if err != nil {
				return failed(err)
			}
			if r.step.Number >= r.step.Total {
				whole = r.tookAll()
				limited = true
				break
			}
		}
		if !limited {
			if _, err := r.sync(isOver); err != nil {
				return failed(err)
			}
		}
	} else {
		whole = r.tookAll()
	}
	if _, err := r.share(false, r.at); err != nil {
		return failed(err)
	}
	if !whole {
		// What follows would be done once more by who goes on.
		if err := r.lastCheckpoint(); err != nil {
			return failed(err)
		}
	}
	record := EpochRecord{Number: r.at.epoch, Steps: r.step.Number, Loss: mean(r.history.Losses[r.at.first:]),
		Duration: r.at.elapsed + time.Since(r.at.begun)}
	r.history.Epochs = append(r.history.Epochs, record)
	epoch := &Epoch{EpochRecord: &r.history.Epochs[len(r.history.Epochs)-1], Model: r.model, Optimizer: r.opt,
		History: r.history, loss: r.pairLoss, ctx: r.ctx, logText: r.logText, logHistogram: r.logHistogram, evaluate: r.evaluate}
	stop := error(nil)
	for _, hook := range r.onEpoch {
		err := hook(epoch)
		if errors.Is(err, ErrStop) { // the others have their turn
			stop = err
		} else if err != nil {
			return fmt.Errorf("train: after epoch %d: %w", r.at.epoch, err)
		}
	}
	stops, err := r.anyStops(stop != nil)
	if err == nil {
		err = r.shareRecord(epoch.EpochRecord)
	}
	if err != nil {
		return fmt.Errorf("train: after epoch %d: %w", r.at.epoch, err)
	}
	if stops && stop == nil {
		stop = ErrStop
	}
	if err := r.logEpoch(epoch.EpochRecord); err != nil {
		return fmt.Errorf("train: after epoch %d: %w", r.at.epoch, err)
	}
	r.progress.loses(r.LoopOf.step == nil || slices.ContainsFunc(r.history.Losses, func(v float64) bool { return !math.IsNaN(v) }))
	r.progress.done(epoch.EpochRecord)
	r.ended = stop != nil
	if err := r.epochCheckpoint(epoch, whole); err != nil {
		return fmt.Errorf("train: after epoch %d: %w", r.at.epoch, err)
	}
	return stop
}

// tookAll reports whether the epoch's last batch was taken. Where nobody knows how many there are, it is never known to be
// the last.
func (r *run[B]) tookAll() bool {
	n := r.length()
	return n >= 0 && r.at.taken >= n
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
func (r *run[B]) do(batch B) error {
	s := &r.step
	s.Batch = moved(batch, r.device)
	s.Updated = false
	r.watched = nil
	var rates []Value
	if r.logsStep(s.Number + 1) {
		rates = r.rates()
	}
	if err := gotorch.Try0(r.watchBefore); err != nil {
		return err
	}
	defer r.forgetBefore()
	var hookErr error
	r.inStep = true
	err := gotorch.Try0(func() {
		if r.LoopOf.step != nil {
			s.Number++
			s.Updated = true
			gotorch.Scope0(func(*gotorch.ScopeHandle) { hookErr = r.LoopOf.step(s) })
			if hookErr != nil {
				s.Number--
			}
			return
		}
		hookErr = r.learn()
	})
	if err == nil {
		err = hookErr
	}
	if err != nil {
		r.astray = isStateful(r.batches)
		return err
	}
	r.inStep = false
	r.at.taken++
	if err := gotorch.Try0(r.watchAfter); err != nil {
		return err
	}
	r.did(rates)
	// Reading a loss waits for a device that works by itself. A CPU does not.
	if r.device.Type() == gotorch.DeviceTypeCPU || len(r.unread) >= maxUnread {
		r.read()
	}
	if s.Updated {
		for _, update := range r.updates {
			if err := gotorch.Try0(update); err != nil {
				return err
			}
		}
	}
	for _, hook := range r.onStep {
		if err := hook(s); err != nil {
			return err
		}
	}
	r.progress.step(r.history.Losses, s.Loss)
	return r.logSteps(false)
}

// moved returns a batch on a device.
func moved[B any](batch B, device gotorch.Device) B {
	switch b := any(batch).(type) {
	case gotorch.Tensor:
		return any(b.To(device)).(B)
	case interface{ To(gotorch.Device) B }:
		return b.To(device)
	}
	return batch
}

const maxUnread = 32

// read moves numbers into the history.
func (r *run[B]) read() {
	h := r.history
	for _, u := range r.unread {
		value := gotorch.Item[float64](u.value)
		u.value.Close()
		r.note(u.step, Value{u.name, value})
		if u.name == "loss" {
			h.Losses = put(h.Losses, u.step, value)
			continue
		}
		if h.Series == nil {
			h.Series = map[string][]float64{}
		}
		h.Series[u.name] = put(h.Series[u.name], u.step, value)
	}
	r.unread = r.unread[:0]
	h.Losses = put(h.Losses, r.step.Number+1, 0)[:r.step.Number]
}

// put sets the number of a step, counted from 1. Those between that nobody set are NaN.
func put(values []float64, step int, value float64) []float64 {
	for len(values) < step {
		values = append(values, math.NaN())
	}
	values[step-1] = value
	return values
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
