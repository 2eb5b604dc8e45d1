package nn

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
)

// SummaryOptions are the arguments of [Summary] that have defaults.
type SummaryOptions struct {
	Depth    gotorch.Scalar // how many levels of modules String shows; default: 3
	Training bool           // compute in training mode rather than in evaluation mode
	Backward bool           // also compute gradients, of the sum of all outputs, and count what that takes
}

// ModelSummary is what [Summary] returns. String is the table.
type ModelSummary struct {
	Modules []ModuleSummary // the model and all modules within, parents first

	Parameters     int64 // elements of all parameters, each counted once
	Trainable      int64 // of those that require gradients
	Buffers        int64 // elements of all buffers
	ParameterBytes int64
	BufferBytes    int64
	InputBytes     int64
	OutputBytes    int64 // of what all modules return that have none within: the activations of a forward pass

	FLOPs         gotorch.FLOPs // of the forward pass, by operator: see [gotorch.FlopCounterMode]
	BackwardFLOPs gotorch.FLOPs // of the backward pass; nil without [SummaryOptions].Backward

	depth int
}

// ModuleSummary is a module of a [ModelSummary].
type ModuleSummary struct {
	Name   string  // as NamedModules has it, "layers.0.conv"; "" for the model
	Class  string  // as String writes it, "Conv2d"
	Module Modular // the model's own
	Depth  int     // how many modules it is within
	Again  bool    // the module came before under another name; what follows is zero then

	Parameters int64 // elements of the parameters of the module and those within, each counted once
	Trainable  int64 // of those that require gradients

	Calls   int       // how often Forward was seen; 0 for one that is not called, or not by [Call]
	Inputs  [][]int64 // shapes of the tensors that the first call got
	Outputs [][]int64 // and of those that it returned

	OutputBytes   int64 // of what all calls returned
	FLOPs         int64 // of all calls; where none was seen, of those of the modules within
	BackwardFLOPs int64 // of gradients of what the calls computed
}

// Summary computes the model's output for inputs, and returns what its modules get and return and what that takes:
// print it for a table. Inputs are the arguments of the model's Forward, which may have any: tensors, options,
// and nil for the zero value.
//
//	fmt.Println(nn.Summary(model, []any{gotorch.Zeros([]int64{1, 3, 224, 224})}))
//
// Nothing happens to the model or the inputs: parameters, buffers, gradients, modes, hooks, which are not called,
// lazy modules and random numbers are as before. It computes with a copy, which shares the parameters' memory. A module
// of your own that is called by Forward rather than by [Call] has no shapes; those within it have.
//
// It panics with a TypeError if inputs are not what Forward takes, and as Forward does.
func Summary(model Modular, inputs []any, opts ...SummaryOptions) *ModelSummary {
	const op = "nn.Summary"
	opt := args.Option(opts)
	depth := args.Int(op, "Depth", opt.Depth, 3)
	if depth < 0 {
		panic(args.ValueError(op, "Depth must not be negative, but is %d", depth))
	}
	bind(model)
	s := &ModelSummary{depth: int(depth)}
	w := &watching{calls: map[*Module][]*watchedCall{}}
	copied, of, free := shadow(model)
	defer free()
	w.of = of
	var events []ctorch.FLOPs
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		restore, forget := keepRandom(devicesOf(model, inputs))
		defer forget()
		defer restore()
		given := w.inputs(s, inputs)
		copied.Train(opt.Training)
		walk(copied, "", func(_ string, m Modular) bool {
			m.module().hooks = &hooks{watch: w.watch}
			return true
		})
		var m ctorch.Message
		events, m = ctorch.CountFLOPs(func() {
			gotorch.SetGradEnabled(opt.Backward, func() {
				outputs := w.call(op, copied, given)
				if opt.Backward {
					backwardOf(outputs)
				}
			})
		})
		native.Must("FlopCounterMode", m)
		w.materialized(s, copied)
	})
	w.totals(s, events, opt.Backward)
	return s
}

// watching gathers calls of modules.
type watching struct {
	calls map[*Module][]*watchedCall // by the copy of the module
	of    map[*Module]Modular        // the model's modules by their copies
	rows  []rowOf
}

// rowOf is a row of the summary that is not of a module that came before.
type rowOf struct {
	at int
	of *Module
}

// watchedCall is one call, and which part of what was counted it is.
type watchedCall struct {
	inputs, outputs          [][]int64
	bytes                    int64
	firstEvent, lastEvent    int
	firstSequence, nextAfter int64
}

func (w *watching) watch(m Modular, inputs []gotorch.Tensor) func(outputs []gotorch.Tensor) {
	c := &watchedCall{inputs: shapesOf(inputs)}
	c.firstEvent, c.firstSequence = ctorch.FlopPlace()
	w.calls[m.module()] = append(w.calls[m.module()], c)
	return func(outputs []gotorch.Tensor) {
		c.lastEvent, c.nextAfter = ctorch.FlopPlace()
		c.outputs = shapesOf(outputs)
		for _, t := range outputs {
			if t.T != nil {
				c.bytes += bytesOf(t)
			}
		}
	}
}

func shapesOf(tensors []gotorch.Tensor) (shapes [][]int64) {
	for _, t := range tensors {
		if t.T != nil {
			shapes = append(shapes, t.Shape())
		}
	}
	return shapes
}

func bytesOf(t gotorch.Tensor) int64 { return t.Numel() * int64(t.DType().Size()) }

// inputs returns copies of the inputs, so that those are not written into and get no gradients.
func (w *watching) inputs(s *ModelSummary, inputs []any) []any {
	copyOf := func(t gotorch.Tensor) gotorch.Tensor {
		if t.T == nil {
			return t
		}
		s.InputBytes += bytesOf(t)
		return t.Detach().Clone().RequiresGrad_(t.RequiresGrad())
	}
	given := make([]any, len(inputs))
	for i, in := range inputs {
		switch in := in.(type) {
		case gotorch.Tensor:
			given[i] = copyOf(in)
		case []gotorch.Tensor:
			copies := make([]gotorch.Tensor, len(in))
			for j, t := range in {
				copies[j] = copyOf(t)
			}
			given[i] = copies
		default:
			given[i] = in
		}
	}
	return given
}

// call calls the model's Forward. The call of a module that does not see to its hooks itself is watched here.
func (w *watching) call(op string, m Modular, inputs []any) (outputs []gotorch.Tensor) {
	forward := reflect.ValueOf(m).MethodByName("Forward")
	if !forward.IsValid() {
		panic(typeError(op, "%T has no method Forward", m))
	}
	t := forward.Type()
	fixed := t.NumIn()
	if t.IsVariadic() {
		fixed--
	}
	if len(inputs) < fixed || len(inputs) > fixed && !t.IsVariadic() {
		panic(typeError(op, "Forward of %T takes %d arguments, and not the %d inputs: it is a %v", m, fixed, len(inputs), t))
	}
	var values []reflect.Value
	var tensors []gotorch.Tensor
	for i, in := range inputs {
		var want reflect.Type
		if want = t.In(min(i, t.NumIn()-1)); i >= fixed {
			want = want.Elem()
		}
		v := reflect.ValueOf(in)
		switch {
		case !v.IsValid():
			v = reflect.Zero(want)
		case v.Type().AssignableTo(want):
		case v.CanConvert(want) && v.Kind() != reflect.String && want.Kind() != reflect.String && v.Kind() != reflect.Slice:
			v = v.Convert(want)
		default:
			panic(typeError(op, "input %d of %T is a %v, and not a %T: Forward is a %v", i, m, want, in, t))
		}
		values = append(values, v)
		tensors = append(tensors, tensorsIn(v)...)
	}
	done := func([]gotorch.Tensor) {}
	if !ofThisPackage(m) {
		done = w.watch(m, tensors)
	}
	for _, result := range forward.Call(values) {
		outputs = append(outputs, tensorsIn(result)...)
	}
	done(outputs)
	return outputs
}

// tensorsIn returns the tensors in a value, which may be a slice or struct of them.
func tensorsIn(v reflect.Value) (tensors []gotorch.Tensor) {
	if !v.IsValid() {
		return nil
	}
	if v.Type() == tensorType {
		if t := v.Interface().(gotorch.Tensor); t.T != nil {
			return []gotorch.Tensor{t}
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			tensors = append(tensors, tensorsIn(v.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				tensors = append(tensors, tensorsIn(v.Field(i))...)
			}
		}
	}
	return tensors
}

// backwardOf computes the gradients of the sum of tensors.
func backwardOf(outputs []gotorch.Tensor) {
	var sums []gotorch.Tensor
	for _, t := range outputs {
		if t.RequiresGrad() {
			sums = append(sums, t.Sum())
		}
	}
	if len(sums) > 0 {
		gotorch.Backward(sums, make([]gotorch.Tensor, len(sums)))
	}
}

// devicesOf returns the devices that a model may draw random numbers on.
func devicesOf(model Modular, inputs []any) map[gotorch.Device]bool {
	devices := map[gotorch.Device]bool{gotorch.CPU: true}
	note := func(t gotorch.Tensor) {
		if t.Defined() && t.Device().Type() != gotorch.DeviceTypeMeta {
			devices[t.Device()] = true
		}
	}
	for _, t := range model.module().tensors(true, parameter, buffer, transient) {
		note(t)
	}
	for _, in := range inputs {
		if t, ok := in.(gotorch.Tensor); ok && t.T != nil {
			note(t)
		}
	}
	return devices
}

// keepRandom returns what sets the random numbers of devices back to where they are now.
func keepRandom(devices map[gotorch.Device]bool) (restore, forget func()) {
	type kept struct {
		of    *gotorch.Generator
		state gotorch.Tensor
	}
	var all []kept
	for d := range devices {
		g := gotorch.DefaultGenerator(d)
		gotorch.Unscoped(func() { all = append(all, kept{g, g.State()}) })
	}
	restore = func() {
		for _, k := range all {
			k.of.SetState(k.state)
		}
	}
	return restore, func() {
		for _, k := range all {
			k.state.Close()
		}
	}
}

// materialized makes the rows, and counts parameters of the copy, where lazy ones have their shapes.
func (w *watching) materialized(s *ModelSummary, copied Modular) {
	counted := func(m Modular) (all, trainable, bytes int64) {
		for _, p := range m.module().tensors(true, parameter) {
			if !p.Defined() {
				continue
			}
			all, bytes = all+p.Numel(), bytes+bytesOf(p)
			if p.RequiresGrad() {
				trainable += p.Numel()
			}
		}
		return all, trainable, bytes
	}
	s.Parameters, s.Trainable, s.ParameterBytes = counted(copied)
	for _, b := range copied.module().tensors(true, buffer, transient) {
		if b.Defined() {
			s.Buffers, s.BufferBytes = s.Buffers+b.Numel(), s.BufferBytes+bytesOf(b)
		}
	}
	seen := map[*Module]bool{}
	var visit func(m Modular, name string, depth int)
	visit = func(m Modular, name string, depth int) {
		row := ModuleSummary{Name: name, Class: className(m), Module: w.of[m.module()], Depth: depth, Again: seen[m.module()]}
		seen[m.module()] = true
		if row.Again {
			s.Modules = append(s.Modules, row)
			return
		}
		row.Parameters, row.Trainable, _ = counted(m)
		at := len(s.Modules)
		s.Modules = append(s.Modules, row)
		w.rows = append(w.rows, rowOf{at, m.module()})
		for e := range entries(m) {
			if e.child != nil {
				visit(e.child, join(name, e.name), depth+1)
			}
		}
	}
	visit(copied, "", 0)
}

// totals puts what was counted into the rows.
func (w *watching) totals(s *ModelSummary, events []ctorch.FLOPs, backward bool) {
	s.FLOPs = gotorch.FLOPs{}
	if backward {
		s.BackwardFLOPs = gotorch.FLOPs{}
	}
	for _, e := range events {
		if e.Backward {
			s.BackwardFLOPs[e.Op] += e.FLOPs
		} else {
			s.FLOPs[e.Op] += e.FLOPs
		}
	}
	for i := len(w.rows) - 1; i >= 0; i-- { // those within first
		row := &s.Modules[w.rows[i].at]
		calls := w.calls[w.rows[i].of]
		end := w.rows[i].at + 1
		for end < len(s.Modules) && s.Modules[end].Depth > row.Depth {
			end++
		}
		leaf := end == w.rows[i].at+1
		for _, c := range calls {
			if row.Calls++; row.Calls == 1 {
				row.Inputs, row.Outputs = c.inputs, c.outputs
			}
			row.OutputBytes += c.bytes
			for _, e := range events[c.firstEvent:max(c.firstEvent, c.lastEvent)] {
				if !e.Backward {
					row.FLOPs += e.FLOPs
				}
			}
			for _, e := range events {
				if e.Backward && e.Sequence >= c.firstSequence && e.Sequence < c.nextAfter {
					row.BackwardFLOPs += e.FLOPs
				}
			}
		}
		if leaf {
			s.OutputBytes += row.OutputBytes
		}
		if len(calls) == 0 {
			for j := w.rows[i].at + 1; j < end; j++ {
				if s.Modules[j].Depth == row.Depth+1 {
					row.FLOPs += s.Modules[j].FLOPs
					row.BackwardFLOPs += s.Modules[j].BackwardFLOPs
				}
			}
		}
	}
}

// String returns the modules as a table, and the totals.
func (s *ModelSummary) String() string {
	header := []string{"Module", "Input", "Output", "Parameters", "FLOPs"}
	if s.BackwardFLOPs != nil {
		header = append(header, "Backward FLOPs")
	}
	rows := [][]string{header}
	for i, m := range s.Modules {
		if m.Depth > s.depth {
			continue
		}
		name := m.Class
		if m.Depth > 0 {
			short := m.Name
			for j := i - 1; j >= 0; j-- {
				if s.Modules[j].Depth == m.Depth-1 {
					short = strings.TrimPrefix(strings.TrimPrefix(m.Name, s.Modules[j].Name), ".")
					break
				}
			}
			name = strings.Repeat("│  ", m.Depth-1) + "├─ " + short + ": " + m.Class
		}
		row := []string{name, shapesText(m.Inputs), shapesText(m.Outputs), thousands(m.Parameters), thousands(m.FLOPs), thousands(m.BackwardFLOPs)}
		switch {
		case m.Again:
			row = []string{name, "(the same again)", "", "", "", ""}
		case m.Calls > 1:
			row[2] += fmt.Sprintf(" ×%d", m.Calls)
		}
		rows = append(rows, row[:len(header)])
	}
	widths := make([]int, len(header))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	total := 2 * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	rule := strings.Repeat("=", total) + "\n"
	b.WriteString(rule)
	for at, row := range rows {
		line := ""
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < 3 {
				line += cell + space + "  "
			} else {
				line += space + cell + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		if at == 0 {
			b.WriteString(rule)
		}
	}
	b.WriteString(rule)
	fmt.Fprintf(&b, "Parameters: %s, of which %s trainable: %s\n", thousands(s.Parameters), thousands(s.Trainable), size(s.ParameterBytes))
	fmt.Fprintf(&b, "Buffers: %s: %s\n", thousands(s.Buffers), size(s.BufferBytes))
	fmt.Fprintf(&b, "Inputs: %s, activations: %s\n", size(s.InputBytes), size(s.OutputBytes))
	fmt.Fprintf(&b, "FLOPs: %s forward", thousands(s.FLOPs.Total()))
	if s.BackwardFLOPs != nil {
		fmt.Fprintf(&b, ", %s backward", thousands(s.BackwardFLOPs.Total()))
	}
	return b.String()
}

func shapesText(shapes [][]int64) string {
	var texts []string
	for _, shape := range shapes {
		texts = append(texts, "["+strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", ", ")+"]")
	}
	if texts == nil {
		return "-"
	}
	return strings.Join(texts, " ")
}

// thousands writes a number with commas.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// size writes a number of bytes.
func size(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.2f KiB", float64(bytes)/(1<<10))
	case bytes < 1<<30:
		return fmt.Sprintf("%.2f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
}
