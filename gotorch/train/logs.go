package train

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/optim"
)

// What a run writes down while it goes on.

// LogEntry is what is known after a step, or after an epoch.
type LogEntry struct {
	When   When      // PerStep or PerEpoch
	Step   int       // steps so far in the run
	Epoch  int       // from 1
	Time   time.Time // when the step or epoch was done
	Values []Value   // of an epoch their names begin with "epoch/"
}

// LogSink is where a run's numbers go: [CSVLog], [JSONLog], [SlogLog], that of package tensorboard, or a type of your
// own. It is called by the goroutine of Run. It may have the methods of [LogTexts] and [LogHistograms] as well.
type LogSink interface {
	// Begin is called when a run begins or goes on.
	Begin(start LogStart) error
	// Log takes an entry. Steps come in their order, an epoch after its last step. Values are not kept.
	Log(entry LogEntry) error
	// Mark is called for a checkpoint: what was logged is to be safe when it returns. Begin gets what it returns where
	// a run goes on from there, in which what was logged since has to go, for it is logged once more. It may be nil.
	Mark() (gotorch.Dict, error)
	// End is called when a run ends.
	End() error
}

// LogTexts is a [LogSink] that takes texts.
type LogTexts interface {
	LogText(step int, name, text string) error
}

// LogHistograms is a [LogSink] that takes the elements of tensors, to make a histogram of. The tensor is not kept.
type LogHistograms interface {
	LogHistogram(step int, name string, values gotorch.Tensor) error
}

// LogStart is from where a run is logged.
type LogStart struct {
	Step    int          // steps that were done before
	Mark    gotorch.Dict // what Mark has returned then; nil where there was none
	Resumes bool         // the run goes on where it was, so that all that was logged after Mark is its own
}

// LogOptions are the arguments of [LoopOf.Log] that have defaults.
type LogOptions struct {
	Every gotorch.Scalar // log every so many steps; default: 1
	GoOn  bool           // when nothing can be logged, because the disk is full for instance, warn once and go on; default: end the run
	Name  string         // by which checkpoints know it; default: its type
}

// LogError is the error of a run that could not be logged. Unwrap leads to what the system said, such as
// syscall.ENOSPC. The run ends between two steps, without a checkpoint: one that goes on from the last finds all steps
// since then to be logged.
type LogError struct {
	Log  string // its name
	Step int    // steps so far
	Err  error
}

// Error says which log, after which step, and why.
func (e *LogError) Error() string {
	return fmt.Sprintf("the log %s, after step %d: %v", e.Log, e.Step, e.Err)
}

// Unwrap returns what the system said.
func (e *LogError) Unwrap() error { return e.Err }

type logged struct {
	sink  LogSink
	name  string
	every int
	goOn  bool
	said  bool
	begun bool
}

// Log has the numbers of a run written down: of each step the loss, what [StepOf.Record] has recorded and the learning
// rate, as "lr", and of each epoch what is in its record, as "epoch/loss", "epoch/val_loss". [LoopOf.Watch] adds numbers
// of parameters and gradients.
//
//	loop.Log(train.CSVLog("run.csv"))
//	loop.Log(tensorboard.NewLog("runs/a"), train.LogOptions{Every: 10})
//
// Where the loop has [LoopOf.Checkpoints], a run that goes on has every step in the log, and none twice, also after it was
// killed. What cannot be written ends the run with a [*LogError], or with GoOn it is warned of; a log has whole entries.
//
// It panics with a TypeError if sink is nil, and with a ValueError if Every is not positive.
func (l *LoopOf[B]) Log(sink LogSink, opts ...LogOptions) {
	const op = "train.LoopOf.Log"
	o := args.Option(opts)
	if isNil(sink) {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the log is nil"})
	}
	every := args.Int(op, "Every", o.Every, 1)
	if every < 1 {
		panic(args.ValueError(op, "Every must be positive, but is %d", every))
	}
	if o.Name == "" {
		o.Name = fmt.Sprintf("%T", sink)
	}
	name := o.Name
	for i := 2; slices.ContainsFunc(l.logs, func(g *logged) bool { return g.name == name }); i++ {
		name = fmt.Sprintf("%s_%d", o.Name, i)
	}
	l.logs = append(l.logs, &logged{sink: sink, name: name, every: int(every), goOn: o.GoOn})
}

// entry is a step that is still to be logged: Values are what was recorded.
type entry struct {
	LogEntry
	rates   []Value // learning rates
	watched []Value // logged whatever Every says
}

// values returns what a log gets of an entry.
func (e *entry) values(every int) (values []Value) {
	if e.Step%every == 0 {
		values = append(values, e.Values...)
		for _, rate := range e.rates {
			if !slices.ContainsFunc(e.Values, func(v Value) bool { return v.Name == rate.Name }) { // the program has recorded it
				values = append(values, rate)
			}
		}
	}
	return append(values, e.watched...)
}

// logsStep reports whether a step is logged.
func (r *run[B]) logsStep(number int) bool {
	return slices.ContainsFunc(r.logs, func(g *logged) bool { return number%g.every == 0 })
}

// rates returns the learning rates.
func (r *run[B]) rates() (values []Value) {
	var optimizers []string
	rates := map[string][]*float64{}
	for _, p := range r.parts {
		if opt, is := p.value.(optim.Optimizer); is {
			optimizers = append(optimizers, p.name)
			rates[p.name] = opt.LRs()
		}
	}
	for _, name := range optimizers {
		prefix := "lr"
		if len(optimizers) > 1 {
			prefix += "/" + name
		}
		for i, lr := range rates[name] {
			full := prefix
			if len(rates[name]) > 1 {
				full = fmt.Sprintf("%s/%d", prefix, i)
			}
			values = append(values, Value{full, *lr})
		}
	}
	return values
}

// did makes an entry of the step that was just done; rates are those it was done with.
func (r *run[B]) did(rates []Value) {
	if r.logsStep(r.step.Number) || len(r.watched) > 0 {
		r.entries = append(r.entries, entry{LogEntry{Step: r.step.Number, Epoch: r.at.epoch, Time: time.Now()}, rates, r.watched})
	}
	r.watched = nil
}

// note adds a number that was read to its entry.
func (r *run[B]) note(step int, v Value) {
	for i := len(r.entries) - 1; i >= 0 && r.entries[i].Step >= step; i-- {
		if e := &r.entries[i]; e.Step == step {
			if at := slices.IndexFunc(e.Values, func(x Value) bool { return x.Name == v.Name }); at >= 0 {
				e.Values[at] = v
			} else {
				e.Values = append(e.Values, v)
			}
		}
	}
}

// logSteps logs steps whose numbers are known. Those that a device may still compute wait, unless all is to be logged.
func (r *run[B]) logSteps(all bool) error {
	if err := r.logFailed; err != nil {
		r.logFailed = nil
		return err
	}
	if len(r.entries) == 0 {
		return nil
	}
	if len(r.unread) > 0 {
		if !all && r.device.Type() != gotorch.DeviceTypeCPU && len(r.entries) < maxUnread {
			return nil
		}
		r.read()
	}
	entries := r.entries
	r.entries = nil // also where it fails: nothing is logged twice
	for i := range entries {
		e := &entries[i]
		for _, g := range r.logs {
			one := e.LogEntry
			if one.Values = e.values(g.every); len(one.Values) == 0 {
				continue
			}
			if err := g.failed(e.Step, g.sink.Log(one)); err != nil {
				return err
			}
		}
	}
	clear(entries)
	r.entries = entries[:0]
	return nil
}

// logEpoch logs an epoch, after its steps.
func (r *run[B]) logEpoch(e *EpochRecord) error {
	if err := r.logSteps(true); err != nil || len(r.logs) == 0 {
		return err
	}
	one := LogEntry{When: PerEpoch, Step: e.Steps, Epoch: e.Number, Time: time.Now(), Values: []Value{{"epoch/loss", e.Metric("loss")}}}
	for _, m := range e.Metrics {
		if m.Name != "loss" { // the program has recorded another
			one.Values = append(one.Values, Value{"epoch/" + m.Name, m.Value})
		}
	}
	return r.eachLog(e.Steps, func(sink LogSink) error { return sink.Log(one) })
}

// eachLog has every log do something.
func (r *run[B]) eachLog(step int, do func(LogSink) error) error {
	for _, g := range r.logs {
		if err := g.failed(step, do(g.sink)); err != nil {
			return err
		}
	}
	return nil
}

// failed returns the error that ends the run, or warns.
func (g *logged) failed(step int, err error) error {
	if err == nil {
		return nil
	}
	failure := &LogError{Log: g.name, Step: step, Err: err}
	if !g.goOn {
		return failure
	}
	if !g.said {
		g.said = true
		gotorch.Warn(gotorch.Warning{Kind: "UserWarning", Msg: fmt.Sprintf("%v. The run goes on, and what cannot be logged may be missing.", failure)})
	}
	return nil
}

// beginLogs is called before the first step. It leaves those logs begun that endLogs is to end.
func (r *run[B]) beginLogs() error {
	for _, g := range r.logs {
		g.said, g.begun = false, true
		start := LogStart{Step: r.step.Number, Resumes: r.checkpoints != nil && r.checkpoints.goOn}
		start.Mark, _ = r.marks.Get(g.name).(gotorch.Dict)
		if err := g.failed(r.step.Number, g.sink.Begin(start)); err != nil {
			g.begun = false
			return fmt.Errorf("train: %w", err)
		}
	}
	return nil
}

// endLogs logs what was done, however the run ends.
func (r *run[B]) endLogs() (err error) {
	if !slices.ContainsFunc(r.logs, func(g *logged) bool { return g.begun }) {
		return nil
	}
	err = r.logSteps(true)
	for _, g := range r.logs {
		if g.begun {
			g.begun = false
			err = errors.Join(err, g.failed(r.step.Number, g.sink.End()))
		}
	}
	return err
}

// mark brings all logs to where the run is, and returns where that is in them, for a checkpoint.
func (r *run[B]) mark() (marks gotorch.Dict, err error) {
	if err := r.logSteps(true); err != nil {
		return nil, err
	}
	for _, g := range r.logs {
		mark, err := g.sink.Mark()
		if err := g.failed(r.step.Number, err); err != nil {
			return nil, err
		}
		if mark != nil {
			marks = append(marks, gotorch.DictItem{Key: g.name, Value: mark})
		}
	}
	return marks, nil
}

// logText gives a text to those logs that take any.
func (r *run[B]) logText(step int, name, text string) error {
	return r.eachLog(step, func(sink LogSink) error {
		if to, is := sink.(LogTexts); is {
			return to.LogText(step, name, text)
		}
		return nil
	})
}

// logHistogram gives a tensor to those logs that make histograms.
func (r *run[B]) logHistogram(step int, name string, values gotorch.Tensor) error {
	return r.eachLog(step, func(sink LogSink) error {
		if to, is := sink.(LogHistograms); is {
			return to.LogHistogram(step, name, values)
		}
		return nil
	})
}

// LogText gives a text to those logs of [LoopOf.Log] that take any. A hook returns its error.
func (s *StepOf[B]) LogText(name, text string) error { return s.run.logText(s.Number, name, text) }

// LogHistogram gives the elements of a tensor to those logs of [LoopOf.Log] that make histograms. A hook returns its error.
func (s *StepOf[B]) LogHistogram(name string, values gotorch.Tensor) error {
	return s.run.logHistogram(s.Number, name, values)
}

// LogText is [StepOf.LogText], after the epoch's last step.
func (e *Epoch) LogText(name, text string) error { return e.logText(e.Steps, name, text) }

// LogHistogram is [StepOf.LogHistogram], after the epoch's last step.
func (e *Epoch) LogHistogram(name string, values gotorch.Tensor) error {
	return e.logHistogram(e.Steps, name, values)
}
