package jpeg

import (
	"io"
)

// bands makes the memory for two rows of MCUs of each component, and for a row of each that is smaller than the picture.
func (d *Decoder) bands() {
	size := 0
	for i := range d.components {
		c := &d.components[i]
		c.expandX, c.expandY = d.maxH/c.h, d.maxV/c.v
		// As libjpeg chooses what is smoothed.
		c.fancyX = c.expandX == 2 && c.expandY <= 2 && c.width > 2
		c.fancyY = c.expandY == 2 && (c.expandX == 1 || c.fancyX)
		c.stride, c.rows = 8*c.strideX, 16*c.v
		size += c.stride * c.rows
		if c.expandX > 1 || c.fancyY {
			size += c.expandX * c.stride
		}
	}
	size += 16
	if cap(d.memory) < size {
		d.memory = make([]byte, size)
	}
	free := d.memory[:size]
	take := func(n int) (taken []byte) {
		taken, free = free[:n:n], free[n:]
		return taken
	}
	for i := range d.components {
		c := &d.components[i]
		c.band = take(c.stride * c.rows)
		if c.expandX > 1 || c.fancyY {
			c.upsampled = take(c.expandX * c.stride)
		}
		if n := 3 * (c.stride/4 + 1); c.fancyX {
			if cap(d.lanes[i]) < n {
				d.lanes[i] = make([]uint64, n)
			}
			c.lanes = d.lanes[i][:n]
		}
	}
}

// decode calls back with each row of the picture: the row of each component, as wide as the picture or wider.
func (d *Decoder) decode(emit func(y int, rows *[maxComponents][]byte)) error {
	if !d.direct {
		if err := d.scans(); err != nil {
			return err
		}
	} else if err := d.begin(); err != nil {
		return err
	}
	d.bands()
	var rows [maxComponents][]byte
	y := 0
	for my := range d.mcusY {
		if err := d.fillBand(my); err != nil {
			return err
		}
		for ; y < d.Height; y++ {
			if my+1 < d.mcusY && d.waits(y, my) {
				break
			}
			for i := range d.components {
				rows[i] = d.components[i].row(y)
			}
			emit(y, &rows)
		}
	}
	return nil
}

// scans decodes all scans to coefficients.
func (d *Decoder) scans() error {
	for i := range d.components {
		c := &d.components[i]
		c.coefficients = make([]int16, 64*c.strideX*c.strideY)
		c.begun = make([]bool, c.strideX*c.strideY)
	}
	for {
		if err := d.whole(); err != nil {
			return err
		}
		if more, err := d.nextScan(); err != nil {
			return err
		} else if !more {
			return nil
		}
	}
}

// fillBand makes the samples of a row of MCUs.
func (d *Decoder) fillBand(my int) error {
	if d.direct {
		for mx := range d.mcusX {
			if _, err := d.restart(); err != nil {
				return err
			}
			if err := d.directMCU(mx, my&1); err != nil {
				return err
			}
		}
		if d.bits.over() {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	for i := range d.components {
		c := &d.components[i]
		for y := range c.v {
			to := c.band[((my&1)*c.v+y)*8*c.stride:]
			at := (my*c.v + y) * c.strideX
			for x := range c.strideX {
				if c.quants != nil {
					d.block.load((*[64]int16)(c.coefficients[64*(at+x):]), c.quants)
				} else { // no scan had it
					d.block.last, d.block.small = 0, true
				}
				d.block.samples(to[8*x:], c.stride, c.quants)
			}
		}
	}
	return nil
}

// waits says whether a row of pixels needs samples of the next row of MCUs.
func (d *Decoder) waits(y, my int) bool {
	for i := range d.components {
		c := &d.components[i]
		last := y / c.expandY
		if c.fancyY && y&1 == 1 {
			last = min(last+1, c.height-1)
		}
		if last >= (my+1)*8*c.v {
			return true
		}
	}
	return false
}

// samplesOf returns a row of samples.
func (c *component) samplesOf(y int) []byte { return c.band[y%c.rows*c.stride:][:c.stride:c.stride] }

// lanesOf returns a row of samples in lanes. Those of three rows are kept: each is near two rows of pixels, and far from two.
func (c *component) lanesOf(y int) []uint64 {
	n := c.stride/4 + 1
	row := c.lanes[y%3*n:][:n]
	if c.laneRows[y%3] != y+1 {
		c.laneRows[y%3] = y + 1
		spread(row, c.samplesOf(y))
	}
	return row
}

// row returns what a component has for a row of pixels.
func (c *component) row(y int) []byte {
	near := c.samplesOf(y / c.expandY)
	if !c.fancyY {
		switch {
		case c.expandX == 1:
			return near
		case c.fancyX:
			smoothX(c.upsampled, c.lanesOf(y/c.expandY))
			c.upsampled[2*c.width-1] = near[c.width-1]
		default:
			for i, v := range near {
				for k := range c.expandX {
					c.upsampled[i*c.expandX+k] = v
				}
			}
		}
		return c.upsampled
	}
	// The nearer row of samples counts three times as much as the other.
	other := max(y/2-1, 0)
	if y&1 == 1 {
		other = min(y/2+1, c.height-1)
	}
	if c.fancyX {
		smoothXY(c.upsampled, c.lanesOf(y/2), c.lanesOf(other))
		last := c.width - 1
		sum := 3*uint(near[last]) + uint(c.samplesOf(other)[last])
		c.upsampled[2*last+1] = byte((4*sum + 7) >> 4)
	} else {
		smoothY(c.upsampled, near, c.samplesOf(other), 1+uint(y&1))
	}
	return c.upsampled
}

// get8 is one load, without a look at bounds where the compiler knows that there are eight bytes from x on.
func get8(b []byte, x int) uint64 {
	_ = b[x+7]
	return uint64(b[x]) | uint64(b[x+1])<<8 | uint64(b[x+2])<<16 | uint64(b[x+3])<<24 | uint64(b[x+4])<<32 | uint64(b[x+5])<<40 | uint64(b[x+6])<<48 | uint64(b[x+7])<<56
}

// put8 is one store, as get8 is one load.
func put8(b []byte, x int, v uint64) {
	_ = b[x+7]
	b[x], b[x+1], b[x+2], b[x+3], b[x+4], b[x+5], b[x+6], b[x+7] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
}

// Four samples are computed at once, in lanes of 16 bits.
const (
	lanes = 0x00ff00ff00ff00ff
	one   = 0x0001000100010001
)

// spread puts the samples of a row into lanes, and 0 behind.
func spread(to []uint64, from []byte) {
	for at := 0; at <= len(from)-8 && len(to) > 1; at += 8 {
		v := get8(from, at)
		to[0], to[1] = apart(v&lower), apart(v>>32)
		to = to[2:]
	}
	to[0] = 0
}

func apart(v uint64) uint64 {
	v = (v | v<<16) & 0x0000ffff0000ffff
	return (v | v<<8) & lanes
}

// smoothX makes two samples of each, three parts of it and one of the neighbour. There are eight bytes in to for each word but
// the last.
func smoothX(to []byte, from []uint64) {
	v := from[0]
	before := v << 48
	from = from[1:]
	for at := 0; at <= len(to)-8 && len(from) > 0; at += 8 {
		next := from[0]
		from = from[1:]
		left, right := v<<16|before>>48, v>>16|next<<48
		a, b := 3*v+left+one, 3*v+right+2*one
		put8(to, at, a>>2&lanes|b<<6&(lanes<<8))
		before, v = v, next
	}
}

// smoothXY is smoothX of a row that lies between two.
func smoothXY(to []byte, near, far []uint64) {
	far = far[:len(near)]
	at, i := 0, 1
	v := 3*near[0] + far[0]
	before := v << 48
	if n := min(len(near), len(to)/8+1) - 2; vectors && n >= 4 {
		// The first word has none before, and the last none behind.
		n &^= 3
		next := 3*near[1] + far[1]
		left, right := v<<16|before>>48, v>>16|next<<48
		a, b := 3*v+left+8*one, 3*v+right+7*one
		put8(to, 0, a>>4&lanes|b<<4&(lanes<<8))
		smoothAVX2(&to[8:][:8*n][0], &near[1:][:n+1][0], &far[1:][:n+1][0], n)
		at, i = 8*(n+1), n+2
		before, v = 3*near[n]+far[n], 3*near[n+1]+far[n+1]
	}
	for ; at <= len(to)-8 && i < len(near); at, i = at+8, i+1 {
		next := 3*near[i] + far[i]
		left, right := v<<16|before>>48, v>>16|next<<48
		a, b := 3*v+left+8*one, 3*v+right+7*one
		put8(to, at, a>>4&lanes|b<<4&(lanes<<8))
		before, v = v, next
	}
}

// smoothY makes a row that lies between two.
func smoothY(to, near, far []byte, half uint) {
	far = far[:len(near)]
	to = to[:len(near)]
	for i, v := range near {
		to[i] = byte((3*uint(v) + uint(far[i]) + half) >> 2)
	}
}
