package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheTruthIsWithinTheErrorBars(t *testing.T) {
	within, all := 0, 0
	for seed := range uint64(20) {
		o := options{out: t.TempDir(), seed: seed, points: 120, noise: 0.1}
		var said bytes.Buffer
		f, err := o.run(&said)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range f.Values {
			off := math.Abs(v-truth[i]) / f.Errors[i]
			if !(off < 4.5) {
				t.Errorf("seed %d: %s is %.4f ± %.4f", seed, names[i], v, f.Errors[i])
			}
			if all++; off < 1 {
				within++
			}
		}
		if deviation := math.Sqrt(f.Squares / 115); math.Abs(deviation-0.1) > 0.025 {
			t.Errorf("seed %d: the points are %.3f off", seed, deviation)
		}
		if seed == 0 && strings.Count(said.String(), "±") != len(names) {
			t.Errorf("it said %s", said.String())
		}
		if _, err := os.Stat(filepath.Join(o.out, "fit.png")); err != nil {
			t.Error(err)
		}
	}
	// One standard error has the truth within it in 68 % of all cases.
	if part := float64(within) / float64(all); part < 0.5 || part > 0.85 {
		t.Errorf("%d of %d values are within a standard error of the truth", within, all)
	}
}

func TestWithoutNoiseTheTruthIsFound(t *testing.T) {
	f, err := options{out: t.TempDir(), seed: 1, points: 50}.run(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range f.Values {
		if math.Abs(v-truth[i]) > 1e-6 {
			t.Errorf("%s is %v", names[i], v)
		}
	}
	for _, o := range []options{{points: 5, noise: 0.1}, {points: 50, noise: math.NaN()}, {points: 50, noise: -1}} {
		if _, err := o.run(io.Discard); err == nil {
			t.Errorf("%+v ran", o)
		}
	}
}
