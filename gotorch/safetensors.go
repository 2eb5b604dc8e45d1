package gotorch

/*
#include <files.h>
#include <stdlib.h>
*/
import "C"

import (
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

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
	cNames, cPairs := cStrings(names), cStrings(pairs)
	defer freeStrings(cNames)
	defer freeStrings(cPairs)
	var held holder
	defer held.free()
	hs := held.all(op, "tensors", list)
	order = make([]int64, len(list))
	var (
		begin *C.char
		size  C.int64_t
	)
	cErr := C.cgotorch_tensors_header(unsafe.SliceData(cNames), unsafe.SliceData(hs), C.int64_t(len(hs)), unsafe.SliceData(cPairs),
		C.int64_t(len(pairs)/2), &begin, &size, (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(order))))
	if cErr != nil {
		return nil, nil, takeError(op, unsafe.Pointer(cErr))
	}
	defer C.FreeString(begin)
	return C.GoBytes(unsafe.Pointer(begin), C.int(size)), order, nil
}

func writeElements(w io.Writer, t Tensor) error {
	plain := t.Detach().To(CPU).ResolveConj().ResolveNeg().Contiguous()
	defer plain.Close()
	_, err := w.Write(RawData(plain))
	return err
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
