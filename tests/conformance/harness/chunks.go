package main

import (
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
)

// Losses in chunks: Python gives input, weight of the layer, target, bias and weight of the classes as a list, the
// reduction, ignore_index and label_smoothing, and the options of chunks.
const specialChunks = -90

func runChunks(_ int64, in *reader) []reflect.Value {
	given := in.value(reflect.TypeFor[tensors]()).Interface().(tensors)
	reduction := map[string]F.Reduction{"mean": F.Mean, "sum": F.Sum, "none": F.None}[in.text()]
	opt := F.LinearCrossEntropyOptions{LinearBias: given[3], Weight: given[4], Reduction: reduction}
	if in.next() != 0 {
		opt.IgnoreIndex = in.next()
	}
	if in.next() != 0 {
		opt.LabelSmoothing = 0.1
	}
	var chunking F.LinearCrossEntropyChunking
	chunking.AllowRetainGraph = in.next() != 0
	if n := in.next(); n != 0 {
		chunking.BatchChunkSize = n
	}
	chunking.ChunkingMethod, chunking.AccPolicy = in.text(), in.text()
	switch in.text() {
	case "float16":
		chunking.AccDType = gotorch.Float16
	case "bfloat16":
		chunking.AccDType = gotorch.BFloat16
	case "float32":
		chunking.AccDType = gotorch.Float32
	case "float64":
		chunking.AccDType = gotorch.Float64
	}
	opt.Options = &chunking
	repr := nn.LinearCrossEntropyLoss(2, 3, nn.LinearCrossEntropyLossOptions{Options: &chunking}).String()
	return []reflect.Value{reflect.ValueOf(F.LinearCrossEntropy(given[0], given[1], given[2], opt)), reflect.ValueOf(repr)}
}
