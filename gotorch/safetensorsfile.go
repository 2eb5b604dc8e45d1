package gotorch

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/regular"
)

// SafetensorsFile is a safetensors file that is open, of which only the header has been read: Python's
// safetensors.safe_open. [OpenSafetensors] makes one. All of it may be used by several goroutines at once.
//
//	f, err := gotorch.OpenSafetensors("model.safetensors")
//	defer f.Close()
//	weight, err := f.Tensor("wte.weight")         // mapped: read when it is used
//	first, err := f.Rows("wte.weight", 0, 100)    // wte.weight[:100]
//
// Tensors go on to live when the file is closed.
type SafetensorsFile struct {
	path     string
	entries  []SafetensorsEntry
	byName   map[string]int
	metadata map[string]string

	mutex sync.RWMutex
	file  *os.File // nil when it is closed
}

// SafetensorsEntry is what the header of a safetensors file says of a tensor.
type SafetensorsEntry struct {
	Name   string
	DType  DType  // 0 where this PyTorch has none of that kind
	Format string // the dtype as the file has it: "BF16"
	Shape  []int64
	Offset int64 // of the first element in the file, in bytes
	Bytes  int64 // that all elements take
}

// SafetensorsOptions are the arguments of [SafetensorsFile.Tensor] that have defaults.
type SafetensorsOptions struct {
	// Read copies the elements into memory at once, rather than map them. What is mapped lies where the file has it: of
	// tensors at an address that is no multiple of 64, functions may compute other last bits.
	Read bool
	// DType converts the tensor. Default: it has the dtype of the file.
	DType DType
	// Device receives the tensor. Default: the CPU.
	Device Device
}

// OpenSafetensors opens a safetensors file and reads its header: eight bytes, and what they say is the
// header's length, up to 100 MB. A header that does not describe the file exactly is an error of kind
// ValueError: tensors that overlap, leave gaps, have another size than their shape, or lie outside of it.
//
// See https://huggingface.co/docs/safetensors/index (safe_open).
func OpenSafetensors(path string) (*SafetensorsFile, error) {
	f, _, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	cPath := ctorch.CString(path)
	defer ctorch.CFree(unsafe.Pointer(cPath))
	var index ctorch.TensorIndex
	if err := ctorch.IndexOpenTensors(int32(f.Fd()), cPath, &index); err != nil {
		f.Close()
		return nil, takeError("OpenSafetensors", unsafe.Pointer(err))
	}
	defer ctorch.FreeTensorIndex(&index)
	s := &SafetensorsFile{path: path, file: f, entries: make([]SafetensorsEntry, index.N), byName: make(map[string]int, index.N),
		metadata: make(map[string]string, index.NMetadata)}
	for i, e := range unsafe.Slice(index.Entries, index.N) {
		entry := SafetensorsEntry{Name: ctorch.GoString(e.Name), Format: ctorch.GoString(e.Format), Offset: e.Offset, Bytes: e.Nbytes}
		if e.Known {
			entry.DType = DType(e.Dtype + 1)
		}
		entry.Shape = make([]int64, e.Ndim)
		for d, size := range unsafe.Slice(e.Sizes, e.Ndim) {
			entry.Shape[d] = size
		}
		s.entries[i], s.byName[entry.Name] = entry, i
	}
	pairs := unsafe.Slice(index.Metadata, 2*index.NMetadata)
	for i := 0; i < len(pairs); i += 2 {
		s.metadata[ctorch.GoString(pairs[i])] = ctorch.GoString(pairs[i+1])
	}
	return s, nil
}

// Path returns the path that the file was opened by.
func (f *SafetensorsFile) Path() string { return f.path }

// Names returns the tensors' names in alphabetical order.
func (f *SafetensorsFile) Names() []string { return slices.Sorted(maps.Keys(f.byName)) }

// Entries returns what the header says of the tensors, in the order of the file.
func (f *SafetensorsFile) Entries() []SafetensorsEntry {
	entries := slices.Clone(f.entries)
	for i := range entries {
		entries[i].Shape = slices.Clone(entries[i].Shape)
	}
	return entries
}

// Entry returns what the header says of a tensor, and whether there is one of that name.
func (f *SafetensorsFile) Entry(name string) (SafetensorsEntry, bool) {
	i, ok := f.byName[name]
	if !ok {
		return SafetensorsEntry{}, false
	}
	entry := f.entries[i]
	entry.Shape = slices.Clone(entry.Shape)
	return entry, true
}

// Metadata returns the strings that the file has beside its tensors.
func (f *SafetensorsFile) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Close closes the file. Tensors that came from it stay.
func (f *SafetensorsFile) Close() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// smallest is the number of bytes from which on a tensor is mapped. Below, a mapping, which is of whole pages
// and of which a process may have 65,530, costs more than it saves.
const smallest = 1 << 16

// Tensor returns a tensor of the file. Its elements stay in the file, and the system reads a page of them when
// it is first used, and may drop it again; until then neither time nor memory is spent on them. The mapping ends
// with the last tensor that uses it. Writing to the tensor changes neither the file nor what other calls return:
// pages that are written become memory of their own.
//
// The elements are read at once with Read, where another dtype or device is asked for, where they take less than
// 64 KiB, and where they do not lie in the file as their dtype wants them.
//
// While a mapped tensor is in use nobody may shorten the file: the system ends a program that reads what is not
// there any more. A file that became shorter before Tensor is called, or while it reads, is an error of kind
// ValueError. Replacing a file, as this package and Python's do, is no danger.
//
// Errors are of kind KeyError for a name that is not there, NotImplementedError for a dtype that this PyTorch
// lacks, and ValueError when f is closed.
func (f *SafetensorsFile) Tensor(name string, opts ...SafetensorsOptions) (Tensor, error) {
	entry, err := f.find("SafetensorsFile.Tensor", name)
	if err != nil {
		return Tensor{}, err
	}
	return f.window("SafetensorsFile.Tensor", entry, opts)
}

// Rows is [SafetensorsFile.Tensor] for the rows from one to before another, along the first dimension, of which
// no others are read: Python's get_slice(name)[from:to]. What it cannot give is an error of kind IndexError.
func (f *SafetensorsFile) Rows(name string, from, to int64, opts ...SafetensorsOptions) (Tensor, error) {
	const op = "SafetensorsFile.Rows"
	entry, err := f.find(op, name)
	if err != nil {
		return Tensor{}, err
	}
	if len(entry.Shape) == 0 {
		return Tensor{}, newError(op, IndexError, fmt.Sprintf("%s: the tensor %q has no dimensions, and so no rows", f.path, name))
	}
	n := entry.Shape[0]
	if from < 0 || to < from || to > n {
		return Tensor{}, newError(op, IndexError, fmt.Sprintf("%s: rows %d to %d of the tensor %q, which has %d", f.path, from, to, name, n))
	}
	row := entry.Bytes / max(n, 1)
	entry.Shape = slices.Clone(entry.Shape)
	entry.Shape[0], entry.Offset, entry.Bytes = to-from, entry.Offset+from*row, (to-from)*row
	return f.window(op, entry, opts)
}

func (f *SafetensorsFile) find(op, name string) (SafetensorsEntry, error) {
	i, ok := f.byName[name]
	switch {
	case !ok:
		return SafetensorsEntry{}, newError(op, KeyError, fmt.Sprintf("%s does not hold the tensor %q", f.path, name))
	case f.entries[i].DType == 0:
		return SafetensorsEntry{}, newError(op, NotImplementedError, fmt.Sprintf("%s: the tensor %q has the dtype %q, which this torch lacks", f.path, name, f.entries[i].Format))
	}
	return f.entries[i], nil
}

// window returns the tensor that an entry describes.
func (f *SafetensorsFile) window(op string, entry SafetensorsEntry, opts []SafetensorsOptions) (t Tensor, err error) {
	defer catch(&err)
	opt := option(opts)
	f.mutex.RLock()
	defer f.mutex.RUnlock()
	if f.file == nil {
		return Tensor{}, newError(op, ValueError, f.path+" is closed")
	}
	moves := opt.DType != 0 && opt.DType != entry.DType || opt.Device != 0 && opt.Device != CPU
	if !opt.Read && !moves && entry.Bytes >= smallest && entry.Offset%int64(entry.DType.Size()) == 0 {
		return f.mapped(op, entry)
	}
	if t, err = f.read(op, entry); err != nil || !moves {
		return t, err
	}
	defer t.Close()
	return t.To(ToOptions{DType: opt.DType, Device: opt.Device}), nil
}

func (f *SafetensorsFile) mapped(op string, entry SafetensorsEntry) (Tensor, error) {
	cPath := ctorch.CString(f.path)
	defer ctorch.CFree(unsafe.Pointer(cPath))
	var h ctorch.Storage
	if err := ctorch.MapOpenFile(int32(f.file.Fd()), cPath, int64(entry.Offset), int64(entry.Bytes), &h); err != nil {
		e := takeError(op, unsafe.Pointer(err))
		if strings.Contains(e.Msg, "Cannot allocate") {
			e.Msg += "; a process has a bound of mappings (vm.max_map_count): close tensors, or use Read"
		}
		return Tensor{}, e
	}
	defer ctorch.FreeStorage(h) // the tensor has its own reference, and the mapping ends with it
	strides := contiguousStrides(entry.Shape)
	var t ctorch.Tensor
	if err := ctorch.TensorFromStorage(h, int32(entry.DType)-1, 0, unsafe.SliceData(entry.Shape),
		unsafe.SliceData(strides), int64(len(strides)), &t); err != nil {
		return Tensor{}, takeError(op, unsafe.Pointer(err))
	}
	return wrapHandle(t), nil
}

func (f *SafetensorsFile) read(op string, entry SafetensorsEntry) (Tensor, error) {
	t := Empty(entry.Shape, TensorOptions{DType: entry.DType, Device: CPU})
	if entry.Bytes == 0 {
		return t, nil
	}
	_, err := f.file.ReadAt(RawData(t), entry.Offset)
	runtime.KeepAlive(t.T)
	if err != nil {
		t.Close()
		if errors.Is(err, io.EOF) {
			return Tensor{}, newError(op, ValueError, f.path+": the file became shorter while it was read")
		}
		return Tensor{}, err
	}
	return t, nil
}
