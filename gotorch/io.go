package gotorch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gotorch.dev/gotorch/internal/fileformat"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/replace"
)

// UnpicklingError is the kind of the errors for files that hold more than data, or no valid data.
const UnpicklingError ErrorKind = "UnpicklingError"

// LoadOptions are the arguments of [Load], [LoadTensors] and [LoadSafetensors] that have defaults.
type LoadOptions struct {
	// Device receives the tensors. Default: the CPU, wherever they were when they were saved, and meta for
	// those on the meta device. With it the file may name devices that this PyTorch does not know.
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
	if path == "" {
		return newError("SaveTensors", ValueError, noPath)
	}
	switch fileformat.Of(path) {
	case fileformat.Safetensors:
		return SaveSafetensors(path, tensors, nil)
	case fileformat.Archive:
		return Save(path, tensors)
	}
	return newError("SaveTensors", ValueError, "the format of "+path+" is unknown: its name should end in .safetensors or .pt")
}

// DecodeTensors is [LoadTensors] for size bytes from anywhere, such as a bytes.Reader. It cannot map them, and an index of
// files in parts is an error, for the parts are files.
func DecodeTensors(r io.ReaderAt, size int64, opts ...LoadOptions) (map[string]Tensor, error) {
	if option(opts).Map {
		return nil, newError("DecodeTensors", ValueError, "only a file can be mapped: use LoadTensors")
	}
	var head [9]byte
	if _, err := r.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if head[8] == '{' {
		data := make([]byte, size)
		if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), data); err != nil {
			return nil, err
		}
		tensors, _, err := ParseSafetensors(data, opts...)
		return tensors, err
	}
	v, err := load(nil, r, size, opts)
	if err != nil {
		return nil, err
	}
	return namedTensors("the data", v)
}

// LoadTensors reads the tensors of a file, by their names: a safetensors file, the index of one in parts
// (model.safetensors.index.json), or a file of [Save] or torch.save that holds a dict of tensors. Which it
// is does not depend on the file's name. What is wrong with the parts of an index is a *ShardError. What else
// is in the dict is left out; [LoadAs] and [Load] read it.
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

// namedTensors returns the tensors of a dict by their names. Whatever else is in it, numbers, other dicts and objects of
// Python's, is left out.
func namedTensors(what string, v any) (map[string]Tensor, error) {
	d, ok := v.(Dict)
	if !ok {
		return nil, newError("LoadTensors", ValueError, fmt.Sprintf("%s holds %s, and no dict of tensors: read it with Load", what, pythonKind(v)))
	}
	tensors := make(map[string]Tensor, len(d))
	var elsewhere []string
	for key, value := range d.All() {
		switch value := value.(type) {
		case Tensor:
			name, ok := key.(string)
			if !ok {
				return nil, newError("LoadTensors", ValueError, fmt.Sprintf("%s holds a tensor under %v, which is no name: read it with Load", what, key))
			}
			tensors[name] = value
		case *PickledObject:
			if value.isModule() || value.Class == dtensorClass {
				return nil, newError("LoadTensors", NotImplementedError, fmt.Sprintf("%s: %s is %s", what, placeIn(key), value.wayOut()))
			}
		case Dict:
			if hasTensor(value) {
				elsewhere = append(elsewhere, placeIn(key))
			}
		}
	}
	if len(tensors) == 0 && len(d) > 0 {
		way := "read it with Load"
		if len(elsewhere) > 0 {
			way = "there are some in " + strings.Join(elsewhere, ", ") + ", which LoadAs reads into a struct that has a field for it"
		}
		return nil, newError("LoadTensors", ValueError, what+" holds a dict without tensors: "+way)
	}
	return tensors, nil
}

func hasTensor(d Dict) bool {
	return slices.ContainsFunc(d, func(item DictItem) bool { _, ok := item.Value.(Tensor); return ok })
}

// pythonKind says in Python's words what a value of a file is.
func pythonKind(v any) string {
	switch v := v.(type) {
	case Dict:
		return "a dict"
	case []any:
		return "a list"
	case Tuple:
		return "a tuple"
	case map[string]Tensor:
		return "a dict of tensors"
	case *Storage:
		return "a storage"
	case *PickledObject:
		return v.wayOut()
	}
	return describe(v)
}

// Save writes a value as torch.save does, so that torch.load reads it, also with weights_only=True. It
// takes
//
//	Tensor, *Storage, and slices, maps, [Dict], [Counter] and [Tuple] of what it takes
//	nil, bool, numbers, *big.Int, string, []byte, DType, Device, Layout
//
// Maps become dicts with sorted keys, and arrays that are keys tuples. Two keys that are equal in Python, as 1
// and 1.0 are, are an error. Tensors that share memory do so in the file, and in Python;
// of what they are views of, all is written. Tensors of other devices are written as CPU tensors.
// Nested tensors are an error of kind NotImplementedError, and a [PickledObject] is one of kind TypeError.
//
// A file at path is replaced when the new one is complete, and not before. Until then it is beside it,
// as gotorch-*.part; what a process that was killed has left so, the next one that saves in the folder
// removes.
func Save(path string, value any) error {
	if path == "" {
		return newError("Save", ValueError, noPath)
	}
	return replace.File(path, func(w io.Writer) error { return Encode(w, archiveName(path), value) })
}

const noPath = "the path is empty: name the file to write"

// archiveName is the name of the folder inside of the archive, which Python takes from the file.
func archiveName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	if name == "" {
		return "archive"
	}
	return name
}

// Load reads a file that [Save] or Python's torch.save has written, in the format of today or in that of before
// PyTorch 1.6, in any pickle protocol, on a machine of any byte order. It runs nothing of the file. It returns
//
//	Tensor                for tensors, parameters, NumPy's arrays of numbers, and storages that have a dtype
//	*Storage              for other storages
//	Dict, []any, Tuple    for dicts and OrderedDicts, lists and sets, tuples and torch.Size
//	nil, bool, int64 (beyond its range *big.Int), float64, complex128, string, []byte, also of NumPy's scalars
//	DType, Device, Layout
//	*PickledObject        for everything else: what Python would have to run code for
//
// A file that is a pickled module is an error of kind NotImplementedError, which says how to save its weights; so is a
// TorchScript or torch.export program.
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
	var head [9]byte
	if n, _ := r.ReadAt(head[:], 0); mayBeLegacy(head[:n]) {
		return decodeLegacy(r, size, opt)
	}
	return decodeArchive(file, r, size, opt)
}
