package train

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/cheggaaa/pb/v3/termutil"
	"github.com/mattn/go-isatty"
)

// Progress shows on w how the run goes on: on a terminal a bar for the epoch at hand, elsewhere a line
// from time to time, and a line for each epoch that is done.
func (l *LoopOf[B]) Progress(w io.Writer) {
	l.progress = &progress{w: w}
	if f, ok := w.(*os.File); ok {
		l.progress.terminal = isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd())
	}
}

// lineEvery is how often a line is written within an epoch where there is no terminal.
const lineEvery = 10 * time.Second

// progress does nothing if it is nil.
type progress struct {
	w        io.Writer
	terminal bool

	epoch, epochs int
	steps, step0  int
	bar           *pb.ProgressBar
	written       time.Time
}

func (p *progress) label() string {
	return fmt.Sprintf("epoch %*d/%d", len(fmt.Sprint(p.epochs)), p.epoch, p.epochs)
}

// begin is called before each epoch, of which some steps may have been done before.
func (p *progress) begin(epoch, epochs, done, steps int) {
	if p == nil {
		return
	}
	p.epoch, p.epochs, p.steps, p.step0, p.written = epoch, epochs, steps, done, time.Now()
	if p.terminal {
		p.bar = pb.New(steps)
		p.bar.SetTemplateString(`{{string . "prefix"}} {{counters . }} {{bar . }} {{rtime . "%s left" "%s"}}{{string . "suffix"}}`)
		p.bar.Set("prefix", p.label()).SetWriter(p.w).SetRefreshRate(100 * time.Millisecond)
		p.bar.Set(pb.CleanOnFinish, true).SetMaxWidth(100)
		if width, err := termutil.TerminalWidth(); err != nil || width <= 0 {
			p.bar.SetWidth(80) // a terminal that does not know its size
		}
		p.bar.Start()
		p.bar.SetCurrent(int64(done))
	}
}

// step is called after each step. loss waits for a device that works by itself.
func (p *progress) step(losses []float64, loss func() float64) {
	if p == nil {
		return
	}
	p.step0++
	if p.bar != nil {
		if n := len(losses); n > 0 {
			p.bar.Set("suffix", fmt.Sprintf("  loss %.4f", losses[n-1]))
		}
		p.bar.Increment()
	} else if now := time.Now(); now.Sub(p.written) >= lineEvery && p.step0 < p.steps {
		p.written = now
		fmt.Fprintf(p.w, "%s  step %d of %d  loss %.4f\n", p.label(), p.step0, p.steps, loss())
	}
}

// done is called after each epoch.
func (p *progress) done(e *EpochRecord) {
	if p == nil {
		return
	}
	p.end()
	var line strings.Builder
	fmt.Fprintf(&line, "%s  %.1f s  loss %.4f", p.label(), e.Duration.Seconds(), e.Loss)
	for _, m := range e.Metrics {
		fmt.Fprintf(&line, "  %s %.4f", m.Name, m.Value)
	}
	fmt.Fprintln(p.w, line.String())
}

// end takes the bar away.
func (p *progress) end() {
	if p != nil && p.bar != nil {
		p.bar.Finish()
		p.bar = nil
	}
}
