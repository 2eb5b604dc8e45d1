package jpeg

import "io"

// stored decodes what a scan has of a block, whose coefficients are kept. The run is that of blocks with nothing.
func (d *Decoder) stored(c *component, at int, run *int) error {
	to := (*[64]int16)(c.coefficients[64*at:])
	if d.bits.over() {
		return io.ErrUnexpectedEOF
	}
	switch p := &d.scan; {
	case !d.progressive:
		return d.sequentialStored(c, to)
	case p.from == 0 && p.high == 0:
		d.bits.fill()
		symbol, ok := d.bits.symbol(c.dc)
		if !ok {
			return errCode
		}
		c.prediction += extended(d.bits.take(int(symbol)), int(symbol))
		to[0] = int16(c.prediction << p.low)
		return nil
	case p.from == 0:
		d.bits.fill()
		to[0] |= int16(d.bits.take(1) << p.low)
		return nil
	case p.high == 0:
		return d.first(c, at, to, run)
	}
	return d.refine(c, at, to, run)
}

// sequentialStored decodes a block of a file that is sequential and has several scans.
func (d *Decoder) sequentialStored(c *component, to *[64]int16) error {
	b := &d.bits
	b.fill()
	size, ok := b.symbol(c.dc)
	if !ok {
		return errCode
	}
	c.prediction += extended(b.take(int(size)), int(size))
	to[0] = int16(c.prediction)
	for k := 1; k < 64; k++ {
		b.fill()
		symbol, ok := b.symbol(c.ac)
		if !ok {
			return errCode
		}
		run, size := int(symbol>>4), int(symbol&15)
		if size == 0 {
			if run < 15 {
				break
			}
			k += 15
			continue
		}
		if k += run; k > 63 {
			return FormatError("a block has more than 64 coefficients")
		}
		to[zigzag[k&63]] = int16(extended(b.take(size), size))
	}
	return nil
}

// first decodes the upper bits of AC coefficients.
func (d *Decoder) first(c *component, at int, to *[64]int16, run *int) error {
	b := &d.bits
	for k := d.scan.from; k <= d.scan.to; k++ {
		b.fill()
		symbol, ok := b.symbol(c.ac)
		if !ok {
			return errCode
		}
		zeros, size := int(symbol>>4), int(symbol&15)
		if size == 0 {
			if zeros < 15 {
				*run = 1<<zeros + b.take(zeros) - 1
				break
			}
			k += 15
			continue
		}
		if k += zeros; k > 63 {
			return FormatError("a block has more than 64 coefficients")
		}
		to[zigzag[k&63]] = int16(extended(b.take(size), size) << d.scan.low)
		c.begun[at] = true
	}
	return nil
}

// refine decodes a bit of AC coefficients: of those that were not 0 before, and of some that become 1 or -1.
func (d *Decoder) refine(c *component, at int, to *[64]int16, run *int) error {
	b := &d.bits
	one := int16(1) << d.scan.low
	k := d.scan.from
	// correct goes over coefficients until so many that are 0 are passed by, and stands on the next that is.
	correct := func(zeros int) {
		for ; k <= d.scan.to; k++ {
			v := &to[zigzag[k&63]]
			if *v == 0 {
				if zeros == 0 {
					return
				}
				zeros--
				continue
			}
			if b.n < 1 {
				b.fill()
			}
			if b.take(1) != 0 && *v&one == 0 {
				if *v > 0 {
					*v += one
				} else {
					*v -= one
				}
			}
		}
	}
	if *run > 0 {
		*run--
		if c.begun[at] {
			correct(64)
		}
		return nil
	}
	for k <= d.scan.to {
		b.fill()
		symbol, ok := b.symbol(c.ac)
		if !ok {
			return errCode
		}
		zeros, size := int(symbol>>4), int(symbol&15)
		var v int16
		switch size {
		case 0:
			if zeros < 15 {
				*run = 1<<zeros + b.take(zeros) - 1
				correct(64)
				return nil
			}
		case 1:
			v = -one
			if b.take(1) != 0 {
				v = one
			}
		default:
			return FormatError("a coefficient grows by more than a bit")
		}
		correct(zeros)
		if v != 0 {
			if k > d.scan.to {
				return FormatError("a block has more than 64 coefficients")
			}
			to[zigzag[k&63]] = v
			c.begun[at] = true
		}
		k++
	}
	return nil
}

// load makes a block of coefficients that were kept.
func (b *block) load(from *[64]int16, q *quant) {
	most := int32(0)
	b.last = 0
	for y := range 8 {
		row, factors := (*[8]int16)(from[8*y:]), (*[8]uint16)(q.factors[8*y:])
		words := (*[4]int64)(b.words[4*y:])
		near, far := row[1]|row[2]|row[3], row[4]|row[5]|row[6]|row[7]
		switch {
		case far != 0 || y >= 4 && near|row[0] != 0:
			b.last = 63
		case y > 0 && row[0] != 0 || near != 0:
			b.last = max(b.last, lastNear)
		case row[0] == 0:
			continue
		}
		for x := range 4 {
			left, right := int32(row[2*x])*int32(factors[2*x]), int32(row[2*x+1])*int32(factors[2*x+1])
			most |= left ^ left>>31
			most |= right ^ right>>31
			words[x] = int64(left) + int64(right)<<32
		}
	}
	b.small = most <= largest-1
}
