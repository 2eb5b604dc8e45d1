package serve

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// reader reads JSON from memory, once, without making anything of it that is not asked for: most of a request is
// numbers, which go straight into a tensor's memory. What encoding/json takes it takes, and besides NaN, Infinity and
// -Infinity as numbers, which Python writes and Triton takes.
type reader struct {
	text []byte
	at   int
}

// deepest is how far arrays and objects may nest.
const deepest = 64

func (r *reader) wrong(format string, values ...any) *Error {
	e := newError(InvalidArgument, format, values...)
	e.Msg = "JSON, at byte " + strconv.Itoa(r.at) + ": " + e.Msg
	return e
}

// peek returns the next byte that is no white space, or 0 at the end.
func (r *reader) peek() byte {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) expect(c byte, in string) error {
	if got := r.peek(); got != c || r.at == len(r.text) {
		return r.wrong("expected '%c' in %s%s", c, in, r.found())
	}
	r.at++
	return nil
}

func (r *reader) found() string {
	if r.at >= len(r.text) {
		return ", and the text ends"
	}
	return ", found " + strconv.QuoteRune(rune(r.text[r.at]))
}

// end checks that nothing follows.
func (r *reader) end() error {
	if r.peek(); r.at < len(r.text) {
		return r.wrong("something follows the request%s", r.found())
	}
	return nil
}

// object calls field for each key. It is to read the value.
func (r *reader) object(what string, field func(key string) error) error {
	if err := r.expect('{', what); err != nil {
		return err
	}
	if r.peek() == '}' {
		r.at++
		return nil
	}
	for {
		r.peek()
		key, err := r.str(what)
		if err != nil {
			return err
		}
		if err := r.expect(':', what); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		if r.peek() == '}' {
			r.at++
			return nil
		}
		if err := r.expect(',', what); err != nil {
			return err
		}
	}
}

// array calls element for each element. It is to read it.
func (r *reader) array(what string, element func() error) error {
	if err := r.expect('[', what); err != nil {
		return err
	}
	if r.peek() == ']' {
		r.at++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if r.peek() == ']' {
			r.at++
			return nil
		}
		if err := r.expect(',', what); err != nil {
			return err
		}
	}
}

// str reads a string.
func (r *reader) str(what string) (string, error) {
	b, err := r.bytes(what)
	return text(b), err
}

// text is string(b), which takes no memory for the words of nearly all requests.
func text(b []byte) string {
	switch string(b) {
	case "inputs":
		return "inputs"
	case "outputs":
		return "outputs"
	case "parameters":
		return "parameters"
	case "name":
		return "name"
	case "shape":
		return "shape"
	case "datatype":
		return "datatype"
	case "data":
		return "data"
	case "id":
		return "id"
	case "binary_data_size":
		return "binary_data_size"
	case "binary_data_output":
		return "binary_data_output"
	case "binary_data":
		return "binary_data"
	case "FP32":
		return "FP32"
	case "INT64":
		return "INT64"
	}
	return string(b)
}

// bytes reads a string. The result may be part of the text. Text that is no UTF-8, and half of a surrogate pair, are errors:
// encoding/json makes U+FFFD of them, and a model would see another text than was sent.
func (r *reader) bytes(what string) ([]byte, error) {
	if r.peek() != '"' {
		return nil, r.wrong("expected a string in %s%s", what, r.found())
	}
	start := r.at + 1
	for i := start; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			r.at = i + 1
			return r.text[start:i:i], nil
		case c == '\\' || c >= utf8.RuneSelf:
			return r.escaped(what, start)
		case c < ' ':
			r.at = i
			return nil, r.wrong("a control character in a string")
		}
	}
	r.at = len(r.text)
	return nil, r.wrong("a string has no end")
}

func (r *reader) escaped(what string, start int) ([]byte, error) {
	var out []byte
	for i := start; i < len(r.text); {
		c := r.text[i]
		switch {
		case c == '"':
			r.at = i + 1
			return out, nil
		case c < ' ':
			r.at = i
			return nil, r.wrong("a control character in a string")
		case c < utf8.RuneSelf && c != '\\':
			out = append(out, c)
			i++
		case c != '\\':
			char, size := utf8.DecodeRune(r.text[i:])
			if char == utf8.RuneError && size == 1 {
				r.at = i
				return nil, r.wrong("%s has the byte %#x, where JSON is UTF-8: send bytes that are no text as binary data", what, c)
			}
			out = utf8.AppendRune(out, char)
			i += size
		default:
			char, size := escape(r.text[i:])
			if size == 0 {
				r.at = i
				return nil, r.wrong("%s has an escape that JSON does not know", what)
			}
			if char == halfPair {
				r.at = i
				return nil, r.wrong("%s has %s, half of a surrogate pair, which is no character", what, r.text[i:i+6])
			}
			out = utf8.AppendRune(out, char)
			i += size
		}
	}
	r.at = len(r.text)
	return nil, r.wrong("a string has no end")
}

// halfPair is what escape returns for half of a surrogate pair.
const halfPair rune = -1

// escape reads an escape and returns how long it is, 0 if it is none.
func escape(s []byte) (rune, int) {
	if len(s) < 2 {
		return 0, 0
	}
	if at := strings.IndexByte(`"\/bfnrt`, s[1]); at >= 0 {
		return rune("\"\\/\b\f\n\r\t"[at]), 2
	}
	high, ok := hex4(s)
	if !ok {
		return 0, 0
	}
	switch {
	case high < 0xd800 || high > 0xdfff:
		return high, 6
	case high < 0xdc00:
		if low, ok := hex4(s[6:]); ok && low >= 0xdc00 && low <= 0xdfff {
			return (high-0xd800)<<10 + (low - 0xdc00) + 0x10000, 12
		}
	}
	return halfPair, 6
}

func hex4(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n := rune(0)
	for _, c := range s[2:6] {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// word reports whether text is next, and reads it.
func (r *reader) word(text string) bool {
	if len(r.text)-r.at >= len(text) && string(r.text[r.at:r.at+len(text)]) == text {
		r.at += len(text)
		return true
	}
	return false
}

// number reads a number's text. It is part of the text.
func (r *reader) number(what string) (string, error) {
	r.peek()
	start, i, t := r.at, r.at, r.text
	digits := func() bool {
		first := i
		for i < len(t) && t[i]-'0' <= 9 {
			i++
		}
		return i > first
	}
	if i < len(t) && t[i] == '-' {
		i++
	}
	ok := true
	if i < len(t) && t[i] == '0' {
		i++
	} else {
		ok = digits()
	}
	if ok && i < len(t) && t[i] == '.' {
		i++
		ok = digits()
	}
	if ok && i < len(t) && t[i]|0x20 == 'e' {
		i++
		if i < len(t) && (t[i] == '+' || t[i] == '-') {
			i++
		}
		ok = digits()
	}
	if !ok {
		for _, name := range []string{"NaN", "Infinity", "-Infinity"} {
			if r.word(name) {
				return name, nil
			}
		}
		return "", r.wrong("expected a number in %s%s", what, r.found())
	}
	r.at = i
	return unsafe.String(&t[start], i-start), nil // strconv does not keep it
}

// null reports whether null is next, and reads it.
func (r *reader) null() bool {
	r.peek()
	return r.word("null")
}

// integer reads an int64.
func (r *reader) integer(what string) (int64, error) {
	text, err := r.number(what)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, r.wrong("%s is %.40s, which is no int64", what, text)
	}
	return n, nil
}

func (r *reader) boolean(what string) (bool, error) {
	r.peek()
	switch {
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	}
	return false, r.wrong("expected true or false in %s%s", what, r.found())
}

// skip reads a value of any kind.
func (r *reader) skip(depth int) error {
	if depth > deepest {
		return r.wrong("arrays and objects nest more than %d deep", deepest)
	}
	switch c := r.peek(); c {
	case '{':
		return r.object("an object", func(string) error { return r.skip(depth + 1) })
	case '[':
		return r.array("an array", func() error { return r.skip(depth + 1) })
	case '"':
		_, err := r.bytes("a value")
		return err
	case 't', 'f':
		_, err := r.boolean("a value")
		return err
	case 'n':
		if r.word("null") {
			return nil
		}
	}
	_, err := r.number("a value")
	return err
}

// maxParameters is how many parameters a request, an input or an output may have.
const maxParameters = 1000

// parameters reads an object of parameters. Those that are null are left out.
func (r *reader) parameters(what string) (Parameters, error) {
	p := Parameters{}
	return p, r.parametersInto(p, what)
}

func (r *reader) parametersInto(p Parameters, what string) error {
	return r.object(what, func(key string) (err error) {
		if len(p) >= maxParameters {
			return r.wrong("%s has more than %d entries", what, maxParameters)
		}
		switch c := r.peek(); c {
		case '"':
			p[key], err = r.str(what)
		case 't', 'f':
			p[key], err = r.boolean(what)
		case 'n':
			if !r.word("null") {
				err = r.wrong("expected a value of parameter %q", key)
			}
		case '{', '[':
			err = r.wrong("parameter %q is neither a bool, a number nor a string", key)
		default:
			var text string
			if text, err = r.number(what); err != nil {
				return err
			}
			if n, bad := strconv.ParseInt(text, 10, 64); bad == nil {
				p[key] = n
			} else if n, bad := strconv.ParseUint(text, 10, 64); bad == nil {
				p[key] = n
			} else if !strings.ContainsAny(text, ".eENI") { // a double would round it
				return r.wrong("parameter %q is %.40s, an integer that neither int64 nor uint64 holds", key, text)
			} else {
				f, bad := strconv.ParseFloat(text, 64)
				if bad != nil {
					return r.wrong("parameter %q is %.40s, which is no number that a double holds", key, text)
				}
				p[key] = f
			}
		}
		return err
	})
}

// data reads the elements of a tensor, flat or nested in its shape, and appends their memory to out. Texts, for BYTES,
// are appended to texts.
func (r *reader) data(name string, typ DataType, shape []int64, out []byte, texts [][]byte) ([]byte, [][]byte, error) {
	n, ok := elements(shape)
	if !ok {
		return nil, nil, r.wrong("input %q has shape %s, which no tensor can have", name, shapeText(shape))
	}
	d := data{reader: r, name: name, typ: typ, out: out, texts: texts, left: n}
	nested := false
	if len(shape) > 1 {
		before := r.at
		if r.peek() == '[' {
			r.at++
			nested = r.peek() == '['
		}
		r.at = before
	}
	var err error
	switch {
	case r.peek() != '[': // a scalar
		if n != 1 {
			return nil, nil, r.wrong("the data of input %q is no array, where its shape is %s", name, shapeText(shape))
		}
		err = d.element()
	case nested:
		err = d.nested(shape)
	default:
		err = r.array("data", d.element)
	}
	if err != nil {
		return nil, nil, err
	}
	if d.left > 0 {
		return nil, nil, r.wrong("input %q has %d elements of data, where shape %s has %d", name, n-d.left, shapeText(shape), n)
	}
	return d.out, d.texts, nil
}

type data struct {
	*reader
	name  string
	typ   DataType
	out   []byte
	texts [][]byte
	left  int
}

func (d *data) nested(shape []int64) error {
	if len(shape) == 0 {
		return d.element()
	}
	if len(shape) > deepest {
		return d.wrong("input %q has more than %d dimensions", d.name, deepest)
	}
	n := int64(0)
	err := d.array("data", func() error {
		if n++; n > shape[0] {
			return d.wrong("the data of input %q has more than %d elements where its shape says so", d.name, shape[0])
		}
		return d.nested(shape[1:])
	})
	if err == nil && n != shape[0] {
		err = d.wrong("the data of input %q has %d elements where its shape says %d", d.name, n, shape[0])
	}
	return err
}

// element reads an element.
func (d *data) element() error {
	if d.left--; d.left < 0 {
		return d.wrong("input %q has more elements of data than its shape", d.name)
	}
	switch d.typ {
	case BYTES:
		text, err := d.bytes("data of BYTES")
		d.texts = append(d.texts, text)
		return err
	case BOOL:
		d.peek()
		switch {
		case d.word("true"):
			d.out = append(d.out, 1)
		case d.word("false"):
			d.out = append(d.out, 0)
		default:
			return d.integerElement()
		}
		return nil
	case FP16, FP32, FP64:
		return d.floatElement()
	case BF16:
		return d.wrong("input %q is BF16, which JSON has no form of: send it as binary data", d.name)
	}
	return d.integerElement()
}

func (d *data) integerElement() error {
	text, err := d.number("data")
	if err != nil {
		return err
	}
	size := d.typ.Size()
	var bits uint64
	switch d.typ {
	case INT8, INT16, INT32, INT64:
		var n int64
		n, err = strconv.ParseInt(text, 10, 8*size)
		bits = uint64(n)
	case BOOL:
		bits, err = strconv.ParseUint(text, 10, 1)
	default:
		if text == "-0" {
			text = "0"
		}
		bits, err = strconv.ParseUint(text, 10, 8*size)
	}
	if err != nil {
		return d.wrong("%.40s in the data of input %q is no %s", text, d.name, d.typ)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	d.out = append(d.out, b[:size]...)
	return nil
}

func (d *data) floatElement() error {
	text, err := d.number("data")
	if err != nil {
		return err
	}
	bits := 32
	if d.typ != FP32 { // what is rounded twice is not always rounded right, so halves come of doubles
		bits = 64
	}
	f, err := strconv.ParseFloat(text, bits)
	if err != nil || d.typ == FP16 && math.Abs(f) >= overHalf && !math.IsInf(f, 0) {
		return d.wrong("%.40s in the data of input %q is out of the range of %s; infinity is written Infinity", text, d.name, d.typ)
	}
	switch d.typ {
	case FP32:
		d.out = binary.LittleEndian.AppendUint32(d.out, math.Float32bits(float32(f)))
	case FP64:
		d.out = binary.LittleEndian.AppendUint64(d.out, math.Float64bits(f))
	default:
		d.out = binary.LittleEndian.AppendUint16(d.out, halfOf(f))
	}
	return nil
}

// overHalf is the least number that is infinite as a float16.
const overHalf = 65520

// halfOf rounds to the nearest float16, of two as near to the even one, as NumPy does.
func halfOf(f float64) uint16 {
	bits := math.Float64bits(f)
	sign := uint16(bits >> 48 & 0x8000)
	magnitude := math.Abs(f)
	switch {
	case f != f:
		return sign | 0x7e00
	case magnitude >= overHalf:
		return sign | 0x7c00
	case magnitude < 0x1p-14: // subnormal: whole multiples of 2^-24
		return sign | uint16(math.RoundToEven(magnitude*0x1p24))
	}
	exponent := int(bits>>52&0x7ff) - 1023
	mantissa := math.RoundToEven(math.Ldexp(magnitude, 10-exponent)) // 1024 to 2048
	return sign | uint16((exponent+14)<<10+int(mantissa))
}

// halfFloat is a float16 as a float32.
func halfFloat(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	switch exponent, mantissa := uint32(h>>10&0x1f), uint32(h&0x3ff); exponent {
	case 0:
		f := float32(mantissa) * 0x1p-24
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | mantissa<<13)
	default:
		return math.Float32frombits(sign | (exponent+112)<<23 | mantissa<<13)
	}
}

// Writing ------------------------------------------------------------------------------------------------

// appendString appends a JSON string. What is no UTF-8 becomes U+FFFD.
func appendString(to []byte, s string) []byte {
	to = append(to, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', byte(c))
		case c == '\n':
			to = append(to, '\\', 'n')
		case c < ' ':
			to = append(to, '\\', 'u', '0', '0', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			to = utf8.AppendRune(to, c)
		}
	}
	return append(to, '"')
}

func appendShape(to []byte, shape []int64) []byte {
	to = append(to, '[')
	for i, n := range shape {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendInt(to, n, 10)
	}
	return append(to, ']')
}

func appendFloat(to []byte, f float64, bits int) []byte {
	switch {
	case f != f:
		return append(to, "NaN"...)
	case math.IsInf(f, 1):
		return append(to, "Infinity"...)
	case math.IsInf(f, -1):
		return append(to, "-Infinity"...)
	}
	start := len(to)
	to = strconv.AppendFloat(to, f, 'g', -1, bits)
	for _, c := range to[start:] {
		if c == '.' || c == 'e' {
			return to
		}
	}
	return append(to, '.', '0') // else many a client makes an integer of it, for which there is no -0
}

// appendData appends the elements of an output as a flat array.
func appendData(to []byte, o *output) ([]byte, error) {
	to = append(to, '[')
	for i, text := range o.bytes {
		if i > 0 {
			to = append(to, ',')
		}
		if !utf8.Valid(text) {
			return nil, newError(InvalidArgument, "element %d of output %q is no UTF-8, and has no form in JSON: ask for binary_data", i, o.name)
		}
		to = appendString(to, unsafe.String(unsafe.SliceData(text), len(text)))
	}
	size := o.typ.Size()
	little := binary.LittleEndian
	for raw := o.raw; len(raw) > 0; raw = raw[size:] {
		switch o.typ {
		case BOOL:
			to = strconv.AppendBool(to, raw[0] != 0)
		case UINT8:
			to = strconv.AppendUint(to, uint64(raw[0]), 10)
		case UINT16:
			to = strconv.AppendUint(to, uint64(little.Uint16(raw)), 10)
		case UINT32:
			to = strconv.AppendUint(to, uint64(little.Uint32(raw)), 10)
		case UINT64:
			to = strconv.AppendUint(to, little.Uint64(raw), 10)
		case INT8:
			to = strconv.AppendInt(to, int64(int8(raw[0])), 10)
		case INT16:
			to = strconv.AppendInt(to, int64(int16(little.Uint16(raw))), 10)
		case INT32:
			to = strconv.AppendInt(to, int64(int32(little.Uint32(raw))), 10)
		case INT64:
			to = strconv.AppendInt(to, int64(little.Uint64(raw)), 10)
		case FP16:
			to = appendFloat(to, float64(halfFloat(little.Uint16(raw))), 32)
		case FP32:
			to = appendFloat(to, float64(math.Float32frombits(little.Uint32(raw))), 32)
		case FP64:
			to = appendFloat(to, math.Float64frombits(little.Uint64(raw)), 64)
		default:
			return nil, newError(InvalidArgument, "output %q is %s, which JSON has no form of: ask for binary_data", o.name, o.typ)
		}
		to = append(to, ',')
	}
	if len(o.raw) > 0 {
		to = to[:len(to)-1]
	}
	return append(to, ']'), nil
}
