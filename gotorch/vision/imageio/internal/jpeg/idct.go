package jpeg

import "encoding/binary"

// The inverse transform is libjpeg's accurate one in integers: over columns, then over rows, each an eight point transform
// of Loeffler, Ligtenberg and Moschytz with constants of 13 bits. Between the two, 2 more bits are kept.
//
// A word of 64 bits computes two columns, then two rows, at once: left + right·2³². All that is done to words are sums and
// products with constants, which are right in both halves, whatever they borrow of each other, when a half that is negative
// is made positive before the halves are taken apart. A bias does that, which also rounds.
const (
	both = 1<<32 + 1 // the same in both halves

	// The constants of the transform times 8192.
	f0298 = 2446
	f0390 = 3196
	f0541 = 4433
	f0765 = 6270
	f0899 = 7373
	f1175 = 9633
	f1501 = 12299
	f1847 = 15137
	f1961 = 16069
	f2053 = 16819
	f2562 = 20995
	f3072 = 25172

	// After the columns 11 bits go, and what is left has 15 bits, of which the first stands for the sign. With that, no sum
	// overflows in the second pass, nor does it where libjpeg adds in 16 bits.
	biasColumns = both * (1<<25 + 1<<10)
	overColumns = both * (1<<32 - 1<<26) // the bits that say that there were more

	// After the rows 18 bits go, and 128 is added.
	biasRows = both * (1<<17 + 128<<18)
	overRows = both * (1<<32 - 1<<26)

	halves15 = both * 0x7fff
	bytes8   = both * 0xff
	lower    = 1<<32 - 1
)

// lastNear is the last zigzag index within which only the first four rows and columns have coefficients.
const lastNear = 9

// samples makes the 8×8 samples of a block, and clears it.
func (b *block) samples(to []byte, stride int, q *quant) {
	switch {
	case !b.small:
		b.exact(to, stride)
	case b.last == 0:
		b.flat(to, stride)
		b.words[0] = 0
		return
	case vectors:
		transformAVX2(&b.words, &to[:7*stride+8][0], stride)
		return
	case b.last <= lastNear:
		if !b.near(to, stride) {
			b.exact(to, stride)
		}
		for i := range 4 {
			b.words[4*i], b.words[4*i+1] = 0, 0
		}
		return
	default:
		if !b.full(to, stride) {
			b.exact(to, stride)
		}
	}
	b.words = [32]int64{}
}

// flat makes samples of a first coefficient alone.
func (b *block) flat(to []byte, stride int) {
	v := uint64(sample((int32(b.words[0])+4)>>3)) * 0x0101010101010101
	for y := range 8 {
		binary.LittleEndian.PutUint64(to[y*stride:], v)
	}
}

// sample is a sample of what is centred around 0.
func sample(v int32) byte { return byte(min(max(v, -128), 127) + 128) }

func (b *block) full(to []byte, stride int) bool {
	var sums [32]int64
	var over int64
	w := &b.words
	for x := range 4 {
		x0, x1, x2, x3, x4, x5, x6, x7 := w[x], w[4+x], w[8+x], w[12+x], w[16+x], w[20+x], w[24+x], w[28+x]

		z1 := (x2 + x6) * f0541
		e2, e3 := z1-x6*f1847, z1+x2*f0765
		e0, e1 := (x0+x4)<<13+biasColumns, (x0-x4)<<13+biasColumns
		a0, a3, a1, a2 := e0+e3, e0-e3, e1+e2, e1-e2

		z5 := (x7 + x3 + x5 + x1) * f1175
		z3, z4 := z5-(x7+x3)*f1961, z5-(x5+x1)*f0390
		z1, z2 := (x7+x1)*f0899, (x5+x3)*f2562
		o0, o1, o2, o3 := x7*f0298-z1+z3, x5*f2053-z2+z4, x3*f3072-z2+z3, x1*f1501-z1+z4

		s0, s7, s1, s6, s2, s5, s3, s4 := a0+o3, a0-o3, a1+o2, a1-o2, a2+o1, a2-o1, a3+o0, a3-o0
		sums[x], sums[4+x], sums[8+x], sums[12+x], sums[16+x], sums[20+x], sums[24+x], sums[28+x] = s0, s1, s2, s3, s4, s5, s6, s7
		over |= s0 | s1 | s2 | s3 | s4 | s5 | s6 | s7
	}
	if uint64(over)&overColumns != 0 {
		return false
	}
	for y := range 4 {
		upper, under := (*[4]int64)(sums[8*y:]), (*[4]int64)(sums[8*y+4:])
		x0, x1 := turned(upper[0], under[0])
		x2, x3 := turned(upper[1], under[1])
		x4, x5 := turned(upper[2], under[2])
		x6, x7 := turned(upper[3], under[3])

		z1 := (x2 + x6) * f0541
		e2, e3 := z1-x6*f1847, z1+x2*f0765
		e0, e1 := (x0+x4)<<13+biasRows, (x0-x4)<<13+biasRows
		a0, a3, a1, a2 := e0+e3, e0-e3, e1+e2, e1-e2

		z5 := (x7 + x3 + x5 + x1) * f1175
		z3, z4 := z5-(x7+x3)*f1961, z5-(x5+x1)*f0390
		z1, z2 := (x7+x1)*f0899, (x5+x3)*f2562
		o0, o1, o2, o3 := x7*f0298-z1+z3, x5*f2053-z2+z4, x3*f3072-z2+z3, x1*f1501-z1+z4

		s0, s7, s1, s6, s2, s5, s3, s4 := a0+o3, a0-o3, a1+o2, a1-o2, a2+o1, a2-o1, a3+o0, a3-o0
		at := 2 * y * stride
		if uint64(s0|s1|s2|s3|s4|s5|s6|s7)&overRows != 0 {
			cut(to[at:], to[at+stride:], &[8]int64{s0, s1, s2, s3, s4, s5, s6, s7})
			continue
		}
		near := uint64(((s3>>18&bytes8)<<8|s2>>18&bytes8)<<16 | (s1>>18&bytes8)<<8 | s0>>18&bytes8)
		far := uint64(((s7>>18&bytes8)<<8|s6>>18&bytes8)<<16 | (s5>>18&bytes8)<<8 | s4>>18&bytes8)
		binary.LittleEndian.PutUint64(to[at:], near&lower|far<<32)
		binary.LittleEndian.PutUint64(to[at+stride:], near>>32|far&^lower)
	}
	return true
}

// near is full for a block whose last four rows and columns are 0.
func (b *block) near(to []byte, stride int) bool {
	var sums [16]int64
	var over int64
	w := &b.words
	for x := range 2 {
		x0, x1, x2, x3 := w[x]<<13+biasColumns, w[4+x], w[8+x], w[12+x]
		e2, e3 := x2*f0541, x2*(f0541+f0765)
		a0, a3, a1, a2 := x0+e3, x0-e3, x0+e2, x0-e2
		o0 := x1*(f1175-f0899) + x3*(f1175-f1961)
		o1 := x1*(f1175-f0390) + x3*(f1175-f2562)
		o2 := x1*f1175 + x3*(f3072-f2562-f1961+f1175)
		o3 := x1*(f1501-f0899-f0390+f1175) + x3*f1175
		s0, s7, s1, s6, s2, s5, s3, s4 := a0+o3, a0-o3, a1+o2, a1-o2, a2+o1, a2-o1, a3+o0, a3-o0
		sums[x], sums[2+x], sums[4+x], sums[6+x], sums[8+x], sums[10+x], sums[12+x], sums[14+x] = s0, s1, s2, s3, s4, s5, s6, s7
		over |= s0 | s1 | s2 | s3 | s4 | s5 | s6 | s7
	}
	if uint64(over)&overColumns != 0 {
		return false
	}
	for y := range 4 {
		upper, under := (*[2]int64)(sums[4*y:]), (*[2]int64)(sums[4*y+2:])
		x0, x1 := turned(upper[0], under[0])
		x2, x3 := turned(upper[1], under[1])
		x0 = x0<<13 + biasRows
		e2, e3 := x2*f0541, x2*(f0541+f0765)
		a0, a3, a1, a2 := x0+e3, x0-e3, x0+e2, x0-e2
		o0 := x1*(f1175-f0899) + x3*(f1175-f1961)
		o1 := x1*(f1175-f0390) + x3*(f1175-f2562)
		o2 := x1*f1175 + x3*(f3072-f2562-f1961+f1175)
		o3 := x1*(f1501-f0899-f0390+f1175) + x3*f1175
		s0, s7, s1, s6, s2, s5, s3, s4 := a0+o3, a0-o3, a1+o2, a1-o2, a2+o1, a2-o1, a3+o0, a3-o0
		at := 2 * y * stride
		if uint64(s0|s1|s2|s3|s4|s5|s6|s7)&overRows != 0 {
			cut(to[at:], to[at+stride:], &[8]int64{s0, s1, s2, s3, s4, s5, s6, s7})
			continue
		}
		near := uint64(((s3>>18&bytes8)<<8|s2>>18&bytes8)<<16 | (s1>>18&bytes8)<<8 | s0>>18&bytes8)
		far := uint64(((s7>>18&bytes8)<<8|s6>>18&bytes8)<<16 | (s5>>18&bytes8)<<8 | s4>>18&bytes8)
		binary.LittleEndian.PutUint64(to[at:], near&lower|far<<32)
		binary.LittleEndian.PutUint64(to[at+stride:], near>>32|far&^lower)
	}
	return true
}

// turned takes the sums of two rows in two columns; it returns the two rows of the left column, and of the right one.
func turned(upper, under int64) (left, right int64) {
	upper, under = upper>>11&halves15, under>>11&halves15
	return upper&lower + under<<32 - both<<14, int64(uint64(upper)>>32) + under&^lower - both<<14
}

// cut stores the samples of two rows, of which some are below 0 or above 255.
func cut(left, right []byte, sums *[8]int64) {
	left, right = left[:8], right[:8]
	for x, s := range sums {
		low := int32(s)
		high := int32((s - int64(low)) >> 32)
		left[x], right[x] = byte(min(max(low>>18, 0), 255)), byte(min(max(high>>18, 0), 255))
	}
}

// exact is the transform for coefficients of any size. What libjpeg does then depends on the processor; this is what it does
// with vectors of 16 bits: products and the first sums wrap around, and what is between the passes is cut off.
func (b *block) exact(to []byte, stride int) {
	var c [64]int32
	rest := int32(0) // of the rows below the first
	for i, w := range b.words {
		low := int32(w)
		c[2*i], c[2*i+1] = wrap(low), wrap(int32((w-int64(low))>>32))
	}
	for _, v := range b.words[4:] {
		if v != 0 {
			rest = 1
		}
	}
	for x := range 8 {
		column := [8]int32{c[x], c[8+x], c[16+x], c[24+x], c[32+x], c[40+x], c[48+x], c[56+x]}
		if rest == 0 {
			for y := range column {
				c[8*y+x] = wrap(column[0] << 2)
			}
			continue
		}
		for y, v := range inverse(&column, 11) {
			c[8*y+x] = v
		}
	}
	for y := range 8 {
		line := to[y*stride:][:8]
		for x, v := range inverse((*[8]int32)(c[8*y:]), 18) {
			line[x] = sample(v)
		}
	}
}

func wrap(v int32) int32 { return int32(int16(v)) }

// inverse is the eight point transform, without its last so many bits, cut off to 16 bits.
func inverse(x *[8]int32, shift int) (out [8]int32) {
	z1 := x[2]*f0541 + x[6]*f0541
	e2, e3 := z1-x[6]*f1847, z1+x[2]*f0765
	e0, e1 := wrap(x[0]+x[4])<<13, wrap(x[0]-x[4])<<13
	z3, z4 := wrap(x[3]+x[7]), wrap(x[1]+x[5])
	z5 := z3*f1175 + z4*f1175
	z3, z4 = z5-z3*f1961, z5-z4*f0390
	o0 := x[7]*(f0298-f0899) - x[1]*f0899 + z3
	o1 := x[5]*(f2053-f2562) - x[3]*f2562 + z4
	o2 := x[3]*(f3072-f2562) - x[5]*f2562 + z3
	o3 := x[1]*(f1501-f0899) - x[7]*f0899 + z4
	a := [4]int32{e0 + e3, e1 + e2, e1 - e2, e0 - e3}
	o := [4]int32{o3, o2, o1, o0}
	half := int32(1) << (shift - 1)
	for i := range 4 {
		out[i] = min(max((a[i]+o[i]+half)>>shift, -1<<15), 1<<15-1)
		out[7-i] = min(max((a[i]-o[i]+half)>>shift, -1<<15), 1<<15-1)
	}
	return out
}
