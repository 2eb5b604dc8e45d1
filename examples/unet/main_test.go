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
	return options{out: t.TempDir(), seed: 1, size: 32, pictures: 800, width: 8, levels: 3, batch: 8, epochs: 3, noise: 0.02, lr: 3e-3}
}

func TestItFindsShapes(t *testing.T) {
	o := short(t)
	r, err := o.run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// All background would come to 0.22. Of six seeds the worst came to 0.346, and to 0.423 for discs; to tell squares from
	// triangles takes longer.
	if !(r.iou > 0.28) || !(r.each[disc] > 0.3) || !(r.dice > 0.3) {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(o.out, "shapes.png")); err != nil {
		t.Error(err)
	}
}

// The part of a circle's square that each shape covers, by geometry, where it lies on the circle with all its corners.
func TestShapesHaveTheAreaThatGeometrySays(t *testing.T) {
	const n = 1000
	for class, want := range map[int]float64{disc: math.Pi / 4, square: 0.5, triangle: 3 * math.Sqrt(3) / 16} {
		count := 0
		for i := range n * n {
			x, y := (float64(i%n)+0.5)*2/n-1, (float64(i/n)+0.5)*2/n-1
			if inside(class, x, y) {
				count++
				if x*x+y*y > 1.01 {
					t.Fatalf("class %d has a point %g, %g outside of the circle", class, x, y)
				}
			}
		}
		if got := float64(count) / n / n; math.Abs(got-want) > 0.002 {
			t.Errorf("class %d covers %.4f, not %.4f", class, got, want)
		}
	}
}

func TestPicturesAreTheSameEachTimeAndOfAllClasses(t *testing.T) {
	set := shapes{seed: 3, n: 50, size: 32}
	var seen [classes]int
	for i := range set.Len() {
		a, err := set.At(i)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := set.At(i)
		if !gotorch.Equal(a.Input, b.Input) || !gotorch.Equal(a.Target, b.Target) {
			t.Fatalf("picture %d is another the second time", i)
		}
		if !slices.Equal(a.Input.Shape(), []int64{3, 32, 32}) || !slices.Equal(a.Target.Shape(), []int64{32, 32}) {
			t.Fatalf("shapes %v and %v", a.Input.Shape(), a.Target.Shape())
		}
		// Without noise, what is of one shape is of one colour: there are at most three and the ground.
		colors := map[[3]float32]bool{}
		pixels := gotorch.ToSlice[float32](a.Input)
		for at, class := range gotorch.ToSlice[int](a.Target) {
			seen[class]++
			colors[[3]float32{pixels[at], pixels[1024+at], pixels[2048+at]}] = true
		}
		if len(colors) < 2 || len(colors) > 4 {
			t.Errorf("picture %d has %d colours", i, len(colors))
		}
	}
	if slices.Min(seen[:]) == 0 || slices.Max(seen[:]) != seen[background] {
		t.Errorf("pixels of each class: %v", seen)
	}
}

func TestTheNetworkKeepsTheSize(t *testing.T) {
	m := newUNet(3, 5, 4, 3)
	if got := m.Forward(gotorch.Zeros([]int64{2, 3, 16, 24})).Shape(); !slices.Equal(got, []int64{2, 5, 16, 24}) {
		t.Errorf("%v", got)
	}
	// By hand: at 4, 8 and 16 channels each pair of convolutions has 9·(in·out + out·out) weights and 4·out of batch
	// normalisation; each way up 4·2·out·out weights and out of bias; the end 4·5 and 5.
	pair := func(in, out int64) int64 { return 9*(in*out+out*out) + 4*out }
	want := pair(3, 4) + pair(4, 8) + pair(8, 16) + (4*16*8 + 8) + pair(16, 8) + (4*8*4 + 4) + pair(8, 4) + 25
	if got := int64(m.NumParameters()); got != want {
		t.Errorf("%d parameters, not %d", got, want)
	}
}

func TestWhatCannotBeIsSaid(t *testing.T) {
	for said, change := range map[string]func(o *options){
		"pictures of 36 pixels cannot be made half as large 3 times": func(o *options) { o.size, o.levels = 36, 4 },
		"must be positive":    func(o *options) { o.batch = 0 },
		"noise not negative":  func(o *options) { o.noise = math.NaN() },
		"pictures of 0 pixel": func(o *options) { o.size = 0 },
	} {
		o := short(t)
		change(&o)
		if _, err := o.run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q is not in %v", said, err)
		}
	}
}
