package gotorch

import (
	"math"
	"strconv"
	"unsafe"
)

// elements is a strided block of numbers in host memory. It is read in place and only where
// something is printed, so the text of a big tensor costs no more than its corners.
type elements struct {
	dtype     DType
	shape     []int64
	strides   []int64        // in elements
	data      unsafe.Pointer // nil if every element is zero
	conj, neg bool           // what PyTorch's lazy conjugate and negative bits say of the memory
	corners   bool           // the memory holds no more than the edges of the dimensions that are cut
}

// reach returns how many elements of memory the tensor spans, from its first to its last.
func (e elements) reach() int64 {
	last := int64(0)
	for dim, size := range e.shape {
		last += (size - 1) * e.strides[dim]
	}
	return last + 1
}

func (e elements) numel() int64 {
	n := int64(1)
	for _, size := range e.shape {
		n *= size
	}
	return n
}

// edges returns how many indices at either end of each dimension are printed; 0 for all of them.
func (e elements) edges(style *printStyle) []int {
	edges := make([]int, len(e.shape))
	if e.numel() > int64(style.threshold) {
		for dim, size := range e.shape {
			if size > 2*int64(style.edgeItems) {
				edges[dim] = style.edgeItems
			}
		}
	}
	return edges
}

// mostShown is how many elements the corners of a tensor may have. Those of an expanded one of many dimensions have more than
// there is memory.
const mostShown = 1 << 20

// shown returns how many elements are printed; more than mostShown if there are too many to count.
func (e elements) shown(style *printStyle) int {
	cells := 1
	for dim, edge := range e.edges(style) {
		shown := int(e.shape[dim])
		if edge > 0 {
			shown = 2 * edge
		}
		if cells *= shown; cells > mostShown {
			break
		}
	}
	return cells
}

// textUnread returns the text of elements that show none of their values, "" for others.
func (e elements) textUnread(style *printStyle) string {
	_, printable := elementReaders[e.dtype]
	switch {
	case e.numel() == 0:
		return "[]"
	case !printable:
		// PyTorch raises NotImplementedError for these (bits8, uint4, ...); a %v should not.
		return "..."
	case e.numel() > int64(style.threshold) && style.edgeItems == 0 && len(e.shape) > 0:
		return "[...]"
	case e.numel() > int64(style.threshold) && e.shown(style) > mostShown:
		return "..."
	}
	return ""
}

// appendText appends the nested brackets that PyTorch writes between "tensor(" and ")". Lines
// after the first are indented by indent columns.
func (e elements) appendText(dst []byte, indent int, style *printStyle) []byte {
	if text := e.textUnread(style); text != "" {
		return append(dst, text...)
	}
	reader := elementReaders[e.dtype]
	text := elementsText{kind: reader.kind, edge: e.edges(style), lineWidth: style.lineWidth}
	cells := 1
	for dim, size := range e.shape {
		shown := int(size)
		if text.edge[dim] > 0 {
			shown = 2 * text.edge[dim]
		}
		text.shape = append(text.shape, shown)
		cells *= shown
	}
	text.gather(e, reader, cells)
	text.chooseColumns(e.dtype, style)
	dst, _ = text.append(dst, 0, 0, indent)
	return dst
}

// elementsText lays out the printed elements: all of them, or the corners in a summary.
type elementsText struct {
	kind  numberKind
	shape []int // how many indices of each dimension are printed
	edge  []int // how many of them come before "...", 0 if the dimension is printed in full

	// The printed elements in row-major order: integers, or the real and imaginary parts.
	integers []int64
	reals    []float64
	imags    []float64

	column, imagColumn column
	lineWidth          int
}

// gather reads the printed elements.
func (t *elementsText) gather(e elements, reader elementReader, cells int) {
	switch t.kind {
	case realNumber:
		t.reals = make([]float64, 0, cells)
	case complexNumber:
		t.reals = make([]float64, 0, cells)
		t.imags = make([]float64, 0, cells)
	default:
		t.integers = make([]int64, 0, cells)
	}

	read := func(offset int64) {
		if reader.integer != nil {
			var value int64
			if e.data != nil {
				value = reader.integer(unsafe.Add(e.data, offset*int64(reader.size)))
			}
			t.integers = append(t.integers, value)
			return
		}
		var re, im float64
		if e.data != nil {
			at := unsafe.Add(e.data, offset*int64(reader.size))
			re = reader.real(at)
			if t.kind == complexNumber {
				im = reader.real(unsafe.Add(at, reader.size/2))
			}
		}
		if e.conj {
			im = -im
		}
		if e.neg {
			re, im = -re, -im
		}
		t.reals = append(t.reals, re)
		if t.kind == complexNumber {
			t.imags = append(t.imags, im)
		}
	}
	var walk func(dim int, offset int64)
	walk = func(dim int, offset int64) {
		if dim == len(e.shape) {
			read(offset)
			return
		}
		for i := range t.shape[dim] {
			index := int64(i)
			if t.edge[dim] > 0 && i >= t.edge[dim] && !e.corners {
				index += e.shape[dim] - int64(t.shape[dim])
			}
			walk(dim+1, offset+index*e.strides[dim])
		}
	}
	walk(0, 0)
}

// chooseColumns decides how numbers are written and how wide they are.
func (t *elementsText) chooseColumns(dtype DType, style *printStyle) {
	switch t.kind {
	case realNumber:
		t.column = floatColumn(t.reals, dtype, style)
	case complexNumber:
		t.column = floatColumn(t.reals, dtype, style)
		t.imagColumn = floatColumn(t.imags, dtype, style)
	default:
		var scratch []byte
		t.column.width = 1
		for _, value := range t.integers {
			scratch = t.appendInteger(scratch[:0], value)
			t.column.width = max(t.column.width, len(scratch))
		}
	}
	t.column.width = max(t.column.width, style.minWidth)
}

// append writes the elements below dimension dim, beginning with the given cell, and returns the
// cell that follows them.
func (t *elementsText) append(dst []byte, dim, cell, indent int) ([]byte, int) {
	below := len(t.shape) - dim
	if below == 0 {
		return t.appendCell(dst, cell), cell + 1
	}

	perLine := 1
	ellipsis := "..."
	if below == 1 {
		width := t.column.width + len(", ")
		if t.kind == complexNumber {
			width += t.imagColumn.width + len("j")
		}
		perLine = max(1, (t.lineWidth-indent)/width)
		ellipsis = " ..."
	}
	items := 0
	separate := func() {
		switch {
		case items == 0:
		case below > 1:
			dst = append(dst, ',')
			for range below - 1 {
				dst = append(dst, '\n')
			}
			dst = appendSpaces(dst, indent+1)
		case items%perLine == 0:
			dst = append(dst, ",\n"...)
			dst = appendSpaces(dst, indent+1)
		default:
			dst = append(dst, ", "...)
		}
		items++
	}

	dst = append(dst, '[')
	for i := range t.shape[dim] {
		if t.edge[dim] > 0 && i == t.edge[dim] {
			separate()
			dst = append(dst, ellipsis...)
		}
		separate()
		dst, cell = t.append(dst, dim+1, cell, indent+1)
	}
	return append(dst, ']'), cell
}

func (t *elementsText) appendCell(dst []byte, cell int) []byte {
	start := len(dst)
	switch t.kind {
	case realNumber:
		return t.column.append(dst, t.reals[cell])
	case complexNumber:
		dst = t.column.append(dst, t.reals[cell])
		start = len(dst)
		// The imaginary part follows without padding; a nan or -0. brings its own sign or none.
		dst = t.imagColumn.appendUnpadded(dst, t.imags[cell])
		if dst[start] != '-' {
			dst = append(dst, 0)
			copy(dst[start+1:], dst[start:])
			dst[start] = '+'
		}
		return append(dst, 'j')
	default:
		dst = t.appendInteger(dst, t.integers[cell])
		return padLeft(dst, start, t.column.width)
	}
}

func (t *elementsText) appendInteger(dst []byte, value int64) []byte {
	switch {
	case t.kind == boolean && value != 0:
		return append(dst, "True"...)
	case t.kind == boolean:
		return append(dst, "False"...)
	case t.kind == unsignedInteger:
		return strconv.AppendUint(dst, uint64(value), 10)
	default:
		return strconv.AppendInt(dst, value, 10)
	}
}

// A column is how the floating-point numbers of one tensor, or of its real or imaginary part, are
// written: one form and one width for all.
type column struct {
	form      byte // strconv's 'f' or 'e'
	precision int
	point     bool // a point ends the digits: "1.", for columns of whole numbers
	width     int
}

// floatColumn picks the form by PyTorch's rules: whole numbers are written "1.", and the
// scientific form is for columns that span more than three decades, or leave [1e-4, 1e8]. Zeros,
// infinities and nans have no say in it, nor in the width.
func floatColumn(values []float64, dtype DType, style *printStyle) column {
	smallest, largest := math.Inf(1), 0.0
	whole := true
	decides := func(v float64) bool {
		// A comparison with zero in float8_e8m0fnu, which has no zero, is one with its least value.
		return v != 0 && !math.IsInf(v, 0) && !math.IsNaN(v) &&
			(dtype != Float8E8M0FNU || v != leastE8M0)
	}
	for _, v := range values {
		if decides(v) {
			smallest = min(smallest, math.Abs(v))
			largest = max(largest, math.Abs(v))
			whole = whole && v == math.Ceil(v)
		}
	}
	if largest == 0 {
		return column{form: 'f', point: true, width: 1}
	}

	scientific := style.sciMode == SciOn
	if style.sciMode == SciAuto {
		scientific = largest/smallest > 1000 || largest > 1e8 || smallest < 1e-4
	}
	c := column{form: 'f', precision: style.precision, width: 1}
	switch {
	case scientific:
		c.form = 'e'
	case whole:
		c.precision, c.point = 0, true
	}
	var scratch []byte
	for _, v := range values {
		if decides(v) {
			scratch = c.appendUnpadded(scratch[:0], v)
			c.width = max(c.width, len(scratch))
		}
	}
	return c
}

func (c column) append(dst []byte, v float64) []byte {
	start := len(dst)
	return padLeft(c.appendUnpadded(dst, v), start, c.width)
}

func (c column) appendUnpadded(dst []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, "nan"...)
	case math.IsInf(v, 1):
		return append(dst, "inf"...)
	case math.IsInf(v, -1):
		return append(dst, "-inf"...)
	}
	dst = strconv.AppendFloat(dst, v, c.form, c.precision, 64)
	if c.point {
		dst = append(dst, '.')
	}
	return dst
}

// padLeft right-aligns what was appended since start.
func padLeft(dst []byte, start, width int) []byte {
	missing := width - (len(dst) - start)
	if missing <= 0 {
		return dst
	}
	dst = appendSpaces(dst, missing)
	copy(dst[start+missing:], dst[start:])
	for i := range missing {
		dst[start+i] = ' '
	}
	return dst
}

func appendSpaces(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, ' ')
	}
	return dst
}

// appendPythonFloat appends a float as Python's repr does.
func appendPythonFloat(dst []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return column{}.appendUnpadded(dst, v)
	}
	if v != 0 && (math.Abs(v) < 1e-4 || math.Abs(v) >= 1e16) {
		return strconv.AppendFloat(dst, v, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, v, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

type numberKind uint8

const (
	signedInteger numberKind = iota
	unsignedInteger
	boolean
	realNumber
	complexNumber
)

// An elementReader reads one element of a dtype from memory; for a complex dtype, real reads
// either half of it.
type elementReader struct {
	kind    numberKind
	size    int // of the element, in bytes
	integer func(unsafe.Pointer) int64
	real    func(unsafe.Pointer) float64
}

// elementReaders has every dtype that PyTorch prints. float4_e2m1fn_x2, two numbers in a byte, is
// printed as that byte.
var elementReaders = map[DType]elementReader{
	Uint8:          integerReader[uint8](unsignedInteger),
	Uint16:         integerReader[uint16](unsignedInteger),
	Uint32:         integerReader[uint32](unsignedInteger),
	Uint64:         integerReader[uint64](unsignedInteger),
	Int8:           integerReader[int8](signedInteger),
	Int16:          integerReader[int16](signedInteger),
	Int32:          integerReader[int32](signedInteger),
	Int64:          integerReader[int64](signedInteger),
	Bool:           integerReader[uint8](boolean),
	Float64:        {realNumber, 8, nil, readFloat64},
	Float32:        {realNumber, 4, nil, readFloat32},
	Float16:        {realNumber, 2, nil, smallFloat{5, 10, 15, ieeeSpecials}.read16},
	BFloat16:       {realNumber, 2, nil, readBFloat16},
	Float8E5M2:     {realNumber, 1, nil, smallFloat{5, 2, 15, ieeeSpecials}.read8},
	Float8E5M2FNUZ: {realNumber, 1, nil, smallFloat{5, 2, 16, minusZeroIsNaN}.read8},
	Float8E4M3FN:   {realNumber, 1, nil, smallFloat{4, 3, 7, allOnesIsNaN}.read8},
	Float8E4M3FNUZ: {realNumber, 1, nil, smallFloat{4, 3, 8, minusZeroIsNaN}.read8},
	Float8E8M0FNU:  {realNumber, 1, nil, readFloat8E8M0},
	Float4E2M1FNx2: {realNumber, 1, nil, func(at unsafe.Pointer) float64 { return float64(*(*uint8)(at)) }},
	Complex128:     {complexNumber, 16, nil, readFloat64},
	Complex64:      {complexNumber, 8, nil, readFloat32},
	Complex32:      {complexNumber, 4, nil, smallFloat{5, 10, 15, ieeeSpecials}.read16},
	BComplex32:     {complexNumber, 4, nil, readBFloat16},
}

func integerReader[T uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64](kind numberKind) elementReader {
	return elementReader{
		kind:    kind,
		size:    int(unsafe.Sizeof(T(0))),
		integer: func(at unsafe.Pointer) int64 { return int64(*(*T)(at)) },
	}
}

func readFloat64(at unsafe.Pointer) float64 { return *(*float64)(at) }

func readFloat32(at unsafe.Pointer) float64 { return float64(*(*float32)(at)) }

func readBFloat16(at unsafe.Pointer) float64 {
	return float64(math.Float32frombits(uint32(*(*uint16)(at)) << 16))
}

func readFloat8E8M0(at unsafe.Pointer) float64 {
	exponent := int(*(*uint8)(at))
	if exponent == 255 {
		return math.NaN()
	}
	return math.Ldexp(1, exponent-127)
}

// leastE8M0 is what the byte 0 stands for in float8_e8m0fnu.
const leastE8M0 = 0x1p-127

// smallFloat describes a floating-point format of one or two bytes.
type smallFloat struct {
	exponent, mantissa int // widths in bits
	bias               int
	specials           smallFloatSpecials
}

type smallFloatSpecials uint8

const (
	ieeeSpecials   smallFloatSpecials = iota
	allOnesIsNaN                      // "fn": no infinities
	minusZeroIsNaN                    // "fnuz": no infinities, one zero
)

func (f smallFloat) decode(bits uint32) float64 {
	exponent := int(bits >> f.mantissa & (1<<f.exponent - 1))
	mantissa := int(bits & (1<<f.mantissa - 1))
	negative := bits>>(f.exponent+f.mantissa)&1 == 1
	allOnes := exponent == 1<<f.exponent-1
	switch {
	case f.specials == ieeeSpecials && allOnes && mantissa == 0:
		if negative {
			return math.Inf(-1)
		}
		return math.Inf(1)
	case f.specials == ieeeSpecials && allOnes,
		f.specials == allOnesIsNaN && allOnes && mantissa == 1<<f.mantissa-1,
		f.specials == minusZeroIsNaN && negative && exponent == 0 && mantissa == 0:
		return math.NaN()
	}
	if exponent == 0 {
		exponent = 1 // subnormal
	} else {
		mantissa += 1 << f.mantissa
	}
	value := math.Ldexp(float64(mantissa), exponent-f.bias-f.mantissa)
	if negative {
		return math.Copysign(value, -1)
	}
	return value
}

func (f smallFloat) read8(at unsafe.Pointer) float64 { return f.decode(uint32(*(*uint8)(at))) }

func (f smallFloat) read16(at unsafe.Pointer) float64 { return f.decode(uint32(*(*uint16)(at))) }
