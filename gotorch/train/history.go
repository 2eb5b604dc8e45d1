package train

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gotorch.dev/gotorch"
)

// History is what a run has recorded.
type History struct {
	Losses []float64 // of each step
	Epochs []EpochRecord
	Series map[string][]float64 // what StepOf.Record has recorded: for each step, up to the last that did; NaN where it did not
}

// EpochRecord is what is recorded of an epoch.
type EpochRecord struct {
	Number   int           // from 1
	Steps    int           // in the run so far
	Loss     float64       // the mean over the epoch's steps
	Metrics  []Value       // what hooks have recorded, in order
	Duration time.Duration // without hooks
}

// Value is a number with a name.
type Value struct {
	Name  string
	Value float64
}

// Metric returns the number that was recorded in each epoch by a name, "loss" for the mean loss; NaN
// where there is none.
func (h *History) Metric(name string) []float64 {
	values := make([]float64, len(h.Epochs))
	for i, e := range h.Epochs {
		values[i] = e.Metric(name)
	}
	return values
}

// Last returns the last number that was recorded by a name; NaN if there is none.
func (h *History) Last(name string) float64 {
	if len(h.Epochs) == 0 {
		return math.NaN()
	}
	return h.Epochs[len(h.Epochs)-1].Metric(name)
}

// Metric returns the number that was recorded by a name, "loss" for the mean loss; NaN if there is none.
func (e *EpochRecord) Metric(name string) float64 {
	for _, m := range e.Metrics {
		if m.Name == name {
			return m.Value
		}
	}
	if name == "loss" {
		return e.Loss
	}
	return math.NaN()
}

// recorded returns the number that was recorded by a name, or an error that says which there are.
func (e *Epoch) recorded(name string) (float64, error) {
	names := []string{"loss"}
	for _, m := range e.Metrics {
		if names = append(names, m.Name); m.Name == name {
			return m.Value, nil
		}
	}
	if name == "loss" {
		return e.Loss, nil
	}
	return 0, fmt.Errorf("no %q was recorded of epoch %d, only %s", name, e.Number, strings.Join(names, ", "))
}

// state is what a checkpoint has of the history.
func (h *History) state() gotorch.Dict {
	var series, epochs gotorch.Dict
	for _, name := range slices.Sorted(maps.Keys(h.Series)) {
		series = append(series, gotorch.DictItem{Key: name, Value: gotorch.FromSlice(h.Series[name])})
	}
	for _, e := range h.Epochs {
		var metrics gotorch.Dict
		for _, m := range e.Metrics {
			metrics = append(metrics, gotorch.DictItem{Key: m.Name, Value: m.Value})
		}
		epochs = append(epochs, gotorch.DictItem{Key: e.Number, Value: gotorch.Dict{
			{Key: "steps", Value: e.Steps}, {Key: "loss", Value: e.Loss}, {Key: "metrics", Value: metrics},
			{Key: "duration", Value: e.Duration.Seconds()},
		}})
	}
	return gotorch.Dict{{Key: "losses", Value: gotorch.FromSlice(h.Losses)}, {Key: "series", Value: series}, {Key: "epochs", Value: epochs}}
}

// loadHistory reads what state has returned; d keeps the error.
func loadHistory(dict gotorch.Dict, d *decoder) *History {
	of := &decoder{dict: dict, err: d.err}
	h := &History{Losses: of.floats("losses")}
	series := &decoder{dict: of.dict_("series"), err: of.err}
	for key := range series.dict.All() {
		if h.Series == nil {
			h.Series = map[string][]float64{}
		}
		h.Series[fmt.Sprint(key)] = series.floats(key)
	}
	epochs := &decoder{dict: of.dict_("epochs"), err: series.err}
	for key := range epochs.dict.All() {
		number, _ := key.(int64)
		e := &decoder{dict: epochs.dict_(key), err: epochs.err}
		record := EpochRecord{Number: int(number), Steps: e.int("steps"), Loss: e.float("loss"),
			Duration: time.Duration(e.float("duration") * float64(time.Second))}
		metrics := &decoder{dict: e.dict_("metrics"), err: e.err}
		for name := range metrics.dict.All() {
			record.Metrics = append(record.Metrics, Value{fmt.Sprint(name), metrics.float(name)})
		}
		h.Epochs, epochs.err = append(h.Epochs, record), metrics.err
	}
	if d.err == nil {
		d.err = epochs.err
	}
	if d.err == nil {
		d.err = of.err
	}
	return h
}
