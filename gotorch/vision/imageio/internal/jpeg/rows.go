package jpeg

import (
	"encoding/binary"
	"io"
)

// bandRows makes the memory for two rows of MCUs of each component, and for a row of each that is smaller than the picture.
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

// row returns what a component has for a row of pixels.
func (c *component) row(y int) []byte {
	near := c.samplesOf(y / c.expandY)
	if !c.fancyY {
		switch {
		case c.expandX == 1:
			return near
		case c.fancyX:
			smoothX(c.upsampled, near, c.width)
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
	far := c.samplesOf(other)
	if c.fancyX {
		smoothXY(c.upsampled, near, far, c.width)
	} else {
		smoothY(c.upsampled, near, far, 1+uint(y&1))
	}
	return c.upsampled
}

// Eight samples are computed at once: those of even and of odd place, in four lanes of 16 bits each.
const lanes = 0x00ff00ff00ff00ff

func put8(to []byte, v uint64) { binary.LittleEndian.PutUint64(to, v) }

// smoothX makes two samples of each, three parts of it and one of the neighbour.
func smoothX(to, from []byte, n int) {
	next := binary.LittleEndian.Uint64(from)
	even := next & lanes
	before := even << 48
	for at := 0; at < n; at += 8 {
		odd := next >> 8 & lanes
		next = 0
		if at+16 <= len(from) {
			next = binary.LittleEndian.Uint64(from[at+8:])
		}
		behind := next & lanes
		const one = 0x0001000100010001
		left, right := odd<<16|before>>48, even>>16|behind<<48
		a, b := (3*even+left+one)>>2&lanes, (3*even+odd+2*one)>>2&lanes
		c, d := (3*odd+even+one)>>2&lanes, (3*odd+right+2*one)>>2&lanes
		store16(to[2*at:], a|b<<8, c|d<<8)
		even, before = behind, odd
	}
	to[2*n-1] = from[n-1]
}

// smoothXY is smoothX of a row that lies between two.
func smoothXY(to, near, far []byte, n int) {
	x, y := binary.LittleEndian.Uint64(near), binary.LittleEndian.Uint64(far)
	even := 3*(x&lanes) + y&lanes
	before := even << 48
	for at := 0; at < n; at += 8 {
		odd := 3*(x>>8&lanes) + y>>8&lanes
		if at+16 <= len(near) && at+16 <= len(far) {
			x, y = binary.LittleEndian.Uint64(near[at+8:]), binary.LittleEndian.Uint64(far[at+8:])
		}
		behind := 3*(x&lanes) + y&lanes
		const one = 0x0001000100010001
		left, right := odd<<16|before>>48, even>>16|behind<<48
		a, b := (3*even+left+8*one)>>4&lanes, (3*even+odd+7*one)>>4&lanes
		c, d := (3*odd+even+8*one)>>4&lanes, (3*odd+right+7*one)>>4&lanes
		store16(to[2*at:], a|b<<8, c|d<<8)
		even, before = behind, odd
	}
	last := 3*uint(near[n-1]) + uint(far[n-1])
	to[2*n-1] = byte((4*last + 7) >> 4)
}

// store16 stores pairs of bytes, of each argument in turn.
func store16(to []byte, a, b uint64) {
	to = to[:16]
	put8(to, apart(a&lower)|apart(b&lower)<<16)
	put8(to[8:], apart(a>>32)|apart(b>>32)<<16)
}

func apart(v uint64) uint64 { return (v | v<<16) & 0x0000ffff0000ffff }

// smoothY makes a row that lies between two.
func smoothY(to, near, far []byte, half uint) {
	far = far[:len(near)]
	to = to[:len(near)]
	for i, v := range near {
		to[i] = byte((3*uint(v) + uint(far[i]) + half) >> 2)
	}
}
