package train

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"
)

// Progress shows on w how the run goes on: on a terminal a bar for the epoch at hand, which follows the terminal's width,
// with the time that is left and the loss; elsewhere, as in a file or the log of a build, and on a terminal that cannot
// move its cursor (TERM=dumb), a line from time to time. Each epoch that is done has a line, with its metrics. There are
// no colours.
func (l *LoopOf[B]) Progress(w io.Writer) {
	l.progress = &progress{w: w, now: time.Now}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" && isatty.IsTerminal(f.Fd()) {
		l.progress.terminal = f
	}
}

const (
	lineEvery = 10 * time.Second       // how often a line is written within an epoch where there is no terminal
	barEvery  = 100 * time.Millisecond // how often a bar is drawn
)

// progress does nothing if it is nil.
type progress struct {
	w        io.Writer
	terminal *os.File // nil: there is none
	now      func() time.Time

	epoch, epochs int
	steps, step0  int
	done0         int // steps of the epoch that were done before it was begun here
	begun, drawn  time.Time
	shown         bool // there is a bar
	lossless      bool // the program's steps record no loss, so that there is none to show
}

func (p *progress) label() string {
	if p.epochs >= math.MaxInt/2 { // without end
		return fmt.Sprintf("epoch %d", p.epoch)
	}
	return fmt.Sprintf("epoch %*d/%d", len(fmt.Sprint(p.epochs)), p.epoch, p.epochs)
}

// begin is called before each epoch, of which some steps may have been done before.
func (p *progress) begin(epoch, epochs, done, steps int) {
	if p == nil {
		return
	}
	p.epoch, p.epochs, p.steps, p.step0, p.done0 = epoch, epochs, steps, done, done
	p.begun = p.now()
	p.drawn = p.begun
	if p.terminal != nil {
		p.draw(math.NaN())
	}
}

// loses says whether there are losses.
func (p *progress) loses(losses bool) {
	if p != nil {
		p.lossless = !losses
	}
}

// step is called after each step. loss waits for a device that works by itself.
func (p *progress) step(losses []float64, loss func() float64) {
	if p == nil {
		return
	}
	p.step0++
	now := p.now()
	switch since := now.Sub(p.drawn); {
	case p.terminal != nil && since >= barEvery:
		p.drawn = now
		last := math.NaN()
		if n := len(losses); n > 0 {
			last = losses[n-1]
		}
		p.draw(last)
	case p.terminal == nil && since >= lineEvery && p.step0 < p.steps:
		p.drawn = now
		fmt.Fprintf(p.w, "%s  step %d of %d%s%s\n", p.label(), p.step0, p.steps, p.left("  ", " left"), lossText("  loss ", loss()))
	}
}

func lossText(before string, loss float64) string {
	if math.IsNaN(loss) {
		return ""
	}
	return before + fmt.Sprintf("%.4f", loss)
}

// left returns how long the epoch may take, "" where that is not known.
func (p *progress) left(before, after string) string {
	done := p.step0 - p.done0
	if done <= 0 || p.steps <= p.step0 {
		return ""
	}
	d := time.Duration(float64(p.now().Sub(p.begun)) / float64(done) * float64(p.steps-p.step0))
	text := ""
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		text = fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		text = fmt.Sprintf("%d:%02d min", d/time.Minute, d%time.Minute/time.Second)
	case d < 100*24*time.Hour:
		text = fmt.Sprintf("%d:%02d h", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return ""
	}
	return before + text + after
}

// width returns how many characters fit into a line of the terminal as it is now, and fewer by one: some go to the next
// line after the last.
func (p *progress) width() int {
	size, err := unix.IoctlGetWinsize(int(p.terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 79 // a terminal that does not know its size
	}
	return int(size.Col) - 1
}

// draw draws the bar over what is in the line. What does not fit is left out: first the bar, then the loss, the time
// and the label.
func (p *progress) draw(loss float64) {
	width := min(p.width(), 100)
	line := ""
	counter := fmt.Sprintf("%*d/%d", len(fmt.Sprint(p.steps)), p.step0, p.steps)
	for _, parts := range [][]string{
		{p.label() + "  ", counter, p.left("  ", " left"), lossText("  loss ", loss)},
		{p.label() + "  ", counter, p.left("  ", " left")},
		{p.label() + "  ", counter},
		{counter},
	} {
		if text := strings.Join(parts, ""); len(text) <= width {
			line = text
			if room := width - len(text) - 4; room >= 10 && len(parts) > 1 {
				full := min(room, int(float64(room)*float64(p.step0)/float64(max(1, p.steps))))
				line = parts[0] + counter + "  [" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "]" + strings.Join(parts[2:], "")
			}
			break
		}
	}
	p.shown = true
	fmt.Fprint(p.w, "\r"+line+"\x1b[K")
}

// done is called after each epoch.
func (p *progress) done(e *EpochRecord) {
	if p == nil {
		return
	}
	p.end()
	var line strings.Builder
	fmt.Fprintf(&line, "%s  %.1f s", p.label(), e.Duration.Seconds())
	if !p.lossless {
		fmt.Fprintf(&line, "  loss %.4f", e.Loss)
	}
	for _, m := range e.Metrics {
		fmt.Fprintf(&line, "  %s %.4f", m.Name, m.Value)
	}
	fmt.Fprintln(p.w, line.String())
}

// end takes the bar away.
func (p *progress) end() {
	if p != nil && p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
