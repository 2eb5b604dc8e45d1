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
//
// [Curves] draws whatever else has points: what was measured, what a model makes of it, how good it was after each
// epoch.
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
	ends := make([]float64, len(h.Epochs)) // the step that each epoch ended with
	for i, e := range h.Epochs {
		ends[i] = float64(e.Steps)
	}
	curves := []Curve{
		{Name: "each step", Y: h.Losses, Color: color.Gray{0xb0}, Thin: true},
		{Name: "mean of an epoch", X: ends, Y: h.Metric("loss"), Color: palette[0]},
		{Name: "validation", X: ends, Y: h.Metric("val_loss"), Color: palette[1]},
	}
	err := Curves(path, curves, CurvesOptions{XLabel: "step", YLabel: "loss", FromZero: true})
	if errors.Is(err, errNothing) {
		return errors.New("plot: the history has no losses")
	}
	return err
}

// Curve is one of a diagram by [Curves].
type Curve struct {
	Name   string      // in the legend; none without
	X, Y   []float64   // its points; X may be left out and is 1, 2, 3 ... then
	Dots   bool        // dots rather than a line through them
	Dashed bool        // a line of dashes
	Thin   bool        // a third of a line's width, for what is only noise
	Color  color.Color // default: another for each curve
}

// CurvesOptions are the arguments of [Curves] that have defaults.
type CurvesOptions struct {
	Title, XLabel, YLabel string
	Width                 gotorch.Scalar // in pixels; default: 576
	Height                gotorch.Scalar // in pixels; default: 384
	FromZero              bool           // both axes begin at 0, also where no point is near
	LegendBelow           bool           // the legend is at the bottom rather than the top, for curves that rise
	Equal                 bool           // one unit is as long on both axes, as for what lies in a plane
}

// Blue, red, green, orange, violet, in this order.
var palette = []color.Color{
	color.RGBA{0x1f, 0x77, 0xb4, 0xff}, color.RGBA{0xd6, 0x27, 0x28, 0xff}, color.RGBA{0x2c, 0xa0, 0x2c, 0xff},
	color.RGBA{0xff, 0x7f, 0x0e, 0xff}, color.RGBA{0x94, 0x67, 0xbd, 0xff},
}

var errNothing = errors.New("plot: the curves have no points that can be drawn")

// Curves draws lines and dots into one diagram, the later ones on top. Points that are NaN or infinite or beyond
// 1e300 are left out, and so are curves without another. It returns an error if no point is left, if a curve has not as many X as Y, a
// *gotorch.Error if a size is not from 64 to 8192 pixels, and what comes of writing the file.
//
//	err := plot.Curves("fit.png", []plot.Curve{
//		{Name: "measured", X: times, Y: measured, Dots: true},
//		{Name: "fitted", X: times, Y: fitted},
//	}, plot.CurvesOptions{XLabel: "seconds"})
func Curves(path string, curves []Curve, opts ...CurvesOptions) error {
	const op = "plot.Curves"
	opt := args.Option(opts)
	width, height := args.Int(op, "Width", opt.Width, 576), args.Int(op, "Height", opt.Height, 384)
	if min(width, height) < 64 || max(width, height) > 8192 {
		return args.ValueError(op, "Width and Height must be from 64 to 8192 pixels, but are %d and %d", width, height)
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = opt.Title, opt.XLabel, opt.YLabel
	if opt.FromZero {
		p.X.Min, p.Y.Min = 0, 0
	}
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.XOffs, p.Legend.Padding = !opt.LegendBelow, -vg.Points(8), vg.Points(1.5)
	drawn := false
	for i, c := range curves {
		points, err := c.points()
		if err != nil {
			return err
		}
		if len(points) == 0 {
			continue
		}
		drawn = true
		ink := c.Color
		if ink == nil {
			ink = palette[i%len(palette)]
		}
		var mark interface {
			plot.Plotter
			plot.Thumbnailer
		}
		if c.Dots {
			dots, err := plotter.NewScatter(points)
			if err != nil {
				return err
			}
			dots.GlyphStyle = vgdraw.GlyphStyle{Color: ink, Radius: vg.Points(2), Shape: vgdraw.CircleGlyph{}}
			mark = dots
		} else {
			line, err := plotter.NewLine(points)
			if err != nil {
				return err
			}
			line.Color, line.Width = ink, vg.Points(1.5)
			if c.Thin {
				line.Width = vg.Points(0.5)
			}
			if c.Dashed {
				line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
			}
			mark = line
		}
		p.Add(mark)
		if c.Name != "" {
			p.Legend.Add(c.Name, mark)
		}
	}
	if !drawn {
		return errNothing
	}
	const perInch, margin = 96, 8
	canvas := vgimg.New(vg.Length(width)*vg.Inch/perInch, vg.Length(height)*vg.Inch/perInch)
	area := vgdraw.Crop(vgdraw.New(canvas), margin, -margin, margin, -margin)
	if opt.Equal {
		equal(p, area)
	}
	p.Draw(area)
	return replace.File(path, func(w io.Writer) error { return png.Encode(w, canvas.Image()) })
}

// equal widens one axis until a unit is as long on both.
func equal(p *plot.Plot, area vgdraw.Canvas) {
	inner := p.DataCanvas(area).Size()
	x, y := p.X.Max-p.X.Min, p.Y.Max-p.Y.Min
	unit := max(x/float64(inner.X), y/float64(inner.Y)) // of the axes to a point of the picture
	for _, axis := range []struct {
		*plot.Axis
		more float64
	}{{&p.X, unit*float64(inner.X) - x}, {&p.Y, unit*float64(inner.Y) - y}} {
		axis.Min -= axis.more / 2
		axis.Max += axis.more / 2
	}
}

// points returns those that can be drawn.
func (c *Curve) points() (plotter.XYs, error) {
	if c.X != nil && len(c.X) != len(c.Y) {
		return nil, args.ValueError("plot.Curves", "the curve %q has %d X and %d Y", c.Name, len(c.X), len(c.Y))
	}
	points := make(plotter.XYs, len(c.Y))
	for i, y := range c.Y {
		points[i] = plotter.XY{X: float64(i + 1), Y: y}
		if c.X != nil {
			points[i].X = c.X[i]
		}
	}
	return finite(points), nil
}

// finite returns the points that can be drawn: a loss may have become infinite, or not be there. Numbers between which
// the difference is infinite would have no marks on the axis.
func finite(points plotter.XYs) (can plotter.XYs) {
	for _, p := range points {
		if max(math.Abs(p.X), math.Abs(p.Y)) <= 1e300 { // false for NaN
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
