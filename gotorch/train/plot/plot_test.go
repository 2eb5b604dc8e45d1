package plot_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/plot"
)

func read(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

// colors counts the pixels of each colour.
func colors(picture image.Image) map[color.RGBA]int {
	all := image.NewRGBA(picture.Bounds())
	draw.Draw(all, all.Bounds(), picture, picture.Bounds().Min, draw.Src)
	counts := map[color.RGBA]int{}
	for pix := all.Pix; len(pix) > 0; {
		n := 4 // most pixels are as the one before, and looking each up takes long
		for n < len(pix) && [4]byte(pix[n:]) == [4]byte(pix) {
			n += 4
		}
		counts[color.RGBA{pix[0], pix[1], pix[2], pix[3]}] += n / 4
		pix = pix[n:]
	}
	return counts
}

var (
	blue   = color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	red    = color.RGBA{0xd6, 0x27, 0x28, 0xff}
	orange = color.RGBA{0xff, 0x7f, 0x0e, 0xff}
)

func history(validated bool) *train.History {
	h := &train.History{}
	for epoch := range 5 {
		for range 10 {
			h.Losses = append(h.Losses, 1/float64(len(h.Losses)+1))
		}
		record := train.EpochRecord{Number: epoch + 1, Steps: len(h.Losses), Loss: 1 / float64(epoch+1)}
		if validated {
			record.Metrics = []train.Value{{Name: "val_loss", Value: 0.5}}
		}
		h.Epochs = append(h.Epochs, record)
	}
	return h
}

func TestLossesDrawsEachCurveThatThereIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loss.png")
	for _, validated := range []bool{true, false} {
		h := history(validated)
		h.Losses[7] = math.Inf(1) // which cannot be drawn
		if err := plot.Losses(path, h); err != nil {
			t.Fatal(err)
		}
		counts := colors(read(t, path))
		if counts[blue] < 100 || (counts[red] > 100) != validated {
			t.Errorf("validated %v: %d blue pixels, %d red", validated, counts[blue], counts[red])
		}
	}
	if err := plot.Losses(path, &train.History{Losses: []float64{math.NaN()}}); err == nil {
		t.Error("a history without numbers was drawn")
	}
	if err := plot.Losses(filepath.Join(path, "impossible.png"), history(true)); err == nil {
		t.Error("a file was written below a file")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func TestLinesDrawsLinesAndDots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "curves.png")
	rising := []float64{1, 2, math.NaN(), 4, math.Inf(-1)}
	for _, c := range []struct {
		what   string
		curves []plot.Series
		seen   map[color.RGBA]bool
	}{
		{"two lines", []plot.Series{{Y: rising}, {Name: "b", X: []float64{1, 2, 9}, Y: []float64{4, 1, 2}, Dashed: true}}, map[color.RGBA]bool{blue: true, orange: true}},
		{"dots", []plot.Series{{Y: rising, Dots: true}}, map[color.RGBA]bool{blue: true, red: false}},
		{"a colour", []plot.Series{{Y: rising, Color: red}, {Y: rising[:1], Faint: true}}, map[color.RGBA]bool{blue: false, red: true}},
		{"one of three without points", []plot.Series{{}, {Y: []float64{math.NaN()}, Name: "none"}, {Y: rising, Color: blue}}, map[color.RGBA]bool{blue: true, red: false}},
		{"one point", []plot.Series{{Y: []float64{3}, Dots: true}}, map[color.RGBA]bool{blue: true}},
		{"numbers that are all the same", []plot.Series{{X: []float64{5, 5}, Y: []float64{7, 7}, Dots: true}}, map[color.RGBA]bool{blue: true}},
		{"numbers that are nearly the same", []plot.Series{{Y: []float64{1, math.Nextafter(1, 2)}, Dots: true}}, map[color.RGBA]bool{blue: true}},
		{"numbers that are nearly zero", []plot.Series{{Y: []float64{5e-324, 0, 1e-323}, Dots: true}}, map[color.RGBA]bool{blue: true}},
		{"numbers that are huge and nearly the same", []plot.Series{{Y: []float64{1e17, 1e17 + 16}, Dots: true}}, map[color.RGBA]bool{blue: true}},
		{"numbers that are huge", []plot.Series{{Y: []float64{-1e300, math.MaxFloat64, 1e300}}}, map[color.RGBA]bool{blue: true}},
	} {
		options := []plot.LinesOptions{{}, {Title: "t", XLabel: "x", YLabel: "y", FromZero: true}, {Equal: true}}
		if testing.Short() { // nothing here is done by several goroutines, and the race detector takes long
			options = options[:1]
		}
		for _, o := range options {
			if err := plot.Lines(path, c.curves, o); err != nil {
				t.Errorf("%s: %v", c.what, err)
				continue
			}
			counts := colors(read(t, path))
			for ink, seen := range c.seen {
				if counts[ink] > 0 != seen {
					t.Errorf("%s, %+v: %d pixels of %v", c.what, o, counts[ink], ink)
				}
			}
		}
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		"nothing":             func() error { return plot.Lines(path, nil) },
		"no point":            func() error { return plot.Lines(path, []plot.Series{{Y: []float64{math.Inf(1)}}}) },
		"fewer X than Y":      func() error { return plot.Lines(path, []plot.Series{{X: []float64{1}, Y: rising}}) },
		"X without Y":         func() error { return plot.Lines(path, []plot.Series{{X: []float64{1}}}) },
		"a file below a file": func() error { return plot.Lines(filepath.Join(path, "x.png"), []plot.Series{{Y: rising}}) },
	} {
		if err := call(); err == nil {
			t.Errorf("%s was drawn", what)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file is another one: %v", err)
	}
}

// A cloud of many dots has its middle, where those with the lowest and highest numbers are not.
func TestManyDotsAreDrawnWhereTheyAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cloud.png")
	rng := rand.New(rand.NewPCG(1, 2))
	var x, y []float64
	for range 20_000 {
		x, y = append(x, rng.Float64()), append(y, rng.Float64())
	}
	if err := plot.Lines(path, []plot.Series{{X: x, Y: y, Dots: true}}); err != nil {
		t.Fatal(err)
	}
	picture := read(t, path)
	n, middle := 0, picture.Bounds().Inset(picture.Bounds().Dy()*2/5)
	for at := range middle.Dx() * middle.Dy() {
		if color.RGBAModel.Convert(picture.At(middle.Min.X+at%middle.Dx(), middle.Min.Y+at/middle.Dx())) == blue {
			n++
		}
	}
	if n < middle.Dx()*middle.Dy()/10 {
		t.Errorf("%d of %d pixels in the middle are blue", n, middle.Dx()*middle.Dy())
	}
}

func TestNumbersThatFillALogarithmicAxisAreDrawn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.png")
	for _, y := range [][]float64{{1e299, 1e-299}, {5e-324, 1e-323, 1}, {4e-308, math.MaxFloat64 / 9}, {6e-308, 6e-308}} {
		if err := plot.Lines(path, []plot.Series{{Y: y}}, plot.LinesOptions{LogY: true}); err != nil {
			t.Errorf("%v: %v", y, err)
		}
		if err := plot.Lines(path, []plot.Series{{X: y, Y: y}}, plot.LinesOptions{LogX: true}); err != nil && !math.IsInf(y[0], 0) {
			t.Errorf("%v: %v", y, err)
		}
	}
	if err := plot.Lines(path, []plot.Series{{Y: []float64{1, 2}}}, plot.LinesOptions{Equal: true, LogX: true}); err == nil {
		t.Error("equal units of a logarithmic axis")
	}
}

func TestCurvesInAUnitSquareLookAsTheySay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "roc.png")
	curve := plot.Series{Name: "a", X: []float64{0, 0.2, 1}, Y: []float64{0, 0.9, 1}, Color: red}
	if err := plot.ROC(path, []plot.Series{curve}); err != nil {
		t.Fatal(err)
	}
	if counts := colors(read(t, path)); counts[red] == 0 || counts[blue] > 0 {
		t.Errorf("%d pixels are red, %d blue", counts[red], counts[blue])
	}
}

func TestHalfOfALearningRateRangeIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.png")
	for what, err := range map[string]error{
		"no losses":  plot.LRRange(path, &train.LRRange{LRs: []float64{1, 2}}),
		"no range":   plot.LRRange(path, nil),
		"no history": plot.Losses(path, nil),
		"no run":     plot.Metric(path, "loss", []plot.Run{{Name: "a"}}),
		"no image":   plot.Grid(path, []plot.Picture{{}}),
	} {
		if err == nil {
			t.Errorf("%s was drawn", what)
		}
	}
}

func TestAUnitIsAsLongOnBothAxes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "circle.png")
	var x, y []float64
	for i := range 361 {
		sin, cos := math.Sincos(float64(i) * math.Pi / 180)
		x, y = append(x, 3+cos), append(y, sin)
	}
	if err := plot.Lines(path, []plot.Series{{X: x, Y: y}}, plot.LinesOptions{Equal: true}); err != nil {
		t.Fatal(err)
	}
	picture := read(t, path)
	box := image.Rectangle{}
	for at := range picture.Bounds().Dx() * picture.Bounds().Dy() {
		p := image.Pt(at%picture.Bounds().Dx(), at/picture.Bounds().Dx())
		if color.RGBAModel.Convert(picture.At(p.X, p.Y)) == blue {
			box = box.Union(image.Rectangle{p, p.Add(image.Pt(1, 1))})
		}
	}
	if d := box.Dx() - box.Dy(); box.Dx() < 150 || d < -3 || d > 3 {
		t.Errorf("a circle is drawn in %v", box.Size())
	}
}

func TestGridScalesPicturesAndMarksWrongOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grid.png")
	white := image.NewGray(image.Rect(0, 0, 4, 4))
	white.Pix[5] = 255
	pictures := []plot.Picture{{Image: white, Caption: "1"}, {Image: white, Caption: "2", Wrong: true}, {Image: white, Caption: "3"}}
	if err := plot.Grid(path, pictures, plot.GridOptions{Columns: 2, Scale: 5}); err != nil {
		t.Fatal(err)
	}
	picture := read(t, path)
	if size := picture.Bounds().Size(); size != image.Pt(2*(20+6)+6, 2*(20+6+16)+6) {
		t.Errorf("the size is %v", size)
	}
	counts := colors(picture)
	if black := counts[color.RGBA{0, 0, 0, 255}]; black != 3*(400-25) {
		t.Errorf("%d pixels are black, want %d", black, 3*(400-25))
	}
	if counts[red] == 0 {
		t.Error("no caption is red")
	}
	for i := range pictures {
		pictures[i].Caption = ""
	}
	if err := plot.Grid(path, pictures, plot.GridOptions{Columns: 2, Scale: 5}); err != nil {
		t.Fatal(err)
	}
	if size := read(t, path).Bounds().Size(); size != image.Pt(2*(20+6)+6, 2*(20+6)+6) { // no room for captions
		t.Errorf("without captions the size is %v", size)
	}
	if err := plot.Grid(path, nil); err == nil {
		t.Error("a grid of nothing was drawn")
	}
}

func ExampleLines() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	curves := []plot.Series{
		{Name: "measured", X: []float64{0, 1, 2, 3}, Y: []float64{0.1, 0.9, 4.2, 8.8}, Dots: true},
		{Name: "x²", X: []float64{0, 1, 2, 3}, Y: []float64{0, 1, 4, 9}},
	}
	fmt.Println(plot.Lines(filepath.Join(dir, "squares.png"), curves, plot.LinesOptions{XLabel: "x"}))
	// Output: <nil>
}

func ExampleLosses() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	h := &train.History{Losses: []float64{2.3, 1.1, 0.7, 0.5}}
	fmt.Println(plot.Losses(filepath.Join(dir, "loss.png"), h))
	// Output: <nil>
}
