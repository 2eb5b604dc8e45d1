package train

import (
	"context"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/modes"
	"gotorch.dev/gotorch/nn"
)

// Metric measures how good a model's answers are.
type Metric struct {
	Name string
	// Sum returns the sum of what is measured over the samples of a batch, and their number.
	Sum func(output, target gotorch.Tensor) (sum float64, n int)
}

// Accuracy is the part of samples for which the largest score, (N, C) or (N, C, *), is that of the
// right class.
var Accuracy = Metric{"accuracy", func(output, target gotorch.Tensor) (float64, int) {
	right := output.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))}).Eq(target)
	return gotorch.Item[float64](right.Sum()), int(right.Numel())
}}

// mean makes a metric of a loss that is a mean over a batch.
func meanOf(loss func(output, target gotorch.Tensor) gotorch.Tensor) Metric {
	return Metric{"loss", func(output, target gotorch.Tensor) (float64, int) {
		n := int(target.Size(0))
		return gotorch.Item[float64](loss(output, target)) * float64(n), n
	}}
}

// Validate returns a hook for [Loop.OnEpoch] that records the loss and metrics over a set that the
// model does not learn from, by names such as "val_loss" and "val_accuracy". The model is in evaluation
// mode meanwhile.
func Validate(set data.Dataset[data.Pair], metrics ...Metric) func(*Epoch) error {
	return func(e *Epoch) error {
		if e.loss == nil {
			return &gotorch.Error{Op: "train.Validate", Kind: gotorch.TypeError, Msg: "only a loop by NewLoop has a model and a loss for pairs; write a hook of your own, with Evaluate"}
		}
		all := append([]Metric{meanOf(e.loss.Forward)}, metrics...)
		values, err := e.evaluate(set, all)
		for _, v := range values {
			e.Record("val_"+v.Name, v.Value)
		}
		return err
	}
}

// evaluationBatch is how many samples are shown at a time where nothing is learnt.
const evaluationBatch = 256

// Evaluate returns metrics over a data set, with the model in evaluation mode and without gradients. Afterwards each
// module is in the mode that it was in.
// It returns an error if a batch cannot be made or ctx is cancelled, also where it waits for a batch of a set that hears
// of it, a data.ContextDataset. Of a set without samples all metrics are NaN.
func Evaluate(ctx context.Context, model nn.Layer, set data.Dataset[data.Pair], metrics ...Metric) ([]Value, error) {
	sums, err := sumsOf(ctx, model, set, metrics)
	if err != nil {
		return nil, err
	}
	return sums.values(metrics), nil
}

// sums are metrics of which there may be more to come.
type sums struct {
	Sums   []float64
	Counts []int
}

func newSums(metrics []Metric) sums {
	return sums{make([]float64, len(metrics)), make([]int, len(metrics))}
}

func (s sums) values(metrics []Metric) []Value {
	values := make([]Value, len(metrics))
	for i, m := range metrics {
		values[i] = Value{m.Name, s.Sums[i] / float64(s.Counts[i])}
	}
	return values
}

// add has the model answer a batch, and adds what metrics say of it. called is called in between.
func (s sums) add(model nn.Layer, batch data.Pair, metrics []Metric, called func()) error {
	return gotorch.Try0(func() {
		gotorch.NoGrad(func() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				batch := batch.To(deviceOf(model))
				output := nn.Call(model, batch.Input)
				called()
				for i, m := range metrics {
					sum, n := m.Sum(output, batch.Target)
					s.Sums[i] += sum
					s.Counts[i] += n
				}
			})
		})
	})
}

func sumsOf(ctx context.Context, model nn.Layer, set data.Dataset[data.Pair], metrics []Metric) (all sums, err error) {
	all = newSums(metrics)
	err = eachEvaluation(ctx, model, set, func(batch data.Pair) error { return all.add(model, batch, metrics, func() {}) })
	return all, err
}

func numEvaluations(samples int) int { return (samples + evaluationBatch - 1) / evaluationBatch }

// eachEvaluation calls do with each batch of a set, while the model is in evaluation mode.
func eachEvaluation(ctx context.Context, model nn.Layer, set data.Dataset[data.Pair], do func(batch data.Pair) error) error {
	defer modes.Keep(model)()
	model.Eval()
	loader := data.NewLoader(set, data.LoaderOptions{BatchSize: evaluationBatch})
	for batch, err := range loader.AllContext(ctx) {
		if err == nil {
			err = do(batch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
