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
		values, err := Evaluate(e.ctx, e.Model.(nn.Layer), set, all...)
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
// It returns an error if a batch cannot be made or ctx is cancelled.
func Evaluate(ctx context.Context, model nn.Layer, set data.Dataset[data.Pair], metrics ...Metric) ([]Value, error) {
	defer modes.Keep(model)()
	model.Eval()

	device := deviceOf(model)
	sums, counts := make([]float64, len(metrics)), make([]int, len(metrics))
	loader := data.NewLoader(set, data.LoaderOptions{BatchSize: evaluationBatch})
	for batch, err := range loader.All() {
		if err == nil {
			err = canceled(ctx)
		}
		if err == nil {
			err = gotorch.Try0(func() {
				gotorch.NoGrad(func() {
					gotorch.Scope0(func(*gotorch.ScopeHandle) {
						batch := batch.To(device)
						output := nn.Call(model, batch.Input)
						for i, m := range metrics {
							sum, n := m.Sum(output, batch.Target)
							sums[i] += sum
							counts[i] += n
						}
					})
				})
			})
		}
		if err != nil {
			return nil, err
		}
	}
	values := make([]Value, len(metrics))
	for i, m := range metrics {
		values[i] = Value{m.Name, sums[i] / float64(counts[i])}
	}
	return values, nil
}
