package plot_test

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
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
	counts := map[color.RGBA]int{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			counts[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	return counts
}

var (
	blue = color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	red  = color.RGBA{0xd6, 0x27, 0x28, 0xff}
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
	if err := plot.Grid(path, nil); err == nil {
		t.Error("a grid of nothing was drawn")
	}
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
