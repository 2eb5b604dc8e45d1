package hub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
)

// Report says how the weights of a folder fit a model. Printed, it has a line for each kind of what does not, with
// layers that are alike on one:
//
//	GPT2LMHead from gpt2: 148 tensors fit, 497.8 MB
//	tied         lm_head.weight is transformer.wte.weight
//	dropped      transformer.h.{0..11}.attn.bias
//
// Names are the model's, and those of From the folder's.
type Report struct {
	Model, Folder string

	Loaded     []Loaded     // what was loaded; after an error, what would have been
	Missing    []Missing    // what only the model has
	Unexpected []Unexpected // what only the folder has
	Mismatched []Mismatch   // what has another shape
	Converted  []Converted  // what is converted to another dtype
	Tied       []Tie        // what the folder lacks, and is one with what was loaded
	Incomplete []Incomplete // rules of the mapping of which the folder has only some tensors
	Dropped    []string     // what rules of the mapping leave out, by the folder's names
	Idle       []string     // rules of the mapping that are for no tensor of the folder; not Drop, and not LoadOnly
	Bytes      int64        // that were read or mapped
}

// Loaded is a tensor that fits.
type Loaded struct {
	Name string
	From []string
}

// Missing is a tensor that only the model has.
type Missing struct {
	Name  string
	Shape []int64
}

// Unexpected is a tensor that only the folder has. Name is what it would be in the model.
type Unexpected struct {
	Name  string
	From  []string
	Shape []int64 // in the folder, where it is of one tensor there
}

// Mismatch is a tensor that has another shape in the model than in the folder.
type Mismatch struct {
	Name      string
	From      []string
	Want, Got []int64 // the model's shape and the folder's, after rules of the mapping
}

// Converted is a tensor that gets another dtype than it has in the folder.
type Converted struct {
	Name     string
	From, To gotorch.DType
}

// Tie is a name for a tensor that was loaded under another one.
type Tie struct{ Name, With string }

// FitError says that a folder does not fit a model. It prints as its report.
type FitError struct{ Report *Report }

// Error says what does not fit.
func (e *FitError) Error() string {
	return "hub.LoadInto: the folder does not fit the model\n" + e.Report.String()
}

// problems returns what is wrong as a *FitError; nil where the options allow it.
func (r *Report) problems(opt LoadOptions) error {
	if !opt.Partial && len(r.Missing)+len(r.Unexpected)+len(r.Incomplete) > 0 || !opt.SkipMismatched && len(r.Mismatched) > 0 {
		return &FitError{r}
	}
	return nil
}

// String prints the report.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s: %s", r.Model, r.Folder, plural(len(r.Loaded), "tensor fits", "tensors fit"))
	if r.Bytes > 0 {
		fmt.Fprintf(&b, ", %s", bytesText(r.Bytes))
	}
	line := func(kind string, lines []string) {
		const most = 20
		for i, text := range lines {
			if i == most {
				fmt.Fprintf(&b, "\n%-12s … and %d more", "", len(lines)-most)
				return
			}
			if i > 0 {
				kind = ""
			}
			fmt.Fprintf(&b, "\n%-12s %s", kind, text)
		}
	}
	var list []item
	for _, m := range r.Missing {
		list = append(list, item{m.Name, shapeText(m.Shape)})
	}
	line("missing", collapse(list))
	list = nil
	for _, u := range r.Unexpected {
		list = append(list, item{fromTo(u.From, u.Name), shapeText(u.Shape)})
	}
	line("unexpected", collapse(list))
	list = nil
	for _, m := range r.Mismatched {
		list = append(list, item{fromTo(m.From, m.Name), fmt.Sprintf("  the model has %v, the folder %v", m.Want, m.Got)})
	}
	line("mismatched", collapse(list))
	var lines []string
	for _, in := range r.Incomplete {
		lines = append(lines, fmt.Sprintf("%s without %s", strings.Join(in.Present, ", "), strings.Join(in.Missing, ", ")))
	}
	line("incomplete", lines)
	list = nil
	for _, t := range r.Tied {
		list = append(list, item{t.Name, " is " + t.With})
	}
	line("tied", collapse(list))
	lines = nil
	counts := map[string]int{}
	for _, c := range r.Converted {
		kind := fmt.Sprintf("%v to %v", c.From, c.To)
		if counts[kind]++; counts[kind] == 1 {
			lines = append(lines, kind)
		}
	}
	for i, kind := range lines {
		lines[i] = fmt.Sprintf("%s from %s", plural(counts[kind], "tensor", "tensors"), kind)
	}
	line("converted", lines)
	list = nil
	for _, name := range r.Dropped {
		list = append(list, item{name, ""})
	}
	line("dropped", collapse(list))
	line("idle", r.Idle)
	return b.String()
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

func bytesText(n int64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if float64(n) >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(n)/unit.size, unit.name)
		}
	}
	return plural(int(n), "byte", "bytes")
}

func shapeText(shape []int64) string {
	if shape == nil {
		return ""
	}
	return fmt.Sprintf("  %v", shape)
}

// fromTo names a tensor as the folder does, and as the model would.
func fromTo(from []string, name string) string {
	if len(from) == 0 || len(from) == 1 && from[0] == name {
		return name
	}
	return strings.Join(from, " + ") + " as " + name
}

// item is a name with what is said of it.
type item struct{ name, said string }

// collapse puts items on one line that differ in numbers of their names only: h.{0..11}.attn.bias.
func collapse(items []item) (lines []string) {
	type group struct {
		parts  []string // of the name, in turns text and numbers
		values []map[int]bool
		said   string
		count  int
	}
	groups := map[string]*group{}
	var order []*group
	for _, it := range items {
		parts := numbered(it.name)
		key := it.said
		for i, part := range parts {
			if i%2 == 0 {
				key += "\x00" + part
			}
		}
		g := groups[key]
		if g == nil {
			g = &group{parts: parts, said: it.said, values: make([]map[int]bool, len(parts)/2)}
			groups[key] = g
			order = append(order, g)
		}
		g.count++
		for i := range g.values {
			if g.values[i] == nil {
				g.values[i] = map[int]bool{}
			}
			n, _ := strconv.Atoi(parts[2*i+1])
			g.values[i][n] = true
		}
	}
	for _, g := range order {
		all := 1
		for _, v := range g.values {
			all *= len(v)
		}
		// Either every combination is there, or the number is one that the names have in several places.
		known := g.count == all || len(g.values) > 0 && g.count == len(g.values[0]) && sameEverywhere(g.values)
		var b strings.Builder
		for i, part := range g.parts {
			switch {
			case i%2 == 0:
				b.WriteString(part)
			case known || len(g.values[i/2]) == 1:
				b.WriteString(setText(g.values[i/2]))
			default:
				b.WriteString("*")
			}
		}
		line := b.String() + g.said
		if !known {
			line += fmt.Sprintf("  (%d tensors)", g.count)
		}
		lines = append(lines, line)
	}
	return lines
}

func sameEverywhere(values []map[int]bool) bool {
	for _, v := range values[1:] {
		if setText(v) != setText(values[0]) {
			return false
		}
	}
	return true
}

// numbered cuts a name into text and numbers, in turns, beginning and ending with text. Only a part of its own
// between dots is a number.
func numbered(name string) []string {
	parts := []string{""}
	apart := strings.NewReplacer(".", "\x00.\x00", " ", "\x00 \x00").Replace(name)
	for word := range strings.SplitSeq(apart, "\x00") {
		if n, err := strconv.Atoi(word); err == nil && strconv.Itoa(n) == word && n >= 0 {
			parts = append(parts, word, "")
		} else {
			parts[len(parts)-1] += word
		}
	}
	return parts
}

// setText prints a set of numbers: 3, {0..11}, {0,2,7}.
func setText(set map[int]bool) string {
	numbers := make([]int, 0, len(set))
	for n := range set {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	if len(numbers) == 1 {
		return strconv.Itoa(numbers[0])
	}
	if numbers[len(numbers)-1]-numbers[0] == len(numbers)-1 {
		return fmt.Sprintf("{%d..%d}", numbers[0], numbers[len(numbers)-1])
	}
	var texts []string
	for _, n := range numbers {
		texts = append(texts, strconv.Itoa(n))
	}
	if len(texts) > 8 {
		texts = append(texts[:8], "...")
	}
	return "{" + strings.Join(texts, ",") + "}"
}
