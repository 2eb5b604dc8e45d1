package gotorch

import (
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/replace"
)

// SaveSafetensors writes tensors under their names in the safetensors format, and metadata beside
// them, as Python's safetensors.torch.save_file. The file holds no code and no references: tensors that
// share memory are written once each. A file at path is replaced when the new one is complete.
func SaveSafetensors(path string, tensors map[string]Tensor, metadata map[string]string) error {
	if path == "" {
		return newError("SaveSafetensors", ValueError, noPath)
	}
	return replace.File(path, func(w io.Writer) error { return EncodeSafetensors(w, tensors, metadata) })
}

// EncodeSafetensors is [SaveSafetensors] to anywhere. Nothing is written where a tensor has no place in
// such a file. Tensors are written from where they are; one that is on another device, or is not
// contiguous, is copied when its turn comes, and freed before the next. They must not change meanwhile.
func EncodeSafetensors(w io.Writer, tensors map[string]Tensor, metadata map[string]string) (err error) {
	defer catch(&err)
	const op = "SaveSafetensors"
	names := slices.Sorted(maps.Keys(tensors))
	list := make([]Tensor, len(names))
	for i, name := range names {
		list[i] = tensors[name].held(op, "tensors") // so that nobody closes it before it is written
		defer list[i].Close()
	}
	head, order, err := safetensorsHeader(op, names, list, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, i := range order {
		if err := writeElements(w, list[i]); err != nil {
			return err
		}
	}
	return nil
}

func safetensorsHeader(op string, names []string, list []Tensor, metadata map[string]string) (head []byte, order []int64, err error) {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		pairs = append(pairs, key, metadata[key])
	}
	for _, s := range slices.Concat(names, pairs) {
		if strings.ContainsRune(s, 0) {
			return nil, nil, newError(op, ValueError, "the name "+strconv.Quote(s)+" contains a NUL byte")
		}
	}
	cNames, cPairs := ctorch.CStrings(names), ctorch.CStrings(pairs)
	defer ctorch.FreeStrings(cNames)
	defer ctorch.FreeStrings(cPairs)
	var held holder
	defer held.free()
	hs := held.all(op, "tensors", list)
	order = make([]int64, len(list))
	var (
		begin *ctorch.Char
		size  int64
	)
	cErr := ctorch.TensorsHeader(unsafe.SliceData(cNames), unsafe.SliceData(hs), int64(len(hs)), unsafe.SliceData(cPairs),
		int64(len(pairs)/2), &begin, &size, unsafe.SliceData(order))
	if cErr != nil {
		return nil, nil, takeError(op, unsafe.Pointer(cErr))
	}
	defer ctorch.FreeString(begin)
	return ctorch.GoBytes(unsafe.Pointer(begin), size), order, nil
}

func writeElements(w io.Writer, t Tensor) error {
	plain := t.Detach().To(CPU).ResolveConj().ResolveNeg().Contiguous()
	defer plain.Close()
	_, err := w.Write(RawData(plain))
	return err
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
	cPath := ctorch.CString(f.Name())
	defer ctorch.CFree(unsafe.Pointer(cPath))
	var file ctorch.TensorFile
	if err := ctorch.LoadOpenTensors(int32(f.Fd()), cPath, opt.Map, &file); err != nil {
		return nil, nil, takeError("LoadSafetensors", unsafe.Pointer(err))
	}
	return takeFile(&file, opt.Device)
}

// ParseSafetensors is [LoadSafetensors] for the contents of a file.
func ParseSafetensors(data []byte, opts ...LoadOptions) (map[string]Tensor, map[string]string, error) {
	device := option(opts).Device
	var file ctorch.TensorFile
	if err := ctorch.ParseTensors(unsafe.Pointer(unsafe.SliceData(data)), int64(len(data)), &file); err != nil {
		return nil, nil, takeError("ParseSafetensors", unsafe.Pointer(err))
	}
	return takeFile(&file, device)
}

func takeFile(file *ctorch.TensorFile, device Device) (tensors map[string]Tensor, metadata map[string]string, err error) {
	defer ctorch.FreeTensorFile(file, false)
	defer func() {
		if err != nil {
			tensors, metadata = nil, nil
		}
	}()
	defer catch(&err)
	names := unsafe.Slice(file.Names, file.N)
	tensors = make(map[string]Tensor, len(names))
	for i, h := range unsafe.Slice(file.Tensors, file.N) {
		tensors[ctorch.GoString(names[i])] = wrapHandle(h)
	}
	if device != 0 {
		for name, t := range tensors {
			tensors[name] = t.To(device)
		}
	}
	pairs := unsafe.Slice(file.Metadata, 2*file.NMetadata)
	metadata = make(map[string]string, file.NMetadata)
	for i := 0; i < len(pairs); i += 2 {
		metadata[ctorch.GoString(pairs[i])] = ctorch.GoString(pairs[i+1])
	}
	return tensors, metadata, nil
}
