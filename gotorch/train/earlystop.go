package train

import (
	"fmt"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// EarlyStopOptions are the arguments of [LoopOf.EarlyStop] that have defaults.
type EarlyStopOptions struct {
	Mode       Mode           // which number is better; default: Min
	Patience   gotorch.Scalar // an integer: after so many epochs without a better one the run ends; default: 3
	MinDelta   float64        // a number is better if it is so by more than this
	Target     gotorch.Scalar // a number as good as this ends the run; default: none
	Limit      gotorch.Scalar // a number worse than this ends the run; default: none
	AllowNaN   bool           // go on where the number is infinite or NaN, which is never better
	RecordWait bool           // record "name_wait", the epochs since the best one
}

// EarlyStop ends a run, without an error, when a number of the epochs' records, such as "val_loss", has not become
// better for Patience epochs. It comes after what records the number. Checkpoints know how long it has
// waited. It panics with a ValueError if an option is out of range.
func (l *LoopOf[B]) EarlyStop(metric string, opts ...EarlyStopOptions) {
	const op = "train.LoopOf.EarlyStop"
	o := args.Option(opts)
	s := &earlyStop{best: math.NaN()}
	patience := args.Int(op, "Patience", o.Patience, 3)
	switch {
	case patience < 0:
		panic(args.ValueError(op, "Patience must not be negative, but is %d", patience))
	case !(o.MinDelta >= 0):
		panic(args.ValueError(op, "MinDelta must not be negative, but is %v", o.MinDelta))
	}
	worst := math.Inf(1)
	if o.Mode == Max {
		worst = math.Inf(-1)
	}
	target, limit := args.Float(op, "Target", o.Target, -worst), args.Float(op, "Limit", o.Limit, worst)
	l.Add(l.freeName("early_stop"), s)
	l.OnEpoch(func(e *Epoch) error {
		value, err := e.recorded(metric)
		if err != nil {
			return err
		}
		than := s.best
		if o.Mode == Max {
			than += o.MinDelta
		} else {
			than -= o.MinDelta
		}
		better := o.Mode.better(value, than) && !math.IsInf(value, 0)
		if better {
			s.best, s.wait = value, 0
		} else {
			s.wait++
		}
		if o.RecordWait {
			e.Record(metric+"_wait", float64(s.wait))
		}
		switch {
		case !o.AllowNaN && (math.IsNaN(value) || math.IsInf(value, 0)):
			return fmt.Errorf("%w: %s is %v", ErrStop, metric, value)
		case !better && s.wait >= int(patience), !math.IsInf(target, 0) && !math.IsNaN(value) && !o.Mode.better(target, value),
			!math.IsInf(limit, 0) && o.Mode.better(limit, value):
			return ErrStop
		}
		return nil
	})
}

// earlyStop is how long there was nothing better.
type earlyStop struct {
	best float64
	wait int
}

func (s *earlyStop) StateDict() gotorch.Dict {
	return gotorch.Dict{{Key: "best", Value: s.best}, {Key: "wait", Value: s.wait}}
}

func (s *earlyStop) LoadStateDict(dict gotorch.Dict) error {
	d := &decoder{dict: dict}
	now := earlyStop{best: d.float("best"), wait: d.int("wait")}
	if d.err == nil {
		*s = now
	}
	return d.err
}
