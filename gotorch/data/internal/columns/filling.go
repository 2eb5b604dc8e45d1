package columns

import (
	"math"

	"gotorch.dev/gotorch"
)

// Value is a type that the values of a column are kept as: of bools 0 and 1, and of text the number of its class.
type Value interface {
	uint8 | int32 | uint32 | int64 | uint64 | float32 | float64
}

// Place is where one row comes from, and goes to.
type Place struct{ From, To int }

// Block begins n rows that are filled column by column, by [Fill].
func (p *Plan) Block(n int) *Rows {
	r := p.Rows(n)
	r.n = n
	for _, s := range []*side{&r.inputs, &r.targets} {
		s.ints, s.singly, s.floats = s.ints[:cap(s.ints)], s.singly[:cap(s.singly)], s.floats[:cap(s.floats)]
	}
	return r
}

// Columns returns how many columns the inputs and the targets have together.
func (p *Plan) Columns() int { return len(p.Inputs) + len(p.Targets) }

// The states of a value in a column. A row with one that is Refused cannot be filled.
const (
	Absent = iota
	Present
	Refused
)

// Fill puts values into the k-th column of a block, as Add does with the numbers of each, but with one conversion from the
// values' type to the tensor's. A row has as many values as the column's Size. there says of each value whether there is one;
// nil: all are Present. It returns the first of the places that could not be filled, where Add says why; len(places): all were.
func Fill[T Value](r *Rows, k int, places []Place, values []T, there []uint8) int {
	c, s, stride := r.plan.Column(k), &r.inputs, r.plan.inputWidth
	if k >= len(r.plan.Inputs) {
		s, stride = &r.targets, r.plan.targetWidth
	}
	f := filler[T]{stride: stride, size: c.Size, places: places, values: values, there: there}
	if c.Classes != nil && c.unknown == nil {
		f.allowed = func(class T) bool { return class >= 0 } // others are none
	}
	missing := Number{}
	f.fails = c.missing == nil
	if !f.fails {
		missing = *c.missing
	}
	for f.at = range c.Size {
		first := 0
		switch at := c.offset + f.at; s.dtype {
		case gotorch.Int64:
			if c.Classes == nil {
				f.allowed = fits[T]()
			}
			f.fails = f.fails || !missing.Integer
			first = fill(s.ints[min(at, len(s.ints)):], &f, missing.Int)
		case gotorch.Float32:
			first = fill(s.singly[min(at, len(s.singly)):], &f, missing.Single)
		default:
			first = fill(s.floats[min(at, len(s.floats)):], &f, missing.Float)
		}
		f.places = f.places[:first]
	}
	return len(f.places)
}

// filler is where values come from, of which the next has an index in each row.
type filler[T Value] struct {
	places           []Place
	values           []T
	there            []uint8
	stride, size, at int
	allowed          func(T) bool // nil: all are
	fails            bool         // where a value is missing
}

func fill[D int64 | float32 | float64, T Value](to []D, f *filler[T], missing D) int {
	values, there, allowed, stride, size, at := f.values, f.there, f.allowed, f.stride, f.size, f.at
	if there == nil && allowed == nil {
		for _, p := range f.places {
			to[p.To*stride] = D(values[p.From*size+at])
		}
		return len(f.places)
	}
	for i, p := range f.places {
		from := p.From*size + at
		switch {
		case there != nil && there[from] != Present:
			if f.fails || there[from] != Absent {
				return i
			}
			to[p.To*stride] = missing
		case allowed != nil && !allowed(values[from]):
			return i
		default:
			to[p.To*stride] = D(values[from])
		}
	}
	return len(f.places)
}

// fits returns what reports whether a value is an int64; nil: all are.
func fits[T Value]() func(T) bool {
	switch any(*new(T)).(type) {
	case float32, float64:
		return func(v T) bool { return OfFloat(float64(v)).Integer }
	case uint64:
		return func(v T) bool { return uint64(v) <= math.MaxInt64 }
	}
	return nil
}
