package train

import (
	"math"
	"time"
)

// History is what a run has recorded.
type History struct {
	Losses []float64 // of each step
	Epochs []EpochRecord
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
