// Package metrics measures how good a model's answers are, by the definitions of torchmetrics.
//
// A metric is updated with batches and computed at the end: what it gives is the value over all samples, not a mean
// of the batches' values.
//
//	accuracy := metrics.MulticlassAccuracy(10, metrics.MulticlassOptions{Average: "micro"})
//	for batch := range batches {
//		accuracy.Update(net.Forward(batch.Input), batch.Target)
//	}
//	fmt.Println(gotorch.Item[float64](accuracy.Compute()))
//
// [Eval] is the functional form of each: a metric of one batch.
//
// What is remembered between updates are Go numbers, float64 and int64, and no tensor: nothing has to be closed,
// and a metric may be updated in one Scope and computed in another. Results are new tensors of float64, or of int64
// where they are counts. The tensors of an update may be on any device and are not kept.
//
// Arguments are always checked, as torchmetrics does with validate_args. A label that is no class is an error here,
// where torchmetrics only notices some. An empty batch changes nothing. What an update refuses changes nothing
// either. A metric is for one goroutine at a time.
package metrics

import (
	"fmt"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Metric is what is measured of a model's outputs and the targets.
type Metric interface {
	// Name says what is measured: "MulticlassAccuracy".
	Name() string
	// Update adds a batch. It panics with a *gotorch.Error where the batch does not fit, and then changes nothing.
	Update(output, target gotorch.Tensor)
	// Compute returns the value over everything since the beginning or the last Reset.
	Compute() gotorch.Tensor
	// Reset forgets everything.
	Reset()
}

// Stateful is a metric whose state goes into a checkpoint. All metrics of this package are.
type Stateful interface {
	// StateDict returns a copy of what the metric remembers, for [gotorch.Save].
	StateDict() gotorch.Dict
	// LoadStateDict goes on from what StateDict returned for a metric with the same options. If dict does not
	// fit, it returns an error and changes nothing.
	LoadStateDict(dict gotorch.Dict) error
}

// Eval is the value of a metric for one batch alone, the functional form of all metrics:
// metrics.Eval(metrics.R2Score(), output, target). It resets m before and after.
func Eval(m Metric, output, target gotorch.Tensor) gotorch.Tensor {
	m.Reset()
	defer m.Reset()
	m.Update(output, target)
	return m.Compute()
}

// TensorMetric is a metric that takes a tensor of outputs and one of targets. Most constructors of this package
// return one.
type TensorMetric struct {
	base
	update  func(output, target gotorch.Tensor)
	compute func() gotorch.Tensor
}

// Update adds a batch. What the tensors must be, and which errors there are, the constructor says.
func (m *TensorMetric) Update(output, target gotorch.Tensor) {
	m.reading([]gotorch.Tensor{output, target}, func() { m.update(output, target) })
}

// Compute returns the value over everything since the last Reset, as a new tensor on the CPU.
func (m *TensorMetric) Compute() gotorch.Tensor { return m.compute() }

// base is what all metrics have: a name, and the numbers that they remember.
type base struct {
	name  string
	slots []slot
	check func() error // whether loaded numbers fit together; nil where any do
}

// slot is a named part of a metric's state.
type slot struct {
	name    string
	ints    *[]int64
	floats  *[]float64
	grows   int // how many numbers there are for a sample; 0 where there is one number of them
	initial any
	inPlace bool // whether numbers change although there may be more of them; else what grows is only appended to
}

// Name says what is measured, by the name of the constructor.
func (b *base) Name() string { return b.name }

func (b *base) op() string { return "metrics." + b.name }

// ints adds numbers to the state: as many as initial has, or, where grows is not 0, a multiple of that.
func (b *base) ints(name string, p *[]int64, grows int, initial ...int64) {
	b.slots = append(b.slots, slot{name: name, ints: p, grows: grows, initial: initial})
	*p = append([]int64(nil), initial...)
}

func (b *base) floats(name string, p *[]float64, grows int, initial ...float64) {
	b.slots = append(b.slots, slot{name: name, floats: p, grows: grows, initial: initial})
	*p = append([]float64(nil), initial...)
}

// Reset forgets everything that was added.
func (b *base) Reset() {
	for _, s := range b.slots {
		if s.ints != nil {
			*s.ints = append([]int64(nil), s.initial.([]int64)...)
		} else {
			*s.floats = append([]float64(nil), s.initial.([]float64)...)
		}
	}
}

// snapshot returns what brings back the state of now. What is only appended to is not copied, so that it costs the
// same after a million samples.
func (b *base) snapshot() (restore func()) {
	ints, floats := make([][]int64, len(b.slots)), make([][]float64, len(b.slots))
	for i, s := range b.slots {
		switch copied := s.grows == 0 || s.inPlace; {
		case s.ints != nil && copied:
			ints[i] = slices.Clone(*s.ints)
		case s.ints != nil:
			ints[i] = *s.ints
		case copied:
			floats[i] = slices.Clone(*s.floats)
		default:
			floats[i] = *s.floats
		}
	}
	return func() {
		for i, s := range b.slots {
			if s.ints != nil {
				*s.ints = ints[i]
			} else {
				*s.floats = floats[i]
			}
		}
	}
}

// StateDict returns a copy of what the metric remembers: tensors of int64 and float64 with one dimension, by name.
func (b *base) StateDict() gotorch.Dict {
	var dict gotorch.Dict
	for _, s := range b.slots {
		var t gotorch.Tensor
		if s.ints != nil {
			t = gotorch.FromSlice(*s.ints)
		} else {
			t = gotorch.FromSlice(*s.floats)
		}
		dict = append(dict, gotorch.DictItem{Key: s.name, Value: t})
	}
	return dict
}

// LoadStateDict goes on from a state that StateDict returned. If dict does not fit this metric and its options, it
// returns an error that says why, and the metric is as before.
func (b *base) LoadStateDict(dict gotorch.Dict) (err error) {
	if len(dict) != len(b.slots) {
		return fmt.Errorf("%s: the state dict has %d entries, and the metric has %d: is it of another metric?", b.op(), len(dict), len(b.slots))
	}
	ints, floats := make([][]int64, len(b.slots)), make([][]float64, len(b.slots))
	for i, s := range b.slots {
		t, ok := dict.Get(s.name).(gotorch.Tensor)
		if !ok || !t.Defined() {
			return fmt.Errorf("%s: the state dict has no tensor %q", b.op(), s.name)
		}
		want, n := gotorch.Int64, 0
		if s.ints == nil {
			want, n = gotorch.Float64, len(s.initial.([]float64))
		} else {
			n = len(s.initial.([]int64))
		}
		if t.DType() != want || t.Dim() != 1 {
			return fmt.Errorf("%s: %q of the state dict is %v of shape %v, and should be a list of %v", b.op(), s.name, t.DType(), t.Shape(), want)
		}
		if have := int(t.Numel()); s.grows == 0 && have != n || s.grows > 0 && have%s.grows != 0 {
			return fmt.Errorf("%s: %q of the state dict has %d numbers, and does not fit the metric's options", b.op(), s.name, have)
		}
		err := gotorch.Try0(func() {
			if s.ints != nil {
				ints[i] = gotorch.ToSlice[int64](t)
			} else {
				floats[i] = gotorch.ToSlice[float64](t)
			}
		})
		if err != nil {
			return err
		}
	}
	swap := func() {
		for i, s := range b.slots {
			if s.ints != nil {
				*s.ints, ints[i] = ints[i], *s.ints
			} else {
				*s.floats, floats[i] = floats[i], *s.floats
			}
		}
	}
	swap()
	if b.check != nil {
		if err := b.check(); err != nil {
			swap()
			return fmt.Errorf("%s: the state dict is damaged: %w", b.op(), err)
		}
	}
	return nil
}

// reading runs an update: its tensors are all there, and what it makes of them is freed.
func (b *base) reading(inputs []gotorch.Tensor, update func()) {
	for i, t := range inputs {
		if !t.Defined() {
			panic(args.ValueError(b.op(), "the %s is no tensor", [...]string{"output", "target"}[i]))
		}
		if t.DType().IsComplex() {
			panic(&gotorch.Error{Op: b.op(), Kind: gotorch.TypeError, Msg: "complex numbers cannot be measured"})
		}
	}
	gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.NoGrad(update) })
}

func (b *base) valueError(format string, values ...any) *gotorch.Error {
	return args.ValueError(b.op(), format, values...)
}

func (b *base) runtimeError(format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: b.op(), Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(format, values...)}
}

// sameShape refuses tensors of different shapes.
func (b *base) sameShape(output, target gotorch.Tensor) {
	if !same(output.Shape(), target.Shape()) {
		panic(b.runtimeError("the output and the target should have the same shape, and have %v and %v", output.Shape(), target.Shape()))
	}
}

func same(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// labels reads integers, which may be written as floats.
func (b *base) labels(what string, t gotorch.Tensor) []int64 {
	if !t.IsFloatingPoint() {
		return gotorch.ToSlice[int64](t.To(gotorch.Int64))
	}
	values := gotorch.ToSlice[float64](t)
	result := make([]int64, len(values))
	for i, v := range values {
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			panic(b.runtimeError("the %s should hold classes, and holds %v", what, v))
		}
		result[i] = int64(v)
	}
	return result
}

func scalar(v float64) gotorch.Tensor { return gotorch.FromSlice([]float64{v}, []int64{}...) }

func vector(v []float64) gotorch.Tensor { return gotorch.FromSlice(v, int64(len(v))) }

// rows makes a matrix of so many columns.
func rows(v []float64, columns int) gotorch.Tensor {
	return gotorch.FromSlice(v, int64(len(v)/columns), int64(columns))
}

func sum[T int64 | float64](values []T) (total T) {
	for _, v := range values {
		total += v
	}
	return total
}

// safeDivide is num/denom, or zero where there is nothing to divide by.
func safeDivide(num, denom, zero float64) float64 {
	if denom == 0 {
		return zero
	}
	return num / denom
}
