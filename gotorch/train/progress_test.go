package train

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
)

// terminal is a terminal and what it shows.
type terminal struct {
	t            *testing.T
	master, side *os.File
	lines        []string // each as wide as what is in it
	column       int
	widest       int
}

func newTerminal(t *testing.T, columns int) *terminal {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	testhelp.Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	testhelp.Must(t, err)
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	testhelp.Must(t, err)
	t.Cleanup(func() { side.Close() })
	term := &terminal{t: t, master: master, side: side, lines: []string{""}}
	term.resize(columns)
	return term
}

func (term *terminal) resize(columns int) {
	testhelp.Must(term.t, unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}))
}

// read shows what was written since.
func (term *terminal) read() string {
	term.widest = 0
	poll := []unix.PollFd{{Fd: int32(term.master.Fd()), Events: unix.POLLIN}}
	for {
		if n, _ := unix.Poll(poll, 3); n <= 0 {
			break
		}
		b := make([]byte, 4096)
		n, err := term.master.Read(b)
		testhelp.Must(term.t, err)
		for text := string(b[:n]); text != ""; {
			last := len(term.lines) - 1
			switch {
			case strings.HasPrefix(text, "\x1b[K"):
				term.lines[last] = term.lines[last][:min(term.column, len(term.lines[last]))]
				text = text[3:]
			case text[0] == '\r':
				term.column, text = 0, text[1:]
			case text[0] == '\n':
				term.lines, text = append(term.lines, ""), text[1:]
			default:
				if text[0] < ' ' || text[0] > '~' {
					term.t.Errorf("the terminal got %q", text)
				}
				line := term.lines[last]
				line += strings.Repeat(" ", max(0, term.column-len(line)))
				term.lines[last] = line[:term.column] + text[:1] + line[min(len(line), term.column+1):]
				term.column++
				term.widest = max(term.widest, term.column)
				text = text[1:]
			}
		}
	}
	return strings.Join(term.lines, "\n")
}

func progressOn(w *os.File) (*progress, *time.Time) {
	loop := NewStepLoop(func(*StepOf[int]) error { return nil })
	loop.Progress(w)
	now := time.Unix(1000, 0)
	loop.progress.now = func() time.Time { return now }
	return loop.progress, &now
}

func TestABarFitsATerminalOfAnyWidth(t *testing.T) {
	t.Setenv("TERM", "xterm")
	term := newTerminal(t, 80)
	p, now := progressOn(term.side)
	p.begin(3, 10, 0, 500)
	step := func() string {
		*now = now.Add(150 * time.Millisecond)
		p.step([]float64{0.25}, nil)
		return term.read()
	}
	step()
	if got, want := step(), "epoch  3/10    2/500  [                           ]  1:15 min left  loss 0.2500"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for range 248 {
		p.step0++
		*now = now.Add(150 * time.Millisecond)
	}
	if got, want := step(), "epoch  3/10  251/500  [===============                ]  37 s left  loss 0.2500"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for columns := 1; columns < 200; columns++ {
		term.resize(columns)
		got := step()
		if limit := min(100, columns-1); term.widest > limit {
			t.Errorf("%d columns: %q", columns, got)
		}
		if columns > 8 && !strings.Contains(got, "/500") {
			t.Errorf("%d columns: %q", columns, got)
		}
	}
	term.resize(0) // it does not know
	if step(); term.widest != 79 {
		t.Errorf("a width of %d", term.widest)
	}
	p.done(&EpochRecord{Number: 3, Loss: 0.5, Duration: 2 * time.Second, Metrics: []Value{{"val_loss", 0.25}}})
	p.begin(4, 10, 0, 500)
	p.end()
	if got, want := term.read(), "epoch  3/10  2.0 s  loss 0.5000  val_loss 0.2500\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestABarIsNotDrawnForEachStep(t *testing.T) {
	t.Setenv("TERM", "xterm")
	term := newTerminal(t, 80)
	p, now := progressOn(term.side)
	p.begin(1, 1, 0, 1_000_000)
	term.read()
	for range 1000 {
		*now = now.Add(50 * time.Microsecond)
		p.step([]float64{1}, nil)
	}
	if term.read(); term.widest != 0 {
		t.Error("it was drawn within 50 ms")
	}
}

func TestADumbTerminalGetsLines(t *testing.T) {
	t.Setenv("TERM", "dumb")
	term := newTerminal(t, 40)
	p, now := progressOn(term.side)
	p.begin(1, 2, 0, 100)
	for range 50 {
		*now = now.Add(time.Second)
		p.step(nil, func() float64 { return 0.5 })
	}
	p.done(&EpochRecord{Number: 1, Loss: 0.5, Duration: 50 * time.Second})
	p.end()
	want := "epoch 1/2  step 10 of 100  1:30 min left  loss 0.5000\n" +
		"epoch 1/2  step 20 of 100  1:20 min left  loss 0.5000\n" +
		"epoch 1/2  step 30 of 100  1:10 min left  loss 0.5000\n" +
		"epoch 1/2  step 40 of 100  1:00 min left  loss 0.5000\n" +
		"epoch 1/2  step 50 of 100  50 s left  loss 0.5000\n" +
		"epoch 1/2  50.0 s  loss 0.5000\n"
	if got := term.read(); got != want {
		t.Errorf("got %q", got)
	}
}

func TestAFileGetsLinesWithoutAnythingForATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	path := t.TempDir() + "/log"
	f, err := os.Create(path)
	testhelp.Must(t, err)
	p, now := progressOn(f)
	p.begin(1, 1<<62, 7, 10)
	*now = now.Add(10 * time.Hour)
	p.step(nil, func() float64 { return 0.5 })
	p.end()
	testhelp.Must(t, f.Close())
	b, err := os.ReadFile(path)
	testhelp.Must(t, err)
	if want := "epoch 1  step 8 of 10  20:00 h left  loss 0.5000\n"; !bytes.Equal(b, []byte(want)) {
		t.Errorf("got %q", b)
	}
}

type twoNumbers struct{}

func (twoNumbers) Len() int { return 2 }

func (twoNumbers) All() iter.Seq2[int, error] {
	return func(yield func(int, error) bool) { _ = yield(1, nil) && yield(2, nil) }
}

func TestALoopThatRecordsNoLossShowsNone(t *testing.T) {
	for record, want := range map[bool]bool{false: false, true: true} {
		loop := NewStepLoop(func(s *StepOf[int]) error {
			if record {
				s.Record("loss", gotorch.Ones([]int64{1}))
			}
			return nil
		})
		var out bytes.Buffer
		loop.Progress(&out)
		_, err := loop.Run(t.Context(), twoNumbers{}, Epochs(1))
		testhelp.Must(t, err)
		if got := strings.Contains(out.String(), "loss"); got != want || strings.Contains(out.String(), "NaN") {
			t.Errorf("record %v: %q", record, out.String())
		}
	}
}
