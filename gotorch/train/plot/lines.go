package plot

import (
	"cmp"
	"errors"
	"image/color"
	"image/png"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/replace"
	"gotorch.dev/gotorch/train"
)

var (
	gray = color.RGBA{0xb8, 0xb8, 0xb8, 0xff}
	blue = color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	red  = color.RGBA{0xd6, 0x27, 0x28, 0xff}
	// colors are those of one line after another.
	colors = []color.RGBA{blue, {0xff, 0x7f, 0x0e, 0xff}, {0x2c, 0xa0, 0x2c, 0xff}, red, {0x94, 0x67, 0xbd, 0xff},
		{0x8c, 0x56, 0x4b, 0xff}, {0xe3, 0x77, 0xc2, 0xff}, {0x17, 0xbe, 0xcf, 0xff}, {0xbc, 0xbd, 0x22, 0xff}, {0x7f, 0x7f, 0x7f, 0xff}}
)

// Series is a line of a drawing, or its dots.
type Series struct {
	Name   string
	X, Y   []float64   // of the same length; X may be left out: 1, 2, 3, ...
	Faint  bool        // thin and grey, behind the others
	Dots   bool        // dots instead of a line through them
	Dashed bool        // a line of dashes
	Color  color.Color // default: another for each series
}

// LinesOptions are the arguments of [Lines] that have defaults.
type LinesOptions struct {
	Title          string // above; default: none
	XLabel, YLabel string // of the axes; default: "step", or none where Equal is true, and none
	LogX, LogY     bool   // logarithmic axes, on which only positive numbers are drawn
	FromZero       bool   // the vertical axis begins at zero, if no number is below
	Equal          bool   // a unit is as long on both axes, as for what lies in a plane; not with logarithmic axes
}

// Lines draws lines as a PNG file of 840×540 points, with their names above. Points that are infinite (or beyond 2e307),
// NaN or, on a logarithmic axis, not positive (or below 5e-308) are left out. It returns an error if nothing is left, if X and Y of a line
// have different lengths, if Equal is asked for with a logarithmic axis, or if the file cannot be written.
func Lines(path string, series []Series, opts ...LinesOptions) error {
	o := args.Option(opts)
	if o.Equal && (o.LogX || o.LogY) {
		return args.ValueError("plot.Lines", "Equal is for axes that are not logarithmic, on which a unit has one length")
	}
	if o.XLabel == "" && !o.Equal {
		o.XLabel = "step"
	}
	d := newDrawing(o)
	lines, err := linesOf("plot.Lines", series)
	if err != nil {
		return err
	}
	return d.save(path, lines)
}

// linesOf returns how series are drawn.
func linesOf(op string, series []Series) (lines []line, err error) {
	next := 0
	for _, s := range series {
		if s.X != nil && len(s.X) != len(s.Y) {
			return nil, args.ValueError(op, "%q has %d X and %d Y", s.Name, len(s.X), len(s.Y))
		}
		l := line{name: s.Name, color: gray, width: vg.Points(0.75), only: s.Dots, behind: s.Faint}
		if !s.Faint {
			l.color, l.width = colors[next%len(colors)], vg.Points(1.5)
		}
		if s.Dashed || !s.Faint && next >= len(colors) {
			l.dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		if !s.Faint {
			next++
		}
		if s.Color != nil {
			l.color = color.RGBAModel.Convert(s.Color).(color.RGBA)
		}
		for i, y := range s.Y {
			x := float64(i + 1)
			if s.X != nil {
				x = s.X[i]
			}
			l.points = append(l.points, plotter.XY{X: x, Y: y})
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// LossesOptions are the arguments of [Losses] that have defaults.
type LossesOptions struct {
	Title string // above; default: none
	LogY  bool   // a logarithmic axis of losses
	Epoch bool   // number epochs below instead of steps
}

// Losses draws the loss of each step, the mean loss of each epoch and, if it was recorded, the one by
// the name "val_loss". It returns an error if there is nothing to draw or the file cannot be written.
func Losses(path string, h *train.History, opts ...LossesOptions) error {
	o := args.Option(opts)
	if h == nil {
		return errNothing
	}
	label := "step"
	at := func(step int) float64 { return float64(step) }
	if o.Epoch {
		label, at = "epoch", epochsOf(h)
	}
	var steps, epochs, validation plotter.XYs
	for i, loss := range h.Losses {
		steps = append(steps, plotter.XY{X: at(i + 1), Y: loss})
	}
	for _, e := range h.Epochs {
		epochs = append(epochs, plotter.XY{X: at(e.Steps), Y: e.Loss})
		validation = append(validation, plotter.XY{X: at(e.Steps), Y: e.Metric("val_loss")})
	}
	d := newDrawing(LinesOptions{Title: o.Title, XLabel: label, YLabel: "loss", LogY: o.LogY, FromZero: true})
	return d.save(path, []line{
		{name: "each step", points: steps, color: gray, width: vg.Points(0.75)},
		{name: "mean of an epoch", points: epochs, color: blue, width: vg.Points(1.5), dots: len(epochs) <= 30},
		{name: "validation", points: validation, color: red, width: vg.Points(1.5), dots: len(epochs) <= 30},
	})
}

// epochsOf returns a function from steps to epochs: 2 is the end of the second.
func epochsOf(h *train.History) func(step int) float64 {
	return func(step int) float64 {
		before, each := 0, 0
		for _, e := range h.Epochs {
			each = e.Steps - before
			if step <= e.Steps {
				return float64(e.Number-1) + float64(step-before)/float64(max(1, each))
			}
			before = e.Steps
		}
		return float64(len(h.Epochs)) + float64(step-before)/float64(max(1, each))
	}
}

// Run is a history with a name.
type Run struct {
	Name    string
	History *train.History
}

// MetricOptions are the arguments of [Metric] that have defaults.
type MetricOptions struct {
	Title string // above; default: none
	LogY  bool   // a logarithmic vertical axis
	Steps bool   // number steps below instead of epochs
}

// Metric draws a number of the epochs of several runs, "loss", "val_accuracy" or another that was recorded, a line for
// each. It returns an error if no run has it or the file cannot be written.
func Metric(path, name string, runs []Run, opts ...MetricOptions) error {
	o := args.Option(opts)
	label := "epoch"
	if o.Steps {
		label = "step"
	}
	d := newDrawing(LinesOptions{Title: o.Title, XLabel: label, YLabel: name, LogY: o.LogY})
	var lines []line
	for i, run := range runs {
		if run.History == nil {
			continue
		}
		l := line{name: run.Name, color: colors[i%len(colors)], width: vg.Points(1.5), dots: len(run.History.Epochs) <= 30}
		for _, e := range run.History.Epochs {
			x := float64(e.Number)
			if o.Steps {
				x = float64(e.Steps)
			}
			l.points = append(l.points, plotter.XY{X: x, Y: e.Metric(name)})
		}
		lines = append(lines, l)
	}
	return d.save(path, lines)
}

// LRRange draws what train.LoopOf.FindLR has found, with the learning rate that it suggests. It returns an error if
// there is nothing to draw or the file cannot be written.
func LRRange(path string, found *train.LRRange) error {
	if found == nil {
		return errNothing
	}
	if len(found.Losses) != len(found.LRs) || len(found.Smoothed) != len(found.LRs) {
		return args.ValueError("plot.LRRange", "there are %d LRs, %d Losses and %d Smoothed", len(found.LRs), len(found.Losses), len(found.Smoothed))
	}
	losses, smoothed := line{name: "loss", color: gray, width: vg.Points(0.75)}, line{name: "smoothed", color: blue, width: vg.Points(1.5)}
	suggested := line{color: red, width: vg.Points(1), glyph: true}
	top := math.Inf(1) // above is only how fast it diverges
	if len(found.Smoothed) > 0 {
		top = 2*found.Smoothed[0] - slices.Min(found.Smoothed)
	}
	for i, lr := range found.LRs {
		if found.Smoothed[i] > top {
			continue
		}
		losses.points = append(losses.points, plotter.XY{X: lr, Y: found.Losses[i]})
		smoothed.points = append(smoothed.points, plotter.XY{X: lr, Y: found.Smoothed[i]})
		if lr == found.Suggestion {
			suggested.name = "suggested: " + strconv.FormatFloat(lr, 'g', 2, 64)
			suggested.points = append(suggested.points, plotter.XY{X: lr, Y: found.Smoothed[i]})
		}
	}
	n := len(found.LRs)
	// Of rates that grow by a factor the differences grow.
	log := n > 2 && found.LRs[n-1]-found.LRs[n-2] > 1.5*(found.LRs[1]-found.LRs[0])
	d := newDrawing(LinesOptions{XLabel: "learning rate", YLabel: "loss", LogX: log})
	return d.save(path, []line{losses, smoothed, suggested})
}

// ROC draws curves of false and true positive rates, as those of package metrics, in the unit square, with the diagonal
// of chance. It returns an error if there is nothing to draw or the file cannot be written.
func ROC(path string, curves []Series) error {
	return unitSquare(path, curves, "false positive rate", "true positive rate", line{color: gray, width: vg.Points(1),
		dashes: []vg.Length{vg.Points(4), vg.Points(3)}, points: plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}}})
}

// PrecisionRecall draws curves of recall (X) and precision (Y) in the unit square: a curve c of package metrics is
// Series{X: c.Y, Y: c.X}. It returns an error if there is nothing
// to draw or the file cannot be written.
func PrecisionRecall(path string, curves []Series) error {
	return unitSquare(path, curves, "recall", "precision")
}

func unitSquare(path string, curves []Series, x, y string, lines ...line) error {
	d := newDrawing(LinesOptions{XLabel: x, YLabel: y})
	d.unit = true
	for _, c := range curves {
		if len(c.X) != len(c.Y) {
			return args.ValueError("plot", "%q has %d X and %d Y", c.Name, len(c.X), len(c.Y))
		}
	}
	of, err := linesOf("plot", curves)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(of, func(l line) bool { return len(d.drawable(l.points)) > 0 }) {
		return errNothing
	}
	return d.save(path, append(lines, of...))
}

// HistogramOptions are the arguments of [Histogram] that have defaults.
type HistogramOptions struct {
	Bins   int    // how many bars there are; default: as many as suit the number of values, 10 to 100
	Title  string // above; default: none
	XLabel string // of the axis; default: "value"
	LogY   bool   // a logarithmic axis of counts
}

// Histogram draws how often numbers are in equal ranges. Those that are infinite or NaN are left out. It returns an error
// if none is left, if Bins is negative, or if the file cannot be written.
func Histogram(path string, values []float64, opts ...HistogramOptions) error {
	o := args.Option(opts)
	if o.Bins < 0 || o.Bins > 10_000 {
		return args.ValueError("plot.Histogram", "Bins must be from 0 to 10000, but is %d", o.Bins)
	}
	if o.XLabel == "" {
		o.XLabel = "value"
	}
	low, high, n := math.Inf(1), math.Inf(-1), 0
	for _, v := range values {
		if usable(v) {
			low, high, n = min(low, v), max(high, v), n+1
		}
	}
	if n == 0 {
		return errNothing
	}
	if o.Bins == 0 {
		o.Bins = min(100, max(10, int(math.Sqrt(float64(n)))))
	}
	if !(high-low > 0) || math.IsInf(high-low, 0) || high-low < 1e-12*max(math.Abs(low), math.Abs(high)) {
		if math.IsInf(high-low, 0) {
			return args.ValueError("plot.Histogram", "the numbers are too far apart to be drawn: %g to %g", low, high)
		}
		room := max(0.5, 1e-3*math.Abs(low))
		low, high = low-room, high+room
	}
	counts := make([]float64, o.Bins)
	for _, v := range values {
		if usable(v) {
			counts[min(o.Bins-1, int((v-low)/(high-low)*float64(o.Bins)))]++
		}
	}
	d := newDrawing(LinesOptions{Title: o.Title, XLabel: o.XLabel, YLabel: "count", LogY: o.LogY, FromZero: true})
	floor := 0.0
	if o.LogY {
		floor = 0.5
	}
	var outline plotter.XYs
	for i, c := range counts {
		left, right := low+(high-low)*float64(i)/float64(o.Bins), low+(high-low)*float64(i+1)/float64(o.Bins)
		c = max(c, floor)
		outline = append(outline, plotter.XY{X: left, Y: floor}, plotter.XY{X: left, Y: c}, plotter.XY{X: right, Y: c}, plotter.XY{X: right, Y: floor})
	}
	return d.save(path, []line{{points: outline, color: blue, width: vg.Points(0.5), filled: true}})
}

// Drawing ------------------------------------------------------------------------------------------

var errNothing = errors.New("plot: there is nothing to draw")

type line struct {
	name   string
	points plotter.XYs
	color  color.RGBA
	width  vg.Length
	dashes []vg.Length
	dots   bool // at each point
	only   bool // dots, and no line
	glyph  bool // only large dots, with a line down
	filled bool
	behind bool // the others
}

type drawing struct {
	*plot.Plot
	LinesOptions
	unit bool // both axes from 0 to 1
}

func newDrawing(o LinesOptions) *drawing {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = o.XLabel, o.YLabel
	ink := color.Gray{0x30}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color, axis.Tick.Label.Color, axis.Label.TextStyle.Color = ink, ink, ink, ink
		axis.Padding = vg.Points(3)
		axis.Label.Padding = vg.Points(4)
	}
	return &drawing{Plot: p, LinesOptions: o}
}

func usable(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// farthest is what is still drawn: the range of such numbers, with what is left free beside it, is a number.
const farthest = math.MaxFloat64 / 8

// drawable returns the points that can be drawn.
func (d *drawing) drawable(points plotter.XYs) (can plotter.XYs) {
	for _, p := range points {
		if usable(p.X) && usable(p.Y) && math.Abs(p.X) < farthest && math.Abs(p.Y) < farthest && !(d.LogX && p.X < 1/farthest) && !(d.LogY && p.Y < 1/farthest) {
			can = append(can, p)
		}
	}
	return can
}

// thin leaves out points that nobody could tell apart. Of a line from left to right the lowest and the highest of each of
// many ranges stay, of another one the points that are not where the one before is, of dots one in each place.
func (d *drawing) thin(l line, bounds [4]float64) (thinned plotter.XYs) {
	const ranges = 1500
	points := l.points
	if len(points) <= 4*ranges {
		return points
	}
	if !l.only && slices.IsSortedFunc(points, func(p, q plotter.XY) int { return cmp.Compare(p.X, q.X) }) {
		for i := range ranges {
			part := points[i*len(points)/ranges : (i+1)*len(points)/ranges]
			low, high := 0, 0
			for k, p := range part {
				if p.Y < part[low].Y {
					low = k
				}
				if p.Y > part[high].Y {
					high = k
				}
			}
			thinned = append(thinned, part[min(low, high)])
			if low != high {
				thinned = append(thinned, part[max(low, high)])
			}
		}
		return thinned
	}
	place := func(v, low, high float64, log bool) int {
		if log {
			v, low, high = math.Log(v), math.Log(low), math.Log(high)
		}
		if !(high > low) {
			return 0
		}
		return int((v - low) / (high - low) * ranges)
	}
	seen := map[[2]int]bool{}
	last := [2]int{-1, -1}
	for _, p := range points {
		at := [2]int{place(p.X, bounds[0], bounds[1], d.LogX), place(p.Y, bounds[2], bounds[3], d.LogY)}
		if l.only && !seen[at] || !l.only && at != last {
			thinned = append(thinned, p)
		}
		if last = at; l.only {
			seen[at] = true
		}
	}
	return thinned
}

// save draws lines and writes the file.
func (d *drawing) save(path string, lines []line) error {
	var drawn []line
	bounds := [4]float64{math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)}
	for _, l := range lines {
		if l.points = d.drawable(l.points); len(l.points) == 0 {
			continue
		}
		for _, p := range l.points {
			bounds = [4]float64{min(bounds[0], p.X), max(bounds[1], p.X), min(bounds[2], p.Y), max(bounds[3], p.Y)}
		}
		drawn = append(drawn, l)
	}
	for i, l := range drawn {
		if !l.filled {
			drawn[i].points = d.thin(l, bounds)
		}
	}
	if len(drawn) == 0 {
		return errNothing
	}
	d.axes(bounds, drawn)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe8}, color.Gray{0xe8}
	d.Add(grid)
	for _, behind := range []bool{true, false} {
		for _, l := range drawn {
			if l.behind != behind {
				continue
			}
			if err := d.add(l); err != nil {
				return err
			}
		}
	}
	// Adding lines has moved the axes.
	d.axes(bounds, drawn)

	canvas := vgimg.NewWith(vgimg.UseWH(7*vg.Inch, 4.5*vg.Inch), vgimg.UseDPI(120), vgimg.UseBackgroundColor(color.White))
	const margin = 10
	area := vgdraw.Crop(vgdraw.New(canvas), margin, -margin-4, margin, -margin)
	area = vgdraw.Crop(area, 0, 0, 0, -d.legend(area, drawn))
	if d.Equal {
		d.equal(area)
	}
	d.Draw(area)
	return replace.File(path, func(w io.Writer) error { return png.Encode(w, canvas.Image()) })
}

// equal widens one axis until a unit is as long on both.
func (d *drawing) equal(area vgdraw.Canvas) {
	left, right, low, high := d.X.Min, d.X.Max, d.Y.Min, d.Y.Max
	x, y := right-left, high-low
	for range 3 { // how much room there is depends on what is labelled, and that on the axes
		inner := d.DataCanvas(area).Size()
		unit := max(x/float64(inner.X), y/float64(inner.Y)) // of the axes to a point of the picture
		moreX, moreY := (unit*float64(inner.X)-x)/2, (unit*float64(inner.Y)-y)/2
		d.X.Min, d.X.Max = left-moreX, right+moreX
		d.Y.Min, d.Y.Max = low-moreY, high+moreY
	}
}

// axes sets the ranges of the axes, and what is labelled.
func (d *drawing) axes(bounds [4]float64, lines []line) {
	whole := true
	for _, l := range lines {
		for _, p := range l.points {
			whole = whole && p.X == math.Trunc(p.X)
		}
	}
	if d.XLabel == "epoch" || d.XLabel == "step" {
		whole = true
	}
	d.X.Min, d.X.Max = span(bounds[0], bounds[1], d.LogX)
	if whole && !d.LogX && bounds[0] >= 0 && bounds[0] <= bounds[1]/20 { // close to where it all began
		d.X.Min = 0
	}
	d.Y.Min, d.Y.Max = span(bounds[2], bounds[3], d.LogY)
	if d.LogY {
		room := math.Pow(d.Y.Max, 0.03) / math.Pow(d.Y.Min, 0.03) // their ratio may be beyond all numbers
		if d.Y.Max = min(d.Y.Max*room, 2*farthest); !d.FromZero {
			d.Y.Min = max(d.Y.Min/room, 0.5/farthest)
		}
	} else {
		room := (d.Y.Max - d.Y.Min) / 20
		if d.Y.Max += room; d.FromZero && bounds[2] >= 0 {
			d.Y.Min = 0
		} else {
			d.Y.Min -= room
		}
	}
	if d.unit {
		d.X.Min, d.X.Max, d.Y.Min, d.Y.Max = 0, 1, 0, 1
	}
	set := func(a *plot.Axis, log, whole bool) {
		if log {
			a.Scale, a.Tick.Marker = plot.LogScale{}, logTicks{}
		} else {
			a.Tick.Marker = ticks{whole: whole}
		}
	}
	set(&d.X, d.LogX, whole)
	set(&d.Y, d.LogY, false)
}

// span returns a range that is not empty.
func span(low, high float64, log bool) (float64, float64) {
	if log {
		if high < low*1.5 {
			return low / 2, high * 2
		}
		return low, high
	}
	if high-low <= 1e-9*max(math.Abs(low), math.Abs(high)) {
		room := max(0.5, math.Abs(low)/2)
		if low == math.Trunc(low) && math.Abs(low) < 1e9 {
			room = 1
		}
		return low - room, high + room
	}
	return low, high
}

func (d *drawing) add(l line) error {
	if l.filled {
		polygon, err := plotter.NewPolygon(l.points)
		if err != nil {
			return err
		}
		fill := l.color
		polygon.Color, polygon.LineStyle.Color, polygon.LineStyle.Width = fill, fill, l.width
		d.Add(polygon)
		return nil
	}
	if l.glyph {
		for _, p := range l.points {
			down, err := plotter.NewLine(plotter.XYs{{X: p.X, Y: d.Y.Min}, p})
			if err != nil {
				return err
			}
			down.Color, down.Width, down.Dashes = l.color, l.width, []vg.Length{vg.Points(4), vg.Points(2)}
			d.Add(down)
		}
	} else if !l.only {
		// What lies upon itself takes the square of its length.
		const part = 1000
		for i := 0; i == 0 || i < len(l.points)-1; i += part {
			drawn, err := plotter.NewLine(l.points[i:min(i+part+1, len(l.points))])
			if err != nil {
				return err
			}
			drawn.Color, drawn.Width, drawn.Dashes = l.color, l.width, l.dashes
			d.Add(drawn)
		}
	}
	if l.dots || l.only || l.glyph || len(l.points) == 1 {
		dots, err := plotter.NewScatter(l.points)
		if err != nil {
			return err
		}
		dots.GlyphStyle = vgdraw.GlyphStyle{Color: l.color, Radius: vg.Points(2), Shape: vgdraw.CircleGlyph{}}
		if l.glyph {
			dots.Radius = vg.Points(3.5)
		}
		d.Add(dots)
	}
	return nil
}

// legend writes the title and the names of lines above the drawing, and returns how high that is.
func (d *drawing) legend(area vgdraw.Canvas, lines []line) vg.Length {
	style := d.Legend.TextStyle
	style.Color = color.Gray{0x30}
	style.YAlign = -0.5
	const mark, gap, after = vg.Length(18), vg.Length(5), vg.Length(16)
	row := style.Height("Xg") + 4
	title := vg.Length(0)
	if d.LinesOptions.Title != "" {
		large := style
		large.Font.Size *= 1.2
		large.XAlign = -0.5
		title = row * 1.4
		area.FillText(large, vg.Point{X: (area.Min.X + area.Max.X) / 2, Y: area.Max.Y - title/2}, shortened(d.LinesOptions.Title))
		area.Max.Y -= title
	}
	x, y, used := area.Min.X+30, area.Max.Y-row/2, vg.Length(0)
	for _, l := range lines {
		if l.name == "" {
			continue
		}
		name := shortened(l.name)
		width := mark + gap + style.Width(name) + after
		if used == 0 {
			used = row
		} else if x+width-after > area.Max.X {
			x, y, used = area.Min.X+30, y-row, used+row
		}
		if l.only {
			area.DrawGlyph(vgdraw.GlyphStyle{Color: l.color, Radius: vg.Points(2), Shape: vgdraw.CircleGlyph{}}, vg.Point{X: x + mark/2, Y: y})
		} else {
			area.StrokeLine2(vgdraw.LineStyle{Color: l.color, Width: max(l.width, 1.2), Dashes: l.dashes}, x, y, x+mark, y)
		}
		area.FillText(style, vg.Point{X: x + mark + gap, Y: y}, name)
		x += width
	}
	if used+title > 0 {
		used += 6
	}
	return used + title
}

func shortened(name string) string {
	name = strings.Map(func(r rune) rune { // a second line would lie on what is below
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, name)
	if runes := []rune(name); len(runes) > 60 {
		return string(runes[:59]) + "…"
	}
	return name
}

// ticks are at round numbers: whole ones where all are.
type ticks struct{ whole bool }

func (t ticks) Ticks(low, high float64) (list []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, by := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*by) <= 7 {
			step *= by
			break
		}
	}
	if t.whole {
		step = max(1, math.Round(step))
	}
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		list = append(list, plot.Tick{Value: i * step, Label: label(i*step, step)})
		for k := 1; k < 5 && !(t.whole && step < 5); k++ {
			if v := i*step + float64(k)*step/5; v < high {
				list = append(list, plot.Tick{Value: v})
			}
		}
	}
	if len(list) == 0 { // a range without a whole number
		list = append(list, plot.Tick{Value: low, Label: label(low, high-low)})
	}
	return list
}

// label writes a number with as many places as a step asks for.
func label(v, step float64) string {
	if v == 0 {
		return "0"
	}
	largest := math.Abs(v)
	switch {
	case largest >= 1e15 || step < 1e-5:
		return strconv.FormatFloat(v, 'g', min(15, max(1, 1+int(math.Round(math.Log10(largest/step)+0.5)))), 64)
	case step >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', -1, 64) + "M"
	case step >= 1e4 || step >= 1e3 && largest >= 1e5:
		return strconv.FormatFloat(v/1e3, 'f', -1, 64) + "k"
	case step >= 1:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', int(math.Ceil(-math.Log10(step)-1e-9)), 64)
}

// logTicks are at powers of ten, and at their multiples where there are few powers.
type logTicks struct{}

func (logTicks) Ticks(low, high float64) (list []plot.Tick) {
	from, to := int(math.Floor(math.Log10(low))), int(math.Ceil(math.Log10(high)))
	every := (to-from)/8 + 1
	labelled := 0
	for e := from; e <= to; e++ {
		for by := 1.0; by < 10; by++ {
			v := by * math.Pow(10, float64(e))
			if v < low*(1-1e-9) || v > high*(1+1e-9) || to-from > 30 && (by > 1 || (e-from)%every != 0) {
				continue
			}
			text := ""
			if by == 1 && (e-from)%every == 0 || to-from <= 2 && (by == 2 || by == 5) {
				text = power(v)
				labelled++
			}
			list = append(list, plot.Tick{Value: v, Label: text})
		}
	}
	if labelled < 2 {
		list = append(list, plot.Tick{Value: low, Label: strconv.FormatFloat(low, 'g', 3, 64)}, plot.Tick{Value: high, Label: strconv.FormatFloat(high, 'g', 3, 64)})
	}
	return list
}

func power(v float64) string {
	if v >= 1e-3 && v < 1e5 {
		return strconv.FormatFloat(v, 'g', 5, 64)
	}
	text := strconv.FormatFloat(v, 'e', 0, 64)
	return strings.NewReplacer("e-0", "e-", "e+0", "e", "e+", "e").Replace(text)
}
