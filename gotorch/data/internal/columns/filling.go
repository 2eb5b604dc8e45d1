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

// Fill puts values into the k-th column of a block, as Add does with the number of each, but with one conversion from the
// values' type to the tensor's. there has a 1 for each value that is not missing; nil: none is. It returns the first of the
// places that could not be filled, where Add says why; len(places): all were.
func Fill[T Value](r *Rows, k int, places []Place, values []T, there []uint8) int {
	c, s, at, stride := r.plan.Column(k), &r.inputs, k, len(r.plan.Inputs)
	if k >= stride {
		s, at, stride = &r.targets, k-stride, len(r.plan.Targets)
	}
	var allowed func(T) bool // nil: all are
	if c.Classes != nil {
		allowed = func(class T) bool { return class >= 0 } // others are none
	}
	missing := Number{}
	fails := c.missing == nil
	if !fails {
		missing = *c.missing
	}
	switch s.dtype {
	case gotorch.Int64:
		if c.Classes == nil {
			allowed = fits[T]()
		}
		return fill(s.ints[min(at, len(s.ints)):], stride, places, values, there, allowed, missing.Int, fails || !missing.Integer)
	case gotorch.Float32:
		return fill(s.singly[min(at, len(s.singly)):], stride, places, values, there, allowed, missing.Single, fails)
	}
	return fill(s.floats[min(at, len(s.floats)):], stride, places, values, there, allowed, missing.Float, fails)
}

func fill[D int64 | float32 | float64, T Value](to []D, stride int, places []Place, values []T, there []uint8, allowed func(T) bool, missing D, fails bool) int {
	if there == nil && allowed == nil {
		for _, p := range places {
			to[p.To*stride] = D(values[p.From])
		}
		return len(places)
	}
	for i, p := range places {
		switch {
		case there != nil && there[p.From] == 0:
			if fails {
				return i
			}
			to[p.To*stride] = missing
		case allowed != nil && !allowed(values[p.From]):
			return i
		default:
			to[p.To*stride] = D(values[p.From])
		}
	}
	return len(places)
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
