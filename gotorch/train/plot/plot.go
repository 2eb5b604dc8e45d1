// Package plot draws what a training has come to, as PNG files.
//
//	history, err := loop.Run(ctx, loader, train.Epochs(5))
//	...
//	err = plot.Losses("loss.png", history)
//
//	var pictures []plot.Picture
//	for i := range 40 {
//		answer := fmt.Sprint(predicted[i])
//		pictures = append(pictures, plot.Picture{Image: digits.Image(i), Caption: answer, Wrong: predicted[i] != digits.Label(i)})
//	}
//	err = plot.Grid("digits.png", pictures, plot.GridOptions{Columns: 10})
package plot

import (
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/replace"
	"gotorch.dev/gotorch/train"
)

// Losses draws the loss of each step, the mean loss of each epoch and, if it was recorded, the one by
// the name "val_loss". It returns an error if there is nothing to draw or the file cannot be written.
func Losses(path string, h *train.History) error {
	var steps, epochs, validation plotter.XYs
	for i, loss := range h.Losses {
		steps = append(steps, plotter.XY{X: float64(i + 1), Y: loss})
	}
	for _, e := range h.Epochs {
		epochs = append(epochs, plotter.XY{X: float64(e.Steps), Y: e.Loss})
		validation = append(validation, plotter.XY{X: float64(e.Steps), Y: e.Metric("val_loss")})
	}
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "step", "loss"
	p.X.Min = 0
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.XOffs = true, -vg.Points(8)
	drawn := false
	for _, curve := range []struct {
		name   string
		points plotter.XYs
		color  color.Color
		width  vg.Length
	}{
		{"each step", steps, color.Gray{0xb0}, vg.Points(0.5)},
		{"mean of an epoch", epochs, color.RGBA{0x1f, 0x77, 0xb4, 0xff}, vg.Points(1.5)},
		{"validation", validation, color.RGBA{0xd6, 0x27, 0x28, 0xff}, vg.Points(1.5)},
	} {
		points := finite(curve.points)
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = curve.color, curve.width
		p.Add(line)
		p.Legend.Add(curve.name, line)
		drawn = true
	}
	if !drawn {
		return errors.New("plot: the history has no losses")
	}
	canvas := vgimg.New(6*vg.Inch, 4*vg.Inch)
	const margin = 8
	p.Draw(vgdraw.Crop(vgdraw.New(canvas), margin, -margin, margin, -margin))
	return replace.File(path, func(w io.Writer) error { return png.Encode(w, canvas.Image()) })
}

// finite returns the points that can be drawn: a loss may have become infinite, or not be there.
func finite(points plotter.XYs) (can plotter.XYs) {
	for _, p := range points {
		if !math.IsNaN(p.Y) && !math.IsInf(p.Y, 0) {
			can = append(can, p)
		}
	}
	return can
}

// Picture is one of a [Grid].
type Picture struct {
	Image   image.Image
	Caption string // ASCII, below the picture
	Wrong   bool   // write the caption in red
}

// GridOptions are the arguments of [Grid] that have defaults.
type GridOptions struct {
	Columns gotorch.Scalar // default: 10
	Scale   gotorch.Scalar // by how much pictures are made larger; default: 3
}

// Grid draws pictures side by side, row by row, with their captions. It returns an error if there is
// none or the file cannot be written.
func Grid(path string, pictures []Picture, opts ...GridOptions) error {
	opt := args.Option(opts)
	columns, scale := int(args.Int("plot.Grid", "Columns", opt.Columns, 10)), int(args.Int("plot.Grid", "Scale", opt.Scale, 3))
	if columns <= 0 || scale <= 0 {
		return args.ValueError("plot.Grid", "Columns and Scale must be positive, but got %d and %d", columns, scale)
	}
	if len(pictures) == 0 {
		return errors.New("plot: there are no pictures")
	}
	const margin, text = 6, 16
	var cell image.Point
	for _, p := range pictures {
		size := p.Image.Bounds().Size().Mul(scale)
		cell.X, cell.Y = max(cell.X, size.X+margin), max(cell.Y, size.Y+margin+text)
	}
	columns = min(columns, len(pictures))
	rows := (len(pictures) + columns - 1) / columns
	canvas := image.NewRGBA(image.Rect(0, 0, columns*cell.X+margin, rows*cell.Y+margin))
	draw.Draw(canvas, canvas.Bounds(), image.White, image.Point{}, draw.Src)
	for i, p := range pictures {
		corner := image.Pt(margin+i%columns*cell.X, margin+i/columns*cell.Y)
		size := p.Image.Bounds().Size().Mul(scale)
		draw.NearestNeighbor.Scale(canvas, image.Rectangle{corner, corner.Add(size)}, p.Image, p.Image.Bounds(), draw.Src, nil)
		ink := color.RGBA{0x20, 0x20, 0x20, 0xff}
		if p.Wrong {
			ink = color.RGBA{0xd6, 0x27, 0x28, 0xff}
		}
		writer := font.Drawer{Dst: canvas, Src: image.NewUniform(ink), Face: basicfont.Face7x13}
		writer.Dot = fixed.P(corner.X+(size.X-writer.MeasureString(p.Caption).Ceil())/2, corner.Y+size.Y+13)
		writer.DrawString(p.Caption)
	}
	return replace.File(path, func(w io.Writer) error { return png.Encode(w, canvas) })
}
