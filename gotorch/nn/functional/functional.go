// Package functional has the layers and losses of torch.nn.functional as plain functions: without
// weights of their own, for use inside a module's Forward and as the loss of a training loop.
//
//	import F "gotorch.dev/gotorch/nn/functional"
//
//	func (n *Net) Forward(x gotorch.Tensor) gotorch.Tensor {
//		x = F.ReLU(n.Conv1.Forward(x))
//		x = F.MaxPool2d(x, []int64{2})
//		x = F.Dropout(x, 0.25, n.Training())
//		return F.LogSoftmax(n.FC.Forward(x.Flatten(gotorch.FlattenOptions{StartDim: 1})), 1)
//	}
//
//	loss := F.CrossEntropy(scores, classes)
//	loss = F.CrossEntropy(scores, classes, F.CrossEntropyOptions{LabelSmoothing: 0.1})
//
// Arguments without a default in PyTorch are parameters, the others are fields of an options struct, but
// for those that every call gives: dim of the softmaxes, p and training of the dropouts. Where package
// gotorch has a function of the same name, this one differs as it does in PyTorch: by options that are
// easier to read, and by checks. The functions with an underscore overwrite their input.
package functional
