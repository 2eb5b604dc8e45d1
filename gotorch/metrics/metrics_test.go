package metrics_test

import (
	"errors"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/metrics"
)

var (
	scores = gotorch.NewTensor([][]float32{{0.7, 0.2, 0.1}, {0.1, 0.8, 0.1}, {0.3, 0.3, 0.4}})
	labels = gotorch.FromSlice([]int64{0, 1, 1})
)

// What is refused says so with its kind, and what was there before is there after.
func TestWhatDoesNotFitIsRefusedAndChangesNothing(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		m              metrics.Metric
		output, target gotorch.Tensor
		kind           gotorch.ErrorKind
		says           string
	}{
		"no tensor":         {metrics.MulticlassAccuracy(3), gotorch.Tensor{}, labels, gotorch.ValueError, "the output is no tensor"},
		"no target":         {metrics.MeanSquaredError(), scores, gotorch.Tensor{}, gotorch.ValueError, "the target is no tensor"},
		"complex":           {metrics.MeanSquaredError(), scores.To(gotorch.Complex64), scores, gotorch.TypeError, "complex"},
		"classes":           {metrics.MulticlassAccuracy(4), scores, labels, gotorch.ValueError, "4 classes"},
		"a label too large": {metrics.MulticlassAccuracy(3), scores, gotorch.FromSlice([]int64{0, 1, 3}), gotorch.RuntimeError, "from 0 to 2"},
		"a negative label":  {metrics.MulticlassConfusionMatrix(3), scores, gotorch.FromSlice([]int64{0, 1, -1}), gotorch.RuntimeError, "holds -1"},
		"half a label":      {metrics.BinaryAccuracy(), labels, gotorch.FromSlice([]float32{0, 1, 0.5}), gotorch.RuntimeError, "holds 0.5"},
		"a label that is NaN": {metrics.BinaryAccuracy(), labels, gotorch.FromSlice([]float32{0, 1, nan}), gotorch.RuntimeError,
			"holds NaN"},
		"no dimension": {metrics.MulticlassAccuracy(3), gotorch.FromSlice([]float32{1}, []int64{}...), labels, gotorch.ValueError, "the target's shape"},
		"shapes":       {metrics.R2Score(), scores, labels, gotorch.RuntimeError, "the same shape"},
		"other columns": {after(metrics.R2Score(), labels.To(gotorch.Float32), labels.To(gotorch.Float32)), scores, scores,
			gotorch.ValueError, "as before"},
		"whole scores": {metrics.BinaryAUROC(), labels, labels, gotorch.ValueError, "should hold scores"},
	} {
		before := state(t, c.m)
		err := gotorch.Try0(func() { c.m.Update(c.output, c.target) })
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, not a %s that says %q", name, err, c.kind, c.says)
		}
		if after := state(t, c.m); after != before {
			t.Errorf("%s: the state was %s and is %s", name, before, after)
		}
	}
}

func after(m metrics.Metric, output, target gotorch.Tensor) metrics.Metric {
	m.Update(output, target)
	return m
}

func state(t *testing.T, m metrics.Metric) string {
	t.Helper()
	var text strings.Builder
	for name, value := range m.(metrics.Stateful).StateDict().All() {
		text.WriteString(name.(string) + value.(gotorch.Tensor).String())
	}
	return text.String()
}

func TestOptionsThatMeanNothingAreRefused(t *testing.T) {
	for says, make := range map[string]func(){
		"at least two classes":      func() { metrics.MulticlassAccuracy(1) },
		"TopK should be":            func() { metrics.MulticlassAccuracy(3, metrics.MulticlassOptions{TopK: 4}) },
		"TopK must be an integer":   func() { metrics.MulticlassAccuracy(3, metrics.MulticlassOptions{TopK: 1.5}) },
		"Average should be":         func() { metrics.MultilabelRecall(3, metrics.MultilabelOptions{Average: "mean"}) },
		"Threshold should be":       func() { metrics.BinaryAccuracy(metrics.BinaryOptions{Threshold: 1.5}) },
		"between 0 and 1, and is N": func() { metrics.BinaryAccuracy(metrics.BinaryOptions{Threshold: math.NaN()}) },
		"MultidimAverage should":    func() { metrics.BinaryAccuracy(metrics.BinaryOptions{MultidimAverage: "all"}) },
		"Normalize should":          func() { metrics.BinaryConfusionMatrix(metrics.ConfusionMatrixOptions{Normalize: "x"}) },
		"Weights should":            func() { metrics.BinaryCohenKappa(metrics.CohenKappaOptions{Weights: "x"}) },
		"beta should":               func() { metrics.BinaryFBetaScore(0) },
		"NumThresholds should":      func() { metrics.BinaryROC(metrics.CurveOptions{NumThresholds: -1}) },
		"Thresholds should":         func() { metrics.BinaryROC(metrics.CurveOptions{Thresholds: []float64{math.NaN()}}) },
		"not both":                  func() { metrics.BinaryROC(metrics.CurveOptions{Thresholds: []float64{1}, NumThresholds: 3}) },
		"MaxFPR is for two":         func() { metrics.MulticlassAUROC(3, metrics.AUROCOptions{MaxFPR: 0.5}) },
		"NBins should":              func() { metrics.BinaryCalibrationError(metrics.CalibrationErrorOptions{NBins: -1}) },
		"NumOutputs should":         func() { metrics.MeanSquaredError(metrics.MeanSquaredErrorOptions{NumOutputs: 0}) },
		"NGram should":              func() { metrics.BLEUScore(metrics.BLEUScoreOptions{NGram: 0}) },
		"dataRange should":          func() { metrics.PeakSignalNoiseRatio(-1) },
		"KernelSize should":         func() { metrics.StructuralSimilarityIndexMeasure(metrics.StructuralSimilarityOptions{KernelSize: 4}) },
		"BoxFormat should":          func() { metrics.MeanAveragePrecision(metrics.MeanAveragePrecisionOptions{BoxFormat: "yxyx"}) },
		"metric 1 is nil":           func() { metrics.MetricCollection(metrics.R2Score(), nil) },
		"Renamed":                   func() { metrics.MetricCollection(metrics.R2Score(), metrics.R2Score()) },
		"there may be one options":  func() { metrics.BinaryAccuracy(metrics.BinaryOptions{}, metrics.BinaryOptions{}) },
	} {
		if err := gotorch.Try0(make); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, not %q", err, says)
		}
	}
}

// States are what others have written: none may make a later call fail in Go's own words.
func TestAStateThatDoesNotFitIsRefused(t *testing.T) {
	roc := metrics.MulticlassROC(3)
	roc.Update(scores, labels)
	good := roc.StateDict()
	bad := func(name string, value any) gotorch.Dict {
		dict := append(gotorch.Dict(nil), good...)
		for i := range dict {
			if dict[i].Key == name {
				dict[i].Value = value
			}
		}
		return dict
	}
	for says, dict := range map[string]gotorch.Dict{
		"has 0 entries":         nil,
		"has no tensor":         bad("preds", 3),
		"is torch.int64":        bad("preds", gotorch.FromSlice([]int64{1, 2, 3})),
		"should be a list":      bad("target", gotorch.NewTensor([][]int64{{1}})),
		"has 2 numbers":         bad("preds", gotorch.FromSlice([]float64{1, 2})),
		"not equally long":      bad("target", gotorch.FromSlice([]int64{1})),
		"what is no class":      bad("target", gotorch.FromSlice([]int64{1, 2, 3})),
		"has no tensor \"preds": bad("preds", gotorch.Tensor{}),
	} {
		if err := roc.LoadStateDict(dict); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, not %q", err, says)
		}
	}
	if err := roc.LoadStateDict(good); err != nil || len(roc.Compute()) != 3 {
		t.Error(err)
	}
	boxes := metrics.MeanAveragePrecision()
	dict := boxes.StateDict()
	dict[2].Value = gotorch.FromSlice([]int64{math.MaxInt64})
	dict[3].Value = gotorch.FromSlice([]int64{0})
	if err := boxes.LoadStateDict(dict); err == nil {
		t.Error("boxes that are not there are counted")
	}
}

func TestACollectionKeepsItsMetricsTogether(t *testing.T) {
	accuracy, strict := metrics.MulticlassAccuracy(3), metrics.MulticlassAccuracy(4)
	both := metrics.MetricCollection(accuracy, metrics.Renamed("strict", strict))
	before := state(t, accuracy)
	if err := gotorch.Try0(func() { both.Update(scores, labels) }); !errors.Is(err, gotorch.ValueError) {
		t.Fatal(err)
	}
	if state(t, accuracy) != before {
		t.Error("one metric has seen a batch that the other has refused")
	}
	for _, grown := range []metrics.Metric{metrics.R2Score(), metrics.SpearmanCorrCoef(), metrics.MeanSquaredError()} {
		x, y := gotorch.FromSlice([]float64{1, 2, 4}), gotorch.FromSlice([]float64{3, 1, 2})
		three := metrics.MetricCollection(grown, metrics.BinaryAccuracy())
		grown.Update(x, y)
		was := state(t, grown)
		if err := gotorch.Try0(func() { three.Update(x, y) }); !errors.Is(err, gotorch.RuntimeError) {
			t.Fatal(err)
		}
		if is := state(t, grown); is != was {
			t.Errorf("%s: %s became %s", grown.Name(), was, is)
		}
	}
	pair := metrics.MetricCollection(accuracy, metrics.Renamed("all", metrics.MulticlassAccuracy(3, metrics.MulticlassOptions{Average: "micro"})))
	pair.Update(scores, labels)
	path := filepath.Join(t.TempDir(), "metrics.pt")
	if err := gotorch.Save(path, pair.StateDict()); err != nil {
		t.Fatal(err)
	}
	saved, err := gotorch.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := gotorch.Item[float64](pair.Compute()[1].Value)
	pair.Reset()
	if err := pair.LoadStateDict(saved.(gotorch.Dict)); err != nil {
		t.Fatal(err)
	}
	if got := gotorch.Item[float64](pair.Compute()[1].Value); got != want || pair.Compute()[1].Name != "all" {
		t.Error(got, want)
	}
	if err := pair.LoadStateDict(both.StateDict()); err == nil {
		t.Error("the state of other metrics is taken")
	}
}

// A metric holds no tensor, whatever it has seen, and an empty batch changes nothing.
func TestNoHandleIsLeft(t *testing.T) {
	all := []metrics.Metric{
		metrics.MulticlassAccuracy(3), metrics.MulticlassAUROC(3), metrics.MulticlassCalibrationError(3),
		metrics.MulticlassAccuracy(3, metrics.MulticlassOptions{TopK: 2, IgnoreIndex: new(int64(1))}),
	}
	empty, none := gotorch.Zeros([]int64{0, 3}), gotorch.Zeros([]int64{0}, gotorch.TensorOptions{DType: gotorch.Int64})
	learned := gotorch.Rand([]int64{3, 3}, gotorch.TensorOptions{RequiresGrad: true})
	before := gotorch.MemoryStats().LiveHandles
	for range 10 {
		for _, m := range all {
			m.Update(scores, labels)
			m.Update(learned, labels)
			was := state(t, m)
			m.Update(empty, none)
			if is := state(t, m); is != was {
				t.Errorf("%s: an empty batch made of %s %s", m.Name(), was, is)
			}
			gotorch.Scope0(func(*gotorch.ScopeHandle) { m.Compute() })
		}
	}
	for range 3 {
		runtime.GC()
		gotorch.ReleaseCachedMemory()
	}
	if now := gotorch.MemoryStats().LiveHandles; now > before {
		t.Errorf("%d handles are left", now-before)
	}
}

func TestNaNInAggregates(t *testing.T) {
	m := metrics.MeanMetric(metrics.AggregatorOptions{NaNStrategy: "error"})
	m.Add(1, 3)
	if err := gotorch.Try0(func() { m.Add(5, math.NaN()) }); !errors.Is(err, gotorch.RuntimeError) {
		t.Error(err)
	}
	if m.Value() != 2 {
		t.Error(m.Value())
	}
	m.Reset()
	if !math.IsNaN(m.Value()) {
		t.Error(m.Value())
	}
	m.UpdateWeighted(gotorch.FromSlice([]float64{1, 4}), gotorch.FromSlice([]float64{3, 1}))
	if m.Value() != 1.75 {
		t.Error(m.Value())
	}
}
