package plot

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strconv"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/replace"
)

// ConfusionMatrixOptions are the arguments of [ConfusionMatrix] that have defaults.
type ConfusionMatrixOptions struct {
	Labels []string // of the classes, in ASCII; default: their numbers
	Title  string   // above; default: none
}

// ConfusionMatrix draws a matrix (C, C) of counts or parts, as those of package metrics, by target (rows) and prediction
// (columns): the darker a field, the larger a part of its row it is. Up to 30 classes numbers stand in the fields. It
// returns an error if the matrix is not square, has no rows or more than 200, or a negative number, or if the file
// cannot be written.
func ConfusionMatrix(path string, matrix gotorch.Tensor, opts ...ConfusionMatrixOptions) error {
	const op = "plot.ConfusionMatrix"
	o := args.Option(opts)
	var values []float64
	var n int
	err := gotorch.Try0(func() {
		if s := matrix.Shape(); len(s) != 2 || s[0] != s[1] || s[0] == 0 || s[0] > 200 {
			panic(args.ValueError(op, "the matrix must be (C, C), with 1 to 200 classes, but is %v", s))
		}
		n = int(matrix.Size(0))
		values = gotorch.ToSlice[float64](matrix.Detach().To(gotorch.CPU).To(gotorch.Float64).Flatten())
	})
	if err != nil {
		return err
	}
	whole := true
	for _, v := range values {
		if !(v >= 0) || math.IsInf(v, 1) {
			return args.ValueError(op, "the matrix has %v", v)
		}
		whole = whole && v == math.Trunc(v)
	}
	if o.Labels != nil && len(o.Labels) != n {
		return args.ValueError(op, "there are %d Labels for %d classes", len(o.Labels), n)
	}
	texts := make([]string, len(values))
	widest := 0
	for i, v := range values {
		switch {
		case v == 0:
			texts[i] = "0"
		case whole:
			texts[i] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			texts[i] = fmt.Sprintf("%.2f", v)
		}
		widest = max(widest, len(texts[i]))
	}
	labels, longest := o.Labels, 0
	if labels == nil {
		for i := range n {
			labels = append(labels, strconv.Itoa(i))
		}
	}
	for _, l := range labels {
		longest = max(longest, min(len(l), 20))
	}

	const letter, height = 7, 13
	numbers := n <= 30
	cell := max(600/n, 4)
	if numbers {
		cell = max(min(cell, 90), widest*letter+8, 22)
		if n > 1 {
			cell = max(cell, min(longest*letter+6, 90))
		}
	}
	every := max(1, (longest*letter+6+cell-1)/cell) // labels that stand side by side
	left, top := 3*height+longest*letter+8, 2*height+6
	if o.Title != "" {
		top += height + 6
	}
	canvas := image.NewRGBA(image.Rect(0, 0, max(left+n*cell+2*height, left+12*letter), top+n*cell+2*height))
	draw.Draw(canvas, canvas.Bounds(), image.White, image.Point{}, draw.Src)
	ink := color.RGBA{0x30, 0x30, 0x30, 0xff}
	write := func(x, y int, text string, c color.Color) { // centred
		if len(text) > 20 && text != o.Title {
			text = text[:19] + "."
		}
		d := font.Drawer{Dst: canvas, Src: image.NewUniform(c), Face: basicfont.Face7x13}
		d.Dot = fixed.P(x-d.MeasureString(text).Ceil()/2, y+4)
		d.DrawString(text)
	}
	middle := left + n*cell/2
	if o.Title != "" {
		write(middle, 12, o.Title, ink)
	}
	write(middle, top-height-12, "predicted", ink)
	for row := range n {
		sum := 0.0
		for _, v := range values[row*n : (row+1)*n] {
			sum += v
		}
		y := top + row*cell
		if row%max(1, (height+cell-1)/cell) == 0 {
			d := font.Drawer{Face: basicfont.Face7x13}
			text := labels[row]
			if len(text) > 20 {
				text = text[:19] + "."
			}
			write(left-6-d.MeasureString(text).Ceil()/2, y+cell/2, text, ink)
		}
		if row%every == 0 {
			write(left+row*cell+cell/2, top-9, labels[row], ink)
		}
		for column := range n {
			part := 0.0
			if sum > 0 {
				part = values[row*n+column] / sum
			}
			shade := color.RGBA{uint8(255 - part*(255-0x08)), uint8(255 - part*(255-0x45)), uint8(255 - part*(255-0x94)), 0xff}
			field := image.Rect(left+column*cell, y, left+(column+1)*cell, y+cell)
			draw.Draw(canvas, field, image.NewUniform(color.Gray{0xd8}), image.Point{}, draw.Src)
			draw.Draw(canvas, field.Inset(min(1, cell/8)), image.NewUniform(shade), image.Point{}, draw.Src)
			if numbers {
				c := color.Color(ink)
				if part > 0.5 {
					c = color.White
				}
				write(field.Min.X+cell/2, y+cell/2, texts[row*n+column], c)
			}
		}
	}
	for i, r := range "target" { // letter below letter: this font does not turn
		write(12, top+n*cell/2-3*height+i*height, string(r), ink)
	}
	return replace.File(path, func(w io.Writer) error { return png.Encode(w, canvas) })
}
