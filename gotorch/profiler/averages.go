package profiler

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gotorch.dev/gotorch/internal/args"

	"gotorch.dev/gotorch"
)

// KeyAveragesOptions are the arguments of [Trace.KeyAverages] that have defaults: by what events are put together,
// besides their names.
type KeyAveragesOptions struct {
	GroupByInputShape   bool // the shapes of inputs, with Options.RecordShapes
	GroupByStackN       int  // so many calls of the stack, the innermost first, with Options.WithStack
	GroupByOverloadName bool // the overload, "Tensor" of aten::add.Tensor
	GroupByGoroutine    bool // the goroutine
}

// Averages are the rows of a table: see [Trace.KeyAverages].
//
// See https://docs.pytorch.org/docs/stable/profiler.html.
type Averages struct {
	Rows []Average

	memory, flops, shapes, overloads, goroutines, stacks bool
	dropped                                              int
	names                                                func(goroutine int64) string
}

// Average is what all events with the same key have taken together.
type Average struct {
	Key   string // the name; steps are all "ProfilerStep*"
	Kind  Kind
	Count int

	Go        string    // what the events were called by; of several the most frequent one
	Overload  string    // with GroupByOverloadName
	Shapes    [][]int64 // with GroupByInputShape
	Stack     []Frame   // with GroupByStackN
	Goroutine int64     // with GroupByGoroutine

	CPUTime        time.Duration // with all that the calls have called
	SelfCPUTime    time.Duration // without
	SelfDeviceTime time.Duration // of what a GPU did
	Memory         int64         // bytes allocated less bytes freed, with all that the calls have called
	SelfMemory     int64         // without
	FLOPs          int64

	topLevel bool // whether its first event has no parent
	async    bool
	calledBy map[string]int
}

// MeanCPUTime is CPUTime divided by Count.
func (a *Average) MeanCPUTime() time.Duration {
	if a.Count == 0 {
		return 0
	}
	return a.CPUTime / time.Duration(a.Count)
}

// KeyAverages puts together events with the same name, in the order in which they came first. It panics with a
// ValueError if GroupByStackN is negative.
//
//	table := trace.KeyAverages(profiler.KeyAveragesOptions{GroupByInputShape: true})
//	fmt.Println(table.Table(profiler.TableOptions{SortBy: profiler.SelfCPUTime, RowLimit: 10}))
func (t *Trace) KeyAverages(opts ...KeyAveragesOptions) *Averages {
	opt := args.Option(opts)
	if opt.GroupByStackN < 0 {
		panic(args.ValueError("profiler.KeyAverages", "GroupByStackN must not be negative, but is %d", opt.GroupByStackN))
	}
	a := &Averages{memory: t.options.ProfileMemory, flops: t.options.WithFLOPs, shapes: opt.GroupByInputShape,
		overloads: opt.GroupByOverloadName, goroutines: opt.GroupByGoroutine, stacks: opt.GroupByStackN > 0,
		dropped: t.Dropped, names: t.laneName}
	type key struct {
		name, overload, shapes, stack string
		kind                          Kind
		goroutine                     int64
	}
	index := map[key]int{}
	for _, e := range t.events {
		k := key{name: e.Name}
		switch e.Kind {
		case Range, Device, Step: // a range may have the name of a function
			k.kind = e.Kind
		}
		if e.Kind == Step {
			k.name = "ProfilerStep*"
		}
		if opt.GroupByOverloadName {
			k.overload = e.Overload
		}
		if opt.GroupByInputShape {
			k.shapes = shapesText(e.Shapes())
		}
		if opt.GroupByGoroutine {
			k.goroutine = e.Goroutine
		}
		stack := e.stackOf()
		stack = stack[:min(len(stack), opt.GroupByStackN)]
		for _, f := range stack {
			k.stack += f.String() + "\n"
		}
		at, found := index[k]
		if !found {
			at = len(a.Rows)
			index[k] = at
			row := Average{Key: k.name, Kind: e.Kind, Overload: k.overload, Goroutine: k.goroutine, Stack: stack,
				topLevel: e.Parent == nil, async: e.Async, calledBy: map[string]int{}}
			if opt.GroupByInputShape {
				row.Shapes = e.Shapes()
			}
			a.Rows = append(a.Rows, row)
		}
		row := &a.Rows[at]
		row.Count++
		row.calledBy[e.Go]++
		row.FLOPs += e.FLOPs
		if e.Kind == Device {
			row.SelfDeviceTime += e.Duration
			continue
		}
		row.CPUTime += e.Duration
		row.SelfCPUTime += e.SelfDuration()
		row.Memory += e.Memory
		if !e.Async {
			row.SelfMemory += e.SelfMemory
		}
	}
	for i := range a.Rows {
		row := &a.Rows[i]
		most := 0
		for name, n := range row.calledBy {
			if name != "" && (n > most || n == most && name < row.Go) {
				row.Go, most = name, n
			}
		}
		row.calledBy = nil
	}
	return a
}

// stackOf returns from where an event was called: one in a backward pass from where its forward pass was.
func (e *Event) stackOf() []Frame {
	for p := e; p != nil; p = p.Parent {
		if p.Kind == Backward {
			if p.Forward == nil {
				return nil
			}
			return p.Forward.Stack
		}
	}
	return e.Stack
}

// Total returns the sum of all rows, as torch.profiler's total_average: what is within others counts again in CPUTime
// and Memory.
func (a *Averages) Total() Average {
	total := Average{Key: "Total"}
	for _, r := range a.Rows {
		total.Count += r.Count
		total.CPUTime += r.CPUTime
		total.SelfCPUTime += r.SelfCPUTime
		total.SelfDeviceTime += r.SelfDeviceTime
		total.Memory += r.Memory
		total.SelfMemory += r.SelfMemory
		total.FLOPs += r.FLOPs
	}
	return total
}

// SortKey is a column that a table is sorted by, the most first.
type SortKey int

const (
	Unsorted SortKey = iota // as the events came
	CPUTime
	SelfCPUTime
	MeanCPUTime
	SelfDeviceTime
	MemoryUsage
	SelfMemoryUsage
	FLOPs
	Count
)

// of returns a row's number in the column.
func (k SortKey) of(r *Average) int64 {
	switch k {
	case Unsorted:
		return 0
	case CPUTime:
		return int64(r.CPUTime)
	case SelfCPUTime:
		return int64(r.SelfCPUTime)
	case MeanCPUTime:
		return int64(r.MeanCPUTime())
	case SelfDeviceTime:
		return int64(r.SelfDeviceTime)
	case MemoryUsage:
		return r.Memory
	case SelfMemoryUsage:
		return r.SelfMemory
	case FLOPs:
		return r.FLOPs
	case Count:
		return int64(r.Count)
	}
	panic(args.ValueError("profiler.SortKey", "there is no column %d to sort by", int(k)))
}

// Sorted returns the rows by a column, the most first; rows that are equal stay as they were. It panics with a
// ValueError if there is no such column.
func (a *Averages) Sorted(by SortKey) []Average {
	rows := slices.Clone(a.Rows)
	slices.SortStableFunc(rows, func(x, y Average) int {
		switch m, n := by.of(&x), by.of(&y); {
		case m > n:
			return -1
		case m < n:
			return 1
		}
		return 0
	})
	if len(rows) == 1 {
		by.of(&rows[0])
	}
	return rows
}

// TableOptions are the arguments of [Averages.Table] that have defaults.
type TableOptions struct {
	SortBy   SortKey
	RowLimit gotorch.Scalar // rows that are shown; -1 for all; default: 100

	MaxNameColumnWidth   gotorch.Scalar // default: 55
	MaxShapesColumnWidth gotorch.Scalar // default: 80
	MaxSrcColumnWidth    gotorch.Scalar // default: 75

	Header             string
	TopLevelEventsOnly bool   // leaves out rows whose first event is within another
	TimeUnit           string // "s", "ms" or "us"; "" is what suits each number
}

// String returns the table sorted by SelfCPUTime.
func (a *Averages) String() string { return a.Table(TableOptions{SortBy: SelfCPUTime}) }

// Table returns the rows as text: torch.profiler's table, and what calls the functions in Go. It panics with a
// ValueError for a column, a number or a unit that there is not, and with a TypeError for a number that is no integer.
func (a *Averages) Table(opts ...TableOptions) string {
	const op = "profiler.Table"
	opt := args.Option(opts)
	width := func(name string, field gotorch.Scalar, value int64) int {
		n := args.Int(op, name, field, value)
		if n < 1 {
			panic(args.ValueError(op, "%s must be positive, but is %d", name, n))
		}
		return int(min(n, math.MaxInt32))
	}
	maxName := width("MaxNameColumnWidth", opt.MaxNameColumnWidth, 55)
	maxShapes := width("MaxShapesColumnWidth", opt.MaxShapesColumnWidth, 80)
	maxSource := width("MaxSrcColumnWidth", opt.MaxSrcColumnWidth, 75)
	limit := args.Int(op, "RowLimit", opt.RowLimit, 100)
	if limit < -1 {
		panic(args.ValueError(op, "RowLimit must be -1 or more, but is %d", limit))
	}
	duration, ok := timeUnits[opt.TimeUnit]
	if !ok {
		panic(args.ValueError(op, "TimeUnit must be s, ms, us or nothing, but is %q", opt.TimeUnit))
	}
	rows := a.Sorted(opt.SortBy)
	if len(rows) == 0 {
		return ""
	}
	total := a.Total()
	w := tableWriter{}
	column := func(title string, most int, left bool, cell func(r *Average) string) {
		w.columns = append(w.columns, tableColumn{title, most, left, cell})
	}
	column("Name", maxName, true, func(r *Average) string { return r.Key })
	if slices.ContainsFunc(rows, func(r Average) bool { return r.Go != "" }) {
		column("Go", maxName, true, func(r *Average) string { return r.Go })
	}
	if a.overloads {
		column("Overload Name", maxName, true, func(r *Average) string { return r.Overload })
	}
	if a.goroutines {
		column("Goroutine", maxName, true, func(r *Average) string {
			if r.Goroutine == 0 {
				return ""
			}
			return a.names(r.Goroutine)
		})
	}
	column("Self CPU %", 0, false, func(r *Average) string { return share(r.SelfCPUTime, total.SelfCPUTime) })
	column("Self CPU", 0, false, func(r *Average) string { return duration(r.SelfCPUTime) })
	column("CPU total %", 0, false, func(r *Average) string {
		if r.async {
			return "0"
		}
		return share(r.CPUTime, total.SelfCPUTime)
	})
	column("CPU total", 0, false, func(r *Average) string { return duration(r.CPUTime) })
	column("CPU time avg", 0, false, func(r *Average) string { return duration(r.MeanCPUTime()) })
	if total.SelfDeviceTime > 0 {
		column("Self CUDA", 0, false, func(r *Average) string { return duration(r.SelfDeviceTime) })
		column("Self CUDA %", 0, false, func(r *Average) string { return share(r.SelfDeviceTime, total.SelfDeviceTime) })
	}
	if a.memory {
		column("CPU Mem", 0, false, func(r *Average) string { return memoryText(r.Memory) })
		column("Self CPU Mem", 0, false, func(r *Average) string { return memoryText(r.SelfMemory) })
	}
	column("# of Calls", 0, false, func(r *Average) string { return fmt.Sprint(r.Count) })
	if a.shapes {
		column("Input Shapes", maxShapes, true, func(r *Average) string { return shapesText(r.Shapes) })
	}
	if a.flops {
		if scale, unit := flopsUnit(rows); unit != "" {
			column("Total "+unit, 0, false, func(r *Average) string {
				if r.FLOPs <= 0 {
					return "--"
				}
				return fmt.Sprintf("%.3f", float64(r.FLOPs)/scale)
			})
		}
	}
	if a.stacks {
		column("Source Location", maxSource, true, func(r *Average) string {
			if len(r.Stack) == 0 {
				return ""
			}
			return r.Stack[0].String()
		})
		w.tail = len(w.columns) - 1
	}
	shown := rows[:0:0]
	for _, r := range rows {
		if (limit < 0 || int64(len(shown)) < limit) && (!opt.TopLevelEventsOnly || r.topLevel) {
			shown = append(shown, r)
		}
	}
	var b strings.Builder
	if opt.Header != "" {
		b.WriteString(opt.Header + "\n")
	}
	if opt.TopLevelEventsOnly {
		b.WriteString("Events within others are left out.\n")
	}
	w.write(&b, shown)
	fmt.Fprintf(&b, "Self CPU time total: %s\n", duration(total.SelfCPUTime))
	if total.SelfDeviceTime > 0 {
		fmt.Fprintf(&b, "Self CUDA time total: %s\n", duration(total.SelfDeviceTime))
	}
	if a.dropped > 0 {
		fmt.Fprintf(&b, "Not recorded, beyond MaxEvents: %d\n", a.dropped)
	}
	return b.String()
}

// tableWriter sets columns as wide as what is in them.
type tableWriter struct {
	columns []tableColumn
	tail    int // the column whose begin is cut rather than its end; 0 for none
}

type tableColumn struct {
	title string
	most  int // characters; 0 for no bound
	left  bool
	cell  func(*Average) string
}

func (w *tableWriter) write(b *strings.Builder, rows []Average) {
	cells := make([][]string, len(w.columns))
	widths := make([]int, len(w.columns))
	for i, c := range w.columns {
		widths[i] = utf8.RuneCountInString(c.title)
		for k := range rows {
			text := strings.Map(func(r rune) rune { // a name may be anything
				if r < ' ' {
					return ' '
				}
				return r
			}, c.cell(&rows[k]))
			if c.most > 0 {
				text = cut(text, c.most, w.tail > 0 && i == w.tail)
			}
			cells[i] = append(cells[i], text)
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	line := func(cell func(i int) string) {
		var row strings.Builder
		for i, c := range w.columns {
			text := cell(i)
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i > 0 {
				row.WriteString("  ")
			}
			if c.left {
				row.WriteString(text + pad)
			} else {
				row.WriteString(pad + text)
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	rule := func() { line(func(i int) string { return strings.Repeat("-", widths[i]) }) }
	rule()
	line(func(i int) string { return w.columns[i].title })
	rule()
	for k := range rows {
		line(func(i int) string { return cells[i][k] })
	}
	rule()
}

// cut shortens a text to so many characters.
func cut(text string, most int, front bool) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	if most <= 3 {
		return strings.Repeat(".", most)
	}
	if front {
		return "..." + string(runes[len(runes)-most+3:])
	}
	return string(runes[:most-3]) + "..."
}

var timeUnits = map[string]func(time.Duration) string{
	"": func(d time.Duration) string {
		switch us := microseconds(d); {
		case us >= 1e6:
			return fmt.Sprintf("%.3fs", us/1e6)
		case us >= 1e3:
			return fmt.Sprintf("%.3fms", us/1e3)
		default:
			return fmt.Sprintf("%.3fus", us)
		}
	},
	"s":  func(d time.Duration) string { return fmt.Sprintf("%.3fs", microseconds(d)/1e6) },
	"ms": func(d time.Duration) string { return fmt.Sprintf("%.3fms", microseconds(d)/1e3) },
	"us": func(d time.Duration) string { return fmt.Sprintf("%.3fus", microseconds(d)) },
}

func microseconds(d time.Duration) float64 { return float64(d) / 1e3 }

func share(part, of time.Duration) string {
	if of == 0 {
		return "NaN"
	}
	return fmt.Sprintf("%.2f%%", float64(part)*100/float64(of))
}

func memoryText(bytes int64) string {
	switch size := math.Abs(float64(bytes)); {
	case size >= 1<<30:
		return fmt.Sprintf("%.2f GB", float64(bytes)/(1<<30))
	case size >= 1<<20:
		return fmt.Sprintf("%.2f MB", float64(bytes)/(1<<20))
	case size >= 1<<10:
		return fmt.Sprintf("%.2f KB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%d B", bytes)
}

// flopsUnit returns the unit that suits the row with the fewest; "" if none has any.
func flopsUnit(rows []Average) (scale float64, unit string) {
	least := int64(0)
	for _, r := range rows {
		if r.FLOPs > 0 && (least == 0 || r.FLOPs < least) {
			least = r.FLOPs
		}
	}
	if least == 0 {
		return 0, ""
	}
	units := []string{"FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs"}
	scale = 1
	i := 0
	for ; i < len(units)-1 && float64(least) >= scale*1000; i++ {
		scale *= 1000
	}
	return scale, units[i]
}
