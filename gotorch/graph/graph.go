// Package graph is what generated packages stand on: those that pytorch_bridge.export_go writes in
// Python for a graph or a model. A program uses the generated package, and this one only for
// [Weights], [Open] and the constants of its errors:
//
//	net, err := mnistnet.Load("mnistnet")
//	if err != nil { ... }
//	defer net.Close()
//	y := net.Forward(x)
//
// [Open] loads what pytorch_bridge.export_model has written, a folder with the compiled graph, while the program runs.
//
// The rest of this page is for who reads generated code. A call of the C function of a graph is
//
//	var blk struct { // eight-byte fields, as the C function declares them
//		graph.Block
//		x   unsafe.Pointer
//		out graph.Result
//	}
//	var call graph.Call
//	defer call.Warn()
//	blk.x = graph.Word(x, op, "x")
//	block := (*C.struct_mnistnet_Forward_block)(unsafe.Pointer(&blk))
//	call = graph.Begin()
//	C.mnistnet_Forward_go(block)
//	call.End(op, blk.Block) // panics with *gotorch.Error where the function failed
//	runtime.KeepAlive(x.T)
//	y := graph.Tensor(blk.out, blk.Block)
//
// Results belong to the [gotorch.Scope] of the goroutine, or to the collector, as those of all
// functions of gotorch do.
package graph

import (
	"slices"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
)

// ABI2_15_0r3 is there while the C functions have the arguments that PyTorch 2.15.0 gives them, and
// those that blocks have since gotorch's third revision. A generated package names it. Where it
// does not compile for lack of it, the package was generated for another version of gotorch: generate
// it again.
const ABI2_15_0r3 = true

// abi is its name, which folders of export_model have in their manifests.
const abi = "ABI2_15_0r3"

// Block is the head of the block of arguments and results of a C function.
type Block struct {
	scope uintptr // the Scope that results belong to, 0 for none
	err   uintptr // the message of a failure, 0 for none
}

// Result is a tensor in a block.
type Result struct {
	handle uintptr
	meta   int64
}

// List is a list in a block that the C function has made.
type List struct {
	data uintptr
	len  int64
}

// Number is a Scalar in a block.
type Number [3]uint64

// Call is a call of a C function.
type Call struct {
	state    ctorch.Before
	warnings ctorch.Warnings
}

// Begin comes before the call.
func Begin() Call { return Call{state: ctorch.BeforeCall()} }

// End comes after it. It panics with *gotorch.Error where the function failed; op is what the error
// says of where.
func (call *Call) End(op string, b Block) {
	call.warnings = call.state.After()
	if b.err != 0 {
		native.Must(op, ctorch.Message(ctorch.Pointer(b.err)))
	}
}

// Warn gives the warnings of the call to the program's handler: see [gotorch.SetWarningHandler]. It
// comes last, deferred before all else: a handler may do what it likes, also with the package.
func (call *Call) Warn() {
	// The results are the caller's already, also where the handler panics.
	call.warnings.HandOn(true)
}

// Word returns what the C function reads the handle of an argument from. It panics with a TypeError if
// t is none, and with a ValueError if it was closed. If it is closed from then on, the function finds
// out, or computes with it.
func Word(t gotorch.Tensor, op, arg string) unsafe.Pointer {
	if !t.Defined() {
		panic(noTensor(t, op, arg))
	}
	return unsafe.Pointer(t.T)
}

// Held returns t's tensor as one that nobody else can close, for code that hands out its handle. It
// panics as [Word] does.
func Held(t gotorch.Tensor, op, arg string) gotorch.Tensor {
	if !t.Defined() {
		panic(noTensor(t, op, arg))
	}
	h, m := ctorch.HoldWord(t.T, arg)
	native.Must(op, m)
	return gotorch.Tensor{T: ctorch.NewOwn(uintptr(unsafe.Pointer(h)))}
}

//go:noinline
func noTensor(t gotorch.Tensor, op, arg string) *gotorch.Error {
	if t.T == nil {
		return &gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "argument '" + arg + "' is the zero Tensor, where a tensor is required"}
	}
	return args.ValueError(op, "argument '%s' was used after Close, or after the Scope it was made in", arg)
}

// OptWord is [Word] for an argument that may be none.
func OptWord(t gotorch.Tensor, op, arg string) unsafe.Pointer {
	if t.T == nil {
		return nil
	}
	return Word(t, op, arg)
}

// Words is [Word] for a list, and its length. The list is the C function's to write to.
func Words(ts []gotorch.Tensor, op, arg string) (unsafe.Pointer, int64) {
	ws := make([]unsafe.Pointer, len(ts), max(len(ts), 1)) // not nil, which would be no list
	for i, t := range ts {
		ws[i] = Word(t, op, arg)
	}
	return unsafe.Pointer(unsafe.SliceData(ws)), int64(len(ws))
}

// OptWords is [Words] for a list whose elements may be none.
func OptWords(ts []gotorch.Tensor, op, arg string) (unsafe.Pointer, int64) {
	ws := make([]unsafe.Pointer, len(ts), max(len(ts), 1))
	for i, t := range ts {
		ws[i] = OptWord(t, op, arg)
	}
	return unsafe.Pointer(unsafe.SliceData(ws)), int64(len(ws))
}

// Bool is a bool as the C function takes it.
func Bool(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// CString is a string as the C function takes it. It panics with a ValueError if it has a NUL byte.
func CString(s, op, arg string) unsafe.Pointer {
	b := make([]byte, len(s)+1)
	copy(b, s)
	if slices.Contains(b[:len(s)], 0) {
		panic(args.ValueError(op, "argument '%s' contains a NUL byte", arg))
	}
	return unsafe.Pointer(unsafe.SliceData(b))
}

// Scalar is a number as the C function takes it. It panics with a TypeError for what is no number.
func Scalar(s gotorch.Scalar, op, arg string) Number {
	n, ok := ctorch.ScalarOf(s)
	switch {
	case ok:
	case s == nil:
		panic(args.TypeError(op, "argument '%s' is nil, where a number is required", arg))
	default:
		panic(args.TypeError(op, "argument '%s' must be a Go integer, float, complex or bool, not %T", arg, s))
	}
	return *(*Number)(unsafe.Pointer(&n))
}

// ScalarOf returns a number that the C function gave: bool, int64, uint64, float64 or complex128.
func ScalarOf(n Number) gotorch.Scalar { return (*ctorch.Scalar)(unsafe.Pointer(&n)).Value() }

// Tensor takes over a tensor that the C function gave.
func Tensor(r Result, b Block) gotorch.Tensor {
	o := ctorch.OutTensor{Handle: r.handle, Meta: r.meta}
	return gotorch.Tensor{T: ctorch.NewTensor(&o, ctorch.Pointer(b.scope))}
}

// Tensors takes over a list of tensors that the C function gave.
func Tensors(l List) []gotorch.Tensor {
	data := ctorch.Pointer(l.data)
	defer ctorch.FreeArray(data)
	return native.Tensors(unsafe.Slice((*ctorch.Tensor)(data), l.len))
}

// TakeInts takes over a list of integers that the C function gave.
func TakeInts(l List) []int64 { return ctorch.TakeArray[int64](ctorch.Pointer(l.data), l.len) }

// TakeFloats takes over a list of floating point numbers that the C function gave.
func TakeFloats(l List) []float64 { return ctorch.TakeArray[float64](ctorch.Pointer(l.data), l.len) }
