package metrics_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/metrics"
)

// Batches of any size give what one with everything gives.
func Example() {
	accuracy := metrics.MulticlassAccuracy(3, metrics.MulticlassOptions{Average: "micro"})
	f1 := metrics.MulticlassF1Score(3)
	both := metrics.MetricCollection(accuracy, f1)
	both.Update(gotorch.NewTensor([][]float32{{0.9, 0.1, 0}, {0.2, 0.7, 0.1}}), gotorch.FromSlice([]int64{0, 1}))
	both.Update(gotorch.NewTensor([][]float32{{0.2, 0.3, 0.5}, {0.8, 0.1, 0.1}}), gotorch.FromSlice([]int64{2, 1}))
	for _, v := range both.Compute() {
		fmt.Printf("%s %.4f\n", v.Name, gotorch.Item[float64](v.Value))
	}
	// Output:
	// MulticlassAccuracy 0.7500
	// MulticlassF1Score 0.7778
}

func ExampleBinaryAUROC() {
	scores, target := gotorch.FromSlice([]float32{0.1, 0.4, 0.35, 0.8}), gotorch.FromSlice([]int64{0, 0, 1, 1})
	fmt.Println(metrics.Eval(metrics.BinaryAUROC(), scores, target))
	roc := metrics.BinaryROC()
	roc.Update(scores, target)
	fmt.Println(roc.Compute()[0].X)
	// Output:
	// tensor(0.7500, dtype=torch.float64)
	// [0 0 0.5 0.5 1]
}

func ExampleR2Score() {
	r2 := metrics.R2Score()
	r2.Update(gotorch.FromSlice([]float64{2.5, 0, 2, 8}), gotorch.FromSlice([]float64{3, -0.5, 2, 7}))
	fmt.Println(r2.Compute())
	// Output:
	// tensor(0.9486, dtype=torch.float64)
}

func ExampleWordErrorRate() {
	wer := metrics.WordErrorRate()
	wer.Update([]string{"this is the prediction"}, []string{"this is the reference"})
	fmt.Println(wer.Compute())
	// Output:
	// tensor(0.2500, dtype=torch.float64)
}

func ExampleMeanAveragePrecision() {
	found := metrics.MeanAveragePrecision()
	found.Update([]metrics.Detections{{
		Boxes:  gotorch.NewTensor([][]float32{{258, 41, 606, 285}}),
		Scores: gotorch.FromSlice([]float32{0.536}),
		Labels: gotorch.FromSlice([]int64{0}),
	}}, []metrics.GroundTruth{{
		Boxes:  gotorch.NewTensor([][]float32{{214, 41, 562, 285}}),
		Labels: gotorch.FromSlice([]int64{0}),
	}})
	r := found.Compute()
	fmt.Printf("%.2f %.2f %.2f\n", r.MAP, r.MAP50, r.MAPSmall)
	// Output:
	// 0.60 1.00 -1.00
}

func ExampleMeanMetric() {
	loss := metrics.MeanMetric()
	for _, l := range []float64{0.5, 0.25, 0.75} {
		loss.Add(l)
	}
	fmt.Println(loss.Value())
	// Output:
	// 0.5
}
