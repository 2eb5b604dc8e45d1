package ctorch

import (
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"
)

// Message is why a function failed, as C says it: "KindError: first line". It is nil where it did not fail. Who takes one over
// frees it with [TakeMessage], or gives it to gotorch.ErrorFromC.
type Message = *Char

// NewMessage makes one. The kind is one of gotorch's ErrorKinds.
func NewMessage(kind, text string) Message {
	return CString(kind + ": " + strings.ReplaceAll(text, "\x00", ""))
}

// TakeMessage returns what a message says, and frees it.
func TakeMessage(m Message) (kind, text string) {
	said := GoString(m)
	FreeString(m)
	kind, text, ok := strings.Cut(said, ": ")
	if !ok {
		kind, text = "RuntimeError", said
	}
	return kind, text
}

// TooMany says that n options structs are too many.
func TooMany(n int) string {
	return "there may be one options struct, and there are " + strconv.Itoa(n) + ": put all fields into one"
}

// A Word is where Go keeps a tensor's handle: gotorch.Tensor's T. It is nil for none, and nil is in it once the tensor is
// closed.
type Word = *unsafe.Pointer

// Defined reports whether w is a tensor's: not none, not closed.
func Defined(w Word) bool { return w != nil && atomic.LoadPointer(w) != nil }

// BadWord says why there is no tensor for an argument.
func BadWord(w Word, arg string) Message {
	if w == nil {
		return NewMessage("TypeError", "argument '"+arg+"' is the zero Tensor, where a tensor is required")
	}
	return NewMessage("ValueError", "argument '"+arg+"' was used after Close, or after the Scope it was made in")
}

// HoldWord returns a handle to the tensor that no Close takes away. The caller gives it to [FreeTensor].
func HoldWord(w Word, arg string) (Tensor, Message) {
	for again := false; w != nil; again = true {
		if h := holdWord(w); h != nil {
			return h, nil
		}
		m := NotHeld(w, arg)
		if !Defined(w) || again {
			return nil, m
		}
		if !makeRoomFor(m) {
			return nil, m
		}
		FreeString(m)
	}
	return nil, BadWord(w, arg)
}

// NotHeld says why C gave no handle to a tensor. A word never gets one again: with one in it, it was memory that lacked.
func NotHeld(w Word, arg string) Message {
	if Defined(w) {
		return NewMessage("MemoryError", "there is no memory to use argument '"+arg+"' with")
	}
	return BadWord(w, arg)
}

// A Holder holds tensors for functions that are no generated op, as [HoldWord] does.
type Holder struct{ handles []Tensor }

// One returns the handle of a tensor.
func (h *Holder) One(arg string, w Word) (Tensor, Message) {
	handle, m := HoldWord(w, arg)
	if m == nil {
		h.handles = append(h.handles, handle)
	}
	return handle, m
}

// Free frees what is held.
func (h *Holder) Free() { FreeTensors(first(h.handles), int64(len(h.handles))) }

func first[T any](list []T) *T { return unsafe.SliceData(list) }
