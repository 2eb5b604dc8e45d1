package gotorch

/*
#include <cgotorch.h>
#include <stdlib.h>
*/
import "C"

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// Models that Python compiled, for package aoti.

func init() { door.LoadCompiled = loadCompiled }

type compiled struct{ h C.AOTIModel }

func loadCompiled(path string, opts door.CompiledOptions) (door.Compiled[Tensor, DType, Device], error) {
	const op = "aoti.Load"
	// For the error of the operating system; without waiting for who would write into a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f.Close()
	if strings.ContainsRune(opts.ModelName, 0) {
		return nil, newError(op, ValueError, "the name "+strconv.Quote(opts.ModelName)+" contains a NUL byte")
	}
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	options := C.AOTIOptions{
		num_runners:      C.int64_t(opts.NumRunners),
		single_threaded:  C.bool(opts.SingleThreaded),
		unchecked:        C.bool(opts.Unchecked),
		ignore_checksums: C.bool(opts.IgnoreChecksums),
		device_index:     C.int64_t(opts.DeviceIndex),
	}
	if opts.ModelName != "" {
		options.model_name = C.CString(opts.ModelName)
		defer C.free(unsafe.Pointer(options.model_name))
	}
	m := &compiled{}
	state := enterBack() // the model's library may do anything as it is loaded
	cErr := C.AOTILoad(cPath, &options, &m.h)
	warnings := leaveBack(state)
	defer warnings.handOn(true)
	if cErr != nil {
		return nil, takeError(op, unsafe.Pointer(cErr))
	}
	return m, nil
}

// Free implements [door.Compiled].
func (m *compiled) Free() { C.AOTIFree(m.h) }

// Run implements [door.Compiled].
func (m *compiled) Run(inputs []Tensor) []Tensor {
	const op = "aoti.Run"
	var held holder
	defer held.free()
	hs := held.all(op, "inputs", inputs)
	var results *C.Tensor
	var n C.int64_t
	state := enterBack()
	err := C.AOTIRun(m.h, unsafe.SliceData(hs), C.int64_t(len(hs)), &results, &n)
	warnings := leaveBack(state)
	return m.takeResults(op, results, n, err, warnings)
}

// Constants implements [door.Compiled].
func (m *compiled) Constants(op string) []Tensor {
	var results *C.Tensor
	var n C.int64_t
	state := enterBack()
	err := C.AOTIConstants(m.h, &results, &n)
	return m.takeResults(op, results, n, err, leaveBack(state))
}

func (m *compiled) takeResults(op string, results *C.Tensor, n C.int64_t, err *C.char, warnings warningsOf) []Tensor {
	taken := false
	defer func() {
		if !taken {
			C.FreeTensors(results, n)
		}
		C.FreeArray(unsafe.Pointer(results))
	}()
	checkBack(op, unsafe.Pointer(err), warnings)
	taken = true
	return wrapHandles(unsafe.Slice(results, n))
}

// SetConstants implements [door.Compiled].
func (m *compiled) SetConstants(op string, names []string, tensors []Tensor, all bool) (err error) {
	defer catch(&err)
	for _, name := range names {
		if strings.ContainsRune(name, 0) {
			return newError(op, ValueError, "the name "+strconv.Quote(name)+" contains a NUL byte")
		}
	}
	var held holder
	defer held.free()
	hs := held.all(op, "tensors", tensors)
	cNames := cStrings(names)
	defer freeStrings(cNames)
	state := enterBack()
	cErr := C.AOTISetConstants(m.h, unsafe.SliceData(cNames), unsafe.SliceData(hs), C.int64_t(len(hs)), C.bool(all))
	warnings := leaveBack(state)
	checkBack(op, unsafe.Pointer(cErr), warnings)
	return nil
}

// Info implements [door.Compiled].
func (m *compiled) Info() door.CompiledInfo[DType, Device] {
	var c C.AOTIInfo
	C.AOTIGetInfo(m.h, &c)
	info := door.CompiledInfo[DType, Device]{
		ModelName:  C.GoString(c.model_name),
		Device:     deviceOf(c.device),
		NumRunners: int(c.num_runners),
		NumOutputs: int(c.n_outputs),
		Inputs:     compiledTensors(c.inputs, c.n_inputs),
		Constants:  compiledTensors(c.constants, c.n_constants),
		Metadata:   map[string]string{},
		InSpec:     C.GoString(c.in_spec),
		OutSpec:    C.GoString(c.out_spec),
	}
	for pair := range slices.Chunk(unsafe.Slice(c.metadata, 2*c.n_metadata), 2) {
		info.Metadata[C.GoString(pair[0])] = C.GoString(pair[1])
	}
	return info
}

func compiledTensors(list *C.AOTITensorInfo, n C.int64_t) []door.CompiledTensor[DType] {
	ts := make([]door.CompiledTensor[DType], n)
	for i, c := range unsafe.Slice(list, n) {
		t := &ts[i]
		t.Name, t.DType, t.DeviceType = C.GoString(c.name), DType(c.dtype+1), int(c.device_type)
		if c.ndim >= 0 {
			t.Sizes = make([]int64, c.ndim) // [] where there are no dimensions
			for i := range t.Sizes {
				t.Sizes[i] = int64(unsafe.Slice(c.sizes, c.ndim)[i])
			}
		}
		if c.ndim > 0 && c.min != nil {
			for i := range t.Sizes {
				t.Min = append(t.Min, int64(unsafe.Slice(c.min, c.ndim)[i]))
				t.Max = append(t.Max, int64(unsafe.Slice(c.max, c.ndim)[i]))
			}
		}
	}
	return ts
}
