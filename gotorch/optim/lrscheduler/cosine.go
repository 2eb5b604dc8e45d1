package lrscheduler

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/libm"
	"gotorch.dev/gotorch/optim"
)

// cosine returns the cosine of π·x/of, in Python's order.
func cosine(op string, x, of float64) float64 { return libm.Cos(divide(op, math.Pi*x, of)) }

// between returns the learning rates on the way from the initial ones to least, where wave goes from 1 to -1.
func (s *LRScheduler) between(least, wave float64) []float64 {
	lrs := make([]float64, len(s.BaseLRs))
	for i, base := range s.BaseLRs {
		lrs[i] = least + float64((base-least)*(1+wave)/2)
	}
	return lrs
}

// CosineAnnealingLRScheduler is what [CosineAnnealingLR] makes.
type CosineAnnealingLRScheduler struct {
	LRScheduler
	TMax   int64   `lr:"T_max"`
	EtaMin float64 `lr:"eta_min"`
}

// CosineAnnealingLROptions are the arguments of [CosineAnnealingLR] that have defaults.
type CosineAnnealingLROptions struct {
	EtaMin    float64        // the least learning rate
	LastEpoch gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// CosineAnnealingLR takes learning rates down to EtaMin in tMax epochs, along half a wave of the cosine, and in as
// many up again. Steps panic with a ZeroDivisionError if tMax is 0.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CosineAnnealingLR.html.
func CosineAnnealingLR(opt optim.Optimizer, tMax int64, opts ...CosineAnnealingLROptions) *CosineAnnealingLRScheduler {
	o := args.Option(opts)
	s := &CosineAnnealingLRScheduler{TMax: tMax, EtaMin: o.EtaMin}
	s.Init(s, opt, lastEpoch(s, o.LastEpoch))
	return s
}

// NextLRs returns the learning rates for LastEpoch.
func (s *CosineAnnealingLRScheduler) NextLRs() []float64 {
	op, epoch, whole := nameOf(s), float64(s.LastEpoch), float64(s.TMax)
	lrs := s.LRs()
	switch {
	case s.initial:
	case s.stepCount == 1 && s.LastEpoch > 0:
		return s.closedFormLRs()
	case modulo(op, s.LastEpoch-1-s.TMax, 2*s.TMax) == 0: // the wave is at its lowest, where a ratio would be 0/0
		s.fits(len(lrs), len(s.BaseLRs))
		for i, base := range s.BaseLRs {
			lrs[i] += (base - s.EtaMin) * (1 - cosine(op, 1, whole)) / 2
		}
	default:
		ratio := divide(op, 1+cosine(op, epoch, whole), 1+cosine(op, epoch-1, whole))
		for i := range lrs {
			lrs[i] = float64(ratio*(lrs[i]-s.EtaMin)) + s.EtaMin
		}
	}
	return lrs
}

func (s *CosineAnnealingLRScheduler) closedFormLRs() []float64 {
	return s.between(s.EtaMin, cosine(nameOf(s), float64(s.LastEpoch), float64(s.TMax)))
}

// CosineAnnealingWarmRestartsScheduler is what [CosineAnnealingWarmRestarts] makes.
type CosineAnnealingWarmRestartsScheduler struct {
	LRScheduler
	T0     int64   `lr:"T_0"`
	TI     int64   `lr:"T_i"` // the length of the wave that is on
	TMult  int64   `lr:"T_mult"`
	EtaMin float64 `lr:"eta_min"`
	TCur   float64 `lr:"T_cur"` // the epochs since the wave began
}

// CosineAnnealingWarmRestartsOptions are the arguments of [CosineAnnealingWarmRestarts] that have defaults.
type CosineAnnealingWarmRestartsOptions struct {
	TMult     gotorch.Scalar // how much longer each wave is than the one before it; default: 1
	EtaMin    float64        // the least learning rate
	LastEpoch gotorch.Scalar // the epoch to go on after; default: -1, which begins
}

// CosineAnnealingWarmRestarts takes learning rates down to EtaMin along half a wave of the cosine, t0 epochs long,
// then begins again with the initial ones. It panics with a ValueError if t0 is not positive, or TMult below 1.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.html.
func CosineAnnealingWarmRestarts(opt optim.Optimizer, t0 int64, opts ...CosineAnnealingWarmRestartsOptions) *CosineAnnealingWarmRestartsScheduler {
	o := args.Option(opts)
	s := &CosineAnnealingWarmRestartsScheduler{T0: t0, TI: t0, EtaMin: o.EtaMin}
	op := nameOf(s)
	s.TMult = args.Int(op, "TMult", o.TMult, 1)
	if t0 <= 0 {
		panic(args.ValueError(op, "Expected positive integer T_0, but got %d", t0))
	}
	if s.TMult < 1 {
		panic(args.ValueError(op, "Expected integer T_mult >= 1, but got %d", s.TMult))
	}
	last := lastEpoch(s, o.LastEpoch)
	s.TCur = float64(last)
	s.Init(s, opt, last)
	return s
}

// NextLRs returns the learning rates for TCur.
func (s *CosineAnnealingWarmRestartsScheduler) NextLRs() []float64 {
	return s.between(s.EtaMin, cosine(nameOf(s), s.TCur, float64(s.TI)))
}

// Step goes to the next epoch.
func (s *CosineAnnealingWarmRestartsScheduler) Step() {
	s.check()
	if s.LastEpoch < 0 {
		s.StepTo(0)
		return
	}
	current, length := s.TCur+1, s.TI
	if current >= float64(length) {
		if length == 0 {
			panic(arithmeticError(nameOf(s), "ZeroDivisionError", "integer modulo by zero: T_i is 0"))
		}
		current, length = math.Mod(current, float64(length)), length*s.TMult
	}
	s.move(s.LastEpoch+1, current, length)
}

// StepTo goes to an epoch, or to a place within one: epoch + i/n for the i-th of n batches. It panics with a
// ValueError if that is negative or no number.
func (s *CosineAnnealingWarmRestartsScheduler) StepTo(epoch float64) {
	s.check()
	op := nameOf(s) + ".StepTo"
	if !(epoch >= 0 && epoch < 1<<53) {
		panic(args.ValueError(op, "Expected non-negative epoch, but got %v", epoch))
	}
	current, length := epoch, s.T0
	if first := float64(s.T0); epoch >= first {
		if s.TMult == 1 {
			current = math.Mod(epoch, divisor(op, first))
			length = s.TI
		} else {
			mult := float64(s.TMult)
			waves := math.Trunc(divide(op, libm.Log(float64(epoch/divisor(op, first)*(mult-1))+1), libm.Log(mult)))
			grown := power(op, mult, waves) // of integers, which are exact
			current = epoch - divide(op, first*(grown-1), mult-1)
			length = int64(first * grown)
		}
	}
	s.move(int64(math.Floor(epoch)), current, length)
}

// divisor returns x. It panics with Python's ZeroDivisionError if that is 0.
func divisor(op string, x float64) float64 {
	divide(op, 0, x)
	return x
}

// move sets where the scheduler is, and the learning rates.
func (s *CosineAnnealingWarmRestartsScheduler) move(epoch int64, current float64, length int64) {
	s.guarded(func() {
		s.LastEpoch, s.TCur, s.TI = epoch, current, length
		s.set(s.NextLRs())
	})
}
