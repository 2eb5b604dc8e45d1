package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathbits "math/bits"
	"slices"
	"strconv"

	meta "github.com/parquet-go/parquet-go/format"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/internal/columns"
)

// converted is a column whose values need more than a conversion of Go's, or lie in structs or lists. A value is converted once
// for each page or dictionary that it is in, and kept as the tensor's type: as many for a row as the column's Size.
type converted[T int64 | float32 | float64] struct {
	c      *columns.Column
	of     nesting
	source source
	width  int // numbers of a value: one, or with Encode the Size
	as     func(columns.Number) (T, bool)
	most   int64 // numbers of a dictionary

	all     []T
	there   []uint8
	reasons reasons // by the index in all
	rows    int
	want    int // rows
	open    int // elements of the last row's list, which may go on in the next page; -1: there is none, or it is null

	page, dictionary         part[T]
	hasDictionary            bool
	repetitions, definitions []uint8
	places                   []uint32
	numbers                  []columns.Number
}

// part is values of a page.
type part[T any] struct {
	all     []T
	there   []uint8 // of each: Present or Refused
	reasons reasons
}

// reasons are why values are refused. A hostile file does not get memory for more of them than anybody reads.
type reasons map[int]error

func (r *reasons) add(at int, err error) {
	if *r == nil {
		*r = reasons{}
	}
	if len(*r) < 1000 {
		(*r)[at] = err
	}
}

func (r reasons) get(at int) error {
	if err := r[at]; err != nil {
		return err
	}
	return errors.New("it does not fit the layout, as others of its group")
}

// source decodes n values of a page, and gives the numbers of each, or why it has none.
type source func(b bits, encoding meta.Encoding, n int, most int64, give func([]columns.Number, error)) error

func newConverted[T int64 | float32 | float64](c column, w *columns.Column, most int64, as func(columns.Number) (T, bool)) (values, error) {
	source, err := newSource(c, w)
	if err != nil {
		return nil, err
	}
	v := &converted[T]{c: w, source: source, width: 1, as: as, most: most, open: -1}
	if w.Encode != nil {
		v.width = w.Size
	}
	return v, nil
}

func (v *converted[T]) begin(rows, likely int, of nesting) {
	if n := likely * v.c.Size; cap(v.all) < n {
		v.all, v.there = make([]T, 0, n), make([]uint8, 0, n)
	}
	v.all, v.there, v.reasons, v.dictionary, v.hasDictionary = v.all[:0], v.there[:0], nil, part[T]{}, false
	v.of, v.rows, v.want, v.open = of, 0, rows, -1
}

func (v *converted[T]) count() int { return v.rows }

func (v *converted[T]) done() {
	v.complete()
	v.page, v.dictionary, v.places, v.repetitions, v.definitions = part[T]{}, part[T]{}, nil, nil, nil
}

func (v *converted[T]) setDictionary(b bits, n int, most int64) error {
	if n < 0 || v.hasDictionary {
		return fmt.Errorf("it is a dictionary of %d values, and the column has one of %d", n, len(v.dictionary.there))
	}
	if int64(n) > v.most/int64(v.width) {
		return fmt.Errorf("the dictionary has %d values of %d numbers, and MaxRows allows %d", n, v.width, v.most)
	}
	v.hasDictionary = true
	return v.decode(&v.dictionary, b, meta.Plain, n, most)
}

// decode converts the n values of a page.
func (v *converted[T]) decode(to *part[T], b bits, encoding meta.Encoding, n int, most int64) error {
	*to = part[T]{all: to.all[:0], there: to.there[:0]}
	if n == 0 {
		return nil
	}
	return v.source(b, encoding, n, most, func(numbers []columns.Number, err error) {
		begin := len(to.all)
		for _, number := range numbers {
			one, is := v.as(number)
			if !is && err == nil {
				err = columns.NoInt64(number)
			}
			to.all = append(to.all, one)
		}
		if err != nil {
			to.reasons.add(len(to.there), err)
			to.there = append(to.there, columns.Refused)
			to.all = repeated(to.all[:begin], 0, v.width)
			return
		}
		to.there = append(to.there, columns.Present)
	})
}

// levels decodes n numbers from 0 to most.
func levels(memory []uint8, b bits, n, most int) ([]uint8, error) {
	if most == 0 {
		return repeated(memory[:0], 0, n), nil
	}
	width := mathbits.Len(uint(most))
	to := slices.Grow(memory[:0], n)
	err := runs(b, width, n, func(level uint32, n int) error {
		to = repeated(to, uint8(level), n)
		return nil
	}, func(b []byte, n int) error {
		for i := range n {
			to = append(to, uint8(number(b, i*width, width)))
		}
		return nil
	})
	if err == nil && n > 0 && int(slices.Max(to)) > most {
		err = fmt.Errorf("a level is %d, and the highest %d", slices.Max(to), most)
	}
	return to, err
}

func (v *converted[T]) data(b, repetitions, definitions bits, encoding meta.Encoding, n int, most int64) (err error) {
	if v.repetitions, err = levels(v.repetitions, repetitions, n, v.of.repetition); err == nil {
		v.definitions, err = levels(v.definitions, definitions, n, v.of.definition)
	}
	if err != nil {
		return fmt.Errorf("its levels: %w", err)
	}
	present := 0
	for _, level := range v.definitions {
		if int(level) == v.of.definition {
			present++
		}
	}
	from, places := &v.page, []uint32(nil)
	switch {
	case present == 0:
	case encoding == meta.RLEDictionary || encoding == plainDictionary:
		from = &v.dictionary
		v.places, err = ofDictionary(v.places[:0], b, present)
		places = v.places
	default:
		err = v.decode(from, b, encoding, present, most)
	}
	if err != nil {
		return err
	}
	next := 0
	for i, definition := range v.definitions {
		if v.repetitions[i] == 0 {
			v.complete()
			if v.rows++; v.rows > v.want {
				return fmt.Errorf("it has more rows than the group, %d", v.want)
			}
			v.open = 0
		} else if v.open < 0 {
			return errors.New("it continues a list that has not begun")
		}
		switch level := int(definition); {
		case level == v.of.definition:
			at := next
			if next++; places != nil {
				at = int(places[at])
			}
			if at >= len(from.there) {
				return fmt.Errorf("a value is the dictionary's %d, which has %d", at, len(from.there))
			}
			v.add(from, at)
		case v.of.repetition == 0 || v.repetitions[i] == 0 && level < v.of.empty:
			v.fill(columns.Absent, v.c.Size, 0)
			v.open = -1
		case level >= v.of.list:
			if v.open++; v.open <= v.c.Size {
				v.fill(columns.Absent, 1, 0)
			}
		}
	}
	if v.of.repetition == 0 {
		v.open = -1
	}
	return nil
}

// add adds a value of a page to the row.
func (v *converted[T]) add(from *part[T], at int) {
	if v.of.repetition > 0 {
		if v.open++; v.open > v.c.Size {
			return // complete says so
		}
	}
	if from.there[at] == columns.Refused {
		v.reasons.add(len(v.all), from.reasons.get(at))
	}
	v.all = append(v.all, from.all[at*v.width:][:v.width]...)
	v.there = repeated(v.there, from.there[at], v.width)
}

// fill adds n numbers of one kind to the row.
func (v *converted[T]) fill(there uint8, n int, value T) {
	v.all, v.there = repeated(v.all, value, n), repeated(v.there, there, n)
}

// complete ends the row of a list.
func (v *converted[T]) complete() {
	n := v.open
	if v.open = -1; n < 0 || v.of.repetition == 0 {
		return
	}
	pads, err := v.c.Padded(v.numbers[:0], n)
	v.numbers = pads[:0]
	if err == nil {
		for _, pad := range pads {
			one, is := v.as(pad)
			if !is {
				err = columns.NoInt64(pad)
			}
			v.fill(columns.Present, 1, one)
		}
	} else {
		v.fill(columns.Refused, max(0, v.c.Size-n), 0)
	}
	if err != nil {
		begin := len(v.all) - v.c.Size
		v.there[begin] = columns.Refused
		v.reasons.add(begin, err)
	}
}

func (v *converted[T]) fillBlock(r *columns.Rows, k int, places []columns.Place) int {
	return columns.Fill(r, k, places, v.all, v.there)
}

func (v *converted[T]) numbersOf(c *columns.Column, to []columns.Number, row int) ([]columns.Number, error) {
	begin := row * c.Size
	there := v.there[begin:][:c.Size]
	if at := slices.Index(there, columns.Refused); at >= 0 {
		return to, v.reasons.get(begin + at)
	}
	if !slices.Contains(there, columns.Present) {
		return c.Missing(to)
	}
	for j := range there {
		var n columns.Number
		var err error
		switch value := any(v.all[begin+j]).(type) {
		case int64:
			n = columns.OfInt(value)
		case float32:
			n = columns.OfFloat(float64(value))
		case float64:
			n = columns.OfFloat(value)
		}
		if there[j] == columns.Absent {
			if n, err = c.Element(); err != nil {
				return to, err
			}
		}
		to = append(to, n)
	}
	return to, nil
}

// Sources ------------------------------------------------------------------------------------------

func newSource(c column, w *columns.Column) (source, error) {
	switch kind := c.Type.V; {
	case kind == meta.Boolean:
		return decodedBy(booleans, func(v uint8) (columns.Number, error) {
			if w.Classes != nil {
				return w.Class(strconv.FormatBool(v != 0))
			}
			return columns.OfInt(int64(v)), nil
		}), nil
	case kind == meta.Int32 && c.unsigned():
		return decodedBy(integers[uint32](kind), func(v uint32) (columns.Number, error) { return ofUint(w, uint64(v)) }), nil
	case kind == meta.Int64 && c.unsigned():
		return decodedBy(integers[uint64](kind), func(v uint64) (columns.Number, error) { return ofUint(w, v) }), nil
	case kind == meta.Int32:
		of := ofInt(c, w)
		return decodedBy(integers[int32](kind), func(v int32) (columns.Number, error) { return of(int64(v)) }), nil
	case kind == meta.Int64:
		return decodedBy(integers[int64](kind), ofInt(c, w)), nil
	case kind == meta.Float:
		return decodedBy(numbers[float32](kind), func(v float32) (columns.Number, error) { return columns.OfFloat(float64(v)), nil }), nil
	case kind == meta.Double:
		return decodedBy(numbers[float64](kind), func(v float64) (columns.Number, error) { return columns.OfFloat(v), nil }), nil
	case kind == meta.ByteArray || kind == meta.FixedLenByteArray || kind == meta.Int96:
		of := ofBytes(c, w)
		size := int(c.TypeLength.V)
		if kind == meta.Int96 {
			size = 12
		}
		var lengths []int64
		var memory []columns.Number
		return func(b bits, encoding meta.Encoding, n int, most int64, give func([]columns.Number, error)) error {
			each := func(text []byte) {
				numbers, err := of(memory[:0], text)
				memory = numbers[:0]
				give(numbers, err)
			}
			if kind == meta.ByteArray {
				return texts(b, encoding, n, most, &lengths, each)
			}
			return fixed(b, kind, encoding, n, size, most, &lengths, each)
		}, nil
	}
	return nil, fmt.Errorf("it has values of type %v, which is not read", c.Type.V)
}

// decodedBy is a source of numbers.
func decodedBy[T columns.Value](decode func([]T, bits, meta.Encoding, int, int64) ([]T, error), of func(T) (columns.Number, error)) source {
	var memory []T
	return func(b bits, encoding meta.Encoding, n int, most int64, give func([]columns.Number, error)) error {
		all, err := decode(memory[:0], b, encoding, n, most)
		if err != nil {
			return err
		}
		memory = all[:0]
		var one [1]columns.Number
		for _, v := range all {
			one[0], err = of(v)
			give(one[:], err)
		}
		return nil
	}
}

func ofUint(w *columns.Column, n uint64) (columns.Number, error) {
	if w.Classes != nil {
		return w.Class(strconv.FormatUint(n, 10))
	}
	return columns.OfUint(n), nil
}

// ofInt is what an integer of a column stands for.
func ofInt(c column, w *columns.Column) func(n int64) (columns.Number, error) {
	if w.Classes != nil {
		return func(n int64) (columns.Number, error) { return w.Class(strconv.FormatInt(n, 10)) }
	}
	per := int64(0) // how many are a second
	switch t := c.logical().(type) {
	case *meta.DecimalType:
		var unscaled big.Int
		return func(n int64) (columns.Number, error) {
			return columns.OfDecimal(unscaled.SetInt64(n), int(t.Scale)), nil
		}
	case *meta.DateType:
		if w.Unit != 0 {
			return func(n int64) (columns.Number, error) { return w.Time(n*86400, 0), nil }
		}
	case *meta.TimeType:
		per = perSecond(t.Unit)
	case *meta.TimestampType:
		per = perSecond(t.Unit)
	}
	if w.Unit == 0 || per == 0 {
		return func(n int64) (columns.Number, error) { return columns.OfInt(n), nil }
	}
	return func(n int64) (columns.Number, error) {
		seconds, rest := n/per, n%per
		if rest < 0 {
			seconds, rest = seconds-1, rest+per
		}
		return w.Time(seconds, rest*(1e9/per)), nil
	}
}

func perSecond(unit meta.TimeUnit) int64 {
	switch unit.Value.(type) {
	case *meta.MilliSeconds:
		return 1e3
	case *meta.MicroSeconds:
		return 1e6
	}
	return 1e9
}

// ofBytes is what the bytes of a value stand for.
func ofBytes(c column, w *columns.Column) func(to []columns.Number, b []byte) ([]columns.Number, error) {
	one := func(of func(b []byte) (columns.Number, error)) func([]columns.Number, []byte) ([]columns.Number, error) {
		return func(to []columns.Number, b []byte) ([]columns.Number, error) {
			n, err := of(b)
			return append(to, n), err
		}
	}
	if c.Type.V == meta.Int96 {
		return one(func(b []byte) (columns.Number, error) { return ofInt96(w, b), nil })
	}
	switch t := c.logical().(type) {
	case *meta.DecimalType:
		var unscaled, all big.Int
		return one(func(b []byte) (columns.Number, error) {
			if len(b) > widestDecimal {
				return columns.Number{}, fmt.Errorf("the decimal has %d bytes", len(b))
			}
			unscaled.SetBytes(b)
			if len(b) > 0 && b[0] >= 0x80 {
				unscaled.Sub(&unscaled, all.Lsh(big.NewInt(1), uint(8*len(b))))
			}
			return columns.OfDecimal(&unscaled, int(t.Scale)), nil
		})
	case *meta.Float16Type:
		return one(func(b []byte) (columns.Number, error) {
			half := gotorch.F16FromBits(binary.LittleEndian.Uint16(b))
			return columns.OfFloat(float64(half.Float32())), nil
		})
	}
	text := func(b []byte) string { return string(b) }
	if _, uuid := c.logical().(*meta.UUIDType); uuid && c.TypeLength.V == 16 {
		text = func(b []byte) string { return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]) }
	}
	switch {
	case w.Encode != nil:
		return func(to []columns.Number, b []byte) ([]columns.Number, error) { return w.Encoded(to, text(b)) }
	case w.Unit != 0:
		return one(func(b []byte) (columns.Number, error) { return w.TimeText(text(b)) })
	}
	return one(func(b []byte) (columns.Number, error) { return w.Class(text(b)) })
}

// ofInt96 is a time of old files: nanoseconds of a day, and the day, of which 1970-01-01 is the 2440588th.
func ofInt96(w *columns.Column, b []byte) columns.Number {
	nanoseconds, day := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint32(b[8:]))
	seconds := (day-2440588)*86400 + nanoseconds/1e9
	nanoseconds %= 1e9
	if w.Unit != 0 {
		return w.Time(seconds, nanoseconds)
	}
	stored := columns.Column{Unit: 1}
	return stored.Time(seconds, nanoseconds)
}

// fixed gives n values that have size bytes each.
func fixed(b bits, kind meta.Type, encoding meta.Encoding, n, size int, most int64, lengths *[]int64, give func([]byte)) error {
	total := int64(n) * int64(size)
	switch {
	case encoding == meta.Plain && int64(len(b)) < total:
		return fmt.Errorf("%d values should have %d bytes, and have %d: %w", n, total, len(b), io.ErrUnexpectedEOF)
	case encoding == meta.Plain:
		for i := range n {
			give(b[i*size:][:size])
		}
		return nil
	case encoding == meta.ByteStreamSplit && int64(len(b)) != total:
		return fmt.Errorf("%d values should have %d bytes, and have %d", n, total, len(b))
	case encoding == meta.ByteStreamSplit:
		value := make([]byte, size)
		for i := range n {
			for k := range value {
				value[k] = b[k*n+i]
			}
			give(value)
		}
		return nil
	case encoding == meta.DeltaByteArray && kind == meta.FixedLenByteArray:
		var wrong error
		err := texts(b, encoding, n, most, lengths, func(text []byte) {
			if len(text) != size {
				wrong = fmt.Errorf("a value has %d bytes, and should have %d", len(text), size)
			}
			if wrong == nil {
				give(text)
			}
		})
		return errors.Join(err, wrong)
	}
	return unknown(encoding, kind)
}

// newValues returns a column of a tensor's type, without values yet. No more numbers than most may be in a dictionary.
func newValues(c column, w *columns.Column, dtype gotorch.DType, most int64) (values, error) {
	kind := c.Type.V
	_, decimal := c.logical().(*meta.DecimalType)
	if c.repetition == 0 && c.definition <= 1 && !w.List && w.Encode == nil && w.Unit == 0 && !w.HasUnknown() && !decimal {
		switch {
		case kind == meta.ByteArray:
			return &typed[int32]{decode: ofClasses(w.Classes)}, nil
		case w.Classes != nil:
		case kind == meta.Boolean:
			return &typed[uint8]{decode: booleans}, nil
		case kind == meta.Int32 && c.unsigned():
			return &typed[uint32]{decode: integers[uint32](kind)}, nil
		case kind == meta.Int32:
			return &typed[int32]{decode: integers[int32](kind)}, nil
		case kind == meta.Int64 && c.unsigned():
			return &typed[uint64]{decode: integers[uint64](kind)}, nil
		case kind == meta.Int64:
			return &typed[int64]{decode: integers[int64](kind)}, nil
		case kind == meta.Float:
			return &typed[float32]{decode: numbers[float32](kind)}, nil
		case kind == meta.Double:
			return &typed[float64]{decode: numbers[float64](kind)}, nil
		}
	}
	switch dtype {
	case gotorch.Int64:
		return newConverted(c, w, most, func(n columns.Number) (int64, bool) { return n.Int, n.Integer })
	case gotorch.Float32:
		return newConverted(c, w, most, func(n columns.Number) (float32, bool) { return n.Single, true })
	}
	return newConverted(c, w, most, func(n columns.Number) (float64, bool) { return n.Float, true })
}
