package profiler

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
	"gotorch.dev/gotorch/nn"
)

// Activity is what a profile records.
//
// See https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.ProfilerActivity.
type Activity int

const (
	CPU  Activity = iota + 1 // calls on the processor; every profile has them
	CUDA                     // kernels and copies of NVIDIA GPUs, by Kineto; not tried yet on a machine with one
)

// String returns "CPU" or "CUDA".
func (a Activity) String() string {
	switch a {
	case CPU:
		return "CPU"
	case CUDA:
		return "CUDA"
	}
	return fmt.Sprintf("Activity(%d)", int(a))
}

// Options are the arguments of [Profile] and [New] that have defaults: those of torch.profiler.profile.
type Options struct {
	// Activities are what is recorded; nil is CPU, and CUDA where there is a GPU.
	Activities []Activity

	RecordShapes  bool // the shapes and dtypes of inputs
	ProfileMemory bool // allocations; of the computer's memory
	WithStack     bool // where in the Go program calls were made
	WithFLOPs     bool // floating point operations of products, convolutions, add and mul, by Kineto's formulas

	// Modules is a model whose modules are ranges, "nn.Module: layers.0 (Linear)". As with hooks, modules of your own are
	// seen where they are called by nn.Call or nn.CallWith, and while the profile is there nobody may register hooks or
	// call the model in another goroutine as it starts or stops. nn.TransformerEncoder computes by its parts.
	Modules nn.Modular

	// CallerOnly records the goroutine that calls Start, rather than all.
	CallerOnly bool

	// Schedule says what to do in which step; nil is to record from Start to Stop. It must not call the profiler.
	Schedule func(step int) Action

	// OnTraceReady is called with the trace of each cycle of the schedule, and of Stop. Its error is that of Step or Stop.
	OnTraceReady func(*Trace) error

	// MaxEvents bounds the memory that a trace takes, which is about 500 bytes for a call, and 100 more for each input
	// with RecordShapes: calls, and as many allocations, beyond it are only counted, in [Trace].Dropped. default: 1000000
	MaxEvents gotorch.Scalar
}

// Profiler records traces. Its methods may be called from any goroutine.
//
// See https://docs.pytorch.org/docs/stable/profiler.html.
type Profiler struct {
	options   Options
	maxEvents int64

	mutex   sync.Mutex
	running bool
	session *session // nil while the schedule waits
	remove  func()   // what Modules has registered
	action  Action
	step    int
	begun   stepStart
	steps   []stepRange
	trace   *Trace
}

// session is a profile that C records.
type session struct {
	id    int64
	names *map[int64]string // of goroutines
	clean runtime.Cleanup
}

// New makes a profiler, which records from Start on. It panics with a ValueError if Activities are given without CPU
// or MaxEvents is negative, and with a TypeError if MaxEvents is no integer.
//
// See https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.profile.
func New(opts ...Options) *Profiler {
	const op = "profiler.New"
	opt := args.Option(opts)
	p := &Profiler{options: opt, maxEvents: args.Int(op, "MaxEvents", opt.MaxEvents, 1_000_000)}
	if p.maxEvents < 0 {
		panic(args.ValueError(op, "MaxEvents must not be negative, but is %d", p.maxEvents))
	}
	for _, a := range opt.Activities {
		if a != CPU && a != CUDA {
			panic(args.ValueError(op, "%v is no activity: there are CPU and CUDA", a))
		}
	}
	if opt.Activities != nil && !slices.Contains(opt.Activities, CPU) {
		panic(args.ValueError(op, "Activities must have CPU, whose calls are what the GPU's work is told by"))
	}
	return p
}

// Profile runs fn while it is recorded, and returns the trace; with a Schedule that of the last cycle, which is nil if
// there was none. fn gets the profiler for its Step.
//
// If fn panics or ends its goroutine, so does Profile, and the profile is over. It panics with a RuntimeError if the
// profile cannot be started: see [Profiler.Start]; with what New panics with; and with the error of OnTraceReady.
//
// See https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.profile.
func Profile(fn func(p *Profiler), opts ...Options) *Trace {
	p := New(opts...)
	must(p.Start())
	whole := false
	defer func() {
		if !whole {
			p.discard()
		}
	}()
	fn(p)
	whole = true
	if err := p.Stop(); err != nil && p.started(err) {
		panic(err)
	}
	return p.Trace()
}

// started reports whether an error of Stop is another than that fn has stopped the profiler itself.
func (p *Profiler) started(err error) bool {
	_, not := err.(*notStarted)
	return !not
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// notStarted is a RuntimeError.
type notStarted struct{ error }

func (e *notStarted) Unwrap() error { return e.error }

func failure(op, format string, values ...any) error {
	return &gotorch.Error{Op: "profiler." + op, Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(format, values...)}
}

// Start begins to record, or with a Schedule the first step. The error is a RuntimeError if the profiler was started
// already, if 16 profiles are being recorded, or if CUDA was asked for and there is no GPU or another profile has it.
func (p *Profiler) Start() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.running {
		return failure("Start", "the profiler was started already: stop it first, or make another by profiler.New")
	}
	checkGoroutine()
	action := Record
	if p.options.Schedule != nil {
		action = p.options.Schedule(0)
	}
	if err := checkAction("Start", action); err != nil {
		return err
	}
	if action != None {
		if err := p.record(); err != nil {
			return err
		}
	}
	if p.options.Modules != nil {
		err := gotorch.Try0(func() {
			var hooks []*nn.HookHandle
			p.remove = func() {
				for _, h := range hooks {
					h.Remove()
				}
			}
			for name, m := range p.options.Modules.NamedModules() {
				label := "nn.Module: " + nn.ClassName(m)
				if name != "" {
					label = "nn.Module: " + name + " (" + nn.ClassName(m) + ")"
				}
				hooks = append(hooks, nn.RegisterForwardSpan(m, func() func() {
					if !ctorch.Profiling() {
						return func() {}
					}
					return enterRange(label)
				}))
			}
		})
		if err != nil {
			p.forget()
			return err
		}
	}
	p.running, p.action, p.step, p.trace = true, action, 0, nil
	p.beginStep()
	return nil
}

// record begins a session.
func (p *Profiler) record() error {
	o := p.options
	opt := ctorch.ProfileOptions{Shapes: o.RecordShapes, Memory: o.ProfileMemory, Flops: o.WithFLOPs,
		Device: slices.Contains(o.Activities, CUDA) || o.Activities == nil && gotorch.CUDAIsAvailable(), MaxEvents: p.maxEvents}
	if o.CallerOnly {
		opt.Goroutine = goroutine()
	}
	names := lanes.begin()
	id, m := ctorch.BeginProfile(&opt, o.WithStack, goroutine)
	if m != nil {
		lanes.end(names)
		return native.Error("profiler.Start", m)
	}
	p.session = &session{id: id, names: names}
	// Of a profiler that nobody has any more. The names are left to be found by the next that ends.
	p.session.clean = runtime.AddCleanup(p, func(s *session) {
		stopProfile(s.id)
		lanes.end(s.names)
	}, &session{id: id, names: names})
	return nil
}

// end ends the session, if there is one, and returns what it recorded.
func (p *Profiler) end() (*Trace, error) {
	s := p.session
	if s == nil {
		return nil, nil
	}
	p.session = nil
	s.clean.Stop()
	lanes.end(s.names)
	data, err := stopProfile(s.id)
	if err != nil {
		return nil, err
	}
	t := newTrace(data, *s.names, p.steps, p.options)
	p.steps = nil
	return t, nil
}

// stopProfile returns what a profile has recorded.
func stopProfile(id int64) (data *profileData, err error) {
	m := ctorch.EndProfile(id, func(c *ctorch.ProfileData, stack bool) { data = profileOf(c, stack) })
	return data, native.Error("profiler.Stop", m)
}

// forget ends the session and what it recorded.
func (p *Profiler) forget() {
	p.end()
	p.steps = nil
}

// Step says that the next step begins, which for the schedule has the next number. In a trace the step that ended is
// "ProfilerStep#7". Without a Schedule it does nothing. The error is that of OnTraceReady, where a cycle of the
// schedule is complete, or as Start's, and a RuntimeError if the profiler was not started.
func (p *Profiler) Step() error {
	return p.ready(p.nextStep())
}

// nextStep is Step without OnTraceReady. The schedule is the program's, and may panic.
func (p *Profiler) nextStep() (done *Trace, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !p.running {
		return nil, failure("Step", "the profiler was not started")
	}
	if p.options.Schedule == nil {
		return nil, nil
	}
	before, next := p.action, p.options.Schedule(p.step+1)
	if err := checkAction("Step", next); err != nil {
		return nil, err
	}
	p.endStep()
	p.step++
	p.action = next
	switch {
	case before == RecordAndSave || before == Record && next != Record && next != RecordAndSave:
		done, err = p.end()
		if done != nil {
			p.trace = done
		}
	case before == Warmup && next != Warmup, next == None:
		p.forget()
	}
	if err == nil && next != None && p.session == nil {
		err = p.record()
	}
	p.beginStep()
	return done, err
}

// ready hands a trace on, without the mutex: the function may call the profiler.
func (p *Profiler) ready(t *Trace, err error) error {
	if err == nil && t != nil && p.options.OnTraceReady != nil {
		return p.options.OnTraceReady(t)
	}
	return err
}

// Stop ends what is recorded; [Profiler.Trace] has it then. Calls of other goroutines that are under way go on
// undisturbed, and are in the trace as unfinished. The error is that of OnTraceReady, and a RuntimeError if the
// profiler was not started, or was stopped.
func (p *Profiler) Stop() error {
	p.mutex.Lock()
	if !p.running {
		p.mutex.Unlock()
		return &notStarted{failure("Stop", "the profiler was not started, or was stopped already")}
	}
	p.endStep()
	var done *Trace
	var err error
	if p.action == Record || p.action == RecordAndSave {
		done, err = p.end()
		if done != nil {
			p.trace = done
		}
	}
	p.over()
	p.mutex.Unlock()
	return p.ready(done, err)
}

// over is called with the mutex locked.
func (p *Profiler) over() {
	p.forget()
	if p.remove != nil {
		p.remove()
		p.remove = nil
	}
	p.running = false
}

// discard is Stop without a trace.
func (p *Profiler) discard() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.running {
		p.over()
	}
}

// Trace returns what was recorded last: by Stop, or by the last cycle of the schedule that is complete. It is nil
// before, and from Start on.
func (p *Profiler) Trace() *Trace {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.trace
}

// StepNumber returns the number of the step that the profiler is in, from 0.
func (p *Profiler) StepNumber() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.step
}
