package nn

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// CrossEntropyLossModule is what [CrossEntropyLoss] makes.
type CrossEntropyLossModule struct {
	Module
	Weight         gotorch.Tensor `nn:",buffer"` // (classes), or none
	Reduction      F.Reduction
	IgnoreIndex    int64
	LabelSmoothing float64
}

// CrossEntropyLoss measures how far a model's scores for each class are from the right class. Its
// Forward is [F.CrossEntropy] with the options given here.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html.
func CrossEntropyLoss(opts ...F.CrossEntropyOptions) *CrossEntropyLossModule {
	opt := args.Option(opts)
	return Init(&CrossEntropyLossModule{Weight: opt.Weight, Reduction: opt.Reduction, IgnoreIndex: args.Int("nn.CrossEntropyLoss", "IgnoreIndex", opt.IgnoreIndex, -100),
		LabelSmoothing: opt.LabelSmoothing})
}

// Forward returns the loss of scores (N, classes, ...) given targets: classes (N, ...) or
// probabilities of the scores' shape.
func (m *CrossEntropyLossModule) Forward(input, target gotorch.Tensor) gotorch.Tensor {
	return F.CrossEntropy(input, target, F.CrossEntropyOptions{Weight: m.Weight, Reduction: m.Reduction,
		IgnoreIndex: m.IgnoreIndex, LabelSmoothing: m.LabelSmoothing})
}
