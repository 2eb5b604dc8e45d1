// Package columns makes tensors of the columns that a tabular.Layout names.
package columns

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/args"
)

// Column is a column whose place is known.
type Column struct {
	Name    string
	At      int            // which of the table's
	Classes map[string]int // nil: numbers
	missing *Number
}

// Number is a field: an integer, as far as it is one that an int64 holds, and the floats next to it. A float32 that was
// rounded to a float64 before may be another one.
type Number struct {
	Int     int64
	Float   float64
	Single  float32
	Integer bool
}

// OfInt is an integer.
func OfInt(n int64) Number { return Number{n, float64(n), float32(n), true} }

// OfUint is an integer that is not negative.
func OfUint(n uint64) Number {
	return Number{int64(n & math.MaxInt64), float64(n), float32(n), n <= math.MaxInt64}
}

// OfFloat is a float, which may be a whole number.
func OfFloat(f float64) Number {
	n := Number{Float: f, Single: float32(f)}
	if f == math.Trunc(f) && f >= -1<<63 && f < 1<<63 {
		n.Int, n.Integer = int64(f), true
	}
	return n
}

// Plan is a layout whose columns are found in a table.
type Plan struct {
	Inputs, Targets         []Column
	inputDType, targetDType gotorch.DType
}

// Of finds the columns of a layout among names. op is for panics about the layout itself: a ValueError without targets, a
// TypeError for a dtype that is none of three. The error says which columns are not there, or there twice.
func Of(op string, layout tabular.Layout, names []string) (*Plan, error) {
	p := &Plan{inputDType: dtype(op, "InputDType", layout.InputDType), targetDType: dtype(op, "TargetDType", layout.TargetDType)}
	if len(layout.Targets) == 0 {
		panic(args.ValueError(op, "the layout has no Targets"))
	}
	if layout.Inputs == nil {
		for _, name := range names {
			if !slices.ContainsFunc(layout.Targets, func(c tabular.Column) bool { return c.Name == name }) {
				layout.Inputs = append(layout.Inputs, tabular.Column{Name: name})
			}
		}
	}
	var err error
	if p.Inputs, err = find(op, layout.Inputs, names); err == nil {
		p.Targets, err = find(op, layout.Targets, names)
	}
	return p, err
}

func dtype(op, name string, given gotorch.DType) gotorch.DType {
	switch given {
	case 0:
		return gotorch.Float32
	case gotorch.Float32, gotorch.Float64, gotorch.Int64:
		return given
	}
	panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf("%s must be Float32, Float64 or Int64, not %v", name, given)})
}

func find(op string, wanted []tabular.Column, names []string) ([]Column, error) {
	found := make([]Column, len(wanted))
	for i, c := range wanted {
		at := slices.Index(names, c.Name)
		if at < 0 {
			return nil, fmt.Errorf("there is no column %q: it has %s", c.Name, some(names))
		}
		if slices.Contains(names[at+1:], c.Name) {
			return nil, fmt.Errorf("there are two columns %q", c.Name)
		}
		found[i] = Column{Name: c.Name, At: at}
		if args.Given(c.Missing) {
			n := OfFloat(args.Float(op, "Missing", c.Missing, 0))
			switch v := reflect.Indirect(reflect.ValueOf(c.Missing)); {
			case v.CanInt():
				n = OfInt(v.Int())
			case v.CanUint():
				n = OfUint(v.Uint())
			}
			found[i].missing = &n
		}
		if c.Classes != nil {
			found[i].Classes = map[string]int{}
			for k, class := range c.Classes {
				if _, twice := found[i].Classes[class]; twice {
					panic(args.ValueError(op, "column %q has the class %q twice", c.Name, class))
				}
				found[i].Classes[class] = k
			}
		}
	}
	return found, nil
}

func some(names []string) string {
	more := ""
	if n := len(names); n > 10 {
		names, more = names[:10], fmt.Sprintf(", and %d more", n-10)
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%.60q", name)
	}
	if len(quoted) == 0 {
		return "none"
	}
	return strings.Join(quoted, ", ") + more
}

// Missing returns the number of a field that has none.
func (c *Column) Missing() (Number, error) {
	if c.missing == nil {
		return Number{}, fmt.Errorf("the field is missing: say by Missing what it counts as")
	}
	return *c.missing, nil
}

// Text returns the number of a field that is text.
func (c *Column) Text(text string) (Number, error) {
	if c.Classes != nil {
		n, ok := c.Classes[text]
		if !ok {
			return Number{}, fmt.Errorf("%.60q is none of the column's %d classes", text, len(c.Classes))
		}
		return OfInt(int64(n)), nil
	}
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && (n != 0 || text[0] != '-') { // a float's zero has a sign
		return OfInt(n), nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > math.MaxInt64 {
		return OfUint(n), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) || strings.ContainsAny(text, "_xX") {
		return Number{}, fmt.Errorf("%.60q is no number", text)
	}
	return OfFloat(f), nil
}

// side is the inputs, or the targets, of some rows.
type side struct {
	dtype  gotorch.DType
	ints   []int64
	singly []float32
	floats []float64
}

// Rows gathers the numbers of rows.
type Rows struct {
	plan            *Plan
	n               int
	inputs, targets side
}

// Rows begins to gather about n rows.
func (p *Plan) Rows(n int) *Rows {
	return &Rows{plan: p, inputs: newSide(p.inputDType, n*len(p.Inputs)), targets: newSide(p.targetDType, n*len(p.Targets))}
}

func newSide(dtype gotorch.DType, n int) side {
	s := side{dtype: dtype}
	switch dtype {
	case gotorch.Int64:
		s.ints = make([]int64, 0, n)
	case gotorch.Float32:
		s.singly = make([]float32, 0, n)
	default:
		s.floats = make([]float64, 0, n)
	}
	return s
}

func (s *side) add(n Number) error {
	switch s.dtype {
	case gotorch.Int64:
		if !n.Integer {
			return fmt.Errorf("%v is no int64", n.Float)
		}
		s.ints = append(s.ints, n.Int)
	case gotorch.Float32:
		s.singly = append(s.singly, n.Single)
	default:
		s.floats = append(s.floats, n.Float)
	}
	return nil
}

// Add adds a row. field returns the number of a column. The error says in which column it was.
func (r *Rows) Add(field func(c *Column) (Number, error)) error {
	for _, part := range []struct {
		columns []Column
		to      *side
	}{{r.plan.Inputs, &r.inputs}, {r.plan.Targets, &r.targets}} {
		for i := range part.columns {
			c := &part.columns[i]
			n, err := field(c)
			if err == nil {
				err = part.to.add(n)
			}
			if err != nil {
				return fmt.Errorf("column %q: %w", c.Name, err)
			}
		}
	}
	r.n++
	return nil
}

// One returns the only row as a sample.
func (r *Rows) One() (data.Pair, error) { return r.pair(nil) }

// Batch returns the rows as a batch.
func (r *Rows) Batch() (data.Pair, error) { return r.pair([]int64{int64(r.n)}) }

func (r *Rows) pair(front []int64) (data.Pair, error) {
	front = append([]int64{}, front...)
	inputs := append(slices.Clone(front), int64(len(r.plan.Inputs)))
	targets := front
	if n := len(r.plan.Targets); n > 1 {
		targets = append(slices.Clone(front), int64(n))
	}
	return gotorch.Try(func() data.Pair {
		return data.Pair{Input: r.inputs.tensor(inputs), Target: r.targets.tensor(targets)}
	})
}

func (s *side) tensor(shape []int64) gotorch.Tensor {
	switch s.dtype {
	case gotorch.Int64:
		return gotorch.FromSlice(s.ints, shape...)
	case gotorch.Float32:
		return gotorch.FromSlice(s.singly, shape...)
	}
	return gotorch.FromSlice(s.floats, shape...)
}

// Column returns the i-th column of inputs and targets together.
func (p *Plan) Column(i int) *Column {
	if i < len(p.Inputs) {
		return &p.Inputs[i]
	}
	return &p.Targets[i-len(p.Inputs)]
}
