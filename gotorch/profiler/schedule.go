package profiler

import (
	"fmt"

	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// Action is what a profiler does in a step.
//
// See https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.ProfilerAction.
type Action int

const (
	None          Action = iota // nothing
	Warmup                      // records, and forgets what it has: the first calls with a profile take longer
	Record                      // records
	RecordAndSave               // records, and at the step's end the trace is ready
)

// String returns the constant's name.
func (a Action) String() string {
	if a < None || a > RecordAndSave {
		return fmt.Sprintf("Action(%d)", int(a))
	}
	return [...]string{"None", "Warmup", "Record", "RecordAndSave"}[a]
}

func checkAction(op string, a Action) error {
	if a < None || a > RecordAndSave {
		return args.ValueError("profiler."+op, "the schedule returned %v, which is no action", a)
	}
	return nil
}

// ScheduleOptions are the arguments of [Schedule].
type ScheduleOptions struct {
	Wait   int // steps in which nothing is recorded, at the begin of each cycle
	Warmup int // steps whose record is forgotten, after them
	Active int // steps that are recorded, at least 1
	Repeat int // how many cycles there are; 0 is no end

	SkipFirst     int  // steps before the first cycle
	SkipFirstWait bool // the first cycle does not wait
}

// Schedule makes cycles of steps: some in which nothing is recorded, some to warm up, and some that make a trace. It
// panics with a ValueError if a number is negative, or Active is not positive.
//
// See https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.profiler.schedule.
func Schedule(o ScheduleOptions) func(step int) Action {
	const op = "profiler.Schedule"
	for _, n := range []struct {
		name  string
		value int
	}{{"Wait", o.Wait}, {"Warmup", o.Warmup}, {"Repeat", o.Repeat}, {"SkipFirst", o.SkipFirst}} {
		if n.value < 0 {
			panic(args.ValueError(op, "%s must not be negative, but is %d", n.name, n.value))
		}
	}
	if o.Active <= 0 {
		panic(args.ValueError(op, "Active must be positive, but is %d: it is the number of steps that are recorded", o.Active))
	}
	cycle := o.Wait + o.Warmup + o.Active
	return func(step int) Action {
		if step < o.SkipFirst {
			return None
		}
		step -= o.SkipFirst
		if o.SkipFirstWait {
			step += o.Wait
		}
		if o.Repeat > 0 && step/cycle >= o.Repeat {
			return None
		}
		switch at := step % cycle; {
		case at < o.Wait:
			return None
		case at < o.Wait+o.Warmup:
			return Warmup
		case at < cycle-1:
			return Record
		}
		return RecordAndSave
	}
}

// stepStart and stepRange are where steps begin and end. They may do so in different goroutines, so that they are no
// ranges that C records.
type stepStart struct {
	clock, goroutine int64
}

type stepRange struct {
	number       int
	start        stepStart
	end          int64
	endGoroutine int64
}

// beginStep and endStep are called with the mutex locked.
func (p *Profiler) beginStep() {
	if p.options.Schedule != nil {
		p.begun = stepStart{ctorch.ProfileClock(), goroutine()}
	}
}

func (p *Profiler) endStep() {
	if p.options.Schedule != nil && p.session != nil {
		p.steps = append(p.steps, stepRange{p.step, p.begun, ctorch.ProfileClock(), goroutine()})
	}
}
