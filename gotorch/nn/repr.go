package nn

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	F "gotorch.dev/gotorch/nn/functional"
)

// Modules print as PyTorch's do.

// String returns the tree of modules as PyTorch prints it. What a module has to say of itself is the
// result of its method ExtraRepr, if it has one.
func (m *Module) String() string { return repr(nil, m.outer()) }

func repr(above []*Module, m Modular) string {
	above = append(above, notWithin(above, m, className(m)))
	var extra, children []string
	if m, ok := m.(interface{ ExtraRepr() string }); ok && m.ExtraRepr() != "" {
		extra = strings.Split(m.ExtraRepr(), "\n")
	}
	if of, ok := m.(interface{ moduleList() *ModuleListModule }); ok {
		l := list{kind: inSlice, class: className(m)}
		for i, module := range of.moduleList().Modules {
			l.items = append(l.items, item{pyInt(int64(i)), repr(above, module)})
		}
		return l.String()
	}
	lists := map[string]*list{}
	var order []*list
	for e := range entries(m) {
		if e.child == nil {
			continue
		}
		text := repr(above, e.child)
		// A list of modules is a module of its own in PyTorch, unless its elements are named as if
		// they were fields.
		name, in := strings.CutPrefix(e.name, e.field+".")
		if e.list == single || !in {
			order = append(order, &list{name: e.name, kind: single, items: []item{{"", text}}})
			continue
		}
		l := lists[e.field]
		if l == nil {
			l = &list{name: e.field, kind: e.list}
			lists[e.field] = l
			order = append(order, l)
		}
		l.items = append(l.items, item{name, text})
	}
	for _, l := range order {
		children = append(children, "("+l.name+"): "+indent(l.String()))
	}
	return layout(className(m), extra, children)
}

// layout joins the parts of a module's text.
func layout(class string, extra, children []string) string {
	lines := append(extra, children...)
	switch {
	case len(lines) == 0:
		return class + "()"
	case len(extra) == 1 && len(children) == 0:
		return class + "(" + extra[0] + ")"
	}
	return class + "(\n  " + strings.Join(lines, "\n  ") + "\n)"
}

// list is a field with modules.
type list struct {
	name  string
	kind  listKind
	items []item
	class string // default: PyTorch's for the kind
}

type item struct{ name, text string }

func (l *list) String() string {
	var lines []string
	switch l.kind {
	case single:
		return l.items[0].text
	case inMap:
		for _, it := range l.items {
			lines = append(lines, "("+it.name+"): "+indent(it.text))
		}
		return layout("ModuleDict", nil, lines)
	}
	// Equal neighbours in a slice are counted: "(0-2): 3 x Linear(...)".
	for first := 0; first < len(l.items); {
		last := first
		for last+1 < len(l.items) && l.items[last+1].text == l.items[first].text {
			last++
		}
		line := "(" + l.items[first].name + "): " + l.items[first].text
		if last > first {
			line = fmt.Sprintf("(%s-%s): %d x %s", l.items[first].name, l.items[last].name, last-first+1, l.items[first].text)
		}
		lines = append(lines, indent(line))
		first = last + 1
	}
	if l.class == "" {
		l.class = "ModuleList"
	}
	return layout(l.class, nil, lines)
}

func indent(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }

// ClassName returns the name of a module's class as PyTorch calls it: "Linear".
func ClassName(m Modular) string {
	bind(m)
	return className(m)
}

// className returns the name of a module's class as PyTorch calls it.
func className(m Modular) string {
	if p := m.module().parts; p != nil {
		return p.Prefix + plainName(m)
	}
	return plainName(m)
}

// plainName is className for a module whose fields are not computed.
func plainName(m Modular) string {
	if m, ok := m.(interface{ className() string }); ok {
		if name := m.className(); name != "" {
			return name
		}
	}
	return typeName(m)
}

// typeName returns the name of a module's type as PyTorch calls it: LinearModule is "Linear".
func typeName(m Modular) string {
	t := reflect.TypeOf(m).Elem()
	name, _, _ := strings.Cut(t.Name(), "[") // of a generic type only what is before its arguments
	if of := moduleType.PkgPath(); t.PkgPath() == of || t.PkgPath() == strings.TrimSuffix(of, "nn")+"vision/ops" {
		name = strings.TrimSuffix(name, "Module")
	}
	return name
}

func pyBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// pyFloat writes a number as Python does.
func pyFloat(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	}
	if f == 0 || math.Abs(f) >= 1e-4 && math.Abs(f) < 1e16 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func pyTuple(list []int64) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = strconv.FormatInt(n, 10)
	}
	if len(parts) == 1 {
		return "(" + parts[0] + ",)"
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// pyInts writes one number as a number and more as a tuple.
func pyInts(list []int64) string {
	if len(list) == 1 {
		return strconv.FormatInt(list[0], 10)
	}
	return pyTuple(list)
}

func pyInt(n int64) string { return strconv.FormatInt(n, 10) }

// pyQuoted writes a string as Python's repr does.
func pyQuoted[S ~string](s S) string { return "'" + string(s) + "'" }

// pyOptionalFloat writes a number, or None.
func pyOptionalFloat(s gotorch.Scalar) string {
	if f := args.FloatPointer("nn.Module.String", "a number", s); f != nil {
		return pyFloat(*f)
	}
	return "None"
}

// pyOptionalInts writes numbers as pyInts does, or None.
func pyOptionalInts(list []int64) string {
	if list == nil {
		return "None"
	}
	return pyInts(list)
}

// pyWindow writes the size of a result of an adaptive pooling.
func pyWindow(list []int64) string {
	return strings.ReplaceAll(pyInts(list), pyInt(F.AsInput), "None")
}

// when returns text where a condition holds.
func when(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// pyFloats writes one number as a number and more as a tuple.
func pyFloats(list []float64) string {
	if len(list) == 1 {
		return pyFloat(list[0])
	}
	parts := make([]string, len(list))
	for i, f := range list {
		parts[i] = pyFloat(f)
	}
	return "(" + strings.Join(parts, ", ") + ")"
}
