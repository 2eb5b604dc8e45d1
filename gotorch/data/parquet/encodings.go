package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	meta "github.com/parquet-go/parquet-go/format"
)

// Pages are decoded here, and not by the module that reads what a file says of itself: it takes memory for what a run says
// that it has, which may be four thousand million values in five bytes. Here nothing is made that the page's header does not
// promise, which is held to the rows of the group before.

// plainDictionary is how old files name meta.RLEDictionary, and meta.Plain of the dictionary itself.
const plainDictionary meta.Encoding = 2

// bits is what is left of a page.
type bits []byte

func (b *bits) take(n int) ([]byte, error) {
	if n < 0 || n > len(*b) {
		return nil, fmt.Errorf("%d bytes are missing: %w", n-len(*b), io.ErrUnexpectedEOF)
	}
	taken := (*b)[:n:n]
	*b = (*b)[n:]
	return taken, nil
}

// prefixed takes as many bytes as the four before them say.
func (b *bits) prefixed() ([]byte, error) {
	length, err := b.take(4)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(length)
	if uint64(n) > uint64(len(*b)) {
		return nil, fmt.Errorf("%d bytes should follow, and %d do: %w", n, len(*b), io.ErrUnexpectedEOF)
	}
	return b.take(int(n))
}

func (b *bits) uvarint() (uint64, error) {
	n, length := binary.Uvarint(*b)
	if length <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	*b = (*b)[length:]
	return n, nil
}

func (b *bits) varint() (int64, error) {
	n, err := b.uvarint()
	return int64(n>>1) ^ -int64(n&1), err
}

// number returns the number of some bits, the first of which is the lowest; b must have all of them.
func number(b []byte, at, width int) (n uint64) {
	shift := at & 7
	if first := at >> 3; first+8 <= len(b) && shift+width <= 64 {
		return binary.LittleEndian.Uint64(b[first:]) >> shift & (1<<width - 1)
	}
	b = b[at>>3 : (at+width+7)>>3]
	if len(b) > 8 {
		return (binary.LittleEndian.Uint64(b)>>shift | uint64(b[8])<<(64-shift)) & (1<<width - 1)
	}
	for i, part := range b {
		n |= uint64(part) << (8 * i)
	}
	return n >> shift & (1<<width - 1)
}

// packed takes n numbers that lie bit to bit, of the many that there is room for, and gives them one by one. The last of
// the room may be missing.
func (b *bits) packed(n, room, width int, give func(uint64)) error {
	part, err := b.take(min(len(*b), (room*width+7)/8))
	if err != nil {
		return err
	}
	if len(part)*8 < n*width {
		return fmt.Errorf("%d numbers of %d bits should be in %d bytes: %w", n, width, len(part), io.ErrUnexpectedEOF)
	}
	for i := range n {
		give(number(part, i*width, width))
	}
	return nil
}

// runs decodes n numbers of so many bits (RLE).
func runs(b bits, width, n int) ([]uint32, error) {
	if width > 32 {
		return nil, fmt.Errorf("numbers of %d bits are none", width)
	}
	out := make([]uint32, 0, min(n, 8*len(b)))
	for len(out) < n {
		head, err := b.uvarint()
		if err != nil {
			return nil, fmt.Errorf("%d of %d values are missing: %w", n-len(out), n, err)
		}
		left, count := n-len(out), head>>1
		switch {
		case head&1 != 0: // groups of eight, of which the last may go beyond the end
			if count > uint64(left+7)/8 {
				return nil, fmt.Errorf("a run has %d groups of eight values, and %d values are left", count, left)
			}
			room := 8 * int(count)
			if err := b.packed(min(room, left), room, width, func(v uint64) { out = append(out, uint32(v)) }); err != nil {
				return nil, err
			}
		case count > uint64(left):
			return nil, fmt.Errorf("a run has %d values, and %d are left", count, left)
		default:
			part, err := b.take((width + 7) / 8)
			if err != nil {
				return nil, err
			}
			var word [4]byte
			copy(word[:], part)
			v := binary.LittleEndian.Uint32(word[:])
			if uint64(v)>>width != 0 {
				return nil, fmt.Errorf("a run is of %d, which has more than %d bits", v, width)
			}
			out = slices.Grow(out, int(count))
			for range count {
				out = append(out, v)
			}
		}
	}
	return out, nil
}

// deltas decodes n integers, and takes their bytes (DELTA_BINARY_PACKED).
func (b *bits) deltas(n int) ([]int64, error) {
	var head [3]uint64
	for i := range head {
		var err error
		if head[i], err = b.uvarint(); err != nil {
			return nil, err
		}
	}
	size, parts, total := head[0], head[1], head[2]
	last, err := b.varint()
	switch {
	case err != nil:
		return nil, err
	case total != uint64(n):
		return nil, fmt.Errorf("it says that it has %d values, and should have %d", total, n)
	case size == 0 || size > 1<<16 || parts == 0 || parts > size || size%parts != 0 || size/parts%8 != 0:
		return nil, fmt.Errorf("blocks of %d values in %d parts are none", size, parts)
	case n == 0:
		return nil, nil
	}
	each := int(size / parts)
	out := append(make([]int64, 0, min(n, 1<<16)), last)
	for len(out) < n {
		least, err := b.varint()
		if err != nil {
			return nil, err
		}
		widths, err := b.take(int(parts))
		if err != nil {
			return nil, err
		}
		for _, width := range widths {
			if len(out) == n {
				break
			}
			if width > 64 {
				return nil, fmt.Errorf("numbers of %d bits are none", width)
			}
			err := b.packed(min(each, n-len(out)), each, int(width), func(v uint64) {
				last += least + int64(v)
				out = append(out, last)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// texts gives n texts of a page, of at most so many bytes together: one may begin with as much of the one before as it
// says.
func texts(b bits, encoding meta.Encoding, n int, most int64, give func([]byte)) error {
	var prefixes, lengths []int64
	var err error
	switch encoding {
	case meta.Plain:
		for range n {
			text, err := b.prefixed()
			if err != nil {
				return err
			}
			give(text)
		}
		return nil
	case meta.DeltaByteArray:
		if prefixes, err = b.deltas(n); err != nil {
			return err
		}
	case meta.DeltaLengthByteArray:
		prefixes = make([]int64, n)
	default:
		return unknown(encoding, meta.ByteArray)
	}
	if lengths, err = b.deltas(n); err != nil {
		return err
	}
	var last []byte
	for i, prefix := range prefixes {
		if prefix < 0 || prefix > int64(len(last)) {
			return fmt.Errorf("text %d should begin with %d bytes of the one before, which has %d", i, prefix, len(last))
		}
		if lengths[i] < 0 || lengths[i] > int64(len(b)) {
			return fmt.Errorf("text %d should have %d more bytes, and the page has %d", i, lengths[i], len(b))
		}
		part, err := b.take(int(lengths[i]))
		if err != nil {
			return err
		}
		last = append(last[:prefix], part...)
		if most -= int64(len(last)); most < 0 {
			return errors.New("its texts have more bytes than MaxPage allows")
		}
		give(last)
	}
	return nil
}

func unknown(encoding meta.Encoding, kind meta.Type) error {
	return fmt.Errorf("values of type %v are encoded as %s, which is not read", kind, encoding)
}

// words decodes n values of a page, none of which is missing.
func (v *values) words(b bits, encoding meta.Encoding, n int, most int64) ([]uint64, error) {
	out := make([]uint64, 0, min(n, 8*len(b)))
	width := 0
	switch v.kind {
	case meta.Int32, meta.Float:
		width = 4
	case meta.Int64, meta.Double:
		width = 8
	}
	integers := v.kind == meta.Int32 || v.kind == meta.Int64
	switch {
	case n == 0:
		return nil, nil
	case v.kind == meta.ByteArray:
		err := texts(b, encoding, n, most, func(text []byte) {
			class, ok := v.classes[string(text)]
			if !ok {
				class = -1
			}
			out = append(out, uint64(class))
		})
		return out, err
	case v.kind == meta.Boolean && encoding == meta.Plain:
		return out, b.packed(n, n, 1, func(bit uint64) { out = append(out, bit) })
	case v.kind == meta.Boolean && encoding == meta.RLE:
		part, err := b.prefixed()
		if err != nil {
			return nil, err
		}
		levels, err := runs(part, 1, n)
		for _, bit := range levels {
			out = append(out, uint64(bit))
		}
		return out, err
	case width > 0 && encoding == meta.Plain:
		if len(b) < n*width {
			return nil, fmt.Errorf("%d values should have %d bytes, and have %d: %w", n, n*width, len(b), io.ErrUnexpectedEOF)
		}
		for i := range n {
			if width == 8 {
				out = append(out, binary.LittleEndian.Uint64(b[8*i:])) // as it is kept
			} else {
				out = append(out, v.word(uint64(binary.LittleEndian.Uint32(b[4*i:]))))
			}
		}
		return out, nil
	case width > 0 && encoding == meta.ByteStreamSplit:
		if len(b) != n*width {
			return nil, fmt.Errorf("%d values should have %d bytes, and have %d", n, n*width, len(b))
		}
		for i := range n {
			var word uint64
			for k := range width {
				word |= uint64(b[k*n+i]) << (8 * k)
			}
			out = append(out, v.word(word))
		}
		return out, nil
	case integers && encoding == meta.DeltaBinaryPacked:
		numbers, err := b.deltas(n)
		for _, number := range numbers {
			out = append(out, v.word(uint64(number)))
		}
		return out, err
	}
	return nil, unknown(encoding, v.kind)
}

// word returns a value as it is kept: an int64, or the bits of a float64.
func (v *values) word(word uint64) uint64 {
	switch {
	case v.kind == meta.Float:
		return math.Float64bits(float64(math.Float32frombits(uint32(word))))
	case v.kind == meta.Int32 && v.unsigned:
		return uint64(uint32(word))
	case v.kind == meta.Int32:
		return uint64(int32(word))
	}
	return word
}

// data decodes the n values of a data page. levels say which of them are missing; nil: none can be.
func (v *values) data(b, levels bits, encoding meta.Encoding, n int, most int64) error {
	present := n
	var there []uint32
	if levels != nil {
		var err error
		if there, err = runs(levels, 1, n); err != nil {
			return fmt.Errorf("its levels: %w", err)
		}
		present = 0
		for _, is := range there {
			present += int(is)
		}
	}
	var words []uint64
	var err error
	if encoding == meta.RLEDictionary || encoding == plainDictionary {
		words, err = v.ofDictionary(b, present)
	} else {
		words, err = v.words(b, encoding, present, most)
	}
	if err != nil {
		return err
	}
	if present == n {
		if v.missing != nil {
			v.missing = append(v.missing, make([]bool, n)...)
		}
		v.all = append(v.all, words...)
		return nil
	}
	if v.missing == nil {
		v.missing = make([]bool, len(v.all))
	}
	for _, is := range there {
		v.missing = append(v.missing, is == 0)
		if is == 0 {
			v.all = append(v.all, 0)
		} else {
			v.all, words = append(v.all, words[0]), words[1:]
		}
	}
	return nil
}

// ofDictionary decodes n values that a page has as their places in the dictionary.
func (v *values) ofDictionary(b bits, n int) ([]uint64, error) {
	if n == 0 {
		return nil, nil
	}
	width, err := b.take(1)
	if err != nil {
		return nil, err
	}
	places, err := runs(b, int(width[0]), n)
	if err != nil {
		return nil, err
	}
	words := make([]uint64, n)
	for i, place := range places {
		if uint64(place) >= uint64(len(v.dictionary)) {
			return nil, fmt.Errorf("a value is the dictionary's %d, which has %d", place, len(v.dictionary))
		}
		words[i] = v.dictionary[place]
	}
	return words, nil
}
