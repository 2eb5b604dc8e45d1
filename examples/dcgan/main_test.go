package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func short(t *testing.T) options {
	return options{sample: "../../.venv/share/digits/mnist_5k.csv.gz", out: t.TempDir(), seed: 1,
		digits: 2000, width: 12, noise: 16, batch: 20, epochs: 4, lr: 2e-3}
}

func TestTheDrawingsCanBeRead(t *testing.T) {
	o := short(t)
	r, err := o.run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// Of six seeds the worst came to 2.66, and people to 8.18.
	if !(r.before < 1.1) || !(r.after > 1.8) || !(r.people > 7.5) {
		t.Errorf("inception scores: %+v", r)
	}
	for _, name := range []string{"samples.png", "progress.png"} {
		if _, err := os.Stat(filepath.Join(o.out, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestTheNetworksMakePicturesOfNoiseAndNumbersOfPictures(t *testing.T) {
	gotorch.ManualSeed(1)
	drawn := newGenerator(5, 4).Forward(gotorch.Randn([]int64{3, 5, 1, 1}))
	if !slices.Equal(drawn.Shape(), []int64{3, 1, 28, 28}) || gotorch.Item[float64](drawn.Abs().Max()) > 1 {
		t.Errorf("%v, up to %v", drawn.Shape(), drawn.Abs().Max())
	}
	if got := newDiscriminator(4).Forward(drawn).Shape(); !slices.Equal(got, []int64{3, 1, 1, 1}) {
		t.Errorf("%v", got)
	}
	if off := gotorch.Item[float64](pixels(inputs(drawn)).Sub(drawn).Abs().Max()); off > 1e-5 {
		t.Errorf("there and back again is %g off", off)
	}
}

func TestTheScoreIsHowManyDigitsCanBeTold(t *testing.T) {
	sure := gotorch.Eye(10).MulScalar(100)
	for _, c := range []struct {
		what   string
		scores gotorch.Tensor
		want   float64
	}{
		{"sure of all ten", sure, 10},
		{"sure of all ten, often", sure.Repeat([]int64{7, 1}), 10},
		{"sure of five", sure.Narrow(0, 0, 5), 5},
		{"always the same digit", sure.Narrow(0, 3, 1).Repeat([]int64{20, 1}), 1},
		{"not sure of any", gotorch.Zeros([]int64{20, 10}), 1},
		// By hand: exp(ln 2 + ¾ ln ¾ + ¼ ln ¼).
		{"three to one", gotorch.FromSlice([]float32{0.75, 0.25, 0.25, 0.75}, 2, 2).Log(), 1.139754},
	} {
		if got := score(c.scores); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%s: %g, not %g", c.what, got, c.want)
		}
	}
}

func TestWhatCannotBeIsSaid(t *testing.T) {
	for said, change := range map[string]func(o *options){
		"type `make setup`":         func(o *options) { o.sample = "nowhere.gz" },
		"its SHA-256 is":            func(o *options) { o.sample = "main.go" },
		"a batch at least 2 digits": func(o *options) { o.batch = 1 },
		"lr must be positive":       func(o *options) { o.lr = math.NaN() },
	} {
		o := short(t)
		change(&o)
		if _, err := o.run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q is not in %v", said, err)
		}
	}
}
