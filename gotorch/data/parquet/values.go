package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"unsafe"

	meta "github.com/parquet-go/parquet-go/format"

	"gotorch.dev/gotorch/data/internal/columns"
)

// values is a column of a group: a *typed or a *converted.
type values interface {
	// begin forgets the values that there are, whose memory it keeps. There should be those of so many rows, and it takes
	// memory for those that are likely to be there.
	begin(rows, likely int, of nesting)
	// count returns of how many rows there are values.
	count() int
	// setDictionary decodes the page of the column's dictionary, which has n values.
	setDictionary(b bits, n int, most int64) error
	// data decodes the n values of a data page. Definition levels say which of them are missing, repetition levels which of them
	// are in the list of the one before; nil: the column has no such levels. Texts may have so many bytes.
	data(b, repetitions, definitions bits, encoding meta.Encoding, n int, most int64) error
	// done drops what only decoding needs.
	done()
	// fillBlock puts values into the k-th column of a block: columns.Fill.
	fillBlock(r *columns.Rows, k int, places []columns.Place) int
	// numbersOf appends the values of a row, or says why it has none.
	numbersOf(c *columns.Column, to []columns.Number, row int) ([]columns.Number, error)
}

// typed is a column whose values are kept as the type that they have in the file, one for each row.
type typed[T columns.Value] struct {
	all        []T
	there      []uint8 // 1 for each value that is not missing; nil: all are there
	dictionary []T     // nil: there is none
	levels     []uint8 // of the page
	flags      []uint8 // memory for there

	// decode appends n values to others, none of which is missing.
	decode func(to []T, b bits, encoding meta.Encoding, n int, most int64) ([]T, error)
}

func (v *typed[T]) begin(_, likely int, _ nesting) {
	if cap(v.all) < likely {
		v.all = make([]T, 0, likely)
	}
	if v.there != nil {
		v.flags = v.there
	}
	v.all, v.there, v.dictionary = v.all[:0], nil, nil
}

func (v *typed[T]) count() int { return len(v.all) }

func (v *typed[T]) done() { v.dictionary = nil }

func (v *typed[T]) setDictionary(b bits, n int, most int64) error {
	if n < 0 || v.dictionary != nil {
		return fmt.Errorf("it is a dictionary of %d values, and the column has one of %d", n, len(v.dictionary))
	}
	words, err := v.decode(nil, b, meta.Plain, n, most)
	v.dictionary = slices.Grow(words, 1) // one of no values is one
	return err
}

func (v *typed[T]) data(b, _, levels bits, encoding meta.Encoding, n int, most int64) (err error) {
	present, begin := n, len(v.all)
	if levels != nil {
		if v.levels, err = flags(v.levels[:0], levels, n); err != nil {
			return fmt.Errorf("its levels: %w", err)
		}
		present = 0
		for _, is := range v.levels {
			present += int(is)
		}
	}
	all := v.all
	switch {
	case present == 0:
	case encoding == meta.RLEDictionary || encoding == plainDictionary:
		all, err = v.ofDictionary(all, b, present)
	default:
		all, err = v.decode(all, b, encoding, present, most)
	}
	if err != nil {
		return err
	}
	if present == n {
		if v.there != nil {
			v.there = repeated(v.there, 1, n)
		}
		v.all = all
		return nil
	}
	if v.there == nil {
		v.there = repeated(slices.Grow(v.flags[:0], cap(all)), 1, begin)
	}
	v.there = append(v.there, v.levels...)
	all = slices.Grow(all, n-present)[:begin+n]
	spread(all[begin:], v.levels, present)
	v.all = all
	return nil
}

// spread moves the values at the beginning to where they are there. What stands between them then has no meaning.
func spread[T any](all []T, there []uint8, present int) {
	from := present - 1
	for to := len(all) - 1; to > from && from >= 0; to-- {
		all[to] = all[from]
		from -= int(there[to])
	}
}

// ofDictionary appends n values that a page has as their places in the dictionary.
func (v *typed[T]) ofDictionary(to []T, b bits, n int) ([]T, error) {
	width, err := b.take(1)
	if err != nil {
		return nil, err
	}
	beyond := func(place uint32) error {
		return fmt.Errorf("a value is the dictionary's %d, which has %d", place, len(v.dictionary))
	}
	bitwise := int(width[0])
	var buffer [some]uint32
	err = runs(b, bitwise, n, func(place uint32, n int) error {
		if uint64(place) >= uint64(len(v.dictionary)) {
			return beyond(place)
		}
		to = repeated(to, v.dictionary[place], n)
		return nil
	}, func(b []byte, n int) error {
		to = slices.Grow(to, n)
		dictionary := v.dictionary
		for n > 0 {
			places := buffer[:min(some, n)]
			unpackTo(places, b, bitwise)
			out := to[len(to) : len(to)+len(places)]
			for i, place := range places {
				if uint64(place) >= uint64(len(dictionary)) {
					return beyond(place)
				}
				out[i] = dictionary[place]
			}
			to = to[:len(to)+len(places)]
			n -= len(places)
			b = b[min(len(b), some/8*bitwise):]
		}
		return nil
	})
	return to, err
}

// ofDictionary appends the places in a dictionary of n values.
func ofDictionary(to []uint32, b bits, n int) ([]uint32, error) {
	width, err := b.take(1)
	if err != nil {
		return nil, err
	}
	bitwise := int(width[0])
	err = runs(b, bitwise, n, func(place uint32, n int) error {
		to = repeated(to, place, n)
		return nil
	}, func(b []byte, n int) error {
		to = slices.Grow(to, n)[:len(to)+n]
		unpackTo(to[len(to)-n:], b, bitwise)
		return nil
	})
	return to, err
}

func (v *typed[T]) fillBlock(r *columns.Rows, k int, places []columns.Place) int {
	return columns.Fill(r, k, places, v.all, v.there)
}

func (v *typed[T]) numbersOf(c *columns.Column, to []columns.Number, row int) ([]columns.Number, error) {
	if v.there != nil && v.there[row] != columns.Present {
		return c.Missing(to)
	}
	switch value := any(v.all[row]).(type) {
	case float32:
		return append(to, columns.OfFloat(float64(value))), nil
	case float64:
		return append(to, columns.OfFloat(value)), nil
	case uint64:
		return append(to, columns.OfUint(value)), nil
	}
	whole := int64(v.all[row])
	if c.Classes != nil && whole < 0 {
		return to, c.NoClass("the text")
	}
	return append(to, columns.OfInt(whole)), nil
}

// Decoders -----------------------------------------------------------------------------------------

// numbers decodes what has a fixed size.
func numbers[T columns.Value](kind meta.Type) func([]T, bits, meta.Encoding, int, int64) ([]T, error) {
	return func(to []T, b bits, encoding meta.Encoding, n int, _ int64) ([]T, error) {
		width := int(unsafe.Sizeof(*new(T)))
		switch {
		case n == 0:
			return to, nil
		case encoding == meta.Plain && len(b) < n*width:
			return nil, fmt.Errorf("%d values should have %d bytes, and have %d: %w", n, n*width, len(b), io.ErrUnexpectedEOF)
		case encoding == meta.Plain:
			to = slices.Grow(to, n)
			to = to[:len(to)+n]
			copy(bytesOf(to[len(to)-n:]), b)
			swap(to[len(to)-n:])
			return to, nil
		case encoding == meta.ByteStreamSplit && len(b) != n*width:
			return nil, fmt.Errorf("%d values should have %d bytes, and have %d", n, n*width, len(b))
		case encoding == meta.ByteStreamSplit:
			to = slices.Grow(to, n)
			to = to[:len(to)+n]
			join(bytesOf(to[len(to)-n:]), b, n)
			swap(to[len(to)-n:])
			return to, nil
		}
		return nil, unknown(encoding, kind)
	}
}

// integers decodes integers.
func integers[T columns.Value](kind meta.Type) func([]T, bits, meta.Encoding, int, int64) ([]T, error) {
	others := numbers[T](kind)
	return func(to []T, b bits, encoding meta.Encoding, n int, most int64) ([]T, error) {
		if encoding == meta.DeltaBinaryPacked && n > 0 {
			return deltas(to, &b, n)
		}
		return others(to, b, encoding, n, most)
	}
}

// booleans decodes bools.
func booleans(to []uint8, b bits, encoding meta.Encoding, n int, _ int64) ([]uint8, error) {
	switch {
	case n == 0:
		return to, nil
	case encoding == meta.Plain:
		part, err := b.packed(n, n, 1)
		if err != nil {
			return nil, err
		}
		return appendBits(to, part, n), nil
	case encoding == meta.RLE:
		part, err := b.prefixed()
		if err != nil {
			return nil, err
		}
		return flags(to, part, n)
	}
	return nil, unknown(encoding, meta.Boolean)
}

// ofClasses decodes texts to the numbers of their classes, -1 for one that is none.
func ofClasses(classes map[string]int) func([]int32, bits, meta.Encoding, int, int64) ([]int32, error) {
	var lengths []int64
	return func(to []int32, b bits, encoding meta.Encoding, n int, most int64) ([]int32, error) {
		if n == 0 {
			return to, nil
		}
		err := texts(b, encoding, n, most, &lengths, func(text []byte) {
			class, ok := classes[string(text)]
			if !ok {
				class = -1
			}
			to = append(to, int32(class))
		})
		return to, err
	}
}

// bytesOf returns the memory of numbers.
func bytesOf[T columns.Value](numbers []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(numbers))), len(numbers)*int(unsafe.Sizeof(*new(T))))
}

// swap turns the bytes of numbers from a file's order to the machine's.
func swap[T columns.Value](numbers []T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return
	}
	b, width := bytesOf(numbers), int(unsafe.Sizeof(*new(T)))
	for ; len(b) > 0; b = b[width:] {
		slices.Reverse(b[:width])
	}
}

// join puts together n numbers of which all first bytes come first, then all second ones, and so on.
func join(to, from []byte, n int) {
	if len(to) == 4*n {
		a, b, c, d := from[:n], from[n:2*n], from[2*n:3*n], from[3*n:4*n]
		for i := range n {
			binary.LittleEndian.PutUint32(to[4*i:], uint32(a[i])|uint32(b[i])<<8|uint32(c[i])<<16|uint32(d[i])<<24)
		}
		return
	}
	a, b, c, d := from[:n], from[n:2*n], from[2*n:3*n], from[3*n:4*n]
	e, f, g, h := from[4*n:5*n], from[5*n:6*n], from[6*n:7*n], from[7*n:8*n]
	for i := range n {
		low := uint32(a[i]) | uint32(b[i])<<8 | uint32(c[i])<<16 | uint32(d[i])<<24
		high := uint32(e[i]) | uint32(f[i])<<8 | uint32(g[i])<<16 | uint32(h[i])<<24
		binary.LittleEndian.PutUint64(to[8*i:], uint64(low)|uint64(high)<<32)
	}
}
