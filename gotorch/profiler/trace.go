package profiler

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Kind is what an [Event] is.
type Kind int

const (
	Op       Kind = iota // a function of PyTorch's, "aten::mm"
	Backward             // a node of a backward pass, "MmBackward0"
	Range                // of RecordFunction, or of a module
	Step                 // between two calls of Profiler.Step
	Memory               // an allocation that no event is around, "[memory]"
	Device               // what a GPU did, or the call of its driver
)

// String returns the constant's name.
func (k Kind) String() string {
	if k < Op || k > Device {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return [...]string{"Op", "Backward", "Range", "Step", "Memory", "Device"}[k]
}

// Trace is what was recorded.
//
// See https://docs.pytorch.org/docs/stable/profiler.html.
type Trace struct {
	Start    time.Time
	Duration time.Duration
	Dropped  int // calls and allocations beyond Options.MaxEvents

	events      []*Event // with what table and averages leave out
	allocations []Allocation
	names       map[int64]string // of goroutines
	options     Options
}

// Event is one call. Times are from the trace's start.
//
// See https://docs.pytorch.org/docs/stable/profiler.html.
type Event struct {
	Name     string // "aten::mm"
	Overload string // "Tensor" of aten::add.Tensor
	Go       string // the function of package gotorch that was called, "MM"; "" where none was, or it is not known
	Kind     Kind

	Start      time.Duration
	Duration   time.Duration
	Unfinished bool // whether it ran when the profile stopped, which is taken for its end then
	Async      bool // whether it ended on another thread than it began on

	Goroutine int64 // 0 for what no goroutine called: a thread of libtorch's, or memory that is freed by the collector
	Thread    int   // the number of the OS thread
	Call      int64 // tells calls from Go apart: the events that one has made have the same; 0 for none

	Inputs []Input // with Options.RecordShapes
	FLOPs  int64   // with Options.WithFLOPs; 0 for what has no formula
	Stack  []Frame // with Options.WithStack: the callers outside of package gotorch, the innermost first

	Memory     int64 // bytes allocated less bytes freed, with Options.ProfileMemory
	SelfMemory int64 // the same without events within

	Parent   *Event
	Children []*Event

	// Sequence is the number of a node of the graph, and of the call that may have made it; -1 for none. Forward is
	// that call, of an event in a backward pass.
	Sequence int64
	Forward  *Event

	sequenceThread, thread int64 // libtorch's numbers
	deviceIndex            int
	resource               int64
}

// SelfDuration is Duration without events within. It is zero for what is asynchronous, or on a device.
func (e *Event) SelfDuration() time.Duration {
	if e.Async || e.Kind == Device {
		return 0
	}
	d := e.Duration
	for _, c := range e.Children {
		d -= c.Duration
	}
	return d
}

// End is when the event ended, from the trace's start.
func (e *Event) End() time.Duration { return e.Start + e.Duration }

// Shapes returns the shape of each input: none, which is not nil, for what is no tensor and for lists of tensors.
func (e *Event) Shapes() [][]int64 {
	shapes := make([][]int64, len(e.Inputs))
	for i, in := range e.Inputs {
		shapes[i] = slices.Clone(in.Shape)
		if shapes[i] == nil {
			shapes[i] = []int64{}
		}
	}
	return shapes
}

// Input is an argument of an event.
type Input struct {
	Type  string // "float", "long int": C++'s name of a tensor's dtype; "TensorList", "Scalar", "ScalarList"; ""
	Shape []int64
	List  []Input // the tensors of a list, 64 at most
}

// Frame is a place in the program.
type Frame struct {
	Function string // "main.train"
	File     string
	Line     int
}

// String returns "main.train (/src/main.go:12)".
func (f Frame) String() string { return fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line) }

// Allocation is memory of the computer that was allocated, or freed where Bytes is negative.
type Allocation struct {
	At      time.Duration
	Address uint64
	Bytes   int64
	Total   int64 // what was allocated while there was a profile, and lives: bytes

	Goroutine int64
	Thread    int
	Event     *Event // the innermost one around it; nil for none
}

// Events returns what was recorded, by the time of its start, parents before what is within: ops, ranges, steps, nodes
// of backward passes, and allocations that no event is around. As in torch.profiler an event that has the name of the
// only one within it is left out, and so are functions that only ask: aten::is_leaf, output_nr and _version.
func (t *Trace) Events() []*Event { return slices.Clone(t.events) }

// Allocations returns the allocations with Options.ProfileMemory, by their time.
func (t *Trace) Allocations() []Allocation { return slices.Clone(t.allocations) }

// Goroutines returns the names that [Do] has given to goroutines, by their numbers.
func (t *Trace) Goroutines() map[int64]string { return maps.Clone(t.names) }

// String returns the table of KeyAverages.
func (t *Trace) String() string { return t.KeyAverages().String() }

const evaluates = "autograd::engine::evaluate_function: "

// What torch.profiler leaves out.
var leftOut = map[string]bool{
	"profiler::_record_function_enter": true, "profiler::_record_function_enter_new": true,
	"profiler::_record_function_exit": true, "aten::is_leaf": true, "aten::output_nr": true, "aten::_version": true,
}

func newTrace(d *profileData, names map[int64]string, steps []stepRange, options Options) *Trace {
	options.Modules, options.Schedule, options.OnTraceReady = nil, nil, nil // which the trace must not keep
	t := &Trace{Start: time.Unix(0, d.Start), Duration: time.Duration(d.Stop - d.Start),
		Dropped: int(d.DroppedEvents + d.DroppedMemory), names: names, options: options}
	stacks := map[int64][]Frame{}
	for number, site := range d.Sites {
		stacks[number] = framesOf(site.Frames)
	}
	all := make([]*Event, len(d.Events))
	memory := make([]Event, len(d.Events)) // one allocation
	for i := range d.Events {
		from := &d.Events[i]
		e := &memory[i]
		all[i] = e
		*e = Event{Name: from.Name, Overload: from.Overload, Kind: Op, Start: time.Duration(from.Start - d.Start),
			Goroutine: from.Goroutine, Thread: int(from.SystemThread), Call: from.Call, Inputs: inputsOf(from.Inputs),
			FLOPs: from.FLOPs, SelfMemory: from.Memory, Sequence: from.Sequence, Go: d.Sites[from.Site].Name,
			Stack: stacks[from.Site], thread: from.Thread, sequenceThread: from.Thread}
		switch from.Scope {
		case 1:
			e.Kind, e.sequenceThread = Backward, from.ForwardThread
		case 7:
			e.Kind = Range
		}
		if strings.HasPrefix(e.Name, evaluates) {
			// The engine's event around a node's has no number. Kineto gives it that of the node.
			e.Kind = Backward
			if next := i + 1; next < len(d.Events) && d.Events[next].Parent == i {
				e.Sequence, e.sequenceThread = d.Events[next].Sequence, d.Events[next].ForwardThread
			}
		}
		if from.End < 0 {
			e.Unfinished = true
			e.Duration = t.Duration - e.Start
		} else {
			e.Duration = time.Duration(from.End - from.Start)
			e.Async = from.EndThread != from.Thread
		}
		e.Duration = max(0, e.Duration)
		if from.Parent >= 0 && !all[from.Parent].Async && !e.Async {
			e.Parent = all[from.Parent]
		}
	}
	for i := len(all) - 1; i >= 0; i-- { // children come after their parents
		e := all[i]
		e.Memory += e.SelfMemory
		if e.Parent != nil {
			e.Parent.Memory += e.Memory
		}
	}
	for _, e := range all {
		if e.Parent != nil {
			// A clock's ticks, and what was unfinished, must not make children longer than parents.
			e.Duration = max(0, min(e.Duration, e.Parent.End()-e.Start))
		}
	}
	t.link(all)
	for _, m := range d.Memory {
		a := Allocation{At: time.Duration(m.Time - d.Start), Address: uint64(m.Address), Bytes: m.Bytes, Total: m.Total,
			Goroutine: m.Goroutine, Thread: int(m.SystemThread)}
		if m.Parent >= 0 {
			a.Event = all[m.Parent]
		} else {
			all = append(all, &Event{Name: "[memory]", Kind: Memory, Start: a.At, Goroutine: m.Goroutine,
				Thread: a.Thread, Memory: m.Bytes, SelfMemory: m.Bytes, Sequence: -1, thread: m.Thread})
		}
		t.allocations = append(t.allocations, a)
	}
	slices.SortStableFunc(t.allocations, func(a, b Allocation) int { return cmp.Compare(a.At, b.At) })
	all = t.addSteps(all, steps, d)
	for _, a := range d.Activities {
		all = append(all, &Event{Name: a.Name, Kind: Device, Start: time.Duration(a.Start - d.Start),
			Duration: time.Duration(a.End - a.Start), Sequence: -1, deviceIndex: a.DeviceIndex, resource: a.Resource})
	}
	t.events = all
	t.leaveOut(func(e *Event) bool { return leftOut[e.Name] })
	slices.SortStableFunc(t.events, func(a, b *Event) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Duration, a.Duration))
	})
	t.fillChildren()
	for t.leaveOut(func(e *Event) bool { return e.Parent != nil && e.Parent.Name == e.Name && len(e.Parent.Children) == 1 }) {
		t.fillChildren()
	}
	return t
}

// leaveOut removes events, whose children become their parents', and reports whether there were any.
func (t *Trace) leaveOut(which func(*Event) bool) bool {
	gone := map[*Event]bool{}
	for _, e := range t.events {
		if which(e) {
			gone[e] = true
		}
	}
	if len(gone) == 0 {
		return false
	}
	t.events = slices.DeleteFunc(t.events, func(e *Event) bool { return gone[e] })
	for _, e := range t.events {
		for e.Parent != nil && gone[e.Parent] {
			e.Parent = e.Parent.Parent
		}
		for e.Forward != nil && gone[e.Forward] {
			e.Forward = e.Forward.Parent
		}
	}
	for e := range gone { // its own memory is the parent's
		p := e.Parent
		for p != nil && gone[p] {
			p = p.Parent
		}
		if p != nil {
			p.SelfMemory += e.SelfMemory
		}
	}
	for i := range t.allocations {
		for a := &t.allocations[i]; a.Event != nil && gone[a.Event]; {
			a.Event = a.Event.Parent
		}
	}
	return true
}

func (t *Trace) fillChildren() {
	for _, e := range t.events {
		e.Children = nil
	}
	for _, e := range t.events {
		if e.Parent != nil {
			e.Parent.Children = append(e.Parent.Children, e)
		}
	}
}

// link finds the calls of the forward pass whose nodes a backward pass has run: of those on the node's thread with its
// number, the last that began. Those before have made no node, or are around the one that has.
func (t *Trace) link(all []*Event) {
	type node struct{ thread, sequence int64 }
	made := map[node][]*Event{}
	for _, e := range all {
		if e.Kind == Op && e.Sequence >= 0 {
			n := node{e.thread, e.Sequence}
			made[n] = append(made[n], e)
		}
	}
	for _, list := range made {
		slices.SortStableFunc(list, func(a, b *Event) int { return cmp.Compare(a.Start, b.Start) })
	}
	for _, e := range all {
		if e.Kind != Backward || e.Sequence < 0 {
			continue
		}
		for _, f := range slices.Backward(made[node{e.sequenceThread, e.Sequence}]) {
			if f.Start < e.Start {
				e.Forward = f
				break
			}
		}
	}
}

// addSteps adds the profiler's steps, which follow each other, around the events of their goroutine.
func (t *Trace) addSteps(all []*Event, steps []stepRange, d *profileData) []*Event {
	var added []*Event
	for _, s := range steps {
		start := time.Duration(max(0, s.start.clock-d.Clock))
		step := &Event{Name: fmt.Sprintf("ProfilerStep#%d", s.number), Kind: Step, Start: start,
			Duration: min(time.Duration(s.end-d.Clock), t.Duration) - start, Goroutine: s.start.goroutine, Sequence: -1,
			Async: s.endGoroutine != s.start.goroutine}
		if step.Duration >= 0 { // else it was over before the trace began
			added = append(added, step)
		}
	}
	for _, e := range all {
		if e.Parent != nil || e.Async || e.Kind == Memory {
			continue
		}
		after, _ := slices.BinarySearchFunc(added, e.Start, func(s *Event, at time.Duration) int {
			if s.Start <= at {
				return -1
			}
			return 1
		})
		if after == 0 {
			continue
		}
		step := added[after-1]
		if !step.Async && e.Goroutine == step.Goroutine && e.End() <= step.End() {
			e.Parent = step
			step.Memory += e.Memory
		}
	}
	return append(all, added...)
}

func framesOf(frames []runtime.Frame) (list []Frame) {
	for _, f := range frames {
		if f.Function == "runtime.main" || f.Function == "runtime.goexit" {
			continue
		}
		list = append(list, Frame{f.Function, f.File, f.Line})
	}
	return list
}

func inputsOf(from []profileInput) []Input {
	if from == nil {
		return nil
	}
	inputs := make([]Input, len(from))
	for i, in := range from {
		switch in.Kind {
		case inputTensor:
			inputs[i] = Input{Type: in.DType, Shape: in.Sizes}
		case inputTensors:
			inputs[i] = Input{Type: "TensorList", List: inputsOf(in.List)}
		case inputNumber:
			inputs[i].Type = "Scalar"
		case inputNumbers:
			inputs[i].Type = "ScalarList"
		}
	}
	return inputs
}

// laneName is what a goroutine's lane is called.
func (t *Trace) laneName(goroutine int64) string {
	name := fmt.Sprintf("goroutine %d", goroutine)
	if label := t.names[goroutine]; label != "" {
		return name + ": " + label
	}
	if goroutine == 1 {
		return name + " (main)"
	}
	return name
}

func shapesText(shapes [][]int64) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, s := range shapes {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(shapeText(s))
	}
	b.WriteByte(']')
	return b.String()
}

func shapeText(shape []int64) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ", ")
}
