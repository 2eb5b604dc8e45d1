package gotorch

import (
	"runtime"
	"strconv"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Tensor is a handle to a PyTorch tensor. It is a small value: copies are the same tensor. The zero
// Tensor is "none", which optional arguments accept.
//
// A tensor's memory is returned when the collector finds that the program dropped it; sooner, when
// the [Scope] ends that it was made in, or by [Tensor.Close].
type Tensor struct {
	T *unsafe.Pointer // where the handle is; nil there once the tensor is closed
}

// Defined reports whether t is a tensor: not none, not closed.
func (t Tensor) Defined() bool { return ctorch.Defined(t.T) }

// SetTensorFinalizer makes the collector free the handle at p, which must be the start of an
// allocation, when nothing points to p any more. It is the one place where a handle meets the
// collector; what this package returns has been through it.
func SetTensorFinalizer(p *unsafe.Pointer) { ctorch.SetFinalizer(p) }

// Close frees t now rather than when the collector finds it. Every copy of t is closed with it, and
// using one panics with a ValueError, also on other goroutines: a call that has begun there computes with
// t to its end, and t is freed after it; only what [Data] and [RawData] returned must not be used any
// more. Closing twice, or closing none, does nothing. What autograd still needs of t lives on until it is
// done.
func (t Tensor) Close() {
	if t.Defined() {
		ctorch.CloseWords([]ctorch.Word{t.T}, false)
	}
}

// tensorInfo is what libtorch knows about a tensor. Of the C part the sizes and strides may be gone, and
// only say whether there are any; data is only valid while nobody closes the tensor.
type tensorInfo struct {
	ctorch.TensorInfo
	few  [2 * fewDims]int64 // sizes and strides,
	many []int64            // unless they are here
}

const fewDims = 6

// info asks libtorch for everything it knows about t. op is the caller's name for errors.
func (t Tensor) info(op string) (i tensorInfo) {
	word := t.wordOf(op, "self")
	t.ask(op, word, &i.TensorInfo, i.few[:])
	for int(i.Ndim) > max(fewDims, len(i.many)/2) {
		i.many = make([]int64, 2*i.Ndim)
		t.ask(op, word, &i.TensorInfo, i.many)
	}
	runtime.KeepAlive(t.T)
	return i
}

func (t Tensor) ask(op string, word int64, i *ctorch.TensorInfo, dims []int64) {
	err := ctorch.Info(word, i, (*int64)(unsafe.Pointer(unsafe.SliceData(dims))), int64(len(dims)))
	if err != nil {
		panicC(op, unsafe.Pointer(err))
	}
}

// dims returns the sizes, or with which = 1 the strides.
func (i *tensorInfo) dims(which int) []int64 {
	all, n := i.few[:], int(i.Ndim)
	if n > fewDims {
		all = i.many
	}
	return all[which*n:][:n]
}

func (i *tensorInfo) copySizes() []int64   { return append(make([]int64, 0, i.Ndim), i.dims(0)...) }
func (i *tensorInfo) copyStrides() []int64 { return append(make([]int64, 0, i.Ndim), i.dims(1)...) }

// Shape returns the sizes of t's dimensions; it is empty, and not nil, where there are none. It panics
// with a RuntimeError for nested tensors, which have no single shape.
func (t Tensor) Shape() []int64 {
	i := t.info("Shape")
	if i.Sizes == nil && i.Ndim > 0 {
		panic(newError("Shape", RuntimeError, "a nested tensor has no single shape"))
	}
	return i.copySizes()
}

// Strides returns how many elements apart t's neighbours along each dimension are. It panics with a
// RuntimeError for layouts other than Strided.
func (t Tensor) Strides() []int64 {
	i := t.info("Strides")
	if i.Strides == nil && (i.Ndim > 0 || Layout(i.Layout+1) != Strided) {
		panic(newError("Strides", RuntimeError, "a tensor of layout "+Layout(i.Layout+1).String()+" has no strides"))
	}
	return i.copyStrides()
}

// Dim returns the number of t's dimensions.
func (t Tensor) Dim() int64 {
	i := t.info("Dim")
	return i.Ndim
}

// Size returns the size of dimension d, counted from the end if negative. It panics with an
// IndexError if t has no such dimension.
func (t Tensor) Size(d int64) int64 {
	i := t.info("Size")
	n := i.Ndim
	at := d
	if at < 0 {
		at += n
	}
	if at < 0 || at >= n {
		panic(newError("Size", IndexError, "Dimension out of range (expected to be in range of ["+
			strconv.FormatInt(min(-n, -1), 10)+", "+strconv.FormatInt(max(n-1, 0), 10)+"], but got "+strconv.FormatInt(d, 10)+")"))
	}
	if i.Sizes == nil {
		panic(newError("Size", RuntimeError, "a nested tensor has no single shape"))
	}
	return i.dims(0)[at]
}

// Numel returns the number of t's elements.
func (t Tensor) Numel() int64 {
	i := t.info("Numel")
	return i.Numel
}

// DType returns the type of t's elements.
func (t Tensor) DType() DType {
	i := t.info("DType")
	return DType(i.Dtype + 1)
}

// Device returns where t's memory is.
func (t Tensor) Device() Device {
	i := t.info("Device")
	return deviceOf(i.Device)
}

// Layout returns how t's elements lie in memory.
func (t Tensor) Layout() Layout {
	i := t.info("Layout")
	return Layout(i.Layout + 1)
}

func (t Tensor) flag(op string, bit int32) bool {
	i := t.info(op)
	return i.Flags&bit != 0
}

// IsContiguous reports whether t's elements lie in memory row by row, without gaps.
func (t Tensor) IsContiguous() bool { return t.flag("IsContiguous", ctorch.TensorContiguous) }

// UseCount returns the number of references to the tensor that t is a handle of: Go's own handle,
// and those that libtorch's autograd holds.
func (t Tensor) UseCount() int {
	ctorch.FreeUnused() // what is closed counts no longer
	i := t.info("UseCount")
	return int(i.Uses)
}

// StorageUseCount returns the number of tensors that share t's memory; 0 if t has no plain memory.
func (t Tensor) StorageUseCount() int {
	ctorch.FreeUnused()
	i := t.info("StorageUseCount")
	return int(i.StorageUses)
}

// StorageBytes returns the size of the memory that t and its views share; 0 if t has no plain memory.
func (t Tensor) StorageBytes() int64 {
	i := t.info("StorageBytes")
	return i.StorageNbytes
}

// SharesStorage reports whether t and other are views of the same memory.
func (t Tensor) SharesStorage(other Tensor) bool {
	a, b := t.info("SharesStorage"), other.info("SharesStorage")
	runtime.KeepAlive(t.T)
	runtime.KeepAlive(other.T)
	return a.StorageId != 0 && a.StorageId == b.StorageId
}

// Version returns how often t, or a view of it, was changed in place. It panics with a RuntimeError
// for tensors made in inference mode, which do not count.
func (t Tensor) Version() int64 {
	i := t.info("Version")
	if i.Version < 0 {
		panic(newError("Version", RuntimeError, "Inference tensors do not track version counter."))
	}
	return i.Version
}

// Item returns the only element of t as bool, int64, uint64, float64 or complex128. It panics with a
// RuntimeError if t has not exactly one element. [Item] converts to a type of your choice.
func (t Tensor) Item() Scalar { return t.item("Item").value() }

func (t Tensor) item(op string) (c cScalar) {
	if err := ctorch.Item(t.wordOf(op, "self"), (*ctorch.Scalar)(unsafe.Pointer(&c))); err != nil {
		panicC(op, unsafe.Pointer(err))
	}
	runtime.KeepAlive(t.T)
	return c
}

// TensorOptions say what kind of tensor to make. The zero value of each means PyTorch's default.
type TensorOptions struct {
	DType        DType
	Layout       Layout
	Device       Device
	PinMemory    bool         // page-locked, for fast copies to a GPU
	MemoryFormat MemoryFormat // order in memory, for Empty, NewTensor and those named ...Like; others panic with a TypeError
	RequiresGrad bool         // whether autograd records what is done with the result
}

// refuseFormat is for the functions of TensorOptions that make tensors of one order only.
func refuseFormat(f MemoryFormat, op opID) {
	if f != 0 {
		panicFormat(op)
	}
}

//go:noinline
func panicFormat(op opID) { panic(noFormat(op.String())) }

func noFormat(op string) *Error {
	return newError(op, TypeError, "MemoryFormat is no option here: make the tensor, and call Contiguous with it")
}

// Storage is the memory that tensors are views of.
type Storage struct{ c ctorch.Owner }

func newStorage(h ctorch.Storage) *Storage {
	s := new(Storage)
	s.c.Own(unsafe.Pointer(h), func(h unsafe.Pointer) { ctorch.FreeStorage(ctorch.Storage(h)) })
	return s
}

// Storage returns the memory that t is a view of. It panics with a NotImplementedError if t has none.
func (t Tensor) Storage() *Storage {
	var s ctorch.Storage
	h := t.hold("Storage", "self")
	defer ctorch.FreeTensor(h)
	if err := ctorch.TensorStorage(h, &s); err != nil {
		panicC("Storage", unsafe.Pointer(err))
	}
	return newStorage(s)
}

// Bytes returns the size of s.
func (s *Storage) Bytes() int64 {
	var n int64
	if err := ctorch.StorageNbytes(ctorch.Storage(s.c.H), &n); err != nil {
		panicC("Bytes", unsafe.Pointer(err))
	}
	runtime.KeepAlive(s)
	return n
}

func (s *Storage) handle(op opID, arg string) unsafe.Pointer {
	if s == nil {
		panic(newError(op.String(), TypeError, "argument '"+arg+"' is nil, where a storage is required"))
	}
	return s.c.H
}

// Stream is a queue of work on a device.
type Stream struct {
	ID          int64
	DeviceIndex int64
	DeviceType  int64
}
