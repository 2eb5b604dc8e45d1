package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	meta "github.com/parquet-go/parquet-go/format"

	"gotorch.dev/gotorch/data/internal/columns"
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

// packed takes the numbers that lie bit to bit, of the many that there is room for: n of them, at the most. The last of the
// room may be missing.
func (b *bits) packed(n, room, width int) ([]byte, error) {
	part, err := b.take(min(len(*b), (room*width+7)/8))
	if err == nil && len(part)*8 < n*width {
		err = fmt.Errorf("%d numbers of %d bits should be in %d bytes: %w", n, width, len(part), io.ErrUnexpectedEOF)
	}
	return part, err
}

// some is how many packed numbers are unpacked at a time, to where the processor has them at hand; a multiple of eight.
const some = 256

// unpackTo unpacks as many numbers as to has room for; b must have all of them.
func unpackTo[N uint32 | uint64](to []N, b []byte, width int) {
	i, at := 0, 0
	if width <= 56 { // one lies in the eight bytes that begin with its first one
		mask := uint64(1)<<width - 1
		for ; i < len(to) && at>>3+8 <= len(b); i++ {
			to[i] = N(binary.LittleEndian.Uint64(b[at>>3:]) >> (at & 7) & mask)
			at += width
		}
	}
	for ; i < len(to); i++ {
		to[i] = N(number(b, at, width))
		at += width
	}
}

// runs decodes n numbers of so many bits (RLE): same gets runs of the same number, and different the bytes of others, which
// are packed.
func runs(b bits, width, n int, same func(v uint32, n int) error, different func(b []byte, n int) error) error {
	if width > 32 {
		return fmt.Errorf("numbers of %d bits are none", width)
	}
	for n > 0 {
		head, err := b.uvarint()
		if err != nil {
			return fmt.Errorf("%d values are missing: %w", n, err)
		}
		count := head >> 1
		switch {
		case head&1 != 0: // groups of eight, of which the last go beyond the end: DuckDB writes 32 at a time
			room := 8 * int(min(count, uint64(len(b)+n))) // each has a byte, or there is none for any
			values := min(room, n)
			part, err := b.packed(values, room, width)
			if err == nil {
				err = different(part, values)
			}
			if err != nil {
				return err
			}
			n -= values
		case count > uint64(n):
			return fmt.Errorf("a run has %d values, and %d are left", count, n)
		default:
			part, err := b.take((width + 7) / 8)
			if err != nil {
				return err
			}
			var word [4]byte
			copy(word[:], part)
			v := binary.LittleEndian.Uint32(word[:])
			if uint64(v)>>width != 0 {
				return fmt.Errorf("a run is of %d, which has more than %d bits", v, width)
			}
			if err := same(v, int(count)); err != nil {
				return err
			}
			n -= int(count)
		}
	}
	return nil
}

// flags appends n numbers of one bit to others.
func flags(to []uint8, b bits, n int) ([]uint8, error) {
	err := runs(b, 1, n, func(v uint32, n int) error {
		to = repeated(to, uint8(v), n)
		return nil
	}, func(b []byte, n int) error {
		to = appendBits(to, b, n)
		return nil
	})
	return to, err
}

// repeated appends a value some times.
func repeated[T any](to []T, v T, n int) []T {
	to = slices.Grow(to, n)
	begin := len(to)
	to = to[:begin+n]
	for i := range to[begin:] {
		to[begin+i] = v
	}
	return to
}

// appendBits appends n bits of b, each of which is a number.
func appendBits(to []uint8, b []byte, n int) []uint8 {
	to = slices.Grow(to, n+7)
	begin := len(to)
	for _, part := range b[:(n+7)/8] {
		to = append(to, part&1, part>>1&1, part>>2&1, part>>3&1, part>>4&1, part>>5&1, part>>6&1, part>>7)
	}
	return to[:begin+n]
}

// deltas decodes n integers, which it appends to others, and takes their bytes (DELTA_BINARY_PACKED).
func deltas[T columns.Value](to []T, b *bits, n int) ([]T, error) {
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
		return to, nil
	}
	each := int(size / parts)
	to = append(to, T(last))
	var buffer [some]uint64
	for n--; n > 0; {
		least, err := b.varint()
		if err != nil {
			return nil, err
		}
		widths, err := b.take(int(parts))
		if err != nil {
			return nil, err
		}
		for _, width := range widths {
			if n == 0 {
				break
			}
			if width > 64 {
				return nil, fmt.Errorf("numbers of %d bits are none", width)
			}
			left := min(each, n)
			part, err := b.packed(left, each, int(width))
			if err != nil {
				return nil, err
			}
			n -= left
			to = slices.Grow(to, left)
			for left > 0 {
				steps := buffer[:min(some, left)]
				unpackTo(steps, part, int(width))
				for _, step := range steps {
					last += least + int64(step)
					to = append(to, T(last))
				}
				left -= len(steps)
				part = part[min(len(part), some/8*int(width)):]
			}
		}
	}
	return to, nil
}

// texts gives n texts of a page, of at most so many bytes together: one may begin with as much of the one before as it
// says. Their lengths come into memory, which may be used again.
func texts(b bits, encoding meta.Encoding, n int, most int64, memory *[]int64, give func([]byte)) error {
	var prefixes []int64
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
		if prefixes, err = deltas([]int64{}, &b, n); err != nil {
			return err
		}
	case meta.DeltaLengthByteArray:
	default:
		return unknown(encoding, meta.ByteArray)
	}
	lengths, err := deltas((*memory)[:0], &b, n)
	if err != nil {
		return err
	}
	*memory = lengths
	var last []byte
	for i, length := range lengths {
		if length < 0 || length > int64(len(b)) {
			return fmt.Errorf("text %d should have %d more bytes, and the page has %d", i, length, len(b))
		}
		text := b[:length]
		b = b[length:]
		if prefixes != nil {
			prefix := prefixes[i]
			if prefix < 0 || prefix > int64(len(last)) {
				return fmt.Errorf("text %d should begin with %d bytes of the one before, which has %d", i, prefix, len(last))
			}
			last = append(last[:prefix], text...)
			text = last
		}
		if most -= int64(len(text)); most < 0 {
			return errors.New("its texts have more bytes than MaxPage allows")
		}
		give(text)
	}
	return nil
}

func unknown(encoding meta.Encoding, kind meta.Type) error {
	return fmt.Errorf("values of type %v are encoded as %s, which is not read", kind, encoding)
}
