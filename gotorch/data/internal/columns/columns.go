// Package columns makes tensors of the columns that a tabular.Layout names.
package columns

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/args"
)

// Column is a column whose place is known.
type Column struct {
	Name    string
	At      int            // which of the table's
	Within  []string       // where it is in the JSON objects of that column; nil: it is the column
	Classes map[string]int // nil: numbers
	Encode  func(to []float64, text string) error
	Unit    time.Duration // 0: not of dates and times
	List    bool          // Size was set
	Size    int           // how many numbers it has in a row, at least 1

	missing, unknown, pad *Number // nil: an error
	timeFormats           []string
	offset                int // of its first number in a row
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

// OfDecimal is an integer divided by a power of ten. It panics if the scale is negative.
func OfDecimal(n *big.Int, scale int) Number {
	if n.IsInt64() && scale < len(powers) {
		v, power := n.Int64(), powers[scale]
		if v%power == 0 {
			return OfInt(v / power)
		}
		if v > -1<<53 && v < 1<<53 && power < 1<<53 { // both are floats, and their quotient is rounded once
			return fraction(float64(v) / float64(power))
		}
	} else if whole, rest := new(big.Int).QuoRem(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil), new(big.Int)); rest.Sign() == 0 {
		if whole.IsInt64() {
			return OfInt(whole.Int64())
		}
	}
	f, _ := strconv.ParseFloat(n.String()+"e-"+strconv.Itoa(scale), 64)
	return fraction(f)
}

// powers are the powers of ten that an int64 holds.
var powers = func() (all [19]int64) {
	all[0] = 1
	for i := 1; i < len(all); i++ {
		all[i] = 10 * all[i-1]
	}
	return all
}()

// fraction is a number that is no integer, or none that an int64 holds, though the float next to it may be.
func fraction(f float64) Number { return Number{Float: f, Single: float32(f)} }

// Time returns how many units of the column a time is after the beginning that it is counted from.
func (c *Column) Time(seconds, nanoseconds int64) Number {
	unit := int64(c.Unit)
	const most = math.MaxInt64/int64(time.Second) - 1
	if seconds < -most || seconds > most {
		n := big.NewInt(seconds) // of nanoseconds there are more than an int64 holds
		n.Add(n.Mul(n, big.NewInt(int64(time.Second))), big.NewInt(nanoseconds))
		exact := new(big.Rat).SetFrac(n, big.NewInt(unit))
		if exact.IsInt() && exact.Num().IsInt64() {
			return OfInt(exact.Num().Int64())
		}
		f, _ := exact.Float64()
		return fraction(f)
	}
	n := seconds*int64(time.Second) + nanoseconds
	if n%unit == 0 {
		return OfInt(n / unit)
	}
	return fraction(float64(n/unit) + float64(n%unit)/float64(unit))
}

// Plan is a layout whose columns are found in a table.
type Plan struct {
	Inputs, Targets         []Column
	inputDType, targetDType gotorch.DType
	inputWidth, targetWidth int // of a row
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
	if p.Inputs, p.inputWidth, err = find(op, layout.Inputs, names); err == nil {
		p.Targets, p.targetWidth, err = find(op, layout.Targets, names)
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

// find returns columns, and how many numbers they have in a row.
func find(op string, wanted []tabular.Column, names []string) ([]Column, int, error) {
	found, width := make([]Column, len(wanted)), 0
	for i, c := range wanted {
		check(op, c)
		at, within := slices.Index(names, c.Name), []string(nil)
		for end := strings.LastIndexByte(c.Name, '.'); at < 0 && end >= 0; end = strings.LastIndexByte(c.Name[:end], '.') {
			if at = slices.Index(names, c.Name[:end]); at >= 0 {
				within = strings.Split(c.Name[end+1:], ".")
			}
		}
		if at < 0 {
			return nil, 0, missing(c.Name, names)
		}
		if slices.Contains(names[at+1:], names[at]) {
			return nil, 0, fmt.Errorf("there are two columns %q", names[at])
		}
		found[i] = Column{
			Name: c.Name, At: at, Within: within, Encode: c.Encode, Unit: c.Unit, List: c.Size > 0, Size: max(c.Size, 1), offset: width,
			missing: number(op, "Missing", c.Missing), unknown: number(op, "Unknown", c.Unknown), pad: number(op, "Pad", c.Pad), timeFormats: timeFormats,
		}
		if c.TimeFormat != "" {
			found[i].timeFormats = []string{c.TimeFormat}
		}
		width += found[i].Size
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
	return found, width, nil
}

// check panics with a ValueError for fields of a column that do not go together.
func check(op string, c tabular.Column) {
	text := ""
	switch {
	case c.Size < 0 || c.Size > math.MaxInt32:
		text = fmt.Sprintf("a Size of %d", c.Size)
	case c.Unit < 0:
		text = fmt.Sprintf("a Unit of %v", c.Unit)
	case c.Unknown != nil && c.Classes == nil:
		text = "Unknown, which is for Classes, and no Classes"
	case c.Pad != nil && c.Size == 0 && c.Encode == nil:
		text = "Pad, which is for lists and Encode, and no Size"
	case c.Encode != nil && (c.Classes != nil || c.Unit != 0):
		text = "Encode, and another field that says how text is a number"
	case c.Classes != nil && c.Unit != 0:
		text = "Classes and a Unit"
	case c.TimeFormat != "" && c.Unit == 0:
		text = "a TimeFormat, and no Unit that says in what times are counted"
	case c.TimeFormat != "" && dateWithoutYear(c.TimeFormat):
		text = fmt.Sprintf("the TimeFormat %q, which has a part of a date, and no year", c.TimeFormat)
	default:
		return
	}
	panic(args.ValueError(op, "column %q has %s", c.Name, text))
}

// dateWithoutYear reports whether times that are written so have a month or a day, and no year: they are after no beginning.
func dateWithoutYear(format string) bool {
	of := func(year, month, day int) string {
		return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Format(format)
	}
	return of(2001, 2, 3) == of(2007, 2, 3) && of(2001, 2, 3) != of(2001, 3, 4) // the first two are the same day of the week
}

// number is a number of a layout; nil: it was not given.
func number(op, name string, given gotorch.Scalar) *Number {
	if !args.Given(given) {
		return nil
	}
	n := OfFloat(args.Float(op, name, given, 0))
	switch v := reflect.Indirect(reflect.ValueOf(given)); {
	case v.CanInt():
		n = OfInt(v.Int())
	case v.CanUint():
		n = OfUint(v.Uint())
	}
	return &n
}

// missing is the error for a column that is not there, which may be a struct's.
func missing(name string, names []string) error {
	var within []string
	for _, other := range names {
		if strings.HasPrefix(other, name+".") {
			within = append(within, other)
		}
	}
	if within != nil {
		return fmt.Errorf("column %q has others within it, and a layout names those: %s", name, some(within))
	}
	return fmt.Errorf("there is no column %q: it has %s", name, some(names))
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
	field           []Number // memory for the numbers of a field
}

// Rows begins to gather about n rows.
func (p *Plan) Rows(n int) *Rows {
	return &Rows{plan: p, inputs: newSide(p.inputDType, n*p.inputWidth), targets: newSide(p.targetDType, n*p.targetWidth)}
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

func (s *side) add(numbers []Number) error {
	for i := range numbers {
		n := &numbers[i]
		switch s.dtype {
		case gotorch.Int64:
			if !n.Integer {
				return NoInt64(*n)
			}
			s.ints = append(s.ints, n.Int)
		case gotorch.Float32:
			s.singly = append(s.singly, n.Single)
		default:
			s.floats = append(s.floats, n.Float)
		}
	}
	return nil
}

// NoInt64 is the error for a number that is no int64.
func NoInt64(n Number) error { return fmt.Errorf("%v is no int64", n.Float) }

// Add adds a row. field appends the numbers of a column to others. The error says in which column it was.
func (r *Rows) Add(field func(c *Column, to []Number) ([]Number, error)) error {
	for _, part := range []struct {
		columns []Column
		to      *side
	}{{r.plan.Inputs, &r.inputs}, {r.plan.Targets, &r.targets}} {
		for i := range part.columns {
			c := &part.columns[i]
			numbers, err := field(c, r.field[:0])
			if err == nil {
				r.field = numbers
				err = part.to.add(numbers)
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
	inputs := append(slices.Clone(front), int64(r.plan.inputWidth))
	targets := front
	if len(r.plan.Targets) > 1 || r.plan.Targets[0].List {
		targets = append(slices.Clone(front), int64(r.plan.targetWidth))
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

// LargestSize returns how many numbers of a row are in the column that has most of them.
func (p *Plan) LargestSize() int64 {
	size := 1
	for i := range p.Columns() {
		size = max(size, p.Column(i).Size)
	}
	return int64(size)
}

// DType returns what the i-th column becomes.
func (p *Plan) DType(i int) gotorch.DType {
	if i < len(p.Inputs) {
		return p.inputDType
	}
	return p.targetDType
}
