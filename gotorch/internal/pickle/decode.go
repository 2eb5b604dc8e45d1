// Package pickle reads Python's pickle format, in all its protocols, and writes as much of it as holds
// data: numbers, strings, lists, tuples, dicts, sets. It never runs anything. Names of classes and
// functions in a file, which Python would import and call, are handed to a [Host], which decides what each
// of them stands for; an [Object] stands for what Go has no value for.
//
// Files may come from anywhere, so that every length is checked against what there is, and reading n
// bytes takes time and memory of the order of n. Most instructions cost what they are long. Those that
// can be short and yet cost much, because they work on a value that is there already, are paid for
// from a [Budget] that is in proportion to n; so is what a [Host] makes.
package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// List is a Python list.
type List struct{ Items []any }

// Tuple is a Python tuple. It is a pointer type so that one that occurs in many places can be told to
// be one.
type Tuple struct{ Items []any }

// Set is a Python set or frozenset.
type Set struct{ Items []any }

// Dict is a Python dict.
type Dict struct {
	Items []Item
	index map[any]int // of the keys, as keyOf has them; nil until one is added
}

// Item is a pair in a Dict.
type Item struct{ Key, Value any }

// Object is an object of which the file says the class, the arguments of the call that makes it, and what is
// put into it then. Nothing is called.
type Object struct {
	Class string
	Call  bool   // whether the object is what a call returns, and not the class or function itself
	Args  *Tuple // of the call
	State any    // the object's attributes; nil where it has none
	Items []any  // what it has as a list or set
	Pairs Dict   // what it has as a dict
}

// Set adds a pair, or changes the value of one with an equal key.
func (d *Dict) Set(key, value any, budget *Budget) error {
	if d.index == nil {
		d.index = make(map[any]int, len(d.Items))
		for i, item := range d.Items {
			k, err := keyOf(item.Key, budget, 0)
			if err != nil {
				return err
			}
			d.index[k] = i
		}
	}
	k, err := keyOf(key, budget, 0)
	if err != nil {
		return err
	}
	if i, ok := d.index[k]; ok {
		d.Items[i].Value = value
		return nil
	}
	d.index[k] = len(d.Items)
	d.Items = append(d.Items, Item{key, value})
	return nil
}

// Keys that Go cannot compare are replaced by these.
type (
	text  string                 // *big.Int and bytes, each after a letter
	pair  struct{ x, y any }     // the halves of a tuple
	tuple struct{ n, items any } // pairs of pairs
)

// Key returns what is equal in Go for keys of a dict that are equal in Python. The error is for what cannot be a key.
func Key(key any) (any, error) { return keyOf(key, NewBudget(math.MaxInt32), 0) }

// keyOf returns what is equal in Go where Python's keys are equal: 1, 1.0 and True are one. Objects are each equal to
// itself alone. It takes from the budget what it costs to have the key in a dict: room for it, and to hash it.
func keyOf(key any, budget *Budget, depth int) (any, error) {
	s, _ := key.(string)
	if err := budget.Take(128 + len(s)); err != nil {
		return nil, err
	}
	switch k := key.(type) {
	case nil, string, int64:
		return k, nil
	case bool:
		if k {
			return int64(1), nil
		}
		return int64(0), nil
	case float64:
		if k != math.Trunc(k) || math.IsInf(k, 0) { // also NaN, which is equal to nothing
			return k, nil
		}
		n, _ := big.NewFloat(k).Int(nil)
		if n.IsInt64() {
			return n.Int64(), nil
		}
		return keyOf(n, budget, depth)
	case complex128:
		if imag(k) == 0 {
			return keyOf(real(k), budget, depth)
		}
		return k, nil
	case *big.Int:
		return text("I" + k.Text(62)), budget.Take(k.BitLen())
	case []byte:
		return text("B" + string(k)), budget.Take(len(k))
	case *Tuple:
		if depth > 100 {
			return nil, errors.New("a key is nested too deeply")
		}
		items, err := halves(k.Items, budget, depth+1)
		return tuple{len(k.Items), items}, err
	case *List, *Dict:
	default:
		if reflect.TypeOf(k).Comparable() {
			return k, nil
		}
	}
	return nil, errors.New("a dict has " + Describe(key) + " as a key, which cannot be one in Python")
}

func halves(items []any, budget *Budget, depth int) (any, error) {
	switch len(items) {
	case 0:
		return nil, nil
	case 1:
		return keyOf(items[0], budget, depth)
	}
	x, err := halves(items[:len(items)/2], budget, depth)
	if err != nil {
		return nil, err
	}
	y, err := halves(items[len(items)/2:], budget, depth)
	return pair{x, y}, err
}

// equal reports whether two keys are one in a Python dict.
func equal(x, y any) bool {
	kx, err1 := Key(x)
	ky, err2 := Key(y)
	return err1 == nil && err2 == nil && kx == ky
}

// Named is what a Host's values are that have a name in error messages: "a tensor".
type Named interface{ PickleName() string }

// Describe says in Python's words what a value is, for error messages: "a dict".
func Describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64, *big.Int:
		return "an int"
	case float64:
		return "a float"
	case complex128:
		return "a complex"
	case string:
		return "a str"
	case []byte:
		return "bytes"
	case *List:
		return "a list"
	case *Tuple:
		return "a tuple"
	case *Set:
		return "a set"
	case *Dict:
		return "a dict"
	case *Object:
		if v.Call {
			return "an object of " + v.Class
		}
		return v.Class
	case Named:
		return v.PickleName()
	}
	return "another object"
}

// Copy returns a dict with the same pairs.
func (d *Dict) Copy(budget *Budget) (*Dict, error) {
	if err := budget.Take(32 * len(d.Items)); err != nil {
		return nil, err
	}
	return &Dict{Items: slices.Clone(d.Items)}, nil
}

// Get returns the value of a key.
func (d *Dict) Get(key any) (value any, ok bool) {
	for _, item := range d.Items {
		if text, is := item.Key.(string); is {
			if text == key {
				return item.Value, true
			}
		} else if _, is := key.(string); !is && equal(item.Key, key) {
			return item.Value, true
		}
	}
	return nil, false
}

// Host gives meaning to what is not data. An error ends the reading.
type Host interface {
	// Global returns what stands for a class or function of a Python module.
	Global(module, name string) (any, error)
	// Reduce calls what Global has returned.
	Reduce(callable any, args *Tuple) (any, error)
	// Build sets the state of what Reduce has returned.
	Build(object, state any) error
	// Persistent returns what is kept outside of the pickle under id. In protocol 0 that is text.
	Persistent(id any) (any, error)
}

// ByteStrings is a Host that takes the strings of Python 2, which may be text or bytes. Without it they must be UTF-8.
type ByteStrings interface {
	// ByteString returns what stands for such a string. It must not keep b.
	ByteString(b []byte) any
}

// ErrTruncated is the error for data that ends too early.
var ErrTruncated = errors.New("the pickle is truncated")

// ErrBudget is the error for data that costs far more than data of its length does.
var ErrBudget = errors.New("the pickle asks for far more memory or time than one of its length needs")

// Budget is what reading may still cost: a unit is a byte of memory, or about as long as it takes to
// look at one.
type Budget struct{ left int }

// What Python writes costs less than 16 units for each byte.
const (
	unitsPerByte = 64
	leastUnits   = 16 << 20
)

// NewBudget returns the budget for a pickle of n bytes.
func NewBudget(n int) *Budget { return &Budget{leastUnits + unitsPerByte*n} }

// Take takes n units. The error is ErrBudget where there are fewer.
func (b *Budget) Take(n int) error {
	if n > b.left {
		b.left = 0
		return ErrBudget
	}
	b.left -= n
	return nil
}

// Has reports whether there are n units left.
func (b *Budget) Has(n int) bool { return n <= b.left }

// Decode reads a pickle. Its host may take from the budget, too.
func Decode(data []byte, host Host, budget *Budget) (any, error) {
	v, _, err := DecodeFirst(data, host, budget)
	return v, err
}

// DecodeFirst reads the pickle that data begins with, and returns its length as well.
func DecodeFirst(data []byte, host Host, budget *Budget) (v any, length int, err error) {
	d := decoder{data: data, host: host, budget: budget, memo: map[uint32]any{}}
	v, err = d.run()
	if err != nil {
		return nil, d.at, fmt.Errorf("at byte %d of the pickle: %w", d.at, err)
	}
	return v, d.at, nil
}

type decoder struct {
	data   []byte
	at     int
	host   Host
	budget *Budget
	stack  []any
	marks  []int // where in stack
	memo   map[uint32]any
}

// take returns the next n bytes.
func (d *decoder) take(n int) ([]byte, error) {
	if n < 0 || n > len(d.data)-d.at {
		return nil, ErrTruncated
	}
	b := d.data[d.at : d.at+n]
	d.at += n
	return b, nil
}

// number reads an unsigned little-endian number of n bytes.
func (d *decoder) number(n int) (uint64, error) {
	b, err := d.take(n)
	if err != nil {
		return 0, err
	}
	var v uint64
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v, nil
}

// counted reads bytes that are preceded by their number, which has n bytes.
func (d *decoder) counted(n int) ([]byte, error) {
	length, err := d.number(n)
	if err != nil {
		return nil, err
	}
	if length > uint64(len(d.data)) {
		return nil, ErrTruncated
	}
	return d.take(int(length))
}

func (d *decoder) text(n int) error {
	b, err := d.counted(n)
	if err != nil {
		return err
	}
	return d.pushText(string(b))
}

// pushText takes a str.
func (d *decoder) pushText(s string) error {
	if !ValidText(s) {
		return errors.New("a string is not UTF-8")
	}
	d.push(s)
	return nil
}

// ValidText reports whether a string can be a str: it is UTF-8, but that it may have surrogates, of three bytes each.
func ValidText(s string) bool {
	for i := 0; i < len(s); {
		_, n := utf8.DecodeRuneInString(s[i:])
		if n == 1 && s[i] >= utf8.RuneSelf {
			if len(s) < i+3 || s[i] != 0xed || s[i+1] < 0xa0 || s[i+1] > 0xbf || s[i+2] < 0x80 || s[i+2] > 0xbf {
				return false
			}
			n = 3
		}
		i += n
	}
	return true
}

// byteString reads a string of Python 2.
func (d *decoder) byteString(n int) error {
	b, err := d.counted(n)
	if err != nil {
		return err
	}
	return d.pushByteString(b)
}

func (d *decoder) pushByteString(b []byte) error {
	host, ok := d.host.(ByteStrings)
	if !ok {
		return d.pushText(string(b))
	}
	d.push(host.ByteString(b))
	return nil
}

func (d *decoder) line() (string, error) {
	for i := d.at; i < len(d.data); i++ {
		if d.data[i] == '\n' {
			s := string(d.data[d.at:i])
			d.at = i + 1
			return s, nil
		}
	}
	return "", ErrTruncated
}

// decimal reads a line that is a number of the memo.
func (d *decoder) decimal() (uint64, error) {
	text, err := d.line()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.20q is no number of a value", text)
	}
	return n, nil
}

// mostDigits is how many an integer may have as text, which takes longer to read than it is long.
const mostDigits = 4300

// integer reads an int as text. With long it may end in an L.
func (d *decoder) integer(long bool) error {
	text, err := d.line()
	if err != nil {
		return err
	}
	if long {
		text = strings.TrimSuffix(text, "L")
	} else if text == "00" || text == "01" { // as protocols 0 and 1 have bools
		d.push(text == "01")
		return nil
	}
	if len(text) > mostDigits {
		return errors.New("an integer is too large")
	}
	v, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return fmt.Errorf("%.20q is no integer", text)
	}
	d.pushInt(v)
	return nil
}

func (d *decoder) pushInt(v *big.Int) {
	if v.IsInt64() {
		d.push(v.Int64())
		return
	}
	d.push(v)
}

// floatText reads a float as text.
func (d *decoder) floatText() error {
	text, err := d.line()
	if err != nil {
		return err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || strings.ContainsAny(text, "xX_pP") {
		return fmt.Errorf("%.20q is no float", text)
	}
	d.push(v)
	return nil
}

// quoted reads a string of Python 2 as text, with quotation marks and Python's escapes.
func (d *decoder) quoted() error {
	text, err := d.line()
	if err != nil {
		return err
	}
	bad := fmt.Errorf("%.20q is no string", text)
	if n := len(text); n < 2 || text[0] != text[n-1] || text[0] != '\'' && text[0] != '"' {
		return bad
	}
	text = text[1 : len(text)-1]
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			b = append(b, text[i])
			continue
		}
		if i++; i == len(text) {
			return bad
		}
		switch c := text[i]; c {
		case '\\', '\'', '"':
			b = append(b, c)
		case 'n', 't', 'r', 'a', 'b', 'f', 'v':
			b = append(b, "\n\t\r\a\b\f\v"[strings.IndexByte("ntrabfv", c)])
		case 'x':
			if len(text) < i+3 {
				return bad
			}
			v, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
			if err != nil {
				return bad
			}
			b = append(b, byte(v))
			i += 2
		default:
			if c < '0' || c > '7' {
				b = append(b, '\\', c)
				continue
			}
			v, n := 0, 0
			for ; n < 3 && i+n < len(text) && text[i+n] >= '0' && text[i+n] <= '7'; n++ {
				v = 8*v + int(text[i+n]-'0')
			}
			b = append(b, byte(v))
			i += n - 1
		}
	}
	return d.pushByteString(b)
}

// rawUnicode reads a str as text: bytes are the characters of Latin-1, others are \uXXXX and \UXXXXXXXX.
func (d *decoder) rawUnicode() error {
	text, err := d.line()
	if err != nil {
		return err
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		n := 0
		if text[i] == '\\' && i+1 < len(text) {
			n = map[byte]int{'u': 4, 'U': 8}[text[i+1]]
		}
		if n == 0 {
			b = utf8.AppendRune(b, rune(text[i]))
			continue
		}
		if len(text) < i+2+n {
			return errors.New("a string ends in the middle of a character")
		}
		v, err := strconv.ParseUint(text[i+2:i+2+n], 16, 32)
		if err != nil || v > utf8.MaxRune {
			return fmt.Errorf("%.10q is no character", text[i:])
		}
		if v >= 0xd800 && v < 0xe000 {
			b = append(b, 0xed, byte(0x80|v>>6&0x3f), byte(0x80|v&0x3f))
		} else {
			b = utf8.AppendRune(b, rune(v))
		}
		i += 1 + n
	}
	return d.pushText(string(b))
}

func (d *decoder) push(v any) { d.stack = append(d.stack, v) }

var errStack = errors.New("an instruction finds too few values")

// bottom is where the values since the last mark begin. What is below cannot be reached.
func (d *decoder) bottom() int {
	if n := len(d.marks); n > 0 {
		return d.marks[n-1]
	}
	return 0
}

func (d *decoder) pop() (any, error) {
	if len(d.stack) <= d.bottom() {
		return nil, errStack
	}
	v := d.stack[len(d.stack)-1]
	d.stack = d.stack[:len(d.stack)-1]
	return v, nil
}

func (d *decoder) top() (any, error) {
	if len(d.stack) <= d.bottom() {
		return nil, errStack
	}
	return d.stack[len(d.stack)-1], nil
}

// popMark returns a copy of the values since the last mark, and takes them and the mark away.
func (d *decoder) popMark() ([]any, error) {
	if len(d.marks) == 0 {
		return nil, errors.New("an instruction finds no mark")
	}
	from := d.bottom()
	items := append([]any(nil), d.stack[from:]...)
	d.stack = d.stack[:from]
	d.marks = d.marks[:len(d.marks)-1]
	return items, nil
}

// tuple makes a tuple of the last n values.
func (d *decoder) tuple(n int) error {
	from := len(d.stack) - n
	if from < d.bottom() {
		return errStack
	}
	t := &Tuple{append([]any(nil), d.stack[from:]...)}
	d.stack = append(d.stack[:from], t)
	return nil
}

func (d *decoder) appendTo(items ...any) error {
	v, err := d.top()
	if err != nil {
		return err
	}
	switch c := v.(type) {
	case *List:
		c.Items = append(c.Items, items...)
	case *Set:
		c.Items = append(c.Items, items...)
	case *Object:
		c.Items = append(c.Items, items...)
	default:
		return errors.New("values are added to " + Describe(v))
	}
	return nil
}

func (d *decoder) setItems(items ...any) error {
	v, err := d.top()
	if err != nil {
		return err
	}
	dict, ok := v.(*Dict)
	if object, is := v.(*Object); is {
		dict, ok = &object.Pairs, true
	}
	if !ok {
		return errors.New("pairs are added to " + Describe(v))
	}
	if len(items)%2 != 0 {
		return errStack
	}
	for i := 0; i < len(items); i += 2 {
		if err := dict.Set(items[i], items[i+1], d.budget); err != nil {
			return err
		}
	}
	return nil
}

// get pushes the value of a number. err is that of reading the number.
func (d *decoder) get(i uint64, err error) error {
	if err != nil {
		return err
	}
	v, ok := d.memo[uint32(i)]
	if !ok {
		return fmt.Errorf("value %d is used before it is there", i)
	}
	d.push(v)
	return nil
}

// put notes the last value under a number. err is that of reading the number.
func (d *decoder) put(i uint64, err error) error {
	if err != nil {
		return err
	}
	v, err := d.top()
	if err != nil {
		return err
	}
	d.memo[uint32(i)] = v
	return nil
}

// long reads an integer in two's complement.
func (d *decoder) long(b []byte) {
	if len(b) <= 8 {
		var v uint64
		for i, c := range b {
			v |= uint64(c) << (8 * i)
		}
		if n := len(b); n > 0 && n < 8 && b[n-1]&0x80 != 0 {
			v |= math.MaxUint64 << (8 * n)
		}
		d.push(int64(v))
		return
	}
	be := make([]byte, len(b))
	for i, c := range b {
		be[len(b)-1-i] = c
	}
	v := new(big.Int).SetBytes(be)
	if be[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	d.pushInt(v)
}

func (d *decoder) global(module, name string) error {
	for _, s := range []string{module, name} {
		if len(s) > 1000 || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("a class or function has the name %.40q, which none has", s)
		}
	}
	if err := d.budget.Take(len(module) + len(name)); err != nil {
		return err
	}
	v, err := d.host.Global(module, name)
	if err == nil {
		d.push(v)
	}
	return err
}

func (d *decoder) reduce() error {
	args, err := d.pop()
	if err != nil {
		return err
	}
	callable, err := d.pop()
	if err != nil {
		return err
	}
	t, ok := args.(*Tuple)
	if !ok {
		return errors.New("the arguments of a call are " + Describe(args) + ", and no tuple")
	}
	return d.call(callable, t)
}

func (d *decoder) call(callable any, args *Tuple) error {
	v, err := d.host.Reduce(callable, args)
	if err == nil {
		d.push(v)
	}
	return err
}

// reduceNamed is reduce with arguments that have names. Where there are any, they are a dict after the others.
func (d *decoder) reduceNamed() error {
	named, err := d.pop()
	if err != nil {
		return err
	}
	dict, ok := named.(*Dict)
	if !ok {
		return errors.New("the named arguments of a call are " + Describe(named) + ", and no dict")
	}
	if args, err := d.top(); err == nil && len(dict.Items) > 0 {
		if t, ok := args.(*Tuple); ok {
			if err := d.budget.Take(16 * len(t.Items)); err != nil {
				return err
			}
			d.stack[len(d.stack)-1] = &Tuple{append(slices.Clone(t.Items), dict)}
		}
	}
	return d.reduce()
}

// globalLines reads the names of a class or function as two lines.
func (d *decoder) globalLines() error {
	module, err := d.line()
	if err != nil {
		return err
	}
	name, err := d.line()
	if err != nil {
		return err
	}
	return d.global(module, name)
}

// persistent pushes what is kept elsewhere.
func (d *decoder) persistent(id any) error {
	v, err := d.host.Persistent(id)
	if err == nil {
		d.push(v)
	}
	return err
}

func (d *decoder) run() (any, error) {
	for {
		b, err := d.take(1)
		if err != nil {
			return nil, err
		}
		if op := b[0]; op == '.' { // STOP
			return d.pop()
		} else if err := d.step(op); err != nil {
			return nil, err
		}
	}
}

// step carries out one instruction. The names are those in Python's pickletools.
func (d *decoder) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		n, err := d.number(1)
		if err == nil && n > 5 {
			return fmt.Errorf("protocol %d is not supported", n)
		}
		return err
	case 0x95: // FRAME
		_, err := d.take(8)
		return err
	case '(': // MARK
		d.marks = append(d.marks, len(d.stack))
	case '0': // POP
		if n := len(d.marks); n > 0 && d.marks[n-1] == len(d.stack) {
			d.marks = d.marks[:n-1] // as Python has it, where a tuple contains itself
			return nil
		}
		_, err := d.pop()
		return err
	case '1': // POP_MARK
		_, err := d.popMark()
		return err
	case '2': // DUP
		v, err := d.top()
		d.push(v)
		return err

	case 'N': // NONE
		d.push(nil)
	case 0x88: // NEWTRUE
		d.push(true)
	case 0x89: // NEWFALSE
		d.push(false)
	case 'J': // BININT
		n, err := d.number(4)
		d.push(int64(int32(n)))
		return err
	case 'K': // BININT1
		n, err := d.number(1)
		d.push(int64(n))
		return err
	case 'M': // BININT2
		n, err := d.number(2)
		d.push(int64(n))
		return err
	case 0x8a, 0x8b: // LONG1, LONG4
		size := 1
		if op == 0x8b {
			size = 4
		}
		b, err := d.counted(size)
		if err != nil {
			return err
		}
		if len(b) > 1024 {
			return errors.New("an integer is too large")
		}
		d.long(b)
	case 'G': // BINFLOAT
		b, err := d.take(8)
		if err != nil {
			return err
		}
		d.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	case 'I', 'L': // INT, LONG
		return d.integer(op == 'L')
	case 'F': // FLOAT
		return d.floatText()
	case 'S': // STRING
		return d.quoted()
	case 'V': // UNICODE
		return d.rawUnicode()
	case 'X': // BINUNICODE
		return d.text(4)
	case 0x8c: // SHORT_BINUNICODE
		return d.text(1)
	case 0x8d: // BINUNICODE8
		return d.text(8)
	case 'U': // SHORT_BINSTRING
		return d.byteString(1)
	case 'T': // BINSTRING
		return d.byteString(4)
	case 'C', 'B', 0x8e, 0x96: // SHORT_BINBYTES, BINBYTES, BINBYTES8, BYTEARRAY8
		b, err := d.counted(map[byte]int{'C': 1, 'B': 4, 0x8e: 8, 0x96: 8}[op])
		if err == nil {
			d.push(append([]byte{}, b...))
		}
		return err

	case ']': // EMPTY_LIST
		d.push(&List{})
	case '}': // EMPTY_DICT
		d.push(&Dict{})
	case 0x8f: // EMPTY_SET
		d.push(&Set{})
	case ')': // EMPTY_TUPLE
		d.push(&Tuple{})
	case 0x85, 0x86, 0x87: // TUPLE1, TUPLE2, TUPLE3
		return d.tuple(int(op) - 0x84)
	case 't', 'l', 0x91: // TUPLE, LIST, FROZENSET
		items, err := d.popMark()
		if err != nil {
			return err
		}
		switch op {
		case 't':
			d.push(&Tuple{items})
		case 'l':
			d.push(&List{items})
		default:
			d.push(&Set{items})
		}
	case 'd': // DICT
		items, err := d.popMark()
		if err != nil {
			return err
		}
		d.push(&Dict{})
		return d.setItems(items...)
	case 'a': // APPEND
		v, err := d.pop()
		if err != nil {
			return err
		}
		return d.appendTo(v)
	case 'e', 0x90: // APPENDS, ADDITEMS
		items, err := d.popMark()
		if err != nil {
			return err
		}
		return d.appendTo(items...)
	case 's': // SETITEM
		v, err := d.pop()
		if err != nil {
			return err
		}
		k, err := d.pop()
		if err != nil {
			return err
		}
		return d.setItems(k, v)
	case 'u': // SETITEMS
		items, err := d.popMark()
		if err != nil {
			return err
		}
		return d.setItems(items...)

	case 'g': // GET
		return d.get(d.decimal())
	case 'p': // PUT
		return d.put(d.decimal())
	case 'h': // BINGET
		return d.get(d.number(1))
	case 'j': // LONG_BINGET
		return d.get(d.number(4))
	case 'q': // BINPUT
		return d.put(d.number(1))
	case 'r': // LONG_BINPUT
		return d.put(d.number(4))
	case 0x94: // MEMOIZE
		return d.put(uint64(len(d.memo)), nil)

	case 'c': // GLOBAL
		return d.globalLines()
	case 0x93: // STACK_GLOBAL
		name, err := d.pop()
		if err != nil {
			return err
		}
		module, err := d.pop()
		if err != nil {
			return err
		}
		m, ok1 := module.(string)
		n, ok2 := name.(string)
		if !ok1 || !ok2 {
			return errors.New("a global's name is no string")
		}
		return d.global(m, n)
	case 'R', 0x81: // REDUCE, NEWOBJ
		return d.reduce()
	case 0x92: // NEWOBJ_EX
		return d.reduceNamed()
	case 'i': // INST, whose class is named behind the arguments
		if err := d.globalLines(); err != nil {
			return err
		}
		items, err := d.popMark()
		if err != nil {
			return err
		}
		last := len(items) - 1
		return d.call(items[last], &Tuple{items[:last]})
	case 'o': // OBJ, whose class is before them
		items, err := d.popMark()
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return errStack
		}
		return d.call(items[0], &Tuple{items[1:]})
	case 'b': // BUILD
		state, err := d.pop()
		if err != nil {
			return err
		}
		object, err := d.top()
		if err != nil {
			return err
		}
		return d.host.Build(object, state)
	case 'Q': // BINPERSID
		id, err := d.pop()
		if err != nil {
			return err
		}
		return d.persistent(id)
	case 'P': // PERSID
		id, err := d.line()
		if err != nil {
			return err
		}
		return d.persistent(id)
	case 0x82, 0x83, 0x84: // EXT1, EXT2, EXT4
		return errors.New("the pickle names a class by a number of Python's extension registry, which is in no file")
	case 0x97, 0x98: // NEXT_BUFFER, READONLY_BUFFER
		return errors.New("the pickle has buffers that are kept outside of it")
	default:
		return fmt.Errorf("%#x is no instruction of a pickle", op)
	}
	return nil
}
