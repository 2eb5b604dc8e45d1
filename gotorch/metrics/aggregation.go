package metrics

import (
	"fmt"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// AggregatorOptions are the options of [MeanMetric], [SumMetric], [MaxMetric] and [MinMetric].
type AggregatorOptions struct {
	NaNStrategy string // "warn" and "ignore": a NaN does not count; "error": it is a RuntimeError; "disable": it counts; default: "warn"
}

// Aggregator puts values together, such as losses.
type Aggregator struct {
	base
	nan     string
	value   []float64
	weight  []float64
	combine func(a *Aggregator, value, weight float64)
}

// MeanMetric is the mean of the values that it is updated with: NaN before there are any.
//
// See https://lightning.ai/docs/torchmetrics/stable/aggregation/mean.html.
func MeanMetric(opts ...AggregatorOptions) *Aggregator {
	return aggregator("MeanMetric", 0, opts, func(a *Aggregator, v, w float64) {
		a.value[0] += float64(v * w)
		a.weight[0] += w
	})
}

// SumMetric is the sum of the values that it is updated with.
//
// See https://lightning.ai/docs/torchmetrics/stable/aggregation/sum.html.
func SumMetric(opts ...AggregatorOptions) *Aggregator {
	return aggregator("SumMetric", 0, opts, func(a *Aggregator, v, _ float64) { a.value[0] += v })
}

// MaxMetric is the largest of the values that it is updated with: -Inf before there are any.
//
// See https://lightning.ai/docs/torchmetrics/stable/aggregation/maximum.html.
func MaxMetric(opts ...AggregatorOptions) *Aggregator {
	return aggregator("MaxMetric", math.Inf(-1), opts, func(a *Aggregator, v, _ float64) { a.value[0] = max(a.value[0], v) })
}

// MinMetric is the smallest of the values that it is updated with: +Inf before there are any.
//
// See https://lightning.ai/docs/torchmetrics/stable/aggregation/minimum.html.
func MinMetric(opts ...AggregatorOptions) *Aggregator {
	return aggregator("MinMetric", math.Inf(1), opts, func(a *Aggregator, v, _ float64) { a.value[0] = min(a.value[0], v) })
}

func aggregator(name string, initial float64, opts []AggregatorOptions, combine func(a *Aggregator, value, weight float64)) *Aggregator {
	a := &Aggregator{base: base{name: name}, nan: args.Option(opts).NaNStrategy, combine: combine}
	switch a.nan {
	case "", "warn", "ignore", "error", "disable":
	default:
		panic(a.valueError("NaNStrategy should be \"warn\", \"ignore\", \"error\" or \"disable\", and is %q", a.nan))
	}
	a.floats("value", &a.value, 0, initial)
	if name == "MeanMetric" {
		a.floats("weight", &a.weight, 0, 0)
	}
	return a
}

// Update adds all elements of a tensor.
func (a *Aggregator) Update(values gotorch.Tensor) {
	a.reading([]gotorch.Tensor{values}, func() { a.Add(gotorch.ToSlice[float64](values)...) })
}

// UpdateWeighted adds all elements of a tensor, each as often as weights says, which has the same shape. Only a mean
// knows weights.
func (a *Aggregator) UpdateWeighted(values, weights gotorch.Tensor) {
	a.reading([]gotorch.Tensor{values, weights}, func() {
		a.sameShape(values, weights)
		a.add(gotorch.ToSlice[float64](values), gotorch.ToSlice[float64](weights))
	})
}

// Add adds numbers.
func (a *Aggregator) Add(values ...float64) { a.add(values, nil) }

func (a *Aggregator) add(values, weights []float64) {
	bad := func(i int) bool { return math.IsNaN(values[i]) || weights != nil && math.IsNaN(weights[i]) }
	for i := range values { // before anything changes: a handler of warnings may panic
		if a.nan == "disable" || a.nan == "ignore" || !bad(i) {
			continue
		}
		if a.nan == "error" {
			panic(a.runtimeError("a value is NaN"))
		}
		gotorch.Warn(gotorch.Warning{Kind: "UserWarning", Msg: a.op() + ": a value is NaN and is left out"})
		break
	}
	for i, v := range values {
		if a.nan != "disable" && bad(i) {
			continue
		}
		w := 1.0
		if weights != nil {
			w = weights[i]
		}
		a.combine(a, v, w)
	}
}

// Value is the value so far.
func (a *Aggregator) Value() float64 {
	if a.weight != nil {
		return a.value[0] / a.weight[0]
	}
	return a.value[0]
}

// Compute returns [Aggregator.Value] as a tensor.
func (a *Aggregator) Compute() gotorch.Tensor { return scalar(a.Value()) }

// Collection is several metrics that are updated together.
type Collection struct{ metrics []Metric }

// MetricCollection puts metrics together. It panics with a ValueError if two have one name, or one is nil.
//
// See https://lightning.ai/docs/torchmetrics/stable/pages/overview.html#metriccollection.
func MetricCollection(metrics ...Metric) *Collection {
	seen := map[string]bool{}
	for i, m := range metrics {
		if m == nil {
			panic(args.ValueError("metrics.MetricCollection", "metric %d is nil", i))
		}
		if seen[m.Name()] {
			panic(args.ValueError("metrics.MetricCollection", "there are two metrics of the name %s: give one another with Renamed", m.Name()))
		}
		seen[m.Name()] = true
	}
	return &Collection{slices.Clone(metrics)}
}

// Update adds a batch to all. If one refuses it, those before it are put back if they are [Stateful], so that all
// have seen the same batches.
func (c *Collection) Update(output, target gotorch.Tensor) {
	var restore []func()
	done := false
	defer func() {
		if !done {
			for _, f := range restore {
				f()
			}
		}
	}()
	for i, m := range c.metrics {
		if i+1 < len(c.metrics) {
			restore = append(restore, before(m))
		}
		m.Update(output, target)
	}
	done = true
}

// before returns what brings back a metric's state of now.
func before(m Metric) func() {
	if r, ok := m.(renamedState); ok {
		m = r.Metric
	}
	switch s := m.(type) {
	case interface{ snapshot() func() }:
		return s.snapshot()
	case Stateful:
		dict := s.StateDict()
		return func() { _ = s.LoadStateDict(dict) } // it is its own
	}
	return func() {}
}

// Value is what a metric of a [Collection] gave.
type Value struct {
	Name  string
	Value gotorch.Tensor
}

// Compute returns the values of all, in their order.
func (c *Collection) Compute() []Value {
	values := make([]Value, len(c.metrics))
	for i, m := range c.metrics {
		values[i] = Value{m.Name(), m.Compute()}
	}
	return values
}

// Reset forgets everything that was added.
func (c *Collection) Reset() {
	for _, m := range c.metrics {
		m.Reset()
	}
}

// StateDict returns the states of all metrics that are [Stateful], by name.
func (c *Collection) StateDict() gotorch.Dict {
	var dict gotorch.Dict
	for _, m := range c.metrics {
		if s, ok := m.(Stateful); ok {
			dict = append(dict, gotorch.DictItem{Key: m.Name(), Value: s.StateDict()})
		}
	}
	return dict
}

// LoadStateDict goes on from a state of StateDict. If it does not fit it returns an error and changes nothing.
func (c *Collection) LoadStateDict(dict gotorch.Dict) error {
	before := c.StateDict()
	if len(before) != len(dict) {
		return fmt.Errorf("metrics.MetricCollection: the state dict has %d metrics, and there are %d", len(dict), len(before))
	}
	for _, m := range c.metrics {
		s, ok := m.(Stateful)
		if !ok {
			continue
		}
		state, ok := dict.Get(m.Name()).(gotorch.Dict)
		err := fmt.Errorf("metrics.MetricCollection: the state dict has no metric %s", m.Name())
		if ok {
			err = s.LoadStateDict(state)
		}
		if err == nil {
			continue
		}
		for _, m := range c.metrics {
			if s, ok := m.(Stateful); ok {
				_ = s.LoadStateDict(before.Get(m.Name()).(gotorch.Dict)) // it is its own
			}
		}
		return err
	}
	return nil
}

// Renamed is a metric under another name, for a [MetricCollection] with two of a kind.
func Renamed(name string, m Metric) Metric {
	if s, ok := m.(Stateful); ok {
		return renamedState{renamed{m, name}, s}
	}
	return renamed{m, name}
}

type renamed struct {
	Metric
	name string
}

func (r renamed) Name() string { return r.name }

type renamedState struct {
	renamed
	Stateful
}
