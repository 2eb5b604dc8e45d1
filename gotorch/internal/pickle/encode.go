package pickle

import (
	"encoding/binary"
	"math"
	"math/big"
)

// Encoder writes a pickle of protocol 2, which every version of PyTorch reads. Its methods append one
// value each; what they are part of is the caller's to say, with the methods that open and close.
type Encoder struct {
	b []byte
}

// NewEncoder returns an Encoder at the start of a pickle.
func NewEncoder() *Encoder { return &Encoder{[]byte{0x80, 2}} }

// Finish ends the pickle and returns it.
func (e *Encoder) Finish() []byte { return append(e.b, '.') }

func (e *Encoder) op(c byte) { e.b = append(e.b, c) }

// None appends None.
func (e *Encoder) None() { e.op('N') }

// Bool appends True or False.
func (e *Encoder) Bool(v bool) {
	if v {
		e.op(0x88)
	} else {
		e.op(0x89)
	}
}

// Int appends an int.
func (e *Encoder) Int(v int64) {
	switch {
	case v >= 0 && v < 1<<8:
		e.b = append(e.b, 'K', byte(v))
	case v >= math.MinInt32 && v <= math.MaxInt32:
		e.b = binary.LittleEndian.AppendUint32(append(e.b, 'J'), uint32(v))
	default:
		e.b = binary.LittleEndian.AppendUint64(append(e.b, 0x8a, 8), uint64(v))
	}
}

// Uint appends an int.
func (e *Encoder) Uint(v uint64) {
	if v <= math.MaxInt64 {
		e.Int(int64(v))
		return
	}
	e.b = append(binary.LittleEndian.AppendUint64(append(e.b, 0x8a, 9), v), 0)
}

// BigInt appends an int of up to 2,000 bits. It reports whether it could.
func (e *Encoder) BigInt(v *big.Int) bool {
	n := v.BitLen()/8 + 1
	if n > 250 {
		return false
	}
	twos := new(big.Int).Set(v)
	if v.Sign() < 0 {
		twos.Add(twos, new(big.Int).Lsh(big.NewInt(1), uint(8*n)))
	}
	be := twos.FillBytes(make([]byte, n))
	e.b = append(e.b, 0x8a, byte(n))
	for i := range be {
		e.b = append(e.b, be[n-1-i])
	}
	return true
}

// Float appends a float.
func (e *Encoder) Float(v float64) {
	e.b = binary.BigEndian.AppendUint64(append(e.b, 'G'), math.Float64bits(v))
}

// String appends a str, which must be UTF-8. It reports whether it could: the format ends at 4 GB.
func (e *Encoder) String(s string) bool {
	if len(s) > math.MaxUint32 {
		return false
	}
	e.b = append(binary.LittleEndian.AppendUint32(append(e.b, 'X'), uint32(len(s))), s...)
	return true
}

// Bytes appends a bytes object, in the form that protocol 2 has for it: a call.
func (e *Encoder) Bytes(b []byte) bool {
	e.Global("_codecs", "encode")
	latin := make([]rune, len(b))
	for i, c := range b {
		latin[i] = rune(c)
	}
	ok := e.String(string(latin))
	e.String("latin1")
	e.b = append(e.b, 0x86, 'R') // TUPLE2, REDUCE
	return ok
}

// Global appends a class or function of a Python module.
func (e *Encoder) Global(module, name string) {
	e.b = append(append(append(append(append(e.b, 'c'), module...), '\n'), name...), '\n')
}

// Mark begins the elements of a tuple, or of what is added to a list or dict.
func (e *Encoder) Mark() { e.op('(') }

// Tuple makes a tuple of the values since the last Mark.
func (e *Encoder) Tuple() { e.op('t') }

// List begins a list; the elements follow, then AppendAll.
func (e *Encoder) List() { e.b = append(e.b, ']', '(') }

// AppendAll ends a list.
func (e *Encoder) AppendAll() { e.op('e') }

// Dict begins a dict; keys and values follow, then SetAll.
func (e *Encoder) Dict() { e.b = append(e.b, '}', '(') }

// SetAll ends a dict.
func (e *Encoder) SetAll() { e.op('u') }

// Call calls what was appended before the tuple that was appended last, with that tuple.
func (e *Encoder) Call() { e.op('R') }

// New makes an object of the class that was appended last, without arguments.
func (e *Encoder) New() { e.b = append(e.b, ')', 0x81) } // EMPTY_TUPLE, NEWOBJ

// Build sets the state of the object that was appended before it to the value that was appended last.
func (e *Encoder) Build() { e.op('b') }

// Persistent makes the value that was appended last the id of something kept elsewhere.
func (e *Encoder) Persistent() { e.op('Q') }
