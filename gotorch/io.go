package gotorch

/*
#include <files.h>
#include <stdlib.h>
*/
import "C"

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/replace"
)

// UnpicklingError is the kind of the errors for files that hold more than data, or no valid data.
const UnpicklingError ErrorKind = "UnpicklingError"

// LoadOptions are the arguments of [Load], [LoadTensors] and [LoadSafetensors] that have defaults.
type LoadOptions struct {
	// Device receives the tensors. Default: the CPU, wherever they were when they were saved.
	Device Device
	// Map leaves the tensors in the file and reads each when it is first used. Writing to them does
	// not change the file. The file must not be changed in place while they are in use; replacing
	// it, as this package does, is fine.
	Map bool
	// IgnoreChecksums accepts files whose checksums are wrong. Python writes such files after
	// torch.serialization.set_crc32_options(False).
	IgnoreChecksums bool
}

// SaveTensors writes tensors under their names, as a file that Python reads too: in the safetensors
// format if path ends in .safetensors, and in that of [Save] if it ends in .pt, .pth, .bin or .ckpt.
// Other endings are an error.
//
// A file at path is replaced when the new one is complete, and not before: neither a crash nor a full
// disk leaves half a file there.
func SaveTensors(path string, tensors map[string]Tensor) error {
	switch ext := filepath.Ext(path); ext {
	case ".safetensors":
		return SaveSafetensors(path, tensors, nil)
	case ".pt", ".pth", ".bin", ".ckpt":
		return Save(path, tensors)
	default:
		return newError("SaveTensors", ValueError, "the format of "+path+" is unknown: its name should end in .safetensors or .pt")
	}
}

// LoadTensors reads the tensors of a file, by their names: a safetensors file, or one of [Save] or
// torch.save that holds a dict of tensors. Which it is does not depend on the file's name.
func LoadTensors(path string, opts ...LoadOptions) (map[string]Tensor, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var head [9]byte
	if _, err := f.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if head[8] == '{' {
		tensors, _, err := loadSafetensors(f, opts)
		return tensors, err
	}
	v, err := load(f, f, size, opts)
	if err != nil {
		return nil, err
	}
	return namedTensors(path, v)
}

// namedTensors returns a dict of tensors as a map.
func namedTensors(path string, v any) (map[string]Tensor, error) {
	d, ok := v.(Dict)
	if !ok {
		return nil, newError("LoadTensors", ValueError, path+" does not hold a dict of tensors: read it with Load")
	}
	tensors := make(map[string]Tensor, len(d))
	for key, value := range d.All() {
		name, ok1 := key.(string)
		t, ok2 := value.(Tensor)
		if !ok1 || !ok2 {
			return nil, newError("LoadTensors", ValueError, path+" holds other things than named tensors: read it with Load")
		}
		tensors[name] = t
	}
	return tensors, nil
}

// Save writes a value as torch.save does, so that torch.load reads it, also with weights_only=True. It
// takes
//
//	Tensor, and slices, maps, [Dict] and [Tuple] of what it takes
//	nil, bool, numbers, *big.Int, string, []byte, DType, Device
//
// Maps become dicts with sorted keys. Tensors that share memory do so in the file, and in Python;
// of what they are views of, all is written. Tensors of other devices are written as CPU tensors.
// Sparse, quantised and nested tensors, and those on the meta device, are an error of kind
// NotImplementedError.
//
// A file at path is replaced when the new one is complete, and not before. Until then it is beside it,
// as gotorch-*.part; what a process that was killed has left so, the next one that saves in the folder
// removes.
func Save(path string, value any) error {
	return replace.File(path, func(w io.Writer) error { return Encode(w, archiveName(path), value) })
}

// archiveName is the name of the folder inside of the archive, which Python takes from the file.
func archiveName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	if name == "" {
		return "archive"
	}
	return name
}

// Load reads a file that [Save] or Python's torch.save has written, but nothing that Python would
// have to run code for: as torch.load with weights_only=True. It returns
//
//	Tensor                for tensors and parameters
//	Dict, []any, Tuple    for dicts and OrderedDicts, lists and sets, tuples and torch.Size
//	nil, bool, int64 (beyond its range *big.Int), float64, complex128, string, []byte, DType, Device
//
// The error says if the file is truncated, changed, or something else; its kind is then
// UnpicklingError or ValueError. So it does of a file that asks for far more memory or time than one of
// its length needs, or whose values are in so many places at once that nobody could print them.
func Load(path string, opts ...LoadOptions) (any, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return load(f, f, size, opts)
}

// Decode is [Load] for size bytes from anywhere, such as a bytes.Reader. It cannot map them.
func Decode(r io.ReaderAt, size int64, opts ...LoadOptions) (any, error) {
	if option(opts).Map {
		return nil, newError("Decode", ValueError, "only a file can be mapped: use Load")
	}
	return load(nil, r, size, opts)
}

// load is Load; file is what r reads, or nil where there is no file.
func load(file *os.File, r io.ReaderAt, size int64, opts []LoadOptions) (v any, err error) {
	// A tensor that cannot be made, for lack of memory or of a GPU, panics.
	defer catch(&err)
	opt := option(opts)
	a, err := openArchive(file, r, size, opt)
	if err != nil {
		return nil, err
	}
	return a.decode()
}

// Safetensors ---------------------------------------------------------------------------------------------

// SaveSafetensors writes tensors under their names in the safetensors format, and metadata beside
// them, as Python's safetensors.torch.save_file. The file holds no code and no references: tensors that
// share memory are written once each. A file at path is replaced when the new one is complete.
func SaveSafetensors(path string, tensors map[string]Tensor, metadata map[string]string) (err error) {
	defer catch(&err)
	const op = "SaveSafetensors"
	names := slices.Sorted(maps.Keys(tensors))
	list := make([]Tensor, len(names))
	for i, name := range names {
		list[i] = tensors[name]
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		pairs = append(pairs, key, metadata[key])
	}
	for _, s := range slices.Concat(names, pairs, []string{path}) {
		if strings.ContainsRune(s, 0) {
			return newError(op, ValueError, "the name "+strconv.Quote(s)+" contains a NUL byte")
		}
	}
	cNames, cPairs, cPath := cStrings(names), cStrings(pairs), C.CString(path)
	defer freeStrings(cNames)
	defer freeStrings(cPairs)
	defer C.free(unsafe.Pointer(cPath))
	var held holder
	defer held.free()
	hs := held.all(op, "tensors", list)
	cErr := C.SaveTensors(cPath, unsafe.SliceData(cNames), unsafe.SliceData(hs), C.int64_t(len(hs)), unsafe.SliceData(cPairs),
		C.int64_t(len(pairs)/2))
	if cErr != nil {
		return takeError(op, unsafe.Pointer(cErr))
	}
	return nil
}

func cStrings(ss []string) []*C.char {
	cs := make([]*C.char, len(ss))
	for i, s := range ss {
		cs[i] = C.CString(s)
	}
	return cs
}

func freeStrings(cs []*C.char) {
	for _, c := range cs {
		C.free(unsafe.Pointer(c))
	}
}

// LoadSafetensors reads a safetensors file: its tensors by their names, and its metadata.
func LoadSafetensors(path string, opts ...LoadOptions) (map[string]Tensor, map[string]string, error) {
	f, _, err := regular.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return loadSafetensors(f, opts)
}

func loadSafetensors(f *os.File, opts []LoadOptions) (map[string]Tensor, map[string]string, error) {
	opt := option(opts)
	cPath := C.CString(f.Name())
	defer C.free(unsafe.Pointer(cPath))
	var file C.TensorFile
	if err := C.cgotorch_load_open_tensors(C.int(f.Fd()), cPath, C.bool(opt.Map), &file); err != nil {
		return nil, nil, takeError("LoadSafetensors", unsafe.Pointer(err))
	}
	return takeFile(&file, opt.Device)
}

// ParseSafetensors is [LoadSafetensors] for the contents of a file.
func ParseSafetensors(data []byte, opts ...LoadOptions) (map[string]Tensor, map[string]string, error) {
	device := option(opts).Device
	var file C.TensorFile
	if err := C.ParseTensors(unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(len(data)), &file); err != nil {
		return nil, nil, takeError("ParseSafetensors", unsafe.Pointer(err))
	}
	return takeFile(&file, device)
}

func takeFile(file *C.TensorFile, device Device) (tensors map[string]Tensor, metadata map[string]string, err error) {
	defer C.FreeTensorFile(file, false)
	defer func() {
		if err != nil {
			tensors, metadata = nil, nil
		}
	}()
	defer catch(&err)
	names := unsafe.Slice(file.names, file.n)
	tensors = make(map[string]Tensor, len(names))
	for i, h := range unsafe.Slice(file.tensors, file.n) {
		tensors[C.GoString(names[i])] = wrapHandle(unsafe.Pointer(h))
	}
	if device != 0 {
		for name, t := range tensors {
			tensors[name] = t.To(device)
		}
	}
	pairs := unsafe.Slice(file.metadata, 2*file.n_metadata)
	metadata = make(map[string]string, file.n_metadata)
	for i := 0; i < len(pairs); i += 2 {
		metadata[C.GoString(pairs[i])] = C.GoString(pairs[i+1])
	}
	return tensors, metadata, nil
}

// Files ---------------------------------------------------------------------------------------------------

// counter counts what is written through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

var legacyMagic = []byte{0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19}

// foreign says what a file is that is no archive.
func foreign(r io.ReaderAt, size int64) string {
	head := make([]byte, min(size, 16))
	if n, _ := r.ReadAt(head, 0); n < len(head) {
		head = head[:n]
	}
	switch {
	case bytes.HasPrefix(head, legacyMagic):
		return "the file is in the format that torch.save had before version 1.6: load and save it once in Python"
	case len(head) > 8 && head[8] == '{':
		return "the file is a safetensors file: read it with LoadTensors"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return "the file is truncated or damaged"
	}
	return "the file is none of torch.save's"
}
