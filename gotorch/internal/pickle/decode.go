// Package pickle reads and writes as much of Python's pickle format as holds data: numbers, strings,
// lists, tuples, dicts, sets. It never runs anything. Names of classes and functions in a file, which
// Python would import and call, are handed to a [Host], who decides what each of them stands for.
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
	"slices"
	"strconv"
	"unicode/utf8"
)

// List is a Python list.
type List struct{ Items []any }

// Tuple is a Python tuple. It is a pointer type so that one that occurs in many places can be told to
// be one.
type Tuple struct{ Items []any }

// Set is a Python set or frozenset.
type Set struct{ Items []any }

// Dict is a Python dict. Keys are strings, int64, float64, bool or nil.
type Dict struct {
	Items []Item
	index map[any]int // of the keys; nil until one is added
}

// Item is a pair in a Dict.
type Item struct{ Key, Value any }

// Set adds a pair, or changes the value of one with an equal key.
func (d *Dict) Set(key, value any, budget *Budget) error {
	switch key.(type) {
	case nil, string, int64, float64, bool, Hashable:
	default:
		return fmt.Errorf("a dict has a key of type %T", key)
	}
	if d.index == nil {
		d.index = map[any]int{}
		for i, item := range d.Items {
			if err := budget.Take(costOf(item.Key)); err != nil {
				return err
			}
			d.index[item.Key] = i
		}
	}
	if err := budget.Take(costOf(key)); err != nil {
		return err
	}
	if i, ok := d.index[key]; ok {
		d.Items[i].Value = value
		return nil
	}
	d.index[key] = len(d.Items)
	d.Items = append(d.Items, Item{key, value})
	return nil
}

// costOf returns what it costs to have a key in a dict: room for the pair, and to hash it.
func costOf(key any) int {
	text, _ := key.(string)
	return 128 + len(text)
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
		if item.Key == key {
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
	// Persistent returns what is kept outside of the pickle under id.
	Persistent(id any) (any, error)
}

// ByteStrings is a Host that takes the strings of Python 2, which may be text or bytes. Without it they must be UTF-8.
type ByteStrings interface {
	// ByteString returns what stands for such a string. It must not keep b.
	ByteString(b []byte) any
}

// Hashable is what a Host's objects are that may be keys of dicts: each is equal to itself alone, so they must be pointers.
type Hashable interface{ Hashable() }

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

// Decode reads a pickle of protocol 2 to 5. Its host may take from the budget, too.
func Decode(data []byte, host Host, budget *Budget) (any, error) {
	d := decoder{data: data, host: host, budget: budget, memo: map[uint32]any{}}
	v, err := d.run()
	if err != nil {
		return nil, fmt.Errorf("at byte %d of the pickle: %w", d.at, err)
	}
	return v, nil
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
	if !utf8.Valid(b) {
		return errors.New("a string is not UTF-8")
	}
	d.push(string(b))
	return nil
}

// byteString reads a string of Python 2.
func (d *decoder) byteString(n int) error {
	host, ok := d.host.(ByteStrings)
	if !ok {
		return d.text(n)
	}
	b, err := d.counted(n)
	if err == nil {
		d.push(host.ByteString(b))
	}
	return err
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
	default:
		return fmt.Errorf("values are added to a %T", v)
	}
	return nil
}

func (d *decoder) setItems(items ...any) error {
	v, err := d.top()
	if err != nil {
		return err
	}
	dict, ok := v.(*Dict)
	if !ok {
		return fmt.Errorf("pairs are added to a %T", v)
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

func (d *decoder) get(n int) error {
	i, err := d.number(n)
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

func (d *decoder) put(i uint64) error {
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
	if v.IsInt64() {
		d.push(v.Int64())
		return
	}
	d.push(v)
}

func (d *decoder) global(module, name string) error {
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
		return errors.New("the arguments of a call are no tuple")
	}
	v, err := d.host.Reduce(callable, t)
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
		if err == nil && (n < 2 || n > 5) {
			return fmt.Errorf("protocol %d is not supported", n)
		}
		return err
	case 0x95: // FRAME
		_, err := d.take(8)
		return err
	case '(': // MARK
		d.marks = append(d.marks, len(d.stack))
	case '0': // POP
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
		d.push(append([]byte{}, b...))
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

	case 'h': // BINGET
		return d.get(1)
	case 'j': // LONG_BINGET
		return d.get(4)
	case 'q': // BINPUT
		n, err := d.number(1)
		if err != nil {
			return err
		}
		return d.put(n)
	case 'r': // LONG_BINPUT
		n, err := d.number(4)
		if err != nil {
			return err
		}
		return d.put(n)
	case 0x94: // MEMOIZE
		return d.put(uint64(len(d.memo)))

	case 'c': // GLOBAL
		module, err := d.line()
		if err != nil {
			return err
		}
		name, err := d.line()
		if err != nil {
			return err
		}
		return d.global(module, name)
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
		v, err := d.host.Persistent(id)
		if err == nil {
			d.push(v)
		}
		return err
	default:
		return errors.New("instruction " + strconv.QuoteRune(rune(op)) + " is not supported")
	}
	return nil
}
