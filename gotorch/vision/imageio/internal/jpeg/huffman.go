package jpeg

import (
	"bytes"
	"encoding/binary"
)

// lookBits is how many bits are looked up at once.
const lookBits = 10

// huffman is a table of codes. A symbol of an AC table is a run of zeros (upper four bits) and the number of bits (lower
// four) that follow the code, which are the coefficient; of a DC table it is the number of bits.
type huffman struct {
	// symbols has, for what the next bits are: the length of the code, and from the 8th bit the symbol. It is 0 where the
	// code is longer than lookBits.
	symbols [1 << lookBits]uint16

	// values has, from the 16th bit, the coefficient where the code and its bits are not longer than lookBits; from the 8th
	// how many zeros are before it; below, how many bits all that has. It is 0 where there are more bits, or no coefficient.
	values [1 << lookBits]int32

	largest int32 // of the coefficients in values

	// What it was made of.
	counts [16]byte
	list   [256]byte
	isDC   bool
	made   bool

	// Codes of a length, and longer ones, are less than bound, as the upper of 16 bits; the place of a code's symbol in list
	// is the code plus first.
	bound [17]int32
	first [17]int32
}

func (d *Decoder) readHuffman(s []byte) error {
	for len(s) > 0 {
		class, number := s[0]>>4, s[0]&15
		if class > 1 || number > 3 {
			return FormatError("a Huffman table has a wrong number")
		}
		if len(s) < 17 {
			return FormatError("a Huffman table is too short")
		}
		n := 0
		for _, c := range s[1:17] {
			n += int(c)
		}
		if n > 256 || len(s) < 17+n {
			return FormatError("a Huffman table is too short")
		}
		h := &d.tables[4*class+number]
		d.huffman[class][number] = nil
		// Most files have the same tables as the one before.
		if counts := [16]byte(s[1:17]); !h.made || h.isDC != (class == 0) || h.counts != counts || !bytes.Equal(h.list[:n], s[17:17+n]) {
			if err := h.fill(counts, s[17:17+n], class == 0); err != nil {
				return err
			}
		}
		d.huffman[class][number] = h
		s = s[17+n:]
	}
	return nil
}

func (h *huffman) fill(counts [16]byte, symbols []byte, isDC bool) error {
	*h = huffman{counts: counts, isDC: isDC}
	copy(h.list[:], symbols)
	code, k := int32(0), 0
	for length := 1; length <= 16; length++ {
		h.first[length] = int32(k) - code
		for range counts[length-1] {
			if code >= 1<<length {
				return FormatError("a Huffman table has more codes than there are")
			}
			symbol := symbols[k]
			if isDC && symbol > 15 {
				return FormatError("a Huffman table has a symbol that is none")
			}
			if length <= lookBits {
				h.look(code, length, symbol)
			}
			code++
			k++
		}
		h.bound[length] = code << (16 - length)
		code <<= 1
	}
	h.made = true
	return nil
}

// look fills the entries of a code that is short enough.
func (h *huffman) look(code int32, length int, symbol byte) {
	left := lookBits - length
	from, to := int(code)<<left, int(code+1)<<left
	entry := uint16(symbol)<<8 | uint16(length)
	for i := from; i < to; i++ {
		h.symbols[i] = entry
	}
	size := int(symbol & 15)
	if size == 0 || size > left {
		return
	}
	h.largest = max(h.largest, 1<<size-1)
	for i := from; i < to; i++ {
		bits := int32(i) >> (left - size) & (1<<size - 1)
		if bits < 1<<(size-1) {
			bits += 1 - 1<<size
		}
		h.values[i] = bits<<16 | int32(symbol>>4)<<8 | int32(length+size)
	}
}

// long finds the code that acc begins with, of more than lookBits. The length is 0 where there is none.
func (h *huffman) long(acc uint64) (symbol byte, length int) {
	top := int32(acc >> 48)
	for n := lookBits + 1; n <= 16; n++ {
		if top < h.bound[n] {
			return h.list[(top>>(16-n)+h.first[n])&255], n
		}
	}
	return 0, 0
}

// bits are what a segment of entropy-coded data has left. Of acc the upper n bits are counted; those below are 0, or the
// next ones.
type bits struct {
	data []byte // without stuffing, and with zeros behind
	size int    // without those zeros
	pos  int    // what is in acc, or partly
	acc  uint64
	n    int
}

// zeros is more bytes than a block can have, which are 64 codes of 16 bits with 15 bits each.
const zeros = 512

// fill makes at least 56 bits be there.
func (b *bits) fill() {
	b.acc |= binary.BigEndian.Uint64(b.data[b.pos:]) >> (b.n & 63)
	b.pos += (63 - b.n) >> 3
	b.n |= 56
}

// over says whether more bits were taken than there are.
func (b *bits) over() bool { return 8*b.pos-b.n > 8*b.size }

// take takes up to 16 of the bits that are there.
func (b *bits) take(n int) int {
	v := int(b.acc >> 1 >> ((63 - n) & 63))
	b.acc <<= n & 63
	b.n -= n
	return v
}

// symbol takes a code, for which there must be 16 bits.
func (b *bits) symbol(h *huffman) (byte, bool) {
	e := h.symbols[b.acc>>(64-lookBits)]
	symbol, length := byte(e>>8), int(e&0xff)
	if length == 0 {
		if symbol, length = h.long(b.acc); length == 0 {
			return 0, false
		}
	}
	b.acc <<= length & 63
	b.n -= length
	return symbol, true
}

// extended is the number that so many bits are: those with a 0 in front are negative.
func extended(v, n int) int {
	if n > 0 && v < 1<<(n-1) {
		v += 1 - 1<<n
	}
	return v
}
