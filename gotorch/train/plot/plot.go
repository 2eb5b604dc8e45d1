// Package plot draws what a training has come to, as PNG files.
//
//	history, err := loop.Run(ctx, loader, train.Epochs(5))
//	...
//	err = plot.Losses("loss.png", history)
//	err = plot.Metric("accuracy.png", "val_accuracy", []plot.Run{{"small", small}, {"large", large}})
//	err = plot.LRRange("lr.png", found) // of loop.FindLR
//	err = plot.Lines("anything.png", []plot.Series{{Name: "lr", Y: history.Series["lr"]}}, plot.LinesOptions{LogY: true})
//	err = plot.Histogram("weights.png", gotorch.ToSlice[float64](weights))
//	err = plot.ConfusionMatrix("confusion.png", counts, plot.ConfusionMatrixOptions{Labels: names})
//
//	var pictures []plot.Picture
//	for i := range 40 {
//		answer := fmt.Sprint(predicted[i])
//		pictures = append(pictures, plot.Picture{Image: digits.Image(i), Caption: answer, Wrong: predicted[i] != digits.Label(i)})
//	}
//	err = plot.Grid("digits.png", pictures, plot.GridOptions{Columns: 10})
//
// [Lines] draws whatever else has points: what was measured (Series.Dots), what a model makes of it, how good it was after
// each epoch.
package plot

import (
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"slices"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/replace"
)

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
	const margin = 6
	text := 0 // how high captions are
	if slices.ContainsFunc(pictures, func(p Picture) bool { return p.Caption != "" }) {
		text = 16
	}
	var cell image.Point
	for i, p := range pictures {
		if p.Image == nil {
			return args.ValueError("plot.Grid", "picture %d has no Image", i)
		}
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
