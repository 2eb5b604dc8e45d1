package gotorch

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gotorch.dev/gotorch/internal/fileformat"
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
	switch fileformat.Of(path) {
	case fileformat.Safetensors:
		return SaveSafetensors(path, tensors, nil)
	case fileformat.Archive:
		return Save(path, tensors)
	}
	return newError("SaveTensors", ValueError, "the format of "+path+" is unknown: its name should end in .safetensors or .pt")
}

// LoadTensors reads the tensors of a file, by their names: a safetensors file, the index of one in parts
// (model.safetensors.index.json), or a file of [Save] or torch.save that holds a dict of tensors. Which it
// is does not depend on the file's name. What is wrong with the parts of an index is a *ShardError.
func LoadTensors(path string, opts ...LoadOptions) (map[string]Tensor, error) {
	v, err := loadAny(path, opts)
	if err != nil {
		return nil, err
	}
	if tensors, ok := v.(map[string]Tensor); ok {
		return tensors, nil
	}
	return namedTensors(path, v)
}

// loadAny is [Load], which also reads safetensors files and their indexes: as a map of tensors.
func loadAny(path string, opts []LoadOptions) (any, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var head [9]byte
	if _, err := f.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case head[0] == '{' && head[7] != 0: // as a length, more than there is memory
		return loadSharded(f, size, opts)
	case head[8] == '{':
		tensors, _, err := loadSafetensors(f, opts)
		return tensors, err
	}
	return load(f, f, size, opts)
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
//	Tensor, and slices, maps, [Dict], [Counter] and [Tuple] of what it takes
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

// Files ---------------------------------------------------------------------------------------------------

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
