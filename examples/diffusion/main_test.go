package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func short(t *testing.T) options {
	return options{sample: "../../.venv/share/digits/mnist_5k.csv.gz", out: t.TempDir(), seed: 1,
		digits: 1000, width: 16, batch: 20, epochs: 2, rows: 1, times: 20, guidance: 1}
}

func TestItTellsNoiseFromDigits(t *testing.T) {
	o := short(t)
	r, err := o.run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// Who says nothing is left with 1. Of six seeds the worst was left with 0.272, and 0.892 of digits were read.
	if !(r.loss < 0.35) || r.reading < 0.8 || r.right < 0 || r.right > 1 {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"samples.png", "steps.png", "loss.png"} {
		if _, err := os.Stat(filepath.Join(o.out, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestNoiseComesByTheCosineSchedule(t *testing.T) {
	// cos²((t/T + 0.008)/1.008 · π/2) over its value at 0, by hand, where no time is cut off at 0.999.
	for t0, want := range map[int]float64{0: 0.9997450, 99: 0.4938436, 198: 0.0000607180} {
		got := newDiffusion(200).kept[t0]
		if math.Abs(got/want-1) > 1e-5 {
			t.Errorf("kept after %d times: %g, not %g", t0+1, got, want)
		}
	}
	d := newDiffusion(1000)
	for i, kept := range d.kept {
		if i > 0 && !(kept < d.kept[i-1]) || !(kept > 0) {
			t.Fatalf("kept[%d] = %g", i, kept)
		}
	}

	gotorch.ManualSeed(1)
	pictures, noise := gotorch.Full([]int64{2, 1, 100, 100}, 0.5), gotorch.Randn([]int64{2, 1, 100, 100})
	x := d.add(pictures, gotorch.FromSlice([]int64{100, 700}), noise)
	for i, at := range []int{100, 700} {
		one := x.Select(0, int64(i))
		mean, variance := gotorch.Item[float64](one.Mean()), gotorch.Item[float64](one.Var())
		if math.Abs(mean-0.5*math.Sqrt(d.kept[at])) > 0.04 || math.Abs(variance-(1-d.kept[at])) > 0.04 {
			t.Errorf("at %d: mean %.3f, variance %.3f", at, mean, variance)
		}
	}
}

// A network that knew everything would draw what it has learnt from. For pictures of one kind it can be written down.
func TestTheWayBackEndsAtThePictures(t *testing.T) {
	gotorch.ManualSeed(1)
	d := newDiffusion(200)
	for _, c := range []struct{ mean, deviation float64 }{{0.5, 0}, {-0.9, 0}, {0.1, 0.2}} {
		seen := 0
		got := d.remove(gotorch.Randn([]int64{1, 1, 100, 100}), func(x gotorch.Tensor, at int) gotorch.Tensor {
			// x is normal with mean √kept·mean and variance kept·deviation² + 1 − kept; what of it is noise follows.
			kept := d.kept[at]
			off := x.SubScalar(math.Sqrt(kept) * c.mean)
			return off.MulScalar(math.Sqrt(1-kept) / (kept*c.deviation*c.deviation + 1 - kept))
		}, func(int, gotorch.Tensor) { seen++ })
		mean, deviation := gotorch.Item[float64](got.Mean()), gotorch.Item[float64](got.Std())
		if math.Abs(mean-c.mean) > 0.01 || math.Abs(deviation-c.deviation) > 0.01 || seen != 200 {
			t.Errorf("pictures of %v became mean %.3f and deviation %.3f after %d times", c, mean, deviation, seen)
		}
	}
}

func TestAnUntrainedNetworkSaysNothing(t *testing.T) {
	gotorch.ManualSeed(1)
	m := newUNet(8)
	pictures := gotorch.Zeros([]int64{64, 1, 28, 28})
	loss := gotorch.Item[float64](m.loss(newDiffusion(10), pictures, gotorch.Zeros([]int64{64}, gotorch.TensorOptions{DType: gotorch.Int64})))
	if math.Abs(loss-1) > 0.03 { // the variance of the noise
		t.Errorf("the loss is %.3f", loss)
	}
}

func TestWhatCannotBeIsSaid(t *testing.T) {
	for said, change := range map[string]func(o *options){
		"type `make setup`":     func(o *options) { o.sample = "nowhere.gz" },
		"a multiple of 8":       func(o *options) { o.width = 12 },
		"guidance below 100":    func(o *options) { o.guidance = math.NaN() },
		"its SHA-256 is":        func(o *options) { o.sample = "main.go" },
		"rows and times positi": func(o *options) { o.times = 0 },
	} {
		o := short(t)
		change(&o)
		if _, err := o.run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q is not in %v", said, err)
		}
	}
}
