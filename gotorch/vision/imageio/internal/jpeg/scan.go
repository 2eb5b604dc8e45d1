package jpeg

import (
	"bytes"
	"encoding/binary"
	"io"
)

const errCode = FormatError("a code stands for nothing")

// scan is what a scan's header says.
type scan struct {
	components      []*component
	from, to        int  // coefficients, in zigzag order
	high, low       uint // bits of them that were there before; that come later
	memory          [maxComponents]*component
	number, withMCU int // of restart markers, MCUs until the next
}

func (d *Decoder) readScan(s []byte) error {
	if !d.sof {
		return FormatError("a scan is before the frame")
	}
	if len(s) < 1 || len(s) != 4+2*int(s[0]) || s[0] < 1 || s[0] > maxComponents {
		return FormatError("a scan's header has a wrong length")
	}
	n := int(s[0])
	d.scan = scan{}
	d.scan.components = d.scan.memory[:0]
	s = s[1:]
	blocks := 0
	for ; n > 0; n-- {
		c := d.named(s[0])
		if c == nil {
			return FormatError("a scan has a component that the frame lacks")
		}
		for _, other := range d.scan.components {
			if other == c {
				return FormatError("a scan has a component twice")
			}
		}
		dc, ac := s[1]>>4, s[1]&15
		if dc > 3 || ac > 3 {
			return FormatError("a scan has a Huffman table that is none")
		}
		c.dc, c.ac = d.huffman[0][dc], d.huffman[1][ac]
		c.prediction = 0
		if c.quants == nil {
			if from := d.quants[c.tq]; from == nil {
				return FormatError("a component has no quantisation table")
			} else {
				c.table.fill(from)
				c.quants = &c.table
			}
		}
		blocks += c.h * c.v
		d.scan.components = append(d.scan.components, c)
		s = s[2:]
	}
	if len(d.scan.components) > 1 && blocks > maxBlocks {
		return FormatError("a scan has too many blocks in an MCU")
	}
	d.scan.from, d.scan.to, d.scan.high, d.scan.low = int(s[0]), int(s[1]), uint(s[2]>>4), uint(s[2]&15)
	needDC, needAC := true, true
	if d.progressive {
		p := &d.scan
		switch {
		case p.from > p.to, p.to > 63, p.from == 0 && p.to > 0, p.from > 0 && len(p.components) > 1,
			p.high > 0 && p.high != p.low+1, p.low > 13:
			return FormatError("a scan has coefficients that are none")
		}
		needDC, needAC = p.from == 0 && p.high == 0, p.from > 0
	}
	for _, c := range d.scan.components {
		if needDC && c.dc == nil || needAC && c.ac == nil {
			return FormatError("a scan has a Huffman table that is not there")
		}
	}
	return nil
}

func (d *Decoder) named(id byte) *component {
	for i := range d.components {
		if d.components[i].id == id {
			return &d.components[i]
		}
	}
	return nil
}

// readData makes bits of what comes up to the next marker.
func (d *Decoder) readData() error {
	from := d.data[d.at:]
	b := &d.bits
	to := b.data[:0]
	for {
		i := bytes.IndexByte(from, 0xff)
		if i < 0 || i+1 == len(from) {
			return io.ErrUnexpectedEOF
		}
		behind := i + 1
		for from[behind] == 0xff { // fills up
			if behind++; behind == len(from) {
				return io.ErrUnexpectedEOF
			}
		}
		if from[behind] != 0 {
			to = append(to, from[:i]...)
			d.at = len(d.data) - len(from) + i
			break
		}
		to = append(to, from[:i+1]...)
		from = from[behind+1:]
	}
	b.size = len(to)
	b.data = append(to, make([]byte, zeros)...)
	b.pos, b.acc, b.n = 0, 0, 0
	return nil
}

// begin begins the data of a scan.
func (d *Decoder) begin() error {
	d.scan.number, d.scan.withMCU = 0, d.interval
	return d.readData()
}

// restart goes behind a restart marker, if there should be one.
func (d *Decoder) restart() (bool, error) {
	if d.interval == 0 || d.scan.withMCU > 0 {
		d.scan.withMCU--
		return false, nil
	}
	if marker, err := d.marker(); err != nil {
		return false, err
	} else if marker != markRST0+byte(d.scan.number&7) {
		return false, FormatError("a restart marker is missing")
	}
	d.scan.number++
	d.scan.withMCU = d.interval - 1
	for _, c := range d.scan.components {
		c.prediction = 0
	}
	return true, d.readData()
}

// pay takes so many blocks from what scans may visit. Many scans can be in few bytes, and each goes over all of the picture.
func (d *Decoder) pay(blocks int) error {
	if d.budget -= blocks; d.budget < 0 {
		return FormatError("it has more scans than a picture needs")
	}
	return nil
}

// block is 64 coefficients, multiplied by their factors: of row y, those of the columns 2x and 2x+1 are in word 4y+x, as
// right + left·2³². Sums and products of such words are those of both halves, as long as these have room in 32 bits; the
// inverse transform makes use of that.
type block struct {
	words [32]int64
	last  int  // zigzag index of the last coefficient that is not 0, or more
	small bool // no coefficient is larger than largest
}

// largest is how large coefficients are for which the inverse transform needs no look at overflows: four times it is less than 1<<15.
const largest = 8191

// places has the word of a block for each zigzag index, and of some that are too large.
var places = func() (p [80]uint8) {
	for k, natural := range zigzag {
		p[k] = natural / 2
	}
	return p
}()

// sequential decodes a block.
func (d *Decoder) sequential(c *component, block *block) error {
	q, b := c.quants, &d.bits
	if b.over() {
		return io.ErrUnexpectedEOF
	}
	b.fill()
	size, ok := b.symbol(c.dc)
	if !ok {
		return errCode
	}
	n := int(size)
	c.prediction += extended(b.take(n), n)
	first := int64(int16(c.prediction)) * q.packed[0]
	words := &block.words
	words[0] += first

	data, pos, acc, have := b.data, b.pos, b.acc, b.n
	h := c.ac
	most := h.largest
	k := uint(1)
	for k < 64 {
		if have < 32 {
			acc |= binary.BigEndian.Uint64(data[pos:]) >> (have & 63)
			pos += (63 - have) >> 3
			have |= 56
		}
		e := h.values[acc>>(64-lookBits)]
		if e != 0 {
			k += uint(e>>8) & 15
			words[places[k]&31] += int64(e>>16) * q.packed[k]
			k++
			acc <<= uint(e) & 63
			have -= int(e & 63)
			continue
		}
		s := h.symbols[acc>>(64-lookBits)]
		symbol, length := uint(s>>8), int(s&0xff)
		if length == 0 {
			var long byte
			if long, length = h.long(acc); length == 0 {
				return errCode
			}
			symbol = uint(long)
		}
		acc <<= uint(length) & 63
		have -= length
		size := symbol & 15
		if size == 0 {
			if symbol != 0xf0 {
				break
			}
			k += 16
			continue
		}
		k += symbol >> 4
		v := int32(acc >> 1 >> ((63 - size) & 63))
		if v < 1<<(size-1) {
			v += 1 - 1<<size
		}
		most |= max(v, -v)
		words[places[k]&31] += int64(v) * q.packed[k]
		k++
		acc <<= size & 63
		have -= int(size)
	}
	if k > 64 {
		return FormatError("a block has more than 64 coefficients")
	}
	b.pos, b.acc, b.n = pos, acc, have
	block.last = int(k) - 1
	block.small = most <= q.limit && max(first, -first) <= largest
	return nil
}

// directMCU decodes the blocks of an MCU into the bands.
func (d *Decoder) directMCU(mx int, odd int) error {
	for _, c := range d.scan.components {
		for y := range c.v {
			to := c.band[(odd*c.v+y)*8*c.stride+mx*c.h*8:]
			for x := range c.h {
				if err := d.sequential(c, &d.block); err != nil {
					return err
				}
				d.block.samples(to[8*x:], c.stride, c.quants)
			}
		}
	}
	return nil
}

// whole decodes a scan to coefficients. A component alone has one block in each MCU, and no more of them than it needs.
func (d *Decoder) whole() error {
	across, down := d.mcusX, d.mcusY
	alone := len(d.scan.components) == 1
	if alone {
		across, down = d.scan.components[0].blocksX, d.scan.components[0].blocksY
	}
	blocks := 0
	for _, c := range d.scan.components {
		if alone {
			blocks = across * down
		} else {
			blocks += c.h * c.v * across * down
		}
	}
	if err := d.pay(blocks); err != nil {
		return err
	}
	if err := d.begin(); err != nil {
		return err
	}
	run := 0 // blocks without a coefficient in this band
	for my := range down {
		for mx := 0; mx < across; mx++ {
			begun, err := d.restart()
			if err != nil {
				return err
			}
			if begun {
				run = 0
			}
			if alone {
				c := d.scan.components[0]
				if run > 0 && d.scan.high == 0 {
					// None of the next ones has anything.
					skip := min(run, across-mx)
					if d.interval > 0 {
						skip = min(skip, d.scan.withMCU+1)
						d.scan.withMCU -= skip - 1
					}
					run -= skip
					mx += skip - 1
					continue
				}
				if err := d.stored(c, my*c.strideX+mx, &run); err != nil {
					return err
				}
				continue
			}
			for _, c := range d.scan.components {
				for y := range c.v {
					for x := range c.h {
						if err := d.stored(c, (my*c.v+y)*c.strideX+mx*c.h+x, &run); err != nil {
							return err
						}
					}
				}
			}
		}
		if d.bits.over() {
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}
