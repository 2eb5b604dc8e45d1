package profiler

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/replace"
)

// ExportChromeTrace writes the trace to a file, compressed if its name ends in .gz: see [Trace.WriteChromeTrace]. A
// file that is there is replaced once the new one is complete; on an error, such as a full disk, it stays.
func (t *Trace) ExportChromeTrace(path string) error {
	return t.export(path, t.WriteChromeTrace)
}

func (t *Trace) export(path string, write func(io.Writer) error) error {
	return replace.File(path, func(w io.Writer) error {
		if !strings.HasSuffix(path, ".gz") {
			return write(w)
		}
		z := gzip.NewWriter(w)
		if err := write(z); err != nil {
			return err
		}
		return z.Close()
	})
}

// TensorBoardTraceHandler returns a function for Options.OnTraceReady that writes each trace into a folder, under the
// names that the plugins of TensorBoard look for: worker.time.pt.trace.json. A worker of "" is named after the machine
// and the process. With gz the files are compressed.
//
// See https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.profiler.tensorboard_trace_handler.
func TensorBoardTraceHandler(folder, worker string, gz bool) func(*Trace) error {
	return func(t *Trace) error {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return err
		}
		name := worker
		if strings.ContainsAny(name, "/\x00") {
			return args.ValueError("profiler.TensorBoardTraceHandler", "the worker %q is no part of a file's name", worker)
		}
		if name == "" {
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			name = fmt.Sprintf("%s_%d", host, os.Getpid())
		}
		name += fmt.Sprintf(".%d.pt.trace.json", time.Now().UnixNano())
		if gz {
			name += ".gz"
		}
		return t.ExportChromeTrace(filepath.Join(folder, name))
	}
}

// WriteChromeTrace writes the trace as JSON for https://ui.perfetto.dev, chrome://tracing and what else reads Kineto's
// traces. Each goroutine is a lane; what no goroutine has called is in lanes of OS threads. Around what a call from Go
// has made is a slice with the Go function's name, "gotorch.MM". Arrows lead from calls to the nodes of the backward
// pass that they made.
func (t *Trace) WriteChromeTrace(w io.Writer) error {
	c := &chromeWriter{w: bufio.NewWriter(w), t: t, pid: os.Getpid()}
	c.write()
	if c.err != nil {
		return c.err
	}
	return c.w.Flush()
}

type chromeWriter struct {
	w     *bufio.Writer
	t     *Trace
	pid   int
	comma bool
	err   error
}

// chromeEvent is an event of the trace's format, and its fields in the order in which they are written.
type chromeEvent struct {
	Phase    string  `json:"ph"`
	Category string  `json:"cat,omitempty"`
	Name     string  `json:"name"`
	PID      any     `json:"pid"`
	TID      any     `json:"tid"`
	At       micro   `json:"ts"`
	Duration *micro  `json:"dur,omitempty"`
	Scope    string  `json:"s,omitempty"`
	ID       int     `json:"id,omitempty"`
	Bind     string  `json:"bp,omitempty"`
	Args     argsMap `json:"args,omitempty"`
}

// micro is a time, which the format has in microseconds.
type micro time.Duration

func (m micro) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%03d", int64(m)/1000, int64(m)%1000), nil
}

// argsMap is an object whose fields keep their order.
type argsMap []arg

type arg struct {
	name  string
	value any
}

func (a argsMap) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, f := range a {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	return append(out, '}'), nil
}

func (c *chromeWriter) text(s string) {
	if c.err == nil {
		_, c.err = c.w.WriteString(s)
	}
}

func (c *chromeWriter) emit(e chromeEvent) {
	if c.err != nil {
		return
	}
	e.At = max(0, e.At)
	data, err := json.Marshal(e)
	if err != nil {
		c.err = err
		return
	}
	if c.comma {
		c.text(",\n")
	}
	c.comma = true
	if c.err == nil {
		_, c.err = c.w.Write(data)
	}
}

// lane is where an event is drawn. Numbers of OS threads and of goroutines may be the same, and a process's main thread
// has its number.
type lane struct {
	goroutine int64
	thread    int
	device    bool
	index     int
	resource  int64
}

func laneOf(e *Event) lane {
	switch {
	case e.Kind == Device:
		return lane{device: true, index: e.deviceIndex, resource: e.resource}
	case e.Goroutine != 0:
		return lane{goroutine: e.Goroutine}
	}
	return lane{thread: e.Thread}
}

func (c *chromeWriter) place(l lane) (pid, tid any) {
	switch {
	case l.device:
		return l.index, fmt.Sprintf("stream %d", l.resource)
	case l.goroutine != 0:
		return c.pid, l.goroutine
	}
	return c.pid, fmt.Sprintf("OS thread %d", l.thread)
}

func (c *chromeWriter) write() {
	t := c.t
	head := argsMap{{"schemaVersion", 1}, {"displayTimeUnit", "ms"}, {"baseTimeNanoseconds", t.Start.UnixNano()},
		{"deviceProperties", []any{}}, {"record_shapes", flag(t.options.RecordShapes)},
		{"profile_memory", flag(t.options.ProfileMemory)}, {"with_stack", flag(t.options.WithStack)},
		{"with_flops", flag(t.options.WithFLOPs)}, {"go_version", runtime.Version()}, {"dropped_events", t.Dropped}}
	data, err := json.Marshal(head)
	if err != nil {
		c.err = err
		return
	}
	c.text(string(data[:len(data)-1]) + ",\"traceEvents\":[\n")
	c.emit(chromeEvent{Phase: "M", Name: "process_name", PID: c.pid, TID: 0, Args: argsMap{{"name", filepath.Base(os.Args[0])}}})
	c.emit(chromeEvent{Phase: "M", Name: "process_labels", PID: c.pid, TID: 0, Args: argsMap{{"labels", "CPU"}}})
	c.lanes()
	numbers := make(map[*Event]int, len(t.events))
	for i, e := range t.events {
		numbers[e] = i + 1
	}
	calls := c.calls()
	for _, e := range t.events {
		if call := calls[e]; call != nil {
			c.emit(*call)
		}
		if e.Kind != Memory {
			c.emit(c.event(e, numbers))
		}
	}
	c.arrows(numbers)
	for _, a := range t.allocations {
		pid, tid := c.place(laneOf(&Event{Goroutine: a.Goroutine, Thread: a.Thread}))
		c.emit(chromeEvent{Phase: "i", Category: "cpu_instant_event", Name: "[memory]", PID: pid, TID: tid, At: micro(a.At), Scope: "t",
			Args: argsMap{{"Total Allocated", a.Total}, {"Bytes", a.Bytes}, {"Addr", a.Address}, {"Device Id", -1}, {"Device Type", 0}}})
	}
	c.text("\n]}\n")
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

// lanes names the lanes, and sorts them: goroutines, threads, devices.
func (c *chromeWriter) lanes() {
	seen := map[lane]bool{}
	var all []lane
	add := func(l lane) {
		if !seen[l] {
			seen[l] = true
			all = append(all, l)
		}
	}
	for _, e := range c.t.events {
		add(laneOf(e))
	}
	for _, a := range c.t.allocations {
		add(laneOf(&Event{Goroutine: a.Goroutine, Thread: a.Thread}))
	}
	slices.SortFunc(all, func(a, b lane) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.goroutine, b.goroutine), cmp.Compare(a.thread, b.thread),
			cmp.Compare(a.index, b.index), cmp.Compare(a.resource, b.resource))
	})
	for i, l := range all {
		pid, tid := c.place(l)
		name := fmt.Sprintf("OS thread %d", l.thread)
		switch {
		case l.device:
			name = fmt.Sprintf("GPU %d stream %d", l.index, l.resource)
		case l.goroutine != 0:
			name = c.t.laneName(l.goroutine)
		}
		c.emit(chromeEvent{Phase: "M", Name: "thread_name", PID: pid, TID: tid, Args: argsMap{{"name", name}}})
		c.emit(chromeEvent{Phase: "M", Name: "thread_sort_index", PID: pid, TID: tid, Args: argsMap{{"sort_index", i}}})
	}
}

func order(l lane) int {
	switch {
	case l.goroutine != 0:
		return 0
	case l.device:
		return 2
	}
	return 1
}

// calls returns for the first event that a call from Go has made a slice that is around all of those.
func (c *chromeWriter) calls() map[*Event]*chromeEvent {
	first := map[int64]*Event{}
	ends := map[int64]time.Duration{}
	for _, e := range c.t.events {
		if e.Call == 0 || e.Go == "" || e.Async || e.Parent != nil && e.Parent.Call == e.Call {
			continue
		}
		if first[e.Call] == nil {
			first[e.Call] = e
		}
		ends[e.Call] = max(ends[e.Call], e.End())
	}
	slices := make(map[*Event]*chromeEvent, len(first))
	for call, e := range first {
		pid, tid := c.place(laneOf(e))
		d := micro(ends[call] - e.Start)
		s := &chromeEvent{Phase: "X", Category: "go_call", Name: "gotorch." + e.Go, PID: pid, TID: tid, At: micro(e.Start), Duration: &d}
		if len(e.Stack) > 0 {
			s.Args = argsMap{{"Call stack", stackText(e.Stack)}}
		}
		slices[e] = s
	}
	return slices
}

func stackText(stack []Frame) string {
	lines := make([]string, len(stack))
	for i, f := range stack {
		lines[i] = f.String()
	}
	return strings.Join(lines, ";\n")
}

func (c *chromeWriter) event(e *Event, numbers map[*Event]int) chromeEvent {
	pid, tid := c.place(laneOf(e))
	d := micro(e.Duration)
	out := chromeEvent{Phase: "X", Category: "cpu_op", Name: e.Name, PID: pid, TID: tid, At: micro(e.Start), Duration: &d}
	switch e.Kind {
	case Device:
		out.Category = "kernel"
		return out
	case Range, Step:
		out.Category = "user_annotation"
	}
	a := argsMap{{"External id", numbers[e]}, {"Ev Idx", numbers[e] - 1}}
	if e.Go != "" {
		a = append(a, arg{"Go", e.Go})
	}
	if e.Overload != "" {
		a = append(a, arg{"Overload", e.Overload})
	}
	if e.Goroutine != 0 {
		a = append(a, arg{"Goroutine", e.Goroutine})
	}
	if e.Thread != 0 {
		a = append(a, arg{"OS thread", e.Thread})
	}
	if e.Sequence >= 0 {
		a = append(a, arg{"Sequence number", e.Sequence})
		if e.Kind == Backward {
			a = append(a, arg{"Fwd thread id", e.sequenceThread})
		} else {
			a = append(a, arg{"Fwd thread id", 0})
		}
	}
	if e.Inputs != nil {
		dims, types := make([]any, len(e.Inputs)), make([]string, len(e.Inputs))
		for i, in := range e.Inputs {
			types[i] = in.Type
			dims[i] = dimsOf(in)
		}
		a = append(a, arg{"Input Dims", dims}, arg{"Input type", types})
	}
	if e.FLOPs > 0 {
		a = append(a, arg{"FLOPs", e.FLOPs})
	}
	if c.t.options.ProfileMemory {
		a = append(a, arg{"Bytes", e.Memory})
	}
	if len(e.Stack) > 0 {
		a = append(a, arg{"Call stack", stackText(e.Stack)})
	}
	if e.Unfinished {
		a = append(a, arg{"Unfinished", true})
	}
	out.Args = a
	return out
}

func dimsOf(in Input) any {
	if in.List != nil {
		dims := make([]any, len(in.List))
		for i, t := range in.List {
			dims[i] = dimsOf(t)
		}
		return dims
	}
	if in.Shape == nil {
		return []int64{}
	}
	return in.Shape
}

// arrows are from calls to the nodes of a backward pass that belong to them.
func (c *chromeWriter) arrows(numbers map[*Event]int) {
	for _, e := range c.t.events {
		if e.Forward == nil || strings.HasPrefix(e.Name, evaluates) {
			continue
		}
		for i, at := range []*Event{e.Forward, e} {
			pid, tid := c.place(laneOf(at))
			arrow := chromeEvent{Phase: "s", Category: "fwdbwd", Name: "fwdbwd", PID: pid, TID: tid, At: micro(at.Start), ID: numbers[e]}
			if i == 1 {
				arrow.Phase, arrow.Bind = "f", "e"
			}
			c.emit(arrow)
		}
	}
}

// StackMetric is what [Trace.ExportStacks] adds up.
type StackMetric int

const (
	StackSelfCPUTime  StackMetric = iota // microseconds
	StackSelfMemory                      // bytes allocated; stacks that freed more are left out
	StackFLOPs                           // floating point operations
	StackCalls                           // calls
	stackMetricsCount                    // how many there are
)

// ExportStacks writes the stacks of a trace with Options.WithStack to a file, for flame graphs: a line for each stack,
// outermost call first, and how much it took. ValueError for another metric.
func (t *Trace) ExportStacks(path string, metric StackMetric) error {
	return t.export(path, func(w io.Writer) error { return t.WriteStacks(w, metric) })
}

// WriteStacks is [Trace.ExportStacks] to a writer.
func (t *Trace) WriteStacks(w io.Writer, metric StackMetric) error {
	if metric < 0 || metric >= stackMetricsCount {
		return args.ValueError("profiler.WriteStacks", "there is no metric %d", int(metric))
	}
	sums := map[string]int64{}
	var order []string
	clean := strings.NewReplacer(" ", "_", ";", "_", "\t", "_", "\n", "_", "\r", "_", "\v", "_", "\f", "_", "\u0085", "_", "\u2028", "_", "\u2029", "_")
	for _, e := range t.events {
		stack := e.stackOf()
		if len(stack) == 0 || e.Kind == Device {
			continue
		}
		var names []string
		for _, f := range slices.Backward(stack) {
			names = append(names, clean.Replace(f.String()))
		}
		line := strings.Join(append(names, clean.Replace(e.Name)), ";")
		value := int64(1)
		switch metric {
		case StackSelfCPUTime:
			value = int64(e.SelfDuration())
		case StackSelfMemory:
			value = e.SelfMemory
		case StackFLOPs:
			value = e.FLOPs
		}
		if _, found := sums[line]; !found {
			order = append(order, line)
		}
		sums[line] += value
	}
	b := bufio.NewWriter(w)
	for _, line := range order {
		value := sums[line]
		if metric == StackSelfCPUTime {
			value /= 1000
		}
		if value > 0 {
			fmt.Fprintf(b, "%s %d\n", line, value)
		}
	}
	return b.Flush()
}
