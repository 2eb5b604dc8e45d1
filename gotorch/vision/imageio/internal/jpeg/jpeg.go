// Package jpeg decodes JPEGs to the numbers that Pillow gives, which are libjpeg-turbo's: its accurate inverse transform in
// integers, its smooth upsampling of colours, its conversion to red, green and blue.
//
//	d, err := jpeg.Open(encoded)   // the headers; no memory is taken for pixels
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	n := d.Width * d.Height
//	err = d.Planes(p[:n], p[n:2*n], p[2*n:])
//
// It reads baseline, extended sequential and progressive JPEGs of 8 bits, with every sampling of colours that libjpeg
// takes. Lossless, hierarchical and arithmetic coding, and 12 bits, are an [UnsupportedError].
//
// A file that is cut short, or has a code that does not exist, is an error, where libjpeg warns and makes up the rest. A
// progressive file that is whole but lacks scans is decoded as it stands; libjpeg smooths its blocks.
//
// The entropy-coded data are decoded to blocks of 64 coefficients (scan.go, progressive.go), these to samples of each
// component (idct.go), a row of MCUs at a time; rows of samples, as soon as those above and below are there, to rows of
// pixels (rows.go). Only files with several scans have all coefficients in memory.
package jpeg

import (
	"encoding/binary"
	"io"
	"sync"
)

// FormatError says what is wrong with a file.
type FormatError string

func (e FormatError) Error() string { return "jpeg: " + string(e) }

// UnsupportedError names a kind of JPEG that is not read.
type UnsupportedError string

func (e UnsupportedError) Error() string { return "jpeg: " + string(e) + " is not supported" }

// Markers, the second byte of each.
const (
	markSOF0  = 0xc0 // baseline
	markSOF1  = 0xc1 // extended sequential
	markSOF2  = 0xc2 // progressive
	markDHT   = 0xc4
	markSOF15 = 0xcf
	markJPG   = 0xc8
	markDAC   = 0xcc
	markRST0  = 0xd0
	markRST7  = 0xd7
	markSOI   = 0xd8
	markEOI   = 0xd9
	markSOS   = 0xda
	markDQT   = 0xdb
	markDRI   = 0xdd
	markAPP0  = 0xe0
	markAPP14 = 0xee
	markTEM   = 0x01
)

// Limits of the format.
const (
	maxComponents = 4
	maxSampling   = 4
	maxBlocks     = 10 // in an MCU
)

// colours is what the components are.
type colours int

const (
	grey colours = iota
	yCbCr
	rgb
	cmyk
	ycck
)

// component is one of the planes that a file stores.
type component struct {
	id     byte
	h, v   int    // sampling factors
	tq     byte   // number of its quantisation table
	quants *quant // as the table was at the component's first scan; nil before

	width, height    int // samples, of those that count
	blocksX, blocksY int // blocks that have such samples
	strideX, strideY int // blocks, with those that fill up MCUs
	coefficients     []int16
	begun            []bool // blocks of which a scan had a coefficient behind the first
	band             []byte // samples of two rows of MCUs, the even and the odd ones
	stride, rows     int    // of a band: bytes of a row, rows
	expandX, expandY int
	fancyX, fancyY   bool
	upsampled        []byte // a row
	lanes            []uint64
	laneRows         [3]int // which rows are in lanes, plus 1
	prediction       int    // of the next DC coefficient
	dc, ac           *huffman
	table            quant // what quants points to
}

// Decoder has read a file's headers.
type Decoder struct {
	Width, Height int
	Channels      int // 1: grey; 3: red, green, blue; 4: cyan, magenta, yellow, black

	data        []byte
	at          int // in data
	components  []component
	colours     colours
	progressive bool
	direct      bool // all of it is in one sequential scan
	maxH, maxV  int
	mcusX       int // in a row
	mcusY       int
	interval    int // MCUs between restart markers; 0: there are none
	budget      int // blocks that scans may still visit

	jfif, adobe bool
	transform   byte // of Adobe's segment
	sof         bool

	quants  [4]*[64]uint16 // in zigzag order
	huffman [2][4]*huffman // of DC and AC coefficients

	scan   scan
	bits   bits
	block  block
	tables [8]huffman // memory of those in huffman
	qts    [4][64]uint16
	store  [maxComponents]component
	memory []byte // of bands and upsampled rows
	lanes  [maxComponents][]uint64
	row    []byte // for pixels that are no result
}

var decoders = sync.Pool{New: func() any { return new(Decoder) }}

// Open reads the headers up to the first scan. It takes no memory by what they say. The decoder is to be closed.
func Open(encoded []byte) (*Decoder, error) {
	d := decoders.Get().(*Decoder)
	d.reset(encoded)
	if err := d.headers(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// mostKept is how many bytes of each buffer wait for the next picture.
const mostKept = 1 << 20

// Close gives the decoder's memory to the next one.
func (d *Decoder) Close() {
	d.reset(nil)
	if cap(d.memory) > mostKept {
		d.memory = nil
	}
	if cap(d.row) > mostKept {
		d.row = nil
	}
	if cap(d.bits.data) > mostKept {
		d.bits.data = nil
	}
	decoders.Put(d)
}

func (d *Decoder) reset(encoded []byte) {
	d.Width, d.Height, d.Channels = 0, 0, 0
	d.data, d.at = encoded, 0
	d.components = nil
	d.store = [maxComponents]component{}
	d.progressive, d.direct, d.interval, d.budget = false, false, 0, 0
	d.jfif, d.adobe, d.transform, d.sof = false, false, 0, false
	d.quants = [4]*[64]uint16{}
	d.huffman = [2][4]*huffman{}
	d.scan = scan{}
	d.block = block{}
}

// headers goes on to the first scan.
func (d *Decoder) headers() error {
	if len(d.data) < 2 {
		return io.ErrUnexpectedEOF
	}
	if d.data[0] != 0xff || d.data[1] != markSOI {
		return FormatError("it does not begin with a start of image")
	}
	d.at = 2
	found, err := d.nextScan()
	if err != nil {
		return err
	}
	if !found {
		return FormatError("it has no scan")
	}
	d.colours, err = d.whichColours()
	d.direct = !d.progressive && len(d.scan.components) == len(d.components)
	return err
}

// nextScan reads segments until the next scan's data begin. It returns false at the end of the image.
func (d *Decoder) nextScan() (bool, error) {
	for {
		marker, err := d.marker()
		if err != nil {
			return false, err
		}
		switch {
		case marker == markEOI:
			return false, nil
		case marker == markTEM, markRST0 <= marker && marker <= markRST7:
			continue
		case marker == markSOI:
			return false, FormatError("it begins a second time")
		}
		segment, err := d.segment()
		if err != nil {
			return false, err
		}
		switch {
		case marker == markDHT:
			err = d.readHuffman(segment)
		case marker == markDQT:
			err = d.readQuants(segment)
		case marker == markDRI:
			if len(segment) != 2 {
				return false, FormatError("the restart interval has a wrong length")
			}
			d.interval = int(binary.BigEndian.Uint16(segment))
		case marker == markAPP0 && len(segment) >= 14 && string(segment[:5]) == "JFIF\x00":
			d.jfif = true
		case marker == markAPP14 && len(segment) >= 12 && string(segment[:5]) == "Adobe":
			d.adobe, d.transform = true, segment[11]
		case marker == markDAC:
			return false, UnsupportedError("arithmetic coding")
		case markSOF0 <= marker && marker <= markSOF15 && marker != markJPG:
			err = d.readFrame(marker, segment)
		case marker == markSOS:
			return true, d.readScan(segment)
		}
		if err != nil {
			return false, err
		}
	}
}

// marker goes behind the next marker; as libjpeg does, it passes by what is before.
func (d *Decoder) marker() (byte, error) {
	for ; d.at+1 < len(d.data); d.at++ {
		if m := d.data[d.at+1]; d.data[d.at] == 0xff && m != 0xff && m != 0 {
			d.at += 2
			return m, nil
		}
	}
	return 0, io.ErrUnexpectedEOF
}

// segment goes behind what belongs to a marker.
func (d *Decoder) segment() ([]byte, error) {
	rest := d.data[d.at:]
	if len(rest) < 2 {
		return nil, io.ErrUnexpectedEOF
	}
	n := int(binary.BigEndian.Uint16(rest))
	if n < 2 {
		return nil, FormatError("a segment is shorter than its length")
	}
	if n > len(rest) {
		return nil, io.ErrUnexpectedEOF
	}
	d.at += n
	return rest[2:n], nil
}

func (d *Decoder) readFrame(marker byte, s []byte) error {
	switch marker {
	case markSOF0, markSOF1, markSOF2:
	case 0xc3:
		return UnsupportedError("lossless coding")
	case 0xc9, 0xca, 0xcb, 0xcd, 0xce, 0xcf:
		return UnsupportedError("arithmetic coding")
	default:
		return UnsupportedError("hierarchical coding")
	}
	if d.sof {
		return FormatError("it has two frames")
	}
	if len(s) < 6 {
		return FormatError("the frame's header is too short")
	}
	if s[0] != 8 {
		return UnsupportedError("a depth of other than 8 bits")
	}
	d.Height, d.Width = int(binary.BigEndian.Uint16(s[1:])), int(binary.BigEndian.Uint16(s[3:]))
	n := int(s[5])
	if len(s) != 6+3*n {
		return FormatError("the frame's header has a wrong length")
	}
	switch n {
	case 1, 3, 4:
	default:
		return UnsupportedError("a number of components other than 1, 3 and 4")
	}
	if d.Height == 0 {
		return UnsupportedError("a height that is told at the end")
	}
	if d.Width == 0 {
		return FormatError("it has no width")
	}
	d.sof, d.progressive, d.Channels = true, marker == markSOF2, n
	d.components = d.store[:n]
	d.maxH, d.maxV = 1, 1
	for i := range d.components {
		c, spec := &d.components[i], s[6+3*i:]
		c.id, c.h, c.v, c.tq = spec[0], int(spec[1]>>4), int(spec[1]&15), spec[2]
		for _, other := range d.components[:i] {
			if other.id == c.id {
				return FormatError("two components have one name")
			}
		}
		if c.h < 1 || c.h > maxSampling || c.v < 1 || c.v > maxSampling || c.tq > 3 {
			return FormatError("a component's sampling or quantisation table is none")
		}
		if n == 1 {
			c.h, c.v = 1, 1 // the only component is not interleaved, whatever it says
		}
		d.maxH, d.maxV = max(d.maxH, c.h), max(d.maxV, c.v)
	}
	d.mcusX, d.mcusY = ceil(d.Width, 8*d.maxH), ceil(d.Height, 8*d.maxV)
	for i := range d.components {
		c := &d.components[i]
		if d.maxH%c.h != 0 || d.maxV%c.v != 0 {
			return UnsupportedError("a sampling of colours by a broken factor")
		}
		c.width, c.height = ceil(d.Width*c.h, d.maxH), ceil(d.Height*c.v, d.maxV)
		c.blocksX, c.blocksY = ceil(c.width, 8), ceil(c.height, 8)
		c.strideX, c.strideY = d.mcusX*c.h, d.mcusY*c.v
		d.budget += 64 * c.strideX * c.strideY
	}
	d.budget += 64 * len(d.data)
	return nil
}

func ceil(a, b int) int { return (a + b - 1) / b }

// whichColours tells what the components are, as libjpeg guesses it.
func (d *Decoder) whichColours() (colours, error) {
	switch len(d.components) {
	case 1:
		return grey, nil
	case 3:
		switch {
		case d.jfif:
			return yCbCr, nil
		case d.adobe:
			if d.transform == 0 {
				return rgb, nil
			}
			return yCbCr, nil
		case d.components[0].id == 'R' && d.components[1].id == 'G' && d.components[2].id == 'B':
			return rgb, nil
		}
		return yCbCr, nil
	}
	if d.adobe && d.transform != 0 {
		return ycck, nil
	}
	return cmyk, nil
}

// quant is a quantisation table, made ready for the inverse transform.
type quant struct {
	factors [64]uint16 // in natural order
	packed  [80]int64  // by zigzag index: the factor, in the half of a word in which the coefficient belongs; see block
	most    int32      // the largest factor of an AC coefficient
	limit   int32      // AC coefficients up to this are small, see block.small
}

func (d *Decoder) readQuants(s []byte) error {
	for len(s) > 0 {
		deep, number := s[0]>>4, s[0]&15
		if number > 3 || deep > 1 {
			return FormatError("a quantisation table has a wrong number")
		}
		n := 64 << deep
		if s = s[1:]; len(s) < n {
			return FormatError("a quantisation table is too short")
		}
		table := &d.qts[number]
		for i := range table {
			if deep == 0 {
				table[i] = uint16(s[i])
			} else {
				table[i] = binary.BigEndian.Uint16(s[2*i:])
			}
		}
		d.quants[number] = table
		s = s[n:]
	}
	return nil
}

func (q *quant) fill(from *[64]uint16) {
	q.most = 0
	for k, f := range from {
		natural := zigzag[k]
		q.factors[natural] = f
		q.packed[k] = int64(f) << (32 * (natural & 1))
		if k > 0 {
			q.most = max(q.most, int32(f))
		}
	}
	q.limit = largest / max(1, q.most)
}

// zigzag has the natural place of each coefficient, in the order in which they are stored.
var zigzag = [64]uint8{
	0, 1, 8, 16, 9, 2, 3, 10,
	17, 24, 32, 25, 18, 11, 4, 5,
	12, 19, 26, 33, 40, 48, 41, 34,
	27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36,
	29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46,
	53, 60, 61, 54, 47, 55, 62, 63,
}
