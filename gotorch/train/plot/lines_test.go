package plot_test

import (
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
)

// run is a history as runs have it.
func run(steps, epochs int, rate float64) *train.History {
	rng := rand.New(rand.NewPCG(1, uint64(steps)))
	h := &train.History{Series: map[string][]float64{}}
	for e := range epochs {
		sum := 0.0
		for range steps / epochs {
			loss := 0.2 + 2.1*math.Exp(-rate*float64(len(h.Losses))/float64(steps)) + 0.15*rng.NormFloat64()*math.Exp(-rate*float64(len(h.Losses))/float64(steps))
			h.Losses = append(h.Losses, loss)
			sum += loss
		}
		mean := sum / float64(steps/epochs)
		h.Epochs = append(h.Epochs, train.EpochRecord{Number: e + 1, Steps: len(h.Losses), Loss: mean, Metrics: []train.Value{
			{Name: "val_loss", Value: mean*1.1 + 0.05}, {Name: "val_accuracy", Value: 1 - mean/3}}})
	}
	return h
}

// pictures are drawings of all kinds. With GOTORCH_PLOTS they stay in that folder, to be looked at.
func pictures(t *testing.T) map[string]func(path string) error {
	var normal []float64
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		normal = append(normal, rng.NormFloat64()*0.02)
	}
	found := &train.LRRange{Suggestion: math.NaN()}
	for i := range 100 {
		lr := 1e-7 * math.Pow(1e8, float64(i)/99)
		loss := 2.3 - 1.9/(1+math.Exp(-3*(math.Log10(lr)+2.5))) + math.Pow(lr, 2)
		found.LRs, found.Losses, found.Smoothed = append(found.LRs, lr), append(found.Losses, loss+0.05*rng.NormFloat64()), append(found.Smoothed, loss)
		if i == 58 {
			found.Suggestion = lr
		}
	}
	var many []plot.Series
	for i := range 14 {
		s := plot.Series{Name: fmt.Sprintf("run %d of the experiment", i+1)}
		for k := range 40 {
			s.Y = append(s.Y, math.Sin(float64(k)/8+float64(i)/3)+float64(i))
		}
		many = append(many, s)
	}
	var x, y []float64
	for i := range 101 {
		x, y = append(x, float64(i)/100), append(y, math.Pow(float64(i)/100, 0.3))
	}
	diverged := run(300, 3, 4)
	for i := 100; i < 110; i++ {
		diverged.Losses[i] = []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1}[i%4]
	}
	counts := gotorch.NewTensor([][]int64{{95, 3, 2}, {10, 80, 10}, {0, 25, 75}})
	return map[string]func(path string) error{
		"losses":         func(p string) error { return plot.Losses(p, run(1000, 5, 4)) },
		"losses-20":      func(p string) error { return plot.Losses(p, run(20, 5, 4)) },
		"losses-5":       func(p string) error { return plot.Losses(p, run(5, 5, 4)) },
		"losses-1000000": func(p string) error { return plot.Losses(p, run(1_000_000, 40, 4)) },
		"losses-epochs-log": func(p string) error {
			return plot.Losses(p, run(3000, 12, 8), plot.LossesOptions{Epoch: true, LogY: true, Title: "A small network"})
		},
		"losses-bad": func(p string) error { return plot.Losses(p, diverged) },
		"losses-one": func(p string) error { return plot.Losses(p, &train.History{Losses: []float64{0.7}}) },
		"metric": func(p string) error {
			return plot.Metric(p, "val_accuracy", []plot.Run{{Name: "lr 0.1", History: run(500, 10, 5)}, {Name: "lr 0.01", History: run(500, 8, 3)}, {Name: "lr 0.001", History: run(500, 10, 1)}})
		},
		"lr":   func(p string) error { return plot.LRRange(p, found) },
		"many": func(p string) error { return plot.Lines(p, many, plot.LinesOptions{YLabel: "value"}) },
		"schedule-log": func(p string) error {
			s := plot.Series{Name: "learning rate"}
			for i := range 250 {
				s.Y = append(s.Y, 1e-3*math.Pow(0.97, float64(i)))
			}
			return plot.Lines(p, []plot.Series{s}, plot.LinesOptions{LogY: true, YLabel: "learning rate"})
		},
		"constant": func(p string) error { return plot.Lines(p, []plot.Series{{Name: "lr", Y: []float64{0.1, 0.1, 0.1}}}) },
		"tiny": func(p string) error {
			return plot.Lines(p, []plot.Series{{Name: "tiny", Y: []float64{1.00000001e-7, 1.0000002e-7, 1.00000015e-7}}})
		},
		"large": func(p string) error {
			return plot.Lines(p, []plot.Series{{Name: "large", Y: []float64{-3e200, 1e200, 2e200}}})
		},
		"loglog": func(p string) error {
			return plot.Lines(p, []plot.Series{{Name: "power law", X: []float64{1, 10, 100, 1e9}, Y: []float64{1, 0.1, 0.01, 1e-9}}}, plot.LinesOptions{LogX: true, LogY: true, XLabel: "parameters"})
		},
		"roc": func(p string) error { return plot.ROC(p, []plot.Series{{Name: "class 0 (AUC 0.77)", X: x, Y: y}}) },
		"pr":  func(p string) error { return plot.PrecisionRecall(p, []plot.Series{{Name: "class 0", X: y, Y: x}}) },
		"histogram": func(p string) error {
			return plot.Histogram(p, normal, plot.HistogramOptions{Title: "Weights of 0.weight"})
		},
		"histogram-log": func(p string) error { return plot.Histogram(p, normal, plot.HistogramOptions{LogY: true, Bins: 25}) },
		"histogram-one": func(p string) error { return plot.Histogram(p, []float64{3, 3, 3, math.NaN()}) },
		"confusion": func(p string) error {
			return plot.ConfusionMatrix(p, counts, plot.ConfusionMatrixOptions{Labels: []string{"cat", "dog", "horse"}, Title: "Animals"})
		},
		"confusion-10": func(p string) error { return plot.ConfusionMatrix(p, gotorch.Eye(10).MulScalar(980).AddScalar(3)) },
		"confusion-part": func(p string) error {
			return plot.ConfusionMatrix(p, gotorch.NewTensor([][]float64{{0.9, 0.1}, {0.25, 0.75}}))
		},
		"confusion-100": func(p string) error { return plot.ConfusionMatrix(p, gotorch.Eye(100)) },
		"confusion-1":   func(p string) error { return plot.ConfusionMatrix(p, gotorch.Ones([]int64{1, 1})) },
	}
}

func TestAllKindsOfDrawingsAreDrawn(t *testing.T) {
	folder := os.Getenv("GOTORCH_PLOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	for name, draw := range pictures(t) {
		if kind, _, again := strings.Cut(name, "-"); again && kind != "schedule" && testing.Short() {
			continue // one of a kind is enough for the race detector, which takes long
		}
		path := filepath.Join(folder, name+".png")
		if err := draw(path); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		picture := read(t, path)
		if !strings.HasPrefix(name, "confusion") && picture.Bounds().Size() != image.Pt(840, 540) {
			t.Errorf("%s: %v", name, picture.Bounds())
		}
		if len(colors(picture)) < 3 {
			t.Errorf("%s: there is nothing in it", name)
		}
	}
}

func TestWhatCannotBeDrawnIsAnErrorAndLeavesNoFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a.png")
	nan := []float64{math.NaN(), math.Inf(1)}
	for what, draw := range map[string]func() error{
		"no lines":   func() error { return plot.Lines(path, nil) },
		"no numbers": func() error { return plot.Lines(path, []plot.Series{{Y: nan}}) },
		"a log of zeros": func() error {
			return plot.Lines(path, []plot.Series{{Y: []float64{0, -1}}}, plot.LinesOptions{LogY: true})
		},
		"lengths":             func() error { return plot.Lines(path, []plot.Series{{X: []float64{1}, Y: []float64{1, 2}}}) },
		"no run has it":       func() error { return plot.Metric(path, "x", []plot.Run{{Name: "a", History: run(4, 2, 1)}}) },
		"an empty range":      func() error { return plot.LRRange(path, &train.LRRange{}) },
		"a ROC of nothing":    func() error { return plot.ROC(path, []plot.Series{{X: nan, Y: nan}}) },
		"no values":           func() error { return plot.Histogram(path, nan) },
		"values too far":      func() error { return plot.Histogram(path, []float64{-1.7e308, 1.7e308}) },
		"negative bars":       func() error { return plot.Histogram(path, []float64{1}, plot.HistogramOptions{Bins: -1}) },
		"not square":          func() error { return plot.ConfusionMatrix(path, gotorch.Ones([]int64{2, 3})) },
		"no classes":          func() error { return plot.ConfusionMatrix(path, gotorch.Ones([]int64{0, 0})) },
		"too many classes":    func() error { return plot.ConfusionMatrix(path, gotorch.Ones([]int64{201, 201})) },
		"negative counts":     func() error { return plot.ConfusionMatrix(path, gotorch.Ones([]int64{2, 2}).Neg()) },
		"a matrix with a NaN": func() error { return plot.ConfusionMatrix(path, gotorch.Full([]int64{2, 2}, math.NaN())) },
		"too few labels": func() error {
			return plot.ConfusionMatrix(path, gotorch.Eye(2), plot.ConfusionMatrixOptions{Labels: []string{"a"}})
		},
	} {
		if err := draw(); err == nil {
			t.Errorf("%s was drawn", what)
		}
	}
	entries, err := os.ReadDir(folder)
	testhelp.Must(t, err)
	if len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}
